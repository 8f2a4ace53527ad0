/* The parts of the matrix algorithm share this while a layer is computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_BF16_TASK_H
#define TCONV_CPU_BF16_TASK_H

#include "plan.h"

/* One call of execute, as all tasks see it. */
typedef struct tconv_cpu_bf16_job {
    const tconv_layer *layer; /* the view's, as are src and dst */
    const tconv_cpu_bf16_plan *plan;
    const void *src;
    void *dst;
    const float *bias;    /* [group][block][output channel]; zeros where there is none, and for padding */
    const void *raw_bias; /* the caller's; NULL: there is none */
    const tconv_cpu_packed_header *header;
    tconv_cpu_posts posts;              /* of the forward operation */
    const tconv_cpu_bf16_range *ranges; /* [group][block] of the weights */
    const uint16_t *weights;
} tconv_cpu_bf16_job;

/* A task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_bf16_task {
    const tconv_cpu_bf16_job *job;
    int64_t image, images, row, rows, column, columns, group, block, blocks;
    int64_t loaded; /* which of the strips that tasks share lies there; -1: none */
    /* Of what each row of outputs reads, [image][row]; beyond them, of the last rows of the strip. It is taken by rows,
     * because tiles of rows and images are cut by the number of threads, which decides no bit of a result. */
    tconv_cpu_bf16_range *ranges;
    uint16_t *strip;
    float *planes, *sums, *levels;
    void *stage;
    int32_t *steps, *fragments;
    int64_t step_count; /* exchanged: the steps are those of every task */
    int64_t *places;    /* NHWC: where each column of a tile is stored, from the first one's place */
} tconv_cpu_bf16_task;

/* Loads and splits the strip of a task, and finds its range. */
void tconv_cpu_load_bf16(tconv_cpu_bf16_task *task);

/* Packs weights: an implementation's pack. */
tconv_status tconv_cpu_pack_bf16(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                 void *stream, tconv_issue *issue);

#endif
