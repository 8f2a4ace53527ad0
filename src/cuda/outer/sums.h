/* The passes that every gradient of weights and bias on CUDA shares: adding the slices up, and the gradient of the bias. */
#ifndef TCONV_CUDA_OUTER_SUMS_H
#define TCONV_CUDA_OUTER_SUMS_H

#include "../../core/impl.h"
#include "tiles.h"

namespace tconv::outer
{

/* Slices as sums.cu reads them: of float, or of double. */
struct slices {
    sum_tiles tiles;
    int64_t count; /* 0: all sums are 0 */
    bool are_double;
};

/* Launches the kernel that adds the slices in order, in double, and rounds to the layer's dtype once. */
tconv_status add_slices(const tconv_layer *layer, const slices *of, const void *memory, void *weights, void *stream,
                        tconv_issue *issue);

/* Bytes of scratch that the gradient of the bias takes. */
size_t bias_scratch(const tconv_layer *layer);

/* Launches the kernels that sum the gradient of dst over all images and outputs of a channel: parts of an order that the
 * layer fixes, in double, compensated. */
tconv_status sum_bias(const tconv_layer *layer, const void *diff_dst, void *scratch, void *bias, void *stream,
                      tconv_issue *issue);

} // namespace tconv::outer

#endif
