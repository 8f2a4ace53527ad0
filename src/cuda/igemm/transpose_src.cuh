/* The layout transform of a small src from NCHW to NHWC through shared memory, beside the packing of weights. */
#ifndef TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH
#define TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../pack/boxes.cuh"
#include "parameters.h"
#include "transpose_src.h"

namespace tconv::igemm
{

/* A tile is pixels by channels, the channels in words of 4 bytes. */
constexpr int TRANSPOSE_PIXELS = 64;                                    /* pixels of a tile */
constexpr int TRANSPOSE_WORDS = 32;                                     /* words of a pixel of a tile */
constexpr int TRANSPOSE_PITCH = TRANSPOSE_WORDS + 1;                    /* words: few bank conflicts on either side */
constexpr int TRANSPOSE_VECTORS = TRANSPOSE_WORDS * 4 / CORE_ROW_BYTES; /* vectors of 16 bytes of a pixel of a tile */
constexpr int64_t TRANSPOSE_SHARED_BYTES = TRANSPOSE_PIXELS * TRANSPOSE_PITCH * 4;

template <class Element> constexpr int WORD_CHANNELS = 4 / (int)sizeof(Element);

/* Loads a word of each of `count` neighbouring pixels: src's channels from `from` on, of which `left` exist. */
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
__device__ __forceinline__ void read_tile(const src_transpose &transpose, int first_pixel, int first_channel,
                                          uint32_t *tile)
{
    using Word = element_vector<Element, WORD_CHANNELS<Element>>;
    constexpr int RUNS = TRANSPOSE_PIXELS / count, ROUNDS = RUNS * TRANSPOSE_WORDS / PACK_THREADS;
    constexpr int STEP = PACK_THREADS / RUNS; /* words */
    const int run = (int)threadIdx.x % RUNS, first_word = (int)threadIdx.x / RUNS;
    const int pixel = first_pixel + run * count;
    const quotient image = divide(min(pixel, transpose.pixels - 1), transpose.by_image);
    const quotient row = divide(image.rest, transpose.by_columns);
    const int y = row.whole + transpose.first_row, x = row.rest + transpose.first_column;
    const Element *from = static_cast<const Element *>(transpose.src) + image.whole * transpose.from.n +
                          y * transpose.from.h + x * transpose.from.w;
    const bool exists =
        pixel < transpose.pixels && (unsigned)y < (unsigned)transpose.rows && (unsigned)x < (unsigned)transpose.columns;
    const int channels = exists ? transpose.channels : 0;
    Word words[ROUNDS][count];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int channel = first_channel + (first_word + i * STEP) * WORD_CHANNELS<Element>;
        load_words<Element, count>(from + channel * transpose.from.c, transpose.from.c, channels - channel, words[i]);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++)
#pragma unroll
        for (int k = 0; k < count; k++)
            tile[(run * count + k) * TRANSPOSE_PITCH + first_word + i * STEP] =
                *reinterpret_cast<const uint32_t *>(&words[i][k]);
}

/* Transposes the tile of this number, in TRANSPOSE_SHARED_BYTES of shared memory. */
template <class Element> __device__ __forceinline__ void transpose_tile(const src_transpose &transpose, int number)
{
    extern __shared__ uint4 shared[];
    uint32_t *tile = reinterpret_cast<uint32_t *>(shared);
    const quotient place = divide(number, transpose.by_channel_tiles);
    const int first_pixel = place.whole * TRANSPOSE_PIXELS;
    const int first_channel = place.rest * TRANSPOSE_WORDS * WORD_CHANNELS<Element>;
    if (transpose.vectors)
        read_tile<Element, 16 / (int)sizeof(Element)>(transpose, first_pixel, first_channel, tile);
    else
        read_tile<Element, 1>(transpose, first_pixel, first_channel, tile);
    __syncthreads();
    uint4 *to = static_cast<uint4 *>(transpose.to);
#pragma unroll
    for (int item = (int)threadIdx.x; item < TRANSPOSE_PIXELS * TRANSPOSE_VECTORS; item += PACK_THREADS) {
        const int of_pixel = item % TRANSPOSE_VECTORS, vector = place.rest * TRANSPOSE_VECTORS + of_pixel;
        const int of_tile = item / TRANSPOSE_VECTORS, pixel = first_pixel + of_tile;
        const uint32_t *words = tile + of_tile * TRANSPOSE_PITCH + of_pixel * 4;
        if (pixel < transpose.pixels && vector < transpose.pixel_vectors)
            to[(int64_t)pixel * transpose.pixel_vectors + vector] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

} // namespace tconv::igemm

#endif
