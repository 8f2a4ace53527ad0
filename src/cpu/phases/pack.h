/* Packs weights in the order in which the microkernels read them. */
#ifndef TCONV_CPU_PHASES_PACK_H
#define TCONV_CPU_PHASES_PACK_H

#include "../../core/impl.h"

tconv_status tconv_cpu_pack_phases(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                   void *stream, tconv_issue *issue);

#endif
