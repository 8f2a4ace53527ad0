/* Describes the inner layer of a chunk, and how its operands are made. */
#include "plan.h"

#include <string.h>

#include "../../core/checked.h"
#include "../../core/views.h"

static const int64_t MAX_COUNT = INT32_MAX; /* of lines of weights, and of channels */

/* Returns the planes of an axis as the phases of the inner layer's src. */
static tconv_phase_table phases_of(tconv_phase *phases, const tconv_cuda_planes *planes, int64_t outputs)
{
    const tconv_axis axis = {.in = outputs,
                             .kernel = planes->kernel,
                             .stride = planes->stride,
                             .dilation = planes->dilation,
                             .pad = planes->pad};
    return tconv_phases_of_src(&axis, planes->first_kernel, phases);
}

/* Describes how partial sums are added, where there are parts. */
static void describe_sums(const tconv_problem *problem, dgrad_plan *plan)
{
    const tconv_problem *inner = &plan->inner.layer.problem;
    if (plan->parts == 1)
        return;
    plan->sums.from_strides = inner->dst;
    plan->sums.to_strides = problem->src;
    plan->sums.parts = (int)plan->parts;
    plan->sums.count = (int)(inner->batch * problem->in_channels * inner->h.out * inner->w.out);
    plan->sums.channels = divisor_of((int)problem->in_channels);
    plan->sums.rows = divisor_of((int)inner->h.out);
    plan->sums.columns = divisor_of((int)inner->w.out);
    plan->sums_bytes = tconv_inner_aligned(inner->dst_extent * (int64_t)sizeof(float));
}

/* Has a chunk of the gradient of dst transposed before: a window of its rows and columns, and zeros around them. */
static void describe_window(const tconv_problem *problem, dgrad_plan *plan, tconv_problem *inner)
{
    inner->h.in = window_of(&plan->rows, plan->chunk_rows);
    inner->w.in = window_of(&plan->columns, plan->chunk_columns);
    inner->h.out = plan->chunk_rows;
    inner->w.out = plan->chunk_columns;
    plan->transpose = tconv_igemm_transpose_of(inner);
    plan->transpose.rows = (int)problem->h.out;
    plan->transpose.columns = (int)problem->w.out;
    const int64_t vector = vector_of(problem), pixel = tconv_round_up(inner->in_channels, vector);
    const int64_t all_steps =
        inner->w.in | problem->w.out | problem->dst.h | problem->dst.c | problem->dst.n | plan->columns.pad;
    plan->transpose.vectors = problem->dst.w == 1 && all_steps % vector == 0;
    inner->src = (tconv_strides){.n = inner->h.in * inner->w.in * pixel, .c = 1, .h = inner->w.in * pixel, .w = pixel};
    inner->src_extent = inner->batch * inner->src.n;
    plan->depth_bytes = tconv_inner_aligned(inner->src_extent * (int64_t)problem->element_size);
}

/* Returns the strides of partial sums, which lie densely. */
static tconv_strides dense_strides(const tconv_problem *inner)
{
    const int64_t pixels = inner->h.out * inner->w.out, channels = inner->out_channels;
    if (inner->layout == TCONV_NHWC)
        return (tconv_strides){.n = pixels * channels, .c = 1, .h = inner->w.out * channels, .w = channels};
    return (tconv_strides){.n = pixels * channels, .c = pixels, .h = inner->w.out, .w = 1};
}

/* Makes phases of so many taps at most, and returns how many; 0 where they are too many. */
static int64_t cut_phases(const tconv_phase_table *table, int64_t most, tconv_phase *cut)
{
    int64_t count = 0;
    for (int64_t i = 0; i < table->count; i++)
        for (int64_t tap = 0; tap < table->phases[i].taps; tap += most) {
            if (count == MAX_PHASES)
                return 0;
            tconv_phase *phase = &cut[count++];
            *phase = table->phases[i];
            phase->residue -= tap * table->shift_step * table->stride;
            phase->first_kernel += tap * table->kernel_step;
            phase->taps = tconv_min(most, phase->taps - tap);
        }
    return count;
}

