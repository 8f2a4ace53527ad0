/* Turns a small src from NCHW to NHWC through shared memory, beside the packing of weights. */
#ifndef TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH
#define TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../pack/boxes.cuh"
#include "parameters.h"

namespace tconv::igemm
{

/* A tile: pixels by channels, which lie in words of 4 bytes, so pitched that neither side meets itself in a bank often. */
constexpr int TURN_PIXELS = 64, TURN_WORDS = 32, TURN_PITCH = TURN_WORDS + 1;
constexpr int TURN_QUADS = TURN_WORDS * 4 / TCONV_IGEMM_QUAD; /* of a pixel */
constexpr int64_t TURN_SHARED_BYTES = TURN_PIXELS * TURN_PITCH * 4;

template <class Element> constexpr int WORD_CHANNELS = 4 / (int)sizeof(Element);

/* A word of each of `count` neighbouring pixels: src's channels from `from` on, of which `left` exist. */
template <class Element, int count>
__device__ __forceinline__ void load_words(const Element *from, int64_t channel_step, int left,
                                           element_vector<Element, WORD_CHANNELS<Element>> (&words)[count])
{
#pragma unroll
    for (int c = 0; c < WORD_CHANNELS<Element>; c++) {
        element_vector<Element, count> pixels;
        if (c < left)
            pixels = *reinterpret_cast<const element_vector<Element, count> *>(from + c * channel_step);
#pragma unroll
        for (int i = 0; i < count; i++)
            words[i].at[c] = c < left ? pixels.at[i] : from_compute<Element>(0);
    }
}

/* Reads a tile, `count` neighbouring pixels at a time. */
template <class Element, int count>
__device__ __forceinline__ void read_tile(const tconv_igemm_turning &turning, int first_pixel, int first_channel,
                                          uint32_t *tile)
{
    using Word = element_vector<Element, WORD_CHANNELS<Element>>;
    constexpr int GROUPS = TURN_PIXELS / count, ROUNDS = GROUPS * TURN_WORDS / PACK_THREADS;
    constexpr int STEP = PACK_THREADS / GROUPS; /* words */
    const int group = (int)threadIdx.x % GROUPS, first_word = (int)threadIdx.x / GROUPS;
    const int pixel = first_pixel + group * count;
    const quotient image = divide(min(pixel, turning.pixels - 1), turning.by_image);
    const quotient row = divide(image.rest, turning.by_columns);
    const Element *from = static_cast<const Element *>(turning.src) + image.whole * turning.from.n +
                          row.whole * turning.from.h + row.rest * turning.from.w;
    const int channels = pixel < turning.pixels ? turning.channels : 0;
    Word words[ROUNDS][count];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int channel = first_channel + (first_word + i * STEP) * WORD_CHANNELS<Element>;
        load_words<Element, count>(from + channel * turning.from.c, turning.from.c, channels - channel, words[i]);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++)
#pragma unroll
        for (int k = 0; k < count; k++)
            tile[(group * count + k) * TURN_PITCH + first_word + i * STEP] =
                *reinterpret_cast<const uint32_t *>(&words[i][k]);
}

/* Turns the tile of this number, in TURN_SHARED_BYTES of shared memory. */
template <class Element> __device__ __forceinline__ void turn_tile(const tconv_igemm_turning &turning, int number)
{
    extern __shared__ uint4 shared[];
    uint32_t *tile = reinterpret_cast<uint32_t *>(shared);
    const quotient place = divide(number, turning.by_channel_tiles);
    const int first_pixel = place.whole * TURN_PIXELS;
    const int first_channel = place.rest * TURN_WORDS * WORD_CHANNELS<Element>;
    if (turning.vectors)
        read_tile<Element, 16 / (int)sizeof(Element)>(turning, first_pixel, first_channel, tile);
    else
        read_tile<Element, 1>(turning, first_pixel, first_channel, tile);
    __syncthreads();
    uint4 *to = static_cast<uint4 *>(turning.to);
#pragma unroll
    for (int item = (int)threadIdx.x; item < TURN_PIXELS * TURN_QUADS; item += PACK_THREADS) {
        const int of_pixel = item % TURN_QUADS, quad = place.rest * TURN_QUADS + of_pixel;
        const int of_tile = item / TURN_QUADS, pixel = first_pixel + of_tile;
        const uint32_t *words = tile + of_tile * TURN_PITCH + of_pixel * 4;
        if (pixel < turning.pixels && quad < turning.pixel_quads)
            to[(int64_t)pixel * turning.pixel_quads + quad] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

} // namespace tconv::igemm

#endif
