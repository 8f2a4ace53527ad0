/* The derived layer of a chunk, and how its operands are made. */
#include <cstring>

#include "../../core/checked.h"
#include "../model/planned.h"
#include "plan.h"

namespace tconv::dgrad
{

namespace
{

constexpr int64_t MAX_COUNT = INT32_MAX; /* of lines of derived weights, and of channels */

tconv_phase_table table_of(tconv_phase *phase, const tconv_axis *axis)
{
    *phase = {0, axis->out, axis->kernel, 0, axis->pad};
    tconv_phase_table table = {};
    table.stride = table.kernel_step = table.count = 1;
    table.shift_step = axis->dilation;
    table.max_taps = axis->kernel;
    table.max_shift = axis->pad;
    table.min_shift = axis->pad - (axis->kernel - 1) * axis->dilation;
    table.phases = phase;
    return table;
}

/* The planes of an axis as the phases of the derived layer's src. */
tconv_phase_table phases_of(tconv_phase *phases, const tconv_cuda_planes *of, int64_t outputs)
{
    tconv_phase_table table = {};
    table.stride = of->stride;
    table.kernel_step = of->kernel_step;
    table.shift_step = -of->shift_step;
    table.count = of->count;
    table.max_taps = of->taps;
    table.max_shift = of->halo;
    table.phases = phases;
    for (int64_t i = 0; i < of->count; i++)
        phases[i] = {tconv_cuda_plane_output(of, i, 0), outputs, (of->kernel - i - 1) / of->kernel_step + 1,
                     of->first_kernel + i, 0};
    return table;
}

/* Describes how partial sums are added, where there are parts. */
void describe_sums(const tconv_problem *problem, plan *made)
{
    const tconv_problem *derived = &made->derived.problem;
    if (made->parts == 1)
        return;
    made->sums.from_strides = derived->dst;
    made->sums.to_strides = problem->src;
    made->sums.parts = (int)made->parts;
    made->sums.count = (int)(derived->batch * problem->in_channels * derived->h.out * derived->w.out);
    made->sums.channels = divisor_of((int)problem->in_channels);
    made->sums.rows = divisor_of((int)derived->h.out);
    made->sums.columns = divisor_of((int)derived->w.out);
    made->sums_bytes = tconv_round_up(derived->dst_extent * (int64_t)sizeof(float), ALIGNMENT);
}

/* Sees all outputs of an image as the channels of one pixel. */
void flatten_one_pixel(const tconv_problem *problem, const plan *made, tconv_problem *to)
{
    to->in_channels *= problem->h.out * problem->w.out;
    to->group_in = to->in_channels / made->parts;
    to->layout = TCONV_NHWC;
    to->h = to->w = ONE_PIXEL;
    to->src = {problem->dst.n, 1, problem->dst.n, problem->dst.n};
    to->dst = {problem->src.n, 1, problem->src.n, problem->src.n};
    to->weight = {1, problem->weight.in, 1, 1};
}

/* Has a chunk of the gradient of dst transposed before: a window of its rows and columns, and zeros around them. */
void describe_window(const tconv_problem *problem, plan *made, tconv_problem *to)
{
    to->h.in = window_of(&made->rows, made->chunk_rows);
    to->w.in = window_of(&made->columns, made->chunk_columns);
    to->h.out = made->chunk_rows;
    to->w.out = made->chunk_columns;
    made->transpose = igemm::transpose_of(to);
    made->transpose.rows = (int)problem->h.out;
    made->transpose.columns = (int)problem->w.out;
    const int64_t vector = vector_of(problem), pixel = tconv_round_up(to->in_channels, vector);
    made->transpose.vectors =
        problem->dst.w == 1 &&
        (to->w.in | problem->w.out | problem->dst.h | problem->dst.c | problem->dst.n | made->columns.pad) % vector ==
            0;
    to->src = {to->h.in * to->w.in * pixel, 1, to->w.in * pixel, pixel};
    to->src_extent = to->batch * to->src.n;
    made->depth_bytes = tconv_round_up(to->src_extent * (int64_t)problem->element_size, ALIGNMENT);
}

/* Describes the derived layer of planes in place: the layer with its tensors' roles exchanged. */
void describe_in_place(const tconv_layer *layer, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const auto exchange = [](const tconv_axis *axis) {
        tconv_axis exchanged = {axis->out, axis->in, axis->kernel, 1, 1, 0, 0};
        return exchanged;
    };
    tconv_layer *derived = &made->derived;
    *derived = *layer;
    derived->phases_of_src = true;
    tconv_problem *to = &derived->problem;
    to->batch = made->images;
    to->groups = made->parts * problem->groups;
    to->in_channels = problem->out_channels;
    to->out_channels = made->parts * problem->in_channels;
    to->group_in = problem->group_out / made->parts;
    to->group_out = problem->group_in;
    to->h = exchange(&problem->h);
    to->w = exchange(&problem->w);
    to->src = problem->dst;
    to->dst = problem->src;
    to->src_extent = problem->dst_extent;
    to->dst_extent = problem->src_extent;
    to->weight.in = problem->weight.out;
    to->weight.out = problem->weight.in;
    if (made->one_pixel)
        flatten_one_pixel(problem, made, to);
    tconv_cuda_planes rows = made->rows, columns = made->columns;
    if (made->source == TRANSPOSED) {
        describe_window(problem, made, to);
        rows.pad = columns.pad = 0; /* windows begin where their first taps are */
    }
    derived->group_weights = made->parts > 1 ? to->group_in * to->weight.in : problem->group_in * problem->weight.in;
    if (made->parts > 1) {
        const int64_t pixels = to->h.out * to->w.out, channels = to->out_channels;
        to->dst = to->layout == TCONV_NHWC ? tconv_strides{pixels * channels, 1, to->w.out * channels, channels}
                                           : tconv_strides{pixels * channels, pixels, to->w.out, 1};
        to->dst_extent = made->images * pixels * channels;
    }
    derived->rows = phases_of(made->row_phases, &rows, to->h.out);
    derived->columns = phases_of(made->column_phases, &columns, to->w.out);
    describe_sums(problem, made);
}

/* Describes the gradient of dst as it lies as the derived layer's src. */
void describe_as_it_lies(const tconv_problem *problem, const plan *made, tconv_desc *desc)
{
    const tconv_strides *src = &problem->dst;
    const int64_t strides[4] = {src->n, src->c, src->h, src->w};
    desc->in_h = problem->h.out;
    desc->in_w = problem->w.out;
    desc->pad_top = made->rows.halo - made->rows.pad;
    desc->pad_left = made->columns.halo - made->columns.pad;
    desc->pad_bottom = problem->h.out - problem->h.in + made->rows.pad;
    desc->pad_right = problem->w.out - problem->w.in + made->columns.pad;
    memcpy(desc->src_strides, strides, sizeof strides);
}

/* Describes planes of a chunk as the derived layer's src. */
void describe_planes(const tconv_problem *problem, plan *made, tconv_desc *desc)
{
    const int64_t vector = vector_of(problem), rows = made->chunk_rows + made->rows.halo;
    const int64_t columns = row_elements_of(problem, made);
    const bool nhwc = problem->layout == TCONV_NHWC;
    depth_shape *depth = &made->depth;
    depth->to_pixel = nhwc ? tconv_round_up(desc->in_channels, vector) : 1;
    depth->to_row = columns * depth->to_pixel;
    depth->to_channel = nhwc ? 1 : tconv_round_up(rows * columns, vector);
    depth->to_image = nhwc ? rows * depth->to_row : desc->in_channels * depth->to_channel;
    desc->in_h = rows;
    desc->in_w = columns;
    desc->pad_top = desc->pad_bottom = made->rows.halo;
    desc->pad_left = made->columns.halo;
    desc->pad_right = columns - made->chunk_columns;
    const int64_t strides[4] = {depth->to_image, depth->to_channel, depth->to_row, depth->to_pixel};
    memcpy(desc->src_strides, strides, sizeof strides);

    depth->from_strides = problem->dst;
    depth->rows = made->rows;
    depth->rows.positions = rows;
    depth->columns = made->columns;
    depth->columns.positions = made->chunk_columns + made->columns.halo;
    depth->images = (int)made->images;
    depth->group_out = (int)problem->group_out;
    depth->row_elements = (int)columns;
    depth->groups = divisor_of((int)problem->groups);
    depth->channels = divisor_of((int)problem->out_channels);
    depth->group_channels = divisor_of((int)problem->group_out);
    depth->row_planes = divisor_of((int)made->rows.count);
    depth->row_positions = divisor_of((int)rows);
    depth->column_positions = divisor_of((int)depth->columns.positions);
    made->depth_bytes = tconv_round_up(made->images * depth->to_image * (int64_t)problem->element_size, ALIGNMENT);
}

/* Describes how the derived layer's weights are made; false where they are too many. Neighbours in the layer's weights
 * stay neighbours, as far as they are of one tap. */
bool describe_weights(const tconv_problem *problem, plan *made)
{
    const tconv_problem *derived = &made->derived.problem;
    weight_shape *weights = &made->weights;
    weights->inputs_inside = problem->desc.weight_layout == TCONV_WEIGHT_HWOI;
    weights->lines = derived->weight_extent / (weights->inputs_inside ? problem->group_in : problem->group_out);
    if (weights->lines > MAX_COUNT || problem->in_channels > MAX_COUNT)
        return false;
    weights->from_strides = problem->weight;
    weights->to_strides = derived->weight;
    weights->rows = made->rows;
    weights->columns = made->columns;
    weights->group_in = (int)problem->group_in;
    weights->group_out = (int)problem->group_out;
    weights->groups = divisor_of((int)problem->groups);
    weights->row_taps = divisor_of((int)made->rows.taps);
    weights->column_taps = divisor_of((int)made->columns.taps);
    weights->row_planes = divisor_of((int)made->rows.count);
    weights->column_planes = divisor_of((int)made->columns.count);
    made->weights_bytes = tconv_round_up(derived->weight_extent * (int64_t)problem->element_size, ALIGNMENT);
    return true;
}

} // namespace

int64_t vector_of(const tconv_problem *problem)
{
    return VECTOR_BYTES / (int64_t)problem->element_size;
}

int64_t row_elements_of(const tconv_problem *problem, const plan *made)
{
    const int64_t positions = made->chunk_columns + made->columns.halo;
    const bool one_row = made->rows.taps == 1 && made->columns.taps == 1;
    return problem->layout == TCONV_NHWC || one_row ? positions : tconv_round_up(positions, vector_of(problem));
}

bool describe_derived(const tconv_layer *layer, int64_t channels, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *dst = &problem->src;
    const int64_t strides[4] = {dst->n, dst->c, dst->h, dst->w};
    tconv_layer *derived = &made->derived;
    tconv_desc desc;
    if (is_in_place(made)) {
        describe_in_place(layer, made);
        return true;
    }
    if (tconv_desc_init(&desc) != TCONV_SUCCESS)
        return false;
    desc.batch = made->images;
    desc.in_channels = channels;
    desc.out_channels = made->parts * problem->in_channels;
    desc.groups = made->parts * problem->groups;
    desc.kernel_h = made->rows.taps;
    desc.kernel_w = made->columns.taps;
    desc.dilation_h = made->rows.shift_step;
    desc.dilation_w = made->columns.shift_step;
    desc.dtype = problem->dtype;
    desc.layout = problem->layout;
    desc.math = layer->target.math;
    desc.weight_layout = problem->desc.weight_layout == TCONV_WEIGHT_HWOI ? TCONV_WEIGHT_IHWO : TCONV_WEIGHT_HWOI;
    if (made->parts == 1)
        memcpy(desc.dst_strides, strides, sizeof strides);
    if (made->source == AS_IT_LIES)
        describe_as_it_lies(problem, made, &desc);
    else
        describe_planes(problem, made, &desc);
    if (tconv_problem_init(&derived->problem, &desc, NULL) != TCONV_SUCCESS)
        return false;
    derived->rows = table_of(made->row_phases, &derived->problem.h);
    derived->columns = table_of(made->column_phases, &derived->problem.w);
    derived->target = layer->target;
    derived->packed_before = layer->packed_before;
    describe_sums(problem, made);
    return describe_weights(problem, made);
}

} // namespace tconv::dgrad
