/* How the cells algorithm cuts a layer into tiles, chosen by an estimate of cycles. */
#ifndef TCONV_CUDA_CELLS_PLAN_H
#define TCONV_CUDA_CELLS_PLAN_H

#include "parameters.h"

namespace tconv::cells
{

constexpr int TCONV_CELLS_SHARED_MEMORY = 227 * 1024 - 1024; /* what a block may have, less the barriers */

/* What is chosen; everything else follows from it and the layer. */
struct tconv_cells_choice {
    bool resident; /* weights stay in shared memory: a chunk has all steps, a slot all taps */
    int cell_rows;
    int steps;                 /* of a chunk */
    bool slot_per_shift;       /* a slot has the taps of one shift, else of all shifts of one column */
    int images, rows, columns; /* of a tile, in positions */
};

struct tconv_cells_plan {
    bool strict;
    tconv_cells_shape shape;
    tconv_cells_parameters parameters; /* without addresses */
    tconv_cells_packing packing;
    int box_rows;
    double bank_cycles; /* of a load of a warp, from a stage, on average: 1 where no two addresses share a bank */
    double cycles;      /* estimated, of the fullest multiprocessor */
};

/* Takes the choice with the least estimated time; false where none fits, or where strict sums would be too long. */
bool tconv_cells_choose(const tconv_layer *layer, int multiprocessors, tconv_cells_choice *best,
                        tconv_cells_plan *best_plan);

/* Describes the layer in tiles of this choice; false where that does not fit. */
bool tconv_cells_describe(const tconv_layer *layer, const tconv_cells_choice *choice, int multiprocessors,
                          tconv_cells_plan *plan);

/* What both estimates stand on: what a multiprocessor reads of the second-level cache when all do, in bytes a cycle; the copy
 * engine's latency; the cycles of src and dst at the rate of device memory. */
constexpr double TCONV_CELLS_L2_BYTES = 34, TCONV_CELLS_LATENCY = 1500;
double tconv_cells_memory_cycles(const tconv_problem *problem);

/* Where weights stay in shared memory: the rest of the description, false where they do not fit; and the estimate. */
bool tconv_cells_describe_resident(int multiprocessors, tconv_cells_plan *plan);
double tconv_cells_estimate_resident(const tconv_layer *layer, const tconv_cells_plan *plan);

/* A choice as the number that the layer keeps, and back. */
int64_t tconv_cells_number_of(const tconv_cells_choice *choice);
tconv_cells_choice tconv_cells_choice_of(int64_t number);

} // namespace tconv::cells

#endif
