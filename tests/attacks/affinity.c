/*
 * Takes processors from the process: all but one before the first call; all but one between plan and execute, and gives
 * them back then; and binds a thread of the caller's to one. Where the library is called from the caller's own parallel
 * region, nested ones too, each caller's result is right.
 */
#include <sched.h>
#include <stdio.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "attack_layer.h"

#define SECONDS 20
#define CALLERS 4

/* Returns the set of the first allowed processor. */
static cpu_set_t first_of(const cpu_set_t *allowed)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, allowed)) {
            CPU_SET((size_t)i, &one);
            break;
        }
    return one;
}

static tconv_status execute(attack_layer *layer, const tconv_plan *plan)
{
    attack_layer_clear(layer);
    return tconv_plan_execute(plan, &layer->src, &layer->weights, &layer->bias, &layer->dst, layer->workspace,
                              layer->workspace_size, NULL);
}

static void expect_execute(attack_layer *layer, const tconv_plan *plan, const char *when)
{
    EXPECT(execute(layer, plan) == TCONV_SUCCESS && attack_layer_is_right(layer), "%s: wrong", when);
}

/* With one processor from the start on, the default is one thread. */
static int one_processor(void *unused)
{
    (void)unused;
    static attack_layer layer;
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    one = first_of(&all);
    EXPECT(sched_setaffinity(0, sizeof one, &one) == 0, "the process cannot be bound");
    attack_layer_init(&layer, ATTACK_LARGE);
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, NULL, "on one processor");
    return attack_end();
}

/* The process begins on one processor, as by taskset: OpenMP and the library see no other. */
static void bind_to_one(void *unused)
{
    (void)unused;
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    one = first_of(&all);
    sched_setaffinity(0, sizeof one, &one);
}

/* Runs the same test as a new program. */
static int bound_program(void)
{
    static attack_layer layer;
    static const int32_t threads[] = {0, 1, 4};
    attack_layer_init(&layer, ATTACK_LARGE);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        tconv_options options;
        tconv_options_init(&options);
        options.threads = threads[i];
        attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, "begun on one processor");
    }
    return attack_end();
}

static int changing(void *unused)
{
    (void)unused;
    static attack_layer layer;
    cpu_set_t all, one;
    tconv_plan *plan = NULL;
    tconv_options options;
    sched_getaffinity(0, sizeof all, &all);
    one = first_of(&all);
    attack_layer_init(&layer, ATTACK_LARGE);
    tconv_options_init(&options);
    options.threads = 3;
    EXPECT(tconv_plan_create(&layer.desc, &options, &plan, NULL) == TCONV_SUCCESS, "no plan");
    expect_execute(&layer, plan, "before");
    sched_setaffinity(0, sizeof one, &one);
    expect_execute(&layer, plan, "with the caller bound to one processor");
    sched_setaffinity(0, sizeof all, &all);
    expect_execute(&layer, plan, "with the processors given back");
    tconv_plan_destroy(plan);
    return attack_end();
}

#if defined(_OPENMP)
/* Whether every caller of a parallel region, and each one's own region in it, gets the right result. */
static int nested(void *unused)
{
    (void)unused;
    static attack_layer layers[CALLERS][2];
    int wrong = 0;
    tconv_plan *plan = NULL;
    tconv_options options;
    tconv_options_init(&options);
    options.threads = 3;
    for (int i = 0; i < CALLERS; i++)
        for (int j = 0; j < 2; j++)
            attack_layer_init(&layers[i][j], ATTACK_LARGE);
    omp_set_max_active_levels(3);
    EXPECT(tconv_plan_create(&layers[0][0].desc, &options, &plan, NULL) == TCONV_SUCCESS, "no plan");
#pragma omp parallel for num_threads(CALLERS) reduction(+ : wrong)
    for (int i = 0; i < CALLERS; i++) {
        wrong += execute(&layers[i][0], plan) != TCONV_SUCCESS || !attack_layer_is_right(&layers[i][0]);
#pragma omp parallel for num_threads(2) reduction(+ : wrong)
        for (int j = 0; j < 2; j++)
            wrong += execute(&layers[i][j], plan) != TCONV_SUCCESS || !attack_layer_is_right(&layers[i][j]);
    }
    EXPECT(wrong == 0, "%d calls from parallel regions are wrong", wrong);
    tconv_plan_destroy(plan);
    return attack_end();
}
#endif

int main(int argc, char **argv)
{
    if (argc == 2)
        return bound_program();
    const char *arguments[] = {argv[0], "bound", NULL};
    const attack_program bound = {.arguments = arguments, .prepare = bind_to_one, .seconds = SECONDS};
    attack_expect_success(attack_run(&bound, NULL, 0), "a process begun on one processor");
    attack_expect_success(attack_fork(one_processor, NULL, SECONDS), "one processor");
    attack_expect_success(attack_fork(changing, NULL, SECONDS), "processors taken and given back");
#if defined(_OPENMP)
    attack_expect_success(attack_fork(nested, NULL, SECONDS), "from the caller's nested parallel regions");
#else
    attack_skip("nested parallel regions: built without OpenMP");
#endif
    return attack_end();
}
