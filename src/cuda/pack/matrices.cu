/* The kernel that transposes matrices: a thread block reads a tile by rows into shared memory and writes it by columns, both by
 * vectors where all rows begin at multiples of 16 bytes. */
#include "matrices.h"

#include <cuda_runtime_api.h>

#include <cstdint>

#include "../hardware.h"

namespace tconv
{

namespace
{

template <class Element> constexpr int VECTOR_LENGTH = VECTOR_BYTES / (int)sizeof(Element);
/* Behind a row in shared memory: neighbours of a column do not meet in a bank. */
template <class Element> constexpr int GAP = sizeof(Element) == 2 ? 2 : 1;
constexpr int TILE = 1 << MATRIX_TILE_LOG2;

/* Shared memory is read and written by words: of an element, or of two neighbours of a row. */
template <class Element> struct word_of {
    typedef Element type;
};
template <> struct word_of<uint16_t> {
    typedef uint32_t type;
};
template <class Element> using word = typename word_of<Element>::type;

template <class Element> union matrix_vector {
    uint4 all;
    Element at[VECTOR_LENGTH<Element>];
    word<Element> words[VECTOR_BYTES / sizeof(word<Element>)];
};

/* Where a tile begins, and what of it exists. */
struct matrix_place {
    int64_t matrix, row, column;
    int rows, columns;

