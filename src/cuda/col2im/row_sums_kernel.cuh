/*
 * Hopper's kernels share the way of a block down its rows (row_sums_cp_async.cu has their description): multiply a row
 * of src, put the partials of the first band into the column buffer, shift the other bands, gather outputs.
 *
 * A warp's 16 pixels, as fragments in registers, are the A operand of wgmma, and all weights of the group, in shared
 * memory, the B operand. An Operand brings fragments:
 *
 *     Arithmetic, Element
 *     WARPS, BYTES                     of a block; of all its pipeline stages
 *     NEIGHBOURS                       see store_partials
 *     has_kernel(config)               whether there is one of a config
 *     start                            begins to load src, fills shared memory, loads the first K step; false in a warp
 *                                      that is done then
 *     fragments[K_STEPS][PARTS]
 *     load_step<step>                  loads the fragments of a K step of the present stage, and where step is 0 of the
 *                                      next one, while the tensor cores work with the other step's: they have to be
 *                                      different ones, or the compiler lets nothing run at the same time. After the
 *                                      last one of all they are of stale data, and are not used
 *     load_again                       loads the fragments of K step 0 of the present stage once more: none are held
 *                                      while post-ops need registers
 *
 * Strict f32: the tensor cores sum small * big, big * small and big * big of a K-block (their own additions lose bits:
 * over 8 steps of like terms up to 30 units), and the sums are added in f32. A factor that is not finite is in the
 * small part alone, see tf32.cuh.
 */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_KERNEL_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_KERNEL_CUH

#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "operand.cuh"
#include "row_sums_gather.cuh"

#include <cuda.h>
#include <utility>

namespace tconv::col2im::row_sums
{

/* The kinds of arithmetic. convert: makes fragments, by part, from the values of f32 that a lane has of a K step. */
struct strict_arithmetic {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr int PARTS = 2;

    static __device__ __forceinline__ void convert(const float (&values)[4], fragment_a (&fragments)[PARTS])
    {
        float zero = 0; /* NaN after a value that split cannot take, whose small part is not finite */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const parts parts = split(values[i]);
            fragments[0].at[i] = parts.big;
            fragments[1].at[i] = parts.small;
            zero = fmaf(__uint_as_float(parts.small), 0.0f, zero);
        }
        if (!__any_sync(~0u, zero != 0))
            return;
#pragma unroll
        for (int i = 0; i < 4; i++)
            split_to_tf32(__float_as_uint(values[i]), &fragments[0].at[i], &fragments[1].at[i]);
    }
};

/* rounded: the values already are. */
template <bool rounded> struct tf32_arithmetic {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr int PARTS = 1;

    static __device__ __forceinline__ void convert(const float (&values)[4], fragment_a (&fragments)[PARTS])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            fragments[0].at[i] = rounded ? __float_as_uint(values[i]) : round_tf32(values[i]);
    }
};

template <class Element_, wgmma_type type> struct half_arithmetic {
    using Element = Element_;
    static constexpr wgmma_type TYPE = type;
    static constexpr int PARTS = 1;
};

/* Starts to add a K step to sums, as one commit group. weights: the descriptor's low word for the K step. */
template <class Arithmetic, int N>
__device__ __forceinline__ void multiply_step(float (&sums)[N / 2], const fragment_a (&fragments)[Arithmetic::PARTS],
                                              uint32_t weights, int accumulate)
{
    using Mma = wgmma_rs<Arithmetic::TYPE, N>;
    constexpr uint32_t PART = N * MMA_K_BYTES / 16;
    wgmma_fence();
    if constexpr (Arithmetic::PARTS == 2) {
        Mma::add(sums, fragments[1].at, descriptor(weights), accumulate);
        Mma::add(sums, fragments[0].at, descriptor(weights + PART), 1);
        Mma::add(sums, fragments[0].at, descriptor(weights), 1);
    } else {
        Mma::add(sums, fragments[0].at, descriptor(weights), accumulate);
    }
    wgmma_commit();
}

