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

#include "compensated.cuh"
#include "element.cuh"
#include "hopper_device.cuh"
#include "tf32_device.cuh"
#include "wgmma_kernels.h"

namespace tconv_wgmma
{

using namespace hopper;

constexpr int WARP = 32, GROUP_WARPS = 4, CONSUMER_WARPS = TCONV_WGMMA_GROUPS * GROUP_WARPS;
constexpr int UNITS = TCONV_WGMMA_UNITS, CONVERTERS = 4;
constexpr int BOX_WARP = CONVERTERS, SLOT_WARP = CONVERTERS + 1, FIRST_STORE_WARP = CONVERTERS + 2;
constexpr int STAGED_ROWS = 16;                        /* of M, that a warp stages at once */
constexpr uint32_t PRODUCT_BYTES = TCONV_WGMMA_M * 32; /* one plane of the weights of one product */
constexpr uint32_t PRODUCT_HALF = TCONV_WGMMA_M * 16;  /* of it, of one quad */
constexpr uint32_t PRODUCT_ROWS = PRODUCT_BYTES / 16;

/* What differs among types of factors. Registers: of a thread that multiplies, of any other. */
struct tf32_mode {
    using Element = float;
    static constexpr product_type TYPE = PRODUCT_TF32;
    static constexpr bool STRICT = false, COMPENSATED = false;
    static constexpr int PLANES = 1, CONSUMER_REGISTERS = 168, OTHER_REGISTERS = 88;
};
struct strict_mode : tf32_mode {
    static constexpr bool STRICT = true;
    static constexpr int PLANES = 2, CONSUMER_REGISTERS = 216, OTHER_REGISTERS = 40;
};
/* Strict, for long sums: what each addition of a product's sums loses is kept, and given to the next one. */
struct compensated_mode : strict_mode {
    static constexpr bool COMPENSATED = true;
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
    char *staged;
};

constexpr int TURNS = 2; /* in which a warp hands over its sums of a tile: see staging */
constexpr int BARRIERS = 6 * TCONV_WGMMA_STAGES + 2 * CONSUMER_WARPS * TURNS;

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

/* Quads of channels of one lane's pixels: of f32 a pixel, of the 16-bit types two, loaded from a box and stored to a stage.
 * Words are what a load brings: a channel of these pixels. */
template <class Mode> struct quad_of {
    static constexpr int PIXELS = 1, CHANNELS = 4;
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t plane)
    {
        uint32_t big[CHANNELS], small[CHANNELS];
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            if (Mode::STRICT)
                split_to_tf32(words[c], &big[c], &small[c]);
            else
                big[c] = round_to_tf32(words[c]);
        }
        store_quad(to, big);
        if (Mode::STRICT)
            store_quad(to + plane, small);
    }
    /* One pixel's channels, as bits. */
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t plane)
    {
        store(values, to, plane);
    }
};

struct quad_of_16_bits {
    static constexpr int PIXELS = 2, CHANNELS = 8;
    template <int selected>
    static __device__ __forceinline__ void store_one(const uint32_t (&words)[CHANNELS], uint32_t to)
    {
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            pairs[c] = __byte_perm(words[2 * c], words[2 * c + 1], selected);
        store_quad(to, pairs);
    }
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t)
    {
        store_one<0x5410>(words, to);
        store_one<0x7632>(words, to + TCONV_WGMMA_QUAD);
    }
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t)
    {
        store_one<0x5410>(values, to);
    }
};
template <> struct quad_of<f16_mode> : quad_of_16_bits {
};
template <> struct quad_of<bf16_mode> : quad_of_16_bits {
};

/* count lane's pixels, `step` pixels apart, of one quad: all loaded before the first is stored. */
template <class Mode, int count>
__device__ __forceinline__ void convert(uint32_t from, uint32_t channel_bytes, uint32_t to, uint32_t plane, int step)
{
    using Quad = quad_of<Mode>;
    uint32_t words[count][Quad::CHANNELS];
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int c = 0; c < Quad::CHANNELS; c++)
            words[i][c] = load_word(from + c * channel_bytes + i * step * (uint32_t)sizeof(typename Mode::Element));
