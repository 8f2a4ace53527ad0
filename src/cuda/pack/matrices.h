/* Transposes matrices (core/volume.h): a tensor from NCHW to NHWC, or back. */
#ifndef TCONV_CUDA_PACK_MATRICES_H
#define TCONV_CUDA_PACK_MATRICES_H

#include "../../core/volume.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

enum {
    MATRIX_THREADS = 256,   /* of a thread block */
    MATRIX_TILE_LOG2 = 12,  /* a tile has 2^12 elements: 64 rows of 64 columns, */
    MATRIX_SHORT_LOG2 = 4,  /* or where the matrix has few rows or columns at least 16 */
    MATRIX_SQUARE_LOG2 = 6, /* and no more than 64 of the shorter axis */
    MATRIX_MOST_ROWS_LOG2 = MATRIX_TILE_LOG2 - MATRIX_SHORT_LOG2
};

/* The tiles of matrices. Strides are in elements. */
typedef struct matrix_tiles {
    const void *from;
    void *to;
    int64_t rows, columns, from_matrix, from_row, to_matrix, to_row;
    int64_t row_tiles, column_tiles, tiles;
    int rows_log2, columns_log2;   /* of a tile */
    bool from_vectors, to_vectors; /* all rows begin at multiples of 16 bytes */
} matrix_tiles;

/* Returns the kernel for elements of so many bytes: 2, 4 or 8; NULL in a build without CUDA. */
const void *tconv_transpose_kernel(size_t element_size);

TCONV_ROOM_END

#endif
