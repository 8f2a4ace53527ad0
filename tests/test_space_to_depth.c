/*
 * Layers as ones of fewer taps and more channels (src/core/space_to_depth.h): the gradient of weights of these, by the
 * formula on the same memory, is that of the layer, each weight once.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/problem.h"
#include "../src/core/space_to_depth.h"
#include "harness.h"

enum { LAYERS = 20000, MOST_TAPS = 32, LEAST_TAKEN = 1000, LEAST_PAIRS = 100, LEAST_ALIKE = 50 };

/* The tensors of a layer, and how often each weight was written. */
struct memory {
    const int *src, *diff_dst;
    int64_t dst_extent, weight_extent;
    int64_t *weights;
    int *written;
};

static int64_t sum_terms(const tconv_problem *of, const struct memory *memory, int64_t dst, int64_t in, int64_t out,
                         int64_t row, int64_t column)
{
    const int64_t channel = in / of->group_in * of->group_out + out;
    int64_t sum = 0;
    for (int64_t n = 0; n < of->batch; n++)
        for (int64_t y = 0; y < of->h.in; y++)
            for (int64_t x = 0; x < of->w.in; x++) {
                const int64_t oy = y * of->h.stride + row * of->h.dilation - of->h.pad;
                const int64_t ox = x * of->w.stride + column * of->w.dilation - of->w.pad;
                if (oy < 0 || oy >= of->h.out || ox < 0 || ox >= of->w.out)
                    continue;
                const int64_t from = dst + n * of->dst.n + channel * of->dst.c + oy * of->dst.h + ox * of->dst.w;
                cr_assert(from >= 0 && from < memory->dst_extent, "an output outside of the gradient of dst");
                sum += (int64_t)memory->src[n * of->src.n + in * of->src.c + y * of->src.h + x * of->src.w] *
                       memory->diff_dst[from];
            }
    return sum;
}

/* Writes the gradient of the weights of a layer whose tensors begin so many elements behind those in memory. */
static void write_weights(const tconv_problem *of, int64_t dst, int64_t weights, struct memory *memory)
{
    for (int64_t in = 0; in < of->in_channels; in++)
        for (int64_t out = 0; out < of->group_out; out++)
            for (int64_t row = 0; row < of->h.kernel; row++)
                for (int64_t column = 0; column < of->w.kernel; column++) {
                    const int64_t to = weights + in * of->weight.in + out * of->weight.out + row * of->weight.h +
                                       column * of->weight.w;
                    cr_assert(to >= 0 && to < memory->weight_extent, "a weight outside of the gradient");
                    memory->weights[to] = sum_terms(of, memory, dst, in, out, row, column);
                    memory->written[to]++;
                }
}

static int64_t from_to(harness_random *random, int64_t least, int64_t most)
{
    return harness_random_integer(random, least, most);
}

/* An axis of few inputs whose kernel is several strides long, or one stride, or anything. */
static void choose_axis(harness_random *random, bool one, int64_t *in, int64_t *kernel, int64_t *stride,
                        int64_t pads[2], int64_t *output_padding)
{
    *in = one ? 1 : from_to(random, 1, 5);
    *stride = from_to(random, 1, from_to(random, 0, 1) ? 40 : 4);
    *kernel = from_to(random, 0, 1) ? *stride * from_to(random, 1, 3) : from_to(random, 1, 70);
    for (int i = 0; i < 2; i++)
        pads[i] = from_to(random, 0, 2) ? 0 : from_to(random, 0, 1) * *stride + from_to(random, 0, 3) / 3;
    *output_padding = from_to(random, 0, 1) ? from_to(random, 0, *stride - 1) : 0;
}