#pragma unroll
    for (int i = 0; i < count; i++)
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
    const int first_pixel = (warp % quad_warps * WARP + lane) * Quad::PIXELS, step = quad_warps * WARP * Quad::PIXELS;
    ring box = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            barrier_wait(shared.box_full + 8 * box.at, box.parity);
            barrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            for (int quad = first_quad; quad < quads; quad += quad_step) {
                const uint32_t from = shared.boxes + box.at * layer.box_bytes + quad * Quad::CHANNELS * channel_bytes;
                const uint32_t to = shared.stages + stage.at * layer.stage_bytes + quad * quad_bytes;
                int pixel = first_pixel;
#pragma unroll 1
                for (; pixel + (AT_ONCE - 1) * step < patch; pixel += AT_ONCE * step)
                    convert<Mode, AT_ONCE>(from + pixel * element, channel_bytes, to + pixel * TCONV_WGMMA_QUAD, plane,
                                           step);
#pragma unroll 1
                for (; pixel < patch; pixel += step)
                    convert<Mode, 1>(from + pixel * element, channel_bytes, to + pixel * TCONV_WGMMA_QUAD, plane, step);
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
                    Quad::store_pixel(values, to + quad * quad_bytes + pixel * TCONV_WGMMA_QUAD, plane);
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
    uint32_t weights[TCONV_WGMMA_UNITS], pixels[TCONV_WGMMA_UNITS];
    uint32_t weights_step, pixels_step;   /* to the next tap or step */
    uint32_t weights_small, pixels_small; /* to the plane of what rounding left */
};

/* A warpgroup's sums; lost: in compensated mode, by how much each is too large. */
template <class Mode, int N> struct accumulators {
    float sums[UNITS][N / 2];
    float lost[Mode::COMPENSATED ? UNITS : 1][Mode::COMPENSATED ? N / 2 : 1];
};

/* count products of each of the first `units` units. */
template <class Mode, int N, int count, int units>
__device__ __forceinline__ void multiply(accumulators<Mode, N> &to, factors &at, int accumulate)
{
    using Product = product<Mode::TYPE, N>;
    products_begin();
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int unit = 0; unit < units; unit++)
            Product::add(to.sums[unit], operand(at.weights[unit] + i * at.weights_step),
                         operand(at.pixels[unit] + i * at.pixels_step), i > 0 ? 1 : accumulate);
    products_commit();
    products_wait<1>();
}

/* The same in strict f32: small products first, from zero; then their sum joins the others. */
template <class Mode, int N, int count>
__device__ __forceinline__ void multiply_strict(accumulators<Mode, N> &to, const factors &at, int unit, int accumulate)
{
    using Product = product<Mode::TYPE, N>;
    const uint32_t weights = at.weights[unit], pixels = at.pixels[unit];
    float partial[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        partial[i] = 0;
    products_begin();
#pragma unroll
    for (int i = 0; i < count; i++) {
        const uint32_t weight = weights + i * at.weights_step, pixel = pixels + i * at.pixels_step;
        Product::add(partial, operand(weight + at.weights_small), operand(pixel), i > 0);
        Product::add(partial, operand(weight), operand(pixel + at.pixels_small), 1);
    }
#pragma unroll
    for (int i = 0; i < count; i++)
        Product::add(partial, operand(weights + i * at.weights_step), operand(pixels + i * at.pixels_step), 1);
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        if (!accumulate) {
            to.sums[unit][i] = partial[i];
            if (Mode::COMPENSATED)
                to.lost[unit][i] = 0;
        } else if (Mode::COMPENSATED) {
            add_compensated(to.sums[unit][i], to.lost[unit][i], partial[i]);
        } else {
            to.sums[unit][i] += partial[i];
        }
    }
}

/* The buffers that the products under way still read: told to be empty when those are done. 0: nothing to tell, as always
 * in threads that do not signal. */
