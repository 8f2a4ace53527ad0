/* The kernels that make copies (copies.h): one transposes, the other pads. */
#include "copy_kernels.h"

#include "../hardware.h"
#include "../numeric/divisor.cuh"
#include "../pack/transpose.cuh"
#include "../ptx/memory.cuh"

namespace tconv::wgrad
{

namespace
{

constexpr int COPY_BLOCKS = 3; /* of a multiprocessor, at least: without it ptxas takes registers for two */

/* Loads a vector of a channel's pixels, so many bytes at once; zeros where pixels do not exist. */
template <class Element, int BYTES>
__device__ __forceinline__ void load_run(uint32_t (&words)[4], const Element *plane, int64_t pixel, int64_t end)
{
    constexpr int UNIT = BYTES / (int)sizeof(Element);
#pragma unroll
    for (int i = 0; i < TRANSPOSE_RUN<Element>; i += UNIT) {
        const bool exists = pixel + i >= 0 && pixel + i < end;
        const Element *from = plane + pixel + i;
        const int word = i * (int)sizeof(Element) / 4;
        if constexpr (BYTES == 16) {
            const uint4 loaded = load_if(exists, reinterpret_cast<const uint4 *>(from));
            words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
        } else if constexpr (BYTES == 8) {
            const uint2 loaded = exists ? __ldg(reinterpret_cast<const uint2 *>(from)) : make_uint2(0, 0);
            words[word] = loaded.x, words[word + 1] = loaded.y;
        } else if constexpr (BYTES == 4) {
            words[word] = load_if(exists, reinterpret_cast<const uint32_t *>(from));
        } else {
            const uint32_t loaded = load_if(exists, from);
            words[word] = i % 2 == 0 ? loaded : words[word] | loaded << 16;
        }
    }
}

template <class Element, int BYTES>
__device__ __forceinline__ void read_tile(uint32_t *tile, const transposed_copy &of, int image, int channel, int pixel)
{
    const Element *first = static_cast<const Element *>(of.from) + image * of.image + channel * of.channel;
    read_transposed<Element>(tile, [&](int run_pixel, int run_channel, thread_runs<Element> &runs) {
        const int64_t at = of.first + pixel + run_pixel;
#pragma unroll
        for (int i = 0; i < TRANSPOSE_ROWS<Element>; i++)
#pragma unroll
            for (int c = 0; c < WORD_CHANNELS<Element>; c++) {
                const int of_tile = run_channel + i * TRANSPOSE_STEP<Element> + c;
                load_run<Element, BYTES>(runs[i].words[c], first + of_tile * of.channel, at,
                                         channel + of_tile < of.channels ? of.plane : 0);
            }
    });
}

template <class Element>
__global__ void __launch_bounds__(TRANSPOSE_THREADS, COPY_BLOCKS)
    copy_kernel(const __grid_constant__ transposed_copies p)
{
    static_assert(TRANSPOSE_CHANNELS<Element> * sizeof(Element) == COPY_TILE_BYTES, "the host's size");
    __shared__ uint4 shared[TRANSPOSE_PIXELS * TRANSPOSE_VECTORS];
    uint32_t *tile = reinterpret_cast<uint32_t *>(shared);
    for (int number = (int)blockIdx.x; number < p.tensors[0].tiles + p.tensors[1].tiles; number += (int)gridDim.x) {
        const bool second = number >= p.tensors[0].tiles;
        const transposed_copy &of = p.tensors[second];
        const int in = second ? number - p.tensors[0].tiles : number;
        const int channel_tile = in % of.channel_tiles, rest = in / of.channel_tiles;
        const int pixel = rest % of.pixel_tiles * TRANSPOSE_PIXELS, image = rest / of.pixel_tiles;
        const int channel = channel_tile * TRANSPOSE_CHANNELS<Element>;
        if (of.load_bytes == 16)
            read_tile<Element, 16>(tile, of, image, channel, pixel);
        else if (of.load_bytes == 8)
            read_tile<Element, 8>(tile, of, image, channel, pixel);
        else if (sizeof(Element) == 4 || of.load_bytes == 4)
            read_tile<Element, 4>(tile, of, image, channel, pixel);
        else if constexpr (sizeof(Element) == 2)
            read_tile<Element, 2>(tile, of, image, channel, pixel);
        __syncthreads();
        const int vector = channel_tile * TRANSPOSE_VECTORS;
        store_transposed_tile<Element>(static_cast<uint4 *>(of.copy) +
                                           ((int64_t)image * of.pixels + pixel) * of.vectors + vector,
                                       of.vectors, of.pixels - pixel, of.vectors - vector, shared);
        __syncthreads();
    }
}

/* Copies a vector of channels with a thread, by words that all begin at multiples of their size, zeros where there are
 * none. */
template <class Word> __global__ void __launch_bounds__(PAD_THREADS) pad_kernel(const __grid_constant__ padded_copy of)
{
    constexpr int WORDS = VECTOR_BYTES / (int)sizeof(Word);
    const int64_t step = (int64_t)gridDim.x * PAD_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * PAD_THREADS + threadIdx.x; i < of.count; i += step) {
        const int64_t of_all = divide(i, of.vectors), image = divide(of_all, of.pixels);
        const int64_t pixel = of.first + of_all - image * of.pixels;
        const int first = (int)(i - of_all * of.vectors) * VECTOR_BYTES;
        const int left = pixel >= 0 && pixel < of.plane ? of.channels - first : 0;
        const char *from = of.from + image * of.image + pixel * of.pixel + first;
        union {
            Word words[WORDS];
            uint4 all;
        } loaded;
#pragma unroll
        for (int word = 0; word < WORDS; word++)
            loaded.words[word] =
                word * (int)sizeof(Word) < left ? __ldg(reinterpret_cast<const Word *>(from) + word) : Word{};
        static_cast<uint4 *>(of.copy)[i] = loaded.all;
    }
}

} // namespace

const void *tconv_wgrad_transpose_kernel(size_t element_size)
{
    return element_size == 2 ? (const void *)copy_kernel<uint16_t> : (const void *)copy_kernel<uint32_t>;
}

const void *tconv_wgrad_pad_kernel(int word_bytes)
{
    return word_bytes == 16  ? (const void *)pad_kernel<uint4>
           : word_bytes == 8 ? (const void *)pad_kernel<uint2>
           : word_bytes == 4 ? (const void *)pad_kernel<uint32_t>
                             : (const void *)pad_kernel<uint16_t>;
}

} // namespace tconv::wgrad
