/*
 * Every pixel of src times every tap on Hopper's tensor cores, where output rows are summed in registers.
 *
 * A block marches down the rows of src that a strip of output rows reads, 128 pixels at a time: a piece of a row, or rows of
 * several images. Each warp loads and splits the factors of its own 16 pixels into registers, and the two warpgroups multiply
 * them by wgmma with all weights of the group, which stay in shared memory. Products of kernel rows [0, stride) complete an
 * output row: they go to shared memory, where each thread adds the column taps of the output columns that it keeps. The sums of
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
#include "overlap.cuh"
#include "products_columns.cuh"
#include "products_copy.cuh"
#include "products_rows_multiply.cuh"

namespace
{

using namespace tconv_products;

constexpr int SHAPES = TCONV_CUDA_PRODUCT_ROWS_SHAPES;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int WARPS = TCONV_CUDA_PRODUCT_ROWS_WARPS, THREADS = WARPS * 32, PIXELS = TCONV_CUDA_PRODUCTS_PIXELS;
constexpr int TILE = TCONV_CUDA_PRODUCTS_TILE;

/* A block's place. Columns and rows of dst are its own; those of src begin where its outputs reach back to. */
struct place {
    column_range columns;
    int first_row, first_quotient, end_quotient; /* rows of src; quotients of padded rows of dst */
    int group, first_image;
};

__device__ __forceinline__ place find_place(const tconv_cuda_products_parameters &layer)
{
    unsigned number = blockIdx.x;
    const tconv_cuda_small_axis &rows = layer.rows;
    place found;
    found.columns = find_range(layer, (int)(number % (unsigned)layer.column_tiles));
    number /= (unsigned)layer.column_tiles;
    const int strip = (int)(number % (unsigned)layer.strips);
    number /= (unsigned)layer.strips;
    found.group = (int)(number % (unsigned)layer.groups);
    found.first_image = (int)(number / (unsigned)layer.groups) * (PIXELS >> layer.row_pixels_log2);
    found.first_quotient = rows.pad / rows.stride + strip * layer.strip_rows;
    found.end_quotient = strip < layer.strips - 1 ? found.first_quotient + layer.strip_rows
                                                  : (rows.pad + rows.out - 1) / rows.stride + 1;
    found.first_row = max(0, found.first_quotient - layer.row_back);
    return found;
}

constexpr int NO_PIXEL = PIXELS; /* whose products are zero: what a tap that does not exist takes */
static_assert(NO_PIXEL < PITCH, "a place for it");

/* Where the products of a column's taps lie in those of its first kernel row; -1 where there is none. With more than MAX_TAPS
 * taps, as column_taps has them. */
constexpr int MAX_TAPS = 3;
struct alignas(16) row_taps {
    int at[MAX_TAPS], count;
};

/* An output row of a channel: where it lies from the first row of the group's first channel, and which row it is. */
struct alignas(16) output_row {
    int64_t offset;
    float bias;
    int row;
};

static_assert(sizeof(row_taps) == TCONV_CUDA_PRODUCT_ROWS_ENTRY_BYTES, "as the host counts");
static_assert(sizeof(output_row) == TCONV_CUDA_PRODUCT_ROWS_ENTRY_BYTES, "as the host counts");

/* Shared memory. */
struct shared_places {
    char *weights;
    unsigned char *stages;
    float *products;     /* [buffer][product of a group of rows][PITCH]; zero at pixel NO_PIXEL */
    output_row *outputs; /* [stride][group_out]: of the rows that are complete with a row of src */
    row_taps *columns;   /* [sum_columns] */
};

extern __shared__ __align__(128) char rows_memory[];

template <int TILES, int GROUP_TILES, int PLANES, int STAGES>
__device__ __forceinline__ shared_places find_shared(const tconv_cuda_products_parameters &layer)
{
    shared_places found;
    found.weights = rows_memory;
    found.stages = reinterpret_cast<unsigned char *>(rows_memory) +
                   layer.steps * PLANES * TILES * TILE * TCONV_CUDA_PRODUCTS_STEP_BYTES;
    found.products = reinterpret_cast<float *>(found.stages + WARPS * STAGES * TCONV_CUDA_PRODUCT_ROWS_STAGE_BYTES);
    found.outputs = reinterpret_cast<output_row *>(found.products + layer.buffers * GROUP_TILES * TILE * PITCH);
    found.columns = reinterpret_cast<row_taps *>(found.outputs + layer.rows.stride * layer.group_out);
    return found;
}

