#include "seen_layer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const tconv_allocator from_malloc;

static int64_t from_to(harness_random *random, int64_t least, int64_t most)
{
    return harness_random_integer(random, least, most);
}

double weight_at(const struct seen_layer *seen, const struct tensors *tensors, int64_t in, int64_t out, int64_t row,
                 int64_t column)
{
    const tconv_weight_strides *strides = &seen->problem->weight;
    if (in % seen->problem->group_in / seen->diagonal_in != out / seen->diagonal_out)
        return 0;
    const int64_t from = in * strides->in + seen->weight_channel[out] + row * strides->h + column * strides->w;
    cr_assert(from >= 0 && from < tensors->weight_extent, "a weight outside of the tensor");
    return tensors->weights[from];
}

bool find_input(const tconv_axis *axis, int64_t output, int64_t kernel, int64_t *input)
{
    const int64_t steps = output + axis->pad - kernel * axis->dilation;
    *input = steps / axis->stride;
    return steps >= 0 && steps % axis->stride == 0 && *input < axis->in;
}

static double sum_terms(const struct seen_layer *seen, const struct tensors *tensors, int64_t image, int64_t channel,
                        int64_t row, int64_t column)
{
    const tconv_problem *problem = seen->problem;
    const int64_t group = channel / problem->group_out, out = channel % problem->group_out;
    double sum = 0;
    int64_t y, x;
    for (int64_t kernel_row = 0; kernel_row < problem->h.kernel; kernel_row++)
        for (int64_t kernel_column = 0; kernel_column < problem->w.kernel; kernel_column++) {
            if (!find_input(&problem->h, row, kernel_row, &y) || !find_input(&problem->w, column, kernel_column, &x))
                continue;
            for (int64_t i = 0; i < problem->group_in; i++) {
                const int64_t in = group * problem->group_in + i;
                const int64_t from =
                    image * problem->src.n + in * problem->src.c + y * problem->src.h + x * problem->src.w;
                cr_assert(from >= 0 && from < tensors->src_extent, "an input outside of src");
                sum += tensors->src[from] * weight_at(seen, tensors, in, out, kernel_row, kernel_column);
            }
        }
    return sum;
}

void compute_seen(const struct seen_layer *seen, struct tensors *tensors)
{
    const tconv_problem *problem = seen->problem;
    for (int64_t n = 0; n < problem->batch; n++)
        for (int64_t c = 0; c < problem->out_channels; c++)
            for (int64_t row = 0; row < problem->h.out; row++)
                for (int64_t column = 0; column < problem->w.out; column++) {
                    const int64_t to =
                        n * problem->dst.n + seen->dst_channel[c] + row * problem->dst.h + column * problem->dst.w;
                    cr_assert(to >= 0 && to < tensors->dst_extent, "an output outside of dst");
                    tensors->dst[to] = sum_terms(seen, tensors, n, c, row, column);
                    tensors->written[to]++;
                }
}

struct seen_layer see_plainly(const tconv_problem *problem)
{
    struct seen_layer seen = {.problem = problem, .diagonal_in = problem->group_in, .diagonal_out = problem->group_out};
    cr_assert_leq(problem->out_channels, SEEN_CHANNELS);
    for (int64_t c = 0; c < problem->out_channels; c++) {
        seen.dst_channel[c] = c * problem->dst.c;
        seen.weight_channel[c] = c * problem->weight.out;
    }
    return seen;
}

static double *make_numbers(harness_random *random, int64_t extent)
{
    double *numbers = calloc((size_t)extent, sizeof *numbers);
    cr_assert_not_null(numbers);
    for (int64_t i = 0; i < extent; i++)
        numbers[i] = (double)from_to(random, -9, 9);
    return numbers;
}

struct tensors make_tensors(harness_random *random, const tconv_problem *problem)
{
    struct tensors tensors = {
        .src_extent = problem->src_extent, .weight_extent = problem->weight_extent, .dst_extent = problem->dst_extent};
    tensors.src = make_numbers(random, tensors.src_extent);
    tensors.weights = make_numbers(random, tensors.weight_extent);
    tensors.dst = make_numbers(random, tensors.dst_extent);
    tensors.written = calloc((size_t)tensors.dst_extent, sizeof *tensors.written);
    cr_assert_not_null(tensors.written);
    return tensors;
}

void release_tensors(struct tensors *tensors)
{
    free(tensors->src), free(tensors->weights), free(tensors->dst), free(tensors->written);
}

tconv_desc draw_seen_layer(harness_random *random)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.layout = (tconv_layout)from_to(random, 0, 1);
    desc.weight_layout = (tconv_weight_layout)from_to(random, 0, 2);
    desc.batch = from_to(random, 1, 2);
    desc.groups = from_to(random, 0, 1) ? 1 : from_to(random, 2, 6);
    desc.in_channels = desc.groups * from_to(random, 1, 3);
    desc.out_channels = desc.groups * from_to(random, 1, 3);
    desc.in_h = from_to(random, 1, 3), desc.in_w = from_to(random, 1, 4);
    desc.kernel_h = from_to(random, 1, 4), desc.kernel_w = from_to(random, 1, 6);
    desc.stride_h = from_to(random, 1, 3), desc.stride_w = from_to(random, 1, 6);
    desc.dilation_h = from_to(random, 0, 2) ? 1 : from_to(random, 2, 3);
    desc.dilation_w = from_to(random, 0, 2) ? 1 : from_to(random, 2, 4);
    desc.pad_top = from_to(random, 0, 2), desc.pad_bottom = from_to(random, 0, 2);
    desc.pad_left = from_to(random, 0, 4), desc.pad_right = from_to(random, 0, 4);
    desc.output_padding_h = from_to(random, 0, desc.stride_h - 1);
    desc.output_padding_w = from_to(random, 0, desc.stride_w - 1);
    return desc;
}

void draw_one_pixel(harness_random *random, tconv_desc *desc)
{
    desc->in_h = desc->in_w = 1;
    desc->dilation_h = from_to(random, 0, 15) ? 1 : 2;
    desc->dilation_w = from_to(random, 0, 15) ? 1 : 2;
    desc->output_padding_h = desc->output_padding_w = 0;
    if (from_to(random, 0, 15) == 0)
        desc->output_padding_w = desc->stride_w - 1;
    desc->layout = from_to(random, 0, 3) ? TCONV_NCHW : TCONV_NHWC;
}

bool make_seen_layer(harness_random *random, tconv_desc *desc, tconv_layer *layer)
{
    tconv_issue issue;
    memset(layer, 0, sizeof *layer);
    harness_draw_slices(random, desc);
    if (tconv_problem_init(&layer->problem, desc, &issue) != TCONV_SUCCESS)
        return false;
    cr_assert_eq(tconv_phases_create(&layer->problem.h, &from_malloc, &layer->rows, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_phases_create(&layer->problem.w, &from_malloc, &layer->columns, &issue), TCONV_SUCCESS);
    return true;
}

void release_seen_layer(tconv_layer *layer)
{
    tconv_phases_release(&layer->rows, &from_malloc);
    tconv_phases_release(&layer->columns, &from_malloc);
}
