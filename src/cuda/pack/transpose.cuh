/* Transposes tiles of channels by pixels through shared memory, from planes (NCHW) to pixels (NHWC). Where a word of a
 * pixel lies depends on the pixel, so that no two lanes meet in a bank on either side. */
#ifndef TCONV_CUDA_PACK_TRANSPOSE_CUH
#define TCONV_CUDA_PACK_TRANSPOSE_CUH

#include "../hardware.h"
#include "transpose.h"

#include <cstdint>

namespace tconv
{

constexpr int TRANSPOSE_RUNS = 8;                                                 /* of a row of eight lanes */
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

/* A warp has eight runs of each of four words; there are so many such rows of runs, and of such columns for a thread. */
template <class Element> constexpr int TRANSPOSE_ROWS = TRANSPOSE_PIXELS / TRANSPOSE_RUN<Element> / TRANSPOSE_RUNS;
template <class Element> constexpr int TRANSPOSE_STEP = TRANSPOSE_CHANNELS<Element> / TRANSPOSE_ROWS<Element>;
static_assert(TRANSPOSE_THREADS == TRANSPOSE_WORDS * TRANSPOSE_RUNS, "a thread has a run of each row");
template <class Element> using thread_runs = transposed_run<Element>[TRANSPOSE_ROWS<Element>];

/* Where a vector of a pixel lies in a tile. */
template <class Element> __device__ __forceinline__ unsigned transposed_place(unsigned pixel, unsigned vector)
{
    return pixel * TRANSPOSE_VECTORS + (vector ^ pixel / TRANSPOSE_RUN<Element> % TRANSPOSE_VECTORS);
}

/* Fills a tile: load(pixel, channel, runs) loads a thread's runs, which begin at that pixel and TRANSPOSE_STEP channels from one to the
 * next, so that their pixels are found once. All loads come before the first store. */
template <class Element, class Load> __device__ __forceinline__ void read_transposed(uint32_t *tile, Load load)
{
    constexpr int RUN = TRANSPOSE_RUN<Element>, ROWS = TRANSPOSE_ROWS<Element>;
    const unsigned row = threadIdx.x / WARP % ROWS, run = threadIdx.x % TRANSPOSE_RUNS;
    const unsigned word = threadIdx.x / (WARP * ROWS) * 4 + threadIdx.x / TRANSPOSE_RUNS % 4;
    const unsigned pixel = (row * TRANSPOSE_RUNS + run) * RUN;
    thread_runs<Element> runs;
    load((int)pixel, (int)word * WORD_CHANNELS<Element>, runs);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < RUN; j++)
            tile[transposed_place<Element>(pixel + j, (word + i * TRANSPOSE_WORDS / ROWS) / 4) * 4 + word % 4] =
                runs[i].word_of(j);
}

/* Stores a tile's pixels, pixel_vectors from one to the next, as far as pixels and vectors are there. */
template <class Element>
__device__ __forceinline__ void store_transposed_tile(uint4 *to, int64_t pixel_vectors, int pixels, int64_t vectors,
                                                      const uint4 *tile)
{
    constexpr int STEP = TRANSPOSE_THREADS / TRANSPOSE_VECTORS;
    const unsigned first = threadIdx.x / TRANSPOSE_VECTORS, vector = threadIdx.x % TRANSPOSE_VECTORS;
    const int left = vector < vectors ? pixels - (int)first : 0;
    to += first * pixel_vectors + vector;
#pragma unroll
    for (int i = 0; i < TRANSPOSE_PIXELS; i += STEP, to += STEP * pixel_vectors)
        if (i < left)
            *to = tile[transposed_place<Element>(first + i, vector)];
}

} // namespace tconv

#endif
