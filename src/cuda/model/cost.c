/*
 * The cost of a plan's work on a machine, in seconds. Host only, for any machine. bench/fit_cost_model.py has the same
 * for arrays.
 *
 *     load     = max(box_bytes / l2, box_rows * box_row) + weight_bytes / l2_weights
 *     convert  = bytes transposed, split, converted and gathered, each over its rate
 *     products = wgmma, mma_sync and multiply-adds, each times its cycles
 *     chain    = what a warp or warpgroup does in turn: its products, additions, operands, and the issue correction
 *     wait     = (latency + load + convert + chain) / stages, for src and for weights; a stage of src that serves
 *                several K-blocks is waited for once, but holds its buffer for as long as all of them; one that is
 *                converted to another is held until then, and (convert + chain) / those others is waited for as well
 *     K-block  = soft(products, shared, load, convert, chain, waits)
 *     loop     = K-blocks; with a prologue those that it loads, then K-blocks, the last with nothing loaded beside it
 *     end      = soft(stores of a warp, sectors)
 *     tile     = soft(loop + tile correction + delay by parts of sectors, end) where stores overlap, with a share of
 *                the end for outputs that have no staging buffer yet; else their sum
 *     round    = soft(tile, resident * the parts of it that thread blocks share)
 *     seconds  = launches + soft4(first load, unless tiles have prologues, + rounds * round + last end,
 *                                 dram_bytes / dram)
 *
 * soft is the 6-norm: the longest of things that go on side by side, and a little more for each that takes nearly as
 * long. A kernel's end is less sharp than that against the memory's rate, so the 4-norm is taken there.
 */
#include <math.h>

#include "work.h"

/* The share of an epilogue that the next tile waits for where all outputs but those of one staging buffer wait for it,
 * fitted. */
#define EXPOSED_SHARE 0.28

static double square(double a)
{
    return a * a;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* The 6-norm, with (1 + x)^(1/6) for x from 0 to 1 by a polynomial that is off by 5e-4 at most. */
static double soft(double a, double b)
{
    const double high = most(a, b), low = a + b - high;
    if (high <= 0)
        return 0;
    const double x = square(low / high) * square(square(low / high));
    return high * (1 + x * (0.16637 + x * (-0.0641 + x * 0.0202)));
}

static double soft4(double a, double b)
{
    return sqrt(sqrt(square(a * a) + square(b * b)));
}

/* Returns the cycles that a K-block waits for what it reads. */
static double wait_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work, const tconv_cuda_tile *tile,
                      double weights)
{
    const double tensor = work->wgmma * machine->wgmma + work->mma_sync * machine->mma_sync / 4;
    const double multiply = most(most(tensor, tile->shared), tile->chain);
    const double held = work->converted_stages > 0 ? tile->loading : tile->loading + multiply;
    const double src_wait = work->stages > 0 ? (machine->latency + work->stage_k_blocks * held) / work->stages : 0;
    const double converted_wait = work->converted_stages > 0 ? (tile->convert + multiply) / work->converted_stages : 0;
    const double weight_wait =
        work->weight_stages > 0 ? (machine->l2_latency * work->weight_waits + weights + multiply) / work->weight_stages
                                : 0;
    return soft(soft(src_wait, converted_wait), weight_wait);
}

tconv_cuda_tile tconv_cuda_tile_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    tconv_cuda_tile tile = {0};
    tile.products = soft(work->wgmma * machine->wgmma + work->mma_sync * machine->mma_sync / 4,
                         work->ffma / 128 * machine->ffma + work->loads * machine->load);
    tile.shared = work->shared_bytes / machine->shared;
    const double src = most(work->box_bytes / machine->l2, work->box_rows * machine->box_row);
    const double weights = work->weight_bytes / machine->l2_weights;
    tile.convert = work->transpose_bytes / machine->transpose + work->split_bytes / machine->split +
                   work->conversions * machine->conversion + work->convert_bytes / machine->convert +
                   work->gather_bytes / machine->gather;
    const double chain_loads = work->chain_loads * machine->chain_load;
    tile.chain = work->wgmma_chain * machine->wgmma + work->mma_chain * machine->mma_chain + work->adds * machine->add +
                 work->fragments * machine->fragment + work->issues * work->issue_cycles +
                 work->slow_issues * work->slow_issue_cycles;
    tile.load = src + weights;
    tile.loading = src + tile.convert + chain_loads;
    tile.prepare = tile.convert + chain_loads;
    tile.wait = wait_of(machine, work, &tile, weights);

    const double multiply = soft(tile.products, tile.shared);
    tile.together = soft(multiply, soft(tile.load, tile.convert));
    tile.alone = soft(soft(multiply, soft(tile.load, tile.prepare)), soft(tile.chain, tile.wait));
    tile.loaded = soft(multiply, tile.chain);

    const double write = work->sectors * machine->sector + work->part_sectors * machine->part_sector;
    const double stores = (work->stores * machine->store + work->bulk_stores * machine->bulk_store) / work->store_warps;
    tile.end = soft(stores, write);
    tile.shared_end = soft(work->stores * machine->load, write);
    return tile;
}

