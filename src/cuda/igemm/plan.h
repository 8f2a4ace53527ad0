/*
 * The plan by which the implicit GEMM cuts a layer into block tiles. plan.c tries tiles of each config, tile.c
 * describes a block tile, stages.c its pipeline stages and work.c the work that its time is predicted from: the tile
 * with the least is taken. operands.c describes the tensors that the plan reads, and pack.cu packs the weights.
 */
#ifndef TCONV_CUDA_IGEMM_PLAN_H
#define TCONV_CUDA_IGEMM_PLAN_H

#include "../model/search.h"
#include "../numeric/numerics.h"
#include "../pack/boxes.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "configs.h"
#include "parameters.h"
#include "transpose_src.h"
#include "view.h"

TCONV_ROOM_BEGIN(tconv::igemm)

/* Bytes of dynamic shared memory: all that a thread block may have, less barriers and records. */
enum { SHARED_MEMORY = HOPPER_SHARED_BYTES - 5 * 1024 };

/* A candidate; everything else follows from it and the layer. */
typedef struct tile_choice {
    int config;  /* of the arithmetic's */
    int m_tiles; /* as in parameters */
    bool src_transposed;
    bool per_tap;
    bool im2col;        /* as in parameters */
    int across;         /* as in parameters */
    int cluster_blocks; /* as in parameters */
    int images;         /* of a block tile */
    int rows;           /* of a block tile */
    int columns;        /* of a block tile */
} tile_choice;

/* The pipeline stages that shared memory has room for where no warps of their own store. */
typedef struct fewer_stages {
    int tables, b_stages, a_stages;
} fewer_stages;

typedef struct layer_plan {
    numerics arithmetic;
    kernel_config config;
    int config_place;  /* of the config, among the arithmetic's */
    bool sums;         /* dst is of sums in f32, whatever the dtype is */
    int output_bytes;  /* of an element of dst */
    parameters params; /* zeros where execute fills in; by_tma, epilogue_warps: for aligned addresses */
    fewer_stages without_epilogue_warps;
    double mean_taps; /* of a tile of the multiprocessor with most to do; of one of its src_phases */
    double k_blocks;  /* at one tap, of a block: those of a tile, or of the block of a cluster with most of them */
} layer_plan;

/* A layer as block tiles have it: positions, and the halo that all taps of a position span. */
typedef struct position_space {
    int64_t volumes;
    int64_t images, rows, columns; /* images of a volume */
    int64_t row_halo, column_halo;
    bool flat;  /* the rows of an image are one row, or im2col */
    bool whole; /* the images are one image */
} position_space;

/* The search for the plan of a layer: its layer_plan, and the facts that all candidates share. */
typedef struct tile_search {
    const tconv_layer *given; /* the layer as the caller has it */
    const tconv_layer *layer; /* the layer of the view, which is planned */
    column_runs runs;         /* as in parameters */
    bool one_pixel;           /* as in layer_view */
    bool sums;                /* as in layer_plan */
    int output_bytes;         /* likewise */
    tconv_search best;
    tconv_cuda_work begun; /* the work that every candidate has */

    /* For the least work of a candidate. */
    position_space spaces[2];  /* of tiles for one tap; of src as it is, transposed */
    position_space im2col;     /* likewise, all positions as one row */
    double mean_taps;          /* of a tile, of all phases */
    double m_tiles;            /* of all phases and groups */
    double k_blocks, products; /* of a channel group; of a K-block, for each 64 rows and 8 positions */
} tile_search;

/* A phase of an axis, as the packing kernel knows it. Of a pair, the second one's first tap follows the first one's. */
typedef struct packed_phase {
    int first_tap; /* taps of the phases before it */
    int taps;      /* that packed weights have */
    int first_kernel;
} packed_phase;

/* The weights as they lie and as they are packed, all that the packing kernel is told: few bytes, since what it reads of its
 * arguments comes from memory line by line. What parameters have too is as there. */
typedef struct weight_source {
    pack_boxes boxes;
    int kernel_columns;
    int kernel_step[2]; /* kernel rows (columns) from a tap to the next */
    /* What follows from the plan. */
    fast_divisor by_k_blocks;
    fast_divisor by_strips;  /* of a channel group and K-block: M tiles of a phase's channels */
    fast_divisor by_columns; /* of a run's number: column taps of all phases; merged: column phases */
    fast_divisor by_m_tiles;
    bool merged;
    bool alternating; /* M tiles are of either of two column phases in turn */
    int k_steps, tiles_along_m, channel_m_tiles, phase_m_tiles;
    int row_phases, column_phases;
    int column_taps; /* of all column phases, as packed */
    int64_t group_a_tiles;
    packed_phase rows[MAX_PHASES], columns[MAX_PHASES];
} weight_source;

/* The decisions that pack and execute get: the best candidate's plan, the operands as they lie, and the launch. */
typedef struct planned_layer {
    layer_plan plan;
    weight_source weights;
    src_transpose transpose;          /* without addresses; all zeros where src is not transposed */
    tensor_map_recipe src;            /* all zeros where no address lets TMA read src */
    tensor_map_recipe map_of_weights; /* likewise, where they may be read as they lie */
    int bias_outputs;                 /* output channels that are one of dst, as parameters have by_bias_outputs */
    size_t vector_bytes;              /* that can be stored at once where dst begins at a multiple of them; 0: none */
    launch_grid grid;                 /* without overlaps, which each call sets */
} planned_layer;

