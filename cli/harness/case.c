/*
 * Makes cases. The answer comes from "cpu_reference", asked for by name through the public API, on a dense NCHW float64
 * copy, so that no error in rounding to the dtype, in a layout or in a slice can be in both results.
 */
#include "case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"

/* Bytes on both sides of a tensor: more than the widest vector that could be written by mistake. */
#define GUARD_BYTES 256
#define ALIGNMENT   64
/* Numbers that an unanswered case draws before they repeat. A prime, so that rows and channels differ. */
#define PATTERN_ELEMENTS 65537
#define LARGEST_INTEGER  8
#define LARGEST_ADDED    16
/* The largest integers of src or of weights, where the sums leave room: 11 bits of TF32 and f16, and 8 bits of bf16,
 * represent them exactly. */
#define LARGEST_WIDE      1024
#define LARGEST_WIDE_BF16 256
#define SERIAL_FLOPS      1e7 /* FLOP: the reference takes some milliseconds for them */
#define DRAWN_SAMPLES     400 /* samples drawn at random, beside those at fixed places */

static tconv_status fail(tconv_issue *issue, tconv_status status, const char *field, const char *message)
{
    if (issue != NULL) {
        memset(issue, 0, sizeof *issue);
        issue->status = status;
        snprintf(issue->field, sizeof issue->field, "%s", field);
        snprintf(issue->message, sizeof issue->message, "%s", message);
    }
    return status;
}

harness_buffer harness_buffer_create(int64_t count, size_t element_size, unsigned skew)
{
    harness_buffer buffer = {0};
    const size_t slack = 2 * GUARD_BYTES + 2 * ALIGNMENT;
    size_t offset = GUARD_BYTES + skew * element_size % ALIGNMENT;
    if (count < 0 || (uint64_t)count > (SIZE_MAX - slack) / element_size)
        return buffer;
    buffer.bytes = ((size_t)count * element_size + slack) / ALIGNMENT * ALIGNMENT;
    buffer.memory = aligned_alloc(ALIGNMENT, buffer.bytes);
    if (buffer.memory == NULL)
        return (harness_buffer){0};
    memset(buffer.memory, 0xff, buffer.bytes);
    buffer.offset = offset;
    buffer.data = buffer.memory + offset;
    return buffer;
}

void harness_buffer_release(harness_buffer *buffer)
{
    free(buffer->memory);
    *buffer = (harness_buffer){0};
}

/* ------------------------------------------------------------------------------------------------------------ filling */

bool harness_case_reads(const harness_case *test, harness_role role)
{
    return harness_operation_of(test->layer.desc.op)->reads[role] && (role != HARNESS_BIAS || test->layer.has_bias);
}

bool harness_case_writes(const harness_case *test, harness_role role)
{
    return harness_operation_of(test->layer.desc.op)->writes[role] && (role != HARNESS_BIAS || test->layer.has_bias);
}

bool harness_case_adds_to(const harness_case *test, harness_role role)
{
    return test->layer.desc.accumulate && harness_case_writes(test, role);
}

/* The largest |values| of the two factors of a product, in the order of their roles, and of what is added to a sum of
 * products: a bias, what an output holds. 0 stands for reals. */
struct ranges {
    int64_t first, second, added;
};

/* Returns the largest integers for which every sum is exact in f32 and does not overflow f16; 0 if there are none. One
 * factor is small, and the other as large as that allows; wide_second says which. */
static struct ranges integer_ranges(const tconv_desc *desc, bool wide_second)
{
    static const double largest_sum[] = {
        [TCONV_F32] = 0x1p24, [TCONV_F64] = 0x1p24, [TCONV_F16] = 60000, [TCONV_BF16] = 0x1p24};
    const double most_added = LARGEST_ADDED * (desc->accumulate ? 2 : 1);
    const double largest_product =
        (largest_sum[desc->dtype] - most_added) / harness_operation_of(desc->op)->terms(desc);
    const double small = fmin(floor(sqrt(largest_product)), LARGEST_INTEGER);
    if (small < 1)
        return (struct ranges){0};
    const double wide =
        fmin(floor(largest_product / small), desc->dtype == TCONV_BF16 ? LARGEST_WIDE_BF16 : LARGEST_WIDE);
    return wide_second ? (struct ranges){(int64_t)small, (int64_t)wide, LARGEST_ADDED}
                       : (struct ranges){(int64_t)wide, (int64_t)small, LARGEST_ADDED};
}

bool harness_has_integers(const harness_layer *layer)
{
    return integer_ranges(&layer->desc, false).first > 0;
}

static double draw(harness_random *random, int64_t range)
{
    return range > 0 ? (double)harness_random_integer(random, -range, range) : harness_random_real(random);
}

