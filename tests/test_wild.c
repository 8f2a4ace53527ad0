/*
 * Layers of any size are planned by every implementation of CUDA for GPUs by their names, in every build, so that the
 * sanitizers see all that plans and predicts: nothing crashes or overflows, no size and no word of a plan is negative, and
 * the same layer is planned the same. No device is needed, and no kernel runs.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness.h"
#include "support/expect.h"
#include "support/part.h"
#include "support/wild.h"

#define LAYERS         3000
#define SEED           29
#define TEXT           (1 << 15) /* bytes for what all implementations say of a layer */
#define PLANNING_LIMIT 5.0       /* seconds of processor time, of all implementations together, also under sanitizers */

/* What tconv_explain says of the layer for the GPU, in text. */
static tconv_status explain(const harness_layer *layer, const char *device, char text[TEXT], tconv_issue *issue)
{
    size_t length = 0;
    memset(text, '#', TEXT); /* what a plan leaves unwritten is not the same twice by chance */
    const tconv_status status = tconv_explain(&layer->desc, NULL, device, TCONV_TEXT_JSON, text, TEXT, &length, issue);
    cr_assert_lt(length, TEXT);
    return status;
}

/* Where a plan's words, its memory or its predicted times have a negative number, NULL where none is. */
static const char *negative(const char *text)
{
    for (const char *at = text; (at = strchr(at, '-')) != NULL; at++)
        if (at[1] >= '0' && at[1] <= '9' && (at[-1] == '=' || (at[-1] == ' ' && at[-2] == ':')))
            return at;
    return NULL;
}

/* Plans for the GPU as many layers as a part has, and fails unless most of them are planned. */
static void plan_wild_layers(const char *device)
{
    static char first[TEXT], second[TEXT];
    harness_random random;
    int tried = 0, planned = 0;
    harness_random_seed(&random, SEED);
    for (int i = 0; i < LAYERS; i++) {
        char layer_text[HARNESS_LAYER_TEXT];
        harness_layer layer;
        tconv_issue issue;
        draw_wild_layer(&random, &layer);
        if (!in_part((uint64_t)i))
            continue;
        harness_layer_format(&layer, layer_text, sizeof layer_text);
        const clock_t start = clock();
        const tconv_status status = explain(&layer, device, first, &issue);
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        cr_assert_lt(seconds, PLANNING_LIMIT, "planned in %.3f s: %s", seconds, layer_text);
        tried++;
        if (status != TCONV_SUCCESS) {
            cr_assert(status == TCONV_ERROR_OVERFLOW || status == TCONV_ERROR_INVALID_ARGUMENT, "%s: %s", issue.message,
                      layer_text);
            continue;
        }
        planned += strstr(first, "\"rank\": 1,") != NULL;
        const char *wrong = negative(strstr(first, "\"implementations\""));
        cr_assert_null(wrong, "%.40s of %s", wrong, layer_text);
        expect_success(explain(&layer, device, second, &issue), issue);
        cr_assert_str_eq(first, second, "planned twice: %s", layer_text);
    }
    cr_assert_gt(planned, tried / 4, "%d of %d planned", planned, tried);
}

Test(wild, layers_are_planned_for_an_h200)
{
    plan_wild_layers("h200");
}

Test(wild, layers_are_planned_for_an_a100)
{
    plan_wild_layers("a100");
}

Test(wild, layers_are_planned_for_a_b200)
{
    plan_wild_layers("b200");
}
