/*
 * What the rearranging kernels are told (rearrange.cu).
 *
 * An axis of the gradient of dst is planes (planes.h), one of each axis together a plane of the image. The channels of
 * the derived layer's src are those of a channel group, of which each plane of the image has the group's output channels:
 * (group, row plane, column plane, output channel).
 */
#ifndef TCONV_CUDA_DGRAD_PARAMETERS_H
#define TCONV_CUDA_DGRAD_PARAMETERS_H

#include "../../core/impl.h"
#include "../numeric/divisor.h"
#include "planes.h"

namespace tconv::dgrad
{

/* Space-to-depth of the gradient of dst. */
struct depth_shape {
    const void *from;
    void *to;
    tconv_strides from_strides;                     /* elements */
    int64_t to_image, to_channel, to_row, to_pixel; /* elements from one to the next */
    tconv_cuda_planes rows, columns;                /* of a chunk: positions are its own, pad less what lies before */
    int images;
    int group_out;    /* output channels of a group */
    int row_elements; /* of a row of planes, those past the last position included */
    fast_divisor groups, channels, group_channels, row_planes, row_positions, column_positions;
};

/* The weights of the derived layer. */
struct weight_shape {
    const void *from;
    void *to;
    tconv_weight_strides from_strides, to_strides;
    tconv_cuda_planes rows, columns;
    /* Neighbours in the derived weights are of one output channel and neighbouring input channels of the layer; else of
     * one input channel and neighbouring output channels. */
    bool inputs_inside;
    int group_in, group_out;
    int64_t lines; /* of such neighbours */
    fast_divisor groups, row_taps, column_taps, row_planes, column_planes;
};

/* Partial sums, of each part of the channels that are summed, to be added. */
struct sum_shape {
    const float *from;
    void *to;
    tconv_strides from_strides, to_strides; /* elements */
    int parts;
    int count; /* of sums */
    fast_divisor channels, rows, columns;
};

/* Launch on the current device. overlaps: the weights may be derived beside the planes, which are made by the launch before
 * (dependent_launch.cuh); the end of the second is the end of both. */
tconv_status split_planes(const tconv_problem *problem, const depth_shape *shape, void *stream, tconv_issue *issue);
tconv_status derive_weights(const tconv_problem *problem, const weight_shape *shape, bool overlaps, void *stream,
                            tconv_issue *issue);
tconv_status add_parts(const tconv_problem *problem, const sum_shape *shape, bool overlaps, void *stream,
                       tconv_issue *issue);

} // namespace tconv::dgrad

#endif
