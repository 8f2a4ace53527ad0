/* Describes the planes of an axis: plain C, of every build, so that tests see it. */
#include "planes.h"

#include "../../core/checked.h"

/* Whether the coordinates of an axis, and sums of a few, fit in 32 bits. */
static bool is_small(const tconv_axis *axis)
{
    const int64_t limit = TCONV_CUDA_PLANES_EXTENT;
    if (axis->in >= limit || axis->out >= limit || axis->pad >= limit || axis->kernel >= limit ||
        axis->dilation >= limit || axis->stride >= TCONV_CUDA_PLANES_STRIDE)
        return false;
    return (axis->in - 1) * axis->stride + axis->kernel * axis->dilation < limit;
}

bool tconv_cuda_planes_of(const tconv_axis *axis, bool per_tap, tconv_cuda_planes *planes)
{
    if (!is_small(axis))
        return false;
    /* The first element that reaches an output from the last input, and one past the last that does from the first. */
    int64_t first = tconv_max(0, tconv_ceil_div(axis->pad - (axis->in - 1) * axis->stride, axis->dilation));
    int64_t end = tconv_min(axis->kernel, (axis->out + axis->pad - 1) / axis->dilation + 1);
    if (end <= first) { /* none does, and neither does element 0: its plane is all zeros */
        first = 0;
        end = 1;
    }
    const int64_t kernel = end - first, common = tconv_gcd(axis->stride, axis->dilation);
    const int64_t kernel_step = axis->stride / common, shift_step = axis->dilation / common;
    const int64_t taps = per_tap ? 1 : tconv_ceil_div(kernel, kernel_step), plane_step = taps * kernel_step;
    planes->count = (int)(kernel / plane_step * kernel_step + tconv_min(kernel % plane_step, kernel_step));
    planes->taps = (int)taps;
    planes->halo = (int)((taps - 1) * shift_step);
    planes->positions = (int)axis->in + planes->halo;
    planes->stride = (int)axis->stride;
    planes->dilation = (int)axis->dilation;
    planes->pad = (int)(axis->pad - first * axis->dilation);
    planes->out = (int)axis->out;
    planes->first_kernel = (int)first;
    planes->kernel = (int)kernel;
    planes->kernel_step = (int)kernel_step;
    planes->shift_step = (int)shift_step;
    planes->plane_step = (int)plane_step;
    return true;
}
