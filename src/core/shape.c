/* Output extents, strides and sizes, all with checked arithmetic. */
#include "shape.h"

#include <inttypes.h>
#include <stdio.h>

#include "checked.h"
#include "status.h"

size_t tconv_dtype_size(tconv_dtype dtype)
{
    switch (dtype) {
    case TCONV_F32: return 4;
    case TCONV_F64: return 8;
    case TCONV_F16:
    case TCONV_BF16: return 2;
    }
    return 0;
}

tconv_status tconv_axis_init(tconv_axis *axis, int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                             int64_t pad_begin, int64_t pad_end, int64_t output_padding, const char *suffix,
                             tconv_issue *issue)
{
    char field[16];
    int64_t span = 1, out;
    snprintf(field, sizeof field, "out_%s", suffix);
    if (!tconv_checked_mul_add(in - 1, stride, &span) || !tconv_checked_mul_add(dilation, kernel - 1, &span) ||
        !tconv_checked_add(span, output_padding, &span) || span > TCONV_AXIS_LIMIT)
        return tconv_fail(
            issue, TCONV_ERROR_OVERFLOW, field,
            "%s: (in_%s - 1) * stride_%s + dilation_%s * (kernel_%s - 1) + output_padding_%s + 1 must be at "
            "most 2^61 - 1",
            field, suffix, suffix, suffix, suffix, suffix);
    if (!tconv_checked_sub(span, pad_begin, &out) || !tconv_checked_sub(out, pad_end, &out) || out < 1)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field,
                          "%s = %" PRId64 " - %" PRId64 " - %" PRId64 " (padding): must be at least 1", field, span,
                          pad_begin, pad_end);
    if (in > 1 && tconv_min(kernel, stride / tconv_gcd(stride, dilation)) > TCONV_MAX_PHASES) {
        snprintf(field, sizeof field, "stride_%s", suffix);
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, field,
                          "%s = %" PRId64 ": kernel_%s or %s / gcd(%s, dilation_%s), here %" PRId64 " and %" PRId64
                          ", must be at most %d",
                          field, stride, suffix, field, field, suffix, kernel, stride / tconv_gcd(stride, dilation),
                          TCONV_MAX_PHASES);
    }
    *axis = (tconv_axis){in, out, kernel, stride, dilation, pad_begin, output_padding};
    return TCONV_SUCCESS;
}

tconv_axis tconv_axis_canonical(tconv_axis axis)
{
    if (axis.kernel == 1)
        axis.dilation = 1;
    if (axis.in == 1)
        axis.stride = axis.dilation * tconv_min(axis.kernel, TCONV_MAX_PHASES); /* below 2 * TCONV_AXIS_LIMIT */
    return axis;
}

static tconv_status too_large(const char *name, tconv_issue *issue)
{
    return tconv_fail(issue, TCONV_ERROR_OVERFLOW, name, "%s: its size in bytes must be at most 2^63 - 1", name);
}

/* A tensor whose strides are resolved: the caller's, by their index in the desc's array, planes last. */
enum { N, C, H, W, D, AXES };
struct given {
    int64_t strides[AXES];
    const tconv_shape *shape;
};

/* Resolves one stride of a tensor. It is dense where the extent is 1 or none is given. Any other stride must equal dense
 * where exact is true, and be at least least where exact is false. */
static tconv_status resolve_stride(int64_t *stride, const struct given *given, int index, int64_t extent, int64_t dense,
                                   int64_t least, bool exact, tconv_issue *issue)
{
    const int64_t asked = given->strides[index];
    char field[24];
    *stride = dense;
    if (extent <= 1 || asked == 0 || (exact ? asked == dense : asked >= least)) {
        *stride = extent <= 1 || asked == 0 ? dense : asked;
        return TCONV_SUCCESS;
    }
    if (index == D)
        snprintf(field, sizeof field, "%s_stride_d", given->shape->name);
    else
        snprintf(field, sizeof field, "%s_strides[%d]", given->shape->name, index);
    return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field, "%s = %" PRId64 ": must be %s%" PRId64 "%s", field,
                      asked, exact ? "" : "at least ", exact ? dense : least,
                      !exact       ? ", or 0 for dense"
                      : index == D ? ", planes are dense"
                                   : ", rows are dense");
}

static tconv_status nchw_strides(tconv_strides *strides, const struct given *given, tconv_issue *issue)
{
    const tconv_shape *shape = given->shape;
    tconv_status status;
    int64_t plane, volume, image, least;
    if ((status = resolve_stride(&strides->w, given, W, shape->w, 1, 1, true, issue)) ||
        (status = resolve_stride(&strides->h, given, H, shape->h, shape->w, 0, true, issue)))
        return status;
    if (!tconv_checked_mul(shape->h, shape->w, &plane) || !tconv_checked_mul(shape->d, plane, &volume))
        return too_large(shape->name, issue);
    if ((status = resolve_stride(&strides->d, given, D, shape->d, plane, 0, true, issue)) ||
        (status = resolve_stride(&strides->c, given, C, shape->c, volume, volume, false, issue)))
        return status;
    least = volume;
    if (!tconv_checked_mul_add(shape->c - 1, strides->c, &least) || !tconv_checked_mul(shape->c, strides->c, &image))
        return too_large(shape->name, issue);
    return resolve_stride(&strides->n, given, N, shape->n, image, shape->images_anywhere ? 1 : least, false, issue);
}

