/* Arguments that share memory are refused by the names of both; arguments that only interleave are taken. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/problem.h"
#include "../src/dispatch/overlap.h"
#include "harness.h"
#include "support/expect.h"
#include "support/small_layer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct small_layer layer;
static tconv_issue issue;

static void set_up(void)
{
    small_layer_init(&layer);
}

TestSuite(overlap, .init = set_up);

/* ------------------------------------------------------------------------------------------------ what touches, and not */

enum { SRC, WEIGHTS, BIAS, DST, WORKSPACE, ARGUMENTS };

static const char *const names[ARGUMENTS] = {"src", "weights", "bias", "dst", "workspace"};

static struct arena {
    unsigned char bytes[1 << 20];
    size_t at[ARGUMENTS], size[ARGUMENTS]; /* where each argument lies in bytes, and how long it is */
} arena;

/* Places the small layer's tensors in the arena, far from each other. */
static void spread(const tconv_plan *plan)
{
    const size_t sizes[] = {sizeof layer.src_data, sizeof layer.weights_data, sizeof layer.bias_data,
                            sizeof layer.dst_data};
    memcpy(arena.size, sizes, sizeof sizes);
    cr_assert_eq(tconv_plan_workspace_size(plan, &arena.size[WORKSPACE]), TCONV_SUCCESS);
    for (size_t i = 0; i < ARGUMENTS; i++)
        arena.at[i] = 65536 * (2 * i + 2);
}

/* Executes the plan on the arena. The tensors that it reads are filled before; the others are left as they are. */
static tconv_status execute(const tconv_plan *plan, bool one_call)
{
    unsigned char *at[ARGUMENTS];
    tconv_tensor tensors[WORKSPACE];
    const void *const data[] = {layer.src_data, layer.weights_data, layer.bias_data};
    for (int i = 0; i < ARGUMENTS; i++)
        at[i] = arena.bytes + arena.at[i];
    for (int i = 0; i < WORKSPACE; i++)
        tensors[i] = (tconv_tensor){at[i], TCONV_F32, TCONV_LOCATION_HOST};
    for (int i = 0; i < DST; i++)
        memcpy(at[i], data[i], arena.size[i]);
    if (one_call)
        return tconv_conv_transpose2d(&layer.desc, NULL, &tensors[SRC], &tensors[WEIGHTS], &tensors[BIAS],
                                      &tensors[DST], &issue);
    tconv_status status = tconv_plan_execute(plan, &tensors[SRC], &tensors[WEIGHTS], &tensors[BIAS], &tensors[DST],
                                             at[WORKSPACE], arena.size[WORKSPACE], NULL);
    tconv_last_issue(&issue);
    return status;
}

static void expect_taken(const tconv_plan *plan)
{
    for (int one_call = 0; one_call < 2; one_call++) {
        tconv_status status = execute(plan, one_call);
        cr_assert_eq(status, TCONV_SUCCESS, "%s", issue.message);
        cr_assert_eq(memcmp(arena.bytes + arena.at[DST], layer.expected, sizeof layer.expected), 0);
    }
}

static void expect_refused(const tconv_plan *plan, int writes, int other)
{
    char stated[64];
    static unsigned char before[sizeof arena.bytes];
    snprintf(stated, sizeof stated, " bytes: must not overlap %s = ", names[other]);
    for (int one_call = 0; one_call < (writes == WORKSPACE ? 1 : 2); one_call++) {
        tconv_status status = execute(plan, one_call);
        expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, names[writes], stated);
        memcpy(before, arena.bytes, sizeof before);
        execute(plan, one_call);
        cr_assert_arr_eq(before, arena.bytes, sizeof before, "a refused call wrote");
    }
}

/* Takes each pair of arguments of which one is written, and places one beside the other, one element into it from
 * either end, on top of it, and in its middle. The workspace moves by bytes. */
