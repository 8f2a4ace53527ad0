/*
 * tconv verify --by-class: a search for errors that lasts as long as it is let. Layers of all operations are drawn by
 * class (harness_class_layer), post-ops too, and so is what they run on: each implementation and the library's own choice, on an
 * instruction set, a tuning, a number of threads, with weights packed before or not. Every element is compared with the
 * formula (operation.c), in float64; neither it nor the judge shares code with the library. The choice is run twice, on
 * different threads, and must give the same bits.
 *
 * All of it follows from the layer's own seed, so that one layer replays by itself. A signal that ends the program first
 * says which layer it was.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "streams.h"
#include "verify.h"

#define MAX_ROWS        48
#define MAX_ISAS        8
#define MOST_THREADS    16
#define POOL_PERCENT    70   /* of runs on several threads: on threads of the program's own, not on OpenMP's */
#define REPORT_PERIOD   60.0 /* seconds from line to line */
#define PACKED_PERCENT  50
#define INTEGER_PERCENT 50

/* An implementation, or the library's choice of one. */
typedef struct row {
    const char *implementation; /* NULL: the library's choice */
    tconv_backend backend;
    int64_t runs, unsupported, failures;
} row;

/* How one layer is run. */
typedef struct way {
    tconv_cpu_isa isa;
    tconv_math math;
    int threads;
    bool pool, packed;
} way;

/* What was drawn, by class. */
enum { ACCUMULATES, BIAS, GROUPS, DEPTHWISE, DEPTH, BARE, SLICES, POSTS, NONE, CLASSES };
static const char *const class_names[CLASSES] = {"accumulate",           "bias",   "groups",   "depthwise", "depth",
                                                 "outputs without taps", "slices", "post-ops", "no image"};

typedef struct search {
    const verify_request *asked;
    row rows[MAX_ROWS];
    size_t row_count;
    tconv_cpu_isa isas[MAX_ISAS];
    int64_t isa_count;
    harness_pool *pools[MOST_THREADS + 1];
    bool sets_tuning;
    int64_t layers, failures, operations[VERIFY_ALL_OPERATIONS], classes[CLASSES];
} search;

/* ------------------------------------------------------------------------------------------------------------- signals */

static volatile uint64_t current_seed;

/* Writes the seed by hand: little else may be called here. */
static void say_where(int number)
{
    char text[96] = "\nended by a signal; replay: tconv verify --by-class --layers 1 --seed ", digits[24];
    size_t length = strlen(text), count = 0;
    uint64_t seed = current_seed;
    do
        digits[count++] = (char)('0' + seed % 10);
    while ((seed /= 10) > 0);
    while (count > 0)
        text[length++] = digits[--count];
    text[length++] = '\n';
    if (write(STDERR_FILENO, text, length) >= 0)
        raise(number); /* SA_RESETHAND: this ends the program */
    _exit(1);
}

static void watch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM};
    struct sigaction action = {.sa_handler = say_where, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; ++i)
        sigaction(signals[i], &action, NULL);
}

/* ---------------------------------------------------------------------------------------------------------------- rows */

static void add_row(search *all, const char *implementation, tconv_backend backend)
{
    if (all->row_count < MAX_ROWS)
        all->rows[all->row_count++] = (row){.implementation = implementation, .backend = backend};
}

static const char *row_name(const row *of)
{
    return of->implementation != NULL          ? of->implementation
           : of->backend == TCONV_BACKEND_CUDA ? "(chosen on CUDA)"
                                               : "(chosen on the CPU)";
}