static tconv_status nhwc_strides(tconv_strides *strides, const struct given *given, tconv_issue *issue)
{
    const tconv_shape *shape = given->shape;
    tconv_status status;
    int64_t plane, pixels, row, least, image;
    /* Where pixels lie in a column (w = 1), or one in each plane, the stride of rows or planes is the distance between
     * neighbouring pixels, and the caller's w says nothing. */
    const int along = shape->w > 1 ? W : shape->h > 1 ? H : shape->d > 1 ? D : W;
    const int64_t extent = along == W ? shape->w : along == H ? shape->h : shape->d;
    if ((status = resolve_stride(&strides->c, given, C, shape->c, 1, 1, true, issue)) ||
        (status = resolve_stride(&strides->w, given, along, extent, shape->c, shape->c, false, issue)))
        return status;
    if (!tconv_checked_mul(shape->h, shape->w, &pixels) || !tconv_checked_mul(shape->d, pixels, &pixels) ||
        !tconv_checked_mul(shape->w, strides->w, &row) || !tconv_checked_mul(shape->h, row, &plane))
        return too_large(shape->name, issue);
    if ((status = resolve_stride(&strides->h, given, H, shape->h, row, 0, true, issue)) ||
        (status = resolve_stride(&strides->d, given, D, shape->d, plane, 0, true, issue)))
        return status;
    least = shape->c;
    if (!tconv_checked_mul_add(pixels - 1, strides->w, &least) || !tconv_checked_mul(pixels, strides->w, &image))
        return too_large(shape->name, issue);
    return resolve_stride(&strides->n, given, N, shape->n, image, shape->images_anywhere ? 1 : least, false, issue);
}

tconv_status tconv_strides_init(tconv_strides *strides, int64_t *extent, const int64_t given[4], int64_t given_d,
                                const tconv_shape *shape, tconv_layout layout, size_t element_size, tconv_issue *issue)
{
    const struct given all = {{given[0], given[1], given[2], given[3], given_d}, shape};
    tconv_status status =
        layout == TCONV_NCHW ? nchw_strides(strides, &all, issue) : nhwc_strides(strides, &all, issue);
    int64_t last = 0, bytes;
    if (status != TCONV_SUCCESS)
        return status;
    *extent = 0;
    if (shape->n == 0)
        return TCONV_SUCCESS;
    if (!tconv_checked_mul_add(shape->n - 1, strides->n, &last) ||
        !tconv_checked_mul_add(shape->c - 1, strides->c, &last) ||
        !tconv_checked_mul_add(shape->d - 1, strides->d, &last) ||
        !tconv_checked_mul_add(shape->h - 1, strides->h, &last) ||
        !tconv_checked_mul_add(shape->w - 1, strides->w, &last) || !tconv_checked_add(last, 1, extent) ||
        !tconv_checked_mul(*extent, (int64_t)element_size, &bytes))
        return too_large(shape->name, issue);
    return TCONV_SUCCESS;
}

tconv_status tconv_weight_strides_init(tconv_weight_strides *strides, int64_t *extent, const tconv_problem *problem,
                                       tconv_weight_layout layout, tconv_issue *issue)
{
    const int64_t kernel_h = problem->h.kernel, kernel_w = problem->w.kernel, kernel_d = problem->d.kernel;
    int64_t plane, kernel, per_input, bytes;
    if (!tconv_checked_mul(kernel_h, kernel_w, &plane) || !tconv_checked_mul(kernel_d, plane, &kernel) ||
        !tconv_checked_mul(kernel, problem->group_out, &per_input) ||
        !tconv_checked_mul(per_input, problem->in_channels, extent) ||
        !tconv_checked_mul(*extent, (int64_t)problem->element_size, &bytes))
        return too_large("weights", issue);
    switch (layout) {
    case TCONV_WEIGHT_IOHW: *strides = (tconv_weight_strides){per_input, kernel, kernel_w, 1, plane}; break;
    case TCONV_WEIGHT_IHWO:
        *strides = (tconv_weight_strides){per_input, 1, kernel_w * problem->group_out, problem->group_out,
                                          plane * problem->group_out};
        break;
    case TCONV_WEIGHT_HWOI: {
        const int64_t tap = problem->group_out * problem->in_channels;
        *strides = (tconv_weight_strides){1, problem->in_channels, kernel_w * tap, tap, plane * tap};
        break;
    }
    }
    return TCONV_SUCCESS;
}
