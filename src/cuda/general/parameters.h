/*
 * The host side of the general implementation (general.cu) and its kernels share this: what a kernel is told, and which
 * kernels there are.
 *
 * All kernels take the same parameters by value. Tiles are numbered from 0 and a block takes every gridDim.x-th, so
 * that no number of anything meets a limit of the grid.
 */
#ifndef TCONV_CUDA_GENERAL_PARAMETERS_H
#define TCONV_CUDA_GENERAL_PARAMETERS_H

#include "../../core/impl.h"
#include "fill.h"

namespace tconv::general
{

constexpr int SRC_RUN = 4; /* input channels that a direct kernel reads at once: 16 bytes of f32 */

/* One axis on the device; the table of phases is in the packed buffer. Names are those of core/phases.h. */
struct device_axis {
    const tconv_phase *phases;
    int64_t count;       /* of phases */
    int64_t max_outputs; /* the most outputs of a phase */
    int64_t in, out;
    int64_t stride, kernel_step, shift_step;
};

/* phases: in device memory, as pack_phases wrote them, or NULL. */
device_axis axis_of(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phases);

struct parameters {
    const void *src;
    const void *weights; /* packed */
    const void *bias;    /* or NULL */
    void *dst;
    device_axis rows, columns;
    tconv_strides src_strides, dst_strides;
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
};

/* A kernel of one shape. A tile is `channels` output channels of one group by `pixels` outputs of one phase; with
 * channel lanes, as many times the channels and as many times fewer pixels. */
struct kernel_choice {
    void (*wide)(parameters);   /* for any layer */
    void (*narrow)(parameters); /* for layers whose indices all fit in 32 bits */
    int channels, pixels, threads;
    int64_t shared_bytes; /* dynamic shared memory that either takes */
};

/* Kernels that are an implicit GEMM through shared memory, for many channels: the shapes for dtype, most channels
 * first. */
constexpr int GEMM_SHAPES = 3;
const kernel_choice *gemm_kernels(tconv_dtype dtype);

/* Kernels that read global memory alone, for few channels per group: the shapes for dtype, most channels first. */
constexpr int DIRECT_SHAPES = 3;
const kernel_choice *direct_kernels(tconv_dtype dtype);

} // namespace tconv::general

#endif
