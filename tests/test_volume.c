/*
 * Layers with depth. The parts of an axis (src/core/volume.h) are compared with the formula: each plane that the operation
 * writes has one part, which sums what the formula sums. Then plans: what they hold, whom they ask, and what they leave
 * behind where memory runs out. That their numbers are right is what the suites of all layers say.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/problem.h"
#include "../src/core/volume.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "harness.h"
#include "support/counting_allocator.h"
#include "support/expect.h"

enum { AXES = 4000, MOST_PLANES = 64, MOST_KERNEL = 8, COPIES = 1000 };

static const tconv_allocator from_malloc;
static tconv_issue issue;

/* A layer with depth of one pixel a plane, unless the test sets more. */
static tconv_desc deep_desc(tconv_op op)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.in_channels = desc.out_channels = 1;
    desc.in_h = desc.in_w = desc.kernel_h = desc.kernel_w = 1;
    desc.op = op;
    return desc;
}

/* Draws depth; false where there is no output or too many. */
static bool draw_depth(harness_random *random, tconv_desc *desc)
{
    desc->in_d = harness_random_integer(random, 1, 7);
    desc->kernel_d = harness_random_integer(random, 1, MOST_KERNEL - 1);
    desc->stride_d = harness_random_integer(random, 1, 5);
    desc->dilation_d = harness_random_integer(random, 1, 4);
    desc->pad_front = harness_random_integer(random, 0, 6);
    desc->pad_back = harness_random_integer(random, 0, 6);
    const int64_t most = desc->stride_d > desc->dilation_d ? desc->stride_d : desc->dilation_d;
    desc->output_padding_d = harness_random_integer(random, 0, most - 1);
    tconv_problem problem;
    return tconv_problem_init(&problem, desc, &issue) == TCONV_SUCCESS && problem.d.out <= MOST_PLANES &&
           tconv_has_depth(&problem);
}

/* How often an output, or in the gradients of the weights a kernel plane, sums plane `read` by kernel plane `kernel`. */
struct sums {
    int written[MOST_PLANES];
    int count[MOST_PLANES][MOST_PLANES][MOST_KERNEL]; /* of dst, of src, kernel */
};

static int64_t plane(const tconv_plane_walk *walk, int64_t image, int64_t tap)
{
    return walk->first + walk->step * image + walk->tap * tap;
}

/* Enters what the parts of a problem sum; planes that are not there may be named by parts that are not whole. */
static void enter(const tconv_problem *problem, const tconv_volume_parts *parts, bool exact, struct sums *sums)
{
    const tconv_axis *d = &problem->d;
    for (int64_t p = 0; p < parts->count; p++) {
        const tconv_volume_part *part = &parts->parts[p];
        cr_assert(part->whole || (!exact && part->taps > 1), "part %" PRId64, p);
        for (int64_t i = 0; i < part->images; i++) {
            const int64_t written = problem->desc.op == TCONV_FORWARD         ? plane(&part->dst, i, 0)
                                    : problem->desc.op == TCONV_BACKWARD_DATA ? plane(&part->src, i, 0)
                                                                              : plane(&part->kernel, i, 0);
            if (problem->desc.op != TCONV_BACKWARD_WEIGHTS || i == 0)
                sums->written[written]++;
            for (int64_t t = 0; t < part->taps; t++) {
                const int64_t src = plane(&part->src, i, t), dst = plane(&part->dst, i, t);
                const bool there = src >= 0 && src < d->in && dst >= 0 && dst < d->out;
                cr_assert(there || !part->whole, "part %" PRId64 " image %" PRId64 " tap %" PRId64, p, i, t);
                if (there)
                    sums->count[dst][src][plane(&part->kernel, i, t)]++;
            }
        }
    }
}

static void expect_formula(const tconv_problem *problem, const struct sums *sums, const char *text)
{
    const tconv_axis *d = &problem->d;
    const int64_t writes = problem->desc.op == TCONV_FORWARD         ? d->out
                           : problem->desc.op == TCONV_BACKWARD_DATA ? d->in
                                                                     : d->kernel;
    for (int64_t plane_of = 0; plane_of < writes; plane_of++)
        cr_assert_eq(sums->written[plane_of], 1, "plane %" PRId64 " is written %d times: %s", plane_of,
                     sums->written[plane_of], text);
    for (int64_t dst = 0; dst < d->out; dst++)
        for (int64_t src = 0; src < d->in; src++)
            for (int64_t k = 0; k < d->kernel; k++)
                cr_assert_eq(sums->count[dst][src][k],
                             dst == problem->desc.stride_d * src + problem->desc.dilation_d * k - d->pad,
                             "dst %" PRId64 " src %" PRId64 " kernel %" PRId64 ": %s", dst, src, k, text);
}