    __device__ __forceinline__ matrix_place(const matrix_tiles &p, int64_t tile)
    {
        const int64_t line = tile / p.column_tiles;
        matrix = line / p.row_tiles;
        row = (line - matrix * p.row_tiles) << p.rows_log2;
        column = (tile - line * p.column_tiles) << p.columns_log2;
        rows = (int)min(p.rows - row, (int64_t)1 << p.rows_log2);
        columns = (int)min(p.columns - column, (int64_t)1 << p.columns_log2);
    }
};

/* Reads a tile by vectors of a row. So many loads of a thread come before their stores as registers are left for. */
template <class Element>
__device__ __forceinline__ void read_vectors(const Element *from, int64_t pitch, Element *tile, const matrix_tiles &p,
                                             const matrix_place &at)
{
    typedef word<Element> Word;
    constexpr int LENGTH = VECTOR_LENGTH<Element>, TIMES = TILE / LENGTH / MATRIX_THREADS,
                  AT_ONCE = TIMES < 4 ? TIMES : 4;
    const int row_log2 = p.columns_log2 - (LENGTH == 8 ? 3 : LENGTH == 4 ? 2 : 1); /* vectors of a row */
#pragma unroll 1
    for (int before = (int)threadIdx.x; before < TIMES * MATRIX_THREADS; before += AT_ONCE * MATRIX_THREADS) {
        matrix_vector<Element> loaded[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int item = before + i * MATRIX_THREADS;
            const int row = item >> row_log2, column = (item & ((1 << row_log2) - 1)) * LENGTH;
            const Element *const first = from + row * pitch + column;
            loaded[i].all = make_uint4(0, 0, 0, 0);
            if (row < at.rows && column + LENGTH <= at.columns)
                loaded[i].all = __ldg(reinterpret_cast<const uint4 *>(first));
            else if (row < at.rows)
#pragma unroll
                for (int j = 0; j < LENGTH; j++)
                    if (column + j < at.columns)
                        loaded[i].at[j] = __ldg(first + j);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int item = before + i * MATRIX_THREADS;
            const int row = item >> row_log2, column = (item & ((1 << row_log2) - 1)) * LENGTH;
            Word *const to = reinterpret_cast<Word *>(tile + row * ((1 << p.columns_log2) + GAP<Element>)+column);
#pragma unroll
            for (int j = 0; j < VECTOR_BYTES / (int)sizeof(Word); j++)
                to[j] = loaded[i].words[j];
        }
    }
}

template <class Element>
__device__ __forceinline__ void read_elements(const Element *from, int64_t pitch, Element *tile, const matrix_tiles &p,
                                              const matrix_place &at)
{
    constexpr int AT_ONCE = 8;
    for (int before = (int)threadIdx.x; before < TILE; before += AT_ONCE * MATRIX_THREADS) {
        Element loaded[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int item = before + i * MATRIX_THREADS;
            const int row = item >> p.columns_log2, column = item & ((1 << p.columns_log2) - 1);
            loaded[i] = row < at.rows && column < at.columns ? __ldg(from + row * pitch + column) : Element{};
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int item = before + i * MATRIX_THREADS;
            const int row = item >> p.columns_log2, column = item & ((1 << p.columns_log2) - 1);
            tile[row * ((1 << p.columns_log2) + GAP<Element>)+column] = loaded[i];
        }
    }
}

/* Writes a vector of a column, as far as its elements exist. */
template <class Element>
__device__ __forceinline__ void write_vector(Element *to, const matrix_vector<Element> &vector, int left)
{
    if (left >= VECTOR_LENGTH<Element>)
        *reinterpret_cast<uint4 *>(to) = vector.all;
    else
#pragma unroll
        for (int j = 0; j < VECTOR_LENGTH<Element>; j++)
            if (j < left)
                to[j] = vector.at[j];
}

/* Writes a tile by vectors of a column; a thread has as many columns as a word of shared memory has elements. */
template <class Element>
__device__ __forceinline__ void write_vectors(Element *to, int64_t pitch, const Element *tile, const matrix_tiles &p,
                                              const matrix_place &at)
{
    typedef word<Element> Word;
    constexpr int LENGTH = VECTOR_LENGTH<Element>, COLUMNS = (int)(sizeof(Word) / sizeof(Element));
    constexpr int TIMES = TILE / LENGTH / COLUMNS / MATRIX_THREADS;
    const int column_log2 = p.rows_log2 - (LENGTH == 8 ? 3 : LENGTH == 4 ? 2 : 1); /* vectors of a column */
    const int from_pitch = (1 << p.columns_log2) + GAP<Element>;
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        const int item = (int)threadIdx.x + i * MATRIX_THREADS;
        const int column = (item >> column_log2) * COLUMNS, row = (item & ((1 << column_log2) - 1)) * LENGTH;
        Word words[LENGTH];
        matrix_vector<Element> vectors[COLUMNS];
#pragma unroll
        for (int j = 0; j < LENGTH; j++)
            words[j] = *reinterpret_cast<const Word *>(tile + (row + j) * from_pitch + column);
        if constexpr (COLUMNS == 1) {
#pragma unroll
            for (int j = 0; j < LENGTH; j++)
                vectors[0].at[j] = words[j];
        } else {
#pragma unroll
            for (int j = 0; j < LENGTH; j += 2) {
                vectors[0].words[j / 2] = __byte_perm(words[j], words[j + 1], 0x5410);
                vectors[1].words[j / 2] = __byte_perm(words[j], words[j + 1], 0x7632);
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (column + c < at.columns)
                write_vector<Element>(to + (column + c) * pitch + row, vectors[c], at.rows - row);
    }
}

template <class Element>
__device__ __forceinline__ void write_elements(Element *to, int64_t pitch, const Element *tile, const matrix_tiles &p,
                                               const matrix_place &at)
{
    for (int item = (int)threadIdx.x; item < TILE; item += MATRIX_THREADS) {
        const int column = item >> p.rows_log2, row = item & ((1 << p.rows_log2) - 1);
        if (column < at.columns && row < at.rows)
            to[column * pitch + row] = tile[row * ((1 << p.columns_log2) + GAP<Element>)+column];
    }
}

template <class Element>
__global__ void __launch_bounds__(MATRIX_THREADS) transpose_kernel(const __grid_constant__ matrix_tiles p)
{
    __shared__ alignas(4) Element tile[TILE + (GAP<Element> << MATRIX_MOST_ROWS_LOG2)];
    for (int64_t number = blockIdx.x; number < p.tiles; number += gridDim.x) {
        const matrix_place at(p, number);
        const Element *const from =
            static_cast<const Element *>(p.from) + at.matrix * p.from_matrix + at.row * p.from_row + at.column;
        Element *const to = static_cast<Element *>(p.to) + at.matrix * p.to_matrix + at.column * p.to_row + at.row;
        if (p.from_vectors)
            read_vectors<Element>(from, p.from_row, tile, p, at);
        else
            read_elements<Element>(from, p.from_row, tile, p, at);
        __syncthreads();
        if (p.to_vectors)
            write_vectors<Element>(to, p.to_row, tile, p, at);
        else
            write_elements<Element>(to, p.to_row, tile, p, at);
        __syncthreads();
    }
}

} // namespace

extern "C" const void *tconv_transpose_kernel(size_t element_size)
{
    return element_size == 2   ? (const void *)transpose_kernel<uint16_t>
           : element_size == 4 ? (const void *)transpose_kernel<uint32_t>
                               : (const void *)transpose_kernel<uint64_t>;
}

} // namespace tconv
