/* The gradient of the bias in the order in which producers sum it (slot_bias.cuh), by a kernel of its own. A plan whose blocks sum the bias so gives the same bits at any address, and whether its caller asks for the weights'
 * gradient or not. */
#ifndef TCONV_CUDA_WGRAD_SLOT_PASS_H
#define TCONV_CUDA_WGRAD_SLOT_PASS_H

#include "parameters.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

/* Returns the kernel for a plan of load mode LINES, for f32, f16 or bf16, or CHANNELS, for f32. It takes the parameters of the plan,
 * and has WARPGROUP_PRODUCERS threads. */
const void *tconv_wgrad_slot_kernel(tconv_dtype dtype, load_mode load);

TCONV_ROOM_END

#endif
