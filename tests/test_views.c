/*
 * Layers seen as others (src/core/views.h). For random layers a loop over the formula, on the strides and axes of the
 * problem alone, gives the outputs of the layer and of its view, which must be the same numbers in the same places, each
 * written once. Phase tables of views are compared with those of their axes.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/views.h"
#include "support/seen_layer.h"

enum { LAYERS = 10000, LEAST_VIEWED = 700, MOST_PHASES = 64 };

static const tconv_allocator from_malloc;

static int64_t from_to(harness_random *random, int64_t least, int64_t most)
{
    return harness_random_integer(random, least, most);
}

/* Expects a view to have the outputs of the layer, each written once. */
static void expect_outputs(harness_random *random, const tconv_problem *problem, const struct seen_layer *view,
                           const char *name, int number)
{
    const size_t extent = (size_t)problem->dst_extent;
    const struct seen_layer plain = see_plainly(problem);
    struct tensors expected = make_tensors(random, problem), found = expected;
    found.dst = calloc(extent, sizeof *found.dst);
    found.written = calloc(extent, sizeof *found.written);
    cr_assert(found.dst != NULL && found.written != NULL);
    memcpy(found.dst, expected.dst, extent * sizeof *found.dst);
    compute_seen(&plain, &expected);
    compute_seen(view, &found);
    cr_expect(memcmp(found.dst, expected.dst, extent * sizeof *found.dst) == 0, "%s of layer %d: other outputs", name,
              number);
    cr_expect(memcmp(found.written, expected.written, extent * sizeof *found.written) == 0,
              "%s of layer %d: outputs left out or written twice", name, number);
    free(found.dst), free(found.written);
    release_tensors(&expected);
}

/* Expects a phase table to be that of an axis. */
static void expect_table(const tconv_axis *axis, const tconv_phase_table *table, const char *name, int number)
{
    tconv_phase_table expected;
    tconv_issue issue;
    cr_assert_eq(tconv_phases_create(axis, &from_malloc, &expected, &issue), TCONV_SUCCESS);
    cr_expect(table->stride == expected.stride && table->kernel_step == expected.kernel_step &&
                  table->shift_step == expected.shift_step && table->bias_only == expected.bias_only &&
                  table->max_taps == expected.max_taps && table->min_shift == expected.min_shift &&
                  table->max_shift == expected.max_shift,
              "%s of layer %d: another table", name, number);
    cr_assert_eq(table->count, expected.count, "%s of layer %d: other phases", name, number);
    cr_expect(memcmp(table->phases, expected.phases, (size_t)table->count * sizeof(tconv_phase)) == 0,
              "%s of layer %d: other phases", name, number);
    tconv_phases_release(&expected, &from_malloc);
}

/* ------------------------------------------------------------------------------------------------------ one pixel */

/* Returns whether each output of an axis has a tap. */
static bool has_taps(const tconv_axis *axis)
{
    for (int64_t output = 0; output < axis->out; output++) {
        bool found = false;
        int64_t input;
        for (int64_t kernel = 0; kernel < axis->kernel; kernel++)
            found |= find_input(axis, output, kernel, &input);
        if (!found)
            return false;
    }
    return true;
}

/* Returns whether channels are neighbours in src, and the outputs of a channel in dst. */
static bool lies_as_channels(const tconv_problem *problem)
{
    const int64_t columns = problem->w.out, outputs = problem->h.out * columns;
    return (problem->in_channels == 1 || problem->src.c == 1) && (columns == 1 || problem->dst.w == 1) &&
           (problem->h.out == 1 || problem->dst.h == columns) &&
           (problem->out_channels == 1 || problem->dst.c == outputs);
}

static void check_one_pixel(harness_random *random, const tconv_layer *layer, int number)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t columns = problem->w.out, outputs = problem->h.out * columns;
    tconv_problem flat = *problem;
    tconv_phase phase;
    tconv_flatten_one_pixel(&flat);
    const tconv_phase_table table = tconv_one_phase(&flat.h, &phase);
    expect_table(&flat.h, &table, "one pixel", number);
    expect_table(&flat.w, &table, "one pixel", number);
    cr_expect_eq(flat.layout, TCONV_NHWC);
    struct seen_layer view = see_plainly(&flat);
    for (int64_t c = 0; c < flat.group_out; c++)
        view.weight_channel[c] = c / outputs * problem->weight.out +
                                 layer->rows.phases[c % outputs / columns].first_kernel * problem->weight.h +
                                 layer->columns.phases[c % columns].first_kernel * problem->weight.w;
    expect_outputs(random, problem, &view, "one pixel", number);
}

