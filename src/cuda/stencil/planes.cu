/*
 * Stencils over planes (NCHW): each output plane reads one input plane.
 *
 * A block copies a tile of the input plane, halo included and zeros outside, to shared memory. A thread then has as
 * many output columns as one 16-byte store holds, of whatever phases they are, and walks down the rows of one row
 * phase. Output rows are written whole. Residues without a tap take part like all others and are the bias.
 *
 * NaN and Inf in the weights go only where they belong. Where a table finds the columns, a tap outside src is skipped
 * with its row, and along a row it is zero times zero. Where they lie in a window, it is a weight times zero, so that
 * nothing is compared; if a weight of the channel is not finite, its taps are summed one by one. The numeric order is
 * that of walk.cuh.
 */
#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "tile.cuh"
#include "walk.cuh"

namespace tconv::stencil
{

namespace
{

/* Blocks on a multiprocessor: as many as the registers of walk_windows allow without spills. */
template <class Compute> constexpr int WINDOW_BLOCKS = sizeof(Compute) == sizeof(double) ? 5 : 7;

/* Stores a thread's outputs of a row, which are neighbours, at once. */
template <class Element, int LENGTH>
__device__ __forceinline__ void store_run(Element *dst, const compute_type<Element> (&sums)[LENGTH])
{
    element_vector<Element, LENGTH> rounded;
#pragma unroll
    for (int c = 0; c < LENGTH; c++)
        rounded.at[c] = from_compute<Element>(sums[c]);
    store_streaming(dst, &rounded);
}

/* Columns of any phases: a table says where each tap of each column lies. */
template <class Element_, int TAPS_, bool vectors> struct table_columns {
    using Element = Element_;
    using Compute = compute_type<Element>;
    using Value = Compute;
    static constexpr int TAPS = TAPS_, LENGTH = access_length<Element>, VALUES = TAPS * LENGTH, AHEAD = 0;
    static constexpr bool VECTORS = vectors;
    static_assert(VALUES <= 32, "a bit for each tap of each column");
    const Compute *weights; /* in shared memory */
    int kernel_columns, no_weight;
    int exist;        /* how many columns of dst there are from the first on */
    int lanes_log2;   /* log2 of the distance of a thread's columns where they are not neighbours */
    uint32_t present; /* bit tap * LENGTH + column */
    int at[VALUES], first_kernel[LENGTH], kernel_step;

    __device__ __forceinline__ void find(const parameters &layer, const block_tile &block,
                                         const column (&columns)[LENGTH], const Compute *shared_weights)
    {
        weights = shared_weights;
        kernel_columns = layer.columns.kernel;
        no_weight = layer.rows.kernel * layer.columns.kernel;
        exist = layer.columns.out - columns[0].output;
        lanes_log2 = layer.tile.lanes_log2;
        kernel_step = layer.columns.kernel_step;
        present = 0;
#pragma unroll
        for (int c = 0; c < LENGTH; c++) {
            first_kernel[c] = layer.columns.first_kernel[columns[c].residue];
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const bool exists = has_column(layer, block, columns[c], tap);
                present |= (uint32_t)exists << (tap * LENGTH + c);
                at[tap * LENGTH + c] =
                    exists ? columns[c].src - tap * layer.columns.shift_step : layer.tile.row_vectors * LENGTH;
            }
        }
    }

    __device__ __forceinline__ bool has(int tap, int column) const
    {
        return present >> (tap * LENGTH + column) & 1;
    }

    __device__ __forceinline__ void load(const Element *x, Compute (&values)[VALUES]) const
    {
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            values[i] = to_compute(x[at[i]]);
    }

    __device__ __forceinline__ void load_weights(int kernel_row, Compute (&loaded)[VALUES]) const
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                loaded[tap * LENGTH + c] =
                    weights[has(tap, c) ? kernel_row * kernel_columns + first_kernel[c] + tap * kernel_step
                                        : no_weight];
    }

