/*
 * Layers drawn by class. Where every parameter is drawn by itself, corners of several parameters hardly meet: groups by
 * blocks of channels that are not full by outputs without taps by bias came once in 200 layers. Here each part of a layer
 * first draws its class, each class as often as the others, and then numbers within it; a layer with more work than its
 * limit is cut down, not drawn again, which would favour small classes.
 */
#include "layer.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

/* The most multiply-adds and outputs of a layer; of one in LARGE_EVERY, which is worth several threads, more. */
#define MAX_MULTIPLY_ADDS 300000.0
#define MAX_OUTPUTS       60000.0
#define LARGER            8
#define LARGE_EVERY       4

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ------------------------------------------------------------------------------------------------------------ channels */

/* The channels of a group: one, a few, less than a vector of any instruction set, whole vectors, a channel more or less,
 * and any number of them. */
static int64_t draw_channels(harness_random *random)
{
    static const int64_t whole[] = {8, 16, 32, 48, 64, 128};
    const int64_t full = whole[harness_random_integer(random, 0, COUNT(whole) - 1)];
    switch (harness_random_integer(random, 0, 6)) {
    case 0: return 1;
    case 1: return harness_random_integer(random, 2, 5);
    case 2: return harness_random_integer(random, 6, 15);
    case 3: return full;
    case 4: return full + 1;
    case 5: return full - 1;
    default: return harness_random_integer(random, 17, 150);
    }
}

/* Groups: one, a few, many; of one input channel each, of one output channel each, of one of both (depthwise). */
static void draw_groups(harness_random *random, tconv_desc *desc)
{
    const int64_t kind = harness_random_integer(random, 0, 5);
    desc->groups = kind == 0                                        ? 1
                   : kind == 1 || harness_random_chance(random, 40) ? harness_random_integer(random, 2, 7)
                                                                    : harness_random_integer(random, 8, 70);
    desc->in_channels = desc->groups * (kind == 3 || kind == 5 ? 1 : draw_channels(random));
    desc->out_channels = desc->groups * (kind == 4 || kind == 5 ? 1 : draw_channels(random));
}

/* ---------------------------------------------------------------------------------------------------------------- axes */

/* One axis of a layer. */
struct axis {
    int64_t in, kernel, stride, dilation, before, after, output_padding;
};

/* Inputs: one, a few, some, whole vectors and one more or less, many. */
static int64_t draw_extent(harness_random *random)
{
    static const int64_t whole[] = {8, 16, 32, 64};
    switch (harness_random_integer(random, 0, 4)) {
    case 0: return 1;
    case 1: return harness_random_integer(random, 2, 4);
    case 2: return harness_random_integer(random, 5, 30);
    case 3: return whole[harness_random_integer(random, 0, COUNT(whole) - 1)] + harness_random_integer(random, -1, 1);
    default: return harness_random_integer(random, 31, 200);
    }
}

static void draw_window(harness_random *random, struct axis *axis)
{
    axis->kernel = axis->stride = axis->dilation = 1;
    switch (harness_random_integer(random, 0, 8)) {
    case 0: break;
    case 1: /* patches side by side */ axis->kernel = axis->stride = harness_random_integer(random, 2, 6); break;
    case 2: /* outputs without taps between those that have some */
        axis->kernel = harness_random_integer(random, 1, 3);
        axis->stride = axis->kernel + harness_random_integer(random, 1, 4);
        break;
    case 3: /* phases with as many taps each */
        axis->stride = harness_random_integer(random, 2, 5);
        axis->kernel = 2 * axis->stride;
        break;
    case 4: /* phases with different numbers of taps */
        axis->stride = harness_random_integer(random, 2, 5);
        axis->kernel = axis->stride + harness_random_integer(random, 1, 2 * axis->stride + 1);
        break;
    case 5: /* dense */ axis->kernel = harness_random_integer(random, 2, 7); break;
    case 6: /* dilated */
        axis->kernel = harness_random_integer(random, 2, 5);
        axis->dilation = harness_random_integer(random, 2, 6);
        axis->stride = harness_random_integer(random, 1, 3);
        break;
    case 7: { /* stride and dilation share a factor: whole phases have no tap */
        const int64_t factor = harness_random_integer(random, 2, 3);
        axis->kernel = harness_random_integer(random, 2, 5);
        axis->dilation = factor * harness_random_integer(random, 1, 3);
        axis->stride = factor * harness_random_integer(random, 1, 3);
        break;
    }
    default: /* long */
        axis->kernel = harness_random_integer(random, 12, 48);
        axis->stride = harness_random_integer(random, 1, 16);
    }
}

/* The outputs of an axis without padding. */
static int64_t uncropped(const struct axis *axis)
{
    return (axis->in - 1) * axis->stride + axis->dilation * (axis->kernel - 1) + 1;
}

/* Draws paddings: none, half of the kernel, on one side, uneven, beyond the kernel, and all but a few outputs. At least one
 * output is left. */
