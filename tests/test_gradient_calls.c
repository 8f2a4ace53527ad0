/*
 * What calls of the gradients answer: issues name diff_dst, diff_src, diff_weights and diff_bias; weights and bias may be
 * asked for each alone; packing belongs to the gradient that reads weights; no images make zeros; and nothing is written
 * where a call fails. The numbers are compared with sums over the outputs of the layer.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "support/expect.h"
#include "support/small_layer.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct small_layer layer;
static float diff_src[SMALL_SRC], diff_weights[SMALL_WEIGHTS], diff_bias[SMALL_BIAS]; /* the right answers */
static tconv_issue issue;
static struct way ways[MAX_WAYS];
static size_t way_count;

/* Sums over each output and its taps, as small_layer.c does for the forward. */
static void compute_gradients(void)
{
    memset(diff_src, 0, sizeof diff_src);
    memset(diff_weights, 0, sizeof diff_weights);
    memset(diff_bias, 0, sizeof diff_bias);
    for (int i = 0; i < SMALL_DST; i++) {
        const int ow = i % 10, oh = i / 10 % 6, channel = i / 60 % 6, n = i / 360, group = channel / 3;
        diff_bias[channel] += layer.dst_data[i];
        for (int tap = 0; tap < 2 * 3 * 2; tap++) { /* input channel of the group, kernel row, kernel column */
            const int in = 2 * group + tap / 6, kh = tap / 2 % 3, kw = tap % 2, h = oh + 1 - kh, w = ow - kw;
            if (h < 0 || w < 0 || h % 2 != 0 || w % 2 != 0 || h / 2 >= 3 || w / 2 >= 5)
                continue;
            const int src = ((n * 4 + in) * 3 + h / 2) * 5 + w / 2;
            const int weight = ((in * 3 + channel % 3) * 3 + kh) * 2 + kw;
            diff_src[src] += layer.dst_data[i] * layer.weights_data[weight];
            diff_weights[weight] += layer.dst_data[i] * layer.src_data[src];
        }
    }
}

static void set_up(void)
{
    small_layer_init(&layer);
    for (int i = 0; i < SMALL_DST; i++)
        layer.dst_data[i] = (float)(i * 5 % 13 - 6);
    compute_gradients();
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
}

TestSuite(gradient_calls, .init = set_up);

/* The tensors of a call. */
struct call {
    const tconv_tensor *src, *weights, *bias, *dst;
};

static struct call all_tensors(void)
{
    return (struct call){&layer.src, &layer.weights, &layer.bias, &layer.dst};
}

static tconv_status execute(const tconv_plan *plan, struct call call)
{
    const tconv_status status = tconv_plan_execute(plan, call.src, call.weights, call.bias, call.dst, layer.workspace,
                                                   sizeof layer.workspace, NULL);
    tconv_last_issue(&issue);
    return status;
}

/* Makes a plan of the layer with the operation by a way; NULL where the way does not take it. */
static tconv_plan *plan_by(const struct way *way, tconv_op op)
{
    const tconv_options options = way_options(way);
    tconv_plan *plan;
    size_t size;
    layer.desc.op = op;
    if (tconv_plan_create(&layer.desc, &options, &plan, &issue) != TCONV_SUCCESS) {
        cr_assert_eq(issue.status, TCONV_ERROR_UNSUPPORTED, "%s: %s", way->text, issue.message);
        return NULL;
    }
    cr_assert_eq(tconv_plan_workspace_size(plan, &size), TCONV_SUCCESS);
    cr_assert_leq(size, sizeof layer.workspace);
    return plan;
}

static void expect_floats(const struct way *way, const char *what, const float *got, const float *right, int count)
{
    for (int i = 0; i < count; i++)
        cr_assert(got[i] == right[i], "%s: element %d of %s is %g, not %g", way->text, i, what, (double)got[i],
                  (double)right[i]);
}

/* Fills a gradient with a number that it does not have. */
static void clear(float *values, int count)
{
    for (int i = 0; i < count; i++)
        values[i] = -12345.5F;
}