    static constexpr __device__ int value(int tap, int column)
    {
        return tap * LENGTH + column;
    }

    __device__ __forceinline__ void store(Element *dst, const Compute (&sums)[LENGTH]) const
    {
        if (vectors) {
            if (exist > 0)
                store_run<Element>(dst, sums);
        } else {
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                if (exist > c << lanes_log2)
                    dst[c << lanes_log2] = from_compute<Element>(sums[c]);
        }
    }
};

/* Copies COUNT values from shared memory, which lie at a multiple of their size, or of a vector. */
template <class Value, int COUNT> __device__ __forceinline__ void load_run(const Value *from, Value *to)
{
    constexpr int VECTOR = COUNT * sizeof(Value) % ACCESS_BYTES == 0 ? access_length<Value> : 1;
#pragma unroll
    for (int i = 0; i < COUNT; i += VECTOR) {
        const element_vector<Value, VECTOR> vector = *reinterpret_cast<const element_vector<Value, VECTOR> *>(from + i);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            to[i + j] = vector.at[j];
    }
}

/* Columns whose taps lie in a window of src: column c's tap t is its value (c + PAD) / STRIDE - t, and its kernel
 * column is (c + PAD) mod STRIDE + t * STRIDE. PAD is the padding modulo the stride. */
template <class Element_, int TAPS_, int STRIDE, int PAD> struct window_columns {
    using Element = Element_;
    using Compute = compute_type<Element>;
    static constexpr int TAPS = TAPS_, LENGTH = access_length<Element>, VALUES = (LENGTH - 1 + PAD) / STRIDE + TAPS;
    static constexpr int WEIGHTS = STRIDE * TAPS;
    static_assert(LENGTH % STRIDE == 0, "every thread's first column has the same residue");

    static __device__ __forceinline__ void load_weights(const parameters &, const Compute *row, int,
                                                        Compute (&loaded)[WEIGHTS])
    {
        load_run<Compute, WEIGHTS>(row, loaded);
    }

    static constexpr __device__ int value(int tap, int column)
    {
        return (column + PAD) / STRIDE - tap + TAPS - 1;
    }

    static constexpr __device__ int weight(int tap, int column)
    {
        return (column + PAD) % STRIDE + tap * STRIDE;
    }
};

/* Columns that all take the same values: a thread's columns lie within a stride of padded columns. Column c's kernel
 * column is first_kernel + c + t * stride. */
template <class Element_, int TAPS_> struct shared_columns {
    using Element = Element_;
    using Compute = compute_type<Element>;
    static constexpr int TAPS = TAPS_, LENGTH = access_length<Element>, VALUES = TAPS, WEIGHTS = TAPS * LENGTH;

    static __device__ __forceinline__ void load_weights(const parameters &layer, const Compute *row, int residue,
                                                        Compute (&loaded)[WEIGHTS])
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
            load_run<Compute, LENGTH>(row + layer.columns.first_kernel[residue] + tap * layer.columns.stride,
                                      loaded + tap * LENGTH);
    }

    static constexpr __device__ int value(int tap, int)
    {
        return TAPS - 1 - tap;
    }

    static constexpr __device__ int weight(int tap, int column)
    {
        return tap * LENGTH + column;
    }
};

template <class Columns> __global__ void __launch_bounds__(THREADS) walk_table(const __grid_constant__ parameters layer)
{
    using Element = typename Columns::Element;
    const block_tile block = find_block_tile<Element>(layer);
    const compute_type<Element> *weights = load_tile<Element, true>(layer, block).at;
    column outputs[Columns::LENGTH];
    find_columns<Columns::VECTORS>(layer, block, outputs);
    Columns columns;
    columns.find(layer, block, outputs, weights);
    compute_type<Element> bias[Columns::LENGTH];
#pragma unroll
    for (int c = 0; c < Columns::LENGTH; c++)
        bias[c] = load_bias<Element>(layer, block.channel);
    const int numbers = layer.tile.parts * layer.rows.stride;
    for (int number = (int)threadIdx.x >> layer.tile.lanes_log2; number < numbers;
         number += THREADS >> layer.tile.lanes_log2) {
        const part part = find_part(layer, block, number);
        walk(layer, part, columns, find_x<Element>(layer, block, part), layer.tile.pitch,
             find_dst<Element>(layer, block, part, outputs[0].output), bias);
    }
}

