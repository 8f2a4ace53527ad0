/* Reads a layer and options from bytes, and writes them for people. */
#include "fuzz_plan_input.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const uint8_t *data;
    size_t size;
};

static uint8_t read_byte(struct reader *reader)
{
    if (reader->size == 0)
        return 0;
    reader->size--;
    return *reader->data++;
}

/* Reads a number that an extent may be: 1 to 12, of some dozens, near a power of two, or at an end of its type. */
static int64_t read_number(struct reader *reader, bool any)
{
    uint8_t byte = read_byte(reader);
    if (byte < 160)
        return byte % 12 + 1;
    if (byte < 232 || !any)
        return byte % 72 + 1;
    if (byte < 250) {
        int64_t power = INT64_C(1) << read_byte(reader) % 63;
        return power - 2 + read_byte(reader) % 5;
    }
    static const int64_t ends[] = {0, -1, INT64_MIN, INT64_MAX, INT64_MAX / 4, INT64_MAX / 4 + 1};
    return ends[byte - 250];
}

/* Does the same for fields that may be 0. */
static int64_t read_number_from_0(struct reader *reader, bool any)
{
    int64_t number = read_number(reader, any);
    return number > INT64_MIN ? number - 1 : number;
}

static void read_numbers(struct reader *reader, bool any, tconv_desc *desc)
{
    int64_t *const extents[] = {&desc->in_channels, &desc->in_h,     &desc->in_w,     &desc->out_channels,
                                &desc->kernel_h,    &desc->kernel_w, &desc->stride_h, &desc->stride_w};
    int64_t *const offsets[] = {&desc->pad_top,   &desc->pad_left,         &desc->pad_bottom,
                                &desc->pad_right, &desc->output_padding_h, &desc->output_padding_w};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        *extents[i] = read_number(reader, any);
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        *offsets[i] = read_byte(reader) % 4 == 0 ? read_number_from_0(reader, any) : 0;
    desc->batch = read_byte(reader) % 2 == 0 ? 1 : read_number_from_0(reader, any);
    desc->dilation_h = read_byte(reader) % 3 == 0 ? read_number(reader, any) : 1;
    desc->dilation_w = read_byte(reader) % 3 == 0 ? read_number(reader, any) : 1;
    if (read_byte(reader) % 3 == 0) { /* channels that the groups divide, mostly */
        desc->groups = read_number(reader, any);
        if (!any && read_byte(reader) % 8 != 0) {
            desc->in_channels = desc->groups * (desc->in_channels % 4 + 1);
            desc->out_channels = desc->groups * (desc->out_channels % 4 + 1);
        }
    }
}

/* Reads what a layer of three axes has along depth. */
static void read_depth(struct reader *reader, bool any, tconv_desc *desc)
{
    int64_t *const extents[] = {&desc->in_d, &desc->kernel_d, &desc->stride_d, &desc->dilation_d};
    int64_t *const offsets[] = {&desc->pad_front, &desc->pad_back, &desc->output_padding_d};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        *extents[i] = any ? read_number(reader, true) : read_byte(reader) % 5 + 1;
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        *offsets[i] = any ? read_number_from_0(reader, true) : read_byte(reader) % 8 / 3;
    if (any && read_byte(reader) % 4 == 0)
        desc->src_stride_d = read_number(reader, true), desc->dst_stride_d = read_number(reader, true);
}

/* h counts the rows of all planes. */
static void read_strides(struct reader *reader, bool any, int64_t channels, int64_t h, int64_t w, bool nhwc,
                         int64_t strides[4])
{
    if (read_byte(reader) % 4 != 0)
        return;
    int64_t more = read_byte(reader) % 8, image = read_byte(reader) % 8;
    if (any) {
        for (int i = 0; i < 4; i++)
            strides[i] = read_number(reader, true);
    } else if (nhwc) {
        strides[3] = channels + more;
        strides[2] = w == 1 ? strides[3] : w * strides[3];
        strides[1] = 1;
        strides[0] = h * w * strides[3] + image;
    } else {
        strides[3] = 1;
        strides[2] = w;
        strides[1] = h * w + more;
        strides[0] = channels * strides[1] + image;
    }
}

