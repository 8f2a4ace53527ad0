/*
 * No implementation reads or writes a byte that is not the layer's. Every tensor and the workspace lie next to pages
 * that may not be touched, before or behind them; src, weights and bias may not be written; the gaps of slices stay as
 * they were, and the workspace may begin anywhere.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "harness.h"
#include "support/cases.h"
#include "support/guard.h"
#include "support/part.h"
#include "support/ways.h"

#define RANDOM_LAYERS 400

static struct way ways[MAX_WAYS];
static size_t way_count;

/* Moves a tensor to guarded memory, read-only unless it is dst. */
static struct guarded guard_copy(const harness_buffer *buffer, int64_t elements, size_t size, enum guard_side side)
{
    struct guarded guarded = guard_allocate((size_t)elements * size, side);
    if (elements > 0) /* a layer without bias has no buffer */
        memcpy(guarded.data, buffer->data, (size_t)elements * size);
    guard_protect(&guarded);
    return guarded;
}

/* Executes the case with every tensor and the workspace next to forbidden pages, and compares. */
static void check_guarded(const harness_case *test, const struct way *way, enum guard_side side, int threads,
                          bool pack_once)
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    const size_t element = harness_element_size(dtype);
    tconv_options options = way_options(way);
    tconv_plan *plan, *packed = NULL;
    size_t size;
    tconv_issue issue;
    harness_failure failure;
    use_threads(&options, threads);
    if (tconv_plan_create(&test->layer.desc, &options, &plan, &issue) == TCONV_ERROR_UNSUPPORTED)
        return;
    struct guarded src = guard_copy(&test->src, test->src_view.extent, element, side);
    struct guarded weights = guard_copy(&test->weights, test->weights_view.extent, element, side);
    struct guarded bias =
        guard_copy(&test->bias, test->layer.has_bias ? test->layer.desc.out_channels : 0, element, side);
    struct guarded dst = guard_allocate((size_t)test->dst_view.extent * element, side);
    if (harness_case_adds_to(test, HARNESS_DST))
        memcpy(dst.data, test->dst.data, (size_t)test->dst_view.extent * element);
    struct guarded post[TCONV_MAX_POST_OPS];
    tconv_tensor operands[TCONV_MAX_POST_OPS];
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++) {
        const harness_role role = (harness_role)(HARNESS_POST + i);
        const tconv_dtype type = harness_role_dtype(&test->layer.desc, role);
        post[i] = guard_copy(&test->tensors[role], harness_case_reads(test, role) ? test->views[role].extent : 0,
                             harness_element_size(type), side);
        operands[i] = (tconv_tensor){post[i].data, type, TCONV_LOCATION_HOST};
    }
    const tconv_tensor s = {src.data, dtype, TCONV_LOCATION_HOST}, w = {weights.data, dtype, TCONV_LOCATION_HOST};
    const tconv_tensor b = {bias.data, dtype, TCONV_LOCATION_HOST}, d = {dst.data, dtype, TCONV_LOCATION_HOST};
    if (pack_once) {
        cr_assert_eq(tconv_plan_pack_weights(plan, &w, NULL, &packed, &issue), TCONV_SUCCESS, "%s", issue.message);
        guard_release(&weights); /* by the manual, they are not needed any more */
    }
    const tconv_plan *use = pack_once ? packed : plan;
    cr_assert_eq(tconv_plan_workspace_size(use, &size), TCONV_SUCCESS);
    struct guarded workspace = guard_allocate(size, side);
    tconv_operands all = {sizeof all, &s, pack_once ? NULL : &w, test->layer.has_bias ? &b : NULL, &d, {NULL}};
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        all.post[i] = harness_case_reads(test, (harness_role)(HARNESS_POST + i)) ? &operands[i] : NULL;
    cr_assert_eq(tconv_plan_execute_with(use, &all, workspace.data, size, NULL), TCONV_SUCCESS);

    /* harness_compare checks guard bytes of its own around dst, so that dst is copied to a buffer with guards. */
    harness_output output = {.implementation = way->implementation};
    output.dst = harness_buffer_create(test->dst_view.extent, element, 0);
    memcpy(output.dst.data, dst.data, (size_t)test->dst_view.extent * element);
    cr_assert(harness_compare(test, &output, &failure), "%s: %s", way->text, failure.text);
    harness_output_release(&output);
    guard_release(&workspace);
    guard_release(&src);
    guard_release(&bias);
    guard_release(&dst);
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        guard_release(&post[i]);
    if (!pack_once)
        guard_release(&weights);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
}

