/*
 * src as the B operand of wgmma: channels along N, and the pixels of a K-tile along K, in boxes of rows of 128 bytes
 * with TMA's swizzle. Vectors of channels of 16 bits are copied without a transposition, so that the operand is
 * MN-major and a row is 64 channels of a pixel. Otherwise a thread moves a block of channels by pixels through its
 * registers, where it transposes it and rounds f32 to TF32; the operand is K-major then, and a row is 128 bytes of
 * pixels of a channel.
 */
#ifndef TCONV_CUDA_WGRAD_SRC_OPERAND_CUH
#define TCONV_CUDA_WGRAD_SRC_OPERAND_CUH

#include "load.cuh"
#include "rounding.cuh"

namespace tconv::wgrad
{

constexpr int BLOCK_CHANNELS = 4;   /* of a block of src in a thread's registers; 16 bytes of pixels of each */
constexpr int SWIZZLED_BYTES = 128; /* a row of a box; its vectors are numbered by the row's number, xor */
constexpr int VECTORS = SWIZZLED_BYTES / ACCESS_BYTES;

struct src_block {
    uint32_t at[BLOCK_CHANNELS][4];
};

/* The block of src that a thread moves in every K-tile. Lanes have neighbours in memory: all pixels first, then
 * channels. Where channels are vectors, lanes have 4 vectors of pixels by 128 bytes of channels, so that no two of
 * eight lanes store to the same banks. */
template <class Element, load_mode LOAD> struct block_place {
    static constexpr int PIXELS = ACCESS_BYTES / (int)sizeof(Element);
    static constexpr int OFFSETS = LOAD == CHANNELS ? PIXELS : 1; /* single elements are too many to keep theirs */
    int vector, channel;                                          /* number of 16 bytes of pixels; first channel */
    const place *inputs;                                          /* the pixels */
    int offsets[OFFSETS];                                         /* theirs, or that of the first */
    __device__ __forceinline__ block_place(int number, int vectors_log2, const place *all)
    {
        vector = number & ((1 << vectors_log2) - 1);
        channel = number >> vectors_log2 << 2;
        if constexpr (LOAD == CHANNELS) {
            const int warp = number / WARP, warps_log2 = vectors_log2 - 2;
            vector = (warp & ((1 << warps_log2) - 1)) << 2 | number % 4;
            channel = (warp >> warps_log2) * SWIZZLED_BYTES / (int)sizeof(Element) + number / 4 % 8 * BLOCK_CHANNELS;
        }
        inputs = all + vector * PIXELS;
#pragma unroll
        for (int i = 0; i < OFFSETS; i++)
            offsets[i] = inputs[i].offset;
    }
    __device__ __forceinline__ bool exists(const origin &from, int i) const
    {
        return from.all || from.has(inputs[i]);
    }
};

/* Loads `unit` neighbours of 16 bits into words of a block; zeros where they do not exist. */
template <int unit> __device__ __forceinline__ void load_unit(uint32_t *to, const char *data, bool exists)
{
    if constexpr (unit == 8) {
        const uint4 words = exists ? __ldg(reinterpret_cast<const uint4 *>(data)) : make_uint4(0, 0, 0, 0);
        to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
    } else if constexpr (unit == 4) {
        const uint2 words = exists ? __ldg(reinterpret_cast<const uint2 *>(data)) : make_uint2(0, 0);
        to[0] = words.x, to[1] = words.y;
    } else {
        to[0] = exists ? __ldg(reinterpret_cast<const uint32_t *>(data)) : 0;
    }
}

/* Loads a block of 16 bits, `unit` pixels at once. */
template <int unit>
__device__ __forceinline__ void load_units(src_block &to, int first_channel, const place *inputs, const origin &from)
{
#pragma unroll
    for (int i = 0; i < 8; i += unit) {
        const place at = inputs[i];
        const int existing = from.all || from.has(at) ? from.channels : 0;
        const char *data = from.data + at.offset + first_channel * from.channel_stride;
        asm volatile("" : "+l"(data)); /* or addresses of all pixels are kept in registers */
#pragma unroll
        for (int c = 0; c < BLOCK_CHANNELS; c++, data += from.channel_stride)
            load_unit<unit>(to.at[c] + i / 2, data, first_channel + c < existing);
    }
}

/* Calls `what` with 8, 4 or 2 as a constant. */
template <class Do> __device__ __forceinline__ void with_unit(int unit, Do what)
{
    if (unit == 8)
        what(std::integral_constant<int, 8>());
    else if (unit == 4)
        what(std::integral_constant<int, 4>());
    else
        what(std::integral_constant<int, 2>());
}

/* Loads a block, with zeros where there is no input. unit: the pixels that one load brings, in load mode LINES, and for
 * single elements of f32 where it is 2. */
template <class Element, load_mode LOAD>
__device__ __forceinline__ void load_block(src_block &to, const block_place<Element, LOAD> &at, const origin &from,
                                           int unit)
{
    const auto load = [](const char *data, bool exists) {
        return exists ? __ldg(reinterpret_cast<const uint4 *>(data)) : make_uint4(0, 0, 0, 0);
    };
    const auto put = [&](int row, const uint4 &vector) {
        to.at[row][0] = vector.x, to.at[row][1] = vector.y, to.at[row][2] = vector.z, to.at[row][3] = vector.w;
    };
    if constexpr (LOAD == CHANNELS) { /* of f32: a row is a pixel */
        const char *data = from.data + at.channel * (int)sizeof(Element);
#pragma unroll
        for (int i = 0; i < 4; i++)
            put(i, load(data + at.offsets[i], at.channel < from.channels && at.exists(from, i)));
    } else if constexpr (LOAD == LINES) {
        with_unit(unit, [&](auto of) { load_units<of>(to, at.channel, at.inputs, from); });
    } else if (sizeof(Element) == 4 && unit == 2) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int existing = at.exists(from, i) ? from.channels : 0;
            const char *data = from.data + at.inputs[i].offset + at.channel * from.channel_stride;
            asm volatile("" : "+l"(data)); /* as below */
#pragma unroll
            for (int c = 0; c < BLOCK_CHANNELS; c++, data += from.channel_stride)
                load_unit<4>(to.at[c] + i, data, at.channel + c < existing);
        }
    } else {
        const char *data = from.data + at.channel * from.channel_stride;
#pragma unroll
        for (int i = 0; i < at.PIXELS; i++) {
            const int existing = at.exists(from, i) ? from.channels : 0;
            const char *pixel = data + at.inputs[i].offset;
            asm volatile("" : "+l"(pixel)); /* or addresses of all pixels are kept in registers */
#pragma unroll
            for (int c = 0; c < BLOCK_CHANNELS; c++, pixel += from.channel_stride) {
                if constexpr (sizeof(Element) == 4) {
                    to.at[c][i] = at.channel + c < existing ? __ldg(reinterpret_cast<const uint32_t *>(pixel)) : 0;
                } else {
                    const uint32_t half =
                        at.channel + c < existing ? __ldg(reinterpret_cast<const uint16_t *>(pixel)) : 0;
                    to.at[c][i / 2] = i % 2 == 0 ? half : to.at[c][i / 2] | half << 16;
                }
            }
        }
    }
}

