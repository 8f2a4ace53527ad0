/* The roles of the implicit matrix product that fill its buffers: boxes of src and slots of weights by the copy engine, and four
 * warps that split what came in boxes, in place, turn boxes of NCHW's planes into pixels, or, where the copy engine
 * cannot read src, bring it themselves. */
#ifndef TCONV_CUDA_IGEMM_LOAD_CUH
#define TCONV_CUDA_IGEMM_LOAD_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "tile.cuh"

namespace tconv::igemm
{

/* Where a stage's first pixel lies in src. */
struct stage_origin {
    int image, row, column, channel;
    __device__ __forceinline__ stage_origin(const tconv_igemm_parameters &layer, const tile_place &tile,
                                            const tap_walk &tap, int chunk)
        : image(tile.image), row(tile.row + (layer.per_tap ? row_shift(layer, tile, tap) : layer.first_row)),
          column(tile.column + (layer.per_tap ? column_shift(layer, tile, tap) : layer.first_column)),
          channel(tile.group * layer.group_in + chunk * layer.chunk_channels)
    {
    }
};

template <class Mode>
__device__ __forceinline__ void copy_boxes(const tconv_igemm_parameters &layer, const CUtensorMap *map,
                                           const shared_layout &shared)
{
    const uint32_t full = Mode::SPLITS ? shared.box_full : shared.stage_full;
    const uint32_t bytes = layer.patch * layer.row_bytes, box_bytes = bytes / layer.boxes;
    pipeline_state stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int stages = stages_of(layer, tap);
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                const stage_origin origin(layer, tile, tap, chunk);
                mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
                mbarrier_arrive_expect_tx(full + 8 * stage.at, bytes);
#pragma unroll 1
                for (int box = 0; box < layer.boxes; box++)
                    tma_load(shared.stages + stage.at * layer.stage_bytes + box * box_bytes, map, origin.channel,
                             origin.column + box * layer.box_columns, origin.row, origin.image, full + 8 * stage.at);
                stage.next(layer.stages);
                tap.next();
            }
        }
    }
}

/* Of NCHW: runs of whole images' pixels (flat: of the tile's) of each channel of a chunk. */
__device__ __forceinline__ void copy_planes(const tconv_igemm_parameters &layer, const CUtensorMap *map,
                                            const shared_layout &shared)
{
    pipeline_state box = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int pixel = layer.flat ? tile.column : 0;
        int channel = tile.group * layer.group_in;
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++, channel += layer.chunk_channels) {
            const uint32_t full = shared.box_full + 8 * box.at;
            mbarrier_wait(shared.box_empty + 8 * box.at, box.parity);
            mbarrier_arrive_expect_tx(full, layer.plane_box_bytes);
            tma_load(shared.boxes + box.at * layer.plane_box_bytes, map, pixel, channel, tile.image, 0, full);
            box.next(layer.plane_boxes);
        }
    }
}

__device__ __forceinline__ void copy_slots(const tconv_igemm_parameters &layer, const shared_layout &shared)
{
    pipeline_state slot = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const tconv_igemm_phase &row = layer.rows[tile.row_phase], &column = layer.columns[tile.column_phase];
        const int taps = row.taps * column.taps;
        const int taps_before = row.first_tap * layer.column_taps + row.taps * column.first_tap;
        const int64_t first = tile.group * layer.group_slots + (int64_t)taps_before * layer.chunks * layer.block_tiles +
                              (int64_t)(tile.first_block / layer.tile_blocks) * layer.chunks * taps;
        const char *from = static_cast<const char *>(layer.weights) + first * layer.slot_bytes;
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            /* Unrolled, ptxas 13.0 drops the upper half of an address. */
#pragma unroll 1
            for (int left = taps; left > 0; left -= layer.slot_taps) {
                const uint32_t full = shared.slot_full + 8 * slot.at;
                const uint32_t bytes = min(left, layer.slot_taps) * layer.slot_bytes;
                mbarrier_wait(shared.slot_empty + 8 * slot.at, slot.parity);
                mbarrier_arrive_expect_tx(full, bytes);
                bulk_load(shared.slots + slot.at * layer.slot_taps * layer.slot_bytes, from, bytes, full);
                from += bytes;
                slot.next(layer.slots);
            }
        }
    }
}

