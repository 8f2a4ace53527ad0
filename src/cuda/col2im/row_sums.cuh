/*
 * What the two kernels of the products algorithm on Hopper share (products_rows.cu, products_boxes.cu): a block's place, the sums
 * of its rows, and how outputs are gathered.
 *
 * A Walk brings factors: Arithmetic, NEIGHBOURS (see put_products), factors[STEPS][PLANES][4] and load_step<step>, which loads
 * the factors of a step of the stage that is under way, where step is 0 of the next one.
 */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_CUH

#include "../maps/small_axis.h"
#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "columns.cuh"
#include "row_sums_mainloop.cuh"

namespace tconv::col2im
{

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
    const small_axis &rows = layer.rows;
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

/* Around the pixels of an image lie products of zero: what a tap takes that reaches beyond them. */
constexpr int GUARD = TCONV_CUDA_PRODUCT_ROWS_GUARD;
constexpr int ROWS_PITCH =
    TCONV_CUDA_PRODUCT_ROWS_PITCH; /* from a product of a pixel to the next one in shared memory */

/* An output row of a channel: where it lies from the first row of the group's first channel, and which row it is. */
struct alignas(16) output_row {
    int64_t offset;
    float bias;
    int row;
};

/* column_taps in shared memory, whose products are fewer than 1 << 16 floats. */
struct kept_taps {
    unsigned short first, count;
};

static_assert(sizeof(output_row) == TCONV_CUDA_PRODUCT_ROWS_OUTPUT_BYTES, "as the host counts");
static_assert(sizeof(kept_taps) == TCONV_CUDA_PRODUCT_ROWS_COLUMN_BYTES, "as the host counts");

/* Shared memory. */
struct shared_places {
    char *stages, *weights;
    int weight_bytes;
    float *products; /* GUARD zeros, then [buffer][product of a group of rows][PITCH], each image before GUARD zeros */
    output_row *outputs; /* [stride][group_out]: of the rows that are complete with a row of src */
    kept_taps *columns;  /* [sum_columns], where outputs are not gathered by runs */
};

extern __shared__ __align__(1024) char rows_memory[];

/* stage_bytes: of all stages. */
template <int SHAPE, int PLANES>
__device__ __forceinline__ shared_places find_shared(const tconv_cuda_products_parameters &layer, int stage_bytes)
{
    constexpr int TILES = tconv_cuda_product_rows_shapes[SHAPE].tiles;
    constexpr int GROUP_TILES = tconv_cuda_product_rows_shapes[SHAPE].group_tiles;
    shared_places found;
    found.stages = rows_memory;
    found.weights = rows_memory + stage_bytes;
    found.weight_bytes = layer.steps * PLANES * TILES * TILE * TCONV_CUDA_PRODUCTS_STEP_BYTES;
    found.products = reinterpret_cast<float *>(found.weights + found.weight_bytes);
    found.products += GUARD;
    found.outputs = reinterpret_cast<output_row *>(found.products + layer.buffers * GROUP_TILES * TILE * ROWS_PITCH);
    found.columns = reinterpret_cast<kept_taps *>(found.outputs + layer.rows.stride * layer.group_out);
    return found;
}

/* What else the block keeps: where outputs go, with their bias, the taps of its columns, and products of zero. */
template <class Element>
__device__ __forceinline__ void fill_tables(const tconv_cuda_products_parameters &layer, const place &place,
                                            const shared_places &shared)
{
    if (layer.gather < TCONV_CUDA_PRODUCT_RUNS(1, 0))
        for (int i = (int)threadIdx.x; i < place.columns.outputs; i += THREADS) {
            const column_taps found =
                find_taps<ROWS_PITCH>(layer, place.columns.first_column, place.columns.first_output + i);
            const bool any = found.count > 0;
            shared.columns[i] = {(unsigned short)(any ? found.first : 0), (unsigned short)(any ? found.count : 0)};
        }
    float4 *first = reinterpret_cast<float4 *>(shared.products - GUARD);
    const int all = (int)(reinterpret_cast<float4 *>(shared.outputs) - first);
    for (int i = (int)threadIdx.x; i < all; i += THREADS)
        first[i] = make_float4(0, 0, 0, 0);
    const Element *bias = static_cast<const Element *>(layer.bias) + place.group * layer.group_out;
    for (int i = (int)threadIdx.x; i < layer.rows.stride * layer.group_out; i += THREADS) {
        const int row = i / layer.group_out, channel = i - row * layer.group_out;
        shared.outputs[i] = {row * layer.dst_strides.h + channel * layer.dst_strides.c,
                             layer.bias != NULL ? to_compute(bias[channel]) : 0.0f, row};
    }
}

/* A thread's part in gathering, the same for every row. An image has two threads for each of its pixels in the block: every
 * other output row of a channel is one's, and of columns a run of `stride` that begins at a multiple of it. */
template <class Element> struct gatherer {
    bool exists, whole, more; /* the run; all of it, to be stored at once; the thread's next one */
    int image, line, run;     /* of the block; the first output row of a channel; in the layer */
    int from;                 /* of the products of the first output row: of the run's first quotient */
    Element *to;              /* of row 0 */

    __device__ __forceinline__ explicit gatherer(const tconv_cuda_products_parameters &layer, const place &place)
        : image((int)threadIdx.x >> (layer.row_pixels_log2 + 1)), line((int)threadIdx.x >> layer.row_pixels_log2 & 1)
    {
        static_assert(THREADS == 2 * PIXELS, "as said");
        const int number = (int)threadIdx.x & ((1 << layer.row_pixels_log2) - 1);
        begin(layer, place, place.columns.first_output / layer.columns.stride + number);
    }

    __device__ __forceinline__ void begin(const tconv_cuda_products_parameters &layer, const place &place, int new_run)
    {
        const int stride = layer.columns.stride, pixels = 1 << layer.row_pixels_log2;
        const int column = new_run * stride, before = place.columns.first_output - column;
        const int end = before + place.columns.outputs;
        run = new_run;
        exists = place.first_image + image < layer.images && end > 0;
        whole = layer.dst_runs && before <= 0 && end >= stride;
        more = exists && end > pixels * stride;
        from = image * (pixels + GUARD) +
               min(run + layer.columns.pad / stride - place.columns.first_column, pixels + GUARD - 2);
        to = static_cast<Element *>(layer.dst) + (place.first_image + image) * layer.dst_strides.n +
             (int64_t)place.group * layer.group_out * layer.dst_strides.c + column * layer.dst_strides.w;
    }

    __device__ __forceinline__ void next(const tconv_cuda_products_parameters &layer, const place &place)
    {
        begin(layer, place, run + (1 << layer.row_pixels_log2));
    }
};

/* Gathers COUNT output rows of a channel, every other one from `line` on, of a thread's run. from: of the products of the first
 * output row. Not all columns have the last of TAPS taps. */
template <class Element, int STRIDE, int TAPS, int COUNT>
__device__ __forceinline__ void gather_lines(const tconv_cuda_products_parameters &layer, const place &place,
                                             const shared_places &shared, const gatherer<Element> &mine,
                                             const float *from, Element *to, int line, int first_row)
{
    constexpr bool VECTOR = (STRIDE & (STRIDE - 1)) == 0;
    const int pitch = layer.columns.kernel * ROWS_PITCH;
    float sums[COUNT][STRIDE];
    output_row outputs[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        outputs[i] = shared.outputs[line + 2 * i];
#pragma unroll
        for (int j = 0; j < STRIDE; j++) {
            const float *products = from + (line + 2 * i) * pitch + layer.run_taps[j];
            sums[i][j] = products[0];
#pragma unroll
            for (int t = 1; t < TAPS; t++)
                if (t < TAPS - 1 || (layer.run_ends >> j & 1) != 0)
                    sums[i][j] += products[t * (STRIDE * ROWS_PITCH - 1)];
        }
    }
    if (VECTOR && mine.whole) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            element_vector<Element, VECTOR ? STRIDE : 1> run;
#pragma unroll
            for (int j = 0; j < STRIDE; j++)
                run.at[VECTOR ? j : 0] = from_compute<Element>(sums[i][j] + outputs[i].bias);
            if ((unsigned)(first_row + outputs[i].row) < (unsigned)layer.rows.out)
                *reinterpret_cast<decltype(run) *>(to + outputs[i].offset) = run;
        }
        return;
    }
    const int before = place.columns.first_output - mine.run * STRIDE, end = before + place.columns.outputs;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if ((unsigned)(first_row + outputs[i].row) >= (unsigned)layer.rows.out)
            continue;
