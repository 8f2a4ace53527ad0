/* The addition of slices row after row of a tile (row_sums.cu), as the host plans it. */
#ifndef TCONV_CUDA_WGRAD_ROW_SUMS_H
#define TCONV_CUDA_WGRAD_ROW_SUMS_H

#include "../numeric/divisor.h"
#include "bias.h"
#include "sums.h"
#include "tiles.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

enum {
    ROW_SUMS_THREADS = BIAS_THREADS,
    ROW_SUMS_COLUMNS = 2048, /* GEMM columns of all rows of a run, in all parts, at most */
    ROW_SUMS_TAPS = 256      /* taps of a tile, at most */
};

typedef struct row_sums_parameters {
    sum_tiles tiles;
    tconv_weight_strides strides;
    int64_t slices, slice_sums, runs; /* runs: of rows */
    int rows;                         /* rows of a run, which are all of one tile */
    int parts, part_slices;           /* the last part may have fewer slices */
    fast_divisor by_sums, by_pairs, by_chunk, by_taps;
    bool outputs_inner;    /* output channels are neighbours among the weights, not taps */
    bool accumulates;      /* to what the gradient holds */
    wgrad_bias_parts bias; /* which blocks behind those of runs add */
} row_sums_parameters;

/* Returns the kernel for weights of dtype and sums of double or float. */
const void *tconv_wgrad_row_sums_kernel(tconv_dtype dtype, bool are_double);

TCONV_ROOM_END

#endif
