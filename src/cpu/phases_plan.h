/*
 * How the phases algorithm cuts a layer up: a pure function of the layer, made once with its plan.
 * The words are those of blocking.h; a strip goes channel by channel.
 */
#ifndef TCONV_CPU_PHASES_PLAN_H
#define TCONV_CPU_PHASES_PLAN_H

#include "blocking.h"
#include "kernels.h"

/* The most segments of a round of whole input channels, of which what each term reads is listed: enough that the last one of
 * a round, which may be shorter, does not count. */
enum { TCONV_CPU_PERIOD_SEGMENTS = 5, TCONV_CPU_PERIOD_TERMS = TCONV_CPU_PERIOD_SEGMENTS * TCONV_CPU_SEGMENT };

/* The most positions of a gathered tile, which share their weights. */
enum { TCONV_CPU_GATHER_POSITIONS = 256 };

typedef struct tconv_cpu_plan {
    const tconv_cpu_kernels *kernels;
    int real; /* index to kernels->real */
    int64_t real_size, lanes;
    tconv_cpu_axis rows, columns;

    /*
     * The strip. halo: all taps of all phases read one strip, [channel][row][image][column] with a margin; gather: each
     * phase has its own, [tap and channel][image][row][column] without one, in chunks of so many terms, between which
     * the sums wait in memory.
     */
    bool gather;
    int64_t pitch, row_pitch; /* halo: from image to image, from row to row */
    int64_t channel_pitch;    /* halo: from channel to channel; gather: from term to term */
    int64_t padding;          /* halo: zeros behind a channel's last row */
    int64_t k_block;          /* gather: terms of a strip, whole segments */

    /*
     * fused (halo): the column phases of a row are channels of one microkernel, which reads the strip once for all of
     * them; where there are few output channels, that is what there is to share. Taps of one number then read the same
     * input, so that phase p's sums lie lag[p] <= max_lag positions late. order: phases, those of most taps first.
     */
    bool fused;
    int64_t max_lag;
    int8_t order[TCONV_CPU_MAX_CHANNELS], lag[TCONV_CPU_MAX_CHANNELS];

    /* stencil (halo): rows are summed and stored at once, a channel at a time: see phases_stencil.c. */
    bool stencil;

    /* The column phases of a row wait for each other (together), and are interleaved or else stored one by one. With
     * interleaved pixels, each channel of an NHWC pixel is a residue. */
    bool together, interleave, interleave_pixels;
    bool stream; /* outputs pass by the caches */

    /* Sums: [row][position], a row for each phase that waits and channel of a block. */
    int64_t sums_pitch; /* from row to row */
    int64_t row_block;  /* halo: rows of a tile that are summed, then stored */
    int64_t sums_level; /* gather: from one level of the calls' cascade to the next */

    int64_t images, tile_rows, tile_columns; /* of a tile, but for the last ones */
    int64_t groups;                          /* of a task */
    int64_t blocks, task_blocks;             /* blocks of output channels: of a group, and of a task */
    int64_t image_tiles, row_tiles, column_tiles, group_tasks, block_tasks, tasks;

    /* Scratch, in bytes: bias, then for each thread strip, sums, levels of a microkernel's cascade, line, calls of the passes
     * that are stored together (halo), vectors. */
    int64_t bias_bytes, strip_bytes, sums_bytes, levels_bytes, stage_bytes, calls_bytes, thread_bytes;
    int threads;

    /* Packed weights, in bytes: tconv_cpu_packed_header, taps (int32_t), weights. */
    int64_t taps_bytes, packed_bytes;
} tconv_cpu_plan;

/* A pass of a block of channels as a call of a microkernel. */
typedef struct tconv_cpu_pass_call {
    tconv_cpu_microtile microtile;              /* everything about it but where it works */
    tconv_cpu_microkernel *const *microkernels; /* by vectors */
    double bias[TCONV_CPU_MAX_CHANNELS];        /* Real; of each phase and channel */
    int32_t offsets[TCONV_CPU_PERIOD_TERMS];    /* of a round's terms, where it is not the taps of a channel */
} tconv_cpu_pass_call;

/* Fails only where a size overflows. */
tconv_status tconv_cpu_plan_init(tconv_cpu_plan *plan, const tconv_layer *layer, tconv_issue *issue);

/* Some output channels of a group. */
typedef struct tconv_cpu_block {
    int64_t first, count;
} tconv_cpu_block;

/* The channels of a group in plan->blocks parts that differ by one at most, so that none is padded. */
static inline tconv_cpu_block tconv_cpu_block_of(const tconv_cpu_plan *plan, int64_t group_out, int64_t index)
{
    int64_t size = group_out / plan->blocks, larger = group_out % plan->blocks;
    tconv_cpu_block block = {index * size + (index < larger ? index : larger), size + (index < larger)};
    return block;
}

/*
 * A pass: what the microkernels sum in one go, for a block of channels: some taps of a row phase and of `phases` column
 * phases, number `first` and up in the plan's order. Without fusion, each pair of phases is a pass; with it, the taps that
 * all column phases have are the first pass of a row phase, and those of fewer phases follow.
 */
typedef struct tconv_cpu_pass {
    const tconv_phase *row;
    int64_t first, phases;
    tconv_cpu_taps row_taps, column_taps;
    int64_t taps;    /* taps before it, in the list of what taps read */
    int64_t weights; /* taps * phases before it: times input channels, what a channel's weights begin after */
    bool ends_row;   /* the last one of its row phase */
} tconv_cpu_pass;

static inline int64_t tconv_cpu_pass_taps(const tconv_cpu_pass *pass)
{
    return pass->row_taps.count * pass->column_taps.count;
}

/* The order of a pass's terms. halo: taps inside, so that what is read lies close together; gather: input channels. */
static inline int64_t tconv_cpu_term(const tconv_cpu_plan *plan, const tconv_cpu_pass *pass, int64_t group_in,
                                     int64_t tap, int64_t channel)
{
    return plan->gather ? tap * group_in + channel : channel * tconv_cpu_pass_taps(pass) + tap;
}

/* Walks all passes, rows outside: pass->row must be NULL at first. False at the end. */
bool tconv_cpu_next_pass(const tconv_cpu_plan *plan, const tconv_layer *layer, tconv_cpu_pass *pass);

/* A column phase by its number in the plan's order. */
static inline const tconv_phase *tconv_cpu_column_phase(const tconv_cpu_plan *plan, const tconv_layer *layer,
                                                        int64_t number)
{
    return &layer->columns.phases[plan->fused ? plan->order[number] : number];
}

/* The position, less the tile's first, whose sums of a column phase belong to the tile's first output. */
static inline int64_t tconv_cpu_lag(const tconv_cpu_plan *plan, int64_t number)
{
    return plan->fused ? plan->lag[number] : 0;
}

/* Vectors of positions that cover a part of a tile: running on across rows and images where that takes no more of them,
 * else each row's own. */
bool tconv_cpu_is_flat(const tconv_cpu_plan *plan, int64_t images, int64_t rows, int64_t columns);
int64_t tconv_cpu_count_vectors(const tconv_cpu_plan *plan, int64_t images, int64_t rows, int64_t columns);

#endif
