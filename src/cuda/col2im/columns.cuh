/* Both kernels cut the columns of dst up so, and find the partials that an output column takes. */
#ifndef TCONV_CUDA_COL2IM_COLUMNS_CUH
#define TCONV_CUDA_COL2IM_COLUMNS_CUH

#include "../maps/small_axis.h"
#include "parameters.h"

namespace tconv::col2im
{

__device__ __forceinline__ int clamp(int value, int most)
{
    return max(0, min(value, most));
}

/* The columns of dst are a tile's own; those of src begin where they reach back to. */
struct column_range {
    int first_output, outputs, first_column;
};

__device__ __forceinline__ column_range find_range(const parameters &layer, int tile)
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

/* The partials that an output column takes of a row of src: count of them, from `first` on in a column buffer that has
 * `pitch` floats from an n to the next. */
struct column_taps {
    int first, count;
};

template <int pitch>
__device__ __forceinline__ column_taps find_taps(const parameters &layer, int first_column, int output)
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
