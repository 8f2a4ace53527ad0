/* The implementations for Hopper (compute capability 9.0 with code for sm_90a) share the limits of the layers they
 * take. */
#ifndef TCONV_CUDA_MAPS_HOPPER_H
#define TCONV_CUDA_MAPS_HOPPER_H

#include "../../core/impl.h"

namespace tconv
{

/* Extents of a layer, and the numbers that a kernel computes from them in 32 bits, are below this. */
constexpr int64_t HOPPER_MAX_EXTENT = (int64_t)1 << 28;

/* The reason why no kernel of Hopper's takes the layer; NULL where one may. */
const char *why_not_hopper(const tconv_layer *layer);

} // namespace tconv

#endif
