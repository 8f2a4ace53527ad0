/* The work of a plan of forward, see model/work.h. Blocks are many and small, so that a multiprocessor's share
 * of all outputs is one tile; a K-block is what the threads of a block store at once. */
#include "../../core/post.h"
#include "../cuda_target.h"
#include "../model/planned.h"
#include "forward_plan.h"

#include <math.h>

/* The correction. */
static const double TILE_CYCLES = 1500; /* of the first and the last block: tables, src to shared memory */

/* Loads of a warp from the first-level cache take so much longer, with their indices, than those from shared memory. */
static const double CACHE_LOADS = 2.1;
/* Instructions for post-ops, of an output: a round has five, whatever its parts, and lists of more rounds are rare. */
static const double POST_INSTRUCTIONS = 6;

enum { STORE_WARPS = 48 }; /* of the blocks that share a multiprocessor */

tconv_cuda_work tconv_depthwise_forward_work_of(const tconv_layer *layer, const layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const double element = (double)problem->element_size;
    const double taps = (double)(layer->rows.max_taps * layer->columns.max_taps);
    const bool loops =
        plan->by_address[0].kind >= (problem->layout == TCONV_NCHW ? (int)COLUMNS_LOOP : (int)PIXEL_LOOP);
    /* Taps in a loop: a strip's outputs share values, of which it loads one for each tap and those ahead, and weights. */
    const double row_taps = layer->rows.max_taps > 1 ? (double)layer->rows.max_taps : 1;
    const double strip_loads =
        (problem->layout == TCONV_NHWC ? CACHE_LOADS : 1) * (STRIP - 1 + 2 * row_taps) / (STRIP * row_taps);
    const double outputs = THREADS * VECTOR_BYTES / element;
    /* NCHW, not in loops: columns that threads have, and that there are not, take as long. */
    const tile_shape *tile = &plan->by_address[0].tile;
    const double lanes = problem->layout == TCONV_NHWC || loops
                             ? 1
                             : (double)tile->columns * (double)tile->column_tiles.divisor / (double)problem->w.out;
    const double all =
        (double)problem->batch * (double)problem->out_channels * (double)(problem->h.out * problem->w.out);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks = fmax(1, all / outputs / tconv_cuda_target_of(&layer->target).multiprocessors);
    work.ffma = outputs * (taps + (tconv_has_posts(problem) ? POST_INSTRUCTIONS : 0)) * lanes;
    work.loads = outputs * taps * (loops ? strip_loads / WARP : 1.0 / THREADS) * lanes;
    work.tile_cycles = TILE_CYCLES;
    work.stores = outputs * element / VECTOR_BYTES / WARP * work.k_blocks;
    work.store_warps = STORE_WARPS;
    work.sectors = outputs * element / SECTOR_BYTES * work.k_blocks;
    work.overlaps = true;
    return work;
}
