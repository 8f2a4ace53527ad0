/*
 * Calls with operands of post-ops: which are refused, and by which names; what is computed. These are tests of the suite
 * posts.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "harness.h"
#include "support/desc_numbers.h"
#include "support/expect.h"
#include "support/small_layer.h"

static struct small_layer layer;
static tconv_issue issue;
static float factors[6], shifts[6], addend[SMALL_DST];
static tconv_tensor factor_tensor, shift_tensor, addend_tensor;
static tconv_operands operands;

/* Gives the small layer a list and all operands of "tanh-less" lists: post[1], post[2] and post[3] of the list below. */
static const char whole_list[] = "linear:2:1,mul_channel,add_channel,add_tensor:-0.5,clamp:-1000:1000";

static void set_up_posts(const char *list)
{
    char message[256];
    small_layer_init(&layer);
    cr_assert(harness_posts_parse(list, strlen(list), &layer.desc, message, sizeof message), "%s", message);
    for (int i = 0; i < 6; i++)
        factors[i] = (float)(i - 2), shifts[i] = (float)(7 * i - 20);
    for (int i = 0; i < SMALL_DST; i++)
        addend[i] = (float)(i % 13 - 6);
    factor_tensor = (tconv_tensor){factors, TCONV_F32, TCONV_LOCATION_HOST};
    shift_tensor = (tconv_tensor){shifts, TCONV_F32, TCONV_LOCATION_HOST};
    addend_tensor = (tconv_tensor){addend, TCONV_F32, TCONV_LOCATION_HOST};
    operands = (tconv_operands){sizeof operands, &layer.src, &layer.weights, &layer.bias, &layer.dst, {NULL}};
    if (strcmp(list, whole_list) == 0)
        operands.post[1] = &factor_tensor, operands.post[2] = &shift_tensor, operands.post[3] = &addend_tensor;
}

/* The answer of the whole list, in integers and halves. */
static float whole_answer(int i)
{
    const int channel = i / 60 % 6;
    const float y = (2 * layer.expected[i] + 1) * factors[channel] + shifts[channel] - 0.5f * addend[i];
    return fminf(fmaxf(y, -1000), 1000);
}

static void expect_whole_answer(const char *what)
{
    for (int i = 0; i < SMALL_DST; i++)
        cr_assert_eq(layer.dst_data[i], whole_answer(i), "%s: output %d is %g, not %g", what, i, layer.dst_data[i],
                     whole_answer(i));
}

static tconv_status execute_with(const tconv_plan *plan)
{
    small_layer_clear(&layer);
    const tconv_status status = tconv_plan_execute_with(plan, &operands, layer.workspace, sizeof layer.workspace, NULL);
    tconv_last_issue(&issue);
    return status;
}

/* Expects that both calls refuse the operands, name the field, and write nothing. */
static void expect_both_refuse(const char *field, const char *text)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    expect_failure(execute_with(plan), issue, TCONV_ERROR_INVALID_ARGUMENT, field, text);
    cr_assert(small_layer_is_untouched(&layer), "%s", field);
    expect_failure(tconv_conv_transpose2d_with(&layer.desc, NULL, &operands, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, field, text);
    cr_assert(small_layer_is_untouched(&layer), "%s", field);
    tconv_plan_destroy(plan);
}

Test(posts, are_computed_in_their_order)
{
    set_up_posts(whole_list);
    tconv_plan *plan = small_layer_plan(&layer, NULL), *packed;
    expect_success(execute_with(plan), issue);
    expect_whole_answer("a plan");
    expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
    operands.weights = NULL;
    expect_success(execute_with(packed), issue);
    expect_whole_answer("packed weights");
    operands.weights = &layer.weights;
    small_layer_clear(&layer);
    expect_success(tconv_conv_transpose2d_with(&layer.desc, NULL, &operands, &issue), issue);
    expect_whole_answer("one call");
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
}

/* What the outputs hold is one more term of the sum. */
Test(posts, follow_what_the_outputs_held)
{
    set_up_posts("linear:3:0,clamp:-40:50");
    layer.desc.accumulate = 1;
    for (int i = 0; i < SMALL_DST; i++)
        layer.dst_data[i] = (float)(i % 7);
    expect_success(tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, NULL, &layer.dst, &issue),
                   issue);
    for (int i = 0; i < SMALL_DST; i++) {
        const float sum = layer.expected[i] - layer.bias_data[i / 60 % 6] + (float)(i % 7);
        cr_assert_eq(layer.dst_data[i], fminf(fmaxf(3 * sum, -40), 50), "output %d", i);
    }
}

