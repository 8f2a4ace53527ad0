/*
 * tconv verify compares every implementation on this machine with the float64 reference, on the corners and on random
 * layers: with integers, where every bit must be right on every backend, and with reals, whose errors must be in
 * bounds.
 *
 * A way is an implementation with an instruction set on the CPU, or with a math on CUDA. There the way sets the math of
 * f32, not the layer, so that every f32 layer is run in strict math and in TF32. The reference is itself a way, and its
 * answers are compared with the formula at some pixels, so that nothing judges itself. Random layer i depends on
 * seed + i alone, so that it can be replayed by itself. One forward layer in four has post-ops. Without a way on CUDA, large corners are judged at samples in
 * all but one of their forms. At the end verify says what it did not try.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "harness.h"
#include "options.h"
#include "streams.h"
#include "timing.h"
#include "verify.h"

#define MAX_WAYS         64
#define DEFAULT_LAYERS   200
#define DEFAULT_SECONDS  60
#define FORMULA_ELEMENTS 4
#define FORMULA_ERROR    0x1p-44 /* relative; two float64 sums of the same products in different order differ by less */
#define PROGRESS_PERIOD  0.1
/* One layer in this many runs on all threads, and again on another number of threads. The others, which are too small
 * to gain from threads, run on one: on a busy machine threads that wait for each other would take nearly all of the
 * time. */
#define THREADED_EVERY 16
#define OTHER_THREADS  4 /* threads of the second run: 1 to this many */
/* One corner in this many, so that it goes round all forms of a corner, and as large a part of the random layers, adds to
 * what its outputs hold. */
#define ACCUMULATE_EVERY 5

static const char *const backend_choices[] = {"auto", "cpu", "cuda", "all", NULL};
static const char *const op_choices[] = {"forward", "backward_data", "backward_weights", "all", NULL};

typedef struct way {
    tconv_options options;
    tconv_math math;                                   /* math of f32; DEFAULT: the layer's */
    int64_t layers, with_posts, unsupported, failures; /* numbers of runs; with_posts: with post-ops */
    double seconds;
} way;

typedef struct verification {
    const verify_request *asked;
    tconv_op op;
    way ways[MAX_WAYS];
    size_t way_count;
    size_t done, total; /* numbers of layers */
    int64_t with_posts; /* the number of layers with post-ops */
    int64_t failures;
    harness_pool *pool; /* a pool of OTHER_THREADS threads */
    bool on_cuda;       /* whether one of the ways is on CUDA */
    bool terminal;
    double last_progress;
} verification;

/* ---------------------------------------------------------------------------------------------------------------- ways */

static void add_way(verification *all, const char *implementation, tconv_backend backend, tconv_cpu_isa isa,
                    tconv_math math)
{
    if (all->way_count == MAX_WAYS)
        return;
    way *added = &all->ways[all->way_count++];
    added->options = cli_execution_options(&all->asked->execution);
    added->options.backend = backend;
    added->options.implementation = implementation;
    added->options.cpu_isa = isa;
    added->math = math;
    all->on_cuda |= backend == TCONV_BACKEND_CUDA;
}

/* Returns the name of the way among those of its implementation. */
static const char *way_name(const way *by)
{
    if (by->math != TCONV_MATH_DEFAULT)
        return harness_math_name(by->math);
    return by->options.cpu_isa == TCONV_CPU_ISA_DEFAULT ? "-" : harness_cpu_isa_name(by->options.cpu_isa);
}

/* Whether the way differs from the others for the layer: TF32 is for f32 alone. */
static bool concerns(const way *by, const harness_layer *layer)
{
    return by->math != TCONV_MATH_TF32 || layer->desc.dtype == TCONV_F32;
}

/* Returns the layer with the way's math. */
static harness_layer layer_of(const way *by, const harness_layer *layer)
{
    harness_layer own = *layer;
    if (by->math != TCONV_MATH_DEFAULT)
        own.desc.math = by->math;
    return own;
}

static void add_cpu_ways(verification *all, const char *implementation)
{
    const tconv_cpu_isa cap = all->asked->execution.isa;
    if (strcmp(implementation, "cpu_reference") == 0) { /* the reference is the same at every level */
        add_way(all, implementation, TCONV_BACKEND_CPU, cap, TCONV_MATH_DEFAULT);
        return;
    }
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; ++isa)
        if ((cap == TCONV_CPU_ISA_DEFAULT ? !harness_is_generic_again(implementation, (tconv_cpu_isa)isa)
                                          : (int)cap == isa) &&
            verify_machine_has((tconv_cpu_isa)isa))
            add_way(all, implementation, TCONV_BACKEND_CPU, (tconv_cpu_isa)isa, TCONV_MATH_DEFAULT);
}