/* Reads a number of a post-op: a small integer, or with `any` one that a rule may refuse. */
static double read_post_number(struct reader *reader, bool any)
{
    static const double odd[] = {0.1, -1e300, 1e-310, INFINITY, -INFINITY, NAN};
    const uint8_t byte = read_byte(reader);
    return any && byte >= 250 ? odd[byte - 250] : byte % 5 - 2;
}

/* Reads post-ops: those with integer numbers and operands have integer results, and `any` has others too. */
static void read_posts(struct reader *reader, bool any, tconv_desc *desc)
{
    const uint8_t count = read_byte(reader);
    desc->post_count = any ? count % 12 - 1 : count % 3 == 0 ? count / 3 % (TCONV_MAX_POST_OPS + 1) : 0;
    for (int i = 0, addends = 0; i < desc->post_count && i < TCONV_MAX_POST_OPS; i++) {
        tconv_post_op *post = &desc->post[i];
        const uint8_t kind = read_byte(reader);
        post->kind = (tconv_post_kind)(any ? kind % 20 - 1 : kind % TCONV_POST_LEAKY_RELU + 1);
        if (!any && post->kind == TCONV_POST_ADD_TENSOR && addends++ > 0)
            post->kind = TCONV_POST_ADD_CHANNEL;
        if (post->kind >= TCONV_POST_ADD_TENSOR && post->kind <= TCONV_POST_LEAKY_RELU)
            post->alpha = read_post_number(reader, any);
        if (post->kind == TCONV_POST_LINEAR || post->kind == TCONV_POST_CLAMP)
            post->beta = read_post_number(reader, any);
        if (!any && post->kind == TCONV_POST_CLAMP)
            post->beta = post->alpha + fabs(post->beta);
        if (any && read_byte(reader) == 255)
            post->reserved = 1;
    }
}

struct input input_read(const uint8_t *data, size_t size)
{
    struct reader bytes = {data, size}, *const reader = &bytes;
    struct input input;
    uint8_t form = read_byte(reader), how = read_byte(reader);
    const bool any = form % 4 == 0;
    int64_t shape[5];
    tconv_desc_init(&input.desc);
    tconv_options_init(&input.options);
    input.desc.dtype = (tconv_dtype)(form / 4 % 4);
    input.desc.layout = (tconv_layout)(form / 16 % 2);
    input.desc.weight_layout = (tconv_weight_layout)(form / 32 % 3);
    read_numbers(reader, any, &input.desc);
    read_strides(reader, any, input.desc.in_channels, input.desc.in_h, input.desc.in_w, input.desc.layout == TCONV_NHWC,
                 input.desc.src_strides);
    if (any || tconv_output_shape(&input.desc, shape, NULL) == TCONV_SUCCESS)
        read_strides(reader, any, input.desc.out_channels, any ? 1 : shape[2], any ? 1 : shape[3],
                     input.desc.layout == TCONV_NHWC, input.desc.dst_strides);
    if (any && read_byte(reader) % 16 == 0)
        input.desc.dtype = (tconv_dtype)(int8_t)read_byte(reader);
    input.options.backend = TCONV_BACKEND_CPU;
    input.options.threads = 1 + how % 3;
    input.options.cpu_isa = (tconv_cpu_isa)(how / 4 % 4);
    static const char *const names[] = {NULL, NULL, "cpu_phases", "cpu_pixels", "cpu_reference"};
    input.options.implementation = names[read_byte(reader) % 5];
    input.has_bias = how & 16;
    input.packs = how & 32;
    input.by_callback = how & 64;
    input.desc.accumulate = how & 128 ? 1 : 0;
    input.offset = read_byte(reader) % 64;
    read_posts(reader, any, &input.desc); /* older inputs end here or before */
    if (read_byte(reader) % 4 == 1) {
        tconv_desc *desc = &input.desc;
        read_depth(reader, any, desc);
        if (!any) { /* other strides, which have room for the planes */
            const bool nhwc = desc->layout == TCONV_NHWC;
            memset(desc->src_strides, 0, sizeof desc->src_strides);
            memset(desc->dst_strides, 0, sizeof desc->dst_strides);
            read_strides(reader, any, desc->in_channels, desc->in_d * desc->in_h, desc->in_w, nhwc, desc->src_strides);
            if (tconv_output_shape3d(desc, shape, NULL) == TCONV_SUCCESS)
                read_strides(reader, any, desc->out_channels, shape[2] * shape[3], shape[4], nhwc, desc->dst_strides);
        }
    }
    bool has_addend = any;
    for (int i = 0; i < input.desc.post_count && i < TCONV_MAX_POST_OPS; i++)
        has_addend |= input.desc.post[i].kind == TCONV_POST_ADD_TENSOR;
    if (has_addend && tconv_output_shape3d(&input.desc, shape, NULL) == TCONV_SUCCESS)
        read_strides(reader, any, input.desc.out_channels, shape[2] * shape[3], shape[4],
                     input.desc.layout == TCONV_NHWC, input.desc.addend_strides);
    return input;
}