static int find_rows(search *all)
{
    const char *only = all->asked->execution.implementation, *name;
    bool known = only == NULL;
    for (int pass = 0; pass < 2; ++pass) {
        const tconv_backend backend = pass == 0 ? TCONV_BACKEND_CPU : TCONV_BACKEND_CUDA;
        if (!(pass == 0 ? all->asked->cpu : all->asked->cuda))
            continue;
        if (only == NULL)
            add_row(all, NULL, backend);
        for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; ++i)
            if (verify_is_cuda(name) == (pass == 1) && (only == NULL || strcmp(only, name) == 0)) {
                add_row(all, name, backend);
                known = true;
            }
    }
    if (!known)
        return cli_option_error(all->asked->options, all->asked->option_count, "implementation",
                                "must be one that tconv info lists, of a backend that is here");
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; ++isa)
        if (all->asked->execution.isa == TCONV_CPU_ISA_DEFAULT ? verify_machine_has((tconv_cpu_isa)isa)
                                                               : (int)all->asked->execution.isa == isa)
            all->isas[all->isa_count++] = (tconv_cpu_isa)isa;
    return -1;
}

/* ------------------------------------------------------------------------------------------------------------- drawing */

static int draw_threads(const search *all, harness_random *random)
{
    static const int threads[] = {1, 1, 2, 3, 5, 7, 16};
    const int64_t last = (int64_t)(sizeof threads / sizeof threads[0]) - 1;
    const int drawn = threads[harness_random_integer(random, 0, last)];
    return all->asked->execution.threads > 0 ? (int)all->asked->execution.threads : drawn;
}

static way draw_way(const search *all, harness_random *random, const harness_layer *layer)
{
    way drawn = {.isa = all->isas[harness_random_integer(random, 0, all->isa_count - 1)], .math = layer->desc.math};
    drawn.threads = draw_threads(all, random);
    drawn.pool = drawn.threads > 1 && harness_random_chance(random, POOL_PERCENT);
    drawn.packed = layer->desc.op != TCONV_BACKWARD_WEIGHTS && harness_random_chance(random, PACKED_PERCENT);
    return drawn;
}

/* Has blocking take what it takes on one or another processor. */
static void draw_tuning(const search *all, harness_random *random)
{
    static const char *const tunings[] = {"auto", "common", "xeon"};
    const int64_t drawn = harness_random_integer(random, 0, 2);
    if (!all->sets_tuning)
        return;
    setenv("TCONV_CPU_TUNING", tunings[drawn], 1);
    tconv_environment_reload(NULL);
}

/* Whether some output of an axis has no tap: some residue modulo the stride is no tap's. */
static bool is_bare(int64_t kernel, int64_t stride, int64_t dilation)
{
    int64_t reached = 0;
    for (int64_t residue = 0; residue < stride; ++residue)
        for (int64_t tap = 0; tap < kernel; ++tap)
            if (tap * dilation % stride == residue) {
                ++reached;
                break;
            }
    return reached < stride;
}

static void count_classes(search *all, const harness_layer *layer)
{
    const tconv_desc *desc = &layer->desc;
    const bool is[CLASSES] = {
        [ACCUMULATES] = desc->accumulate != 0,
        [BIAS] = layer->has_bias,
        [GROUPS] = desc->groups > 1,
        [DEPTHWISE] = desc->groups > 1 && desc->groups == desc->in_channels,
        [DEPTH] = harness_has_depth(desc),
        [BARE] = is_bare(desc->kernel_d, desc->stride_d, desc->dilation_d) ||
                 is_bare(desc->kernel_h, desc->stride_h, desc->dilation_h) ||
                 is_bare(desc->kernel_w, desc->stride_w, desc->dilation_w),
        [SLICES] = desc->src_strides[0] != 0 || desc->dst_strides[0] != 0,
        [POSTS] = desc->post_count > 0,
        [NONE] = desc->batch == 0,
    };
    ++all->layers;
    ++all->operations[desc->op];
    for (int i = 0; i < CLASSES; ++i)
        all->classes[i] += is[i];
}

/* ------------------------------------------------------------------------------------------------------------- running */

