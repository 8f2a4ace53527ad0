/*
 * GEMM + col2im on Hopper: every pixel of src is multiplied with all weights of its group by wgmma, and output rows are
 * summed in the accumulators. Here src comes by cp.async.
 *
 * A block goes down the rows of src that a strip of output rows reads, 128 pixels at a time: a piece of a row, or rows
 * of several images. Each warp loads and splits the fragments of its own 16 pixels, and the two warpgroups multiply
 * them with all weights of the group, which stay in shared memory. The partials of kernel rows [0, stride), the first
 * band, complete an output row: they go to the column buffer, where each thread adds the column taps of a run of output
 * columns. The sums of all other bands move on by one, so that the next row of src is added to them. Neighbouring tiles
 * and strips overlap by what outputs reach back.
 *
 * A row that does not exist is not multiplied, the partials of a column that does not exist are never added, and sums
 * of kernel rows that do not exist (zero, unless src is not finite) are cleared before they move on, so that NaN and
 * Inf go only where they belong.
 *
 * Numeric order: kernel rows from the last to the first, each as a tensor-core sum over channels that goes on from the
 * row before (in strict f32 sums of a K-block, added in f32); then column taps in order, bias last.
 */
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "load.cuh"
#include "row_sums_kernel.cuh"

#include <utility>

namespace tconv::col2im::row_sums
{

namespace
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Starts to copy the group's weights, once they are packed. */
__device__ __forceinline__ void copy_weights(const parameters &layer, const block_tile &block,
                                             const shared_layout &shared)
{
    const int bytes = shared.weight_bytes;
    const char *from = static_cast<const char *>(layer.weights) + (int64_t)block.group * bytes;
    wait_for_weights();
    for (int i = (int)threadIdx.x * ACCESS_BYTES; i < bytes; i += THREADS * ACCESS_BYTES)
        cp_async(shared.weights + i, from + i, true);
}

/* A warp's A operand. The fragments of the next K step come into registers while the tensor cores work with the others:
 * they have to be different ones, or the compiler lets nothing run at the same time. */
template <class Arithmetic_, class Stage> struct cp_async_operand {
    using Arithmetic = Arithmetic_;
    static constexpr bool NEIGHBOURS = false;
    loader<Stage> load;
    int to_load, lane;
    typename Stage::Element *stage;
    uint32_t fragments[K_STEPS][Arithmetic::PARTS][4];

    /* Loads a K step's fragments. After the last one of all they are of stale data, and are not used. */
    template <int step> __device__ __forceinline__ void load_step(const parameters &layer)
    {
        if (step == 0) {
            stage =
                stage == load.stages + (Stage::STAGES - 1) * Stage::ELEMENTS ? load.stages : stage + Stage::ELEMENTS;
            cp_async_wait<Stage::STAGES - 2>();
            __syncwarp();
            load.next(layer, to_load-- > 0);
        }
        load_fragments<Arithmetic, Stage>(stage + step * Stage::STEP * Stage::CHANNEL, lane, fragments[step]);
    }
};

template <class Arithmetic, int CONFIG, bool nhwc, int STAGES>
__device__ __forceinline__ void run(const parameters &layer, const block_tile &block, const shared_layout &shared)
{
    using Element = typename Arithmetic::Element;
    using Stage = stage_layout<Element, nhwc, STAGES>;
    /* A shuffle tells the compiler that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), lane = (int)threadIdx.x % 32;
    const int pixel = warp * WARP_M, row_pixels = 1 << layer.row_pixels_log2;
    const int image = block.first_image + (pixel >> layer.row_pixels_log2);
    const Element *src = static_cast<const Element *>(layer.src) + image * layer.src_strides.n +
                         block.group * layer.group_in * layer.src_strides.c;
    const int end_row = min(layer.rows.in, block.end_quotient);
    cp_async_operand<Arithmetic, Stage> operand;
    operand.load = make_loader<Stage>(layer, src, block.first_row, 1, image < layer.images ? end_row : 0,
                                      block.columns.first_column + (pixel & (row_pixels - 1)),
                                      reinterpret_cast<Element *>(shared.stages + warp * STAGES * STAGE_BYTES), lane);
    copy_weights(layer, block, shared);
    operand.to_load = max(0, end_row - block.first_row) * layer.k_blocks;
    operand.stage = operand.load.stages + (STAGES - 1) * Stage::ELEMENTS; /* before the first one */
    operand.lane = lane;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++)
        operand.load.next(layer, operand.to_load-- > 0);
    fill_tables<Element>(layer, block, shared); /* while the copies are on their way */
    cp_async_wait<STAGES - 2>();                /* the weights came with the first stage */
    fence_proxy_async();
    __syncthreads();
    operand.template load_step<0>(layer);

    main_loop<CONFIG>(layer, block, shared, operand, warp, lane);
}

#endif

/* Pipeline stages of a kernel. */
template <class Arithmetic>
constexpr int CP_ASYNC_STAGES = cp_async_stages(Arithmetic::PARTS == 2, sizeof(typename Arithmetic::Element));

/* The kernel needs sm_90a. Elsewhere it is empty and never launched. */
template <class Arithmetic, int CONFIG, bool nhwc>
__global__ void ROW_SUMS_BOUNDS(WARPS * 32, (RESIDENT_BLOCKS<CONFIG, Arithmetic::PARTS>))
    rows_by_cp_async(const __grid_constant__ parameters layer)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int STAGES = CP_ASYNC_STAGES<Arithmetic>;
    const block_tile block = find_block_tile(layer);
    const shared_layout shared = find_shared<CONFIG, Arithmetic::PARTS>(layer, WARPS * STAGES * STAGE_BYTES);
    run<Arithmetic, CONFIG, nhwc, STAGES>(layer, block, shared);
#endif
}

template <class Arithmetic, bool nhwc, int... numbers>
kernel_function find_kernel(int config, std::integer_sequence<int, numbers...>)
{
    static const kernel_function kernels[] = {rows_by_cp_async<Arithmetic, numbers, nhwc>...};
    return kernels[config];
}

template <class Arithmetic, bool nhwc> kernel_function find_kernel(int config)
{
    return find_kernel<Arithmetic, nhwc>(config, std::make_integer_sequence<int, CONFIGS>());
}

template <class Arithmetic> kernel_function find_kernel(tconv_layout layout, int config)
{
    return layout == TCONV_NHWC ? find_kernel<Arithmetic, true>(config) : find_kernel<Arithmetic, false>(config);
}

} // namespace

kernel_function cp_async_kernel(tconv_dtype dtype, bool tf32, tconv_layout layout, int config)
{
    return dtype == TCONV_F32    ? tf32 ? find_kernel<tf32_arithmetic<false>>(layout, config)
                                        : find_kernel<strict_arithmetic>(layout, config)
              : dtype == TCONV_F16 ? find_kernel<half_arithmetic<__half, WGMMA_F16>>(layout, config)
           : dtype == TCONV_BF16 ? find_kernel<half_arithmetic<__nv_bfloat16, WGMMA_BF16>>(layout, config)
                                 : NULL;
}

} // namespace tconv::col2im::row_sums