/* Lists the ways, the CPU's first. Returns -1 to go on, else the exit code. */
static int find_ways(verification *all)
{
    const verify_request *asked = all->asked;
    const char *only = asked->execution.implementation, *name;
    bool known = false;
    for (int pass = 0; pass < 2; ++pass)
        for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; ++i) {
            if ((only != NULL && strcmp(only, name) != 0) || verify_is_cuda(name) != (pass == 1))
                continue;
            known = true;
            if (!verify_has_operation(all->op, name))
                continue;
            if (!verify_is_cuda(name) && asked->cpu)
                add_cpu_ways(all, name);
            else if (verify_is_cuda(name) && asked->cuda)
                for (int math = TCONV_MATH_STRICT; math <= TCONV_MATH_TF32; ++math)
                    add_way(all, name, TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, (tconv_math)math);
        }
    if (!known)
        return cli_option_error(asked->options, asked->option_count, "implementation",
                                "must be one that tconv info lists");
    if (all->way_count > 0)
        return -1;
    if (asked->op == VERIFY_ALL_OPERATIONS && only != NULL && !verify_has_operation(all->op, only)) {
        printf("%s: not tried: it is no operation of %s\n", harness_op_name(all->op), only);
        return CLI_SUCCESS;
    }
    cli_error("nothing to verify: no implementation that was asked for runs here");
    return CLI_FAILURE;
}

/* ------------------------------------------------------------------------------------------------------------- failing */

static void clear_progress(const verification *all)
{
    if (all->terminal)
        fputs("\r\033[K", stderr);
}

/* The layer that is being verified, for messages. */
typedef struct attempt {
    const char *corner; /* NULL for a random layer */
    uint64_t seed;
    harness_layer layer;
    bool sampled; /* whether a large corner is judged at samples, on the CPU alone */
} attempt;

static void report(verification *all, const attempt *tried, way *by, const char *text)
{
    char layer[HARNESS_LAYER_TEXT];
    ++all->failures;
    clear_progress(all);
    if (tried->corner != NULL)
        printf("FAILED corner \"%s\": %s\n", tried->corner, text);
    else
        printf("FAILED layer of seed %" PRIu64 ": %s\n", tried->seed, text);
    if (by == NULL)
        return;
    ++by->failures;
    const harness_layer own = layer_of(by, &tried->layer);
    harness_layer_format(&own, layer, sizeof layer);
    /* A random layer replays by itself; the numbers of a corner depend on its place. */
    const bool random = tried->corner == NULL;
    printf("  replay: tconv verify --op %s --seed %" PRIu64 " --layers %d%s --implementation %s",
           harness_op_name(own.desc.op), random ? tried->seed : all->asked->seed, random, random ? " --no-corners" : "",
           by->options.implementation);
    if (by->options.cpu_isa != TCONV_CPU_ISA_DEFAULT)
        printf(" --isa %s", harness_cpu_isa_name(by->options.cpu_isa));
    verify_print_posts(all->asked);
    printf("\n      or: tconv bench --check --implementation %s %s\n", by->options.implementation, layer);
}

/* ---------------------------------------------------------------------------------------------------------- verifying */

/* Compares the reference's answer for a tensor with the formula at a few elements. */
static void check_answer(verification *all, const attempt *tried, const harness_case *test, harness_role role)
{
    const harness_answer *answer = &test->answers[role];
    const int64_t *shape = test->views[role].shape;
    harness_random random;
    harness_random_seed(&random, tried->seed);
    for (int i = 0; i < FORMULA_ELEMENTS; ++i) {
        int64_t at[4], index = 0;
        double value, bound;
        for (int axis = 0; axis < 4; ++axis) {
            at[axis] = harness_random_integer(&random, 0, shape[axis] - 1);
            index = index * shape[axis] + at[axis];
        }
        harness_element_answer(test, role, at, &value, &bound);
        if (fabs(value - answer->expected[index]) <= FORMULA_ERROR * bound)
            continue;
        char text[256];
        snprintf(text, sizeof text,
                 "cpu_reference in f64: %s at %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                 ": %.17g, but the formula says %.17g",
                 harness_role_name(role), at[0], at[1], at[2], at[3], answer->expected[index], value);
        report(all, tried, NULL, text);
        return;
    }
}

