/* The plan of a layer for the kernels of cuda_wgmma: the tile, chosen by its predicted time (plan.cu), where that lies
 * in the layer (tile.cu), its pipeline stages in shared memory (stages.cu), how its rows are read and stored
 * (wgmma.cu), and the work that its time is predicted from (work.cu). */
#ifndef TCONV_CUDA_WGMMA_PLAN_H
#define TCONV_CUDA_WGMMA_PLAN_H

#include "../../core/checked.h"
#include "../model/work.h"
#include "../pack/boxes.h"
#include "../runtime/tensor_map.h"
#include "parameters.h"

namespace tconv::wgmma
{

constexpr int SHARED_MEMORY_BYTES = 227 * 1024 - 1024; /* the most of a block, less the barriers */
constexpr int MAX_BOX = 256;                           /* extent of a box on each axis: cuTensorMapEncodeTiled */
constexpr int LEAST_BULK = 384; /* bytes of a row: a bulk copy takes 28 cycles, however short (measured) */

/* The layer in tiles of one choice. */
struct plan {
    arithmetic mode;
    bool mn_major;  /* planes of src are an MN-major B operand, as they lie */
    bool realigned; /* MN-major, but planes are moved to B stages: channels do not begin at multiples of 16 bytes */
    bool aligned;   /* images and channels of src are multiples of 16 bytes apart */
    kernel_config config;
    /* Without addresses. store_vector, bulk_store, row_phases_together and, where planes are realigned,
     * channel_alignment are the most that tile and strides allow: addresses may allow less. */
    parameters params;
    bool long_rows;        /* bulk copies store rows faster than the widest vectors */
    tensor_map_recipe src; /* without its address: of one at a multiple of 16 bytes */
    int a_stage_columns;   /* columns of taps that an A stage has where a stack's weights overlap, else 0 */
    int patch_rows;
    int thread_blocks;
};

/* The packing kernel is told this beside the layer's parameters: what A stages hold. */
struct packing_layout {
    pack_boxes boxes;
    int warpgroups, mma_tiles; /* 1 where they share their weights */
    int a_stage_columns;       /* columns of taps of an A stage where a stack's weights overlap; else 0 */
    int a_stage_rows;          /* where they overlap: of 16 bytes, of an A stage */
    int product_rows;          /* where they do not: of 16 bytes, in all planes, that an MMA takes */
    int depth;                 /* 2: space-to-depth, else 1 */
    int row_taps[WARPGROUPS], first_kernel_row[WARPGROUPS], kernel_row_step;
    int first_kernel_column[MMA_TILES], kernel_column_step;
    int kernel_columns;
};

/* What the layer keeps: its plan and, where that is MN-major, those of the same tile for addresses of src that TMA does
 * not take. Weights are packed alike for all of them. */
constexpr int MAX_PLANS = 3;
struct planned_layer {
    int count;             /* of plans */
    plan plans[MAX_PLANS]; /* the first whose src TMA can read is executed, else the last */
    packing_layout packing;
};

/* What all tiles of a layer have in common. */
struct search {
    const tconv_layer *layer;
    int64_t vector;     /* elements of dst that are stored at once, tconv_cuda_row_vector */
    bool reads_vectors; /* tconv_cuda_reads_vectors */
    tconv_cuda_machine machine;
    tconv_cuda_work begun; /* what the work of each tile begins with */
};

/* A tile as the numbers from which its plan is made. */
struct tile_choice {
    int config; /* of configs_of(mode) */
    int stack, mma_tile_rows, k_steps;
    bool split_channels;      /* the warpgroups have different output channels */
    bool mn_major, realigned; /* as of the plan */
    bool tight;               /* patches without the columns that boxes have beside them */
    bool in_place;            /* planes are transposed where TMA puts them */
    bool resident;            /* the weights of a stack stay in shared memory */
    bool space_to_depth;      /* along W: pairs of columns are positions */
};

/* Makes the plan with the least predicted time and, where that is MN-major, the same with planes realigned, if that
 * fits, and in K-major; false where no tile fits, or where strict sums would be too long. How rows are read and stored
 * is left to the caller. */
bool make_plans(const search *in, planned_layer *made);

/* Lays the MMA tiles, the patch and its rows out in the layer; false where the tile does not fit. */
bool lay_out_tile(const tconv_layer *layer, const tile_choice *choice, plan *made);

/* Lays out the stages and shares out shared memory among them; false where nothing fits. Comes after lay_out_tile. */
bool lay_out_stages(const tconv_layer *layer, const tile_choice *choice, plan *made);

/* Tells whether the weights of a stack overlap: each tap lies once, between zeros, and the rows of the stack take their
 * parts. */
bool weights_overlap(const tconv_layer *layer, const tile_choice *choice);

/* Returns the commit groups that an MMA tile's sum is made of. */
int64_t commit_groups(const parameters *params, int mma_tile);

/* Lays out the packed weights of the first plan. */
packing_layout packing_of(const tconv_layer *layer, const plan *made);

/* pack.cu: completes a layout by the boxes that the weights are cut into. */
void plan_packing(planned_layer *made);

/* Packs the weights by a kernel on the stream. */
tconv_status pack_weights(const planned_layer *made, const void *weights, void *packed, void *stream,
                          tconv_issue *issue);

/* Begins the search for the layer's plan. The layer has to outlive it. */
search begin_search(const tconv_layer *layer);

/* Counts the work of a plan, whether how its rows are read and stored is filled in or not. */
tconv_cuda_work work_of(const search *in, const plan *made);

/* Tells whether each pixel of src is read at its own position alone, and every output has its tap. */
bool is_flat(const tconv_layer *layer);

/* These return, for space-to-depth, the taps of a pair of columns, and the column of src where pairs begin, modulo
 * 2. */
int space_to_depth_taps(const tconv_layer *layer);
int space_to_depth_first(const tconv_layer *layer);

/* These return the phase of rows that a warpgroup computes, and the phase of columns of an MMA tile. */
const tconv_phase *row_phase(const tconv_layer *layer, int warpgroup);
const tconv_phase *column_phase(const tconv_layer *layer, int mma_tile);

/* Tells whether a stride in elements is a multiple of TMA's 16 bytes. */
bool is_aligned(int64_t stride, const tconv_problem *problem);

/* Returns the fewest channels after which one begins at a multiple of 16 bytes again: a row of the tensor map where
 * planes are realigned. */
int aligned_channels(const tconv_problem *problem);

/* Returns the planes of a factor: 2, its big and its small part, where it is split. */
constexpr int operand_planes(arithmetic mode)
{
    return mode == arithmetic::STRICT ? 2 : 1;
}

} // namespace tconv::wgmma

#endif
