/*
 * The general kernels share the way from a tile's number to its phase, channels and pixels.
 *
 * Index is the integer of coordinates and offsets: int32_t where everything in the layer fits with room to spare (the
 * host chooses, see is_narrow in general.c), which is most layers and much faster, else int64_t.
 */
#ifndef TCONV_CUDA_GENERAL_TILE_CUH
#define TCONV_CUDA_GENERAL_TILE_CUH

#include <type_traits>

#include "../hardware.h"
#include "parameters.h"

namespace tconv::general
{

/* The kernels of one shape: for any layer, and for layers whose indices all fit in 32 bits. */
struct kernel_pair {
    void (*wide)(parameters);
    void (*narrow)(parameters);
};

template <class Index> using unsigned_index = typename std::make_unsigned<Index>::type;

/* The numbers of a tconv_phase. */
template <class Index> struct phase {
    Index residue, outputs, taps, first_kernel, first_shift;
};

template <class Index> __device__ __forceinline__ phase<Index> load_phase(const tconv_phase &from)
{
    return {(Index)from.residue, (Index)from.outputs, (Index)from.taps, (Index)from.first_kernel,
            (Index)from.first_shift};
}

/*
 * A tile. The phases of a block of pixels are neighbours in the numbering, channels come next and pixels last: the
 * outputs of all column phases, which share memory sectors, are written close together in time, and src is read from
 * cache by all channels and phases.
 */
template <class Index> struct tile {
    phase<Index> row, column;
    Index channel_tile, pixel_tile;
};

template <class Index>
__device__ __forceinline__ tile<Index> find_tile(const parameters &layer, unsigned_index<Index> number)
{
    using Unsigned = unsigned_index<Index>;
    const Unsigned columns = (Unsigned)layer.columns.count, rows = (Unsigned)layer.rows.count;
    const Unsigned channel_tiles = (Unsigned)layer.channel_tiles;
    tile<Index> found;
    found.column = load_phase<Index>(layer.columns.phases[number % columns]);
    number /= columns;
    found.row = load_phase<Index>(layer.rows.phases[number % rows]);
    number /= rows;
    found.channel_tile = (Index)(number % channel_tiles);
    found.pixel_tile = (Index)(number / channel_tiles);
    return found;
}

/* An output of a phase: dst row stride_h * row + residue, and the column alike. */
template <class Index> struct pixel {
    Index image, row, column;
};

/* Moves the excess of value over extent to the next higher digit: value becomes value mod extent. value is below extent
 * plus step, a 32-bit number, so that the division is a 32-bit one. */
template <class Index> __device__ __forceinline__ Index carry(Index *value, Index extent, int step)
{
    if (*value < extent)
        return 0;
    if (extent >= step) {
        *value -= extent;
        return 1;
    }
    const uint32_t quotient = (uint32_t)*value / (uint32_t)extent;
    *value -= (Index)quotient * extent;
    return (Index)quotient;
}

/* The phase's pixel number first + local, with local < step. Pixels count columns first, images last. */
template <class Index>
__device__ __forceinline__ pixel<Index> find_pixel(const tile<Index> &tile, Index first, int local, int step)
{
    using Unsigned = unsigned_index<Index>;
    const Index rows_before = (Index)((Unsigned)first / (Unsigned)tile.column.outputs);
    pixel<Index> found;
    found.column = first - rows_before * tile.column.outputs + local;
    found.image = (Index)((Unsigned)rows_before / (Unsigned)tile.row.outputs);
    found.row = rows_before - found.image * tile.row.outputs;
    found.row += carry(&found.column, tile.column.outputs, step);
    found.image += carry(&found.row, tile.row.outputs, step);
    return found;
}

/* The number of the phase's pixels from number first on; at most 0 where first is past the last. */
template <class Index>
__device__ __forceinline__ Index pixels_from(const parameters &layer, const tile<Index> &tile, Index first)
{
    return (Index)layer.batch * tile.row.outputs * tile.column.outputs - first;
}

/* The place that tap (0, 0) of a pixel reads. Later taps are at lower coordinates by multiples of the shift steps. */
template <class Index> struct source {
    Index row, column;            /* may lie outside src */
    unsigned_index<Index> offset; /* of channel 0, in elements; outside src it means nothing and may have wrapped */
};

/* The elements between two positions of src; wraps rather than overflows. */
template <class Index>
__device__ __forceinline__ unsigned_index<Index> distance(const parameters &layer, Index row, Index column)
{
    using Unsigned = unsigned_index<Index>;
    return (Unsigned)row * (Unsigned)layer.src_strides.h + (Unsigned)column * (Unsigned)layer.src_strides.w;
}

template <class Index>
__device__ __forceinline__ source<Index> find_source(const parameters &layer, const tile<Index> &tile,
                                                     const pixel<Index> &pixel)
{
    source<Index> found;
    found.row = pixel.row + tile.row.first_shift;
    found.column = pixel.column + tile.column.first_shift;
    found.offset = (unsigned_index<Index>)pixel.image * (unsigned_index<Index>)layer.src_strides.n +
                   distance(layer, found.row, found.column);
    return found;
}

/* Says whether src has the tap that lies (row, column) before tap (0, 0). */
template <class Index>
__device__ __forceinline__ bool has_tap(const parameters &layer, const source<Index> &source, Index row, Index column)
{
    using Unsigned = unsigned_index<Index>;
    return (Unsigned)(source.row - row) < (Unsigned)layer.rows.in &&
           (Unsigned)(source.column - column) < (Unsigned)layer.columns.in;
}

/* The offset in dst, or the addend, of channel 0 of a pixel; of one past the phase's last it means nothing and may have
 * wrapped. */
template <class Index>
__device__ __forceinline__ Index target_offset(const parameters &layer, const tconv_strides &strides,
                                               const tile<Index> &tile, const pixel<Index> &pixel)
{
    using Unsigned = unsigned_index<Index>;
    const Unsigned row = (Unsigned)pixel.row * (Unsigned)layer.rows.stride + (Unsigned)tile.row.residue;
    const Unsigned column = (Unsigned)pixel.column * (Unsigned)layer.columns.stride + (Unsigned)tile.column.residue;
    return (Index)((Unsigned)pixel.image * (Unsigned)strides.n + row * (Unsigned)strides.h +
                   column * (Unsigned)strides.w);
}

/* The packed weights of kernel position (row tap, column tap) of a tile, input channel 0, group 0, channel 0. */
template <class Index>
__device__ __forceinline__ Index weight_offset(const parameters &layer, const tile<Index> &tile, Index row_tap,
                                               Index column_tap)
{
    const Index row = tile.row.first_kernel + row_tap * (Index)layer.rows.kernel_step;
    const Index column = tile.column.first_kernel + column_tap * (Index)layer.columns.kernel_step;
    return (row * (Index)layer.kernel_columns + column) * (Index)layer.weight_tap_pitch;
}

} // namespace tconv::general

#endif
