/* The kernels of the gradient of weights by spans in f32, and the choice of a kernel by its dtype. */
#include "weights_spans.cuh"

namespace tconv::depthwise
{

extern "C" const void *tconv_depthwise_weight_spans_kernel(tconv_dtype dtype, int stride, int taps, bool vectors)
{
    return dtype == TCONV_F32   ? weight_spans::find_kernel<float>(stride, taps, vectors)
           : dtype == TCONV_F16 ? weight_spans::find_kernel<__half>(stride, taps, vectors)
                                : weight_spans::find_kernel<__nv_bfloat16>(stride, taps, vectors);
}

} // namespace tconv::depthwise
