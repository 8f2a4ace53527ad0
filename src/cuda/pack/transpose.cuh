/* Transposes tiles of channels by pixels through shared memory, from planes (NCHW) to pixels (NHWC). Where a word of a
 * pixel lies depends on the pixel, so that no two lanes meet in a bank on either side. */
#ifndef TCONV_CUDA_PACK_TRANSPOSE_CUH
#define TCONV_CUDA_PACK_TRANSPOSE_CUH

#include "transpose.h"

#include <cstdint>

namespace tconv
{

constexpr int TRANSPOSE_RUNS = 8;                                                 /* of a row of threads */
template <class Element> constexpr int TRANSPOSE_RUN = 16 / (int)sizeof(Element); /* pixels of a vector of a plane */
template <class Element> constexpr int WORD_CHANNELS = 4 / (int)sizeof(Element);
template <class Element> constexpr int TRANSPOSE_CHANNELS = TRANSPOSE_WORDS *WORD_CHANNELS<Element>; /* of a tile */

/* A run of pixels of each channel of a word. */
template <class Element> struct transposed_run {
    uint32_t words[WORD_CHANNELS<Element>][4];
    __device__ __forceinline__ uint32_t word_of(int pixel) const
    {
        if constexpr (sizeof(Element) == 4)
            return words[0][pixel];
        else
            return __byte_perm(words[0][pixel / 2], words[1][pixel / 2], pixel % 2 == 0 ? 0x5410 : 0x7632);
    }
};

/* Where a vector of a pixel lies in a tile. */
template <class Element> __device__ __forceinline__ int transposed_place(int pixel, int vector)
{
    return pixel * TRANSPOSE_VECTORS + (vector ^ pixel / TRANSPOSE_RUN<Element> % TRANSPOSE_VECTORS);
}

/* Fills a tile: load(pixel, channel, run) loads the run that begins there. All loads come before the first store. */
template <class Element, class Load> __device__ __forceinline__ void read_transposed(uint32_t *tile, Load load)
{
    constexpr int RUN = TRANSPOSE_RUN<Element>, TIMES = TRANSPOSE_PIXELS / RUN / TRANSPOSE_RUNS;
    static_assert(TRANSPOSE_THREADS / TRANSPOSE_RUNS == TRANSPOSE_WORDS, "a row of threads for each word");
    const int word = (int)threadIdx.x / TRANSPOSE_RUNS, first = (int)threadIdx.x % TRANSPOSE_RUNS * RUN;
    transposed_run<Element> runs[TIMES];
#pragma unroll
    for (int i = 0; i < TIMES; i++)
        load(first + i * TRANSPOSE_RUNS * RUN, word * WORD_CHANNELS<Element>, runs[i]);
#pragma unroll
    for (int i = 0; i < TIMES; i++)
#pragma unroll
        for (int j = 0; j < RUN; j++)
            tile[transposed_place<Element>(first + i * TRANSPOSE_RUNS * RUN + j, word / 4) * 4 + word % 4] =
                runs[i].word_of(j);
}

/* Stores a tile's pixels, pixel_vectors from one to the next, as far as pixels and vectors are there. */
template <class Element>
__device__ __forceinline__ void store_transposed_tile(uint4 *to, int64_t pixel_vectors, int pixels, int64_t vectors,
                                                      const uint4 *tile)
{
#pragma unroll
    for (int i = 0; i < TRANSPOSE_PIXELS * TRANSPOSE_VECTORS / TRANSPOSE_THREADS; i++) {
        const int item = (int)threadIdx.x + i * TRANSPOSE_THREADS;
        const int pixel = item / TRANSPOSE_VECTORS, vector = item % TRANSPOSE_VECTORS;
        if (pixel < pixels && vector < vectors)
            to[pixel * pixel_vectors + vector] = tile[transposed_place<Element>(pixel, vector)];
    }
}

} // namespace tconv

#endif
