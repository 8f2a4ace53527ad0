/* The work of a plan of cuda_cells, see model/work.h. A K-block has all entries of a tap schedule, of the mean
 * of those that the fullest multiprocessor works off; a thread block is one of a cluster of two. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../model/planned.h"
#include "plan.h"

/* The corrections. */
static const double ISSUE_CYCLES = 482;   /* of a warpgroup, for an entry: waits, the window's branch, the next entry */
static const double STRICT_CYCLES = 1410; /* the same in strict f32, which splits operands and adds partial sums too */
static const double TILE_CYCLES = 757;    /* until a tile's sums may be stored */
/* The same where phases are those of src, of which short tiles took longer and long ones less (measured). */
static const double OF_SRC_ISSUE_CYCLES = 400, OF_SRC_TILE_CYCLES = 4000;

static const double POST_CYCLES = 150; /* of a step of the post-ops, beside its instructions: numbers are read */
static const double WHOLE_ENTRIES =
    0.5; /* of an entry's instructions, where it is all of its schedule: no window, no next */
static const double CONFLICT_TIMES = 0.6; /* that a step's loads take longer for each further address in a bank */
static const double WEIGHTS_TIMES = 0.3;  /* of a tile's time, that loading weights that stay takes */
static const double LOAD_COPIES = 400;    /* copies of words or pairs, by three warps, that take as long as a load */

enum {
    LANES = 128,        /* values of which a multiprocessor issues an instruction in a cycle */
    LOAD_BYTES = 128,   /* of a load of the one warp that reads what TMA cannot, in forward */
    CONSUMER_WARPS = 8, /* warps that store */
    PAIR_WARPS = 4      /* warps of a pair of warpgroups that store while the others multiply */
};

/* The counts of the mean schedule. */
typedef struct schedule_counts {
    double window_n; /* N of the entries' windows */
    double entries;
    double weight_tiles;
    double b_rows;
    bool whole; /* each schedule is one entry, whose window is all of N */
} schedule_counts;

/* Tells how much longer a schedule is than another, by its B rows. */
static int more_b_rows(const void *a, const void *b)
{
    return ((const tap_schedule *)b)->b_rows - ((const tap_schedule *)a)->b_rows;
}

/* Counts the schedules that the fullest multiprocessor works off in so many rounds: all in turn, and of those left in
 * the last rounds the longest. */
static schedule_counts count_schedules(const layer_plan *plan, int N, int rounds)
{
    const parameters *params = &plan->params;
    schedule_counts counts = {N, 1, 1, params->schedules[0].b_rows, true};
    if (params->stationary)
        return counts;
    tap_schedule longest_first[MAX_SCHEDULES];
    memcpy(longest_first, params->schedules, sizeof longest_first);
    qsort(longest_first, (size_t)params->schedule_count, sizeof longest_first[0], more_b_rows);
    counts = (schedule_counts){0, 0, 0, 0, plan->config.mma_n == N};
    for (int s = 0; s < params->schedule_count; s++) {
        const tap_schedule *schedule = &longest_first[s];
        const int turns = rounds / params->schedule_count + (s < rounds % params->schedule_count ? 1 : 0);
        const double share = turns / (double)tconv_max(rounds, 1);
        for (int e = schedule->first_entry; e < schedule->end_entry; e++)
            counts.window_n += share * (counts.whole ? N : params->entries[e].window % 16 * plan->config.mma_n);
        counts.entries += share * (schedule->end_entry - schedule->first_entry);
        counts.weight_tiles += share * (schedule->end_weight_tile - schedule->first_weight_tile);
        counts.b_rows += share * schedule->b_rows;
    }
    return counts;
}

/* Copies of a stage that TMA cannot bring: of two words where rows are multiples of that. */
static double copies_of(const tconv_layer *layer, const parameters *params)
{
    const int64_t words = tconv_cuda_src_row_vector(layer) % 2 == 0 && params->in_columns % 2 == 0 ? 2 : 1;
    return (double)(params->used_rows * params->tile_images * params->block_k) *
           (double)tconv_ceil_div(params->used_columns, words);
}