/* Starts to copy the group's weights, once they are packed. */
__device__ __forceinline__ void copy_weights(const tconv_cuda_products_parameters &layer, const place &place,
                                             const shared_places &shared)
{
    const int bytes = (int)(shared.stages - reinterpret_cast<unsigned char *>(shared.weights));
    const char *from = static_cast<const char *>(layer.weights) + (int64_t)place.group * bytes;
    wait_for_weights();
    for (int i = (int)threadIdx.x * ACCESS_BYTES; i < bytes; i += THREADS * ACCESS_BYTES)
        copy_async(shared.weights + i, from + i, true);
}

/* What else the block keeps: where outputs go, with their bias, the taps of its columns, and products of zero. */
template <class Element>
__device__ __forceinline__ void fill_tables(const tconv_cuda_products_parameters &layer, const place &place,
                                            const shared_places &shared)
{
    for (int i = (int)threadIdx.x; i < place.columns.outputs; i += THREADS) {
        const column_taps found = find_taps(layer, place.columns.first_column, place.columns.first_output + i);
        row_taps taps = {{found.first, -1, -1}, found.count};
#pragma unroll
        for (int t = 0; t < MAX_TAPS; t++)
            if (layer.gather <= MAX_TAPS)
                taps.at[t] = t < found.count ? found.first + t * layer.tap_step : -1;
        shared.columns[i] = taps;
    }
    const int all = (int)(reinterpret_cast<float *>(shared.outputs) - shared.products) / PITCH;
    for (int i = (int)threadIdx.x; i < all; i += THREADS)
        shared.products[i * PITCH + NO_PIXEL] = 0;
    const Element *bias = static_cast<const Element *>(layer.bias) + place.group * layer.group_out;
    for (int i = (int)threadIdx.x; i < layer.rows.stride * layer.group_out; i += THREADS) {
        const int row = i / layer.group_out, channel = i - row * layer.group_out;
        shared.outputs[i] = {row * layer.dst_strides.h + channel * layer.dst_strides.c,
                             layer.bias != NULL ? to_compute(bias[channel]) : 0.0f, row};
    }
}

/* The products that an output column takes, for the first output row of those that are complete. TAPS: the most that there
 * are; 0: any number. */
template <int TAPS> struct column_products {
    const float *from[TAPS];

    __device__ __forceinline__ column_products(const tconv_cuda_products_parameters &, const float *products, int first,
                                               const row_taps &taps)
    {
#pragma unroll
        for (int t = 0; t < TAPS; t++)
            from[t] = products + (taps.at[t] < 0 ? NO_PIXEL : first + taps.at[t]);
    }

    /* Of the output row whose products lie so far on. */
    __device__ __forceinline__ float sum(int on) const
    {
        float sum = from[0][on];
#pragma unroll
        for (int t = 1; t < TAPS; t++)
            sum += from[t][on];
        return sum;
    }
};

template <> struct column_products<0> {
    const float *from;
    int step, count;

    __device__ __forceinline__ column_products(const tconv_cuda_products_parameters &layer, const float *products,
                                               int first, const row_taps &taps)
        : from(products + first + taps.at[0]), step(layer.tap_step), count(taps.count)
    {
    }

    __device__ __forceinline__ float sum(int on) const
    {
        float sum = 0;
        for (int t = 0; t < count; t++)
            sum += from[on + t * step];
        return sum;
    }
};

/* Adds up and stores the output rows that are complete with a row of src, TOGETHER at once so that their loads do not wait for
 * each other. */
template <class Element, int TAPS, int TOGETHER>
__device__ __forceinline__ void gather(const tconv_cuda_products_parameters &layer, const place &place,
                                       const shared_places &shared, const float *products, int row)
{
    const int log2 = layer.row_pixels_log2 + 1,
              threads = 1 << log2; /* of an image: as many as each other's of the block */
    static_assert(THREADS == 2 * PIXELS, "as here");
    const int index = (int)threadIdx.x >> log2, image = place.first_image + index;
    if (image >= layer.images)
        return;
    const int pitch = layer.columns.kernel * PITCH;
    const int first_row = row * layer.rows.stride - layer.rows.pad, all = layer.rows.stride * layer.group_out;
    Element *dst = static_cast<Element *>(layer.dst) + image * layer.dst_strides.n +
                   (int64_t)place.group * layer.group_out * layer.dst_strides.c + first_row * layer.dst_strides.h;
    for (int column = (int)threadIdx.x & (threads - 1); column < place.columns.outputs; column += threads) {
        const column_products<TAPS> found(layer, products, index << layer.row_pixels_log2, shared.columns[column]);
        Element *to = dst + (place.columns.first_output + column) * layer.dst_strides.w;
        for (int first = 0; first < all; first += TOGETHER) {
            float sums[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                sums[i] = found.sum((first + i < all ? first + i : 0) * pitch);
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                const output_row output = shared.outputs[first + i < all ? first + i : 0];
                if (first + i < all && (unsigned)(first_row + output.row) < (unsigned)layer.rows.out)
                    to[output.offset] = from_compute<Element>(sums[i] + output.bias);
            }
        }
    }
}

