/* What the kernel that fills outputs without a tap is told. */
#ifndef TCONV_CUDA_GENERAL_OUTPUTS_H
#define TCONV_CUDA_GENERAL_OUTPUTS_H

#include "../numeric/divisor.h"
#include "parameters.h"

TCONV_ROOM_BEGIN(tconv::general)

enum {
    FILL_THREADS = 256,
    FILL_ROWS = 64,  /* of a tile, at most: enough that finding a tile is cheap beside writing its outputs */
    MASK_STRIDE = 64 /* the longest stride whose residues fit in a mask */
};

/* The outputs, cut into tiles whose elements along a row are neighbours: columns in NCHW; in NHWC columns and channels,
 * or vectors of these. Or in lines, each of which is a row or, where rows follow one another, a plane. */
typedef struct outputs {
    device_axis rows, columns;      /* phases are sorted by residue */
    uint64_t row_mask, column_mask; /* of the residues that have a phase, where the stride is at most MASK_STRIDE */
    const void *bias;               /* or NULL */
    void *dst;
    tconv_strides strides;
    fast_divisor by_volume_images; /* tconv_image_volumes; where there are no volumes, the gap is 0 */
    int64_t volume_gap;            /* elements from a volume to the next, beside those of its images */
    layer_posts posts;
    bool nhwc;
    int lanes_log2; /* threads along a row */
    int rows_log2;  /* output rows of a tile */
    int repeats; /* elements of a row that a thread writes, where there are few rows, or vectors of a line: lanes apart */
    int64_t plane_channels;                          /* single channels, or vectors of them */
    int64_t row_length, row_tiles, stretches, tiles; /* of lines: elements, and those of a plane */
    int64_t lines;
    bool skips_rows; /* lines that have a phase are not written; else they are, before the kernel that sums */
} outputs;

typedef enum fill_form { FILLS_ELEMENTS, FILLS_VECTORS, FILLS_LINES } fill_form;

/* Names the kernel, which writes single elements, vectors of VECTOR_BYTES, or lines; has_posts: it runs post-ops, for which
 * other layers have no registers to spare. NULL in a build without CUDA. */
const void *tconv_general_fill_kernel(tconv_dtype dtype, fill_form form, bool has_posts);

TCONV_ROOM_END

#endif
