/* The producers of the implicit GEMM: TMA of src into B stages or raw stages, bulk copies of weights into A stages, and
 * loader warps, which split f32 in place or transpose raw stages (gather.cuh: or gather src). */
#ifndef TCONV_CUDA_IGEMM_LOAD_CUH
#define TCONV_CUDA_IGEMM_LOAD_CUH

#include "../gemm/core_rows.cuh"
#include "../gemm/pipeline.cuh"
#include "../numeric/forgotten.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/tma_im2col.cuh"
#include "tile.cuh"

#include <type_traits>

namespace tconv::igemm
{

/* The pixel of src that a B stage begins with, and its first channel; im2col: the pixel that its tap takes for the first
 * position of all. It is found for the first K-block and tap of a phase, and moved on from there: what one thread does for
 * each stage is as long as the products of a small tile. */
struct stage_origin {
    int volume, image, row, column, channel; /* a channel of several planes is one of its plane */
    int of_group;                            /* channels of the group from there on */
    int position;                            /* im2col: the tile's first */
    __device__ __forceinline__ stage_origin(const parameters &layer, const tile_place &tile, const tap_walk &first)
        : volume(tile.volume), image(layer.image_rows > 0 ? layer.rows[tile.row_phase].src_image : tile.image),
          row(tile.image * layer.image_rows +
              (tile.row + (layer.per_tap ? row_shift(layer, tile, first) : layer.first_row)) * layer.src_row_stride +
              layer.rows[tile.row_phase].src_residue + layer.columns[tile.column_phase].src_row),
          column(((layer.im2col ? 0 : tile.column) +
                  (layer.per_tap ? column_shift(layer, tile, first) : layer.first_column)) *
                     layer.src_column_stride +
                 layer.columns[tile.column_phase].src_residue),
          of_group(layer.group_in), position(tile.column)
    {
        const quotient plane = divide(tile.src_group * layer.group_in, layer.by_plane_channels);
        channel = plane.rest;
        image = image * layer.image_planes + layer.first_plane + plane.whole * layer.plane_step;
    }
    __device__ __forceinline__ void next_k_block(const parameters &layer)
    {
        of_group -= layer.k_block_channels;
        channel += layer.k_block_channels;
        if (channel >= layer.by_plane_channels.divisor) {
            channel = 0;
            image += layer.plane_step;
        }
    }
    __device__ __forceinline__ void skip_k_blocks(const parameters &layer, int count)
    {
        const quotient plane = divide(channel + count * layer.k_block_channels, layer.by_plane_channels);
        of_group -= count * layer.k_block_channels;
        channel = plane.rest;
        image += plane.whole * layer.plane_step;
    }
    /* Channels that there are from there on. */
    __device__ __forceinline__ int left(const parameters &layer) const
    {
        return min(of_group, layer.held_channels - channel);
    }
};

/* Where a flat position is. */
struct position_place {
    int image, row, column;
    __device__ __forceinline__ position_place(const parameters &layer, int position)
    {
        const quotient in_rows = divide(position, layer.by_columns), in_images = divide(in_rows.whole, layer.by_rows);
        image = in_images.whole;
        row = in_images.rest * layer.src_row_stride;
        column = in_rows.rest * layer.src_column_stride;
    }
};

/* The box of an im2col stage. */
__device__ __forceinline__ im2col_origin im2col_origin_of(const parameters &layer, const stage_origin &origin)
{
    const position_place place(layer, origin.position);
    return {place.column + layer.first_column, place.row + layer.first_row, place.image,
            (uint16_t)(origin.column - layer.first_column), (uint16_t)(origin.row - layer.first_row)};
}

/* Calls fill(stage, origin) for each B stage when it is empty. */
template <class Mode, class Fill>
__device__ __forceinline__ void fill_b_stages(const parameters &layer, const shared_layout &shared, Fill fill)
{
    stage_walk stage(shared.b, 1);
    const int row_step = layer.row_step * layer.src_row_stride;
    const int column_step = layer.column_step * layer.src_column_stride;
    const k_share<Mode> share(layer);
    for (int number = first_tile<Mode>(layer); number < layer.tiles; number += tile_step<Mode>(layer)) {
        tile_place tile = find_tile(layer, number);
        share.skip_phases(layer, tile);
#pragma unroll 1
        for (int phase = share.first_phase(); phase < share.end_phase(); phase++, tile.next_phase(layer)) {
            tap_walk tap(layer, tile);
            const int stages = b_stages_of(layer, tap), end = share.end_k_block(phase);
            stage_origin origin(layer, tile, tap);
            const int first_row = origin.row, first_column = origin.column;
            if (Mode::CLUSTERED)
                origin.skip_k_blocks(layer, share.first_k_block(phase));
#pragma unroll 1
            for (int k_block = share.first_k_block(phase); k_block < end; k_block++) {
#pragma unroll 1
                for (int i = 0; i < stages; i++) {
                    stage.wait_empty();
                    fill(stage, origin);
                    stage.next();
                    tap.next();
                    if (stages > 1) {
                        origin.row = first_row - tap.row * row_step;
                        origin.column = first_column - tap.column * column_step;
                    }
                }
                origin.next_k_block(layer);
            }
        }
    }
}

template <class Mode>
__device__ __forceinline__ void load_b(const parameters &layer, const CUtensorMap *map, const shared_layout &shared)
{
    const int box_step = layer.box_columns * layer.src_column_stride;
    const uint32_t bytes = layer.stage_pixels * layer.pixel_bytes, box_bytes = layer.box_columns * layer.pixel_bytes;
    const uint32_t barriers = Mode::SPLITS ? shared.raw.barriers : shared.b.barriers;
    fill_b_stages<Mode>(layer, shared, [&](const stage_walk &stage, const stage_origin &origin) {
        const uint32_t full = barriers + 8 * stage.state.at;
        mbarrier_arrive_expect_tx(full, bytes);
        if (layer.im2col) {
            tma_load_im2col(stage.buffer(), map, origin.channel, im2col_origin_of(layer, origin), full);
            return;
        }
#pragma unroll 1
        for (int box = 0; box < layer.boxes; box++) {
            const uint32_t to = stage.buffer() + box * box_bytes;
            const int column = origin.column + box * box_step;
            if (layer.volumes > 1)
                tma_load(to, map, origin.channel, column, origin.row, origin.image, origin.volume, full);
            else
                tma_load(to, map, origin.channel, column, origin.row, origin.image, full);
        }
    });
}

/* Brings raw stages in NCHW: of each channel of a K-block the pixels of whole images, or flat, of the tile. */
__device__ __forceinline__ void load_raw(const parameters &layer, const CUtensorMap *map, const shared_layout &shared)
{
    load_k_blocks(layer, shared.raw, shared.raw.barriers, layer.raw_stage_bytes,
                  [&](const tile_place &tile, int channel, uint32_t to, uint32_t full) {
                      tma_load(to, map, layer.flat ? tile.column : 0, channel, tile.image, 0, full);
                  });
}

template <class Mode> __device__ __forceinline__ void load_a(const parameters &layer, const shared_layout &shared)
{
    stage_walk stage(shared.a, 1);
    const k_share<Mode> share(layer);
    for (int number = first_tile<Mode>(layer); number < layer.tiles; number += tile_step<Mode>(layer)) {
        tile_place tile = find_tile(layer, number);
        share.skip_phases(layer, tile);
#pragma unroll 1
        for (int phase = share.first_phase(); phase < share.end_phase(); phase++, tile.next_phase(layer)) {
            const axis_phase &row = layer.rows[tile.row_phase], &column = layer.columns[tile.column_phase];
            const int taps = row.taps * column.taps;
            const int taps_before = row.first_tap * layer.column_taps + row.taps * column.first_tap;
            const int64_t first = tile.src_group * layer.group_a_tiles +
                                  (int64_t)taps_before * layer.k_blocks * layer.tiles_along_m +
                                  (int64_t)(tile.first_m_tile / layer.m_tiles) * layer.k_blocks * taps;
            const char *from = static_cast<const char *>(layer.weights) +
                               (first + share.first_k_block(phase) * taps) * layer.a_tile_bytes;
#pragma unroll 1
            for (int left_k_blocks = share.count(phase); left_k_blocks > 0; left_k_blocks--) {
                /* Unrolled, ptxas 13.0 drops the upper half of an address. */
#pragma unroll 1
                for (int left = taps; left > 0; left -= layer.a_stage_taps) {
                    const uint32_t bytes = min(left, layer.a_stage_taps) * layer.a_tile_bytes;
                    stage.expect(bytes);
                    bulk_load(stage.buffer(), from, bytes, stage.full());
                    from += bytes;
                    stage.next();
                }
            }
        }
    }
}

/* Brings A tiles from the weights as they lie. */
template <class Mode>
__device__ __forceinline__ void load_a_boxes(const parameters &layer, const CUtensorMap *map,
                                             const shared_layout &shared)
{
    stage_walk stage(shared.a, 1);
    const int row_step = layer.kernel_row_step * layer.kernel_columns;
    const k_share<Mode> share(layer);
    for (int number = first_tile<Mode>(layer); number < layer.tiles; number += tile_step<Mode>(layer)) {
        tile_place tile = find_tile(layer, number);
        share.skip_phases(layer, tile);
#pragma unroll 1
        for (int phase = share.first_phase(); phase < share.end_phase(); phase++, tile.next_phase(layer)) {
            const axis_phase &row = layer.rows[tile.row_phase], &column = layer.columns[tile.column_phase];
            const int first = row.first_kernel * layer.kernel_columns + column.first_kernel;
            quotient at = {tile.src_group, 0}; /* the plane, or the channel group, and its channel */
            if (layer.by_planes)
                at = divide(tile.src_group * layer.group_in, layer.by_plane_channels);
            if (Mode::CLUSTERED) {
                const quotient skipped =
                    divide(at.rest + share.first_k_block(phase) * layer.k_block_channels, layer.by_plane_channels);
                at.whole += skipped.whole;
                at.rest = skipped.rest;
            }
            tap_walk tap(layer, tile);
#pragma unroll 1
            for (int left_k_blocks = share.count(phase); left_k_blocks > 0; left_k_blocks--) {
#pragma unroll 1
                for (int left = tap.count(); left > 0; left -= layer.a_stage_taps) {
                    const int taps = min(left, layer.a_stage_taps);
                    stage.expect(taps * layer.a_tile_bytes);
#pragma unroll 1
                    for (int i = 0; i < taps; i++) {
                        const int element = first + tap.row * row_step + tap.column * layer.kernel_column_step;
                        tma_load(stage.buffer() + i * layer.a_tile_bytes, map, at.rest, element,
                                 tile.first_m_tile * MMA_M, at.whole, stage.full());
                        tap.next();
                    }
                    stage.next();
                }
                at.rest += layer.k_block_channels;
                if (at.rest >= layer.by_plane_channels.divisor) {
                    at.rest = 0;
                    at.whole++;
                }
            }
        }
    }
}

/* Splits B stages in place: where a value lies is of no importance, so that halos and swizzle do not matter. */
template <class Mode>
__device__ __forceinline__ void split_b(const parameters &layer, const shared_layout &shared, int thread)
{
    constexpr uint32_t AT_ONCE = 2, STEP = LOADER_WARPS * WARP * CORE_ROW_BYTES;
    const uint32_t bytes = layer.stage_pixels * layer.pixel_bytes, first = thread * CORE_ROW_BYTES;
    const auto split = [&](uint32_t at, auto count) {
        core_row_words words[count.value];
#pragma unroll
        for (uint32_t k = 0; k < count.value; k++)
            words[k] = load_shared<core_row_words>(at + k * STEP);
#pragma unroll
        for (uint32_t k = 0; k < count.value; k++)
            core_rows<Mode>::store_pixel(words[k].at, at + k * STEP, layer.plane_bytes);
    };
    stage_walk stage(shared.b, 0);
    const k_share<Mode> share(layer);
    for (int number = first_tile<Mode>(layer); number < layer.tiles; number += tile_step<Mode>(layer)) {
        tile_place tile = find_tile(layer, number);
        int stages = 0;
        share.skip_phases(layer, tile);
#pragma unroll 1
        for (int phase = share.first_phase(); phase < share.end_phase(); phase++, tile.next_phase(layer))
            stages += share.count(phase) * b_stages_of(layer, tap_walk(layer, tile));
#pragma unroll 1
        for (int i = 0; i < stages; i++) {
            uint32_t at = first;
            mbarrier_wait(shared.raw.barriers + 8 * stage.state.at, stage.state.parity);
#pragma unroll 1
            for (; at + (AT_ONCE - 1) * STEP < bytes; at += AT_ONCE * STEP)
                split(stage.buffer() + at, std::integral_constant<uint32_t, AT_ONCE>());
#pragma unroll 1
            for (; at < bytes; at += STEP)
                split(stage.buffer() + at, std::integral_constant<uint32_t, 1>());
            stage.signal_written(thread % WARP);
            stage.next();
        }
    }
}

/* The coordinates of a B stage's pixel relative to its first one: image, row and column in one word. A TMA box has at
 * most 256 images and rows; a stage of one row may be of several boxes. */
constexpr int ROW_BITS = 8;
constexpr int COLUMN_BITS = 12;
constexpr int ROW_MASK = (1 << ROW_BITS) - 1;
constexpr int COLUMN_MASK = (1 << COLUMN_BITS) - 1;

__device__ __forceinline__ uint32_t pack_coordinates(const parameters &layer, int pixel)
{
    const int image = pixel / layer.image_pixels, of_image = pixel - image * layer.image_pixels;
    const int row = of_image / layer.pitch, column = of_image - row * layer.pitch;
    return image << (ROW_BITS + COLUMN_BITS) | row << COLUMN_BITS | column;
}

/* Makes a table of the coordinates. */
__device__ __forceinline__ void fill_coordinates(const parameters &layer, const shared_layout &shared, int thread)
{
    for (int pixel = thread; pixel < min(layer.stage_pixels, MAX_COORDINATES); pixel += LOADER_WARPS * WARP)
        shared.coordinates[pixel] = pack_coordinates(layer, pixel);
}

/* The coordinates of any pixel: a stage that TMA was to fill, but cannot, may have more pixels than the table. */
__device__ __forceinline__ uint32_t coordinates_of(const parameters &layer, const shared_layout &shared, int pixel)
{
    return pixel < MAX_COORDINATES ? shared.coordinates[pixel] : pack_coordinates(layer, pixel);
}

struct pixel_coordinates {
    int image, row, column;
    __device__ __forceinline__ pixel_coordinates(const stage_origin &origin, const position_place &place)
        : image(place.image), row(origin.row + place.row), column(origin.column + place.column)
    {
    }
    __device__ __forceinline__ pixel_coordinates(const parameters &layer, const stage_origin &origin, uint32_t place)
        : image(origin.image + (int)(place >> (ROW_BITS + COLUMN_BITS)) * layer.image_planes),
          row(origin.row + (int)(place >> COLUMN_BITS & ROW_MASK) * layer.src_row_stride),
          column(origin.column + (int)(place & COLUMN_MASK) * layer.src_column_stride)
    {
    }
    __device__ __forceinline__ bool exists(const parameters &layer) const
    {
        return (unsigned)image < (unsigned)layer.src_images && (unsigned)row < (unsigned)layer.in_rows &&
               (unsigned)column < (unsigned)layer.in_columns;
    }
};

/* The coordinates of a pixel of any stage. */
__device__ __forceinline__ pixel_coordinates find_pixel(const parameters &layer, const shared_layout &shared,
                                                        const stage_origin &origin, int pixel)
{
    if (layer.im2col)
        return pixel_coordinates(origin, position_place(layer, origin.position + pixel));
    return pixel_coordinates(layer, origin, coordinates_of(layer, shared, pixel));
}

/* The swizzle of TMA and wgmma flips bits 4 to 6 of an address by bits 7 to 9, as far as a pixel has them. */
__device__ __forceinline__ uint32_t swizzle_of(const parameters &layer, int pixel)
{
    return (pixel * layer.pixel_bytes >> 7 & (layer.pixel_bytes / CORE_ROW_BYTES - 1)) * (uint32_t)CORE_ROW_BYTES;
}

/* Writes `count` vectors of a pixel, of the channels that load() brings one by one: all loads come before the first
 * store. */
template <class Mode, int count, class Load>
__device__ __forceinline__ void write_vectors(uint32_t to, uint32_t swizzle, int first_vector, uint32_t plane,
                                              Load load)
{
    uint32_t words[count][core_rows<Mode>::CHANNELS];
#pragma unroll
    for (int q = 0; q < count; q++)
#pragma unroll
        for (int c = 0; c < core_rows<Mode>::CHANNELS; c++)
            words[q][c] = load(q * core_rows<Mode>::CHANNELS + c);
#pragma unroll
    for (int q = 0; q < count; q++)
        core_rows<Mode>::store_pixel(words[q], to + (((first_vector + q) * CORE_ROW_BYTES) ^ swizzle), plane);
}

/* The vectors that a thread writes at once. */
template <class Mode> constexpr int VECTORS_AT_ONCE = Mode::STRICT ? 2 : 16 / core_rows<Mode>::CHANNELS;

/* Fills B stages from raw stages: those of all taps of a K-block from the same one. A pixel has `parts` threads, each
 * for as large a part of the channels. */
template <class Mode, int parts>
__device__ __forceinline__ void transpose_raw(const parameters &layer, const shared_layout &shared, int thread)
{
    using Bits = std::conditional_t<sizeof(typename Mode::Element) == 4, uint32_t, uint16_t>;
    constexpr int COUNT = VECTORS_AT_ONCE<Mode>, CHANNELS = core_rows<Mode>::CHANNELS;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    constexpr int PIXELS = LOADER_WARPS * WARP / parts; /* pixels at a time */
    const int vectors = layer.pixel_bytes / CORE_ROW_BYTES;
    const uint32_t channel_bytes = layer.box_columns * element, image_bytes = channel_bytes * layer.k_block_channels;
    const int first_pixel = parts == 1 ? thread : thread % PIXELS;
    const int first_vector = parts == 1 ? 0 : thread / PIXELS * (vectors / parts);
    stage_walk stage(shared.b, 1), raw(shared.raw, 0);
    fill_coordinates(layer, shared, thread);
    if (parts > 1)
        named_barrier_sync<LOADER_WARPS * WARP>(); /* threads read others' coordinates */
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int stages = b_stages_of(layer, tap), first_column = layer.flat ? tile.column : 0;
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
            const uint32_t planes = raw.buffer();
            raw.wait_full();
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                const stage_origin origin(layer, tile, tap);
                const uint32_t buffer = stage.buffer();
                stage.wait_empty();
#pragma unroll 1
                for (int pixel = first_pixel; pixel < layer.stage_pixels; pixel += PIXELS) {
                    const pixel_coordinates at(layer, origin, shared.coordinates[pixel]);
                    const bool exists = at.exists(layer);
                    uint32_t from = planes + (at.image - tile.image) * image_bytes +
                                    (at.row * layer.in_columns + at.column - first_column) * element +
                                    first_vector * CHANNELS * channel_bytes;
                    const uint32_t swizzle = swizzle_of(layer, pixel), to = buffer + pixel * layer.pixel_bytes;
#pragma unroll 1
                    for (int vector = 0; vector < vectors / parts; vector += COUNT) {
                        write_vectors<Mode, COUNT>(to, swizzle, first_vector + vector, layer.plane_bytes,
                                                   [&](int c) -> uint32_t {
                                                       return exists ? load_shared<Bits>(from + c * channel_bytes) : 0;
                                                   });
                        from += COUNT * CHANNELS * channel_bytes;
                    }
                }
                stage.signal_written(thread % WARP);
                stage.next();
                tap.next();
            }
            __syncwarp();
            signal_for_warp(raw.empty(), thread % WARP);
            raw.next();
        }
    }
}

} // namespace tconv::igemm

#endif
