/*
 * The kernel of products_rows.cu for NCHW src that the copy engine can read: a warp of its own has boxes of it brought to shared
 * memory, of the channels of a stage by all pixels of the block, so that those that multiply only wait for them. Boxes are 128
 * bytes of pixels wide (64 of 16-bit rows of 32 pixels), and swizzled: accesses to neighbouring channels hit different banks.
 * In TF32 the copy engine rounds. The numeric order is that of products_rows.cu.
 */
#include "../gemm/pipeline.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "row_sums.cuh"

#include <utility>

namespace tconv::col2im
{

namespace
{

constexpr int SHAPES = TCONV_CUDA_PRODUCT_ROWS_SHAPES, ALL_THREADS = (TCONV_CUDA_PRODUCT_ROWS_WARPS + 1) * 32;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int STAGES = TCONV_CUDA_PRODUCT_BOXES_STAGES, STAGE_BYTES = TCONV_CUDA_PRODUCT_BOXES_STAGE_BYTES;

template <class Element>
constexpr int CHANNELS = STEPS *TCONV_CUDA_PRODUCTS_STEP_BYTES / (int)sizeof(Element); /* of a stage */

/* Barriers in shared memory: of each stage full and empty; of the weights. They lie behind the tables. */
struct barrier_places {
    uint32_t full, empty, weights;
};

__device__ __forceinline__ barrier_places find_barriers(const tconv_cuda_products_parameters &layer,
                                                        const shared_places &shared)
{
    const uint32_t first = shared_address(
        shared.columns + (layer.gather < TCONV_CUDA_PRODUCT_RUNS(1, 0) ? (layer.sum_columns + 1) / 2 * 2 : 0));
    return {first, first + 8 * STAGES, first + 16 * STAGES};
}

/* Has all boxes brought, in the order in which they are multiplied. Of one warp, each of whose first lanes has a box. */
template <class Element>
__device__ __forceinline__ void copy_boxes(const tconv_cuda_products_parameters &layer, const CUtensorMap *map,
                                           const place &place, uint32_t stages, const barrier_places &barriers,
                                           int lane)
{
    const int pixel = lane * (PIXELS / layer.boxes), row_pixels = 1 << layer.row_pixels_log2;
    const int image = place.first_image + (pixel >> layer.row_pixels_log2);
    const int column = place.columns.first_column + (pixel & (row_pixels - 1));
    const int end_row = min(layer.rows.in, place.end_quotient), channel = place.group * layer.group_in;
    const uint32_t to = stages + lane * (STAGE_BYTES / layer.boxes);
    pipeline_state ring = {0, 1};
    for (int row = place.first_row; row < end_row; row++)
        for (int stage = 0; stage < layer.stages; stage++) {
            const uint32_t full = barriers.full + 8 * ring.at;
            mbarrier_wait(barriers.empty + 8 * ring.at, ring.parity);
            if (lane == 0)
                mbarrier_arrive_expect_tx(full, STAGE_BYTES);
            __syncwarp();
            if (lane < layer.boxes)
                tma_load(to + ring.at * STAGE_BYTES, map, column, row, channel + stage * CHANNELS<Element>, image,
                         full);
            ring.next(STAGES);
        }
}

/* A warp's walk over the steps of src that come by boxes. */
template <class Arithmetic_> struct box_walk {
    using Arithmetic = Arithmetic_;
    using Element = typename Arithmetic::Element;
    static constexpr bool NEIGHBOURS = sizeof(Element) == sizeof(float);
    barrier_places barriers;
    pipeline_state ring;
    const char *stages, *stage;
    int left, lane;                /* left: stages behind this one */
    int first, second, step_bytes; /* of the lane's accesses: where they lie in a stage; from a step to the next */
    uint32_t factors[STEPS][Arithmetic::PLANES][4];

    __device__ __forceinline__ void find_accesses(const tconv_cuda_products_parameters &layer, int warp)
    {
        const int box_pixels = PIXELS / layer.boxes, box_bytes = STAGE_BYTES / layer.boxes;
        const int warp_pixel = warp * TCONV_CUDA_PRODUCT_ROWS_WARP_PIXELS;
        const int box = warp_pixel / box_pixels * box_bytes, pixel = warp_pixel & (box_pixels - 1);
        if constexpr (NEIGHBOURS) { /* two channels of two pixels */
            const int channel = lane % 4 * 2, bytes = (pixel + lane / 4 * 2) * (int)sizeof(Element);
            first = box + channel * 128 + (bytes ^ channel << 4);
            second = box + (channel + 1) * 128 + (bytes ^ (channel + 1) << 4);
            step_bytes = 8 * 128;
        } else { /* a row of one of four matrices, see matrix_row */
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
            Arithmetic::convert(values, factors[step]);
        } else {
            const fragment_a loaded = load_matrices<true>(from + first);
#pragma unroll
            for (int i = 0; i < 4; i++)
                factors[step][0][i] = loaded.at[i];
        }
    }

    __device__ __forceinline__ void begin()
    {
        ring = {0, 0};
        stage = stages;
        if (left-- > 0)
            mbarrier_wait(barriers.full, 0);
        load<0>();
    }

    /* Loads a step's factors. After the last step of all: of what lies there, not used. */
    template <int step> __device__ __forceinline__ void load_step(const tconv_cuda_products_parameters &)
    {
        if (step == 0) {
            __syncwarp();
            if (arrives_for_warp(lane))
                mbarrier_arrive(barriers.empty + 8 * ring.at);
            ring.next(STAGES);
            stage = stages + ring.at * STAGE_BYTES;
            if (left-- > 0)
                mbarrier_wait(barriers.full + 8 * ring.at, ring.parity);
        }
        load<step>();
    }
};

template <class Arithmetic, int SHAPE>
__device__ __forceinline__ void work(const tconv_cuda_products_parameters &layer, const CUtensorMap *map)
{
    using Element = typename Arithmetic::Element;
    const place place = find_place(layer);
    const shared_places shared = find_shared<SHAPE, Arithmetic::PLANES>(layer, STAGES * STAGE_BYTES);
    const barrier_places barriers = find_barriers(layer, shared);
    /* Through a shuffle, so that the compiler knows that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), lane = (int)threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(barriers.full + 8 * i, 1);
            mbarrier_init(barriers.empty + 8 * i, WARPS * WARP_ARRIVALS);
        }
        mbarrier_init(barriers.weights, 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (warp == WARPS) {
        copy_boxes<Element>(layer, map, place, shared_address(shared.stages), barriers, lane);
        return;
    }
    if (threadIdx.x == 0) {
        wait_for_weights();
        mbarrier_arrive_expect_tx(barriers.weights, shared.weight_bytes);
        bulk_load(shared_address(shared.weights),
                  static_cast<const char *>(layer.weights) + (int64_t)place.group * shared.weight_bytes,
                  shared.weight_bytes, barriers.weights);
    }
    box_walk<Arithmetic> walk;
    walk.barriers = barriers;
    walk.stages = shared.stages;
    walk.left = max(0, min(layer.rows.in, place.end_quotient) - place.first_row) * layer.stages;
    walk.lane = lane;
    walk.find_accesses(layer, warp);
    fill_tables<Element>(layer, place, shared); /* while the copies are on their way */
    named_barrier_sync<THREADS>();
    mbarrier_wait(barriers.weights, 0);
    walk.begin();
    march<SHAPE>(layer, place, shared, walk, warp, lane);
}

#endif

/* The kernel needs sm_90a. Elsewhere it is empty. */
template <class Arithmetic, int SHAPE>
__global__ void TCONV_ROWS_BOUNDS(ALL_THREADS, (rows_blocks<SHAPE, Arithmetic::PLANES>))
    product_boxes(const __grid_constant__ tconv_cuda_products_parameters layer, const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    work<Arithmetic, SHAPE>(layer, &map);
#endif
}

/* Whether registers are enough: not for twice the factors beside the sums of these. */
template <class Arithmetic, int SHAPE>
constexpr bool has_registers = Arithmetic::PLANES == 1 || (tconv_cuda_product_rows_shapes[SHAPE].tiles != 8 &&
                                                           tconv_cuda_product_rows_shapes[SHAPE].tiles != 21);

template <class Arithmetic, int SHAPE> tconv_cuda_product_boxes_kernel kernel_of()
{
    if constexpr (has_registers<Arithmetic, SHAPE>)
        return product_boxes<Arithmetic, SHAPE>;
    else
        return NULL;
}

template <class Arithmetic, int... shapes>
tconv_cuda_product_boxes_kernel find_kernel(int shape, std::integer_sequence<int, shapes...>)
{
    const tconv_cuda_product_boxes_kernel kernels[] = {kernel_of<Arithmetic, shapes>()...};
    return kernels[shape];
}

template <class Arithmetic> tconv_cuda_product_boxes_kernel find_kernel(int shape)
{
    return find_kernel<Arithmetic>(shape, std::make_integer_sequence<int, SHAPES>());
}

} // namespace

tconv_cuda_product_boxes_kernel tconv_cuda_product_boxes_find(tconv_dtype dtype, bool tf32, int shape)
{
    return dtype == TCONV_F32    ? tf32 ? find_kernel<rows_tf32<true>>(shape) : find_kernel<rows_strict>(shape)
              : dtype == TCONV_F16 ? find_kernel<rows_half<__half, WGMMA_F16>>(shape)
           : dtype == TCONV_BF16 ? find_kernel<rows_half<__nv_bfloat16, WGMMA_BF16>>(shape)
                                 : NULL;
}

} // namespace tconv::col2im