/* Fills a view with random numbers; range 0 means reals. */
static void fill_view(const harness_view *view, tconv_dtype dtype, void *data, harness_random *random, int64_t range)
{
    const int64_t *shape = view->shape;
    for (int64_t a = 0; a < shape[0]; ++a)
        for (int64_t b = 0; b < shape[1]; ++b)
            for (int64_t c = 0; c < shape[2]; ++c)
                for (int64_t d = 0; d < shape[3]; ++d)
                    harness_element_set(dtype, data, harness_view_index(view, a, b, c, d), draw(random, range));
}

/* Fills all of data, gaps as well, with a pattern that is drawn once and then copied, because that is as fast as
 * memory. */
static void fill_pattern(int64_t extent, tconv_dtype dtype, void *data, harness_random *random, int64_t range)
{
    const size_t size = harness_element_size(dtype);
    int64_t drawn = extent < PATTERN_ELEMENTS ? extent : PATTERN_ELEMENTS;
    for (int64_t i = 0; i < drawn; ++i)
        harness_element_set(dtype, data, i, draw(random, range));
    for (int64_t done = drawn; done < extent; done += drawn) {
        int64_t count = extent - done < drawn ? extent - done : drawn;
        memcpy((char *)data + (size_t)done * size, data, (size_t)count * size);
    }
}

/* Makes buffers of bytes 0xFF for the tensors that are read or added to. */
static bool create_buffers(harness_case *test, harness_random *random)
{
    const size_t size = harness_element_size(test->layer.desc.dtype);
    bool first = true;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        if (harness_case_adds_to(test, (harness_role)role)) {
            test->tensors[role] = harness_buffer_create(test->views[role].extent, size, 0);
            if (test->tensors[role].memory == NULL)
                return false;
        }
        if (!harness_case_reads(test, (harness_role)role))
            continue;
        /* Half of the first ones are at the best alignment, which has paths of its own. */
        int64_t skew = harness_random_integer(random, 0, first ? 31 : 15);
        test->tensors[role] = harness_buffer_create(test->views[role].extent, size, skew < 16 ? (unsigned)skew : 0);
        if (test->tensors[role].memory == NULL)
            return false;
        first = false;
    }
    return true;
}

static void fill_buffer(harness_case *test, harness_role role, bool pattern, harness_random *random, int64_t range)
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    const harness_view *view = &test->views[role];
    if (pattern || role == HARNESS_BIAS)
        fill_pattern(view->extent, dtype, test->tensors[role].data, random, range);
    else
        fill_view(view, dtype, test->tensors[role].data, random, range);
}

/* What is read is the same whether the layer accumulates or not, where its range is. */
static void fill_buffers(harness_case *test, const struct ranges *ranges, bool pattern, harness_random *random)
{
    int factors = 0;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        if (!harness_case_reads(test, (harness_role)role))
            continue;
        const int64_t range = role == HARNESS_BIAS ? ranges->added : factors++ == 0 ? ranges->first : ranges->second;
        fill_buffer(test, (harness_role)role, pattern, random, range);
    }
    for (int role = 0; role < HARNESS_ROLES; ++role)
        if (harness_case_adds_to(test, (harness_role)role))
            fill_buffer(test, (harness_role)role, pattern, random, ranges->added);
}

static tconv_status create_tensors(harness_case *test, const harness_layer *layer, harness_fill fill, uint64_t seed,
                                   bool pattern, tconv_issue *issue)
{
    const tconv_desc *desc = &layer->desc;
    memset(test, 0, sizeof *test);
    tconv_status status = tconv_validate(desc, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (harness_operation_of(desc->op) == NULL)
        return fail(issue, TCONV_ERROR_UNSUPPORTED, "op", "op: the harness has no formula for it");
    test->layer = *layer;
    test->fill = fill;
    for (int role = 0; role < HARNESS_ROLES; ++role)
        test->views[role] = harness_view_of(desc, (harness_role)role);

    const struct ranges ranges = fill == HARNESS_INTEGERS ? integer_ranges(desc, seed % 2 != 0) : (struct ranges){0};
    if (fill == HARNESS_INTEGERS && ranges.first == 0)
        return fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "fill",
                    "a layer of so many products in a sum has no exact integers");

    harness_random random;
    harness_random_seed(&random, seed);
    if (!create_buffers(test, &random)) {
        harness_case_destroy(test);
        return fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "src", "no memory for the tensors of the case");
    }
    fill_buffers(test, &ranges, pattern, &random);
    return TCONV_SUCCESS;
}

/* ---------------------------------------------------------------------------------------------------------- answering */

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
        status = fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "workspace", "no memory for the reference's workspace");
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

/* Allocates the results and wide copies of the tensors that are read or added to. Returns false when out of memory. */
static bool widen_all(const harness_case *test, bool absolute, double *data[HARNESS_ROLES])
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const harness_view *view = &test->views[role];
        const void *from = test->tensors[role].data;
        if (from == NULL && !harness_case_writes(test, (harness_role)role))
            continue;
        data[role] = from != NULL ? widen(view, dtype, from, absolute)
                                  : malloc((size_t)harness_view_elements(view) * sizeof *data[role]);
        if (data[role] == NULL)
            return false;
    }
    return true;
}