template <class Element>
__device__ __forceinline__ void gather_any(const tconv_cuda_products_parameters &layer, const place &place,
                                           const shared_places &shared, const float *products, int row)
{
    const bool threes = layer.rows.stride * layer.group_out % 3 == 0;
    if (layer.gather > MAX_TAPS)
        gather<Element, 0, 1>(layer, place, shared, products, row);
    else if (layer.gather == MAX_TAPS)
        gather<Element, MAX_TAPS, 4>(layer, place, shared, products, row);
    else if (threes)
        gather<Element, 2, 3>(layer, place, shared, products, row);
    else
        gather<Element, 2, 4>(layer, place, shared, products, row);
}

/* Writes the products of the first group of kernel rows; those of the others move on to the group before. */
template <int TILES, int GROUP_TILES>
__device__ __forceinline__ void put_products(float *products, int lane, const float (&sums)[TILES * 4])
{
    float *to = products + lane % 4 * 2 * PITCH + lane / 4;
#pragma unroll
    for (int n = 0; n < GROUP_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[(n * TILE + i % 2) * PITCH + i / 2 * 8] = sums[n * 4 + i];
}

template <int TILES, int GROUP_TILES>
__device__ __forceinline__ void move_on(int products, int lane, float (&sums)[TILES * 4])
{
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = n + GROUP_TILES;
            const bool exists = from < TILES && from * TILE + lane % 4 * 2 + i % 2 < products;
            sums[n * 4 + i] = exists ? sums[from < TILES ? from * 4 + i : 0] : 0.0f;
        }
}

/* A warp's walk over the steps of src. The factors of the next step come into registers while the tensor cores work with the
 * others: they have to be different ones, or the compiler lets nothing run at the same time. */
template <class Arithmetic_, class Shape> struct factor_walk {
    using Arithmetic = Arithmetic_;
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
            copy_async_wait<Shape::STAGES - 2>();
            __syncwarp();
            load.next(layer, to_load-- > 0);
        }
        Arithmetic::template load<Shape>(stage + step * Shape::STEP * Shape::CHANNEL, lane, factors[step]);
    }
};

/* Adds the products of a stage of `count` steps to sums, and goes on to the next one. */
template <int N, int count, class Walk>
__device__ __forceinline__ void multiply_stage(const tconv_cuda_products_parameters &layer, Walk &walk,
                                               uint32_t weights, float (&sums)[N / 2], int accumulate)
{
    using Arithmetic = typename Walk::Arithmetic;
    constexpr uint32_t STEP = Arithmetic::PLANES * N * TCONV_CUDA_PRODUCTS_STEP_BYTES / 16;
    static_assert(STEPS == 2, "as here");
    multiply_step<Arithmetic, N>(sums, walk.factors[0], weights, accumulate);
    if constexpr (count == 2) {
        walk.template load_step<1>(layer);
        hopper::products_wait<0>();
        multiply_step<Arithmetic, N>(sums, walk.factors[1], weights + STEP, 1);
        walk.template load_step<0>(layer);
        hopper::products_wait<0>();
    } else {
        hopper::products_wait<0>();
        walk.template load_step<0>(layer);
    }
}

/* The same, through sums of the stage's own in strict f32. */
template <int N, int count, class Walk>
__device__ __forceinline__ void add_stage(const tconv_cuda_products_parameters &layer, Walk &walk, uint32_t weights,
                                          float (&sums)[N / 2])
{
    if constexpr (Walk::Arithmetic::PLANES == 2) {
        float partial[N / 2];
        multiply_stage<N, count>(layer, walk, weights, partial, 0);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[i] += partial[i];
    } else {
        multiply_stage<N, count>(layer, walk, weights, sums, 1);
    }
}

/* Multiplies a row of src, which exists, and adds it to sums. */
template <int TILES, class Walk>
__device__ __forceinline__ void multiply_row(const tconv_cuda_products_parameters &layer, Walk &walk, uint32_t weights,
                                             float (&sums)[TILES * 4])
{
    constexpr int N = TILES * TILE;
    constexpr uint32_t STEP = Walk::Arithmetic::PLANES * N * TCONV_CUDA_PRODUCTS_STEP_BYTES / 16;
    int step = 0;
#pragma unroll 1
    for (; step + STEPS <= layer.steps; step += STEPS)
        add_stage<N, STEPS>(layer, walk, weights + step * STEP, sums);
    if (step < layer.steps)
        add_stage<N, 1>(layer, walk, weights + step * STEP, sums);
}

