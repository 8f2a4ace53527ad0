/* What the kernels of the gradient of src share: their parameters, and which elements a thread sums. */
#ifndef TCONV_CUDA_DEPTHWISE_PARAMETERS_CUH
#define TCONV_CUDA_DEPTHWISE_PARAMETERS_CUH

#include "../../core/impl.h"
#include "../numeric/divisor.h"

namespace tconv::depthwise
{

constexpr int THREADS = 256;
constexpr int ROWS = 4;    /* elements of a thread, one below the other */
constexpr int COLUMNS = 4; /* elements of a thread, side by side, where spans are loaded */

struct axis {
    int in, out, kernel, stride, dilation, pad;
};

struct parameters {
    const void *dst, *weights;
    void *src;
    tconv_strides dst_strides, src_strides;
    int64_t weight_in, weight_out, weight_row, weight_column; /* elements */
    axis rows, columns;
    int group_out;
    int items;           /* of a thread */
    bool stores_vectors; /* of COLUMNS, which are all there or none */
    fast_divisor row_groups, column_count, channels;
};

/* The first element of a thread. */
struct place {
    int image, channel, row, column;
};

template <bool channels_last, int columns = 1> __device__ __forceinline__ place find(const parameters &of, int item)
{
    const quotient inside = divide(item, channels_last ? of.channels : of.column_count);
    const quotient middle = divide(inside.whole, channels_last ? of.column_count : of.row_groups);
    const quotient outside = divide(middle.whole, channels_last ? of.row_groups : of.channels);
    if (channels_last)
        return {outside.whole, inside.rest, outside.rest * ROWS, middle.rest};
    return {outside.whole, outside.rest, middle.rest * ROWS, inside.rest * columns};
}

} // namespace tconv::depthwise

#endif
