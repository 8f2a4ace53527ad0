/* The stencil kernels over planes share this: a tile of an output plane, its copy of src in shared memory, and the columns
 * and rows that a thread has of it. A block has one tile, or with any_tile several, each in warps of its own. */
#ifndef TCONV_CUDA_DEPTHWISE_TILE_CUH
#define TCONV_CUDA_DEPTHWISE_TILE_CUH

#include "../hardware.h"
#include "../numeric/divisor.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "walk.cuh"

namespace tconv::depthwise::forward
{

/* The threads of a tile, the number of a thread's tile in its block, and of the thread in its tile. */
template <bool any_tile> __device__ __forceinline__ int threads_of_tile(const parameters &layer)
{
    return any_tile ? 1 << layer.tile.threads_log2 : THREADS;
}
template <bool any_tile> __device__ __forceinline__ int tile_in_block(const parameters &layer)
{
    return any_tile ? (int)threadIdx.x >> layer.tile.threads_log2 : 0;
}
template <bool any_tile> __device__ __forceinline__ int thread_in_tile(const parameters &layer)
{
    return any_tile ? (int)threadIdx.x & ((1 << layer.tile.threads_log2) - 1) : (int)threadIdx.x;
}

/* The number of a thread's tile, where block is the block's: layer.tile.count or more where there is none. */
template <bool any_tile> __device__ __forceinline__ int tile_number(const parameters &layer, int block)
{
    return any_tile ? block * (THREADS >> layer.tile.threads_log2) + tile_in_block<any_tile>(layer) : block;
}

/* A tile of an output plane. */
struct block_tile {
    int first_column, first_row; /* outputs; first_row counts quotients */
    int src_column, src_row;     /* of the first element in shared memory; may be negative */
    int channel;
    int64_t image;
};

/* The channel of a tile again, for post-ops: kernels without these keep no register for it. */
template <bool any_tile> __device__ __forceinline__ int find_channel_again(const parameters &layer)
{
    const int number = tile_number<any_tile>(layer, forgotten((int)blockIdx.x));
    const quotient column_tile = divide(number, layer.tile.column_tiles);
    return divide(divide(column_tile.whole, layer.tile.row_tiles).whole, layer.channels).rest;
}

template <class Element> __device__ __forceinline__ block_tile find_tile(const parameters &layer, int number)
{
    const quotient column_tile = divide(number, layer.tile.column_tiles);
    const quotient row_tile = divide(column_tile.whole, layer.tile.row_tiles);
    const quotient channel = divide(row_tile.whole, layer.channels);
    block_tile found;
    found.channel = channel.rest;
    found.image = channel.whole;
    found.first_column = column_tile.rest * layer.tile.columns;
    found.first_row = row_tile.rest * layer.tile.rows;
    found.src_row = found.first_row + layer.rows.min_shift;
    /* A multiple of an access, so that every copy is aligned and lies within the row or outside it. */
    found.src_column = (divide(found.first_column, layer.column_stride).whole + layer.columns.min_shift) &
                       ~(access_length<Element> - 1);
    return found;
}

/* Copies the tile of src. row_ends: a zero follows each row. */
template <class Element, bool row_ends, bool any_tile>
__device__ __forceinline__ void load_src(const parameters &layer, const block_tile &block, Element *x)
{
    constexpr int LENGTH = access_length<Element>;
    const tile_shape &tile = layer.tile;
    const Element *src = static_cast<const Element *>(layer.src) + block.image * layer.src_strides.n +
                         divide(block.channel, layer.multiplier).whole * layer.src_strides.c;
    const quotient thread = divide(thread_in_tile<any_tile>(layer), tile.load_lanes);
    const int step = divide(threads_of_tile<any_tile>(layer), tile.load_lanes).whole; /* rows that are loaded at once */
    if (thread.whole == step)
        return;
    for (int vector = thread.rest; vector < tile.row_vectors; vector += tile.load_lanes.divisor) {
        const int column = block.src_column + vector * LENGTH;
        const bool column_exists = (unsigned)column < (unsigned)layer.columns.in;
        const Element *from = src + (block.src_row + thread.whole) * layer.src_strides.h + column;
        Element *to = x + thread.whole * tile.pitch + vector * LENGTH;
        for (int row = thread.whole; row < tile.load_rows; row += step) {
            const bool row_exists = (unsigned)(block.src_row + row) < (unsigned)layer.rows.in;
            if (tile.src_aligned) {
                const bool exists = row_exists && column_exists;
                cp_async(to, exists ? from : src, exists);
            } else {
                element_vector<Element, LENGTH> run;
#pragma unroll
                for (int i = 0; i < LENGTH; i++) {
                    const bool exists = row_exists && (unsigned)(column + i) < (unsigned)layer.columns.in;
                    run.at[i] = exists ? from[i] : Element(0.0f);
                }
                *reinterpret_cast<element_vector<Element, LENGTH> *>(to) = run;
            }
            from += step * layer.src_strides.h;
            to += step * tile.pitch;
        }
    }
    if (row_ends)
        for (int row = thread_in_tile<any_tile>(layer); row < tile.load_rows; row += threads_of_tile<any_tile>(layer))
            x[row * tile.pitch + tile.row_vectors * LENGTH] = Element(0.0f);
}

extern __shared__ __align__(ACCESS_BYTES) unsigned char shared_memory[];

/* The shared memory of a thread's tile. */
template <bool any_tile> __device__ __forceinline__ unsigned char *tile_memory(const parameters &layer)
{
    return shared_memory + tile_in_block<any_tile>(layer) * layer.tile.shared_bytes;
}

/* The weights of the tile's channel, and a zero after them, which follow src in shared memory. */
template <class Compute> struct tile_weights {
    const Compute *at;
    bool finite; /* all of them are, so that zero times a weight is zero */
};

/* Waits for all threads of a tile, and tells whether all of them say yes. */
template <bool any_tile> __device__ __forceinline__ bool tile_and(const parameters &layer, bool yes)
{
    const int threads = threads_of_tile<any_tile>(layer);
    if (threads == THREADS)
        return __syncthreads_and(yes) != 0;
    if (threads == WARP) {
        __syncwarp();
        return __all_sync(~0u, yes) != 0;
    }
    return tile_in_block<any_tile>(layer) == 0 ? named_barrier_and<THREADS / 2, 1>(yes)
                                               : named_barrier_and<THREADS / 2, 2>(yes);
}

/* Fills shared memory. row_ends: a zero follows each row of src. */
template <class Element, bool row_ends, bool any_tile>
__device__ __forceinline__ tile_weights<compute_type<Element>> load_tile(const parameters &layer,
                                                                         const block_tile &block)
{
    using Compute = compute_type<Element>;
    Element *x = reinterpret_cast<Element *>(tile_memory<any_tile>(layer));
    Compute *weights = reinterpret_cast<Compute *>(x + layer.tile.load_rows * layer.tile.pitch);
    load_src<Element, row_ends, any_tile>(layer, block, x);
    cp_async_commit();
    wait_for_weights();
    const int count = layer.rows.kernel * layer.columns.kernel;
    const quotient channel = divide(block.channel, layer.multiplier);
    const Element *from =
        static_cast<const Element *>(layer.weights) + channel.whole * layer.weight_in + channel.rest * layer.weight_out;
    bool finite = true;
    for (int i = thread_in_tile<any_tile>(layer); i <= count; i += threads_of_tile<any_tile>(layer)) {
        const Compute weight = i < count ? to_compute(from[i * layer.weight_tap]) : Compute(0);
        weights[i] = weight;
        finite = finite && isfinite(weight);
    }
    cp_async_wait<0>();
    return {weights, tile_and<any_tile>(layer, finite)};
}

/* One output column of a thread. */
struct column {
    int output, residue, src; /* src: the column that tap 0 reads, from the first one in shared memory */
};

__device__ __forceinline__ column find_column(const parameters &layer, const block_tile &block, int output)
{
    const quotient quotient = divide(output, layer.column_stride);
    return {output, quotient.rest, quotient.whole + layer.columns.first_shift[quotient.rest] - block.src_column};
}

/* The first output column of this thread. Where vectors are stored, the others are its neighbours. */
template <bool vectors, int LENGTH>
__device__ __forceinline__ int find_first_column(const parameters &layer, const block_tile &block)
{
    const int lane = (int)threadIdx.x & ((1 << layer.tile.lanes_log2) - 1);
    return block.first_column + (vectors ? lane * LENGTH : lane);
}

/* All of them. */
template <bool vectors, int LENGTH>
__device__ __forceinline__ void find_columns(const parameters &layer, const block_tile &block,
                                             column (&columns)[LENGTH])
{
    const int first = find_first_column<vectors, LENGTH>(layer, block);
    columns[0] = find_column(layer, block, first);
    int quotient = divide(first, layer.column_stride).whole; /* of vectors, whose columns are neighbours */
#pragma unroll
    for (int c = 1; c < LENGTH; c++) {
        if (!vectors) {
            columns[c] = find_column(layer, block, first + (c << layer.tile.lanes_log2));
            continue;
        }
        const int next = columns[c - 1].residue + 1, residue = next == layer.columns.stride ? 0 : next;
        quotient += next == layer.columns.stride;
        columns[c] = {first + c, residue, quotient + layer.columns.first_shift[residue] - block.src_column};
    }
}

__device__ __forceinline__ bool has_column(const parameters &layer, const block_tile &block, const column &column,
                                           int tap)
{
    const int src = column.src + block.src_column - tap * layer.columns.shift_step;
    return column.output < layer.columns.out && tap < layer.columns.taps[column.residue] &&
           (unsigned)src < (unsigned)layer.columns.in;
}

/* The tile's part of that number: neighbouring numbers are rows of different residues. */
__device__ __forceinline__ part find_part(const parameters &layer, const block_tile &block, int number)
{
    const quotient index = divide(number, layer.row_stride);
    const int first = block.first_row + index.whole * layer.tile.part_rows;
    const int end = min(first + layer.tile.part_rows, block.first_row + layer.tile.rows);
    return {index.rest, first, min(end, quotients_of(layer, index.rest))};
}

/* The row of src in shared memory that tap 0 of a part's first output reads. */
template <class Element, bool any_tile>
__device__ __forceinline__ const Element *find_x(const parameters &layer, const block_tile &block, const part &part)
{
    const int row = part.first - block.first_row + layer.rows.first_shift[part.residue] - layer.rows.min_shift;
    return reinterpret_cast<const Element *>(tile_memory<any_tile>(layer)) + row * layer.tile.pitch;
}

template <class Element>
__device__ __forceinline__ Element *find_dst(const parameters &layer, const block_tile &block, const part &part,
                                             int column)
{
    const int64_t row = (int64_t)part.first * layer.rows.stride + part.residue;
    return static_cast<Element *>(layer.dst) + block.image * layer.dst_strides.n + block.channel * layer.dst_strides.c +
           row * layer.dst_strides.h + column;
}

} // namespace tconv::depthwise::forward

#endif
