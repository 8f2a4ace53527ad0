/*
 * Stencils over pixels (NHWC): channels lie side by side, and each output channel reads one input channel.
 *
 * A thread has an access of neighbouring channels (or one channel) of an output column and walks down the rows of all row
 * phases, one after the other (stencil_walk.cuh). Neighbouring threads have neighbouring channels, then columns of
 * whatever phase, so that stores run along memory and what several phases read comes from the first-level cache.
 *
 * A tap outside src is skipped with its row, and along a row it is zero times zero: NaN and Inf in the weights go only
 * where they belong. Numeric order: as stencil_walk.cuh has it.
 */
#include "stencil_walk.cuh"

namespace
{

using namespace tconv_stencil;

constexpr int THREADS = TCONV_CUDA_STENCIL_THREADS;

/* A thread's place: a column, channels and the rows of a tile. */
struct place {
    int column, channel, first_row;
    int64_t image;
};

/* Returns false for a thread without outputs. */
template <int LENGTH>
__device__ __forceinline__ bool find_place(const tconv_cuda_stencil_parameters &layer, place *found)
{
    unsigned number = blockIdx.x;
    const unsigned column_tile = number % (unsigned)layer.tile.column_tiles;
    number /= (unsigned)layer.tile.column_tiles;
    const unsigned channel_tile = number % (unsigned)layer.tile.channel_tiles;
    number /= (unsigned)layer.tile.channel_tiles;
    const unsigned row_tile = number % (unsigned)layer.tile.row_tiles;
    found->image = number / (unsigned)layer.tile.row_tiles;
    found->first_row = (int)row_tile * layer.tile.rows;

    const unsigned element = column_tile * THREADS + threadIdx.x, vectors = (unsigned)layer.tile.channel_vectors;
    found->column = (int)(element / vectors);
    found->channel = (int)(channel_tile * vectors + element % vectors) * LENGTH;
    return found->column < layer.columns.out && found->channel < layer.channels;
}

/* LENGTH channels of one column. Values stay as they are stored: those of f16 then take half the registers. */
template <class Element_, int TAPS_, int LENGTH_> struct pixel_columns {
    using Element = Element_;
    using Compute = compute_type<Element>;
    using Value = Element;
    using Vector = element_vector<Element, LENGTH_>;
    static constexpr int TAPS = TAPS_, LENGTH = LENGTH_, VALUES = TAPS * LENGTH, AHEAD = 1;
    const Element *weights; /* of kernel position (0, first_kernel) */
    int64_t channels;
    int kernel_columns, kernel_step, tap_step; /* tap_step: elements from a tap in src to the next, which lies before */
    bool present[TAPS];

    __device__ __forceinline__ void find(const tconv_cuda_stencil_parameters &layer, const place &place, int residue,
                                         int src_column)
    {
        channels = layer.channels;
        kernel_columns = layer.columns.kernel;
        kernel_step = layer.columns.kernel_step;
        tap_step = layer.columns.shift_step * (int)layer.src_strides.w;
        weights = static_cast<const Element *>(layer.weights) + place.channel +
                  layer.columns.first_kernel[residue] * channels;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
            present[tap] = tap < layer.columns.taps[residue] &&
                           (unsigned)(src_column - tap * layer.columns.shift_step) < (unsigned)layer.columns.in;
    }

    __device__ __forceinline__ void load(const Element *x, Element (&values)[VALUES]) const
    {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            Vector loaded = {};
            if (present[tap])
                loaded = *reinterpret_cast<const Vector *>(x - tap * tap_step);
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                values[tap * LENGTH + i] = loaded.at[i];
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

template <class Columns>
__global__ void __launch_bounds__(THREADS) stencil_pixels(const __grid_constant__ tconv_cuda_stencil_parameters layer)
{
    using Element = typename Columns::Element;
    place place;
    if (!find_place<Columns::LENGTH>(layer, &place))
        return;
    const int quotient = place.column / layer.columns.stride;
    const int residue = place.column - quotient * layer.columns.stride;
    const int src_column = quotient + layer.columns.first_shift[residue];
    Columns columns;
    columns.find(layer, place, residue, src_column);
    compute_type<Element> bias[Columns::LENGTH];
#pragma unroll
    for (int i = 0; i < Columns::LENGTH; i++)
        bias[i] = layer.bias != NULL ? to_compute(static_cast<const Element *>(layer.bias)[place.channel + i])
                                     : compute_type<Element>(0);
    const Element *src = static_cast<const Element *>(layer.src) + place.image * layer.src_strides.n +
                         src_column * layer.src_strides.w + place.channel / layer.multiplier * layer.src_strides.c;
    Element *dst = static_cast<Element *>(layer.dst) + place.image * layer.dst_strides.n +
                   place.column * layer.dst_strides.w + place.channel * layer.dst_strides.c;
    for (int residue_h = 0; residue_h < layer.rows.stride; residue_h++) {
        const int end = min(place.first_row + layer.tile.rows, quotients_of(layer.rows, residue_h));
        const part part = {residue_h, place.first_row, end};
        walk(layer, part, columns, src + (part.first + layer.rows.first_shift[residue_h]) * layer.src_strides.h,
             layer.src_strides.h, dst + ((int64_t)part.first * layer.rows.stride + residue_h) * layer.dst_strides.h,
             bias);
    }
}

template <class Element> tconv_cuda_stencil_kernel find_kernel(int taps, bool vectors)
{
    constexpr int LENGTH = access_length<Element>;
    static const tconv_cuda_stencil_kernel kernels[TCONV_CUDA_STENCIL_MAX_TAPS][2] = {
        {stencil_pixels<pixel_columns<Element, 1, 1>>, stencil_pixels<pixel_columns<Element, 1, LENGTH>>},
        {stencil_pixels<pixel_columns<Element, 2, 1>>, stencil_pixels<pixel_columns<Element, 2, LENGTH>>},
        {stencil_pixels<pixel_columns<Element, 3, 1>>, stencil_pixels<pixel_columns<Element, 3, LENGTH>>}};
    return taps <= TCONV_CUDA_STENCIL_MAX_TAPS ? kernels[taps - 1][vectors] : NULL;
}

} // namespace

tconv_cuda_stencil_kernel tconv_cuda_stencil_pixels(tconv_dtype dtype, int taps, bool vectors)
{
    return dtype == TCONV_F32   ? find_kernel<float>(taps, vectors)
           : dtype == TCONV_F64 ? find_kernel<double>(taps, vectors)
           : dtype == TCONV_F16 ? find_kernel<__half>(taps, vectors)
                                : find_kernel<__nv_bfloat16>(taps, vectors);
}
