/*
 * A validated layer with every derived size. Every implementation reads it, on either backend.
 *
 * All sizes were checked when the problem was made: any product of extents or strides that addresses an element of a
 * tensor fits in an int64_t, and so does its size in bytes.
 */
#ifndef TCONV_CORE_PROBLEM_H
#define TCONV_CORE_PROBLEM_H

#include <stdbool.h>

#include "phases.h"
#include "tconv/tconv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Strides of src or dst in elements. Filled for every extent, also those of 1. */
typedef struct tconv_strides {
    int64_t n, c, h, w, d;
} tconv_strides;

/* Whether every row of every channel and image begins at a multiple of this many elements. */
static inline bool tconv_rows_begin_at_multiples(const tconv_strides *of, int64_t elements)
{
    return of->n % elements == 0 && of->c % elements == 0 && of->h % elements == 0;
}

/* Strides of the weights in elements, by logical index: element w[in * i + out * o + d * kd + h * kh + w * kw], i < in_channels
 * counted over all groups, o < group_out. */
typedef struct tconv_weight_strides {
    int64_t in, out, h, w, d;
} tconv_weight_strides;

/* Of a layer without groups that stands for planes of a volume (volume.h): the channels that it sums are those of several
 * planes of src, or in the gradient of src of dst. Channel c of image i is channel c % channels of plane
 * image_step * i + first + step * (c / channels), or 0 where that is none of the planes, or c % channels is not below `held`.
 * The tensor has the planes as images, with `held` channels each. Its weights are those of channel c % channels, so many elements
 * further for each plane. The layer may be one of channel groups, which together have these channels: parts of the sums. */
typedef struct tconv_plane_taps {
    int64_t taps; /* planes of an image; 0: the tensor is as the layer says */
    int64_t channels, held, first, step, image_step, planes;
    int64_t weights; /* elements from the weights of a plane's channels to those of the next plane's */
} tconv_plane_taps;

/* Of a layer whose images are those of several volumes: image i is image i % images of volume i / images. The strides of
 * images, and plane_taps, are those of the images of one volume. */
typedef struct tconv_image_volumes {
    int64_t images; /* of a volume, which divide the batch; 0: images are as the strides say */
    /* Elements from a volume to the next: of the tensor whose channels are summed, which is src, or in the gradient of src
     * dst; and of the tensor that is written. An addend lies as the latter does. */
    int64_t read, written;
} tconv_image_volumes;

typedef struct tconv_problem {
    tconv_desc desc; /* as the caller wrote it; struct_size is this library's, math is resolved by the plan */
    int64_t batch, in_channels, out_channels, groups;
    int64_t group_in, group_out; /* channels per group */
    tconv_axis h, w; /* an axis of one input may carry another stride than the desc: see tconv_axis_canonical */
    tconv_axis d;    /* depth. Most implementations take layers of one plane alone; volume.h makes those of others */
    tconv_dtype dtype;
    tconv_layout layout;
    size_t element_size;
    tconv_strides src, dst, addend; /* of an addend where there is one (post.h) */
    tconv_weight_strides weight;
    int64_t src_extent, weight_extent, dst_extent; /* elements from the first to one past the last; 0 with batch 0 */
    int64_t addend_extent;                         /* the same, 0 where there is no addend */
    /* Of a stream (stream.h), else 0. The streamed axis has stride outputs for each input, and no padding; its tail are
     * the unfinished outputs that follow. */
    int64_t tail, carry_extent;
    tconv_dtype carry_dtype;
    bool flushes; /* a call that gives the tails, as dst, and reads neither src nor weights */
    tconv_plane_taps plane_taps;
    tconv_image_volumes volumes;
} tconv_problem;

/* The images of a volume, or all where they are as the strides say; and the volumes. */
static inline int64_t tconv_volume_images(const tconv_problem *problem)
{
    const int64_t images = problem->volumes.images;
    return images > 0 && images < problem->batch ? images : problem->batch;
}
static inline int64_t tconv_volumes(const tconv_problem *problem)
{
    return problem->batch > 0 ? problem->batch / tconv_volume_images(problem) : 1;
}

/* The images that src has in memory, where it is summed, of a volume and of all, and the channels of each. */
static inline int64_t tconv_src_planes(const tconv_problem *problem)
{
    return problem->plane_taps.taps > 0 ? problem->plane_taps.planes : tconv_volume_images(problem);
}
static inline int64_t tconv_src_images(const tconv_problem *problem)
{
    return problem->batch > 0 ? tconv_src_planes(problem) * tconv_volumes(problem) : problem->batch;
}
static inline int64_t tconv_src_channels(const tconv_problem *problem)
{
    return problem->plane_taps.taps > 0 ? problem->plane_taps.held : problem->in_channels;
}

/* Whether the layer has more than one plane, or taps along depth that matter. */
static inline bool tconv_has_depth(const tconv_problem *problem)
{
    const tconv_axis *d = &problem->d;
    return d->in != 1 || d->out != 1 || d->kernel != 1 || d->pad != 0;
}

/* The one validator: every rule of tconv.h, in the order of the fields. Writes *problem only on success. */
tconv_status tconv_problem_init(tconv_problem *problem, const tconv_desc *desc, tconv_issue *issue);

/* The same for a layer that is derived from another one: its images may lie anywhere, also inside of its channels. */
tconv_status tconv_problem_derive(tconv_problem *problem, const tconv_desc *desc, tconv_issue *issue);

/* Reads a versioned struct of the caller, whose first size_t is its size in bytes, into known, of known_size bytes that
 * hold the defaults. minimum is the size of the first published version. name is "desc", "options", "operands" or
 * "step". */
tconv_status tconv_read_versioned(void *known, size_t known_size, const void *caller, size_t minimum, const char *name,
                                  tconv_issue *issue);

/* Returns the bytes of one element; 0 for a value that is no dtype. */
size_t tconv_dtype_size(tconv_dtype dtype);

/* Bytes that are enough for the text of tconv_problem_format, with every number at its longest. */
#define TCONV_PROBLEM_TEXT_SIZE 2048

/* Writes the layer as arguments of `tconv bench`, without backend or threads, for instance
 *     --problem "n=16 ci=32 h=128 w=256 co=64 k=3x5 s=2x3 p=1x2x1x2 op=0x0 d=2x1 g=4" --dtype f32 --layout nchw
 *     --weight-layout iohw --math strict --op forward
 * A layer with depth has z=, the number of planes, and lists of three numbers, depth first: z=16 h=32 w=64 k=3x5x7; p has
 * six: front, top, left, back, bottom, right. Strides that are not dense add ss=NxCxHxW and ds=NxCxHxW; bias adds b=1, accumulate acc=1, a stream st=1 or st=2 and,
 * with a carry of the layer's own 16 bits, cd=2 or cd=3, post-ops post=... (post.h). Returns the length as snprintf. */
int tconv_problem_format(const tconv_problem *problem, bool has_bias, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