struct pending_release {
    uint32_t slot, stage;
    __device__ __forceinline__ void release()
    {
        barrier_arrive_unless_0(slot);
        barrier_arrive_unless_0(stage);
        slot = stage = 0;
    }
};

/* Buffers, in units of 16 bytes, as those that multiply walk them. */
struct buffer_walk {
    uint32_t barrier, buffer, parity;
    uint32_t first_barrier, first_buffer, step, end;
    __device__ __forceinline__ buffer_walk(uint32_t barriers, uint32_t buffers, uint32_t bytes, int count)
        : barrier(barriers), buffer(operand_address(buffers)), parity(0), first_barrier(barriers),
          first_buffer(operand_address(buffers)), step(bytes >> 4), end(barriers + 8 * count)
    {
    }
    __device__ __forceinline__ void next()
    {
        const bool wraps = barrier + 8 == end;
        barrier = wraps ? first_barrier : barrier + 8;
        buffer = wraps ? first_buffer : buffer + step;
        parity ^= wraps;
    }
};

/* How the products of a slot follow one another: along the taps of a row, once for each step, or, where there is one tap,
 * along the steps. */
struct slot_order {
    int runs, count;
    bool odd; /* unit 0 has one tap more */
    uint32_t run_weights, run_pixels;
};

/* One group of products of the first `units` units, and on to the next. */
template <class Mode, int N, int count, int units>
__device__ __forceinline__ void multiply_stroke(accumulators<Mode, N> &to, factors &at, int &accumulate,
                                                pending_release &pending)
{
    if (Mode::STRICT) {
#pragma unroll
        for (int unit = 0; unit < units; unit++)
            multiply_strict<Mode, N, count>(to, at, unit, accumulate);
    } else {
        multiply<Mode, N, count, units>(to, at, accumulate);
    }
#pragma unroll
    for (int unit = 0; unit < units; unit++) {
        at.weights[unit] += count * at.weights_step;
        at.pixels[unit] += count * at.pixels_step;
    }
    accumulate = 1;
    pending.release();
}

/* A run: TCONV_WGMMA_STROKE products at a time, then what is left of them, then the one that only unit 0 has. */
template <class Mode, int N>
__device__ __forceinline__ void multiply_run(accumulators<Mode, N> &to, factors &at, int count, bool odd,
                                             int &accumulate, pending_release &pending)
{
    static_assert(TCONV_WGMMA_STROKE == 4, "as here");
#pragma unroll 1
    for (; count >= 4; count -= 4)
        multiply_stroke<Mode, N, 4, UNITS>(to, at, accumulate, pending);
    if (count == 3)
        multiply_stroke<Mode, N, 3, UNITS>(to, at, accumulate, pending);
    else if (count == 2)
        multiply_stroke<Mode, N, 2, UNITS>(to, at, accumulate, pending);
    else if (count == 1)
        multiply_stroke<Mode, N, 1, UNITS>(to, at, accumulate, pending);
    if (odd)
        multiply_stroke<Mode, N, 1, 1>(to, at, accumulate, pending);
}

/* ------------------------------------------------------------------------------------------------------------- storing */

/* How a warp's sums go through its staging memory, in two turns: a unit's 16 rows of M each or, where the units are two
 * column phases, 8 rows of both, interleaved. */
template <class Mode, int N, bool interleaved> struct staging {
    using Element = typename Mode::Element;
    static constexpr bool HALVES = interleaved;
    static constexpr int ROWS = HALVES ? STAGED_ROWS / 2 : STAGED_ROWS;
    static constexpr int ROW_PIXELS = interleaved ? 2 : 1; /* elements for each pixel */
    static constexpr int PITCH = ROW_PIXELS * tconv_wgmma_staged_pitch(N, sizeof(Element));
};
template <class Mode, int N> constexpr int STAGED_BYTES = tconv_wgmma_staged_bytes(N, sizeof(typename Mode::Element));