#pragma unroll
        for (int j = 0; j < STRIDE; j++)
            if (j >= before && j < end)
                to[outputs[i].offset + j * layer.dst_strides.w] = from_compute<Element>(sums[i][j] + outputs[i].bias);
    }
}

/* Adds up and stores the output rows that are complete with a row of src, by runs of STRIDE columns. TAPS: the most that a column
 * has. */
template <class Element, bool few_registers, int STRIDE, int TAPS>
__device__ __forceinline__ void gather_runs(const tconv_cuda_products_parameters &layer, const place &place,
                                            const shared_places &shared, const gatherer<Element> &first,
                                            const float *products, int row)
{
    static_assert(TAPS < GUARD, "pixels beyond an image that a run may read");
    /* Lines whose loads do not wait for each other. */
    constexpr int TOGETHER = (STRIDE > 2 ? 2 : 3) - (few_registers ? 1 : 0);
    if (!first.exists)
        return;
    const int first_row = row * layer.rows.stride - layer.rows.pad, lines = layer.rows.stride * layer.group_out;
    gatherer<Element> mine = first;
    while (true) {
        const float *from = products + mine.from;
        Element *to = mine.to + first_row * layer.dst_strides.h;
        int line = mine.line;
#pragma unroll 1
        for (; line + 2 * (TOGETHER - 1) < lines; line += 2 * TOGETHER)
            gather_lines<Element, STRIDE, TAPS, TOGETHER>(layer, place, shared, mine, from, to, line, first_row);
#pragma unroll 1
        for (; line < lines; line += 2)
            gather_lines<Element, STRIDE, TAPS, 1>(layer, place, shared, mine, from, to, line, first_row);
        if (!mine.more)
            break;
        mine.next(layer, place);
    }
}

