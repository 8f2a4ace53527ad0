/* Describes the planes of an axis: plain C, of every build, so that tests see it. */
#include "planes.h"

#include "../../core/checked.h"
#include "../../core/views.h"

/* No sum overflows: the validator keeps what an axis spans below 2^61, and the stride below 2^62. */
tconv_cuda_planes tconv_cuda_planes_of(const tconv_axis *axis, bool per_tap)
{
    const int64_t common = tconv_gcd(axis->stride, axis->dilation);
    tconv_cuda_planes planes;
    const tconv_axis reaching = tconv_reaching_kernel(axis, &planes.first_kernel);
    planes.kernel = reaching.kernel;
    planes.kernel_step = axis->stride / common;
    planes.shift_step = axis->dilation / common;
    planes.taps = per_tap ? 1 : tconv_ceil_div(planes.kernel, planes.kernel_step);
    planes.halo = (planes.taps - 1) * planes.shift_step;
    planes.positions = axis->in + planes.halo;
    planes.count = per_tap ? planes.kernel : tconv_min(planes.kernel, planes.kernel_step);
    planes.stride = axis->stride;
    planes.dilation = axis->dilation;
    planes.pad = reaching.pad;
    planes.out = axis->out;
    return planes;
}
