/* The kernels for f32 rounded to TF32: up to 128 accumulators a thread. */
#include "kernel.cuh"

namespace tconv::mma
{

const kernel_config tf32_configs[] = {
    config_of<TF32, 1, 4, 8>, config_of<TF32, 1, 4, 4>, config_of<TF32, 1, 2, 8>, config_of<TF32, 1, 1, 8>,
    config_of<TF32, 2, 2, 8>, config_of<TF32, 2, 2, 4>, config_of<TF32, 2, 1, 8>, config_of<TF32, 3, 1, 8>,
    config_of<TF32, 3, 1, 4>, config_of<TF32, 4, 1, 8>, config_of<TF32, 4, 1, 4>, config_of<TF32, 5, 1, 4>,
    config_of<TF32, 6, 1, 2>, config_of<TF32, 7, 1, 2>, config_of<TF32, 8, 1, 4>, {}};

} // namespace tconv::mma
