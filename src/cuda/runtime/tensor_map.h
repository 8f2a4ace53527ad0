/* Tensor maps describe tensors to the tensor memory accelerator (TMA). */
#ifndef TCONV_CUDA_RUNTIME_TENSOR_MAP_H
#define TCONV_CUDA_RUNTIME_TENSOR_MAP_H

#include "../hardware.h"
#include "tconv/tconv.h"

#ifdef __cplusplus
#define TCONV_ALIGNAS(bytes) alignas(bytes)
#else
#define TCONV_ALIGNAS(bytes) _Alignas(bytes)
#endif

TCONV_ROOM_BEGIN(tconv)

/* What a kernel is given of a tensor (CUtensorMap of the CUDA driver API). */
typedef struct tensor_map {
    TCONV_ALIGNAS(64) uint64_t opaque[16];
} tensor_map;

typedef enum tensor_map_swizzle { SWIZZLE_NONE, SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B } tensor_map_swizzle;

/* A tensor of four axes, innermost first, wherever it lies, and the box that one copy brings, of every step-th element.
 * Outside of the tensor a box is zeros. Where there are volumes, they are the fifth axis, and a box is of one. */
typedef struct tensor_map_recipe {
    tconv_dtype dtype;
    tensor_map_swizzle swizzle;
    uint64_t extents[4]; /* elements */
    uint64_t strides[3]; /* bytes, of all axes but the innermost, whose elements follow one another */
    uint32_t box[4];     /* elements, those stepped over included */
    bool rounds;         /* f32 is rounded to TF32 on the way: to nearest, ties to even */
    uint32_t steps[4];   /* 0: 1 */
    uint64_t volumes;    /* 0: the tensor has four axes */
    uint64_t volume;     /* bytes from one to the next */

    /* Other than 0: im2col. A box has the channels of so many pixels, of each image every step-th of those between the
     * corners, column by column, row by row, image by image. Corners are columns and rows, from the tensor's. */
    uint32_t im2col_pixels;
    int lower[2], upper[2];
} tensor_map_recipe;

/* Makes the tensor map of the tensor at data; false where TMA cannot read the tensor as it lies, or the driver has no
 * tensor maps. */
bool tconv_encode_tensor_map(const tensor_map_recipe *tensor, const void *data, tensor_map *map);

TCONV_ROOM_END

#endif