static void report(search *all, row *by, const way *how, const harness_layer *layer, const char *text)
{
    char problem[HARNESS_LAYER_TEXT];
    harness_layer own = *layer;
    ++all->failures;
    printf("FAILED layer of seed %" PRIu64 ": %s\n", current_seed, text);
    printf("  replay: tconv verify --by-class --layers 1 --seed %" PRIu64 "%s%s", current_seed,
           all->asked->op != VERIFY_ALL_OPERATIONS ? " --op " : "",
           all->asked->op != VERIFY_ALL_OPERATIONS ? harness_op_name((tconv_op)all->asked->op) : "");
    verify_print_posts(all->asked);
    printf("\n");
    if (by != NULL) {
        ++by->failures;
        own.desc.math = how->math;
        harness_layer_format(&own, problem, sizeof problem);
        printf("      on: %s%s%s, %d threads%s%s", row_name(by), by->backend == TCONV_BACKEND_CPU ? ", " : "",
               by->backend == TCONV_BACKEND_CPU ? harness_cpu_isa_name(how->isa) : "", how->threads,
               how->pool ? " of its own" : "", how->packed ? ", weights packed before" : "");
        printf("%s%s\n   layer: %s\n", all->sets_tuning ? ", TCONV_CPU_TUNING=" : "",
               all->sets_tuning ? getenv("TCONV_CPU_TUNING") : "", problem);
    }
    fflush(stdout);
}

/* Returns false where there is no output: the implementation does not take the layer, or it failed. */
static bool run(search *all, row *by, const way *how, const harness_case *test, harness_output *output)
{
    tconv_options options = cli_execution_options(&all->asked->execution);
    tconv_issue issue;
    options.backend = by->backend;
    options.implementation = by->implementation;
    options.cpu_isa = by->backend == TCONV_BACKEND_CPU ? how->isa : TCONV_CPU_ISA_DEFAULT;
    options.threads = how->threads;
    if (how->pool && how->threads <= MOST_THREADS) {
        harness_pool **pool = &all->pools[how->threads];
        if (*pool == NULL)
            *pool = harness_pool_create(how->threads);
        if (*pool != NULL)
            options.parallel = harness_pool_parallel(*pool);
    }
    const tconv_status status = harness_run(test, &options, how->packed, output, &issue);
    if (status == TCONV_SUCCESS) {
        ++by->runs;
        return true;
    }
    if (status == TCONV_ERROR_UNSUPPORTED && by->implementation != NULL) {
        ++by->unsupported;
        return false;
    }
    char text[320];
    snprintf(text, sizeof text, "%s: %s", tconv_status_string(status), issue.message);
    report(all, by, how, &test->layer, text);
    return false;
}

/* Runs the case in one way, and the library's choice on other threads too. */
static void run_row(search *all, row *by, way how, const harness_case *test, harness_random *random)
{
    harness_output output, again;
    harness_failure failure;
    way other = how;
    other.threads = draw_threads(all, random);
    other.pool = other.threads > 1;
    if (!run(all, by, &how, test, &output))
        return;
    if (!harness_compare(test, &output, &failure))
        report(all, by, &how, &test->layer, failure.text);
    if (by->implementation == NULL && by->backend == TCONV_BACKEND_CPU && run(all, by, &other, test, &again)) {
        if (strcmp(output.implementation, again.implementation) != 0)
            report(all, by, &other, &test->layer, "other threads, another implementation");
        else if (!harness_same_bits(test, &output, &again, &failure))
            report(all, by, &other, &test->layer, failure.text);
        harness_output_release(&again);
    }
    harness_output_release(&output);
}

