/*
 * Answers cases. The answer comes from "cpu_reference", asked for by name through the public API, on a dense NCHW float64
 * copy, so that no error in rounding to the dtype, in a layout or in a slice can be in both results; or straight from the
 * formula, as that of every layer with depth does: plans make such layers of others, whatever the implementation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "element.h"
#include "stream.h"

#define SERIAL_FLOPS  1e7 /* FLOP: the reference takes some milliseconds for them */
#define DRAWN_SAMPLES 400 /* samples drawn at random, beside those at fixed places */

/* Returns a dense float64 copy of data, or of its absolute values if asked for; NULL when out of memory. */
static double *widen(const harness_view *view, tconv_dtype dtype, const void *data, bool absolute)
{
    const int64_t *shape = view->shape;
    double *wide = malloc((size_t)harness_view_elements(view) * sizeof *wide), *to = wide;
    if (wide == NULL)
        return NULL;
    for (int64_t a = 0; a < shape[0]; ++a)
        for (int64_t b = 0; b < shape[1]; ++b)
            for (int64_t c = 0; c < shape[2]; ++c)
                for (int64_t d = 0; d < shape[3]; ++d) {
                    double value = harness_element_get(dtype, data, harness_view_index(view, a, b, c, d));
                    *to++ = absolute ? fabs(value) : value;
                }
    return wide;
}

/* Runs desc, a dense float64 layer, by the reference on the tensors that are not NULL. A small layer runs on one
 * thread, because sharing it among several takes longer than computing it, above all on a busy machine. */
static tconv_status run_reference(const tconv_desc *desc, double *const data[HARNESS_ROLES], tconv_issue *issue)
{
    tconv_options options;
    tconv_tensor tensors[HARNESS_ROLES];
    const tconv_tensor *given[HARNESS_ROLES];
    tconv_plan *plan = NULL;
    void *workspace = NULL;
    size_t size = 0;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.implementation = "cpu_reference";
    options.threads = harness_layer_flops(desc) < SERIAL_FLOPS ? 1 : 0;
    tconv_status status = tconv_plan_create(desc, &options, &plan, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_plan_workspace_size(plan, &size);
    if (size > 0 && (workspace = malloc(size)) == NULL) {
        status = harness_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "workspace", "no memory for the reference's workspace");
        goto cleanup;
    }
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        tensors[role] = (tconv_tensor){data[role], TCONV_F64, TCONV_LOCATION_HOST};
        given[role] = data[role] != NULL ? &tensors[role] : NULL;
    }
    status = tconv_plan_execute(plan, given[HARNESS_SRC], given[HARNESS_WEIGHTS], given[HARNESS_BIAS],
                                given[HARNESS_DST], workspace, size, NULL);
    if (status != TCONV_SUCCESS && issue != NULL)
        tconv_last_issue(issue);
cleanup:
    free(workspace);
    tconv_plan_destroy(plan);
    return status;
}

/* Allocates the results and wide copies of the tensors that a sum is made from or added to. Returns false when out of memory. */
static bool widen_all(const harness_case *test, bool absolute, double *data[HARNESS_ROLES])
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const harness_view *view = &test->views[role];
        const void *from = test->tensors[role].data;
        if (role >= HARNESS_POST || (from == NULL && !harness_case_writes(test, (harness_role)role)))
            continue;
        data[role] = from != NULL ? widen(view, dtype, from, absolute)
                                  : malloc((size_t)harness_view_elements(view) * sizeof *data[role]);
        if (data[role] == NULL)
            return false;
    }
    return true;
}

/* Computes the exact sums, or with absolute values the bounds; the arrays in results are the caller's. */
static tconv_status answer(const harness_case *test, bool absolute, double *results[HARNESS_ROLES], tconv_issue *issue)
{
    double *data[HARNESS_ROLES] = {NULL};
    tconv_status status;
    if (widen_all(test, absolute, data)) {
        tconv_desc dense = harness_one_call(&test->layer.desc);
        dense.dtype = TCONV_F64;
        dense.layout = TCONV_NCHW;
        dense.weight_layout = TCONV_WEIGHT_IOHW;
        harness_make_dense(&dense);
        memset(dense.post, 0, sizeof dense.post);
        dense.post_count = 0;
        status = run_reference(&dense, data, issue);
    } else {
        status = harness_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "expected", "no memory for the answer of the case");
    }
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const bool kept = status == TCONV_SUCCESS && harness_case_writes(test, (harness_role)role);
        results[role] = kept ? data[role] : NULL;
        if (!kept)
            free(data[role]);
    }
    return status;
}

static bool writes_nothing(const harness_case *test)
{
    for (int role = 0; role < HARNESS_ROLES; ++role)
        if (harness_case_writes(test, (harness_role)role) && harness_view_elements(&test->views[role]) > 0)
            return false;
    return true;
}

static double *copy_of(const double *from, int64_t count)
{
    double *copy = malloc((size_t)count * sizeof *copy);
    if (copy != NULL)
        memcpy(copy, from, (size_t)count * sizeof *copy);
    return copy;
}

