/*
 * What a plan of cuda_products does: see work.h. A tile is 128 pixels, one row of a strip; a K-block is a stage of their
 * channels. products.cu keeps its strips to itself: they are cut again here.
 */
#include <cmath>

#include "../../core/checked.h"
#include "../products_kernels.h"
#include "planned.h"

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 310; /* of a stage of Hopper's kernel: barriers, operands to registers */
constexpr double ANY_CYCLES =
    1300; /* of a step of the kernel for any device, which waits for its copies by a block's barrier */
constexpr double TILE_CYCLES = 1500; /* of a row: barriers between products and gathering */

constexpr int64_t PIXELS = TCONV_CUDA_PRODUCTS_PIXELS, MAX_TURNS = 8;
constexpr int RESIDENT = 2, STAGES = 5, ANY_STAGES = 3, WARPS = 4;
constexpr double GATHERED = 4; /* products that a thread gathers in the time of a store: runs of neighbours */

/* Rows that a block works off, all turns together, and blocks that share a multiprocessor. */
void cut_rows(const tconv_layer *layer, bool any, int multiprocessors, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_axis *h = &problem->h, *w = &problem->w;
    int64_t row_pixels = 32;
    while (row_pixels < PIXELS && row_pixels < w->in)
        row_pixels *= 2;
    const int64_t vector = TCONV_MODEL_VECTOR / (int64_t)problem->element_size;
    const int64_t reach = (w->kernel - 1) * w->dilation / w->stride;
    const int64_t step = tconv_max((row_pixels - reach) / vector * vector, 1);
    const int64_t column_tiles = w->in <= row_pixels ? 1 : 1 + tconv_ceil_div(w->in - row_pixels, step);
    const int64_t together = PIXELS / row_pixels, back = (h->kernel - 1) * h->dilation / h->stride;
    const int64_t all = (h->pad + h->out - 1) / h->stride + 1 - h->pad / h->stride;
    const int64_t quotients = any ? all : tconv_max(1, tconv_min(h->in - h->pad / h->stride, all));
    const int64_t images = any ? problem->batch : tconv_ceil_div(problem->batch, together);
    const int64_t others = tconv_max(1, images * problem->groups * column_tiles);
    const int64_t places = multiprocessors * RESIDENT;
    int64_t best = INT64_MAX;
    for (int64_t turns = 1; turns <= MAX_TURNS; turns++) {
        const int64_t strips = tconv_min(tconv_max(places * turns / others, 1), quotients);
        const int64_t rows = tconv_ceil_div(quotients, strips);
        const int64_t blocks = others * tconv_ceil_div(quotients, rows);
        const int64_t time = tconv_ceil_div(blocks, places) * tconv_ceil_div(rows + back, any ? together : 1);
        if (time < best) {
            best = time;
            work->rounds = (double)time;
            work->resident = fmin(RESIDENT, fmax(1, (double)blocks / multiprocessors));
        }
    }
}

} // namespace

void tconv_cuda_products_work(const tconv_layer *layer, const tconv_cuda_machine *machine, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const bool any = layer->choice == 0; /* the kernel for any device; else Hopper's of one of its shapes */
    const double element = (double)problem->element_size, times = tconv_cuda_is_strict(layer) ? 3 : 1;
    const double steps =
        (double)tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, TCONV_CUDA_PRODUCTS_STEP_BYTES);
    const double products = (double)(problem->group_out * problem->h.kernel * problem->w.kernel);
    const double tiles = ceil(products / TCONV_CUDA_PRODUCTS_TILE),
                 stage_steps = any ? 1 : TCONV_CUDA_PRODUCT_ROWS_STEPS;
    const double stage = PIXELS * TCONV_CUDA_PRODUCTS_STEP_BYTES * stage_steps;
    const double pixels = (double)problem->batch * (double)problem->groups * (double)(problem->h.in * problem->w.in);
    const double outputs =
        (double)problem->batch * (double)problem->out_channels * (double)(problem->h.out * problem->w.out);
    const bool vectors = tconv_cuda_reads_vectors(layer);
    *work = tconv_cuda_work_begin(layer);
    cut_rows(layer, any, machine->multiprocessors, work);
    work->k_blocks = ceil(steps / stage_steps);
    work->wgmma = any ? 0 : tiles * 2 * stage_steps * times;
    work->wgmma_chain = any ? 0 : tiles * 2 * times;
    work->mma_sync = any ? tiles * 8 * times : 0;
    work->mma_chain = any ? tiles * 2 * times : 0;
    work->issues = any ? 0 : 1;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = any ? 1 : 0;
    work->slow_issue_cycles = ANY_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->box_bytes = vectors ? stage : 0;
    work->gather_bytes = vectors ? 0 : stage;
    work->shared_bytes = 2 * stage + tiles * TCONV_CUDA_PRODUCTS_TILE * TCONV_CUDA_PRODUCTS_STEP_BYTES * stage_steps;
    work->stages = any ? ANY_STAGES : STAGES;
    work->stores = PIXELS * products / TCONV_MODEL_WARP / GATHERED;
    work->store_warps = WARPS;
    work->sectors = PIXELS * outputs * element / TCONV_MODEL_SECTOR / pixels;
}
