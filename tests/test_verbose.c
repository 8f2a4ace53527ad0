/* What TCONV_VERBOSE prints: nothing unless it is asked for; what ran and what was chosen, so that it can be replayed. Where
 * the lines go is in test_log.c. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/capture.h"
#include "support/expect.h"
#include "support/small_layer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct small_layer layer;
static tconv_issue issue;

static void set_up(void)
{
    unsetenv("TCONV_VERBOSE");
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* no device, on any machine */
    small_layer_init(&layer);
}

TestSuite(verbose, .init = set_up);

static void set_level(const char *level)
{
    cr_assert_eq(setenv("TCONV_VERBOSE", level, 1), 0);
    tconv_environment_reload(NULL);
}

/* Makes a plan, executes it twice, then does one call: three executes. */
static void run_three_times(struct capture *capture, bool bias)
{
    tconv_plan *plan;
    const tconv_tensor *b = bias ? &layer.bias : NULL;
    capture_start(capture);
    tconv_status created = tconv_plan_create(&layer.desc, NULL, &plan, &issue);
    tconv_status executed = TCONV_SUCCESS;
    for (int i = 0; i < 2; i++)
        executed |= tconv_plan_execute(plan, &layer.src, &layer.weights, b, &layer.dst, layer.workspace,
                                       sizeof layer.workspace, NULL);
    tconv_status called = tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, b, &layer.dst, &issue);
    capture_end(capture);
    cr_assert(created == TCONV_SUCCESS && executed == TCONV_SUCCESS && called == TCONV_SUCCESS, "%s", issue.message);
    tconv_plan_destroy(plan);
    cr_assert_str_empty(capture->text[CAPTURED_STDOUT], "stdout is the program's");
}

/* Counts the lines of a kind: "execute", "plan" and so on. */
static size_t count_kind(const char *lines, const char *kind)
{
    size_t count = 0, length = strlen(kind);
    for (const char *line = lines; line != NULL && *line != '\0';
         line = (line = strchr(line, '\n')) != NULL ? line + 1 : NULL)
        count += strncmp(line, "tconv,", 6) == 0 && strncmp(line + 6, kind, length) == 0 && line[6 + length] == ',';
    return count;
}

Test(verbose, is_silent_by_default)
{
    static const char *const values[] = {NULL, "", "0"};
    for (size_t i = 0; i < COUNT(values); i++) {
        struct capture capture;
        if (values[i] != NULL)
            set_level(values[i]);
        run_three_times(&capture, true);
        cr_assert_str_empty(capture.text[CAPTURED_STDERR]);
        capture_release(&capture);
    }
}

Test(verbose, level_1_writes_a_line_for_each_execute)
{
    struct capture capture;
    set_level("1");
    run_three_times(&capture, true);
    const char *lines = capture.text[CAPTURED_STDERR];
    cr_assert_eq(count_lines(lines), 3, "%s", lines);
    cr_assert_eq(count_kind(lines, "execute"), 3, "%s", lines);
    cr_assert_not_null(strstr(lines, "backend=cpu"), "%s", lines);
    cr_assert_not_null(strstr(lines, "impl=cpu_"), "%s", lines);
    cr_assert_not_null(strstr(lines, "ms="), "%s", lines);
    cr_assert_not_null(strstr(lines, ",batch_invariant=yes,"), "%s", lines); /* of one image it is */
    capture_release(&capture);
}

