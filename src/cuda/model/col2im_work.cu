/*
 * What a plan of cuda_col2im does: see work.h. A tile is a block tile, BLOCK_M pixels of one row of a strip. Strips are
 * cut here again, about as col2im/plan.cu cuts them.
 */
#include "../../core/checked.h"
#include "../col2im/plan.h"
#include "planned.h"

#include <cmath>

namespace tconv::col2im
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 310;       /* of a K-block of Hopper's kernel: barriers, operands to registers */
constexpr double MMA_KERNEL_CYCLES = 1300; /* of one of the kernel for any device: copies end at a block's barrier */
constexpr double TILE_CYCLES = 1500;       /* of a row: barriers between the GEMM and col2im */

constexpr int64_t MAX_WAVES = 8;    /* that are tried */
constexpr int64_t MIN_COLUMNS = 32; /* of a block tile */
constexpr int RESIDENT = 2;         /* blocks on a multiprocessor */
constexpr int ROW_SUMS_STAGES = 5;  /* pipeline stages of Hopper's kernel, which has 4 to 6 */
constexpr int STORE_WARPS = 4;
constexpr double GATHERED = 4; /* partials that a thread gathers in the time of a store: runs of neighbours */

/* Counts the rows that a block works off in all waves together, and blocks that share a multiprocessor. */
void count_rows(const tconv_layer *layer, bool any_device, int multiprocessors, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_axis *h = &problem->h, *w = &problem->w;
    int64_t row_pixels = MIN_COLUMNS;
    while (row_pixels < BLOCK_M && row_pixels < w->in)
        row_pixels *= 2;
    const int64_t vector = model::VECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t column_back = (w->kernel - 1) * w->dilation / w->stride;
    const int64_t column_step = tconv_max((row_pixels - column_back) / vector * vector, 1);
    const int64_t column_tiles = w->in <= row_pixels ? 1 : 1 + tconv_ceil_div(w->in - row_pixels, column_step);
    const int64_t together = BLOCK_M / row_pixels, row_back = (h->kernel - 1) * h->dilation / h->stride;
    const int64_t all = row_quotients(h);
    const int64_t quotients = any_device ? all : tconv_max(1, tconv_min(h->in - h->pad / h->stride, all));
    const int64_t images = any_device ? problem->batch : tconv_ceil_div(problem->batch, together);
    const int64_t others = tconv_max(1, images * problem->groups * column_tiles);
    const int64_t places = multiprocessors * RESIDENT;
    int64_t best = INT64_MAX;
    for (int64_t waves = 1; waves <= MAX_WAVES; waves++) {
        const int64_t strips = tconv_min(tconv_max(places * waves / others, 1), quotients);
        const int64_t strip_rows = tconv_ceil_div(quotients, strips);
        const int64_t blocks = others * tconv_ceil_div(quotients, strip_rows);
        const int64_t time =
            tconv_ceil_div(blocks, places) * tconv_ceil_div(strip_rows + row_back, any_device ? together : 1);
        if (time < best) {
            best = time;
            work->rounds = (double)time;
            work->resident = fmin(RESIDENT, fmax(1, (double)blocks / multiprocessors));
        }
    }
}

} // namespace

extern "C" void tconv_cuda_col2im_work(const tconv_layer *layer, const tconv_cuda_machine *machine,
                                       tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const bool any_device = layer->choice == MMA_KERNEL;
    const double element = (double)problem->element_size, times = model::is_strict(layer) ? 3 : 1;
    const double steps = (double)steps_of(problem);
    const double gemm_n = (double)(problem->group_out * problem->h.kernel * problem->w.kernel);
    const double n_tiles = ceil(gemm_n / TILE_N), k_steps = any_device ? 1 : row_sums::K_STEPS;
    const double stage_bytes = BLOCK_M * MMA_K_BYTES * k_steps;
    const double pixels = (double)problem->batch * (double)problem->groups * (double)(problem->h.in * problem->w.in);
    const double outputs =
        (double)problem->batch * (double)problem->out_channels * (double)(problem->h.out * problem->w.out);
    const bool vectors = model::reads_vectors(layer);
    *work = model::begin_work(layer);
    count_rows(layer, any_device, machine->multiprocessors, work);
    work->k_blocks = ceil(steps / k_steps);
    work->wgmma = any_device ? 0 : n_tiles * 2 * k_steps * times;
    work->wgmma_chain = any_device ? 0 : n_tiles * 2 * times;
    work->mma_sync = any_device ? n_tiles * 8 * times : 0;
    work->mma_chain = any_device ? n_tiles * 2 * times : 0;
    work->issues = any_device ? 0 : 1;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = any_device ? 1 : 0;
    work->slow_issue_cycles = MMA_KERNEL_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->box_bytes = vectors ? stage_bytes : 0;
    work->gather_bytes = vectors ? 0 : stage_bytes;
    work->shared_bytes = 2 * stage_bytes + n_tiles * TILE_N * MMA_K_BYTES * k_steps;
    work->stages = any_device ? STAGES : ROW_SUMS_STAGES;
    work->stores = BLOCK_M * gemm_n / model::WARP / GATHERED;
    work->store_warps = STORE_WARPS;
    work->sectors = BLOCK_M * outputs * element / model::SECTOR_BYTES / pixels;
}

} // namespace tconv::col2im
