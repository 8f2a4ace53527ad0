/*
 * The kernel of the wgmma algorithm, for one type of factors (Mode) and N pixels.
 *
 * A persistent block of 16 warps computes tiles. Two warpgroups multiply; of the other eight warps one asks the copy engine
 * for boxes of src, one for slots of weights, four convert boxes into stages (from a plane for each channel to pixels of 16
 * bytes of channels, which is how the tensor cores want them, rounded or split on the way), two store. Each buffer has a
 * pair of barriers, full and empty. A tap is an offset into the stage: consecutive pixels of the patch are consecutive
 * columns of the product, so that nothing is copied for a tap.
 *
 * Numeric order: chunks of channels, taps by rows, then steps and columns, as the layer alone decides. In strict f32 each
 * factor is split, x = big + small, and small * big + big * small + big * big of up to three taps at a time are summed by
 * the tensor cores from zero, and then added to f32 sums. Bias last.
 */
#ifndef TCONV_CUDA_WGMMA_KERNEL_CUH
#define TCONV_CUDA_WGMMA_KERNEL_CUH

#include "element.cuh"
#include "hopper_device.cuh"
#include "tf32_device.cuh"
#include "wgmma_kernels.h"

namespace tconv_wgmma
{

using namespace hopper;

constexpr int WARP = 32, GROUP_WARPS = 4, CONSUMER_WARPS = TCONV_WGMMA_GROUPS * GROUP_WARPS;
constexpr int CONVERTERS = 4;
constexpr int BOX_WARP = CONVERTERS, SLOT_WARP = CONVERTERS + 1, FIRST_STORE_WARP = CONVERTERS + 2;
constexpr int UNITS = TCONV_WGMMA_UNITS;
constexpr int STAGED_ROWS = 16;                        /* of M, that a warp stages at once */
constexpr uint32_t PRODUCT_BYTES = TCONV_WGMMA_M * 32; /* one plane of the weights of one product */
constexpr uint32_t PRODUCT_HALF = TCONV_WGMMA_M * 16;  /* of it, of one quad */
constexpr uint32_t PRODUCT_ROWS = PRODUCT_BYTES / 16;

/* What differs among types of factors. Registers: of a thread that multiplies, of any other. */
struct tf32_mode {
    using Element = float;
    static constexpr product_type TYPE = PRODUCT_TF32;
    static constexpr bool STRICT = false;
    static constexpr int PLANES = 1, CONSUMER_REGISTERS = 176, OTHER_REGISTERS = 72;
};
struct strict_mode : tf32_mode {
    static constexpr bool STRICT = true;
    static constexpr int PLANES = 2, CONSUMER_REGISTERS = 216, OTHER_REGISTERS = 40;
};
struct f16_mode : tf32_mode {
    using Element = __half;
    static constexpr product_type TYPE = PRODUCT_F16;
};
struct bf16_mode : tf32_mode {
    using Element = __nv_bfloat16;
    static constexpr product_type TYPE = PRODUCT_BF16;
};

/* The barriers, and where the buffers begin. */
struct shared_layout {
    uint32_t stage_full, stage_empty, box_full, box_empty, slot_full, slot_empty, staged_full, staged_empty;
    uint32_t boxes, stages, slots;
    float *staged;
};

constexpr int BARRIERS = 6 * TCONV_WGMMA_STAGES + 2 * CONSUMER_WARPS;

/* A ring of buffers as one side walks it. The side that fills begins with parity 1: its first round need not wait. */
struct ring {
    int at;
    uint32_t parity;
    __device__ __forceinline__ void next(int count)
    {
        if (++at == count) {
            at = 0;
            parity ^= 1;
        }
    }
};

struct tile_place {
    int block, row, column, image; /* row and column: the first position */
};

__device__ __forceinline__ tile_place find_tile(const tconv_wgmma_parameters &layer, int number)
{
    tile_place tile;
    tile.block = number % layer.blocks;
    number /= layer.blocks;
    tile.column = number % layer.column_tiles * layer.tile_columns;
    number /= layer.column_tiles;
    tile.row = number % layer.row_tiles * layer.tile_rows;
    tile.image = number / layer.row_tiles;
    return tile;
}

/* The first column of the box: rounded down, because the copy engine wants addresses that are multiples of 16 bytes. */
__device__ __forceinline__ int box_column(const tconv_wgmma_parameters &layer, const tile_place &tile)
{
    return (tile.column + layer.first_column) & -layer.column_alignment;
}

/* ------------------------------------------------------------------------------------------------- copying, converting */

__device__ __forceinline__ void copy_boxes(const tconv_wgmma_parameters &layer, const CUtensorMap *map,
                                           const shared_layout &shared)
{
    ring box = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int column = box_column(layer, tile), row = tile.row + layer.first_row;
        int channel = tile.block / layer.group_blocks * layer.group_in;
        for (int chunk = 0; chunk < layer.chunks; chunk++, channel += layer.chunk_channels) {
            const uint32_t full = shared.box_full + 8 * box.at;
            barrier_wait(shared.box_empty + 8 * box.at, box.parity);
            barrier_arrive_expecting(full, layer.box_bytes);
            copy_box(shared.boxes + box.at * layer.box_bytes, map, column, row, channel, tile.image, full);
            box.next(layer.boxes);
        }
    }
}

