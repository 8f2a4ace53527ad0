/* The roles of the wgmma kernel that fill its buffers: boxes of src and slots of weights by the copy engine, and stages, which
 * four warps convert from boxes or, where the copy engine cannot read src, from src itself. */
#ifndef TCONV_CUDA_WGMMA_LOAD_CUH
#define TCONV_CUDA_WGMMA_LOAD_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/divisor.h"
#include "../numeric/tf32.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

__device__ __forceinline__ void copy_boxes(const tconv_wgmma_parameters &layer, const CUtensorMap *map,
                                           const shared_layout &shared)
{
    pipeline_state box = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int column = box_column(layer, tile), row = tile.row + layer.first_row;
        int channel = tile.group * layer.group_in;
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++, channel += layer.chunk_channels) {
            const uint32_t full = shared.box_full + 8 * box.at;
            mbarrier_wait(shared.box_empty + 8 * box.at, box.parity);
            mbarrier_arrive_expect_tx(full, layer.box_bytes);
#pragma unroll 1
            for (int copy = 0; copy < layer.box_copies; copy++)
                tma_load(shared.boxes + box.at * layer.box_bytes + copy * layer.pixels_leading, map,
                         column + copy * TCONV_WGMMA_BOX, row, channel, tile.image, full);
            box.next(layer.boxes);
        }
    }
}

/* To stages, where planes are turned in place: of each quad a row of all its channels after another. */
template <class Mode>
__device__ __forceinline__ void copy_to_stages(const tconv_wgmma_parameters &layer, const CUtensorMap *map,
                                               const shared_layout &shared)
{
    constexpr int QUAD_CHANNELS = TCONV_WGMMA_QUAD / sizeof(typename Mode::Element);
    pipeline_state stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int column = box_column(layer, tile), row = tile.row + layer.first_row;
        int channel = tile.group * layer.group_in;
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            const uint32_t full = shared.box_full + 8 * stage.at;
            uint32_t to = shared.stages + stage.at * layer.stage_bytes;
            mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            mbarrier_arrive_expect_tx(full, layer.stage_bytes);
#pragma unroll 1
            for (int quad = 0; quad < 2 * layer.steps; quad++) {
                tma_load(to, map, column, channel, row, tile.image, full);
                to += layer.pixels_leading;
                channel += QUAD_CHANNELS;
            }
            stage.next(layer.stages);
        }
    }
}

__device__ __forceinline__ void copy_slots(const tconv_wgmma_parameters &layer, const shared_layout &shared)
{
    pipeline_state slot = {0, 1};
    const int slots = layer.chunks * layer.max_chunk_slots;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const char *from = static_cast<const char *>(layer.weights) +
                           (size_t)divide(number, layer.by_blocks).rest * slots * layer.slot_bytes;
        /* Unrolled, ptxas 13.0 drops the upper half of an address. */
#pragma unroll 1
        for (int i = 0; i < slots; i++, from += layer.slot_bytes) {
            const uint32_t full = shared.slot_full + 8 * slot.at;
            mbarrier_wait(shared.slot_empty + 8 * slot.at, slot.parity);
            mbarrier_arrive_expect_tx(full, layer.slot_bytes);
            bulk_load(shared.slots + slot.at * layer.slot_bytes, from, layer.slot_bytes, full);
            slot.next(layer.slots);
        }
        if (layer.resident)
            return;
    }
}

__device__ __forceinline__ uint32_t load_word(uint32_t address)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

/* Quads of channels of one lane's pixels: of f32 a pixel, of the 16-bit types two, loaded from a box and stored to a stage.
 * Words are what a load brings: a channel of these pixels. */
