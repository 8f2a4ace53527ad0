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
 * Numeric order: tensor-core sums over SEGMENT steps of channels, segments added in order in f32; then kernel rows from
 * the last to the first, column taps in order, bias last.
 */
#include "../maps/small_axis.h"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "columns.cuh"
#include "load.cuh"
#include "mainloop.cuh"

namespace tconv::col2im
{

namespace
{

constexpr int WARPS = TCONV_CUDA_PRODUCTS_WARPS, THREADS = WARPS * 32, STAGES = TCONV_CUDA_PRODUCTS_STAGES;
constexpr int PIXELS = TCONV_CUDA_PRODUCTS_PIXELS;
constexpr int SEGMENT = TCONV_CUDA_PRODUCTS_SEGMENT;

/* A block's place. Columns and rows of dst are its own; those of src begin where its outputs reach back to. */
struct place {
    int first_output, outputs;                   /* columns of dst */
    int first_column;                            /* of src */
    int first_row, first_quotient, end_quotient; /* rows of src; quotients of padded rows of dst */
    int group;
    int64_t image;
};

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

    const small_axis &rows = layer.rows;
    const column_range range = find_range(layer, tile);
    found.first_column = range.first_column;
    found.first_output = range.first_output;
    found.outputs = range.outputs;
    found.first_quotient = rows.pad / rows.stride + strip * layer.strip_rows;
    found.end_quotient = min(found.first_quotient + layer.strip_rows, (rows.pad + rows.out - 1) / rows.stride + 1);
    found.first_row = max(0, found.first_quotient - layer.row_back);
    return found;
}

/* Shared memory. */
struct shared_places {
    fragment_b *weights;
    unsigned char *stages;
    float *products;      /* [product][PITCH] */
    float *sums;          /* [sum_rows][group_out][sum_columns]: of rows that are not complete */
    column_taps *columns; /* [sum_columns] */
    float *bias;          /* [group_out] */
};

extern __shared__ __align__(ACCESS_BYTES) unsigned char shared_memory[];

template <int TILES> __device__ __forceinline__ shared_places find_shared(const tconv_cuda_products_parameters &layer)
{
    shared_places found;
    found.weights = reinterpret_cast<fragment_b *>(shared_memory);
    found.stages = shared_memory + layer.stages * TILES * 32 * (int)sizeof(fragment_b);
    found.products = reinterpret_cast<float *>(found.stages + WARPS * STAGES * TCONV_CUDA_PRODUCTS_STAGE_BYTES);
    found.columns = reinterpret_cast<column_taps *>(found.products + TILES * TCONV_CUDA_PRODUCTS_TILE * PITCH);
    found.sums = reinterpret_cast<float *>(found.columns + layer.sum_columns);
    found.bias = found.sums + layer.sum_rows * layer.group_out * layer.sum_columns;
    return found;
}

/* Writes a segment's sums to the products of the warp's pixels, or adds them, and clears them. */
template <bool add, int TILES>
__device__ __forceinline__ void end_segment(float *products, int lane, float (&sums)[ROW_TILES][TILES][4])
{
    float *to = products + lane % 4 * 2 * PITCH + lane / 4;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *product = to + (n * TCONV_CUDA_PRODUCTS_TILE + i % 2) * PITCH + m * 16 + i / 2 * 8;
                *product = add ? *product + sums[m][n][i] : sums[m][n][i];
                sums[m][n][i] = 0;
            }
}

__device__ __forceinline__ float sum_products(const float *products, int step, int count)
{
    float sum = 0;
    for (int t = 0; t < count; t++)
        sum += products[t * step];
    return sum;
}

/* Adds what one row of src has to an output column, and stores the rows that are complete with it. products: of the row,
 * column and channel; sums: of the column and channel; slot: of the first of those rows; dst: of the same. */
template <class Element>
__device__ __forceinline__ void gather_row(const tconv_cuda_products_parameters &layer, const place &place, int row,
                                           const float *products, int count, float *sums, int slot, float bias,
                                           Element *dst)
{
    const small_axis &rows = layer.rows;
    const int ring = layer.sum_rows, pitch = layer.group_out * layer.sum_columns;
    const int kernel_pitch = layer.columns.kernel * PITCH;
    const bool exists = row < rows.in, complete = row >= place.first_quotient;
    int kernel_row = 0, ahead = 0; /* ahead: output rows of the kernel row from the first one */
    for (int i = 0; i < rows.stride; i++) {
        const bool has = i == ahead && kernel_row < rows.kernel;
        if (complete) {
            float sum = sums[slot * pitch];
            sums[slot * pitch] = 0;
            if (has && exists)
                sum += sum_products(products, layer.tap_step, count);
            if ((unsigned)(row * rows.stride + i - rows.pad) < (unsigned)rows.out)
                *dst = from_compute<Element>(sum + bias);
        }
        if (has) {
            kernel_row++;
            ahead += rows.dilation;
            products += kernel_pitch;
        }
        dst += layer.dst_strides.h;
        slot = slot + 1 == ring ? 0 : slot + 1;
    }
    if (!exists)
        return;
    slot += ahead - rows.stride;
    for (; kernel_row < rows.kernel; kernel_row++) {
        if (slot >= ring)
            slot %= ring;
        if (row * rows.stride + ahead >= place.first_quotient * rows.stride)
            sums[slot * pitch] += sum_products(products, layer.tap_step, count);
        slot += rows.dilation;
        ahead += rows.dilation;
        products += kernel_pitch;
    }
}

