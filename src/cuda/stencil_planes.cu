/*
 * Stencils over planes (NCHW): each output plane reads one input plane.
 *
 * A block copies a tile of the input plane, halo included and zeros outside, to shared memory. A thread then has as many
 * output columns as one 16-byte store holds, of whatever phases they are, and walks down the rows of one row phase
 * (stencil_walk.cuh). Output rows are written whole. Residues without a tap take part like all others and are the bias.
 *
 * A tap outside src is skipped with its row, and along a row it is zero times zero: NaN and Inf in the weights go only
 * where they belong. Numeric order: as stencil_walk.cuh has it.
 */
#include "stencil_walk.cuh"

namespace
{

using namespace tconv_stencil;

constexpr int THREADS = TCONV_CUDA_STENCIL_THREADS;

/* A block's place: a tile of an output plane. */
struct place {
    int first_column, first_row; /* outputs; first_row counts quotients */
    int src_column, src_row;     /* of the first element in shared memory; may be negative */
    int channel;
    int64_t image;
};

template <class Element> __device__ __forceinline__ place find_place(const tconv_cuda_stencil_parameters &layer)
{
    unsigned number = blockIdx.x;
    place found;
    const unsigned column_tile = number % (unsigned)layer.tile.column_tiles;
    number /= (unsigned)layer.tile.column_tiles;
    const unsigned row_tile = number % (unsigned)layer.tile.row_tiles;
    number /= (unsigned)layer.tile.row_tiles;
    found.channel = (int)(number % (unsigned)layer.channels);
    found.image = number / (unsigned)layer.channels;
    found.first_column = (int)column_tile * access_length<Element> << layer.tile.lanes_log2;
    found.first_row = (int)row_tile * layer.tile.rows;
    found.src_row = found.first_row + layer.rows.min_shift;
    /* A multiple of an access, so that every copy is aligned and lies within the row or outside it. */
    found.src_column =
        (found.first_column / layer.columns.stride + layer.columns.min_shift) & ~(access_length<Element> - 1);
    return found;
}

/* Copies the tile of src; behind each row lies a zero. */
template <class Element>
__device__ __forceinline__ void load_src(const tconv_cuda_stencil_parameters &layer, const place &place, Element *x)
{
    constexpr int LENGTH = access_length<Element>;
    const tconv_cuda_stencil_tile &tile = layer.tile;
    const Element *src = static_cast<const Element *>(layer.src) + place.image * layer.src_strides.n +
                         place.channel / layer.multiplier * layer.src_strides.c;
    const int lanes = 1 << tile.load_lanes_log2, lane = (int)threadIdx.x & (lanes - 1);
    for (int row = (int)threadIdx.x >> tile.load_lanes_log2; row < tile.load_rows;
         row += THREADS >> tile.load_lanes_log2) {
        const bool row_exists = (unsigned)(place.src_row + row) < (unsigned)layer.rows.in;
        const Element *from = src + (place.src_row + row) * layer.src_strides.h;
        Element *to = x + row * tile.pitch;
        for (int chunk = lane; chunk < tile.chunks; chunk += lanes) {
            const int column = place.src_column + chunk * LENGTH;
            if (tile.src_aligned) {
                const bool exists = row_exists && (unsigned)column < (unsigned)layer.columns.in;
                copy_async(to + chunk * LENGTH, exists ? from + column : src, exists);
                continue;
            }
            element_vector<Element, LENGTH> run;
#pragma unroll
            for (int i = 0; i < LENGTH; i++) {
                const bool exists = row_exists && (unsigned)(column + i) < (unsigned)layer.columns.in;
                run.at[i] = exists ? from[column + i] : Element(0.0f);
            }
            *reinterpret_cast<element_vector<Element, LENGTH> *>(to + chunk * LENGTH) = run;
        }
        if (lane == 0)
            to[tile.chunks * LENGTH] = Element(0.0f);
    }
}

/* Loads the weights of a channel; behind them lies a zero. */
template <class Element>
__device__ __forceinline__ void load_weights(const tconv_cuda_stencil_parameters &layer, int channel,
                                             compute_type<Element> *weights)
{
    const int count = layer.rows.kernel * layer.columns.kernel;
    const Element *from = static_cast<const Element *>(layer.weights) + channel;
    for (int i = (int)threadIdx.x; i <= count; i += THREADS)
        weights[i] = i < count ? to_compute(from[(int64_t)i * layer.channels]) : compute_type<Element>(0);
}

/* One output column of a thread. */
struct column {
    int output, residue, src; /* src: the column that tap 0 reads, from the first one in shared memory */
};

__device__ __forceinline__ column find_column(const tconv_cuda_stencil_parameters &layer, const place &place,
                                              int output)
{
    const unsigned stride = (unsigned)layer.columns.stride, quotient = (unsigned)output / stride;
    const int residue = (int)((unsigned)output - quotient * stride);
    return {output, residue, (int)quotient + layer.columns.first_shift[residue] - place.src_column};
}

__device__ __forceinline__ bool has_column(const tconv_cuda_stencil_parameters &layer, const place &place,
                                           const column &column, int tap)
{
    const int src = column.src + place.src_column - tap * layer.columns.shift_step;
    return column.output < layer.columns.out && tap < layer.columns.taps[column.residue] &&
           (unsigned)src < (unsigned)layer.columns.in;
}

/* What both kinds of columns have: where weights and outputs lie, and which taps there are. */
template <class Element_, int TAPS_, bool vectors> struct plane_columns {
    using Element = Element_;
    using Compute = compute_type<Element>;
    using Value = Compute;
    static constexpr int TAPS = TAPS_, LENGTH = access_length<Element>, AHEAD = 0;
    static_assert(TAPS * LENGTH <= 32, "a bit for each tap of each column");
    const Compute *weights; /* in shared memory */
    int kernel_columns, no_weight;
    int exist;        /* how many columns of dst there are from the first on */
    int lanes_log2;   /* of what a column is apart from the next where they are not neighbours */
    uint32_t present; /* bit tap * LENGTH + column */

    __device__ __forceinline__ void find_taps(const tconv_cuda_stencil_parameters &layer, const place &place,
                                              const column (&columns)[LENGTH], const Compute *shared_weights)
    {
        weights = shared_weights;
        kernel_columns = layer.columns.kernel;
        no_weight = layer.rows.kernel * layer.columns.kernel;
        exist = layer.columns.out - columns[0].output;
        lanes_log2 = layer.tile.lanes_log2;
        present = 0;
#pragma unroll
        for (int c = 0; c < LENGTH; c++)
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++)
                present |= (uint32_t)has_column(layer, place, columns[c], tap) << (tap * LENGTH + c);
    }

