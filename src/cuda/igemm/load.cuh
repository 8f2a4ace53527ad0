/* The producers of the implicit GEMM: TMA of src into B stages or raw stages, bulk copies of weights into A stages, and
 * loader warps, which split f32 in place, transpose raw stages, or gather src where TMA cannot read it. */
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

/* The pixel of src that a B stage begins with, and its first channel. */
struct stage_origin {
    int image, row, column, channel;
    __device__ __forceinline__ stage_origin(const parameters &layer, const tile_place &tile, const tap_walk &tap,
                                            int k_block)
        : image(tile.image), row(tile.row + (layer.per_tap ? row_shift(layer, tile, tap) : layer.first_row)),
          column(tile.column + (layer.per_tap ? column_shift(layer, tile, tap) : layer.first_column)),
          channel(tile.group * layer.group_in + k_block * layer.k_block_channels)
    {
    }
};

template <class Mode>
__device__ __forceinline__ void load_b(const parameters &layer, const CUtensorMap *map, const shared_layout &shared)
{
    const uint32_t full = Mode::SPLITS ? shared.raw_full : shared.b_full;
    const uint32_t bytes = layer.stage_pixels * layer.pixel_bytes, box_bytes = bytes / layer.boxes;
    pipeline_state stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int stages = b_stages_of(layer, tap);
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                const stage_origin origin(layer, tile, tap, k_block);
                mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
                mbarrier_arrive_expect_tx(full + 8 * stage.at, bytes);
#pragma unroll 1
                for (int box = 0; box < layer.boxes; box++)
                    tma_load(shared.b + stage.at * layer.b_stage_bytes + box * box_bytes, map, origin.channel,
                             origin.column + box * layer.box_columns, origin.row, origin.image, full + 8 * stage.at);
                stage.next(layer.b_stages);
                tap.next();
            }
        }
    }
}

/* Brings raw stages in NCHW: of each channel of a K-block the pixels of whole images, or flat, of the tile. */
__device__ __forceinline__ void load_raw(const parameters &layer, const CUtensorMap *map, const shared_layout &shared)
{
    pipeline_state raw = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int pixel = layer.flat ? tile.column : 0;
        int channel = tile.group * layer.group_in;
#pragma unroll 1
        for (int k_block = 0; k_block < layer.k_blocks; k_block++, channel += layer.k_block_channels) {
            const uint32_t full = shared.raw_full + 8 * raw.at;
            mbarrier_wait(shared.raw_empty + 8 * raw.at, raw.parity);
            mbarrier_arrive_expect_tx(full, layer.raw_stage_bytes);
            tma_load(shared.raw + raw.at * layer.raw_stage_bytes, map, pixel, channel, tile.image, 0, full);
            raw.next(layer.raw_stages);
        }
    }
}

__device__ __forceinline__ void load_a(const parameters &layer, const shared_layout &shared)
{
    pipeline_state stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const axis_phase &row = layer.rows[tile.row_phase], &column = layer.columns[tile.column_phase];
        const int taps = row.taps * column.taps;
        const int taps_before = row.first_tap * layer.column_taps + row.taps * column.first_tap;
        const int64_t first = tile.group * layer.group_a_tiles +
                              (int64_t)taps_before * layer.k_blocks * layer.tiles_along_m +
                              (int64_t)(tile.first_m_tile / layer.m_tiles) * layer.k_blocks * taps;
        const char *from = static_cast<const char *>(layer.weights) + first * layer.a_tile_bytes;
#pragma unroll 1
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
            /* Unrolled, ptxas 13.0 drops the upper half of an address. */
#pragma unroll 1
            for (int left = taps; left > 0; left -= layer.a_stage_taps) {
                const uint32_t full = shared.a_full + 8 * stage.at;
                const uint32_t bytes = min(left, layer.a_stage_taps) * layer.a_tile_bytes;
                mbarrier_wait(shared.a_empty + 8 * stage.at, stage.parity);
                mbarrier_arrive_expect_tx(full, bytes);
                bulk_load(shared.a + stage.at * layer.a_stage_taps * layer.a_tile_bytes, from, bytes, full);
                from += bytes;
                stage.next(layer.a_stages);
            }
        }
    }
}

