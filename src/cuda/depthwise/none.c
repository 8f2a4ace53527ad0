/* The kernels of cuda_depthwise in a build without CUDA: there are none. */
#include "kernels.h"

const void *tconv_depthwise_planes_kernel(tconv_dtype dtype, int columns, int taps, bool vectors, bool has_posts)
{
    (void)dtype, (void)columns, (void)taps, (void)vectors, (void)has_posts;
    return NULL;
}

const void *tconv_depthwise_pixels_kernel(tconv_dtype dtype, int taps, int elements, bool has_posts)
{
    (void)dtype, (void)taps, (void)elements, (void)has_posts;
    return NULL;
}

const void *tconv_depthwise_data_kernel(tconv_dtype dtype, tconv_layout layout, int vector)
{
    (void)dtype, (void)layout, (void)vector;
    return NULL;
}

const void *tconv_depthwise_spans_kernel(tconv_dtype dtype, int stride, int before)
{
    (void)dtype, (void)stride, (void)before;
    return NULL;
}

const void *tconv_depthwise_weights_kernel(tconv_dtype dtype, bool by_lanes)
{
    (void)dtype, (void)by_lanes;
    return NULL;
}

const void *tconv_depthwise_weight_spans_kernel(tconv_dtype dtype, int threads, int stride, int taps)
{
    (void)dtype, (void)threads, (void)stride, (void)taps;
    return NULL;
}