/* Adds a K-block of `count` K steps to sums, and goes on to the next stage. */
template <int N, int count, class Operand>
__device__ __forceinline__ void multiply_block(const parameters &layer, Operand &operand, uint32_t weights,
                                               float (&sums)[N / 2], int accumulate)
{
    using Arithmetic = typename Operand::Arithmetic;
    constexpr uint32_t STEP = Arithmetic::PARTS * N * MMA_K_BYTES / 16;
    static_assert(K_STEPS == 2, "as here");
    multiply_step<Arithmetic, N>(sums, operand.fragments[0], weights, accumulate);
    if constexpr (count == 2) {
        operand.template load_step<1>(layer);
        wgmma_wait<0>();
        multiply_step<Arithmetic, N>(sums, operand.fragments[1], weights + STEP, 1);
        operand.template load_step<0>(layer);
        wgmma_wait<0>();
    } else {
        wgmma_wait<0>();
        operand.template load_step<0>(layer);
    }
}

/* The same, through sums of the K-block's own in strict f32. */
template <int N, int count, class Operand>
__device__ __forceinline__ void add_block(const parameters &layer, Operand &operand, uint32_t weights,
                                          float (&sums)[N / 2])
{
    if constexpr (Operand::Arithmetic::PARTS == 2) {
        float block[N / 2];
        multiply_block<N, count>(layer, operand, weights, block, 0);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[i] += block[i];
    } else {
        multiply_block<N, count>(layer, operand, weights, sums, 1);
    }
}

/* Multiplies a row of src, which exists, and adds it to sums. */
template <int N_TILES, class Operand>
__device__ __forceinline__ void multiply_row(const parameters &layer, Operand &operand, uint32_t weights,
                                             float (&sums)[N_TILES * 4])
{
    constexpr int N = N_TILES * TILE_N;
    constexpr uint32_t STEP = Operand::Arithmetic::PARTS * N * MMA_K_BYTES / 16;
    int step = 0;
#pragma unroll 1
    for (; step + K_STEPS <= layer.steps; step += K_STEPS)
        add_block<N, K_STEPS>(layer, operand, weights + step * STEP, sums);
    if (step < layer.steps)
        add_block<N, 1>(layer, operand, weights + step * STEP, sums);
}

/* Writes the partials of the first band to the column buffer, zeros for pixels that do not exist. end: the end of those
 * that do. A lane's two pixels are neighbours or 8 apart. */
template <int N_TILES, int BAND_TILES, bool neighbours>
__device__ __forceinline__ void store_partials(float *partials, int lane, int end, float (&sums)[N_TILES * 4])
{
    if (end < WARP_M) {
#pragma unroll
        for (int i = 0; i < BAND_TILES * 4; i++)
            if ((neighbours ? lane / 4 * 2 + i % 4 / 2 : lane / 4 + i % 4 / 2 * 8) >= end)
                sums[i] = 0;
    }
    float *to = partials + lane % 4 * 2 * ROW_SUMS_PITCH + lane / 4 * (neighbours ? 2 : 1);
#pragma unroll
    for (int n = 0; n < BAND_TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float *partial = to + (n * TILE_N + i) * ROW_SUMS_PITCH;
            const float one = sums[n * 4 + i], other = sums[n * 4 + i + 2];
            if (neighbours) {
                *reinterpret_cast<float2 *>(partial) = make_float2(one, other);
            } else {
                partial[0] = one;
                partial[8] = other;
            }
        }
}

/* Shifts the sums of each other band to the band before. Of the last TAIL N tiles some may not exist. */
template <int N_TILES, int BAND_TILES, int TAIL>
__device__ __forceinline__ void shift_bands(int gemm_n, int lane, float (&sums)[N_TILES * 4])
{
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = n + BAND_TILES;
            const bool exists =
                from < N_TILES && (from < N_TILES - TAIL || from * TILE_N + lane % 4 * 2 + i % 2 < gemm_n);
            sums[n * 4 + i] = exists ? sums[from < N_TILES ? from * 4 + i : 0] : 0.0f;
        }
}

