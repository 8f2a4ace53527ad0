/*
 * Layers with fewer taps and more output channels, which are the same in memory. Taps k = s * j + r of an axis with stride s
 * and dilation 1 reach outputs s * q + r: an axis of outputs q, of taps j and stride 1, of which each residue r has channels of
 * its own. Where residues and channels are as far apart in the gradient of dst as in that of the weights, they are one axis
 * of channels; where the other axis has one input and one output, residues become its outputs and its taps.
 */
#ifndef TCONV_CUDA_OUTER_FOLD_H
#define TCONV_CUDA_OUTER_FOLD_H

#include "../../core/impl.h"

namespace tconv::outer
{

constexpr int MOST_FOLDED = 2;

/* Some of a layer's taps as a layer, or as several that are alike. */
struct folded {
    tconv_problem problem;
    int64_t dst, weights;           /* elements from the first of the layer's tensors to the first of these */
    int64_t count;                  /* of layers that are alike */
    int64_t dst_step, weights_step; /* elements from one of them to the next */
};

/* Folds the axes of a layer that have one input, too many taps for tables, or channels that are no vectors but together
 * are. Returns of how many folded ones the layer is made then, at most MOST_FOLDED; 0 where none of its axes is folded. */
int fold(const tconv_problem *problem, folded (&made)[MOST_FOLDED]);

/* The layer of a folded problem, on the device of another. */
tconv_layer layer_of(const tconv_layer *of, const tconv_problem *problem);

} // namespace tconv::outer

#endif