/* Expects that a call, by the plan and in one, fails naming the field, with these words, and that it writes nothing. */
static void expect_refused(const tconv_plan *plan, struct call call, const char *field, const char *words)
{
    static struct small_layer before;
    before = layer;
    tconv_status status = execute(plan, call);
    expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, field, words);
    status = tconv_conv_transpose2d(&layer.desc, NULL, call.src, call.weights, call.bias, call.dst, &issue);
    expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, field, words);
    cr_assert_arr_eq((const unsigned char *)&before, (const unsigned char *)&layer, sizeof before,
                     "a refused call wrote (%s)", field);
}

/* ------------------------------------------------------------------------------------------------------------ issues */

static const tconv_tensor **tensor_of(struct call *call, int role)
{
    const tconv_tensor **const tensors[] = {&call->src, &call->weights, &call->bias, &call->dst};
    return tensors[role];
}

/* The names of the tensors that an operation has, in the order of execute's arguments. */
static const char *const names[][HARNESS_ROLES] = {
    [TCONV_BACKWARD_DATA] = {"diff_src", "weights", NULL, "diff_dst"},
    [TCONV_BACKWARD_WEIGHTS] = {"src", "diff_weights", "diff_bias", "diff_dst"},
};

/* Expects that a tensor with something wrong is refused, by its name. */
static void check_tensor(const tconv_plan *plan, tconv_op op, int role)
{
    const char *name = names[op][role];
    struct call call = all_tensors();
    const tconv_tensor right = **tensor_of(&call, role);
    const struct {
        tconv_tensor tensor;
        const char *field, *words;
    } wrong[] = {
        {{NULL, TCONV_F32, TCONV_LOCATION_HOST}, "data", "NULL"},
        {{right.data, TCONV_F64, TCONV_LOCATION_HOST}, "dtype", "must be f32"},
        {{(char *)right.data + 2, TCONV_F32, TCONV_LOCATION_HOST}, "data", "multiple of 4"},
        {{right.data, TCONV_F32, (tconv_location)7}, "location", "must be auto (0), host (1) or cuda (2)"},
    };
    char field[44];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        *tensor_of(&call, role) = &wrong[i].tensor;
        snprintf(field, sizeof field, "%s.%s", name, wrong[i].field);
        expect_refused(plan, call, field, wrong[i].words);
    }
    if (op == TCONV_BACKWARD_WEIGHTS && (role == HARNESS_WEIGHTS || role == HARNESS_BIAS))
        return; /* these may be NULL */
    *tensor_of(&call, role) = NULL;
    expect_refused(plan, call, name, "must point to a tensor");
}

Test(gradient_calls, tensors_are_checked_by_the_names_of_gradients)
{
    for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        layer.desc.op = (tconv_op)op;
        tconv_plan *plan = small_layer_plan(&layer, NULL);
        for (int role = 0; role < HARNESS_ROLES; role++)
            if (names[op][role] != NULL)
                check_tensor(plan, (tconv_op)op, role);
        tconv_plan_destroy(plan);
    }
}

Test(gradient_calls, overlaps_are_refused_by_the_names_of_gradients)
{
    for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        layer.desc.op = (tconv_op)op;
        tconv_plan *plan = small_layer_plan(&layer, NULL);
        for (int written = 0; written < HARNESS_ROLES; written++)
            for (int other = 0; other < HARNESS_ROLES; other++) {
                const bool writes = op == TCONV_BACKWARD_DATA ? written == HARNESS_SRC
                                                              : written == HARNESS_WEIGHTS || written == HARNESS_BIAS;
                struct call call = all_tensors();
                char words[64];
                if (!writes || other == written || names[op][other] == NULL)
                    continue;
                const bool both_written = op == TCONV_BACKWARD_WEIGHTS && written == HARNESS_BIAS &&
                                          other == HARNESS_WEIGHTS; /* the first of the two is named first */
                const tconv_tensor shared = **tensor_of(&call, other);
                *tensor_of(&call, written) = &shared;
                snprintf(words, sizeof words, "must not overlap %s = ", names[op][both_written ? written : other]);
                expect_refused(plan, call, names[op][both_written ? other : written], words);
            }
        tconv_plan_destroy(plan);
    }
}