double tconv_cuda_least_seconds(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    const double tensor = work->wgmma * machine->wgmma + work->mma_sync * machine->mma_sync / 4;
    const double simd = work->ffma / 128 * machine->ffma + work->loads * machine->load;
    const double busy = most(most(tensor, simd), work->shared_bytes / machine->shared);
    const double load = work->box_bytes / machine->l2 + work->weight_bytes / machine->l2_weights;
    const double block = work->prologue > 0 ? busy : most(busy, load);
    const double write = work->sectors * machine->sector + work->part_sectors * machine->part_sector;
    const double tile = most(work->tile_cycles + work->k_blocks * block, write);
    const double all = machine->multiprocessors * machine->hz;
    return machine->launch + work->passes * machine->pass_launch + work->pass_bytes / (machine->pass * all) +
           most(work->rounds * tile / machine->hz, work->dram_bytes / (machine->dram * all));
}

/* Returns the cycles of all tiles of the fullest multiprocessor. */
static double cycles_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work, const tconv_cuda_tile *tile)
{
    const double first = machine->latency + tile->loading; /* what is loaded before anything is multiplied */
    const double delay = work->overlaps ? work->part_sectors * machine->part_delay : 0;
    const double main_loop = work->tile_cycles + delay +
                             (work->prologue > 0 ? machine->latency + work->prologue * tile->loading +
                                                       (work->k_blocks - 1) * tile->alone + tile->loaded
                                                 : work->k_blocks * tile->alone);
    const double shared_loop = work->k_blocks * tile->together;
    const double exposed = work->exposed * EXPOSED_SHARE * tile->end;
    const double whole = work->overlaps ? soft(main_loop, tile->end) + exposed : main_loop + tile->end;
    const double shared = work->overlaps ? soft(shared_loop, tile->shared_end) : shared_loop + tile->shared_end;
    const double round = soft(whole, work->resident * shared);
    return (work->prologue > 0 ? 0 : first) + work->rounds * round + (work->overlaps ? tile->end : 0);
}

static double launch_seconds(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    return machine->launch + work->passes * machine->pass_launch +
           work->pass_bytes / (machine->pass * (machine->multiprocessors * machine->hz));
}

static double dram_seconds(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    return work->dram_bytes / (machine->dram * (machine->multiprocessors * machine->hz));
}

double tconv_cuda_seconds_by_tile(const tconv_cuda_machine *machine, const tconv_cuda_work *work,
                                  const tconv_cuda_tile *tile)
{
    return launch_seconds(machine, work) +
           soft4(cycles_of(machine, work, tile) / machine->hz, dram_seconds(machine, work));
}

tconv_prediction tconv_cuda_cost_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    const tconv_cuda_tile tile = tconv_cuda_tile_of(machine, work);
    const double blocks = work->rounds * work->k_blocks * work->resident / machine->hz;
    tconv_prediction cost;
    cost.launch = launch_seconds(machine, work);
    cost.dram = dram_seconds(machine, work);
    cost.l2 = blocks * tile.load;
    cost.shared = blocks * tile.shared;
    cost.products = blocks * tile.products;
    cost.issue = blocks / work->resident * most(tile.chain, tile.prepare);
    cost.wait = blocks / work->resident * tile.wait;
    cost.store = work->rounds * tile.end / machine->hz;
    cost.seconds = tconv_cuda_seconds_by_tile(machine, work, &tile);
    cost.saved = 0;
    return cost;
}
