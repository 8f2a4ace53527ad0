/* Finds layers whose outputs and weights lie alike, so that an image of outputs is a pixel with as many channels. */
#include "outer_view.h"

/* Whether an axis has one input, whose tap k is output k. */
static bool is_kernel(const tconv_axis *axis)
{
    return axis->in == 1 && axis->pad == 0 && axis->out == axis->kernel && (axis->dilation == 1 || axis->kernel == 1);
}

/* Whether the weights of an input channel lie as the outputs of a group in an image. */
static bool lies_alike(const tconv_problem *problem)
{
    const tconv_strides *dst = &problem->dst;
    const tconv_weight_strides *weight = &problem->weight;
    return (problem->group_out == 1 || dst->c == weight->out) && (problem->h.kernel == 1 || dst->h == weight->h) &&
           (problem->w.kernel == 1 || dst->w == weight->w);
}

static bool is_dense(const tconv_problem *problem)
{
    const int64_t taps = problem->h.kernel * problem->w.kernel;
    if (problem->in_channels > 1 && problem->src.c != 1)
        return false;
    return problem->layout == TCONV_NCHW ? problem->out_channels == 1 || problem->dst.c == taps
                                         : problem->groups == 1 && (taps == 1 || problem->dst.w == problem->group_out);
}

void tconv_cpu_outer_view_init(tconv_cpu_outer_view *view, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    view->layer = *layer;
    if (problem->batch == 0 || !is_kernel(&problem->h) || !is_kernel(&problem->w) || !lies_alike(problem) ||
        !is_dense(problem))
        return;
    tconv_problem *flat = &view->layer.problem;
    const int64_t taps = problem->h.kernel * problem->w.kernel;
    view->row = (tconv_phase){.outputs = 1, .taps = 1};
    view->column = (tconv_phase){.outputs = problem->batch, .taps = 1};
    view->layer.rows = view->layer.columns =
        (tconv_phase_table){.stride = 1, .kernel_step = 1, .shift_step = 1, .count = 1, .max_taps = 1};
    view->layer.rows.phases = &view->row;
    view->layer.columns.phases = &view->column;
    flat->layout = TCONV_NHWC;
    flat->h = (tconv_axis){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
    flat->w = (tconv_axis){.in = problem->batch, .out = problem->batch, .kernel = 1, .stride = 1, .dilation = 1};
    flat->batch = 1;
    flat->group_out *= taps;
    flat->out_channels *= taps;
    flat->src.c = flat->dst.c = flat->weight.out = 1;
    flat->src.w = problem->src.n;
    flat->dst.w = problem->dst.n;
}
