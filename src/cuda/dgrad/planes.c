/* Describes the planes of an axis: plain C, of every build, so that tests see it. */
#include "planes.h"

#include "../../core/checked.h"

/* No sum overflows: the validator keeps what an axis spans below 2^61, and the stride below 2^62. */
tconv_cuda_planes tconv_cuda_planes_of(const tconv_axis *axis, bool per_tap)
{
    /* The first element that reaches an output from the last input, and one past the last that does from the first. */
    int64_t first = tconv_max(0, tconv_ceil_div(axis->pad - (axis->in - 1) * axis->stride, axis->dilation));
    int64_t end = tconv_min(axis->kernel, (axis->out + axis->pad - 1) / axis->dilation + 1);
    if (end <= first) { /* none does, and neither does element 0: its plane is all zeros */
        first = 0;
        end = 1;
    }
    const int64_t common = tconv_gcd(axis->stride, axis->dilation);
    tconv_cuda_planes planes;
    planes.first_kernel = first;
    planes.kernel = end - first;
    planes.kernel_step = axis->stride / common;
    planes.shift_step = axis->dilation / common;
    planes.taps = per_tap ? 1 : tconv_ceil_div(planes.kernel, planes.kernel_step);
    planes.halo = (planes.taps - 1) * planes.shift_step;
    planes.positions = axis->in + planes.halo;
    planes.count = per_tap ? planes.kernel : tconv_min(planes.kernel, planes.kernel_step);
    planes.stride = axis->stride;
    planes.dilation = axis->dilation;
    planes.pad = axis->pad - first * axis->dilation;
    planes.out = axis->out;
    return planes;
}
