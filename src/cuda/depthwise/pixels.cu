/*
 * Stencils over pixels (NHWC): each output channel reads one input channel, and a pixel's channels are neighbours in
 * memory.
 *
 * A thread has a vector of neighbouring channels (or one channel) of an output column and walks down the rows of all
 * row phases, one after the other (walk.cuh). Neighbouring threads have neighbouring channels, then columns of whatever
 * phase, so that stores run along memory. A block first copies the part of src that it reads to shared memory, all at
 * once, which hides the latency of global memory; where that is too much, or too few rows, threads read src themselves. The
 * weights of its channels come there too, as packed or as they lie, unless they are too many.
 * Where channels are no multiple of a vector but a row of dst is one run of memory, a thread has PIXEL_RUN elements of
 * that run instead, of whatever channels and columns.
 *
 * Where taps are many, a thread has one channel, and reads src and weights from the caches as it needs them (strip.cuh).
 * Its rows are the layer's columns where those are more than the rows, since pixels may be in any order.
 *
 * A tap outside src is skipped with its row, and along a row it is skipped or zero times zero: NaN and Inf in the
 * weights go only where they belong. The numeric order is that of walk.cuh, of any number of taps that of strip.cuh.
 */
#include <type_traits>

#include "../epilogue/finish.cuh"
#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "kernels.h"
#include "strip.cuh"
#include "walk.cuh"

namespace tconv::depthwise::forward
{

namespace
{

/* A thread's outputs: a column (or the number of a run), channels and the rows of a tile. */
struct thread_tile {
    int column, channel, first_row;
    int64_t image;
};

/* Returns false for a thread without outputs. */
template <class Columns> __device__ __forceinline__ bool find_thread_tile(const parameters &layer, thread_tile *found)
{
    const quotient column_tile = divide((int)blockIdx.x, layer.tile.column_tiles);
    const unsigned channel_tile = (unsigned)column_tile.whole % (unsigned)layer.tile.channel_tiles;
    const unsigned number = (unsigned)column_tile.whole / (unsigned)layer.tile.channel_tiles;
    const quotient row_tile = divide((int)number, layer.tile.row_tiles);
    found->image = row_tile.whole;
    found->first_row = row_tile.rest * layer.tile.rows;

    const unsigned element = (unsigned)column_tile.rest * THREADS + threadIdx.x;
    const unsigned vectors = Columns::RUNS ? 1 : (unsigned)layer.tile.channel_vectors;
    found->column = (int)(element / vectors);
    found->channel = (int)(channel_tile * vectors + element % vectors) * (Columns::RUNS ? 1 : Columns::LENGTH);
    return found->column < (Columns::RUNS ? layer.tile.channel_vectors : layer.columns.out) &&
           found->channel < layer.channels.divisor;
}

/* src as a thread reads it. */
template <class Element, class Pitch> struct src_view {
    const Element *at; /* row 0, column 0; of a tile in shared memory, before which it may lie, the thread's channels */
    int column_step;   /* elements from a column to the next */
    Pitch row_step;
    int zero_column;        /* of a tile: the column of zeros */
    const Element *weights; /* of kernel position 0: of a vector the thread's channels */
    int weight_step;        /* from a kernel position to the next */
};

/* LENGTH channels of one column. tile: values come from shared memory, where a missing tap has zeros of its own, and
 * are converted once; else they stay as they are stored, so that those of f16 take half the registers. */
template <class Element, int TAPS, int LENGTH, bool tile = false>
struct pixel_columns
    : row_columns<Element, TAPS, LENGTH, std::conditional_t<tile, compute_type<Element>, Element>, LENGTH> {
    using Compute = compute_type<Element>;
    using Value = std::conditional_t<tile, Compute, Element>;
    using Vector = element_vector<Element, LENGTH>;
    using View = src_view<Element, std::conditional_t<tile, int, int64_t>>;
    static constexpr int VALUES = TAPS * LENGTH, AHEAD = tile ? 0 : 1;
    static constexpr bool TILE = tile, RUNS = false;
    const Element *src;     /* what tap 0 reads of row 0 */
    Element *dst;           /* of row 0 */
    const Element *weights; /* of kernel position (0, first_kernel) */
    int weight_step;        /* from a kernel position to the next */
    int offsets[TAPS];      /* elements from tap 0 in src, or to zeros */
    bool present[TAPS];
    int first_channel;

    __device__ __forceinline__ int channel(const parameters &, int i) const
    {
        return first_channel + i;
    }

    __device__ __forceinline__ void find(const parameters &layer, const thread_tile &thread, const View &view)
    {
        const quotient quotient = divide(thread.column, layer.column_stride);
        const int residue = quotient.rest, src_column = quotient.whole + layer.columns.first_shift[residue];
        const int channel = first_channel = thread.channel;
        const struct quotient input = divide(channel, layer.multiplier);
        weights = view.weights;
        weight_step = view.weight_step;
        if constexpr (LENGTH == 1) /* as packed, or as they lie where they are few (forward.c) */
            weights += input.whole * (int)layer.weight_in + input.rest * (int)layer.weight_out;
        weights += (int64_t)layer.columns.first_kernel[residue] * weight_step;
        src = view.at + (decltype(view.row_step))src_column * view.column_step;
        if (!tile)
            src += input.whole * layer.src_strides.c;
        dst = static_cast<Element *>(layer.dst) + thread.image * layer.dst_strides.n +
              thread.column * layer.dst_strides.w + channel * layer.dst_strides.c;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            const int back = tap * layer.columns.shift_step;
            present[tap] =
                tap < layer.columns.taps[residue] && (unsigned)(src_column - back) < (unsigned)layer.columns.in;
            offsets[tap] = (present[tap] || !tile ? -back : view.zero_column - src_column) * view.column_step;
        }
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            this->bias[i] = channel_bias<Element>(layer.bias, channel + i);
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

    __device__ __forceinline__ void load_weights(const parameters &layer, int kernel_row,
                                                 Compute (&loaded)[VALUES]) const
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            Vector vector = {};
            const int position = kernel_row * layer.columns.kernel + tap * layer.columns.kernel_step;
            if (present[tap])
                vector = *reinterpret_cast<const Vector *>(weights + (int64_t)position * weight_step);
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                loaded[tap * LENGTH + i] = to_compute(vector.at[i]);
        }
    }
};

