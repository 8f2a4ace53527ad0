/*
 * The part of blocking (cutting a layer into tiles and tasks) that both algorithms share: axes and their taps, parts
 * and tasks, the share of a cache, threads that are worth it, and sizes of packed weights. Each algorithm has a plan of
 * its own on top of it.
 *
 * Words. A position q of an axis stands for the outputs stride * q + residue, one of each phase. A tile is images x
 * rows x columns of positions; a micro-tile is the part of it that one microkernel call sums in registers. A task is a
 * tile, some groups and some blocks of output channels. A strip is the packed input of a task, which its microkernels
 * read: the tile and the halo that its taps reach, in the type of the sums, with zeros outside the image. A term is one
 * product of a sum: a tap and an input channel; terms are the K dimension of a matrix product, and a K-block is the
 * terms that a strip holds at a time.
 */
#ifndef TCONV_CPU_BLOCKING_BLOCKING_H
#define TCONV_CPU_BLOCKING_BLOCKING_H

#include <fenv.h>
#include <stdatomic.h>

#include "../../core/alloc.h"
#include "../../core/impl.h"
#include "../threads/parallel.h"

/* Terms of a segment: that many are summed in registers, then the segment joins others in a cascade
 * (tconv_cpu_microtile). A running sum of n terms is off by n roundings at most, where one large term is followed by many
 * that are just too small to change it; by about sqrt(n) where terms are random, and by n / 4 + 1 / 2 where they are alike
 * and the numbers are the worst of 200,000 that were tried (docs/log/2026-11-21-cpu.md). A cascade adds one for each
 * doubling, a bias 1. So f32 stays within 64 roundings for any data, and within 16 where terms are alike
 * (docs/precision.md). */
enum { TCONV_CPU_SEGMENT = 48 };

/* Returns the terms of a segment that cuts so many terms into the fewest segments of at most `most`, as even as can be
 * and in whole rounds of the microkernels' loops. */
int64_t tconv_cpu_even_segment(int64_t terms, int64_t most);

/* The least bytes of a run of outputs that is written with streaming (non-temporal) stores, past the caches: shorter
 * runs share much of their cache lines with others. Streaming them took 2 to 3 % longer on two cores of a Zen 4
 * (docs/log/2026-11-21-cpu.md). */
enum { TCONV_CPU_STREAM_BYTES = 256 };

/* ---------------------------------------------------------------------------------------------------------- axes */

/* One axis. Only live taps count: a tap is live if it reaches the input from some output of its phase. */
typedef struct tconv_cpu_axis {
    int64_t positions;
    int64_t min_shift, max_shift; /* over live taps; 0 where no tap is live */
    int64_t taps;                 /* live taps of all phases together */
} tconv_cpu_axis;

/* Taps [first, first + count) of a phase. */
typedef struct tconv_cpu_taps {
    int64_t first, count;
} tconv_cpu_taps;

tconv_cpu_taps tconv_cpu_live_taps(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phase);

/* Also gives the most live taps of a phase, in max_taps. */
tconv_cpu_axis tconv_cpu_axis_init(const tconv_axis *axis, const tconv_phase_table *table, int64_t *max_taps);

/* The shift of a tap of a phase: a position q reads input q + shift. */
static inline int64_t tconv_cpu_shift(const tconv_phase_table *table, const tconv_phase *phase, int64_t tap)
{
    return phase->first_shift - tap * table->shift_step;
}

/* The width of the halo: positions that a strip has beyond those of its tile. */
static inline int64_t tconv_cpu_halo(const tconv_cpu_axis *axis)
{
    return axis->max_shift - axis->min_shift;
}

/* A phase of both axes: a row phase and a column phase, with their live taps. */
typedef struct tconv_cpu_phase {
    const tconv_phase *row, *column;
    tconv_cpu_taps row_taps, column_taps;
    int64_t offset; /* the index of its first tap among all taps of a block */
} tconv_cpu_phase;

