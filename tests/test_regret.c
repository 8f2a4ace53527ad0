/*
 * The cost model, judged by its choices: bench/results/h200_implementations.csv.gz has what every implementation took for
 * 317 layers on an H200. Each of these plans is made here for such a GPU, which need not be there, with its predicted
 * time; the regret of a layer is what the implementation with the least predicted time took, to what the fastest of all
 * took. Both are less what a plan saves that packs no weights in a call, as in the choice. (Two readings of one kernel
 * differ by up to 4 %.) Times of kernels that layers no longer take are taken out of the file; a layer is judged where
 * there is one of what it takes.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cuda/cuda_backend.h"
#include "../src/cuda/cuda_target.h"
#include "../src/cuda/model/work.h"
#include "support/recorded.h"

#define MODES        3
#define LAYOUTS      2
#define GROUPS       (MODES * LAYOUTS)
#define MOST         10  /* implementations of a layer */
#define LEAST_LAYERS 245 /* that are judged, of a group */

/* Geometric mean and worst regret that each mode and layout may have, NCHW before NHWC: the model's own, and a little
 * for rounding in another compiler. */
static const struct {
    const char *mode;
    double mean[LAYOUTS], worst[LAYOUTS];
} bounds[MODES] = {{"tf32", {1.023, 1.0145}, {1.7, 1.95}},
                   {"f16", {1.025, 1.0205}, {2.0, 2.2}},
                   {"f32", {1.0195, 1.0145}, {2.1, 2.0}}};
static const char *const layouts[LAYOUTS] = {"nchw", "nhwc"};

typedef struct record {
    char layer[32];
    int group, count;
    int64_t extents[RECORDED_EXTENTS];
    char names[MOST][32];
    double times[MOST], costs[MOST];
} record;

typedef struct record_list {
    record *items;
    size_t count, capacity;
} record_list;

