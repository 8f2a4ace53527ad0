/* The plan of a layer: its tile, tap schedules and pipeline stages, chosen by the cost model. */
#ifndef TCONV_CUDA_CELLS_PLAN_H
#define TCONV_CUDA_CELLS_PLAN_H

#include "../model/work.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "parameters.h"

namespace tconv::cells
{

constexpr int SHARED_MEMORY = 227 * 1024 - 1024; /* bytes of a block on sm_90, less 1 KiB for the barriers and bias */
constexpr int MAX_CELL = 8;                      /* outputs of a cell along an axis */
constexpr int MAX_SHIFTS = 64;                   /* shifts of an axis */

/* A candidate for the tile. Everything else of a plan follows from this and the layer. */
struct tile_choice {
    bool stationary; /* weights stay in shared memory: a K-block has all wgmma steps, a weight tile has all taps */
    int cell_rows;
    int mma_steps;             /* of a K-block */
    bool tile_per_shift;       /* a weight tile has the taps of one shift, else of all shifts of one column */
    int images, rows, columns; /* positions of a block tile */
};

struct layer_plan {
    tconv_dtype dtype; /* of the tensors: where it has 16 bits, the layer that is planned is one of words */
    bool straddle;     /* these are parts of two in memory */
    bool strict;
    kernel_config config;
    cells::parameters parameters; /* zeros where execute sets what depends on addresses */
    cells::packing packing;
    int box_rows;       /* of a stage's TMA box */
    double bank_cycles; /* of a warp's load from a stage, on average: 1 where no two addresses share a bank */
};

/* What pack and execute get: the best candidate's plan, and the launch. */
struct planned_layer {
    layer_plan plan;
    launch_grid grid;           /* without overlaps, which each call sets */
    tensor_map_recipe boxes[2]; /* of src, without its address; the second is the stationary kernel's, for tails */
    bool vector_rows;           /* all rows of dst begin at multiples of a cell's columns */
    bool pair_stores;           /* parameters' pair_stores */
};

/* A search for the plan of a layer. */
struct search {
    const tconv_layer *layer;
    tconv_dtype dtype; /* of the tensors */
    bool straddle;     /* as in the plan */
    tconv_cuda_machine machine;
    layer_plan candidate;
    layer_plan *best;
    double seconds; /* that the best is predicted to take; 0: there is none yet */
    double limit;   /* seconds that a plan is to be below; 0: there is no limit */
};

/* The outputs from an output of an axis to the next that has the same taps. */
inline int64_t period_of(const tconv_layer *layer, const tconv_phase_table *table)
{
    return layer->phases_of_src ? 1 : table->stride;
}

/* The taps of one axis of a cell: the kernel's index of the tap that output r has at a shift, or -1. */
struct axis_taps {
    int outputs, min_shift, shifts;
    int16_t kernel[MAX_CELL][MAX_SHIFTS];
};

/* plan.cu. Makes a plan of zeros the one of the least predicted time; false where none fits, or where strict sums would
 * be too long. */
bool choose(const tconv_layer *layer, tconv_dtype dtype, bool straddle, double limit, layer_plan *best);
/* Plans the layer with this choice, and keeps that plan if it is the best so far. */
void try_choice(search *in, const tile_choice *choice);
/* Plans the layer with this choice; false where that does not fit, or takes no less than a limit for certain. */
bool describe_layer(const search *in, const tile_choice *choice, double limit, layer_plan *plan);
/* Returns whether each pixel of src is read at its own position alone, every output has its tap, and rows follow one
 * another. */
bool is_flat(const tconv_layer *layer);

/* words.cu. A layer of 16 bits whose phases are those of src, as one of f32 whose elements of src are words of two columns,
 * and whose taps are those that a word has, in TF32: what is loaded and multiplied takes as long. dst stays. */
struct word_layer {
    tconv_layer layer;
    tconv_phase columns[MAX_SHIFTS];
    bool straddle;                             /* words begin at the second half of one of memory */
    int word_column, first_column, end_column; /* as in packing */
};
const char *describe_words(const tconv_layer *layer, word_layer *words);

/* tap_schedule.cu. Finds the taps of cells of `outputs` outputs, whole strides; where they are fewer, or phases are those of
 * src, of that phase alone. False where they do not fit. */
bool find_taps(const tconv_layer *layer, const tconv_phase_table *table, int outputs, int only_phase, axis_taps *taps);
/* The same along columns, of all phases: those of src are in one stage. */
bool find_column_taps(const tconv_layer *layer, int outputs, axis_taps *taps);
/* Writes all schedules, weight tiles and taps; false where something is full. */
bool write_schedules(const tconv_layer *layer, const tile_choice *choice, const axis_taps *columns, layer_plan *plan);

/* stages.cu. Sizes the box of a stage: wide enough, and with pitches that spread positions over the banks, if that
 * costs little. */
void describe_box(int columns, int rows, layer_plan *plan);
/* Finds, in strict f32, the fewest segments of few enough terms; false where even they would be too many. */
bool find_segments(const tconv_layer *layer, layer_plan *plan);
/* Shares out shared memory to the stages of both pipelines; false where two of each do not fit. */
bool describe_stages(layer_plan *plan);

/* plan_stationary.cu. Compares the weight-stationary kernel with the best plan so far. */
void try_stationary(search *in);
/* Writes the weight-stationary kernel's part of the plan; false where it does not fit. */
bool describe_stationary(const tconv_layer *layer, layer_plan *plan);

/* stages.cu. Taps of an output: of all phases where they are those of src, else of the phase with most. */
int64_t most_taps(const tconv_layer *layer);

/* work.cu. Counts what the plan does, for the prediction of its time; what it does at least, before it has schedules and
 * stages. */
tconv_cuda_work work_of(const tconv_layer *layer, const layer_plan *plan);
tconv_cuda_work least_work_of(const tconv_layer *layer, const layer_plan *plan);

} // namespace tconv::cells

#endif
