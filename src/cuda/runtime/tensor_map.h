/* Tensor maps describe tensors to the tensor memory accelerator (TMA). */
#ifndef TCONV_CUDA_RUNTIME_TENSOR_MAP_H
#define TCONV_CUDA_RUNTIME_TENSOR_MAP_H

#include <cuda.h>

#include "tconv/tconv.h"

namespace tconv
{

constexpr int BOX_ALIGNMENT = 16; /* bytes, of the addresses and strides that TMA takes (CUDA driver API) */
constexpr int MAX_BOX_STEP = 8;   /* from an element that a box has to the next (likewise, elementStrides) */

/* Of TMA's im2col mode: the pixels of a box, and how far its corners are from the tensor's, and pixels from where the map
 * has them (CUDA driver API, cuTensorMapEncodeIm2col, pixelBoxLowerCorner; PTX ISA, im2colOffsets). */
constexpr int MAX_IM2COL_PIXELS = 1024;
constexpr int MIN_IM2COL_CORNER = -128, MAX_IM2COL_CORNER = 127;
constexpr int MAX_IM2COL_OFFSET = 255;

/* A tensor of four axes, innermost first, and the box that one copy brings, of every step-th element. Outside of the
 * tensor a box is zeros. */
struct tensor_map_recipe {
    tconv_dtype dtype;
    CUtensorMapSwizzle swizzle;
    const void *data;
    cuuint64_t extents[4]; /* elements */
    cuuint64_t strides[3]; /* bytes, of all axes but the innermost, whose elements follow one another */
    cuuint32_t box[4];     /* elements, those stepped over included */
    bool rounds = false;   /* f32 is rounded to TF32 on the way: to nearest, ties to even */
    cuuint32_t steps[4] = {1, 1, 1, 1};

    /* Other than 0: im2col. A box has the channels of so many pixels, of each image every step-th of those between the
     * corners, column by column, row by row, image by image. Corners are columns and rows, from the tensor's. */
    cuuint32_t im2col_pixels = 0;
    int lower[2] = {}, upper[2] = {};
};

/* Makes the tensor map; false where TMA cannot read the tensor as it lies, or the driver has no tensor maps. */
bool encode_tensor_map(const tensor_map_recipe *tensor, CUtensorMap *map);

} // namespace tconv

#endif