/* Where a turn of a warp begins in dst: the first of its rows of M, and the first row of its unit. */
struct turn_place {
    int first_of_group; /* output channel */
    int channels;       /* of the turn's rows that exist */
    int row;            /* of dst; may be past the last */
    int64_t offset;     /* elements, of that row and channel */
};

template <class Staging>
__device__ __forceinline__ turn_place find_turn(const tconv_wgmma_parameters &layer, const tile_place &tile, int group,
                                                int warp, int turn)
{
    const int m = warp * STAGED_ROWS + (Staging::HALVES ? turn * Staging::ROWS : 0), unit = Staging::HALVES ? 0 : turn;
    turn_place place;
    place.first_of_group = tile.block % layer.group_blocks * layer.block_channels + m % layer.block_channels;
    place.channels = min(Staging::ROWS, layer.group_out - place.first_of_group);
    place.row =
        (tile.row + layer.unit_row[group][unit] + m / layer.block_channels) * layer.stride_h + layer.row_residue[group];
    place.offset =
        tile.image * layer.dst_image +
        ((int64_t)(tile.block / layer.group_blocks) * layer.group_out + place.first_of_group) * layer.dst_channel +
        (int64_t)place.row * layer.out_columns + tile.column * Staging::ROW_PIXELS;
    return place;
}

/* The bytes by which a row of dst is past a multiple of 16: bulk copies want the staged row to be so as well. */
template <class Element>
__device__ __forceinline__ int shift_of(const tconv_wgmma_parameters &layer, const turn_place &place)
{
    return layer.store_bulk ? (int)(uintptr_t)(static_cast<Element *>(layer.dst) + place.offset) & 15 : 0;
}

__device__ __forceinline__ void stage_pair(char *to, float first, float second, float)
{
    *reinterpret_cast<float2 *>(to) = make_float2(first, second);
}
template <class Half> __device__ __forceinline__ void stage_pair(char *to, float first, float second, Half)
{
    element_vector<Half, 2> pair;
    pair.at[0] = from_compute<Half>(first);
    pair.at[1] = from_compute<Half>(second);
    *reinterpret_cast<element_vector<Half, 2> *>(to) = pair;
}

/* Unit `turn`. Of the four sums for each 8 pixels, the first two are of row lane / 4 of the warp's 16, the others of 8 rows
 * on; bias is of these two rows. Selected by values, not by index, so that the sums stay in registers. */
template <class Mode, int N>
__device__ __forceinline__ void stage_rows(const float (&sums)[UNITS][N / 2], const float (&bias)[2], char *staged,
                                           int turn, int lane)
{
    using Staging = staging<Mode, N, false>;
    constexpr int element = sizeof(typename Mode::Element);
    char *to = staged + lane / 4 * Staging::PITCH + lane % 4 * 2 * element;
    const typename Mode::Element type = {};
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = 4 * j + 2 * half;
            const float first = turn == 0 ? sums[0][i] : sums[1][i];
            const float second = turn == 0 ? sums[0][i + 1] : sums[1][i + 1];
            stage_pair(to + half * 8 * Staging::PITCH + j * 8 * element, first + bias[half], second + bias[half], type);
        }
    }
}

/* Both column phases, side by side; swapped where unit 0 is the odd one. */
template <class Mode, int N>
__device__ __forceinline__ void stage_phases(const float (&sums)[UNITS][N / 2], const float (&bias)[2], bool swapped,
                                             char *staged, int turn, int lane)
{
    using Staging = staging<Mode, N, true>;
    constexpr int element = sizeof(typename Mode::Element);
    char *to = staged + lane / 4 * Staging::PITCH + lane % 4 * 4 * element;
    const float add = turn == 0 ? bias[0] : bias[1];
    const typename Mode::Element type = {};
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int i = 4 * j + k;
            const float zero = add + (turn == 0 ? sums[0][i] : sums[0][i + 2]);
            const float one = add + (turn == 0 ? sums[1][i] : sums[1][i + 2]);
            stage_pair(to + (j * 16 + k * 2) * element, swapped ? one : zero, swapped ? zero : one, type);
        }
    }
}
/* Of rows lane / 4 and lane / 4 + 8 of the warp's 16. */
template <class Element>
__device__ __forceinline__ void load_bias(const tconv_wgmma_parameters &layer, const tile_place &tile, int warp,
                                          int lane, float (&bias)[2])
{
    const Element *from = static_cast<const Element *>(layer.bias) + tile.block / layer.group_blocks * layer.group_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int m = warp * STAGED_ROWS + lane / 4 + 8 * i;
        const int channel = tile.block % layer.group_blocks * layer.block_channels + m % layer.block_channels;
        bias[i] = layer.bias != NULL && channel < layer.group_out ? to_compute(from[channel]) : 0.0f;
    }
}

