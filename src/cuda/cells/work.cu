/* The work of a plan of cuda_cells, see model/work.h. A K-block has all entries of a tap schedule, of the mean
 * of those that the fullest multiprocessor works off; a thread block is one of a cluster of two. */
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "../../core/checked.h"
#include "../model/planned.h"
#include "plan.h"

namespace tconv::cells
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 482;   /* of a warpgroup, for an entry: waits, the window's branch, the next entry */
constexpr double STRICT_CYCLES = 1410; /* the same in strict f32, with what splits operands and adds partial sums */
constexpr double TILE_CYCLES = 757;    /* until a tile's sums may be stored */
/* The same where phases are those of src, of which short tiles took longer and long ones less (measured). */
constexpr double OF_SRC_ISSUE_CYCLES = 400, OF_SRC_TILE_CYCLES = 4000;

constexpr double WHOLE_ENTRIES =
    0.5; /* of an entry's instructions, where it is all of its schedule: no window, no next */
constexpr double CONFLICT_TIMES = 0.6; /* that a step's loads take longer for each way of a bank conflict */
constexpr double WEIGHTS_TIMES = 0.3;  /* of a tile's time, that loading weights that stay takes */
constexpr int LOAD_BYTES = 128;        /* of a load of the one warp that reads what TMA cannot, in forward */
constexpr double LOAD_COPIES = 400; /* that take as long where they do not: three warps copy words or pairs of them */
constexpr int CONSUMER_WARPS = 8;   /* that store */
constexpr int PAIR_WARPS = 4;       /* of a pair of warpgroups that store while the others multiply */

/* Of the mean schedule. */
struct schedule_counts {
    double window_n; /* N of the entries' windows */
    double entries;
    double weight_tiles;
    double b_rows;
    bool whole; /* each schedule is one entry, whose window is all of N */
};

/* Tells how much longer a schedule is than another, by its B rows. */
int more_b_rows(const void *a, const void *b)
{
    return ((const tap_schedule *)b)->b_rows - ((const tap_schedule *)a)->b_rows;
}

/* Counts the schedules that the fullest multiprocessor works off in so many rounds: all in turn, and of those left in
 * the last rounds the longest. */
schedule_counts count_schedules(const layer_plan *plan, int N, int rounds)
{
    const parameters *of = &plan->parameters;
    schedule_counts counts = {(double)N, 1, 1, (double)of->schedules[0].b_rows, true};
    if (of->stationary)
        return counts;
    tap_schedule longest_first[MAX_SCHEDULES];
    memcpy(longest_first, of->schedules, sizeof longest_first);
    qsort(longest_first, (size_t)of->schedule_count, sizeof longest_first[0], more_b_rows);
    counts = {0, 0, 0, 0, plan->config.mma_n == N};
    for (int s = 0; s < of->schedule_count; s++) {
        const tap_schedule *schedule = &longest_first[s];
        const double share =
            (rounds / of->schedule_count + (s < rounds % of->schedule_count ? 1 : 0)) / (double)tconv_max(rounds, 1);
        for (int e = schedule->first_entry; e < schedule->end_entry; e++)
            counts.window_n += share * (counts.whole ? N : of->entries[e].window % 16 * plan->config.mma_n);
        counts.entries += share * (schedule->end_entry - schedule->first_entry);
        counts.weight_tiles += share * (schedule->end_weight_tile - schedule->first_weight_tile);
        counts.b_rows += share * schedule->b_rows;
    }
    return counts;
}

/* Copies of a stage that TMA cannot bring: of two words where rows are multiples of that. */
double copies_of(const tconv_layer *layer, const parameters *of)
{
    const int64_t words = tconv_cuda_src_row_vector(layer) % 2 == 0 && of->in_columns % 2 == 0 ? 2 : 1;
    return (double)(of->used_rows * of->tile_images * of->block_k) * (double)tconv_ceil_div(of->used_columns, words);
}

void count_main_loop(const tconv_layer *layer, const layer_plan *plan, int N, tconv_cuda_work *work)
{
    const parameters *of = &plan->parameters;
    const int64_t clusters = tconv_max(1, layer->target.multiprocessors / CLUSTER_BLOCKS);
    schedule_counts counts = count_schedules(plan, N, (int)tconv_ceil_div(of->tiles, clusters));
    for (double *count : {&counts.window_n, &counts.entries, &counts.weight_tiles, &counts.b_rows})
        *count /= of->row_phases; /* a stage is counted as a K-block */
    const double weights = counts.b_rows * of->b_row_bytes;
    /* Where phases are those of src, conflicts took no time beside products (measured). */
    const bool of_src = layer->phases_of_src;
    const double conflict_times = of_src ? 0 : CONFLICT_TIMES;
    work->k_blocks = (double)of->k_blocks * of->row_phases;
    work->wgmma_chain = (plan->strict ? 3 : 1) * of->mma_steps * counts.window_n / 8;
    work->wgmma = CONSUMER_WARPGROUPS * work->wgmma_chain;
    work->issues = plan->strict ? 0 : counts.entries * (counts.whole ? WHOLE_ENTRIES : 1);
    work->issue_cycles = of_src ? OF_SRC_ISSUE_CYCLES : ISSUE_CYCLES;
    work->slow_issues = plan->strict ? counts.entries : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = of_src && !plan->strict ? OF_SRC_TILE_CYCLES : TILE_CYCLES;
    work->fragments = !plan->strict && !of->stationary
                          ? counts.entries * of->mma_steps * (1 + conflict_times * (plan->bank_cycles - 1))
                          : 0;
    work->shared_bytes = 2.0 * of->pixel_stage_bytes + weights + work->wgmma * 8 * 32;
    work->weight_bytes = of->stationary ? 0 : weights / CLUSTER_BLOCKS;
    work->box_bytes = (double)of->pixel_stage_bytes / (double)(of->stationary ? tconv_max(of->set_blocks, 1) : 1);
    work->box_rows = (double)of->block_k * plan->box_rows * of->tile_images;
    work->stages = of->pixel_stages;
    work->weight_stages = of->stationary ? 0 : of->weight_stages;
    work->weight_waits = counts.weight_tiles * CLUSTER_BLOCKS; /* both blocks' */
    const bool by_tma = !of->copied && (tconv_cuda_reads_vectors(layer) ||
                                        (of->in_rows == 1 && layer->problem.src.c % COLUMN_ALIGNMENT == 0 &&
                                         layer->problem.src.n % COLUMN_ALIGNMENT == 0));
    if (!by_tma &&
        (of->stationary || !layer->phases_of_src)) { /* copies of forward's were not timed: these are single loads */
        work->chain_loads = (double)of->pixel_stage_bytes / LOAD_BYTES;
    } else if (!by_tma) {
        work->chain_loads = copies_of(layer, of) / LOAD_COPIES;
        work->box_rows = 0;
    }
}

