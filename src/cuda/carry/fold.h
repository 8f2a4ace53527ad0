/* The two passes of cuda_carry: the pixels of frames as rows of a matrix, before the products; and outputs and carry from
 * the products, behind them or of its own making. fold.c launches them, fold.cu has the kernels. */
#ifndef TCONV_CUDA_CARRY_FOLD_H
#define TCONV_CUDA_CARRY_FOLD_H

#include "../../core/impl.h"
#include "../epilogue/posts.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::carry)

enum { FOLD_THREADS = 256 }; /* of a thread block */

/* Elements from one of each to the next. frame: along the streamed axis; other: along the other axis. */
typedef struct frame_strides {
    int64_t image, channel, frame, other;
} frame_strides;

/* Copies the pixels of some frames of some images to rows of channels, in the type of products: pixel
 * (image * frames + frame) * others + other. Rows beyond them, up to `rows`, become zeros. */
typedef struct stage {
    const void *src; /* the first frame of the first image */
    void *pixels;
    frame_strides strides;
    int64_t images, frames, others, channels, rows;
} stage;

/* The other axis, across the stream. */
typedef struct fold_axis {
    int64_t in, out, kernel, stride, dilation, pad;
} fold_axis;

/* The threads' neighbours take neighbours in dst. */
typedef enum fold_order {
    RESIDUES_INSIDE, /* NCHW, columns streamed: channel, other, residue */
    PARTS_INSIDE,    /* the same of products of its own making: channel, other, part, residue */
    OTHERS_INSIDE,   /* NCHW, rows streamed: channel, residue, other */
    CHANNELS_INSIDE  /* NHWC: residue, other, channel */
} fold_order;

/*
 * Outputs and carry of some frames of some images. Place j of the streamed axis, counted from the first of these frames,
 *
 *     sum(j) = (j < tail ? carry[j] : 0) + products of frame i by tap (j - stride * i) / dilation, by rising i
 *
 * is an output where j < given, and else carry[j - given]. A thread has all places of one residue modulo `step`, of an
 * image, a channel and a place of the other axis. given is a multiple of step, so that nobody else reads or writes what a
 * thread reads and writes of the carry: it reads the carry in rising order, and writes carry[j - given] after it has read
 * it. Where there are many places, parts of them have threads of their own; the first has those that the carry has a
 * share in, both ways.
 */
typedef struct fold {
    const void *products; /* [pixel][channel and tap]; NULL: formed of src and weights */
    const void *src, *weights;
    const void *bias, *addend; /* addend, dst, src: of the first frame and image */
    void *dst, *carry;
    const int32_t *slots; /* these three: of the first image, NULL as in tconv_step */
    const uint8_t *reset, *active;
    int64_t first_image, slot_count; /* first_image: the slot of the first image where slots is NULL */
    int64_t images, channels, frames;
    int64_t given, tail, step;
    int64_t part, parts;              /* places of a residue that a part has; parts */
    int64_t stride, dilation, kernel; /* of the streamed axis */
    fold_axis other;
    int64_t group_in, group_out;
    int64_t channel, tap, other_tap; /* of products, or of weights, in elements from one to the next */
    int64_t pixel, group;            /* of products */
    int64_t weight_in;               /* of weights */
    frame_strides src_strides, dst_strides, addend_strides, carry_strides; /* carry: image is the slot */
    bool narrow_carry;                                                     /* of the layer's 16 bits */
    fold_order order;
    post_steps steps;
} fold;

/* Return the kernels of a dtype. exact: of f32, with the activation functions of strict f32; forms: its own products. */
const void *tconv_carry_stage_kernel(tconv_dtype dtype);
const void *tconv_carry_fold_kernel(tconv_dtype dtype, bool exact, bool forms);

/* Launch on the current device. overlaps: the fold may begin before the kernel ahead has ended. */
tconv_status tconv_carry_stage(tconv_dtype dtype, const stage *of, void *stream, tconv_issue *issue);
tconv_status tconv_carry_fold(tconv_dtype dtype, bool exact, bool overlaps, const fold *of, void *stream,
                              tconv_issue *issue);

TCONV_ROOM_END

#endif
