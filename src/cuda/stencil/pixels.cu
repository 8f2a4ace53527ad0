/*
 * Stencils over pixels (NHWC): each output channel reads one input channel, and a pixel's channels are neighbours in
 * memory.
 *
 * A thread has a vector of neighbouring channels (or one channel) of an output column and walks down the rows of all
 * row phases, one after the other (walk.cuh). Neighbouring threads have neighbouring channels, then columns of whatever
 * phase, so that stores run along memory. A block first copies the part of src that it reads to shared memory, all at
 * once, which hides the latency of global memory; where that is too much, or too few rows, threads read src themselves.
 * Where channels are no multiple of a vector but a row of dst is one run of memory, a thread has PIXEL_RUN elements of
 * that run instead, of whatever channels and columns.
 *
 * A tap outside src is skipped with its row, and along a row it is zero times zero: NaN and Inf in the weights go only
 * where they belong. The numeric order is that of walk.cuh.
 */
#include <type_traits>

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "walk.cuh"

namespace tconv::stencil
{

namespace
{

/* A thread's outputs: a column (or the number of a run), channels and the rows of a tile. */
struct thread_tile {
    int column, channel, first_row;
    int64_t image;
};

/* Returns false for a thread without outputs. runs: the tile consists of runs, of which `columns` are a row. */
template <int LENGTH, bool runs = false>
__device__ __forceinline__ bool find_thread_tile(const parameters &layer, int columns, thread_tile *found)
{
    const quotient column_tile = divide((int)blockIdx.x, layer.tile.by_column_tiles);
    const unsigned channel_tile = (unsigned)column_tile.whole % (unsigned)layer.tile.channel_tiles;
    const unsigned number = (unsigned)column_tile.whole / (unsigned)layer.tile.channel_tiles;
    const quotient row_tile = divide((int)number, layer.tile.by_row_tiles);
    found->image = row_tile.whole;
    found->first_row = row_tile.rest * layer.tile.rows;

    const unsigned element = (unsigned)column_tile.rest * THREADS + threadIdx.x;
    const unsigned vectors = runs ? 1 : (unsigned)layer.tile.channel_vectors;
    found->column = (int)(element / vectors);
    found->channel = (int)(channel_tile * vectors + element % vectors) * LENGTH;
    return found->column < columns && found->channel < layer.channels;
}

/* LENGTH channels of one column. tile: values come from shared memory, where a missing tap has zeros of its own, and
 * are converted once; else they stay as they are stored, so that those of f16 take half the registers. */
template <class Element_, int TAPS_, int LENGTH_, bool tile = false> struct pixel_columns {
    using Element = Element_;
    using Compute = compute_type<Element>;
    using Value = std::conditional_t<tile, Compute, Element>;
    using Vector = element_vector<Element, LENGTH_>;
    static constexpr int TAPS = TAPS_, LENGTH = LENGTH_, VALUES = TAPS * LENGTH, AHEAD = tile ? 0 : 1;
    const Element *weights; /* of kernel position (0, first_kernel) */
    int64_t channels;
    int kernel_columns, kernel_step;
    int offsets[TAPS]; /* elements from tap 0 in src */
    bool present[TAPS];

    /* column_step: elements from a column of src to the next; zeros: elements from tap 0 to zeros. */
    __device__ __forceinline__ void find(const parameters &layer, const thread_tile &thread, int residue,
                                         int src_column, int column_step, int zeros)
    {
        channels = layer.channels;
        kernel_columns = layer.columns.kernel;
        kernel_step = layer.columns.kernel_step;
        weights = static_cast<const Element *>(layer.weights) + thread.channel +
                  layer.columns.first_kernel[residue] * channels;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            const int back = tap * layer.columns.shift_step;
            present[tap] =
                tap < layer.columns.taps[residue] && (unsigned)(src_column - back) < (unsigned)layer.columns.in;
            offsets[tap] = present[tap] || !tile ? -back * column_step : zeros;
        }
    }

