/*
 * What one kind of GPU does in a cycle: the machine's half of the cost model (cost.c). Nothing here is of an
 * implementation.
 *
 * Rates are of one multiprocessor while all of them work; cycles are of its clock under load. Where a rate was
 * measured says machines.c.
 */
#ifndef TCONV_CUDA_MODEL_MACHINE_H
#define TCONV_CUDA_MODEL_MACHINE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tconv_cuda_machine {
    const char *name; /* "h200" */
    bool measured;    /* whether times on such a GPU stand behind it; else it is made of public data */
    int capability;   /* major * 10 + minor */
    int multiprocessors;
    int shared_bytes; /* that a block may ask for */
    double hz;        /* cycles a second, under load */

    /* Bytes a cycle. */
    double dram;       /* device memory, reading and writing together */
    double pass;       /* the same, of a launch that only moves data */
    double l2;         /* second-level cache to shared memory, data that one multiprocessor reads */
    double l2_weights; /* the same, weights that all read at about the same time */
    double shared;     /* shared memory */
    double transpose;  /* four warps that transpose planes to pixels by single elements */
    double split;      /* four warps that split f32 for 3xTF32 where it lies */
    double convert;    /* four warps that transpose planes to pixels, 16 bytes of channels at once */
    double gather;     /* four warps that load what TMA cannot read */

    /* Cycles. */
    double wgmma;       /* of a product of 64 rows, 8 columns and 32 bytes of K, on all four tensor cores */
    double mma_sync;    /* of a product of 16 rows, 8 columns and 32 bytes of K, on one of four tensor cores */
    double mma_chain;   /* from such a product of a warp to its next, with what loads its operands */
    double ffma;        /* of 128 multiply-adds */
    double load;        /* of a load of a warp, from shared memory or the first-level cache */
    double conversion;  /* of a conversion of planes to pixels, beside its bytes: waits, addresses, barriers */
    double chain_load;  /* of a load of a warp that waits for each: of the second-level cache */
    double fragment;    /* of a wgmma step's operand that a warpgroup loads to registers */
    double add;         /* of an addition that a warpgroup makes between products */
    double box_row;     /* of a row of a TMA box, however short */
    double store;       /* of a store of a warp, from one to the next */
    double bulk_store;  /* of a bulk copy to device memory, from one to the next of a warp */
    double sector;      /* of 32 bytes written, when all multiprocessors write */
    double part_sector; /* more, of one that is written in parts */
    double part_delay;  /* by which such a one delays the loads of the next tile, where stores overlap with them */
    double latency;     /* from asking for a TMA box of device memory to its being there */
    double l2_latency;  /* the same of the second-level cache */

    /* Seconds. */
    double launch;      /* of a kernel in a CUDA graph, until it works and after it did */
    double pass_launch; /* of one more launch before it */
} tconv_cuda_machine;

/* Finds a machine by its name ("h200"); NULL where there is none of that name. */
const tconv_cuda_machine *tconv_cuda_machine_named(const char *name);

/* Returns the machine that is most like a device: of the same compute capability and number of multiprocessors;
 * else, with that number in its place, the one of the nearest capability. */
tconv_cuda_machine tconv_cuda_machine_like(int capability, int multiprocessors);

/* Returns the names of all, with commas. */
const char *tconv_cuda_machine_names(void);

/* Returns the machine of that index, in the order of the table; NULL behind the last. */
const tconv_cuda_machine *tconv_cuda_machine_at(int index);

#ifdef __cplusplus
}
#endif

#endif
