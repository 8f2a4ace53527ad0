/* The boxes that weights are cut into to be packed (boxes.cuh), as a plan holds them. */
#ifndef TCONV_CUDA_PACK_BOXES_H
#define TCONV_CUDA_PACK_BOXES_H

#include "../../core/problem.h"
#include "../numeric/divisor.h"

TCONV_ROOM_BEGIN(tconv)

/* Rows of M that follow one another whose weights lie at offsets of their own, as rows and columns: the outputs of a
 * channel, or all channels of an output. */
typedef struct pack_rows {
    int count, columns;
    int64_t row_step, column_step; /* elements */
} pack_rows;

/* A kernel that boxes have more columns of than there are, zeros: of the element in column c, inner row j < count is kernel
 * column c * count + j. */
typedef struct pack_filling {
    int columns; /* of the box's elements; 0: its elements lie at even distances, and all of them are there */
    int count;   /* inner rows that are there, the others being zeros */
    int kernel;  /* columns of the kernel */
    int64_t row_step;
} pack_filling;

/* Input channels that lie plane by plane (tconv_plane_taps). */
typedef struct pack_planes {
    fast_divisor by_channels; /* of a plane, all that are counted */
    int held;                 /* of these, which there are: weights of the others are zeros */
    int group_in;             /* channels from a channel group to the next; 0: channels are counted in each group */
    int64_t step;             /* elements from a plane to the next */
} pack_planes;

typedef struct pack_boxes {
    /* The weights as they lie. */
    tconv_weight_strides from;
    int64_t group_step; /* elements from the weights of a channel group to those of the next */
    pack_planes planes; /* of a kernel with depth: input channels of all groups are those of several planes; else one */
    int group_in;       /* input channels of a channel group */
    int group_out;      /* rows of M of a channel group */
    pack_rows inner;    /* else one */
    int64_t outer_step; /* elements from the weights of such rows to those of the next */
    pack_filling filling;  /* else zeros */
    int diagonal_in;       /* fused groups, whose weights are block-diagonal: input channels of each; else all */
    int diagonal_rows;     /* rows of M of each; else all */
    int64_t diagonal_step; /* elements from the weights of one to those of the next, beside its input channels' */
    int64_t elements;      /* of the kernel that a box has, by rows */
    int64_t first_element; /* the first of them */

    /* The packed weights. */
    int64_t runs;  /* of a box */
    int step_rows; /* packed rows from a step of a run to the next */
    int core_step; /* packed rows from a core of a step to the other */

    /* What tconv_cuda_choose_boxes makes of these. */
    unsigned count;       /* of boxes: the packed weights of so many that this overflows would fit no device */
    int rows_log2;        /* of a box */
    int cores_log2;       /* of a box */
    int strip_rows_log2;  /* of a strip */
    int strip_cores_log2; /* of a strip */
    bool plain;           /* rows of M lie at even distances, of a group that is not fused */
    bool kernel_inside;   /* elements lie closer than rows of M */
    fast_divisor by_diagonal_rows, by_inner_rows, by_inner_columns, by_filling_columns; /* unless boxes are plain */
    bool in_shared;          /* boxes are read through shared memory; else what follows is zeros */
    fast_divisor by_inner;   /* elements or rows of a box, whichever lie closer */
    fast_divisor by_channel; /* weights of an input channel of a box */
    int channel_pitch;       /* elements in shared memory from an input channel to the next, with gaps */
} pack_boxes;

/* Describes how the input channels of a layer lie. Given are group_in and group_step, which is 0 from then on where channels lie
 * plane by plane. */
void tconv_cuda_describe_pack_planes(pack_boxes *boxes, const tconv_plane_taps *taps);

/* Chooses the size of boxes, given all members above count. All weights are so many strips, whose rows and cores are
 * powers of two. */
void tconv_cuda_choose_boxes(pack_boxes *boxes, int element_size, int64_t strips, int strip_rows, int strip_cores);

TCONV_ROOM_END

#endif
