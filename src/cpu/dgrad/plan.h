/*
 * The blocking of the correlation algorithm: how it cuts a layer into tiles and tasks. That is a pure function of the
 * layer, which is made once with its plan. The words are those of blocking.h, but for these: the gradient of src is
 * what is computed, so that a position is a pixel of src; a term is a tap and an output channel; a block is some input
 * channels of a group; and a strip is loaded from the gradient of dst.
 *
 * A tap of a phase with residue r reads output stride * q + r for position q + shift (core/phases.h): outputs of other
 * residues are never read. So a strip holds, for each phase with a live tap, the q's that the taps of a tile read, and
 * neighbours among them are neighbours of one tap. They are one run, or, where taps are apart, as they must be if they
 * are further apart than a tile is long, one run for each tap. A place is an element of the strip of one output channel:
 *
 *     [plane: column run][line: q of each row phase][image][q of the column run, to the longest's length]
 */
#ifndef TCONV_CPU_DGRAD_PLAN_H
#define TCONV_CPU_DGRAD_PLAN_H

#include "../blocking/blocking.h"
#include "../kernels/kernels.h"
#include "../kernels/pair_kernels.h"
#include "../kernels/pixels_kernels.h"

/* One axis: its live taps. */
typedef struct tconv_cpu_dgrad_axis {
    int64_t positions;      /* inputs */
    int64_t phases;         /* those with a live tap */
    int64_t taps, max_taps; /* live taps of all phases, and the most of one */
    int64_t step;           /* from a tap of a phase to the next one, in q's */
    int64_t stride, span;   /* outputs from position to position, and from a position's first tap to its last */
} tconv_cpu_dgrad_axis;

typedef struct tconv_cpu_dgrad_plan {
    const tconv_cpu_kernels *kernels;
    const tconv_cpu_pixel_kernels *pixel_kernels;
    /* Of bf16: terms are a tap and two output channels, the numbers of one word, which counts as an output channel
     * below. NULL: they are not. */
    const tconv_cpu_pair_kernels *pairs;
    tconv_cpu_microkernel *const (*microkernels)[TCONV_CPU_MAX_VECTORS + 1]; /* of planes */
    int64_t segment;                                                         /* terms of one, at most */
    int real;                                                                /* index to the kernels' real */
    int64_t real_size, lanes;
    tconv_cpu_dgrad_axis rows, columns;
    int64_t taps; /* live taps of both axes */

    /*
     * Where vectors run. planes: along positions, and a micro-tile's rows are input channels; a strip is
     * [output channel][place]. pixels (NHWC): along input channels, and a micro-tile's rows are positions; a strip is
     * [place][output channel].
     */
    bool pixels;

    /* Groups, and the channels of each. A depthwise layer in pixels counts as one group of all input channels, each of
     * which has one output channel of its own, in a lane of the same vector. */
    bool depthwise;
    int64_t all_groups, group_in, group_out;
    int64_t block_width, blocks; /* input channels of a block, and blocks of a group */
    int64_t padded_in;           /* pixels: input channels of a group in whole vectors */

    /* The strip holds one K-block of output channels after another, with partial sums in memory between them. */
    int64_t k_block;
    bool partial_sums;          /* k_block < group_out */
    int64_t levels, sums_level; /* of the partial sums' cascade: their number, and from one to the next */
    int64_t sums_pitch;         /* planes: from channel to channel */
    /* Column taps are apart. They may be so for planes: there are then no places between the rows of a tile that is as
     * wide as the image, and vectors run on across rows. */
    bool columns_apart;
    /* Columns of dst lie in the strip as they do in memory, those of all phases: pixels, where all phases have taps. */
    bool columns_whole;
    int64_t column_step; /* places from position to position */
    bool rows_of_taps; /* so do, then, what the taps of a row read: they are one tap, and its channels theirs in turn */
    int64_t planes;    /* runs of a line */
    int64_t pitch, row_pitch, plane_pitch; /* in places: from image to image, line to line, plane to plane */
    int64_t place_pitch, channel_pitch;    /* in elements: from place to place, from output channel to channel */
    int64_t places;                        /* all */
    int64_t period_channels;               /* planes: output channels whose terms are listed */

    int64_t images, tile_rows, tile_columns; /* of a tile; the last tiles may have fewer */
    int64_t groups, task_blocks;             /* of a task */
    int64_t image_tiles, row_tiles, column_tiles, group_tasks, block_tasks, tasks;

    bool stream; /* planes: results are streamed */

    /* Scratch, in bytes: for each thread strip, sums, levels of a microkernel's cascade, stage for results that are
     * streamed, to and at of each position, runs of a line, twice, and of lines, twice, rows that are prefetched. */
    int64_t strip_bytes, sums_bytes, levels_bytes, stage_bytes;
    int64_t to_bytes, at_bytes, runs_bytes, splits_bytes, lines_bytes, ahead_bytes;
    int64_t thread_bytes;
    int threads;

    /* Packed weights, in bytes: tconv_cpu_packed_header, terms, weights. */
    int64_t terms_bytes, packed_bytes;
} tconv_cpu_dgrad_plan;