Test(volume, parts_sum_what_the_formula_sums)
{
    harness_random random;
    static struct sums sums;
    int drawn = 0;
    harness_random_seed(&random, 53);
    while (drawn < AXES) {
        tconv_problem problem;
        tconv_volume_parts parts;
        char text[TCONV_PROBLEM_TEXT_SIZE];
        const bool exact = drawn % 2 == 0;
        tconv_desc desc = deep_desc((tconv_op)(drawn % 3));
        if (!draw_depth(&random, &desc))
            continue;
        cr_assert_eq(tconv_problem_init(&problem, &desc, &issue), TCONV_SUCCESS);
        tconv_problem_format(&problem, false, text, sizeof text);
        expect_success(tconv_volume_parts_create(&problem, exact, &from_malloc, &parts, &issue), issue);
        memset(&sums, 0, sizeof sums);
        enter(&problem, &parts, exact, &sums);
        expect_formula(&problem, &sums, text);
        tconv_volume_parts_release(&parts, &from_malloc);
        drawn++;
    }
}

/* Kernels of thousands of planes, of which few reach anything. */
Test(volume, parts_of_huge_axes_are_few)
{
    static const struct {
        int64_t in, kernel, stride, dilation;
        int64_t most; /* of parts */
    } axes[] = {{1, 60000, 1, 1, 60000}, {3, 2, 1000000, 1, 8}, {2, 3, 7, 100000, 16}, {4, 50000, 50000, 1, 50000}};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        tconv_problem problem;
        tconv_volume_parts parts;
        tconv_desc desc = deep_desc(TCONV_FORWARD);
        desc.in_d = axes[i].in;
        desc.kernel_d = axes[i].kernel;
        desc.stride_d = axes[i].stride;
        desc.dilation_d = axes[i].dilation;
        expect_success(tconv_problem_init(&problem, &desc, &issue), issue);
        expect_success(tconv_volume_parts_create(&problem, true, &from_malloc, &parts, &issue), issue);
        cr_expect_leq(parts.count, axes[i].most, "axis %zu has %" PRId64 " parts", i, parts.count);
        tconv_volume_parts_release(&parts, &from_malloc);
    }
}

Test(volume, too_many_parts_are_refused)
{
    tconv_plan *plan;
    tconv_desc desc = deep_desc(TCONV_BACKWARD_WEIGHTS);
    desc.kernel_d = TCONV_MOST_PARTS + 1;
    desc.in_w = desc.kernel_w = 2; /* else depth is rows */
    expect_failure(tconv_plan_create(&desc, NULL, &plan, &issue), issue, TCONV_ERROR_OVERFLOW, "out_d",
                   "more than 65536 kinds");
    cr_assert_null(plan);
}

/* ------------------------------------------------------------------------------------------------- the same in memory */

static int64_t calls_of(const tconv_desc *desc)
{
    tconv_plan *plan;
    char text[2048];
    size_t length;
    tconv_options options;
    tconv_options_init(&options);
    options.threads = 1;
    options.backend = TCONV_BACKEND_CPU;
    expect_success(tconv_plan_create(desc, &options, &plan, &issue), issue);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, &length), TCONV_SUCCESS);
    tconv_plan_destroy(plan);
    const char *calls = strstr(text, " calls=");
    return calls == NULL ? -1 : strtoll(calls + strlen(" calls="), NULL, 10);
}

Test(volume, what_is_a_layer_of_two_axes_in_memory_is_one_call)
{
    tconv_desc desc = deep_desc(TCONV_FORWARD);
    desc.batch = 3;
    desc.in_channels = 4, desc.out_channels = 6;
    desc.in_d = 5, desc.in_h = 4, desc.in_w = 7;
    desc.kernel_h = desc.kernel_w = desc.stride_h = desc.stride_w = 2;
    cr_expect_eq(calls_of(&desc), 1, "1 x 2 x 2: planes are rows");
    desc.kernel_h = 3;
    cr_expect_eq(calls_of(&desc), 3, "rows overlap: an image for each plane, a call for each volume");
    desc.layout = TCONV_NHWC;
    cr_expect_eq(calls_of(&desc), 1, "planes of all volumes are images, equally far apart");
    desc.layout = TCONV_NCHW;
    desc.kernel_h = desc.kernel_w = desc.stride_h = desc.stride_w = 1;
    desc.kernel_d = 5, desc.stride_d = 2, desc.pad_front = 1;
    cr_expect_eq(calls_of(&desc), 1, "5 x 1 x 1: depth is rows");
    desc.in_d = desc.kernel_d = desc.stride_d = 1, desc.pad_front = 0;
    cr_expect_eq(calls_of(&desc), -1, "one plane: the layer of two axes");
}

