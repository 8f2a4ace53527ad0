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

/* Cycles of a K-block. */
typedef struct k_block {
    double products, shared, src, weights, convert, chain_loads, chain, wait;
} k_block;

static k_block k_block_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    k_block made;
    made.products = soft(work->wgmma * machine->wgmma + work->mma_sync * machine->mma_sync / 4,
                         work->ffma / 128 * machine->ffma + work->loads * machine->load);
    made.shared = work->shared_bytes / machine->shared;
    made.src = most(work->box_bytes / machine->l2, work->box_rows * machine->box_row);
    made.weights = work->weight_bytes / machine->l2_weights;
    made.convert = work->transpose_bytes / machine->transpose + work->split_bytes / machine->split +
                   work->conversions * machine->conversion + work->convert_bytes / machine->convert +
                   work->gather_bytes / machine->gather;
    made.chain_loads = work->chain_loads * machine->chain_load;
    made.chain = work->wgmma_chain * machine->wgmma + work->mma_chain * machine->mma_chain + work->adds * machine->add +
                 work->fragments * machine->fragment + work->issues * work->issue_cycles +
                 work->slow_issues * work->slow_issue_cycles;
    const double loading = made.src + made.convert + made.chain_loads;
    const double tensor = work->wgmma * machine->wgmma + work->mma_sync * machine->mma_sync / 4;
    const double multiply = most(most(tensor, made.shared), made.chain);
    const double held = work->converted_stages > 0 ? loading : loading + multiply;
    const double src_wait = work->stages > 0 ? (machine->latency + work->stage_k_blocks * held) / work->stages : 0;
    const double converted_wait = work->converted_stages > 0 ? (made.convert + multiply) / work->converted_stages : 0;
    const double weight_wait =
        work->weight_stages > 0
            ? (machine->l2_latency * work->weight_waits + made.weights + multiply) / work->weight_stages
            : 0;
    made.wait = soft(soft(src_wait, converted_wait), weight_wait);
    return made;
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

tconv_prediction tconv_cuda_cost_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    const k_block block = k_block_of(machine, work);
    const double load = block.src + block.weights, loading = block.src + block.convert + block.chain_loads;
    const double together = soft(soft(block.products, block.shared), soft(load, block.convert));
    const double alone = soft(soft(soft(block.products, block.shared), soft(load, block.convert + block.chain_loads)),
                              soft(block.chain, block.wait));

    const double write = work->sectors * machine->sector + work->part_sectors * machine->part_sector;
    const double stores = (work->stores * machine->store + work->bulk_stores * machine->bulk_store) / work->store_warps;
    const double end = soft(stores, write), shared_end = soft(work->stores * machine->load, write);
    const double first = machine->latency + loading; /* what is loaded before anything is multiplied */
    const double loaded =
        soft(soft(block.products, block.shared), block.chain); /* a K-block that nothing is loaded beside */
    const double delay = work->overlaps ? work->part_sectors * machine->part_delay : 0;
    const double main_loop =
        work->tile_cycles + delay +
        (work->prologue > 0 ? machine->latency + work->prologue * loading + (work->k_blocks - 1) * alone + loaded
                            : work->k_blocks * alone);
    const double shared_loop = work->k_blocks * together;
    const double exposed = work->exposed * EXPOSED_SHARE * end;
    const double tile = work->overlaps ? soft(main_loop, end) + exposed : main_loop + end;
    const double shared_tile = work->overlaps ? soft(shared_loop, shared_end) : shared_loop + shared_end;
    const double round = soft(tile, work->resident * shared_tile);
    const double cycles = (work->prologue > 0 ? 0 : first) + work->rounds * round + (work->overlaps ? end : 0);

    const double blocks = work->rounds * work->k_blocks * work->resident / machine->hz;
    const double all = machine->multiprocessors * machine->hz;
    tconv_prediction cost;
    cost.launch = machine->launch + work->passes * machine->pass_launch + work->pass_bytes / (machine->pass * all);
    cost.dram = work->dram_bytes / (machine->dram * all);
    cost.l2 = blocks * load;
    cost.shared = blocks * block.shared;
    cost.products = blocks * block.products;
    cost.issue = blocks / work->resident * most(block.chain, block.convert + block.chain_loads);
    cost.wait = blocks / work->resident * block.wait;
    cost.store = work->rounds * end / machine->hz;
    cost.seconds = cost.launch + soft4(cycles / machine->hz, cost.dram);
    cost.saved = 0;
    return cost;
}
