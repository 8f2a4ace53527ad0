/* Passes over tensors: widening what is read, adding sums to what is held (pass.cu), and taking sums through post-ops
 * (posts.cu). pass.c launches them. */
#ifndef TCONV_CUDA_FINISH_PASS_H
#define TCONV_CUDA_FINISH_PASS_H

#include "../../core/impl.h"
#include "../epilogue/posts.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::finish)

enum {
    THREADS = 256, /* of a thread block */
    VECTOR = 4     /* neighbours that a thread takes at once, where they lie so; else one */
};

/* Elements from one tensor to another: of images, of lines of an image, of neighbours in a line. A line is a channel in
 * NCHW, a pixel in NHWC. */
typedef struct walk {
    const void *from;
    void *to;
    const void *bias; /* of each channel, or NULL; where an output is made */
    int64_t images, lines, elements;
    int64_t from_image, from_line, to_image, to_line; /* elements from one to the next */
    bool lines_are_channels;
} walk;

/* A walk from sums to outputs with post-ops. */
typedef struct posts_walk {
    walk sums;
    bool holds;                        /* the sum has a term more, what the output holds */
    const void *addend;                /* the layer's, or NULL; its lines are those of the outputs */
    int64_t addend_image, addend_line; /* elements from one to the next */
    post_steps steps;
} posts_walk;

/* Return the kernels of a dtype: that widens an f16 or bf16, that adds, and that runs post-ops. vectors: VECTOR elements
 * at once, which f64 with post-ops never takes. */
const void *tconv_finish_widen_kernel(tconv_dtype dtype, bool vectors);
const void *tconv_finish_add_kernel(tconv_dtype dtype, bool vectors);
const void *tconv_finish_posts_kernel(tconv_dtype dtype, bool vectors);

/* Launch on the current device. Elements of a 16-bit dtype are written in f32, which holds them exactly. */
tconv_status tconv_finish_widen(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue);

/* Sums, in f32 or of f64 in f64, and the bias are added to elements of a dtype, which are rounded once. */
tconv_status tconv_finish_add(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue);

/* Sums, the bias and, where that is so, elements that are held are taken through the steps and rounded once. */
tconv_status tconv_finish_posts(tconv_dtype dtype, const posts_walk *outputs, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