template <class Mode> struct quad_of {
    static constexpr int PIXELS = 1, CHANNELS = 4;
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t plane)
    {
        uint32_t big[CHANNELS], small[CHANNELS];
        round_or_split<Mode::STRICT>(words, big, small);
        store_shared_16(to, big);
        if (Mode::STRICT)
            store_shared_16(to + plane, small);
    }
    static __device__ __forceinline__ void store_rounded(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t)
    {
        store_shared_16(to, words);
    }
    /* Those alone whose column exists: the first one's is `column`. */
    static __device__ __forceinline__ void store_inside(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t plane,
                                                        int column, int columns)
    {
        if ((unsigned)column < (unsigned)columns)
            store(words, to, plane);
    }
    /* One pixel's channels, as bits. */
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t plane)
    {
        store(values, to, plane);
    }
};

struct quad_of_16_bits {
    static constexpr int PIXELS = 2, CHANNELS = 8;
    static constexpr uint32_t LOW = 0x5410, HIGH = 0x7632; /* of two words, as __byte_perm selects them */
    static __device__ __forceinline__ void store_one(const uint32_t (&words)[CHANNELS], uint32_t selected, uint32_t to)
    {
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            pairs[c] = __byte_perm(words[2 * c], words[2 * c + 1], selected);
        store_shared_16(to, pairs);
    }
    /* Lanes are 32 bytes apart: every other four of them store their second pixel first, so that no bank is met twice. next:
     * bytes from the first pixel to the second. */
    static __device__ __forceinline__ void store_rounded(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t next)
    {
        const bool second = (threadIdx.x & 4) != 0;
        store_one(words, second ? HIGH : LOW, to + (second ? next : 0));
        store_one(words, second ? LOW : HIGH, to + (second ? 0 : next));
    }
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t)
    {
        store_rounded(words, to, TCONV_WGMMA_QUAD);
    }
    static __device__ __forceinline__ void store_inside(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t,
                                                        int column, int columns)
    {
        const int second = (threadIdx.x & 4) != 0;
        if ((unsigned)(column + second) < (unsigned)columns)
            store_one(words, second ? HIGH : LOW, to + second * TCONV_WGMMA_QUAD);
        if ((unsigned)(column + 1 - second) < (unsigned)columns)
            store_one(words, second ? LOW : HIGH, to + (1 - second) * TCONV_WGMMA_QUAD);
    }
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t)
    {
        store_one(values, LOW, to);
    }
};
template <> struct quad_of<f16_mode> : quad_of_16_bits {
};
template <> struct quad_of<bf16_mode> : quad_of_16_bits {
};

/* count times a lane's pixels of one quad, `step` pixels apart. */
template <class Mode, int count>
__device__ __forceinline__ void load_words(uint32_t (&words)[count][quad_of<Mode>::CHANNELS], uint32_t from,
                                           uint32_t channel_bytes, int step)
{
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int c = 0; c < quad_of<Mode>::CHANNELS; c++)
            words[i][c] = load_word(from + c * channel_bytes + i * step * (uint32_t)sizeof(typename Mode::Element));
}

/* All are loaded before the first is stored. The last of them may not exist: what lies beyond the patch is read, but not stored. */
template <class Mode, int count>
__device__ __forceinline__ void convert(uint32_t from, uint32_t channel_bytes, uint32_t to, uint32_t plane, int step,
                                        bool last_exists)
{
    using Quad = quad_of<Mode>;
    uint32_t words[count][Quad::CHANNELS];
    load_words<Mode>(words, from, channel_bytes, step);
#pragma unroll
    for (int i = 0; i < count; i++)
        if (i < count - 1 || last_exists)
            Quad::store(words[i], to + i * step * TCONV_WGMMA_QUAD, plane);
}

