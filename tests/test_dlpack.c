/* tconv/dlpack.h: tensors of other libraries become layers without a copy, or an issue that says what is in the way. */
#include "support/dlpack_types.h"

#include <criterion/criterion.h>
#include <string.h>

#include "support/expect.h"
#include "support/small_layer.h"
#include "tconv/dlpack.h"

static struct small_layer layer;
static tconv_issue issue;

/* The small layer's tensors as NumPy or PyTorch would hand them out. */
static struct exported {
    DLTensor tensor;
    int64_t shape[4], strides[4];
} src, weights, dst;

static void export_tensor(struct exported *exported, void *data, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t shape[4] = {a, b, c, d}, strides[4] = {b * c * d, c * d, d, 1};
    memcpy(exported->shape, shape, sizeof shape);
    memcpy(exported->strides, strides, sizeof strides);
    exported->tensor = (DLTensor){data, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, exported->shape, exported->strides, 0};
}

static void set_strides(struct exported *exported, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t strides[4] = {a, b, c, d};
    memcpy(exported->strides, strides, sizeof strides);
}

/* What the caller of tconv_dlpack_layer sets beforehand. */
static tconv_desc free_parameters(void)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.stride_h = desc.stride_w = 2;
    desc.pad_top = 1;
    desc.groups = 2;
    return desc;
}

static void set_up(void)
{
    small_layer_init(&layer);
    export_tensor(&src, layer.src_data, 2, 4, 3, 5);
    export_tensor(&weights, layer.weights_data, 4, 3, 3, 2);
    export_tensor(&dst, layer.dst_data, 2, 6, 6, 10);
}

TestSuite(dlpack, .init = set_up);

Test(dlpack, layer_is_read_from_its_tensors_and_runs)
{
    tconv_desc desc = free_parameters();
    tconv_tensor s, w, d;
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
    cr_assert_arr_eq(&desc.batch, &layer.desc.batch, offsetof(tconv_desc, dtype) - offsetof(tconv_desc, batch));
    cr_assert(desc.dtype == TCONV_F32 && desc.layout == TCONV_NCHW && desc.weight_layout == TCONV_WEIGHT_IOHW);
    expect_success(tconv_dlpack_tensor(&src.tensor, &s, &issue), issue);
    expect_success(tconv_dlpack_tensor(&weights.tensor, &w, &issue), issue);
    expect_success(tconv_dlpack_tensor(&dst.tensor, &d, &issue), issue);
    expect_success(tconv_conv_transpose2d(&desc, NULL, &s, &w, &layer.bias, &d, &issue), issue);
    cr_assert(small_layer_is_right(&layer));
}

Test(dlpack, tensors_without_strides_are_dense)
{
    tconv_desc desc = free_parameters();
    src.tensor.strides = weights.tensor.strides = dst.tensor.strides = NULL;
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
    cr_assert(desc.layout == TCONV_NCHW && desc.weight_layout == TCONV_WEIGHT_IOHW);
    desc = free_parameters();
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, NULL, &issue), issue);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(desc.dst_strides[i], 0);
}

Test(dlpack, channels_last_is_nhwc)
{
    tconv_desc desc = free_parameters();
    set_strides(&src, 60, 1, 20, 4);
    set_strides(&dst, 360, 1, 60, 6);
    set_strides(&weights, 18, 1, 6, 3);
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
    cr_assert(desc.layout == TCONV_NHWC && desc.weight_layout == TCONV_WEIGHT_IHWO);
    set_strides(&weights, 1, 4, 24, 12);
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
    cr_assert_eq(desc.weight_layout, TCONV_WEIGHT_HWOI);
}

Test(dlpack, slices_keep_their_strides)
{
    tconv_desc desc = free_parameters();
    set_strides(&src, 100, 20, 5, 1);
    set_strides(&dst, 1000, 60, 10, 1);
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
    cr_assert(desc.src_strides[0] == 100 && desc.src_strides[1] == 20 && desc.dst_strides[0] == 1000);
}