/* --------------------------------------------------------------------------------------------------------------- plans */

static tconv_desc plain_desc(tconv_op op)
{
    tconv_desc desc = deep_desc(op);
    desc.batch = 2;
    desc.in_channels = 6, desc.out_channels = 4;
    desc.in_d = 4, desc.in_h = 5, desc.in_w = 3;
    desc.kernel_d = 3, desc.kernel_h = 3, desc.kernel_w = 2;
    desc.stride_d = 2, desc.stride_h = 2;
    desc.pad_front = 1;
    return desc;
}

Test(volume, an_implementation_by_name_computes_the_parts)
{
    const char *const names[] = {"cpu_reference", "cpu_phases"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const tconv_desc desc = plain_desc(TCONV_FORWARD);
        tconv_options options;
        tconv_plan *plan;
        tconv_options_init(&options);
        options.implementation = names[i];
        expect_success(tconv_plan_create(&desc, &options, &plan, &issue), issue);
        cr_expect_str_eq(tconv_plan_implementation(plan), names[i]);
        tconv_plan_destroy(plan);
    }
}

Test(volume, an_implementation_that_takes_no_part_is_refused)
{
    const tconv_desc desc = plain_desc(TCONV_FORWARD);
    tconv_options options;
    tconv_plan *plan;
    tconv_options_init(&options);
    options.implementation = "cpu_carry";
    expect_failure(tconv_plan_create(&desc, &options, &plan, &issue), issue, TCONV_ERROR_UNSUPPORTED, "implementation",
                   "takes no part");
}

Test(volume, explain_speaks_of_the_largest_part)
{
    const tconv_desc desc = plain_desc(TCONV_FORWARD);
    char text[16384];
    expect_success(tconv_explain(&desc, NULL, "h200", TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue), issue);
    cr_expect_not_null(strstr(text, "z=4"));
    cr_expect_not_null(strstr(text, "largest_part"));
    cr_expect_not_null(strstr(text, "cuda_general"));
}

/* Makes a plan, packs weights, and destroys both; any allocation may fail. */
static tconv_status plan_and_pack(const tconv_desc *desc, const tconv_options *options)
{
    static float data[6 * 4 * 3 * 3 * 2];
    const tconv_tensor weights = {data, TCONV_F32, TCONV_LOCATION_HOST};
    tconv_plan *plan, *packed = NULL;
    size_t size, packed_size;
    tconv_status status = tconv_plan_create(desc, options, &plan, &issue);
    if (status == TCONV_SUCCESS && desc->op != TCONV_BACKWARD_WEIGHTS)
        status = tconv_plan_pack_weights(plan, &weights, NULL, &packed, &issue);
    if (status == TCONV_SUCCESS && packed != NULL) {
        tconv_plan_workspace_size(plan, &size);
        tconv_plan_workspace_size(packed, &packed_size);
        cr_expect_leq(packed_size, size, "packed weights need no more workspace");
    }
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
    return status;
}

/* Runs plan_and_pack where allocation number fail_at fails, none with 0; returns the number of allocations. */
static size_t expect_no_leak(tconv_op op, size_t fail_at)
{
    const tconv_desc desc = plain_desc(op);
    struct counting_allocator counting;
    tconv_options options;
    counting_init(&counting, fail_at);
    tconv_options_init(&options);
    options.allocator = counting.functions;
    options.threads = 2;
    const tconv_status status = plan_and_pack(&desc, &options);
    cr_assert_eq(status, fail_at == 0 ? TCONV_SUCCESS : TCONV_ERROR_OUT_OF_MEMORY, "op %d, allocation %zu: %s", (int)op,
                 fail_at, issue.message);
    cr_assert_eq((size_t)counting.live, (size_t)0, "op %d, allocation %zu: blocks are left", (int)op, fail_at);
    cr_assert_eq((size_t)counting.wrong, (size_t)0);
    return counting.calls;
}

Test(volume, nothing_leaks_where_memory_runs_out)
{
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        const size_t calls = expect_no_leak((tconv_op)op, 0);
        cr_assert_gt(calls, (size_t)8);
        for (size_t fail_at = 1; fail_at <= calls; fail_at++)
            expect_no_leak((tconv_op)op, fail_at);
    }
}

/* -------------------------------------------------------------------------------------------------------------- copies */

/* Draws a copy of up to a few 10,000 elements, whose target is dense but for gaps between its outermost parts, and whose source
 * lies in the same order or in any other. Returns the elements of one plane of the source; *held is those of the target. */
