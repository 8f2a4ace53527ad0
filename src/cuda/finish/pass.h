/* Passes over tensors: widening what is read (pass.cu), and making outputs of sums (posts.cu). pass.c launches them. */
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

/* A walk from sums to outputs. */
typedef struct posts_walk {
    walk sums;
    bool holds;                        /* the sum has a term more, what the output holds */
    const void *addend;                /* the layer's, or NULL; its lines are those of the outputs */
    int64_t addend_image, addend_line; /* elements from one to the next */
    post_steps steps;
} posts_walk;

/* Return the kernels of a dtype: that widens an f16 or bf16, and that makes outputs. vectors: VECTOR elements at once,
 * which f64 never has where outputs are made. exact: of f32, with the activation functions of strict f32. */
const void *tconv_finish_widen_kernel(tconv_dtype dtype, bool vectors);
const void *tconv_finish_posts_kernel(tconv_dtype dtype, bool exact, bool vectors);

/* Launch on the current device. Elements of a 16-bit dtype are written in f32, which holds them exactly. */
tconv_status tconv_finish_widen(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue);

/* Sums, in f32 or of f64 in f64, the bias and, where that is so, elements that are held are taken through the steps and
 * rounded once. */
tconv_status tconv_finish_outputs(tconv_dtype dtype, bool exact, const posts_walk *outputs, void *stream,
                                  tconv_issue *issue);

TCONV_ROOM_END

#endif
