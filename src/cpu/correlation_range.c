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

struct search {
    const tconv_problem *problem;
    const tconv_cpu_pair_kernels *kernels;
    const uint16_t *dst;
    const tconv_cpu_pair_range *weights;
    int64_t channels, channel_tasks; /* of a task, and of an image */
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
    const tconv_problem *problem = search->problem;
    const tconv_strides *strides = &problem->dst;
    const bool rows = strides->h == problem->w.out || problem->h.out == 1; /* that follow one another */
    const bool planes = rows && (strides->c == problem->h.out * problem->w.out || problem->out_channels == 1);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < shared->tasks.count;) {
        tconv_cpu_pair_range range = TCONV_CPU_NO_PAIR_RANGE;
        int64_t channel;
        const int64_t channels =
            tconv_cpu_cut_tile(taken % search->channel_tasks, search->channels, problem->out_channels, &channel);
        const uint16_t *dst = search->dst + taken / search->channel_tasks * strides->n + channel * strides->c;
        const int64_t plane_count = planes ? 1 : channels, row_count = rows ? 1 : problem->h.out;
        const int64_t length = problem->w.out * (rows ? problem->h.out : 1) * (planes ? channels : 1);
        for (int64_t c = 0; c < plane_count; c++)
            for (int64_t row = 0; row < row_count; row++)
                search->kernels->find_range(&range, dst + c * strides->c + row * strides->h, length);
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
    struct search search = {.problem = problem, .kernels = plan->pairs, .dst = dst, .weights = weights};
    const int64_t plane = tconv_max(1, problem->h.out * problem->w.out);
    search.channels = tconv_min(problem->out_channels, tconv_max(1, TASK_ELEMENTS / plane));
    search.channel_tasks = tconv_ceil_div(problem->out_channels, search.channels);
    const tconv_cpu_pair_range nothing = TCONV_CPU_NO_PAIR_RANGE;
    atomic_init(&search.outside, !are_in_range(&nothing, weights));
    tconv_cpu_run_tasks(&layer->target, plan->threads, problem->batch * search.channel_tasks, &search, scratch,
                        search_share);
    return !atomic_load_explicit(&search.outside, memory_order_relaxed);
}
