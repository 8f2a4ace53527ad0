/*
 * How a layer is cut up, as far as it is the same whatever the algorithm: axes and their taps, parts and tasks, the
 * share of a cache, threads that are worth it, and sizes of what is packed. What an algorithm makes of it is in its own
 * plan.
 *
 * Words. A position q of an axis stands for the outputs stride * q + residue, one of each phase. A tile is images x
 * rows x columns of positions. A task is a tile, some groups and some blocks of output channels. A strip is what a
 * task's microkernels read: the input in the type of the sums, zero where the image ends.
 */
#ifndef TCONV_CPU_BLOCKING_H
#define TCONV_CPU_BLOCKING_H

#include <fenv.h>
#include <stdatomic.h>

#include "../core/alloc.h"
#include "../core/impl.h"
#include "parallel.h"

/* Terms that are summed in registers, a segment, before they join others in a cascade (tconv_cpu_microtile). A running sum of n
 * terms is off by about sqrt(n) roundings, but by n / 4 + 1 / 2 where the terms are alike and as unlucky as they can be:
 * 12.5 with 48. A cascade of segments adds 2 at most, a bias 1, and a multiplication that rounds by itself 1, which is
 * about the 16 that f32 is promised. */
enum { TCONV_CPU_SEGMENT = 48 };

/* The least bytes of a run of outputs that are streamed past the caches: its ends share their lines with other runs. */
enum { TCONV_CPU_STREAM_BYTES = 256 };

/* ---------------------------------------------------------------------------------------------------------- axes */

/* One axis. Only live taps count: those that reach the input from some output of their phase. */
typedef struct tconv_cpu_axis {
    int64_t positions;
    int64_t min_shift, max_shift; /* over live taps; 0 where there are none */
    int64_t taps;                 /* live taps of all phases together */
} tconv_cpu_axis;

/* Taps [first, first + count) of a phase. */
typedef struct tconv_cpu_taps {
    int64_t first, count;
} tconv_cpu_taps;

tconv_cpu_taps tconv_cpu_live_taps(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phase);

/* max_taps: the most live taps of a phase. */
tconv_cpu_axis tconv_cpu_axis_init(const tconv_axis *axis, const tconv_phase_table *table, int64_t *max_taps);

/* The input that a tap of a phase reads, less the position. */
static inline int64_t tconv_cpu_shift(const tconv_phase_table *table, const tconv_phase *phase, int64_t tap)
{
    return phase->first_shift - tap * table->shift_step;
}

/* Positions that a tile's strip has beyond the tile's own. */
static inline int64_t tconv_cpu_halo(const tconv_cpu_axis *axis)
{
    return axis->max_shift - axis->min_shift;
}

/* --------------------------------------------------------------------------------------------- caches and threads */

/* Plans are made by calls that may round differently, and must be the same: makes the thread round to nearest, and tells
 * whether it did not. Then the caller's environment, which is kept, is to be set again. */
bool tconv_cpu_round_to_nearest(fenv_t *caller);

/* Bytes in so many percent of the second-level cache. */
int64_t tconv_cpu_cache_share(const tconv_layer *layer, int64_t percent);

/* Threads that the layer can keep busy, by its multiply-adds and outputs; at most the target's. */
int tconv_cpu_useful_threads(const tconv_layer *layer, const tconv_cpu_axis *rows, const tconv_cpu_axis *columns);

/* ---------------------------------------------------------------------------------------------- parts and tasks */

/* count in the fewest parts of at most limit, as even as can be: the size of the larger ones. */
int64_t tconv_cpu_even_part(int64_t count, int64_t limit);

/* Part index of an axis of `all`, cut in parts of size: where it begins, and how long it is. */
int64_t tconv_cpu_cut_tile(int64_t index, int64_t size, int64_t all, int64_t *begin);

/* Whether so many tasks keep so many threads busy to the end. */
bool tconv_cpu_enough_tasks(int64_t tasks, int threads);

/* Tasks [begin, end). */
typedef struct tconv_cpu_range {
    int64_t begin, end;
} tconv_cpu_range;

/* What is share `index` of count tasks that are cut into so many shares, as even as can be. */
tconv_cpu_range tconv_cpu_share_of(int64_t count, int index, int shares);

/* The most ranges that tasks are given out from. */
enum { TCONV_CPU_MAX_RANGES = 64 };

/*
 * Tasks of a work. Each share (parallel.h) has a range of its own, the same in every run, so that the pages which a thread
 * touches first, and which lie on its memory node, are those that it works on; who is done with it takes from the ranges
 * of the others. Any share may take any task: no sum crosses one.
 */
typedef struct tconv_cpu_tasks {
    int64_t count;
    int ranges;
    struct {
        _Atomic int64_t taken;
        char apart[TCONV_ALIGNMENT - sizeof(int64_t)]; /* no cache line is shared */
    } range[TCONV_CPU_MAX_RANGES];
} tconv_cpu_tasks;

void tconv_cpu_tasks_init(tconv_cpu_tasks *tasks, int64_t count, int shares);

/* What the shares of an execute have in common. */
typedef struct tconv_cpu_shared {
    const void *job;
    tconv_cpu_tasks tasks;
    char *scratch; /* of the first share */
} tconv_cpu_shared;

/* Its bytes at the beginning of the scratch of tconv_cpu_run_tasks: the stack of whoever calls is not ours to fill. */
int64_t tconv_cpu_shared_bytes(void);

/* Runs shares that take so many tasks, each share with a tconv_cpu_shared as its argument. The shares' own scratch lies behind it. */
void tconv_cpu_run_tasks(const tconv_target *target, int threads, int64_t tasks, const void *job, char *scratch,
                         tconv_cpu_share *share);

/* The next task for a share, count where there is none left. *range is the share's index at first. */
int64_t tconv_cpu_take_task(tconv_cpu_tasks *tasks, int *range);

/* --------------------------------------------------------------------------------------------------------- sizes */

/* The beginning of the packed weights, which TCONV_ALIGNMENT bytes are left for. */
typedef struct tconv_cpu_packed_header {
    int32_t has_nonfinite; /* some weight is Inf or NaN: taps outside the image must be left out one by one */
} tconv_cpu_packed_header;

/* What is packed: weights and bias in the type of the sums, and tap_bytes for each tap. */
typedef struct tconv_cpu_filters {
    int64_t row_taps, column_taps;       /* live ones, of all phases */
    int64_t groups, group_in, group_out; /* group_out with what an algorithm pads it with */
    int64_t real_size, tap_bytes;
} tconv_cpu_filters;

/* In bytes, aligned. packed: header, taps and weights. */
typedef struct tconv_cpu_packed_sizes {
    int64_t bias, taps, packed;
} tconv_cpu_packed_sizes;

/* Fails where a size overflows. */
tconv_status tconv_cpu_packed_sizes_init(tconv_cpu_packed_sizes *sizes, const tconv_cpu_filters *filters,
                                         tconv_issue *issue);

/* Levels of a cascade of so many sums (tconv_cpu_microtile): the binary digits of the number of the last one. */
int64_t tconv_cpu_cascade_levels(int64_t sums);

/* The bytes of count elements rounded up to TCONV_ALIGNMENT; false where that overflows. */
bool tconv_cpu_align_size(int64_t count, int64_t size, int64_t *bytes);

#endif