static bool is_threaded(const attempt *tried)
{
    return tried->seed % THREADED_EVERY == 0;
}

/* Runs the case one way and judges the output. On true, the output is the caller's to release. */
static bool run_way(verification *all, const attempt *tried, way *by, const harness_case *test, harness_output *output)
{
    harness_failure failure;
    tconv_issue issue;
    const bool pack_once = tried->seed % 2 != 0;
    tconv_options options = by->options;
    if (!is_threaded(tried) && options.threads == 0)
        options.threads = 1;
    double start = harness_seconds();
    tconv_status status = harness_run(test, &options, pack_once, output, &issue);
    by->seconds += harness_seconds() - start;
    if (status == TCONV_ERROR_UNSUPPORTED) {
        ++by->unsupported;
        return false;
    }
    if (status != TCONV_SUCCESS) {
        char text[320];
        snprintf(text, sizeof text, "%s: %s: %s", by->options.implementation, tconv_status_string(status),
                 issue.message);
        report(all, tried, by, text);
        return false;
    }
    ++by->layers;
    by->with_posts += test->layer.desc.post_count > 0;
    if (!harness_compare(test, output, &failure))
        report(all, tried, by, failure.text);
    return true;
}

/* Checks that another number of threads, of the program's own, gives the same bits. */
static void check_threads(verification *all, const attempt *tried, way *by, const harness_case *test,
                          const harness_output *output)
{
    way other = {.options = by->options};
    harness_output again;
    harness_failure failure;
    tconv_issue issue;
    other.options.threads = 1 + (int32_t)(tried->seed / THREADED_EVERY % OTHER_THREADS);
    if (all->pool == NULL) /* without a pool, OpenMP's threads are used, as many as the machine has */
        all->pool = harness_pool_create(OTHER_THREADS);
    if (all->pool != NULL)
        other.options.parallel = harness_pool_parallel(all->pool);
    if (harness_run(test, &other.options, false, &again, &issue) != TCONV_SUCCESS) {
        report(all, tried, by, issue.message);
        return;
    }
    if (!harness_same_bits(test, output, &again, &failure))
        report(all, tried, by, failure.text);
    harness_output_release(&again);
}

/* Whether the way is the reference beside others. It takes longer for a large layer than everything else, and is left
 * out there unless it was asked for alone. */
static bool is_slow(const verification *all, const way *by)
{
    return all->way_count > 1 && strcmp(by->options.implementation, "cpu_reference") == 0;
}

static void verify_fill(verification *all, const attempt *tried, harness_fill fill)
{
    harness_case test;
    harness_output first = {0}, output;
    bool has_first = false;
    harness_failure failure;
    tconv_issue issue;
    tconv_status status = tried->sampled ? harness_case_create_sampled(&test, &tried->layer, fill, tried->seed, &issue)
                                         : harness_case_create(&test, &tried->layer, fill, tried->seed, &issue);
    if (status != TCONV_SUCCESS) {
        report(all, tried, NULL, issue.message);
        return;
    }
    for (int role = 0; role < HARNESS_ROLES; ++role)
        if (test.answers[role].expected != NULL)
            check_answer(all, tried, &test, (harness_role)role);
    for (size_t i = 0; i < all->way_count; ++i) {
        way *by = &all->ways[i];
        test.layer = layer_of(by, &tried->layer);
        if (!concerns(by, &tried->layer) || (tried->sampled && is_slow(all, by)) ||
            !run_way(all, tried, by, &test, &output))
            continue;
        if (fill == HARNESS_REALS && is_threaded(tried) && by->options.backend == TCONV_BACKEND_CPU)
            check_threads(all, tried, by, &test, &output);
        if (fill == HARNESS_INTEGERS && !has_first) {
            first = output;
            has_first = true;
            continue;
        }
        if (fill == HARNESS_INTEGERS && !harness_same_bits(&test, &first, &output, &failure))
            report(all, tried, by, failure.text);
        harness_output_release(&output);
    }
    harness_output_release(&first);
    harness_case_destroy(&test);
}

static void show_progress(verification *all)
{
    double now = harness_seconds();
    ++all->done;
    if (!all->terminal || now - all->last_progress < PROGRESS_PERIOD)
        return;
    all->last_progress = now;
    fprintf(stderr, "\r\033[K%zu of %zu layers, %" PRId64 " failures", all->done, all->total, all->failures);
    fflush(stderr);
}

