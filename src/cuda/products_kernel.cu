/*
 * Every pixel of src times every tap, and outputs gathered from the products.
 *
 * A block takes a strip of output rows and a tile of columns of one image and group, and marches down the rows of src that
 * they read. For a step of 128 pixels (a piece of a row, or pieces of several) each warp multiplies its 32 pixels with all
 * weights of the group, which stay in shared memory: a GEMM of pixels by (output channel, kernel row, kernel column).
 * Each warp copies its own src ahead, so that warps wait for each other only around the products, which go to shared
 * memory. From there each thread adds them up for the output columns that it keeps; sums of rows that later rows of src add
 * to wait in shared memory. Neighbouring tiles and strips overlap by what outputs reach back.
 *
 * A product of a pixel or tap that does not exist is never added, so that NaN and Inf go only where they belong.
 *
 * Numeric order: tensor-core sums over SEGMENT steps of channels, segments added in order in f32; then column taps in
 * order, kernel rows from the last to the first, bias last.
 */
#include "products_multiply.cuh"

namespace
{

using namespace tconv_products;

constexpr int WARPS = TCONV_CUDA_PRODUCTS_WARPS, THREADS = WARPS * 32, STAGES = TCONV_CUDA_PRODUCTS_STAGES;
constexpr int PIXELS = TCONV_CUDA_PRODUCTS_PIXELS, PITCH = TCONV_CUDA_PRODUCTS_PITCH;
constexpr int BLOCKS = 2; /* on a multiprocessor: one gathers while the other multiplies */

/* Steps whose sums the tensor cores keep: their own additions lose bits, 64 channels' worth of f32 is well in bounds. */
constexpr int SEGMENT = 8;

constexpr int FLIGHT = 4; /* products that a thread loads before it adds them */

/* A block's place. Columns and rows of dst are its own; those of src begin where its outputs reach back to. */
struct place {
    int first_output, outputs;                   /* columns of dst */
    int first_column;                            /* of src */
    int first_row, first_quotient, end_quotient; /* rows of src; quotients of padded rows of dst */
    int group;
    int64_t image;
};

__device__ __forceinline__ int clamp(int value, int most)
{
    return max(0, min(value, most));
}

__device__ __forceinline__ place find_place(const tconv_cuda_products_parameters &layer)
{
    unsigned number = blockIdx.x;
    const int tile = (int)(number % (unsigned)layer.column_tiles);
    number /= (unsigned)layer.column_tiles;
    const int strip = (int)(number % (unsigned)layer.strips);
    number /= (unsigned)layer.strips;
    place found;
    found.group = (int)(number % (unsigned)layer.groups);
    found.image = number / (unsigned)layer.groups;

    const tconv_cuda_small_axis &columns = layer.columns, &rows = layer.rows;
    found.first_column = tile * layer.column_step;
    const int first = (found.first_column + layer.column_back) * columns.stride - columns.pad;
    found.first_output = tile == 0 ? 0 : clamp(first, columns.out);
    found.outputs = (tile == layer.column_tiles - 1 ? columns.out
                                                    : clamp(first + layer.column_step * columns.stride, columns.out)) -
                    found.first_output;
    found.first_quotient = rows.pad / rows.stride + strip * layer.strip_rows;
    found.end_quotient = min(found.first_quotient + layer.strip_rows, (rows.pad + rows.out - 1) / rows.stride + 1);
    found.first_row = max(0, found.first_quotient - layer.row_back);
    return found;
}

/* A warp's copies of src, a stage (a step's channels of its pixels) at a time. */
template <class Element, bool channels_inside> struct loader {
    using Shape = stage_shape<Element, channels_inside>;
    static constexpr int LENGTH = Shape::LENGTH;
    static constexpr int ROW = channels_inside ? Shape::CHANNELS / LENGTH /* accesses along memory */
                                               : TCONV_CUDA_PRODUCTS_WARP_PIXELS / LENGTH;
    static constexpr int LINES = 32 / ROW; /* and across it that a warp copies at once */
    static constexpr int ACCESSES = Shape::ELEMENTS / Shape::PITCH / LINES;

    const Element *base; /* of the group; */
    const Element *from; /* of the lane's first access in this stage */
    Element *stages;
    int lane_channel, lane_column; /* of the first access; column in src */
    int row, row_step, end_row, step, steps, stage;

    __device__ __forceinline__ void start_row(const tconv_cuda_products_parameters &layer)
    {
        from =
            base + row * layer.src_strides.h + lane_column * layer.src_strides.w + lane_channel * layer.src_strides.c;
        step = 0;
    }

    __device__ __forceinline__ bool exists(const tconv_cuda_products_parameters &layer, int channel, int column) const
    {
        return channel < layer.group_in && column < layer.columns.in && row < end_row;
    }

    /* Elements one by one, for src that is not aligned. */
    __device__ __forceinline__ void copy_elements(const tconv_cuda_products_parameters &layer, Element *to,
                                                  const Element *source, int channel, int column) const
    {
        element_vector<Element, LENGTH> run;
        const int64_t pitch = channels_inside ? layer.src_strides.c : layer.src_strides.w;
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            run.at[i] = exists(layer, channel + (channels_inside ? i : 0), column + (channels_inside ? 0 : i))
                            ? source[i * pitch]
                            : Element(0.0f);
        *reinterpret_cast<element_vector<Element, LENGTH> *>(to) = run;
    }

    /* Starts to copy the next stage, and ends a group of copies in any case. */
    __device__ __forceinline__ void next(const tconv_cuda_products_parameters &layer, int lane, bool more)
    {
        if (more) {
            Element *to = stages + stage * (TCONV_CUDA_PRODUCTS_STAGE_BYTES / (int)sizeof(Element)) +
                          lane / ROW * Shape::PITCH + lane % ROW * LENGTH;
            const int64_t line = channels_inside ? layer.src_strides.w : layer.src_strides.c;
#pragma unroll
            for (int i = 0; i < ACCESSES; i++) {
                const int channel = step * Shape::CHANNELS + lane_channel + (channels_inside ? 0 : i * LINES);
                const int column = lane_column + (channels_inside ? i * LINES : 0);
                const Element *source = from + i * LINES * line;
                if (layer.src_aligned) {
                    const bool is = exists(layer, channel, column);
                    copy_async(to + i * LINES * Shape::PITCH, is ? source : base, is);
                } else {
                    copy_elements(layer, to + i * LINES * Shape::PITCH, source, channel, column);
                }
            }
            stage = stage == STAGES - 1 ? 0 : stage + 1;
            from += Shape::CHANNELS * layer.src_strides.c;
            if (++step == steps) {
                row += row_step;
                start_row(layer);
            }
        }
        copy_async_commit();
    }
};

/* Shared memory. */
struct shared_places {
    fragment_b *weights;
    unsigned char *stages;
    float *products; /* [product][PITCH] */
    float *sums;     /* [sum_rows][sum_columns * group_out] */
};

extern __shared__ __align__(ACCESS_BYTES) unsigned char shared_memory[];

template <int TILES> __device__ __forceinline__ shared_places find_shared(const tconv_cuda_products_parameters &layer)
{
    shared_places found;
    found.weights = reinterpret_cast<fragment_b *>(shared_memory);
    found.stages = shared_memory + layer.steps * TILES * 32 * (int)sizeof(fragment_b);
    found.products = reinterpret_cast<float *>(found.stages + WARPS * STAGES * TCONV_CUDA_PRODUCTS_STAGE_BYTES);
    found.sums = found.products + TILES * TCONV_CUDA_PRODUCTS_TILE * PITCH;
    return found;
}

/* Writes a segment's sums to the products of the warp's pixels, or adds them, and clears them. */
template <int TILES>
__device__ __forceinline__ void end_segment(float *products, int lane, bool first, float (&sums)[ROW_TILES][TILES][4])
{
    float *to = products + lane % 4 * 2 * PITCH + lane / 4;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *product = to + (n * TCONV_CUDA_PRODUCTS_TILE + i % 2) * PITCH + m * 16 + i / 2 * 8;
                *product = first ? sums[m][n][i] : *product + sums[m][n][i];
                sums[m][n][i] = 0;
            }
}

