/* The layout transform of a small src from NCHW to NHWC in the workspace: the planner describes it, kernels read it. */
#ifndef TCONV_CUDA_IGEMM_TRANSPOSE_SRC_H
#define TCONV_CUDA_IGEMM_TRANSPOSE_SRC_H

#include "../../core/impl.h"
#include "../numeric/divisor.h"

TCONV_ROOM_BEGIN(tconv::igemm)

/* A layout transform of src from NCHW to NHWC. All zeros: there is none. */
typedef struct src_transpose {
    const void *src;
    void *to;
    tconv_strides from;          /* strides of src, in elements */
    int64_t volume;              /* elements from a volume to the next */
    int pixels;                  /* of all images of a volume */
    int first_row, first_column; /* of src, that the first transposed ones are: those outside are zeros */
    int rows, columns;           /* of an image of src */
    int channels;
    int pixel_vectors;       /* vectors of 16 bytes from a transposed pixel to the next */
    int channel_tiles;       /* tiles along the channels */
    int thread_blocks;       /* as many as tiles */
    bool vectors;            /* pixels follow one another in aligned vectors of 16 bytes of src */
    fast_divisor by_image;   /* pixels of an image */
    fast_divisor by_columns; /* pixels of a row */
    fast_divisor by_channel_tiles;
    fast_divisor by_volume_tiles; /* tiles along the pixels of a volume */
} src_transpose;

/* Return the elements from a pixel of the transposed src to the next, those from a volume to the next, and the bytes of all. */
int64_t tconv_igemm_transposed_pixel(const tconv_problem *problem);
int64_t tconv_igemm_transposed_volume(const tconv_problem *problem);
int64_t tconv_igemm_transposed_bytes(const tconv_problem *problem);

/* Describes the layout transform without addresses, with vectors where an aligned src allows them. */
src_transpose tconv_igemm_transpose_of(const tconv_problem *problem);

/* Transposes in a launch of its own, for an element size of 2 or 4. */
tconv_status tconv_igemm_transpose(const src_transpose *transpose, size_t element_size, void *stream,
                                   tconv_issue *issue);

TCONV_ROOM_END

#endif