Test(views, outputs_of_one_pixel_are_channels)
{
    harness_random random;
    int viewed = 0, refused = 0;
    harness_random_seed(&random, 20261128);
    for (int number = 0; number < LAYERS; number++) {
        tconv_layer layer;
        tconv_desc desc = draw_seen_layer(&random);
        if (number % 8 != 0)
            draw_one_pixel(&random, &desc);
        if (!make_seen_layer(&random, &desc, &layer))
            continue;
        const tconv_problem *problem = &layer.problem;
        const bool expected =
            problem->h.in == 1 && problem->w.in == 1 && has_taps(&problem->h) && has_taps(&problem->w);
        cr_expect_eq(tconv_is_one_pixel(&layer), expected, "layer %d is%s one pixel", number, expected ? "" : " not");
        refused += !expected;
        if (expected && lies_as_channels(problem)) {
            check_one_pixel(&random, &layer, number);
            viewed++;
        }
        layer.phases_of_src = true;
        cr_expect_not(tconv_is_one_pixel(&layer), "layer %d has phases of src", number);
        release_seen_layer(&layer);
    }
    cr_expect(viewed >= LEAST_VIEWED && refused >= LEAST_VIEWED, "%d were viewed, %d refused", viewed, refused);
}

Test(views, one_phase_is_the_table_of_stride_1)
{
    harness_random random;
    harness_random_seed(&random, 20261129);
    for (int number = 0; number < LAYERS; number++) {
        const int64_t in = from_to(&random, 1, 9), kernel = from_to(&random, 1, 5), dilation = from_to(&random, 1, 4);
        const int64_t pad = from_to(&random, 0, 4), out = in + dilation * (kernel - 1) - pad;
        const tconv_axis axis = {.in = in, .out = out, .kernel = kernel, .stride = 1, .dilation = dilation, .pad = pad};
        tconv_phase phase;
        if (out < 1)
            continue;
        const tconv_phase_table table = tconv_one_phase(&axis, &phase);
        expect_table(&axis, &table, "an axis of stride 1", number);
        cr_expect_eq(tconv_is_one_pixel_axis(&axis), in == 1 && out == 1 && kernel == 1 && pad == 0);
    }
    const tconv_axis one = tconv_one_pixel_axis(), beside = {.in = 1, .out = 1, .kernel = 1, .stride = 4, .pad = 1};
    cr_expect_not(tconv_is_one_pixel_axis(&beside), "its output has no tap");
    cr_expect(tconv_is_one_pixel_axis(&one) && one.stride == 1 && one.dilation == 1);
}

/* --------------------------------------------------------------------------------------------- columns as channels */

/* Returns the most columns that may be channels, by trying all numbers. */
static int64_t find_most_columns(const tconv_axis *axis)
{
    int64_t most = 1;
    for (int64_t residue = 0; residue < axis->stride && residue < axis->out; residue++) {
        bool has_tap = false;
        for (int64_t k = 0; k < axis->kernel; k++)
            has_tap |= (residue + axis->pad - k * axis->dilation) % axis->stride == 0;
        if (!has_tap)
            return 1;
    }
    for (int64_t columns = 2; columns <= axis->stride && axis->dilation == 1; columns++)
        if (axis->stride % columns == 0 && axis->kernel % columns == 0 && axis->pad % columns == 0 &&
            axis->out % columns == 0)
            most = columns;
    return most;
}

/* Has what the columns of a layer can be cut by in most of their numbers. */
static void draw_columns(harness_random *random, tconv_desc *desc)
{
    const int64_t columns = from_to(random, 2, 4);
    desc->stride_w = columns * from_to(random, 1, 2);
    desc->kernel_w = from_to(random, 0, 7) ? desc->stride_w * from_to(random, 1, 2) : columns;
    desc->dilation_w = from_to(random, 0, 15) ? 1 : 3;
    desc->pad_left = columns * from_to(random, 0, 1) + from_to(random, 0, 9) / 9;
    desc->pad_right = columns * from_to(random, 0, 1) + from_to(random, 0, 9) / 9;
    desc->output_padding_w = 0;
    if (from_to(random, 0, 3) == 0)
        desc->groups = 1, desc->out_channels = from_to(random, 1, 3), desc->in_channels = from_to(random, 1, 3);
}