/* Computes the exact results, or with absolute values the bounds; the arrays in results are the caller's. */
static tconv_status answer(const harness_case *test, bool absolute, double *results[HARNESS_ROLES], tconv_issue *issue)
{
    double *data[HARNESS_ROLES] = {NULL};
    tconv_status status;
    if (widen_all(test, absolute, data)) {
        tconv_desc dense = test->layer.desc;
        dense.dtype = TCONV_F64;
        dense.layout = TCONV_NCHW;
        dense.weight_layout = TCONV_WEIGHT_IOHW;
        memset(dense.src_strides, 0, sizeof dense.src_strides);
        memset(dense.dst_strides, 0, sizeof dense.dst_strides);
        status = run_reference(&dense, data, issue);
    } else {
        status = fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "expected", "no memory for the answer of the case");
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

tconv_status harness_case_create(harness_case *test, const harness_layer *layer, harness_fill fill, uint64_t seed,
                                 tconv_issue *issue)
{
    double *expected[HARNESS_ROLES] = {NULL}, *bound[HARNESS_ROLES] = {NULL};
    tconv_status status = create_tensors(test, layer, fill, seed, false, issue);
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
    tconv_status status = create_tensors(test, layer, answered->fill, seed, false, issue);
    for (int role = 0; role < HARNESS_ROLES && status == TCONV_SUCCESS; ++role) {
        const harness_answer *from = &answered->answers[role];
        harness_answer *to = &test->answers[role];
        const int64_t count = harness_view_elements(&test->views[role]);
        if (from->expected != NULL)
            to->expected = copy_of(from->expected, count);
        if (from->bound != NULL)
            to->bound = copy_of(from->bound, count);
        if ((from->expected != NULL && to->expected == NULL) || (from->bound != NULL && to->bound == NULL))
            status = fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "expected", "no memory for the answer of the case");
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
        return fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "samples", "no memory for the answer of the case");
    answer->sample_count = count;
    harness_random_seed(&random, seed);
    for (int64_t i = 0; i < count; ++i) {
        harness_sample *sample = &answer->samples[i];
        harness_pick_sample(test, role, i, &random, sample->at);
        harness_element_answer(test, role, sample->at, &sample->value, &sample->bound);
    }
    return TCONV_SUCCESS;
}

tconv_status harness_case_create_sampled(harness_case *test, const harness_layer *layer, harness_fill fill,
                                         uint64_t seed, tconv_issue *issue)
{
    tconv_status status = create_tensors(test, layer, fill, seed, false, issue);
    if (status != TCONV_SUCCESS || writes_nothing(test))
        return status;
    for (int role = 0; role < HARNESS_ROLES && status == TCONV_SUCCESS; ++role)
        if (harness_case_writes(test, (harness_role)role))
            status = answer_samples(test, (harness_role)role, seed, issue);
    if (status != TCONV_SUCCESS)
        harness_case_destroy(test);
    return status;
}

static tconv_status answer_by_formula(harness_case *test, harness_role role, tconv_issue *issue)
{
    harness_answer *answer = &test->answers[role];
    const int64_t *shape = test->views[role].shape, count = harness_view_elements(&test->views[role]);
    answer->expected = malloc((size_t)count * sizeof *answer->expected);
    answer->bound = malloc((size_t)count * sizeof *answer->bound);
    if (answer->expected == NULL || answer->bound == NULL)
        return fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "expected", "no memory for the answer of the case");
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

tconv_status harness_case_create_by_formula(harness_case *test, const harness_layer *layer, harness_fill fill,
                                            uint64_t seed, tconv_issue *issue)
{
    tconv_status status = create_tensors(test, layer, fill, seed, false, issue);
    if (status != TCONV_SUCCESS || writes_nothing(test))
        return status;
    for (int role = 0; role < HARNESS_ROLES && status == TCONV_SUCCESS; ++role)
        if (harness_case_writes(test, (harness_role)role))
            status = answer_by_formula(test, (harness_role)role, issue);
    if (status != TCONV_SUCCESS)
        harness_case_destroy(test);
    return status;
}

tconv_status harness_case_create_unanswered(harness_case *test, const harness_layer *layer, harness_fill fill,
                                            uint64_t seed, tconv_issue *issue)
{
    return create_tensors(test, layer, fill, seed, true, issue);
}

void harness_case_destroy(harness_case *test)
{
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        harness_buffer_release(&test->tensors[role]);
        free(test->answers[role].expected);
        free(test->answers[role].bound);
        free(test->answers[role].samples);
        test->answers[role] = (harness_answer){0};
    }
}