static inline int64_t tconv_cpu_phase_taps(const tconv_cpu_phase *phase)
{
    return phase->row_taps.count * phase->column_taps.count;
}

/* The shifts of a tap of a phase, its live taps counted row by row: a position reads so many rows and columns on. */
static inline int64_t tconv_cpu_row_shift(const tconv_layer *layer, const tconv_cpu_phase *phase, int64_t tap)
{
    return tconv_cpu_shift(&layer->rows, phase->row, phase->row_taps.first + tap / phase->column_taps.count);
}

static inline int64_t tconv_cpu_column_shift(const tconv_layer *layer, const tconv_cpu_phase *phase, int64_t tap)
{
    return tconv_cpu_shift(&layer->columns, phase->column, phase->column_taps.first + tap % phase->column_taps.count);
}

/* Where the weights of such a tap begin, in elements from those of the first kernel index. */
static inline int64_t tconv_cpu_tap_weight(const tconv_layer *layer, const tconv_cpu_phase *phase, int64_t tap)
{
    int64_t row = phase->row_taps.first + tap / phase->column_taps.count;
    int64_t column = phase->column_taps.first + tap % phase->column_taps.count;
    return (phase->row->first_kernel + row * layer->rows.kernel_step) * layer->problem.weight.h +
           (phase->column->first_kernel + column * layer->columns.kernel_step) * layer->problem.weight.w;
}

/* Steps to the next phase, row phases outside; phase->row must be NULL at first. False at the end. */
bool tconv_cpu_next_phase(const tconv_layer *layer, tconv_cpu_phase *phase);

/* Whether channels of a pixel are neighbours, as in NHWC; else columns of a row are. */
static inline bool tconv_cpu_are_channels_inside(const tconv_strides *of)
{
    return of->c == 1;
}

/* --------------------------------------------------------------------------------------------- caches and threads */

/* Makes the thread round to nearest, because a plan must be the same whatever rounding mode its caller set. True where
 * the mode was another: then *caller holds the environment that is to be set again. */
bool tconv_cpu_round_to_nearest(fenv_t *caller);

/* The bytes of so many percent of the second-level cache. */
int64_t tconv_cpu_cache_share(const tconv_layer *layer, int64_t percent);

/* Whether so many results are larger than what the caches keep of them, by the microarchitecture (tconv_cpu_traits), and
 * not in a cache anyway, because they are added to. */
bool tconv_cpu_leaves_caches(const tconv_layer *layer, int64_t results, int threads);

/* The number of threads that so many multiply-adds and outputs keep busy; at most the target's. */
int tconv_cpu_threads_for(const tconv_target *target, double multiply_adds, double outputs);

/* The number of threads that the layer can keep busy, by its multiply-adds and outputs; at most the target's. */
int tconv_cpu_useful_threads(const tconv_layer *layer, const tconv_cpu_axis *rows, const tconv_cpu_axis *columns);

/* ---------------------------------------------------------------------------------------------- parts and tasks */

/* Cuts count into the fewest parts of at most limit, as even as can be; returns the size of the larger parts. */
int64_t tconv_cpu_even_part(int64_t count, int64_t limit);

/* Returns the length of part `index` of an axis of `all` that is cut into parts of `size`; *begin is its start. */
int64_t tconv_cpu_cut_tile(int64_t index, int64_t size, int64_t all, int64_t *begin);

/* Whether so many tasks keep so many threads busy to the end. */
bool tconv_cpu_enough_tasks(int64_t tasks, int threads);

/* Tasks [begin, end). */
typedef struct tconv_cpu_range {
    int64_t begin, end;
} tconv_cpu_range;

/* The tasks of share `index`, where count tasks are cut into so many shares, as even as can be. */
tconv_cpu_range tconv_cpu_share_of(int64_t count, int index, int shares);

