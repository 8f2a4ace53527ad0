/* The plan by which the implicit GEMM cuts a layer into block tiles: candidates (plan.cu), a tile (tile.cu), its
 * pipeline stages (stages.cu) and the work that its time is predicted from (work.cu), by which it is chosen; and what
 * the layer keeps of it. */
#ifndef TCONV_CUDA_IGEMM_PLAN_H
#define TCONV_CUDA_IGEMM_PLAN_H

#include "../model/work.h"
#include "../pack/boxes.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "parameters.h"
#include "transpose_src.h"
#include "view.h"

namespace tconv::igemm
{

constexpr int MAX_TMA_BOX = 256; /* elements of a box along each axis (CUDA driver API, cuTensorMapEncodeTiled) */

/* Bytes at whose multiples a box begins in shared memory (PTX ISA, cp.async.bulk.tensor). */
constexpr int BOX_DESTINATION = 128;

/* Bytes of dynamic shared memory: what a thread block may have, less barriers and records. */
constexpr int SHARED_MEMORY = 227 * 1024 - 5 * 1024;

/* A candidate; everything else follows from it and the layer. */
struct tile_choice {
    int config;  /* of the mode's */
    int m_tiles; /* as in parameters */
    bool src_transposed;
    bool per_tap;
    bool im2col; /* as in parameters */
    int across;  /* as in parameters */
    int images;  /* of a block tile */
    int rows;    /* of a block tile */
    int columns; /* of a block tile */
};

/* What shared memory has room for where no warps of their own store. */
struct fewer_stages {
    int tables, b_stages, a_stages;
};

struct layer_plan {
    igemm::mode mode;
    igemm::config config;
    igemm::parameters parameters; /* zeros where execute fills in; by_tma, epilogue_warps: for aligned addresses */
    int output_bytes;             /* of an element of dst */
    fewer_stages without_epilogue_warps;
    double mean_taps; /* of a tile of the multiprocessor with most to do; of one of its src_phases */
    double seconds;   /* predicted; 0: there is no plan yet */
};

/* A layer as block tiles see it: positions, and the halo that all taps of a position span. */
struct position_space {
    int64_t images, rows, columns;
    int64_t row_halo, column_halo;
    bool flat;  /* the rows of an image are one row, or im2col */
    bool whole; /* the images are one image */
};

/* What all candidates of a layer have in common. */
struct search {
    const tconv_layer *layer; /* as it is given */
    const tconv_layer *seen;  /* as it is planned, see layer_view */
    column_runs runs;         /* as in parameters */
    bool one_pixel;           /* as in layer_view */
    bool sums;                /* dst is of sums in f32, whatever the dtype */
    int output_bytes;         /* of an element of dst */
    tconv_cuda_machine machine;
    tconv_cuda_work begun; /* what the work of each candidate begins with */
    double limit;          /* seconds that a plan is to be below; 0: there is no limit */