static void verify_layer(verification *all, const attempt *tried)
{
    all->with_posts += tried->layer.desc.post_count > 0;
    if (harness_has_integers(&tried->layer))
        verify_fill(all, tried, HARNESS_INTEGERS);
    verify_fill(all, tried, HARNESS_REALS);
    show_progress(all);
}

/* Says what a reader might think was tried. */
static void print_left_out(const verify_request *asked)
{
    if (asked->cpu && asked->execution.isa == TCONV_CPU_ISA_DEFAULT && asked->execution.implementation == NULL)
        verify_print_isas_left_out();
    if (asked->backend == VERIFY_ONLY_CPU || asked->backend == VERIFY_ONLY_CUDA)
        printf("not tried: %s, by --backend\n", asked->backend == VERIFY_ONLY_CPU ? "CUDA" : "the CPU");
    if (asked->no_corners)
        printf("not tried: the corners, by --no-corners\n");
    else if (!asked->cuda)
        printf("not tried: every output of large corners, which are judged at samples but in one form of eight\n");
    if (asked->op != VERIFY_ALL_OPERATIONS)
        for (int op = 0; op < VERIFY_ALL_OPERATIONS; ++op)
            if (op != asked->op)
                printf("not tried: %s, by %s\n", harness_op_name((tconv_op)op), asked->posts.given ? "--post" : "--op");
}

static void summarize(const verification *all, double seconds)
{
    printf("%-24s %-8s %10s %12s %9s %9s\n", "implementation", "way", "runs", "unsupported", "failures", "seconds");
    for (size_t i = 0; i < all->way_count; ++i) {
        const way *by = &all->ways[i];
        printf("%-24s %-8s %10" PRId64 " %12" PRId64 " %9" PRId64 " %9.2f\n", by->options.implementation, way_name(by),
               by->layers, by->unsupported, by->failures, by->seconds);
    }
    for (size_t i = 0; i < all->way_count; ++i)
        if (all->ways[i].layers == 0)
            printf("not tried: %s %s: it takes none of these layers\n", all->ways[i].options.implementation,
                   way_name(&all->ways[i]));
    for (size_t i = 0; i < all->way_count; ++i)
        if (all->with_posts > 0 && all->ways[i].with_posts == 0 && all->ways[i].layers > 0)
            printf("not tried: %s %s: post-ops: it takes none of the layers that have them\n",
                   all->ways[i].options.implementation, way_name(&all->ways[i]));
    printf("%zu of %zu layers in %.1f s, %" PRId64 " failures: %s\n", all->done, all->total, seconds, all->failures,
           all->failures == 0 ? "all right" : "WRONG");
}

static int run_request(const verify_request *asked, tconv_op op)
{
    verification all = {.asked = asked, .op = op, .terminal = isatty(STDERR_FILENO) != 0};
    int code = find_ways(&all);
    if (code >= 0)
        return code;
    const double start = harness_seconds();
    const size_t corners = asked->no_corners ? 0 : harness_corner_count();
    all.total = corners + (size_t)asked->layers;
    printf("%s: seed %" PRIu64 ", %zu corners, %" PRId64 " random layers\n", harness_op_name(op), asked->seed, corners,
           asked->layers);
    for (size_t i = 0; i < corners && all.failures < VERIFY_MAX_FAILURES && cli_stdout_flush(); ++i) {
        attempt tried = {.seed = asked->seed + i};
        harness_random random;
        tried.corner = harness_corner(i, &tried.layer);
        tried.layer.desc.op = op;
        tried.layer.desc.accumulate = i % ACCUMULATE_EVERY == 0;
        harness_random_seed(&random, tried.seed);
        verify_give_posts(asked, false, &random, &tried.layer.desc);
        tried.sampled = !all.on_cuda && harness_corner_is_sampled(i, &tried.layer);
        verify_layer(&all, &tried);
    }
    for (int64_t i = 0; i < asked->layers && all.failures < VERIFY_MAX_FAILURES && cli_stdout_flush(); ++i) {
        attempt tried = {.seed = asked->seed + (uint64_t)i};
        harness_random random;
        harness_random_seed(&random, tried.seed);
        harness_random_layer(&random, &tried.layer);
        tried.layer.desc.op = op;
        tried.layer.desc.accumulate = harness_random_chance(&random, 100 / ACCUMULATE_EVERY);
        verify_give_posts(asked, true, &random, &tried.layer.desc);
        verify_layer(&all, &tried);
    }
    harness_pool_destroy(all.pool);
    clear_progress(&all);
    summarize(&all, harness_seconds() - start);
    return all.failures == 0 ? CLI_SUCCESS : CLI_FAILURE;
}

