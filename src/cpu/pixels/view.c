/* Finds pixels with contiguous channels in an NCHW layer: images of one input pixel, see tconv_cpu_pixel_view. */
#include "view.h"

#include "../blocking/blocking.h"

/* Whether an axis of one input has a tap for each output, the first of a phase of its own. The stride of such an axis
 * is longer than the kernel (tconv_axis_canonical) unless the stride is huge. */
static bool has_all_taps(const tconv_axis *axis, const tconv_phase_table *table)
{
    if (axis->in != 1 || table->count != axis->out)
        return false;
    for (int64_t p = 0; p < table->count; p++) {
        tconv_cpu_taps live = tconv_cpu_live_taps(axis, table, &table->phases[p]);
        if (live.first != 0 || live.count == 0)
            return false;
    }
    return true;
}

static tconv_axis one_pixel(void)
{
    return (tconv_axis){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
}

bool tconv_cpu_pixel_view_init(tconv_cpu_pixel_view *view, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t outputs = problem->h.out * problem->w.out;
    *view = (tconv_cpu_pixel_view){.layer = *layer, .outputs = 1};
    if (problem->layout == TCONV_NHWC)
        return true;
    if (!has_all_taps(&problem->h, &layer->rows) || !has_all_taps(&problem->w, &layer->columns) ||
        (problem->in_channels > 1 && problem->src.c != 1) || (problem->out_channels > 1 && problem->dst.c != outputs))
        return false;
    tconv_problem *flat = &view->layer.problem;
    view->outputs = outputs;
    view->phase = (tconv_phase){.outputs = 1, .taps = 1};
    view->layer.rows = view->layer.columns =
        (tconv_phase_table){.stride = 1, .kernel_step = 1, .shift_step = 1, .count = 1, .max_taps = 1};
    view->layer.rows.phases = view->layer.columns.phases = &view->phase;
    flat->layout = TCONV_NHWC;
    flat->h = flat->w = one_pixel();
    flat->group_out *= outputs;
    flat->out_channels *= outputs;
    flat->src.c = flat->dst.c = 1;
    flat->src.w = flat->src.h = flat->in_channels;
    flat->dst.w = flat->dst.h = flat->out_channels;
    return true;
}