__device__ __forceinline__ void load_shared_16(uint32_t address, uint32_t (&words)[4])
{
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

/* Writes four channels of f32 to a B stage: rounded or, in strict f32, split into two planes. */
template <class Mode, class Element = typename Mode::Element> struct vector_of {
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

/* Writes eight channels of 16 bits, given in a word each. */
struct vector_of_16_bits {
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
template <class Mode> struct vector_of<Mode, __half> : vector_of_16_bits {
};
template <class Mode> struct vector_of<Mode, __nv_bfloat16> : vector_of_16_bits {
};

__device__ __forceinline__ void signal_b_full(const shared_layout &shared, int stage, int lane)
{
    fence_proxy_async();
    __syncwarp();
    if (arrives_for_warp(lane))
        mbarrier_arrive(shared.b_full + 8 * stage);
}

/* Splits B stages in place: where a value lies is of no importance, so that halos and swizzle do not matter. */
template <class Mode>
__device__ __forceinline__ void split_b(const parameters &layer, const shared_layout &shared, int thread)
{
    constexpr uint32_t AT_ONCE = 2, STEP = LOADER_WARPS * WARP * CORE_ROW_BYTES;
    const uint32_t bytes = layer.stage_pixels * layer.pixel_bytes, first = thread * CORE_ROW_BYTES;
    pipeline_state stage = {0, 0};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int stages = layer.k_blocks * b_stages_of(layer, tap_walk(layer, tile));
#pragma unroll 1
        for (int i = 0; i < stages; i++) {
            const uint32_t buffer = shared.b + stage.at * layer.b_stage_bytes;
            uint32_t at = first;
            mbarrier_wait(shared.raw_full + 8 * stage.at, stage.parity);
#pragma unroll 1
            for (; at + (AT_ONCE - 1) * STEP < bytes; at += AT_ONCE * STEP) {
                uint32_t words[AT_ONCE][4];
#pragma unroll
                for (uint32_t k = 0; k < AT_ONCE; k++)
                    load_shared_16(buffer + at + k * STEP, words[k]);
#pragma unroll
                for (uint32_t k = 0; k < AT_ONCE; k++)
                    vector_of<Mode>::put(words[k], buffer + at + k * STEP, layer.plane_bytes);
            }
#pragma unroll 1
            for (; at < bytes; at += STEP) {
                uint32_t words[4];
                load_shared_16(buffer + at, words);
                vector_of<Mode>::put(words, buffer + at, layer.plane_bytes);
            }
            signal_b_full(shared, stage.at, thread % WARP);
            stage.next(layer.b_stages);
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
    __device__ __forceinline__ pixel_coordinates(const stage_origin &origin, uint32_t place)
        : image(origin.image + (int)(place >> (ROW_BITS + COLUMN_BITS))),
          row(origin.row + (int)(place >> COLUMN_BITS & ROW_MASK)), column(origin.column + (int)(place & COLUMN_MASK))
    {
    }
    __device__ __forceinline__ bool exists(const parameters &layer) const
    {
        return image < layer.images && (unsigned)row < (unsigned)layer.in_rows &&
               (unsigned)column < (unsigned)layer.in_columns;
    }
};

/* The swizzle of TMA and wgmma flips bits 4 to 6 of an address by bits 7 to 9, as far as a pixel has them. */
__device__ __forceinline__ uint32_t swizzle_of(const parameters &layer, int pixel)
{
    return (pixel * layer.pixel_bytes >> 7 & (layer.pixel_bytes / CORE_ROW_BYTES - 1)) * (uint32_t)CORE_ROW_BYTES;
}

/* Gathers `count` vectors of a pixel: all their loads come before the first store. */
template <class Mode, int count>
__device__ __forceinline__ void gather_pixel(const typename Mode::Element *from, int64_t channel_step, int channels,
                                             uint32_t to, uint32_t swizzle, int first_vector, uint32_t plane)
{
    using Vector = vector_of<Mode>;
    uint32_t words[count][Vector::CHANNELS];
    from += first_vector * Vector::CHANNELS * channel_step;
#pragma unroll
    for (int q = 0; q < count; q++)
#pragma unroll
        for (int c = 0; c < Vector::CHANNELS; c++) {
            words[q][c] = load_element(from, (first_vector + q) * Vector::CHANNELS + c < channels);
            from += channel_step;
        }
#pragma unroll
    for (int q = 0; q < count; q++)
        Vector::put(words[q], to + (((first_vector + q) * CORE_ROW_BYTES) ^ swizzle), plane);
}

/* Gathers a B stage of pixels whose channels lie apart: neighbouring lanes take neighbouring pixels. `src` is at the
 * K-block's first channel of the first pixel, `left` the channels from there on. */
template <class Mode>
__device__ __forceinline__ void gather_pixels(const parameters &layer, const shared_layout &shared,
                                              const stage_origin &origin, const typename Mode::Element *src, int left,
                                              uint32_t buffer, int thread)
{
    constexpr int LEAST = MMA_K_BYTES / CORE_ROW_BYTES;
    constexpr int COUNT = Mode::STRICT ? LEAST : 16 / vector_of<Mode>::CHANNELS;
    const int vectors = layer.pixel_bytes / CORE_ROW_BYTES;
#pragma unroll 1
    for (int pixel = thread; pixel < layer.stage_pixels; pixel += LOADER_WARPS * WARP) {
        const pixel_coordinates at(origin, coordinates_of(layer, shared, pixel));
        const int channels = at.exists(layer) ? left : 0;
        const typename Mode::Element *from =
            src + at.image * layer.from.n + at.row * layer.from.h + at.column * layer.from.w;
        const uint32_t swizzle = swizzle_of(layer, pixel), to = buffer + pixel * layer.pixel_bytes;
        int vector = 0;
#pragma unroll 1
        for (; vector + COUNT <= vectors; vector += COUNT)
            gather_pixel<Mode, COUNT>(from, layer.from.c, channels, to, swizzle, vector, layer.plane_bytes);
        if (vector < vectors)
            gather_pixel<Mode, LEAST>(from, layer.from.c, channels, to, swizzle, vector, layer.plane_bytes);
    }
}

/* Gathers a B stage of pixels whose channels are neighbours: neighbouring lanes take neighbouring vectors of a
 * pixel. */
template <class Mode>
__device__ __forceinline__ void gather_vectors(const parameters &layer, const shared_layout &shared,
                                               const stage_origin &origin, const typename Mode::Element *src, int left,
                                               uint32_t buffer, int thread)
{
    using Vector = vector_of<Mode>;
    constexpr int COUNT = Mode::STRICT ? 2 : 16 / Vector::CHANNELS, STEP = LOADER_WARPS * WARP;
    const int vectors = layer.pixel_bytes / CORE_ROW_BYTES, vectors_log2 = 31 - __clz(vectors),
              all = layer.stage_pixels * vectors;
#pragma unroll 1
    for (int number = thread; number < all; number += COUNT * STEP) {
        uint32_t words[COUNT][Vector::CHANNELS];
#pragma unroll
        for (int q = 0; q < COUNT; q++) {
            const int pixel = min((number + q * STEP) >> vectors_log2, layer.stage_pixels - 1);
            const int first = ((number + q * STEP) & (vectors - 1)) * Vector::CHANNELS;
            const pixel_coordinates at(origin, coordinates_of(layer, shared, pixel));
            const int channels = at.exists(layer) ? left - first : 0;
            const typename Mode::Element *from =
                src + at.image * layer.from.n + at.row * layer.from.h + at.column * layer.from.w + first;
#pragma unroll
            for (int c = 0; c < Vector::CHANNELS; c++)
                words[q][c] = load_element(from + c, c < channels);
        }
#pragma unroll
        for (int q = 0; q < COUNT; q++) {
            const int pixel = (number + q * STEP) >> vectors_log2, vector = (number + q * STEP) & (vectors - 1);
            if (pixel < layer.stage_pixels)
                Vector::put(words[q],
                            buffer + pixel * layer.pixel_bytes + ((vector * CORE_ROW_BYTES) ^ swizzle_of(layer, pixel)),
                            layer.plane_bytes);
        }
    }
}

/* Fills B stages from src itself. */
template <class Mode>
__device__ __forceinline__ void gather(const parameters &layer, const shared_layout &shared, int thread)
{
    pipeline_state stage = {0, 1};
    fill_coordinates(layer, shared, thread);
    named_barrier_sync<LOADER_WARPS * WARP>(); /* gather_vectors reads others' coordinates */
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int stages = b_stages_of(layer, tap);
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                const stage_origin origin(layer, tile, tap, k_block);
                const uint32_t buffer = shared.b + stage.at * layer.b_stage_bytes;
                const int left = layer.group_in - k_block * layer.k_block_channels;
                const auto *src =
                    static_cast<const typename Mode::Element *>(layer.src) + origin.channel * layer.from.c;
                mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
                if (layer.from.c == 1)
                    gather_vectors<Mode>(layer, shared, origin, src, left, buffer, thread);
                else
                    gather_pixels<Mode>(layer, shared, origin, src, left, buffer, thread);
                signal_b_full(shared, stage.at, thread % WARP);
                stage.next(layer.b_stages);
                tap.next();
            }
        }
    }
}

__device__ __forceinline__ uint32_t load_raw_element(uint32_t address, float)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}
template <class Half> __device__ __forceinline__ uint32_t load_raw_element(uint32_t address, Half)
{
    uint16_t word;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(word) : "r"(address) : "memory");
    return word;
}

