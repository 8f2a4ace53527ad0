/* Finds layers whose outputs can be taken for channels, or groups for one: see view.h. */
#include "view.h"

#include "../../core/checked.h"
#include "../hardware.h"
#include "../numeric/numerics.h"

enum {
    MOST_COLUMNS = MMA_M,                /* that are channels in NCHW: no M tile begins within them */
    FEW_CHANNELS = 2 * MMA_M,            /* fewer leave much of an M tile empty */
    K_BLOCK_BYTES = 128,                 /* bytes of input channels of a K-block */
    MOST_FUSED_BYTES = 4 * K_BLOCK_BYTES /* bytes of input channels of fused groups, at most */
};

/* Returns whether an axis of one input has a tap for each output. Its stride is as long as the kernel reaches
 * (tconv_axis_canonical), so that each output is a phase of its own, with one tap. */
static bool has_all_taps(const tconv_axis *axis, const tconv_phase_table *table)
{
    if (axis->in != 1 || table->count != axis->out)
        return false;
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].taps != 1 || table->phases[i].first_shift != 0)
            return false;
    return true;
}

static bool is_one_pixel(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return !layer->phases_of_src && has_all_taps(&problem->h, &layer->rows) &&
           has_all_taps(&problem->w, &layer->columns) && problem->src.c == 1 &&
           problem->dst.c == problem->h.out * problem->w.out;
}

static void flatten_one_pixel(layer_view *view)
{
    tconv_problem *flat = &view->layer.problem;
    const int64_t outputs = flat->h.out * flat->w.out;
    const tconv_axis one = {.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
    const tconv_phase_table plain = {
        .stride = 1, .kernel_step = 1, .shift_step = 1, .count = 1, .max_taps = 1, .phases = view->phases};
    view->phases[0] = (tconv_phase){.outputs = 1, .taps = 1};
    view->layer.rows = view->layer.columns = plain;
    view->one_pixel = true;
    view->outputs = outputs;
    view->out_columns = flat->w.out;
    flat->layout = TCONV_NHWC;
    flat->h = flat->w = one;
    flat->group_out *= outputs;
    flat->out_channels *= outputs;
    flat->dst.c = 1;
    flat->src.w = flat->src.h = flat->src.n;
    flat->dst.w = flat->dst.h = flat->dst.n;
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
    const tconv_axis *axis = &problem->w;
    const tconv_phase_table *table = &layer->columns;
    const bool strict = numerics_of(layer) == NUMERICS_STRICT;
    int64_t factor = tconv_gcd(tconv_gcd(axis->stride, axis->kernel), tconv_gcd(axis->pad, axis->out)), least = 2;
    if (axis->dilation != 1 || table->bias_only > 0)
        return 1;
    if (!has_channels_inside(problem)) {
        if (problem->layout == TCONV_NHWC)
            return 1;
        factor = tconv_gcd(factor, MOST_COLUMNS);
        least = strict ? 2 : 4;
    }
    return factor >= least && table->count / factor <= MAX_VIEW_PHASES ? factor : 1;
}

static void apply_space_to_depth(layer_view *view, int64_t factor)
{
    tconv_problem *problem = &view->layer.problem;
    tconv_phase_table *table = &view->layer.columns;
    const tconv_phase *all = table->phases;
    view->outputs = view->out_columns = factor;
    view->channels_inside = has_channels_inside(problem);
    if (view->channels_inside)
        problem->dst.c = 1;
    else
        view->runs = (column_runs){.rows = (int)factor, .columns = (int)factor, .end = (int)factor};
    problem->w.stride /= factor;
    problem->w.pad /= factor;
    problem->w.kernel /= factor;
    problem->w.out /= factor;
    problem->group_out *= factor;
    problem->out_channels *= factor;
    problem->dst.w *= factor;
    problem->weight.w *= factor;
    table->stride /= factor;
    table->kernel_step /= factor;
    table->count /= factor;
    table->phases = view->phases;
    for (int64_t i = 0; i < table->count; i++) {
        view->phases[i] = all[i * factor]; /* phases are sorted by residue, and all residues are there */
        view->phases[i].residue /= factor;
        view->phases[i].first_kernel /= factor;
    }
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
    view->phases[0] = (tconv_phase){.outputs = axis->out, .taps = axis->kernel, .first_shift = axis->pad};
    view->layer.columns = (tconv_phase_table){.stride = 1,
                                              .kernel_step = 1,
                                              .shift_step = 1,
                                              .count = 1,
                                              .max_taps = axis->kernel,
                                              .min_shift = axis->pad - (axis->kernel - 1),
                                              .max_shift = axis->pad,
                                              .phases = view->phases};
}

static void fuse_groups(layer_view *view)
{
    tconv_problem *problem = &view->layer.problem;
    const int64_t bytes = problem->group_in * (int64_t)problem->element_size,
                  whole = K_BLOCK_BYTES / tconv_gcd(bytes, K_BLOCK_BYTES);
    view->fused_groups = problem->groups % whole == 0 ? whole : problem->groups;
    if (view->fused_groups * bytes > MOST_FUSED_BYTES)
        view->fused_groups = 1;
    problem->groups /= view->fused_groups;
    problem->group_in *= view->fused_groups;
    problem->group_out *= view->fused_groups;
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
    if (layer->problem.layout == TCONV_NCHW && is_one_pixel(layer)) {
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