    __device__ __forceinline__ void load(const Element *x, Value (&values)[VALUES]) const
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            Vector loaded = {};
            if (tile || present[tap])
                loaded = *reinterpret_cast<const Vector *>(x + offsets[tap]);
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                values[tap * LENGTH + i] = static_cast<Value>(loaded.at[i]);
        }
    }

    __device__ __forceinline__ void load_weights(int kernel_row, Compute (&loaded)[VALUES]) const
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            Vector vector = {};
            if (present[tap])
                vector = *reinterpret_cast<const Vector *>(
                    weights + (int64_t)(kernel_row * kernel_columns + tap * kernel_step) * channels);
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                loaded[tap * LENGTH + i] = to_compute(vector.at[i]);
        }
    }

    static constexpr __device__ int value(int tap, int output)
    {
        return tap * LENGTH + output;
    }

    __device__ __forceinline__ void store(Element *dst, const Compute (&sums)[LENGTH]) const
    {
        Vector rounded;
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            rounded.at[i] = from_compute<Element>(sums[i]);
        if (sizeof rounded == ACCESS_BYTES)
            store_streaming(dst, &rounded);
        else
            *reinterpret_cast<Vector *>(dst) = rounded;
    }
};

/* PIXEL_RUN elements that lie one after another in a row of dst: channels of one column, then of the next. */
template <class Element_, int TAPS_> struct pixel_run {
    using Element = Element_;
    using Compute = compute_type<Element>;
    using Value = Element;
    using Vector = element_vector<Element, PIXEL_RUN>;
    static constexpr int TAPS = TAPS_, LENGTH = PIXEL_RUN, VALUES = TAPS * LENGTH, AHEAD = 1;
    const Element *weights;
    int64_t channels;
    int kernel_columns, kernel_step;
    unsigned from[VALUES]; /* bytes in a row of src */
    int weight[LENGTH];    /* of tap 0 in kernel row 0 */
    bool present[VALUES];
    Compute bias[LENGTH];

    __device__ __forceinline__ void find(const parameters &layer, int column, int channel)
    {
        channels = layer.channels;
        kernel_columns = layer.columns.kernel;
        kernel_step = layer.columns.kernel_step;
        weights = static_cast<const Element *>(layer.weights);
        const int pixel = (int)layer.src_strides.w;
        int quotient = column / layer.columns.stride, residue = column - quotient * layer.columns.stride;
#pragma unroll
        for (int i = 0; i < LENGTH; i++) {
            const int src_column = quotient + layer.columns.first_shift[residue];
            weight[i] = channel + layer.columns.first_kernel[residue] * layer.channels;
            bias[i] = layer.bias != NULL ? to_compute(static_cast<const Element *>(layer.bias)[channel]) : Compute(0);
            const int src_channel = channel / layer.multiplier * (int)layer.src_strides.c;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const int tap_column = src_column - tap * layer.columns.shift_step;
                present[tap * LENGTH + i] =
                    tap < layer.columns.taps[residue] && (unsigned)tap_column < (unsigned)layer.columns.in;
                from[tap * LENGTH + i] = (unsigned)(tap_column * pixel + src_channel) * (unsigned)sizeof(Element);
            }
            if (++channel == layer.channels) {
                channel = 0;
                if (++residue == layer.columns.stride) {
                    residue = 0;
                    quotient++;
                }
            }
        }
    }

    __device__ __forceinline__ void load(const Element *x, Element (&values)[VALUES]) const
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                values[tap * LENGTH + i] =
                    present[tap * LENGTH + i]
                        ? *reinterpret_cast<const Element *>(reinterpret_cast<const char *>(x) + from[tap * LENGTH + i])
                        : Element(0.0f);
    }

    __device__ __forceinline__ void load_weights(int kernel_row, Compute (&loaded)[VALUES]) const
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                loaded[tap * LENGTH + i] =
                    present[tap * LENGTH + i]
                        ? to_compute(weights[weight[i] + (kernel_row * kernel_columns + tap * kernel_step) * channels])
                        : Compute(0);
    }

    static constexpr __device__ int value(int tap, int output)
    {
        return tap * LENGTH + output;
    }

    __device__ __forceinline__ void store(Element *dst, const Compute (&sums)[LENGTH]) const
    {
        Vector rounded;
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            rounded.at[i] = from_compute<Element>(sums[i]);
        *reinterpret_cast<Vector *>(dst) = rounded;
    }
};

/* Walks down the rows of all phases. src and dst: the first column of row 0. pitch: elements from a row of src to the
 * next. */
