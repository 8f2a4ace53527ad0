/*
 * The blocking of the phases algorithm: how it cuts a layer into tiles and tasks. That is a pure function of the layer,
 * which is made once with its plan. The words are those of blocking.h; a strip lies channel by channel.
 */
#ifndef TCONV_CPU_PHASES_PLAN_H
#define TCONV_CPU_PHASES_PLAN_H

#include "../blocking/blocking.h"
#include "../kernels/kernels.h"

/* The most segments of a period of whole input channels, whose offsets are listed term by term: enough that the last
 * segment, which may be shorter, does not matter. Five are chosen, not measured. */
enum { TCONV_CPU_PERIOD_SEGMENTS = 5 };

/* The most terms of a period, which its segments follow from. */
enum { TCONV_CPU_PERIOD_TERMS = TCONV_CPU_PERIOD_SEGMENTS * TCONV_CPU_SEGMENT };

/* The most positions of a gathered tile, which share their weights. It is chosen; 192 were level or 5 % slower (Zen 4,
 * docs/log/2026-11-21-cpu.md). */
enum { TCONV_CPU_GATHER_POSITIONS = 256 };

typedef struct tconv_cpu_plan {
    const tconv_cpu_kernels *kernels;
    int real; /* index to kernels->real */
    int64_t real_size, lanes;
    tconv_cpu_axis rows, columns;

    /*
     * The strip. halo: all taps of all phases read one strip, [channel][row][image][column], whose tile has a halo and
     * zero padding; gather: each phase has its own, [tap and channel][image][row][column], the im2col matrix of the
     * tile, in K-blocks of so many terms, between which the sums stay in memory.
     */
    bool gather;
    int64_t pitch, row_pitch; /* halo: from image to image, from row to row */
    int64_t channel_pitch;    /* halo: from channel to channel; gather: from term to term */
    int64_t padding;          /* halo: zero padding that a row shares with the next, after a channel's last row too */
    int64_t k_block;          /* gather: terms of a strip, in whole segments */

    /*
     * fused (halo): the column phases of a row are channels of one microkernel (space-to-depth along W), which reads
     * the strip once for all of them; where there are few output channels, that is the only thing to share. Tap number
     * i of each phase then reads the same input, so that phase p's sums lie lag[p] <= max_lag positions late. order
     * lists the phases by falling number of taps.
     */
    bool fused;
    int64_t max_lag;
    int8_t order[TCONV_CPU_MAX_CHANNELS], lag[TCONV_CPU_MAX_CHANNELS];

    /* stencil (halo): each row is summed and stored in one go, a channel at a time: see phases/stencil.c. */
    bool stencil;

    /* together: all column phases of a row are summed before any is stored. interleave: they are stored as one row,
     * else one by one. interleave_pixels: each channel of an NHWC pixel counts as a residue. */
    bool together, interleave, interleave_pixels;
    bool stream; /* outputs are written by streaming stores */
    /* Microkernels prefetch the weights that follow, not the next task's strip: a task reads more weights than input, and
     * they are not in the second-level cache. */
    bool weights_ahead;

    /* Sums: [row][position], a row for each channel of a block and each column phase that is held. */
    int64_t sums_pitch; /* from row to row */
    int64_t row_block;  /* halo: rows of a tile that are summed before they are stored */
    int64_t sums_level; /* gather: from one level of the calls' cascade to the next */

    int64_t images, tile_rows, tile_columns; /* of a tile; the last tiles may have fewer */
    int64_t groups;                          /* groups of a task */
    int64_t blocks, task_blocks;             /* blocks of output channels of a group, and of a task */
    int64_t image_tiles, row_tiles, column_tiles, group_tasks, block_tasks, tasks;

    /* Scratch, in bytes: bias; then for each thread strip, sums, levels of a microkernel's cascade, stage, calls of the
     * passes that are stored together (halo), vectors. */
    int64_t bias_bytes, strip_bytes, sums_bytes, levels_bytes, stage_bytes, calls_bytes, thread_bytes;
    int threads;

    /* Packed weights, in bytes: tconv_cpu_packed_header, taps (int32_t), weights. */
    int64_t taps_bytes, packed_bytes;
} tconv_cpu_plan;