__device__ __forceinline__ void copy_slots(const tconv_wgmma_parameters &layer, const shared_layout &shared)
{
    ring slot = {0, 1};
    const int slots = layer.chunks * layer.max_row_taps;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const char *from =
            static_cast<const char *>(layer.weights) + (size_t)(number % layer.blocks) * slots * layer.slot_bytes;
        for (int i = 0; i < slots; i++, from += layer.slot_bytes) {
            const uint32_t full = shared.slot_full + 8 * slot.at;
            barrier_wait(shared.slot_empty + 8 * slot.at, slot.parity);
            barrier_arrive_expecting(full, layer.slot_bytes);
            copy_bulk(shared.slots + slot.at * layer.slot_bytes, from, layer.slot_bytes, full);
            slot.next(layer.slots);
        }
    }
}

__device__ __forceinline__ uint32_t load_word(uint32_t address)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

__device__ __forceinline__ void store_quad(uint32_t address, const uint32_t (&words)[4])
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
}

/* One quad of the pixels that a lane converts from a box: one of f32, two of the 16-bit types. */
template <class Mode> struct quad_of {
    static constexpr int PIXELS = 1, CHANNELS = 4;
    static __device__ __forceinline__ void convert(uint32_t from, uint32_t channel_bytes, uint32_t to, uint32_t plane)
    {
        uint32_t values[CHANNELS];
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            values[c] = load_word(from + c * channel_bytes);
        store(values, to, plane);
    }
    /* One pixel's channels, as bits. */
    static __device__ __forceinline__ void store(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t plane)
    {
        uint32_t big[CHANNELS], small[CHANNELS];
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            big[c] = round_to_tf32(values[c]);
            if (Mode::STRICT)
                small[c] = round_to_tf32(rest_of(values[c], big[c]));
        }
        store_quad(to, big);
        if (Mode::STRICT)
            store_quad(to + plane, small);
    }
};

struct quad_of_16_bits {
    static constexpr int PIXELS = 2, CHANNELS = 8;
    static __device__ __forceinline__ void store(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t)
    {
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            pairs[c] = __byte_perm(values[2 * c], values[2 * c + 1], 0x5410);
        store_quad(to, pairs);
    }
    static __device__ __forceinline__ void convert(uint32_t from, uint32_t channel_bytes, uint32_t to, uint32_t)
    {
        uint32_t values[CHANNELS], first[4], second[4];
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            values[c] = load_word(from + c * channel_bytes);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            first[c] = __byte_perm(values[2 * c], values[2 * c + 1], 0x5410);
            second[c] = __byte_perm(values[2 * c], values[2 * c + 1], 0x7632);
        }
        store_quad(to, first);
        store_quad(to + TCONV_WGMMA_QUAD, second);
    }
};
template <> struct quad_of<f16_mode> : quad_of_16_bits {
};
template <> struct quad_of<bf16_mode> : quad_of_16_bits {
};