static void count_main_loop(const tconv_layer *layer, const layer_plan *plan, int N, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const bool strict = numerics_split(plan->numerics);
    const int64_t clusters = tconv_max(1, tconv_cuda_target_of(&layer->target).multiprocessors / CLUSTER_BLOCKS);
    schedule_counts counts = count_schedules(plan, N, (int)tconv_ceil_div(params->tiles, clusters));
    counts.window_n /= params->row_phases; /* a stage is counted as a K-block */
    counts.entries /= params->row_phases;
    counts.weight_tiles /= params->row_phases;
    counts.b_rows /= params->row_phases;
    const double weights = counts.b_rows * params->b_row_bytes;
    /* Where phases are those of src, conflicts took no time beside products (measured). */
    const bool of_src = layer->phases_of_src;
    const double conflict_times = of_src ? 0 : CONFLICT_TIMES;
    work->k_blocks = (double)params->k_blocks * params->row_phases;
    work->wgmma_chain = (strict ? 3 : 1) * params->mma_steps * counts.window_n / 8;
    work->wgmma = CONSUMER_WARPGROUPS * work->wgmma_chain;
    work->issues = strict ? 0 : counts.entries * (counts.whole ? WHOLE_ENTRIES : 1);
    work->issue_cycles = of_src ? OF_SRC_ISSUE_CYCLES : ISSUE_CYCLES;
    work->slow_issues = strict ? counts.entries : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = of_src && !strict ? OF_SRC_TILE_CYCLES : TILE_CYCLES;
    work->fragments = !strict && !params->stationary
                          ? counts.entries * params->mma_steps * (1 + conflict_times * (plan->bank_cycles - 1))
                          : 0;
    work->shared_bytes = 2.0 * params->pixel_stage_bytes + weights + work->wgmma * 8 * 32;
    work->weight_bytes = params->stationary ? 0 : weights / CLUSTER_BLOCKS;
    work->box_bytes =
        (double)params->pixel_stage_bytes / (double)(params->stationary ? tconv_max(params->set_blocks, 1) : 1);
    work->box_rows = (double)params->block_k * plan->box_rows * params->tile_images;
    work->stages = params->pixel_stages;
    work->weight_stages = params->stationary ? 0 : params->weight_stages;
    work->weight_waits = counts.weight_tiles * CLUSTER_BLOCKS; /* both blocks' */
    const bool by_tma = !params->copied && (tconv_cuda_reads_vectors(layer) ||
                                            (params->in_rows == 1 && layer->problem.src.c % COLUMN_ALIGNMENT == 0 &&
                                             layer->problem.src.n % COLUMN_ALIGNMENT == 0));
    if (!by_tma && (params->stationary ||
                    !layer->phases_of_src)) { /* copies of forward's were not timed: these are single loads */
        work->chain_loads = (double)params->pixel_stage_bytes / LOAD_BYTES;
    } else if (!by_tma) {
        work->chain_loads = copies_of(layer, params) / LOAD_COPIES;
        work->box_rows = 0;
    }
}

/* Begins the work of a layer, which may be one of words: but dst. */
static tconv_cuda_work begin_work(const tconv_layer *layer, const layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    const double words = (double)(problem->batch * problem->out_channels) * (double)(problem->h.out * problem->w.out);
    work.dram_bytes -= words * (double)(problem->element_size - (size_t)numerics_bytes(plan->numerics));
    return work;
}