/* The products that an output column takes from a row of src: count of them, `step` apart. */
struct column_taps {
    int first, step, count;
};

__device__ __forceinline__ column_taps find_taps(const tconv_cuda_products_parameters &layer, const place &place,
                                                 int output)
{
    const tconv_cuda_small_axis &columns = layer.columns;
    const int quotient = output / columns.stride, residue = output - quotient * columns.stride;
    const int column = quotient + columns.first_shift[residue], back = columns.shift_step;
    const int past = column - (columns.in - 1);
    const int first = past <= 0 ? 0 : back == 1 ? past : (past + back - 1) / back;
    const int end = column < 0 ? 0 : min(columns.taps[residue], (back == 1 ? column : column / back) + 1);
    column_taps found;
    found.step = columns.kernel_step * PITCH - back;
    found.first = columns.first_kernel[residue] * PITCH + column - place.first_column + first * found.step;
    found.count = end - first;
    return found;
}

__device__ __forceinline__ float sum_products(const float *products, const column_taps &taps)
{
    float sum = 0;
    for (int t = 0; t < taps.count; t += FLIGHT) {
        float taken[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; i++)
            taken[i] = t + i < taps.count ? products[(t + i) * taps.step] : 0.0f;
#pragma unroll
        for (int i = 0; i < FLIGHT; i++)
            sum += taken[i];
    }
    return sum;
}