template <class Mode, int N>
__device__ __forceinline__ void consume(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                        int lane)
{
    constexpr uint32_t EMPTY = 8 * TCONV_WGMMA_STAGES; /* from a buffer's full to its empty barrier */
    accumulators<Mode, N> to;
    const int group = warp / GROUP_WARPS;
    const bool signals = (int)threadIdx.x % (GROUP_WARPS * WARP) == 0;
    using Element = typename Mode::Element;
    buffer_walk stage(shared.stage_full, shared.stages, layer.stage_bytes, layer.stages);
    buffer_walk slot(shared.slot_full, shared.slots, layer.slot_bytes, layer.slots);
    uint32_t staged_parity = ~0u; /* a bit for each buffer */

    slot_order order;
    factors at;
    order.odd = layer.column_taps[0] > layer.column_taps[1];
    const bool along_steps = layer.column_taps[0] == 1;
    order.runs = along_steps ? 1 : layer.steps;
    order.count = along_steps ? layer.steps : layer.column_taps[1];
    order.run_weights = layer.step_weights;
    order.run_pixels = 2 * layer.patch;
    at.weights_small = PRODUCT_ROWS;
    at.pixels_small = layer.steps * 2 * layer.patch;
    at.weights_step = along_steps ? layer.step_weights : Mode::PLANES * PRODUCT_ROWS;
    at.pixels_step = along_steps ? 2 * layer.patch : -layer.column_step;
    const int row_taps = layer.row_taps[group], max_row_taps = layer.max_row_taps, chunks = layer.chunks;
    uint32_t first_weights[UNITS], first_pixel[UNITS];
#pragma unroll
    for (int unit = 0; unit < UNITS; unit++) {
        first_weights[unit] = operand_low(0, PRODUCT_HALF) + group * layer.group_weights + unit * layer.unit_weights;
        first_pixel[unit] = operand_low(0, layer.patch * TCONV_WGMMA_QUAD) + layer.unit_pixel[group][unit];
    }

    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int skipped = tile.column + layer.first_column - box_column(layer, tile);
        float bias[2];
        load_bias<Element>(layer, tile, warp % GROUP_WARPS, lane, bias);
        pending_release pending = {0, 0};
        int accumulate = 0;
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; chunk++) {
            barrier_wait(stage.barrier, stage.parity);
            uint32_t pixels = stage.buffer + skipped;
#pragma unroll 1
            for (int row_tap = 0; row_tap < max_row_taps; row_tap++) {
                barrier_wait(slot.barrier, slot.parity);
                if (row_tap < row_taps) {
#pragma unroll 1
                    for (int run = 0; run < order.runs; run++) {
#pragma unroll
                        for (int unit = 0; unit < UNITS; unit++) {
                            at.weights[unit] = first_weights[unit] + slot.buffer + run * order.run_weights;
                            at.pixels[unit] = first_pixel[unit] + pixels + run * order.run_pixels;
                        }
                        multiply_run<Mode, N>(to, at, order.count, order.odd, accumulate, pending);
                    }
                } else {
                    products_wait<0>();
                    pending.release();
                }
                pixels -= layer.row_step;
                pending.slot = signals ? slot.barrier + EMPTY : 0;
                slot.next();
            }
            pending.stage = signals ? stage.barrier + EMPTY : 0;
            stage.next();
        }
        products_wait<0>();
        pending.release();

        const bool interleaved = layer.column_phases == 2;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int buffer = layer.staged_turns == 2 ? turn : 0, place_of_warp = warp * TURNS + buffer;
            char *staged = shared.staged + (warp * layer.staged_turns + buffer) * STAGED_BYTES<Mode, N>;
            barrier_wait(shared.staged_empty + 8 * place_of_warp, staged_parity >> buffer & 1);
            staged_parity ^= 1 << buffer;
            if (interleaved) {
                using Staging = staging<Mode, N, true>;
                const turn_place place = find_turn<Staging>(layer, tile, group, warp % GROUP_WARPS, turn);
                stage_phases<Mode, N>(to.sums, bias, layer.first_phase == 1, staged + shift_of<Element>(layer, place),
                                      turn, lane);
            } else {
                using Staging = staging<Mode, N, false>;
                const turn_place place = find_turn<Staging>(layer, tile, group, warp % GROUP_WARPS, turn);
                stage_rows<Mode, N>(to.sums, bias, staged + shift_of<Element>(layer, place), turn, lane);
            }
            fence_for_async_proxy();
            __syncwarp();
            if (lane == 0)
                barrier_arrive(shared.staged_full + 8 * place_of_warp);
        }
    }
}

