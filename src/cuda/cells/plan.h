/* The plan of a layer: its tile, tap schedules and pipeline stages, chosen by the cost model. */
#ifndef TCONV_CUDA_CELLS_PLAN_H
#define TCONV_CUDA_CELLS_PLAN_H

#include "../model/search.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "configs.h"
#include "parameters.h"

enum {
    SHARED_MEMORY = HOPPER_SHARED_BYTES - 1024, /* of a block, less 1 KiB for the barriers and bias */
    MAX_CELL = 8,                               /* outputs of a cell along an axis */
    MAX_SHIFTS = 64                             /* shifts of an axis */
};

/* A candidate for the tile. Everything else of a plan follows from this and the layer. */
typedef struct tile_choice {
    bool stationary; /* weights stay in shared memory: a K-block has all wgmma steps, a weight tile has all taps */
    int cell_rows;
    int mma_steps;             /* of a K-block */
    bool tile_per_shift;       /* a weight tile has the taps of one shift, else of all shifts of one column */
    int images, rows, columns; /* positions of a block tile */
} tile_choice;

typedef struct layer_plan {
    numerics numerics; /* of the tensors: where these have 16 bits, the layer that is planned is one of words */
    bool straddle;     /* words are parts of two in memory */
    kernel_config config;
    int config_number; /* of a streaming kernel: the place of config in its table */
    parameters params; /* zeros where execute sets what depends on addresses */
    packing packing;
    int box_rows;       /* of a stage's TMA box */
    double bank_cycles; /* of a warp's load from a stage, on average: 1 where no two addresses share a bank */
} layer_plan;

/* What pack and execute get: the best candidate's plan, and the launch. */
typedef struct planned_layer {
    layer_plan plan;
    launch_grid grid;           /* without overlaps, which each call sets */
    tensor_map_recipe boxes[2]; /* of src; the second is the stationary kernel's, for tails */
    bool vector_rows;           /* all rows of dst begin at multiples of a cell's columns */
    bool pair_stores;           /* pair_stores of the parameters */
} planned_layer;

/* A search for the plan of a layer. */
typedef struct tile_search {
    const tconv_layer *layer;
    numerics numerics; /* of the tensors */
    bool straddle;     /* as in the plan */
    tconv_search best;
} tile_search;

/* Returns the outputs from an output of an axis to the next that has the same taps. */
static inline int64_t period_of(const tconv_layer *layer, const tconv_phase_table *table)
{
    return layer->phases_of_src ? 1 : table->stride;
}

/* Returns the column of src, from a position's first, that tap t of a phase of src reads. */
static inline int64_t src_column(const tconv_phase_table *table, const tconv_phase *phase, int64_t t)
{
    return table->stride * (phase->first_shift - t * table->shift_step) + phase->residue;
}

/* The taps of one axis of a cell: the kernel's index of the tap that output r has at a shift, or -1. */
typedef struct axis_taps {
    int outputs, min_shift, shifts;
    int16_t kernel[MAX_CELL][MAX_SHIFTS];
} axis_taps;

/* plan.c. Searches for the plan of the least predicted time, below a limit. */
tconv_search tconv_cells_choose(const tconv_layer *layer, numerics mode, bool straddle, double limit, layer_plan *best);
/* Offers the plan of the layer with this choice. */
void tconv_cells_offer(tile_search *search, const tile_choice *choice);
/* Returns whether each pixel of src is read at its own position alone, every output has its tap, and rows follow one
 * another. */
bool tconv_cells_is_flat(const tconv_layer *layer);

/* words.c. A layer of 16 bits whose phases are those of src, seen as a layer of f32 in TF32: its elements of src are words
 * of two columns, and its taps are those of a word, so that loads and products take as long. dst stays. */
typedef struct word_layer {
    tconv_layer layer;
    tconv_phase columns[MAX_SHIFTS];
    bool straddle;                             /* words begin at the second half of a word of memory */
    int word_column, first_column, end_column; /* as in packing */
} word_layer;
/* Returns NULL, or why the layer cannot be seen so. */
const char *tconv_cells_describe_words(const tconv_layer *layer, word_layer *words);

/* tap_schedule.c. Finds the taps of cells of `outputs` outputs, whole strides; where a cell has fewer outputs, or phases
 * are those of src, the taps of that phase alone. Returns false where they do not fit. */
bool tconv_cells_find_taps(const tconv_layer *layer, const tconv_phase_table *table, int outputs, int only_phase,
                           axis_taps *taps);
/* Does the same along columns, of all phases: those of src are in one stage. */
bool tconv_cells_find_column_taps(const tconv_layer *layer, int outputs, axis_taps *taps);
/* Writes all schedules, weight tiles and taps; false where a table is full. */
bool tconv_cells_write_schedules(const tconv_layer *layer, const tile_choice *choice, const axis_taps *columns,
                                 layer_plan *plan);

/* stages.c. Sizes the box of a stage: wide enough, and with pitches that spread positions over the banks, if that
 * costs little. */
void tconv_cells_describe_box(int columns, int rows, layer_plan *plan);
/* Finds, in strict f32, the fewest segments of few enough terms; false where even they would be too many. */
bool tconv_cells_find_segments(const tconv_layer *layer, layer_plan *plan);
/* Shares out shared memory to the stages of both pipelines; false where two of each do not fit. */
bool tconv_cells_describe_stages(layer_plan *plan);
/* Returns the taps of an output: of all phases where they are those of src, else of the phase with most. */
int64_t tconv_cells_most_taps(const tconv_layer *layer);

/* plan_stationary.c. Offers the weight-stationary kernel's plans. */
void tconv_cells_offer_stationary(tile_search *search);
/* Writes the weight-stationary kernel's part of the plan; false where it does not fit. */
bool tconv_cells_describe_stationary(const tconv_layer *layer, layer_plan *plan);

/* work.c. Counts the work of the plan, for the prediction of its time. */
tconv_cuda_work tconv_cells_work_of(const tconv_layer *layer, const layer_plan *plan);
/* Counts what the plan does at least, before it has schedules and stages. */
tconv_cuda_work tconv_cells_least_work_of(const tconv_layer *layer, const layer_plan *plan);

#endif
