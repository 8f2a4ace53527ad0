/* The plan of a layer for the kernels of cuda_wgmma: the tile, chosen by its predicted time (plan.c), where that lies
 * in the layer (tile.c), its pipeline stages in shared memory (stages.c), how its weights are packed (packing.c), how
 * its rows are read and stored (wgmma.c), and the work that its time is predicted from (work.c). */
#ifndef TCONV_CUDA_WGMMA_PLAN_H
#define TCONV_CUDA_WGMMA_PLAN_H

#include "../model/search.h"
#include "../runtime/tensor_map.h"
#include "packing.h"

TCONV_ROOM_BEGIN(tconv::wgmma)

enum {
    SHARED_MEMORY_BYTES = HOPPER_SHARED_BYTES - 1024, /* the most of a block, less the barriers */
    LEAST_BULK = 384 /* bytes of a row: a bulk copy takes 28 cycles, however short (measured) */
};

/* A tile as the numbers from which its plan is made. */
typedef struct tile_choice {
    int config; /* the kernel */
    int stack, mma_tile_rows, k_steps;
    bool split_channels; /* the warpgroups have different output channels */
    bool mn_major;       /* planes of src are an MN-major B operand, as they lie */
    bool realigned; /* MN-major, but planes are moved to B stages: channels do not begin at multiples of 16 bytes */
    bool tight;     /* patches without the columns that boxes have beside them */
    bool in_place;  /* planes are transposed where TMA puts them */
    bool resident;  /* the weights of a stack stay in shared memory */
    bool space_to_depth; /* along W: pairs of columns are positions */
} tile_choice;

/* The layer in tiles of one choice. */
typedef struct tile_plan {
    numerics arithmetic;
    tile_choice choice;
    bool aligned; /* images and channels of src are multiples of 16 bytes apart */
    int N;        /* of the kernel (config_N) */
    /* Without addresses. store_vector, bulk_store, row_phases_together and, where planes are realigned,
     * channel_alignment are the most that tile and strides allow: addresses may allow less. */
    parameters params;
    bool long_rows;        /* bulk copies store rows faster than the widest vectors */
    tensor_map_recipe src; /* where it begins at a multiple of 16 bytes */
    int a_stage_columns;   /* columns of taps that an A stage has where a stack's weights overlap, else 0 */
    int patch_rows;
    int thread_blocks;
} tile_plan;

/* What the layer keeps: its plan and, where that is MN-major, those of the same tile for addresses of src that TMA does
 * not take. Weights are packed alike for all of them. */
enum { MAX_PLANS = 3 };
typedef struct planned_layer {
    int count;                  /* of plans */
    tile_plan plans[MAX_PLANS]; /* the first whose src TMA can read is executed, else the last */
    packing_layout packing;
} planned_layer;

/* The search for the first plan, and what all tiles of a layer have in common. */
typedef struct tile_search {
    const tconv_layer *layer;
    int64_t vector;     /* elements of dst that are stored at once, tconv_cuda_row_vector */
    bool reads_vectors; /* tconv_cuda_reads_vectors */
    tconv_search best;
    tconv_cuda_work begun; /* what the work of each tile begins with */
} tile_search;

/* Makes the plan with the least predicted time and, where that is MN-major, the same with planes realigned, if that
 * fits, and in K-major; returns why there is none, or NULL. How rows are read and stored, and how weights are packed, is
 * left to the caller. */
const char *tconv_wgmma_make_plans(tile_search *search, planned_layer *planned);

/* Lays the MMA tiles, the patch and its rows out in the layer; false where the tile does not fit. */
bool tconv_wgmma_lay_out_tile(const tconv_layer *layer, tile_plan *plan);

/* Lays out the stages and shares out shared memory among them; false where nothing fits. Comes after
 * tconv_wgmma_lay_out_tile. */
bool tconv_wgmma_lay_out_stages(const tconv_layer *layer, tile_plan *plan);

/* Tells whether the weights of a stack overlap: each tap lies once, between zeros, and the rows of the stack take their
 * parts. */
bool tconv_wgmma_weights_overlap(const tconv_layer *layer, const tile_choice *choice);

/* Returns the commit groups that an MMA tile's sum is made of. */
int64_t tconv_wgmma_commit_groups(const parameters *params, int mma_tile);

/* Lays out the packed weights of the first plan, and the boxes that they are cut into. */
packing_layout tconv_wgmma_plan_packing(const tconv_layer *layer, const tile_plan *plan);

/* Begins the search for the layer's plan, to take less than a limit. It points to both. */
tile_search tconv_wgmma_begin_search(const tconv_layer *layer, double limit, tile_plan *best);

/* Counts the work of a plan, whether how its rows are read and stored is filled in or not. */
tconv_cuda_work tconv_wgmma_work(const tile_search *search, const tile_plan *plan);

/* These return, for space-to-depth, the taps of a pair of columns, and the column of src where pairs begin, modulo
 * 2. */
int tconv_wgmma_space_to_depth_taps(const tconv_layer *layer);
int tconv_wgmma_space_to_depth_first(const tconv_layer *layer);

/* These return the phase of rows that a warpgroup computes, and the phase of columns of an MMA tile. */
const tconv_phase *tconv_wgmma_row_phase(const tconv_layer *layer, int warpgroup);
const tconv_phase *tconv_wgmma_column_phase(const tconv_layer *layer, int mma_tile);

/* Tells whether a stride in elements is a multiple of TMA's 16 bytes. */
bool tconv_wgmma_is_aligned(int64_t stride, const tconv_problem *problem);

/* Returns the fewest channels after which one begins at a multiple of 16 bytes again: a row of the tensor map where
 * planes are realigned. */
int tconv_wgmma_aligned_channels(const tconv_problem *problem);

/* Returns the planes of a factor: 2, its big and its small part, where it is split. */
static inline int operand_planes(numerics arithmetic)
{
    return numerics_split(arithmetic) ? 2 : 1;
}

TCONV_ROOM_END

#endif