/* The ends of a row of dst that no bulk copy may write, in bytes: it begins at a multiple of 16 less head. */
struct row_ends {
    int head, middle, tail;
    __device__ __forceinline__ row_ends(int shift, int bytes)
    {
        head = min(-shift & 15, bytes);
        middle = (bytes - head) & ~15;
        tail = bytes - head - middle;
    }
};

__device__ __forceinline__ void copy_pairs(char *to, const char *from, int bytes)
{
    for (int i = 0; i < bytes; i += 4)
        *reinterpret_cast<uint32_t *>(to + i) = *reinterpret_cast<const uint32_t *>(from + i);
}

/* Rows by bulk copies, which one lane asks for; their ends by a lane each. */
__device__ __forceinline__ void store_rows_bulk(char *to, int64_t channel, const char *from, int pitch, int channels,
                                                int length, int shift, int lane)
{
    const row_ends ends(shift, length);
    if (lane == 0 && ends.middle > 0) {
        char *target = to + ends.head;
        uint32_t source = shared_address(from + ends.head);
        for (int c = 0; c < channels; c++, target += channel, source += pitch)
            store_bulk(target, source, ends.middle);
    }
    __syncwarp();
    const int row = lane % STAGED_ROWS;
    if (row < channels) {
        const int at = lane < STAGED_ROWS ? 0 : ends.head + ends.middle;
        copy_pairs(to + row * channel + at, from + row * pitch + at, lane < STAGED_ROWS ? ends.head : ends.tail);
    }
}

/* Rows of dst that bulk copies cannot write, or not fast, vector elements at a time: the addresses allow it, and length is a
 * multiple of it. Short rows are shared out among the lanes, several rows are on their way at once. */
template <class Mode, int vector, int rows>
__device__ __forceinline__ void store_rows(typename Mode::Element *to, int64_t channel, const char *from, int pitch,
                                           int channels, int length, int lane)
{
    using Element = typename Mode::Element;
    using Elements = element_vector<Element, vector>;
    constexpr int AT_ONCE = Mode::STRICT ? 1 : vector == 4 ? 2 : 4;
    const int row_lanes = length > 16 * vector ? 32 : length > 8 * vector ? 16 : 8;
    const int first_row = lane / row_lanes, row_step = WARP / row_lanes;
    for (int column = lane % row_lanes * vector; column < length; column += row_lanes * vector) {
        const char *from_row = from + column * sizeof(Element) + first_row * pitch;
        Element *to_row = to + column + first_row * channel;
#pragma unroll 1
        for (int c = first_row; c < channels; c += AT_ONCE * row_step) {
            Elements elements[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (c + i * row_step < rows)
                    elements[i] = *reinterpret_cast<const Elements *>(from_row + i * row_step * pitch);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (c + i * row_step < channels)
                    *reinterpret_cast<Elements *>(to_row) = elements[i];
                to_row += row_step * channel;
            }
            from_row += AT_ONCE * row_step * pitch;
        }
    }
}