__device__ __forceinline__ void load_quad(uint32_t address, uint32_t (&words)[4])
{
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

/* Four channels of f32, as loaded, to the stage: rounded or, in strict f32, split into two planes. */
template <class Mode, class Element = typename Mode::Element> struct quad_of {
    static constexpr int CHANNELS = 4;
    static __device__ __forceinline__ void put(const uint32_t (&words)[4], uint32_t to, uint32_t plane)
    {
        uint32_t big[4], small[4];
        round_or_split<Mode::STRICT>(words, big, small);
        store_shared_16(to, big);
        if (Mode::STRICT)
            store_shared_16(to + plane, small);
    }
};

/* Eight channels of 16 bits, a word each. */
struct quad_of_16_bits {
    static constexpr int CHANNELS = 8;
    static __device__ __forceinline__ void put(const uint32_t (&words)[8], uint32_t to, uint32_t)
    {
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            pairs[c] = words[2 * c] | words[2 * c + 1] << 16;
        store_shared_16(to, pairs);
    }
};
template <class Mode> struct quad_of<Mode, __half> : quad_of_16_bits {
};
template <class Mode> struct quad_of<Mode, __nv_bfloat16> : quad_of_16_bits {
};

__device__ __forceinline__ void stage_done(const shared_layout &shared, int stage, int lane)
{
    fence_proxy_async();
    __syncwarp();
    if (arrives_for_warp(lane))
        mbarrier_arrive(shared.stage_full + 8 * stage);
}

/* Splits boxes in place: where a value lies is of no importance, so that borders and swizzle do not matter. */
template <class Mode>
__device__ __forceinline__ void split_boxes(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                            int thread)
{
    constexpr uint32_t AT_ONCE = 2, STEP = LOADERS * WARP * TCONV_IGEMM_QUAD;
    const uint32_t bytes = layer.patch * layer.row_bytes, first = thread * TCONV_IGEMM_QUAD;
    pipeline_state stage = {0, 0};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int stages = layer.chunks * stages_of(layer, tap_walk(layer, tile));
#pragma unroll 1
        for (int i = 0; i < stages; i++) {
            const uint32_t buffer = shared.stages + stage.at * layer.stage_bytes;
            uint32_t at = first;
            mbarrier_wait(shared.box_full + 8 * stage.at, stage.parity);
#pragma unroll 1
            for (; at + (AT_ONCE - 1) * STEP < bytes; at += AT_ONCE * STEP) {
                uint32_t words[AT_ONCE][4];
#pragma unroll
                for (uint32_t k = 0; k < AT_ONCE; k++)
                    load_quad(buffer + at + k * STEP, words[k]);
#pragma unroll
                for (uint32_t k = 0; k < AT_ONCE; k++)
                    quad_of<Mode>::put(words[k], buffer + at + k * STEP, layer.plane_bytes);
            }
#pragma unroll 1
            for (; at < bytes; at += STEP) {
                uint32_t words[4];
                load_quad(buffer + at, words);
                quad_of<Mode>::put(words, buffer + at, layer.plane_bytes);
            }
            stage_done(shared, stage.at, thread % WARP);
            stage.next(layer.stages);
        }
    }
}

/* The bits of an element of src; 0 where there is none. */
__device__ __forceinline__ uint32_t load_element(const float *from, bool exists)
{
    return exists ? __float_as_uint(*from) : 0;
}
template <class Half> __device__ __forceinline__ uint32_t load_element(const Half *from, bool exists)
{
    return exists ? *reinterpret_cast<const uint16_t *>(from) : 0;
}