static void search_layer(search *all, uint64_t seed)
{
    harness_random random;
    harness_layer layer;
    harness_case test;
    tconv_issue issue;
    current_seed = seed;
    harness_random_seed(&random, seed);
    harness_class_layer(&random, &layer);
    if (all->asked->op != VERIFY_ALL_OPERATIONS)
        layer.desc.op = (tconv_op)all->asked->op;
    verify_give_posts(all->asked, true, &random, &layer.desc);
    count_classes(all, &layer);
    draw_tuning(all, &random);
    const bool integers = harness_has_integers(&layer) && harness_random_chance(&random, INTEGER_PERCENT);
    if (harness_case_create_by_formula(&test, &layer, integers ? HARNESS_INTEGERS : HARNESS_REALS, seed, &issue) !=
        TCONV_SUCCESS) {
        report(all, NULL, NULL, &layer, issue.message);
        return;
    }
    for (size_t i = 0; i < all->row_count; ++i) {
        row *by = &all->rows[i];
        const bool cuda = by->backend == TCONV_BACKEND_CUDA, f32 = layer.desc.dtype == TCONV_F32;
        for (int math = TCONV_MATH_STRICT; math <= (cuda && f32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT); ++math) {
            way how = draw_way(all, &random, &layer);
            if (cuda)
                how.math = test.layer.desc.math = (tconv_math)math;
            run_row(all, by, how, &test, &random);
            test.layer.desc.math = layer.desc.math;
        }
    }
    harness_case_destroy(&test);
}

/* ------------------------------------------------------------------------------------------------------------- telling */

static void summarize(const search *all, double seconds)
{
    printf("%-24s %10s %12s %9s\n", "implementation", "runs", "unsupported", "failures");
    for (size_t i = 0; i < all->row_count; ++i)
        printf("%-24s %10" PRId64 " %12" PRId64 " %9" PRId64 "\n", row_name(&all->rows[i]), all->rows[i].runs,
               all->rows[i].unsupported, all->rows[i].failures);
    printf("drawn:");
    for (int op = 0; op < VERIFY_ALL_OPERATIONS; ++op)
        printf(" %" PRId64 " %s,", all->operations[op], harness_op_name((tconv_op)op));
    for (int i = 0; i < CLASSES; ++i)
        printf(" %" PRId64 " %s%s", all->classes[i], class_names[i], i + 1 < CLASSES ? "," : "\n");
    printf("instruction sets:");
    for (int64_t i = 0; i < all->isa_count; ++i)
        printf(" %s", harness_cpu_isa_name(all->isas[i]));
    printf("\n");
    if (all->asked->execution.isa == TCONV_CPU_ISA_DEFAULT)
        verify_print_isas_left_out();
    printf("%" PRId64 " layers in %.1f s, %" PRId64 " failures: %s\n", all->layers, seconds, all->failures,
           all->failures == 0 ? "all right" : "WRONG");
}

int verify_by_class(const verify_request *asked)
{
    search *all = calloc(1, sizeof *all);
    if (all == NULL) {
        cli_error("no memory for the search");
        return CLI_FAILURE;
    }
    all->asked = asked;
    const char *tuning = getenv("TCONV_CPU_TUNING");
    all->sets_tuning = tuning == NULL || tuning[0] == '\0';
    int code = find_rows(all);
    if (code < 0) {
        const double start = harness_seconds();
        double said = start, now = start;
        watch_signals();
        printf("by class: seed %" PRIu64 "\n", asked->seed);
        for (uint64_t i = 0; (asked->layers < 0 || i < (uint64_t)asked->layers) &&
                             (asked->seconds == 0 || now - start < (double)asked->seconds) &&
                             all->failures < VERIFY_MAX_FAILURES && cli_stdout_flush();
             ++i) {
            search_layer(all, asked->seed + i);
            now = harness_seconds();
            if (now - said >= REPORT_PERIOD) {
                printf("%" PRId64 " layers, next seed %" PRIu64 ", %" PRId64 " failures\n", all->layers,
                       asked->seed + i + 1, all->failures);
                said = now;
            }
        }
        summarize(all, harness_seconds() - start);
        code = all->failures == 0 ? CLI_SUCCESS : CLI_FAILURE;
    }
    for (int threads = 0; threads <= MOST_THREADS; ++threads)
        harness_pool_destroy(all->pools[threads]);
    free(all);
    return code;
}
