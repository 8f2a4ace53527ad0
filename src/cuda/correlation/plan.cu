/* Plans a layer: the planes, the derived layer, the chunks, and the implementation that is predicted to be fastest. */
#include "plan.h"

#include <cfloat>
#include <cstring>

#include "../../core/checked.h"
#include "../cuda_backend.h"
#include "../model/planned.h"

namespace tconv::correlation
{

namespace
{

constexpr int64_t MAX_SCRATCH = (int64_t)48 << 20; /* bytes, of all that a chunk needs */
constexpr int64_t MAX_DEPTH = (int64_t)32 << 20;   /* bytes of a chunk's planes: they stay in the L2 of an H200 */
constexpr int64_t MAX_ELEMENTS = INT32_MAX;        /* of a chunk's planes, and of derived weights */
constexpr int64_t ALIGNMENT = 256;                 /* bytes, of each part of the memory */

/* How planes are made: of an axis with the taps of a phase for each, or with one. */
struct way {
    bool in_place, rows_per_tap, columns_per_tap;
};
constexpr way WAYS[] = {
    {true, false, false}, {false, false, false}, {false, true, true}, {false, true, false}, {false, false, true}};

/* Whether an axis may be read as it lies: it has one plane, and forward's paddings are not negative. An axis of one
 * input has another stride than 1 in the form in which implementations see it (tconv_axis_canonical). */
bool may_be_in_place(const tconv_axis *axis, const tconv_cuda_planes *planes)
{
    return planes->stride == 1 && planes->count == 1 && planes->pad <= planes->halo &&
           axis->out - axis->in + planes->pad >= 0 && (axis->out > 1 || planes->taps == 1);
}

/* Whether a way is one of the layer's, and not the same as another; given the planes that have the taps of a phase. */
bool is_tried(const tconv_problem *problem, const way &way, const tconv_cuda_planes *rows,
              const tconv_cuda_planes *columns)
{
    if (way.rows_per_tap || way.columns_per_tap)
        return (!way.rows_per_tap || rows->taps > 1) && (!way.columns_per_tap || columns->taps > 1);
    return way.in_place == (may_be_in_place(&problem->h, rows) && may_be_in_place(&problem->w, columns));
}

/* As many of them as leave room for so many elements, `each` of one: chunks are as even as they come. */
int64_t fit(int64_t have, double each, int64_t most)
{
    const int64_t room = tconv_max(1, (int64_t)((double)most / each));
    return room >= have ? have : tconv_ceil_div(have, tconv_ceil_div(have, room));
}

int64_t vector_of(const tconv_problem *problem)
{
    return model::VECTOR_BYTES / (int64_t)problem->element_size;
}

/* The elements of a row of planes. Where taps are neighbours each row begins at a vector; else planes are read as one
 * row, and those begin at one. */
int64_t row_elements_of(const tconv_problem *problem, const plan *made)
{
    const int64_t positions = made->columns.positions;
    const bool one_row = made->rows.taps == 1 && made->columns.taps == 1;
    return problem->layout == TCONV_NHWC || one_row ? positions : tconv_round_up(positions, vector_of(problem));
}

/* The channels of the derived layer's src; false where they are too many. */
bool count_channels(const tconv_problem *problem, const plan *made, int64_t *channels)
{
    return tconv_checked_mul((int64_t)made->rows.count * made->columns.count, problem->out_channels, channels) &&
           *channels <= MAX_ELEMENTS;
}

/* Sets the chunks, so that the planes of one take at most MAX_DEPTH: of images, then of rows. A row that takes more is
 * taken all the same where its planes have no halo. */
bool cut_chunks(const tconv_problem *problem, int64_t channels, plan *made)
{
    const int64_t batch = tconv_max(problem->batch, 1), most = MAX_DEPTH / (int64_t)problem->element_size;
    const double row = (double)channels * (double)row_elements_of(problem, made);
    made->chunk_rows = problem->h.in;
    made->images = made->in_place ? batch : fit(batch, row * made->rows.positions, most);
    if (!made->in_place && row * made->rows.positions > (double)most) {
        const int64_t rows = (int64_t)((double)most / row) - made->rows.halo;
        if (rows < 1 && made->rows.halo > 0)
            return false;
        made->chunk_rows = fit(problem->h.in, 1, tconv_max(rows, 1));
    }
    made->image_chunks = tconv_ceil_div(batch, made->images);
    made->row_chunks = tconv_ceil_div(problem->h.in, made->chunk_rows);
    return made->in_place || (double)made->images * row * (double)(made->chunk_rows + made->rows.halo) <= MAX_ELEMENTS;
}

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

/* Describes the gradient of dst as it lies as the derived layer's src. */
void describe_in_place(const tconv_problem *problem, const plan *made, tconv_desc *desc)
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
    desc->pad_right = columns - problem->w.in;
    const int64_t strides[4] = {depth->to_image, depth->to_channel, depth->to_row, depth->to_pixel};
    memcpy(desc->src_strides, strides, sizeof strides);