/* Where a stage's pixels lie from its first one: image, row and column in one word. A box has at most 256 images and rows; a
 * stage of one row may be of several boxes. */
constexpr int ROW_BITS = 8, COLUMN_BITS = 12, ROW_MASK = (1 << ROW_BITS) - 1, COLUMN_MASK = (1 << COLUMN_BITS) - 1;

__device__ __forceinline__ uint32_t find_place(const tconv_igemm_parameters &layer, int pixel)
{
    const int image = pixel / layer.image_pixels, of_image = pixel - image * layer.image_pixels;
    const int row = of_image / layer.pitch, column = of_image - row * layer.pitch;
    return image << (ROW_BITS + COLUMN_BITS) | row << COLUMN_BITS | column;
}

/* Makes a table of it. */
__device__ __forceinline__ void find_places(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                            int thread)
{
    for (int pixel = thread; pixel < min(layer.patch, TCONV_IGEMM_PLACES); pixel += LOADERS * WARP)
        shared.places[pixel] = find_place(layer, pixel);
}

/* The same of any pixel: stages that the copy engine was to fill, but cannot, may have more than the table. */
__device__ __forceinline__ uint32_t place_of(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                             int pixel)
{
    return pixel < TCONV_IGEMM_PLACES ? shared.places[pixel] : find_place(layer, pixel);
}

struct pixel_place {
    int image, row, column;
    __device__ __forceinline__ pixel_place(const stage_origin &origin, uint32_t place)
        : image(origin.image + (int)(place >> (ROW_BITS + COLUMN_BITS))),
          row(origin.row + (int)(place >> COLUMN_BITS & ROW_MASK)), column(origin.column + (int)(place & COLUMN_MASK))
    {
    }
    __device__ __forceinline__ bool exists(const tconv_igemm_parameters &layer) const
    {
        return image < layer.images && (unsigned)row < (unsigned)layer.in_rows &&
               (unsigned)column < (unsigned)layer.in_columns;
    }
};

/* The copy engine's swizzle: bits 4 to 6 of an address are flipped by bits 7 to 9, as far as a pixel has them. */
__device__ __forceinline__ uint32_t swizzle_of(const tconv_igemm_parameters &layer, int pixel)
{
    return (pixel * layer.row_bytes >> 7 & (layer.row_bytes / TCONV_IGEMM_QUAD - 1)) * (uint32_t)TCONV_IGEMM_QUAD;
}

/* All quads of a pixel, `count` at a time: all their loads before the first store. */
template <class Mode, int count>
__device__ __forceinline__ void gather_pixel(const typename Mode::Element *from, int64_t channel_step, int channels,
                                             uint32_t to, uint32_t swizzle, int first_quad, uint32_t plane)
{
    using Quad = quad_of<Mode>;
    uint32_t words[count][Quad::CHANNELS];
    from += first_quad * Quad::CHANNELS * channel_step;
#pragma unroll
    for (int q = 0; q < count; q++)
#pragma unroll
        for (int c = 0; c < Quad::CHANNELS; c++) {
            words[q][c] = load_element(from, (first_quad + q) * Quad::CHANNELS + c < channels);
            from += channel_step;
        }
#pragma unroll
    for (int q = 0; q < count; q++)
        Quad::put(words[q], to + (((first_quad + q) * TCONV_IGEMM_QUAD) ^ swizzle), plane);
}

/* A stage of pixels whose channels lie apart: neighbouring lanes take neighbouring pixels. `first`: of the chunk's channels of
 * the pixel at the origin of src. */