/* Adds up COUNT output rows of a channel, every other one, of an output column. at: of its first TAPS taps, of which those that
 * there are not lie at zeros; it has `count`. */
template <class Element, int TAPS, int COUNT>
__device__ __forceinline__ void gather_column(const tconv_cuda_products_parameters &layer, const output_row *output,
                                              const float *const (&at)[TAPS], int on, int count, Element *to,
                                              int first_row)
{
    const int pitch = 2 * layer.columns.kernel * ROWS_PITCH;
    float sums[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        sums[i] = at[0][on + i * pitch];
#pragma unroll
        for (int t = 1; t < TAPS; t++)
            sums[i] += at[t][on + i * pitch];
    }
    for (int t = TAPS; t < count; t++)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sums[i] += at[0][on + i * pitch + t * layer.tap_step];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if ((unsigned)(first_row + output[2 * i].row) < (unsigned)layer.rows.out)
            to[output[2 * i].offset] = from_compute<Element>(sums[i] + output[2 * i].bias);
}

/* The same for any columns: a thread's are as many apart as the image has pixels in the block. */
template <class Element, bool few_registers, int TAPS>
__device__ __forceinline__ void gather_columns(const tconv_cuda_products_parameters &layer, const place &place,
                                               const shared_places &shared, const gatherer<Element> &mine,
                                               const float *products, int row)
{
    constexpr int TOGETHER = few_registers ? 2 : 3;
    const int pixels = 1 << layer.row_pixels_log2, image = place.first_image + mine.image;
    if (image >= layer.images)
        return;
    const int first_row = row * layer.rows.stride - layer.rows.pad, lines = layer.rows.stride * layer.group_out;
    const int pitch = layer.columns.kernel * ROWS_PITCH;
    Element *dst = static_cast<Element *>(layer.dst) + image * layer.dst_strides.n +
                   (int64_t)place.group * layer.group_out * layer.dst_strides.c + first_row * layer.dst_strides.h;
    products += mine.image * (pixels + GUARD);
    for (int column = (int)threadIdx.x & (pixels - 1); column < place.columns.outputs; column += pixels) {
        const kept_taps found = shared.columns[column];
        const float *at[TAPS];
#pragma unroll
        for (int t = 0; t < TAPS; t++)
            at[t] = products + (t < found.count ? found.first + t * layer.tap_step : pixels);
        Element *to = dst + (place.columns.first_output + column) * layer.dst_strides.w;
        int line = mine.line;
#pragma unroll 1
        for (; line + 2 * (TOGETHER - 1) < lines; line += 2 * TOGETHER)
            gather_column<Element, TAPS, TOGETHER>(layer, shared.outputs + line, at, line * pitch, found.count, to,
                                                   first_row);
#pragma unroll 1
        for (; line < lines; line += 2)
            gather_column<Element, TAPS, 1>(layer, shared.outputs + line, at, line * pitch, found.count, to, first_row);
    }
}

