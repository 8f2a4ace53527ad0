/* The harness on layers with depth: their texts, samples and answers. These are tests of the suite harness. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/core/problem.h"
#include "harness.h"
#include "support/expect.h"

/* --------------------------------------------------------------------------------------------------------------- texts */

static harness_layer parse(const char *problem)
{
    harness_layer layer;
    char message[160];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "\"%s\": %s", problem, message);
    return layer;
}

Test(harness, lists_of_volumes_begin_with_depth)
{
    const harness_layer layer = parse("n=2 ci=4 z=3 h=5 w=6 co=8 k=2x3x4 s=5x6x7 p=1x2x3x4x5x6 op=4x5x6 d=2x3x1 g=2 "
                                      "ss=900x110x30x6x1 ds=1x2x3x4x5 post=add_tensor:1 as=6x7x8x9x10");
    const tconv_desc *desc = &layer.desc;
    cr_assert(desc->in_d == 3 && desc->kernel_d == 2 && desc->stride_d == 5 && desc->dilation_d == 2);
    cr_assert(desc->kernel_h == 3 && desc->kernel_w == 4 && desc->stride_h == 6 && desc->stride_w == 7);
    cr_assert(desc->pad_front == 1 && desc->pad_top == 2 && desc->pad_left == 3);
    cr_assert(desc->pad_back == 4 && desc->pad_bottom == 5 && desc->pad_right == 6);
    cr_assert(desc->output_padding_d == 4 && desc->output_padding_h == 5 && desc->output_padding_w == 6);
    cr_assert(desc->src_strides[1] == 110 && desc->src_stride_d == 30 && desc->src_strides[2] == 6);
    cr_assert(desc->dst_strides[1] == 2 && desc->dst_stride_d == 3 && desc->dst_strides[3] == 5);
    cr_assert(desc->addend_strides[0] == 6 && desc->addend_stride_d == 8 && desc->addend_strides[2] == 9);
}

Test(harness, one_number_stands_for_all_axes_and_three_for_both_sides)
{
    const harness_layer layer = parse("k=3 s=2 p=1x2x3 op=1 d=4 ci=1 h=2 w=2 co=1 z=2"); /* z= may be anywhere */
    const tconv_desc *desc = &layer.desc;
    cr_assert(desc->kernel_d == 3 && desc->stride_d == 2 && desc->dilation_d == 4 && desc->output_padding_d == 1);
    cr_assert(desc->pad_front == 1 && desc->pad_back == 1 && desc->pad_top == 2 && desc->pad_bottom == 2);
    cr_assert(desc->pad_left == 3 && desc->pad_right == 3);
}

Test(harness, depth_that_changes_nothing_is_not_written)
{
    static const char *const trivial[] = {"ci=2 h=3 w=4 co=5 k=3 s=2", "ci=2 z=1 h=3 w=4 co=5 k=1x3x3 s=2",
                                          "ci=2 z=1 h=3 w=4 co=5 k=1x3x3 s=4x2x2 d=7x1x1 p=0x0x0x2x0x0 op=2x0x0"};
    char first[HARNESS_LAYER_TEXT], text[HARNESS_LAYER_TEXT];
    for (size_t i = 0; i < sizeof trivial / sizeof trivial[0]; i++) {
        const harness_layer layer = parse(trivial[i]);
        cr_assert_not(harness_has_depth(&layer.desc));
        harness_layer_format(&layer, i == 0 ? first : text, sizeof text);
        cr_assert(i == 0 || strcmp(first, text) == 0, "\"%s\" is written as %s", trivial[i], text);
    }
    static const char *const deep[] = {"ci=1 z=2 h=1 w=1 co=1 k=1", "ci=1 z=1 h=1 w=1 co=1 k=2x1x1",
                                       "ci=1 z=1 h=1 w=1 co=1 k=1 s=2x1x1 op=1x0x0",
                                       "ci=1 z=1 h=1 w=1 co=1 k=1 s=4x1x1 op=1x0x0 p=1x0x0x0x0x0"};
    for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++) {
        const harness_layer layer = parse(deep[i]);
        cr_assert(harness_has_depth(&layer.desc), "%s", deep[i]);
        harness_layer_format(&layer, text, sizeof text);
        cr_assert_not_null(strstr(text, " z="), "%s", text);
    }
}

