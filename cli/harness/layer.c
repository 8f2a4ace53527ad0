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

/* Extents of a tensor, and what the desc says of its strides. */
struct extents {
    int64_t n, c, d, h, w;
    const int64_t *given;
    int64_t given_d;
};

static harness_view make_view(struct extents of, tconv_layout layout)
{
    harness_view view = {.shape = {of.n, of.c, of.d * of.h, of.w}, .planes = of.d};
    int64_t *stride = view.stride;
    if (layout == TCONV_NCHW) {
        stride[3] = 1;
        stride[2] = of.w;
        stride[1] = resolve(of.given[1], of.c, of.d * of.h * of.w);
        stride[0] = resolve(of.given[0], of.n, of.c * stride[1]);
    } else {
        /* Where pixels lie in a column (w = 1), or one in each plane, the stride of h or d is the distance between pixels. */
        const int64_t pixel = of.w > 1   ? resolve(of.given[3], of.w, of.c)
                              : of.h > 1 ? resolve(of.given[2], of.h, of.c)
                                         : resolve(of.given_d, of.d, of.c);
        stride[1] = 1;
        stride[3] = pixel;
        stride[2] = of.w * pixel;
        stride[0] = resolve(of.given[0], of.n, of.d * of.h * of.w * pixel);
    }
    view.extent = 1;
    for (int i = 0; i < 4; ++i)
        view.extent += (view.shape[i] - 1) * stride[i];
    if (of.n == 0)
        view.extent = 0;
    return view;
}

harness_view harness_src_view(const tconv_desc *desc)
{
    const struct extents of = {desc->batch, desc->in_channels, desc->in_d,        desc->in_h,
                               desc->in_w,  desc->src_strides, desc->src_stride_d};
    return make_view(of, desc->layout);
}

static int64_t output_extent(int64_t in, int64_t stride, int64_t pads, int64_t dilation, int64_t kernel,
                             int64_t output_padding)
{
    return (in - 1) * stride - pads + dilation * (kernel - 1) + output_padding + 1;
}

/* Returns the extents of dst, with its strides. */
static struct extents dst_extents(const tconv_desc *desc)
{
    const tconv_desc one = harness_one_call(desc);
    return (struct extents){
        .n = desc->batch,
        .c = desc->out_channels,
        .d = output_extent(one.in_d, one.stride_d, one.pad_front + one.pad_back, one.dilation_d, one.kernel_d,
                           one.output_padding_d),
        .h = output_extent(one.in_h, one.stride_h, one.pad_top + one.pad_bottom, one.dilation_h, one.kernel_h,
                           one.output_padding_h),
        .w = output_extent(one.in_w, one.stride_w, one.pad_left + one.pad_right, one.dilation_w, one.kernel_w,
                           one.output_padding_w),
        .given = desc->dst_strides,
        .given_d = desc->dst_stride_d,
    };
}

harness_view harness_dst_view(const tconv_desc *desc)
{
    return make_view(dst_extents(desc), desc->layout);
}

static harness_view addend_view(const tconv_desc *desc)
{
    struct extents of = dst_extents(desc);
    of.given = desc->addend_strides;
    of.given_d = desc->addend_stride_d;
    return make_view(of, desc->layout);
}