/* Returns the taps of the longest of so many parts of all phases, in the order of cuda_igemm. */
static int64_t longest_part(const tconv_phase *rows, int64_t row_count, const tconv_phase *columns,
                            int64_t column_count, int64_t parts)
{
    const int64_t of_part = row_count * column_count / parts;
    int64_t longest = 0, taps = 0;
    for (int64_t i = 0; i < row_count * column_count; i++) {
        taps = (i % of_part == 0 ? 0 : taps) + rows[i / column_count].taps * columns[i % column_count].taps;
        longest = tconv_max(longest, taps);
    }
    return longest;
}

/* Cuts phases along the axis with more taps, so that parts of them are as even as they can be; false where there are no
 * such parts. */
static bool cut_into_parts(tconv_phase_table *rows, tconv_phase_table *columns, int64_t parts)
{
    const bool of_rows = rows->max_taps >= columns->max_taps;
    tconv_phase_table *const table = of_rows ? rows : columns;
    const tconv_phase_table *const other = of_rows ? columns : rows;
    tconv_phase cut[MAX_PHASES];
    int64_t least = INT64_MAX, best = 0;
    for (int64_t most = table->max_taps; most > 0; most = most == 1 ? 0 : tconv_ceil_div(most, 2)) {
        const int64_t count = cut_phases(table, most, cut);
        if (count == 0 || count * other->count % parts != 0)
            continue;
        const int64_t longest = of_rows ? longest_part(cut, count, other->phases, other->count, parts)
                                        : longest_part(other->phases, other->count, cut, count, parts);
        if (longest < least) {
            least = longest;
            best = most;
        }
    }
    if (best == 0)
        return false;
    table->count = cut_phases(table, best, cut);
    table->max_taps = tconv_min(best, table->max_taps);
    table->max_shift = -(table->max_taps - 1) * table->shift_step;
    memcpy(table->phases, cut, (size_t)table->count * sizeof *cut);
    return true;
}

/* Describes the inner layer whose planes are phases of its src: the layer with its tensors' roles exchanged. False where
 * planes have no such parts. */
static bool describe_strided(const tconv_layer *layer, dgrad_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    tconv_layer *inner_layer = &plan->inner.layer;
    *inner_layer = *layer;
    inner_layer->phases_of_src = true;
    tconv_problem *inner = &inner_layer->problem;
    inner->desc.op = TCONV_FORWARD;
    if (plan->one_pixel)
        tconv_flatten_one_pixel(inner);
    *inner = tconv_exchanged(inner);
    inner->batch = plan->images;
    inner->groups *= plan->parts;
    inner->out_channels *= plan->parts;
    inner->group_in /= plan->of_planes ? 1 : plan->parts;
    if (plan->one_pixel) /* the weights lie as the outputs do */
        inner->weight = (tconv_weight_strides){.in = 1, .out = problem->weight.in, .h = 1, .w = 1};
    tconv_cuda_planes rows = plan->rows, columns = plan->columns;
    if (plan->source == TRANSPOSED) {
        describe_window(problem, plan, inner);
        rows.pad = columns.pad = 0; /* windows begin where their first taps are */
    }
    inner_layer->group_weights = plan->parts > 1 && !plan->of_planes ? inner->group_in * inner->weight.in
                                                                     : problem->group_in * problem->weight.in;
    if (plan->parts > 1) {
        inner->dst = dense_strides(inner);
        inner->dst_extent = plan->images * inner->h.out * inner->w.out * inner->out_channels;
        inner->volumes.written = inner->volumes.images * inner->dst.n;
    }
    inner_layer->rows = phases_of(plan->row_phases, &rows, inner->h.out);
    inner_layer->columns = phases_of(plan->column_phases, &columns, inner->w.out);
    describe_sums(problem, plan);
    return !plan->of_planes || cut_into_parts(&inner_layer->rows, &inner_layer->columns, plan->parts);
}