Test(overlap, dense_arguments_touch_but_do_not_overlap)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    for (int writes = DST; writes <= WORKSPACE; writes++)
        for (int other = SRC; other < writes; other++) {
            const size_t step = writes == WORKSPACE ? 1 : sizeof(float);
            spread(plan);
            const size_t at = arena.at[other], size = arena.size[other], own = arena.size[writes];
            arena.at[writes] = at + size;
            expect_taken(plan);
            arena.at[writes] = at - own;
            expect_taken(plan);
            const size_t inside[] = {at + size - step,  at - own + step,  at,
                                     at + size / 8 * 4, at - own / 8 * 4, at + size - own};
            for (size_t i = 0; i < COUNT(inside); i++) {
                arena.at[writes] = inside[i];
                expect_refused(plan, writes, other);
            }
        }
    tconv_plan_destroy(plan);
}

/* Memory that execute does not use may lie anywhere: weights beside packed ones, and the workspace past the bytes that
 * the plan needs. */
Test(overlap, what_is_not_used_may_overlap)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL), *packed;
    expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
    size_t needed;
    cr_assert_eq(tconv_plan_workspace_size(packed, &needed), TCONV_SUCCESS);
    tconv_status status = tconv_plan_execute(packed, &layer.src, &layer.dst, &layer.bias, &layer.dst, layer.workspace,
                                             sizeof layer.workspace, NULL);
    tconv_last_issue(&issue);
    expect_success(status, issue);
    cr_assert(small_layer_is_right(&layer));
    status = tconv_plan_execute(plan, &layer.src, &layer.weights, NULL, &layer.dst, layer.workspace, SIZE_MAX, NULL);
    tconv_last_issue(&issue);
    expect_success(status, issue);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);

    tconv_problem problem; /* a workspace of no bytes overlaps nothing */
    expect_success(tconv_problem_init(&problem, &layer.desc, &issue), issue);
    const tconv_memory_in_use memory = {{{&layer.src, &layer.weights, NULL, &layer.dst}}, layer.src_data + 1, 0};
    expect_success(tconv_overlap_check(&problem, &memory, &issue), issue);
}

/* Without images there is nothing to write but the gradient of the weights, which is 0. */
Test(overlap, no_images_write_no_images)
{
    tconv_problem problem;
    expect_success(tconv_problem_init(&problem, &layer.desc, &issue), issue);
    for (tconv_op op = TCONV_FORWARD; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        problem.desc.op = op;
        problem.batch = 1;
        cr_assert_not(tconv_operation_writes_nothing(&problem));
        problem.batch = 0;
        cr_assert_eq(tconv_operation_writes_nothing(&problem), op != TCONV_BACKWARD_WEIGHTS, "op %d", (int)op);
    }
}

/* For each operation, two arguments at one address are refused where one of them is written, whatever their
 * position. */
