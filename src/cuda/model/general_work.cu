/* What a plan of cuda_general does: see work.h. A K-block is one term of the outputs' sums: an input channel at a
 * tap. */
#include "../../core/checked.h"
#include "../general/parameters.h"
#include "planned.h"

#include <cmath>

namespace tconv::general
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 610; /* of a term of a direct kernel: nothing is loaded ahead of it */
constexpr double GEMM_CYCLES = 60;   /* of a term of a GEMM, whose operands are loaded ahead */
constexpr double TILE_CYCLES = 6600; /* of a tile: divisions that find its pixels, its phase's table */

/* Fewer channels of a group than this are for a direct kernel, as in general.cu. */
constexpr int64_t GEMM_MIN_OUT = 12; /* output channels */
constexpr int64_t GEMM_MIN_IN = 5;   /* input channels */

/* Output channels of a GEMM's tile. */
constexpr int64_t WIDE = 64;
constexpr int64_t MIDDLE = 32;
constexpr int64_t NARROW = 16;

/* Blocks on a multiprocessor. */
constexpr int WIDE_RESIDENT = 3;
constexpr int RESIDENT = 4;
constexpr int DIRECT_RESIDENT = 8;

constexpr double GEMM_PIXELS = 128;    /* of a tile */
constexpr double DIRECT_THREADS = 128; /* of a block */
constexpr double WARPS = 4;            /* of a block */

/* Loads of a warp for pixels of a term in NHWC, relative to those of NCHW, where 32 neighbours are one load. */
constexpr double RUN_LOADS = 2;      /* a thread loads a run of channels at once */
constexpr double SINGLE_LOADS = 1.5; /* neighbouring threads load the channels of neighbouring groups */
constexpr double APART_LOADS = 5;    /* each channel is in a sector of its own */

constexpr double TAP_INSTRUCTIONS = 4; /* of a tap beside its terms: bounds, addresses; counted as loads */

struct tile_shape {
    bool gemm;
    double channels, pixels, loads, resident;
};

double pixel_loads(const tconv_problem *problem)
{
    if (problem->layout == TCONV_NCHW)
        return 1;
    return problem->group_in % SRC_RUN == 0 ? RUN_LOADS : problem->group_in == 1 ? SINGLE_LOADS : APART_LOADS;
}

tile_shape shape_of(const tconv_problem *problem)
{
    const int64_t out = problem->group_out;
    tile_shape shape = {};
    shape.gemm = out >= GEMM_MIN_OUT && problem->group_in >= GEMM_MIN_IN;
    if (shape.gemm) {
        shape.channels = (double)(out > WIDE - NARROW ? WIDE : out > NARROW ? MIDDLE : NARROW);
        shape.pixels = GEMM_PIXELS;
        /* A thread's accumulators. */
        const double rows = shape.channels == NARROW ? 4 : 8, columns = shape.channels == WIDE ? 8 : 4;
        shape.loads = shape.channels * shape.pixels / (rows * columns) * (rows + columns) / model::WARP;
        shape.resident = shape.channels == WIDE ? WIDE_RESIDENT : RESIDENT;
        return shape;
    }
    shape.channels = out > 4 ? 8 : out > 1 ? 4 : 1;
    shape.pixels = DIRECT_THREADS * (shape.channels == 8 ? 2 : 4);
    shape.loads = shape.pixels / model::WARP * (pixel_loads(problem) + TAP_INSTRUCTIONS / (double)problem->group_in) +
                  WARPS * fmax(1, shape.channels / 4);
    shape.resident = DIRECT_RESIDENT;
    return shape;
}

} // namespace

extern "C" void tconv_cuda_general_work(const tconv_layer *layer, const tconv_cuda_machine *machine,
                                        tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double element = (double)problem->element_size;
    const tile_shape shape = shape_of(problem);
    const double outputs = shape.channels * shape.pixels;
    const double tiles = (double)(problem->batch * problem->groups) *
                         ceil((double)problem->group_out / shape.channels) * ceil(model::tapped_outputs(layer)) /
                         shape.pixels / machine->multiprocessors;
    *work = model::begin_work(layer);
    work->k_blocks = (double)problem->group_in * model::mean_taps(layer);
    work->ffma = outputs;
    work->loads = shape.loads;
    work->issues = shape.gemm ? 0 : 1;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = shape.gemm ? 1 : 0;
    work->slow_issue_cycles = GEMM_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->stores = outputs / model::WARP;
    work->store_warps = WARPS;
    work->sectors = outputs * element / model::SECTOR_BYTES;
    work->rounds = tconv_cuda_rounds(tiles, shape.resident);
    work->resident = fmin(shape.resident, fmax(tiles, 1));
    model::add_fill(layer, work);
}

} // namespace tconv::general
