/* How the implicit matrix product sees a layer: as it is; with several groups as one; in NCHW with outputs of a channel as channels
 * of their own. */
#ifndef TCONV_CUDA_IGEMM_VIEW_H
#define TCONV_CUDA_IGEMM_VIEW_H

#include "../../core/impl.h"

namespace tconv::igemm
{

#define TCONV_IGEMM_VIEW_PHASES 16 /* of columns that are seen as channels */

struct tconv_igemm_view {
    tconv_layer layer;   /* what is planned and computed */
    int64_t outputs;     /* of an output channel that are channels of the view's: channel * outputs + output; else 1 */
    int64_t out_columns; /* of these outputs, of a row */
    bool one_pixel;      /* outputs are those of images of one pixel; else neighbouring columns */
    int64_t united;      /* groups of the layer that are one of the view's */
    tconv_phase phases[TCONV_IGEMM_VIEW_PHASES]; /* of the view, where it is another layer */
};

/*
 * Images of one pixel lie alike in NCHW and NHWC. Where each of their outputs has a tap, an output of a channel is a channel
 * of an image of one pixel as well, and dst as it lies is a matrix, images by these channels.
 *
 * Of other NCHW layers each phase writes single columns, a stride apart. Where P divides the columns' stride, padding, kernel
 * and number, columns P * o + j, j < P, take the taps P * k + j of the same pixels: those of P times as many channels
 * (channel, j) in a layer of stride, padding, kernel and columns over P, and stored together are a vector. P is the largest
 * power of two for vectors of up to 16 bytes.
 *
 * Groups whose channels are no whole chunks of 128 bytes are seen as one, with zeros for weights between them: as few as make whole
 * chunks, or all, if those have at most 512 bytes of channels. That multiplies the products, but those of few channels would be
 * padding for the most part.
 *
 * The view points into itself and into the layer.
 */
void tconv_igemm_view_init(tconv_igemm_view *view, const tconv_layer *layer);

} // namespace tconv::igemm

#endif