/* The most ranges that tasks are given out from: a cache line each, 4 KiB in all. It is chosen, not measured. */
enum { TCONV_CPU_MAX_RANGES = 64 };

/*
 * The tasks of a parallel loop. Each share (parallel.h) has a range of its own, the same in every run, so that the
 * pages which a thread touches first, and which lie on its NUMA node, are those that it works on. A share that is done
 * with its range takes tasks from the ranges of the others. Any share may take any task: no sum crosses tasks.
 */
typedef struct tconv_cpu_tasks {
    int64_t count;
    int ranges;
    struct {
        _Atomic int64_t taken;
        char apart[TCONV_ALIGNMENT - sizeof(int64_t)]; /* keeps counters in cache lines of their own */
    } range[TCONV_CPU_MAX_RANGES];
} tconv_cpu_tasks;

void tconv_cpu_tasks_init(tconv_cpu_tasks *tasks, int64_t count, int shares);

/* The shares of an execute have this in common. */
typedef struct tconv_cpu_shared {
    const void *job;
    tconv_cpu_tasks tasks;
    char *scratch; /* the first share's */
} tconv_cpu_shared;

/* The bytes of a tconv_cpu_shared, which lies at the beginning of the scratch of tconv_cpu_run_tasks: it is too large
 * for the caller's stack. */
int64_t tconv_cpu_shared_bytes(void);

/* Runs shares that take so many tasks, each share with a tconv_cpu_shared as its argument. The shares' own scratch
 * follows the tconv_cpu_shared. */
void tconv_cpu_run_tasks(const tconv_target *target, int threads, int64_t tasks, const void *job, char *scratch,
                         tconv_cpu_share *share);

/* Returns the next task for a share, or tasks->count where none is left. *range is the share's index at first. */
int64_t tconv_cpu_take_task(tconv_cpu_tasks *tasks, int *range);

/* --------------------------------------------------------------------------------------------------------- sizes */

/* The header of the packed weights; TCONV_ALIGNMENT bytes are reserved for it. */
typedef struct tconv_cpu_packed_header {
    int32_t has_nonfinite; /* a weight is Inf or NaN: taps outside the image must be skipped one by one */
} tconv_cpu_packed_header;

/* The extents of the packed weights and bias, which have the type of the sums; each tap has an entry of tap_bytes. */
typedef struct tconv_cpu_filters {
    int64_t row_taps, column_taps;       /* live taps of all phases */
    int64_t groups, group_in, group_out; /* group_out includes an algorithm's padding */
    int64_t real_size, tap_bytes;
} tconv_cpu_filters;

/* Sizes in bytes, aligned. packed is the sum of header, taps and weights. */
typedef struct tconv_cpu_packed_sizes {
    int64_t bias, taps, packed;
} tconv_cpu_packed_sizes;

/* Fails because the size of what is named overflows. */
tconv_status tconv_cpu_too_large(const char *what, tconv_issue *issue);

/* Fails where a size overflows. */
tconv_status tconv_cpu_packed_sizes_init(tconv_cpu_packed_sizes *sizes, const tconv_cpu_filters *filters,
                                         tconv_issue *issue);

/* Packs nothing: copies the weights as they are, of which a plan that holds them needs a copy of its own. It is an
 * implementation's pack. */
tconv_status tconv_cpu_copy_weights(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                    void *stream, tconv_issue *issue);

/* The levels of a cascade of so many sums (tconv_cpu_microtile): the binary digits of the last sum's number. */
int64_t tconv_cpu_cascade_levels(int64_t sums);

/* Gives the bytes of count elements, rounded up to TCONV_ALIGNMENT; false where that overflows. */
bool tconv_cpu_align_size(int64_t count, int64_t size, int64_t *bytes);

/* Returns the address of element index of an array of Real, whose elements have real_size bytes. */
static inline void *tconv_cpu_real_at(int64_t real_size, const void *array, int64_t index)
{
    return (char *)(uintptr_t)array + index * real_size;
}

#endif