/* PIXEL_RUN elements that lie one after another in a row of dst: channels of one column, then of the next. */
template <class Element, int TAPS> struct pixel_run : row_columns<Element, TAPS, PIXEL_RUN, Element, PIXEL_RUN> {
    using Compute = compute_type<Element>;
    using View = src_view<Element, int64_t>;
    static constexpr int LENGTH = PIXEL_RUN, VALUES = TAPS * LENGTH, AHEAD = 1;
    static constexpr bool TILE = false, RUNS = true;
    const Element *src; /* row 0 */
    Element *dst;
    unsigned from[VALUES]; /* bytes in a row of src */
    int weight_0[LENGTH];  /* of tap 0 in kernel row 0 */
    bool present[VALUES];

    /* The remainder of what lies at kernel row 0. */
    __device__ __forceinline__ int channel(const parameters &layer, int i) const
    {
        return divide(weight_0[i], layer.channels).rest;
    }

    __device__ __forceinline__ void find(const parameters &layer, const thread_tile &thread, const View &view)
    {
        const int element = thread.column * PIXEL_RUN;
        const quotient first = divide(element, layer.channels), phase = divide(first.whole, layer.column_stride);
        int channel = first.rest, quotient = phase.whole, residue = phase.rest;
        src = view.at;
        dst = static_cast<Element *>(layer.dst) + thread.image * layer.dst_strides.n + element;
#pragma unroll
        for (int i = 0; i < LENGTH; i++) {
            const int src_column = quotient + layer.columns.first_shift[residue];
            const int src_channel = divide(channel, layer.multiplier).whole * (int)layer.src_strides.c;
            weight_0[i] = channel + layer.columns.first_kernel[residue] * layer.channels.divisor;
            this->bias[i] = channel_bias<Element>(layer.bias, channel);
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const int tap_column = src_column - tap * layer.columns.shift_step;
                present[tap * LENGTH + i] =
                    tap < layer.columns.taps[residue] && (unsigned)tap_column < (unsigned)layer.columns.in;
                from[tap * LENGTH + i] =
                    (unsigned)(tap_column * view.column_step + src_channel) * (unsigned)sizeof(Element);
            }
            if (++channel == layer.channels.divisor) {
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
        for (int i = 0; i < VALUES; i++)
            values[i] = present[i] ? *reinterpret_cast<const Element *>(reinterpret_cast<const char *>(x) + from[i])
                                   : Element(0.0f);
    }

    __device__ __forceinline__ void load_weights(const parameters &layer, int kernel_row,
                                                 Compute (&loaded)[VALUES]) const
    {
        const Element *weights = static_cast<const Element *>(layer.weights);
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            const int position = kernel_row * layer.columns.kernel + i / LENGTH * layer.columns.kernel_step;
            loaded[i] =
                present[i] ? to_compute(weights[weight_0[i % LENGTH] + position * layer.channels.divisor]) : Compute(0);
        }
    }
};

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
        const quotient column = divide(vector, tile.load_lanes);
        const bool exists = (unsigned)(src_row + row) < (unsigned)layer.rows.in &&
                            (unsigned)(src_column + column.whole) < (unsigned)layer.columns.in &&
                            vector < tile.row_vectors - tile.load_lanes.divisor &&
                            channel + column.rest * LENGTH < layer.channels.divisor;
        const Element *from = src + (src_row + row) * layer.src_strides.h +
                              (src_column + column.whole) * layer.src_strides.w + column.rest * LENGTH;
        if (row < tile.load_rows)
            cp_async(shared_tile + row * tile.row_vectors + vector, exists ? from : src, exists);
        vector += THREADS;
    }
    cp_async_commit();
}

