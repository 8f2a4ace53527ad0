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
#include "load.cuh"
#include "row_sums_kernel.cuh"

namespace tconv::col2im::row_sums
{

/* A warp's A operand. */
template <class Arithmetic_, bool nhwc> struct cp_async_operand {
    using Arithmetic = Arithmetic_;
    using Element = typename Arithmetic::Element;
    using Stage = stage_layout<Element, nhwc, true, cp_async_stages(Arithmetic::PARTS == 2, sizeof(Element))>;
    static constexpr bool NEIGHBOURS = false;
    static constexpr int WARPS = ROW_SUMS_WARPS; /* of a block */
    static constexpr int BYTES = WARPS * Stage::STAGES * STAGE_BYTES;
    loader<Stage> load;
    int lane;
    const Element *stage;
    fragment_a fragments[K_STEPS][Arithmetic::PARTS];

    static constexpr bool has_kernel(int)
    {
        return true;
    }

    __device__ __forceinline__ bool start(const parameters &layer, const CUtensorMap *, const block_tile &block,
                                          const shared_layout &shared, int warp, int this_lane)
    {
        lane = this_lane;
        load.start(layer, block, shared.stages, warp, lane);
        copy_weights<THREADS>(shared.weights,
                              static_cast<const char *>(layer.weights) + (int64_t)block.out_block * shared.weight_bytes,
                              shared.weight_bytes);
        stage = load.stages + load.END - Stage::ELEMENTS; /* before the first one */
        load.begin(layer);
        fill_tables<Element>(layer, block, shared); /* while the copies are on their way */
        cp_async_wait<Stage::STAGES - 2>();         /* the weights came with the first stage */
        fence_proxy_async();
        __syncthreads();
        load_step<0>(layer);
        return true;
    }

    template <int step> __device__ __forceinline__ void load_step(const parameters &layer)
    {
        if (step == 0) {
            stage = stage == load.stages + load.END - Stage::ELEMENTS ? load.stages : stage + Stage::ELEMENTS;
            cp_async_wait<Stage::STAGES - 2>();
            __syncwarp();
            load.next(layer);
        }
        load_fragments<step>();
    }

    __device__ __forceinline__ void load_again()
    {
        load_fragments<0>();
    }

    template <int step> __device__ __forceinline__ void load_fragments()
    {
        const Element *x = stage + step * Stage::STEP * Stage::CHANNEL;
        if constexpr (sizeof(Element) == sizeof(float)) {
            float values[4];
            load_values<Stage>(x, lane, values);
            Arithmetic::convert(values, fragments[step]);
        } else {
            fragments[step][0] = load_fragment<Stage>(x, lane);
        }
    }
};

} // namespace tconv::col2im::row_sums

namespace tconv::col2im
{

const void *tconv_col2im_cp_async_kernel(numerics kind, bool nhwc, int config)
{
    using namespace row_sums;
    return find_by_numerics<strict_arithmetic, tf32_arithmetic<false>, half_arithmetic<__half, WGMMA_F16>,
                            half_arithmetic<__nv_bfloat16, WGMMA_BF16>>(kind, [=](auto arithmetic) {
        using Arithmetic = decltype(arithmetic);
        return nhwc ? find_kernel<cp_async_operand<Arithmetic, true>>(config)
                    : find_kernel<cp_async_operand<Arithmetic, false>>(config);
    });
}

} // namespace tconv::col2im