template <class Mode>
__device__ __forceinline__ void convert_boxes(const tconv_wgmma_parameters &layer, const shared_layout &shared,
                                              int warp, int lane)
{
    using Quad = quad_of<Mode>;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const uint32_t channel_bytes = layer.patch * element, quad_bytes = layer.patch * TCONV_WGMMA_QUAD;
    const uint32_t plane = 2 * layer.steps * quad_bytes;
    ring box = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            barrier_wait(shared.box_full + 8 * box.at, box.parity);
            barrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            uint32_t from = shared.boxes + box.at * layer.box_bytes, to = shared.stages + stage.at * layer.stage_bytes;
            for (int quad = 0; quad < 2 * layer.steps; quad++) {
#pragma unroll 2
                for (int pixel = (warp * WARP + lane) * Quad::PIXELS; pixel < layer.patch;
                     pixel += CONVERTERS * WARP * Quad::PIXELS)
                    Quad::convert(from + pixel * element, channel_bytes, to + pixel * TCONV_WGMMA_QUAD, plane);
                from += Quad::CHANNELS * channel_bytes;
                to += quad_bytes;
            }
            fence_for_async_proxy();
            __syncwarp();
            if (lane == 0) {
                barrier_arrive(shared.stage_full + 8 * stage.at);
                barrier_arrive(shared.box_empty + 8 * box.at);
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
    const uint32_t quad_bytes = layer.patch * TCONV_WGMMA_QUAD, plane = 2 * layer.steps * quad_bytes;
    ring stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int first_column = box_column(layer, tile), first_row = tile.row + layer.first_row;
        const int group = tile.block / layer.group_blocks;
        const Element *src = static_cast<const Element *>(layer.src) + tile.image * layer.src_image +
                             (int64_t)group * layer.group_in * layer.src_channel;
        int channels = layer.group_in;
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            barrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            const uint32_t to = shared.stages + stage.at * layer.stage_bytes;
            for (int pixel = warp * WARP + lane; pixel < layer.patch; pixel += CONVERTERS * WARP) {
                const int patch_row = pixel / layer.pitch;
                const int row = first_row + patch_row, column = first_column + pixel - patch_row * layer.pitch;
                const bool inside =
                    (unsigned)row < (unsigned)layer.in_rows && (unsigned)column < (unsigned)layer.in_columns;
                const Element *from = src + (int64_t)row * layer.in_columns + column;
#pragma unroll 2
                for (int quad = 0; quad < 2 * layer.steps; quad++) {
                    uint32_t values[Quad::CHANNELS];
#pragma unroll
                    for (int c = 0; c < Quad::CHANNELS; c++)
                        values[c] =
                            load_element(from + c * layer.src_channel, inside && quad * Quad::CHANNELS + c < channels);
                    Quad::store(values, to + quad * quad_bytes + pixel * TCONV_WGMMA_QUAD, plane);
                    from += Quad::CHANNELS * layer.src_channel;
                }
            }
            fence_for_async_proxy();
            __syncwarp();
            if (lane == 0)
                barrier_arrive(shared.stage_full + 8 * stage.at);
            stage.next(layer.stages);
            src += layer.chunk_channels * layer.src_channel;
            channels -= layer.chunk_channels;
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- multiplying */

/* The operands of a warpgroup's next products, as low words: see operand. */
struct factors {
    uint32_t weights[UNITS], pixels[UNITS];
    uint32_t weights_step, pixels_step;   /* to the next tap or step */
    uint32_t weights_small, pixels_small; /* to the plane of what rounding left */
};

/* count products of each of the first `units` units. */
template <class Mode, int N, int count, int units>
__device__ __forceinline__ void multiply(float (&sums)[UNITS][N / 2], factors &at, int accumulate)
{
    using Product = product<Mode::TYPE, N>;
    if (!Mode::STRICT) {
        products_begin();
#pragma unroll
        for (int i = 0; i < count; i++)
#pragma unroll
            for (int unit = 0; unit < units; unit++)
                Product::add(sums[unit], operand(at.weights[unit] + i * at.weights_step),
                             operand(at.pixels[unit] + i * at.pixels_step), i > 0 ? 1 : accumulate);
        products_commit();
        products_wait<1>();
    } else {
#pragma unroll
        for (int unit = 0; unit < units; unit++) {
            float partial[N / 2];
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                partial[i] = 0;
            products_begin();
#pragma unroll
            for (int i = 0; i < count; i++) {
                const uint32_t weights = at.weights[unit] + i * at.weights_step;
                const uint32_t pixels = at.pixels[unit] + i * at.pixels_step;
                Product::add(partial, operand(weights + at.weights_small), operand(pixels), i > 0);
                Product::add(partial, operand(weights), operand(pixels + at.pixels_small), 1);
            }
#pragma unroll
            for (int i = 0; i < count; i++)
                Product::add(partial, operand(at.weights[unit] + i * at.weights_step),
                             operand(at.pixels[unit] + i * at.pixels_step), 1);
            products_commit();
            products_wait<0>();
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sums[unit][i] = accumulate ? sums[unit][i] + partial[i] : partial[i];
        }
    }
#pragma unroll
    for (int unit = 0; unit < units; unit++) {
        at.weights[unit] += count * at.weights_step;
        at.pixels[unit] += count * at.pixels_step;
    }
}

/* What the products under way still read: told to be empty when they are done. 0: nothing. */
struct pending_release {
    uint32_t slot, stage;
    __device__ __forceinline__ void release(bool signals)
    {
        if (signals && slot != 0)
            barrier_arrive(slot);
        if (signals && stage != 0)
            barrier_arrive(stage);
        slot = stage = 0;
    }
};

/* One row of taps of one step: three taps at a time, then one by one, then the one that only unit 0 has. */
template <class Mode, int N>
__device__ __forceinline__ void multiply_run(float (&sums)[UNITS][N / 2], factors &at, int count, bool odd,
                                             int &accumulate, pending_release &pending, bool signals)
{
    for (; count >= 3; count -= 3) {
        multiply<Mode, N, 3, UNITS>(sums, at, accumulate);
        accumulate = 1;
        pending.release(signals);
    }
    for (; count >= 1; count--) {
        multiply<Mode, N, 1, UNITS>(sums, at, accumulate);
        accumulate = 1;
        pending.release(signals);
    }
    if (odd)
        multiply<Mode, N, 1, 1>(sums, at, accumulate);
}

template <class Mode, int N>
__device__ __forceinline__ void multiply_slot(const tconv_wgmma_parameters &layer, float (&sums)[UNITS][N / 2],
                                              uint32_t slot, uint32_t stage, int group, int row_tap, int &accumulate,
                                              pending_release &pending, bool signals)
{
    const bool odd = layer.column_taps[0] > layer.column_taps[1];
    const bool along_steps = layer.column_taps[0] == 1 && !odd;
    const uint32_t pixels_half = layer.patch << 16, weights_half = PRODUCT_HALF >> 4 << 16;
    const uint32_t step_pixels = 2 * layer.patch, step_weights = layer.step_weights;
    factors at;
    at.weights_small = PRODUCT_ROWS;
    at.pixels_small = layer.steps * step_pixels;
    at.weights_step = along_steps ? step_weights : Mode::PLANES * PRODUCT_ROWS;
    at.pixels_step = along_steps ? step_pixels : (uint32_t)-layer.column_step;
    const int runs = along_steps ? 1 : layer.steps, count = along_steps ? layer.steps : layer.column_taps[1];
    for (int run = 0; run < runs; run++) {
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            at.weights[unit] = weights_half + (slot >> 4) + group * layer.group_weights + unit * layer.unit_weights +
                               run * step_weights;
            at.pixels[unit] = pixels_half + (stage >> 4) + layer.unit_pixel[group][unit] - row_tap * layer.row_step +
                              run * step_pixels;
        }
        multiply_run<Mode, N>(sums, at, count, odd, accumulate, pending, signals);
    }
}

/* ------------------------------------------------------------------------------------------------------------- storing */

/* Writes one turn of a warp's sums to its part of the staging memory, rows of floats: a unit's 16 rows of M or, where the
 * units are two column phases, 8 rows of both, interleaved. */
template <int N>
__device__ __forceinline__ void stage_sums(const tconv_wgmma_parameters &layer, const float (&sums)[UNITS][N / 2],
                                           float *staged, int turn, int lane)
{
    constexpr int pitch = TCONV_WGMMA_STAGED(N);
    const int row = lane / 4, column = lane % 4 * 2;
    if (layer.column_phases == 1) {
        float *to = staged + row * pitch + column;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float *from0 = &sums[0][4 * j], *from1 = &sums[1][4 * j];
            *reinterpret_cast<float2 *>(to + 8 * j) =
                turn == 0 ? make_float2(from0[0], from0[1]) : make_float2(from1[0], from1[1]);
            *reinterpret_cast<float2 *>(to + 8 * pitch + 8 * j) =
                turn == 0 ? make_float2(from0[2], from0[3]) : make_float2(from1[2], from1[3]);
        }
    } else {
        float *to = staged + row * 2 * pitch + 2 * column;
        const bool swap = layer.first_phase == 1;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const int i = 4 * j;
            const float2 zero =
                turn == 0 ? make_float2(sums[0][i], sums[0][i + 1]) : make_float2(sums[0][i + 2], sums[0][i + 3]);
            const float2 one =
                turn == 0 ? make_float2(sums[1][i], sums[1][i + 1]) : make_float2(sums[1][i + 2], sums[1][i + 3]);
            *reinterpret_cast<float4 *>(to + 16 * j) =
                swap ? make_float4(one.x, zero.x, one.y, zero.y) : make_float4(zero.x, one.x, zero.y, one.y);
        }
    }
}

