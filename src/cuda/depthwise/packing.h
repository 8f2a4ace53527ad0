/* The packed weights that forward and the gradient of src share. */
#ifndef TCONV_CUDA_DEPTHWISE_PACKING_H
#define TCONV_CUDA_DEPTHWISE_PACKING_H

#include "../../core/impl.h"

/* Returns the memory that a plan needs: the packed weights, which calls may read where they lie. */
tconv_memory_sizes tconv_depthwise_packed_sizes(const tconv_problem *problem, bool reads_unpacked);

/* Packs the weights: the pack of a tconv_implementation. The plan is not looked at. */
tconv_status tconv_depthwise_pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed,
                                  void *stream, tconv_issue *issue);

#endif
