/* Finds layers whose outputs can be taken for channels, or groups for one: see view.h. */
#include "view.h"

#include "../../core/checked.h"
#include "../../core/views.h"
#include "../hardware.h"
#include "../numeric/numerics.h"

enum {
    MOST_COLUMNS = MMA_M,                /* that are channels in NCHW: no M tile begins within them */
    FEW_CHANNELS = 2 * MMA_M,            /* fewer leave much of an M tile empty */
    K_BLOCK_BYTES = 128,                 /* bytes of input channels of a K-block */
    MOST_FUSED_BYTES = 4 * K_BLOCK_BYTES /* bytes of input channels of fused groups, at most */
};

/* Returns whether outputs can be channels of one pixel. Kernels longer than TCONV_MAX_PHASES, whose phases have several taps,
 * are not taken. */
static bool is_one_pixel(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return problem->layout == TCONV_NCHW && problem->plane_taps.taps == 0 && !layer->stacked_rows &&
           problem->volumes.images == 0 && tconv_is_one_pixel(layer) && layer->rows.max_taps == 1 &&
           layer->columns.max_taps == 1 && problem->src.c == 1 && problem->dst.c == problem->h.out * problem->w.out;
}

static void flatten_one_pixel(layer_view *view)
{
    tconv_problem *flat = &view->layer.problem;
    view->one_pixel = true;
    view->outputs = flat->h.out * flat->w.out;
    view->out_columns = flat->w.out;
    tconv_flatten_one_pixel(flat);
    view->layer.rows = view->layer.columns = tconv_one_phase(&flat->h, view->phases);
}

/* Returns whether neighbouring columns are one run of channels in dst, and the channels few. */
static bool has_channels_inside(const tconv_problem *problem)
{
    return problem->groups == 1 && problem->dst.w == problem->out_channels && problem->out_channels < FEW_CHANNELS;
}

/* Returns the columns that space-to-depth makes channels of; 1 for none. In NCHW two are worth it in strict f32 alone:
 * where warpgroups have two MMA tiles, those of neighbouring phases are stored as a pair, which is faster. */
static int64_t space_to_depth_factor(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const bool strict = numerics_of(layer) == NUMERICS_STRICT;
    int64_t factor = tconv_most_columns_as_channels(layer), least = 2;
    if (!has_channels_inside(problem)) {
        if (problem->layout == TCONV_NHWC)
            return 1;
        factor = tconv_gcd(factor, MOST_COLUMNS);
        least = strict ? 2 : 4;
    }
    return factor >= least && layer->columns.count / factor <= MAX_VIEW_PHASES ? factor : 1;
}

static void apply_space_to_depth(layer_view *view, int64_t factor)
{
    tconv_problem *problem = &view->layer.problem;
    view->outputs = view->out_columns = factor;
    view->channels_inside = has_channels_inside(problem);
    if (view->channels_inside)
        problem->dst.c = 1;
    else
        view->runs = (column_runs){.rows = (int)factor, .columns = (int)factor, .end = (int)factor};
    tconv_columns_as_channels(&view->layer, factor, view->phases);
}

/* Makes one phase of all columns. */
static void apply_filled_runs(layer_view *view)
{
    tconv_problem *problem = &view->layer.problem;
    tconv_axis *axis = &problem->w;
    const int64_t columns = axis->stride, begin = axis->pad % columns;
    int64_t rows = 1;
    while (rows < columns)
        rows *= 2;
    axis->kernel = tconv_ceil_div(axis->kernel, columns);
    axis->pad /= columns;
    axis->stride = 1;
    const int64_t runs = tconv_ceil_div(axis->out + begin, columns);
    view->outputs = view->out_columns = rows;
    view->runs = (column_runs){.rows = (int)rows,
                               .columns = (int)columns,
                               .begin = (int)begin,
                               .end = (int)(axis->out + begin - (runs - 1) * columns)};
    axis->out = runs;
    problem->group_out *= rows;
    problem->out_channels *= rows;
    problem->dst.w *= columns;
    problem->weight.w *= columns;
    view->layer.columns = tconv_one_phase(axis, view->phases);
}

static void fuse_groups(layer_view *view)
{
    tconv_problem *problem = &view->layer.problem;
    const int64_t bytes = problem->group_in * (int64_t)problem->element_size,
                  whole = K_BLOCK_BYTES / tconv_gcd(bytes, K_BLOCK_BYTES), groups = tconv_igemm_src_groups(problem);
    view->fused_groups = groups % whole == 0 ? whole : groups;
    if (view->fused_groups * bytes > MOST_FUSED_BYTES && view->fused_groups * problem->group_out > MMA_M)
        view->fused_groups = 1;
    tconv_fuse_groups(problem, view->fused_groups);
}

/* Begins a view: the layer with its groups fused. */
static void begin_view(layer_view *view, const tconv_layer *layer)
{
    view->layer = *layer;
    view->outputs = view->out_columns = 1;
    view->runs = (column_runs){.rows = 1, .columns = 1, .end = 1};
    view->one_pixel = view->channels_inside = false;
    fuse_groups(view);
}

void tconv_igemm_init_view(layer_view *view, const tconv_layer *layer)
{
    begin_view(view, layer);
    if (is_one_pixel(layer)) {
        flatten_one_pixel(view);
        return;
    }
    const int64_t factor = space_to_depth_factor(layer);
    if (factor > 1)
        apply_space_to_depth(view, factor);
}

bool tconv_igemm_init_filled_view(layer_view *view, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_axis *axis = &problem->w;
    const tconv_phase_table *table = &layer->columns;
    if (problem->layout != TCONV_NCHW || problem->out_channels == 1 || axis->in == 1 || axis->dilation != 1 ||
        table->bias_only > 0 || axis->stride <= 2 || axis->stride > MOST_COLUMNS ||
        space_to_depth_factor(layer) == axis->stride)
        return false;
    begin_view(view, layer);
    apply_filled_runs(view);
    return true;
}