template <class Columns, class Pitch>
__device__ __forceinline__ void walk_phases(const parameters &layer, const thread_tile &thread, const Columns &columns,
                                            const typename Columns::Element *src, Pitch pitch,
                                            typename Columns::Element *dst,
                                            const compute_type<typename Columns::Element> (&bias)[Columns::LENGTH])
{
    for (int residue = 0; residue < layer.rows.stride; residue++) {
        const int end = min(thread.first_row + layer.tile.rows, quotients_of(layer, residue));
        const part part = {residue, thread.first_row, end};
        walk(layer, part, columns, src + (part.first + layer.rows.first_shift[residue]) * pitch, pitch,
             dst + ((int64_t)part.first * layer.rows.stride + residue) * layer.dst_strides.h, bias);
    }
}

/* Sums the outputs of a thread that has some. src: column 0 of row 0, of the thread's channels; column_step, pitch:
 * elements from a column, or row, to the next; zero_column: the column of zeros in a tile. */
template <class Columns, class Pitch>
__device__ __forceinline__ void sum_pixels(const parameters &layer, const thread_tile &thread,
                                           const typename Columns::Element *src, int column_step, Pitch pitch,
                                           int zero_column)
{
    using Element = typename Columns::Element;
    const int quotient = thread.column / layer.columns.stride;
    const int residue = thread.column - quotient * layer.columns.stride;
    const int src_column = quotient + layer.columns.first_shift[residue];
    Columns columns;
    columns.find(layer, thread, residue, src_column, column_step, (zero_column - src_column) * column_step);
    compute_type<Element> bias[Columns::LENGTH];
#pragma unroll
    for (int i = 0; i < Columns::LENGTH; i++)
        bias[i] = layer.bias != NULL ? to_compute(static_cast<const Element *>(layer.bias)[thread.channel + i])
                                     : compute_type<Element>(0);
    Element *dst = static_cast<Element *>(layer.dst) + thread.image * layer.dst_strides.n +
                   thread.column * layer.dst_strides.w + thread.channel * layer.dst_strides.c;
    walk_phases(layer, thread, columns, src + (Pitch)src_column * column_step, pitch, dst, bias);
}

template <class Columns>
__global__ void __launch_bounds__(THREADS) walk_global(const __grid_constant__ parameters layer)
{
    using Element = typename Columns::Element;
    thread_tile thread;
    wait_for_weights();
    if (!find_thread_tile<Columns::LENGTH>(layer, layer.columns.out, &thread))
        return;
    const Element *src = static_cast<const Element *>(layer.src) + thread.image * layer.src_strides.n +
                         thread.channel / layer.multiplier * layer.src_strides.c;
    sum_pixels<Columns>(layer, thread, src, (int)layer.src_strides.w, layer.src_strides.h, 0);
}

extern __shared__ uint4 shared_tile[];

/* Copies the part of src that a block reads, [row][column][vector], from that row and column on, with zeros outside of
 * rows and as a last column. channel: the block's first one. */
template <class Element>
__device__ __forceinline__ void copy_tile(const parameters &layer, int64_t image, int channel, int src_row,
                                          int src_column)
{
    constexpr int LENGTH = access_length<Element>;
    const tile_shape &tile = layer.tile;
    const Element *src = static_cast<const Element *>(layer.src) + image * layer.src_strides.n + channel;
    int row = 0, vector = (int)threadIdx.x;
    while (row < tile.load_rows) {
        for (; vector >= tile.row_vectors; vector -= tile.row_vectors)
            row++;
        const quotient column = divide(vector, tile.by_load_lanes);
        const bool exists = (unsigned)(src_row + row) < (unsigned)layer.rows.in &&
                            (unsigned)(src_column + column.whole) < (unsigned)layer.columns.in &&
                            vector < tile.row_vectors - tile.load_lanes &&
                            channel + column.rest * LENGTH < layer.channels;
        const Element *from = src + (src_row + row) * layer.src_strides.h +
                              (src_column + column.whole) * layer.src_strides.w + column.rest * LENGTH;
        if (row < tile.load_rows)
            cp_async(shared_tile + row * tile.row_vectors + vector, exists ? from : src, exists);
        vector += THREADS;
    }
    cp_async_commit();
}

