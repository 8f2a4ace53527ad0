/* Finds whether a gradient of dst can be multiplied by pairs. */
#include <stdatomic.h>

#include "../core/checked.h"
#include "correlation_task.h"
#include "matrix_kernels.h"

/* Elements of a task, about. It is chosen, not measured. */
enum { TASK_ELEMENTS = 1 << 16 };

/* The binary exponent of the least product: what is summed then is lost only where it is less than 2^-126, and so than
 * 2^-24 of it. It is that of cpu_matrix. */
enum { LEAST_EXPONENT = -100 };

/* The bits of a bf16: its exponent is above FRACTION, and BIAS more. */
enum { FRACTION = 7, BIAS = 127, HALF_BITS = 16 };

/* An axis of dst. */
struct axis {
    int64_t length, step;
};

struct search {
    const tconv_cpu_pair_kernels *kernels;
    const uint16_t *dst;
    const tconv_cpu_pair_range *weights;
    struct axis image, outer, inner; /* beside them elements follow one another */
    int64_t run;                     /* of these */
    int64_t size, tasks;             /* of outer: of a task, and of an image */
    atomic_bool outside;
};

static bool are_in_range(const tconv_cpu_pair_range *dst, const tconv_cpu_pair_range *weights)
{
    const tconv_cpu_pair_range *both[2] = {dst, weights};
    for (int i = 0; i < 2; i++)
        if (both[i]->most != 0 && (both[i]->least < (TCONV_CPU_MATRIX_LEAST >> HALF_BITS) ||
                                   both[i]->most >= (TCONV_CPU_MATRIX_MOST >> HALF_BITS)))
            return false;
    return dst->most == 0 || weights->most == 0 ||
           (dst->least >> FRACTION) + (weights->least >> FRACTION) - 2 * BIAS >= LEAST_EXPONENT;
}

static void search_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    struct search *search = (struct search *)(uintptr_t)shared->job;
    const struct axis *outer = &search->outer, *inner = &search->inner;
    const bool rows = inner->step == search->run; /* that follow one another */
    const bool all = rows && outer->step == inner->length * inner->step;
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < shared->tasks.count;) {
        tconv_cpu_pair_range range = TCONV_CPU_NO_PAIR_RANGE;
        int64_t begin;
        const int64_t count = tconv_cpu_cut_tile(taken % search->tasks, search->size, outer->length, &begin);
        const uint16_t *dst = search->dst + taken / search->tasks * search->image.step + begin * outer->step;
        const int64_t row_count = rows ? 1 : inner->length, length = search->run * (rows ? inner->length : 1);
        for (int64_t i = 0; i < (all ? 1 : count); i++)
            for (int64_t row = 0; row < row_count; row++)
                search->kernels->find_range(&range, dst + i * outer->step + row * inner->step,
                                            all ? count * length : length);
        if (!are_in_range(&range, search->weights))
            atomic_store_explicit(&search->outside, true, memory_order_relaxed);
        if (atomic_load_explicit(&search->outside, memory_order_relaxed))
            return;
    }
}

bool tconv_cpu_are_in_range(const tconv_layer *layer, const tconv_cpu_correlation_plan *plan, const void *dst,
                            const tconv_cpu_pair_range *weights, char *scratch)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cpu_pair_range nothing = TCONV_CPU_NO_PAIR_RANGE;
    const struct axis channels = {problem->out_channels, problem->dst.c}, rows = {problem->h.out, problem->dst.h},
                      columns = {problem->w.out, problem->dst.w};
    const bool planes = !tconv_cpu_are_channels_inside(&problem->dst);
    struct search search = {.kernels = plan->pairs,
                            .dst = dst,
                            .weights = weights,
                            .image = {problem->batch, problem->dst.n},
                            .outer = planes ? channels : rows,
                            .inner = planes ? rows : columns,
                            .run = planes ? columns.length : channels.length};
    search.size = tconv_max(1, TASK_ELEMENTS / tconv_max(1, search.inner.length * search.run));
    search.tasks = tconv_ceil_div(search.outer.length, search.size);
    atomic_init(&search.outside, !are_in_range(&nothing, weights));
    tconv_cpu_run_tasks(&layer->target, plan->threads, problem->batch * search.tasks, &search, scratch, search_share);
    return !atomic_load_explicit(&search.outside, memory_order_relaxed);
}
