/* The kernels of cuda_wgrad by wgmma in strict f32, whose products are three of TF32 (strict_kernel.cuh). */
#ifndef TCONV_CUDA_WGRAD_STRICT_H
#define TCONV_CUDA_WGRAD_STRICT_H

#include "../gemm/shape.h"
#include "parameters.h"

namespace tconv::wgrad
{

constexpr int RAW_BARRIER_BYTES = 8 * MAX_STAGES; /* behind the others: of the boxes of src that are to be split */
constexpr int STRICT_PLANES = 2;                  /* of src in a stage: big parts, and small ones behind them */

/* Sums of STRICT_STEPS steps that are added plainly; then their total joins a compensated one in the slice. */
constexpr int STRICT_SEGMENT = 48;

constexpr int STRICT_WARPGROUP_KERNELS = 3;
extern const kernel_choice warpgroup_kernels_strict[STRICT_WARPGROUP_KERNELS];

} // namespace tconv::wgrad

#endif