    depth->from_strides = problem->dst;
    depth->rows = made->rows;
    depth->rows.positions = (int)rows;
    depth->columns = made->columns;
    depth->images = (int)made->images;
    depth->group_out = (int)problem->group_out;
    depth->row_elements = (int)columns;
    depth->groups = divisor_of((int)problem->groups);
    depth->channels = divisor_of((int)problem->out_channels);
    depth->group_channels = divisor_of((int)problem->group_out);
    depth->row_planes = divisor_of(made->rows.count);
    depth->row_positions = divisor_of((int)rows);
    depth->column_positions = divisor_of(made->columns.positions);
    made->depth_bytes = tconv_round_up(made->images * depth->to_image * (int64_t)problem->element_size, ALIGNMENT);
}

/* Describes how the derived layer's weights are made; false where they are too many. Neighbours in the layer's weights
 * stay neighbours, as far as they are of one tap. */
bool describe_weights(const tconv_problem *problem, plan *made)
{
    const tconv_problem *derived = &made->derived.problem;
    weight_shape *weights = &made->weights;
    if (derived->weight_extent > MAX_ELEMENTS || problem->in_channels > MAX_ELEMENTS)
        return false;
    weights->from_strides = problem->weight;
    weights->to_strides = derived->weight;
    weights->rows = made->rows;
    weights->columns = made->columns;
    weights->inputs_inside = problem->desc.weight_layout == TCONV_WEIGHT_HWOI;
    weights->group_in = (int)problem->group_in;
    weights->group_out = (int)problem->group_out;
    weights->lines = derived->weight_extent / (weights->inputs_inside ? problem->group_in : problem->group_out);
    weights->groups = divisor_of((int)problem->groups);
    weights->row_taps = divisor_of(made->rows.taps);
    weights->column_taps = divisor_of(made->columns.taps);
    weights->row_planes = divisor_of(made->rows.count);
    weights->column_planes = divisor_of(made->columns.count);
    made->weights_bytes = tconv_round_up(derived->weight_extent * (int64_t)problem->element_size, ALIGNMENT);
    return true;
}

/* Describes the derived layer of a chunk, and how its operands are made. */
bool describe_derived(const tconv_layer *layer, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *dst = &problem->src;
    const int64_t strides[4] = {dst->n, dst->c, dst->h, dst->w};
    tconv_layer *derived = &made->derived;
    tconv_desc desc;
    if (tconv_desc_init(&desc) != TCONV_SUCCESS || !count_channels(problem, made, &desc.in_channels) ||
        !cut_chunks(problem, desc.in_channels, made))
        return false;
    desc.batch = made->images;
    desc.out_channels = problem->in_channels;
    desc.groups = problem->groups;
    desc.kernel_h = made->rows.taps;
    desc.kernel_w = made->columns.taps;
    desc.dilation_h = made->rows.shift_step;
    desc.dilation_w = made->columns.shift_step;
    desc.dtype = problem->dtype;
    desc.layout = problem->layout;
    desc.math = layer->target.math;
    desc.weight_layout = problem->desc.weight_layout == TCONV_WEIGHT_HWOI ? TCONV_WEIGHT_IHWO : TCONV_WEIGHT_HWOI;
    memcpy(desc.dst_strides, strides, sizeof strides);
    if (made->in_place)
        describe_in_place(problem, made, &desc);
    else
        describe_planes(problem, made, &desc);
    if (tconv_problem_init(&derived->problem, &desc, NULL) != TCONV_SUCCESS)
        return false;
    derived->rows = table_of(&made->row_phase, &derived->problem.h);
    derived->columns = table_of(&made->column_phase, &derived->problem.w);
    derived->target = layer->target;
    derived->packed_before = layer->packed_before;
    return describe_weights(problem, made);
}

/* Has each implementation plan the derived layer, and keeps the plan of the fastest with what it needs; false where none
 * takes less than a limit, 0 for none. One whose plan has another's in it (cuda_columns) has no room. */
bool choose_inner(double limit, plan *made, tconv_cuda_work *work)
{
    const tconv_cuda_machine machine = model::machine_of(&made->derived);
    const tconv_cuda_work begun = model::begin_work(&made->derived);
    const unsigned dtype = TCONV_DTYPE_BIT(made->derived.problem.dtype);
    if (model::is_beyond(limit, &machine, &begun))
        return false;
    tconv_planned best = {};
    const auto plan_by = [&](const tconv_implementation *by, tconv_cuda_work *counts) {
        tconv_planned planned = {};
        planned.work = counts;
        planned.limit = counts != NULL ? 0 : made->by != NULL ? best.prediction.seconds : limit;
        memset(made->made, 0, sizeof made->made);
        const tconv_status status = by->plan(&made->derived, made->made, &planned, NULL);
        const int64_t scratch = (int64_t)planned.sizes.scratch;
        if (status != TCONV_SUCCESS || (scratch > 0 && made->depth_bytes + scratch > MAX_SCRATCH))
            planned.prediction.seconds = -1;
        return planned;
    };
    for (size_t i = 0; tconv_cuda_implementations[i] != NULL; i++) {
        const tconv_implementation *by = tconv_cuda_implementations[i];
        if (by->plan_bytes > sizeof made->made || !(by->dtypes & dtype))
            continue;
        const tconv_planned planned = plan_by(by, NULL);
        if (planned.prediction.seconds > 0 &&
            (made->by == NULL || planned.prediction.seconds < best.prediction.seconds)) {
            made->by = by;
            best = planned;
        }
    }
    if (made->by == NULL)
        return false;
    made->sizes = plan_by(made->by, work).sizes; /* once more, for a plan stays where it was made */
    made->packed_bytes = tconv_round_up((int64_t)made->sizes.packed, ALIGNMENT);
    return true;
}

/* The bytes of the gradient of dst that are read for the planes of a chunk: of the outputs in them, whole rows where
 * those are brought by sectors. */
double read_bytes(const tconv_problem *problem, const plan *made)
{
    const auto fewer = [](double a, double b) { return a < b ? a : b; };
    const double rows = fewer((double)problem->h.out, (double)made->rows.count * made->depth.rows.positions);
    const double columns = problem->layout == TCONV_NCHW
                               ? (double)problem->w.out
                               : fewer((double)problem->w.out, (double)made->columns.count * made->columns.positions);
    return (double)made->images * (double)problem->out_channels * rows * columns * (double)problem->element_size;
}

/* Makes the work of all chunks of that of one. Making its planes is a pass. */
void count_chunks(const tconv_problem *problem, const plan *made, tconv_cuda_work *work)
{
    const double chunks = (double)chunks_of(made);
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    work->passes = chunks * (work->passes + 1 + (made->in_place ? 0 : 1)) - 1; /* the first launch is not a pass */
    work->pass_bytes *= chunks;
    if (!made->in_place)
        work->pass_bytes += chunks * ((double)made->depth_bytes + read_bytes(problem, made));
}

/* What making planes takes, and launching all chunks but for the first's kernel. */
double seconds_of_passes(const tconv_layer *layer, const plan *made)
{
    const tconv_cuda_machine machine = model::machine_of(layer);
    tconv_cuda_work work = {};
    count_chunks(&layer->problem, made, &work);
    return tconv_cuda_least_seconds(&machine, &work) - machine.launch;
}

/* Plans a layer one way, to take less than a limit, 0 for none. */
const char *plan_way(const tconv_layer *layer, const way &way, double limit, plan *made, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    *made = {};
    made->in_place = way.in_place;
    tconv_cuda_planes_of(&problem->h, way.rows_per_tap, &made->rows);
    tconv_cuda_planes_of(&problem->w, way.columns_per_tap, &made->columns);
    if (!describe_derived(layer, made))
        return "planes or weights too many for a layer";
    const double left = limit > 0 ? limit - seconds_of_passes(layer, made) : 0;
    if ((limit > 0 && left <= 0) || !choose_inner(left / (double)chunks_of(made), made, work))
        return limit > 0 ? TCONV_NO_FASTER : "no implementation that takes the planes in 48 MiB";
    count_chunks(problem, made, work);
    return NULL;
}

} // namespace

const char *make_plan(const tconv_layer *layer, double limit, plan *made, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cuda_machine machine = model::machine_of(layer);
    tconv_cuda_planes rows, columns;
    if (!tconv_cuda_planes_of(&problem->h, false, &rows) || !tconv_cuda_planes_of(&problem->w, false, &columns))
        return "an extent or a stride too large for 32-bit coordinates";
    const char *why = NULL;
    double least = limit > 0 ? limit : DBL_MAX;
    const way *best = NULL, *last = NULL;
    for (const way &way : WAYS) {
        if (!is_tried(problem, way, &rows, &columns))
            continue;
        last = &way;
        why = plan_way(layer, way, least < DBL_MAX ? least : 0, made, work);
        const double seconds = why == NULL ? model::seconds_of(&machine, work) : DBL_MAX;
        if (seconds < least) {
            least = seconds;
            best = &way;
        }
    }
    if (best == NULL)
        return why != NULL ? why : TCONV_NO_FASTER;
    return best == last ? NULL : plan_way(layer, *best, 0, made, work); /* again, for a plan stays where it was made */
}

} // namespace tconv::correlation
