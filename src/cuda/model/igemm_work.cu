/* What a plan of cuda_igemm does: see work.h. A K-block is the input channels of a chunk at one tap. */
#include <algorithm>
#include <cmath>
#include <functional>

#include "../../core/checked.h"
#include "../igemm_plan.h"
#include "../igemm_view.h"
#include "planned.h"

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 320;  /* of a warpgroup, from its products of a buffer of slots to those of the next */
constexpr double STRICT_CYCLES = 580; /* the same in strict f32, of every slot, with what adds up its sums */
constexpr double TILE_CYCLES = 1800;  /* until a tile's sums may be stored, and the next tile is known */

constexpr double COMPENSATED_ADDS = 17; /* instructions of an addition with compensation, to one of a plain addition */
constexpr int STORE_WARPS = 4, WARPS = 8; /* that store while others multiply; that multiply */

/* The mean taps of the tiles of the multiprocessor with most to do: tiles of all phases in turn, and of those that are left of
 * the last turn the longest. */
double mean_taps(const tconv_igemm_parameters *of, int multiprocessors)
{
    if (of->merged)
        return 1;
    int taps[TCONV_IGEMM_PHASES * TCONV_IGEMM_PHASES];
    int64_t sum = 0;
    const int phases = of->row_phases * of->column_phases;
    for (int i = 0; i < phases; i++)
        sum += taps[i] = of->rows[i / of->column_phases].taps * of->columns[i % of->column_phases].taps;
    const int64_t tiles = tconv_ceil_div(of->tiles, multiprocessors), left = tiles % phases;
    sum *= tiles / phases;
    std::partial_sort(taps, taps + left, taps + phases, std::greater<int>());
    for (int64_t i = 0; i < left; i++)
        sum += taps[i];
    return (double)sum / (double)tiles;
}

void count_main_loop(const tconv_igemm_plan *plan, double taps, tconv_cuda_work *work)
{
    const tconv_igemm_parameters *of = &plan->parameters;
    const bool strict = plan->mode == TCONV_IGEMM_STRICT, gathers = !of->by_boxes;
    const bool turns = of->by_boxes && !of->src_channels_last;
    const double N = plan->shape.N, groups = of->unit_pixel[1][0] < of->patch ? 2 : 1; /* that have pixels */
    const double stage_taps = of->per_tap ? 1 : taps, slot_taps = taps / ceil(taps / of->slot_taps);
    const double pairs = of->uneven ? (of->unit_taps[0] + of->unit_taps[1]) / (2.0 * of->column_taps) : 1;
    const double products = of->steps * groups * plan->shape.units * pairs * (strict ? 3 : 1);
    const double stage = (double)of->patch * of->row_bytes / stage_taps;
    work->k_blocks = of->chunks * taps;
    work->wgmma = products * N / 8;
    work->wgmma_chain = products / groups * N / 8;
    work->shared_bytes = products * (TCONV_IGEMM_M + N) * TCONV_IGEMM_STEP + of->slot_bytes + stage * (strict ? 4 : 1);
    work->adds = strict ? N * plan->shape.units / 2 * (plan->shape.long_sums ? COMPENSATED_ADDS : 1) : 0;
    work->issues = strict ? 0 : 1 / slot_taps;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = strict ? 1 : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->turn_bytes = turns ? stage : 0;
    work->split_bytes = strict && !turns ? stage : 0;
    work->gather_bytes = gathers ? stage : 0;
    work->box_bytes = gathers ? 0 : of->src_channels_last ? stage : of->plane_box_bytes / taps;
    work->weight_bytes = of->slot_bytes;
    work->stages = of->stages * stage_taps;
    work->weight_stages = of->slots;
    work->weight_waits = 1 / slot_taps;
}

/* Elements that a lane stores at once. wanted: as many as there would be if all lay at multiples of them. */
int64_t store_vector(const tconv_layer *layer, const tconv_igemm_view *view, const tconv_igemm_parameters *of,
                     int64_t *wanted)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, together = view->one_pixel ? 1 : view->outputs;
    *wanted = TCONV_MODEL_VECTOR / element;
    if (of->dst_channels_last)
        return view->one_pixel ||
                       (problem->dst.w % *wanted == 0 && (problem->groups == 1 || problem->group_out % *wanted == 0))
                   ? *wanted
                   : 1;
    *wanted = of->paired ? tconv_max(together, 2) : together;
    return tconv_rows_begin_at_multiples(&problem->dst, *wanted) ? *wanted : 1;
}