/* Walks down a part of the tile where all weights are finite: no tap is left out, for shared memory has zeros outside
 * src. x: the first value of the row that tap 0 of the first row of outputs reads. all_taps: the row phase has as many
 * taps as the kernel is for. */
template <class Columns, bool all_taps>
__device__ __forceinline__ void walk_window(const parameters &layer, const part &part,
                                            const compute_type<typename Columns::Element> *shared_weights, int residue,
                                            const typename Columns::Element *x, typename Columns::Element *dst,
                                            compute_type<typename Columns::Element> bias)
{
    using Element = typename Columns::Element;
    using Compute = compute_type<Element>;
    constexpr int TAPS = Columns::TAPS, LENGTH = Columns::LENGTH, VALUES = Columns::VALUES;
    const int taps = all_taps ? Columns::TAPS : layer.rows.taps[part.residue], pitch = layer.tile.pitch;
    const int64_t dst_step = layer.rows.stride * layer.dst_strides.h;
    const auto load = [](const Element *from, Compute(&to)[VALUES]) {
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            to[i] = to_compute(from[i]);
    };
    Compute weights[TAPS][Columns::WEIGHTS], values[TAPS][VALUES];
#pragma unroll
    for (int a = 0; a < TAPS; a++) {
        if (a >= taps)
            continue;
        const int kernel_row = layer.rows.first_kernel[part.residue] + a * layer.rows.kernel_step;
        Columns::load_weights(layer, shared_weights + kernel_row * layer.columns.kernel, residue, weights[a]);
        if (a > 0)
            load(x - a * pitch, values[TAPS - a]);
    }
    /* Tap a of the row that is j past a multiple of TAPS is in values[(j - a) mod TAPS]. */
    for (int q = part.first; q < part.end; q += TAPS) {
#pragma unroll
        for (int j = 0; j < TAPS; j++) {
            if (q + j >= part.end)
                break;
            load(x, values[j]);
            Compute sums[LENGTH];
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                sums[c] = bias;
#pragma unroll
            for (int a = 0; a < TAPS; a++) {
                if (a >= taps)
                    continue;
#pragma unroll
                for (int t = 0; t < TAPS; t++)
#pragma unroll
                    for (int c = 0; c < LENGTH; c++)
                        sums[c] = fma(weights[a][Columns::weight(t, c)],
                                      values[(j - a + TAPS) % TAPS][Columns::value(t, c)], sums[c]);
            }
            store_run<Element>(dst, sums);
            x += pitch;
            dst += dst_step;
        }
    }
}

/* The same for any weights, tap by tap: this is not meant to be fast. */
template <class Element>
__device__ __forceinline__ void walk_taps(const parameters &layer, const block_tile &block, const part &part,
                                          const compute_type<Element> *weights, int first_output,
                                          compute_type<Element> bias)
{
    for (int c = 0; c < access_length<Element>; c++) {
        const column outputs[1] = {find_column(layer, block, first_output + c)};
        const Element *x = find_x<Element>(layer, block, part);
        Element *dst = find_dst<Element>(layer, block, part, outputs[0].output);
        int src_row = part.first + layer.rows.first_shift[part.residue];
        for (int q = part.first; q < part.end; q++) {
            compute_type<Element> sums[1] = {bias};
            sum_taps(layer, block, part.residue, src_row, x, outputs, weights,
                     {0, layer.rows.taps[part.residue], 0, MAX_TAPS}, sums);
            *dst = from_compute<Element>(sums[0]);
            src_row++;
            x += layer.tile.pitch;
            dst += layer.rows.stride * layer.dst_strides.h;
        }
    }
}

