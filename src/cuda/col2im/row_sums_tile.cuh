/* Hopper's kernels share this: a block tile, its shared memory, and the tables that lie there. */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_TILE_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_TILE_CUH

#include "../maps/small_axis.h"
#include "../numeric/element.cuh"
#include "columns.cuh"

namespace tconv::col2im::row_sums
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int THREADS = WARPS * 32; /* those that multiply and gather */

/* The place of a block. Columns and rows of dst are its own; those of src begin where its outputs reach back to. */
struct block_tile {
    column_range columns;
    int first_row;                    /* of src */
    int first_quotient, end_quotient; /* of the strip */
    int group, first_image;
};

__device__ __forceinline__ block_tile find_block_tile(const parameters &layer)
{
    unsigned number = blockIdx.x;
    const small_axis &rows = layer.rows;
    block_tile found;
    found.columns = find_range(layer, (int)(number % (unsigned)layer.column_tiles));
    number /= (unsigned)layer.column_tiles;
    const int strip = (int)(number % (unsigned)layer.strips);
    number /= (unsigned)layer.strips;
    found.group = (int)(number % (unsigned)layer.groups);
    found.first_image = (int)(number / (unsigned)layer.groups) * (BLOCK_M >> layer.row_pixels_log2);
    found.first_quotient = rows.pad / rows.stride + strip * layer.strip_rows;
    found.end_quotient = strip < layer.strips - 1 ? found.first_quotient + layer.strip_rows
                                                  : (rows.pad + rows.out - 1) / rows.stride + 1;
    found.first_row = max(0, found.first_quotient - layer.row_back);
    return found;
}

/* An output row of a channel. */
struct alignas(16) output_row {
    int64_t offset; /* elements from the first row of the group's first channel */
    float bias;
    int row; /* from the first that is complete */
};

/* column_taps in shared memory, whose partials are fewer than 1 << 16 floats. */
struct kept_taps {
    unsigned short first, count;
};

static_assert(sizeof(output_row) == OUTPUT_BYTES, "as the host counts");
static_assert(sizeof(kept_taps) == COLUMN_BYTES, "as the host counts");

/* The arrays in shared memory. GUARD zeros lie before the column buffers and behind each image's pixels: a tap that
 * reaches beyond them takes these. */
struct shared_layout {
    char *stages, *weights;
    int weight_bytes;
    float *column_buffer; /* [buffer][n of a band][PITCH] */
    output_row *outputs;  /* [stride][group_out]: the rows that are complete with a row of src */
    kept_taps *columns;   /* [sum_columns], where outputs are not gathered by runs */
};

extern __shared__ __align__(1024) char shared_memory[];

/* stage_bytes: the bytes of all pipeline stages. */
template <int CONFIG, int PARTS>
__device__ __forceinline__ shared_layout find_shared(const parameters &layer, int stage_bytes)
{
    constexpr int N_TILES = configs[CONFIG].n_tiles;
    constexpr int BAND_TILES = configs[CONFIG].band_tiles;
    shared_layout found;
    found.stages = shared_memory;
    found.weights = shared_memory + stage_bytes;
    found.weight_bytes = layer.steps * PARTS * N_TILES * TILE_N * MMA_K_BYTES;
    found.column_buffer = reinterpret_cast<float *>(found.weights + found.weight_bytes);
    found.column_buffer += GUARD;
    found.outputs = reinterpret_cast<output_row *>(found.column_buffer + layer.buffers * BAND_TILES * TILE_N * PITCH);
    found.columns = reinterpret_cast<kept_taps *>(found.outputs + layer.rows.stride * layer.group_out);
    return found;
}

/* Fills the tables: the outputs' places and bias, and the taps of the columns; clears the column buffers. */
template <class Element>
__device__ __forceinline__ void fill_tables(const parameters &layer, const block_tile &block,
                                            const shared_layout &shared)
{
    if (layer.gather < FIRST_RUNS)
        for (int i = (int)threadIdx.x; i < block.columns.outputs; i += THREADS) {
            const column_taps found =
                find_taps<PITCH>(layer, block.columns.first_column, block.columns.first_output + i);
            const bool any = found.count > 0;
            shared.columns[i] = {(unsigned short)(any ? found.first : 0), (unsigned short)(any ? found.count : 0)};
        }
    float4 *first = reinterpret_cast<float4 *>(shared.column_buffer - GUARD);
    const int all = (int)(reinterpret_cast<float4 *>(shared.outputs) - first);
    for (int i = (int)threadIdx.x; i < all; i += THREADS)
        first[i] = make_float4(0, 0, 0, 0);
    const Element *bias = static_cast<const Element *>(layer.bias) + block.group * layer.group_out;
    for (int i = (int)threadIdx.x; i < layer.rows.stride * layer.group_out; i += THREADS) {
        const int row = i / layer.group_out, channel = i - row * layer.group_out;
        shared.outputs[i] = {row * layer.dst_strides.h + channel * layer.dst_strides.c,
                             layer.bias != NULL ? to_compute(bias[channel]) : 0.0f, row};
    }
}

#endif

} // namespace tconv::col2im::row_sums

#endif
