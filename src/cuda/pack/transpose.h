/* The tiles by which src is transposed from planes (NCHW) to pixels (NHWC), see transpose.cuh. */
#ifndef TCONV_CUDA_PACK_TRANSPOSE_H
#define TCONV_CUDA_PACK_TRANSPOSE_H

#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

/* A tile has elements of 2 or 4 bytes. Words are of 4 bytes, vectors of 16. */
enum {
    TRANSPOSE_THREADS = 256,
    TRANSPOSE_PIXELS = 128,                                  /* of a tile */
    TRANSPOSE_WORDS = 32,                                    /* of a tile's pixel */
    TRANSPOSE_VECTORS = TRANSPOSE_WORDS * 4 / 16,            /* likewise */
    TRANSPOSE_BYTES = TRANSPOSE_PIXELS * TRANSPOSE_WORDS * 4 /* of shared memory */
};

TCONV_ROOM_END

#endif
