/* Finds whether tensors of bf16 can be multiplied by pairs. */
#include "pair_range.h"

#include "../../core/checked.h"
#include "../bf16/kernels.h"
#include "../cpu_target.h"
#include "blocking.h"

/* Elements of a task, about. It is chosen, not measured. */
enum { TASK_ELEMENTS = 1 << 16 };

/* The binary exponent of the least product: what is summed then is lost only where it is less than 2^-126, and so than
 * 2^-24 of it. It is that of cpu_bf16. */
enum { LEAST_EXPONENT = -100 };

/* The bits of a bf16: its exponent is above FRACTION, and BIAS more. */
enum { FRACTION = 7, BIAS = 127, HALF_BITS = 16 };

/* An axis of a tensor. */
struct axis {
    int64_t length, step;
};

struct search {
    const tconv_cpu_pair_kernels *kernels;
    const uint16_t *numbers;
    const tconv_cpu_pair_range *factors;
    struct axis image, outer, inner; /* beside them elements follow one another */
    int64_t run;                     /* of these */
    int64_t size, tasks;             /* of outer: of a task, and of an image */
    atomic_bool outside;             /* some numbers are: no more are looked at */
    _Atomic uint32_t least, most;    /* of all tasks */
};

/* Whether pairs have all products of numbers of two ranges. */
static bool are_exact(const tconv_cpu_pair_range *numbers, const tconv_cpu_pair_range *factors)
{
    const tconv_cpu_pair_range *both[2] = {numbers, factors};
    for (int i = 0; i < 2; i++)
        if (both[i]->most != 0 && (both[i]->least < (TCONV_CPU_BF16_LEAST >> HALF_BITS) ||
                                   both[i]->most >= (TCONV_CPU_BF16_MOST >> HALF_BITS)))
            return false;
    return numbers->most == 0 || factors->most == 0 ||
           (numbers->least >> FRACTION) + (factors->least >> FRACTION) - 2 * BIAS >= LEAST_EXPONENT;
}

/* Extends the range of all tasks. */
static void merge(struct search *search, const tconv_cpu_pair_range *range)
{
    uint32_t least = atomic_load_explicit(&search->least, memory_order_relaxed);
    uint32_t most = atomic_load_explicit(&search->most, memory_order_relaxed);
    while (range->least < least && !atomic_compare_exchange_weak(&search->least, &least, range->least))
        ;
    while (range->most > most && !atomic_compare_exchange_weak(&search->most, &most, range->most))
        ;
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
        const uint16_t *numbers = search->numbers + taken / search->tasks * search->image.step + begin * outer->step;
        const int64_t row_count = rows ? 1 : inner->length, length = search->run * (rows ? inner->length : 1);
        for (int64_t i = 0; i < (all ? 1 : count); i++)
            for (int64_t row = 0; row < row_count; row++)
                search->kernels->find_range(&range, numbers + i * outer->step + row * inner->step,
                                            all ? count * length : length);
        merge(search, &range);
        if (!are_exact(&range, search->factors))
            atomic_store_explicit(&search->outside, true, memory_order_relaxed);
        if (atomic_load_explicit(&search->outside, memory_order_relaxed))
            return;
    }
}

bool tconv_cpu_find_pair_range(const tconv_target *target, int threads, const tconv_cpu_pair_tensor *tensor,
                               const tconv_cpu_pair_range *factors, tconv_cpu_pair_range *range, char *scratch)
{
    const tconv_strides *strides = tensor->strides;
    const struct axis channels = {tensor->channels, strides->c}, rows = {tensor->rows, strides->h},
                      columns = {tensor->columns, strides->w};
    const bool planes = !tconv_cpu_are_channels_inside(strides);
    const tconv_cpu_pair_range none = TCONV_CPU_NO_PAIR_RANGE;
    struct search search = {.kernels = tconv_cpu_find_pair_kernels(tconv_cpu_target_of(target).cpu_isa),
                            .numbers = tensor->numbers,
                            .factors = factors,
                            .image = {tensor->images, strides->n},
                            .outer = planes ? channels : rows,
                            .inner = planes ? rows : columns,
                            .run = planes ? columns.length : channels.length};
    search.size = tconv_max(1, TASK_ELEMENTS / tconv_max(1, search.inner.length * search.run));
    search.tasks = tconv_ceil_div(search.outer.length, search.size);
    atomic_init(&search.least, none.least);
    atomic_init(&search.most, none.most);
    atomic_init(&search.outside, !are_exact(&none, factors));
    tconv_cpu_run_tasks(target, threads, tensor->images * search.tasks, &search, scratch, search_share);
    *range = (tconv_cpu_pair_range){(uint16_t)search.least, (uint16_t)search.most};
    return !atomic_load_explicit(&search.outside, memory_order_relaxed);
}
