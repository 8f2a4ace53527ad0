/*
 * Every pixel of src times every tap on Hopper's tensor cores, where output rows are summed in registers.
 *
 * A block marches down the rows of src that a strip of output rows reads, 128 pixels at a time: a piece of a row, or rows of
 * several images. Each warp loads and splits the factors of its own 16 pixels into registers, and the two warpgroups multiply
 * them by wgmma with all weights of the group, which stay in shared memory. Products of kernel rows [0, stride) complete an
 * output row: they go to shared memory, where each thread adds the column taps of a run of output columns. The sums of
 * all other kernel rows move on by a group of `stride`, so that the next row of src is added to them. Neighbouring tiles and
 * strips overlap by what outputs reach back.
 *
 * A row that does not exist is not multiplied, the products of a column that does not exist are never added, and sums of kernel
 * rows that do not exist (zero, unless src is not finite) are cleared before they move on, so that NaN and Inf go only where
 * they belong.
 *
 * Numeric order: kernel rows from the last to the first, each as a tensor-core sum over channels that goes on from the row
 * before (in strict f32 sums of a stage, added in f32); then column taps in order, bias last.
 */
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "load.cuh"
#include "row_sums.cuh"

#include <utility>

namespace tconv::col2im
{

namespace
{

constexpr int SHAPES = TCONV_CUDA_PRODUCT_ROWS_SHAPES;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Starts to copy the group's weights, once they are packed. */
__device__ __forceinline__ void copy_weights(const tconv_cuda_products_parameters &layer, const place &place,
                                             const shared_places &shared)
{
    const int bytes = shared.weight_bytes;
    const char *from = static_cast<const char *>(layer.weights) + (int64_t)place.group * bytes;
    wait_for_weights();
    for (int i = (int)threadIdx.x * ACCESS_BYTES; i < bytes; i += THREADS * ACCESS_BYTES)
        cp_async(shared.weights + i, from + i, true);
}

/* A warp's walk over the steps of src. The factors of the next step come into registers while the tensor cores work with the
 * others: they have to be different ones, or the compiler lets nothing run at the same time. */
template <class Arithmetic_, class Shape> struct factor_walk {
    using Arithmetic = Arithmetic_;
    static constexpr bool NEIGHBOURS = false;
    loader<Shape> load;
    int to_load, lane;
    typename Shape::Element *stage;
    uint32_t factors[STEPS][Arithmetic::PLANES][4];

    /* Loads a step's factors. After the last step of all: of what lies there, not used. */
    template <int step> __device__ __forceinline__ void load_step(const tconv_cuda_products_parameters &layer)
    {
        if (step == 0) {
            stage =
                stage == load.stages + (Shape::STAGES - 1) * Shape::ELEMENTS ? load.stages : stage + Shape::ELEMENTS;
            cp_async_wait<Shape::STAGES - 2>();
            __syncwarp();
            load.next(layer, to_load-- > 0);
        }
        load_factors<Arithmetic, Shape>(stage + step * Shape::STEP * Shape::CHANNEL, lane, factors[step]);
    }
};

template <class Arithmetic, int SHAPE, bool channels_inside, int STAGES>
__device__ __forceinline__ void march_copying(const tconv_cuda_products_parameters &layer, const place &place,
                                              const shared_places &shared)
{
    using Element = typename Arithmetic::Element;
    using Shape = rows_shape<Element, channels_inside, STAGES>;
    /* Through a shuffle, so that the compiler knows that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), lane = (int)threadIdx.x % 32;
    const int pixel = warp * TCONV_CUDA_PRODUCT_ROWS_WARP_PIXELS, row_pixels = 1 << layer.row_pixels_log2;
    const int image = place.first_image + (pixel >> layer.row_pixels_log2);
    const Element *src = static_cast<const Element *>(layer.src) + image * layer.src_strides.n +
                         place.group * layer.group_in * layer.src_strides.c;
    const int end_row = min(layer.rows.in, place.end_quotient);
    factor_walk<Arithmetic, Shape> walk;
    walk.load = make_loader<Shape>(
        layer, src, place.first_row, 1, image < layer.images ? end_row : 0,
        place.columns.first_column + (pixel & (row_pixels - 1)),
        reinterpret_cast<Element *>(shared.stages + warp * STAGES * TCONV_CUDA_PRODUCT_ROWS_STAGE_BYTES), lane);
    copy_weights(layer, place, shared);
    walk.to_load = max(0, end_row - place.first_row) * layer.stages;
    walk.stage = walk.load.stages + (STAGES - 1) * Shape::ELEMENTS; /* before the first one */
    walk.lane = lane;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++)
        walk.load.next(layer, walk.to_load-- > 0);
    fill_tables<Element>(layer, place, shared); /* while the copies are on their way */
    cp_async_wait<STAGES - 2>();                /* the weights came with the first stage */
    fence_proxy_async();
    __syncthreads();
    walk.template load_step<0>(layer);

    march<SHAPE>(layer, place, shared, walk, warp, lane);
}

#endif

/* The kernel needs sm_90a. Elsewhere it is empty and, so that the host can tell, made for one warp. */
template <class Arithmetic, int SHAPE, bool channels_inside>
__global__ void TCONV_ROWS_BOUNDS(TCONV_CUDA_PRODUCT_ROWS_WARPS * 32, (rows_blocks<SHAPE, Arithmetic::PLANES>))
    product_rows(const __grid_constant__ tconv_cuda_products_parameters layer)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int STAGES =
        TCONV_CUDA_PRODUCT_ROWS_STAGES(Arithmetic::PLANES == 2, sizeof(typename Arithmetic::Element));
    const place place = find_place(layer);
    const shared_places shared =
        find_shared<SHAPE, Arithmetic::PLANES>(layer, WARPS * STAGES * TCONV_CUDA_PRODUCT_ROWS_STAGE_BYTES);
    march_copying<Arithmetic, SHAPE, channels_inside, STAGES>(layer, place, shared);
#endif
}

template <class Arithmetic, bool channels_inside, int... shapes>
tconv_cuda_products_kernel find_kernel(int shape, std::integer_sequence<int, shapes...>)
{
    static const tconv_cuda_products_kernel kernels[] = {product_rows<Arithmetic, shapes, channels_inside>...};
    return kernels[shape];
}

template <class Arithmetic, bool channels_inside> tconv_cuda_products_kernel find_kernel(int shape)
{
    return find_kernel<Arithmetic, channels_inside>(shape, std::make_integer_sequence<int, SHAPES>());
}

template <class Arithmetic> tconv_cuda_products_kernel find_kernel(tconv_layout layout, int shape)
{
    return layout == TCONV_NHWC ? find_kernel<Arithmetic, true>(shape) : find_kernel<Arithmetic, false>(shape);
}

} // namespace

tconv_cuda_products_kernel tconv_cuda_product_rows_find(tconv_dtype dtype, bool tf32, tconv_layout layout, int shape)
{
    return dtype == TCONV_F32
               ? tf32 ? find_kernel<rows_tf32<false>>(layout, shape) : find_kernel<rows_strict>(layout, shape)
           : dtype == TCONV_F16  ? find_kernel<rows_half<__half, WGMMA_F16>>(layout, shape)
           : dtype == TCONV_BF16 ? find_kernel<rows_half<__nv_bfloat16, WGMMA_BF16>>(layout, shape)
                                 : NULL;
}

} // namespace tconv::col2im
