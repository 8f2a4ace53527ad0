/* Packs the weights for the kernel for any device and for Hopper's, in the orders that parameters.h gives. */
#include "../pack/vectors.cuh"
#include "../runtime/guard.h"
#include "parameters.h"

#include <cuda_runtime_api.h>

namespace tconv::col2im
{

namespace
{

/* Lane l of an N tile has n l / 4; of the K step's channels it has the words l % 4 and l % 4 + 4. */
struct fragment_order : vector_order {
    static constexpr int VECTOR_BYTES = FRAGMENT_BYTES;
    int kernel_rows, kernel_columns, steps, tiles;
    uint32_t too_large; /* bits of the least magnitude that is special */
    int *special;       /* the header's flag */

    /* Weights stay as they are. */
    template <class Word> __device__ __forceinline__ void convert(Word bits, Word (&parts)[1]) const
    {
        parts[0] = bits;
        if ((bits & (sizeof(Word) == 4 ? 0x7fffffffu : 0x7fffu)) >= too_large)
            *special = 1; /* all that write write the same */
    }

    template <int per_word> __device__ __forceinline__ pack_vector vector_of(int64_t number) const
    {
        pack_vector vector = {number, 0, 0, 0, 0, 4 * per_word, 0, 0};
        const int lane = take_index(number, 32), n = take_index(number, tiles) * TILE_N + lane / 4;
        const int taps = kernel_rows * kernel_columns, tap = n % taps;
        vector.in = (take_index(number, steps) * (MMA_K_BYTES / 4) + lane % 4) * per_word;
        vector.out = n / taps;
        vector.from = weights_at(number, tap / kernel_columns, tap % kernel_columns);
        return vector;
    }
};

} // namespace

tconv_status tconv_col2im_pack_fragments(const tconv_problem *problem, int steps, int n_tiles, const void *weights,
                                         void *packed, void *stream, tconv_issue *issue)
{
    /* f32 from this on is rounded up to Inf (0x1.ffep127); of f16 and bf16 that is Inf itself. */
    constexpr uint32_t TOO_LARGE[] = {0x7f7ff000, 0x7c00, 0x7f80};
    fragment_order order = {order_of(problem->weight, problem->group_in, problem->group_out, false),
                            (int)problem->h.kernel,
                            (int)problem->w.kernel,
                            steps,
                            n_tiles,
                            TOO_LARGE[problem->dtype == TCONV_F32   ? 0
                                      : problem->dtype == TCONV_F16 ? 1
                                                                    : 2],
                            (int *)packed};
    order.vectors = problem->groups * steps * n_tiles * 32;
    tconv_status status =
        tconv_cuda_check(cudaMemsetAsync(packed, 0, HEADER_BYTES, (cudaStream_t)stream), "cudaMemsetAsync", issue);
    if (status != TCONV_SUCCESS)
        return status;
    return launch_vectors(problem->dtype == TCONV_F32 ? pack_by_vectors<fragment_order, uint32_t, 1>
                                                      : pack_by_vectors<fragment_order, uint16_t, 1>,
                          order, weights, (char *)packed + HEADER_BYTES, stream, issue);
}

namespace row_sums
{

namespace
{

struct order : vector_order {
    int kernel_rows, kernel_columns, stride, steps, band_n, gemm_n, block_out, out_blocks;

    template <int per_word> __device__ __forceinline__ pack_vector vector_of(int64_t number) const
    {
        const int n = take_index(number, gemm_n), half = take_index(number, 2);
        const int64_t block_step = number;
        const int step = take_index(number, steps), row_n = block_out * kernel_columns;
        const int first_out = take_index(number, out_blocks) * block_out;
        const int band = n / band_n, row = n % band_n / row_n, in_row = n % band_n % row_n;
        const int kernel_row = band * stride + row;
        const bool exists = row < stride && kernel_row < kernel_rows;
        /* The first half has the even channels of f32. */
        const int first = per_word == 1 ? half : half * 8;
        return {(block_step * planes * 2 + half) * gemm_n + n,
                2 * gemm_n,
                weights_at(number, kernel_row, in_row % kernel_columns),
                step * 8 * per_word + first,
                exists ? first_out + in_row / kernel_columns : group_out,
                2,
                0,
                4};
    }
};

} // namespace

} // namespace row_sums

tconv_status tconv_col2im_pack_row_sums(const tconv_problem *problem, bool split, const parameters *params, int config,
                                        const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    row_sums::order order = {order_of(problem->weight, problem->group_in, problem->group_out, split),
                             (int)problem->h.kernel,
                             (int)problem->w.kernel,
                             (int)problem->h.stride,
                             params->steps,
                             configs[config].band_tiles * TILE_N,
                             configs[config].n_tiles * TILE_N,
                             params->block_out,
                             params->out_blocks};
    order.vectors = problem->groups * params->out_blocks * params->steps * 2 * order.gemm_n;
    return launch_vectors(vectors_kernel(problem->element_size, order), order, weights, packed, stream, issue);
}

} // namespace tconv::col2im
