/* How much of memory a block touches where it reads a K-tile: memory moves in sectors, pieces and lines. */
#ifndef TCONV_CUDA_WGRAD_TOUCHED_H
#define TCONV_CUDA_WGRAD_TOUCHED_H

#include "plan.h"

enum {
    PIECE_BYTES = 64, /* that device memory reads at least */
    LINE_OF_L2 = 128  /* bytes, of which the second-level cache keeps as many sectors as were read */
};

/* A part of a tensor as it lies in memory: rows, each of which has runs of bytes that are neighbours. */
typedef struct memory_runs {
    double rows, runs; /* rows; runs of a row */
    double run;        /* bytes of a run */
    double span;       /* bytes from the first of a row to the last */
    int64_t apart;     /* runs begin at multiples of so many bytes */
} memory_runs;

/* Return what a block reads of src and of the gradient of dst in a K-tile. */
memory_runs tconv_wgrad_src_runs(const planned_layer *plan);
memory_runs tconv_wgrad_dst_runs(const planned_layer *plan);

/* Returns how many units of so many bytes, a power of two, the runs touch on average. */
double tconv_wgrad_touched(const memory_runs *runs, int64_t unit);

#endif
