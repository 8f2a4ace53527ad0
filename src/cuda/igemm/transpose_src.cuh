/* The layout transform of a small src from NCHW to NHWC through shared memory, beside the packing of weights. */
#ifndef TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH
#define TCONV_CUDA_IGEMM_TRANSPOSE_SRC_CUH

#include "../numeric/divisor.cuh"
#include "../pack/boxes.cuh"
#include "../pack/transpose.cuh"
#include "parameters.h"
#include "transpose_src.h"

namespace tconv::igemm
{

/* Loads a run of pixels of a volume, one behind the other in src, of the channels of a word. */
template <class Element>
__device__ __forceinline__ void load_vectors(const src_transpose &transpose, const Element *src, int pixel, int channel,
                                             transposed_run<Element> &run)
{
    const quotient image = divide(min(pixel, transpose.pixels - 1), transpose.by_image);
    const quotient row = divide(image.rest, transpose.by_columns);
    const int y = row.whole + transpose.first_row, x = row.rest + transpose.first_column;
    const bool exists =
        pixel < transpose.pixels && (unsigned)y < (unsigned)transpose.rows && (unsigned)x < (unsigned)transpose.columns;
    const Element *from =
        src + image.whole * transpose.from.n + channel * transpose.from.c + y * transpose.from.h + x * transpose.from.w;
#pragma unroll
    for (int c = 0; c < WORD_CHANNELS<Element>; c++) {
        uint4 loaded = make_uint4(0, 0, 0, 0);
        if (exists && channel + c < transpose.channels)
            loaded = __ldg(reinterpret_cast<const uint4 *>(from + c * transpose.from.c));
        run.words[c][0] = loaded.x, run.words[c][1] = loaded.y, run.words[c][2] = loaded.z, run.words[c][3] = loaded.w;
    }
}

/* Loads them one by one. */
template <class Element>
__device__ __forceinline__ void load_pixels(const src_transpose &transpose, const Element *src, int pixel, int channel,
                                            transposed_run<Element> &run)
{
    constexpr int EACH = 4 / (int)sizeof(Element); /* of a word */
#pragma unroll
    for (int i = 0; i < TRANSPOSE_RUN<Element>; i++) {
        const quotient image = divide(min(pixel + i, transpose.pixels - 1), transpose.by_image);
        const quotient row = divide(image.rest, transpose.by_columns);
        const int y = row.whole + transpose.first_row, x = row.rest + transpose.first_column;
        const bool exists = pixel + i < transpose.pixels && (unsigned)y < (unsigned)transpose.rows &&
                            (unsigned)x < (unsigned)transpose.columns;
        const Element *from = src + image.whole * transpose.from.n + channel * transpose.from.c + y * transpose.from.h +
                              x * transpose.from.w;
#pragma unroll
        for (int c = 0; c < WORD_CHANNELS<Element>; c++) {
            const uint32_t loaded =
                exists && channel + c < transpose.channels ? (uint32_t)__ldg(from + c * transpose.from.c) : 0;
            uint32_t &word = run.words[c][i / EACH];
            word = i % EACH == 0 ? loaded : word | loaded << 16;
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
    if (transpose.vectors)
        read_transposed<Element>(tile, [&](int pixel, int channel, transposed_run<Element> &run) {
            load_vectors<Element>(transpose, src, first_pixel + pixel, first_channel + channel, run);
        });
    else
        read_transposed<Element>(tile, [&](int pixel, int channel, transposed_run<Element> &run) {
            load_pixels<Element>(transpose, src, first_pixel + pixel, first_channel + channel, run);
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
