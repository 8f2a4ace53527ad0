/* Copies the weights of a layer as they lie, for plans that hold what their kernels read unpacked. A kernel does it, because
 * execute queues nothing but kernels. */
#ifndef TCONV_CUDA_PACK_COPY_H
#define TCONV_CUDA_PACK_COPY_H

#include "../../core/impl.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

enum { COPY_THREADS = 256 }; /* of a thread block */

/* Returns the kernel; NULL in a build without CUDA. */
const void *tconv_copy_kernel(void);

/* Copies the weights to packed, on the layer's device. */
tconv_status tconv_copy_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                tconv_issue *issue);

TCONV_ROOM_END

#endif
