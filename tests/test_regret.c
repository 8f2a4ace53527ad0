/*
 * The cost model, judged by its choices: bench/results/h200_times.csv has what every implementation took for 167 layers
 * on an H200. Each of these plans is made here for such a GPU, which need not be there, with its predicted time; the regret of a layer is what the implementation with the least cost took, to what the fastest of all took.
 * (Two readings of one kernel differ by up to 4 %.)
 *
 * A layer that is listed with fewer implementations is judged among those, and among them the one that the library
 * chose.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/alloc.h"
#include "../src/cuda/cuda_backend.h"
#include "../src/cuda/model/work.h"
#include "harness.h"
#include "workloads.h"

#define MODES   3
#define LAYOUTS 2
#define GROUPS  (MODES * LAYOUTS)
#define MOST    8 /* implementations of a layer */
#define LINE    256

/* Geometric mean and worst regret that each mode and layout may have, NCHW before NHWC: the model's own, and a little
 * for rounding in another compiler. What the library chose by its old estimates, in h200_times.csv, is 1.06, 1.008,
 * 1.07, 1.019, 1.04, 1.02, at worst 4.5, 1.7, 8.7, 4.7, 3.2, 1.9. */
static const struct {
    const char *mode;
    double mean[LAYOUTS], worst[LAYOUTS];
} bounds[MODES] = {
    {"tf32", {1.02, 1.01}, {1.30, 1.25}}, {"f16", {1.02, 1.01}, {1.35, 1.25}}, {"f32", {1.02, 1.01}, {1.25, 1.26}}};
static const char *const layouts[LAYOUTS] = {"nchw", "nhwc"};

typedef struct record {
    char layer[WORKLOAD_NAME_SIZE];
    int group, count;
    int64_t batch;
    char names[MOST][32];
    double times[MOST], costs[MOST];
    char chosen[32];
    double chosen_time;
} record;

typedef struct record_list {
    record *items;
    size_t count, capacity;
} record_list;

static const tconv_allocator from_malloc;

static record *record_of(record_list *list, const char *layer, int group)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].group == group && strcmp(list->items[i].layer, layer) == 0)
            return &list->items[i];
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        list->items = realloc(list->items, list->capacity * sizeof *list->items);
        cr_assert_not_null(list->items);
    }
    record *made = &list->items[list->count++];
    memset(made, 0, sizeof *made);
    snprintf(made->layer, sizeof made->layer, "%s", layer);
    made->group = group;
    return made;
}

static void add_time(record *of, const char *name, double time)
{
    for (int i = 0; i < of->count; i++)
        if (strcmp(of->names[i], name) == 0)
            return;
    cr_assert_lt(of->count, MOST);
    snprintf(of->names[of->count], sizeof of->names[0], "%s", name);
    of->times[of->count++] = time;
}

/* The name today of an implementation that h200_times.csv, which stays as it was recorded, has under an old one. */
static const char *name_today(const char *recorded)
{
    static const struct {
        const char *old, *today;
    } renamed[] = {{"cuda_products", "cuda_col2im"}, {"cuda_phases", "cuda_general"}};
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++)
        if (strcmp(recorded, renamed[i].old) == 0)
            return renamed[i].today;
    return recorded;
}

/* Reads a line: mode,layout,layer,asked,implementation,n,ms,... */
static void read_line(record_list *list, char *line)
{
    char *fields[7], *rest = line;
    for (int i = 0; i < 7; i++)
        cr_assert_not_null(fields[i] = strsep(&rest, ","), "%s", line);
    int mode = 0, layout = 0;
    while (strcmp(bounds[mode].mode, fields[0]) != 0)
        cr_assert_lt(++mode, MODES, "%s", fields[0]);
    while (strcmp(layouts[layout], fields[1]) != 0)
        cr_assert_lt(++layout, LAYOUTS, "%s", fields[1]);
    record *of = record_of(list, fields[2], mode * LAYOUTS + layout);
    const char *name = name_today(fields[4]);
    const double time = strtod(fields[6], NULL);
    of->batch = strtoll(fields[5], NULL, 10);
    cr_assert_gt(time, 0);
    if (strcmp(fields[3], "chosen") != 0) {
        add_time(of, name, time);
        return;
    }
    snprintf(of->chosen, sizeof of->chosen, "%s", name);
    of->chosen_time = time;
}