/* The same for one stride and kernel of both axes and dilation 1, so that the compiler knows where all products lie. sums:
 * what rows before have of the first outputs of this row; they move on by STRIDE rows. */
template <int STRIDE, int KERNEL, class Element>
__device__ __forceinline__ void gather_row_unrolled(const tconv_cuda_products_parameters &layer, const place &place,
                                                    int row, const float *products, int count, float *sums, float bias,
                                                    Element *dst)
{
    constexpr int WAITING = KERNEL - STRIDE, TAPS = (KERNEL - 1) / STRIDE + 1, STEP = STRIDE * PITCH - 1;
    const int pitch = layer.group_out * layer.sum_columns;
    float totals[KERNEL];
#pragma unroll
    for (int i = 0; i < KERNEL; i++)
        totals[i] = i < WAITING ? sums[i * pitch] : 0.0f;
    if (row < layer.rows.in) {
#pragma unroll
        for (int t = 0; t < TAPS; t++)
            if (t < count) {
#pragma unroll
                for (int i = 0; i < KERNEL; i++)
                    totals[i] += products[i * KERNEL * PITCH + t * STEP];
            }
    }
#pragma unroll
    for (int i = 0; i < WAITING; i++)
        sums[i * pitch] = totals[i + STRIDE];
    if (row < place.first_quotient)
        return;
#pragma unroll
    for (int i = 0; i < STRIDE; i++)
        if ((unsigned)(row * STRIDE + i - layer.rows.pad) < (unsigned)layer.rows.out)
            dst[i * layer.dst_strides.h] = from_compute<Element>(totals[i] + bias);
}

/* Gathers the outputs of a step, from row `first` of src on. STRIDE and KERNEL: 0 for any; then the sums are a ring. */
template <int STRIDE, int KERNEL, class Element>
__device__ __forceinline__ void gather(const tconv_cuda_products_parameters &layer, const place &place,
                                       const shared_places &shared, int first)
{
    const int rows = min(PIXELS >> layer.row_pixels_log2, place.end_quotient - first);
    const int first_slot = (int)((unsigned)(first * layer.rows.stride) % (unsigned)layer.sum_rows);
    const int slot_step = (int)((unsigned)layer.rows.stride % (unsigned)layer.sum_rows);
    const int channel_pitch = layer.rows.kernel * layer.columns.kernel * PITCH;
    Element *dst = static_cast<Element *>(layer.dst) + place.image * layer.dst_strides.n +
                   (int64_t)place.group * layer.group_out * layer.dst_strides.c +
                   ((int64_t)first * layer.rows.stride - layer.rows.pad) * layer.dst_strides.h;
    for (int column = (int)threadIdx.x; column < place.outputs; column += THREADS) {
        const column_taps found = shared.columns[column];
        Element *to = dst + (place.first_output + column) * layer.dst_strides.w;
        for (int channel = 0; channel < layer.group_out; channel++) {
            const float *products = shared.products + found.first + channel * channel_pitch;
            const float bias = shared.bias[channel];
            int slot = first_slot;
            Element *row_to = to;
            for (int i = 0; i < rows; i++) {
                float *sums = shared.sums + channel * layer.sum_columns + column;
                if constexpr (STRIDE != 0)
                    gather_row_unrolled<STRIDE, KERNEL>(layer, place, first + i, products, found.count, sums, bias,
                                                        row_to);
                else
                    gather_row(layer, place, first + i, products, found.count, sums, slot, bias, row_to);
                products += 1 << layer.row_pixels_log2;
                row_to += layer.rows.stride * layer.dst_strides.h;
                slot += slot_step;
                if (slot >= layer.sum_rows)
                    slot -= layer.sum_rows;
            }
            to += layer.dst_strides.c;
        }
    }
}

template <class Shape>
__device__ __forceinline__ loader<Shape> start_loader(const tconv_cuda_products_parameters &layer, const place &place,
                                                      const shared_places &shared, int warp, int lane)
{
    using Element = typename Shape::Element;
    const int pixel = warp * TCONV_CUDA_PRODUCTS_WARP_PIXELS, row_pixels = 1 << layer.row_pixels_log2;
    const Element *image = static_cast<const Element *>(layer.src) + place.image * layer.src_strides.n +
                           place.group * layer.group_in * layer.src_strides.c;
    return make_loader<Shape>(layer, image, place.first_row + (pixel >> layer.row_pixels_log2),
                              PIXELS >> layer.row_pixels_log2, min(layer.rows.in, place.end_quotient),
                              place.first_column + (pixel & (row_pixels - 1)),
                              reinterpret_cast<Element *>(shared.stages) + warp * STAGES * Shape::ELEMENTS, lane);
}

