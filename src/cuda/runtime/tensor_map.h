/* Tensor maps: what the tensor memory accelerator (TMA) is told of a tensor. */
#ifndef TCONV_CUDA_RUNTIME_TENSOR_MAP_H
#define TCONV_CUDA_RUNTIME_TENSOR_MAP_H

#include <cuda.h>

#include "tconv/tconv.h"

namespace tconv
{

constexpr int BOX_ALIGNMENT = 16; /* bytes, of addresses and strides that the copy engine takes */

/* What the copy engine is told of a tensor of four axes, innermost first: strides in bytes of all but the innermost, whose
 * elements follow one another; a box is what one copy brings. Outside of the tensor a box is zeros. */
struct tensor_map_recipe {
    tconv_dtype dtype;
    CUtensorMapSwizzle swizzle;
    const void *data;
    cuuint64_t extents[4], strides[3];
    cuuint32_t box[4];
    bool rounds = false; /* f32 to TF32, on the way: to nearest, ties to even */
};

/* Describes it; false where the copy engine cannot read it as it lies, or the driver has no tensor maps. */
bool encode_tensor_map(const tensor_map_recipe *tensor, CUtensorMap *map);

} // namespace tconv

#endif