static void check_guarded_layer(const harness_layer *layer, size_t i, bool sampled)
{
    if (layer->desc.batch == 0)
        return;
    harness_case test = sampled ? make_sampled_case(layer, HARNESS_INTEGERS, i) : make_case(layer, HARNESS_INTEGERS, i);
    for (size_t w = 0; w < way_count; w++)
        if (!sampled || !way_is_reference(&ways[w])) /* the reference is slow */
            check_guarded(&test, &ways[w], i % 2 == 0 ? GUARD_AFTER : GUARD_BEFORE,
                          thread_counts[i / 2 % THREAD_COUNTS], (i + w) % 3 == 0);
    harness_case_destroy(&test);
}

Test(bounds, no_access_out_of_bounds_on_random_layers)
{
    harness_random random;
    harness_layer layer;
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    harness_random_seed(&random, 5);
    for (size_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_random_layer(&random, &layer);
        layer.desc.accumulate = i % 3 == 2;
        if (in_part(i))
            check_guarded_layer(&layer, i, false);
    }
}

Test(bounds, no_access_out_of_bounds_in_operands_of_post_ops)
{
    harness_random random;
    harness_layer layer;
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    harness_random_seed(&random, 6);
    for (size_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_random_layer(&random, &layer);
        layer.desc.accumulate = i % 3 == 2;
        do
            harness_draw_posts(&random, &layer.desc);
        while (!harness_has_integers(&layer));
        if (in_part(i))
            check_guarded_layer(&layer, i, false);
    }
}

Test(bounds, no_access_out_of_bounds_on_corners)
{
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer layer;
        harness_corner(i, &layer);
        /* i / 2 gives the two layouts of a corner the same side. */
        if (in_part(i))
            check_guarded_layer(&layer, i / 2, harness_corner_is_sampled(i, &layer));
    }
}

/* Planes without a tap are computed by layers of two axes that have more inputs than the layer's src. */
Test(bounds, no_access_out_of_bounds_where_planes_are_the_bias)
{
    enum { DEPTHS = 4 };
    static const int64_t depths[DEPTHS][2] = {{3, 1}, {5, 1}, {4, 2}, {6, 3}}; /* stride, dilation */
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < 8 * DEPTHS; i++) {
        harness_layer layer = {.has_bias = true};
        tconv_desc_init(&layer.desc);
        layer.desc.layout = (tconv_layout)(i % 2);
        layer.desc.batch = layer.desc.in_d = 1 + (int64_t)(i / 2 % 2);
        layer.desc.in_channels = layer.desc.groups = 1 + (int64_t)(i / 4 % 2);
        layer.desc.out_channels = 6;
        layer.desc.in_h = layer.desc.in_w = 1;
        layer.desc.kernel_h = layer.desc.kernel_w = 5;
        layer.desc.kernel_d = 2;
        layer.desc.stride_d = depths[i / 8][0];
        layer.desc.dilation_d = depths[i / 8][1];
        check_guarded_layer(&layer, i, false);
        check_guarded_layer(&layer, i + 1, false); /* pages before it, or behind it */
    }
}

Test(bounds, no_access_out_of_bounds_where_threads_share_the_work)
{
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < LARGER_LAYERS; i++)
        for (int form = 0; form < LARGER_FORMS; form++) {
            if (!in_part(i * LARGER_FORMS + (size_t)form))
                continue;
            harness_layer layer = larger_layer(i, form);
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, i);
            for (size_t w = 0; w < way_count; w++)
                if (!way_is_reference(&ways[w]))
                    check_guarded(&test, &ways[w], form % 2 == 0 ? GUARD_AFTER : GUARD_BEFORE,
                                  thread_counts[1 + i % (THREAD_COUNTS - 1)], form >= 4);
            harness_case_destroy(&test);
        }
}

