/*
 * The kernel of row_sums_cp_async.cu for NCHW src that TMA can read: a producer warp loads boxes of it, of the channels
 * of a K-block by all pixels of the block, so that the consumer warps only wait for them. Boxes are 128 bytes of pixels
 * wide (64 of 16-bit rows of 32 pixels), and swizzled: accesses to neighbouring channels hit different banks. In TF32
 * the tensor map rounds. The numeric order is that of row_sums_cp_async.cu.
 */
#include "../gemm/pipeline.cuh"
#include "../ptx/tma.cuh"
#include "row_sums_kernel.cuh"

namespace tconv::col2im::row_sums
{

/* Barriers in shared memory, behind the tables: each stage has a full and an empty one, the weights have one. */
struct barrier_places {
    uint32_t full, empty, weights;
};

__device__ __forceinline__ barrier_places find_barriers(const parameters &layer, const shared_layout &shared)
{
    const uint32_t first =
        shared_address(shared.columns + (layer.gather < FIRST_RUNS ? (layer.sum_columns + 1) / 2 * 2 : 0));
    return {first, first + 8 * TMA_STAGES, first + 16 * TMA_STAGES};
}

/* The producer warp loads all boxes in the order of the main loop; each of its first lanes has a box of a stage. */
template <class Element>
__device__ __forceinline__ void load_boxes(const parameters &layer, const CUtensorMap *map, const block_tile &block,
                                           uint32_t stages, const barrier_places &barriers, int lane)
{
    constexpr int CHANNELS = K_STEPS * MMA_K_BYTES / (int)sizeof(Element); /* of a K-block */
    const int pixel = lane * (BLOCK_M / layer.boxes), row_pixels = 1 << layer.row_pixels_log2;
    const int image = block.first_image + (pixel >> layer.row_pixels_log2);
    const int column = block.first_column + (pixel & (row_pixels - 1));
    const int end_row = min(layer.rows.in, block.end_quotient), channel = block.group * layer.group_in;
    const uint32_t to = stages + lane * (TMA_STAGE_BYTES / layer.boxes);
    pipeline_state state = {0, 1};
    for (int row = block.first_row; row < end_row; row++)
        for (int stage = 0; stage < layer.k_blocks; stage++) {
            const uint32_t full = barriers.full + 8 * state.at;
            mbarrier_wait(barriers.empty + 8 * state.at, state.parity);
            if (lane == 0)
                mbarrier_arrive_expect_tx(full, TMA_STAGE_BYTES);
            __syncwarp();
            if (lane < layer.boxes)
                tma_load(to + state.at * TMA_STAGE_BYTES, map, column, row, channel + stage * CHANNELS, image, full);
            state.next(TMA_STAGES);
        }
}

/* A consumer warp's A operand. */
template <class Arithmetic_> struct tma_operand {
    using Arithmetic = Arithmetic_;
    using Element = typename Arithmetic::Element;
    static constexpr bool NEIGHBOURS = sizeof(Element) == sizeof(float);
    static constexpr int WARPS = ROW_SUMS_WARPS + 1; /* of a block, with the producer */
    static constexpr int BYTES = TMA_STAGES * TMA_STAGE_BYTES;
    barrier_places barriers;
    pipeline_state state;
    const char *stages, *stage;
    int left; /* stages behind this one */
    int lane;
    int first, second; /* bytes from the stage to the lane's accesses */
    int step_bytes;    /* from a K step to the next */
    fragment_a fragments[K_STEPS][Arithmetic::PARTS];

    static constexpr bool has_kernel(int config)
    {
        return has_tma_kernel(config, Arithmetic::PARTS == 2);
    }

    /* Says whether the warp multiplies; the producer loads all boxes. */
    __device__ __forceinline__ bool start(const parameters &layer, const CUtensorMap *map, const block_tile &block,
                                          const shared_layout &shared, int warp, int this_lane)
    {
        lane = this_lane;
        barriers = find_barriers(layer, shared);
        if (threadIdx.x == WARPS * WARP - 1)
            prefetch_tensor_map(map);
        if (threadIdx.x == 0) {
            for (int i = 0; i < TMA_STAGES; i++) {
                mbarrier_init(barriers.full + 8 * i, 1);
                mbarrier_init(barriers.empty + 8 * i, ROW_SUMS_WARPS * WARP_ARRIVALS);
            }
            mbarrier_init(barriers.weights, 1);
            mbarrier_init_fence();
        }
        __syncthreads();
        if (warp == ROW_SUMS_WARPS) {
            load_boxes<Element>(layer, map, block, shared_address(shared.stages), barriers, lane);
            return false;
        }
        if (threadIdx.x == 0) {
            wait_for_weights();
            mbarrier_arrive_expect_tx(barriers.weights, shared.weight_bytes);
            bulk_load(shared_address(shared.weights),
                      static_cast<const char *>(layer.weights) + (int64_t)block.out_block * shared.weight_bytes,
                      shared.weight_bytes, barriers.weights);
        }
        stages = shared.stages;
        left = max(0, min(layer.rows.in, block.end_quotient) - block.first_row) * layer.k_blocks;
        find_accesses(layer, warp);
        fill_tables<Element>(layer, block, shared); /* while the copies are on their way */
        named_barrier_sync<THREADS>();
        mbarrier_wait(barriers.weights, 0);
        state = {0, 0};
        stage = stages;
        if (left-- > 0)
            mbarrier_wait(barriers.full, 0);
        load<0>();
        return true;
    }

    __device__ __forceinline__ void find_accesses(const parameters &layer, int warp)
    {
        const int box_pixels = BLOCK_M / layer.boxes, box_bytes = TMA_STAGE_BYTES / layer.boxes;
        const int warp_pixel = warp * WARP_M;
        const int box = warp_pixel / box_pixels * box_bytes, pixel = warp_pixel & (box_pixels - 1);
        if constexpr (NEIGHBOURS) { /* two channels of two pixels */
            const int channel = lane % 4 * 2, bytes = (pixel + lane / 4 * 2) * (int)sizeof(Element);
            first = box + channel * 128 + (bytes ^ channel << 4);
            second = box + (channel + 1) * 128 + (bytes ^ (channel + 1) << 4);
            step_bytes = 8 * 128;
        } else { /* a row of one of four matrices, see load_fragment */
            const int channel = lane / 16 * 8 + lane % 8, bytes = (pixel + lane / 8 % 2 * 8) * (int)sizeof(Element);
            const int row_bytes = box_pixels * (int)sizeof(Element);
            first = box + channel * row_bytes + (bytes ^ (row_bytes == 128 ? channel % 8 : channel / 2 % 4) << 4);
            second = 0;
            step_bytes = 16 * row_bytes;
        }
    }

    template <int step> __device__ __forceinline__ void load()
    {
        const char *from = stage + step * (NEIGHBOURS ? 8 * 128 : step_bytes);
        if constexpr (NEIGHBOURS) {
            const float2 one = *reinterpret_cast<const float2 *>(from + first);
            const float2 other = *reinterpret_cast<const float2 *>(from + second);
            const float values[4] = {one.x, one.y, other.x, other.y};
            Arithmetic::convert(values, fragments[step]);
        } else {
            fragments[step][0] = load_matrices<true>(shared_address(from + first));
        }
    }

    __device__ __forceinline__ void load_again()
    {
        load<0>();
    }

    template <int step> __device__ __forceinline__ void load_step(const parameters &)
    {
        if (step == 0) {
            __syncwarp();
            if (arrives_for_warp(lane))
                mbarrier_arrive(barriers.empty + 8 * state.at);
            state.next(TMA_STAGES);
            stage = stages + state.at * TMA_STAGE_BYTES;
            if (left-- > 0)
                mbarrier_wait(barriers.full + 8 * state.at, state.parity);
        }
        load<step>();
    }
};

} // namespace tconv::col2im::row_sums

namespace tconv::col2im
{

const void *tconv_col2im_tma_kernel(numerics kind, int config)
{
    using namespace row_sums;
    return find_by_numerics<strict_arithmetic, tf32_arithmetic<true>, half_arithmetic<__half, WGMMA_F16>,
                            half_arithmetic<__nv_bfloat16, WGMMA_BF16>>(
        kind, [=](auto arithmetic) { return find_kernel<tma_operand<decltype(arithmetic)>>(config); });
}

} // namespace tconv::col2im
