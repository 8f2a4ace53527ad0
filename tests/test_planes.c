/*
 * The planes that space-to-depth makes of the gradient of dst (src/cuda/dgrad/planes.h), axis by axis: the terms of
 * a forward layer of stride 1 over them are those of the gradient of src, each once, and no others.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/shape.h"
#include "../src/cuda/dgrad/planes.h"
#include "harness.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *axis_text(const tconv_axis *axis, bool per_tap)
{
    static char text[256];
    snprintf(text, sizeof text,
             "in %" PRId64 " out %" PRId64 " kernel %" PRId64 " stride %" PRId64 " dilation %" PRId64 " pad %" PRId64
             "%s",
             axis->in, axis->out, axis->kernel, axis->stride, axis->dilation, axis->pad, per_tap ? ", per tap" : "");
    return text;
}

/* Counts the terms of diff_src[input], by the layer's kernel element, that the forward layer has: with the weights that it
 * is given, from positions that are in its planes, of outputs that are in the gradient of dst. */
static void count_terms(const tconv_axis *axis, const tconv_cuda_planes *planes, bool per_tap, int64_t input,
                        int *terms)
{
    for (int64_t plane = 0; plane < planes->count; plane++)
        for (int64_t e = 0; e < planes->taps; e++) {
            const int64_t position = input + planes->halo - e * planes->shift_step;
            const int64_t output = tconv_cuda_plane_output(planes, plane, position);
            const int64_t k = tconv_cuda_plane_weight(planes, plane, e);
            cr_assert(position >= 0 && position < planes->positions, "%s: position %" PRId64, axis_text(axis, per_tap),
                      position);
            if (k < 0 || output < 0 || output >= planes->out)
                continue;
            cr_assert_lt(k, axis->kernel, "%s", axis_text(axis, per_tap));
            cr_assert_eq(output, axis->stride * input + axis->dilation * k - axis->pad,
                         "%s: input %" PRId64 ", element %" PRId64 ": %" PRId64, axis_text(axis, per_tap), input, k,
                         output);
            terms[k]++;
        }
}

static void check_planes(const tconv_axis *axis, bool per_tap)
{
    const tconv_cuda_planes planes = tconv_cuda_planes_of(axis, per_tap);
    int *terms = calloc((size_t)axis->kernel, sizeof *terms);
    cr_assert_not_null(terms);
    cr_assert(planes.count >= 1 && planes.taps >= 1 && (!per_tap || planes.taps == 1));
    cr_assert_eq(planes.positions, axis->in + planes.halo);
    for (int64_t input = 0; input < axis->in; input++) {
        memset(terms, 0, (size_t)axis->kernel * sizeof *terms);
        count_terms(axis, &planes, per_tap, input, terms);
        for (int64_t k = 0; k < axis->kernel; k++) {
            const int64_t output = axis->stride * input + axis->dilation * k - axis->pad;
            cr_assert_eq(terms[k], output >= 0 && output < axis->out,
                         "%s: input %" PRId64 " has element %" PRId64 " %d times", axis_text(axis, per_tap), input, k,
                         terms[k]);
        }
    }
    free(terms);
}

/* Random axes, as implementations see them: stride and dilation that share a factor, padding that eats the kernel or goes
 * past it, outputs that no tap reaches. */
Test(planes, have_the_terms_of_the_gradient)
{
    harness_random random;
    int checked = 0, shared = 0, eaten = 0;
    harness_random_seed(&random, 20261126);
    for (int i = 0; i < 20000; i++) {
        tconv_axis axis;
        const int64_t in = harness_random_integer(&random, 1, harness_random_chance(&random, 30) ? 2 : 9);
        const int64_t kernel = harness_random_integer(&random, 1, 9), stride = harness_random_integer(&random, 1, 7);
        const int64_t dilation = harness_random_integer(&random, 1, harness_random_chance(&random, 50) ? 1 : 6);
        const int64_t most = harness_random_chance(&random, 70) ? kernel - 1 : 3 * kernel * dilation;
        const int64_t pad = harness_random_integer(&random, 0, most), end = harness_random_integer(&random, 0, most);
        const int64_t widest = (stride > dilation ? stride : dilation) - 1;
        if (tconv_axis_init(&axis, in, kernel, stride, dilation, pad, end, harness_random_integer(&random, 0, widest),
                            "h", NULL) != TCONV_SUCCESS)
            continue;
        axis = tconv_axis_canonical(axis);
        for (int per_tap = 0; per_tap < 2; per_tap++)
            check_planes(&axis, per_tap);
        checked++;
        shared += tconv_gcd(axis.stride, axis.dilation) > 1;
        eaten += axis.pad > axis.dilation * (axis.kernel - 1);
    }
    cr_assert(checked > 5000 && shared > 500 && eaten > 500, "%d axes, %d, %d", checked, shared, eaten);
}

/* What the layer's kernel needs is what is multiplied: with a plane for each kernel element always, with one for each
 * phase where all phases have as many taps. */
Test(planes, are_as_many_as_needed)
{
    static const struct {
        tconv_axis axis;
        int planes, taps, per_tap;
    } known[] = {
        {{.in = 8, .out = 16, .kernel = 4, .stride = 2, .dilation = 1, .pad = 1}, 2, 2, 4},
        {{.in = 8, .out = 16, .kernel = 2, .stride = 2, .dilation = 1}, 2, 1, 2},
        {{.in = 8, .out = 16, .kernel = 3, .stride = 2, .dilation = 1, .pad = 1}, 2, 2, 3},
        {{.in = 8, .out = 10, .kernel = 3, .stride = 1, .dilation = 1}, 1, 3, 3},
        {{.in = 8, .out = 19, .kernel = 3, .stride = 2, .dilation = 2}, 1, 3, 3},
        {{.in = 1, .out = 2, .kernel = 4, .stride = 4, .dilation = 1, .pad = 1}, 2, 1, 2}, /* two reach no output */
        {{.in = 3, .out = 1, .kernel = 1, .stride = 9, .dilation = 1, .pad = 5}, 1, 1, 1}, /* none does */
    };
    for (size_t i = 0; i < COUNT(known); i++) {
        const tconv_cuda_planes planes = tconv_cuda_planes_of(&known[i].axis, false);
        const tconv_cuda_planes per_tap = tconv_cuda_planes_of(&known[i].axis, true);
        cr_expect(planes.count == known[i].planes && planes.taps == known[i].taps, "axis %zu", i);
        cr_expect(per_tap.count == known[i].per_tap && per_tap.taps == 1, "axis %zu", i);
    }
}