template <class Mode, int N>
__device__ __forceinline__ void consume(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                        int lane)
{
    float sums[UNITS][N / 2];
    const int group = warp / GROUP_WARPS;
    const bool signals = (int)threadIdx.x % (GROUP_WARPS * WARP) == 0;
    float *staged = shared.staged + warp * STAGED_ROWS * TCONV_WGMMA_STAGED(N);
    ring stage = {0, 0}, slot = {0, 0};
    uint32_t staged_parity = 1;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int skipped = tile.column + layer.first_column - box_column(layer, tile);
        pending_release pending = {0, 0};
        int accumulate = 0;
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            barrier_wait(shared.stage_full + 8 * stage.at, stage.parity);
            const uint32_t pixels = shared.stages + stage.at * layer.stage_bytes + skipped * TCONV_WGMMA_QUAD;
            for (int row_tap = 0; row_tap < layer.max_row_taps; row_tap++) {
                barrier_wait(shared.slot_full + 8 * slot.at, slot.parity);
                if (row_tap < layer.row_taps[group]) {
                    multiply_slot<Mode, N>(layer, sums, shared.slots + slot.at * layer.slot_bytes, pixels, group,
                                           row_tap, accumulate, pending, signals);
                } else {
                    products_wait<0>();
                    pending.release(signals);
                }
                pending.slot = shared.slot_empty + 8 * slot.at;
                slot.next(layer.slots);
            }
            pending.stage = shared.stage_empty + 8 * stage.at;
            stage.next(layer.stages);
        }
        products_wait<0>();
        pending.release(signals);

