/* What the host side of the gradient of src (data.c) and its kernels share: the parameters of a kernel. */
#ifndef TCONV_CUDA_DEPTHWISE_DATA_PARAMETERS_H
#define TCONV_CUDA_DEPTHWISE_DATA_PARAMETERS_H

#include "../../core/impl.h"
#include "../hardware.h"
#include "../numeric/divisor.h"

TCONV_ROOM_BEGIN(tconv::depthwise::data)

enum {
    THREADS = 256,
    ROWS = 4,    /* elements of a thread, one below the other */
    COLUMNS = 4, /* elements of a thread, side by side, where spans are loaded */

    MAX_VECTOR = 4, /* outputs that are loaded at once */

    MAX_SPAN_STRIDE = 2,
    SPAN_TAPS = 4 /* of a row, that a span is loaded for */
};

/* Returns the outputs of a vector of a span. */
TCONV_ROOM_CONSTANT int span_vector(size_t element_size)
{
    return element_size == 8 ? 2 : 4;
}

typedef struct axis {
    int in, out, kernel, stride, dilation, pad;
} axis;

typedef struct parameters {
    const void *dst, *weights;
    void *src;
    tconv_strides dst_strides, src_strides;
    int64_t weight_in, weight_out, weight_row, weight_column; /* elements */
    axis rows, columns;
    int group_out;
    int items;           /* of a thread */
    bool stores_vectors; /* of COLUMNS, which are all there or none */
    fast_divisor row_groups, column_count, channels;
} parameters;

TCONV_ROOM_END

#endif
