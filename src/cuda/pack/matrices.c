/* Launches transpositions of matrices. */
#include "matrices.h"

#include "../../core/checked.h"
#include "../cuda_backend.h"
#include "../hardware.h"
#include "../numeric/divisor.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"

/* Whether matrices and their rows all begin at multiples of a vector. */
static bool vectors(const void *data, int64_t matrix, int64_t row, size_t element_size)
{
    return ((uintptr_t)data | (uintptr_t)(matrix * (int64_t)element_size) | (uintptr_t)(row * (int64_t)element_size)) %
               VECTOR_BYTES ==
           0;
}

/* Tiles are as square as the matrix lets them be. */
static void choose_tile(matrix_tiles *tiles)
{
    const int least = MATRIX_SHORT_LOG2, most = MATRIX_SQUARE_LOG2;
    const int rows = (int)tconv_min(most, tconv_max(least, log2_at_least(tiles->rows)));
    const int columns = (int)tconv_min(most, tconv_max(least, log2_at_least(tiles->columns)));
    tiles->rows_log2 = rows <= columns ? rows : MATRIX_TILE_LOG2 - columns;
    tiles->columns_log2 = MATRIX_TILE_LOG2 - tiles->rows_log2;
    tiles->row_tiles = tconv_ceil_div(tiles->rows, (int64_t)1 << tiles->rows_log2);
    tiles->column_tiles = tconv_ceil_div(tiles->columns, (int64_t)1 << tiles->columns_log2);
}

tconv_status tconv_cuda_transpose(int device, const tconv_transposition *of, const void *from, void *to, void *stream,
                                  tconv_issue *issue)
{
    matrix_tiles tiles = {.from = from,
                          .to = to,
                          .rows = of->rows,
                          .columns = of->columns,
                          .from_matrix = of->from_matrix,
                          .from_row = of->from_row,
                          .to_matrix = of->to_matrix,
                          .to_row = of->to_row,
                          .from_vectors = vectors(from, of->from_matrix, of->from_row, of->element_size),
                          .to_vectors = vectors(to, of->to_matrix, of->to_row, of->element_size)};
    void *arguments[] = {&tiles};
    tconv_device_guard guard;
    choose_tile(&tiles);
    tiles.tiles = of->matrices * tiles.row_tiles * tiles.column_tiles;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_launch_blocks(tconv_transpose_kernel(of->element_size), tiles.tiles, MATRIX_THREADS, arguments,
                                 stream, issue, false);
    return tconv_device_leave(&guard, status, issue);
}