Test(overlap, roles_decide_what_is_written)
{
    static const unsigned written[] = {
        [TCONV_FORWARD] = TCONV_ROLE_BIT(DST),
        [TCONV_BACKWARD_DATA] = TCONV_ROLE_BIT(SRC),
        [TCONV_BACKWARD_WEIGHTS] = TCONV_ROLE_BIT(WEIGHTS) | TCONV_ROLE_BIT(BIAS),
    };
    static const unsigned unused[] = {[TCONV_BACKWARD_DATA] = TCONV_ROLE_BIT(BIAS), [TCONV_BACKWARD_WEIGHTS] = 0};
    tconv_problem problem;
    expect_success(tconv_problem_init(&problem, &layer.desc, &issue), issue);
    for (tconv_op op = TCONV_FORWARD; op <= TCONV_BACKWARD_WEIGHTS; op++)
        for (int a = SRC; a < ARGUMENTS; a++)
            for (int b = SRC; b < a; b++) {
                tconv_tensor tensors[ARGUMENTS];
                tconv_tensors given;
                for (int i = 0; i < ARGUMENTS; i++)
                    tensors[i] = (tconv_tensor){arena.bytes + 65536 * i, TCONV_F32, TCONV_LOCATION_HOST};
                tensors[a].data = tensors[b].data;
                memset(&given, 0, sizeof given);
                for (int role = SRC; role < WORKSPACE; role++)
                    given.of[role] = &tensors[role];
                problem.desc.op = op;
                const tconv_memory_in_use memory = {tconv_tensors_in_use(&problem, &given), tensors[WORKSPACE].data, 1};
                const unsigned pair = 1u << a | 1u << b, writes = written[op] | 1u << WORKSPACE;
                const bool meet = (pair & writes) != 0 && (pair & unused[op]) == 0;
                tconv_issue found = {TCONV_SUCCESS, "", ""};
                tconv_status status = tconv_overlap_check(&problem, &memory, &found);
                cr_assert_eq(status, meet ? TCONV_ERROR_INVALID_ARGUMENT : TCONV_SUCCESS, "op %d: %s and %s: %s",
                             (int)op, names[a], names[b], found.message);
                const char *name_a = a == WORKSPACE ? "workspace" : tconv_role_name(op, (tconv_role)a);
                const char *name_b = tconv_role_name(op, (tconv_role)b);
                const int named = strcmp(found.field, name_a) == 0 ? a : b;
                cr_assert(!meet ||
                              (strcmp(found.field, named == a ? name_a : name_b) == 0 && (1u << named & writes) != 0),
                          "op %d: %s and %s: %s", (int)op, names[a], names[b], found.message);
            }
}

/* ------------------------------------------------------------------------------------------------------------ slices */

/* src and dst in one tensor of floats, at element src_at and dst_at. */
struct slices {
    tconv_desc desc;
    int64_t src_at, dst_at;
};

static tconv_desc plain_layer(tconv_layout layout, int64_t batch, int64_t in_channels, int64_t out_channels, int64_t h,
                              int64_t w)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.layout = layout;
    desc.batch = batch, desc.in_channels = in_channels, desc.out_channels = out_channels;
    desc.in_h = h, desc.in_w = w, desc.kernel_h = desc.kernel_w = 1;
    return desc;
}

static void set_strides(int64_t strides[4], int64_t n, int64_t c, int64_t h, int64_t w)
{
    strides[0] = n, strides[1] = c, strides[2] = h, strides[3] = w;
}

