/* The implementations for Hopper (compute capability 9.0 with code for sm_90a) share the limits of the layers they
 * take. */
#ifndef TCONV_CUDA_MAPS_HOPPER_H
#define TCONV_CUDA_MAPS_HOPPER_H

#include "../../core/impl.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

/* Extents of a layer, and the numbers that a kernel computes from them in 32 bits, are below this. */
enum { HOPPER_MAX_EXTENT = 1 << 28 };

/* The reason why no kernel of Hopper's takes the layer; NULL where one may. */
const char *tconv_cuda_why_not_hopper(const tconv_layer *layer);

/* Returns whether each pixel of src is read at its own position alone, and every output has its tap. */
bool tconv_cuda_is_flat(const tconv_layer *layer);

TCONV_ROOM_END

#endif