/* An output column and channel of a thread. */
template <class Element> struct output {
    column_taps taps;
    const float *products; /* of its channel */
    float *sums;           /* of ring row 0 */
    float bias;
    Element *dst; /* of row -pad */
};

template <class Element>
__device__ __forceinline__ output<Element> find_output(const tconv_cuda_products_parameters &layer, const place &place,
                                                       const shared_places &shared, int number)
{
    const int channel = layer.channels_inside ? number % layer.group_out : number / place.outputs;
    const int column =
        place.first_output + (layer.channels_inside ? number / layer.group_out : number - channel * place.outputs);
    const int64_t group_channel = (int64_t)place.group * layer.group_out + channel;
    output<Element> found;
    found.taps = find_taps(layer, place, column);
    found.products = shared.products + channel * layer.rows.kernel * layer.columns.kernel * PITCH;
    found.sums = shared.sums + number;
    found.bias = layer.bias != NULL ? to_compute(static_cast<const Element *>(layer.bias)[group_channel]) : 0.0f;
    found.dst = static_cast<Element *>(layer.dst) + place.image * layer.dst_strides.n +
                group_channel * layer.dst_strides.c + column * layer.dst_strides.w -
                layer.rows.pad * layer.dst_strides.h;
    return found;
}

/* Adds what one row of src has to an output column, and stores the rows that are complete with it. products: of this
 * row; slot: of the ring of sums, where the first of those rows is. */