template <class Mode>
__device__ __forceinline__ void convert_boxes(const tconv_wgmma_parameters &layer, const shared_layout &shared,
                                              int warp, int lane)
{
    using Quad = quad_of<Mode>;
    constexpr int AT_ONCE = Mode::STRICT ? 2 : Quad::PIXELS == 2 ? 2 : 4;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int patch = layer.patch, quads = 2 * layer.steps;
    const uint32_t channel_bytes = patch * element, quad_bytes = patch * TCONV_WGMMA_QUAD, plane = quads * quad_bytes;
    /* Two warps on each of two quads, or one on each of four. */
    const int quad_warps = quads == 2 ? 2 : 1, first_quad = warp / quad_warps, quad_step = CONVERTERS / quad_warps;
    const int warp_pixel = warp % quad_warps * WARP * Quad::PIXELS, lane_pixel = lane * Quad::PIXELS;
    const int step = quad_warps * WARP * Quad::PIXELS;
    pipeline_state box = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            mbarrier_wait(shared.box_full + 8 * box.at, box.parity);
            mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            for (int quad = first_quad; quad < quads; quad += quad_step) {
                const uint32_t from = shared.boxes + box.at * layer.box_bytes + quad * Quad::CHANNELS * channel_bytes;
                const uint32_t to = shared.stages + stage.at * layer.stage_bytes + quad * quad_bytes;
                int first = warp_pixel; /* the same in all lanes, so that they stay together */
#pragma unroll 1
                for (; first + (AT_ONCE - 1) * step < patch; first += AT_ONCE * step) {
                    const int pixel = first + lane_pixel;
                    convert<Mode, AT_ONCE>(from + pixel * element, channel_bytes, to + pixel * TCONV_WGMMA_QUAD, plane,
                                           step, pixel + (AT_ONCE - 1) * step < patch);
                }
#pragma unroll 1
                for (; first < patch; first += step) {
                    const int pixel = first + lane_pixel;
                    convert<Mode, 1>(from + pixel * element, channel_bytes, to + pixel * TCONV_WGMMA_QUAD, plane, step,
                                     pixel < patch);
                }
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane)) {
                mbarrier_arrive(shared.stage_full + 8 * stage.at);
                mbarrier_arrive(shared.box_empty + 8 * box.at);
            }
            box.next(layer.boxes);
            stage.next(layer.stages);
        }
    }
}

/* A row of planes into its pixels, where it lies: `count` times a lane's pixels, of which the last may not exist. What is to be
 * rounded was on its way. Folded, odd pixels follow all even ones. */
template <class Mode, int count, bool folded>
__device__ __forceinline__ void turn_row(uint32_t row, int pitch, int lane)
{
    using Quad = quad_of<Mode>;
    constexpr int STEP = WARP * Quad::PIXELS;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int pixel = lane * Quad::PIXELS;
    const bool last_exists = pixel + (count - 1) * STEP < pitch;
    uint32_t from = row + pixel * element, last = last_exists ? from + (count - 1) * STEP * element : from;
    uint32_t words[count][Quad::CHANNELS];
#pragma unroll
    for (int c = 0; c < Quad::CHANNELS; c++) {
#pragma unroll
        for (int i = 0; i < count - 1; i++)
            words[i][c] = load_word(from + i * STEP * element);
        words[count - 1][c] = load_word(last);
        from += pitch * element;
        last += pitch * element;
    }
    __syncwarp();
    constexpr int FOLD = folded ? 2 : 1;
    const uint32_t next = (folded ? pitch / 2 : 1) * TCONV_WGMMA_QUAD; /* from an even pixel to an odd one */
    const uint32_t to = row + pixel / FOLD * TCONV_WGMMA_QUAD + pixel % FOLD * next;
#pragma unroll
    for (int i = 0; i < count; i++)
        if (i < count - 1 || last_exists)
            Quad::store_rounded(words[i], to + i * (STEP / FOLD) * TCONV_WGMMA_QUAD, next);
}

