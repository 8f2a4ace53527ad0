/* What the host side of Hopper's kernels needs beside the guard: tensor maps, and whether the build has code for a device. */
#ifndef TCONV_CUDA_HOPPER_H
#define TCONV_CUDA_HOPPER_H

#include <cuda.h>

#include "../core/impl.h"
#include "guard.h"

constexpr int TCONV_HOPPER_BOX_ALIGNMENT = 16; /* bytes, of addresses and strides that the copy engine takes */

/* What the copy engine is told of a tensor of four axes, innermost first: strides in bytes of all but the innermost, whose
 * elements follow one another; a box is what one copy brings. Outside of the tensor a box is zeros. */
struct tconv_hopper_tensor {
    tconv_dtype dtype;
    CUtensorMapSwizzle swizzle;
    const void *data;
    cuuint64_t extents[4], strides[3];
    cuuint32_t box[4];
    bool rounds = false; /* f32 to TF32, on the way: to nearest, ties to even */
};

/* Describes it; false where the copy engine cannot read it as it lies, or the driver has no tensor maps. */
bool tconv_hopper_encode(const tconv_hopper_tensor *tensor, CUtensorMap *map);

/* Extents of a layer, and what a kernel computes of them in 32 bits, are below this. */
constexpr int64_t TCONV_HOPPER_MAX_EXTENT = (int64_t)1 << 28;

/* Why no kernel of Hopper's takes the layer; NULL where one may. */
const char *tconv_hopper_why_not(const tconv_layer *layer);

/* Of a launch and whatever else takes as long for every tile: part of what the implementations estimate to take. */
constexpr double TCONV_HOPPER_LAUNCH_CYCLES = 6000;

/* Whether the build has kernel's code for the device: elsewhere it is made for fewer threads. */
bool tconv_hopper_has_code(const void *kernel, int threads, int device);

/* Launches a kernel on device. shared_bytes is always the same for a kernel (tconv_cuda_allow_shared). */
tconv_status tconv_hopper_launch(const tconv_cuda_grid *grid, void **arguments, int device, void *stream,
                                 tconv_issue *issue);

#endif
