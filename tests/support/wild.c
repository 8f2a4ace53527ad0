/* Wild layers: extents of any number of bits. */
#include "support/wild.h"

#define WILD_BITS  20 /* of the largest extents, but for now and then one */
#define WIDER_BITS 40

/* Numbers of few bits as often as those of many. */
static int64_t draw(harness_random *random, int bits)
{
    const int64_t below = (int64_t)1 << harness_random_integer(random, 0, bits);
    return harness_random_integer(random, 1, below);
}

static int64_t draw_padding(harness_random *random, int64_t kernel, int64_t dilation)
{
    const int64_t most = dilation * (kernel - 1);
    return harness_random_chance(random, 50) ? 0 : harness_random_integer(random, 0, most < 64 ? most : 64);
}

void draw_wild_layer(harness_random *random, harness_layer *layer)
{
    tconv_desc *desc = &layer->desc;
    const int bits = harness_random_chance(random, 5) ? WIDER_BITS : WILD_BITS;
    tconv_desc_init(desc);
    desc->groups = harness_random_chance(random, 70) ? 1 : draw(random, 10);
    desc->batch = draw(random, harness_random_chance(random, 80) ? 6 : bits);
    desc->in_channels = desc->groups * draw(random, harness_random_chance(random, 80) ? 10 : bits);
    desc->out_channels = desc->groups * draw(random, harness_random_chance(random, 80) ? 10 : bits);
    desc->in_h = draw(random, harness_random_chance(random, 80) ? 8 : bits);
    desc->in_w = draw(random, harness_random_chance(random, 80) ? 10 : bits);
    desc->kernel_h = draw(random, harness_random_chance(random, 90) ? 4 : 10);
    desc->kernel_w = draw(random, harness_random_chance(random, 90) ? 4 : 10);
    desc->stride_h = draw(random, harness_random_chance(random, 90) ? 3 : 10);
    desc->stride_w = draw(random, harness_random_chance(random, 90) ? 3 : 10);
    desc->dilation_h = draw(random, harness_random_chance(random, 90) ? 1 : 8);
    desc->dilation_w = draw(random, harness_random_chance(random, 90) ? 1 : 8);
    desc->pad_top = draw_padding(random, desc->kernel_h, desc->dilation_h);
    desc->pad_bottom = draw_padding(random, desc->kernel_h, desc->dilation_h);
    desc->pad_left = draw_padding(random, desc->kernel_w, desc->dilation_w);
    desc->pad_right = draw_padding(random, desc->kernel_w, desc->dilation_w);
    desc->dtype = (tconv_dtype)harness_random_integer(random, 0, 3);
    desc->layout = (tconv_layout)harness_random_integer(random, 0, 1);
    desc->weight_layout = (tconv_weight_layout)harness_random_integer(random, 0, 2);
    desc->math = harness_random_chance(random, 50) ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    layer->has_bias = harness_random_chance(random, 50);
    desc->op = harness_random_chance(random, 50) ? TCONV_FORWARD : (tconv_op)harness_random_integer(random, 1, 2);
    desc->accumulate = harness_random_chance(random, 20);
}
