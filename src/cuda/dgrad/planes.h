/*
 * Space-to-depth of one axis of the gradient of dst, so that the gradient of src is a forward layer of stride 1 over
 * it.
 *
 * Kernel element k reads output stride * i + dilation * k - pad for input i. Elements a kernel_step apart
 * (core/phases.h) read the same outputs, for inputs a shift_step apart: stride * shift_step = dilation * kernel_step.
 * So the outputs of element k, one for each position i, are a plane, and elements k + t * kernel_step can be taps of
 * it:
 *
 *     plane k[j]  = diff_dst[stride * j + dilation * k - pad], zero outside          j < positions = in + halo
 *     diff_src[i] = sum over planes k and t < taps of plane k[i + t * shift_step] * weights[k + t * kernel_step]
 *
 * Either there is a plane for each phase, of as many taps as the longest has, and phases of fewer taps meet weights of
 * zero; or one for each kernel element, of one tap, as in im2col, and nothing is multiplied in vain. Elements that
 * reach no output at either end of the kernel are left out: first_kernel is the first of the others, from which k
 * counts.
 *
 * As a forward layer, whose taps run backwards: a kernel of `taps` elements, of which e is tap taps - 1 - e, dilation
 * shift_step, and padding of halo = (taps - 1) * shift_step at either end.
 */
#ifndef TCONV_CUDA_DGRAD_PLANES_H
#define TCONV_CUDA_DGRAD_PLANES_H

#include "../../core/phases.h"
#include "../room.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tconv_cuda_planes {
    int64_t count, positions;
    int64_t taps, halo;
    int64_t stride, dilation, pad, out; /* pad: less that of the elements before first_kernel */
    int64_t first_kernel, kernel;       /* of the layer's kernel elements, those that are not left out */
    int64_t kernel_step, shift_step;
} tconv_cuda_planes;

/* Describes the planes of a valid axis, with the taps of a phase each or with one. */
tconv_cuda_planes tconv_cuda_planes_of(const tconv_axis *axis, bool per_tap);

/* Returns the output at a position of a plane; there may be none. */
TCONV_ROOM_SHARED int64_t tconv_cuda_plane_output(const tconv_cuda_planes *planes, int64_t plane, int64_t position)
{
    return planes->stride * position + planes->dilation * plane - planes->pad;
}

/* Returns the kernel element of a plane that an element of the forward layer's kernel is; -1: there is none, and its
 * weights are zero. */
TCONV_ROOM_SHARED int64_t tconv_cuda_plane_weight(const tconv_cuda_planes *planes, int64_t plane, int64_t forward)
{
    const int64_t k = plane + (planes->taps - 1 - forward) * planes->kernel_step;
    return k < planes->kernel ? planes->first_kernel + k : -1;
}

#ifdef __cplusplus
}
#endif

#endif
