/* Verbose lines: to the caller's callback or to stderr, at the level that the options or TCONV_VERBOSE name, each
 * whole, by one write, and harmless where stderr is closed. test_verbose.c tests what the lines say. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/capture.h"
#include "support/expect.h"
#include "support/small_layer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct small_layer layer;
static tconv_issue issue;

/* The lines that a callback was given. */
static struct lines {
    char text[64][2048];
    int count;
} lines;

static void keep_line(void *context, const char *line)
{
    struct lines *kept = context;
    cr_assert_lt(kept->count, (int)COUNT(kept->text));
    snprintf(kept->text[kept->count++], sizeof kept->text[0], "%s", line);
}

static void set_up(void)
{
    unsetenv("TCONV_VERBOSE");
    small_layer_init(&layer);
    lines.count = 0;
}

TestSuite(log, .init = set_up);

static tconv_options logging(int32_t verbose)
{
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 1;
    options.verbose = verbose;
    options.log = (tconv_log){keep_line, &lines};
    return options;
}

/* Makes a plan, packs it, executes both, and makes one call: three executes. capture has the output of the
 * descriptors. */
static void run(const tconv_options *options, struct capture *capture)
{
    tconv_plan *plan = NULL, *packed = NULL;
    capture_start(capture);
    tconv_status status = tconv_plan_create(&layer.desc, options, &plan, &issue);
    status |= tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue);
    status |= small_layer_execute(&layer, plan, &issue);
    status |= small_layer_execute(&layer, packed, &issue);
    status |= tconv_conv_transpose2d(&layer.desc, options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue);
    capture_end(capture);
    cr_assert_eq(status, TCONV_SUCCESS, "%s", issue.message);
    cr_assert(small_layer_is_right(&layer));
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
}

static int count_event(const char *event)
{
    char start[32];
    int count = 0;
    snprintf(start, sizeof start, "tconv,%s,", event);
    for (int i = 0; i < lines.count; i++)
        count += strncmp(lines.text[i], start, strlen(start)) == 0;
    return count;
}

Test(log, callback_gets_the_lines_and_stderr_none)
{
    for (int32_t verbose = 1; verbose <= 2; verbose++) {
        const tconv_options options = logging(verbose);
        struct capture capture;
        lines.count = 0;
        run(&options, &capture);
        cr_assert_str_empty(capture.text[CAPTURED_STDOUT]);
        cr_assert_str_empty(capture.text[CAPTURED_STDERR]);
        capture_release(&capture);
        cr_assert_eq(count_event("execute"), 3);
        cr_assert_eq(count_event("plan"), verbose == 2 ? 2 : 0, "one for the plan, one for the call");
        cr_assert_eq(lines.count, 3 + count_event("plan") + count_event("passed_over"));
        for (int i = 0; i < lines.count; i++) {
            cr_assert_null(strchr(lines.text[i], '\n'), "line %d ends in a line feed", i);
            cr_assert_not_null(strstr(lines.text[i], ",bench=--backend cpu --problem \"n=2 ci=4 "), "%s",
                               lines.text[i]);
        }
    }
}

Test(log, level_is_the_options_else_the_environments)
{
    static const struct {
        const char *variable;
        int32_t verbose;
        int executes, plans;
    } cases[] = {{NULL, 0, 0, 0}, {NULL, 1, 3, 0}, {NULL, 2, 3, 2}, {"0", 1, 3, 0},
                 {"1", 0, 3, 0},  {"2", 0, 3, 2},  {"2", 1, 3, 0},  {"1", 2, 3, 2}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const tconv_options options = logging(cases[i].verbose);
        struct capture capture;
        if (cases[i].variable != NULL)
            setenv("TCONV_VERBOSE", cases[i].variable, 1);
        expect_success(tconv_environment_reload(&issue), issue);
        lines.count = 0;
        run(&options, &capture);
        cr_assert_str_empty(capture.text[CAPTURED_STDERR]);
        capture_release(&capture);
        cr_assert(count_event("execute") == cases[i].executes && count_event("plan") == cases[i].plans,
                  "case %zu: %d and %d", i, count_event("execute"), count_event("plan"));
    }
}

