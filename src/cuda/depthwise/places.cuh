/* Which elements of the gradient of src a thread sums. */
#ifndef TCONV_CUDA_DEPTHWISE_PLACES_CUH
#define TCONV_CUDA_DEPTHWISE_PLACES_CUH

#include "../numeric/divisor.cuh"
#include "data_parameters.h"

namespace tconv::depthwise::data
{

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

} // namespace tconv::depthwise::data

#endif
