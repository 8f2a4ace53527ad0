/* The kernels of the gradient of weights by spans in f16 and bf16. */
#include "weights_spans.cuh"

namespace tconv::depthwise::weight_spans
{

template const void *find_kernel<__half>(int stride, int taps, bool vectors);
template const void *find_kernel<__nv_bfloat16>(int stride, int taps, bool vectors);

} // namespace tconv::depthwise::weight_spans