    __device__ __forceinline__ bool has(int tap, int column) const
    {
        return present >> (tap * LENGTH + column) & 1;
    }

    __device__ __forceinline__ void store(Element *dst, const Compute (&sums)[LENGTH]) const
    {
        if (vectors) {
            element_vector<Element, LENGTH> rounded;
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                rounded.at[c] = from_compute<Element>(sums[c]);
            if (exist > 0)
                store_streaming(dst, &rounded);
        } else {
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                if (exist > c << lanes_log2)
                    dst[c << lanes_log2] = from_compute<Element>(sums[c]);
        }
    }
};

/* Columns of any phases: a table of where each tap of each column lies. */
template <class Element, int TAPS, bool vectors> struct table_columns : plane_columns<Element, TAPS, vectors> {
    using Base = plane_columns<Element, TAPS, vectors>;
    using Compute = compute_type<Element>;
    static constexpr int LENGTH = Base::LENGTH, VALUES = TAPS * LENGTH;
    static constexpr bool VECTORS = vectors;
    int at[VALUES], first_kernel[LENGTH], kernel_step;

    __device__ __forceinline__ void find(const tconv_cuda_stencil_parameters &layer, const place &place,
                                         const column (&columns)[LENGTH], const Compute *shared_weights)
    {
        this->find_taps(layer, place, columns, shared_weights);
        kernel_step = layer.columns.kernel_step;
#pragma unroll
        for (int c = 0; c < LENGTH; c++) {
            first_kernel[c] = layer.columns.first_kernel[columns[c].residue];
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++)
                at[tap * LENGTH + c] =
                    this->has(tap, c) ? columns[c].src - tap * layer.columns.shift_step : layer.tile.chunks * LENGTH;
        }
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
                loaded[tap * LENGTH + c] = this->weights[this->has(tap, c) ? kernel_row * this->kernel_columns +
                                                                                 first_kernel[c] + tap * kernel_step
                                                                           : this->no_weight];
    }

    static constexpr __device__ int value(int tap, int column)
    {
        return tap * LENGTH + column;
    }
};