/* The lines of a layer follow one another. */
static record *record_of(record_list *list, const char *layer, int group)
{
    record *last = list->count > 0 ? &list->items[list->count - 1] : NULL;
    if (last != NULL && last->group == group && strcmp(last->layer, layer) == 0)
        return last;
    if (list->items == NULL || list->count == list->capacity) {
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

/* Reads a line: mode,layout,layer,implementation,ms,tile,N,... */
static void read_line(void *context, char *line)
{
    record_list *list = context;
    char *fields[6], *rest = line;
    for (int i = 0; i < 6; i++)
        fields[i] = recorded_field(&rest);
    int mode = 0, layout = 0;
    while (strcmp(bounds[mode].mode, fields[0]) != 0)
        cr_assert_lt(++mode, MODES, "%s", fields[0]);
    while (strcmp(layouts[layout], fields[1]) != 0)
        cr_assert_lt(++layout, LAYOUTS, "%s", fields[1]);
    record *of = record_of(list, fields[2], mode * LAYOUTS + layout);
    cr_assert_lt(of->count, MOST);
    snprintf(of->names[of->count], sizeof of->names[0], "%s", fields[3]);
    of->times[of->count] = strtod(fields[4], NULL);
    cr_assert_gt(of->times[of->count++], 0);
    recorded_read_extents(&rest, of->extents);
}

static const tconv_implementation *implementation_named(const char *name)
{
    for (size_t i = 0; tconv_cuda_implementations[i] != NULL; i++)
        if (strcmp(tconv_cuda_implementations[i]->name, name) == 0)
            return tconv_cuda_implementations[i];
    return NULL;
}

/* Prints the counts of a plan, in the order of tconv_cuda_work, for a fit. */
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

/* The one that there is no time of, and that would be taken before all that there is one of, or NULL. */
static const tconv_implementation *find_untimed(const record *of, const tconv_layer *layer, double cost)
{
    for (size_t i = 0; tconv_cuda_implementations[i] != NULL; i++) {
        const tconv_implementation *implementation = tconv_cuda_implementations[i];
        tconv_planned planned = {0};
        tconv_issue issue;
        bool timed = false;
        for (int j = 0; j < of->count; j++)
            timed = timed || strcmp(of->names[j], implementation->name) == 0;
        if (!timed && recorded_plan(implementation, layer, &planned, &issue) &&
            tconv_compared_seconds(&planned.prediction) < cost)
            return implementation;
    }
    return NULL;
}

/* Plans the layer by every implementation that there is a time of. Returns the one that is taken where it is not among
 * these. */
static const tconv_implementation *find_costs(record *of)
{
    tconv_layer layer;
    recorded_make_layer(&layer, TCONV_FORWARD, bounds[of->group / LAYOUTS].mode, layouts[of->group % LAYOUTS],
                        of->extents);
    for (int i = 0; i < of->count; i++) {
        const tconv_implementation *implementation = implementation_named(of->names[i]);
        cr_assert(implementation != NULL, "%s", of->names[i]);
        tconv_cuda_work work;
        tconv_planned planned = {.work = &work};
        tconv_issue issue;
        cr_assert(recorded_plan(implementation, &layer, &planned, &issue), "%s, %s: %s", of->layer, of->names[i],
                  issue.message);
        of->costs[i] = tconv_compared_seconds(&planned.prediction);
        const tconv_cuda_target gpu = tconv_cuda_target_of(&layer.target);
        const tconv_cuda_machine machine = tconv_cuda_machine_like(gpu.compute_capability, gpu.multiprocessors);
        cr_assert_leq(tconv_cuda_least_seconds(&machine, &work), planned.prediction.seconds, "%s, %s: not the least",
                      of->layer, of->names[i]);
        cr_assert(of->costs[i] > 1e-6 && of->costs[i] < 10, "%s, %s: %g s", of->layer, of->names[i], of->costs[i]);
        if (getenv("TCONV_PRINT_WORK") != NULL)
            print_work(of, i, &work);
    }
    const tconv_implementation *untimed = find_untimed(of, &layer, of->costs[recorded_least(of->costs, of->count)]);
    recorded_release_layer(&layer);
    return untimed;
}

typedef struct regret_sum {
    int layers, taken; /* taken: layers whose fastest implementation was found */
    double logs, worst, errors;
    const char *worst_layer;
} regret_sum;

static void add_regret(regret_sum *sum, const record *of)
{
    const int fastest = recorded_least(of->times, of->count), taken = recorded_least(of->costs, of->count);
    const double best = of->times[fastest], regret = of->times[taken] / best;
    const double error = log(of->costs[taken] * 1e3 / of->times[taken]);
    sum->layers++;
    sum->taken += fastest == taken;
    sum->logs += log(regret);
    sum->errors += error * error;
    if (regret > sum->worst) {
        sum->worst = regret;
        sum->worst_layer = of->layer;
    }
    if (regret > 1.25)
        printf("  %-4s %s %-14s %.2f: %s (%.4f ms, cost %.4f) for %s (%.4f, %.4f)\n", bounds[of->group / LAYOUTS].mode,
               layouts[of->group % LAYOUTS], of->layer, regret, of->names[taken], of->times[taken],
               of->costs[taken] * 1e3, of->names[fastest], best, of->costs[fastest] * 1e3);
}

Test(regret, the_cost_model_takes_implementations_that_are_nearly_the_fastest)
{
    record_list list = {0};
    recorded_read(TCONV_H200_TIMES, read_line, &list);
    regret_sum sums[GROUPS] = {0};
    cr_assert_geq(list.count, 300 * GROUPS);
    printf("layers that lose over 25 %%: what is taken, for the fastest\n");
    for (size_t i = 0; i < list.count; i++) {
        const tconv_implementation *untimed = find_costs(&list.items[i]);
        if (untimed == NULL)
            add_regret(&sums[list.items[i].group], &list.items[i]);
    }
    printf("mode layout  regret  worst                fastest found  error of what is taken\n");
    for (int i = 0; i < GROUPS; i++) {
        const regret_sum *sum = &sums[i];
        const double mean = exp(sum->logs / sum->layers);
        printf("%-4s %s    %.4f  %.2f %-14s %d of %d %15.0f %%\n", bounds[i / LAYOUTS].mode, layouts[i % LAYOUTS], mean,
               sum->worst, sum->worst_layer, sum->taken, sum->layers, 100 * sqrt(sum->errors / sum->layers));
        cr_expect_geq(sum->layers, LEAST_LAYERS);
        cr_expect_leq(mean, bounds[i / LAYOUTS].mean[i % LAYOUTS]);
        cr_expect_leq(sum->worst, bounds[i / LAYOUTS].worst[i % LAYOUTS]);
    }
    free(list.items);
}