Test(log, without_a_callback_lines_go_to_stderr)
{
    tconv_options options = logging(1);
    struct capture capture;
    options.log = (tconv_log){NULL, &lines}; /* a context alone is no callback */
    run(&options, &capture);
    cr_assert_eq(lines.count, 0);
    cr_assert_str_empty(capture.text[CAPTURED_STDOUT]);
    cr_assert_eq(count_lines(capture.text[CAPTURED_STDERR]), 3, "%s", capture.text[CAPTURED_STDERR]);
    capture_release(&capture);
}

/* The options of the version without the last three fields have no callback. */
Test(log, options_of_an_older_caller_have_none)
{
    tconv_options options = logging(2);
    struct capture capture;
    options.struct_size = offsetof(tconv_options, parallel);
    run(&options, &capture);
    cr_assert_eq(lines.count, 0);
    cr_assert_str_empty(capture.text[CAPTURED_STDERR]);
    capture_release(&capture);
}

/* The line of the longest layer that the numbers allow is not cut. */
Test(log, longest_line_is_whole)
{
    const int64_t most = INT64_MAX / 4;
    const tconv_options options = logging(2);
    tconv_plan *plan;
    tconv_desc_init(&layer.desc);
    layer.desc.batch = 0;
    layer.desc.in_channels = layer.desc.out_channels = layer.desc.in_h = layer.desc.in_w = 1;
    layer.desc.kernel_h = layer.desc.kernel_w = 1;
    layer.desc.stride_h = layer.desc.stride_w = layer.desc.dilation_h = layer.desc.dilation_w = most;
    layer.desc.output_padding_h = layer.desc.output_padding_w = most - 1;
    layer.desc.pad_top = layer.desc.pad_left = most - 2;
    layer.desc.dtype = TCONV_BF16;
    layer.desc.weight_layout = TCONV_WEIGHT_IHWO;
    expect_success(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue);
    tconv_plan_destroy(plan);
    cr_assert_gt(lines.count, 0);
    for (int i = 0; i < lines.count; i++)
        cr_assert_str_eq(lines.text[i] + strlen(lines.text[i]) - strlen("--op forward"), "--op forward");
}

/* -------------------------------------------------------------------------------------------------------- threads */

enum { THREADS = 4, EXECUTES = 200 };

static tconv_plan *shared_plan;

static void *execute_often(void *none)
{
    float dst_data[SMALL_DST];
    unsigned char *workspace = malloc(sizeof layer.workspace);
    const tconv_tensor dst = {dst_data, TCONV_F32, TCONV_LOCATION_HOST};
    for (int i = 0; i < EXECUTES; i++)
        tconv_plan_execute(shared_plan, &layer.src, &layer.weights, &layer.bias, &dst, workspace,
                           sizeof layer.workspace, NULL);
    free(workspace);
    return none;
}