/* The calls without operands take lists that have none, and refuse others by the first operand's name. */
Test(posts, calls_without_operands)
{
    set_up_posts("linear:2:1,clamp:0:500");
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    expect_success(small_layer_execute(&layer, plan, &issue), issue);
    for (int i = 0; i < SMALL_DST; i++)
        cr_assert_eq(layer.dst_data[i], fminf(fmaxf(2 * layer.expected[i] + 1, 0), 500), "output %d", i);
    tconv_plan_destroy(plan);

    set_up_posts(whole_list);
    plan = small_layer_plan(&layer, NULL);
    expect_failure(small_layer_execute(&layer, plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "post[1]", "_with");
    expect_failure(
        tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue), issue,
        TCONV_ERROR_INVALID_ARGUMENT, "post[1]", "_with");
    cr_assert(small_layer_is_untouched(&layer));
    tconv_plan_destroy(plan);
}

Test(posts, calls_with_operands_take_layers_without_post_ops)
{
    set_up_posts("tanh");
    memset(layer.desc.post, 0, sizeof layer.desc.post);
    layer.desc.post_count = 0;
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    expect_success(execute_with(plan), issue);
    cr_assert(small_layer_is_right(&layer));
    tconv_plan_destroy(plan);
}

Test(posts, operands_struct)
{
    const size_t sizes[] = {0, sizeof(size_t), sizeof operands - 1, 4097, SIZE_MAX};
    struct {
        tconv_operands known;
        unsigned char news[16];
    } newer;
    set_up_posts(whole_list);
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    expect_failure(tconv_conv_transpose2d_with(&layer.desc, NULL, NULL, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "operands", "operands = NULL");
    cr_assert_eq(tconv_plan_execute_with(plan, NULL, layer.workspace, sizeof layer.workspace, NULL),
                 TCONV_ERROR_INVALID_ARGUMENT);
    tconv_last_issue(&issue);
    cr_assert_str_eq(issue.field, "operands");
    for (size_t i = 0; i < COUNT(sizes); i++) {
        operands.struct_size = sizes[i];
        expect_both_refuse("struct_size", "struct_size = ");
        cr_assert_null(strstr(issue.message, "_init"), "no function fills operands: %s", issue.message);
    }
    operands.struct_size = sizeof operands;

    memset(&newer, 0, sizeof newer);
    newer.known = operands;
    newer.known.struct_size = sizeof newer;
    small_layer_clear(&layer);
    expect_success(tconv_conv_transpose2d_with(&layer.desc, NULL, &newer.known, &issue), issue);
    expect_whole_answer("a newer struct");
    newer.news[15] = 1;
    expect_failure(tconv_conv_transpose2d_with(&layer.desc, NULL, &newer.known, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "struct_size", "must be 0");
    tconv_plan_destroy(plan);
}

/* Each operand, broken in every way that a tensor can be. */
Test(posts, operands_that_are_refused)
{
    static const struct {
        const char *field, *data, *dtype, *location;
        tconv_tensor *tensor;
        int index;
    } rows[] = {
        {"post[1]", "post[1].data", "post[1].dtype", "post[1].location", &factor_tensor, 1},
        {"post[2]", "post[2].data", "post[2].dtype", "post[2].location", &shift_tensor, 2},
        {"post[3]", "post[3].data", "post[3].dtype", "post[3].location", &addend_tensor, 3},
    };
    set_up_posts(whole_list);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const tconv_tensor right = *rows[i].tensor;
        operands.post[rows[i].index] = NULL;
        expect_both_refuse(rows[i].field, "must point to a tensor");
        operands.post[rows[i].index] = rows[i].tensor;
        rows[i].tensor->data = NULL;
        expect_both_refuse(rows[i].data, "must point to the elements");
        rows[i].tensor->data = (char *)right.data + 2;
        expect_both_refuse(rows[i].data, "must be a multiple of 4");
        *rows[i].tensor = right;
        for (int dtype = TCONV_F64; dtype <= TCONV_BF16; dtype++) {
            rows[i].tensor->dtype = (tconv_dtype)dtype;
            expect_both_refuse(rows[i].dtype, "must be f32");
        }
        *rows[i].tensor = right;
        rows[i].tensor->location = (tconv_location)7;
        expect_both_refuse(rows[i].location, "7");
        rows[i].tensor->location = TCONV_LOCATION_CUDA;
        tconv_plan *plan = small_layer_plan(&layer, NULL); /* one call would copy it from there */
        expect_failure(execute_with(plan), issue, TCONV_ERROR_INVALID_ARGUMENT, rows[i].location, "must");
        tconv_plan_destroy(plan);
        *rows[i].tensor = right;
    }
    expect_success(tconv_conv_transpose2d_with(&layer.desc, NULL, &operands, &issue), issue);
}

/* Channels have the type of sums, an addend the layer's. */
Test(posts, types_of_operands)
{
    static const tconv_dtype channels[] = {
        [TCONV_F32] = TCONV_F32, [TCONV_F64] = TCONV_F64, [TCONV_F16] = TCONV_F32, [TCONV_BF16] = TCONV_F32};
    double zeros[SMALL_DST] = {0}, own[SMALL_DST];
    set_up_posts("snake,add_tensor:1");
    for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++)
        for (int first = TCONV_F32; first <= TCONV_BF16; first++)
            for (int second = TCONV_F32; second <= TCONV_BF16; second++) {
                tconv_tensor tensor = {zeros, (tconv_dtype)dtype, TCONV_LOCATION_HOST}, dst = tensor;
                tconv_tensor posts[2] = {{zeros, (tconv_dtype)first, TCONV_LOCATION_HOST},
                                         {zeros, (tconv_dtype)second, TCONV_LOCATION_HOST}};
                dst.data = own;
                operands = (tconv_operands){sizeof operands, &tensor, &tensor, NULL, &dst, {&posts[0], &posts[1]}};
                layer.desc.dtype = (tconv_dtype)dtype;
                const tconv_status status = tconv_conv_transpose2d_with(&layer.desc, NULL, &operands, &issue);
                if (first != (int)channels[dtype])
                    expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, "post[0].dtype",
                                   dtype == (int)channels[dtype] ? "the desc's dtype" : "that of sums");
                else if (second != dtype)
                    expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, "post[1].dtype", "the desc's dtype");
                else
                    expect_success(status, issue);
            }
}