    /* For least_seconds_of. */
    position_space spaces[2];  /* of tiles for one tap; of src as it is, transposed */
    position_space im2col;     /* likewise, all positions as one row */
    double mean_taps;          /* of a tile, of all phases */
    double m_tiles;            /* of all phases and groups */
    double k_blocks, products; /* of a channel group; of a K-block, for each 64 rows and 8 positions */
};

/* The weights as they lie: what the packing kernel is told beside the layer's parameters. */
struct weight_source {
    pack_boxes boxes;
    bool one_pixel; /* as in layer_view */
    int64_t kernel_columns;
    int64_t first_kernel[2][MAX_PHASES]; /* kernel row (column) of the first tap of each row (column) phase */
    int kernel_step[2];                  /* kernel rows (columns) from a tap to the next */
    int column_taps[MAX_PHASES];         /* of each column phase, before any two are seen as a pair */
    /* What plan_packing adds. */
    int strips;      /* of a channel group and K-block: M tiles of a phase's channels */
    int run_columns; /* runs of a row tap: column taps of all phases */
};

/* What pack and execute get: the best candidate's plan, the operands as they lie, and the launch. */
struct planned_layer {
    layer_plan plan;
    weight_source weights;
    src_transpose transpose;          /* without addresses; all zeros where src is not transposed */
    tensor_map_recipe src;            /* without its address; all zeros where no address lets TMA read src */
    tensor_map_recipe map_of_weights; /* likewise, where they may be read as they lie */
    int bias_outputs;                 /* as in parameters, where execute puts it */
    size_t vector_bytes;              /* that can be stored at once where dst begins at a multiple of them; 0: none */
    launch_grid grid;                 /* without overlaps, which each call sets */
};

/* plan.cu */

/* Makes a plan of zeros that of the candidate with the least predicted time; false where none fits, or is below the
 * limit. */
bool choose(const search *in, layer_plan *best);

/* MMA tiles of a block tile. */
int mma_tiles_of(const config *config);

/* tile.cu */

/* Bytes of a pixel's input channels in a K-block. */
int pixel_bytes_of(const tconv_problem *problem);

/* Whether src was transposed to NHWC before, while dst is in NCHW: a layer of cuda_dgrad's. */
bool is_transposed_before(const tconv_layer *layer);

position_space space_of(const tconv_layer *layer, bool per_tap, bool src_transposed);
position_space im2col_space_of(const tconv_layer *layer);
position_space space_of(const tconv_layer *layer, const tile_choice *choice);

/* Tells whether TMA may bring the input of a tap for positions that follow one another from row to row. */
bool may_be_im2col(const tconv_layer *layer);

/* Fills in what no choice but src_transposed changes. */
void describe_layer(const tconv_layer *layer, bool src_transposed, layer_plan *plan);

/* Fills in which M tiles and positions the MMA tiles take. */
void describe_mma_tiles(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan);

/* Fills in the divisors of the kernel's index arithmetic. */
void describe_divisors(parameters *to);

/* Fills in the block tile and its A tiles and B stages; false where positions or boxes do not fit. */
bool describe_tile(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan);

/* Tells whether MMA tiles of a warpgroup can be neighbouring column phases, whose columns are stored together. Where
 * the phases differ in taps there must be but two, and a B stage must have the input of both. */
bool has_pairs(const tconv_layer *layer, const tile_choice *choice, const parameters *of);

/* stages.cu */

/* Fills in pipeline stages and staging buffers, given the work of a tile, and the plan's predicted time: the split of
 * shared memory with the least; false where none fits. */
bool choose_stages(const search *in, const tile_choice *choice, const tconv_cuda_work *tile, layer_plan *plan);

/* Tells whether TMA brings all that wgmma reads, as it is: no warp touches it on the way. */
bool is_fed_by_tma(const layer_plan *plan);

/* pack.cu */

/* Cuts the weights into boxes. Before, made->weights has all that is not made of the plan. */
void plan_packing(planned_layer *made);

/* Packs the weights (unless they are NULL) and transposes src (unless transpose is all zeros), in one launch. */
tconv_status pack(const planned_layer *made, const src_transpose *transpose, const void *weights, void *packed,
                  void *stream, tconv_issue *issue);

/* work.cu */

/* Begins the search for the plan of a layer that is seen so. Both have to outlive it. */
search begin_search(const tconv_layer *layer, const layer_view *view, bool sums, double limit);

/* The columns of a run that can be stored at once where dst begins at a multiple of them. */
int run_vector_of(const column_runs &runs, const tconv_strides *dst, int64_t element);

/* Seconds that a candidate takes at least, before it is described. */
double least_seconds_of(const search *in, const tile_choice *choice, const config *config);

/* Counts what a candidate does, for the prediction of its time: what its block tile does, and what follows from its
 * stages, which may be counted anew for others. */
tconv_cuda_work work_of(const search *in, const layer_plan *plan);
tconv_cuda_work tile_work_of(const search *in, const layer_plan *plan);
void count_stages(const layer_plan *plan, tconv_cuda_work *work);

} // namespace tconv::igemm

#endif
