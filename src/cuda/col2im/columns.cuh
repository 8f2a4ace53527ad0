/* Columns of dst as the kernels of the products algorithm cut them up, and the products that they take. */
#ifndef TCONV_CUDA_COL2IM_COLUMNS_CUH
#define TCONV_CUDA_COL2IM_COLUMNS_CUH

#include "../maps/small_axis.h"
#include "parameters.h"

namespace tconv::col2im
{

constexpr int PITCH = TCONV_CUDA_PRODUCTS_PITCH; /* from a product of a pixel to the next one in shared memory */

__device__ __forceinline__ int clamp(int value, int most)
{
    return max(0, min(value, most));
}

/* Columns of dst are a tile's own; those of src begin where they reach back to. */
struct column_range {
    int first_output, outputs, first_column;
};

__device__ __forceinline__ column_range find_range(const tconv_cuda_products_parameters &layer, int tile)
{
    const small_axis &columns = layer.columns;
    column_range found;
    found.first_column = tile * layer.column_step;
    const int first = (found.first_column + layer.column_back) * columns.stride - columns.pad;
    found.first_output = tile == 0 ? 0 : clamp(first, columns.out);
    found.outputs = (tile == layer.column_tiles - 1 ? columns.out
                                                    : clamp(first + layer.column_step * columns.stride, columns.out)) -
                    found.first_output;
    return found;
}

/* The products that an output column takes of a row of src: count of them, from `first` on, where a product of a pixel is
 * `pitch` before the next one. */
struct column_taps {
    int first, count;
};

template <int pitch>
__device__ __forceinline__ column_taps find_taps(const tconv_cuda_products_parameters &layer, int first_column,
                                                 int output)
{
    const small_axis &columns = layer.columns;
    const int quotient = output / columns.stride, residue = output - quotient * columns.stride;
    const int column = quotient + columns.first_shift[residue], back = columns.shift_step;
    const int past = column - (columns.in - 1);
    const int first = past <= 0 ? 0 : (past + back - 1) / back;
    const int end = column < 0 ? 0 : min(columns.taps[residue], column / back + 1);
    return {columns.first_kernel[residue] * pitch + column - first_column + first * layer.tap_step, end - first};
}

} // namespace tconv::col2im

#endif
