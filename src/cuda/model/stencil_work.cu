/* What a plan of cuda_stencil does: see work.h. Its blocks are many and small, so that a multiprocessor's share of all
 * outputs is one tile; a K-block is what the threads of a block store at once. */
#include "../../core/checked.h"
#include "../stencil/parameters.h"
#include "planned.h"

#include <cmath>

namespace tconv::stencil
{

namespace
{

/* The correction. */
constexpr double TILE_CYCLES = 1500; /* of the first and the last block: tables, src to shared memory */

/* Loads of a warp for a tap of 32 outputs, where taps are in a loop: a value, a weight, indices. */
constexpr double LOOP_LOADS = 4.5;
constexpr int STORE_WARPS = 48; /* of the blocks that share a multiprocessor */

} // namespace

extern "C" void tconv_cuda_stencil_work(const tconv_layer *layer, const tconv_cuda_machine *machine,
                                        tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double element = (double)problem->element_size;
    const double taps = (double)(layer->rows.max_taps * layer->columns.max_taps);
    const bool loops = tconv_max(layer->rows.max_taps, layer->columns.max_taps) > MAX_TAPS ||
                       (layer->rows.max_taps > 1 && layer->rows.shift_step != 1);
    const double outputs = THREADS * model::VECTOR_BYTES / element;
    const double all =
        (double)problem->batch * (double)problem->out_channels * (double)(problem->h.out * problem->w.out);
    *work = model::begin_work(layer);
    work->k_blocks = fmax(1, all / outputs / machine->multiprocessors);
    work->ffma = outputs * taps;
    work->loads = outputs * taps * (loops ? LOOP_LOADS / model::WARP : 1.0 / THREADS);
    work->tile_cycles = TILE_CYCLES;
    work->stores = outputs * element / model::VECTOR_BYTES / model::WARP * work->k_blocks;
    work->store_warps = STORE_WARPS;
    work->sectors = outputs * element / model::SECTOR_BYTES * work->k_blocks;
    work->overlaps = true;
}

} // namespace tconv::stencil