static tconv_desc random_layer(harness_random *random)
{
    tconv_desc desc;
    int64_t rows[2], columns[2];
    const bool in_one_row = from_to(random, 0, 1) != 0;
    tconv_desc_init(&desc);
    desc.op = TCONV_BACKWARD_WEIGHTS;
    desc.dtype = from_to(random, 0, 1) ? TCONV_F32 : TCONV_BF16;
    desc.layout = (tconv_layout)from_to(random, 0, 1);
    desc.weight_layout = (tconv_weight_layout)from_to(random, 0, 2);
    desc.groups = from_to(random, 1, 5) / 4 + 1;
    desc.batch = from_to(random, 1, 2);
    desc.in_channels = desc.groups * (from_to(random, 0, 3) ? from_to(random, 1, 3) : 8);
    desc.out_channels = desc.groups * from_to(random, 1, 5);
    choose_axis(random, from_to(random, 0, 1), &desc.in_h, &desc.kernel_h, &desc.stride_h, rows,
                &desc.output_padding_h);
    choose_axis(random, from_to(random, 0, 2) == 0, &desc.in_w, &desc.kernel_w, &desc.stride_w, columns,
                &desc.output_padding_w);
    if (in_one_row) {
        const int64_t pad = from_to(random, 0, 7) / 7; /* the only output has no tap then */
        desc.in_h = desc.kernel_h = 1;
        desc.stride_h = 4;
        rows[0] = rows[1] = pad;
        desc.output_padding_h = 2 * pad;
    } else if (desc.kernel_h > 12) {
        desc.kernel_h = desc.stride_h = 12; /* the formula takes long otherwise */
    }
    desc.pad_top = rows[0], desc.pad_bottom = rows[1];
    desc.pad_left = columns[0], desc.pad_right = columns[1];
    desc.dilation_w = from_to(random, 0, 7) ? 1 : 2;
    return desc;
}

/* An axis that is not taken may be one that the other needs. */
static bool is_taken(const tconv_problem *before, const tconv_problem *after, bool columns)
{
    return (columns ? before->w.in : before->h.in) == 1 || after->out_channels % 7 != 0;
}

Test(space_to_depth, is_the_layer)
{
    harness_random random;
    harness_random_seed(&random, 20261127);
    int taken = 0, pairs = 0, alike = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        const tconv_desc desc = random_layer(&random);
        tconv_problem problem;
        tconv_issue issue;
        tconv_depth_layer made[TCONV_MOST_DEPTH_LAYERS];
        if (tconv_problem_init(&problem, &desc, &issue) != TCONV_SUCCESS)
            continue;
        const int count = tconv_space_to_depth(&problem, MOST_TAPS, is_taken, made);
        if (count == 0)
            continue;
        taken++;
        pairs += count > 1;
        alike += made[0].count > 1;
        const size_t weights = (size_t)problem.weight_extent;
        int *src = calloc((size_t)problem.src_extent, sizeof *src);
        int *diff_dst = calloc((size_t)problem.dst_extent, sizeof *diff_dst);
        int64_t *expected = calloc(weights, sizeof *expected), *got = calloc(weights, sizeof *got);
        int *once = calloc(weights, sizeof *once), *written = calloc(weights, sizeof *written);
        for (int64_t i = 0; i < problem.src_extent; i++)
            src[i] = (int)from_to(&random, -9, 9);
        for (int64_t i = 0; i < problem.dst_extent; i++)
            diff_dst[i] = (int)from_to(&random, -9, 9);
        struct memory memory = {src, diff_dst, problem.dst_extent, problem.weight_extent, expected, once};
        write_weights(&problem, 0, 0, &memory);
        memory.weights = got;
        memory.written = written;
        for (const tconv_depth_layer *of = made; of < made + count; of++)
            for (int64_t i = 0; i < of->count; i++)
                write_weights(&of->problem, of->dst + i * of->dst_step, of->weights + i * of->weights_step, &memory);
        cr_expect(memcmp(got, expected, weights * sizeof *got) == 0, "layer %d: other weights", layer);
        cr_expect(memcmp(written, once, weights * sizeof *once) == 0, "layer %d: weights left out or twice", layer);
        free(src), free(diff_dst), free(expected), free(got), free(once), free(written);
    }
    cr_expect_gt(taken, LEAST_TAKEN, "%d layers were taken", taken);
    cr_expect_gt(pairs, LEAST_PAIRS, "%d into two", pairs);
    cr_expect_gt(alike, LEAST_ALIKE, "%d into several that are alike", alike);
}
