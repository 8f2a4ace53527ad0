/*
 * Space-to-depth of a layer by its strides alone: layers with fewer taps and more output channels, which are the same in
 * memory. Taps k = s * j + r of an axis with stride s and dilation 1 reach outputs s * q + r: an axis of outputs q, of taps
 * j and stride 1, of which each residue r has channels of its own. Where residues and channels are as far apart in the gradient of dst as in that of the weights, they are one axis
 * of channels; where the other axis has one input and one output, residues become its outputs and its taps.
 */
#ifndef TCONV_CUDA_OUTER_SPACE_TO_DEPTH_H
#define TCONV_CUDA_OUTER_SPACE_TO_DEPTH_H

#include "../../core/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TCONV_CUDA_MOST_DEPTH_LAYERS = 2 };

/* Some of a layer's taps as a layer, or as several that are alike. */
typedef struct tconv_cuda_depth_layer {
    tconv_problem problem;
    int64_t dst, weights;           /* elements from the first of the layer's tensors to the first of these */
    int64_t count;                  /* of layers that are alike */
    int64_t dst_step, weights_step; /* elements from one of them to the next */
} tconv_cuda_depth_layer;

/* Makes space-to-depth along the axes of a layer that have one input, more taps than most_taps, or channels that are no
 * vectors but together are. Returns the number of layers that have its taps then, at most TCONV_CUDA_MOST_DEPTH_LAYERS; 0
 * where no axis is taken. */
int tconv_cuda_space_to_depth(const tconv_problem *problem, int64_t most_taps,
                              tconv_cuda_depth_layer made[TCONV_CUDA_MOST_DEPTH_LAYERS]);

#ifdef __cplusplus
}
#endif

#endif
