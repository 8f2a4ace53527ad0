/* The launch before the implicit GEMM: it packs the weights and, beside that, transposes a small src from NCHW to
 * NHWC. */
#ifndef TCONV_CUDA_IGEMM_PACK_H
#define TCONV_CUDA_IGEMM_PACK_H

#include "parameters.h"
#include "transpose_src.h"

namespace tconv::igemm
{

/* The weights as they lie: what the packing kernel is told beside the layer's parameters. */
struct weight_source {
    tconv_weight_strides from;
    int kernel_rows, kernel_columns;
    int64_t first_kernel[2][MAX_PHASES]; /* kernel row (column) of the first tap of each row (column) phase */
    int kernel_step[2];                  /* kernel rows (columns) from a tap to the next */
    int column_taps[MAX_PHASES];         /* of each column phase, before any two are seen as a pair */
    int64_t outputs, out_columns;        /* as in layer_view */
    bool one_pixel;                      /* as in layer_view */
    int diagonal_in, diagonal_out;       /* fused groups: input and output channels of each; else 0 */
    int64_t output_rows_step;            /* elements from an output's weights to those of the one a row below */
    int64_t output_columns_step;         /* elements from an output's weights to those of the one a column beside */
};

/* Packs the weights (unless they are NULL) and transposes src, in one launch. */
tconv_status pack(const parameters *layer, const weight_source *source, const src_transpose *transpose, mode mode,
                  const void *weights, void *packed, void *stream, tconv_issue *issue);

} // namespace tconv::igemm

#endif
