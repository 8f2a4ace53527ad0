/* The boxes that weights are cut into to be packed (boxes.cuh), as a plan holds them. */
#ifndef TCONV_CUDA_PACK_BOXES_H
#define TCONV_CUDA_PACK_BOXES_H

#include "../../core/problem.h"
#include "../numeric/divisor.h"

namespace tconv
{

struct pack_boxes {
    /* The weights as they lie. */
    tconv_weight_strides from;
    int group_in;                /* input channels of a channel group */
    int group_out;               /* rows of M of a channel group: output channels, by outputs of each */
    int outputs;                 /* of one channel, each with weights of its own; else 1 */
    int out_columns;             /* columns that these outputs have */
    int64_t output_rows_step;    /* elements from an output's weights to those of the one a row below */
    int64_t output_columns_step; /* elements from an output's weights to those of the one a column beside */
    int diagonal_in;             /* fused groups, whose weights are block-diagonal: input channels of each; else all */
    int diagonal_out;            /* output channels of each; else all */
    int64_t elements;            /* of the kernel that a box has, by rows */
    int64_t first_element;       /* the first of them */

    /* The packed weights. */
    int64_t runs;  /* of a box */
    int step_rows; /* packed rows from a step of a run to the next */
    int core_step; /* packed rows from a core of a step to the other */

    /* What choose_boxes (boxes.cuh) makes of these. */
    unsigned count;          /* of boxes: the packed weights of so many that this overflows would fit no device */
    int rows_log2;           /* of a box */
    int cores_log2;          /* of a box */
    int strip_rows_log2;     /* of a strip */
    int strip_cores_log2;    /* of a strip */
    bool plain;              /* rows of M are output channels of a group that is not fused */
    bool kernel_inside;      /* elements lie closer than rows of M */
    bool in_shared;          /* boxes are read through shared memory; else what follows is zeros */
    fast_divisor by_inner;   /* elements or rows of a box, whichever lie closer */
    fast_divisor by_channel; /* weights of an input channel of a box */
    int channel_pitch;       /* elements in shared memory from an input channel to the next, with gaps */
};

} // namespace tconv

#endif