/* Parts of sectors for each byte that a tile stores. NCHW: at the ends of its pieces of rows. NHWC: of its pieces of pixels,
 * where several tiles share a pixel. */
double part_share(const tconv_layer *layer, const tconv_igemm_view *view, const tconv_igemm_parameters *of)
{
    const tconv_problem *seen = &view->layer.problem;
    const int64_t element = (int64_t)seen->element_size;
    if (of->dst_channels_last && (layer->problem.groups > 1 || of->block_tiles > 1)) {
        const int64_t piece = tconv_min(seen->group_out, TCONV_IGEMM_M * of->tile_blocks) * element;
        return tconv_cuda_part_ends(piece, 0) / (double)piece;
    }
    if (of->dst_channels_last)
        return 0;
    const bool whole = of->flat && of->column_stride == 1; /* rows follow one another */
    const int64_t pixels = whole            ? of->covered
                           : of->flat       ? of->flat_columns
                           : of->across > 0 ? TCONV_IGEMM_ROW
                                            : of->tile_columns;
    const int64_t piece = pixels * (of->paired ? 2 : 1) * element;
    return tconv_cuda_part_ends(piece, (whole ? seen->dst.c : seen->dst.h) * element) / (double)piece;
}

void count_stores(const tconv_layer *layer, const tconv_igemm_view *view, const tconv_igemm_parameters *of,
                  tconv_cuda_work *work)
{
    const double element = (double)layer->problem.element_size;
    const double pixels = (double)(of->across > 0 ? of->covered : tconv_min(of->covered, of->patch));
    const double channels = (double)of->channel_blocks * TCONV_IGEMM_M;
    const double outputs =
        pixels * of->tile_blocks * TCONV_IGEMM_M * fmin(1, (double)view->layer.problem.group_out / channels);
    int64_t wanted;
    const int64_t vector = store_vector(layer, view, of, &wanted);
    /* Of a sector of NCHW each column phase writes its own part, and so does each element where they are not stored together. */
    const double together = view->one_pixel ? 1 : (double)view->outputs;
    const bool splits = !of->dst_channels_last && of->column_stride > 1 && !of->paired && !view->one_pixel;
    const double parts = splits ? fmin(of->column_stride, fmax(1, 32 / element / together))
                         : of->dst_channels_last || vector > 1 ? 1
                                                               : (double)wanted;
    work->stores = outputs / TCONV_MODEL_WARP / (double)vector;
    work->store_warps = of->hands_over ? STORE_WARPS : WARPS;
    work->overlaps = of->hands_over;
    work->sectors = outputs * element / TCONV_MODEL_SECTOR * parts;
    work->part_sectors = outputs * element * part_share(layer, view, of);
}

} // namespace

void tconv_cuda_igemm_work(const tconv_layer *layer, const tconv_cuda_machine *machine, tconv_cuda_work *work)
{
    const tconv_igemm_choice choice = tconv_igemm_choice_of(layer->choice);
    tconv_igemm_view view;
    tconv_igemm_plan plan;
    tconv_igemm_view_init(&view, layer);
    tconv_igemm_describe(&view.layer, &choice, machine->multiprocessors, &plan);
    *work = tconv_cuda_work_begin(layer);
    count_main_loop(&plan, mean_taps(&plan.parameters, machine->multiprocessors), work);
    count_stores(layer, &view, &plan.parameters, work);
    work->rounds = tconv_cuda_rounds(plan.parameters.tiles, machine->multiprocessors);
    if (plan.parameters.turned) {
        const tconv_problem *problem = &layer->problem;
        const double src = (double)(problem->batch * problem->in_channels) * (double)(problem->h.in * problem->w.in);
        work->passes += 1;
        work->pass_bytes += (double)tconv_igemm_turned_bytes(problem) + src * (double)problem->element_size;
    }
    tconv_cuda_add_fill(layer, work);
}
