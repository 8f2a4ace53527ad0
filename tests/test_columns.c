/*
 * What cpu_col2im takes, and that it is right in every form: filters and taps in parts, K-blocks, blocks of channels and
 * the last with fewer, panels with columns left over, groups, dilation, padding that eats the kernel, weights that lie
 * side by side and apart, few pixels whose weights are not packed, tiles of rows, columns and images and the last with
 * fewer, in every dtype, layout and instruction set.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cpu/cpu_backend.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/part.h"
#include "support/ways.h"

static const char *const problems[] = {
    /* Packed weights. */
    "n=1 ci=500 h=4 w=5 co=70 k=4 s=2 p=1 b=1",
    "n=3 ci=16 h=1 w=5 co=19 k=5x3 s=2x3 op=1x2 b=1",
    "n=1 ci=200 h=1 w=14 co=3 k=1x300 s=1x100 p=0x7 b=1",
    "n=2 ci=40 h=3 w=3 co=54 k=3x4 s=2x3 p=2x3 d=2x1 g=2 b=1",
    "n=1 ci=300 h=4 w=4 co=20 k=8 s=2 p=7 op=1",
    "n=7 ci=33 h=1 w=2 co=150 k=1 b=1",
    /* Few pixels: rows of weights as they lie. */
    "n=1 ci=500 h=4 w=3 co=70 k=4 s=2 p=1 b=1",
    "n=3 ci=16 h=1 w=1 co=9 k=5x3 s=2x3 op=1x2 b=1",
    "n=1 ci=200 h=1 w=9 co=3 k=1x300 s=1x100 p=0x7 b=1",
    "n=2 ci=40 h=3 w=2 co=34 k=3x4 s=2x3 p=2x3 d=2x1 g=2 b=1",
    "n=1 ci=300 h=2 w=2 co=20 k=8 s=2 p=4 op=1",
    "n=2 ci=33 h=1 w=2 co=150 k=1 b=1",
    "n=1 ci=20 h=5 w=5 co=96 k=2 s=2 b=1",
    "n=1 ci=101 h=1 w=1 co=260 k=4 b=1",
    "n=1 ci=49 h=1 w=1 co=1 k=1x3001 s=1x3000",
    "n=1 ci=25 h=1 w=2 co=37 k=3x7 s=2x5 p=1x6 d=1x2 b=1",
    /* Tiles: of a row; of rows and columns; of images; long sums and dilation; padding that eats the kernel; groups; few
     * pixels in each. */
    "n=1 ci=70 h=1 w=301 co=1 k=1x64 s=1x16 p=0x5 op=0x3 b=1",
    "n=2 ci=130 h=13 w=14 co=1 k=17x20 s=9x20 p=3x0 op=4x1 b=1",
    "n=2 ci=130 h=14 w=13 co=1 k=20x27 s=20x14 p=0x3 op=1x4 b=1",
    "n=9 ci=190 h=1 w=50 co=1 k=1x61 s=1x20 p=0x30 b=1",
    "n=1 ci=820 h=1 w=140 co=3 k=1x70 s=1x16 d=1x3 p=0x1 b=1",
    "n=1 ci=80 h=1 w=150 co=1 k=1x70 s=1x16 p=0x69",
    "n=1 ci=192 h=1 w=133 co=2 k=1x70 s=1x35 g=2 b=1",
    "n=1 ci=64 h=1 w=6 co=1 k=1x11000 s=1x11000 b=1",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LAYOUTS      6             /* layouts by weight layouts */
#define FORMS        (4 * LAYOUTS) /* those by dtypes */

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

/* Checks the case in each way of cpu_col2im, and that threads and packing before change no bit. */
static void check(const harness_case *test, const char *problem)
{
    struct way ways[MAX_WAYS];
    const size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t w = 0; w < count; w++) {
        if (strcmp(ways[w].implementation, "cpu_col2im") != 0)
            continue;
        harness_output first, other;
        harness_failure failure;
        cr_assert(run_way(test, &ways[w], 1, false, &first), "%s", problem);
        judge_way(test, &ways[w], 1, false, &first);
        cr_assert(run_way(test, &ways[w], 5, true, &other));
        cr_assert(harness_same_bits(test, &first, &other, &failure), "%s: %s", ways[w].text, failure.text);
        harness_output_release(&first);
        harness_output_release(&other);
    }
}

