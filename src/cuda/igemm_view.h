/* How the implicit matrix product sees a layer: as it is or, of images of one pixel in NCHW, as one product. */
#ifndef TCONV_CUDA_IGEMM_VIEW_H
#define TCONV_CUDA_IGEMM_VIEW_H

#include "../core/impl.h"

struct tconv_igemm_view {
    tconv_layer layer;   /* what is planned and computed */
    int64_t outputs;     /* of an output channel that are channels of the view's: channel * outputs + output; else 1 */
    int64_t out_columns; /* of these outputs, of a row */
    tconv_phase phase;   /* of either axis of the view, where it is another layer */
};

/* Images of one pixel lie alike in NCHW and NHWC. Where each of their outputs has a tap, an output of a channel is a channel
 * of an image of one pixel as well, and dst as it lies is a matrix, images by these channels. The view points into itself and
 * into the layer. */
void tconv_igemm_view_init(tconv_igemm_view *view, const tconv_layer *layer);

#endif
