/* How cuda_wgrad cuts a gradient of weights into tiles, K-tiles and parts. */
#ifndef TCONV_CUDA_WGRAD_PLAN_H
#define TCONV_CUDA_WGRAD_PLAN_H

#include "../runtime/tensor_map.h"
#include "copies.h"
#include "parameters.h"
#include "sums.h"

namespace tconv::wgrad
{

struct planned_layer {
    wgrad::mode mode;
    wgrad::reading reading; /* where addresses are aligned */
    kernel_choice kernel;
    int threads;
    int resident; /* blocks of a multiprocessor */
    int64_t blocks;
    bool writes_weights;          /* blocks write no slices */
    int64_t bias_parts;           /* of the gradient of the bias, that they sum where it is wanted; 0: they do not */
    double cycles;                /* predicted; 0: there is no plan yet */
    tensor_map_recipe src, dst;   /* of src and of the gradient of dst, without addresses; where TMA brings them */
    wgrad::copies copies;         /* that are read instead of src and of the gradient of dst; or none */
    wgrad::parameters parameters; /* without addresses, and as if all were aligned */
};

/* Bytes of dynamic shared memory of a block. */
inline int shared_bytes_of(const parameters *of)
{
    return of->table_bytes + of->stages * of->stage_bytes;
}

/* Whether the blocks of so many parts keep what additions to their slices lose, in as many floats behind them. */
inline bool keeps_lost(const planned_layer *of, int64_t splits)
{
    const parameters *p = &of->parameters;
    return of->mode == MODE_STRICT && of->kernel.by_warpgroups && (p->k_tiles - 1) / splits >= p->flush_tiles;
}

/* The first and the last output of the slots of a group of taps, of a K-tile whose first input is 0. */
struct axis_ends {
    int first, last;
};

inline axis_ends ends_of_group(const tile_axis *axis, int group)
{
    axis_ends ends = {axis->least[axis->first[group]], axis->least[axis->first[group]]};
    for (int i = axis->first[group]; i < axis->first[group + 1]; i++) {
        ends.first = axis->least[i] < ends.first ? axis->least[i] : ends.first;
        ends.last = axis->least[i] > ends.last ? axis->least[i] : ends.last;
    }
    ends.last += (axis->extent - 1) * axis->stride;
    return ends;
}

/* Finds the cut with the least predicted time; false where there is none. */
bool choose(const tconv_layer *layer, planned_layer *best);

} // namespace tconv::wgrad

#endif