/* Columns whose taps lie in a run: column c's tap t is the value (c + PAD) / STRIDE - t of it, and its kernel column is
 * (c + PAD) mod STRIDE + t * STRIDE. PAD is the padding modulo the stride. */
template <class Element, int TAPS, int STRIDE, int PAD> struct window_columns : plane_columns<Element, TAPS, true> {
    using Base = plane_columns<Element, TAPS, true>;
    using Compute = compute_type<Element>;
    static constexpr int LENGTH = Base::LENGTH, VALUES = (LENGTH - 1 + PAD) / STRIDE + TAPS;
    static constexpr bool VECTORS = true;
    static_assert(LENGTH % STRIDE == 0, "every thread's first column has the same residue");
    int first;

    __device__ __forceinline__ void find(const tconv_cuda_stencil_parameters &layer, const place &place,
                                         const column (&columns)[LENGTH], const Compute *shared_weights)
    {
        this->find_taps(layer, place, columns, shared_weights);
        first = columns[0].src - (TAPS - 1);
    }

    __device__ __forceinline__ void load(const Element *x, Compute (&values)[VALUES]) const
    {
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            values[i] = to_compute(x[first + i]);
    }

    __device__ __forceinline__ void load_weights(int kernel_row, Compute (&loaded)[TAPS * LENGTH]) const
    {
        const Compute *row = this->weights + kernel_row * (STRIDE * TAPS);
        Compute all[STRIDE * TAPS];
#pragma unroll
        for (int k = 0; k < STRIDE * TAPS; k++)
            all[k] = row[k];
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                loaded[tap * LENGTH + c] = this->has(tap, c) ? all[(c + PAD) % STRIDE + tap * STRIDE] : Compute(0);
    }

    static constexpr __device__ int value(int tap, int column)
    {
        return (column + PAD) / STRIDE - tap + TAPS - 1;
    }
};

/* Columns that all take the same values: a thread's columns lie within a stride of padded columns. Column c's kernel column
 * is first_kernel + c + t * stride. */
template <class Element, int TAPS> struct shared_columns : plane_columns<Element, TAPS, true> {
    using Base = plane_columns<Element, TAPS, true>;
    using Compute = compute_type<Element>;
    static constexpr int LENGTH = Base::LENGTH, VALUES = TAPS;
    static constexpr bool VECTORS = true;
    int first, first_kernel, kernel_step;

    __device__ __forceinline__ void find(const tconv_cuda_stencil_parameters &layer, const place &place,
                                         const column (&columns)[LENGTH], const Compute *shared_weights)
    {
        this->find_taps(layer, place, columns, shared_weights);
        first = columns[0].src - (TAPS - 1);
        first_kernel = layer.columns.first_kernel[columns[0].residue];
        kernel_step = layer.columns.kernel_step;
    }

    __device__ __forceinline__ void load(const Element *x, Compute (&values)[VALUES]) const
    {
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            values[i] = to_compute(x[first + i]);
    }

    __device__ __forceinline__ void load_weights(int kernel_row, Compute (&loaded)[TAPS * LENGTH]) const
    {
        const Compute *row = this->weights + kernel_row * this->kernel_columns + first_kernel;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                loaded[tap * LENGTH + c] = this->has(tap, c) ? row[c + tap * kernel_step] : Compute(0);
    }

    static constexpr __device__ int value(int tap, int)
    {
        return TAPS - 1 - tap;
    }
};

/* The tile's part of that number: neighbouring numbers are rows of different residues. */
__device__ __forceinline__ part find_part(const tconv_cuda_stencil_parameters &layer, const place &place, int number)
{
    const unsigned stride = (unsigned)layer.rows.stride, index = (unsigned)number / stride;
    const int residue = (int)((unsigned)number - index * stride);
    const int first = place.first_row + (int)index * layer.tile.part_rows;
    const int end = min(first + layer.tile.part_rows, place.first_row + layer.tile.rows);
    return {residue, first, min(end, quotients_of(layer.rows, residue))};
}

template <class Element>
__device__ __forceinline__ Element *find_dst(const tconv_cuda_stencil_parameters &layer, const place &place,
                                             const part &part, int column)
{
    const int64_t row = (int64_t)part.first * layer.rows.stride + part.residue;
    return static_cast<Element *>(layer.dst) + place.image * layer.dst_strides.n + place.channel * layer.dst_strides.c +
           row * layer.dst_strides.h + column;
}