/* Describes the gradient of dst itself as the inner layer's src. */
static void describe_native(const tconv_problem *problem, const dgrad_plan *plan, tconv_desc *desc)
{
    const tconv_strides *src = &problem->dst;
    const int64_t strides[4] = {src->n, src->c, src->h, src->w};
    desc->in_h = problem->h.out;
    desc->in_w = problem->w.out;
    desc->pad_top = plan->rows.halo - plan->rows.pad;
    desc->pad_left = plan->columns.halo - plan->columns.pad;
    desc->pad_bottom = problem->h.out - problem->h.in + plan->rows.pad;
    desc->pad_right = problem->w.out - problem->w.in + plan->columns.pad;
    memcpy(desc->src_strides, strides, sizeof strides);
}

/* Describes planes of a chunk as the inner layer's src. */
static void describe_planes(const tconv_problem *problem, dgrad_plan *plan, tconv_desc *desc)
{
    const int64_t vector = vector_of(problem), rows = plan->chunk_rows + plan->rows.halo;
    const int64_t columns = tconv_dgrad_row_elements(problem, plan);
    const bool nhwc = problem->layout == TCONV_NHWC;
    depth_shape *depth = &plan->depth;
    depth->to_pixel = nhwc ? tconv_round_up(desc->in_channels, vector) : 1;
    depth->to_row = columns * depth->to_pixel;
    depth->to_channel = nhwc ? 1 : tconv_round_up(rows * columns, vector);
    depth->to_image = nhwc ? rows * depth->to_row : desc->in_channels * depth->to_channel;
    desc->in_h = rows;
    desc->in_w = columns;
    desc->pad_top = desc->pad_bottom = plan->rows.halo;
    desc->pad_left = plan->columns.halo;
    desc->pad_right = columns - plan->chunk_columns;
    const int64_t strides[4] = {depth->to_image, depth->to_channel, depth->to_row, depth->to_pixel};
    memcpy(desc->src_strides, strides, sizeof strides);

    depth->from_strides = problem->dst;
    depth->rows = plan->rows;
    depth->rows.positions = rows;
    depth->columns = plan->columns;
    depth->columns.positions = plan->chunk_columns + plan->columns.halo;
    depth->images = (int)plan->images;
    depth->group_out = (int)problem->group_out;
    depth->row_elements = (int)columns;
    depth->groups = divisor_of((int)problem->groups);
    depth->channels = divisor_of((int)problem->out_channels);
    depth->group_channels = divisor_of((int)problem->group_out);
    depth->row_planes = divisor_of((int)plan->rows.count);
    depth->row_positions = divisor_of((int)rows);
    depth->column_positions = divisor_of((int)depth->columns.positions);
    plan->depth_bytes = tconv_inner_aligned(plan->images * depth->to_image * (int64_t)problem->element_size);
}

/* Describes how the inner layer's weights are made; false where they are too many. Neighbours in the layer's weights
 * stay neighbours, as far as they are of one tap. */
static bool describe_weights(const tconv_problem *problem, dgrad_plan *plan)
{
    const tconv_problem *inner = &plan->inner.layer.problem;
    weight_shape *weights = &plan->weights;
    weights->inputs_inside = problem->desc.weight_layout == TCONV_WEIGHT_HWOI;
    weights->lines = inner->weight_extent / (weights->inputs_inside ? problem->group_in : problem->group_out);
    if (weights->lines > MAX_COUNT || problem->in_channels > MAX_COUNT)
        return false;
    weights->from_strides = problem->weight;
    weights->to_strides = inner->weight;
    weights->rows = plan->rows;
    weights->columns = plan->columns;
    weights->group_in = (int)problem->group_in;
    weights->group_out = (int)problem->group_out;
    weights->groups = divisor_of((int)problem->groups);
    weights->row_taps = divisor_of((int)plan->rows.taps);
    weights->column_taps = divisor_of((int)plan->columns.taps);
    weights->row_planes = divisor_of((int)plan->rows.count);
    weights->column_planes = divisor_of((int)plan->columns.count);
    plan->weights_bytes = tconv_inner_aligned(inner->weight_extent * (int64_t)problem->element_size);
    return true;
}