/* What the library writes is read here, and gives a layer that it writes in the same words. */
Test(harness, texts_of_the_library_are_read)
{
    harness_random random;
    size_t deep = 0;
    harness_random_seed(&random, 21);
    for (int i = 0; i < 3000; i++) {
        harness_layer layer, again;
        tconv_problem problem;
        tconv_issue issue;
        char text[1536], twice[1536], message[160];
        harness_class_layer(&random, &layer);
        if (layer.desc.op == TCONV_FORWARD && i % 2 == 0)
            harness_draw_posts(&random, &layer.desc);
        expect_success(tconv_problem_init(&problem, &layer.desc, &issue), issue);
        const int length = tconv_problem_format(&problem, layer.has_bias, text, sizeof text);
        cr_assert(length > 0 && length < 1024, "%d bytes: %s", length, text);
        char *const start = strchr(text, '"') + 1, *const end = strchr(start, '"');
        *end = '\0';
        cr_assert(harness_problem_parse(start, &again, message, sizeof message), "\"%s\": %s", start, message);
        *end = '"';
        again.desc.dtype = layer.desc.dtype, again.desc.layout = layer.desc.layout;
        again.desc.weight_layout = layer.desc.weight_layout, again.desc.math = layer.desc.math;
        again.desc.op = layer.desc.op;
        expect_success(tconv_problem_init(&problem, &again.desc, &issue), issue);
        tconv_problem_format(&problem, again.has_bias, twice, sizeof twice);
        cr_assert_str_eq(text, twice);
        cr_assert_eq(strstr(text, " z=") != NULL, harness_has_depth(&layer.desc), "%s", text);
        deep += harness_has_depth(&layer.desc);
    }
    cr_assert_gt(deep, 200);
}

/* ------------------------------------------------------------------------------------------------------------- samples */

Test(harness, samples_reach_the_ends_of_volumes_and_every_phase_of_planes)
{
    enum { PLANES = 4 * 3 + 2, ROWS = 5, STRIDE_D = 4 };
    const harness_layer layer = parse("n=2 ci=2 z=4 h=3 w=2 co=3 k=2x1x2 s=4x2x1 p=0x0x0 d=1");
    static bool seen[PLANES];
    harness_case test;
    harness_random random;
    tconv_issue issue;
    unsigned ends = 0;
    expect_success(harness_case_create_sampled(&test, &layer, HARNESS_REALS, 3, &issue), issue);
    const harness_view *view = &test.dst_view;
    cr_assert(view->planes == PLANES && harness_view_rows(view) == ROWS && view->shape[3] == 3);
    harness_random_seed(&random, 3);
    for (int64_t i = 0; i < harness_placed_samples(&test, HARNESS_DST); i++) {
        int64_t at[4];
        harness_pick_sample(&test, HARNESS_DST, i, &random, at);
        cr_assert_eq(memcmp(at, test.answers[HARNESS_DST].samples[i].at, sizeof at), 0, "sample %d replays", (int)i);
        const int64_t plane = at[2] / ROWS, row = at[2] % ROWS;
        const int64_t axes[5] = {at[0], at[1], row, at[3], plane}, most[5] = {1, 2, ROWS - 1, 2, PLANES - 1};
        for (unsigned end = 0; end < 32; end++) {
            bool is_there = true;
            for (unsigned axis = 0; axis < 5; axis++)
                is_there &= axes[axis] == (end >> axis & 1 ? most[axis] : 0);
            ends |= (unsigned)is_there << end;
        }
        seen[plane] = true;
    }
    cr_assert_eq(ends, 0xffffffffu, "%x", ends);
    for (int plane = 0; plane < PLANES; plane++)
        cr_assert(seen[plane] || (plane >= STRIDE_D && plane < PLANES - STRIDE_D), "no sample in plane %d", plane);
    harness_case_destroy(&test);
}

