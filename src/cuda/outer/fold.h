/*
 * Space-to-depth of a layer by its strides alone: layers with fewer taps and more output channels, which are the same in
 * memory. Taps k = s * j + r of an axis with stride s and dilation 1 reach outputs s * q + r: an axis of outputs q, of taps
 * j and stride 1, of which each residue r has channels of its own. Where residues and channels are as far apart in the gradient of dst as in that of the weights, they are one axis
 * of channels; where the other axis has one input and one output, residues become its outputs and its taps.
 */
#ifndef TCONV_CUDA_OUTER_FOLD_H
#define TCONV_CUDA_OUTER_FOLD_H

#include "../../core/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TCONV_CUDA_MOST_FOLDED = 2 };

/* Some of a layer's taps as a layer, or as several that are alike. */
typedef struct tconv_cuda_folded {
    tconv_problem problem;
    int64_t dst, weights;           /* elements from the first of the layer's tensors to the first of these */
    int64_t count;                  /* of layers that are alike */
    int64_t dst_step, weights_step; /* elements from one of them to the next */
} tconv_cuda_folded;

/* Folds the axes of a layer that have one input, more taps than most_taps, or channels that are no vectors but together are.
 * Returns of how many folded ones the layer is made then, at most TCONV_CUDA_MOST_FOLDED; 0 where none of its axes is
 * folded. */
int tconv_cuda_fold(const tconv_problem *problem, int64_t most_taps, tconv_cuda_folded made[TCONV_CUDA_MOST_FOLDED]);

#ifdef __cplusplus
}
#endif

#endif
