/*
 * How the sums of a gradient of weights lie in the workspace before they are added up. A kernel that computes them cuts
 * K, whose terms are pixels, into split-K slices, and writes the partial sums of each slice to a place of its own in
 * the workspace. There they lie tile by tile; a tile is a matrix of input channels (rows) by GEMM columns, and a GEMM
 * column is a tap and an output channel. Then sums.cu or row_sums.cu adds the slices, in order.
 *
 * Other rooms (general/weights, depthwise/weights) include this header and sums.h beside their own.
 */
#ifndef TCONV_CUDA_WGRAD_TILES_H
#define TCONV_CUDA_WGRAD_TILES_H

#include "../../core/problem.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

/* The order in which tiles have the taps of an axis: taps that reach the same residue of the outputs follow one another
 * (core/phases.h: they are kernel_step apart). The taps are cut into groups in this order. */
typedef struct wgrad_tap_order {
    int kernel; /* taps */
    int kernel_step;
    int group_taps; /* taps of a group; the last group may have fewer */
    int groups;
} wgrad_tap_order;

/* A tile has block_m input channels of a channel group, and block_n GEMM columns: the taps of a group of kernel rows
 * and of a group of kernel columns, and a chunk of the output channels, which run fastest. It is of one kernel plane; those of
 * the next one come behind all of it. */
typedef struct sum_tiles {
    int64_t planes;                      /* kernel planes; 1: the layer has two axes */
    int64_t groups, group_in, group_out; /* of the layer */
    wgrad_tap_order rows, columns;
    int block_m;
    int64_t block_n;
    int64_t chunk; /* output channels of a chunk, those included that are padding */
    int64_t m_tiles, chunks;
    int64_t count; /* tiles of a slice */
} sum_tiles;

/* Returns the tiles of a kernel whose tiles have the GEMM columns of all taps and all output channels of a channel
 * group, with the taps in the kernel's order, and block_m input channels. */
sum_tiles tconv_wgrad_tiles_of_all_pairs(const tconv_problem *problem, int block_m);

/* Returns the number of sums of a slice. */
static inline int64_t tconv_wgrad_slice_sums(const sum_tiles *tiles)
{
    return tiles->count * tiles->block_m * tiles->block_n;
}

TCONV_ROOM_END

#endif
