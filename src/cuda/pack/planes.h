/* Copies axes of a tensor (core/volume.h): planes side by side, and kernel planes to be the weights of a layer. */
#ifndef TCONV_CUDA_PACK_PLANES_H
#define TCONV_CUDA_PACK_PLANES_H

#include "../../core/volume.h"
#include "../numeric/divisor.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

enum { PLANE_COPY_THREADS = 256 }; /* of a thread block */

/* A copy in words of as many bytes as all addresses and strides are multiples of. */
typedef struct plane_copy {
    const char *from;
    char *to;
    int64_t from_strides[TCONV_COPY_AXES], to_strides[TCONV_COPY_AXES]; /* bytes */
    int64_t plane_stride;                                               /* bytes */
    int64_t plane, step, tap, planes;                                   /* as tconv_plane_copy's */
    int words;                                                          /* all of them */
    fast_divisor extents[TCONV_COPY_AXES];                              /* the last one in words */
} plane_copy;

/* Returns the kernel that copies words of so many bytes: 1, 2, 4, 8 or 16; NULL in a build without CUDA. */
const void *tconv_plane_copy_kernel(int word);

TCONV_ROOM_END

#endif