template <class Element>
__device__ __forceinline__ void gather_row(const tconv_cuda_products_parameters &layer, const place &place,
                                           const output<Element> &output, const float *products, int row, int slot)
{
    const tconv_cuda_small_axis &rows = layer.rows;
    const int ring = layer.sum_rows, pitch = layer.sum_columns * layer.group_out;
    const int kernel_pitch = layer.columns.kernel * PITCH;
    const bool exists = row < rows.in, complete = row >= place.first_quotient;
    int kernel_row = 0;
    for (int i = 0; i < rows.stride; i++) {
        const bool has = kernel_row < rows.kernel && i == kernel_row * rows.dilation;
        if (complete) {
            float *waiting = output.sums + (slot + i >= ring ? slot + i - ring : slot + i) * pitch;
            float sum = *waiting;
            *waiting = 0;
            if (has && exists)
                sum += sum_products(products + kernel_row * kernel_pitch, output.taps);
            const int padded = row * rows.stride + i;
            if (padded >= rows.pad && padded < rows.pad + rows.out)
                output.dst[padded * layer.dst_strides.h] = from_compute<Element>(sum + output.bias);
        }
        kernel_row += has;
    }
    if (!exists)
        return;
    for (; kernel_row < rows.kernel; kernel_row++) {
        const int ahead = kernel_row * rows.dilation;
        if (row * rows.stride + ahead < place.first_quotient * rows.stride)
            continue;
        float *waiting = output.sums + (slot + ahead >= ring ? slot + ahead - ring : slot + ahead) * pitch;
        *waiting += sum_products(products + kernel_row * kernel_pitch, output.taps);
    }
}

/* Gathers the outputs of a step, from row `first` of src on. */
template <class Element>
__device__ __forceinline__ void gather(const tconv_cuda_products_parameters &layer, const place &place,
                                       const shared_places &shared, int first)
{
    const int rows = min(PIXELS >> layer.row_pixels_log2, place.end_quotient - first);
    const int first_slot = (int)((unsigned)(first * layer.rows.stride) % (unsigned)layer.sum_rows);
    for (int number = (int)threadIdx.x; number < place.outputs * layer.group_out; number += THREADS) {
        const output<Element> output = find_output<Element>(layer, place, shared, number);
        int slot = first_slot;
        for (int i = 0; i < rows; i++) {
            gather_row(layer, place, output, output.products + output.taps.first + (i << layer.row_pixels_log2),
                       first + i, slot);
            slot += layer.rows.stride;
            if (slot >= layer.sum_rows)
                slot -= layer.sum_rows;
        }
    }
}

template <class Element, bool channels_inside>
__device__ __forceinline__ loader<Element, channels_inside> make_loader(const tconv_cuda_products_parameters &layer,
                                                                        const place &place, const shared_places &shared,
                                                                        int warp, int lane)
{
    using Loader = loader<Element, channels_inside>;
    const int pixel = warp * TCONV_CUDA_PRODUCTS_WARP_PIXELS, row_pixels = 1 << layer.row_pixels_log2;
    Loader made;
    made.base = static_cast<const Element *>(layer.src) + place.image * layer.src_strides.n +
                place.group * layer.group_in * layer.src_strides.c;
    made.stages = reinterpret_cast<Element *>(shared.stages + warp * STAGES * TCONV_CUDA_PRODUCTS_STAGE_BYTES);
    const int along = lane % Loader::ROW * Loader::LENGTH, across = lane / Loader::ROW;
    made.lane_channel = channels_inside ? along : across;
    made.lane_column = place.first_column + (pixel & (row_pixels - 1)) + (channels_inside ? across : along);
    made.row = place.first_row + (pixel >> layer.row_pixels_log2);
    made.row_step = PIXELS >> layer.row_pixels_log2;
    made.end_row = min(layer.rows.in, place.end_quotient);
    made.steps = layer.steps;
    made.stage = 0;
    made.start_row(layer);
    return made;
}