/* ------------------------------------------------------------------------------------------------------------- answers */

/* Makes the rows of a layer its planes: with one column of memory less, the same layer. */
static harness_layer turn_rows_into_planes(const harness_layer *layer)
{
    harness_layer turned = *layer;
    tconv_desc *desc = &turned.desc;
    desc->in_d = desc->in_h, desc->kernel_d = desc->kernel_h, desc->stride_d = desc->stride_h;
    desc->dilation_d = desc->dilation_h, desc->pad_front = desc->pad_top, desc->pad_back = desc->pad_bottom;
    desc->output_padding_d = desc->output_padding_h;
    desc->in_h = desc->kernel_h = desc->stride_h = desc->dilation_h = 1;
    desc->pad_top = desc->pad_bottom = desc->output_padding_h = 0;
    return turned;
}

/* The formula with depth, on layers whose rows are planes, against the library's reference on the layers of two axes. */
Test(harness, answers_with_rows_as_planes_are_those_of_two_axes)
{
    harness_random random;
    int deep = 0;
    harness_random_seed(&random, 9);
    for (uint64_t i = 0; i < 200; i++) {
        harness_layer layer;
        harness_case flat, turned;
        tconv_issue issue;
        harness_class_layer(&random, &layer);
        harness_drop_depth(&layer.desc);
        harness_make_dense(&layer.desc);
        const harness_layer planes = turn_rows_into_planes(&layer);
        const harness_fill fill = i % 2 == 0 && harness_has_integers(&layer) ? HARNESS_INTEGERS : HARNESS_REALS;
        expect_success(harness_case_create(&flat, &layer, fill, i, &issue), issue);
        expect_success(harness_case_create(&turned, &planes, fill, i, &issue), issue);
        deep += harness_has_depth(&planes.desc);
        for (int role = 0; role < HARNESS_ROLES; role++) {
            const harness_answer *a = &flat.answers[role], *b = &turned.answers[role];
            cr_assert_eq(a->expected == NULL, b->expected == NULL);
            for (int64_t e = 0; a->expected != NULL && e < harness_view_elements(&flat.views[role]); e++) {
                const double size = a->bound != NULL ? a->bound[e] : fabs(a->expected[e]);
                cr_assert_leq(fabs(a->expected[e] - b->expected[e]), 0x1p-44 * size, "layer %d, role %d", (int)i, role);
            }
        }
        harness_case_destroy(&flat);
        harness_case_destroy(&turned);
    }
    cr_assert_gt(deep, 100);
}

Test(harness, a_wrong_element_is_named_with_its_plane)
{
    harness_layer layer = parse("n=2 ci=3 z=3 h=4 w=5 co=4 k=3 s=2 p=1 b=1");
    harness_case test;
    harness_output output;
    harness_failure failure;
    tconv_issue issue;
    expect_success(harness_case_create(&test, &layer, HARNESS_INTEGERS, 3, &issue), issue);
    expect_success(harness_run(&test, NULL, false, &output, &issue), issue);
    cr_assert(harness_compare(&test, &output, &failure), "%s", failure.text);
    const int64_t index = harness_view_index(&test.dst_view, 1, 2, harness_view_row(&test.dst_view, 3, 4), 5);
    ((float *)output.dst.data)[index] += 1;
    cr_assert_not(harness_compare(&test, &output, &failure));
    cr_assert_not_null(strstr(failure.text, "n=1 c=2 d=3 h=4 w=5: got"), "%s", failure.text);
    harness_output_release(&output);
    harness_case_destroy(&test);
}
