/*
 * Plain threads do everything at once: the first calls of a process race; plans are made, packed, executed and
 * destroyed beside each other; all threads execute one plan, each with a dst and a workspace of its own; and each
 * thread reads back the issue of its own failure. Every result must have the right bits. Preset tsan builds this
 * program and the library with ThreadSanitizer, which sees the races that leave the bits right.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "attack_layer.h"

#define THREADS 6
#define TURNS   100 /* executions of each thread in a round */

/* The threads wait here before a round of first calls and before each turn of the others. Without that the library's
 * locks would order calls that only happened to be one after the other, and ThreadSanitizer would see no race. */
static pthread_barrier_t start;

static tconv_status (*reload)(tconv_issue *issue); /* tconv_environment_reload, where the library has it */
static atomic_int lines;                           /* lines that came to the callback */

struct racer {
    int number;
    attack_layer small, large;     /* its own dst and workspace */
    const tconv_plan *shared;      /* a plan of the large layer that all threads execute */
    const tconv_plan *with_packed; /* another, which holds its weights */
    char failure[768];             /* its first failure, "" for none; EXPECT is for the main thread alone */
};

static struct racer racers[THREADS];

#define CHECK(racer, condition, ...)                                                                                   \
    do {                                                                                                               \
        if (!(condition) && (racer)->failure[0] == '\0')                                                               \
            snprintf((racer)->failure, sizeof(racer)->failure, __VA_ARGS__);                                           \
    } while (0)

static void count_line(void *context, const char *line)
{
    (void)context, (void)line;
    atomic_fetch_add(&lines, 1);
}

/* Returns options with a number of threads that differs from racer to racer and from turn to turn: one, two, or the
 * machine's. */
static tconv_options options_of(const struct racer *racer, int turn)
{
    tconv_options options;
    tconv_options_init(&options);
    options.threads = (racer->number + turn) % 3;
    options.log.write = count_line;
    options.verbose = turn % 3;
    return options;
}

static void make_and_run(struct racer *racer, attack_layer *layer, int turn)
{
    const tconv_options options = options_of(racer, turn);
    tconv_plan *plan = NULL, *packed = NULL;
    tconv_issue issue = {0};
    char text[512];
    tconv_status status = tconv_plan_create(&layer->desc, &options, &plan, &issue);
    CHECK(racer, status == TCONV_SUCCESS, "no plan: %s", issue.message);
    if (status != TCONV_SUCCESS)
        return;
    attack_layer_clear(layer);
    status = tconv_plan_execute(plan, &layer->src, &layer->weights, &layer->bias, &layer->dst, layer->workspace,
                                layer->workspace_size, NULL);
    CHECK(racer, status == TCONV_SUCCESS && attack_layer_is_right(layer), "execute: status %d", (int)status);
    CHECK(racer, tconv_plan_describe(plan, text, sizeof text, NULL) == TCONV_SUCCESS, "describe");
    status = tconv_plan_pack_weights(plan, &layer->weights, NULL, &packed, &issue);
    CHECK(racer, status == TCONV_SUCCESS, "pack: %s", issue.message);
    tconv_plan_destroy(plan);
    tconv_plan_destroy(packed);
}

/* Makes a call that fails, and checks this thread's last issue. */
static void fail(struct racer *racer, int turn)
{
    tconv_desc wrong = racer->small.desc;
    tconv_issue issue, last;
    wrong.kernel_h = -1 - racer->number * TURNS - turn;
    CHECK(racer, tconv_validate(&wrong, &issue) == TCONV_ERROR_INVALID_ARGUMENT, "a negative kernel is valid");
    tconv_last_issue(&last);
    CHECK(racer, strcmp(issue.message, last.message) == 0, "the last issue is \"%s\", not \"%s\"", last.message,
          issue.message);
}

static void inform(struct racer *racer)
{
    static const size_t capacity = 16 << 10;
    char text[16 << 10];
    size_t length;
    CHECK(racer, tconv_system_info(TCONV_TEXT_JSON, text, capacity, &length) == TCONV_SUCCESS, "system_info");
    CHECK(racer, tconv_implementation_name(0) != NULL, "no implementation");
    CHECK(racer, tconv_status_string(TCONV_SUCCESS) != NULL && tconv_version() != NULL, "no text");
    tconv_backend_available(TCONV_BACKEND_CUDA, NULL);
    if (reload != NULL)
        CHECK(racer, reload(NULL) == TCONV_SUCCESS, "environment_reload");
}

