/* Finds NCHW layers that are one matrix product as they lie: see tconv_igemm_view_init. */
#include "igemm_view.h"

namespace
{

/* Whether an axis of one input has a tap for each output. Its stride is as long as the kernel reaches (tconv_axis_canonical),
 * so that each output is a phase of its own, with one tap. */
bool has_all_taps(const tconv_axis *axis, const tconv_phase_table *table)
{
    if (axis->in != 1 || table->count != axis->out)
        return false;
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].taps != 1 || table->phases[i].first_shift != 0)
            return false;
    return true;
}

} // namespace

void tconv_igemm_view_init(tconv_igemm_view *view, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t outputs = problem->h.out * problem->w.out;
    view->layer = *layer;
    view->outputs = view->out_columns = 1;
    if (problem->layout != TCONV_NCHW || !has_all_taps(&problem->h, &layer->rows) ||
        !has_all_taps(&problem->w, &layer->columns) || problem->src.c != 1 || problem->dst.c != outputs)
        return;
    tconv_problem *flat = &view->layer.problem;
    tconv_phase_table plain = {1, 1, 1, 1, 0, 1, 0, 0, &view->phase};
    view->phase = {0, 1, 1, 0, 0};
    view->layer.rows = view->layer.columns = plain;
    view->outputs = outputs;
    view->out_columns = problem->w.out;
    flat->layout = TCONV_NHWC;
    flat->h = flat->w = {1, 1, 1, 1, 1, 0, 0};
    flat->group_out *= outputs;
    flat->out_channels *= outputs;
    flat->dst.c = 1;
    flat->src.w = flat->src.h = flat->src.n;
    flat->dst.w = flat->dst.h = flat->dst.n;
}