/* The columns of this thread: neighbours where they are stored as a vector. */
template <bool vectors, int LENGTH>
__device__ __forceinline__ void find_columns(const tconv_cuda_stencil_parameters &layer, const place &place,
                                             column (&columns)[LENGTH])
{
    const int lane = (int)threadIdx.x & ((1 << layer.tile.lanes_log2) - 1);
    columns[0] = find_column(layer, place, place.first_column + (vectors ? lane * LENGTH : lane));
    int quotient = columns[0].output / layer.columns.stride; /* of vectors, whose columns are neighbours */
#pragma unroll
    for (int c = 1; c < LENGTH; c++) {
        if (!vectors) {
            columns[c] = find_column(layer, place, columns[0].output + (c << layer.tile.lanes_log2));
            continue;
        }
        const int next = columns[c - 1].residue + 1, residue = next == layer.columns.stride ? 0 : next;
        quotient += next == layer.columns.stride;
        columns[c] = {columns[0].output + c, residue, quotient + layer.columns.first_shift[residue] - place.src_column};
    }
}

template <class Element>
__device__ __forceinline__ compute_type<Element> load_bias(const tconv_cuda_stencil_parameters &layer, int channel)
{
    return layer.bias != NULL ? to_compute(static_cast<const Element *>(layer.bias)[channel])
                              : compute_type<Element>(0);
}

extern __shared__ __align__(ACCESS_BYTES) unsigned char shared_memory[];

/* Fills shared memory; returns where the weights lie, behind src. */
template <class Element>
__device__ __forceinline__ compute_type<Element> *load_tile(const tconv_cuda_stencil_parameters &layer,
                                                            const place &place)
{
    Element *x = reinterpret_cast<Element *>(shared_memory);
    compute_type<Element> *weights =
        reinterpret_cast<compute_type<Element> *>(x + layer.tile.load_rows * layer.tile.pitch);
    load_src(layer, place, x);
    copy_async_commit();
    load_weights<Element>(layer, place.channel, weights);
    copy_async_wait<0>();
    __syncthreads();
    return weights;
}

/* The row of src in shared memory that tap 0 of a part's first output reads. */
template <class Element>
__device__ __forceinline__ const Element *find_x(const tconv_cuda_stencil_parameters &layer, const place &place,
                                                 const part &part)
{
    const int row = part.first - place.first_row + layer.rows.first_shift[part.residue] - layer.rows.min_shift;
    return reinterpret_cast<const Element *>(shared_memory) + row * layer.tile.pitch;
}

template <class Columns>
__global__ void __launch_bounds__(THREADS) stencil_planes(const __grid_constant__ tconv_cuda_stencil_parameters layer)
{
    using Element = typename Columns::Element;
    const place place = find_place<Element>(layer);
    const compute_type<Element> *weights = load_tile<Element>(layer, place);
    column outputs[Columns::LENGTH];
    find_columns<Columns::VECTORS>(layer, place, outputs);
    Columns columns;
    columns.find(layer, place, outputs, weights);
    compute_type<Element> bias[Columns::LENGTH];
#pragma unroll
    for (int c = 0; c < Columns::LENGTH; c++)
        bias[c] = load_bias<Element>(layer, place.channel);
    const int numbers = layer.tile.parts * layer.rows.stride;
    for (int number = (int)threadIdx.x >> layer.tile.lanes_log2; number < numbers;
         number += THREADS >> layer.tile.lanes_log2) {
        const part part = find_part(layer, place, number);
        walk(layer, part, columns, find_x<Element>(layer, place, part), layer.tile.pitch,
             find_dst<Element>(layer, place, part, outputs[0].output), bias);
    }
}

