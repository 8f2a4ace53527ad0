/* What a plan of cuda_wgmma does: see work.h. A K-block is a chunk of input channels at all taps. */
#include <cmath>

#include "../../core/checked.h"
#include "../hopper.h"
#include "../wgmma_plan.h"
#include "planned.h"

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 260;  /* of a warpgroup, for each commit group that it waits for, and for each chunk */
constexpr double STRICT_CYCLES = 650; /* the same in strict f32, with what clears and adds partial sums */
constexpr double TILE_CYCLES = 3200;  /* until a tile's sums are staged for those that store them */

constexpr double TIGHT_TIMES = 1.5; /* that converting takes longer into a patch whose pitch is not the box's */
constexpr int LEAST_BULK = 384;     /* bytes of a row that goes by a bulk copy where vectors could store it: wgmma.cu */

void count_main_loop(const tconv_layer *layer, const tconv_wgmma_plan *made, tconv_cuda_work *work)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    const bool strict = made->mode == TCONV_WGMMA_STRICT, direct = made->transposed && !made->shifted;
    const double N = made->shape.N;
    const int taps = of->order[0].runs * of->order[0].count + of->order[1].runs * of->order[1].count;
    const double products = (of->chunk_slots[0] + of->chunk_slots[1]) * taps * (strict ? 3.0 : 1.0);
    const double weights = of->resident ? 0 : (double)of->slot_bytes * of->max_chunk_slots;
    const bool together = of->same_order && !strict; /* both units of a warpgroup commit at once */
    const double groups =
        (double)(tconv_wgmma_strokes(of, 0) + (together ? 0 : tconv_wgmma_strokes(of, 1))) / of->chunks;
    const double converted =
        direct ? 0
               : 2.0 * of->steps * of->box_patch * TCONV_WGMMA_QUAD * (strict ? 2 : 1) * (of->tight ? TIGHT_TIMES : 1);
    const bool apart =
        (!made->aligned && !made->transposed) || (of->run_columns == 0 && !tconv_cuda_reads_vectors(layer));
    work->k_blocks = of->chunks;
    work->wgmma = products * N / 8;
    work->wgmma_chain = products * N / 16;
    work->shared_bytes =
        products * (TCONV_WGMMA_M + N) * 2 * TCONV_WGMMA_QUAD + 2.0 * of->box_bytes + of->stage_bytes + weights;
    work->adds = strict ? groups * N / 2 : 0;
    work->issues = strict ? 0 : groups + 1;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = strict ? groups + 1 : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->convert_bytes = converted;
    work->gather_bytes = apart ? converted : 0;
    work->box_bytes = of->box_bytes;
    work->box_rows = direct ? 0 : (double)of->chunk_channels * made->patch_rows * (double)tconv_max(of->box_parts, 1);
    work->weight_bytes = weights;
    work->stages = direct ? of->boxes : of->in_place ? of->stages : of->boxes + of->stages;
    work->weight_stages = of->resident ? 0 : of->slots;
    work->weight_waits = of->max_chunk_slots;
}

/* Whether rows are stored by bulk copies, as wgmma.cu decides it for an aligned dst. */
bool stores_bulk(const tconv_layer *layer, const tconv_wgmma_parameters *of, int64_t vector)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t columns = of->run_columns > 0 ? tconv_min(of->run_columns, of->unit_columns) : of->tile_columns;
    return (element == 2 || problem->dst.c * element % TCONV_HOPPER_BOX_ALIGNMENT == 0) && problem->w.out % 2 == 0 &&
           of->tile_columns * of->row_pixels % 2 == 0 &&
           (vector < TCONV_MODEL_VECTOR / element || columns * of->row_pixels * element >= LEAST_BULK);
}

void count_stores(const tconv_layer *layer, const tconv_wgmma_plan *made, tconv_cuda_work *work)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    const int64_t element = (int64_t)layer->problem.element_size, vector = tconv_cuda_row_vector(layer);
    const double rows =
        (double)TCONV_WGMMA_M * TCONV_WGMMA_GROUPS * (of->row_pixels == 2 ? 1 : TCONV_WGMMA_UNITS) * of->unit_rows;
    const double row = (double)of->row_pixels * of->unit_columns; /* elements */
    const double runs = of->run_columns > 0 ? 1 + (double)of->unit_columns / of->run_columns : 1;
    if (stores_bulk(layer, of, vector))
        work->bulk_stores = rows * runs;
    else
        work->stores = rows * fmax(1, row / TCONV_MODEL_WARP / (double)vector);
    work->store_warps = TCONV_WGMMA_GROUPS * tconv_wgmma_store_warps(made->mode);
    work->overlaps = true;
    work->sectors = rows * row * (double)element / TCONV_MODEL_SECTOR;
    const int64_t piece = tconv_gcd(of->out_columns * element, (int64_t)of->row_pixels * of->tile_columns * element);
    work->part_sectors = of->column_tiles == 1 ? 0 : rows * tconv_cuda_part_ends(piece, of->dst_channel * element);
}

} // namespace

void tconv_cuda_wgmma_work(const tconv_layer *layer, const tconv_cuda_machine *machine, tconv_cuda_work *work)
{
    tconv_wgmma_plan made;
    tconv_wgmma_describe(layer, layer->choice, machine->multiprocessors, &made);
    *work = tconv_cuda_work_begin(layer);
    count_main_loop(layer, &made, work);
    count_stores(layer, &made, work);
    work->rounds = tconv_cuda_rounds(made.parameters.tiles, made.thread_blocks);
}
