/*
 * Views of a layer's tensors, and random layers.
 *
 * A random layer draws every parameter by itself, small values most often, and is drawn again where it has no output
 * pixel or with more work than the reference does in a few milliseconds.
 */
#include "layer.h"
#include "stream.h"

#include <string.h>

static int64_t resolve(int64_t given, int64_t extent, int64_t dense)
{
    return extent <= 1 || given == 0 ? dense : given;
}

static harness_view make_view(int64_t n, int64_t c, int64_t h, int64_t w, const int64_t given[4], tconv_layout layout)
{
    harness_view view = {.shape = {n, c, h, w}};
    int64_t *stride = view.stride;
    if (layout == TCONV_NCHW) {
        stride[3] = 1;
        stride[2] = w;
        stride[1] = resolve(given[1], c, h * w);
        stride[0] = resolve(given[0], n, c * stride[1]);
    } else {
        /* In a column of pixels (w = 1) the stride of h is the distance between pixels. */
        int64_t pixel = w > 1 ? resolve(given[3], w, c) : resolve(given[2], h, c);
        stride[1] = 1;
        stride[3] = pixel;
        stride[2] = w * pixel;
        stride[0] = resolve(given[0], n, h * w * pixel);
    }
    view.extent = 1;
    for (int i = 0; i < 4; ++i)
        view.extent += (view.shape[i] - 1) * stride[i];
    if (n == 0)
        view.extent = 0;
    return view;
}

harness_view harness_src_view(const tconv_desc *desc)
{
    return make_view(desc->batch, desc->in_channels, desc->in_h, desc->in_w, desc->src_strides, desc->layout);
}

static int64_t output_extent(int64_t in, int64_t stride, int64_t pads, int64_t dilation, int64_t kernel,
                             int64_t output_padding)
{
    return (in - 1) * stride - pads + dilation * (kernel - 1) + output_padding + 1;
}

static int64_t output_height(const tconv_desc *desc)
{
    const tconv_desc one = harness_one_call(desc);
    return output_extent(one.in_h, one.stride_h, one.pad_top + one.pad_bottom, one.dilation_h, one.kernel_h,
                         one.output_padding_h);
}

static int64_t output_width(const tconv_desc *desc)
{
    const tconv_desc one = harness_one_call(desc);
    return output_extent(one.in_w, one.stride_w, one.pad_left + one.pad_right, one.dilation_w, one.kernel_w,
                         one.output_padding_w);
}

harness_view harness_dst_view(const tconv_desc *desc)
{
    return make_view(desc->batch, desc->out_channels, output_height(desc), output_width(desc), desc->dst_strides,
                     desc->layout);
}

harness_view harness_weights_view(const tconv_desc *desc)
{
    int64_t in = desc->in_channels, out = desc->out_channels / desc->groups;
    int64_t height = desc->kernel_h, width = desc->kernel_w;
    harness_view view = {.shape = {in, out, height, width}, .extent = in * out * height * width};
    const int64_t strides[][4] = {
        [TCONV_WEIGHT_IOHW] = {out * height * width, height * width, width, 1},
        [TCONV_WEIGHT_IHWO] = {out * height * width, 1, width * out, out},
        [TCONV_WEIGHT_HWOI] = {1, in, width * out * in, out * in},
    };
    memcpy(view.stride, strides[desc->weight_layout], sizeof view.stride);
    return view;
}

/* Returns the view of numbers of channels, which lie one after the other. */
static harness_view channels_view(int64_t count)
{
    return (harness_view){{count, 1, 1, 1}, {1, 1, 1, 1}, count};
}

harness_view harness_view_of(const tconv_desc *desc, harness_role role)
{
    switch (role) {
    case HARNESS_SRC: return harness_src_view(desc);
    case HARNESS_WEIGHTS: return harness_weights_view(desc);
    case HARNESS_DST: return harness_dst_view(desc);
    case HARNESS_BIAS: return channels_view(desc->out_channels);
    default: break;
    }
    const tconv_post_kind kind = desc->post[role - HARNESS_POST].kind;
    if (kind == TCONV_POST_ADD_TENSOR)
        return make_view(desc->batch, desc->out_channels, output_height(desc), output_width(desc), desc->addend_strides,
                         desc->layout);
    return channels_view(desc->out_channels * harness_post_vectors(kind));
}

tconv_dtype harness_role_dtype(const tconv_desc *desc, harness_role role)
{
    const bool of_channels = role >= HARNESS_POST && desc->post[role - HARNESS_POST].kind != TCONV_POST_ADD_TENSOR;
    return of_channels && desc->dtype != TCONV_F64 ? TCONV_F32 : desc->dtype;
}

int64_t harness_view_elements(const harness_view *view)
{
    return view->shape[0] * view->shape[1] * view->shape[2] * view->shape[3];
}

double harness_layer_flops(const tconv_desc *desc)
{
    const int64_t group_out = desc->out_channels / desc->groups;
    return 2.0 * (double)desc->batch * (double)desc->in_h * (double)desc->in_w * (double)desc->in_channels *
           (double)group_out * (double)desc->kernel_h * (double)desc->kernel_w;
}

/* ---------------------------------------------------------------------------------------------------- random layers */

/* The most multiply-adds and output pixels of a random layer: the reference takes a few milliseconds for them. */
#define MAX_MULTIPLY_ADDS 400000
#define MAX_OUTPUTS       200000

bool harness_corner_is_sampled(size_t index, const harness_layer *layer)
{
    return harness_layer_flops(&layer->desc) > 2.0 * MAX_MULTIPLY_ADDS &&
           index % HARNESS_CORNER_FORMS != index / HARNESS_CORNER_FORMS % HARNESS_CORNER_FORMS;
}

