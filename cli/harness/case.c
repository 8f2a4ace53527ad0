/*
 * Makes cases. The answer comes from "cpu_reference", asked for by name through the public API, on a dense NCHW float64
 * copy: neither the dtype's rounding, nor a layout, nor a slice can hide in it.
 */
#include "case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"

/* Room on both sides of a tensor: more than the widest vector that could be written by mistake. */
#define GUARD_BYTES 256
#define ALIGNMENT   64
/* Numbers of an unanswered case before they repeat: a prime, so that rows and channels differ. */
#define PATTERN_ELEMENTS 65537
#define LARGEST_INTEGER  8
#define LARGEST_BIAS     16
/* Of src or of weights, where sums leave room: what the 11 bits of TF32 and f16 hold, and bf16's 8. */
#define LARGEST_WIDE      1024
#define LARGEST_WIDE_BF16 256
#define SERIAL_FLOPS      1e7 /* some milliseconds of the reference */
#define DRAWN_SAMPLES     400 /* beside those named by place */

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

/* What |values| may be; 0: reals. */
struct ranges {
    int64_t src, weights;
};

/* The largest integers for which every sum is exact in f32 and does not overflow f16; 0 if none. One factor is small, the
 * other as wide as that leaves it, by turns. */
static struct ranges integer_ranges(const tconv_desc *desc, bool wide_weights)
{
    static const double largest_sum[] = {
        [TCONV_F32] = 0x1p24, [TCONV_F64] = 0x1p24, [TCONV_F16] = 60000, [TCONV_BF16] = 0x1p24};
    const int64_t group_in = desc->in_channels / desc->groups;
    const double taps = (double)group_in * (double)desc->kernel_h * (double)desc->kernel_w;
    const double largest_product = (largest_sum[desc->dtype] - LARGEST_BIAS) / taps;
    const double small = fmin(floor(sqrt(largest_product)), LARGEST_INTEGER);
    if (small < 1)
        return (struct ranges){0, 0};
    const double wide =
        fmin(floor(largest_product / small), desc->dtype == TCONV_BF16 ? LARGEST_WIDE_BF16 : LARGEST_WIDE);
    return wide_weights ? (struct ranges){(int64_t)small, (int64_t)wide}
                        : (struct ranges){(int64_t)wide, (int64_t)small};
}

static double draw(harness_random *random, int64_t range)
{
    return range > 0 ? (double)harness_random_integer(random, -range, range) : harness_random_real(random);
}

/* range 0 means reals. */
static void fill_view(const harness_view *view, tconv_dtype dtype, void *data, harness_random *random, int64_t range)
{
    const int64_t *shape = view->shape;
    for (int64_t a = 0; a < shape[0]; ++a)
        for (int64_t b = 0; b < shape[1]; ++b)
            for (int64_t c = 0; c < shape[2]; ++c)
                for (int64_t d = 0; d < shape[3]; ++d)
                    harness_element_set(dtype, data, harness_view_index(view, a, b, c, d), draw(random, range));
}

/* All of data, gaps as well, with a pattern that is drawn once and then copied: as fast as memory. */
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

static tconv_status create_tensors(harness_case *test, const harness_layer *layer, harness_fill fill, uint64_t seed,
                                   bool pattern, tconv_issue *issue)
{
    const tconv_desc *desc = &layer->desc;
    memset(test, 0, sizeof *test);
    tconv_status status = tconv_validate(desc, issue);
    if (status != TCONV_SUCCESS)
        return status;
    test->layer = *layer;
    test->fill = fill;
    test->src_view = harness_src_view(desc);
    test->weights_view = harness_weights_view(desc);
    test->dst_view = harness_dst_view(desc);

    const struct ranges ranges = fill == HARNESS_INTEGERS ? integer_ranges(desc, seed % 2 != 0) : (struct ranges){0, 0};
    if (fill == HARNESS_INTEGERS && ranges.src == 0)
        return fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "fill", "a layer of so many taps has no exact integers");

    const size_t size = harness_element_size(desc->dtype);
    harness_random random;
    harness_random_seed(&random, seed);
    /* Half of them at the best alignment, which has paths of its own. */
    const unsigned skew = (unsigned)harness_random_integer(&random, 0, 31);
    test->src = harness_buffer_create(test->src_view.extent, size, skew < 16 ? skew : 0);
    test->weights =
        harness_buffer_create(test->weights_view.extent, size, (unsigned)harness_random_integer(&random, 0, 15));
    if (layer->has_bias)
        test->bias = harness_buffer_create(desc->out_channels, size, (unsigned)harness_random_integer(&random, 0, 15));
    if (test->src.memory == NULL || test->weights.memory == NULL || (layer->has_bias && test->bias.memory == NULL)) {
        harness_case_destroy(test);
        return fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "src", "no memory for the tensors of the case");
    }
    if (pattern) {
        fill_pattern(test->src_view.extent, desc->dtype, test->src.data, &random, ranges.src);
        fill_pattern(test->weights_view.extent, desc->dtype, test->weights.data, &random, ranges.weights);
    } else {
        fill_view(&test->src_view, desc->dtype, test->src.data, &random, ranges.src);
        fill_view(&test->weights_view, desc->dtype, test->weights.data, &random, ranges.weights);
    }
    if (layer->has_bias)
        fill_pattern(desc->out_channels, desc->dtype, test->bias.data, &random, ranges.src > 0 ? LARGEST_BIAS : 0);
    return TCONV_SUCCESS;
}

