/*
 * The machines that the cost model knows. One number to a line, with where it is from:
 *
 *     measured   on an H200 by a program of its own: docs/performance-log.md and docs/log
 *     fitted     to the times of bench/results/h200_implementations.csv.gz and of more tiles by regret and error,
 *                docs/log/2026-11-23-one-cost.md, near what was measured where something was
 *     public     the vendor's data sheets
 *
 * Only the H200 is measured. What instructions take is taken to be the same elsewhere, in cycles.
 */
#include <stddef.h>
#include <string.h>

#include "../cuda_backend.h"
#include "../cuda_target.h"
#include "machine.h"

/* What warps and tensor cores take, alike on all machines until one of them is measured. */
/* clang-format off */
#define CHAINS                                                                                                         \
    .shared = 158,         /* fitted; 128 by design, but operands that are read twice are counted twice */             \
    .transpose = 9.2,      /* fitted; 11 was measured: planes to pixels by single elements, four warps */              \
    .split = 9.6,          /* fitted; 12 was measured: splitting in place, four warps */                               \
    .convert = 44,         /* fitted; 51 was measured: 40 cycles of a warp for 32 pixels of 16 bytes, four warps */    \
    .conversion = 781,     /* fitted: waits, addresses, the end of four warps */                                       \
    .gather = 4.6,         /* fitted; 2.9 was measured where nothing else waits */                                     \
    .mma_chain = 34,       /* fitted */                                                                                \
    .load = 2.6,           /* fitted */                                                                                \
    .chain_load = 203,     /* fitted */                                                                                \
    .fragment = 97,        /* fitted; 73 were estimated without a bank conflict */                                     \
    .add = 1.7,            /* fitted, and measured */                                                                  \
    .box_row = 5.2,        /* fitted; 8 was measured */                                                                \
    .store = 38,           /* fitted */                                                                                \
    .bulk_store = 28,      /* measured: however short the row */                                                       \
    .part_delay = 2,       /* fitted */                                                                                \
    .latency = 1150,       /* fitted; 1,540 was measured: a box of device memory */                                    \
    .l2_latency = 993,     /* fitted; 760 was measured: a copy of the second-level cache */                            \
    .launch = 2.9e-6,      /* fitted; the least recorded time of all is 4.5e-6 */                                      \
    .pass_launch = 0.83e-6 /* fitted: it overlaps with the launch after it */

