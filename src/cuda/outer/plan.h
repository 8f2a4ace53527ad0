/* How cuda_outer cuts a gradient of weights into tiles, K-tiles and parts. */
#ifndef TCONV_CUDA_OUTER_PLAN_H
#define TCONV_CUDA_OUTER_PLAN_H

#include "../../core/checked.h"
#include "../runtime/tensor_map.h"
#include "copies.h"
#include "parameters.h"
#include "sums.h"

namespace tconv::outer
{

struct planned_layer {
    outer::mode mode;
    outer::reading reading; /* where addresses are aligned */
    kernel_choice kernel;
    int threads;
    int resident; /* blocks of a multiprocessor */
    int64_t blocks;
    bool writes_weights;          /* blocks write no slices */
    double cycles;                /* predicted; 0: there is no plan yet */
    tensor_map_recipe src, dst;   /* of src and of the gradient of dst, without addresses; where TMA brings them */
    outer::copies copies;         /* that are read instead of src and of the gradient of dst; or none */
    outer::parameters parameters; /* without addresses, and as if all were aligned */
};

/* The kernels of a mode. */
struct kernel_list {
    const kernel_choice *kernels;
    int count;
};

/* Bytes of dynamic shared memory of a block. */
inline int shared_bytes_of(const parameters *of)
{
    return of->table_bytes + of->stages * of->stage_bytes;
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

/* Fills in an axis for K-tiles of 2^tile_log2 inputs; false where slots are too many. *most: residues of the group of taps
 * with most. */
bool describe_axis(const tconv_axis *axis, const tap_order *order, int tile_log2, tile_axis *made, int *most);

tap_order order_of(const tconv_axis *axis, int64_t kernel_step, int64_t group_taps);

/* Outputs from a K-tile's first to that of the furthest slot. */
int64_t furthest_slot(const tile_axis *axis, int residues);

/* Whether the last place of a K-tile is fewer bytes from its first than 32 bits hold. */
bool is_near(const tconv_problem *problem, const tconv_strides *strides, int images_log2, int64_t rows, int64_t columns);

/* Neighbouring pixels of a row of so many that can be read at once, from multiples of `begins` on: a power of two of at
 * most a vector. */
int unit_of(const tconv_problem *problem, const tconv_strides *strides, int64_t extent, int64_t begins);

/* Finds how many stages, and blocks of a multiprocessor, there is memory for; false where there is too little. */
bool choose_stages(const tconv_layer *layer, planned_layer *plan);

/* K-tiles after which sums of so many pixels each are flushed. */
int flush_tiles_of(int k_pixels);

/* Where blocks write their sums as weights. */
weights_of_block weights_of(const tconv_problem *problem, const sum_tiles *tiles);

/* Calls `what` with each number of taps that a group of an axis may have. */
template <class Do> void for_group_taps(int64_t kernel, Do what)
{
    for (int64_t groups = 1, last = 0; groups <= kernel; groups++) {
        const int64_t taps = tconv_ceil_div(kernel, groups);
        if (taps != last)
            what(taps);
        last = taps;
    }
}

/* Finds the cut with the least predicted time; false where there is none. */
bool choose(const tconv_layer *layer, planned_layer *best);

} // namespace tconv::outer

#endif