void input_write(const struct input *input, char *text, size_t capacity)
{
    const tconv_desc *d = &input->desc;
#define PAIR PRId64 "x%" PRId64
    snprintf(text, capacity,
             "n=%" PRId64 " ci=%" PRId64 " h=%" PRId64 " w=%" PRId64 " co=%" PRId64 " k=%" PAIR " s=%" PAIR " p=%" PAIR
             "x%" PAIR " op=%" PAIR " d=%" PAIR " g=%" PRId64 " ss=%" PAIR "x%" PAIR " ds=%" PAIR "x%" PAIR
             " dtype %d layout %d weights %d implementation %s isa %d threads %d%s%s%s",
             d->batch, d->in_channels, d->in_h, d->in_w, d->out_channels, d->kernel_h, d->kernel_w, d->stride_h,
             d->stride_w, d->pad_top, d->pad_left, d->pad_bottom, d->pad_right, d->output_padding_h,
             d->output_padding_w, d->dilation_h, d->dilation_w, d->groups, d->src_strides[0], d->src_strides[1],
             d->src_strides[2], d->src_strides[3], d->dst_strides[0], d->dst_strides[1], d->dst_strides[2],
             d->dst_strides[3], (int)d->dtype, (int)d->layout, (int)d->weight_layout,
             input->options.implementation != NULL ? input->options.implementation : "any", (int)input->options.cpu_isa,
             (int)input->options.threads, input->has_bias ? " bias" : "", input->packs ? " packed" : "",
             d->accumulate ? " accumulate" : "");
    for (int i = 0; i < d->post_count && i < TCONV_MAX_POST_OPS; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, capacity - used, " post %d:%d:%g:%g", (int)d->post[i].kind, (int)d->post[i].reserved,
                 d->post[i].alpha, d->post[i].beta);
    }
    const size_t used = strlen(text);
    snprintf(text + used, capacity - used,
             " posts %d as=%" PAIR "x%" PAIR " depth %" PRId64 " kernel %" PRId64 " stride %" PRId64 " pads %" PAIR
             " output padding %" PRId64 " dilation %" PRId64 " strides %" PAIR,
             (int)d->post_count, d->addend_strides[0], d->addend_strides[1], d->addend_strides[2], d->addend_strides[3],
             d->in_d, d->kernel_d, d->stride_d, d->pad_front, d->pad_back, d->output_padding_d, d->dilation_d,
             d->src_stride_d, d->dst_stride_d);
}
