/* Walks a plan of the phases algorithm: its passes, and the vectors that cover a part of a tile. */
#include "../../core/checked.h"
#include "plan.h"

bool tconv_cpu_next_pass(const tconv_cpu_plan *plan, const tconv_layer *layer, tconv_cpu_pass *pass)
{
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    int64_t tap = -1; /* fused: the tap that the pass begins with; -1: the row's first tap */
    if (pass->row == NULL) {
        if (rows->count == 0 || columns->count == 0)
            return false;
        *pass = (tconv_cpu_pass){.row = rows->phases,
                                 .row_taps = tconv_cpu_live_taps(&layer->problem.h, rows, rows->phases)};
    } else {
        pass->taps += tconv_cpu_pass_taps(pass);
        pass->weights += tconv_cpu_pass_taps(pass) * pass->phases;
        tap = pass->column_taps.first + pass->column_taps.count;
        pass->first++;
        if (pass->ends_row) {
            if (++pass->row == rows->phases + rows->count)
                return false;
            pass->row_taps = tconv_cpu_live_taps(&layer->problem.h, rows, pass->row);
            pass->first = 0;
            tap = -1;
        }
    }
    if (!plan->fused) {
        pass->phases = 1;
        pass->column_taps = tconv_cpu_live_taps(&layer->problem.w, columns, &columns->phases[pass->first]);
        pass->ends_row = pass->first == columns->count - 1;
        return true;
    }
    /* The pass takes the next taps that the same phases have; phases come by falling counts. */
    int64_t end = 0;
    pass->first = pass->phases = 0;
    for (int64_t number = 0; number < columns->count; number++) {
        tconv_cpu_taps live =
            tconv_cpu_live_taps(&layer->problem.w, columns, tconv_cpu_column_phase(plan, layer, number));
        end = number == 0 ? live.first + live.count : end;
        pass->column_taps.first = tap < 0 ? live.first : tap;
        if (live.first + live.count <= pass->column_taps.first)
            break;
        pass->column_taps.count = live.first + live.count - pass->column_taps.first;
        pass->phases++;
    }
    pass->ends_row = pass->column_taps.first + pass->column_taps.count == end;
    return true;
}