template <class Columns>
__global__ void __launch_bounds__(THREADS, WINDOW_BLOCKS<typename Columns::Compute>)
    walk_windows(const __grid_constant__ parameters layer)
{
    using Element = typename Columns::Element;
    const block_tile block = find_block_tile<Element>(layer);
    const tile_weights<compute_type<Element>> weights = load_tile<Element, false>(layer, block);
    const int lane = (int)threadIdx.x & ((1 << layer.tile.lanes_log2) - 1);
    const column first = find_column(layer, block, block.first_column + lane * Columns::LENGTH);
    if (first.output >= layer.columns.out)
        return;
    const compute_type<Element> bias = load_bias<Element>(layer, block.channel);
    const int numbers = layer.tile.parts * layer.rows.stride;
    for (int number = (int)threadIdx.x >> layer.tile.lanes_log2; number < numbers;
         number += THREADS >> layer.tile.lanes_log2) {
        const part part = find_part(layer, block, number);
        const Element *x = find_x<Element>(layer, block, part) + first.src - (Columns::TAPS - 1);
        Element *dst = find_dst<Element>(layer, block, part, first.output);
        if (weights.finite && layer.rows.taps[part.residue] == Columns::TAPS)
            walk_window<Columns, true>(layer, part, weights.at, first.residue, x, dst, bias);
        else if (weights.finite)
            walk_window<Columns, false>(layer, part, weights.at, first.residue, x, dst, bias);
        else
            walk_taps<Element>(layer, block, part, weights.at, first.output, bias);
    }
}

template <class Element> kernel_function find_kernel(int columns, int taps, bool vectors)
{
    if (columns == COLUMNS_WINDOW_1)
        return vectors && taps == 3 ? walk_windows<window_columns<Element, 3, 1, 0>> : NULL;
    if (columns == COLUMNS_WINDOW_2_EVEN)
        return vectors && taps == 2 ? walk_windows<window_columns<Element, 2, 2, 0>> : NULL;
    if (columns == COLUMNS_WINDOW_2_ODD)
        return vectors && taps == 2 ? walk_windows<window_columns<Element, 2, 2, 1>> : NULL;
    if (columns == COLUMNS_WINDOW_HALF) {
        constexpr int STRIDE = access_length<Element>; /* as many columns as a thread has */
        return vectors && taps == 2 ? walk_windows<window_columns<Element, 2, STRIDE, STRIDE / 2>> : NULL;
    }
    if (columns == COLUMNS_SHARED)
        return vectors && taps == 2 ? walk_windows<shared_columns<Element, 2>> : NULL;
    static const kernel_function tables[MAX_TAPS][2] = {
        {walk_table<table_columns<Element, 1, false>>, walk_table<table_columns<Element, 1, true>>},
        {walk_table<table_columns<Element, 2, false>>, walk_table<table_columns<Element, 2, true>>},
        {walk_table<table_columns<Element, 3, false>>, walk_table<table_columns<Element, 3, true>>}};
    return taps <= MAX_TAPS ? tables[taps - 1][vectors] : NULL;
}

} // namespace

kernel_function planes_kernel(tconv_dtype dtype, int columns, int taps, bool vectors)
{
    if (columns == COLUMNS_LOOP || columns == COLUMNS_LONG_LOOP)
        return loop_kernel(dtype, columns == COLUMNS_LONG_LOOP);
    return dtype == TCONV_F32   ? find_kernel<float>(columns, taps, vectors)
           : dtype == TCONV_F64 ? find_kernel<double>(columns, taps, vectors)
           : dtype == TCONV_F16 ? find_kernel<__half>(columns, taps, vectors)
                                : find_kernel<__nv_bfloat16>(columns, taps, vectors);
}

} // namespace tconv::stencil
