/*
 * Operands of 16 bits for wgmma from tensors that lie by octets (NCHW): K are pixels, which are neighbours in memory. An octet,
 * eight neighbouring pixels of a row, is 16 bytes of a channel; those of all channels follow one another, K-major without
 * swizzle. Of the gradient of dst each tap of a row has octets of its own, since the outputs that it reaches begin at a column
 * of its own, `stride` apart: a thread loads a window that holds those of all taps, and picks each tap's out of its registers.
 */
#ifndef TCONV_CUDA_OUTER_OCTET_OPERANDS_CUH
#define TCONV_CUDA_OUTER_OCTET_OPERANDS_CUH

#include "src_operand.cuh"

namespace tconv::outer
{

constexpr int OCTET = 8, OCTET_BYTES = 16;
constexpr int MAX_SHIFT = 16; /* outputs from a window's first to a tap's */

/* The octet of a tap that begins so far in a window. */
template <int stride, int shift, int octets>
__device__ __forceinline__ uint4 pick_octet(const uint32_t (&window)[4 * octets])
{
    uint32_t made[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        constexpr uint32_t LOW[] = {0x10, 0x32}, HIGH[] = {0x5400, 0x7600};
        const int one = shift + 2 * i * stride, other = one + stride;
        made[i] = stride == 1 && shift % 2 == 0
                      ? window[one / 2]
                      : __byte_perm(window[one / 2], window[other / 2], LOW[one % 2] | HIGH[other % 2]);
    }
    return make_uint4(made[0], made[1], made[2], made[3]);
}

/* Calls `what` with the shift as a constant, of at most so much. */
template <int most, class Do> __device__ __forceinline__ void with_shift(int shift, Do what)
{
    static_assert(most <= MAX_SHIFT, "all shifts are listed");
#define TCONV_SHIFT(i)                                                                                                 \
    case i:                                                                                                            \
        if constexpr (i <= most)                                                                                       \
            what(std::integral_constant<int, i>());                                                                    \
        break
    switch (shift) {
        TCONV_SHIFT(0);
        TCONV_SHIFT(1);
        TCONV_SHIFT(2);
        TCONV_SHIFT(3);
        TCONV_SHIFT(4);
        TCONV_SHIFT(5);
        TCONV_SHIFT(6);
        TCONV_SHIFT(7);
        TCONV_SHIFT(8);
        TCONV_SHIFT(9);
        TCONV_SHIFT(10);
        TCONV_SHIFT(11);
        TCONV_SHIFT(12);
        TCONV_SHIFT(13);
        TCONV_SHIFT(14);
        TCONV_SHIFT(15);
        TCONV_SHIFT(16);
    }
#undef TCONV_SHIFT
}

/* The tables of a block: octets of src, and rows of outputs, whose column is that of the first window. */
struct octet_tables {
    const place *octets, *rows;
    int row_count, first_shift, taps; /* taps of a row; where the first one's outputs begin in a window */
};

__device__ __forceinline__ octet_tables make_octet_tables(const parameters &p, const block_tile &block, char *memory)
{
    constexpr int SIZE = (int)sizeof(uint16_t);
    const int images = 1 << p.images_log2, octets = p.k_pixels / OCTET;
    const int least = p.columns.least[block.column_first], window = least & -OCTET;
    const int group = block.at.column_group * p.tiles.columns.group_taps;
    place *inputs = reinterpret_cast<place *>(memory), *rows = inputs + octets;
    const octet_tables made = {inputs, rows, block.row_residues * images * p.rows.extent, least - window,
                               min(p.tiles.columns.group_taps, p.tiles.columns.kernel - group)};
    for (int i = (int)threadIdx.x; i < octets; i += (int)blockDim.x)
        inputs[i] = find_input(p, i * OCTET, SIZE);
    for (int i = (int)threadIdx.x; i < made.row_count; i += (int)blockDim.x) {
        place at;
        at.column = window;
        at.row = p.rows.least[block.row_first + i / p.rows.extent / images] + i % p.rows.extent * p.rows.stride;
        at.image = i / p.rows.extent % images;
        at.offset = (int)(at.image * p.dst_strides.n + at.row * p.dst_strides.h + at.column) * SIZE;
        rows[i] = at;
    }
    return made;
}

/* An item of a thread's: an octet's place in its row, a channel, and which row it is, of as many lanes as are powers of two. */
struct octet_item {
    int octet, channel, row;

    __device__ __forceinline__ octet_item(int number, int octets_log2, int channels_log2)
        : octet(number & ((1 << octets_log2) - 1)), channel(number >> octets_log2 & ((1 << channels_log2) - 1)),
          row(number >> (octets_log2 + channels_log2))
    {
    }
};

/* Copies an octet to shared memory by units; zeros where there is none. */
__device__ __forceinline__ void copy_octet(uint32_t to, int unit, const char *data, int column, int columns, bool exists)
{
    const auto has = [&](int i) { return exists && (unsigned)(column + i) < (unsigned)columns; };
    if (unit == 8)
        return cp_async_padded<16>(to, data, has(0) ? 16 : 0);
    if (unit == 4) {
#pragma unroll
        for (int i = 0; i < OCTET; i += 4)
            cp_async_padded<8>(to + 2 * i, data + 2 * i, has(i) ? 8 : 0);
        return;
    }
    if (unit == 2) {
#pragma unroll
        for (int i = 0; i < OCTET; i += 2)
            cp_async_padded<4>(to + 2 * i, data + 2 * i, has(i) ? 4 : 0);
        return;
    }
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        const uint32_t element = has(i) ? __ldg(reinterpret_cast<const uint16_t *>(data) + i) : 0;
        words[i / 2] = i % 2 == 0 ? element : words[i / 2] | element << 16;
    }
    store_shared(to, make_uint4(words[0], words[1], words[2], words[3]));
}

} // namespace tconv::outer

#endif
