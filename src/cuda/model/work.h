/*
 * What a plan does, as counts, and what that costs: the interface between the planners and the cost model.
 *
 * A kernel works off tiles; a tile is K-blocks, one after another, and an epilogue. Counts of a K-block and of a tile
 * are of one thread block. Where several thread blocks share a multiprocessor, what they use together (tensor cores,
 * shared memory, caches) takes as often as long, while each waits for its own chain of instructions beside the others.
 */
#ifndef TCONV_CUDA_MODEL_WORK_H
#define TCONV_CUDA_MODEL_WORK_H

#include <stdbool.h>

#include "../../core/impl.h"
#include "machine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tconv_cuda_work {
    /* The layer. */
    double dram_bytes;         /* src, weights and dst, each once */
    double passes, pass_bytes; /* launches before the kernel, and what they read and write */

    /* The fullest multiprocessor. */
    double rounds;   /* tiles that it works off one after another, see tconv_cuda_rounds */
    double resident; /* thread blocks that share it, at least 1 */

    /* A tile. */
    double prologue; /* K-blocks that are loaded before the first is multiplied, of kernels that do not go on from
                                    tile to tile; else 0 */
    double k_blocks;

    /* A K-block: products, and what they read. */
    double wgmma;        /* products of 64 x 8 x 32 bytes */
    double wgmma_chain;  /* the same of one warpgroup, one after another */
    double mma_sync;     /* products of 16 x 8 x 32 bytes */
    double mma_chain;    /* the same of one warp, one after another */
    double ffma;         /* multiply-adds */
    double loads;        /* loads of warps, from shared memory or the first-level cache */
    double fragments;    /* wgmma steps whose operand a warpgroup loads to registers */
    double adds;         /* additions to sums between products */
    double shared_bytes; /* that products, copies and conversions read and write */

    /* A K-block: loading. */
    double box_bytes, box_rows; /* src by TMA or cp.async */
    double weight_bytes;
    double transpose_bytes, split_bytes, conversions, convert_bytes, gather_bytes; /* see tconv_cuda_machine */
    double chain_loads;      /* loads of a warp, one after another */
    double stages;           /* buffers of src, counted in K-blocks; 0: nothing waits for them */
    double stage_k_blocks;   /* K-blocks that one buffer serves, at least 1 */
    double converted_stages; /* buffers that src is converted to from those; 0: products read those */
    double weight_stages;    /* buffers of weights, likewise */
    double weight_waits;     /* times that weights are waited for */

    /* The epilogue. */
    double stores;       /* of warps */
    double bulk_stores;  /* bulk copies */
    double store_warps;  /* that these are shared out to, at least 1 */
    double sectors;      /* 32 bytes written; as often as parts of them are written at different times */
    double part_sectors; /* of which a tile writes only a part */
    bool overlaps;       /* with the K-blocks of the next tile */
    double exposed;      /* share of the outputs that wait for a staging buffer, where stores overlap */

    /* The implementation's corrections, at most these three: what its instructions cost beside all this, in cycles. */
    double issues, issue_cycles; /* of a K-block: what one warp or warpgroup does in turn, and each one's cycles */
    double slow_issues, slow_issue_cycles; /* the same where each takes longer: in strict f32, or another kernel */
    double tile_cycles;                    /* of a tile, beside its K-blocks and its stores */
} tconv_cuda_work;

/* The share of its time that a multiprocessor is faster while others have no tile: caches and memory are theirs. */
#define TCONV_CUDA_IDLE_SHARE 0.1

/* Rounds of so many tiles on so many places that work at a time. */
static inline double tconv_cuda_rounds(double tiles, double places)
{
    const int64_t whole = (int64_t)(tiles / places);
    const double rounds = (double)whole + ((double)whole * places < tiles ? 1 : 0);
    return (1 - TCONV_CUDA_IDLE_SHARE) * rounds + TCONV_CUDA_IDLE_SHARE * tiles / places;
}

/* The costs of a tile of a work, in cycles. They are the same whatever the rounds, the resident thread blocks, the K-blocks of a tile
 * and of its prologue, and the passes. A planner that compares numbers of tiles predicts their parts once. */
typedef struct tconv_cuda_tile {
    double products, shared, convert, chain, wait; /* of a K-block, see cost.c */
    double load;                                   /* of src and weights by TMA */
    double prepare;                                /* conversions, and loads of a warp one after another */
    double loading;                                /* all of src */
    double alone, together;                        /* a K-block by itself; its part that thread blocks share */
    double loaded;                                 /* a K-block beside which nothing is loaded */
    double end, shared_end;                        /* the epilogue; its part that thread blocks share */
} tconv_cuda_tile;

tconv_cuda_tile tconv_cuda_tile_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work);

/* Returns the seconds of a work whose tile costs so much. */
double tconv_cuda_seconds_by_tile(const tconv_cuda_machine *machine, const tconv_cuda_work *work,
                                  const tconv_cuda_tile *tile);

tconv_prediction tconv_cuda_cost_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work);

/* Seconds that the cost is not below, in a few operations; stages, issues and stores' warps need not be counted yet. */
double tconv_cuda_least_seconds(const tconv_cuda_machine *machine, const tconv_cuda_work *work);

#ifdef __cplusplus
}
#endif

#endif