tconv_status harness_case_create_as(harness_case *test, const harness_layer *layer, uint64_t seed,
                                    const harness_case *answered, tconv_issue *issue)
{
    tconv_status status = harness_case_create_tensors(test, layer, answered->fill, seed, false, issue);
    for (int role = 0; role < HARNESS_ROLES && status == TCONV_SUCCESS; ++role) {
        const harness_answer *from = &answered->answers[role];
        harness_answer *to = &test->answers[role];
        const int64_t count = harness_view_elements(&test->views[role]);
        if (from->expected != NULL)
            to->expected = copy_of(from->expected, count);
        if (from->bound != NULL)
            to->bound = copy_of(from->bound, count);
        if ((from->expected != NULL && to->expected == NULL) || (from->bound != NULL && to->bound == NULL))
            status = harness_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "expected", "no memory for the answer of the case");
    }
    if (status != TCONV_SUCCESS)
        harness_case_destroy(test);
    return status;
}

static tconv_status answer_samples(harness_case *test, harness_role role, uint64_t seed, tconv_issue *issue)
{
    harness_answer *answer = &test->answers[role];
    const int64_t count = harness_placed_samples(test, role) + DRAWN_SAMPLES;
    harness_random random;
    answer->samples = malloc((size_t)count * sizeof *answer->samples);
    if (answer->samples == NULL)
        return harness_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "samples", "no memory for the answer of the case");
    answer->sample_count = count;
    harness_random_seed(&random, seed);
    for (int64_t i = 0; i < count; ++i) {
        harness_sample *sample = &answer->samples[i];
        harness_pick_sample(test, role, i, &random, sample->at);
        harness_element_answer(test, role, sample->at, &sample->value, &sample->bound);
    }
    return TCONV_SUCCESS;
}

static tconv_status answer_by_formula(harness_case *test, harness_role role, uint64_t seed, tconv_issue *issue)
{
    harness_answer *answer = &test->answers[role];
    const int64_t *shape = test->views[role].shape, count = harness_view_elements(&test->views[role]);
    answer->expected = malloc((size_t)count * sizeof *answer->expected);
    answer->bound = malloc((size_t)count * sizeof *answer->bound);
    if (answer->expected == NULL || answer->bound == NULL)
        return harness_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "expected", "no memory for the answer of the case");
    (void)seed;
    int64_t at[4], index = 0;
    for (at[0] = 0; at[0] < shape[0]; ++at[0])
        for (at[1] = 0; at[1] < shape[1]; ++at[1])
            for (at[2] = 0; at[2] < shape[2]; ++at[2])
                for (at[3] = 0; at[3] < shape[3]; ++at[3], ++index)
                    harness_element_answer(test, role, at, &answer->expected[index], &answer->bound[index]);
    if (test->fill == HARNESS_INTEGERS) {
        free(answer->bound);
        answer->bound = NULL;
    }
    return TCONV_SUCCESS;
}

/* Makes a case whose answers answer_role gives, one tensor after another. */
static tconv_status create_answered(harness_case *test, const harness_layer *layer, harness_fill fill, uint64_t seed,
                                    tconv_status (*answer_role)(harness_case *, harness_role, uint64_t, tconv_issue *),
                                    tconv_issue *issue)
{
    tconv_status status = harness_case_create_tensors(test, layer, fill, seed, false, issue);
    if (status != TCONV_SUCCESS || writes_nothing(test))
        return status;
    for (int role = 0; role < HARNESS_ROLES && status == TCONV_SUCCESS; ++role)
        if (harness_case_writes(test, (harness_role)role))
            status = answer_role(test, (harness_role)role, seed, issue);
    if (status != TCONV_SUCCESS)
        harness_case_destroy(test);
    return status;
}

tconv_status harness_case_create_sampled(harness_case *test, const harness_layer *layer, harness_fill fill,
                                         uint64_t seed, tconv_issue *issue)
{
    return create_answered(test, layer, fill, seed, answer_samples, issue);
}

tconv_status harness_case_create_by_formula(harness_case *test, const harness_layer *layer, harness_fill fill,
                                            uint64_t seed, tconv_issue *issue)
{
    return create_answered(test, layer, fill, seed, answer_by_formula, issue);
}

tconv_status harness_case_create(harness_case *test, const harness_layer *layer, harness_fill fill, uint64_t seed,
                                 tconv_issue *issue)
{
    double *expected[HARNESS_ROLES] = {NULL}, *bound[HARNESS_ROLES] = {NULL};
    if (harness_has_depth(&layer->desc))
        return harness_case_create_by_formula(test, layer, fill, seed, issue);
    tconv_status status = harness_case_create_tensors(test, layer, fill, seed, false, issue);
    if (status != TCONV_SUCCESS || writes_nothing(test))
        return status;
    status = answer(test, false, expected, issue);
    if (status == TCONV_SUCCESS && fill == HARNESS_REALS)
        status = answer(test, true, bound, issue);
    for (int role = 0; role < HARNESS_ROLES; ++role)
        test->answers[role] = (harness_answer){.expected = expected[role], .bound = bound[role]};
    if (status != TCONV_SUCCESS)
        harness_case_destroy(test);
    return status;
}
