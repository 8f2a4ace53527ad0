/* The kernels for f16 in NHWC: up to 64 accumulators a thread, and as many partial sums. */
#include "kernel.cuh"

namespace tconv::mma
{

const kernel_config f16_nhwc_configs[] = {
    config_of<F16_NHWC, 1, 4, 4>, config_of<F16_NHWC, 1, 4, 2>, config_of<F16_NHWC, 1, 2, 8>,
    config_of<F16_NHWC, 1, 2, 4>, config_of<F16_NHWC, 1, 1, 8>, config_of<F16_NHWC, 2, 2, 4>,
    config_of<F16_NHWC, 2, 2, 2>, config_of<F16_NHWC, 2, 1, 8>, config_of<F16_NHWC, 2, 1, 4>,
    config_of<F16_NHWC, 3, 1, 4>, config_of<F16_NHWC, 3, 1, 2>, config_of<F16_NHWC, 4, 1, 4>,
    config_of<F16_NHWC, 4, 1, 2>, config_of<F16_NHWC, 5, 1, 2>, config_of<F16_NHWC, 6, 1, 2>,
    config_of<F16_NHWC, 7, 1, 2>, config_of<F16_NHWC, 8, 1, 2>, {}};

} // namespace tconv::mma