/* Returns the answer of the library's check alone, which reads no memory. */
static tconv_status check(const struct slices *slices)
{
    tconv_problem problem;
    tconv_status status = tconv_problem_init(&problem, &slices->desc, &issue);
    cr_assert_eq(status, TCONV_SUCCESS, "%s", issue.message);
    const uintptr_t base = UINT64_C(1) << 40;
    const tconv_tensor src = {(void *)(base + 4 * (uintptr_t)slices->src_at), TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor dst = {(void *)(base + 4 * (uintptr_t)slices->dst_at), TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_memory_in_use memory = {{{&src, NULL, NULL, &dst}}, NULL, 0};
    return tconv_overlap_check(&problem, &memory, &issue);
}

/* Slices as networks have them: the decoder's half of a concatenation, a larger tensor's pixels, every other image. */
Test(overlap, slices_of_one_tensor_interleave)
{
    enum { N = 3, C = 8, H = 4, W = 5, P = H * W };
    struct slices slices = {plain_layer(TCONV_NCHW, N, 3, 5, H, W), 0, 0};
    set_strides(slices.desc.src_strides, C * P, P, W, 1);
    set_strides(slices.desc.dst_strides, C * P, P, W, 1);
    for (int64_t from = 0; from <= C; from++) { /* src is channels 0 to 2, dst five channels from `from` on */
        slices.dst_at = from * P;
        bool shares = from < 3 || from + 5 > C; /* the channels past the end of an image are the next image's */
        cr_assert_eq(check(&slices), shares ? TCONV_ERROR_INVALID_ARGUMENT : TCONV_SUCCESS, "channel %" PRId64, from);
    }
    slices.dst_at = 3 * P - 1; /* shifted by one element */
    cr_assert_eq(check(&slices), TCONV_ERROR_INVALID_ARGUMENT);
    slices.src_at = 5 * P, slices.dst_at = 0;
    cr_assert_eq(check(&slices), TCONV_SUCCESS, "dst before src");

    slices = (struct slices){plain_layer(TCONV_NHWC, N, 3, 5, H, W), 0, 0};
    set_strides(slices.desc.src_strides, C * P, 1, C * W, C);
    set_strides(slices.desc.dst_strides, C * P, 1, C * W, C);
    for (int64_t from = 0; from <= C; from++) {
        slices.dst_at = from;
        bool shares = from < 3 || from + 5 > C;
        cr_assert_eq(check(&slices), shares ? TCONV_ERROR_INVALID_ARGUMENT : TCONV_SUCCESS, "channel %" PRId64, from);
    }

    slices = (struct slices){plain_layer(TCONV_NCHW, N, C, C, H, W), 0, C * P};
    slices.desc.src_strides[0] = slices.desc.dst_strides[0] = 2 * C * P;
    cr_assert_eq(check(&slices), TCONV_SUCCESS, "every other image");
    slices.dst_at = 2 * C * P;
    cr_assert_eq(check(&slices), TCONV_ERROR_INVALID_ARGUMENT, "the next image");

    slices = (struct slices){plain_layer(TCONV_NCHW, 1, 4, 2, H, W), 0, P};
    slices.desc.src_strides[1] = 2 * P; /* every other channel, and every fourth of the others */
    slices.desc.dst_strides[1] = 4 * P;
    cr_assert_eq(check(&slices), TCONV_SUCCESS, "other strides, other places modulo both");
    slices.dst_at = 2 * P;
    cr_assert_eq(check(&slices), TCONV_ERROR_INVALID_ARGUMENT);
}

/* Accepted slices are computed right, and memory between them is left as it was. */
Test(overlap, slices_of_one_tensor_are_computed)
{
    enum { N = 2, P = 15, C = 10 };
    for (int layout = TCONV_NCHW; layout <= TCONV_NHWC; layout++) {
        float *whole = malloc(sizeof(float) * N * C * P), *copy = malloc(sizeof(float) * N * 4 * P);
        float *expected = malloc(sizeof(float) * N * 6 * P), weights[24];
        const bool nchw = layout == TCONV_NCHW;
        tconv_desc desc = plain_layer((tconv_layout)layout, N, 4, 6, 3, 5), dense = desc;
        const tconv_tensor w = {weights, TCONV_F32, TCONV_LOCATION_HOST};
        const tconv_tensor src = {whole, TCONV_F32, TCONV_LOCATION_HOST};
        const tconv_tensor dst = {whole + 4 * (nchw ? P : 1), TCONV_F32, TCONV_LOCATION_HOST};
        const tconv_tensor dense_src = {copy, TCONV_F32, TCONV_LOCATION_HOST};
        const tconv_tensor dense_dst = {expected, TCONV_F32, TCONV_LOCATION_HOST};
        set_strides(desc.src_strides, C * P, nchw ? P : 1, nchw ? 5 : 5 * C, nchw ? 1 : C);
        memcpy(desc.dst_strides, desc.src_strides, sizeof desc.dst_strides);
        for (int i = 0; i < 24; i++)
            weights[i] = (float)(i % 7 - 3);
        for (int i = 0; i < N * C * P; i++)
            whole[i] = (float)(i % 11 - 5);
        for (int n = 0; n < N; n++)
            for (int c = 0; c < 4; c++)
                for (int p = 0; p < P; p++)
                    copy[nchw ? (n * 4 + c) * P + p : (n * P + p) * 4 + c] =
                        whole[nchw ? (n * C + c) * P + p : (n * P + p) * C + c];
        expect_success(tconv_conv_transpose2d(&dense, NULL, &dense_src, &w, NULL, &dense_dst, &issue), issue);
        expect_success(tconv_conv_transpose2d(&desc, NULL, &src, &w, NULL, &dst, &issue), issue);
        for (int n = 0; n < N; n++)
            for (int c = 0; c < C; c++)
                for (int p = 0; p < P; p++) {
                    const float is = whole[nchw ? (n * C + c) * P + p : (n * P + p) * C + c];
                    const float was = (float)((nchw ? (n * C + c) * P + p : (n * P + p) * C + c) % 11 - 5);
                    const float made = c >= 4 ? expected[nchw ? (n * 6 + c - 4) * P + p : (n * P + p) * 6 + c - 4] : 0;
                    cr_assert_eq(is, c < 4 ? was : made, "image %d channel %d pixel %d", n, c, p);
                }
        free(whole), free(copy), free(expected);
    }
}

/* ------------------------------------------------------------------------------------------- against every element */

enum { ROOM = 4096 };

/* Marks the elements of a tensor with one bit. */
static bool mark(unsigned char map[ROOM], const harness_view *view, int64_t at, unsigned char bit)
{
    bool shares = false;
    for (int64_t a = 0; a < view->shape[0]; a++)
        for (int64_t b = 0; b < view->shape[1]; b++)
            for (int64_t c = 0; c < view->shape[2]; c++)
                for (int64_t d = 0; d < view->shape[3]; d++) {
                    int64_t i = at + harness_view_index(view, a, b, c, d);
                    cr_assert(i >= 0 && i < ROOM);
                    shares = shares || map[i] != 0;
                    map[i] = (unsigned char)(map[i] | bit);
                }
    return shares;
}

/* Draws random strides that are allowed: of images and of channels (NCHW) or pixels (NHWC), often dense. h counts the rows
 * of all planes. */
static void draw_strides(harness_random *random, tconv_layout layout, int64_t channels, int64_t h, int64_t w,
                         int64_t strides[4])
{
    const int64_t pixels = h * w, run = layout == TCONV_NCHW ? pixels : channels;
    const int64_t count = layout == TCONV_NCHW ? channels : pixels;
    const int64_t gap = harness_random_integer(random, -2, 6), image_gap = harness_random_integer(random, -4, 20);
    const int64_t stride = run + (gap > 0 ? gap : 0);
    const int64_t image =
        (image_gap > 10 ? count * stride : (count - 1) * stride + run) + (image_gap > 0 ? image_gap : 0);
    if (layout == TCONV_NCHW)
        set_strides(strides, image, stride, w, 1);
    else
        set_strides(strides, image, 1, w * stride, stride);
}

/* Of random pairs, half with the same strides, all that share an element are refused. Those that share none are taken
 * where their strides are the same or one of the two is dense. */
Test(overlap, agrees_with_every_element)
{
    enum { PAIRS = 200000 };
    harness_random random;
    int64_t shared = 0, apart = 0, taken_of_others = 0, others_apart = 0;
    harness_random_seed(&random, 18);
    for (int pair = 0; pair < PAIRS; pair++) {
        static unsigned char map[ROOM];
        struct slices slices;
        const tconv_layout layout = (tconv_layout)harness_random_integer(&random, 0, 1);
        const int64_t h = harness_random_integer(&random, 1, 3), w = harness_random_integer(&random, 1, 3);
        const int64_t batch = harness_random_integer(&random, 1, 3);
        tconv_desc *desc = &slices.desc;
        *desc = plain_layer(layout, batch, harness_random_integer(&random, 1, 4), harness_random_integer(&random, 1, 4),
                            h, w);
        desc->kernel_h = harness_random_integer(&random, 1, 2); /* dst has one row more */
        if (pair % 3 == 0) {
            desc->in_d = harness_random_integer(&random, 1, 2);
            desc->kernel_d = harness_random_integer(&random, 1, 2);
        }
        const int64_t out_h = h + desc->kernel_h - 1, out_d = desc->in_d + desc->kernel_d - 1;
        draw_strides(&random, layout, desc->in_channels, desc->in_d * h, w, desc->src_strides);
        draw_strides(&random, layout, desc->out_channels, out_d * out_h, w, desc->dst_strides);
        if (pair % 2 == 0) { /* slices of one larger tensor, with the strides that both need */
            for (int axis = 0; axis < 4; axis++) {
                const int64_t a = desc->src_strides[axis], b = desc->dst_strides[axis];
                desc->src_strides[axis] = desc->dst_strides[axis] = a > b ? a : b;
            }
            desc->src_strides[0] = desc->dst_strides[0] = desc->src_strides[0] + 40;
            desc->kernel_h = desc->kernel_d = 1;
        }
        if (tconv_validate(desc, &issue) != TCONV_SUCCESS)
            continue;
        const harness_view src = harness_src_view(desc), dst = harness_dst_view(desc);
        slices.src_at = harness_random_integer(&random, 0, dst.extent);
        slices.dst_at = harness_random_integer(&random, 0, src.extent);
        memset(map, 0, sizeof map);
        mark(map, &src, slices.src_at, 1);
        const bool shares = mark(map, &dst, slices.dst_at, 2);
        const bool refused = check(&slices) != TCONV_SUCCESS;
        const bool is_dense = src.extent == src.shape[0] * src.shape[1] * src.shape[2] * src.shape[3] ||
                              dst.extent == dst.shape[0] * dst.shape[1] * dst.shape[2] * dst.shape[3];
        cr_assert(refused || !shares, "pair %d shares an element and was taken", pair);
        cr_assert(!refused || shares || (pair % 2 != 0 && !is_dense), "pair %d shares none: %s", pair, issue.message);
        shared += shares;
        apart += !shares;
        others_apart += !shares && pair % 2 != 0 && !is_dense;
        taken_of_others += !refused && pair % 2 != 0 && !is_dense;
    }
    cr_assert(shared > PAIRS / 10 && apart > PAIRS / 10, "%" PRId64 " shared, %" PRId64 " did not", shared, apart);
    cr_assert_gt(taken_of_others, others_apart / 10, "of %" PRId64 " with other strides", others_apart);
}

/* Numbers are at the end of their type: strides of 2^60, ranges that wrap around the address space. No arithmetic
 * overflows, which the sanitizers would report, and identical tensors are refused. */
Test(overlap, numbers_at_the_end_of_their_type)
{
    static const int64_t strides[] = {0, 1 << 20, INT64_C(1) << 40, INT64_C(1) << 59, (INT64_C(1) << 60) - 1};
    static const uintptr_t addresses[] = {4, UINTPTR_MAX - 3, UINT64_C(1) << 63, UINT64_C(3) << 61, UINT64_C(1) << 40};
    harness_random random;
    harness_random_seed(&random, 5);
    for (int i = 0; i < 100000; i++) {
        tconv_desc desc = plain_layer((tconv_layout)(i % 2), harness_random_integer(&random, 1, 3),
                                      harness_random_integer(&random, 1, 3), harness_random_integer(&random, 1, 3),
                                      harness_random_integer(&random, 1, 3), 1);
        tconv_problem problem;
        int64_t *const all[] = {desc.src_strides, desc.dst_strides};
        for (int t = 0; t < 2; t++) {
            all[t][0] = strides[harness_random_integer(&random, 0, (int64_t)COUNT(strides) - 1)];
            all[t][i % 2 == 0 ? 1 : 2] = strides[harness_random_integer(&random, 0, (int64_t)COUNT(strides) - 1)];
        }
        if (tconv_problem_init(&problem, &desc, &issue) != TCONV_SUCCESS)
            continue;
        const tconv_tensor src = {(void *)addresses[harness_random_integer(&random, 0, 4)], TCONV_F32,
                                  TCONV_LOCATION_HOST};
        const tconv_tensor dst = {(void *)addresses[harness_random_integer(&random, 0, 4)], TCONV_F32,
                                  TCONV_LOCATION_HOST};
        const tconv_memory_in_use memory = {{{&src, &src, NULL, &dst}}, (void *)addresses[i % 5], (size_t)PTRDIFF_MAX};
        cr_assert(tconv_overlap_check(&problem, &memory, &issue) != TCONV_SUCCESS || src.data != dst.data);
    }
}