/* Returns the MMA tiles of a block tile. */
static inline int mma_tiles_of(const kernel_config *config)
{
    return WARPGROUPS * config->mma_tiles;
}

/* plan.c */

/* Offers all candidates to the search. */
void tconv_igemm_offer_candidates(tile_search *search);

/* tile.c */

/* Returns the bytes of a pixel's input channels in a K-block. */
int tconv_igemm_pixel_bytes(const tconv_problem *problem);

/* Returns whether src was transposed to NHWC before, while dst is in NCHW: a layer of cuda_dgrad's. */
bool tconv_igemm_is_transposed_before(const tconv_layer *layer);

/* Return the positions and the halo of tiles; of im2col's, which are for one tap; of a candidate's. */
position_space tconv_igemm_space(const tconv_layer *layer, bool per_tap, bool src_transposed);
position_space tconv_igemm_im2col_space(const tconv_layer *layer);
position_space tconv_igemm_space_of_choice(const tconv_layer *layer, const tile_choice *choice);

/* Fills in the parameters that no choice but src_transposed changes. */
void tconv_igemm_describe_layer(const tconv_layer *layer, bool src_transposed, layer_plan *plan);

/* Fills in which M tiles and positions the MMA tiles take. */
void tconv_igemm_describe_mma_tiles(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan);

/* Fills in the divisors of the kernel's index arithmetic. */
void tconv_igemm_describe_divisors(parameters *params);

/* Fills in the block tile and its A tiles and B stages; false where positions or boxes do not fit. */
bool tconv_igemm_describe_tile(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan);

/* Shares out the K-blocks of a tile to the blocks of a cluster; false where there are too few, or too many clusters to run at
 * once. */
bool tconv_igemm_describe_cluster(const tconv_layer *layer, int cluster_blocks, layer_plan *plan);

/* Returns whether MMA tiles of a warpgroup can be neighbouring column phases, whose columns are stored together. Where
 * the phases differ in taps there must be but two, and a B stage must have the input of both. */
bool tconv_igemm_has_pairs(const tconv_layer *layer, const tile_choice *choice, const parameters *params);

/* Returns the bytes that a block of a cluster stages: all sums of a tile. */
static inline int tconv_igemm_cluster_bytes(const parameters *params)
{
    return params->cluster_pitch * (params->dst_channels_last ? params->block_n : params->m_tiles * MMA_M) *
           (int)sizeof(float);
}

/* phases.c */

/* Returns the outputs of the phase with most of them. */
int64_t tconv_igemm_most_outputs(const tconv_phase_table *table);

/* Returns whether TMA may bring the input of a tap for positions that follow one another from row to row, and fills in where
 * those are. */
bool tconv_igemm_may_be_im2col(const tconv_layer *layer);
void tconv_igemm_describe_im2col(const tconv_layer *layer, parameters *params);

/* Returns whether TMA can bring the pixels of a phase of src without those between, and fills in how src is seen for that.
 * Before, params have src as it lies. */
bool tconv_igemm_tma_reaches_phases(const tconv_layer *layer);
void tconv_igemm_describe_phases(const tconv_layer *layer, parameters *params);

/* stages.c */

/* Fills in pipeline stages and staging buffers, given the work of a tile, and offers the plan with each split of shared
 * memory. */
void tconv_igemm_offer_stages(tile_search *search, const tile_choice *choice, const tconv_cuda_work *tile,
                              const layer_plan *plan);

/* Returns whether TMA brings all that wgmma reads, as it is: no warp touches it on the way. */
bool tconv_igemm_is_fed_by_tma(const layer_plan *plan);

/* work.c */

/* Begins the search for the plan of a view of a layer. The search points to all three. */
tile_search tconv_igemm_begin_search(const tconv_layer *layer, const layer_view *view, bool sums, double limit,
                                     layer_plan *best);

/* Returns the columns of a run that can be stored at once where dst begins at a multiple of them. */
int tconv_igemm_run_vector(const column_runs *runs, const tconv_problem *problem, int64_t element);

/* Count the work of a candidate: what it does at least, before it is described; the work of its block tile; and that
 * which follows from its stages, beside the work of its block tile. */
tconv_cuda_work tconv_igemm_least_work(const tile_search *search, const tile_choice *choice,
                                       const kernel_config *config);
tconv_cuda_work tconv_igemm_tile_work(const tile_search *search, const layer_plan *plan);
void tconv_igemm_count_stages(const tile_search *search, const layer_plan *plan, tconv_cuda_work *work);

/* operands.c */

/* Describes the operands and the launch of the chosen plan. */
void tconv_igemm_describe_operands(const tconv_layer *layer, const layer_view *view, planned_layer *planned);

/* Fills in the weights as they are packed, and cuts them into boxes; the phases of the weights and the parameters are there. */
void tconv_igemm_plan_packing(planned_layer *planned);

/* Returns whether a call that is given weights at multiples of 16 bytes reads them as they lie. */
bool tconv_igemm_reads_weights(const planned_layer *planned);

/* Kernels; none.c stands in their place in a build without CUDA. */

/* configs_f32.cu, configs_half.cu: return the kernel at a place of its table in configs.h, NULL without CUDA. */
const void *tconv_igemm_f32_kernel(bool strict, int config);
const void *tconv_igemm_half_kernel(bool bf16, bool sums, int config);

/* pack.cu: packs the weights (unless they are NULL) and transposes src (unless transpose is all zeros), in one launch.
 * */
tconv_status tconv_igemm_pack(const planned_layer *planned, const src_transpose *transpose, const void *weights,
                              void *packed, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
