/*
 * Copies of src and of the gradient of dst by channels (NHWC) in the workspace, part after part, of vectors of channels, where
 * tensors of 16 bits lie by planes (NCHW), and where channels are neighbours but no vectors. A part is rows of inputs of some images, and the rows of outputs that their
 * taps reach; rows that do not exist are zeros.
 */
#ifndef TCONV_CUDA_WGRAD_COPIES_H
#define TCONV_CUDA_WGRAD_COPIES_H

#include "../../core/impl.h"

namespace tconv::wgrad
{

constexpr int64_t COPY_ALIGNMENT = 256; /* bytes */

struct copies {
    int64_t images, rows; /* of a part, of inputs; 0: there are none */
    int64_t out_rows;     /* of outputs */
    int64_t image_parts, row_parts;
    int64_t src_pixel, dst_pixel; /* elements from a pixel to the next */
    int64_t src_bytes, dst_bytes; /* multiples of COPY_ALIGNMENT */
};

inline int64_t parts_of(const copies &of)
{
    return of.image_parts * of.row_parts;
}

inline int64_t copied_bytes(const copies &of)
{
    return of.src_bytes + of.dst_bytes;
}

/* Images of a part that exist. */
int64_t images_of_part(const tconv_problem *problem, const copies &of, int64_t part);

/* Whether there are copies of a layer. */
bool can_copy(const tconv_problem *problem);

/* Cuts a layer into parts whose copies take at most so many bytes; no images where it cannot be. */
copies cut_copies(const tconv_problem *problem, int64_t most_bytes);

/* The layer of a part as its copies lie, with channels that fill vectors where there is one group. */
tconv_problem problem_of_part(const tconv_problem *problem, const copies &of);

/* Launches the kernels that make the copies of a part, one behind the other. */
tconv_status make_copies(const tconv_layer *layer, const copies &of, int64_t part, const void *src,
                         const void *diff_dst, void *to, void *stream, tconv_issue *issue);

} // namespace tconv::wgrad

#endif
