/* The number of split-K slices: each slice has blocks of its own. */
#include "plan_splits.h"

#include <math.h>

#include "../../core/checked.h"
#include "../model/planned.h"
#include "work.h"

enum {
    SLICES_BYTES = 60 << 20, /* of all slices, at most, where there are several */
    MOST_ROUNDS = 4,         /* blocks of a place, one after another */

    /* How many bytes a weight takes in the tables of a block that writes weights (store_weights.cuh): an int and an
     * int64_t. */
    WEIGHT_TABLE_BYTES = 12
};

/* Rounds of a plan, at least: see tconv_cuda_rounds. */
#define LEAST_ROUNDS (1 - TCONV_CUDA_IDLE_SHARE)

/* Returns whether blocks that have all terms of their sums can write the weights: the sums and the tables of a block
 * fit in the memory of its stages. */
static bool can_write_weights(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const int64_t tables = params->tiles.block_n * WEIGHT_TABLE_BYTES + (int64_t)sizeof(int);
    return plan->kernel->family != BY_MMA && params->k_tiles < params->flush_tiles && chunks_of(&plan->copies) <= 1 &&
           (int64_t)params->tiles.block_m * params->weights.pitch * (int64_t)sizeof(float) + tables <=
               (int64_t)params->stages * params->stage_bytes;
}

double tconv_wgrad_written_part(const planned_layer *plan)
{
    const sum_tiles *tiles = &plan->params.tiles;
    int64_t run = tiles->columns.group_taps;
    if (plan->params.weights.outputs_inner)
        run = tiles->chunk;
    else if (tiles->columns.groups == 1)
        run *= tiles->rows.group_taps * (tiles->rows.groups == 1 && tiles->planes == 1 ? tiles->chunk : 1);
    const double bytes = (double)run * numerics_bytes(plan->math);
    return bytes >= SECTOR_BYTES ? 1 : SECTOR_BYTES / bytes;
}

/* Returns whether so many slices are within their bound. */
static bool fits(const planned_layer *plan, int64_t splits)
{
    const double bytes = (double)tconv_wgrad_slice_sums(&plan->params.tiles) * sizeof(float) * (double)splits;
    const double most = plan->copies.images > 0 ? (double)COPIED_SLICES_BYTES : (double)SLICES_BYTES;
    return splits == 1 || bytes * (keeps_lost(plan, splits) ? 2 : 1) <= most;
}

/* Sets the number of slices. */
static void split(int64_t splits, planned_layer *plan)
{
    plan->params.splits = (int)splits;
    plan->blocks = splits * plan->params.tiles.count;
    plan->writes_weights = splits == 1 && can_write_weights(plan);
}

/* Returns whether a plan would not be kept, for certain, however many slices it has. A multiprocessor has r rounds of tiles of k
 * K-blocks each. However many slices there are, r * k is at least `k_blocks` and r at least `rounds`, k at least 1. A tile takes
 * `apart` and k times a K-block by itself; so r tiles take apart * r and k_blocks K-blocks at least, which is linear in r and
 * least where r is least or where k is 1. Nor is the time below what thread blocks share of all K-blocks. */
static bool is_beyond(const tconv_search *search, const tconv_cuda_work *begun, const planned_layer *plan,
                      const tconv_cuda_work *work, const tconv_cuda_tile *tile)
{
    const tconv_cuda_machine *machine = &search->machine;
    const double tiles = (double)plan->params.tiles.count / machine->multiprocessors;
    const double all = tiles * plan->params.k_tiles; /* K-blocks to a multiprocessor */
    const double rounds = fmax(LEAST_ROUNDS, tiles / plan->resident), k_blocks = fmax(rounds, all / plan->resident);
    const double apart = work->tile_cycles + machine->latency + tile->loading + tile->loaded - tile->alone + tile->end;
    const double cycles = k_blocks * tile->alone + fmin(rounds * apart, k_blocks * apart);
    const double shared = LEAST_ROUNDS * fmax(1, all) * tile->together;
    const tconv_cuda_work least = {.dram_bytes = begun->dram_bytes,
                                   .passes = begun->passes,
                                   .pass_bytes = begun->pass_bytes,
                                   .rounds = begun->rounds,
                                   .tile_cycles = fmax(cycles, shared)};
    return tconv_search_is_beyond(search, &least);
}

bool tconv_wgrad_is_beyond(const tconv_search *search, const tconv_cuda_work *begun, const planned_layer *plan)
{
    const tconv_cuda_work work = tconv_wgrad_least_work(begun, plan);
    const tconv_cuda_tile tile = tconv_cuda_tile_of(&search->machine, &work);
    return search->limited && is_beyond(search, begun, plan, &work, &tile);
}

bool tconv_wgrad_choose_splits(const tconv_search *search, const tconv_cuda_work *begun, planned_layer *plan)
{
    const tconv_cuda_machine *machine = &search->machine;
    const int64_t places = (int64_t)machine->multiprocessors * plan->resident;
    const int64_t k_tiles = tconv_max(1, plan->params.k_tiles), count = plan->params.tiles.count;
    wgrad_work work = tconv_wgrad_tile_work(begun, plan);
    const tconv_cuda_tile tile = tconv_cuda_tile_of(machine, &work.all);
    int64_t best = 1;
    if (is_beyond(search, begun, plan, &work.all, &tile))
        return false;
    plan->seconds = INFINITY;
    /* One; those that fill a part of the places, or all of them up to MOST_ROUNDS times: as many as give each the same K-tiles. */
    for (int64_t quarters = 0, last = 0; quarters <= 4 * MOST_ROUNDS; quarters += quarters < 4 ? 1 : 4) {
        const int64_t room = tconv_max(1, tconv_min(places * quarters / 4 / count, k_tiles));
        const int64_t most = tconv_max(1, tconv_ceil_div(k_tiles, room)), splits = tconv_ceil_div(k_tiles, most);
        if (splits == last || !fits(plan, splits))
            continue;
        split(last = splits, plan);
        tconv_wgrad_count_slices(machine, begun, plan, &work);
        const double seconds = tconv_cuda_seconds_with(machine, &work.all, &tile);
        if (seconds < plan->seconds) {
            plan->seconds = seconds;
            best = splits;
        }
    }
    split(best, plan);
    return true;
}