/* Copies the weights of a block's channels, from that channel on, to [kernel position][channel]. */
template <class Element>
__device__ __forceinline__ void copy_weights(const parameters &layer, int channel, int channels, Element *to)
{
    const Element *from = static_cast<const Element *>(layer.weights) + channel * layer.weight_in;
    const int count = min(channels, layer.channels.divisor - channel) * layer.weight_taps.divisor;
    constexpr int AT_ONCE = 4; /* loads under way */
#pragma unroll 1
    for (int first = (int)threadIdx.x; first < count; first += AT_ONCE * THREADS) {
        Element held[AT_ONCE];
        int places[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) { /* those beyond the last are the last once more */
            const quotient at = divide(min(first + i * THREADS, count - 1), layer.weight_taps);
            held[i] = from[at.whole * layer.weight_in + at.rest * layer.weight_tap];
            places[i] = at.rest * channels + at.whole;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            to[places[i]] = held[i];
    }
}

/* The number of a thread's vector among the channels of its block. */
__device__ __forceinline__ int vector_in_block(const parameters &layer)
{
    const int of_block = divide((int)blockIdx.x, layer.tile.column_tiles).rest;
    return (int)((unsigned)(of_block * THREADS + (int)threadIdx.x) % (unsigned)layer.tile.channel_vectors);
}

/* Returns the view of a thread that reads src straight from memory. Its weights may come through shared memory. */
template <class Columns>
__device__ __forceinline__ typename Columns::View make_view(const parameters &layer, const thread_tile &thread)
{
    using Element = typename Columns::Element;
    typename Columns::View view = {static_cast<const Element *>(layer.src) + thread.image * layer.src_strides.n,
                                   (int)layer.src_strides.w,
                                   layer.src_strides.h,
                                   0,
                                   static_cast<const Element *>(layer.weights),
                                   (int)layer.weight_tap};
    wait_for_weights();
    if constexpr (!Columns::RUNS && Columns::LENGTH > 1) {
        if (layer.tile.stages_weights) {
            const int before = vector_in_block(layer) * Columns::LENGTH;
            Element *weights = reinterpret_cast<Element *>(shared_tile);
            view.weight_step = layer.tile.channel_vectors * Columns::LENGTH;
            copy_weights(layer, thread.channel - before, view.weight_step, weights);
            __syncthreads();
            view.weights = weights + before;
        } else {
            view.weights += thread.channel; /* packed */
        }
    }
    return view;
}

/* Returns the view of a thread whose block copies src, and weights that lie unpacked, to shared memory. It is for layers in which
 * each output channel has an input channel of its own. */
template <class Columns>
__device__ __forceinline__ typename Columns::View load_tile(const parameters &layer, const thread_tile &thread)
{
    using Element = typename Columns::Element;
    constexpr int LENGTH = Columns::LENGTH;
    const int vectors = layer.tile.channel_vectors, of_block = divide((int)blockIdx.x, layer.tile.column_tiles).rest;
    const int vector = vector_in_block(layer);
    const int first_column = (int)((unsigned)(of_block * THREADS) / (unsigned)vectors);
    const int src_row = thread.first_row + layer.rows.min_shift;
    const int src_column = divide(first_column, layer.column_stride).whole + layer.columns.min_shift;
    const int column_step = vectors * LENGTH, row_step = layer.tile.pitch,
              first_channel = thread.channel - vector * LENGTH;
    Element *weights = reinterpret_cast<Element *>(shared_tile) + layer.tile.load_rows * row_step;
    copy_tile<Element>(layer, thread.image, first_channel, src_row, src_column);
    wait_for_weights();
    if (layer.tile.stages_weights)
        copy_weights(layer, first_channel, column_step, weights);
    cp_async_wait<0>();
    __syncthreads();
    typename Columns::View view = {reinterpret_cast<const Element *>(shared_tile) + vector * LENGTH -
                                       src_row * row_step - src_column * column_step,
                                   column_step,
                                   row_step,
                                   src_column + row_step / column_step - 1,
                                   weights + vector * LENGTH,
                                   column_step};
    if (!layer.tile.stages_weights) { /* packed */
        view.weights = static_cast<const Element *>(layer.weights) + thread.channel;
        view.weight_step = layer.channels.divisor;
    }
    return view;
}

/* Returns the blocks on a multiprocessor that a kernel for post-ops is held to, 0 where to none: as many as registers allow
 * without spills. */
template <class Columns> constexpr int posts_blocks()
{
    constexpr int VALUES = Columns::VALUES, LENGTH = Columns::LENGTH;
    if (LENGTH == 1 || VALUES > 16)
        return 0;
    if (VALUES > 8)
        return Columns::TILE ? 4 : 3;
    if (VALUES > 4)
        return (Columns::TILE ? 6 : 5) - (LENGTH > 4 ? 1 : 0);
    return 8;
}

/* A kernel without post-ops is held to so many blocks where its vectors have several taps: ptxas else spills some. */
template <class Columns>
constexpr int BLOCKS = Columns::VALUES >= 12 && Columns::VALUES <= 16 && !Columns::TILE && !Columns::RUNS ? 4 : 0;

template <class Columns, bool has_posts>
__global__ void __launch_bounds__(THREADS, has_posts ? posts_blocks<Columns>() : BLOCKS<Columns>)
    walk_pixels(const __grid_constant__ parameters layer)
{
    using Element = typename Columns::Element;
    thread_tile thread;
    typename Columns::View view;
    const bool has_outputs = find_thread_tile<Columns>(layer, &thread);
    if constexpr (Columns::TILE)
        view = load_tile<Columns>(layer, thread);
    else
        view = make_view<Columns>(layer, thread);
    if (!has_outputs)
        return;
    Columns columns;
    columns.find(layer, thread, view);
    if constexpr (has_posts)
        columns.numbers =
            read_numbers<Columns::CHANNELS>(layer.posts.rounds[0], [&](int i) { return columns.channel(layer, i); });
    for (int residue = 0; residue < layer.rows.stride; residue++) {
        const int end = min(thread.first_row + layer.tile.rows, quotients_of(layer, residue));
        const part part = {residue, thread.first_row, end};
        walk<has_posts>(layer, part, columns,
                        columns.src + (part.first + layer.rows.first_shift[residue]) * view.row_step, view.row_step,
                        columns.dst + ((int64_t)part.first * layer.rows.stride + residue) * layer.dst_strides.h);
    }
}

/* Blocks on a multiprocessor: as many as registers allow without spills. */
template <bool compensated> constexpr int LOOP_BLOCKS = compensated ? 4 : 5;

/* One channel of a column, read from global memory. */
template <class Element_> struct loop_pixel {
    using Element = Element_;
    static constexpr int LENGTH = 1;
    static constexpr bool RUNS = false;
};

/* Walks down the rows of columns of any number of taps. */
template <class Element, bool compensated>
__global__ void __launch_bounds__(THREADS, LOOP_BLOCKS<compensated>)
    walk_pixel_taps(const __grid_constant__ parameters layer)
{
    thread_tile thread;
    if (!find_thread_tile<loop_pixel<Element>>(layer, &thread))
        return;
    const quotient phase = divide(thread.column, layer.column_stride);
    const Element *src = static_cast<const Element *>(layer.src) + thread.image * layer.src_strides.n +
                         divide(thread.channel, layer.multiplier).whole * layer.src_strides.c;
    const Element *weights = static_cast<const Element *>(layer.weights) + thread.channel;
    Element *dst = static_cast<Element *>(layer.dst) + thread.image * layer.dst_strides.n +
                   thread.channel * layer.dst_strides.c + thread.column * layer.dst_strides.w;
    const compute_type<Element> bias = channel_bias<Element>(layer.bias, thread.channel);
    wait_for_weights();
    strip_view<Element, Element, int64_t, false> view;
    view.pitch = layer.src_strides.h;
    view.column_step = layer.columns.shift_step * layer.src_strides.w;
    view.weight_column = layer.columns.kernel_step * layer.weight_column;
    view.weight_row = layer.rows.kernel_step * layer.weight_row;
    view.src_column = phase.whole + layer.columns.first_shift[phase.rest];
    view.column_taps = layer.columns.taps[phase.rest];
    for (int residue = 0; residue < layer.rows.stride; residue++) {
        const int end = min(thread.first_row + layer.tile.rows, quotients_of(layer, residue));
        view.src_row = thread.first_row + layer.rows.first_shift[residue];
        view.row_taps = layer.rows.taps[residue];
        view.x = src + view.src_row * layer.src_strides.h + view.src_column * layer.src_strides.w;
        view.weights = weights + layer.rows.first_kernel[residue] * layer.weight_row +
                       layer.columns.first_kernel[phase.rest] * layer.weight_column;
        walk_row_strips<STRIP, false, compensated, true>(
            layer, view, end - thread.first_row, bias, [&] { return thread.channel; },
            dst + ((int64_t)thread.first_row * layer.rows.stride + residue) * layer.dst_strides.h);
    }
}

typedef void (*kernel_function)(parameters);

template <class Element, int TAPS, bool has_posts> kernel_function find_kernel(int elements)
{
    switch (elements) {
    case PIXEL_SINGLE: return walk_pixels<pixel_columns<Element, TAPS, 1>, has_posts>;
    case PIXEL_VECTORS:
        return walk_pixels<pixel_columns<Element, TAPS, vector_length(sizeof(Element), TAPS)>, has_posts>;
    case PIXEL_TILE:
        return walk_pixels<pixel_columns<Element, TAPS, vector_length(sizeof(Element), TAPS), true>, has_posts>;
    default:
        if constexpr (sizeof(compute_type<Element>) == sizeof(float))
            return walk_pixels<pixel_run<Element, TAPS>, has_posts>;
        else
            return NULL; /* the numbers of f64 would not fit in registers */
    }
}

template <class Element, bool has_posts> kernel_function kernel_of_elements(int taps, int elements)
{
    constexpr bool IN_F32 = sizeof(compute_type<Element>) == sizeof(float);
    if (elements == PIXEL_LOOP)
        return walk_pixel_taps<Element, false>;
    if (elements == PIXEL_LONG_LOOP)
        return walk_pixel_taps<Element, IN_F32>; /* f64 has no segments */
    return taps == 1   ? find_kernel<Element, 1, has_posts>(elements)
           : taps == 2 ? find_kernel<Element, 2, has_posts>(elements)
                       : find_kernel<Element, 3, has_posts>(elements);
}

} // namespace

} // namespace tconv::depthwise::forward

namespace tconv::depthwise
{

extern "C" const void *tconv_depthwise_pixels_kernel(tconv_dtype dtype, int taps, int elements, bool has_posts)
{
    return with_element(dtype, [&](auto element) {
        using Element = decltype(element);
        constexpr bool MAY_HAVE = !std::is_same<Element, double>::value;
        return (const void *)(has_posts ? forward::kernel_of_elements<Element, MAY_HAVE>(taps, elements)
                                        : forward::kernel_of_elements<Element, false>(taps, elements));
    });
}

} // namespace tconv::depthwise