Test(columns, every_form_is_right_and_has_the_same_bits_by_any_threads)
{
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int dtype = 0; dtype < FORMS / LAYOUTS; dtype++) {
            const harness_layer some = layer_of(p, dtype * LAYOUTS);
            for (int fill = harness_has_integers(&some) ? 0 : 1; fill < 2; fill++) {
                harness_case answered = {0};
                for (int form = dtype * LAYOUTS; form < (dtype + 1) * LAYOUTS; form++) {
                    if (!in_part(p * FORMS + (size_t)form))
                        continue;
                    const harness_layer layer = layer_of(p, form);
                    harness_case test =
                        make_case_as(&answered, &layer, fill == 0 ? HARNESS_INTEGERS : HARNESS_REALS, p);
                    check(&test, problems[p]);
                    harness_case_destroy(&test);
                }
                harness_case_destroy(&answered);
            }
        }
}

/* Layers of many phases and few output channels are cut in tiles, for calls and for weights that are packed before; where
 * cpu_phases is as fast, they are not taken. */
Test(columns, many_phases_are_taken_where_that_is_faster)
{
    static const struct {
        const char *problem;
        bool taken;
    } layers[] = {
        {"n=1 ci=1026 h=1 w=400 co=1 k=1x1024 s=1x256", true}, {"n=1 ci=402 h=1 w=400 co=1 k=1x400 s=1x100", true},
        {"n=1 ci=1026 h=1 w=400 co=4 k=1x1024 s=1x256", true}, {"n=1 ci=32 h=1 w=400 co=1 k=1x1024 s=1x256", false},
        {"n=1 ci=512 h=1 w=400 co=8 k=1x64 s=1x16", false},    {"n=1 ci=512 h=1 w=400 co=1 k=1x8 s=1x2", false},
        {"n=1 ci=21 h=16 w=16 co=21 k=64 s=32 p=16", false},   {"n=1 ci=2049 h=1 w=340 co=1 k=1x4096 s=1x1024", true},
    };
    for (size_t i = 0; i < 4 * COUNT(layers); i++) {
        const struct bare_target target = {.threads = 1};
        tconv_layer layer;
        const tconv_layout layout = i % 4 < 2 ? TCONV_NCHW : TCONV_NHWC;
        bare_layer_make(&layer, layers[i / 4].problem, TCONV_F32, layout, &target);
        layer.packed_before = i % 2 == 1;
        cr_expect_eq(bare_layer_is_taken(&layer, &tconv_cpu_col2im, NULL), layers[i / 4].taken, "%s%s%s",
                     layers[i / 4].problem, layout == TCONV_NHWC ? ", NHWC" : "",
                     layer.packed_before ? ", packed" : "");
        bare_layer_release(&layer);
    }
}

/* Whatever the number of threads, the same layers are taken, in scratch of 2 MiB for each. */
Test(columns, threads_decide_nothing_but_tasks)
{
    static const int threads[] = {1, 2, 7, 64};
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < FORMS; form++) {
            const harness_layer described = layer_of(p, form);
            bool taken = false;
            for (size_t t = 0; t < COUNT(threads); t++) {
                const struct bare_target target = {.threads = threads[t], .weights = described.desc.weight_layout};
                tconv_layer layer;
                tconv_memory_sizes sizes;
                tconv_issue issue;
                void *made = NULL;
                bare_layer_make(&layer, problems[p], described.desc.dtype, described.desc.layout, &target);
                const bool takes = bare_layer_plan(&layer, &tconv_cpu_col2im, &made, &sizes, &issue) == TCONV_SUCCESS;
                cr_expect(t == 0 || takes == taken, "%s: %d threads", problems[p], threads[t]);
                if (takes)
                    cr_expect_leq(sizes.scratch, (size_t)threads[t] * (2 << 20) + (1 << 16), "%s: %zu bytes",
                                  problems[p], sizes.scratch);
                taken = takes;
                free(made);
                bare_layer_release(&layer);
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
        {"n=1 ci=21 h=16 w=16 co=1 k=64 s=32 p=16", "phases that cpu_phases is as fast for"},
        {"n=8 ci=2199023255552 h=4 w=4 co=64 k=4 s=2", "more than 2 MiB of scratch"},
    };
    for (size_t i = 0; i < COUNT(declined); i++) {
        const struct bare_target target = {.threads = 1};
        tconv_layer layer;
        tconv_issue issue;
        bare_layer_make(&layer, declined[i].problem, TCONV_F64, TCONV_NCHW, &target);
        cr_expect(!bare_layer_is_taken(&layer, &tconv_cpu_col2im, &issue), "%s", declined[i].problem);
        cr_expect(strstr(issue.message, declined[i].why) != NULL, "%s: %s", declined[i].problem, issue.message);
        bare_layer_release(&layer);
    }
}
