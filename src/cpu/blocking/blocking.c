/* The plans of all algorithms are made with this: axes, parts, caches, threads and sizes. */
#include "blocking.h"
#include "../cpu_target.h"

#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../kernels/kernels.h"
#include "../machine/tuning.h"

/* Bytes: the most of the second-level cache that a plan counts on, so that a thread's scratch stays below 2 MiB. It is
 * chosen, not measured. */
enum { MAX_CACHE_BYTES = 3 << 19 };

/* Tasks for each thread: enough that the last one to finish does not leave the other threads idle for long. It is
 * chosen, not measured. */
enum { TASKS_PER_THREAD = 4 };

/* Cycles of work that are worth another thread, because waking a thread takes about as long. It is chosen, not
 * measured. */
enum { CYCLES_PER_THREAD = 20000 };

/* Multiply-adds in a cycle: one vector of 64 bytes of f32. This is a rough rate for all instruction sets. */
enum { MULTIPLY_ADDS_PER_CYCLE = 16 };

tconv_cpu_taps tconv_cpu_live_taps(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phase)
{
    tconv_cpu_taps taps;
    /* Tap t is live if q + shift lies in [0, in) for some q in [0, outputs): -outputs < shift < in. Shifts fall as t
     * rises. */
    int64_t last = tconv_floor_div(phase->first_shift + phase->outputs - 1, table->shift_step);
    taps.first = tconv_max(0, tconv_ceil_div(phase->first_shift - (axis->in - 1), table->shift_step));
    taps.count = tconv_max(0, tconv_min(last, phase->taps - 1) - taps.first + 1);
    return taps;
}

tconv_cpu_axis tconv_cpu_axis_init(const tconv_axis *axis, const tconv_phase_table *table, int64_t *max_taps)
{
    tconv_cpu_axis made = {(axis->out - 1) / axis->stride + 1, 0, 0, 0};
    *max_taps = 0;
    for (int64_t p = 0; p < table->count; p++) {
        const tconv_phase *phase = &table->phases[p];
        tconv_cpu_taps taps = tconv_cpu_live_taps(axis, table, phase);
        if (taps.count == 0)
            continue;
        int64_t max_shift = tconv_cpu_shift(table, phase, taps.first);
        int64_t min_shift = tconv_cpu_shift(table, phase, taps.first + taps.count - 1);
        made.min_shift = made.taps == 0 ? min_shift : tconv_min(made.min_shift, min_shift);
        made.max_shift = made.taps == 0 ? max_shift : tconv_max(made.max_shift, max_shift);
        made.taps += taps.count;
        *max_taps = tconv_max(*max_taps, taps.count);
    }
    return made;
}

bool tconv_cpu_next_phase(const tconv_layer *layer, tconv_cpu_phase *phase)
{
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    if (phase->row == NULL) {
        if (rows->count == 0 || columns->count == 0)
            return false;
        phase->row = rows->phases;
        phase->row_taps = tconv_cpu_live_taps(&layer->problem.h, rows, phase->row);
        phase->column = columns->phases;
        phase->offset = 0;
    } else {
        phase->offset += tconv_cpu_phase_taps(phase);
        if (++phase->column == columns->phases + columns->count) {
            phase->column = columns->phases;
            if (++phase->row == rows->phases + rows->count)
                return false;
            phase->row_taps = tconv_cpu_live_taps(&layer->problem.h, rows, phase->row);
        }
    }
    phase->column_taps = tconv_cpu_live_taps(&layer->problem.w, columns, phase->column);
    return true;
}

bool tconv_cpu_round_to_nearest(fenv_t *caller)
{
    const volatile double one = 1, tiny = 0x1p-60; /* fegetround reads the mode of the x87 alone, and is slower */
    if (one + tiny == one && one - tiny == one)
        return false;
    fegetenv(caller);
    fesetround(FE_TONEAREST);
    return true;
}

int64_t tconv_cpu_cache_share(const tconv_layer *layer, int64_t percent)
{
    return tconv_min((int64_t)tconv_cpu_target_of(&layer->target).l2_bytes, MAX_CACHE_BYTES) / 100 * percent;
}

bool tconv_cpu_leaves_caches(const tconv_layer *layer, int64_t results, int threads)
{
    const tconv_cpu_target cpu = tconv_cpu_target_of(&layer->target);
    const tconv_cpu_traits *traits = tconv_cpu_find_traits(cpu.tuning);
    const int64_t cache = (int64_t)cpu.l3_bytes / 100 * traits->stream_l3_percent +
                          (int64_t)cpu.l2_bytes / 100 * traits->stream_l2_percent * threads;
    return tconv_cpu_stores_sums(&layer->problem, layer->columns.bias_only) &&
           results > cache / (int64_t)layer->problem.element_size;
}

int tconv_cpu_threads_for(const tconv_target *target, double multiply_adds, double outputs)
{
    const int most = tconv_cpu_target_of(target).threads;
    const double threads = (multiply_adds / MULTIPLY_ADDS_PER_CYCLE + outputs) / CYCLES_PER_THREAD;
    return threads < most ? 1 + (int)threads : most;
}