/* What the block keeps: the group's weights and bias, the taps of its columns, and sums of zero. */
template <class Element, int TILES>
__device__ __forceinline__ void fill_shared(const tconv_cuda_products_parameters &layer, const place &place,
                                            const shared_places &shared)
{
    constexpr int FRAGMENTS = ACCESS_BYTES / (int)sizeof(fragment_b); /* in an access */
    const int fragments = layer.stages * TILES * 32;
    const fragment_b *from =
        reinterpret_cast<const fragment_b *>(static_cast<const char *>(layer.weights) + TCONV_CUDA_PRODUCTS_HEADER) +
        (int64_t)place.group * fragments;
    wait_for_weights();
    for (int i = (int)threadIdx.x * FRAGMENTS; i < fragments; i += THREADS * FRAGMENTS)
        cp_async(shared.weights + i, from + i, true);
    const int sums = layer.sum_rows * layer.sum_columns * layer.group_out;
    for (int i = (int)threadIdx.x; i < sums; i += THREADS)
        shared.sums[i] = 0;
    for (int i = (int)threadIdx.x; i < place.outputs; i += THREADS)
        shared.columns[i] = find_taps<PITCH>(layer, place.first_column, place.first_output + i);
    for (int i = (int)threadIdx.x; i < layer.group_out; i += THREADS)
        shared.bias[i] = layer.bias != NULL
                             ? to_compute(static_cast<const Element *>(layer.bias)[place.group * layer.group_out + i])
                             : 0.0f;
}

template <class Element>
__device__ __forceinline__ void gather_any(const tconv_cuda_products_parameters &layer, const place &place,
                                           const shared_places &shared, int first)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    /* Hopper's kernel takes nearly all layers of these sizes; code for them here would be a third of what there is to compile. */
    gather<0, 0, Element>(layer, place, shared, first);
#else
    switch (layer.gather) {
    case TCONV_CUDA_PRODUCTS_3_BY_1: gather<1, 3, Element>(layer, place, shared, first); break;
    case TCONV_CUDA_PRODUCTS_3_BY_2: gather<2, 3, Element>(layer, place, shared, first); break;
    case TCONV_CUDA_PRODUCTS_4_BY_2: gather<2, 4, Element>(layer, place, shared, first); break;
    case TCONV_CUDA_PRODUCTS_9_BY_4: gather<4, 9, Element>(layer, place, shared, first); break;
    default: gather<0, 0, Element>(layer, place, shared, first);
    }
#endif
}

/* Down all rows. special: as an arithmetic's step has it. */
template <class Arithmetic, int TILES, bool channels_inside, bool special>
__device__ __forceinline__ void march(const tconv_cuda_products_parameters &layer, const place &place,
                                      const shared_places &shared)
{
    using Element = typename Arithmetic::Element;
    using Shape = stage_shape<Element, channels_inside>;
    constexpr int STAGE = Shape::ELEMENTS;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row_step = PIXELS >> layer.row_pixels_log2;
    auto loader = start_loader<Shape>(layer, place, shared, warp, lane);
    int to_load = (place.end_quotient - place.first_row + row_step - 1) / row_step * layer.stages;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++)
        loader.next(layer, to_load-- > 0);
    cp_async_wait<STAGES - 2>(); /* the weights came with the first stage */
    __syncthreads();

    float sums[ROW_TILES][TILES][4] = {};
    int stage = 0;
    for (int row = place.first_row; row < place.end_quotient; row += row_step) {
        bool first = true;
        for (int step = 0; step < layer.stages; step++) {
            cp_async_wait<STAGES - 2>();
            __syncwarp();
            loader.next(layer, to_load-- > 0);
            Arithmetic::template step<TILES, channels_inside, special>(loader.stages + stage,
                                                                       shared.weights + step * TILES * 32, lane, sums);
            stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
            if (step == layer.stages - 1 || step % SEGMENT == SEGMENT - 1) {
                float *products = shared.products + warp * TCONV_CUDA_PRODUCTS_WARP_PIXELS;
                if (first) {
                    __syncthreads(); /* the last step's products have been gathered */
                    end_segment<false>(products, lane, sums);
                } else {
                    end_segment<true>(products, lane, sums);
                }
                first = false;
            }
        }
        __syncthreads();
        gather_any<Element>(layer, place, shared, row);
    }
}

template <class Arithmetic, int TILES, bool channels_inside>
__global__ void __launch_bounds__(THREADS, TCONV_CUDA_PRODUCTS_BLOCKS(TILES))
    products(const __grid_constant__ tconv_cuda_products_parameters layer)
{
    const place place = find_place(layer);
    const shared_places shared = find_shared<TILES>(layer);
    fill_shared<typename Arithmetic::Element, TILES>(layer, place, shared);
    if (Arithmetic::SPLITS && *static_cast<const int *>(layer.weights) != 0)
        march<Arithmetic, TILES, channels_inside, Arithmetic::SPLITS>(layer, place, shared);
    else
        march<Arithmetic, TILES, channels_inside, false>(layer, place, shared);
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

} // namespace tconv::col2im
