/* What the stencil kernels over planes share: a block's tile of an output plane, what it copies to shared memory, and which
 * of it a thread has. */
#ifndef TCONV_CUDA_STENCIL_TILE_CUH
#define TCONV_CUDA_STENCIL_TILE_CUH

#include "access.cuh"
#include "stencil_walk.cuh"

namespace tconv_stencil
{

constexpr int THREADS = TCONV_CUDA_STENCIL_THREADS;

/* A block's place: a tile of an output plane. */
struct place {
    int first_column, first_row; /* outputs; first_row counts quotients */
    int src_column, src_row;     /* of the first element in shared memory; may be negative */
    int channel;
    int64_t image;
};

template <class Element> __device__ __forceinline__ place find_place(const tconv_cuda_stencil_parameters &layer)
{
    unsigned number = blockIdx.x;
    place found;
    const unsigned column_tile = number % (unsigned)layer.tile.column_tiles;
    number /= (unsigned)layer.tile.column_tiles;
    const unsigned row_tile = number % (unsigned)layer.tile.row_tiles;
    number /= (unsigned)layer.tile.row_tiles;
    found.channel = (int)(number % (unsigned)layer.channels);
    found.image = number / (unsigned)layer.channels;
    found.first_column = (int)column_tile * access_length<Element> << layer.tile.lanes_log2;
    found.first_row = (int)row_tile * layer.tile.rows;
    found.src_row = found.first_row + layer.rows.min_shift;
    /* A multiple of an access, so that every copy is aligned and lies within the row or outside it. */
    found.src_column =
        (found.first_column / layer.columns.stride + layer.columns.min_shift) & ~(access_length<Element> - 1);
    return found;
}

/* Copies the tile of src; behind each row lies a zero. */
template <class Element>
__device__ __forceinline__ void load_src(const tconv_cuda_stencil_parameters &layer, const place &place, Element *x)
{
    constexpr int LENGTH = access_length<Element>;
    const tconv_cuda_stencil_tile &tile = layer.tile;
    const Element *src = static_cast<const Element *>(layer.src) + place.image * layer.src_strides.n +
                         place.channel / layer.multiplier * layer.src_strides.c;
    const int lanes = 1 << tile.load_lanes_log2, lane = (int)threadIdx.x & (lanes - 1);
    for (int row = (int)threadIdx.x >> tile.load_lanes_log2; row < tile.load_rows;
         row += THREADS >> tile.load_lanes_log2) {
        const bool row_exists = (unsigned)(place.src_row + row) < (unsigned)layer.rows.in;
        const Element *from = src + (place.src_row + row) * layer.src_strides.h;
        Element *to = x + row * tile.pitch;
        for (int chunk = lane; chunk < tile.chunks; chunk += lanes) {
            const int column = place.src_column + chunk * LENGTH;
            if (tile.src_aligned) {
                const bool exists = row_exists && (unsigned)column < (unsigned)layer.columns.in;
                copy_async(to + chunk * LENGTH, exists ? from + column : src, exists);
                continue;
            }
            element_vector<Element, LENGTH> run;
#pragma unroll
            for (int i = 0; i < LENGTH; i++) {
                const bool exists = row_exists && (unsigned)(column + i) < (unsigned)layer.columns.in;
                run.at[i] = exists ? from[column + i] : Element(0.0f);
            }
            *reinterpret_cast<element_vector<Element, LENGTH> *>(to + chunk * LENGTH) = run;
        }
        if (lane == 0)
            to[tile.chunks * LENGTH] = Element(0.0f);
    }
}

/* Loads the weights of a channel; behind them lies a zero. */
template <class Element>
__device__ __forceinline__ void load_weights(const tconv_cuda_stencil_parameters &layer, int channel,
                                             compute_type<Element> *weights)
{
    const int count = layer.rows.kernel * layer.columns.kernel;
    const Element *from = static_cast<const Element *>(layer.weights) + channel;
    for (int i = (int)threadIdx.x; i <= count; i += THREADS)
        weights[i] = i < count ? to_compute(from[(int64_t)i * layer.channels]) : compute_type<Element>(0);
}

/* One output column of a thread. */
struct column {
    int output, residue, src; /* src: the column that tap 0 reads, from the first one in shared memory */
};

__device__ __forceinline__ column find_column(const tconv_cuda_stencil_parameters &layer, const place &place,
                                              int output)
{
    const unsigned stride = (unsigned)layer.columns.stride, quotient = (unsigned)output / stride;
    const int residue = (int)((unsigned)output - quotient * stride);
    return {output, residue, (int)quotient + layer.columns.first_shift[residue] - place.src_column};
}

__device__ __forceinline__ bool has_column(const tconv_cuda_stencil_parameters &layer, const place &place,
                                           const column &column, int tap)
{
    const int src = column.src + place.src_column - tap * layer.columns.shift_step;
    return column.output < layer.columns.out && tap < layer.columns.taps[column.residue] &&
           (unsigned)src < (unsigned)layer.columns.in;
}

/* The tile's part of that number: neighbouring numbers are rows of different residues. */
__device__ __forceinline__ part find_part(const tconv_cuda_stencil_parameters &layer, const place &place, int number)
{
    const unsigned stride = (unsigned)layer.rows.stride, index = (unsigned)number / stride;
    const int residue = (int)((unsigned)number - index * stride);
    const int first = place.first_row + (int)index * layer.tile.part_rows;
    const int end = min(first + layer.tile.part_rows, place.first_row + layer.tile.rows);
    return {residue, first, min(end, quotients_of(layer.rows, residue))};
}

template <class Element>
__device__ __forceinline__ Element *find_dst(const tconv_cuda_stencil_parameters &layer, const place &place,
                                             const part &part, int column)
{
    const int64_t row = (int64_t)part.first * layer.rows.stride + part.residue;
    return static_cast<Element *>(layer.dst) + place.image * layer.dst_strides.n + place.channel * layer.dst_strides.c +
           row * layer.dst_strides.h + column;
}

/* The columns of this thread: neighbours where they are stored as a vector. */
template <bool vectors, int LENGTH>
__device__ __forceinline__ void find_columns(const tconv_cuda_stencil_parameters &layer, const place &place,
                                             column (&columns)[LENGTH])
{
    const int lane = (int)threadIdx.x & ((1 << layer.tile.lanes_log2) - 1);
    columns[0] = find_column(layer, place, place.first_column + (vectors ? lane * LENGTH : lane));
    int quotient = columns[0].output / layer.columns.stride; /* of vectors, whose columns are neighbours */
#pragma unroll
    for (int c = 1; c < LENGTH; c++) {
        if (!vectors) {
            columns[c] = find_column(layer, place, columns[0].output + (c << layer.tile.lanes_log2));
            continue;
        }
        const int next = columns[c - 1].residue + 1, residue = next == layer.columns.stride ? 0 : next;
        quotient += next == layer.columns.stride;
        columns[c] = {columns[0].output + c, residue, quotient + layer.columns.first_shift[residue] - place.src_column};
    }
}

template <class Element>
__device__ __forceinline__ compute_type<Element> load_bias(const tconv_cuda_stencil_parameters &layer, int channel)
{
    return layer.bias != NULL ? to_compute(static_cast<const Element *>(layer.bias)[channel])
                              : compute_type<Element>(0);
}

extern __shared__ __align__(ACCESS_BYTES) unsigned char shared_memory[];

/* Fills shared memory; returns where the weights lie, behind src. */
template <class Element>
__device__ __forceinline__ compute_type<Element> *load_tile(const tconv_cuda_stencil_parameters &layer,
                                                            const place &place)
{
    Element *x = reinterpret_cast<Element *>(shared_memory);
    compute_type<Element> *weights =
        reinterpret_cast<compute_type<Element> *>(x + layer.tile.load_rows * layer.tile.pitch);
    load_src(layer, place, x);
    copy_async_commit();
    load_weights<Element>(layer, place.channel, weights);
    copy_async_wait<0>();
    __syncthreads();
    return weights;
}

/* The row of src in shared memory that tap 0 of a part's first output reads. */
template <class Element>
__device__ __forceinline__ const Element *find_x(const tconv_cuda_stencil_parameters &layer, const place &place,
                                                 const part &part)
{
    const int row = part.first - place.first_row + layer.rows.first_shift[part.residue] - layer.rows.min_shift;
    return reinterpret_cast<const Element *>(shared_memory) + row * layer.tile.pitch;
}

} // namespace tconv_stencil

#endif