void tconv_dgrad_read_backwards(const tconv_problem *problem, dgrad_plan *plan)
{
    const tconv_weight_strides *from = &problem->weight;
    tconv_weight_strides *derived = &plan->inner.layer.problem.weight;
    const bool one_tap = problem->h.kernel == 1 && problem->w.kernel == 1 && derived->in == from->out &&
                         derived->out == from->in; /* derived weights would be a copy */
    /* Taps that reach no output are none of the inner layer's. */
    const bool whole = plan->rows.taps == problem->h.kernel && plan->columns.taps == problem->w.kernel;
    const bool depthwise = plan->inner.implementation == &tconv_cuda_depthwise_forward;
    plan->reads_backwards = plan->source == NATIVE && plan->parts == 1 && whole && (one_tap || depthwise);
    if (!plan->reads_backwards)
        return;
    if (depthwise)
        *derived =
            (tconv_weight_strides){.in = problem->group_in * from->in, .out = from->in, .h = -from->h, .w = -from->w};
    plan->last_tap = (problem->h.kernel - 1) * from->h + (problem->w.kernel - 1) * from->w;
    plan->weights_bytes = 0;
}

int64_t tconv_dgrad_row_elements(const tconv_problem *problem, const dgrad_plan *plan)
{
    const int64_t positions = plan->chunk_columns + plan->columns.halo;
    const bool one_row = plan->rows.taps == 1 && plan->columns.taps == 1;
    return problem->layout == TCONV_NHWC || one_row ? positions : tconv_round_up(positions, vector_of(problem));
}

bool tconv_dgrad_describe_inner(const tconv_layer *layer, int64_t channels, dgrad_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *dst = &problem->src;
    const int64_t strides[4] = {dst->n, dst->c, dst->h, dst->w};
    tconv_layer *inner = &plan->inner.layer;
    tconv_desc desc;
    if (is_strided(plan))
        return describe_strided(layer, plan);
    if (tconv_desc_init(&desc) != TCONV_SUCCESS)
        return false;
    desc.batch = plan->images;
    desc.in_channels = channels;
    desc.out_channels = plan->parts * problem->in_channels;
    desc.groups = plan->parts * problem->groups;
    desc.kernel_h = plan->rows.taps;
    desc.kernel_w = plan->columns.taps;
    desc.dilation_h = plan->rows.shift_step;
    desc.dilation_w = plan->columns.shift_step;
    desc.dtype = problem->dtype;
    desc.accumulate = problem->desc.accumulate;
    desc.layout = problem->layout;
    desc.math = layer->target.math;
    desc.weight_layout = problem->desc.weight_layout == TCONV_WEIGHT_HWOI ? TCONV_WEIGHT_IHWO : TCONV_WEIGHT_HWOI;
    if (plan->parts == 1)
        memcpy(desc.dst_strides, strides, sizeof strides);
    if (plan->source == NATIVE)
        describe_native(problem, plan, &desc);
    else
        describe_planes(problem, plan, &desc);
    if (tconv_problem_derive(&inner->problem, &desc, NULL) != TCONV_SUCCESS)
        return false;
    inner->rows = tconv_one_phase(&inner->problem.h, plan->row_phases);
    inner->columns = tconv_one_phase(&inner->problem.w, plan->column_phases);
    inner->target = layer->target;
    inner->packed_before = layer->packed_before;
    describe_sums(problem, plan);
    return describe_weights(problem, plan);
}
