/* Layers seen as others. */
#include "views.h"

#include "checked.h"

tconv_axis tconv_one_pixel_axis(void)
{
    return (tconv_axis){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
}

bool tconv_is_one_pixel_axis(const tconv_axis *axis)
{
    return axis->in == 1 && axis->out == 1 && axis->kernel == 1 && axis->pad == 0;
}

bool tconv_has_single_taps(const tconv_axis *axis)
{
    return axis->kernel == axis->stride && axis->dilation == 1 && axis->pad == 0 &&
           axis->out == axis->in * axis->stride;
}

tconv_phase_table tconv_one_phase(const tconv_axis *axis, tconv_phase *phase)
{
    *phase = (tconv_phase){.outputs = axis->out, .taps = axis->kernel, .first_shift = axis->pad};
    return (tconv_phase_table){.stride = 1,
                               .kernel_step = 1,
                               .shift_step = axis->dilation,
                               .count = 1,
                               .max_taps = axis->kernel,
                               .min_shift = axis->pad - (axis->kernel - 1) * axis->dilation,
                               .max_shift = axis->pad,
                               .phases = phase};
}

/* Returns whether an axis of one input has a tap for each output, the first one of a phase of its own. Later taps of a phase
 * read what is before the input: there are none unless the kernel is huge (tconv_axis_canonical). */
static bool has_all_taps(const tconv_axis *axis, const tconv_phase_table *table)
{
    if (axis->in != 1 || table->count != axis->out)
        return false;
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].first_shift != 0)
            return false;
    return true;
}

bool tconv_is_one_pixel(const tconv_layer *layer)
{
    return !layer->phases_of_src && has_all_taps(&layer->problem.h, &layer->rows) &&
           has_all_taps(&layer->problem.w, &layer->columns);
}

void tconv_flatten_one_pixel(tconv_problem *problem)
{
    const int64_t outputs = problem->h.out * problem->w.out;
    problem->layout = TCONV_NHWC;
    problem->h = problem->w = tconv_one_pixel_axis();
    problem->group_out *= outputs;
    problem->out_channels *= outputs;
    problem->src.c = problem->dst.c = 1;
    problem->src.h = problem->src.w = problem->src.n;
    problem->dst.h = problem->dst.w = problem->dst.n;
}

int64_t tconv_most_columns_as_channels(const tconv_layer *layer)
{
    const tconv_axis *axis = &layer->problem.w;
    if (axis->dilation != 1 || layer->columns.bias_only > 0)
        return 1;
    return tconv_gcd(tconv_gcd(axis->stride, axis->kernel), tconv_gcd(axis->pad, axis->out));
}

void tconv_columns_as_channels(tconv_layer *layer, int64_t columns, tconv_phase *phases)
{
    tconv_problem *problem = &layer->problem;
    tconv_phase_table *table = &layer->columns;
    const tconv_phase *all = table->phases;
    problem->w.stride /= columns;
    problem->w.pad /= columns;
    problem->w.kernel /= columns;
    problem->w.out /= columns;
    problem->group_out *= columns;
    problem->out_channels *= columns;
    problem->dst.w *= columns;
    problem->weight.w *= columns;
    table->stride /= columns;
    table->kernel_step /= columns;
    table->count /= columns;
    table->phases = phases;
    for (int64_t i = 0; i < table->count; i++) {
        phases[i] = all[i * columns]; /* phases are sorted by residue, and all residues are there */
        phases[i].residue /= columns;
        phases[i].first_kernel /= columns;
    }
}

void tconv_fuse_groups(tconv_problem *problem, int64_t fused)
{
    problem->groups /= fused;
    problem->group_in *= fused;
    problem->group_out *= fused;
}

static tconv_axis exchanged_axis(const tconv_axis *axis)
{
    return (tconv_axis){.in = axis->out, .out = axis->in, .kernel = axis->kernel, .stride = 1, .dilation = 1};
}

tconv_problem tconv_exchanged(const tconv_problem *problem)
{
    tconv_problem exchanged = *problem;
    exchanged.in_channels = problem->out_channels;
    exchanged.out_channels = problem->in_channels;
    exchanged.group_in = problem->group_out;
    exchanged.group_out = problem->group_in;
    exchanged.h = exchanged_axis(&problem->h);
    exchanged.w = exchanged_axis(&problem->w);
    exchanged.src = problem->dst;
    exchanged.dst = problem->src;
    exchanged.src_extent = problem->dst_extent;
    exchanged.dst_extent = problem->src_extent;
    exchanged.weight.in = problem->weight.out;
    exchanged.weight.out = problem->weight.in;
    return exchanged;
}

/* No sum overflows: the validator keeps what an axis spans below 2^61, and the stride below 2^62. */
tconv_axis tconv_reaching_kernel(const tconv_axis *axis, int64_t *first_kernel)
{
    /* The first element that reaches an output from the last input, and one past the last that does from the first. */
    int64_t first = tconv_max(0, tconv_ceil_div(axis->pad - (axis->in - 1) * axis->stride, axis->dilation));
    int64_t end = tconv_min(axis->kernel, (axis->out + axis->pad - 1) / axis->dilation + 1);
    if (end <= first) { /* none does, and neither does element 0 */
        first = 0;
        end = 1;
    }
    tconv_axis reaching = *axis;
    reaching.kernel = end - first;
    reaching.pad -= first * axis->dilation;
    *first_kernel = first;
    return reaching;
}

tconv_phase_table tconv_phases_of_src(const tconv_axis *axis, int64_t first_kernel, tconv_phase *phases)
{
    const int64_t common = tconv_gcd(axis->stride, axis->dilation);
    const int64_t kernel_step = axis->stride / common, shift_step = axis->dilation / common;
    const int64_t count = tconv_min(axis->kernel, kernel_step), max_taps = tconv_ceil_div(axis->kernel, kernel_step);
    for (int64_t i = 0; i < count; i++)
        phases[i] = (tconv_phase){.residue = axis->dilation * i - axis->pad,
                                  .outputs = axis->in,
                                  .taps = (axis->kernel - i - 1) / kernel_step + 1,
                                  .first_kernel = first_kernel + i};
    return (tconv_phase_table){.stride = axis->stride,
                               .kernel_step = kernel_step,
                               .shift_step = -shift_step,
                               .count = count,
                               .max_taps = max_taps,
                               .max_shift = (max_taps - 1) * shift_step,
                               .phases = phases};
}