int tconv_cpu_useful_threads(const tconv_layer *layer, const tconv_cpu_axis *rows, const tconv_cpu_axis *columns)
{
    const tconv_problem *problem = &layer->problem;
    const double images = (double)problem->batch * (double)problem->out_channels;
    const double sums = (double)rows->positions * (double)columns->positions * (double)rows->taps *
                        (double)columns->taps * (double)problem->group_in;
    const double outputs = (double)problem->h.out * (double)problem->w.out;
    return tconv_cpu_threads_for(&layer->target, images * sums, images * outputs);
}

int64_t tconv_cpu_even_part(int64_t count, int64_t limit)
{
    int64_t parts = tconv_max(1, tconv_ceil_div(count, tconv_max(limit, 1)));
    return tconv_ceil_div(count, parts);
}

int64_t tconv_cpu_cut_tile(int64_t index, int64_t size, int64_t all, int64_t *begin)
{
    *begin = index * size;
    return tconv_min(size, all - *begin);
}

bool tconv_cpu_enough_tasks(int64_t tasks, int threads)
{
    return threads == 1 || tasks >= (int64_t)TASKS_PER_THREAD * threads;
}

tconv_cpu_range tconv_cpu_share_of(int64_t count, int index, int shares)
{
    int64_t size = count / shares, larger = count % shares, begin = index * size + tconv_min(index, larger);
    tconv_cpu_range range = {begin, begin + size + (index < larger)};
    return range;
}

void tconv_cpu_tasks_init(tconv_cpu_tasks *tasks, int64_t count, int shares)
{
    tasks->count = count;
    tasks->ranges = (int)tconv_max(1, tconv_min(tconv_min(shares, TCONV_CPU_MAX_RANGES), count));
    for (int range = 0; range < tasks->ranges; range++)
        atomic_init(&tasks->range[range].taken, 0);
}

int64_t tconv_cpu_take_task(tconv_cpu_tasks *tasks, int *range)
{
    int64_t size = tasks->count / tasks->ranges, larger = tasks->count % tasks->ranges;
    for (int tried = 0; tried < tasks->ranges; tried++) {
        int64_t number = *range % tasks->ranges;
        int64_t index = atomic_fetch_add_explicit(&tasks->range[number].taken, 1, memory_order_relaxed);
        if (index < size + (number < larger))
            return number * size + tconv_min(number, larger) + index;
        *range = (int)number + 1;
    }
    return tasks->count;
}

int64_t tconv_cpu_shared_bytes(void)
{
    return (int64_t)tconv_align_up(sizeof(tconv_cpu_shared), TCONV_ALIGNMENT);
}

void tconv_cpu_run_tasks(const tconv_target *target, int threads, int64_t tasks, const void *job, char *scratch,
                         tconv_cpu_share *share)
{
    tconv_cpu_shared *shared = (tconv_cpu_shared *)(void *)scratch;
    const int shares = tconv_cpu_count_shares(target, threads, tasks);
    shared->job = job;
    shared->scratch = scratch + tconv_cpu_shared_bytes();
    tconv_cpu_tasks_init(&shared->tasks, tasks, shares);
    tconv_cpu_run_shares(target, shares, share, shared);
}

tconv_status tconv_cpu_copy_weights(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                    void *stream, tconv_issue *issue)
{
    (void)made, (void)stream, (void)issue;
    memcpy(packed, weights, (size_t)layer->problem.weight_extent * layer->problem.element_size);
    return TCONV_SUCCESS;
}

int64_t tconv_cpu_even_segment(int64_t terms, int64_t most)
{
    return tconv_round_up(tconv_cpu_even_part(tconv_max(1, terms), most), TCONV_CPU_UNROLL);
}

int64_t tconv_cpu_cascade_levels(int64_t sums)
{
    int64_t levels = 0;
    for (int64_t last = sums - 1; last > 0; last /= 2)
        levels++;
    return levels;
}

bool tconv_cpu_align_size(int64_t count, int64_t size, int64_t *bytes)
{
    if (!tconv_checked_mul(count, size, bytes) || !tconv_checked_add(*bytes, TCONV_ALIGNMENT - 1, bytes))
        return false;
    *bytes -= *bytes % TCONV_ALIGNMENT;
    return true;
}

tconv_status tconv_cpu_too_large(const char *what, tconv_issue *issue)
{
    return tconv_fail(issue, TCONV_ERROR_OVERFLOW, what, "%s: its size in bytes must be at most 2^63 - 1", what);
}

tconv_status tconv_cpu_packed_sizes_init(tconv_cpu_packed_sizes *sizes, const tconv_cpu_filters *filters,
                                         tconv_issue *issue)
{
    int64_t outputs, taps, weights;
    if (!tconv_checked_mul(filters->groups, filters->group_out, &outputs) ||
        !tconv_cpu_align_size(outputs, filters->real_size, &sizes->bias))
        return tconv_cpu_too_large("bias", issue);
    if (!tconv_checked_mul(filters->row_taps, filters->column_taps, &taps) ||
        !tconv_cpu_align_size(taps, filters->tap_bytes, &sizes->taps) ||
        !tconv_checked_mul(taps, filters->group_in, &weights) || !tconv_checked_mul(weights, outputs, &weights) ||
        !tconv_cpu_align_size(weights, filters->real_size, &sizes->packed) ||
        !tconv_checked_add(sizes->packed, sizes->taps, &sizes->packed) ||
        !tconv_checked_add(sizes->packed, TCONV_ALIGNMENT, &sizes->packed))
        return tconv_cpu_too_large("packed weights", issue);
    return TCONV_SUCCESS;
}