/* Verifies the operations in turn; the worst exit code counts. */
static int run_operations(const verify_request *asked)
{
    const bool all = asked->op == VERIFY_ALL_OPERATIONS;
    const int first = all ? 0 : asked->op, last = all ? VERIFY_ALL_OPERATIONS - 1 : asked->op;
    int worst = CLI_SUCCESS;
    for (int op = first; op <= last && cli_stdout_flush(); ++op) {
        const int code = run_request(asked, (tconv_op)op);
        worst = code > worst ? code : worst;
        if (code == CLI_BAD_INPUT) /* the others would be told the same */
            break;
    }
    if (worst != CLI_BAD_INPUT)
        print_left_out(asked);
    return worst;
}

int cli_verify(int argc, char **argv)
{
    enum { NO_NUMBER = -1 };
    verify_request asked = {.op = VERIFY_ALL_OPERATIONS,
                            .layers = NO_NUMBER,
                            .seed = (uint64_t)time(NULL),
                            .execution = CLI_EXECUTION_DEFAULTS};
    cli_option options[] = {
        CLI_NAME("backend", backend_choices, &asked.backend,
                 "auto (default: all that are here), cpu, cuda, or all (both must be here)"),
        CLI_INTEGER("layers", "N", 0, INT32_MAX, &asked.layers,
                    "random layers of each operation (default 200); with --by-class, in all"),
        CLI_FLAG("no-corners", &asked.no_corners, "only random layers"),
        CLI_FLAG("by-class", &asked.by_class,
                 "only layers drawn by class, of all operations in turn, on threads and tunings that are drawn too"),
        CLI_INTEGER("seconds", "N", 1, INT32_MAX, &asked.seconds, "with --by-class: how long (default 60)"),
        {.name = "seed",
         .argument = "S",
         .help = "of the random numbers (default: from the clock; printed)",
         .parse = cli_parse_seed,
         .target = &asked.seed},
        CLI_NAME("op", op_choices, &asked.op, "all (default), forward, backward_data or backward_weights"),
        CLI_POSTS("post", cli_parse_any_posts, &asked.posts,
                  "post-ops of every layer, for instance clamp:0:6, or random; only forward is tried then"),
        CLI_EXECUTION_OPTIONS(asked.execution),
    };
    const cli_usage usage = {
        "verify",
        "[--backend auto|cpu|cuda|all] [--layers N] [--seed S] [OPTION]...\n       tconv verify --by-class [--seconds "
        "N] [--seed S] [OPTION]...",
        "Tests every implementation on this machine, on the CPU at every instruction set, on CUDA strictly "
        "and in TF32,\nagainst a float64 reference: on corners by name and on random layers, one in five of which adds "
        "to "
        "its outputs,\nand one in four of which has post-ops where it is forward, with integers (every bit must be "
        "right) and with reals\n(in bounds). Says what was not tried. A failure prints how to replay it.\nWith "
        "--by-class it searches for as long as it is told, and compares with "
        "the "
        "formula itself."};
    asked.options = options;
    asked.option_count = sizeof options / sizeof options[0];
    int code = cli_options_parse(&usage, options, asked.option_count, argc, argv);
    if (code >= 0)
        return code;
    if ((code = cli_posts_check(&asked.posts, options, asked.option_count)) != CLI_SUCCESS)
        return code;
    if (asked.posts.given && asked.op != TCONV_FORWARD && asked.op != VERIFY_ALL_OPERATIONS)
        return cli_option_error(options, asked.option_count, "post", "is for forward, not for gradients");
    if (asked.posts.given)
        asked.op = TCONV_FORWARD;
    if (!asked.by_class && asked.seconds != 0)
        return cli_option_error(options, asked.option_count, "seconds", "is for --by-class");
    if ((code = verify_find_backends(&asked)) >= 0)
        return code;
    if (asked.by_class) {
        if (asked.layers == NO_NUMBER && asked.seconds == 0)
            asked.seconds = DEFAULT_SECONDS;
        return verify_by_class(&asked);
    }
    asked.layers = asked.layers == NO_NUMBER ? DEFAULT_LAYERS : asked.layers;
    return run_operations(&asked);
}
