/* The work of a plan of cuda_general, see model/work.h. A K-block is one term of the outputs' sums: an input channel at
 * a tap. */
#include <math.h>

#include "../cuda_target.h"
#include "../model/planned.h"
#include "plan.h"

/* The corrections. */
static const double ISSUE_CYCLES = 259; /* of a term of a direct kernel: nothing is loaded ahead of it */
static const double GEMM_CYCLES = 60;   /* of a term of a GEMM, whose operands are loaded ahead */
/* of a tile: divisions that find its pixels, its phase's table, its first operands */
static const double TILE_CYCLES = 4220;

enum {
    /* Output channels of the GEMM's widest tiles, and of those with few. */
    WIDE = 64,
    NARROW = 16,

    /* Blocks on a multiprocessor. */
    WIDE_RESIDENT = 3,
    RESIDENT = 4,
    DIRECT_RESIDENT = 8
};

static const double WARPS = 4; /* of a block of a direct kernel */

/* Loads of a warp for pixels of a term in NHWC, relative to those of NCHW, where 32 neighbours are one load. */
static const double RUN_LOADS = 2;      /* a thread loads a run of channels at once */
static const double SINGLE_LOADS = 1.5; /* neighbouring threads load the channels of neighbouring groups */
static const double APART_LOADS = 5;    /* each channel is in a sector of its own */

static const double TAP_INSTRUCTIONS = 4; /* of a tap beside its terms: bounds, addresses; counted as loads */

static double pixel_loads(const tconv_problem *problem)
{
    if (problem->layout == TCONV_NCHW)
        return 1;
    return problem->group_in % SRC_RUN == 0 ? RUN_LOADS : problem->group_in == 1 ? SINGLE_LOADS : APART_LOADS;
}

/* Loads of warps for a term of a GEMM's tile: a thread has 8 x 8, 8 x 4 or, of few channels, 4 x 4 accumulators. */
static double gemm_loads(const kernel_shape *shape)
{
    const double rows = shape->channels <= NARROW ? 4 : 8, columns = shape->channels >= WIDE ? 8 : 4;
    return (double)shape->channels * shape->pixels / (rows * columns) * (rows + columns) / WARP;
}

static double direct_loads(const tconv_problem *problem, const kernel_shape *shape)
{
    return (double)shape->pixels / WARP * (pixel_loads(problem) + TAP_INSTRUCTIONS / (double)problem->group_in) +
           WARPS * fmax(1, shape->channels / 4.0);
}

/* Times that a sector is written: in NCHW each column phase writes its own part of it. */
static double sector_parts(const tconv_layer *layer)
{
    const double elements = SECTOR_BYTES / (double)layer->problem.element_size;
    return layer->problem.layout == TCONV_NCHW ? fmin((double)layer->columns.stride, elements) : 1;
}

tconv_cuda_work tconv_general_work(const tconv_layer *layer, const planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const kernel_shape *shape = &plan->shape;
    const double outputs = (double)shape->channels * shape->pixels;
    const double resident = !plan->is_gemm ? DIRECT_RESIDENT : shape->channels >= WIDE ? WIDE_RESIDENT : RESIDENT;
    const double tiles = (double)plan->params.tiles / tconv_cuda_target_of(&layer->target).multiprocessors;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks = (double)problem->group_in * tconv_cuda_mean_taps(layer);
    work.ffma = outputs;
    work.loads = plan->is_gemm ? gemm_loads(shape) : direct_loads(problem, shape);
    work.issues = plan->is_gemm ? 0 : 1;
    work.issue_cycles = ISSUE_CYCLES;
    work.slow_issues = plan->is_gemm ? 1 : 0;
    work.slow_issue_cycles = GEMM_CYCLES;
    work.tile_cycles =
        TILE_CYCLES + (tconv_cuda_count_steps(problem) > 0 ? tconv_cuda_post_cycles(problem, outputs) : 0);
    work.stores = outputs / WARP;
    work.store_warps = shape->threads / (double)WARP;
    work.sectors = outputs * (double)problem->element_size / SECTOR_BYTES * sector_parts(layer);
    work.rounds = tconv_cuda_rounds(tiles, resident);
    work.resident = fmin(resident, fmax(tiles, 1));
    tconv_cuda_add_fill(layer, &work);
    return work;
}
