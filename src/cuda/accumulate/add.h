/* Widening what is read, and adding what was summed to what is held: kernels (add.cu) and their launches (add.c). */
#ifndef TCONV_CUDA_ACCUMULATE_ADD_H
#define TCONV_CUDA_ACCUMULATE_ADD_H

#include "../../core/impl.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::accumulate)

enum {
    THREADS = 256, /* of a thread block */
    VECTOR = 4     /* neighbours that a thread takes at once, where they lie so; else one */
};

/* Elements from one tensor to another: of images, of lines of an image, of neighbours in a line. A line is a channel in
 * NCHW, a pixel in NHWC. */
typedef struct walk {
    const void *from;
    void *to;
    const void *bias; /* of each channel, or NULL; of adding alone */
    int64_t images, lines, elements;
    int64_t from_image, from_line, to_image, to_line; /* elements from one to the next */
    bool lines_are_channels;
} walk;

/* Return the kernels of a dtype: that widens an f16 or bf16, and that adds. vectors: VECTOR elements at once. */
const void *tconv_accumulate_widen_kernel(tconv_dtype dtype, bool vectors);
const void *tconv_accumulate_add_kernel(tconv_dtype dtype, bool vectors);

/* Launch on the current device. Elements of a 16-bit dtype are written in f32, which holds them exactly. */
tconv_status tconv_accumulate_widen(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue);

/* Sums, in f32 or of f64 in f64, and the bias are added to elements of a dtype, which are rounded once. */
tconv_status tconv_accumulate_add(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