static int64_t draw_copy(harness_random *random, tconv_plane_copy *copy, int64_t *held)
{
    static const int64_t many[] = {1, 1, 2, 3, 4, 8, 9, 16, 17, 40};
    int64_t from = 1, to = 1;
    const bool turned = harness_random_chance(random, 30);
    *copy = (tconv_plane_copy){.element_size = (size_t)2 << harness_random_integer(random, 0, 2)};
    for (int axis = TCONV_COPY_AXES - 1; axis >= 0; axis--) {
        copy->extents[axis] = many[harness_random_integer(random, 0, to < 400 ? 9 : to < 4000 ? 4 : 1)];
        copy->from[axis] = from;
        copy->to[axis] = to;
        from *= copy->extents[axis];
        to = to * copy->extents[axis] + (axis < 2 ? harness_random_integer(random, 0, 3) : 0);
    }
    for (int axis = TCONV_COPY_AXES - 2; turned && axis > 0; axis--) {
        const int64_t other = harness_random_integer(random, 0, axis), kept = copy->from[axis];
        copy->from[axis] = copy->from[other];
        copy->from[other] = kept;
    }
    copy->planes = harness_random_integer(random, 0, 4);
    copy->plane = harness_random_integer(random, -2, 2);
    copy->step = harness_random_integer(random, -1, 1);
    copy->tap = harness_random_integer(random, -1, 1);
    copy->plane_stride = 1;
    for (int axis = 0; axis < TCONV_COPY_AXES; axis++)
        copy->plane_stride += (copy->extents[axis] - 1) * copy->from[axis];
    *held = to;
    return copy->plane_stride;
}

/* Returns what volume.h says that a byte of a copied element is. */
static unsigned char expected_byte(const tconv_plane_copy *copy, const unsigned char *from, const int64_t at[],
                                   size_t byte)
{
    const int64_t plane = copy->plane + copy->step * at[1] + copy->tap * at[2];
    int64_t element = plane * copy->plane_stride;
    for (int axis = 0; axis < TCONV_COPY_AXES; axis++)
        element += at[axis] * copy->from[axis];
    return plane >= 0 && plane < copy->planes ? from[(size_t)element * copy->element_size + byte] : 0;
}

static void expect_copied(const tconv_plane_copy *copy, const unsigned char *from, const unsigned char *to,
                          int64_t held, int drawn)
{
    const size_t size = copy->element_size;
    unsigned char *expected = malloc((size_t)held * size);
    int64_t all = 1, at[TCONV_COPY_AXES];
    cr_assert_not_null(expected);
    memset(expected, 0xee, (size_t)held * size);
    for (int axis = 0; axis < TCONV_COPY_AXES; axis++)
        all *= copy->extents[axis];
    for (int64_t i = 0; i < all; i++) {
        int64_t rest = i, element = 0;
        for (int axis = TCONV_COPY_AXES - 1; axis >= 0; axis--) {
            at[axis] = rest % copy->extents[axis];
            rest /= copy->extents[axis];
            element += at[axis] * copy->to[axis];
        }
        for (size_t byte = 0; byte < size; byte++)
            expected[(size_t)element * size + byte] = expected_byte(copy, from, at, byte);
    }
    cr_assert(memcmp(expected, to, (size_t)held * size) == 0, "copy %d", drawn);
    free(expected);
}

Test(volume, the_cpu_copies_what_the_axes_say)
{
    harness_random random;
    harness_random_seed(&random, 54);
    for (int drawn = 0; drawn < COPIES; drawn++) {
        tconv_plane_copy copy;
        int64_t held;
        const int64_t plane_elements = draw_copy(&random, &copy, &held);
        tconv_target target = {.backend = TCONV_BACKEND_CPU};
        tconv_cpu_target_set(&target, (tconv_cpu_target){.threads = 1 + drawn % 3});
        unsigned char *const from = malloc((size_t)(plane_elements * 4) * copy.element_size);
        unsigned char *const to = malloc((size_t)held * copy.element_size);
        cr_assert(from != NULL && to != NULL);
        for (size_t i = 0; i < (size_t)(plane_elements * 4) * copy.element_size; i++)
            from[i] = (unsigned char)harness_random_integer(&random, 1, 255);
        memset(to, 0xee, (size_t)held * copy.element_size);
        if (drawn % 2 != 0)
            tconv_plane_copy_simplify(&copy);
        tconv_cpu_copy_planes(&target, &copy, from, to);
        expect_copied(&copy, from, to, held, drawn);
        free(from);
        free(to);
    }
}