static record_list read_times(void)
{
    record_list list = {0};
    char line[LINE];
    FILE *file = fopen(TCONV_H200_TIMES, "r");
    cr_assert_not_null(file, "%s", TCONV_H200_TIMES);
    cr_assert_not_null(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file) != NULL)
        read_line(&list, line);
    fclose(file);
    for (size_t i = 0; i < list.count; i++)
        add_time(&list.items[i], list.items[i].chosen, list.items[i].chosen_time);
    return list;
}

static const tconv_implementation *implementation_named(const char *name)
{
    for (size_t i = 0; tconv_cuda_implementations[i] != NULL; i++)
        if (strcmp(tconv_cuda_implementations[i]->name, name) == 0)
            return tconv_cuda_implementations[i];
    return NULL;
}

static void make_layer(tconv_layer *layer, const tconv_desc *of_layer, const record *of)
{
    const int mode = of->group / LAYOUTS;
    tconv_desc desc = *of_layer;
    tconv_issue issue;
    desc.batch = of->batch;
    desc.dtype = mode == 1 ? TCONV_F16 : TCONV_F32;
    desc.math = mode == 0 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    desc.layout = of->group % LAYOUTS == 0 ? TCONV_NCHW : TCONV_NHWC;
    memset(layer, 0, sizeof *layer);
    cr_assert_eq(tconv_problem_init(&layer->problem, &desc, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert_eq(tconv_phases_create(&layer->problem.h, &from_malloc, &layer->rows, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_phases_create(&layer->problem.w, &from_malloc, &layer->columns, &issue), TCONV_SUCCESS);
    layer->target.backend = TCONV_BACKEND_CUDA;
    layer->target.math = desc.math;
    cr_assert(tconv_cuda_resolve_named("h200", &layer->target));
}

static void print_work(const record *of, int index, const tconv_cuda_work *work)
{
    const double *numbers = (const double *)work;
    printf("work,%d,%s,%s,%.3f,%.3f", of->group, of->layer, of->names[index], of->times[index] * 1e3,
           of->costs[index] * 1e6);
    for (size_t i = 0; i < sizeof *work / sizeof(double); i++)
        if (i != offsetof(tconv_cuda_work, overlaps) / sizeof(double))
            printf(",%.6g", numbers[i]);
        else
            printf(",%d", work->overlaps);
    printf("\n");
}

/* Plans the layer by every implementation that there is a time of, and computes the costs. */
static void find_costs(record *of, const tconv_desc *of_layer, const tconv_cuda_machine *machine)
{
    tconv_layer layer;
    make_layer(&layer, of_layer, of);
    for (int i = 0; i < of->count; i++) {
        const tconv_implementation *implementation = implementation_named(of->names[i]);
        cr_assert(implementation != NULL, "%s", of->names[i]);
        tconv_cuda_work work;
        tconv_planned planned = {.work = &work};
        tconv_issue issue;
        void *made = calloc(1, implementation->plan_bytes);
        cr_assert_not_null(made);
        cr_assert_eq(implementation->plan(&layer, made, &planned, &issue), TCONV_SUCCESS, "%s, %s: %s", of->layer,
                     of->names[i], issue.message);
        free(made);
        of->costs[i] = planned.prediction.seconds;
        cr_assert(of->costs[i] > machine->launch && of->costs[i] < 10, "%s, %s: %g s", of->layer, of->names[i],
                  of->costs[i]);
        if (getenv("TCONV_PRINT_WORK") != NULL)
            print_work(of, i, &work);
    }
    tconv_phases_release(&layer.rows, &from_malloc);
    tconv_phases_release(&layer.columns, &from_malloc);
}

static int least(const double *numbers, int count)
{
    int at = 0;
    for (int i = 1; i < count; i++)
        if (numbers[i] < numbers[at])
            at = i;
    return at;
}

typedef struct regret_sum {
    int layers, taken; /* taken: layers whose fastest implementation was found */
    double logs, worst, old_logs, old_worst, errors;
    const char *worst_layer, *old_worst_layer;
} regret_sum;

static void add_regret(regret_sum *sum, const record *of)
{
    const int fastest = least(of->times, of->count), taken = least(of->costs, of->count);
    const double best = of->times[fastest], regret = of->times[taken] / best;
    double old = of->chosen_time / best;
    for (int i = 0; i < of->count; i++)
        if (strcmp(of->names[i], of->chosen) == 0)
            old = of->times[i] / best; /* the same reading as the others */
    sum->layers++;
    sum->taken += fastest == taken;
    sum->logs += log(regret);
    sum->old_logs += log(old);
    sum->errors += log(of->costs[taken] * 1e3 / of->times[taken]) * log(of->costs[taken] * 1e3 / of->times[taken]);
    if (regret > sum->worst) {
        sum->worst = regret;
        sum->worst_layer = of->layer;
    }
    if (old > sum->old_worst) {
        sum->old_worst = old;
        sum->old_worst_layer = of->layer;
    }
    if (regret > 1.1)
        printf("  %-4s %s %-14s %.2f: %s (%.4f ms, cost %.4f) for %s (%.4f, %.4f)\n", bounds[of->group / LAYOUTS].mode,
               layouts[of->group % LAYOUTS], of->layer, regret, of->names[taken], of->times[taken],
               of->costs[taken] * 1e3, of->names[fastest], best, of->costs[fastest] * 1e3);
}

static void read_workloads(workload_list *workloads)
{
    static const char *const files[] = {TCONV_WORKLOADS, TCONV_WORKLOADS_BROAD};
    char message[LINE];
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq(workloads_read(files[i], workloads, message, sizeof message), 0, "%s", message);
}

Test(regret, the_cost_model_takes_implementations_that_are_nearly_the_fastest)
{
    const tconv_cuda_machine *machine = tconv_cuda_machine_named("h200");
    record_list list = read_times();
    workload_list workloads = {0};
    regret_sum sums[GROUPS] = {0};
    read_workloads(&workloads);
    cr_assert_eq(list.count, 167 * GROUPS);
    printf("layers that lose over 10 %%: what is taken, for the fastest\n");
    for (size_t i = 0; i < list.count; i++) {
        const workload *found = workloads_find(&workloads, list.items[i].layer);
        cr_assert_not_null(found, "%s", list.items[i].layer);
        find_costs(&list.items[i], &found->layer.desc, machine);
        add_regret(&sums[list.items[i].group], &list.items[i]);
    }
    printf(
        "mode layout  regret (old)    worst (old)                             fastest found  error of what is taken\n");
    for (int i = 0; i < GROUPS; i++) {
        const regret_sum *sum = &sums[i];
        const double mean = exp(sum->logs / sum->layers), old = exp(sum->old_logs / sum->layers);
        printf("%-4s %s    %.4f (%.4f) %.2f %-14s (%.2f %-12s) %d of %d %15.0f %%\n", bounds[i / LAYOUTS].mode,
               layouts[i % LAYOUTS], mean, old, sum->worst, sum->worst_layer, sum->old_worst, sum->old_worst_layer,
               sum->taken, sum->layers, 100 * sqrt(sum->errors / sum->layers));
        cr_expect_leq(mean, bounds[i / LAYOUTS].mean[i % LAYOUTS]);
        cr_expect_leq(sum->worst, bounds[i / LAYOUTS].worst[i % LAYOUTS]);
        cr_expect_leq(mean, old);
    }
    workloads_release(&workloads);
    free(list.items);
}
