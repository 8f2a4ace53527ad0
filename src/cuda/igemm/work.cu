/* The work of a candidate of cuda_igemm, see model/work.h. A K-block is that of parameters.h, at one tap. */
#include <cmath>

#include "../../core/checked.h"
#include "../model/planned.h"
#include "plan.h"

namespace tconv::igemm
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 515;  /* of a warpgroup, from its products of an A stage to those of the next */
constexpr double TILE_CYCLES = 1330;  /* until a tile's sums may be stored, and the next tile is known */
constexpr double M_TILE_CYCLES = 289; /* the same for each M tile */

constexpr double RUN_STORES =
    1.5; /* as long a store of a run takes as another: it is put together of single elements */
constexpr double COMPENSATED_ADDS = 17; /* instructions of an addition with compensation, to one of a plain addition */
/* As long gathering takes where pairs of columns are loaded, of long rows; of short ones, by their sectors. */
constexpr double PAIRS_TIMES = 0.7, SHORT_TIMES = 0.6;
constexpr int TRANSPOSED_BYTES = 128; /* of a pixel's channels in a tile that is transposed (transpose.cuh) */
constexpr double READ_STAGES = 0.6; /* that are read beside the one that is multiplied: 3 took 1.1 times as long as 4 */
constexpr int EPILOGUE_WARPS = 4;   /* that store while others multiply */
constexpr int CONSUMER_WARPS = WARPGROUPS * WARPGROUP_WARPS;

/* The bytes that gathering a stage moves. Pairs come by whole sectors of a row, of which one more than it fills. */
double gathered_bytes(const layer_plan *plan, double pixels_bytes)
{
    const parameters *of = &plan->parameters;
    const double row = (double)of->pitch * (double)of->pixel_bytes / of->k_block_channels;
    return pixels_bytes * (of->gathers_pairs ? fmax(PAIRS_TIMES, SHORT_TIMES * (row + SECTOR_BYTES) / row) : 1);
}

void count_main_loop(const layer_plan *plan, tconv_cuda_work *work)
{
    const parameters *of = &plan->parameters;
    const bool strict = plan->mode == MODE_STRICT, gathers = !of->by_tma;
    const bool transposes = of->by_tma && !of->src_channels_last;
    const double N = plan->config.N, taps = plan->mean_taps;
    const double warpgroups = of->mma_pixel[1][0] < of->stage_pixels ? 2 : 1; /* that have pixels */
    const double b_stage_taps = of->per_tap ? 1 : taps;
    const double pairs = of->uneven ? (of->mma_taps[0] + of->mma_taps[1]) / (2.0 * of->column_taps) : 1;
    const double products = of->k_steps * warpgroups * plan->config.mma_tiles * pairs * (strict ? 3 : 1);
    const double pixels_bytes = (double)of->stage_pixels * of->pixel_bytes / b_stage_taps;
    work->k_blocks = of->k_blocks * taps * of->src_phases;
    work->wgmma = products * N / 8;
    work->wgmma_chain = products / warpgroups * N / 8;
    work->shared_bytes = products * (MMA_M + N) * MMA_K_BYTES + of->a_tile_bytes + pixels_bytes * (strict ? 4 : 1);
    work->adds = strict ? N * plan->config.mma_tiles / 2 * (plan->config.long_sums ? COMPENSATED_ADDS : 1) : 0;
    work->issue_cycles = ISSUE_CYCLES;
    work->tile_cycles = TILE_CYCLES + of->m_tiles * M_TILE_CYCLES;
    work->transpose_bytes = transposes ? pixels_bytes : 0;
    work->split_bytes = strict && !transposes ? pixels_bytes : 0;
    work->gather_bytes = gathers ? gathered_bytes(plan, pixels_bytes) : 0;
    work->box_bytes = gathers ? 0 : of->src_channels_last ? pixels_bytes : of->raw_stage_bytes / taps;
    work->weight_bytes = of->a_tile_bytes;
}

/* Returns the elements that a lane stores at once. wanted: as many as there would be if all lay at multiples of
 * them. */
int64_t store_vector(const search *in, const parameters *of, int64_t *wanted)
{
    const tconv_problem *problem = &in->layer->problem;
    *wanted = VECTOR_BYTES / in->output_bytes;
    if (of->dst_channels_last)
        return in->one_pixel || (of->to.w % *wanted == 0 && (problem->groups == 1 || problem->group_out % *wanted == 0))
                   ? *wanted
                   : 1;
    if (in->runs.rows > 1)
        return *wanted = run_vector_of(in->runs, &problem->dst, in->output_bytes);
    *wanted = of->paired ? 2 : 1;
    return tconv_rows_begin_at_multiples(&problem->dst, *wanted) ? *wanted : 1;
}

