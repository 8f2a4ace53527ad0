/* What the host side of the gradient of weights by spans (weights_spans.c) and its kernels share: the parameters of a kernel. */
#ifndef TCONV_CUDA_DEPTHWISE_WEIGHTS_SPANS_PARAMETERS_H
#define TCONV_CUDA_DEPTHWISE_WEIGHTS_SPANS_PARAMETERS_H

#include "../../core/impl.h"
#include "../hardware.h"
#include "../numeric/divisor.h"

TCONV_ROOM_BEGIN(tconv::depthwise::weight_spans)

enum {
    MAX_SPAN_THREADS = 256,
    RESIDENT_THREADS = 512,  /* of a multiprocessor, that registers are for */
    SPAN_VECTOR = 4,         /* elements that a thread loads at once where rows begin at multiples of them */
    MAX_CHUNK = 16,          /* taps of a kernel row, of a thread */
    MAX_JOINS = 24,          /* spans whose sums a thread adds in f32: they and the terms of a span are 32 roundings */
    CHANNEL_PITCH = WARP + 1 /* from a sum of WARP channels to the next in shared memory, so that threads that read one
                                channel's sums read different banks */
};

/* What the threads of a warp have. */
enum {
    VECTOR_TASKS,  /* tasks, whose lines are loaded by vectors */
    ELEMENT_TASKS, /* tasks, whose lines are loaded element by element */
    LANE_CHANNELS  /* a channel each, of the same tasks */
};

/* Returns the inputs of a span: neighbours in a row of src, whose windows of dst overlap. */
TCONV_ROOM_CONSTANT int span_inputs(int stride)
{
    return stride == 4 ? 4 : 8;
}

/* Returns the kernel rows that a thread has registers for beside so many taps of each. */
TCONV_ROOM_CONSTANT int most_rows(int taps)
{
    return taps <= 8 ? 4 : taps <= 12 ? 3 : 2;
}

/* Returns the taps of the kernel that is for this many or fewer, for less than a vector of them before the first. */
TCONV_ROOM_CONSTANT int kernel_taps(int taps)
{
    return taps <= 4 ? 4 : taps <= 8 ? 8 : taps <= 12 ? 12 : 20;
}

typedef struct span_axis {
    int in, out, kernel, stride, dilation, pad;
} span_axis;

typedef struct span_parameters {
    const void *src, *diff_dst;
    double *slices;
    tconv_strides src_strides, dst_strides;
    int src_step, src_row,
        src_column;          /* elements to the next input row of a walk, to the next row, to the next column */
    int dst_row, dst_column; /* elements to the next row and column of dst */
    span_axis rows, columns;
    int walk_step;          /* from an input row of a walk to the next; the walk reads each row of dst once */
    int kernel_step;        /* from a kernel row of a thread to the next, which reads that row one input row earlier */
    int classes;            /* of kernel rows that are kernel_step apart */
    int walk_rows, longer;  /* input rows of a walk, and walks of an image that have one more */
    fast_divisor walks;     /* of an image */
    fast_divisor runs;      /* of a walk */
    fast_divisor spans;     /* of a row */
    int run_steps;          /* rows of dst of a run */
    int tasks, part_tasks;  /* a task is a span of columns in a run of rows; of a channel, of a part */
    int round_tasks;        /* that a thread sums in f32 */
    int task_step;          /* tasks that the threads of a block have at a time */
    int group_rows;         /* kernel rows of a group of taps, which is what a warp has */
    int chunk, chunks;      /* taps of a kernel row of a group, and groups side by side */
    int before;             /* taps before the first of a chunk, so that windows begin at multiples of vectors */
    int groups, group_out;  /* groups of taps and of output channels; output channels of a channel */
    int block_groups, sets; /* groups of taps of a block, whose warps have the same tasks; sets of such warps */
    int group_blocks;       /* blocks that share all groups of taps */
    int channels, channel_blocks;
} span_parameters;

TCONV_ROOM_END

#endif