template <class Arithmetic, int TILES, int GROUP_TILES, bool channels_inside, int STAGES>
__device__ __forceinline__ void march(const tconv_cuda_products_parameters &layer, const place &place,
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
    copy_async_wait<STAGES - 2>();              /* the weights came with the first stage */
    hopper::fence_for_async_proxy();
    __syncthreads();
    walk.template load_step<0>(layer);

    const uint32_t weights =
        hopper::operand_low(hopper::shared_address(shared.weights), TILES * TILE * TCONV_CUDA_PRODUCTS_STEP_BYTES / 2);
    float sums[TILES * 4] = {};
    int buffer = 0;
    for (int row = place.first_row; row < place.end_quotient; row++) {
        if (row < layer.rows.in)
            multiply_row<TILES>(layer, walk, weights, sums);
        float *products = shared.products + buffer * GROUP_TILES * TILE * PITCH;
        const bool complete = row >= place.first_quotient;
        if (complete) {
            if (layer.buffers == 1)
                __syncthreads(); /* the last row's have been gathered */
            put_products<TILES, GROUP_TILES>(products + pixel, lane, sums);
        }
        move_on<TILES, GROUP_TILES>(layer.products, lane, sums);
        if (complete) {
            __syncthreads();
            gather_any<Element>(layer, place, shared, products, row);
            buffer = layer.buffers - 1 - buffer;
        }
    }
}

#define TCONV_ROWS_BOUNDS(large) __launch_bounds__(THREADS, (large) ? 1 : 2)
#else
#define TCONV_ROWS_BOUNDS(large) __launch_bounds__(32)
#endif

/* The kernel needs sm_90a. Elsewhere it is empty and, so that the host can tell, made for one warp. */
template <class Arithmetic, int TILES, int GROUP_TILES, bool channels_inside, bool large>
__global__ void TCONV_ROWS_BOUNDS(large) product_rows(const __grid_constant__ tconv_cuda_products_parameters layer)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int STAGES =
        TCONV_CUDA_PRODUCT_ROWS_STAGES(Arithmetic::PLANES == 2, sizeof(typename Arithmetic::Element));
    const place place = find_place(layer);
    const shared_places shared = find_shared<TILES, GROUP_TILES, Arithmetic::PLANES, STAGES>(layer);
    march<Arithmetic, TILES, GROUP_TILES, channels_inside, STAGES>(layer, place, shared);
#endif
}

/* In the order of tconv_cuda_product_rows_shapes. */
template <class Arithmetic, bool channels_inside> tconv_cuda_products_kernel find_kernel(int shape)
{
    constexpr bool strict = Arithmetic::PLANES == 2;
    static const tconv_cuda_products_kernel kernels[SHAPES] = {
        product_rows<Arithmetic, 3, 1, channels_inside, false>,
        product_rows<Arithmetic, 4, 2, channels_inside, false>,
        product_rows<Arithmetic, 6, 2, channels_inside, false>,
        product_rows<Arithmetic, 6, 3, channels_inside, false>,
        product_rows<Arithmetic, 8, 4, channels_inside, false>,
        product_rows<Arithmetic, 12, 5, channels_inside, strict>};
    return kernels[shape];
}

template <class Arithmetic> tconv_cuda_products_kernel find_kernel(tconv_layout layout, int shape)
{
    return layout == TCONV_NHWC ? find_kernel<Arithmetic, true>(shape) : find_kernel<Arithmetic, false>(shape);
}

} // namespace

const tconv_cuda_product_rows_shape tconv_cuda_product_rows_shapes[SHAPES] = {
    {1, 3, false}, {2, 4, false}, {2, 6, false}, {3, 6, false}, {4, 8, false}, {5, 12, true}};

tconv_cuda_products_kernel tconv_cuda_product_rows_find(tconv_dtype dtype, bool tf32, tconv_layout layout, int shape)
{
    return dtype == TCONV_F32   ? tf32 ? find_kernel<rows_tf32>(layout, shape) : find_kernel<rows_strict>(layout, shape)
             : dtype == TCONV_F16 ? find_kernel<rows_half<__half, hopper::PRODUCT_F16>>(layout, shape)
           : dtype == TCONV_BF16 ? find_kernel<rows_half<__nv_bfloat16, hopper::PRODUCT_BF16>>(layout, shape)
                                 : NULL;
}