/* Gathers by runs where kernels of the shape have code for these. */
template <class Element, bool few_registers, int SHAPE, int STRIDE, int TAPS>
__device__ __forceinline__ void gather_runs_of(const tconv_cuda_products_parameters &layer, const place &place,
                                               const shared_places &shared, const gatherer<Element> &mine,
                                               const float *products, int row)
{
    if constexpr ((tconv_cuda_product_runs_of.of_shape[SHAPE] >> TCONV_CUDA_PRODUCT_RUNS(STRIDE, TAPS) & 1) != 0)
        gather_runs<Element, few_registers, STRIDE, TAPS>(layer, place, shared, mine, products, row);
}

template <class Element, bool few_registers, int SHAPE>
__device__ __forceinline__ void gather(const tconv_cuda_products_parameters &layer, const place &place,
                                       const shared_places &shared, const gatherer<Element> &mine,
                                       const float *products, int row)
{
    static_assert(TCONV_CUDA_PRODUCT_MAX_RUN == 4 && TCONV_CUDA_PRODUCT_MAX_TAPS == 3, "as here");
    switch (layer.gather) {
    case TCONV_CUDA_PRODUCT_RUNS(1, 2):
        gather_runs_of<Element, few_registers, SHAPE, 1, 2>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_RUNS(1, 3):
        gather_runs_of<Element, few_registers, SHAPE, 1, 3>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_RUNS(2, 2):
        gather_runs_of<Element, few_registers, SHAPE, 2, 2>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_RUNS(2, 3):
        gather_runs_of<Element, few_registers, SHAPE, 2, 3>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_RUNS(3, 2):
        gather_runs_of<Element, few_registers, SHAPE, 3, 2>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_RUNS(3, 3):
        gather_runs_of<Element, few_registers, SHAPE, 3, 3>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_RUNS(4, 2):
        gather_runs_of<Element, few_registers, SHAPE, 4, 2>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_RUNS(4, 3):
        gather_runs_of<Element, few_registers, SHAPE, 4, 3>(layer, place, shared, mine, products, row);
        break;
    case TCONV_CUDA_PRODUCT_COLUMNS(2):
        gather_columns<Element, few_registers, 2>(layer, place, shared, mine, products, row);
        break;
    default: gather_columns<Element, few_registers, 3>(layer, place, shared, mine, products, row);
    }
}

/* Writes the products of the first group of kernel rows, zeros for pixels that do not exist. end: of those that do. A lane's two
 * pixels are neighbours or 8 apart. */
template <int TILES, int GROUP_TILES, bool neighbours>
__device__ __forceinline__ void put_products(float *products, int lane, int end, float (&sums)[TILES * 4])
{
    if (end < TCONV_CUDA_PRODUCT_ROWS_WARP_PIXELS) {
#pragma unroll
        for (int i = 0; i < GROUP_TILES * 4; i++)
            if ((neighbours ? lane / 4 * 2 + i % 4 / 2 : lane / 4 + i % 4 / 2 * 8) >= end)
                sums[i] = 0;
    }
    float *to = products + lane % 4 * 2 * ROWS_PITCH + lane / 4 * (neighbours ? 2 : 1);
#pragma unroll
    for (int n = 0; n < GROUP_TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float *product = to + (n * TILE + i) * ROWS_PITCH;
            const float one = sums[n * 4 + i], other = sums[n * 4 + i + 2];
            if (neighbours) {
                *reinterpret_cast<float2 *>(product) = make_float2(one, other);
            } else {
                product[0] = one;
                product[8] = other;
            }
        }
}