template <class Mode>
__device__ __forceinline__ void gather_pixels(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                              const stage_origin &origin, const typename Mode::Element *src, int left,
                                              uint32_t buffer, int thread)
{
    constexpr int LEAST = TCONV_IGEMM_STEP / TCONV_IGEMM_QUAD;
    constexpr int COUNT = Mode::STRICT ? LEAST : 16 / quad_of<Mode>::CHANNELS;
    const int quads = layer.row_bytes / TCONV_IGEMM_QUAD;
#pragma unroll 1
    for (int pixel = thread; pixel < layer.patch; pixel += LOADERS * WARP) {
        const pixel_place at(origin, place_of(layer, shared, pixel));
        const int channels = at.exists(layer) ? left : 0;
        const typename Mode::Element *from =
            src + at.image * layer.from.n + at.row * layer.from.h + at.column * layer.from.w;
        const uint32_t swizzle = swizzle_of(layer, pixel), to = buffer + pixel * layer.row_bytes;
        int quad = 0;
#pragma unroll 1
        for (; quad + COUNT <= quads; quad += COUNT)
            gather_pixel<Mode, COUNT>(from, layer.from.c, channels, to, swizzle, quad, layer.plane_bytes);
        if (quad < quads)
            gather_pixel<Mode, LEAST>(from, layer.from.c, channels, to, swizzle, quad, layer.plane_bytes);
    }
}

/* The same of channels that are neighbours: neighbouring lanes take neighbouring quads of a pixel. */
template <class Mode>
__device__ __forceinline__ void gather_quads(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                             const stage_origin &origin, const typename Mode::Element *src, int left,
                                             uint32_t buffer, int thread)
{
    using Quad = quad_of<Mode>;
    constexpr int COUNT = Mode::STRICT ? 2 : 16 / Quad::CHANNELS, STEP = LOADERS * WARP;
    const int quads = layer.row_bytes / TCONV_IGEMM_QUAD, quads_log2 = 31 - __clz(quads), all = layer.patch * quads;
#pragma unroll 1
    for (int number = thread; number < all; number += COUNT * STEP) {
        uint32_t words[COUNT][Quad::CHANNELS];
#pragma unroll
        for (int q = 0; q < COUNT; q++) {
            const int pixel = min((number + q * STEP) >> quads_log2, layer.patch - 1);
            const int first = ((number + q * STEP) & (quads - 1)) * Quad::CHANNELS;
            const pixel_place at(origin, place_of(layer, shared, pixel));
            const int channels = at.exists(layer) ? left - first : 0;
            const typename Mode::Element *from =
                src + at.image * layer.from.n + at.row * layer.from.h + at.column * layer.from.w + first;
#pragma unroll
            for (int c = 0; c < Quad::CHANNELS; c++)
                words[q][c] = load_element(from + c, c < channels);
        }
#pragma unroll
        for (int q = 0; q < COUNT; q++) {
            const int pixel = (number + q * STEP) >> quads_log2, quad = (number + q * STEP) & (quads - 1);
            if (pixel < layer.patch)
                Quad::put(words[q],
                          buffer + pixel * layer.row_bytes + ((quad * TCONV_IGEMM_QUAD) ^ swizzle_of(layer, pixel)),
                          layer.plane_bytes);
        }
    }
}

/* Fills stages from src itself. */
template <class Mode>
__device__ __forceinline__ void gather(const tconv_igemm_parameters &layer, const shared_layout &shared, int thread)
{
    pipeline_state stage = {0, 1};
    find_places(layer, shared, thread);
    named_barrier_sync<LOADERS * WARP>(); /* gather_quads reads others' places */
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int stages = stages_of(layer, tap);
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                const stage_origin origin(layer, tile, tap, chunk);
                const uint32_t buffer = shared.stages + stage.at * layer.stage_bytes;
                const int left = layer.group_in - chunk * layer.chunk_channels;
                const auto *src =
                    static_cast<const typename Mode::Element *>(layer.src) + origin.channel * layer.from.c;
                mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
                if (layer.from.c == 1)
                    gather_quads<Mode>(layer, shared, origin, src, left, buffer, thread);
                else
                    gather_pixels<Mode>(layer, shared, origin, src, left, buffer, thread);
                stage_done(shared, stage.at, thread % WARP);
                stage.next(layer.stages);
                tap.next();
            }
        }
    }
}