/* Draws a number from minimum to small in most draws, to large in the others. */
static int64_t draw(harness_random *random, int64_t minimum, int64_t small, int64_t large)
{
    return harness_random_integer(random, minimum, harness_random_chance(random, 80) ? small : large);
}

static void draw_extents(harness_random *random, tconv_desc *desc)
{
    desc->batch = harness_random_chance(random, 2) ? 0 : draw(random, 1, 3, 9);
    desc->in_h = draw(random, 1, 9, 40);
    desc->in_w = draw(random, 1, 20, 150);
    desc->groups = harness_random_chance(random, 60) ? 1 : draw(random, 2, 4, 17);
    desc->in_channels = desc->groups * draw(random, 1, 5, 40);
    desc->out_channels = desc->groups * draw(random, 1, 5, 40);
}

static void draw_window(harness_random *random, tconv_desc *desc)
{
    bool square = harness_random_chance(random, 30);
    desc->kernel_h = draw(random, 1, 4, 9);
    desc->kernel_w = square ? desc->kernel_h : draw(random, 1, 4, 17);
    desc->stride_h = draw(random, 1, 3, 8);
    desc->stride_w = square ? desc->stride_h : draw(random, 1, 3, 8);
    desc->dilation_h = draw(random, 1, 2, 6);
    desc->dilation_w = square ? desc->dilation_h : draw(random, 1, 2, 6);
    if (harness_random_chance(random, 15)) { /* upsampling by a plain GEMM */
        desc->kernel_h = desc->stride_h;
        desc->kernel_w = desc->stride_w;
        desc->dilation_h = desc->dilation_w = 1;
    }
    int64_t most_h = desc->dilation_h * (desc->kernel_h - 1), most_w = desc->dilation_w * (desc->kernel_w - 1);
    if (harness_random_chance(random, 60)) { /* now and then the padding exceeds the kernel */
        desc->pad_top = draw(random, 0, most_h, most_h + 3);
        desc->pad_bottom = square ? desc->pad_top : draw(random, 0, most_h, most_h + 3);
        desc->pad_left = square ? desc->pad_top : draw(random, 0, most_w, most_w + 3);
        desc->pad_right = square ? desc->pad_top : draw(random, 0, most_w, most_w + 3);
    }
    if (harness_random_chance(random, 40)) {
        int64_t limit_h = desc->stride_h > desc->dilation_h ? desc->stride_h : desc->dilation_h;
        int64_t limit_w = desc->stride_w > desc->dilation_w ? desc->stride_w : desc->dilation_w;
        desc->output_padding_h = harness_random_integer(random, 0, limit_h - 1);
        desc->output_padding_w = harness_random_integer(random, 0, limit_w - 1);
    }
}

/* Draws strides of a slice, with room between channels (NCHW) or pixels (NHWC) and between images. Half of the strides
 * that the others make dense are left at 0. */
static void draw_slice(harness_random *random, const tconv_desc *desc, const harness_view *dense, int64_t given[4])
{
    int64_t c = dense->shape[1], h = dense->shape[2], w = dense->shape[3];
    if (desc->layout == TCONV_NCHW) {
        given[1] = h * w + harness_random_integer(random, 0, 9);
        given[0] = (c - 1) * given[1] + h * w + harness_random_integer(random, 0, 70);
        given[2] = harness_random_chance(random, 50) ? w : 0;
        given[3] = harness_random_chance(random, 50) ? 1 : 0;
    } else {
        given[3] = c + harness_random_integer(random, 0, 9);
        given[2] = w == 1 ? given[3] : w * given[3];
        given[1] = harness_random_chance(random, 50) ? 1 : 0;
        given[0] = (h * w - 1) * given[3] + c + harness_random_integer(random, 0, 70);
    }
}

void harness_draw_slices(harness_random *random, tconv_desc *desc)
{
    const harness_view src = harness_src_view(desc), dst = harness_dst_view(desc);
    if (harness_random_chance(random, 25))
        draw_slice(random, desc, &src, desc->src_strides);
    if (harness_random_chance(random, 25))
        draw_slice(random, desc, &dst, desc->dst_strides);
}

void harness_draw_slice_of_dst(harness_random *random, const tconv_desc *desc, int64_t given[4])
{
    const harness_view dst = harness_dst_view(desc);
    draw_slice(random, desc, &dst, given);
}

static bool fits(const tconv_desc *desc)
{
    int64_t height = output_height(desc), width = output_width(desc);
    return height >= 1 && width >= 1 && harness_layer_flops(desc) <= 2.0 * MAX_MULTIPLY_ADDS &&
           (desc->batch > 0 ? desc->batch : 1) * desc->out_channels * height * width <= MAX_OUTPUTS;
}

void harness_random_layer(harness_random *random, harness_layer *layer)
{
    tconv_desc *desc = &layer->desc;
    do {
        tconv_desc_init(desc);
        draw_extents(random, desc);
        draw_window(random, desc);
    } while (!fits(desc));

    layer->has_bias = harness_random_chance(random, 50);
    desc->dtype = harness_random_chance(random, 40) ? TCONV_F32 : (tconv_dtype)harness_random_integer(random, 0, 3);
    desc->layout = (tconv_layout)harness_random_integer(random, 0, 1);
    desc->weight_layout = (tconv_weight_layout)harness_random_integer(random, 0, 2);
    bool tf32 = desc->dtype == TCONV_F32 && harness_random_chance(random, 20);
    desc->math = tf32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;

    harness_draw_slices(random, desc);
}