/* A plane of one channel fits both layouts; then dst tells. */
Test(dlpack, dst_decides_where_src_fits_both_layouts)
{
    tconv_desc desc;
    export_tensor(&src, layer.src_data, 1, 1, 3, 5);
    export_tensor(&weights, layer.weights_data, 1, 4, 1, 1);
    export_tensor(&dst, layer.dst_data, 1, 4, 3, 5);
    tconv_desc_init(&desc);
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
    cr_assert_eq(desc.layout, TCONV_NCHW);
    set_strides(&dst, 60, 1, 20, 4);
    tconv_desc_init(&desc);
    expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
    cr_assert_eq(desc.layout, TCONV_NHWC);
}

Test(dlpack, data_starts_at_its_offset_and_lives_where_its_device_is)
{
    static const struct {
        DLDeviceType device;
        tconv_location location;
    } places[] = {{kDLCPU, TCONV_LOCATION_HOST},
                  {kDLCUDAHost, TCONV_LOCATION_HOST},
                  {kDLCUDA, TCONV_LOCATION_CUDA},
                  {kDLCUDAManaged, TCONV_LOCATION_CUDA}};
    tconv_tensor tensor;
    src.tensor.byte_offset = 12;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        src.tensor.device.device_type = places[i].device;
        expect_success(tconv_dlpack_tensor(&src.tensor, &tensor, &issue), issue);
        cr_assert(tensor.data == layer.src_data + 3 && tensor.location == places[i].location, "place %zu", i);
    }
    src.tensor.device.device_type = kDLOpenCL;
    expect_failure(tconv_dlpack_tensor(&src.tensor, &tensor, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "tensor",
                   "device_type = 4");
    expect_failure(tconv_dlpack_tensor(NULL, &tensor, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "tensor", "NULL");
}

Test(dlpack, every_dtype)
{
    static const struct {
        DLDataType type;
        tconv_dtype dtype;
    } types[] = {{{kDLFloat, 32, 1}, TCONV_F32},
                 {{kDLFloat, 64, 1}, TCONV_F64},
                 {{kDLFloat, 16, 1}, TCONV_F16},
                 {{kDLBfloat, 16, 1}, TCONV_BF16}};
    static const DLDataType others[] = {{kDLInt, 32, 1}, {kDLFloat, 8, 1}, {kDLFloat, 32, 4}, {kDLBfloat, 32, 1}};
    tconv_tensor tensor = {NULL, TCONV_F32, TCONV_LOCATION_AUTO};
    for (size_t i = 0; i < 4; i++) {
        src.tensor.dtype = types[i].type;
        expect_success(tconv_dlpack_tensor(&src.tensor, &tensor, &issue), issue);
        cr_assert_eq(tensor.dtype, types[i].dtype);
        src.tensor.dtype = others[i];
        expect_failure(tconv_dlpack_tensor(&src.tensor, &tensor, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "tensor",
                       "must be float32, float64, float16 or bfloat16");
    }
}

/* Each is refused by name, and leaves desc as it was. */
static void expect_refused(const char *field, const char *text)
{
    tconv_desc desc = free_parameters(), before = desc;
    expect_failure(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, field, text);
    cr_assert_arr_eq(&desc, &before, sizeof desc, "%s: desc was written", issue.message);
    set_up();
}

Test(dlpack, tensors_that_make_no_layer)
{
    src.tensor.ndim = 3;
    expect_refused("src", "src.ndim = 3: must be 4");
    weights.shape[0] = 5;
    expect_refused("weights", "weights.shape[0] = 5");
    weights.tensor.dtype.bits = 64;
    expect_refused("weights", "must be that of src");
    dst.tensor.dtype = (DLDataType){kDLBfloat, 16, 1};
    expect_refused("dst", "must be that of src");
    dst.shape[3] = 11;
    expect_refused("dst", "dst.shape[3] = 11: must be 10");
    set_strides(&weights, 18, 6, 2, 2);
    expect_refused("weights", "must be dense");
    set_strides(&src, 120, 30, 10, 2);
    expect_refused("src", "dense rows");
    src.strides[1] = 0; /* as an expanded tensor has it */
    expect_refused("src", "src.strides[1] = 0: must be at least 1");
    src.strides[2] = -5; /* as a flipped one has it */
    expect_refused("src", "src.strides[2] = -5: must be at least 1");
    src.strides[0] = 59;
    expect_refused("src_strides[0]", "must be at least 60");
}