/* A pass of a block of channels as a microkernel call. */
typedef struct tconv_cpu_pass_call {
    tconv_cpu_microtile microtile;              /* all of it but the addresses of its positions */
    tconv_cpu_microkernel *const *microkernels; /* by their vectors */
    double bias[TCONV_CPU_MAX_CHANNELS];        /* Real, of each phase and channel */
    int32_t offsets[TCONV_CPU_PERIOD_TERMS];    /* of a period's terms, where it is more than the taps of a channel */
} tconv_cpu_pass_call;

/* Makes a plan; fails only where a size overflows. */
tconv_status tconv_cpu_plan_init(tconv_cpu_plan *plan, const tconv_layer *layer, tconv_issue *issue);

/* A block of output channels of a group. */
typedef struct tconv_cpu_block {
    int64_t first, count;
} tconv_cpu_block;

/* Returns a block of a group, whose channels are cut into plan->blocks parts that differ by one at most, so that none
 * is padded. */
static inline tconv_cpu_block tconv_cpu_block_of(const tconv_cpu_plan *plan, int64_t group_out, int64_t index)
{
    int64_t size = group_out / plan->blocks, larger = group_out % plan->blocks;
    tconv_cpu_block block = {index * size + (index < larger ? index : larger), size + (index < larger)};
    return block;
}

/*
 * A pass is what the microkernels sum in one go for a block of channels: taps of a row phase and of `phases` column
 * phases, number `first` and up in the plan's order. Without fusion, each row phase with each column phase is a pass;
 * with it, the taps that all column phases have are the first pass of a row phase, and those of fewer phases follow.
 */
typedef struct tconv_cpu_pass {
    const tconv_phase *row;
    int64_t first, phases;
    tconv_cpu_taps row_taps, column_taps;
    int64_t taps;    /* taps of the passes before it */
    int64_t weights; /* taps * phases of the passes before it; its weights begin after so many for each input channel */
    bool ends_row;   /* it is the last pass of its row phase */
} tconv_cpu_pass;

static inline int64_t tconv_cpu_pass_taps(const tconv_cpu_pass *pass)
{
    return pass->row_taps.count * pass->column_taps.count;
}

/* The number of a term in its pass. halo: taps are the inner loop, so that what is read lies close together; gather:
 * input channels are. */
static inline int64_t tconv_cpu_term(const tconv_cpu_plan *plan, const tconv_cpu_pass *pass, int64_t group_in,
                                     int64_t tap, int64_t channel)
{
    return plan->gather ? tap * group_in + channel : channel * tconv_cpu_pass_taps(pass) + tap;
}

/* Steps to the next pass, row phases outside; pass->row must be NULL at first. False at the end. */
bool tconv_cpu_next_pass(const tconv_cpu_plan *plan, const tconv_layer *layer, tconv_cpu_pass *pass);

/* Returns a column phase by its number in the plan's order. */
static inline const tconv_phase *tconv_cpu_column_phase(const tconv_cpu_plan *plan, const tconv_layer *layer,
                                                        int64_t number)
{
    return &layer->columns.phases[plan->fused ? plan->order[number] : number];
}

/* The lag of a column phase: the sums of the tile's first position lie so many positions late. */
static inline int64_t tconv_cpu_lag(const tconv_cpu_plan *plan, int64_t number)
{
    return plan->fused ? plan->lag[number] : 0;
}

/* Part of a tile is covered by vectors of positions. It is flat if they run on across rows and images, which is so
 * where that takes no more of them than vectors of each row alone. */
bool tconv_cpu_is_flat(const tconv_cpu_plan *plan, int64_t images, int64_t rows, int64_t columns);
int64_t tconv_cpu_count_vectors(const tconv_cpu_plan *plan, int64_t images, int64_t rows, int64_t columns);

#endif