/* Begins the work of a layer, which may be one of words: but dst. */
tconv_cuda_work begin_work(const tconv_layer *layer, const layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    const double words = (double)(problem->batch * problem->out_channels) * (double)(problem->h.out * problem->w.out);
    work.dram_bytes -= words * (double)(problem->element_size - tconv_dtype_size(plan->dtype));
    return work;
}

void count_stores(const tconv_layer *layer, const layer_plan *plan, int N, tconv_cuda_work *work)
{
    const parameters *of = &plan->parameters;
    const double element = (double)tconv_dtype_size(plan->dtype);
    const double outputs = (double)N * BLOCK_M;
    const int64_t columns = of->cell_columns, run = columns < 4 ? 2 * columns : columns; /* of one or two positions */
    int64_t vector = tconv_min(tconv_cuda_row_vector(layer), run);
    /* Bytes that are stored one after another: where weights stay, those of all rows of a cell. */
    const int rows = of->stationary ? of->cell_rows : 1;
    const double run_bytes = (double)rows * (double)layer->problem.w.out * element;
    work->stores = outputs / WARP / (double)vector;
    work->store_warps = of->stationary ? PAIR_WARPS : CONSUMER_WARPS;
    work->overlaps = of->stationary;
    work->sectors = outputs * element / SECTOR_BYTES * fmax(1, (double)columns / (double)vector);
    if ((int64_t)run_bytes % SECTOR_BYTES != 0)
        work->part_sectors = outputs * element / run_bytes;
}

/* Taps of a cell's outputs, of the schedule with the fewest: each is a product with all of its channels, in some window. */
int64_t least_cell_taps(const tconv_layer *layer, const parameters *of)
{
    int64_t row_taps = 0, column_taps = 0;
    if (layer->phases_of_src)
        return of->cell_rows * most_taps(layer);
    for (int r = 0; r < of->cell_rows; r++)
        row_taps += layer->rows.phases[r % layer->rows.stride].taps;
    if (of->schedule_count > 1)
        for (int p = 0; p < of->schedule_count; p++)
            row_taps = tconv_min(row_taps, layer->rows.phases[p].taps);
    for (int c = 0; c < of->cell_columns; c++)
        column_taps += layer->columns.phases[c].taps;
    return row_taps * column_taps;
}

} // namespace

tconv_cuda_work least_work_of(const tconv_layer *layer, const layer_plan *plan)
{
    const parameters *of = &plan->parameters;
    tconv_cuda_work work = begin_work(layer, plan);
    if (of->stationary)
        return work;
    work.k_blocks = of->k_blocks;
    work.wgmma = CONSUMER_WARPGROUPS * (plan->strict ? 3.0 : 1.0) * of->mma_steps * of->cell_channels *
                 (double)least_cell_taps(layer, of) / 8;
    work.tile_cycles = TILE_CYCLES;
    work.rounds = tconv_cuda_rounds(of->tiles, layer->target.multiprocessors / (double)CLUSTER_BLOCKS);
    return work;
}

tconv_cuda_work work_of(const tconv_layer *layer, const layer_plan *plan)
{
    const parameters *of = &plan->parameters;
    const int N = of->stationary ? STATIONARY_BLOCK_N : block_n(plan->strict);
    tconv_cuda_work work = begin_work(layer, plan);
    count_main_loop(layer, plan, N, &work);
    count_stores(layer, plan, N, &work);
    /* Where weights stay, those of a set are loaded before the tiles of the set. */
    work.rounds = of->stationary
                      ? (double)tconv_ceil_div(of->n_tile_sets, tconv_max(of->set_step, 1)) *
                            ((double)tconv_ceil_div(of->m_tiles, tconv_max(of->tile_step, 1)) + WEIGHTS_TIMES)
                      : tconv_cuda_rounds(of->tiles, layer->target.multiprocessors / (double)CLUSTER_BLOCKS);
    return work;
}

} // namespace tconv::cells