/* The addend may not be dst, nor share an element with it; slices of one tensor may interleave. */
Test(posts, operands_do_not_overlap_what_is_written)
{
    set_up_posts("mul_channel,add_tensor:1");
    operands.post[0] = &factor_tensor, operands.post[1] = &layer.dst;
    expect_both_refuse("dst", "must not overlap post[1]");
    tconv_tensor end = {&layer.dst_data[SMALL_DST - 1], TCONV_F32, TCONV_LOCATION_HOST};
    operands.post[0] = &end, operands.post[1] = &addend_tensor;
    expect_both_refuse("dst", "must not overlap post[0]");

    static float whole[2 * SMALL_DST]; /* of an image, dst's channels and then the addend's */
    for (int i = 0; i < 2 * SMALL_DST; i++)
        whole[i] = 1;
    tconv_tensor dst = {whole, TCONV_F32, TCONV_LOCATION_HOST};
    tconv_tensor slice = {whole + SMALL_DST / 2, TCONV_F32, TCONV_LOCATION_HOST};
    layer.desc.dst_strides[0] = layer.desc.addend_strides[0] = SMALL_DST;
    operands.dst = &dst, operands.post[0] = &factor_tensor, operands.post[1] = &slice;
    expect_success(tconv_conv_transpose2d_with(&layer.desc, NULL, &operands, &issue), issue);
    for (int i = 0; i < SMALL_DST; i++) {
        const int at = i / (SMALL_DST / 2) * SMALL_DST + i % (SMALL_DST / 2);
        cr_assert_eq(whole[at], layer.expected[i] * factors[i / 60 % 6] + 1, "output %d", i);
    }
}

/* Without images there is no addend, as there is no dst. */
Test(posts, without_images)
{
    set_up_posts(whole_list);
    layer.desc.batch = 0;
    operands.post[3] = operands.src = operands.dst = NULL;
    expect_success(tconv_conv_transpose2d_with(&layer.desc, NULL, &operands, &issue), issue);
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    expect_success(execute_with(plan), issue);
    cr_assert(small_layer_is_untouched(&layer));
    tconv_plan_destroy(plan);
}
