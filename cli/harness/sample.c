/*
 * Single output pixels of a case: which of them tell most of a layer that is too large to be judged whole, and what the
 * formula of tconv.h says of one. Nothing here asks the library.
 */
#include <math.h>
#include <stdlib.h>

#include "case.h"
#include "element.h"

/* The first and the last of each of the four axes. */
#define ENDS 16
/* Of a phase: its first, one between and its last row, by as many columns. */
#define PLACES        3
#define PHASE_SAMPLES (PLACES * PLACES)
/* Beyond so many phases of an axis, as many are taken, evenly apart. */
#define MOST_PHASES 8

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How many phases of an axis are looked at. */
static int64_t phases_seen(int64_t stride, int64_t out)
{
    return smaller(smaller(stride, out), MOST_PHASES);
}

int64_t harness_placed_samples(const harness_case *test)
{
    const tconv_desc *desc = &test->layer.desc;
    const int64_t *shape = test->dst_view.shape;
    return ENDS + phases_seen(desc->stride_h, shape[2]) * phases_seen(desc->stride_w, shape[3]) * PHASE_SAMPLES;
}

/* The first, a middle or the last output of the phase-th of the phases that are seen. */
static int64_t output_of_phase(int64_t stride, int64_t out, int64_t phase, int64_t place)
{
    const int64_t phases = smaller(stride, out);
    const int64_t first = phase * phases / phases_seen(stride, out);
    const int64_t count = (out - 1 - first) / stride + 1;
    return first + place * (count - 1) / (PLACES - 1) * stride;
}

/* The first and the last more often than others. */
static int64_t draw_index(harness_random *random, int64_t extent)
{
    switch (harness_random_integer(random, 0, 5)) {
    case 0: return 0;
    case 1: return extent - 1;
    default: return harness_random_integer(random, 0, extent - 1);
    }
}

void harness_pick_sample(const harness_case *test, int64_t index, harness_random *random, int64_t at[4])
{
    const tconv_desc *desc = &test->layer.desc;
    const int64_t *shape = test->dst_view.shape;
    if (index < ENDS) {
        for (int axis = 0; axis < 4; ++axis)
            at[axis] = (index >> axis & 1) * (shape[axis] - 1);
    } else if (index < harness_placed_samples(test)) {
        const int64_t columns = phases_seen(desc->stride_w, shape[3]);
        const int64_t place = (index - ENDS) % PHASE_SAMPLES, phase = (index - ENDS) / PHASE_SAMPLES;
        at[0] = draw_index(random, shape[0]);
        at[1] = draw_index(random, shape[1]);
        at[2] = output_of_phase(desc->stride_h, shape[2], phase / columns, place / PLACES);
        at[3] = output_of_phase(desc->stride_w, shape[3], phase % columns, place % PLACES);
    } else {
        for (int axis = 0; axis < 4; ++axis)
            at[axis] = harness_random_integer(random, 0, shape[axis] - 1);
    }
}

void harness_pixel(const harness_case *test, const int64_t at[4], double *value, double *bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const int64_t group_in = desc->in_channels / desc->groups, group_out = desc->out_channels / desc->groups;
    const int64_t group = at[1] / group_out, out = at[1] % group_out;
    double sum = test->layer.has_bias ? harness_element_get(desc->dtype, test->bias.data, at[1]) : 0;
    double magnitude = fabs(sum);
    for (int64_t kh = 0; kh < desc->kernel_h; ++kh) {
        int64_t row = at[2] + desc->pad_top - kh * desc->dilation_h;
        if (row < 0 || row % desc->stride_h != 0 || row / desc->stride_h >= desc->in_h)
            continue;
        for (int64_t kw = 0; kw < desc->kernel_w; ++kw) {
            int64_t column = at[3] + desc->pad_left - kw * desc->dilation_w;
            if (column < 0 || column % desc->stride_w != 0 || column / desc->stride_w >= desc->in_w)
                continue;
            for (int64_t in = group * group_in; in < (group + 1) * group_in; ++in) {
                int64_t src_at =
                    harness_view_index(&test->src_view, at[0], in, row / desc->stride_h, column / desc->stride_w);
                int64_t weight_at = harness_view_index(&test->weights_view, in, out, kh, kw);
                double product = harness_element_get(desc->dtype, test->src.data, src_at) *
                                 harness_element_get(desc->dtype, test->weights.data, weight_at);
                sum += product;
                magnitude += fabs(product);
            }
        }
    }
    *value = sum;
    *bound = magnitude;
}