#pragma unroll
        for (int turn = 0; turn < UNITS; turn++) {
            barrier_wait(shared.staged_empty + 8 * warp, staged_parity);
            staged_parity ^= 1;
            stage_sums<N>(layer, sums, staged, turn, lane);
            __syncwarp();
            if (lane == 0)
                barrier_arrive(shared.staged_full + 8 * warp);
        }
    }
}

/* Stores length elements of a row, vector at a time; both addresses allow it, and length is a multiple of it. */
template <class Element, int vector>
__device__ __forceinline__ void store_row(Element *to, const float *from, int length, float bias, int lane)
{
    using Sums = element_vector<float, vector>;
    using Elements = element_vector<Element, vector>;
#pragma unroll 4
    for (int i = lane * vector; i < length; i += WARP * vector) {
        const Sums sums = *reinterpret_cast<const Sums *>(from + i);
        Elements elements;
#pragma unroll
        for (int v = 0; v < vector; v++)
            elements.at[v] = from_compute<Element>(sums.at[v] + bias);
        *reinterpret_cast<Elements *>(to + i) = elements;
    }
}

/* What one warp of a warpgroup staged in one turn. */
template <class Element, int N>
__device__ __forceinline__ void store_turn(const tconv_wgmma_parameters &layer, const tile_place &tile,
                                           const float *staged, int group, int warp, int turn, int lane)
{
    const bool interleaved = layer.column_phases == 2;
    const int pitch = interleaved ? 2 * TCONV_WGMMA_STAGED(N) : TCONV_WGMMA_STAGED(N);
    const int rows = interleaved ? STAGED_ROWS / 2 : STAGED_ROWS, unit = interleaved ? 0 : turn;
    const int m = warp * STAGED_ROWS + (interleaved ? turn * rows : 0);
    const int first_of_block = m % layer.block_channels, row_of_stack = m / layer.block_channels;
    const int of_group = tile.block % layer.group_blocks * layer.block_channels + first_of_block;
    const int64_t channel = (int64_t)(tile.block / layer.group_blocks) * layer.group_out + of_group;
    const int channels = min(rows, layer.group_out - of_group);
    const int column = tile.column * layer.column_phases;
    const int length = min(layer.tile_columns * layer.column_phases, layer.out_columns - column);
    const float bias = layer.bias != NULL && lane < channels
                           ? to_compute(static_cast<const Element *>(layer.bias)[channel + lane])
                           : 0.0f;
    for (int i = 0; i < layer.unit_rows; i++) {
        const int row =
            (tile.row + layer.unit_row[group][unit] + row_of_stack + i) * layer.stride_h + layer.row_residue[group];
        if (row >= layer.out_rows)
            break;
        const float *from = staged + i * layer.pitch * layer.column_phases;
        Element *to = static_cast<Element *>(layer.dst) + tile.image * layer.dst_image + channel * layer.dst_channel +
                      (int64_t)row * layer.out_columns + column;
        for (int c = 0; c < channels; c++, from += pitch, to += layer.dst_channel) {
            const float bias_of_channel = __shfl_sync(~0u, bias, c);
            if (layer.store_vector == 4)
                store_row<Element, 4>(to, from, length, bias_of_channel, lane);
            else if (layer.store_vector == 2)
                store_row<Element, 2>(to, from, length, bias_of_channel, lane);
            else
                store_row<Element, 1>(to, from, length, bias_of_channel, lane);
        }
    }
}

