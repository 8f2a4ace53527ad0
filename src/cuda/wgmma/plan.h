/* Which tile the wgmma kernels cut a layer into, chosen by an estimate of cycles, and how it is described to them. */
#ifndef TCONV_CUDA_WGMMA_PLAN_H
#define TCONV_CUDA_WGMMA_PLAN_H

#include "parameters.h"

namespace tconv::wgmma
{

constexpr int TCONV_WGMMA_SHARED_MEMORY = 227 * 1024 - 1024; /* what a block may have, less the barriers */

struct tconv_wgmma_plan {
    tconv_wgmma_mode mode;
    bool transposed; /* planes of src are operands as they lie */
    bool shifted;    /* and they are moved there, since channels do not begin at multiples of 16 bytes */
    bool aligned;    /* images and channels of src are multiples of 16 bytes apart */
    tconv_wgmma_shape shape;
    tconv_wgmma_parameters parameters; /* without addresses */
    int64_t choice;                    /* the tile as a number, from which the plan can be made again */
    int slot_columns;                  /* columns of taps that a slot has where a stack's weights overlap, else 0 */
    int patch_rows, thread_blocks;
    double cycles; /* of the fullest multiprocessor */
};

/* A tile, in words: what a plan is described from. */
struct tconv_wgmma_tile_choice {
    int shape; /* of the mode's */
    int stack, unit_rows, steps;
    bool channel_groups;      /* the warpgroups have different output channels */
    bool transposed, shifted; /* as of the plan */
    bool tight;               /* patches without the columns that boxes have beside them */
    bool one_box;             /* for the sake of a second turn of staged sums */
    bool in_place;            /* planes are turned where the copy engine puts them */
    bool resident;            /* weights of a stack stay in shared memory */
    bool folded;              /* pairs of columns are positions */
};

tconv_wgmma_mode tconv_wgmma_mode_of(const tconv_layer *layer);
const tconv_wgmma_shape *tconv_wgmma_shapes_of(tconv_wgmma_mode mode);

/* Makes the plan with the least estimated time; false where no tile fits, or where strict sums would be too long. */
bool tconv_wgmma_choose(const tconv_layer *layer, int multiprocessors, tconv_wgmma_plan *best);

/* Makes the plan of an earlier choice, or of the next two, again; false where that does not fit, as the choice itself does. */
bool tconv_wgmma_describe(const tconv_layer *layer, int64_t choice, int multiprocessors, tconv_wgmma_plan *made);

/* The choice of the same tile, for which weights are packed alike, in which planes are moved to be operands, or src is
 * converted. */
int64_t tconv_wgmma_shifting(int64_t choice);
int64_t tconv_wgmma_converting(int64_t choice);

/* Planes of a factor: its big and its small part where it is split. */
constexpr int tconv_wgmma_planes(tconv_wgmma_mode mode)
{
    return mode == TCONV_WGMMA_STRICT ? 2 : 1;
}

/* The fewest channels after which one begins at a multiple of 16 bytes again: a row of the map where planes are moved. */
int tconv_wgmma_aligned_channels(const tconv_problem *problem);

/* Folded: taps of a pair of columns, and the column of src where pairs begin, modulo 2. */
int tconv_wgmma_fold_taps(const tconv_layer *layer);
int tconv_wgmma_fold_first(const tconv_layer *layer);

/* Whether the weights of a stack overlap: each tap once, between zeros, of which the rows of the stack take their parts. */
bool tconv_wgmma_weights_overlap(const tconv_layer *layer, const tconv_wgmma_tile_choice *choice);

/* Lays out the slots and shares out shared memory; false where nothing fits. Units and the patch are laid out before. */
bool tconv_wgmma_lay_out_buffers(const tconv_layer *layer, const tconv_wgmma_tile_choice *choice,
                                 tconv_wgmma_plan *made);

/* Groups of products that a unit's sum is made of. */
int64_t tconv_wgmma_strokes(const tconv_wgmma_parameters *of, int unit);

/* Cycles of the multiprocessor with most tiles, by which tiles are compared. */
double tconv_wgmma_tile_cycles(const tconv_wgmma_plan *made);

/* By how much a tile takes longer where src has to be read element by element; 1 where not. */
double tconv_wgmma_apart_times(const tconv_wgmma_plan *made);

/* The cycles that the layer is estimated to take in this tile: closer than made->cycles, by which tiles are compared. */
double tconv_wgmma_whole_cycles(const tconv_wgmma_plan *made);

tconv_wgmma_packing tconv_wgmma_packing_of(const tconv_layer *layer, const tconv_wgmma_plan *made);

} // namespace tconv::wgmma

#endif