static void count_stores(const tconv_layer *layer, const layer_plan *plan, int N, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const double element = numerics_bytes(plan->numerics);
    const double outputs = (double)N * BLOCK_M;
    const int64_t columns = params->cell_columns,
                  run = columns < 4 ? 2 * columns : columns; /* of one or two positions */
    int64_t vector = tconv_min(tconv_cuda_row_vector(layer), run);
    /* Bytes that are stored one after another: where weights stay, those of all rows of a cell. */
    const int rows = params->stationary ? params->cell_rows : 1;
    const double run_bytes = (double)rows * (double)layer->problem.w.out * element;
    work->stores = outputs / WARP / (double)vector;
    work->store_warps = params->stationary ? PAIR_WARPS : CONSUMER_WARPS;
    work->overlaps = params->stationary;
    work->sectors = outputs * element / SECTOR_BYTES * fmax(1, (double)columns / (double)vector);
    if ((int64_t)run_bytes % SECTOR_BYTES != 0)
        work->part_sectors = outputs * element / run_bytes;
}

/* Counts the post-ops: instructions of the warps that store, beside the products of others where weights stay. */
static void count_posts(const tconv_layer *layer, int N, tconv_cuda_work *work)
{
    const double cycles = (double)N * BLOCK_M * tconv_cuda_post_instructions(&layer->problem) / LANES +
                          POST_CYCLES * layer->problem.desc.post_count;
    if (work->overlaps)
        work->stores += cycles * work->store_warps / tconv_cuda_machine_of(layer).store;
    else
        work->tile_cycles += cycles;
}

/* Taps of a cell's outputs, of the schedule with the fewest: each is a product with all of its channels, in some window. */
static int64_t least_cell_taps(const tconv_layer *layer, const parameters *params)
{
    int64_t row_taps = 0, column_taps = 0;
    if (layer->phases_of_src)
        return params->cell_rows * tconv_cells_most_taps(layer);
    for (int r = 0; r < params->cell_rows; r++)
        row_taps += layer->rows.phases[r % layer->rows.stride].taps;
    if (params->schedule_count > 1)
        for (int p = 0; p < params->schedule_count; p++)
            row_taps = tconv_min(row_taps, layer->rows.phases[p].taps);
    for (int c = 0; c < params->cell_columns; c++)
        column_taps += layer->columns.phases[c].taps;
    return row_taps * column_taps;
}

tconv_cuda_work tconv_cells_least_work_of(const tconv_layer *layer, const layer_plan *plan)
{
    const parameters *params = &plan->params;
    tconv_cuda_work work = begin_work(layer, plan);
    if (params->stationary)
        return work;
    work.k_blocks = params->k_blocks;
    work.wgmma = CONSUMER_WARPGROUPS * (numerics_split(plan->numerics) ? 3.0 : 1.0) * params->mma_steps *
                 params->cell_channels * (double)least_cell_taps(layer, params) / 8;
    work.tile_cycles = TILE_CYCLES;
    work.rounds =
        tconv_cuda_rounds(params->tiles, tconv_cuda_target_of(&layer->target).multiprocessors / (double)CLUSTER_BLOCKS);
    return work;
}

tconv_cuda_work tconv_cells_work_of(const tconv_layer *layer, const layer_plan *plan)
{
    const parameters *params = &plan->params;
    const int N = params->stationary ? STATIONARY_BLOCK_N : block_n(numerics_split(plan->numerics));
    tconv_cuda_work work = begin_work(layer, plan);
    count_main_loop(layer, plan, N, &work);
    count_stores(layer, plan, N, &work);
    count_posts(layer, N, &work);
    /* Where weights stay, those of a set are loaded before the tiles of the set. */
    work.rounds = params->stationary
                      ? (double)tconv_ceil_div(params->n_tile_sets, tconv_max(params->set_step, 1)) *
                            ((double)tconv_ceil_div(params->m_tiles, tconv_max(params->tile_step, 1)) + WEIGHTS_TIMES)
                      : tconv_cuda_rounds(params->tiles, tconv_cuda_target_of(&layer->target).multiprocessors /
                                                             (double)CLUSTER_BLOCKS);
    return work;
}