/* What one warp of a warpgroup staged in one turn. */
template <class Mode, class Staging>
__device__ __forceinline__ void store_turn(const tconv_wgmma_parameters &layer, const tile_place &tile,
                                           const char *staged, int group, int warp, int turn, int lane)
{
    using Element = typename Mode::Element;
    const turn_place place = find_turn<Staging>(layer, tile, group, warp, turn);
    const int length =
        min(layer.tile_columns * Staging::ROW_PIXELS, layer.out_columns - tile.column * Staging::ROW_PIXELS);
    const int shift = shift_of<Element>(layer, place);
    Element *to = static_cast<Element *>(layer.dst) + place.offset;
    const char *from = staged + shift;
    for (int i = 0; i < layer.unit_rows; i++) {
        if (place.row + i * layer.stride_h >= layer.out_rows)
            break;
        if (layer.store_bulk)
            store_rows_bulk(reinterpret_cast<char *>(to), layer.dst_channel * sizeof(Element), from, Staging::PITCH,
                            place.channels, length * sizeof(Element), shift, lane);
        else if (layer.store_vector == 4)
            store_rows<Mode, 4, Staging::ROWS>(to, layer.dst_channel, from, Staging::PITCH, place.channels, length,
                                               lane);
        else if (layer.store_vector == 2)
            store_rows<Mode, 2, Staging::ROWS>(to, layer.dst_channel, from, Staging::PITCH, place.channels, length,
                                               lane);
        else
            store_rows<Mode, 1, Staging::ROWS>(to, layer.dst_channel, from, Staging::PITCH, place.channels, length,
                                               lane);
        to += (int64_t)layer.stride_h * layer.out_columns;
        from += layer.pitch * Staging::ROW_PIXELS * sizeof(Element);
    }
}

/* Stores what the warps of one warpgroup stage. A buffer is told to be empty when the bulk copies of the next one have been
 * asked for, so that the copy engine always has some to do. */
template <class Mode, int N>
__device__ __forceinline__ void store_tiles(const tconv_wgmma_parameters &layer, const shared_layout &shared, int group,
                                            int lane)
{
    uint32_t parity = 0, pending = 0;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        for (int turn = 0; turn < TURNS; turn++) {
            const int buffer = layer.staged_turns == 2 ? turn : 0;
            for (int warp = 0; warp < GROUP_WARPS; warp++) {
                const int consumer = group * GROUP_WARPS + warp, place_of_warp = consumer * TURNS + buffer;
                const char *staged = shared.staged + (consumer * layer.staged_turns + buffer) * STAGED_BYTES<Mode, N>;
                barrier_wait(shared.staged_full + 8 * place_of_warp, parity >> buffer & 1);
                if (layer.column_phases == 2)
                    store_turn<Mode, staging<Mode, N, true>>(layer, tile, staged, group, warp, turn, lane);
                else
                    store_turn<Mode, staging<Mode, N, false>>(layer, tile, staged, group, warp, turn, lane);
                stores_commit();
                stores_wait_read<1>();
                __syncwarp();
                if (lane == 0)
                    barrier_arrive_unless_0(pending);
                pending = shared.staged_empty + 8 * place_of_warp;
            }
            parity ^= 1 << buffer;
        }
    }
    stores_wait();
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
    shared.staged_empty = shared.staged_full + 8 * CONSUMER_WARPS * TURNS;
    shared.boxes = memory;
    shared.slots = shared.boxes + layer.boxes * layer.box_bytes;
    shared.stages = shared.slots + layer.slots * layer.slot_bytes;
    shared.staged =
        buffers + layer.boxes * layer.box_bytes + layer.slots * layer.slot_bytes + layer.stages * layer.stage_bytes;
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
    for (int i = 0; i < CONSUMER_WARPS * TURNS; i++) {
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
