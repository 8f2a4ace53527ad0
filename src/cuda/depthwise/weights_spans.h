/* The gradient of weights by spans: the plan of a layer that it takes, for weights.c. */
#ifndef TCONV_CUDA_DEPTHWISE_WEIGHTS_SPANS_H
#define TCONV_CUDA_DEPTHWISE_WEIGHTS_SPANS_H

#include "../../core/impl.h"
#include "../model/planned.h"
#include "weights_spans_parameters.h"

TCONV_ROOM_BEGIN(tconv::depthwise::weight_spans)

typedef struct span_plan {
    span_parameters params; /* without addresses */
    int lanes;              /* what the threads of a warp have */
    int stride, taps;       /* of the kernel */
    int parts, threads;
    int64_t blocks;
    double seconds; /* predicted */
} span_plan;

/* Returns whether spans take a layer whose groups have one input channel, and if so makes its plan, whose slices take at most
 * so many bytes. */
bool tconv_depthwise_plan_spans(const tconv_layer *layer, int64_t slices_bytes, span_plan *plan);

/* Returns the work of a plan. */
tconv_cuda_work tconv_depthwise_spans_work(const tconv_layer *layer, const span_plan *plan);

/* Launches the kernel that writes the slices to the workspace. */
tconv_status tconv_depthwise_launch_spans(const tconv_layer *layer, const span_plan *plan,
                                          const tconv_arguments *arguments, tconv_issue *issue);

/* Writes what was planned, as the member `describe` of implementations. */
void tconv_depthwise_describe_spans(const tconv_layer *layer, const span_plan *plan, char *text, size_t capacity);

TCONV_ROOM_END

#endif