/* One row of a phase with any number of taps, read from shared memory. */
template <class Element, int LENGTH>
__device__ __forceinline__ void sum_taps(const tconv_cuda_stencil_parameters &layer, const place &place, int residue,
                                         int src_row, const Element *x_row, const column (&outputs)[LENGTH],
                                         const compute_type<Element> *weights, compute_type<Element> (&sums)[LENGTH])
{
    for (int a = 0; a < layer.rows.taps[residue]; a++) {
        const int back = a * layer.rows.shift_step;
        if ((unsigned)(src_row - back) >= (unsigned)layer.rows.in)
            continue;
        const Element *from = x_row - back * layer.tile.pitch;
        const compute_type<Element> *row =
            weights + (layer.rows.first_kernel[residue] + a * layer.rows.kernel_step) * layer.columns.kernel;
#pragma unroll
        for (int c = 0; c < LENGTH; c++) {
            const int taps = layer.columns.taps[outputs[c].residue];
            const int first = layer.columns.first_kernel[outputs[c].residue];
            for (int t = 0; t < taps; t++)
                if (has_column(layer, place, outputs[c], t))
                    sums[c] = fma(row[first + t * layer.columns.kernel_step],
                                  to_compute(from[outputs[c].src - t * layer.columns.shift_step]), sums[c]);
        }
    }
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    stencil_planes_loop(const __grid_constant__ tconv_cuda_stencil_parameters layer)
{
    constexpr int LENGTH = access_length<Element>;
    const place place = find_place<Element>(layer);
    const compute_type<Element> *weights = load_tile<Element>(layer, place);
    const compute_type<Element> bias = load_bias<Element>(layer, place.channel);
    column outputs[LENGTH];
    find_columns<false>(layer, place, outputs);
    const int numbers = layer.tile.parts * layer.rows.stride;
    for (int number = (int)threadIdx.x >> layer.tile.lanes_log2; number < numbers;
         number += THREADS >> layer.tile.lanes_log2) {
        const part part = find_part(layer, place, number);
        const Element *x = find_x<Element>(layer, place, part);
        Element *dst = find_dst<Element>(layer, place, part, outputs[0].output);
        int src_row = part.first + layer.rows.first_shift[part.residue];
        for (int q = part.first; q < part.end; q++, src_row++, x += layer.tile.pitch) {
            compute_type<Element> sums[LENGTH];
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                sums[c] = bias;
            sum_taps(layer, place, part.residue, src_row, x, outputs, weights, sums);
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                if (outputs[c].output < layer.columns.out)
                    dst[c << layer.tile.lanes_log2] = from_compute<Element>(sums[c]);
            dst += layer.rows.stride * layer.dst_strides.h;
        }
    }
}

template <class Element> tconv_cuda_stencil_kernel find_kernel(int columns, int taps, bool vectors)
{
    if (columns == TCONV_CUDA_STENCIL_LOOP)
        return stencil_planes_loop<Element>;
    if (columns == TCONV_CUDA_STENCIL_WINDOW_1)
        return vectors && taps == 3 ? stencil_planes<window_columns<Element, 3, 1, 0>> : NULL;
    if (columns == TCONV_CUDA_STENCIL_WINDOW_2_EVEN)
        return vectors && taps == 2 ? stencil_planes<window_columns<Element, 2, 2, 0>> : NULL;
    if (columns == TCONV_CUDA_STENCIL_WINDOW_2_ODD)
        return vectors && taps == 2 ? stencil_planes<window_columns<Element, 2, 2, 1>> : NULL;
    if (columns == TCONV_CUDA_STENCIL_WINDOW_HALF) {
        constexpr int STRIDE = access_length<Element>; /* as many columns as a thread has */
        return vectors && taps == 2 ? stencil_planes<window_columns<Element, 2, STRIDE, STRIDE / 2>> : NULL;
    }
    if (columns == TCONV_CUDA_STENCIL_SHARED)
        return vectors && taps == 2 ? stencil_planes<shared_columns<Element, 2>> : NULL;
    static const tconv_cuda_stencil_kernel tables[TCONV_CUDA_STENCIL_MAX_TAPS][2] = {
        {stencil_planes<table_columns<Element, 1, false>>, stencil_planes<table_columns<Element, 1, true>>},
        {stencil_planes<table_columns<Element, 2, false>>, stencil_planes<table_columns<Element, 2, true>>},
        {stencil_planes<table_columns<Element, 3, false>>, stencil_planes<table_columns<Element, 3, true>>}};
    return taps <= TCONV_CUDA_STENCIL_MAX_TAPS ? tables[taps - 1][vectors] : NULL;
}

} // namespace

tconv_cuda_stencil_kernel tconv_cuda_stencil_planes(tconv_dtype dtype, int columns, int taps, bool vectors)
{
    return dtype == TCONV_F32   ? find_kernel<float>(columns, taps, vectors)
           : dtype == TCONV_F64 ? find_kernel<double>(columns, taps, vectors)
           : dtype == TCONV_F16 ? find_kernel<__half>(columns, taps, vectors)
                                : find_kernel<__nv_bfloat16>(columns, taps, vectors);
}