static const tconv_cuda_machine machines[] = {
    {
        .name = "h200",
        .measured = true,
        .capability = 90,
        .multiprocessors = 132,
        .shared_bytes = 227 * 1024,
        .hz = 1.755e9,         /* measured: under load, below the boost clock of 1.98e9 */
        .dram = 18.5,          /* measured: a copy's 4.28e12 bytes a second */
        .pass = 16,            /* fitted; part of what passes move stays in the cache */
        .l2 = 43,              /* fitted; 64 by design, 20 to 40 were measured of boxes alone */
        .l2_weights = 49,      /* fitted */
        .wgmma = 3.6,          /* fitted; 4 by design: short kernels run at more than the clock under load */
        .mma_sync = 9.1,       /* fitted, with what such warps wait; 6.2 were measured of them alone */
        .ffma = 1.15,          /* measured: 51e12 of 60e12 */
        .sector = 1.31,        /* fitted; 1.8 was measured of 256-byte rows that are written alone */
        .part_sector = 1.47,   /* fitted; 9.75 was measured at both ends of rows that are written alone */
        CHAINS
    },
    {
        .name = "h100",
        .capability = 90,
        .multiprocessors = 132,
        .shared_bytes = 227 * 1024,
        .hz = 1.755e9,         /* as the H200's, with which it shares the chip */
        .dram = 12.9,          /* public: 3.35e12 bytes a second, of which the H200 reaches 89 % */
        .pass = 11.2,          /* the H200's, by the memory */
        .l2 = 43,              /* the H200's */
        .l2_weights = 49,      /* the H200's */
        .wgmma = 3.6,          /* the H200's */
        .mma_sync = 9.1,       /* the H200's */
        .ffma = 1.15,          /* the H200's */
        .sector = 1.88,        /* the H200's, by the memory */
        .part_sector = 2.11,   /* the H200's, by the memory */
        CHAINS
    },
    {
        .name = "a100",
        .capability = 80,
        .multiprocessors = 108,
        .shared_bytes = 163 * 1024,
        .hz = 1.41e9,          /* public */
        .dram = 11.9,          /* public: 2.04e12 bytes a second (80 GB), of which the H200 reaches 89 % */
        .pass = 10.3,          /* the H200's, by the memory */
        .l2 = 47,              /* public: 5,120 bytes a cycle of all */
        .l2_weights = 49,      /* the H200's */
        .wgmma = 8,            /* no such instruction; mma.sync's rate */
        .mma_sync = 8,         /* public: 312e12 f16 */
        .ffma = 1.15,          /* the H200's */
        .sector = 2.04,        /* the H200's, by the memory */
        .part_sector = 2.29,   /* the H200's, by the memory */
        CHAINS
    },
    {
        .name = "b200",
        .capability = 100,
        .multiprocessors = 148,
        .shared_bytes = 227 * 1024,
        .hz = 1.85e9,          /* public */
        .dram = 26,            /* public: 8e12 bytes a second, of which the H200 reaches 89 % */
        .pass = 22.5,          /* the H200's, by the memory */
        .l2 = 43,              /* the H200's */
        .l2_weights = 49,      /* the H200's */
        .wgmma = 4,            /* no such instruction: sm_90a's alone */
        .mma_sync = 9.1,       /* the H200's */
        .ffma = 1.15,          /* the H200's */
        .sector = 0.932,       /* the H200's, by the memory */
        .part_sector = 1.05,   /* the H200's, by the memory */
        CHAINS
    },
    {
        .name = "rtx4090",
        .capability = 89,
        .multiprocessors = 128,
        .shared_bytes = 99 * 1024,
        .hz = 2.52e9,          /* public */
        .dram = 2.8,           /* public: 1.008e12 bytes a second, of which the H200 reaches 89 % */
        .pass = 2.42,          /* the H200's, by the memory */
        .l2 = 16,              /* public: about 5e12 bytes a second of all */
        .l2_weights = 16,      /* the same */
        .wgmma = 32,           /* no such instruction; mma.sync's rate */
        .mma_sync = 32,        /* public: 165e12 f16 with sums in f32 */
        .ffma = 1.15,          /* the H200's */
        .sector = 8.66,        /* the H200's, by the memory */
        .part_sector = 9.71,   /* the H200's, by the memory */
        CHAINS
    },
    {
        .name = "rtx5090",
        .capability = 120,
        .multiprocessors = 170,
        .shared_bytes = 99 * 1024,
        .hz = 2.41e9,          /* public */
        .dram = 3.9,           /* public: 1.79e12 bytes a second, of which the H200 reaches 89 % */
        .pass = 3.37,          /* the H200's, by the memory */
        .l2 = 16,              /* the RTX 4090's */
        .l2_weights = 16,      /* the same */
        .wgmma = 32,           /* no such instruction; mma.sync's rate */
        .mma_sync = 32,        /* public: 210e12 f16 with sums in f32 */
        .ffma = 1.15,          /* the H200's */
        .sector = 6.21,        /* the H200's, by the memory */
        .part_sector = 6.97,   /* the H200's, by the memory */
        CHAINS
    },
};
/* clang-format on */

const char *tconv_cuda_machine_names(void)
{
    return "h200, h100, a100, b200, rtx4090, rtx5090";
}

#define MACHINES ((int)(sizeof machines / sizeof machines[0]))

const tconv_cuda_machine *tconv_cuda_machine_at(int index)
{
    return index >= 0 && index < MACHINES ? &machines[index] : NULL;
}

const tconv_cuda_machine *tconv_cuda_machine_named(const char *name)
{
    for (int i = 0; i < MACHINES; i++)
        if (strcmp(machines[i].name, name) == 0)
            return &machines[i];
    return NULL;
}

bool tconv_cuda_resolve_named(const char *name, tconv_target *target)
{
    const tconv_cuda_machine *machine = tconv_cuda_machine_named(name);
    if (machine == NULL)
        return false;
    tconv_cuda_target_set(target, (tconv_cuda_target){.device = 0,
                                                      .compute_capability = machine->capability,
                                                      .multiprocessors = machine->multiprocessors,
                                                      .shared_bytes = machine->shared_bytes,
                                                      .has_sm90a = machine->capability == 90});
    return true;
}

static int distance(int a, int b)
{
    return a > b ? a - b : b - a;
}

tconv_cuda_machine tconv_cuda_machine_like(int capability, int multiprocessors)
{
    const tconv_cuda_machine *best = &machines[0];
    for (int i = 1; i < MACHINES; i++) {
        const tconv_cuda_machine *each = &machines[i];
        const int nearer = distance(best->capability, capability) - distance(each->capability, capability);
        if (nearer > 0 || (nearer == 0 && distance(each->multiprocessors, multiprocessors) <
                                              distance(best->multiprocessors, multiprocessors)))
            best = each;
    }
    tconv_cuda_machine machine = *best;
    machine.multiprocessors = multiprocessors;
    return machine;
}
