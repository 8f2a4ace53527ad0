/* What cuda_general does for other implementations: outputs without a tap, and phase tables in device memory. */
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

#ifdef __cplusplus
}
#endif

#endif
