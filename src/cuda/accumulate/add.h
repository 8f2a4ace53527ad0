/* Widening what is read and adding what was summed (add.cu). */
#ifndef TCONV_CUDA_ACCUMULATE_ADD_H
#define TCONV_CUDA_ACCUMULATE_ADD_H

#include "../../core/impl.h"

namespace tconv::accumulate
{

/* Elements from one tensor to another: of images, of lines of an image, of neighbours in a line. A line is a channel in
 * NCHW, a pixel in NHWC. */
struct walk {
    const void *from;
    void *to;
    const void *bias; /* of each channel, or NULL; of adding alone */
    int64_t images, lines, elements;
    int64_t from_image, from_line, to_image, to_line; /* elements from one to the next */
    bool lines_are_channels;
};

/* Launch on the current device. Elements of a 16-bit dtype are written in f32, which holds them exactly. */
tconv_status widen(tconv_dtype dtype, const walk *of, void *stream, tconv_issue *issue);

/* Sums, in f32 or of f64 in f64, and the bias are added to elements of a dtype, which are rounded once. */
tconv_status add(tconv_dtype dtype, const walk *of, void *stream, tconv_issue *issue);

} // namespace tconv::accumulate

#endif