/* Checks the view whose channels are (channel, column), or (column, channel) where those lie so. */
static void check_columns(harness_random *random, const tconv_layer *layer, int64_t columns, int number)
{
    const tconv_problem *problem = &layer->problem;
    tconv_layer viewed = *layer;
    tconv_phase phases[MOST_PHASES];
    cr_assert_leq(layer->columns.count, MOST_PHASES);
    tconv_columns_as_channels(&viewed, columns, phases);
    expect_table(&viewed.problem.w, &viewed.columns, "columns", number);
    expect_table(&viewed.problem.h, &viewed.rows, "columns", number);
    cr_expect_eq(viewed.problem.w.out * columns, problem->w.out);
    cr_expect_eq(viewed.problem.out_channels, viewed.problem.groups * viewed.problem.group_out);
    struct seen_layer view = see_plainly(&viewed.problem);
    for (int64_t c = 0; c < viewed.problem.out_channels; c++) {
        view.dst_channel[c] = c / columns * viewed.problem.dst.c + c % columns * (viewed.problem.dst.w / columns);
        view.weight_channel[c] =
            c / columns * viewed.problem.weight.out + c % columns * (viewed.problem.weight.w / columns);
    }
    expect_outputs(random, problem, &view, "columns", number);
    if (problem->groups != 1 || problem->dst.w != problem->out_channels)
        return;
    for (int64_t c = 0; c < viewed.problem.out_channels; c++) {
        view.dst_channel[c] = c;
        view.weight_channel[c] =
            c % problem->out_channels * problem->weight.out + c / problem->out_channels * problem->weight.w;
    }
    expect_outputs(random, problem, &view, "columns inside", number);
}

Test(views, columns_are_channels)
{
    harness_random random;
    int viewed = 0, refused = 0;
    harness_random_seed(&random, 20261130);
    for (int number = 0; number < LAYERS; number++) {
        tconv_layer layer;
        tconv_desc desc = draw_seen_layer(&random);
        if (number % 8 != 0)
            draw_columns(&random, &desc);
        if (!make_seen_layer(&random, &desc, &layer))
            continue;
        const int64_t most = tconv_most_columns_as_channels(&layer);
        cr_expect_eq(most, find_most_columns(&layer.problem.w), "layer %d: %lld columns", number, (long long)most);
        for (int64_t columns = 2; columns <= most; columns++)
            if (most % columns == 0)
                check_columns(&random, &layer, columns, number);
        viewed += most > 1;
        refused += most == 1;
        release_seen_layer(&layer);
    }
    cr_expect(viewed >= LEAST_VIEWED && refused >= LEAST_VIEWED, "%d were viewed, %d refused", viewed, refused);
}

/* ---------------------------------------------------------------------------------------------------- fused groups */

Test(views, fused_groups_have_block_diagonal_weights)
{
    harness_random random;
    int viewed = 0;
    harness_random_seed(&random, 20261201);
    for (int number = 0; number < LAYERS; number++) {
        tconv_layer layer;
        tconv_desc desc = draw_seen_layer(&random);
        if (!make_seen_layer(&random, &desc, &layer))
            continue;
        const tconv_problem *problem = &layer.problem;
        for (int64_t fused = 2; fused <= problem->groups; fused++) {
            if (problem->groups % fused != 0)
                continue;
            tconv_problem wide = *problem;
            tconv_fuse_groups(&wide, fused);
            cr_expect(wide.groups * wide.group_in == wide.in_channels &&
                          wide.groups * wide.group_out == wide.out_channels && wide.groups * fused == problem->groups,
                      "layer %d: other channels", number);
            struct seen_layer view = see_plainly(&wide);
            view.diagonal_in = problem->group_in;
            view.diagonal_out = problem->group_out;
            for (int64_t c = 0; c < wide.group_out; c++)
                view.weight_channel[c] = c % problem->group_out * problem->weight.out;
            expect_outputs(&random, problem, &view, "fused groups", number);
            viewed++;
        }
        release_seen_layer(&layer);
    }
    cr_expect_geq(viewed, LEAST_VIEWED, "%d were viewed", viewed);
}
