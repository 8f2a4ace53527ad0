/*
 * From DLPack: what NumPy, PyTorch, JAX, CuPy and TVM hand out as a DLTensor becomes a tconv_tensor and fills a
 * tconv_desc, without a copy.
 *
 * Header-only, on the caller's own DLPack header, 0.6 or 1.x: include that first, or have it found as <dlpack/dlpack.h>.
 * Where there is none this header declares nothing; with TCONV_DLPACK_REQUIRED defined that is an error.
 *
 *     tconv_desc_init(&desc);                                        // then stride, padding, dilation and groups
 *     tconv_dlpack_layer(&desc, src, weights, dst, &issue);          // everything else
 *     tconv_options_init(&options);
 *     tconv_dlpack_options(&options, src, weights, NULL, dst, &issue); // which device they share
 *     tconv_dlpack_tensor(src, &src_tensor, &issue);                 // weights, bias and dst alike
 *     tconv_conv_transpose(&desc, &options, &src_tensor, &weights_tensor, NULL, &dst_tensor, &issue);
 *
 * With DLPack 1.x, tconv_dlpack_versioned comes first: it gives the DLTensor of a DLManagedTensorVersioned.
 *
 * Tensors keep belonging to whoever made them: nothing here keeps a DLTensor or calls a deleter. Data that another stream
 * is still writing is the caller's to wait for.
 */
#ifndef TCONV_DLPACK_H
#define TCONV_DLPACK_H

#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif

#ifdef DLPACK_DLPACK_H_

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tconv.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define TCONV_DLPACK_PRINTF __attribute__((format(printf, 3, 4)))
#else
#define TCONV_DLPACK_PRINTF
#endif

/* Fills issue, where it is not NULL, and returns its status. */
TCONV_DLPACK_PRINTF
static inline tconv_status tconv_dlpack_fail(tconv_issue *issue, const char *field, const char *format, ...)
{
    if (issue != NULL) {
        va_list arguments;
        va_start(arguments, format);
        issue->status = TCONV_ERROR_INVALID_ARGUMENT;
        snprintf(issue->field, sizeof issue->field, "%s", field);
        vsnprintf(issue->message, sizeof issue->message, format, arguments);
        va_end(arguments);
    }
    return TCONV_ERROR_INVALID_ARGUMENT;
}

/* Finds the tconv_dtype of a DLPack type; name says whose it is in the issue. One lane only. */
static inline tconv_status tconv_dlpack_dtype(DLDataType type, const char *name, tconv_dtype *dtype, tconv_issue *issue)
{
    static const struct {
        uint8_t code, bits;
        tconv_dtype dtype;
    } known[] = {
        {kDLFloat, 32, TCONV_F32}, {kDLFloat, 64, TCONV_F64}, {kDLFloat, 16, TCONV_F16}, {kDLBfloat, 16, TCONV_BF16}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (type.code == known[i].code && type.bits == known[i].bits && type.lanes == 1) {
            *dtype = known[i].dtype;
            return TCONV_SUCCESS;
        }
    }
    return tconv_dlpack_fail(issue, name,
                             "%s.dtype = (code %d, %d bits, %d lanes): must be float32, float64, float16 or bfloat16, "
                             "one lane",
                             name, type.code, type.bits, type.lanes);
}

/* Finds where a tensor lies: *device is its CUDA device, -1 for the host. */
static inline tconv_status tconv_dlpack_location(const DLTensor *from, const char *name, tconv_location *location,
                                                 int32_t *device, tconv_issue *issue)
{
    if (from == NULL)
        return tconv_dlpack_fail(issue, name, "%s = NULL: must not be NULL", name);
    switch ((int)from->device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
        *location = TCONV_LOCATION_HOST;
        *device = -1;
        return TCONV_SUCCESS;
    case kDLCUDA:
    case kDLCUDAManaged: break;
    default:
        return tconv_dlpack_fail(issue, name, "%s.device_type = %d: must be CPU or CUDA memory", name,
                                 (int)from->device.device_type);
    }
    if (from->device.device_id < 0)
        return tconv_dlpack_fail(issue, name, "%s.device_id = %d: must be at least 0", name,
                                 (int)from->device.device_id);
    *location = TCONV_LOCATION_CUDA;
    *device = from->device.device_id;
    return TCONV_SUCCESS;
}

/*
 * Fills options->location and, for tensors on a CUDA device, options->device: a tconv_tensor does not say which, so that a
 * plan for any other device than the current one needs this. All tensors have to lie on one device; bias and dst may be NULL.
 * On an error options is untouched.
 */