/* The bench key of a line is the layer that ran, as `tconv bench` reads it. */
Test(verbose, lines_replay)
{
    static const char *const problems[] = {
        "n=2 ci=4 h=3 w=5 co=6 k=3x2 s=2 p=1x0x0x0 g=2 b=1",
        "n=2 ci=4 h=3 w=5 co=6 k=3x2 s=2 p=1x0x0x0 g=2",
        "n=2 ci=4 h=3 w=5 co=6 k=3x2 s=2 p=1x0x0x0 op=1x0 d=1x3 g=2 b=1 ss=90x15x5x1",
        "n=2 ci=4 h=3 w=5 co=6 k=3x2 s=2x3 p=1x0x1x2 ds=720x100x12x1",
        "n=2 ci=4 h=3 w=5 co=6 k=3x2 s=2x3 p=1x0x1x2 post=mul_channel,add_channel,clamp:-inf:0.5",
        "n=2 ci=4 h=3 w=5 co=6 k=3x2 s=2x3 p=1x0x1x2 post=add_tensor:-0.25,leaky_relu:0.125 as=720x100x12x1",
    };
    set_level("1");
    for (size_t i = 0; i < COUNT(problems); i++)
        for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++) {
            harness_layer wanted, replayed;
            harness_case test;
            harness_output output;
            struct capture capture;
            char problem[512], message[128], flags[128];
            cr_assert(harness_problem_parse(problems[i], &wanted, message, sizeof message), "%s", message);
            wanted.desc.dtype = (tconv_dtype)dtype;
            wanted.desc.weight_layout = (tconv_weight_layout)(dtype % 3);
            wanted.desc.math = TCONV_MATH_STRICT;
            expect_success(harness_case_create_unanswered(&test, &wanted, HARNESS_INTEGERS, 1, &issue), issue);
            capture_start(&capture);
            tconv_status status = harness_run(&test, NULL, false, &output, &issue);
            capture_end(&capture);
            expect_success(status, issue);
            const char *line = capture.text[CAPTURED_STDERR], *at = strstr(line, "--problem \"");
            cr_assert_eq(count_lines(line), 1, "%s", line);
            cr_assert_not_null(at, "%s", line);
            cr_assert_eq(sscanf(at, "--problem \"%511[^\"]\"%127[^\n]", problem, flags), 2, "%s", line);
            cr_assert(harness_problem_parse(problem, &replayed, message, sizeof message), "%s: %s", problem, message);
            cr_assert_eq(replayed.has_bias, wanted.has_bias, "%s", line);
            const tconv_desc *a = &replayed.desc, *b = &wanted.desc;
            cr_assert_arr_eq(a, b, offsetof(tconv_desc, dtype), "%s", line);
            cr_assert_eq(a->post_count, b->post_count, "%s", line);
            cr_assert_arr_eq(a->post, b->post, sizeof a->post, "%s", line);
            cr_assert_arr_eq(a->addend_strides, b->addend_strides, sizeof a->addend_strides, "%s", line);
            const harness_view views[2][2] = {{harness_src_view(a), harness_src_view(b)},
                                              {harness_dst_view(a), harness_dst_view(b)}};
            for (int v = 0; v < 2; v++)
                cr_assert_arr_eq(&views[v][0], &views[v][1], sizeof views[v][0], "%s", line);
            char expected[128];
            snprintf(expected, sizeof expected,
                     " --dtype %s --layout nchw --weight-layout %s --math strict --op forward",
                     harness_dtype_name(wanted.desc.dtype), harness_weight_layout_name(wanted.desc.weight_layout));
            cr_assert_str_eq(flags, expected);
            harness_output_release(&output);
            harness_case_destroy(&test);
            capture_release(&capture);
        }
}

Test(verbose, level_2_tells_what_was_chosen)
{
    struct capture capture;
    tconv_plan *plan;
    set_level("2");
    run_three_times(&capture, false);
    const char *lines = capture.text[CAPTURED_STDERR];
    cr_assert_eq(count_kind(lines, "execute"), 3, "%s", lines);
    cr_assert_eq(count_kind(lines, "plan"), 2, "%s", lines);
    cr_assert_eq(count_lines(lines), 5 + count_kind(lines, "passed_over"), "%s", lines);
    capture_release(&capture);

    /* Every implementation that is passed over is named with its reason; none is where one is asked for by name. */
    tconv_options options;
    tconv_options_init(&options);
    options.implementation = "cpu_reference";
    capture_start(&capture);
    tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, &issue);
    capture_end(&capture);
    expect_success(status, issue);
    tconv_plan_destroy(plan);
    cr_assert_eq(count_lines(capture.text[CAPTURED_STDERR]), 1, "%s", capture.text[CAPTURED_STDERR]);
    cr_assert_not_null(strstr(capture.text[CAPTURED_STDERR], "impl=cpu_reference"));
    capture_release(&capture);
}
