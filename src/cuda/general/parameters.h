/*
 * The host side of the general implementation (general.c) and its kernels share this: what a kernel is told, and which
 * kernels there are.
 *
 * All kernels take the same parameters by value. Tiles are numbered from 0 and a block takes every gridDim.x-th, so
 * that no number of anything meets a limit of the grid.
 */
#ifndef TCONV_CUDA_GENERAL_PARAMETERS_H
#define TCONV_CUDA_GENERAL_PARAMETERS_H

#include "../../core/impl.h"
#include "../epilogue/layer_posts.h"
#include "../room.h"
#include "fill.h"

TCONV_ROOM_BEGIN(tconv::general)

enum {
    SRC_RUN = 4, /* input channels that a direct kernel reads at once: 16 bytes of f32 */
    SHAPES = 3   /* of each family of kernels */
};

/* One axis on the device; the table of phases is in the packed buffer. Names are those of core/phases.h. */
typedef struct device_axis {
    const tconv_phase *phases;
    int64_t count;       /* of phases */
    int64_t max_outputs; /* the most outputs of a phase */
    int64_t in, out;
    int64_t stride, kernel_step, shift_step;
} device_axis;

/* phases: in device memory, as tconv_general_pack_phases wrote them, or NULL. */
device_axis tconv_general_axis(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phases);

typedef struct parameters {
    const void *src;
    const void *weights; /* packed */
    const void *bias;    /* or NULL */
    void *dst;
    device_axis rows, columns;
    tconv_strides src_strides, dst_strides;
    layer_posts posts;
    tconv_layout layout;
    int64_t batch, groups, group_in, group_out;
    int64_t kernel_columns;   /* the packed weights are [kernel row][kernel column][ci][group][packed_out] */
    int64_t packed_out;       /* channels of a group, rounded up to the kernel's tile */
    int64_t weight_pitch;     /* packed weights from an input channel to the next */
    int64_t weight_tap_pitch; /* packed weights from a kernel position to the next */
    int64_t segment;          /* terms that are summed from zero before they join the total */
    int64_t channel_tiles;    /* over all groups */
    int64_t tiles;            /* of all phases together */
    int channel_lanes_log2;   /* direct kernels: neighbouring threads on neighbouring channel blocks */
    bool src_in_runs; /* direct kernels: SRC_RUN input channels are neighbours in memory, aligned where src is */
} parameters;

/* The shape of a kernel. A tile is `channels` output channels of one group by `pixels` outputs of one phase; with
 * channel lanes, as many times the channels and as many times fewer pixels. */
typedef struct kernel_shape {
    int channels, pixels, threads;
    int64_t shared_bytes; /* dynamic shared memory */
} kernel_shape;

/* Returns a shape of the kernels that are an implicit GEMM through shared memory, for many channels; most channels
 * first. Three blocks of the largest have room on a multiprocessor from compute capability 9.0 on, two on 8.0. */
TCONV_ROOM_CONSTANT kernel_shape gemm_shape(bool is_f64, int number)
{
    const kernel_shape shapes[][SHAPES] = {{{64, 128, 128, 64816}, {32, 128, 128, 38192}, {16, 128, 128, 24880}},
                                           {{64, 64, 128, 52248}, {32, 64, 128, 31768}, {16, 64, 128, 21272}}};
    return shapes[is_f64][number];
}

/* Returns a shape of the kernels that read global memory alone, for few channels per group; most channels first. */
TCONV_ROOM_CONSTANT kernel_shape direct_shape(bool is_f64, int number)
{
    const kernel_shape shapes[][SHAPES] = {{{8, 512, 256, 0}, {4, 1024, 256, 0}, {1, 1024, 256, 0}},
                                           {{8, 256, 256, 0}, {4, 512, 256, 0}, {1, 1024, 256, 0}}};
    return shapes[is_f64][number];
}

/* Name the kernels of a shape, for layers whose indices all fit in 32 bits, or for any layer; NULL in a build without
 * CUDA. */
const void *tconv_general_gemm_kernel(tconv_dtype dtype, int number, bool is_narrow);
const void *tconv_general_direct_kernel(tconv_dtype dtype, int number, bool is_narrow);

TCONV_ROOM_END

#endif