/* Stores a block to the operand, which has `channels` channels. */
template <class Element, load_mode LOAD>
__device__ __forceinline__ void store_block(const src_block &of, const block_place<Element, LOAD> &at, uint32_t to,
                                            int channels)
{
    to += (at.vector / VECTORS * channels + at.channel) * SWIZZLED_BYTES;
#pragma unroll
    for (int c = 0; c < BLOCK_CHANNELS; c++) {
        uint32_t row[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            row[i] = LOAD == CHANNELS ? of.at[i][c] : of.at[c][i];
            if constexpr (sizeof(Element) == 4)
                round_factor<false>(row[i], nullptr);
        }
        store_shared(to + c * SWIZZLED_BYTES + (at.vector ^ (at.channel + c)) % VECTORS * ACCESS_BYTES,
                     make_uint4(row[0], row[1], row[2], row[3]));
    }
}

/* Copies a K-tile's channels, as vectors of 16 bits, to boxes of 64 channels, zeros where they do not exist. A warp
 * copies four vectors of eight pixels. */
__device__ __forceinline__ void copy_boxes(crew by, uint32_t to, const place *inputs, int pixels_log2, int channels,
                                           const origin &from)
{
    const int warp = by.thread / WARP, lane = by.thread % WARP, warps_log2 = pixels_log2 - 3;
    const int pixel = (warp & ((1 << warps_log2) - 1)) << 3 | lane % 8;
    const int step = by.threads / WARP >> warps_log2 << 2;
    const place at = inputs[pixel];
    const int existing = from.all || from.has(at) ? from.channels : 0;
    const char *data = from.data + at.offset;
    const uint32_t box = (uint32_t)SWIZZLED_BYTES << pixels_log2;
    to += pixel * SWIZZLED_BYTES;
#pragma unroll 4
    for (int vector = (warp >> warps_log2 << 2) + lane / 8; vector < channels / 8; vector += step)
        cp_async_padded<ACCESS_BYTES>(to + vector / VECTORS * box + (vector ^ pixel) % VECTORS * ACCESS_BYTES,
                                      data + vector * ACCESS_BYTES, vector * 8 < existing ? ACCESS_BYTES : 0);
}

} // namespace tconv::wgrad

#endif