static inline tconv_status tconv_dlpack_options(tconv_options *options, const DLTensor *src, const DLTensor *weights,
                                                const DLTensor *bias, const DLTensor *dst, tconv_issue *issue)
{
    static const char *const names[4] = {"src", "weights", "bias", "dst"};
    const DLTensor *const tensors[4] = {src, weights, bias, dst};
    tconv_location location = TCONV_LOCATION_AUTO, found_location = TCONV_LOCATION_AUTO;
    int32_t device = -1, found_device = -1;
    if (options == NULL)
        return tconv_dlpack_fail(issue, "options", "options = NULL: must not be NULL");
    for (int i = 0; i < 4; i++) {
        if (i >= 2 && tensors[i] == NULL)
            continue;
        if (tconv_dlpack_location(tensors[i], names[i], &found_location, &found_device, issue) != TCONV_SUCCESS)
            return TCONV_ERROR_INVALID_ARGUMENT;
        if (i == 0) {
            location = found_location;
            device = found_device;
        }
        if (found_location != location || found_device != device) {
            return tconv_dlpack_fail(issue, names[i],
                                     "%s.device = %d: must be that of src, %d (a CUDA device; -1: the host)", names[i],
                                     (int)found_device, (int)device);
        }
    }
    options->location = location;
    if (location == TCONV_LOCATION_CUDA)
        options->device = device;
    return TCONV_SUCCESS;
}

#ifdef DLPACK_FLAG_BITMASK_READ_ONLY /* DLPack 1.0 and newer */

/*
 * The DLTensor of a versioned one, for the functions here; it belongs to from. is_written is true for dst: a tensor that is
 * marked as read-only is refused there. So is a major version other than 1, whose fields nobody knows yet.
 */