/* Where each output channel has an input channel of its own, src comes through shared memory. */
template <class Columns> __global__ void __launch_bounds__(THREADS) walk_tile(const __grid_constant__ parameters layer)
{
    using Element = typename Columns::Element;
    constexpr int LENGTH = Columns::LENGTH;
    thread_tile thread;
    const bool has_outputs = find_thread_tile<LENGTH>(layer, layer.columns.out, &thread);
    const int vectors = layer.tile.channel_vectors, of_block = divide((int)blockIdx.x, layer.tile.by_column_tiles).rest;
    const int vector = (int)((unsigned)(of_block * THREADS + (int)threadIdx.x) % (unsigned)vectors);
    const int first_column = (int)((unsigned)(of_block * THREADS) / (unsigned)vectors);
    const int src_row = thread.first_row + layer.rows.min_shift;
    const int src_column = first_column / layer.columns.stride + layer.columns.min_shift;
    copy_tile<Element>(layer, thread.image, thread.channel - vector * LENGTH, src_row, src_column);
    wait_for_weights();
    cp_async_wait<0>();
    __syncthreads();
    if (!has_outputs)
        return;
    const Element *src = reinterpret_cast<const Element *>(shared_tile) + vector * LENGTH - src_row * layer.tile.pitch -
                         src_column * vectors * LENGTH;
    sum_pixels<Columns>(layer, thread, src, vectors * LENGTH, layer.tile.pitch,
                        src_column + layer.tile.pitch / (vectors * LENGTH) - 1);
}

template <class Columns>
__global__ void __launch_bounds__(THREADS) walk_row_runs(const __grid_constant__ parameters layer)
{
    using Element = typename Columns::Element;
    thread_tile thread;
    wait_for_weights();
    if (!find_thread_tile<1, true>(layer, layer.tile.channel_vectors, &thread))
        return;
    const int element = thread.column * PIXEL_RUN, column = element / layer.channels;
    const int channel = element - column * layer.channels;
    Columns columns;
    columns.find(layer, column, channel);
    const Element *src = static_cast<const Element *>(layer.src) + thread.image * layer.src_strides.n;
    Element *dst = static_cast<Element *>(layer.dst) + thread.image * layer.dst_strides.n + element;
    walk_phases(layer, thread, columns, src, layer.src_strides.h, dst, columns.bias);
}

/* There is none for f64, whose numbers would not fit in registers. */
template <class Element, int TAPS> kernel_function runs_kernel()
{
    if constexpr (sizeof(compute_type<Element>) == sizeof(float))
        return walk_row_runs<pixel_run<Element, TAPS>>;
    else
        return NULL;
}

template <class Element, int TAPS> kernel_function tiles_kernel()
{
    return walk_tile<pixel_columns<Element, TAPS, tile_length(sizeof(Element), TAPS), true>>;
}

template <class Element> kernel_function find_kernel(int taps, int way)
{
    constexpr int LENGTH = access_length<Element>;
    static const kernel_function kernels[MAX_TAPS][PIXEL_WAYS] = {
        {walk_global<pixel_columns<Element, 1, 1>>, walk_global<pixel_columns<Element, 1, LENGTH>>,
         tiles_kernel<Element, 1>(), runs_kernel<Element, 1>()},
        {walk_global<pixel_columns<Element, 2, 1>>, walk_global<pixel_columns<Element, 2, LENGTH>>,
         tiles_kernel<Element, 2>(), runs_kernel<Element, 2>()},
        {walk_global<pixel_columns<Element, 3, 1>>, walk_global<pixel_columns<Element, 3, LENGTH>>,
         tiles_kernel<Element, 3>(), runs_kernel<Element, 3>()}};
    return taps <= MAX_TAPS ? kernels[taps - 1][way] : NULL;
}

} // namespace

kernel_function pixels_kernel(tconv_dtype dtype, int taps, int way)
{
    return dtype == TCONV_F32   ? find_kernel<float>(taps, way)
           : dtype == TCONV_F64 ? find_kernel<double>(taps, way)
           : dtype == TCONV_F16 ? find_kernel<__half>(taps, way)
                                : find_kernel<__nv_bfloat16>(taps, way);
}

} // namespace tconv::stencil