/* ---------------------------------------------------------------------------------------------------------- answering */

/* A dense float64 copy, its absolute values if asked for; NULL when out of memory. */
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

/* Runs desc, a dense float64 layer, by the reference. A small layer takes longer to hand to several threads, above all on
 * a busy machine, than to compute. */
static tconv_status run_reference(const tconv_desc *desc, double *src, double *weights, double *bias, double *dst,
                                  tconv_issue *issue)
{
    tconv_options options;
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
    const tconv_tensor tensors[] = {{src, TCONV_F64, TCONV_LOCATION_HOST},
                                    {weights, TCONV_F64, TCONV_LOCATION_HOST},
                                    {bias, TCONV_F64, TCONV_LOCATION_HOST},
                                    {dst, TCONV_F64, TCONV_LOCATION_HOST}};
    status = tconv_plan_execute(plan, &tensors[0], &tensors[1], bias != NULL ? &tensors[2] : NULL, &tensors[3],
                                workspace, size, NULL);
    if (status != TCONV_SUCCESS && issue != NULL)
        tconv_last_issue(issue);
cleanup:
    free(workspace);
    tconv_plan_destroy(plan);
    return status;
}

/* The exact result, or with absolute values the bound; *answer is the caller's. */
static tconv_status answer(const harness_case *test, bool absolute, double **answer, tconv_issue *issue)
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    const harness_view bias_view = {{1, 1, 1, test->layer.desc.out_channels}, {0, 0, 0, 1}, 0};
    double *src = widen(&test->src_view, dtype, test->src.data, absolute);
    double *weights = widen(&test->weights_view, dtype, test->weights.data, absolute);
    double *bias = test->layer.has_bias ? widen(&bias_view, dtype, test->bias.data, absolute) : NULL;
    double *dst = malloc((size_t)harness_view_elements(&test->dst_view) * sizeof *dst);
    tconv_status status;
    if (src == NULL || weights == NULL || (test->layer.has_bias && bias == NULL) || dst == NULL) {
        status = fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "expected", "no memory for the answer of the case");
    } else {
        tconv_desc dense = test->layer.desc;
        dense.dtype = TCONV_F64;
        dense.layout = TCONV_NCHW;
        dense.weight_layout = TCONV_WEIGHT_IOHW;
        memset(dense.src_strides, 0, sizeof dense.src_strides);
        memset(dense.dst_strides, 0, sizeof dense.dst_strides);
        status = run_reference(&dense, src, weights, bias, dst, issue);
    }
    free(src);
    free(weights);
    free(bias);
    if (status == TCONV_SUCCESS)
        *answer = dst;
    else
        free(dst);
    return status;
}

tconv_status harness_case_create(harness_case *test, const harness_layer *layer, harness_fill fill, uint64_t seed,
                                 tconv_issue *issue)
{
    tconv_status status = create_tensors(test, layer, fill, seed, false, issue);
    if (status != TCONV_SUCCESS || layer->desc.batch == 0)
        return status;
    status = answer(test, false, &test->expected, issue);
    if (status == TCONV_SUCCESS && fill == HARNESS_REALS)
        status = answer(test, true, &test->bound, issue);
    if (status != TCONV_SUCCESS)
        harness_case_destroy(test);
    return status;
}

static tconv_status answer_samples(harness_case *test, uint64_t seed, tconv_issue *issue)
{
    const int64_t count = harness_placed_samples(test) + DRAWN_SAMPLES;
    harness_random random;
    test->samples = malloc((size_t)count * sizeof *test->samples);
    if (test->samples == NULL)
        return fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "samples", "no memory for the answer of the case");
    test->sample_count = count;
    harness_random_seed(&random, seed);
    for (int64_t i = 0; i < count; ++i) {
        harness_sample *sample = &test->samples[i];
        harness_pick_sample(test, i, &random, sample->at);
        harness_pixel(test, sample->at, &sample->value, &sample->bound);
    }
    return TCONV_SUCCESS;
}

tconv_status harness_case_create_sampled(harness_case *test, const harness_layer *layer, harness_fill fill,
                                         uint64_t seed, tconv_issue *issue)
{
    tconv_status status = create_tensors(test, layer, fill, seed, false, issue);
    if (status != TCONV_SUCCESS || layer->desc.batch == 0)
        return status;
    status = answer_samples(test, seed, issue);
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
    harness_buffer_release(&test->src);
    harness_buffer_release(&test->weights);
    harness_buffer_release(&test->bias);
    free(test->expected);
    free(test->bound);
    free(test->samples);
    test->expected = test->bound = NULL;
    test->samples = NULL;
}
