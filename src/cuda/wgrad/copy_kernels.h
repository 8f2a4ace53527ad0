/* The kernels that make copies (copies.cu) and their parameters. */
#ifndef TCONV_CUDA_WGRAD_COPY_KERNELS_H
#define TCONV_CUDA_WGRAD_COPY_KERNELS_H

#include "../hardware.h"
#include "../pack/transpose.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

enum {
    PAD_THREADS = 256, /* threads of a block that copies channels as they lie */

    /* A tile of the transposition has so many bytes of a pixel (pack/transpose.cuh). */
    COPY_TILE_BYTES = TRANSPOSE_VECTORS * VECTOR_BYTES
};

/* A copy takes the same rows of all images of a chunk, of a tensor in NCHW, whose pixels lie one behind another in memory. */
typedef struct transposed_copy {
    const void *from;
    void *copy;
    int64_t image, channel; /* elements from one to the next */
    int64_t first;          /* the chunk's first pixel in the plane of an image and a channel, which may not exist */
    int64_t plane;          /* pixels of that plane that exist */
    int pixels, channels, images;
    int vectors;    /* of a pixel of the copy */
    int load_bytes; /* of the pixels that one load reads: 16 or less */
    int channel_tiles, pixel_tiles, tiles;
} transposed_copy;

typedef struct transposed_copies {
    transposed_copy tensors[2];
} transposed_copies;

/* What is copied of a tensor whose channels are neighbours in memory but do not fill vectors; all in bytes. */
typedef struct padded_copy {
    const char *from;
    void *copy;
    int64_t image, pixel; /* from one to the next */
    int64_t first, plane, pixels;
    int64_t count; /* vectors of the copy */
    int vectors, channels;
} padded_copy;

/* Returns the kernel that transposes elements of 2 or 4 bytes. */
const void *tconv_wgrad_transpose_kernel(size_t element_size);

/* Returns the kernel that loads words of 16, 8, 4 or 2 bytes. */
const void *tconv_wgrad_pad_kernel(int word_bytes);

TCONV_ROOM_END

#endif
