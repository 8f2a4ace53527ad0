/* How planes or elements of src become a K-major B operand: the channels of a pixel that are a row of a core matrix
 * (CORE_ROW_BYTES) are stored at once, rounded or split on the way. */
#ifndef TCONV_CUDA_GEMM_CORE_ROWS_CUH
#define TCONV_CUDA_GEMM_CORE_ROWS_CUH

#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "shape.h"

#include <cstdint>

namespace tconv
{

/* A row of a core matrix as it lies in shared memory. */
struct core_row_words {
    uint32_t at[CORE_ROW_BYTES / 4];
};

/* The bits of an element of src; 0 where there is none. */
__device__ __forceinline__ uint32_t load_element(const float *from, bool exists)
{
    return exists ? __float_as_uint(*from) : 0;
}
template <class Half> __device__ __forceinline__ uint32_t load_element(const Half *from, bool exists)
{
    return exists ? *reinterpret_cast<const uint16_t *>(from) : 0;
}

/* The core matrix rows of one lane's pixels: one pixel of f32, two of the 16-bit types. A word is what one load brings:
 * a channel of these pixels. */
template <class Mode, int element_bytes = sizeof(typename Mode::Element)> struct core_rows {
    static constexpr int PIXELS = 1, CHANNELS = 4;
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t plane)
    {
        uint32_t big[CHANNELS], small[CHANNELS];
        round_or_split<Mode::STRICT>(words, big, small);
        store_shared(to, big);
        if (Mode::STRICT)
            store_shared(to + plane, small);
    }
    static __device__ __forceinline__ void store_rounded(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t)
    {
        store_shared(to, words);
    }
    /* Stores only pixels whose column exists: the first one's is `column`. */
    static __device__ __forceinline__ void store_inside(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t plane,
                                                        int column, int columns)
    {
        if ((unsigned)column < (unsigned)columns)
            store(words, to, plane);
    }
    /* Stores one pixel's channels, as bits. */
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t plane)
    {
        store(values, to, plane);
    }
};

template <class Mode> struct core_rows<Mode, 2> {
    static constexpr int PIXELS = 2, CHANNELS = 8;
    static constexpr uint32_t LOW = 0x5410, HIGH = 0x7632; /* of two words, as __byte_perm selects them */
    static __device__ __forceinline__ void store_one(const uint32_t (&words)[CHANNELS], uint32_t selected, uint32_t to)
    {
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            pairs[c] = __byte_perm(words[2 * c], words[2 * c + 1], selected);
        store_shared(to, pairs);
    }
    /* Lanes are 32 bytes apart: every other four of them store their second pixel first, so that no bank is met twice.
     * The second pixel lies `next` bytes after the first. */
    static __device__ __forceinline__ void store_rounded(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t next)
    {
        const bool second = (threadIdx.x & 4) != 0;
        store_one(words, second ? HIGH : LOW, to + (second ? next : 0));
        store_one(words, second ? LOW : HIGH, to + (second ? 0 : next));
    }
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t)
    {
        store_rounded(words, to, CORE_ROW_BYTES);
    }
    static __device__ __forceinline__ void store_inside(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t,
                                                        int column, int columns)
    {
        const int second = (threadIdx.x & 4) != 0;
        if ((unsigned)(column + second) < (unsigned)columns)
            store_one(words, second ? HIGH : LOW, to + second * CORE_ROW_BYTES);
        if ((unsigned)(column + 1 - second) < (unsigned)columns)
            store_one(words, second ? LOW : HIGH, to + (1 - second) * CORE_ROW_BYTES);
    }
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t)
    {
        store_one(values, LOW, to);
    }
};

} // namespace tconv

#endif
