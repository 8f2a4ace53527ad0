/* All kernels share this: the place of a block, and the partials that an output column takes. */
#ifndef TCONV_CUDA_COL2IM_TILE_CUH
#define TCONV_CUDA_COL2IM_TILE_CUH

#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "parameters.h"

namespace tconv::col2im
{

__device__ __forceinline__ int clamp(int value, int most)
{
    return max(0, min(value, most));
}

/* The place of a block. Columns and rows of dst are its own; those of src begin where its outputs reach back to. */
struct block_tile {
    int first_output, outputs;        /* columns of dst */
    int first_column;                 /* of src */
    int first_row;                    /* of src */
    int first_quotient, end_quotient; /* of the strip */
    int group, first_image;
    int out_block; /* of those of all groups: the block's weights */
    int first_out; /* output channel, of all groups */
    int outs;      /* output channels */
};

/* images: of a block. number: the block's. */
__device__ __forceinline__ block_tile find_block_tile(const parameters &layer, int images, unsigned number = blockIdx.x)
{
    const small_axis &rows = layer.rows, &columns = layer.columns;
    const int out_block = (int)(number % (unsigned)layer.out_blocks);
    number /= (unsigned)layer.out_blocks;
    const int tile = (int)(number % (unsigned)layer.column_tiles);
    number /= (unsigned)layer.column_tiles;
    const int strip = (int)(number % (unsigned)layer.strips);
    number /= (unsigned)layer.strips;
    block_tile found;
    found.group = (int)(number % (unsigned)layer.groups);
    found.first_image = (int)(number / (unsigned)layer.groups) * images;
    found.out_block = found.group * layer.out_blocks + out_block;
    found.first_out = found.group * layer.group_out + out_block * layer.block_out;
    found.outs = min(layer.block_out, layer.group_out - out_block * layer.block_out);
    found.first_column = tile * layer.column_step;
    const int first = (found.first_column + layer.column_back) * columns.stride - columns.pad;
    found.first_output = tile == 0 ? 0 : clamp(first, columns.out);
    found.outputs = (tile == layer.column_tiles - 1 ? columns.out
                                                    : clamp(first + layer.column_step * columns.stride, columns.out)) -
                    found.first_output;
    found.first_quotient = rows.pad / rows.stride + strip * layer.strip_rows;
    found.end_quotient = strip < layer.strips - 1 ? found.first_quotient + layer.strip_rows
                                                  : (rows.pad + rows.out - 1) / rows.stride + 1;
    found.first_row = max(0, found.first_quotient - layer.row_back);
    return found;
}

/* The block's first output channel in dst, of an image. */
template <class Element>
__device__ __forceinline__ Element *find_dst(const parameters &layer, const block_tile &block, int image)
{
    return static_cast<Element *>(layer.dst) + image * layer.dst_strides.n + block.first_out * layer.dst_strides.c;
}

/* THREADS threads start to copy the block's weights, once they are packed. */
template <int THREADS> __device__ __forceinline__ void copy_weights(char *to, const char *from, int bytes)
{
    wait_for_weights();
    for (int i = (int)threadIdx.x * ACCESS_BYTES; i < bytes; i += THREADS * ACCESS_BYTES)
        cp_async(to + i, from + i, true);
}

/* The partials that an output column takes of a row of src: count of them, from `first` on in a column buffer that has
 * PITCH floats from an n to the next. */
struct column_taps {
    int first, count;
};

template <int PITCH>
__device__ __forceinline__ column_taps find_taps(const parameters &layer, int first_column, int output)
{
    const small_axis &columns = layer.columns;
    const int quotient = output / columns.stride, residue = output - quotient * columns.stride;
    const int column = quotient + columns.first_shift[residue], back = columns.shift_step;
    const int past = column - (columns.in - 1);
    const int first = past <= 0 ? 0 : (past + back - 1) / back;
    const int end = column < 0 ? 0 : min(columns.taps[residue], column / back + 1);
    return {columns.first_kernel[residue] * PITCH + column - first_column + first * layer.tap_step, end - first};
}

} // namespace tconv::col2im

#endif