/* What the block keeps: the group's weights, and sums of zero. Returns whether some weight is special. */
template <int TILES>
__device__ __forceinline__ bool fill_shared(const tconv_cuda_products_parameters &layer, const place &place,
                                            const shared_places &shared)
{
    constexpr int FRAGMENTS = ACCESS_BYTES / (int)sizeof(fragment_b); /* in an access */
    const int fragments = layer.steps * TILES * 32;
    const fragment_b *from =
        reinterpret_cast<const fragment_b *>(static_cast<const char *>(layer.weights) + TCONV_CUDA_PRODUCTS_HEADER) +
        (int64_t)place.group * fragments;
    for (int i = (int)threadIdx.x * FRAGMENTS; i < fragments; i += THREADS * FRAGMENTS)
        copy_async(shared.weights + i, from + i, true);
    const int sums = layer.sum_rows * layer.sum_columns * layer.group_out;
    for (int i = (int)threadIdx.x; i < sums; i += THREADS)
        shared.sums[i] = 0;
    return *static_cast<const int *>(layer.weights) != 0;
}

template <class Arithmetic, int TILES, bool channels_inside>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    products(const __grid_constant__ tconv_cuda_products_parameters layer)
{
    using Element = typename Arithmetic::Element;
    const place place = find_place(layer);
    const shared_places shared = find_shared<TILES>(layer);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row_step = PIXELS >> layer.row_pixels_log2;
    const bool special = fill_shared<TILES>(layer, place, shared);
    loader<Element, channels_inside> loader = make_loader<Element, channels_inside>(layer, place, shared, warp, lane);
    int to_load = (place.end_quotient - place.first_row + row_step - 1) / row_step * layer.steps;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        loader.next(layer, lane, to_load-- > 0);
    copy_async_wait<STAGES - 2>(); /* the weights came with the first stage */
    __syncthreads();

    float sums[ROW_TILES][TILES][4] = {};
    int stage = 0;
    for (int row = place.first_row; row < place.end_quotient; row += row_step) {
        bool first = true;
        for (int step = 0; step < layer.steps; step++) {
            copy_async_wait<STAGES - 2>();
            __syncwarp();
            loader.next(layer, lane, to_load-- > 0);
            Arithmetic::template step<TILES, channels_inside>(
                loader.stages + stage * (TCONV_CUDA_PRODUCTS_STAGE_BYTES / (int)sizeof(Element)),
                shared.weights + step * TILES * 32, lane, special, sums);
            stage = stage == STAGES - 1 ? 0 : stage + 1;
            if (step == layer.steps - 1 || step % SEGMENT == SEGMENT - 1) {
                if (first)
                    __syncthreads(); /* the last step's products have been gathered */
                end_segment<TILES>(shared.products + warp * TCONV_CUDA_PRODUCTS_WARP_PIXELS, lane, first, sums);
                first = false;
            }
        }
        __syncthreads();
        gather<Element>(layer, place, shared, row);
    }
}

template <class Arithmetic, bool channels_inside> tconv_cuda_products_kernel find_kernel(int tiles)
{
    return tiles == 2   ? products<Arithmetic, 2, channels_inside>
           : tiles == 4 ? products<Arithmetic, 4, channels_inside>
           : tiles == 6 ? products<Arithmetic, 6, channels_inside>
           : tiles == 8 ? products<Arithmetic, 8, channels_inside>
                        : products<Arithmetic, TCONV_CUDA_PRODUCTS_MAX_TILES, channels_inside>;
}

template <class Arithmetic> tconv_cuda_products_kernel find_kernel(tconv_layout layout, int tiles)
{
    return layout == TCONV_NHWC ? find_kernel<Arithmetic, true>(tiles) : find_kernel<Arithmetic, false>(tiles);
}

} // namespace

tconv_cuda_products_kernel tconv_cuda_products_find(tconv_dtype dtype, bool tf32, tconv_layout layout, int tiles)
{
    return dtype == TCONV_F32
               ? tf32 ? find_kernel<tf32_arithmetic>(layout, tiles) : find_kernel<strict_arithmetic>(layout, tiles)
           : dtype == TCONV_F16  ? find_kernel<half_arithmetic<__half>>(layout, tiles)
           : dtype == TCONV_BF16 ? find_kernel<half_arithmetic<__nv_bfloat16>>(layout, tiles)
                                 : NULL;
}