static inline tconv_status tconv_dlpack_versioned(const DLManagedTensorVersioned *from, bool is_written,
                                                  const DLTensor **tensor, tconv_issue *issue)
{
    if (from == NULL || tensor == NULL)
        return tconv_dlpack_fail(issue, "tensor", "tensor = NULL: must not be NULL");
    if (from->version.major != 1) {
        return tconv_dlpack_fail(issue, "tensor", "tensor.version = %" PRIu32 ".%" PRIu32 ": must be 1.x",
                                 (uint32_t)from->version.major, (uint32_t)from->version.minor);
    }
    if (is_written && (from->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0)
        return tconv_dlpack_fail(issue, "dst", "dst.flags = %" PRIu64 ": must not be read-only", (uint64_t)from->flags);
    *tensor = &from->dl_tensor;
    return TCONV_SUCCESS;
}

#endif

/*
 * Makes *tensor the DLTensor's data, byte_offset included. Host and page-locked memory is TCONV_LOCATION_HOST, device and
 * managed memory TCONV_LOCATION_CUDA; any other device is an error. Which device is tconv_dlpack_options', shape and strides
 * are tconv_dlpack_layer's.
 */
static inline tconv_status tconv_dlpack_tensor(const DLTensor *from, tconv_tensor *tensor, tconv_issue *issue)
{
    if (from == NULL || tensor == NULL)
        return tconv_dlpack_fail(issue, "tensor", "tensor = NULL: must not be NULL");
    tconv_tensor made = {NULL, TCONV_F32, TCONV_LOCATION_AUTO};
    int32_t device = -1;
    if (tconv_dlpack_location(from, "tensor", &made.location, &device, issue) != TCONV_SUCCESS ||
        tconv_dlpack_dtype(from->dtype, "tensor", &made.dtype, issue) != TCONV_SUCCESS) {
        return TCONV_ERROR_INVALID_ARGUMENT;
    }
    if (from->byte_offset > UINTPTR_MAX - (uintptr_t)from->data) {
        return tconv_dlpack_fail(issue, "tensor", "tensor.byte_offset = %" PRIu64 ": must stay in the address space",
                                 (uint64_t)from->byte_offset);
    }
    made.data = from->data == NULL ? NULL : (void *)((uintptr_t)from->data + (uintptr_t)from->byte_offset);
    *tensor = made;
    return TCONV_SUCCESS;
}

/* The axes of a layer: images, channels, planes, rows, columns; of weights in, out / groups, kernel planes, rows, columns. */
enum { TCONV_DLPACK_D = 2, TCONV_DLPACK_AXES = 5 };

/*
 * Reads the extents and strides of a DLTensor of ndim axes, 4 or 5: with 4 it has one plane. Strides are in elements, and dense
 * where it has none (DLPack before 1.2). A stride of 0 repeats elements, which no layer takes: an error, unless the
 * extent is 1.
 */
static inline tconv_status tconv_dlpack_strides(const DLTensor *from, const char *name, int ndim, int64_t shape[5],
                                                int64_t strides[5], tconv_issue *issue)
{
    if (from == NULL || from->ndim != ndim || (ndim != 4 && ndim != 5) || from->shape == NULL) {
        return tconv_dlpack_fail(issue, name, "%s.ndim = %d: must be %s, the same for src, weights and dst", name,
                                 from == NULL ? 0 : (int)from->ndim,
                                 ndim == 4   ? "4"
                                 : ndim == 5 ? "5"
                                             : "4 or 5");
    }
    int64_t dense = 1;
    shape[TCONV_DLPACK_D] = 1;
    strides[TCONV_DLPACK_D] = 0;
    for (int axis = ndim - 1, to = TCONV_DLPACK_AXES - 1; axis >= 0; axis--, to--) {
        if (ndim == 4 && to == TCONV_DLPACK_D)
            to--;
        shape[to] = from->shape[axis];
        strides[to] = from->strides == NULL ? dense : from->strides[axis];
        if (shape[to] < 0 || (shape[to] > 0 && dense > INT64_MAX / shape[to])) {
            return tconv_dlpack_fail(issue, name, "%s.shape[%d] = %" PRId64 ": must be at least 0, the size in 63 bits",
                                     name, axis, shape[to]);
        }
        if (strides[to] <= 0 && shape[to] > 1) {
            return tconv_dlpack_fail(issue, name, "%s.strides[%d] = %" PRId64 ": must be at least 1", name, axis,
                                     strides[to]);
        }
        if (shape[to] == 1) {
            strides[to] = 0; /* of no account: the library's word for dense */
        }
        dense *= shape[to] > 0 ? shape[to] : 1;
    }
    return TCONV_SUCCESS;
}

/*
 * Whether the axes lie densely in memory in the order given, slowest first: each stride that counts is the product of the
 * extents after it. order has count axes, the innermost ones of a tensor.
 */
static inline bool tconv_dlpack_is_dense(const int64_t shape[5], const int64_t strides[5], const int *order, int count)
{
    int64_t dense = 1;
    for (int i = count - 1; i >= 0; i--) {
        if (shape[order[i]] > 1 && strides[order[i]] != dense)
            return false;
        dense *= shape[order[i]];
    }
    return true;
}

/* value >= factor * stride + rest, none of them negative, without overflow. */
static inline bool tconv_dlpack_holds(int64_t value, int64_t factor, int64_t stride, int64_t rest)
{
    return value >= rest && (factor == 0 || (value - rest) / factor >= stride);
}

/* Whether the library takes a tensor as it lies, by tconv_desc's rules for strides. */
static inline bool tconv_dlpack_lies(const int64_t shape[5], const int64_t strides[5], tconv_layout layout)
{
    static const int planes[3] = {2, 3, 4};
    const int64_t n = shape[0], c = shape[1], d = shape[2], h = shape[3], w = shape[4], pixels = d * h * w;
    const int64_t distance = w > 1 ? strides[4] : h > 1 ? strides[3] : d > 1 ? strides[2] : c; /* of pixels */
    if (layout == TCONV_NCHW) {
        return tconv_dlpack_is_dense(shape, strides, planes, 3) && (c <= 1 || strides[1] >= pixels) &&
               (n <= 1 || tconv_dlpack_holds(strides[0], c > 1 ? c - 1 : 0, strides[1], pixels));
    }
    return (c <= 1 || strides[1] == 1) && distance >= c &&
           (h <= 1 || w <= 1 || (strides[3] % w == 0 && strides[3] / w == distance)) &&
           (d <= 1 || h * w <= 1 || (strides[2] % (h * w) == 0 && strides[2] / (h * w) == distance)) &&
           (n <= 1 || tconv_dlpack_holds(strides[0], pixels > 1 ? pixels - 1 : 0, distance, c));
}

/* How well layout suits a tensor: 2 where it lies so, 1 where at least its rows (NCHW) or its channels (NHWC) are dense, so that
 * the library's issue names the stride that is wrong, else 0. */
static inline int tconv_dlpack_suits(const int64_t shape[5], const int64_t strides[5], tconv_layout layout)
{
    static const int rows[2] = {3, 4};
    if (tconv_dlpack_lies(shape, strides, layout))
        return 2;
    return layout == TCONV_NCHW ? tconv_dlpack_is_dense(shape, strides, rows, 2) : shape[1] == 1 || strides[1] == 1;
}

/* Finds how dense weights lie. */
static inline tconv_status tconv_dlpack_weight_layout(const int64_t shape[5], const int64_t strides[5],
                                                      tconv_weight_layout *layout, tconv_issue *issue)
{
    static const int orders[3][5] = {{0, 1, 2, 3, 4}, {0, 2, 3, 4, 1}, {2, 3, 4, 1, 0}}; /* IOHW, IHWO, HWOI */
    for (int i = TCONV_WEIGHT_IOHW; i <= TCONV_WEIGHT_HWOI; i++) {
        if (tconv_dlpack_is_dense(shape, strides, orders[i], TCONV_DLPACK_AXES)) {
            *layout = (tconv_weight_layout)i;
            return TCONV_SUCCESS;
        }
    }
    return tconv_dlpack_fail(issue, "weights", "weights.strides: must be dense, as IOHW, IHWO or HWOI");
}

/* Checks that a tensor has the dtype of src. */
static inline tconv_status tconv_dlpack_same_dtype(const DLTensor *from, const char *name, tconv_dtype dtype,
                                                   tconv_issue *issue)
{
    tconv_dtype found = TCONV_F32;
    if (tconv_dlpack_dtype(from->dtype, name, &found, issue) != TCONV_SUCCESS)
        return TCONV_ERROR_INVALID_ARGUMENT;
    return found == dtype ? TCONV_SUCCESS : tconv_dlpack_fail(issue, name, "%s.dtype: must be that of src", name);
}

/* Stores strides in the fields that a desc has for them: those of planes in one of its own. */
static inline void tconv_dlpack_set_strides(const int64_t strides[5], int64_t to[4], int64_t *to_d)
{
    for (int axis = 0; axis < TCONV_DLPACK_AXES; axis++)
        *(axis == TCONV_DLPACK_D ? to_d : &to[axis < TCONV_DLPACK_D ? axis : axis - 1]) = strides[axis];
}

/*
 * Fills in the layer's src and weights: all of desc but what a layer is free to choose, its layout and its dst_strides. *in and
 * *in_strides become the extents and strides of src.
 */
static inline tconv_status tconv_dlpack_inputs(tconv_desc *desc, const DLTensor *src, const DLTensor *weights,
                                               int64_t in[5], int64_t in_strides[5], tconv_issue *issue)
{
    int64_t kernel[5] = {0}, kernel_strides[5] = {0};
    const int ndim = src != NULL && (src->ndim == 4 || src->ndim == 5) ? (int)src->ndim : 0;
    if (tconv_dlpack_strides(src, "src", ndim, in, in_strides, issue) != TCONV_SUCCESS ||
        tconv_dlpack_dtype(src->dtype, "src", &desc->dtype, issue) != TCONV_SUCCESS ||
        tconv_dlpack_strides(weights, "weights", ndim, kernel, kernel_strides, issue) != TCONV_SUCCESS ||
        tconv_dlpack_same_dtype(weights, "weights", desc->dtype, issue) != TCONV_SUCCESS ||
        tconv_dlpack_weight_layout(kernel, kernel_strides, &desc->weight_layout, issue) != TCONV_SUCCESS) {
        return TCONV_ERROR_INVALID_ARGUMENT;
    }
    if (kernel[0] != in[1]) {
        return tconv_dlpack_fail(issue, "weights",
                                 "weights.shape[0] = %" PRId64 ": must be the %" PRId64 " channels of src", kernel[0],
                                 in[1]);
    }
    if (desc->groups < 1 || kernel[1] > INT64_MAX / desc->groups) {
        return tconv_dlpack_fail(issue, "groups", "groups = %" PRId64 ": must be at least 1, out_channels in 63 bits",
                                 desc->groups);
    }
    desc->batch = in[0], desc->in_channels = in[1], desc->in_d = in[2], desc->in_h = in[3], desc->in_w = in[4];
    desc->out_channels = kernel[1] * desc->groups;
    desc->kernel_d = kernel[2], desc->kernel_h = kernel[3], desc->kernel_w = kernel[4];
    tconv_dlpack_set_strides(in_strides, desc->src_strides, &desc->src_stride_d);
    return TCONV_SUCCESS;
}

/*
 * Chooses desc's layout: that in which src, of the extents in, lies; where it lies in both, as it does with one channel or one
 * pixel, that of dst, of the extents out; NCHW where that does not tell either.
 */
static inline tconv_status tconv_dlpack_layout(tconv_desc *desc, const int64_t in[5], const int64_t in_strides[5],
                                               const int64_t out[5], const int64_t out_strides[5], tconv_issue *issue)
{
    const int nchw = tconv_dlpack_suits(in, in_strides, TCONV_NCHW);
    const int nhwc = tconv_dlpack_suits(in, in_strides, TCONV_NHWC);
    if (nchw == 0 && nhwc == 0)
        return tconv_dlpack_fail(issue, "src", "src.strides: must have dense rows (NCHW) or dense channels (NHWC)");
    const bool dst_is_nhwc =
        tconv_dlpack_suits(out, out_strides, TCONV_NHWC) > tconv_dlpack_suits(out, out_strides, TCONV_NCHW);
    desc->layout = nhwc > nchw || (nhwc == nchw && dst_is_nhwc) ? TCONV_NHWC : TCONV_NCHW;
    return TCONV_SUCCESS;
}

/*
 * Fills desc from the tensors: batch, in_channels, in_d, in_h, in_w, out_channels, kernel_d, kernel_h, kernel_w, dtype, layout,
 * weight_layout, and the strides of src and dst. desc was initialised, and its groups are set. dst may be NULL: dense then.
 *
 * src and dst have the logical shape (n, c, h, w), weights (in, out / groups, kh, kw), as PyTorch has them; or all of them
 * have one axis more, of depth, before h and kh. How they lie in memory is read from their strides: NCHW or NHWC
 * (channels_last, channels_last_3d), as src and, where that lies in both, dst says, NCHW where
 * neither does; weights as IOHW, IHWO or HWOI. Checks the layer by tconv_validate's rules, and that dst has the shape of
 * tconv_output_shape3d. On an error desc is untouched.
 */
static inline tconv_status tconv_dlpack_layer(tconv_desc *desc, const DLTensor *src, const DLTensor *weights,
                                              const DLTensor *dst, tconv_issue *issue)
{
    int64_t expected[5] = {0}, in[5] = {0}, in_strides[5] = {0}, out[5] = {0}, out_strides[5] = {0};
    if (desc == NULL)
        return tconv_dlpack_fail(issue, "desc", "desc = NULL: must not be NULL");
    tconv_desc made = *desc;
    if (tconv_dlpack_inputs(&made, src, weights, in, in_strides, issue) != TCONV_SUCCESS)
        return TCONV_ERROR_INVALID_ARGUMENT;
    if (dst != NULL) {
        if (tconv_dlpack_strides(dst, "dst", (int)src->ndim, out, out_strides, issue) != TCONV_SUCCESS ||
            tconv_dlpack_same_dtype(dst, "dst", made.dtype, issue) != TCONV_SUCCESS) {
            return TCONV_ERROR_INVALID_ARGUMENT;
        }
    }
    tconv_dlpack_set_strides(out_strides, made.dst_strides, &made.dst_stride_d);
    if (tconv_dlpack_layout(&made, in, in_strides, out, out_strides, issue) != TCONV_SUCCESS)
        return TCONV_ERROR_INVALID_ARGUMENT;
    const tconv_status status = tconv_output_shape3d(&made, expected, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (src->ndim == 4 && expected[TCONV_DLPACK_D] != 1) {
        return tconv_dlpack_fail(issue, "src", "src.ndim = 4: must be 5, the layer has %" PRId64 " output planes",
                                 expected[TCONV_DLPACK_D]);
    }
    for (int axis = 0; dst != NULL && axis < TCONV_DLPACK_AXES; axis++) {
        if (out[axis] != expected[axis]) {
            return tconv_dlpack_fail(issue, "dst", "dst.shape[%d] = %" PRId64 ": must be %" PRId64,
                                     src->ndim == 4 && axis > TCONV_DLPACK_D ? axis - 1 : axis, out[axis],
                                     expected[axis]);
        }
    }
    *desc = made;
    return TCONV_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#elif defined(TCONV_DLPACK_REQUIRED)
#error "tconv/dlpack.h needs DLPack's header: include it first, or put it on the include path as <dlpack/dlpack.h>"
#endif

#endif