harness_view harness_weights_view(const tconv_desc *desc)
{
    int64_t in = desc->in_channels, out = desc->out_channels / desc->groups;
    int64_t height = desc->kernel_d * desc->kernel_h, width = desc->kernel_w;
    harness_view view = {
        .shape = {in, out, height, width}, .extent = in * out * height * width, .planes = desc->kernel_d};
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
    return (harness_view){{count, 1, 1, 1}, {1, 1, 1, 1}, count, 1};
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
        return addend_view(desc);
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

bool harness_has_depth(const tconv_desc *desc)
{
    return desc->in_d != 1 || desc->kernel_d != 1 || desc->pad_front != 0 || desc->pad_back != desc->output_padding_d;
}

void harness_drop_depth(tconv_desc *desc)
{
    desc->in_d = desc->kernel_d = desc->stride_d = desc->dilation_d = 1;
    desc->pad_front = desc->pad_back = desc->output_padding_d = 0;
    desc->src_stride_d = desc->dst_stride_d = desc->addend_stride_d = 0;
}

void harness_make_dense(tconv_desc *desc)
{
    memset(desc->src_strides, 0, sizeof desc->src_strides);
    memset(desc->dst_strides, 0, sizeof desc->dst_strides);
    memset(desc->addend_strides, 0, sizeof desc->addend_strides);
    desc->src_stride_d = desc->dst_stride_d = desc->addend_stride_d = 0;
}

double harness_layer_flops(const tconv_desc *desc)
{
    const int64_t group_out = desc->out_channels / desc->groups;
    return 2.0 * (double)desc->batch * (double)desc->in_d * (double)desc->in_h * (double)desc->in_w *
           (double)desc->in_channels * (double)group_out * (double)desc->kernel_d * (double)desc->kernel_h *
           (double)desc->kernel_w;
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
static void draw_slice(harness_random *random, const tconv_desc *desc, const harness_view *dense, int64_t given[4],
                       int64_t *given_d)
{
    const int64_t c = dense->shape[1], h = harness_view_rows(dense), w = dense->shape[3], pixels = dense->shape[2] * w;
    if (desc->layout == TCONV_NCHW) {
        given[1] = pixels + harness_random_integer(random, 0, 9);
        given[0] = (c - 1) * given[1] + pixels + harness_random_integer(random, 0, 70);
        given[2] = harness_random_chance(random, 50) ? w : 0;
        given[3] = harness_random_chance(random, 50) ? 1 : 0;
        *given_d = given[2] * h;
    } else {
        given[3] = c + harness_random_integer(random, 0, 9);
        given[2] = w == 1 ? given[3] : w * given[3];
        given[1] = harness_random_chance(random, 50) ? 1 : 0;
        given[0] = (pixels - 1) * given[3] + c + harness_random_integer(random, 0, 70);
        *given_d = given[2] * h;
    }
    if (dense->planes == 1)
        *given_d = 0;
}

void harness_draw_slices(harness_random *random, tconv_desc *desc)
{
    const harness_view src = harness_src_view(desc), dst = harness_dst_view(desc);
    if (harness_random_chance(random, 25))
        draw_slice(random, desc, &src, desc->src_strides, &desc->src_stride_d);
    if (harness_random_chance(random, 25))
        draw_slice(random, desc, &dst, desc->dst_strides, &desc->dst_stride_d);
}

void harness_draw_slice_of_addend(harness_random *random, tconv_desc *desc)
{
    const harness_view dst = harness_dst_view(desc);
    draw_slice(random, desc, &dst, desc->addend_strides, &desc->addend_stride_d);
}

/* Whether the layer has outputs, and no more work than these limits. */
static bool fits(const tconv_desc *desc, double multiply_adds, double outputs)
{
    const struct extents dst = dst_extents(desc);
    return dst.d >= 1 && dst.h >= 1 && dst.w >= 1 && harness_layer_flops(desc) <= 2 * multiply_adds &&
           (double)(dst.n > 0 ? dst.n : 1) * (double)dst.c * (double)dst.d * (double)dst.h * (double)dst.w <= outputs;
}

/* Draws the window along depth and the number of planes. */
static void draw_planes(harness_random *random, tconv_desc *desc)
{
    desc->in_d = harness_random_integer(random, 1, 5);
    desc->kernel_d = harness_random_integer(random, 1, 4);
    desc->stride_d = harness_random_integer(random, 1, 4);
    desc->dilation_d = harness_random_integer(random, 1, 3);
    if (harness_random_chance(random, 15)) { /* planes side by side */
        desc->kernel_d = desc->stride_d;
        desc->dilation_d = 1;
    }
    const int64_t reach = desc->dilation_d * (desc->kernel_d - 1);
    desc->pad_front = harness_random_chance(random, 60) ? draw(random, 0, reach, reach + 2) : 0;
    desc->pad_back = harness_random_chance(random, 60) ? draw(random, 0, reach, reach + 2) : 0;
    const int64_t limit = desc->stride_d > desc->dilation_d ? desc->stride_d : desc->dilation_d;
    desc->output_padding_d = harness_random_chance(random, 40) ? harness_random_integer(random, 0, limit - 1) : 0;
}

void harness_draw_depth(const harness_random *random, tconv_desc *desc, double multiply_adds, double outputs)
{
    enum { ATTEMPTS = 50 }; /* some layers have no room for planes, whatever their size */
    harness_random own;
    harness_random_seed(&own, random->state[0] ^ random->state[3]);
    if (!HARNESS_DRAWS_DEPTH || !harness_random_chance(&own, 15))
        return;
    for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
        tconv_desc deep = *desc;
        draw_planes(&own, &deep);
        if (!harness_has_depth(&deep))
            harness_drop_depth(&deep); /* else fields that change nothing would have to be written */
        if (!fits(&deep, multiply_adds, outputs)) {
            deep.batch = deep.batch > 2 ? 2 : deep.batch;
            deep.in_h = harness_random_integer(&own, 1, deep.in_h);
            deep.in_w = harness_random_integer(&own, 1, deep.in_w);
        }
        if (fits(&deep, multiply_adds, outputs)) {
            *desc = deep;
            return;
        }
    }
}

void harness_random_layer(harness_random *random, harness_layer *layer)
{
    tconv_desc *desc = &layer->desc;
    do {
        tconv_desc_init(desc);
        draw_extents(random, desc);
        draw_window(random, desc);
    } while (!fits(desc, MAX_MULTIPLY_ADDS, MAX_OUTPUTS));
    harness_draw_depth(random, desc, MAX_MULTIPLY_ADDS, MAX_OUTPUTS);

    layer->has_bias = harness_random_chance(random, 50);
    desc->dtype = harness_random_chance(random, 40) ? TCONV_F32 : (tconv_dtype)harness_random_integer(random, 0, 3);
    desc->layout = (tconv_layout)harness_random_integer(random, 0, 1);
    desc->weight_layout = (tconv_weight_layout)harness_random_integer(random, 0, 2);
    bool tf32 = desc->dtype == TCONV_F32 && harness_random_chance(random, 20);
    desc->math = tf32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;

    harness_draw_slices(random, desc);
}