static void one_shot(struct racer *racer, int turn)
{
    attack_layer *layer = &racer->small;
    const tconv_options options = options_of(racer, turn);
    attack_layer_clear(layer);
    tconv_status status =
        tconv_conv_transpose2d(&layer->desc, &options, &layer->src, &layer->weights, &layer->bias, &layer->dst, NULL);
    CHECK(racer, status == TCONV_SUCCESS && attack_layer_is_right(layer), "one-shot: status %d", (int)status);
}

/* Each thread begins with another of the first calls of the process. */
static void *race_first_calls(void *argument)
{
    struct racer *racer = argument;
    pthread_barrier_wait(&start);
    for (int i = 0; i < 5; i++)
        switch ((racer->number + i) % 5) {
        case 0: make_and_run(racer, &racer->small, i); break;
        case 1: fail(racer, i); break;
        case 2: inform(racer); break;
        case 3: one_shot(racer, i); break;
        default: make_and_run(racer, &racer->large, i); break;
        }
    return NULL;
}

/* All threads use one plan: they execute it without packed weights and with them, and pack it anew meanwhile. */
static void *race_shared_plans(void *argument)
{
    struct racer *racer = argument;
    attack_layer *layer = &racer->large;
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_barrier_wait(&start);
        const bool packed = (racer->number + turn) % 2 != 0;
        attack_layer_clear(layer);
        tconv_status status = tconv_plan_execute(packed ? racer->with_packed : racer->shared, &layer->src,
                                                 packed ? NULL : &layer->weights, &layer->bias, &layer->dst,
                                                 layer->workspace, layer->workspace_size, NULL);
        CHECK(racer, status == TCONV_SUCCESS && attack_layer_is_right(layer), "shared plan, %s: status %d",
              packed ? "packed" : "not packed", (int)status);
        if (turn % 3 == 0) {
            tconv_plan *again = NULL;
            status = tconv_plan_pack_weights(racer->shared, &layer->weights, NULL, &again, NULL);
            CHECK(racer, status == TCONV_SUCCESS, "pack beside execute: status %d", (int)status);
            tconv_plan_destroy(again);
        }
        fail(racer, turn);
    }
    return NULL;
}

/* Makes and destroys plans of all kinds. */
static void *race_plans(void *argument)
{
    struct racer *racer = argument;
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_barrier_wait(&start);
        make_and_run(racer, turn % 2 == 0 ? &racer->small : &racer->large, turn);
        one_shot(racer, turn);
        if (turn % 4 == racer->number % 4)
            inform(racer);
    }
    return NULL;
}

static void race(void *(*body)(void *racer), const char *what)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, body, &racers[i]) == 0, "%s: no thread", what);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(racers[i].failure[0] == '\0', "%s, thread %d: %s", what, i, racers[i].failure);
    }
}

int main(void)
{
    tconv_plan *shared = NULL, *with_packed = NULL;
    tconv_issue issue = {0};
    void *symbol = dlsym(RTLD_DEFAULT, "tconv_environment_reload");
    memcpy(&reload, &symbol, sizeof reload);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        racers[i].number = i;
        attack_layer_init(&racers[i].small, ATTACK_SMALL);
        attack_layer_init(&racers[i].large, ATTACK_LARGE);
    }
    race(race_first_calls, "first calls");

    tconv_options options = options_of(&racers[2], 0); /* two threads */
    attack_layer *layer = &racers[0].large;
    tconv_status status = tconv_plan_create(&layer->desc, &options, &shared, &issue);
    EXPECT(status == TCONV_SUCCESS, "no plan: %s", issue.message);
    status = tconv_plan_pack_weights(shared, &layer->weights, NULL, &with_packed, &issue);
    EXPECT(status == TCONV_SUCCESS, "no packed plan: %s", issue.message);
    for (int i = 0; i < THREADS; i++)
        racers[i].shared = shared, racers[i].with_packed = with_packed;
    race(race_shared_plans, "shared plans");
    race(race_plans, "plans that come and go");

    tconv_plan_destroy(with_packed);
    tconv_plan_destroy(shared);
    for (int i = 0; i < THREADS; i++) {
        attack_layer_release(&racers[i].small);
        attack_layer_release(&racers[i].large);
    }
    pthread_barrier_destroy(&start);
    return attack_end();
}
