/* What cuda_general does for other implementations: outputs without a tap, and in device memory phase tables and packed
 * weights. */
#ifndef TCONV_CUDA_GENERAL_FILL_H
#define TCONV_CUDA_GENERAL_FILL_H

#include "../../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Launches the kernel that writes the bias to all outputs without a tap; only for layers that have such. phases: the
 * tables as tconv_general_pack_phases wrote them. */
tconv_status tconv_general_fill_bias_only(const tconv_layer *layer, const tconv_phase *phases,
                                          const tconv_arguments *arguments, tconv_issue *issue);

/* Launches the kernel that writes the phase tables (rows, then columns) to phases, in device memory. */
tconv_status tconv_general_pack_phases(const tconv_layer *layer, tconv_phase *phases, void *stream, tconv_issue *issue);

/* Launches the kernel that packs the weights as [kernel row][kernel column][input channel of the group][group][output
 * channel of the group, packed_out of them, those past the last zeros]. */
tconv_status tconv_general_pack_weights(const tconv_problem *problem, int64_t packed_out, const void *weights,
                                        void *packed, void *stream, tconv_issue *issue);

#ifdef __cplusplus
}
#endif

#endif