/* Stores what the warps of one warpgroup stage. */
template <class Mode, int N>
__device__ __forceinline__ void store_tiles(const tconv_wgmma_parameters &layer, const shared_layout &shared, int group,
                                            int lane)
{
    uint32_t parity = 0;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        for (int turn = 0; turn < UNITS; turn++, parity ^= 1) {
            for (int warp = 0; warp < GROUP_WARPS; warp++) {
                const int consumer = group * GROUP_WARPS + warp;
                barrier_wait(shared.staged_full + 8 * consumer, parity);
                store_turn<typename Mode::Element, N>(layer, tile,
                                                      shared.staged + consumer * STAGED_ROWS * TCONV_WGMMA_STAGED(N),
                                                      group, warp, turn, lane);
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(shared.staged_empty + 8 * consumer);
            }
        }
    }
}

/* -------------------------------------------------------------------------------------------------------------- kernel */

__device__ __forceinline__ shared_layout lay_out(const tconv_wgmma_parameters &layer, uint64_t *barriers, char *buffers)
{
    const uint32_t each = 8 * TCONV_WGMMA_STAGES, first = shared_address(barriers), memory = shared_address(buffers);
    shared_layout shared;
    shared.stage_full = first;
    shared.stage_empty = first + each;
    shared.box_full = first + 2 * each;
    shared.box_empty = first + 3 * each;
    shared.slot_full = first + 4 * each;
    shared.slot_empty = first + 5 * each;
    shared.staged_full = first + 6 * each;
    shared.staged_empty = shared.staged_full + 8 * CONSUMER_WARPS;
    shared.boxes = memory;
    shared.slots = shared.boxes + layer.boxes * layer.box_bytes;
    shared.stages = shared.slots + layer.slots * layer.slot_bytes;
    shared.staged = reinterpret_cast<float *>(buffers + layer.boxes * layer.box_bytes + layer.slots * layer.slot_bytes +
                                              layer.stages * layer.stage_bytes);
    return shared;
}

