/* The parts of cpu_carry share this: its plan, how a call is cut into tasks, and a task. The words are those of carry.c. */
#ifndef TCONV_CPU_CARRY_CARRY_H
#define TCONV_CPU_CARRY_CARRY_H

#include "../../core/stream.h"
#include "../col2im/task.h"

/* Scratch of a thread, in bytes. */
typedef struct tconv_cpu_carry_sizes {
    int64_t strip, weights, sums, levels, products, outputs, places;
    int64_t thread; /* all of them */
} tconv_cpu_carry_sizes;

/* The most input channels of a group whose products are made one after another: calls of kernels take longer. */
enum { TCONV_CPU_CARRY_FEW = 3 };

typedef struct tconv_cpu_carry_plan {
    tconv_cpu_col2im_plan products; /* how products are made: what does not depend on the call */
    tconv_cpu_carry_sizes sizes;
    int64_t bias_bytes, nothing_bytes;
    int threads; /* for the longest chunk */
} tconv_cpu_carry_plan;

/* How a call is cut. No sum depends on it. */
typedef struct tconv_cpu_carry_cut {
    bool packs;                     /* weights, for microkernels */
    int64_t images, frames, others; /* of the pixels that are multiplied at a time: frames > 1 only with all others */
    int64_t part_images, parts;     /* images of a task; image parts */
    int64_t channels, blocks;       /* output channels of a group that a task has; blocks of a group */
    int64_t groups, group_parts;    /* groups of a task, which then has all of their channels; parts of the groups */
    int64_t length;                 /* of an output line along the streamed axis: those of the frames, and the tail */
    int64_t tasks;
    int threads;
} tconv_cpu_carry_cut;

/* One call of execute, as all tasks see it. */
typedef struct tconv_cpu_carry_job {
    tconv_cpu_col2im_job products; /* its layer is that of the call */
    const tconv_cpu_carry_sizes *sizes;
    const tconv_cpu_carry_cut *cut;
    const tconv_step_arguments *step;
} tconv_cpu_carry_job;

/* A task's outputs, products.outputs, lie as they do in dst: NCHW [image][channel][row][column], NHWC
 * [image][row][column][channel], where the streamed axis has cut->length places. Where columns are streamed, that is a line
 * for each row, else one for each channel (NCHW) or image. */
typedef struct tconv_cpu_carry_task {
    tconv_cpu_col2im_task products;
    const tconv_cpu_carry_job *job;
    int64_t image, images; /* whose outputs are there */
    int64_t group, groups; /* likewise */
    int64_t channels;      /* of all these groups, side by side in dst */
    int64_t frame, frames; /* whose products are added */
    int64_t other, others; /* pixels of each frame that are multiplied */
} tconv_cpu_carry_task;

/* Sets the outputs: the carry at the beginning of each line, zeros behind. */
void tconv_cpu_carry_begin(tconv_cpu_carry_task *task);

/* Makes the products of the pixels with all groups of few input channels, side by side, as tconv_cpu_col2im_multiply does
 * with one group. */
void tconv_cpu_carry_multiply_few(tconv_cpu_carry_task *task);

/* Adds the products of the pixels that are multiplied, of some of the task's groups. */
void tconv_cpu_carry_add(const tconv_cpu_carry_task *task, int64_t group, int64_t groups);

/* Makes outputs of the first `count` places of each line, which go to dst from place `first` on. */
void tconv_cpu_carry_store(const tconv_cpu_carry_task *task, int64_t first, int64_t count);

/* Moves each line on by so many places, which are zeros at its end. */
void tconv_cpu_carry_move(const tconv_cpu_carry_task *task, int64_t count);

/* Writes what each line has from place `first` on to the carry; of a flush, zeros. */
void tconv_cpu_carry_end(const tconv_cpu_carry_task *task, int64_t first);

#endif