/* Makes a plan, of pairs if asked for: only where tconv_cpu_has_dgrad_pairs. Declines layers with too many taps; fails where a size overflows. */
tconv_status tconv_cpu_dgrad_plan_init(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer, bool pairs,
                                       tconv_issue *issue);

/* Whether the layer of a plan can be summed by pairs too, of any two channels in planes, and of those that are one word of
 * memory in pixels, and the processor makes more of them than multiply-adds. */
bool tconv_cpu_has_dgrad_pairs(const tconv_cpu_dgrad_plan *plan, const tconv_layer *layer);

/* --------------------------------------------------------------------------------------------------------- places */

/* Whether each tap has a run of its own, for tiles of so many positions. */
static inline bool tconv_cpu_runs_are_apart(const tconv_cpu_dgrad_axis *axis, int64_t tile)
{
    return axis->step > tile;
}

/* Places from a tap of a phase to the next one. */
static inline int64_t tconv_cpu_run_step(const tconv_cpu_dgrad_axis *axis, int64_t tile)
{
    return axis->step < tile ? axis->step : tile;
}

/* Places of a phase with so many live taps, for a tile of so many positions. */
static inline int64_t tconv_cpu_run_places(const tconv_cpu_dgrad_axis *axis, int64_t taps, int64_t tile)
{
    return tile + (taps - 1) * tconv_cpu_run_step(axis, tile);
}

/* A run of places along a line: columns of dst, every stride-th. */
typedef struct tconv_cpu_dgrad_run {
    int64_t place;       /* the first, from the line's first one in the first plane */
    int64_t column;      /* of dst, that the first place inside holds */
    int64_t left, count; /* places of zeros, and inside */
    int64_t right;       /* places of zeros */
} tconv_cpu_dgrad_run;

/* A run of lines: rows of dst, every stride-th. */
typedef struct tconv_cpu_dgrad_lines {
    const tconv_phase *phase;
    int64_t q, count; /* the first, which may lie outside, and how many */
    int64_t line;     /* the first */
} tconv_cpu_dgrad_lines;

/* A live tap, by its phases and its index among them. */
typedef struct tconv_cpu_dgrad_tap {
    int64_t row_tap, column_tap; /* among all taps of the phase */
    int64_t place;               /* what it adds to a position's place */
    int64_t weight;              /* where its weights begin, in elements from those of the first kernel index */
    int64_t index;               /* in the order in which taps are packed */
} tconv_cpu_dgrad_tap;

/* Walks the live taps: by row phases, column phases, and their taps. */
typedef struct tconv_cpu_dgrad_walk {
    tconv_cpu_phase phase;
    int64_t line, plane; /* the phase's first ones */
    int64_t row_taps;    /* of the row phases that have been */
    int64_t count;       /* taps that have been */
    int64_t next;        /* tap of the phase */
    tconv_cpu_dgrad_tap tap;
} tconv_cpu_dgrad_walk;

/* Steps to the next tap; the walk must be zeros at first. False at the end. */
bool tconv_cpu_next_dgrad_tap(const tconv_cpu_dgrad_plan *plan, const tconv_layer *layer, tconv_cpu_dgrad_walk *walk);

/* --------------------------------------------------------------------------------------------------------- blocks */

/* A block of input channels of a group. */
typedef struct tconv_cpu_dgrad_block {
    int64_t first, count, width; /* width: count with its padding */
    int64_t weights;             /* where its packed weights begin */
} tconv_cpu_dgrad_block;

static inline tconv_cpu_dgrad_block tconv_cpu_dgrad_block_of(const tconv_cpu_dgrad_plan *plan, int64_t group,
                                                             int64_t index)
{
    tconv_cpu_dgrad_block block = {.first = index * plan->block_width};
    const int64_t rest = plan->group_in - block.first, padded = plan->padded_in - block.first;
    block.count = rest < plan->block_width ? rest : plan->block_width;
    block.width = padded < plan->block_width ? padded : plan->block_width;
    block.weights = (group * plan->padded_in + block.first) * plan->group_out * plan->taps;
    return block;
}

/* Output channels of an element of the strip. */
static inline int64_t tconv_cpu_dgrad_word(const tconv_cpu_dgrad_plan *plan)
{
    return plan->pairs != NULL ? 2 : 1;
}

/* Returns where the weights of a tap and an output channel are among those of a block. Planes have [output
 * channel][tap][input channel], pixels [K-block][tap][output channel of the K-block][input channel]. */
static inline int64_t tconv_cpu_dgrad_weight(const tconv_cpu_dgrad_plan *plan, const tconv_cpu_dgrad_block *block,
                                             int64_t tap, int64_t channel)
{
    if (!plan->pixels)
        return (channel * plan->taps + tap) * block->width;
    const int64_t begin = channel / plan->k_block * plan->k_block, rest = plan->group_out - begin;
    const int64_t length = rest < plan->k_block ? rest : plan->k_block;
    return (begin * plan->taps + tap * length + channel - begin) * block->width;
}

/* Returns the vectors of positions that cover some rows of some images in planes: each row's by itself, or, where that
 * takes no more (`flat`), all in one go, with the places between rows. */
int64_t tconv_cpu_dgrad_vectors(const tconv_cpu_dgrad_plan *plan, int64_t images, int64_t rows, int64_t columns,
                                bool *flat);

#endif
