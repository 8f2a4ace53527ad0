/* What the kernels that pack phase tables and weights are told. */
#ifndef TCONV_CUDA_GENERAL_PACKING_H
#define TCONV_CUDA_GENERAL_PACKING_H

#include "../../core/impl.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::general)

enum {
    PIECE = 96,     /* phases of 40 bytes in a launch: parameters may have 4 KB */
    SIDE = 32,      /* weights along a side of a square: a warp reads and writes a row at once */
    SQUARE_ROWS = 8 /* rows of a square that a block copies at once */
};

typedef struct phases_piece {
    tconv_phase phases[PIECE];
} phases_piece;

/* One axis of the weights: extent, and from one index to the next in the caller's and the packed weights. */
typedef struct weights_axis {
    int64_t extent, from, to;
} weights_axis;

typedef struct weights_cut {
    weights_axis out, inner, middle, outer; /* of a square: out and inner */
    int64_t packed_out;                     /* padded extent of out */
    int64_t out_squares, inner_squares, squares;
    bool transposed; /* whether inner, not out, runs along the caller's memory */
} weights_cut;

/* Name the kernels; NULL in a build without CUDA. */
const void *tconv_general_phases_kernel(void);
const void *tconv_general_weights_kernel(size_t element_size);

TCONV_ROOM_END

#endif
