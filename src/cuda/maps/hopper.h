/* What the implementations for Hopper (compute capability 9.0 with code for sm_90a) share: which layers may be theirs. */
#ifndef TCONV_CUDA_MAPS_HOPPER_H
#define TCONV_CUDA_MAPS_HOPPER_H

#include "../../core/impl.h"

namespace tconv
{

/* Extents of a layer, and what a kernel computes of them in 32 bits, are below this. */
constexpr int64_t HOPPER_MAX_EXTENT = (int64_t)1 << 28;

/* Why no kernel of Hopper's takes the layer; NULL where one may. */
const char *why_not_hopper(const tconv_layer *layer);

/* Of a launch and whatever else takes as long for every tile: part of what the implementations estimate to take. */
constexpr double HOPPER_LAUNCH_CYCLES = 6000;

} // namespace tconv

#endif