/* Returns the parts of sectors for each byte that a tile stores, so many columns of a pixel: in NCHW those at the ends of
 * its pieces of rows, in
 * NHWC at the ends of its pieces of pixels, where several tiles share a pixel. */
double part_share(const search *in, const parameters *of, int64_t columns)
{
    const tconv_problem *problem = &in->layer->problem;
    const int64_t element = in->output_bytes;
    if (of->dst_channels_last && (problem->groups > 1 || of->tiles_along_m > 1)) {
        const int64_t piece = tconv_min(of->group_out, MMA_M * of->m_tiles) * element;
        return tconv_cuda_part_ends(piece, 0) / (double)piece;
    }
    if (of->dst_channels_last)
        return 0;
    const bool whole = of->flat && of->column_stride == 1; /* rows follow one another */
    const int64_t pixels = whole            ? of->block_n
                           : of->flat       ? of->flat_columns
                           : of->across > 0 ? CORE_ROWS
                                            : of->tile_columns;
    const int64_t piece = pixels * (of->paired ? 2 : columns) * element;
    return tconv_cuda_part_ends(piece, (whole ? of->to.c : of->to.h) * element) / (double)piece;
}

void count_stores(const search *in, const parameters *of, tconv_cuda_work *work)
{
    const double element = in->output_bytes;
    const double pixels = (double)(of->across > 0 ? of->block_n : tconv_min(of->block_n, of->stage_pixels));
    const double channels = (double)of->channel_m_tiles * MMA_M;
    const double outputs = pixels * of->m_tiles * MMA_M * fmin(1, of->group_out / channels);
    int64_t wanted;
    const int64_t vector = store_vector(in, of, &wanted);
    /* In NCHW each column phase writes its own part of a sector, and so does each element where they are not stored
     * together. */
    const bool splits = !of->dst_channels_last && of->column_stride > 1 && !of->paired;
    const double parts = splits ? fmin(of->column_stride, fmax(1, 32 / element / in->runs.columns))
                         : of->dst_channels_last || vector > 1 ? 1
                                                               : (double)wanted;
    work->stores = outputs / WARP / (double)vector * (in->runs.rows > 1 ? RUN_STORES : 1);
    const double stored = outputs * in->runs.columns / in->runs.rows;
    work->sectors = stored * element / SECTOR_BYTES * parts;
    work->part_sectors = stored * element * part_share(in, of, in->runs.columns);
}

/* Of all phases. */
int64_t taps_of(const tconv_phase_table *table)
{
    int64_t taps = 0;
    for (int64_t i = 0; i < table->count; i++)
        taps += table->phases[i].taps;
    return taps;
}

} // namespace

int run_vector_of(const column_runs &runs, const tconv_strides *dst, int64_t element)
{
    int64_t vector = VECTOR_BYTES / element;
    for (const int64_t of : {(int64_t)runs.columns, (int64_t)runs.begin, (int64_t)runs.end, dst->n, dst->c, dst->h})
        vector = tconv_gcd(vector, of);
    return (int)vector;
}

search begin_search(const tconv_layer *layer, const layer_view *view, bool sums, double limit)
{
    const tconv_layer *seen = &view->layer;
    const tconv_problem *problem = &seen->problem;
    const int element = (int)problem->element_size;
    const int pixel_bytes = pixel_bytes_of(problem);
    search in = {};
    in.layer = layer;
    in.seen = seen;
    in.runs = view->runs;
    in.one_pixel = view->one_pixel;
    in.sums = sums;
    in.output_bytes = sums ? (int)sizeof(float) : element;
    in.machine = tconv_cuda_machine_of(layer);
    in.begun = tconv_cuda_begin_work(layer);
    in.limit = limit;
    tconv_cuda_add_fill(layer, &in.begun);
    for (int transposed = 0; transposed < 2; transposed++)
        in.spaces[transposed] = space_of(seen, true, transposed == 1);
    in.im2col = im2col_space_of(seen);
    const double phases = seen->phases_of_src ? 1 : (double)(seen->rows.count * seen->columns.count); /* of tiles */
    in.mean_taps = (double)(taps_of(&seen->rows) * taps_of(&seen->columns)) / phases;
    in.m_tiles = phases * (double)(problem->groups * tconv_ceil_div(problem->group_out, MMA_M));
    in.k_blocks = (double)tconv_ceil_div(problem->group_in, pixel_bytes / element);
    in.products = (double)(pixel_bytes / MMA_K_BYTES) * (tconv_cuda_is_strict(layer) ? 3 : 1);
    return in;
}

