/*
 * What cpu_columns takes, and that it is right in every form: filters and taps in parts, K-blocks, blocks of channels and
 * the last with fewer, panels with columns left over, groups, dilation, padding that eats the kernel, weights that lie
 * side by side and apart, in every dtype, layout and instruction set.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "../src/cpu/cpu_backend.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/ways.h"

static const char *const problems[] = {
    "n=1 ci=500 h=4 w=3 co=70 k=4 s=2 p=1 b=1",
    "n=3 ci=16 h=1 w=1 co=9 k=5x3 s=2x3 op=1x2 b=1",
    "n=1 ci=200 h=1 w=9 co=3 k=1x300 s=1x100 p=0x7 b=1",
    "n=2 ci=40 h=3 w=2 co=34 k=3x4 s=2x3 p=2x3 d=2x1 g=2 b=1",
    "n=1 ci=300 h=2 w=2 co=20 k=8 s=2 p=4 op=1",
    "n=2 ci=33 h=1 w=2 co=150 k=1 b=1",
    "n=1 ci=20 h=5 w=5 co=96 k=2 s=2 b=1",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define FORMS        24 /* layouts by weight layouts by dtypes */

static harness_layer layer_of(size_t problem, int form)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(problems[problem], &layer, message, sizeof message), "%s", message);
    layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
    layer.desc.weight_layout = (tconv_weight_layout)(form / 2 % 3);
    layer.desc.dtype = (tconv_dtype)(form / 6);
    return layer;
}

Test(columns, every_form_is_right_and_has_the_same_bits_by_any_threads)
{
    struct way ways[MAX_WAYS];
    const size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < FORMS; form++) {
            const harness_layer layer = layer_of(p, form);
            for (int fill = harness_has_integers(&layer) ? 0 : 1; fill < 2; fill++) {
                harness_case test = make_case(&layer, fill == 0 ? HARNESS_INTEGERS : HARNESS_REALS, p);
                for (size_t w = 0; w < count; w++) {
                    if (strcmp(ways[w].implementation, "cpu_columns") != 0)
                        continue;
                    harness_output first, other;
                    harness_failure failure;
                    cr_assert(run_way(&test, &ways[w], 1, false, &first), "%s", problems[p]);
                    judge_way(&test, &ways[w], 1, false, &first);
                    cr_assert(run_way(&test, &ways[w], 5, true, &other));
                    cr_assert(harness_same_bits(&test, &first, &other, &failure), "%s: %s", ways[w].text, failure.text);
                    harness_output_release(&first);
                    harness_output_release(&other);
                }
                harness_case_destroy(&test);
            }
        }
}

/* More weights than pixels, and what its memory and its bounds allow. */
Test(columns, other_layers_are_declined)
{
    static const struct {
        const char *problem, *why;
    } declined[] = {
        {"n=1 ci=15 h=2 w=2 co=64 k=4", "fewer than 16 input channels"},
        {"n=33 ci=64 h=2 w=2 co=640 k=4 s=2", "more than 128 pixels"},
        {"n=1 ci=64 h=8 w=8 co=31 k=4 s=2", "more than 128 pixels, or than an eighth"},
        {"n=1 ci=64 h=2 w=2 co=64 k=5 s=1", "more than 16 taps for an output"},
        {"n=1 ci=64 h=1 w=1 co=64 k=300", "too many outputs of a channel"},
        {"n=8 ci=2199023255552 h=4 w=4 co=64 k=4 s=2", "more than 2 MiB of scratch"},
    };
    for (size_t i = 0; i < COUNT(declined); i++) {
        const struct bare_target target = {.threads = 1};
        tconv_layer layer;
        tconv_issue issue;
        bare_layer_make(&layer, declined[i].problem, TCONV_F64, TCONV_NCHW, &target);
        cr_expect(!bare_layer_is_taken(&layer, &tconv_cpu_columns, &issue), "%s", declined[i].problem);
        cr_expect(strstr(issue.message, declined[i].why) != NULL, "%s: %s", declined[i].problem, issue.message);
        bare_layer_release(&layer);
    }
}