/* Writes `count` vectors of a pixel, from a raw stage whose channels are channel_bytes apart. */
template <class Mode, int count>
__device__ __forceinline__ void transpose_vectors(uint32_t from, uint32_t channel_bytes, bool exists, uint32_t to,
                                                  uint32_t swizzle, int first_vector, uint32_t plane)
{
    using Vector = vector_of<Mode>;
    uint32_t words[count][Vector::CHANNELS];
#pragma unroll
    for (int q = 0; q < count; q++)
#pragma unroll
        for (int c = 0; c < Vector::CHANNELS; c++)
            words[q][c] =
                exists ? load_raw_element(from + (q * Vector::CHANNELS + c) * channel_bytes, typename Mode::Element{})
                       : 0;
#pragma unroll
    for (int q = 0; q < count; q++)
        Vector::put(words[q], to + (((first_vector + q) * CORE_ROW_BYTES) ^ swizzle), plane);
}

/* Fills B stages from raw stages: those of all taps of a K-block from the same one. A pixel has `parts` threads, each
 * for as large a part of the channels. */
template <class Mode, int parts>
__device__ __forceinline__ void transpose_raw(const parameters &layer, const shared_layout &shared, int thread)
{
    constexpr int COUNT = Mode::STRICT ? 2 : 16 / vector_of<Mode>::CHANNELS;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int vectors = layer.pixel_bytes / CORE_ROW_BYTES;
    const uint32_t channel_bytes = layer.box_columns * element, image_bytes = channel_bytes * layer.k_block_channels;
    constexpr int PIXELS = LOADER_WARPS * WARP / parts; /* pixels at a time */
    const int first_pixel = parts == 1 ? thread : thread % PIXELS;
    const int first_vector = parts == 1 ? 0 : thread / PIXELS * (vectors / parts);
    pipeline_state stage = {0, 1}, raw = {0, 0};
    fill_coordinates(layer, shared, thread);
    if (parts > 1)
        named_barrier_sync<LOADER_WARPS * WARP>(); /* threads read others' coordinates */
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int stages = b_stages_of(layer, tap), first_column = layer.flat ? tile.column : 0;
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
            const uint32_t planes = shared.raw + raw.at * layer.raw_stage_bytes;
            mbarrier_wait(shared.raw_full + 8 * raw.at, raw.parity);
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                const stage_origin origin(layer, tile, tap, k_block);
                const uint32_t buffer = shared.b + stage.at * layer.b_stage_bytes;
                mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
#pragma unroll 1
                for (int pixel = first_pixel; pixel < layer.stage_pixels; pixel += PIXELS) {
                    const pixel_coordinates at(origin, shared.coordinates[pixel]);
                    const bool exists = at.exists(layer);
                    uint32_t from = planes + (at.image - tile.image) * image_bytes +
                                    (at.row * layer.in_columns + at.column - first_column) * element +
                                    first_vector * vector_of<Mode>::CHANNELS * channel_bytes;
                    const uint32_t swizzle = swizzle_of(layer, pixel), to = buffer + pixel * layer.pixel_bytes;
#pragma unroll 1
                    for (int vector = 0; vector < vectors / parts; vector += COUNT) {
                        transpose_vectors<Mode, COUNT>(from, channel_bytes, exists, to, swizzle, first_vector + vector,
                                                       layer.plane_bytes);
                        from += COUNT * vector_of<Mode>::CHANNELS * channel_bytes;
                    }
                }
                signal_b_full(shared, stage.at, thread % WARP);
                stage.next(layer.b_stages);
                tap.next();
            }
            __syncwarp();
            if (arrives_for_warp(thread % WARP))
                mbarrier_arrive(shared.raw_empty + 8 * raw.at);
            raw.next(layer.raw_stages);
        }
    }
}

} // namespace tconv::igemm

#endif