double least_seconds_of(const search *in, const tile_choice *choice, const config *config)
{
    const position_space *space = choice->im2col ? &in->im2col : &in->spaces[choice->src_transposed ? 1 : 0];
    const int64_t positions = (int64_t)choice->images * choice->rows * choice->columns;
    const int alone = choice->m_tiles > 1 ? config->N : config->mma_tiles * config->N; /* that one warpgroup may take */
    const double warpgroups = choice->across == 0 && positions > alone ? WARPGROUPS : 1;
    /* Block tiles, were they full along M. */
    const double tiles =
        (double)(tconv_ceil_div(space->images, choice->images) * tconv_ceil_div(space->rows, choice->rows) *
                 tconv_ceil_div(space->columns, choice->columns)) *
        in->m_tiles / choice->m_tiles;
    tconv_cuda_work work = in->begun;
    work.k_blocks = in->k_blocks * in->mean_taps;
    work.wgmma = in->products * warpgroups * config->mma_tiles * config->N / 8;
    work.tile_cycles = TILE_CYCLES + choice->m_tiles * M_TILE_CYCLES;
    work.rounds = tconv_cuda_rounds(tiles, in->layer->target.multiprocessors);
    return tconv_cuda_least_seconds(&in->machine, &work);
}

tconv_cuda_work tile_work_of(const search *in, const layer_plan *plan)
{
    const int multiprocessors = in->layer->target.multiprocessors;
    const parameters *of = &plan->parameters;
    tconv_cuda_work work = in->begun;
    count_main_loop(plan, &work);
    /* Pixels of less than a sector come one by one (measured where phases are those of src: twice as long). */
    const int64_t pixel = in->seen->problem.in_channels * (int64_t)in->seen->problem.element_size;
    if (in->seen->phases_of_src && of->by_tma && pixel < SECTOR_BYTES)
        work.box_rows = of->stage_pixels / (of->per_tap ? 1 : plan->mean_taps);
    count_stores(in, of, &work);
    work.rounds = tconv_cuda_rounds(of->tiles, multiprocessors);
    if (of->src_transposed) {
        const tconv_problem *problem = &in->layer->problem;
        const double src = (double)(problem->batch * problem->in_channels) * (double)(problem->h.in * problem->w.in);
        work.passes += 1;
        /* A tile of few channels takes as long as a full one, which tells for the larger planes of gradients of src. */
        const int64_t tile = TRANSPOSED_BYTES / (int64_t)problem->element_size;
        const int64_t channels = tconv_round_up(problem->in_channels, tile);
        const double full = in->seen->phases_of_src ? (double)channels / (double)problem->in_channels : 1;
        work.pass_bytes += ((double)transposed_bytes(problem) + src * (double)problem->element_size) * full;
    }
    return work;
}

void count_stages(const layer_plan *plan, tconv_cuda_work *work)
{
    const parameters *of = &plan->parameters;
    const double taps = plan->mean_taps, a_stage_taps = taps / ceil(taps / of->a_stage_taps);
    work->issues = plan->mode == MODE_STRICT ? 1 : 1 / a_stage_taps;
    work->stage_k_blocks = of->per_tap ? 1 : taps;
    /* Of stages of one tap, those of phases of src wait for one that is still read. */
    const double held = of->src_phases > 1 && work->stage_k_blocks == 1 ? READ_STAGES : 0;
    work->stages = (of->b_stages - held) * work->stage_k_blocks;
    work->weight_stages = of->a_stages;
    work->weight_waits = 1 / a_stage_taps;
    work->store_warps = of->epilogue_warps ? EPILOGUE_WARPS : CONSUMER_WARPS;
    work->overlaps = of->epilogue_warps;
    const double sums = (double)of->m_tiles * MMA_M * of->block_n * plan->output_bytes;
    const double staged =
        (double)WARPGROUPS * of->staging_buffers *
        staging_buffer_bytes(plan->config.N, plan->output_bytes, of->paired, plan->config.staged_parts);
    work->exposed = of->epilogue_warps ? fmax(0, 1 - staged / sums) : 0;
}

tconv_cuda_work work_of(const search *in, const layer_plan *plan)
{
    tconv_cuda_work work = tile_work_of(in, plan);
    count_stages(plan, &work);
    return work;
}

} // namespace tconv::igemm
