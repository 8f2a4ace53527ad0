/* The work of a plan of cuda_general, see model/work.h. A K-block is one term of the outputs' sums: an input channel at
 * a tap. */
#include <cmath>

#include "plan.h"

namespace tconv::general
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 610; /* of a term of a direct kernel: nothing is loaded ahead of it */
constexpr double GEMM_CYCLES = 60;   /* of a term of a GEMM, whose operands are loaded ahead */
constexpr double TILE_CYCLES = 6600; /* of a tile: divisions that find its pixels, its phase's table */

/* Output channels of a GEMM's tile. They differ from the kernel's own where a group has 33 to 48 or 65 to 96 output
 * channels. */
constexpr int64_t WIDE = 64;
constexpr int64_t MIDDLE = 32;
constexpr int64_t NARROW = 16;

/* Blocks on a multiprocessor. */
constexpr int WIDE_RESIDENT = 3;
constexpr int RESIDENT = 4;
constexpr int DIRECT_RESIDENT = 8;

/* They give the kernels' pixels in all dtypes but f64, where most tiles have half of them. */
constexpr double GEMM_PIXELS = 128;    /* of a tile */
constexpr double DIRECT_THREADS = 128; /* of a block */
constexpr double WARPS = 4;            /* of a block */

/* Loads of a warp for pixels of a term in NHWC, relative to those of NCHW, where 32 neighbours are one load. */
constexpr double RUN_LOADS = 2;      /* a thread loads a run of channels at once */
constexpr double SINGLE_LOADS = 1.5; /* neighbouring threads load the channels of neighbouring groups */
constexpr double APART_LOADS = 5;    /* each channel is in a sector of its own */

constexpr double TAP_INSTRUCTIONS = 4; /* of a tap beside its terms: bounds, addresses; counted as loads */

struct tile_shape {
    double channels, pixels, loads, resident;
};

double pixel_loads(const tconv_problem *problem)
{
    if (problem->layout == TCONV_NCHW)
        return 1;
    return problem->group_in % SRC_RUN == 0 ? RUN_LOADS : problem->group_in == 1 ? SINGLE_LOADS : APART_LOADS;
}

tile_shape gemm_shape(int64_t out)
{
    tile_shape shape = {};
    shape.channels = (double)(out > WIDE - NARROW ? WIDE : out > NARROW ? MIDDLE : NARROW);
    shape.pixels = GEMM_PIXELS;
    /* A thread's accumulators. */
    const double rows = shape.channels == NARROW ? 4 : 8, columns = shape.channels == WIDE ? 8 : 4;
    shape.loads = shape.channels * shape.pixels / (rows * columns) * (rows + columns) / model::WARP;
    shape.resident = shape.channels == WIDE ? WIDE_RESIDENT : RESIDENT;
    return shape;
}

tile_shape direct_shape(const tconv_problem *problem, int channels)
{
    tile_shape shape = {};
    shape.channels = channels;
    shape.pixels = DIRECT_THREADS * (channels == 8 ? 2 : 4);
    shape.loads = shape.pixels / model::WARP * (pixel_loads(problem) + TAP_INSTRUCTIONS / (double)problem->group_in) +
                  WARPS * fmax(1, shape.channels / 4);
    shape.resident = DIRECT_RESIDENT;
    return shape;
}

} // namespace

tconv_cuda_work work_of(const tconv_layer *layer, const planned_layer *made)
{
    const tconv_problem *problem = &layer->problem;
    const tile_shape shape =
        made->is_gemm ? gemm_shape(problem->group_out) : direct_shape(problem, made->shape.channels);
    const double outputs = shape.channels * shape.pixels;
    const double tiles = (double)(problem->batch * problem->groups) *
                         ceil((double)problem->group_out / shape.channels) * ceil(model::tapped_outputs(layer)) /
                         shape.pixels / layer->target.multiprocessors;
    tconv_cuda_work work = model::begin_work(layer);
    work.k_blocks = (double)problem->group_in * model::mean_taps(layer);
    work.ffma = outputs;
    work.loads = shape.loads;
    work.issues = made->is_gemm ? 0 : 1;
    work.issue_cycles = ISSUE_CYCLES;
    work.slow_issues = made->is_gemm ? 1 : 0;
    work.slow_issue_cycles = GEMM_CYCLES;
    work.tile_cycles = TILE_CYCLES;
    work.stores = outputs / model::WARP;
    work.store_warps = WARPS;
    work.sectors = outputs * (double)problem->element_size / model::SECTOR_BYTES;
    work.rounds = tconv_cuda_rounds(tiles, shape.resident);
    work.resident = fmin(shape.resident, fmax(tiles, 1));
    model::add_fill(layer, &work);
    return work;
}

} // namespace tconv::general
