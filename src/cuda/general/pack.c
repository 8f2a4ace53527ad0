/*
 * Packs what the general kernels read beside the tensors: the two phase tables, and the weights as
 * [kernel row][kernel column][input channel of the group][group][output channel of the group, padded with zeros].
 *
 * Nothing is copied from host memory: a copy could not be captured into a graph that outlives that memory. The tables
 * go by value with kernel launches, the columns behind the rows, as many phases as fit in one launch's parameters; for
 * most layers that is all of them. The weights are transposed in squares through shared memory, so that both reads and
 * writes are in runs.
 */
#include <string.h>

#include "../../core/checked.h"
#include "../runtime/launch.h"
#include "fill.h"
#include "packing.h"

tconv_status tconv_general_pack_phases(const tconv_layer *layer, tconv_phase *phases, void *stream, tconv_issue *issue)
{
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const int64_t total = rows->count + columns->count;
    for (int64_t first = 0; first < total; first += PIECE) {
        int count = (int)tconv_min(PIECE, total - first);
        tconv_phase *place = phases + first;
        phases_piece piece;
        memset(&piece, 0, sizeof piece);
        for (int64_t i = first; i < first + count; i++)
            piece.phases[i - first] = i < rows->count ? rows->phases[i] : columns->phases[i - rows->count];
        void *arguments[] = {&piece, &place, &count};
        tconv_status status =
            tconv_launch_blocks(tconv_general_phases_kernel(), 1, PIECE, arguments, stream, issue, false);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

tconv_status tconv_general_pack_weights(const tconv_problem *problem, int64_t packed_out, const void *weights,
                                        void *packed, void *stream, tconv_issue *issue)
{
    const tconv_weight_strides *from = &problem->weight;
    const int64_t channel = problem->groups * packed_out;
    const weights_axis taps = {problem->h.kernel * problem->w.kernel, from->w, problem->group_in * channel};
    const weights_axis in = {problem->group_in, from->in, channel};
    const bool taps_inside = from->w == 1 || from->w == -1; /* cuda_dgrad has taps backwards */
    weights_cut cut;
    memset(&cut, 0, sizeof cut);
    cut.out = (weights_axis){problem->group_out, from->out, 1};
    cut.inner = taps_inside ? taps : in;
    cut.middle = taps_inside ? in : taps;
    cut.outer = (weights_axis){problem->groups, problem->group_in * from->in, packed_out};
    cut.packed_out = packed_out;
    cut.out_squares = (packed_out - 1) / SIDE + 1;
    cut.inner_squares = (cut.inner.extent - 1) / SIDE + 1;
    cut.squares = cut.out_squares * cut.inner_squares * cut.middle.extent * cut.outer.extent;
    cut.transposed = from->out != 1;

    void *arguments[] = {&cut, &weights, &packed};
    return tconv_launch_blocks(tconv_general_weights_kernel(problem->element_size), cut.squares, SIDE * SQUARE_ROWS,
                               arguments, stream, issue, false);
}
