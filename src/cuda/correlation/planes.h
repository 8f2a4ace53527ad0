/*
 * Space-to-depth of one axis of the gradient of dst, so that the gradient of src is a forward layer of stride 1 over it.
 *
 * Kernel element k reads output stride * i + dilation * k - pad for input i. Elements a kernel_step apart (core/phases.h)
 * read the same outputs, for inputs a shift_step apart: stride * shift_step = dilation * kernel_step. So the outputs of
 * element k, one for each position i, are a plane, and up to `taps` elements k + t * kernel_step are taps of it:
 *
 *     plane[j]    = diff_dst[stride * j + dilation * k - pad], zero outside          j < positions = in + halo
 *     diff_src[i] = sum over planes and t < taps of plane[i + t * shift_step] * weights[k + t * kernel_step]
 *
 * With as many taps as a phase has there is a plane for each phase, and phases of fewer taps meet weights of zero; with
 * one tap there is a plane for each kernel element, as in im2col, and nothing is multiplied in vain. Elements that reach
 * no output at either end of the kernel are left out: first_kernel is the first of the others, from which k counts.
 *
 * As a forward layer, whose taps run backwards: a kernel of `taps` elements, of which e is tap taps - 1 - e, dilation
 * shift_step, and padding of halo = (taps - 1) * shift_step at either end.
 */
#ifndef TCONV_CUDA_CORRELATION_PLANES_H
#define TCONV_CUDA_CORRELATION_PLANES_H

#include "../../core/phases.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define TCONV_BOTH_SIDES __host__ __device__
#else
#define TCONV_BOTH_SIDES
#endif

/* Coordinates of an axis are below this, so that sums of a few fit in 32 bits; strides are below the second, so that
 * whole vectors of positions past the last may be asked for. */
#define TCONV_CUDA_PLANES_EXTENT ((int64_t)1 << 28)
#define TCONV_CUDA_PLANES_STRIDE ((int64_t)1 << 25)

typedef struct tconv_cuda_planes {
    int count, positions;
    int taps, halo;
    int stride, dilation, pad, out; /* pad: less that of the elements before first_kernel */
    int first_kernel, kernel;       /* of the layer's kernel elements, those that are not left out */
    int kernel_step, shift_step;
    int plane_step; /* taps * kernel_step: each so many elements have kernel_step planes */
} tconv_cuda_planes;

/* Describes the planes of a valid axis, with the taps of a phase each or with one; false where its numbers are too
 * large. */
bool tconv_cuda_planes_of(const tconv_axis *axis, bool per_tap, tconv_cuda_planes *planes);

/* The kernel element of a plane's tap 0, less first_kernel. */
TCONV_BOTH_SIDES static inline int tconv_cuda_plane_element(const tconv_cuda_planes *of, int plane)
{
    return plane / of->kernel_step * of->plane_step + plane % of->kernel_step;
}

/* The output at a position of the plane whose tap 0 is so many elements from first_kernel on; there may be none. */
TCONV_BOTH_SIDES static inline int tconv_cuda_plane_output(const tconv_cuda_planes *of, int element, int position)
{
    return of->stride * position + of->dilation * element - of->pad;
}

/* The kernel element that an element of the forward layer's kernel is, of a plane as above; -1: none, its weights are
 * zero. */
TCONV_BOTH_SIDES static inline int tconv_cuda_plane_weight(const tconv_cuda_planes *of, int element, int forward)
{
    const int k = element + (of->taps - 1 - forward) * of->kernel_step;
    return k < of->kernel ? of->first_kernel + k : -1;
}

#ifdef __cplusplus
}
#endif

#endif