/* Goes down the rows, from the first K step's fragments on. */
template <int CONFIG, class Operand>
__device__ __forceinline__ void main_loop(const parameters &layer, const block_tile &block, const shared_layout &shared,
                                          Operand &operand, int warp, int lane)
{
    constexpr int N_TILES = configs[CONFIG].n_tiles;
    constexpr int BAND_TILES = configs[CONFIG].band_tiles;
    /* What a thread gathers is kept from row to row where there are registers to keep it in. */
    constexpr bool STRICT = Operand::Arithmetic::PARTS == 2;
    constexpr bool KEEPS = STRICT ? N_TILES > 8 : N_TILES <= 12 || N_TILES > MOST_TILES_OF_TWO;
    using Gatherer =
        gatherer<typename Operand::Element, CONFIG, (KEEPS || !STRICT ? N_TILES > 8 : BAND_TILES < 3), STRICT>;
    const int pixel = warp * WARP_M, row_pixels = 1 << layer.row_pixels_log2;
    const uint32_t weights = descriptor_low(shared_address(shared.weights), N_TILES * TILE_N * MMA_K_BYTES / 2);
    const int buffer_pixel = pixel + (pixel >> layer.row_pixels_log2) * GUARD;
    const int end_pixel = layer.columns.in - block.first_column - (pixel & (row_pixels - 1));
    const Gatherer kept(layer, block, shared);
    float sums[N_TILES * 4] = {};
    int buffer = 0;
    for (int row = block.first_row; row < block.end_quotient; row++) {
        if (row < layer.rows.in)
            multiply_row<N_TILES>(layer, operand, weights, sums);
        float *partials = shared.column_buffer + buffer * BAND_TILES * TILE_N * ROW_SUMS_PITCH;
        const bool complete = row >= block.first_quotient;
        if (complete) {
            if (layer.buffers == 1)
                named_barrier_sync<THREADS>(); /* the last row has been gathered */
            store_partials<N_TILES, BAND_TILES, Operand::NEIGHBOURS>(partials + buffer_pixel, lane, end_pixel, sums);
        }
        if (layer.gemm_n > (N_TILES - 1) * TILE_N)
            shift_bands<N_TILES, BAND_TILES, 1>(layer.gemm_n, lane, sums);
        else
            shift_bands<N_TILES, BAND_TILES, N_TILES>(layer.gemm_n, lane, sums);
        if (complete) {
            named_barrier_sync<THREADS>();
            if (layer.posts.steps.count > 0) {
                kept.gather_with_posts(partials, row);
                operand.load_again();
            } else if constexpr (KEEPS) {
                kept.gather(partials, row);
            } else {
                Gatherer(layer, block, shared).gather(partials, row);
            }
            buffer = layer.buffers - 1 - buffer;
        }
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ROW_SUMS_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define ROW_SUMS_BOUNDS(threads, blocks) __launch_bounds__(32)
#endif

/* The kernel needs sm_90a. Elsewhere it is empty and never launched. */
template <class Operand, int CONFIG>
__global__ void ROW_SUMS_BOUNDS(Operand::WARPS * 32, row_sums_blocks(CONFIG, Operand::Arithmetic::PARTS == 2))
    multiply_and_gather(const __grid_constant__ parameters layer, const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    /* A shuffle tells the compiler that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), lane = (int)threadIdx.x % 32;
    const block_tile block = find_block_tile(layer, BLOCK_M >> layer.row_pixels_log2);
    const shared_layout shared = find_shared<CONFIG, Operand::Arithmetic::PARTS>(layer, Operand::BYTES);
    Operand operand;
    if (operand.start(layer, &map, block, shared, warp, lane))
        main_loop<CONFIG>(layer, block, shared, operand, warp, lane);
#endif
}

template <class Operand, int CONFIG> const void *kernel_of()
{
    if constexpr (Operand::has_kernel(CONFIG))
        return (const void *)multiply_and_gather<Operand, CONFIG>;
    else
        return NULL;
}

template <class Operand, int... numbers> const void *find_kernel(int config, std::integer_sequence<int, numbers...>)
{
    const void *const kernels[] = {kernel_of<Operand, numbers>()...};
    return kernels[config];
}

/* Finds the kernel of a config; NULL where there is none. */
template <class Operand> const void *find_kernel(int config)
{
    return find_kernel<Operand>(config, std::make_integer_sequence<int, CONFIGS>());
}

} // namespace tconv::col2im::row_sums

#endif