/* The workspace begins at every address within two cache lines, and not a byte outside it is written. */
Test(bounds, workspace_at_any_address)
{
    enum { ADDRESSES = 128, ROOM = 256 };
    harness_layer layer;
    char message[128];
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    cr_assert(harness_problem_parse("n=2 ci=5 h=4 w=9 co=6 k=3 s=2 p=1 b=1", &layer, message, sizeof message));
    harness_case test = make_case(&layer, HARNESS_INTEGERS, 1);
    for (size_t w = 0; w < way_count; w++) {
        tconv_options options = way_options(&ways[w]);
        tconv_plan *plan;
        size_t size;
        harness_failure failure;
        tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, NULL);
        if (status == TCONV_ERROR_UNSUPPORTED)
            continue;
        cr_assert_eq(status, TCONV_SUCCESS);
        tconv_plan_workspace_size(plan, &size);
        unsigned char *memory = malloc(size + 2 * ROOM);
        cr_assert_not_null(memory);
        for (size_t at = ROOM / 2; at < ROOM / 2 + ADDRESSES; at++) {
            harness_output output = {.implementation = ways[w].implementation};
            output.dst = harness_buffer_create(test.dst_view.extent, sizeof(float), 0);
            const tconv_tensor s = {test.src.data, TCONV_F32, TCONV_LOCATION_HOST};
            const tconv_tensor v = {test.weights.data, TCONV_F32, TCONV_LOCATION_HOST};
            const tconv_tensor b = {test.bias.data, TCONV_F32, TCONV_LOCATION_HOST};
            const tconv_tensor d = {output.dst.data, TCONV_F32, TCONV_LOCATION_HOST};
            memset(memory, 0xa5, size + 2 * ROOM);
            cr_assert_eq(tconv_plan_execute(plan, &s, &v, &b, &d, memory + at, size, NULL), TCONV_SUCCESS);
            cr_assert(harness_compare(&test, &output, &failure), "%s: %s", ways[w].text, failure.text);
            for (size_t i = 0; i < size + 2 * ROOM; i++)
                cr_assert(memory[i] == 0xa5 || (i >= at && i < at + size), "%s wrote byte %zd of a workspace of %zu",
                          ways[w].text, (ssize_t)i - (ssize_t)at, size);
            harness_output_release(&output);
        }
        free(memory);
        tconv_plan_destroy(plan);
    }
    harness_case_destroy(&test);
}

/* Runs a layer that writes the middle channels of a larger tensor, as for a concatenation: the others keep every
 * bit. */
static void check_gaps(tconv_layout layout, const struct way *way)
{
    enum { IMAGES = 2, ALL = 11, FIRST = 3, OWN = 4, ROWS = 9, COLUMNS = 9, PIXELS = ROWS * COLUMNS };
    static float all[IMAGES * ALL * PIXELS];
    tconv_desc desc;
    tconv_options options = way_options(way);
    tconv_plan *plan;
    size_t size;
    float src[IMAGES * 2 * 25], weights[2 * OWN * 9];
    tconv_desc_init(&desc);
    desc.batch = IMAGES, desc.in_channels = 2, desc.in_h = desc.in_w = 5, desc.out_channels = OWN;
    desc.kernel_h = desc.kernel_w = 3, desc.stride_h = desc.stride_w = 2;
    desc.pad_top = desc.pad_left = desc.pad_bottom = desc.pad_right = 1;
    desc.layout = layout;
    desc.dst_strides[0] = ALL * PIXELS;
    if (layout == TCONV_NHWC)
        desc.dst_strides[3] = ALL;
    for (size_t i = 0; i < sizeof src / sizeof src[0]; i++)
        src[i] = (float)(i % 7) + 1;
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        weights[i] = (float)(i % 5) + 1;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        all[i] = -(float)i - 1;
    tconv_status status = tconv_plan_create(&desc, &options, &plan, NULL);
    if (status == TCONV_ERROR_UNSUPPORTED)
        return;
    cr_assert_eq(status, TCONV_SUCCESS);
    tconv_plan_workspace_size(plan, &size);
    void *workspace = malloc(size + 1);
    const tconv_tensor s = {src, TCONV_F32, TCONV_LOCATION_HOST}, w = {weights, TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor d = {all + FIRST * (layout == TCONV_NCHW ? PIXELS : 1), TCONV_F32, TCONV_LOCATION_HOST};
    cr_assert_eq(tconv_plan_execute(plan, &s, &w, NULL, &d, workspace, size, NULL), TCONV_SUCCESS);
    for (int i = 0; i < IMAGES * ALL * PIXELS; i++) {
        int channel = layout == TCONV_NCHW ? i / PIXELS % ALL : i % ALL;
        bool own = channel >= FIRST && channel < FIRST + OWN;
        cr_assert(own ? all[i] > 0 : all[i] == -(float)i - 1, "%s: element %d of channel %d is %g", way->text, i,
                  channel, (double)all[i]);
    }
    free(workspace);
    tconv_plan_destroy(plan);
}

Test(bounds, slices_leave_their_gaps_untouched)
{
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t w = 0; w < way_count; w++) {
        check_gaps(TCONV_NCHW, &ways[w]);
        check_gaps(TCONV_NHWC, &ways[w]);
    }
}