/* The products of the other groups move on to the one before. Of the last TAIL tiles some may not exist. */
template <int TILES, int GROUP_TILES, int TAIL>
__device__ __forceinline__ void move_on(int products, int lane, float (&sums)[TILES * 4])
{
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = n + GROUP_TILES;
            const bool exists = from < TILES && (from < TILES - TAIL || from * TILE + lane % 4 * 2 + i % 2 < products);
            sums[n * 4 + i] = exists ? sums[from < TILES ? from * 4 + i : 0] : 0.0f;
        }
}

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
        wgmma_wait<0>();
        multiply_step<Arithmetic, N>(sums, walk.factors[1], weights + STEP, 1);
        walk.template load_step<0>(layer);
        wgmma_wait<0>();
    } else {
        wgmma_wait<0>();
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

/* Down the rows, from the first step's factors on. */
template <int SHAPE, class Walk>
__device__ __forceinline__ void march(const tconv_cuda_products_parameters &layer, const place &place,
                                      const shared_places &shared, Walk &walk, int warp, int lane)
{
    constexpr int TILES = tconv_cuda_product_rows_shapes[SHAPE].tiles;
    constexpr int GROUP_TILES = tconv_cuda_product_rows_shapes[SHAPE].group_tiles;
    using Element = typename Walk::Arithmetic::Element;
    const int pixel = warp * TCONV_CUDA_PRODUCT_ROWS_WARP_PIXELS, row_pixels = 1 << layer.row_pixels_log2;
    const uint32_t weights =
        descriptor_low(shared_address(shared.weights), TILES * TILE * TCONV_CUDA_PRODUCTS_STEP_BYTES / 2);
    const int place_of_pixel = pixel + (pixel >> layer.row_pixels_log2) * GUARD;
    const int end_pixel = layer.columns.in - place.columns.first_column - (pixel & (row_pixels - 1));
    constexpr bool SPLITS = Walk::Arithmetic::PLANES > 1;
    const gatherer<Element> kept(layer, place);
    float sums[TILES * 4] = {};
    int buffer = 0;
    for (int row = place.first_row; row < place.end_quotient; row++) {
        if (row < layer.rows.in)
            multiply_row<TILES>(layer, walk, weights, sums);
        float *products = shared.products + buffer * GROUP_TILES * TILE * ROWS_PITCH;
        const bool complete = row >= place.first_quotient;
        if (complete) {
            if (layer.buffers == 1)
                named_barrier_sync<THREADS>(); /* the last row's have been gathered */
            put_products<TILES, GROUP_TILES, Walk::NEIGHBOURS>(products + place_of_pixel, lane, end_pixel, sums);
        }
        if (layer.products > (TILES - 1) * TILE)
            move_on<TILES, GROUP_TILES, 1>(layer.products, lane, sums);
        else
            move_on<TILES, GROUP_TILES, TILES>(layer.products, lane, sums);
        if (complete) {
            named_barrier_sync<THREADS>();
            if constexpr (SPLITS && TILES <= 8) { /* no registers to keep it in */
                const gatherer<Element> mine(layer, place);
                gather<Element, (GROUP_TILES < 3), SHAPE>(layer, place, shared, mine, products, row);
            } else {
                gather<Element, (TILES > 8), SHAPE>(layer, place, shared, kept, products, row);
            }
            buffer = layer.buffers - 1 - buffer;
        }
    }
}

#define TCONV_ROWS_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define TCONV_ROWS_BOUNDS(threads, blocks) __launch_bounds__((threads) > 32 ? 32 : (threads))
#endif

/* Blocks on a multiprocessor. */
template <int SHAPE, int PLANES>
constexpr int rows_blocks =
    PLANES == 2 ? tconv_cuda_product_rows_shapes[SHAPE].strict_blocks : tconv_cuda_product_rows_shapes[SHAPE].blocks;

} // namespace tconv::col2im

#endif
