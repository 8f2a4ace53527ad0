/* The layout transform of a small src from NCHW to NHWC through shared memory, beside the packing of weights. */
#ifndef TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH
#define TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH

#include "../numeric/divisor.cuh"
#include "../pack/boxes.cuh"
#include "../pack/transpose.cuh"
#include "../ptx/memory.cuh"
#include "parameters.h"
#include "transpose_src.h"

namespace tconv::igemm
{

/* A pixel of the transposed src, and where src has it, past the first channel of a tile. */
template <class Element> struct transposed_pixel {
    const Element *from;
    int row, column; /* of src */
    bool exists;

    /* src: of the volume, from the channel on; pixel: of the volume. */
    __device__ __forceinline__ transposed_pixel(const src_transpose &transpose, const Element *src, int pixel)
        : exists(pixel < transpose.pixels)
    {
        const quotient image = divide(min(pixel, transpose.pixels - 1), transpose.by_image);
        const quotient of_image = divide(image.rest, transpose.by_columns);
        row = of_image.whole + transpose.first_row;
        column = of_image.rest + transpose.first_column;
        from = src + (image.whole * transpose.from.n + row * transpose.from.h + column * transpose.from.w);
    }
    __device__ __forceinline__ bool is_read(const src_transpose &transpose) const
    {
        return exists && (unsigned)row < (unsigned)transpose.rows && (unsigned)column < (unsigned)transpose.columns;
    }
};

/* Loads runs of pixels that follow one another in src. left: the channels that there are from the first on. */
template <class Element>
__device__ __forceinline__ void load_vectors(const src_transpose &transpose, const Element *src, int pixel, int left,
                                             thread_runs<Element> &runs)
{
    const transposed_pixel<Element> at(transpose, src, pixel);
    const bool exists = at.is_read(transpose);
#pragma unroll
    for (int i = 0; i < TRANSPOSE_ROWS<Element>; i++)
#pragma unroll
        for (int c = 0; c < WORD_CHANNELS<Element>; c++) {
            const int channel = i * TRANSPOSE_STEP<Element> + c;
            const uint4 loaded = load_if(exists && channel < left,
                                         reinterpret_cast<const uint4 *>(at.from + channel * transpose.from.c));
            uint32_t(&words)[4] = runs[i].words[c];
            words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
        }
}

/* Loads pixels one by one. */
template <class Element>
__device__ __forceinline__ void load_pixels(const src_transpose &transpose, const Element *src, int pixel, int left,
                                            thread_runs<Element> &runs)
{
    constexpr int EACH = 4 / (int)sizeof(Element); /* of a word */
#pragma unroll
    for (int j = 0; j < TRANSPOSE_RUN<Element>; j++) {
        const transposed_pixel<Element> at(transpose, src, pixel + j);
        const bool exists = at.is_read(transpose);
#pragma unroll
        for (int i = 0; i < TRANSPOSE_ROWS<Element>; i++)
#pragma unroll
            for (int c = 0; c < WORD_CHANNELS<Element>; c++) {
                const int channel = i * TRANSPOSE_STEP<Element> + c;
                const uint32_t loaded = load_if(exists && channel < left, at.from + channel * transpose.from.c);
                uint32_t &word = runs[i].words[c][j / EACH];
                word = j % EACH == 0 ? loaded : word | loaded << 16;
            }
    }
}

/* Transposes the tile of this number, in TRANSPOSE_BYTES of shared memory. */
template <class Element> __device__ __forceinline__ void transpose_tile(const src_transpose &transpose, int number)
{
    extern __shared__ uint4 shared[];
    static_assert(PACK_THREADS == TRANSPOSE_THREADS, "they share a launch");
    uint32_t *tile = reinterpret_cast<uint32_t *>(shared);
    const quotient place = divide(number, transpose.by_channel_tiles),
                   of_volume = divide(place.whole, transpose.by_volume_tiles);
    const int first_pixel = of_volume.rest * TRANSPOSE_PIXELS, first_channel = place.rest * TRANSPOSE_CHANNELS<Element>;
    const Element *src = static_cast<const Element *>(transpose.src) + of_volume.whole * transpose.volume;
    read_transposed<Element>(tile, [&](int pixel, int channel, thread_runs<Element> &runs) {
        const Element *from = src + (first_channel + channel) * transpose.from.c;
        const int left = transpose.channels - first_channel - channel;
        if (transpose.vectors)
            load_vectors<Element>(transpose, from, first_pixel + pixel, left, runs);
        else
            load_pixels<Element>(transpose, from, first_pixel + pixel, left, runs);
    });
    __syncthreads();
    const int first_vector = place.rest * TRANSPOSE_VECTORS;
    const int64_t to_pixel = (int64_t)of_volume.whole * transpose.pixels + first_pixel;
    store_transposed_tile<Element>(
        static_cast<uint4 *>(transpose.to) + to_pixel * transpose.pixel_vectors + first_vector, transpose.pixel_vectors,
        transpose.pixels - first_pixel, transpose.pixel_vectors - first_vector, shared);
}

} // namespace tconv::igemm

#endif
