/* Walks the live taps of the correlation algorithm, in the order in which a strip has their places. */
#include "../../core/checked.h"
#include "plan.h"

bool tconv_cpu_next_dgrad_tap(const tconv_cpu_dgrad_plan *plan, const tconv_layer *layer, tconv_cpu_dgrad_walk *walk)
{
    tconv_cpu_phase *phase = &walk->phase;
    if (phase->row == NULL) {
        if (!tconv_cpu_next_phase(layer, phase))
            return false;
        walk->next = 0;
    }
    while (walk->next == tconv_cpu_phase_taps(phase)) {
        const tconv_cpu_phase last = *phase;
        if (!tconv_cpu_next_phase(layer, phase))
            return false;
        walk->next = 0;
        walk->plane += plan->columns_apart ? last.column_taps.count : last.column_taps.count > 0;
        if (phase->row == last.row)
            continue;
        walk->plane = 0;
        walk->row_taps += last.row_taps.count;
        if (last.row_taps.count > 0)
            walk->line += tconv_cpu_run_places(&plan->rows, last.row_taps.count, plan->tile_rows);
    }
    const int64_t row = walk->next / phase->column_taps.count, column = walk->next % phase->column_taps.count;
    const int64_t line = walk->line + row * tconv_cpu_run_step(&plan->rows, plan->tile_rows);
    const int64_t kernel =
        phase->column->first_kernel + (phase->column_taps.first + column) * layer->columns.kernel_step;
    int64_t place = walk->plane * plan->plane_pitch + column * plan->columns.step;
    if (plan->columns_whole)
        place = kernel * layer->problem.w.dilation;
    else if (plan->columns_apart)
        place = (walk->plane + column) * plan->plane_pitch;
    walk->tap = (tconv_cpu_dgrad_tap){
        .row_tap = phase->row_taps.first + row,
        .column_tap = phase->column_taps.first + column,
        .place = line * plan->row_pitch + place,
        .weight = tconv_cpu_tap_weight(layer, phase, walk->next),
        .index = plan->rows_of_taps ? (walk->row_taps + row) * plan->columns.taps + kernel : walk->count,
    };
    walk->next++;
    walk->count++;
    return true;
}