__device__ __forceinline__ uint32_t load_box_element(uint32_t address, float)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}
template <class Half> __device__ __forceinline__ uint32_t load_box_element(uint32_t address, Half)
{
    uint16_t word;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(word) : "r"(address) : "memory");
    return word;
}

/* A quad of a pixel, from a box of planes of channel_bytes each. */
template <class Mode, int count>
__device__ __forceinline__ void convert_quads(uint32_t from, uint32_t channel_bytes, bool exists, uint32_t to,
                                              uint32_t swizzle, int first_quad, uint32_t plane)
{
    using Quad = quad_of<Mode>;
    uint32_t words[count][Quad::CHANNELS];
#pragma unroll
    for (int q = 0; q < count; q++)
#pragma unroll
        for (int c = 0; c < Quad::CHANNELS; c++)
            words[q][c] =
                exists ? load_box_element(from + (q * Quad::CHANNELS + c) * channel_bytes, typename Mode::Element{})
                       : 0;
#pragma unroll
    for (int q = 0; q < count; q++)
        Quad::put(words[q], to + (((first_quad + q) * TCONV_IGEMM_QUAD) ^ swizzle), plane);
}

/* Fills stages from boxes of planes: each tap's from the same box. A pixel has so many threads, for as large a part of the
 * channels each. */
template <class Mode, int parts>
__device__ __forceinline__ void convert_planes(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                               int thread)
{
    constexpr int COUNT = Mode::STRICT ? 2 : 16 / quad_of<Mode>::CHANNELS;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int quads = layer.row_bytes / TCONV_IGEMM_QUAD;
    const uint32_t channel_bytes = layer.box_columns * element, image_bytes = channel_bytes * layer.chunk_channels;
    constexpr int PIXELS = LOADERS * WARP / parts; /* at a time */
    const int first_pixel = parts == 1 ? thread : thread % PIXELS;
    const int first_quad = parts == 1 ? 0 : thread / PIXELS * (quads / parts);
    pipeline_state stage = {0, 1}, box = {0, 0};
    find_places(layer, shared, thread);
    if (parts > 1)
        named_barrier_sync<LOADERS * WARP>(); /* others' places are read */
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int stages = stages_of(layer, tap), first_column = layer.flat ? tile.column : 0;
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            const uint32_t planes = shared.boxes + box.at * layer.plane_box_bytes;
            mbarrier_wait(shared.box_full + 8 * box.at, box.parity);
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                const stage_origin origin(layer, tile, tap, chunk);
                const uint32_t buffer = shared.stages + stage.at * layer.stage_bytes;
                mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
#pragma unroll 1
                for (int pixel = first_pixel; pixel < layer.patch; pixel += PIXELS) {
                    const pixel_place at(origin, shared.places[pixel]);
                    const bool exists = at.exists(layer);
                    uint32_t from = planes + (at.image - tile.image) * image_bytes +
                                    (at.row * layer.in_columns + at.column - first_column) * element +
                                    first_quad * quad_of<Mode>::CHANNELS * channel_bytes;
                    const uint32_t swizzle = swizzle_of(layer, pixel), to = buffer + pixel * layer.row_bytes;
#pragma unroll 1
                    for (int quad = 0; quad < quads / parts; quad += COUNT) {
                        convert_quads<Mode, COUNT>(from, channel_bytes, exists, to, swizzle, first_quad + quad,
                                                   layer.plane_bytes);
                        from += COUNT * quad_of<Mode>::CHANNELS * channel_bytes;
                    }
                }
                stage_done(shared, stage.at, thread % WARP);
                stage.next(layer.stages);
                tap.next();
            }
            __syncwarp();
            if (arrives_for_warp(thread % WARP))
                mbarrier_arrive(shared.box_empty + 8 * box.at);
            box.next(layer.plane_boxes);
        }
    }
}

} // namespace tconv::igemm

#endif