Test(log, lines_of_several_threads_stay_whole)
{
    tconv_options options = logging(1);
    struct capture capture;
    pthread_t threads[THREADS];
    char *rest, *line;
    int count = 0;
    options.log = (tconv_log){NULL, NULL};
    shared_plan = small_layer_plan(&layer, &options);
    capture_start(&capture);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, execute_often, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    capture_end(&capture);
    for (line = strtok_r(capture.text[CAPTURED_STDERR], "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest), count++) {
        const char *end = strstr(line, " --op forward");
        cr_assert(strncmp(line, "tconv,execute,", 14) == 0 && end != NULL && strlen(end) == 13, "\"%s\"", line);
    }
    cr_assert_eq(count, THREADS * EXECUTES);
    capture_release(&capture);
    tconv_plan_destroy(shared_plan);
}

/* -------------------------------------------------------------------------------------------------- no stderr to write to */

/* Executes with the descriptor of stderr closed, a pipe that nobody reads, or one that is full and does not wait. */
enum broken { CLOSED, NOBODY_READS, FULL };

static void make_stderr(enum broken broken)
{
    int ends[2];
    static const char filling[4096];
    close(STDERR_FILENO);
    if (broken == CLOSED)
        return;
    cr_assert_eq(pipe(ends), 0); /* one of the two is descriptor 2 now */
    cr_assert(ends[0] == STDERR_FILENO || ends[1] == STDERR_FILENO || dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    if (ends[0] == STDERR_FILENO) {
        ends[0] = dup(ends[0]);
        dup2(ends[1], STDERR_FILENO);
    }
    if (broken == NOBODY_READS) {
        close(ends[0]);
        return;
    }
    fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    while (write(STDERR_FILENO, filling, sizeof filling) > 0)
        ;
}

Test(log, broken_stderr_is_harmless)
{
    tconv_options options = logging(2);
    options.log = (tconv_log){NULL, NULL};
    for (int broken = CLOSED; broken <= FULL; broken++) {
        sigset_t pending, before, after;
        const int saved = dup(STDERR_FILENO);
        pthread_sigmask(SIG_SETMASK, NULL, &before);
        make_stderr((enum broken)broken); /* from here on an assertion would have nowhere to go */
        tconv_status status =
            tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue);
        sigpending(&pending);
        dup2(saved, STDERR_FILENO);
        close(saved);
        pthread_sigmask(SIG_SETMASK, NULL, &after);
        expect_success(status, issue);
        cr_assert(small_layer_is_right(&layer));
        cr_assert_eq(sigismember(&pending, SIGPIPE), 0, "way %d left a SIGPIPE", broken);
        cr_assert_eq(sigismember(&after, SIGPIPE), sigismember(&before, SIGPIPE), "way %d changed the signal mask",
                     broken);
        small_layer_clear(&layer);
    }
}

/* ------------------------------------------------------------------------------------------------------ other locales */

TestSuite(log_locale, .init = set_up);

/* Sets a locale whose decimal point is a comma, compiled into a directory of its own; returns false where that
 * fails. */
static bool set_decimal_comma(void)
{
    char directory[] = "/tmp/tconv-locale-XXXXXX", command[256];
    if (mkdtemp(directory) == NULL)
        return false;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", directory, directory);
    const bool is_made = system(command) == 0 && setenv("LOCPATH", directory, 1) == 0 &&
                         setlocale(LC_ALL, "de_DE.UTF-8") != NULL && strcmp(localeconv()->decimal_point, ",") == 0;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command) == 0 && is_made;
}

Test(log_locale, lines_have_a_decimal_point)
{
    const tconv_options options = logging(1);
    struct capture capture;
    if (!set_decimal_comma()) {
        fprintf(stderr, "skipped: this needs a locale with a decimal comma\n");
        cr_skip_test("skipped: this needs a locale with a decimal comma");
    }
    run(&options, &capture);
    capture_release(&capture);
    cr_assert_eq(lines.count, 3);
    for (int i = 0; i < lines.count; i++) {
        const char *time = strstr(lines.text[i], ",ms=");
        int whole, length = 0;
        char fraction[8];
        cr_assert_not_null(time);
        cr_assert_eq(sscanf(time, ",ms=%d.%4[0-9]%n", &whole, fraction, &length), 2, "%s", lines.text[i]);
        cr_assert(strlen(fraction) == 4 && strncmp(time + length, ",bench=", 7) == 0, "%s", lines.text[i]);
    }
}

/* Numbers of post-ops too. */
Test(log_locale, layers_have_a_decimal_point)
{
    tconv_desc desc;
    tconv_plan *plan;
    char text[4096];
    if (!set_decimal_comma()) {
        fprintf(stderr, "skipped: this needs a locale with a decimal comma\n");
        cr_skip_test("skipped: this needs a locale with a decimal comma");
    }
    tconv_desc_init(&desc);
    desc.in_channels = desc.in_h = desc.in_w = desc.out_channels = desc.kernel_h = desc.kernel_w = 1;
    desc.post_count = 1;
    desc.post[0] = (tconv_post_op){TCONV_POST_CLAMP, 0, -0.5, 1e-7};
    cr_assert_eq(tconv_plan_create(&desc, NULL, &plan, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, NULL), TCONV_SUCCESS);
    cr_assert_not_null(strstr(text, " post=clamp:-0.5:9.9999999999999995e-08\""), "%s", text);
    tconv_plan_destroy(plan);
}
