/*
 * Copies of src and of the gradient of dst in the workspace, in NHWC, whose pixels are vectors of channels. They are
 * made where tensors lie in NCHW, and where channels are neighbours in memory but do not fill vectors. The
 * layer is cut into chunks that are copied and multiplied one after another: some rows of the inputs of some images,
 * and the rows of outputs that their taps reach. Rows that do not exist are zeros. Src whose pixels are vectors is read where it
 * lies, where all of a chunk's rows exist.
 */
#ifndef TCONV_CUDA_WGRAD_COPIES_H
#define TCONV_CUDA_WGRAD_COPIES_H

#include "../../core/impl.h"
#include "../room.h"

enum { COPY_ALIGNMENT = 256 }; /* bytes */

/* The chunks of a layer. */
typedef struct copy_cut {
    int64_t images;   /* of a chunk; 0: there are no copies */
    int64_t rows;     /* of inputs, of a chunk */
    int64_t out_rows; /* of outputs, of a chunk */
    int64_t image_parts, row_parts;
    int64_t src_pixel, dst_pixel; /* elements from a pixel of a copy to the next */
    /* The copies of a chunk take so many bytes, multiples of COPY_ALIGNMENT. */
    int64_t src_bytes, dst_bytes;
} copy_cut;

/* Returns whether chunks have copies of src; else src is read where it lies. */
static inline bool copies_src(const copy_cut *cut)
{
    return cut->src_bytes > 0;
}

static inline int64_t chunks_of(const copy_cut *cut)
{
    return cut->image_parts * cut->row_parts;
}

static inline int64_t copied_bytes(const copy_cut *cut)
{
    return cut->src_bytes + cut->dst_bytes;
}

/* Returns how many images of a chunk exist. */
int64_t tconv_wgrad_images_of_chunk(const tconv_problem *problem, const copy_cut *cut, int64_t chunk);

/* Returns whether the tensors of a layer can be copied. */
bool tconv_wgrad_can_copy(const tconv_problem *problem);

/* Cuts a layer into chunks whose copies take at most so many bytes; no images where it cannot. has_src: src may be read where it
 * lies. */
copy_cut tconv_wgrad_cut_copies(const tconv_problem *problem, bool has_src, int64_t most_bytes);

/* Makes a layer that of a chunk as its copies lie, with channels that fill vectors where there is one channel group. */
void tconv_wgrad_take_chunk(tconv_problem *problem, const copy_cut *cut);

/* Returns the elements from src's first to the first of a chunk. */
int64_t tconv_wgrad_first_of_chunk(const tconv_problem *problem, const copy_cut *cut, int64_t chunk);

/* Launches the kernels that make the copies of a chunk at `copy`: of src, unless it is read where it lies, and behind it of the
 * gradient of dst. */
tconv_status tconv_wgrad_make_copies(const tconv_layer *layer, const copy_cut *cut, int64_t chunk, const void *src,
                                     const void *diff_dst, void *copy, void *stream, tconv_issue *issue);

#endif
