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
#include "stencil_tile.cuh"
#include "stencil_walk.cuh"

namespace
{

using namespace tconv_stencil;

constexpr int THREADS = TCONV_CUDA_STENCIL_THREADS;

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

template <class Element> tconv_cuda_stencil_kernel find_kernel(int columns, int taps, bool vectors)
{
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
    if (columns == TCONV_CUDA_STENCIL_LOOP || columns == TCONV_CUDA_STENCIL_LONG_LOOP)
        return tconv_cuda_stencil_loop(dtype, columns == TCONV_CUDA_STENCIL_LONG_LOOP);
    return dtype == TCONV_F32   ? find_kernel<float>(columns, taps, vectors)
           : dtype == TCONV_F64 ? find_kernel<double>(columns, taps, vectors)
           : dtype == TCONV_F16 ? find_kernel<__half>(columns, taps, vectors)
                                : find_kernel<__nv_bfloat16>(columns, taps, vectors);
}
