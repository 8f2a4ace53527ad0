/*
 * Space-to-depth of a layer by its strides alone, for the gradients: layers with fewer taps and more output
 * channels, which are the same in memory. Taps k = s * j + r of an axis with stride s and dilation 1 reach outputs
 * s * q + r: an axis of outputs q, of taps j and stride 1, of which each residue r has channels of its own. Where residues
 * and channels are as far apart in the gradient of dst as in that of the weights, they are one axis of channels; where the
 * other axis has one input and one output, residues become its outputs and its taps.
 */
#ifndef TCONV_CORE_SPACE_TO_DEPTH_H
#define TCONV_CORE_SPACE_TO_DEPTH_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TCONV_MOST_DEPTH_LAYERS = 2 };

/* Some of a layer's taps as a layer, or as several that are alike. */
typedef struct tconv_depth_layer {
    tconv_problem problem;
    int64_t dst, weights;           /* elements from the first of the layer's tensors to the first of these */
    int64_t count;                  /* of layers that are alike */
    int64_t dst_step, weights_step; /* elements from one of them to the next */
} tconv_depth_layer;

/* Whether space-to-depth along an axis, columns or rows, is worth it. */
typedef bool tconv_depth_is_worth(const tconv_problem *before, const tconv_problem *after, bool columns);

/* Makes space-to-depth along the axes of a layer where it is worth it, at most most_taps of what become taps of the other
 * axis. Returns the number of layers that have its taps then, at most TCONV_MOST_DEPTH_LAYERS; 0 where no axis is taken.
 * All say NHWC, because columns are no neighbours any more. */
int tconv_space_to_depth(const tconv_problem *problem, int64_t most_taps, tconv_depth_is_worth *is_worth,
                         tconv_depth_layer made[TCONV_MOST_DEPTH_LAYERS]);

#ifdef __cplusplus
}
#endif

#endif
