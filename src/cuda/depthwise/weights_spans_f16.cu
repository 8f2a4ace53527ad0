/* The kernels of the gradient of weights by spans in f16. */
#include "weights_spans.cuh"

namespace tconv::depthwise::weight_spans
{

template const void *find_kernel<__half>(int threads, int stride, int taps);

} // namespace tconv::depthwise::weight_spans