template <class Mode, int count, bool folded>
__device__ __forceinline__ void turn_stages(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                            int lane)
{
    const uint32_t row_bytes = layer.pitch * TCONV_WGMMA_QUAD;
    const int tiles = (layer.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    pipeline_state stage = {0, 0};
    for (int64_t left = (int64_t)tiles * layer.chunks; left > 0; left--) {
        const uint32_t first = shared.stages + stage.at * layer.stage_bytes;
        mbarrier_wait(shared.box_full + 8 * stage.at, stage.parity);
#pragma unroll 1
        for (uint32_t row = warp * row_bytes; row < layer.stage_bytes; row += CONVERTERS * row_bytes)
            turn_row<Mode, count, folded>(first + row, layer.pitch, lane);
        fence_proxy_async();
        __syncwarp();
        if (arrives_for_warp(lane))
            mbarrier_arrive(shared.stage_full + 8 * stage.at);
        stage.next(layer.stages);
    }
}

template <class Mode, bool folded>
constexpr int TURNED_COLUMNS = tconv_wgmma_turned_columns(sizeof(typename Mode::Element), folded);

/* By the times that a lane has pixels of a row. */
template <class Mode, bool folded, int count = 1>
__device__ __forceinline__ void turn_in_place(const tconv_wgmma_parameters &layer, const shared_layout &shared,
                                              int warp, int lane)
{
    constexpr int STEP = WARP * quad_of<Mode>::PIXELS;
    if constexpr (count * STEP < TURNED_COLUMNS<Mode, folded>) {
        if (layer.pitch > count * STEP) {
            turn_in_place<Mode, folded, count + 1>(layer, shared, warp, lane);
            return;
        }
    }
    turn_stages<Mode, count, folded>(layer, shared, warp, lane);
}

/* The pixel of a box that a lane converts: its column in the patch, which may not exist there, and which pixel of the patch it
 * is. Found by a division once, then moved on by steps; rows of the box end before column `end`. */
struct pixel_walk {
    int column, pixel;
    __device__ __forceinline__ void next(const tconv_wgmma_parameters &layer, int end)
    {
        column += layer.convert_columns;
        pixel += layer.convert_pixels;
        if (column >= end) {
            column -= layer.box_pitch;
            pixel += layer.pitch - layer.box_pitch;
        }
    }
};

/* As convert, where the patch leaves columns of the box out. The first pixel lies `left` before the box's end. */
template <class Mode, int count>
__device__ __forceinline__ void convert_inside(const tconv_wgmma_parameters &layer, uint32_t from,
                                               uint32_t channel_bytes, uint32_t to, uint32_t plane, int step,
                                               pixel_walk &at, int end, int left)
{
    using Quad = quad_of<Mode>;
    uint32_t words[count][Quad::CHANNELS];
    load_words<Mode>(words, from, channel_bytes, step);
#pragma unroll
    for (int i = 0; i < count; i++) {
        if (i < count - 1 || i * step < left)
            Quad::store_inside(words[i], to + at.pixel * TCONV_WGMMA_QUAD, plane, at.column, layer.pitch);
        at.next(layer, end);
    }
}

/* As convert_boxes, into tight patches: slower by a walk over the columns, faster where patches have several rows, of which
 * more fit into the N of a product. */
template <class Mode>
__device__ __forceinline__ void convert_tight(const tconv_wgmma_parameters &layer, const shared_layout &shared,
                                              int warp, int lane)
{
    using Quad = quad_of<Mode>;
    constexpr int AT_ONCE = Mode::STRICT ? 2 : Quad::PIXELS == 2 ? 2 : 4;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int patch = layer.box_patch, quads = 2 * layer.steps, step = layer.convert_step;
    const uint32_t channel_bytes = patch * element, quad_bytes = layer.patch * TCONV_WGMMA_QUAD;
    const uint32_t plane = quads * quad_bytes;
    const int quad_warps = quads == 2 ? 2 : 1, first_quad = warp / quad_warps, quad_step = CONVERTERS / quad_warps;
    const int warp_pixel = warp % quad_warps * WARP * Quad::PIXELS, first_pixel = warp_pixel + lane * Quad::PIXELS;
    const int first_row = first_pixel / layer.box_pitch, first_column = first_pixel - first_row * layer.box_pitch;
    pipeline_state box = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int skipped = stage_column(layer, tile) - box_column(layer, tile), end = layer.box_pitch - skipped;
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            mbarrier_wait(shared.box_full + 8 * box.at, box.parity);
            mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            for (int quad = first_quad; quad < quads; quad += quad_step) {
                uint32_t from = shared.boxes + box.at * layer.box_bytes + quad * Quad::CHANNELS * channel_bytes +
                                first_pixel * element;
                const uint32_t to = shared.stages + stage.at * layer.stage_bytes + quad * quad_bytes;
                pixel_walk at = {first_column - skipped, first_row * layer.pitch + first_column - skipped};
                int left = patch - warp_pixel; /* the same in all lanes, so that they stay together */
#pragma unroll 1
                for (; left > (AT_ONCE - 1) * step; left -= AT_ONCE * step, from += AT_ONCE * step * element)
                    convert_inside<Mode, AT_ONCE>(layer, from, channel_bytes, to, plane, step, at, end,
                                                  left - lane * Quad::PIXELS);
#pragma unroll 1
                for (; left > 0; left -= step, from += step * element)
                    convert_inside<Mode, 1>(layer, from, channel_bytes, to, plane, step, at, end,
                                            left - lane * Quad::PIXELS);
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane)) {
                mbarrier_arrive(shared.stage_full + 8 * stage.at);
                mbarrier_arrive(shared.box_empty + 8 * box.at);
            }
            box.next(layer.boxes);
            stage.next(layer.stages);
        }
    }
}

