/* Prefetches what a strip of planes is loaded from while the one before it is summed, when memory has nothing else to do. */
#include "../../core/checked.h"
#include "task.h"

/* Bytes of a row from which on it is worth it: shorter ones the loads of a strip prefetch by themselves. With 256 dcgan_4
 * took 4 % longer (docs/log/2026-11-26-cpu-gradients.md). */
enum { FORESEEN = 512 };

/* Bytes of a cache line, the same on x86-64 and on most AArch64. */
enum { LINE = 64 };

struct list {
    const tconv_problem *problem;
    tconv_cpu_dgrad_ahead *ahead;
};

static void list_row(void *argument, int64_t image, int64_t row, int64_t place)
{
    const struct list *list = argument;
    const tconv_strides *dst = &list->problem->dst;
    (void)place;
    if (row >= 0)
        list->ahead->rows[list->ahead->count++] =
            (image * dst->n + row * dst->h) * (int64_t)list->problem->element_size;
}

void tconv_cpu_look_ahead_dgrad(tconv_cpu_dgrad_task *task, const tconv_cpu_dgrad_task *following, int64_t group,
                                int64_t begin)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const tconv_cpu_dgrad_axis *columns = &plan->columns;
    const int64_t size = (int64_t)problem->element_size, word = tconv_cpu_dgrad_word(plan);
    tconv_cpu_dgrad_ahead *ahead = &task->ahead;
    ahead->count = ahead->all = ahead->next = 0;
    if (following == NULL || tconv_cpu_are_channels_inside(&problem->dst))
        return;
    const int64_t from = following->column * columns->stride - problem->w.pad, first = tconv_max(0, from);
    const int64_t to = from + (following->columns - 1) * columns->stride + columns->span;
    ahead->bytes = (tconv_min(to, problem->w.out) - first) * size;
    ahead->pitch = problem->dst.c * size;
    ahead->first = (const char *)task->job->dst + (group * problem->group_out + begin * word) * ahead->pitch +
                   first * problem->dst.w * size;
    if (ahead->bytes < FORESEEN)
        return;
    tconv_cpu_load_dgrad_lines(following, list_row, &(struct list){problem, ahead});
    bool flat;
    const int64_t vectors = tconv_cpu_dgrad_vectors(plan, task->images, task->rows, task->columns, &flat);
    const int64_t calls =
        task->blocks * tconv_ceil_div(vectors, plan->kernels->real[plan->real].max_vectors[plan->block_width]);
    ahead->all = ahead->count * tconv_min(plan->k_block * word, problem->group_out - begin * word);
    ahead->at_once = tconv_ceil_div(ahead->all, calls);
}

void tconv_cpu_prefetch_dgrad(tconv_cpu_dgrad_ahead *ahead)
{
    const int64_t end = tconv_min(ahead->next + ahead->at_once, ahead->all);
    for (; ahead->next < end; ahead->next++) {
        const char *from =
            ahead->first + ahead->next / ahead->count * ahead->pitch + ahead->rows[ahead->next % ahead->count];
        for (int64_t at = 0; at < ahead->bytes + LINE - 1; at += LINE)
            __builtin_prefetch(from + tconv_min(at, ahead->bytes - 1), 0, 2);
    }
}
