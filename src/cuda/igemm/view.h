/* A view is the layer that the implicit GEMM computes in place of the one that it is given: the same; with several
 * groups fused; with outputs of a channel as channels of their own. */
#ifndef TCONV_CUDA_IGEMM_VIEW_H
#define TCONV_CUDA_IGEMM_VIEW_H

#include "../../core/impl.h"
#include "parameters.h"

TCONV_ROOM_BEGIN(tconv::igemm)

enum { MAX_VIEW_PHASES = 16 }; /* of the columns after space-to-depth */

typedef struct layer_view {
    tconv_layer layer;    /* that is planned and computed */
    int64_t outputs;      /* of a channel that are channels of the view: channel * outputs + output; else 1 */
    int64_t out_columns;  /* columns that these outputs have */
    bool channels_inside; /* the view's channels are output * channels + channel instead */
    column_runs runs;     /* outputs as columns of dst, as the kernel is told of them */
    bool one_pixel;       /* outputs are those of images of one pixel; else neighbouring columns */
    int64_t fused_groups; /* channel groups of the layer that are one of the view */
    tconv_phase phases[MAX_VIEW_PHASES]; /* phases of the view, where it is another layer */
} layer_view;

/* Returns the channel groups of src. A layer of more has them several times, each time for a part of the phases of src, whose
 * sums are output channels of their own: cuda_dgrad adds them. */
static inline int64_t tconv_igemm_src_groups(const tconv_problem *problem)
{
    return problem->in_channels / problem->group_in;
}

/*
 * core/views.h has what views are. One pixel: NCHW alone, whose images of one pixel lie as in NHWC.
 *
 * Columns as channels: in NCHW the channels are (channel, column), and those of a channel are stored together, by
 * vectors; P is the largest power of two up to 64. Where a pixel's channels follow those of its neighbour, in NHWC or of
 * one channel, and are fewer than two M tiles, they are (column, channel), as they lie in dst: a pixel is longer, which
 * takes more of an M tile; P is the largest there is.
 *
 * Filled runs: in NCHW P may be the stride, whatever the kernel, the padding and the number of columns are. The kernel
 * is filled up with zeros to a multiple of P; of the first run of a row columns that would lie before it are not
 * stored, nor of its last run those behind. Where P is no power of two, runs are filled up with rows of zeros as well.
 * That multiplies the products, but each row of dst is stored as it lies.
 *
 * Fused groups: groups whose channels are no whole K-blocks of 128 bytes, as few as make whole K-blocks, or all, if
 * those have at most 512 bytes of channels or an M tile of output channels. That multiplies the products, but those of few channels would be padding for
 * the most part.
 *
 * The view points into itself and into the layer.
 */
void tconv_igemm_init_view(layer_view *view, const tconv_layer *layer);

/* Makes the view by filled runs; false where it is none, or the other is the same. */
bool tconv_igemm_init_filled_view(layer_view *view, const tconv_layer *layer);

TCONV_ROOM_END

#endif
