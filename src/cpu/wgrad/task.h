/* The parts of cpu_wgrad share this while gradients are computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_WGRAD_TASK_H
#define TCONV_CPU_WGRAD_TASK_H

#include "../reference/reference.h"
#include "plan.h"

/* A phase of an axis with live taps. Row or column i of a tile that begins at input 0 is output `base + i` of the phase
 * for its first live tap. */
typedef struct tconv_cpu_wgrad_phase {
    int64_t residue, outputs, base;
} tconv_cpu_wgrad_phase;

/* A live tap of both axes. */
typedef struct tconv_cpu_wgrad_tap {
    const tconv_cpu_wgrad_phase *row, *column;
    int64_t row_shift, column_shift; /* beyond its phases' base */
    int64_t weight;                  /* its place among the weights of an input and an output channel */
    int32_t at;                      /* where it begins in the dst strip, for the tile's first input */
    int32_t at_place;                /* the tap whose place is this one's index, where taps are inside */
} tconv_cpu_wgrad_tap;

/* One call of execute, as all tasks see it. */
typedef struct tconv_cpu_wgrad_job {
    const tconv_layer *layer;
    const tconv_cpu_wgrad_plan *plan;
    const char *src, *dst;
    char *weights, *bias; /* gradients; NULL: not wanted */
    const tconv_cpu_wgrad_phase *rows, *columns;
    const tconv_cpu_wgrad_tap *taps;
    double *parts;                       /* [part][block][high, low][sums] */
    tconv_cpu_reference_sum *bias_parts; /* [part][output channel] */
} tconv_cpu_wgrad_job;

/* What a tile reads of src and of dst: runs of bytes, by [0] inside of [1] inside of [2], and which is the next to be
 * prefetched, while the tile before it is multiplied. */
typedef struct tconv_cpu_wgrad_ahead {
    struct {
        const char *first;
        int64_t bytes, count[3], step[3], runs;
    } of[2];
    int64_t next, at_a_time;
} tconv_cpu_wgrad_ahead;

/* A task and its thread's scratch. */
typedef struct tconv_cpu_wgrad_task {
    const tconv_cpu_wgrad_job *job;
    int64_t group, in, ins, out, outs; /* channels of the group: the block; depthwise, ins groups from group on */
    int64_t image, images, row, rows, column, columns; /* the tile */
    void *src, *dst;                                   /* strips */
    double *sums;                                      /* [high, low][output channel][tap][input channel] */
    double *wide;        /* a row of a panel, where the plan's sums are narrow and some terms are left out; else NULL */
    float *narrow;       /* the narrow sums */
    bool begins;         /* the tile is the first of the sums, which hold nothing */
    void *levels, *tile; /* of a microkernel's call */
    int32_t *at;         /* where each output channel with each tap begins in the dst strip */
    tconv_cpu_pixel_tap *terms; /* rows of the tile */
    tconv_cpu_padded_row *padded;
    tconv_cpu_split_run *runs; /* of a row of dst */
    tconv_cpu_wgrad_ahead ahead;
} tconv_cpu_wgrad_task;

/* Channels of a block. */
typedef struct tconv_cpu_wgrad_block {
    int64_t group, in, ins, out, outs;
} tconv_cpu_wgrad_block;

/* Input channels that are stored at a time: a cache line of sums. */
enum { TCONV_CPU_WGRAD_STORED = 8 };

/* Stores the sums of some input channels of a block, narrow ones of all of them; first is a multiple of
 * TCONV_CPU_WGRAD_STORED. */
void tconv_cpu_store_wgrad(const tconv_cpu_wgrad_job *job, const tconv_cpu_wgrad_block *block, const double *sums,
                           int64_t first, int64_t count);

/* Lists what tile `index` reads for the task's block, to be prefetched in so many parts; nothing where it is -1. */
void tconv_cpu_look_ahead_wgrad(tconv_cpu_wgrad_task *task, int64_t index, int64_t parts);

/* Prefetches the next part. */
void tconv_cpu_prefetch_wgrad(tconv_cpu_wgrad_task *task);

/* Pixels of a row of an image, of which some channels are wanted, in `width` lanes. */
typedef struct tconv_cpu_wgrad_row {
    const char *from; /* the first pixel's first channel */
    const tconv_strides *strides;
    int64_t columns, channels, width;
} tconv_cpu_wgrad_row;

/* Loads the channels of each pixel side by side: NHWC as they lie, NCHW transposed. Lanes beyond the last channel are
 * zeros. */
void tconv_cpu_load_wgrad_row(const tconv_cpu_wgrad_task *task, const tconv_cpu_wgrad_row *row, void *to);

/* Loads the src strip, and the dst strip, of the tile. */
void tconv_cpu_load_wgrad_src(const tconv_cpu_wgrad_task *task);
void tconv_cpu_load_wgrad_dst(const tconv_cpu_wgrad_task *task);

/* Adds the products of the tile to the block's sums, where the plan is depthwise; loads the strips itself. */
void tconv_cpu_multiply_depthwise(tconv_cpu_wgrad_task *task);

/* Sums so many terms that are listed for rows [first, first + count) of the micro-tile, of vectors of both strips. */
void tconv_cpu_sum_wgrad_terms(const tconv_cpu_wgrad_task *task, int64_t terms, int64_t first, int64_t count);

/* The same as tconv_cpu_multiply_depthwise where the plan has planes; what the dst strip holds beyond these must be
 * zeros. */
void tconv_cpu_multiply_planes(tconv_cpu_wgrad_task *task);

/* Clears the dst strip. */
void tconv_cpu_clear_wgrad_dst(const tconv_cpu_wgrad_task *task);

/* Adds up the lanes of each sum of a block, in the place of the first. */
void tconv_cpu_add_wgrad_lanes(const tconv_cpu_wgrad_plan *plan, double *sums);

/* Adds a micro-tile's sums, rows of `width` lanes, to the block's: to rows from `row` on, and input channels from
 * `channel` on. */
void tconv_cpu_add_wgrad_tile(const tconv_cpu_wgrad_task *task, int64_t row, int64_t rows, int64_t channel,
                              int64_t width);

/* Returns the inputs [*first, *first + result) of [begin, begin + count) from which a tap reaches an output. */
int64_t tconv_cpu_wgrad_inputs(const tconv_cpu_wgrad_phase *phase, int64_t shift, int64_t begin, int64_t count,
                               int64_t *first);

/* Sums the gradient of the bias. scratch: of tconv_cpu_run_tasks. */
void tconv_cpu_sum_wgrad_bias(const tconv_cpu_wgrad_job *job, char *scratch);

#endif
