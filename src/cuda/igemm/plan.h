/* The plan by which the implicit GEMM cuts a layer into block tiles: candidates (plan.cu), a tile (tile.cu), its
 * pipeline stages (stages.cu) and the cost model that chooses (cost.cu). */
#ifndef TCONV_CUDA_IGEMM_PLAN_H
#define TCONV_CUDA_IGEMM_PLAN_H

#include "parameters.h"

namespace tconv::igemm
{

constexpr int MAX_TMA_BOX = 256; /* elements of a box along each axis (CUDA driver API, cuTensorMapEncodeTiled) */

/* Bytes of dynamic shared memory: what a thread block may have, less barriers and records. */
constexpr int SHARED_MEMORY = 227 * 1024 - 5 * 1024;

/* Cycles from an A stage to the next where TMA brings all that wgmma reads, however little is multiplied (measured). */
constexpr int A_STAGE_PERIOD = 670;

/* A candidate; everything else follows from it and the layer. */
struct tile_choice {
    int config;  /* of the mode's */
    int m_tiles; /* as in parameters */
    bool src_transposed;
    bool per_tap;
    int across;  /* as in parameters */
    int images;  /* of a block tile */
    int rows;    /* of a block tile */
    int columns; /* of a block tile */
};

struct layer_plan {
    igemm::mode mode;
    igemm::config config;
    igemm::parameters parameters; /* without addresses */
    double cycles;                /* modelled, of the multiprocessor with most tiles */
};

/* A layer as block tiles see it: positions, and the halo that all taps of a position span. */
struct position_space {
    int64_t images, rows, columns;
    int64_t row_halo, column_halo;
    bool flat;  /* the rows of an image are one row */
    bool whole; /* the images are one image */
};

/* plan.cu */

/* Takes the candidate of least cost; false where none fits. */
bool choose(const tconv_layer *layer, int multiprocessors, tile_choice *best, layer_plan *best_plan);

/* Plans the layer in tiles of this choice; false where that does not fit. */
bool describe(const tconv_layer *layer, const tile_choice *choice, int multiprocessors, layer_plan *plan);

/* Thread blocks of the persistent kernel. */
int thread_blocks(const layer_plan *plan, int multiprocessors);

/* These turn a choice into the number that the layer keeps, and back. */
int64_t number_of(const tile_choice *choice);
tile_choice choice_of(int64_t number);

mode mode_of(const tconv_layer *layer);

/* The CONFIGS configs of a mode. The first one's kernel is in every build that has any. */
const config *configs_of(mode mode);

/* MMA tiles of a block tile. */
int mma_tiles_of(const config *config);

/* tile.cu */

position_space space_of(const tconv_layer *layer, bool per_tap, bool src_transposed);

/* Fills in what no choice but src_transposed changes. */
void describe_layer(const tconv_layer *layer, bool src_transposed, layer_plan *plan);

/* Fills in which M tiles and positions the MMA tiles take. */
void describe_mma_tiles(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan);

/* Fills in the divisors of the kernel's index arithmetic. */
void describe_divisors(parameters *to);

/* Fills in the block tile and its A tiles and B stages; false where positions or boxes do not fit. */
bool describe_tile(const tconv_layer *layer, const tile_choice *choice, int multiprocessors, layer_plan *plan);

/* Tells whether MMA tiles of a warpgroup can be neighbouring column phases, whose columns are stored together. Where
 * the phases differ in taps there must be but two, with as many outputs, and a B stage must have the input of both. */
bool has_pairs(const tconv_layer *layer, const tile_choice *choice, const parameters *of);

/* stages.cu */

/* Fills in pipeline stages and staging buffers, and the plan's cost: the split of shared memory of least cost; false
 * where none fits. */
bool choose_stages(const tconv_layer *layer, const tile_choice *choice, int multiprocessors, layer_plan *plan);

/* cost.cu */

/* The cycles that the cost model gives a plan. */
double cost(const tconv_layer *layer, const layer_plan *plan, int multiprocessors);

/* The mean taps of the tiles of the multiprocessor with most to do: it has tiles of all phases in turn, and of those
 * left in the last round the longest. */
double mean_tile_taps(const parameters *of, int multiprocessors);

/* Tells whether TMA brings all that wgmma reads, as it is: no warp touches it on the way. */
bool is_fed_by_tma(const layer_plan *plan);

} // namespace tconv::igemm

#endif
