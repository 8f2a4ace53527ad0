/* The kernels of the gradient of weights by spans in f32, and the choice of a kernel by its dtype. */
#include "weights_spans.cuh"

namespace tconv::depthwise
{

extern "C" const void *tconv_depthwise_weight_spans_kernel(tconv_dtype dtype, int threads, int stride, int taps)
{
    return dtype == TCONV_F32   ? weight_spans::find_kernel<float>(threads, stride, taps)
           : dtype == TCONV_F16 ? weight_spans::find_kernel<__half>(threads, stride, taps)
                                : weight_spans::find_kernel<__nv_bfloat16>(threads, stride, taps);
}

} // namespace tconv::depthwise
