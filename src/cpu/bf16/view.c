/* Sees the gradient of src as a layer whose src is the gradient of dst. */
#include "view.h"

#include "../../core/checked.h"
#include "../../core/views.h"

void tconv_cpu_bf16_view_init(tconv_cpu_bf16_view *view, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    *view =
        (tconv_cpu_bf16_view){.caller = *layer, .layer = *layer, .exchanged = problem->desc.op == TCONV_BACKWARD_DATA};
    view->layer.group_weights = problem->group_in * problem->weight.in;
    if (!view->exchanged)
        return;
    tconv_problem *to = &view->layer.problem;
    *to = tconv_exchanged(problem);
    to->h.kernel = to->w.kernel = 1; /* the phases of what is read have the taps */
    view->layer.rows = tconv_one_phase(&to->h, &view->row);
    view->layer.columns = tconv_one_phase(&to->w, &view->column);
}

static const tconv_axis *axis_of(const tconv_cpu_bf16_view *view, bool columns)
{
    return columns ? &view->caller.problem.w : &view->caller.problem.h;
}

static const tconv_phase_table *table_of(const tconv_cpu_bf16_view *view, bool columns)
{
    return columns ? &view->caller.columns : &view->caller.rows;
}

tconv_cpu_axis tconv_cpu_bf16_axis_init(const tconv_cpu_bf16_view *view, bool columns, tconv_cpu_bf16_axis *made)
{
    const tconv_axis *axis = axis_of(view, columns);
    const tconv_phase_table *table = table_of(view, columns);
    tconv_cpu_axis of = tconv_cpu_axis_init(axis, table, &made->max_taps);
    made->phases = made->stride = 1;
    if (!view->exchanged)
        return of;
    of.positions = axis->in;
    of.min_shift = 0;
    of.max_shift = tconv_max(0, made->max_taps - 1) * table->shift_step;
    made->max_taps = of.taps;
    made->stride = table->stride;
    made->phases = 0;
    for (int64_t p = 0; p < table->count; p++)
        made->phases += tconv_cpu_live_taps(axis, table, &table->phases[p]).count > 0;
    return of;
}

bool tconv_cpu_next_bf16_phase(const tconv_cpu_bf16_view *view, bool columns, const tconv_cpu_axis *of, int64_t *index,
                               tconv_cpu_bf16_phase *phase)
{
    const tconv_axis *axis = axis_of(view, columns);
    const tconv_phase_table *table = table_of(view, columns);
    if (!view->exchanged) {
        *phase = (tconv_cpu_bf16_phase){of->min_shift, axis->in, 0};
        return (*index)++ == 0;
    }
    while (*index < table->count) {
        const tconv_phase *next = &table->phases[(*index)++];
        const tconv_cpu_taps live = tconv_cpu_live_taps(axis, table, next);
        if (live.count == 0)
            continue;
        *phase = (tconv_cpu_bf16_phase){-tconv_cpu_shift(table, next, live.first), next->outputs, next->residue};
        return true;
    }
    return false;
}