Test(gradient_calls, workspace_is_checked_before_anything_is_written)
{
    for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++)
        for (size_t w = 0; w < way_count; w++) {
            static struct small_layer before;
            tconv_plan *plan = plan_by(&ways[w], (tconv_op)op);
            size_t size;
            if (plan == NULL)
                continue;
            cr_assert_eq(tconv_plan_workspace_size(plan, &size), TCONV_SUCCESS);
            before = layer;
            for (int none = 0; size > 0 && none < 2; none++) {
                tconv_status status =
                    tconv_plan_execute(plan, &layer.src, &layer.weights, &layer.bias, &layer.dst,
                                       none != 0 ? NULL : layer.workspace, none != 0 ? size : size - 1, NULL);
                tconv_last_issue(&issue);
                expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, none != 0 ? "workspace" : "workspace_size",
                               "must");
                cr_assert_arr_eq((const unsigned char *)&before, (const unsigned char *)&layer, sizeof before,
                                 "a refused call wrote");
            }
            tconv_plan_destroy(plan);
        }
}

/* ------------------------------------------------------------------------------------------------------ what is asked */

Test(gradient_calls, data_ignores_the_bias)
{
    const tconv_tensor nonsense = {(char *)layer.bias_data + 1, TCONV_F16, (tconv_location)9};
    for (size_t w = 0; w < way_count; w++) {
        tconv_plan *plan = plan_by(&ways[w], TCONV_BACKWARD_DATA);
        if (plan == NULL)
            continue;
        clear(layer.src_data, SMALL_SRC);
        expect_success(execute(plan, (struct call){&layer.src, &layer.weights, &nonsense, &layer.dst}), issue);
        expect_floats(&ways[w], "diff_src", layer.src_data, diff_src, SMALL_SRC);
        tconv_plan_destroy(plan);
    }
}

/* Executes with diff_weights, diff_bias, or both, by every way, and then in one call. What is not asked for is left as
 * it is; src is not given where diff_weights is not. */
static void check_asked(bool weights, bool bias)
{
    static float untouched[SMALL_WEIGHTS];
    const struct call call = {weights ? &layer.src : NULL, weights ? &layer.weights : NULL, bias ? &layer.bias : NULL,
                              &layer.dst};
    clear(untouched, SMALL_WEIGHTS);
    for (size_t w = 0; w < 2 * way_count; w++) {
        const struct way *way = &ways[w / 2];
        const tconv_options options = way_options(way);
        tconv_plan *plan = plan_by(way, TCONV_BACKWARD_WEIGHTS);
        if (plan == NULL)
            continue;
        clear(layer.weights_data, SMALL_WEIGHTS);
        clear(layer.bias_data, SMALL_BIAS);
        if (w % 2 == 0)
            expect_success(execute(plan, call), issue);
        else
            expect_success(
                tconv_conv_transpose2d(&layer.desc, &options, call.src, call.weights, call.bias, call.dst, &issue),
                issue);
        expect_floats(way, "diff_weights", layer.weights_data, weights ? diff_weights : untouched, SMALL_WEIGHTS);
        expect_floats(way, "diff_bias", layer.bias_data, bias ? diff_bias : untouched, SMALL_BIAS);
        tconv_plan_destroy(plan);
    }
}

/* The mistake of taking src, or the gradient of the weights, for given. */
Test(gradient_calls, bias_alone_refused)
{
    check_asked(false, true);
}

/* The mistake of taking the gradient of the bias for given. */
Test(gradient_calls, weights_alone_refused)
{
    check_asked(true, false);
}

/* The mistake of computing one of two gradients. */
Test(gradient_calls, weights_and_bias_not_both_written)
{
    check_asked(true, true);
}

Test(gradient_calls, neither_of_weights_and_bias_is_refused)
{
    layer.desc.op = TCONV_BACKWARD_WEIGHTS;
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    expect_refused(plan, (struct call){&layer.src, NULL, NULL, &layer.dst}, "diff_weights", "must point to a tensor");
    expect_refused(plan, (struct call){&layer.src, &layer.weights, &layer.bias, NULL}, "diff_dst",
                   "must point to a tensor");
    expect_refused(plan, (struct call){NULL, &layer.weights, &layer.bias, &layer.dst}, "src", "must point to a tensor");
    tconv_plan_destroy(plan);
}