/* The bits of an element of src; 0 outside of it. */
__device__ __forceinline__ uint32_t load_element(const float *from, bool exists)
{
    return exists ? __float_as_uint(*from) : 0;
}
template <class Half> __device__ __forceinline__ uint32_t load_element(const Half *from, bool exists)
{
    return exists ? *reinterpret_cast<const uint16_t *>(from) : 0;
}

/* Fills stages from src itself, where it lies so that the copy engine cannot read it. */
template <class Mode>
__device__ __forceinline__ void convert_src(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                            int lane)
{
    using Quad = quad_of<Mode>;
    using Element = typename Mode::Element;
    constexpr int AT_ONCE = Mode::STRICT ? 2 : 4; /* quads that are on their way */
    const int quads = 2 * layer.steps;
    const uint32_t quad_bytes = layer.patch * TCONV_WGMMA_QUAD, plane = quads * quad_bytes;
    pipeline_state stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int first_column = stage_column(layer, tile), first_row = tile.row + layer.first_row;
        const Element *src = static_cast<const Element *>(layer.src) + tile.image * layer.src_image +
                             (int64_t)tile.group * layer.group_in * layer.src_channel;
        for (int channels = layer.group_in; channels > 0; channels -= layer.chunk_channels) {
            mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            const uint32_t to = shared.stages + stage.at * layer.stage_bytes;
            for (int pixel = warp * WARP + lane; pixel < layer.patch; pixel += CONVERTERS * WARP) {
                const int patch_row = pixel / layer.pitch, column_of = pixel - patch_row * layer.pitch;
                const int row = first_row + patch_row, column = first_column + column_of;
                const int place = layer.fold_log2 == 0
                                      ? pixel
                                      : pixel - column_of + (column_of & 1) * (layer.pitch / 2) + column_of / 2;
                const bool inside =
                    (unsigned)row < (unsigned)layer.in_rows && (unsigned)column < (unsigned)layer.in_columns;
                int left = inside ? min(channels, layer.chunk_channels) : 0;
                const Element *from = src + (int64_t)row * layer.in_columns + column;
#pragma unroll 1
                for (int first = 0; first < quads; first += AT_ONCE) {
                    uint32_t values[AT_ONCE][Quad::CHANNELS];
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                        for (int c = 0; c < Quad::CHANNELS; c++) {
                            const int channel = i * Quad::CHANNELS + c;
                            values[i][c] = load_element(from + channel * layer.src_channel, channel < left);
                        }
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++)
                        if (first + i < quads)
                            Quad::store_pixel(values[i], to + (first + i) * quad_bytes + place * TCONV_WGMMA_QUAD,
                                              plane);
                    from += AT_ONCE * Quad::CHANNELS * layer.src_channel;
                    left -= AT_ONCE * Quad::CHANNELS;
                }
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane))
                mbarrier_arrive(shared.stage_full + 8 * stage.at);
            stage.next(layer.stages);
            src += layer.chunk_channels * layer.src_channel;
        }
    }
}

} // namespace tconv::wgmma

#endif