static void draw_padding(harness_random *random, struct axis *axis)
{
    const int64_t reach = axis->dilation * (axis->kernel - 1);
    int64_t *const sides[2] = {&axis->before, &axis->after};
    const int64_t side = harness_random_integer(random, 0, 1);
    axis->before = axis->after = 0;
    switch (harness_random_integer(random, 0, 5)) {
    case 0: break;
    case 1: axis->before = axis->after = reach / 2; break;
    case 2: *sides[side] = harness_random_integer(random, 0, reach + 1); break;
    case 3:
        axis->before = harness_random_integer(random, 0, reach + 2);
        axis->after = harness_random_integer(random, 0, reach + 2);
        break;
    case 4:
        axis->before = reach + harness_random_integer(random, 1, 3);
        axis->after = harness_random_integer(random, 0, 1) * axis->before;
        break;
    default: {
        const int64_t cropped = uncropped(axis) - harness_random_integer(random, 1, 3);
        *sides[side] = harness_random_integer(random, 0, most(0, cropped));
        *sides[1 - side] = most(0, cropped - *sides[side]);
    }
    }
    for (int i = 0; i < 2; ++i) {
        const int64_t over = axis->before + axis->after - (uncropped(axis) - 1);
        *sides[i] -= most(0, least(over, *sides[i]));
    }
    const int64_t limit = most(axis->stride, axis->dilation) - 1;
    switch (harness_random_integer(random, 0, 2)) {
    case 0: axis->output_padding = 0; break;
    case 1: axis->output_padding = harness_random_integer(random, 0, limit); break;
    default: axis->output_padding = limit;
    }
}

/* -------------------------------------------------------------------------------------------------------------- layers */

/* Halves what the layer has most of until it is within its limits. */
static void cut_down(tconv_desc *desc, struct axis *rows, struct axis *columns, double limits)
{
    for (;;) {
        const double images = (double)desc->batch, taps = (double)rows->kernel * (double)columns->kernel;
        const double group_out = (double)desc->out_channels / (double)desc->groups;
        const double multiply_adds =
            images * (double)desc->in_channels * group_out * taps * (double)rows->in * (double)columns->in;
        const double outputs =
            images * (double)desc->out_channels * (double)uncropped(rows) * (double)uncropped(columns);
        const double inputs = images * (double)desc->in_channels * (double)rows->in * (double)columns->in;
        if (multiply_adds <= limits * MAX_MULTIPLY_ADDS && outputs <= limits * MAX_OUTPUTS &&
            inputs <= limits * MAX_OUTPUTS)
            return;
        struct axis *longer = columns->in >= rows->in ? columns : rows;
        int64_t in = desc->in_channels / desc->groups, out = desc->out_channels / desc->groups;
        if (longer->in > 8)
            longer->in /= 2;
        else if (desc->batch > 1)
            desc->batch /= 2;
        else if (desc->groups > 8)
            desc->groups = (desc->groups + 1) / 2;
        else if (in > 8 || out > 8)
            *(in > out ? &in : &out) = (in > out ? in : out) / 2;
        else if (longer->in > 1)
            longer->in /= 2;
        else if (rows->kernel > 1 || columns->kernel > 1)
            *(rows->kernel > columns->kernel ? &rows->kernel : &columns->kernel) /= 2;
        else
            return;
        desc->in_channels = desc->groups * in;
        desc->out_channels = desc->groups * out;
    }
}

static void draw_axes(harness_random *random, tconv_desc *desc)
{
    static const struct axis point = {1, 1, 1, 1, 0, 0, 0};
    struct axis rows, columns;
    const int64_t flat = harness_random_integer(random, 0, 9); /* 1 x N and N x 1 are layers of sequences */
    const bool small = harness_random_chance(random, 15);      /* more weights than pixels */
    rows.in = small ? harness_random_integer(random, 1, 6) : draw_extent(random);
    columns.in = small ? harness_random_integer(random, 1, 4) : draw_extent(random);
    draw_window(random, &rows);
    if (harness_random_chance(random, 40)) {
        columns.kernel = rows.kernel;
        columns.stride = rows.stride;
        columns.dilation = rows.dilation;
    } else {
        draw_window(random, &columns);
    }
    if (flat == 0)
        columns = point;
    else if (flat <= 2)
        rows = point;
    cut_down(desc, &rows, &columns, harness_random_integer(random, 1, LARGE_EVERY) == 1 ? LARGER : 1);
    draw_padding(random, &rows);
    draw_padding(random, &columns);
    if (flat == 0)
        columns = point;
    else if (flat <= 2)
        rows = point;
    desc->in_h = rows.in;
    desc->in_w = columns.in;
    desc->kernel_h = rows.kernel;
    desc->kernel_w = columns.kernel;
    desc->stride_h = rows.stride;
    desc->stride_w = columns.stride;
    desc->dilation_h = rows.dilation;
    desc->dilation_w = columns.dilation;
    desc->pad_top = rows.before;
    desc->pad_bottom = rows.after;
    desc->pad_left = columns.before;
    desc->pad_right = columns.after;
    desc->output_padding_h = rows.output_padding;
    desc->output_padding_w = columns.output_padding;
}

void harness_class_layer(harness_random *random, harness_layer *layer)
{
    tconv_desc *desc = &layer->desc;
    tconv_desc_init(desc);
    const int64_t batch = harness_random_integer(random, 0, 49);
    desc->op = (tconv_op)harness_random_integer(random, TCONV_FORWARD, TCONV_BACKWARD_WEIGHTS);
    desc->batch = batch == 0 ? 0 : batch < 25 ? 1 : batch < 40 ? batch % 4 + 2 : harness_random_integer(random, 6, 20);
    draw_groups(random, desc);
    draw_axes(random, desc);
    harness_draw_depth(random, desc, MAX_MULTIPLY_ADDS, MAX_OUTPUTS);
    desc->dtype = (tconv_dtype)harness_random_integer(random, TCONV_F32, TCONV_BF16);
    desc->layout = (tconv_layout)harness_random_integer(random, TCONV_NCHW, TCONV_NHWC);
    desc->weight_layout = (tconv_weight_layout)harness_random_integer(random, TCONV_WEIGHT_IOHW, TCONV_WEIGHT_HWOI);
    desc->math = desc->dtype == TCONV_F32 && harness_random_chance(random, 20) ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    desc->accumulate = harness_random_chance(random, 40);
    layer->has_bias = harness_random_chance(random, 60);
    harness_draw_slices(random, desc);
}
