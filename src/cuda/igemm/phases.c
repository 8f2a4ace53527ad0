/* The phases of src as TMA reads them, where tiles sum over them: how it gets from a pixel of a phase to the next. */
#include "plan.h"

#include "../../core/checked.h"
#include "../maps/hopper.h"

int64_t tconv_igemm_most_outputs(const tconv_phase_table *table)
{
    int64_t most = 0;
    for (int64_t i = 0; i < table->count; i++)
        most = tconv_max(most, table->phases[i].outputs);
    return most;
}

/* Returns whether the only row of src is seen as rows of columns a stride apart, each of which has all pixels of some column
 * phases: where TMA cannot step over those between. */
static bool has_columns_as_rows(const tconv_layer *layer)
{
    const tconv_axis *rows = &layer->problem.h, *columns = &layer->problem.w;
    return layer->phases_of_src && layer->columns.stride > MAX_BOX_STEP && columns->in % layer->columns.stride == 0 &&
           rows->in == 1 && rows->out == 1 && layer->rows.count == 1 && layer->rows.max_taps == 1 &&
           layer->rows.phases[0].residue == 0;
}

/* Returns whether rows of src that lie a stride apart, of all images, are seen as the rows of an image that a row phase has:
 * likewise. No tap reads rows that are not there, which would be those of another image. */
static bool has_rows_as_images(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_phase_table *rows = &layer->rows;
    const int64_t stride = rows->stride, image_rows = problem->h.in / stride;
    if (!layer->phases_of_src || problem->plane_taps.taps > 0 || problem->volumes.images > 0 ||
        stride <= MAX_BOX_STEP || layer->columns.stride > MAX_BOX_STEP || problem->h.in % stride != 0 ||
        problem->src.n != problem->h.in * problem->src.h)
        return false;
    for (int64_t i = 0; i < rows->count; i++) {
        const tconv_phase *phase = &rows->phases[i];
        const int64_t first = phase->residue / stride;
        if (phase->residue < 0 || first + phase->outputs - 1 - (phase->taps - 1) * rows->shift_step >= image_rows)
            return false;
    }
    return problem->batch * image_rows < HOPPER_MAX_EXTENT;
}

/* Returns whether TMA can step over the pixels between those of a phase of src. */
static bool tma_steps_over(const tconv_layer *layer)
{
    return !layer->phases_of_src || (layer->rows.stride <= MAX_BOX_STEP && layer->columns.stride <= MAX_BOX_STEP);
}

static void describe_rows_as_images(const tconv_layer *layer, parameters *params)
{
    const int stride = (int)layer->rows.stride;
    params->from.n = params->from.h;
    params->from.h *= stride;
    params->image_rows = params->in_rows / stride;
    params->src_images = stride;
    params->in_rows = params->images * params->image_rows;
    params->src_row_stride = 1;
    for (int i = 0; i < params->row_phases; i++) {
        axis_phase *phase = &params->rows[i];
        phase->src_image = phase->src_residue % stride;
        phase->src_residue /= stride;
    }
}

static void describe_columns_as_rows(const tconv_layer *layer, parameters *params)
{
    const int stride = (int)layer->columns.stride;
    params->from.h = params->from.w;
    params->from.w *= stride;
    params->in_rows = stride;
    params->in_columns /= stride;
    params->src_row_stride = params->src_column_stride = 1;
    for (int i = 0; i < params->column_phases; i++) {
        axis_phase *phase = &params->columns[i];
        const int column = (int)tconv_floor_div(phase->src_residue, stride);
        phase->src_row = phase->src_residue - column * stride;
        phase->src_residue = column;
    }
}

/* The inputs of the taps that are first and last along an axis, in elements of src, where phases are those of src. */
typedef struct tap_span {
    int64_t first, last;
} tap_span;

static tap_span tap_span_of(const tconv_phase_table *table)
{
    tap_span span = {table->phases[0].residue, table->phases[0].residue};
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        const int64_t first = phase->first_shift * table->stride + phase->residue;
        const int64_t last = first - (phase->taps - 1) * table->shift_step * table->stride;
        span.first = tconv_min(span.first, tconv_min(first, last));
        span.last = tconv_max(span.last, tconv_max(first, last));
    }
    return span;
}

static bool is_im2col_corner(int64_t corner)
{
    return corner >= MIN_IM2COL_CORNER && corner <= MAX_IM2COL_CORNER;
}

/* Returns whether im2col has room for the corners of the inputs that an axis's first taps take: the upper corner is as
 * far from src's last element as the last position's first tap. */
static bool has_im2col_corners(const tconv_phase_table *table, int64_t in)
{
    const tap_span span = tap_span_of(table);
    const int64_t upper = span.first + (tconv_igemm_most_outputs(table) - 1) * table->stride - (in - 1);
    return is_im2col_corner(span.first) && is_im2col_corner(upper) && span.last - span.first <= MAX_IM2COL_OFFSET;
}

void tconv_igemm_describe_im2col(const tconv_layer *layer, parameters *params)
{
    params->im2col = params->flat = true;
    params->flat_rows = (int)tconv_igemm_most_outputs(&layer->rows);
    params->flat_columns = (int)tconv_igemm_most_outputs(&layer->columns);
    params->first_row = (int)tap_span_of(&layer->rows).first;
    params->first_column = (int)tap_span_of(&layer->columns).first;
}

bool tconv_igemm_may_be_im2col(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return layer->phases_of_src && tma_steps_over(layer) && problem->batch > 0 &&
           tconv_igemm_im2col_space(layer).columns < HOPPER_MAX_EXTENT &&
           has_im2col_corners(&layer->rows, problem->h.in) && has_im2col_corners(&layer->columns, problem->w.in);
}

bool tconv_igemm_tma_reaches_phases(const tconv_layer *layer)
{
    return tma_steps_over(layer) || has_columns_as_rows(layer) || has_rows_as_images(layer);
}

void tconv_igemm_describe_phases(const tconv_layer *layer, parameters *params)
{
    if (has_columns_as_rows(layer))
        describe_columns_as_rows(layer, params);
    if (has_rows_as_images(layer))
        describe_rows_as_images(layer, params);
}