__device__ __forceinline__ void init_barriers(const shared_layout &shared)
{
    for (int i = 0; i < TCONV_WGMMA_STAGES; i++) {
        barrier_init(shared.stage_full + 8 * i, CONVERTERS);
        barrier_init(shared.stage_empty + 8 * i, TCONV_WGMMA_GROUPS);
        barrier_init(shared.box_full + 8 * i, 1);
        barrier_init(shared.box_empty + 8 * i, CONVERTERS);
        barrier_init(shared.slot_full + 8 * i, 1);
        barrier_init(shared.slot_empty + 8 * i, TCONV_WGMMA_GROUPS);
    }
    for (int i = 0; i < CONSUMER_WARPS; i++) {
        barrier_init(shared.staged_full + 8 * i, 1);
        barrier_init(shared.staged_empty + 8 * i, 1);
    }
    barrier_init_done();
}

/* The kernel needs sm_90a. Elsewhere it is empty and, so that the host can tell, made for one warp. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TCONV_WGMMA_BOUNDS __launch_bounds__(TCONV_WGMMA_THREADS, 1)
#else
#define TCONV_WGMMA_BOUNDS __launch_bounds__(32)
#endif

template <class Mode, int N>
__global__ void TCONV_WGMMA_BOUNDS wgmma_layer(const __grid_constant__ tconv_wgmma_parameters layer,
                                               const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) char buffers[];
    __shared__ __align__(8) uint64_t barriers[BARRIERS];
    const shared_layout shared = lay_out(layer, barriers, buffers);
    /* Through a shuffle, so that the compiler knows that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / WARP, 0), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == 0)
        init_barriers(shared);
    __syncthreads();
    if (warp < CONSUMER_WARPS) {
        grow_registers<Mode::CONSUMER_REGISTERS>();
        consume<Mode, N>(layer, shared, warp, lane);
    } else {
        shrink_registers<Mode::OTHER_REGISTERS>();
        const int role = warp - CONSUMER_WARPS;
        if (role < CONVERTERS) {
            if (layer.by_boxes)
                convert_boxes<Mode>(layer, shared, role, lane);
            else
                convert_src<Mode>(layer, shared, role, lane);
        } else if (role == BOX_WARP) {
            if (lane == 0 && layer.by_boxes)
                copy_boxes(layer, &map, shared);
        } else if (role == SLOT_WARP) {
            if (lane == 0)
                copy_slots(layer, shared);
        } else {
            store_tiles<Mode, N>(layer, shared, role - FIRST_STORE_WARP, lane);
        }
    }
#endif
}

} // namespace tconv_wgmma

#endif