/* ----------------------------------------------------------------------------------------------------------- packing */

Test(gradient_calls, packing_is_for_the_gradient_that_reads_weights)
{
    size_t packable = 0;
    for (size_t w = 0; w < way_count; w++) {
        tconv_plan *plan = plan_by(&ways[w], TCONV_BACKWARD_WEIGHTS), *packed = (tconv_plan *)&layer;
        if (plan != NULL) {
            expect_failure(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue,
                           TCONV_ERROR_INVALID_ARGUMENT, "op", "must be one that reads the weights");
            cr_assert_null(packed);
            tconv_plan_destroy(plan);
        }
        plan = plan_by(&ways[w], TCONV_BACKWARD_DATA);
        if (plan == NULL)
            continue;
        expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
        clear(layer.src_data, SMALL_SRC);
        expect_success(execute(packed, (struct call){&layer.src, NULL, NULL, &layer.dst}), issue);
        expect_floats(&ways[w], "diff_src", layer.src_data, diff_src, SMALL_SRC);
        tconv_plan_destroy(packed);
        tconv_plan_destroy(plan);
        packable++;
    }
    cr_assert_gt(packable, 0);
}

/* --------------------------------------------------------------------------------------------------------- no images */

Test(gradient_calls, no_images_make_zeros_of_weights_and_bias)
{
    static const float zeros[SMALL_WEIGHTS] = {0};
    const tconv_tensor nowhere = {NULL, TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor *const nothing[] = {NULL, &nowhere, &layer.src}; /* what src and diff_dst may be then */
    layer.desc.batch = 0;
    for (size_t w = 0; w < way_count; w++)
        for (int asked = 1; asked < 4; asked++) {
            tconv_plan *plan = plan_by(&ways[w], TCONV_BACKWARD_WEIGHTS);
            if (plan == NULL)
                continue;
            for (size_t i = 0; i < COUNT(nothing); i++) {
                clear(layer.weights_data, SMALL_WEIGHTS);
                clear(layer.bias_data, SMALL_BIAS);
                expect_success(execute(plan, (struct call){nothing[i], (asked & 1) != 0 ? &layer.weights : NULL,
                                                           (asked & 2) != 0 ? &layer.bias : NULL, nothing[i]}),
                               issue);
                if ((asked & 1) != 0)
                    expect_floats(&ways[w], "diff_weights", layer.weights_data, zeros, SMALL_WEIGHTS);
                if ((asked & 2) != 0)
                    expect_floats(&ways[w], "diff_bias", layer.bias_data, zeros, SMALL_BIAS);
            }
            tconv_plan_destroy(plan);
        }
}

Test(gradient_calls, no_images_leave_data_alone)
{
    static struct small_layer before;
    layer.desc.batch = 0;
    for (size_t w = 0; w < way_count; w++) {
        tconv_plan *plan = plan_by(&ways[w], TCONV_BACKWARD_DATA);
        if (plan == NULL)
            continue;
        before = layer;
        expect_success(execute(plan, (struct call){NULL, NULL, NULL, NULL}), issue);
        expect_success(execute(plan, all_tensors()), issue);
        cr_assert_arr_eq((const unsigned char *)&before, (const unsigned char *)&layer, sizeof before);
        tconv_plan_destroy(plan);
    }
}

/* An image of one pixel may be computed as a pixel of an image of all. */
Test(gradient_calls, no_images_of_one_pixel_are_planned)
{
    tconv_desc *desc = &layer.desc;
    desc->batch = 0;
    desc->in_h = desc->in_w = desc->dilation_h = desc->dilation_w = 1;
    desc->pad_top = desc->pad_bottom = desc->pad_left = desc->pad_right = 0;
    desc->output_padding_h = desc->output_padding_w = 0;
    for (size_t w = 0; w < way_count; w++) {
        tconv_plan *plan = plan_by(&ways[w], TCONV_BACKWARD_DATA);
        if (plan == NULL)
            continue;
        expect_success(execute(plan, (struct call){NULL, NULL, NULL, NULL}), issue);
        tconv_plan_destroy(plan);
    }
}
