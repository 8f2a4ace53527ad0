/* TCONV_VERBOSE=2 explains a plan's choice on a CUDA device: every implementation before the one that is taken is
 * passed over with a reason, and where the reason is that another is predicted to take less time, there is such an
 * implementation. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/dispatch/impl_list.h"
#include "harness.h"
#include "support/capture.h"
#include "support/expect.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Returns the reason why `name` was passed over, from lines; "" where it was not. Fails where it was passed over
 * twice. */
static const char *reason_of(const char *lines, const char *name, char reason[256])
{
    char start[96];
    snprintf(start, sizeof start, "tconv,passed_over,backend=cuda,impl=%s,reason=", name);
    const char *at = strstr(lines, start);
    reason[0] = '\0';
    if (at != NULL) {
        const char *end = strstr(at, ",bench=");
        cr_assert_not_null(end, "%s", lines);
        cr_assert_null(strstr(end, start), "twice: %s", lines);
        at += strlen(start);
        snprintf(reason, 256, "%.*s", (int)(end - at), at);
    }
    return reason;
}

/* Checks the lines of a plan of the operation, which took `taken`. */
static void check_lines(const char *lines, tconv_op op, const char *taken)
{
    const tconv_implementation *candidate;
    char reason[256], faster[64];
    bool is_before = true;
    double percent;
    for (size_t i = 0; (candidate = tconv_implementation_at(op, i)) != NULL; i++) {
        const char *name = candidate->name;
        if (candidate->backend != TCONV_BACKEND_CUDA)
            continue;
        const bool is_taken = strcmp(name, taken) == 0;
        is_before = is_before && !is_taken;
        reason_of(lines, name, reason);
        cr_assert(!is_taken || reason[0] == '\0', "%s was taken: %s", name, lines);
        cr_assert(!is_before || reason[0] != '\0', "no word of %s: %s", name, lines);
        if (sscanf(reason, "%63s is predicted to take %lf %% of its time", faster, &percent) == 2) {
            cr_assert(percent <= 100, "%s: %s", name, reason);
            cr_assert(strcmp(faster, taken) == 0 || reason_of(lines, faster, reason)[0] != '\0', "%s", lines);
        }
    }
}

Test(choice_cuda, every_implementation_that_is_passed_over_has_its_reason)
{
    static const char *const problems[] = {
        "n=8 ci=64 h=128 w=128 co=64 k=3 p=1",        "n=16 ci=256 h=28 w=28 co=128 k=2 s=2 b=1",
        "n=64 ci=256 h=4 w=4 co=256 k=4 s=2 p=1",     "n=2 ci=64 h=31 w=33 co=48 k=4 s=4",
        "n=4 ci=32 h=64 w=64 co=32 k=4 s=2 p=1 g=32", "n=4 ci=64 h=64 w=64 co=3 k=4 s=2 p=1",
        "n=4 ci=32 h=64 w=64 co=64 k=3 s=5 p=1 d=2",  "n=1 ci=1 h=1 w=1 co=1 k=1",
    };
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F64, TCONV_F16, TCONV_BF16};
    tconv_options options;
    tconv_issue issue;
    skip_without_cuda();
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    setenv("TCONV_VERBOSE", "2", 1);
    expect_success(tconv_environment_reload(&issue), issue);
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int way = 0; way < 48; way++) { /* each combination of operation, dtype, layout and math */
            harness_layer layer;
            struct capture capture;
            tconv_plan *plan;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.op = (tconv_op)(way / 16);
            layer.desc.dtype = dtypes[way / 4 % 4];
            layer.desc.layout = way & 1 ? TCONV_NHWC : TCONV_NCHW;
            layer.desc.math = way & 2 && layer.desc.dtype == TCONV_F32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
            capture_start(&capture);
            tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, &issue);
            capture_end(&capture);
            expect_success(status, issue);
            check_lines(capture.text[CAPTURED_STDERR], layer.desc.op, tconv_plan_implementation(plan));
            tconv_plan_destroy(plan);
            capture_release(&capture);
        }
}
