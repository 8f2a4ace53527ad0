/* tconv/dlpack.h: tensors of other libraries become layers without a copy, or an issue says what prevents it. */
#define TCONV_TESTS_DLPACK_1
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

/* Returns the fields that the caller of tconv_dlpack_layer sets beforehand. */
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

/* A plane of one channel fits both layouts; dst then decides. */
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

/* Expects that the tensors are refused with this field and text, and that desc is left as it was. */
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

/* --------------------------------------------------------------------------------------------------- ambiguous layouts */

/* Ways in which a tensor of some shape may lie: dense in either layout, or a slice of a larger tensor in it. The
 * strides of extents of 1 have no meaning, and are nonsense here. */
enum { LYINGS = 4 };

static void lie(struct exported *exported, float *data, const int64_t shape[4], int lying, int64_t nonsense)
{
    const int64_t n = shape[0], c = shape[1], h = shape[2], w = shape[3], gap = lying / 2;
    const int64_t pixel = c + gap, plane = h * w + gap;
    (void)n;
    export_tensor(exported, data, n, c, h, w);
    if (lying % 2 == 0)
        set_strides(exported, c * plane + gap, plane, w, 1);
    else
        set_strides(exported, h * w * pixel + gap, 1, w * pixel, pixel);
    for (int axis = 0; axis < 4; axis++)
        if (shape[axis] == 1)
            exported->strides[axis] = nonsense;
}

static float *element(const struct exported *exported, int64_t n, int64_t c, int64_t h, int64_t w)
{
    const int64_t at[4] = {n, c, h, w};
    float *data = exported->tensor.data;
    for (int axis = 0; axis < 4; axis++)
        data += exported->shape[axis] == 1 ? 0 : at[axis] * exported->strides[axis];
    return data;
}

/* Whether the library takes the strides of both tensors in some layout. */
static bool some_layout_takes(const tconv_desc *dense)
{
    for (int layout = TCONV_NCHW; layout <= TCONV_NHWC; layout++) {
        tconv_desc desc = *dense;
        desc.layout = (tconv_layout)layout;
        for (int axis = 0; axis < 4; axis++) {
            desc.src_strides[axis] = src.shape[axis] == 1 ? 0 : src.strides[axis];
            desc.dst_strides[axis] = dst.shape[axis] == 1 ? 0 : dst.strides[axis];
        }
        if (tconv_validate(&desc, NULL) == TCONV_SUCCESS)
            return true;
    }
    return false;
}

/* Compares a layer of stride 1 without padding by its formula with the library's result. */
static void check_answer(const tconv_desc *desc)
{
    for (int64_t i = 0; i < dst.shape[0] * dst.shape[1] * dst.shape[2] * dst.shape[3]; i++) {
        const int64_t w = i % dst.shape[3], h = i / dst.shape[3] % dst.shape[2];
        const int64_t c = i / (dst.shape[3] * dst.shape[2]) % dst.shape[1];
        const int64_t n = i / (dst.shape[3] * dst.shape[2] * dst.shape[1]);
        float sum = 0;
        for (int64_t ci = 0; ci < desc->in_channels; ci++)
            for (int64_t kh = 0; kh < desc->kernel_h; kh++)
                for (int64_t kw = 0; kw < desc->kernel_w; kw++)
                    if (h - kh >= 0 && h - kh < desc->in_h && w - kw >= 0 && w - kw < desc->in_w)
                        sum += *element(&src, n, ci, h - kh, w - kw) * *element(&weights, ci, c, kh, kw);
        cr_assert_eq(*element(&dst, n, c, h, w), sum);
    }
}

/* Makes the layer of the tensors as they lie; returns whether it was accepted. */
static bool try_layer(void)
{
    tconv_desc desc, dense;
    tconv_tensor s, w, d;
    tconv_desc_init(&desc);
    const tconv_status status = tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue);
    tconv_desc_init(&dense);
    dense.batch = src.shape[0], dense.in_channels = src.shape[1], dense.in_h = src.shape[2], dense.in_w = src.shape[3];
    dense.out_channels = weights.shape[1], dense.kernel_h = weights.shape[2], dense.kernel_w = weights.shape[3];
    cr_assert_eq(status == TCONV_SUCCESS, some_layout_takes(&dense), "%s",
                 status == TCONV_SUCCESS ? "taken" : issue.message);
    if (status != TCONV_SUCCESS)
        return false;
    expect_success(tconv_dlpack_tensor(&src.tensor, &s, &issue), issue);
    expect_success(tconv_dlpack_tensor(&weights.tensor, &w, &issue), issue);
    expect_success(tconv_dlpack_tensor(&dst.tensor, &d, &issue), issue);
    expect_success(tconv_conv_transpose2d(&desc, NULL, &s, &w, NULL, &d, &issue), issue);
    check_answer(&desc);
    return true;
}

/* In all shapes of up to two of everything, tensors that some layout takes are accepted and computed right. Weights lie
 * in each of three layouts; with a kernel of one tap, or one channel, several of these are the same. */
Test(dlpack, ambiguous_shapes_take_the_other_tensors_layout)
{
    static float src_data[128], weights_data[128], dst_data[512];
    static const int64_t nonsense[] = {1, 0, -7, 1000003};
    int taken = 0, refused = 0;
    for (int i = 0; i < 128; i++) {
        src_data[i] = (float)(i % 9 - 4);
        weights_data[i] = (float)(i % 7 - 3);
    }
    for (int bits = 0; bits < 128; bits++)
        for (int lying = 0; lying < LYINGS * LYINGS * 3; lying++) {
            const int64_t n = 1 + bits % 2, ci = 1 + bits / 2 % 2, h = 1 + bits / 4 % 2, w = 1 + bits / 8 % 2;
            const int64_t co = 1 + bits / 16 % 2, kh = 1 + bits / 32 % 2, kw = 1 + bits / 64 % 2;
            lie(&src, src_data, (int64_t[]){n, ci, h, w}, lying % LYINGS, nonsense[(bits + lying) % 4]);
            lie(&dst, dst_data, (int64_t[]){n, co, h + kh - 1, w + kw - 1}, lying / LYINGS % LYINGS,
                nonsense[(bits + lying + 1) % 4]);
            export_tensor(&weights, weights_data, ci, co, kh, kw);
            if (lying / (LYINGS * LYINGS) == 1)
                set_strides(&weights, kh * kw * co, 1, kw * co, co);
            else if (lying / (LYINGS * LYINGS) == 2)
                set_strides(&weights, 1, ci, kw * co * ci, co * ci);
            if (try_layer())
                taken++;
            else
                refused++;
        }
    cr_assert(taken > 2000 && refused > 500, "%d taken, %d refused", taken, refused);
}

/* -------------------------------------------------------------------------------------------------------- which device */

static void move(struct exported *exported, DLDeviceType type, int32_t id)
{
    exported->tensor.device = (DLDevice){type, id};
}

Test(dlpack, options_have_the_device_that_all_tensors_share)
{
    struct exported bias;
    tconv_options options;
    export_tensor(&bias, layer.bias_data, 6, 1, 1, 1);
    struct exported *const all[] = {&src, &weights, &bias, &dst};
    static const char *const names[] = {"src", "weights", "bias", "dst"};
    tconv_options_init(&options);
    expect_success(tconv_dlpack_options(&options, &src.tensor, &weights.tensor, NULL, NULL, &issue), issue);
    cr_assert(options.location == TCONV_LOCATION_HOST && options.device == -1);

    for (size_t i = 0; i < 4; i++)
        move(all[i], i == 1 ? kDLCUDAManaged : kDLCUDA, 3);
    expect_success(tconv_dlpack_options(&options, &src.tensor, &weights.tensor, &bias.tensor, &dst.tensor, &issue),
                   issue);
    cr_assert(options.location == TCONV_LOCATION_CUDA && options.device == 3 && options.backend == TCONV_BACKEND_AUTO);

    const tconv_options before = options;
    for (size_t i = 1; i < 4; i++) {
        move(all[i], kDLCUDA, 2);
        expect_failure(tconv_dlpack_options(&options, &src.tensor, &weights.tensor, &bias.tensor, &dst.tensor, &issue),
                       issue, TCONV_ERROR_INVALID_ARGUMENT, names[i], "device = 2: must be that of src, 3");
        move(all[i], kDLCPU, 0);
        expect_failure(tconv_dlpack_options(&options, &src.tensor, &weights.tensor, &bias.tensor, &dst.tensor, &issue),
                       issue, TCONV_ERROR_INVALID_ARGUMENT, names[i], "device = -1: must be that of src, 3");
        move(all[i], kDLCUDA, 3);
    }
    move(&src, kDLCUDA, -1);
    expect_failure(tconv_dlpack_options(&options, &src.tensor, &weights.tensor, NULL, NULL, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "src", "src.device_id = -1");
    move(&src, kDLOpenCL, 0);
    expect_failure(tconv_dlpack_options(&options, &src.tensor, &weights.tensor, NULL, NULL, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "src", "src.device_type = 4");
    expect_failure(tconv_dlpack_options(&options, NULL, &weights.tensor, NULL, NULL, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "src", "NULL");
    cr_assert_arr_eq(&options, &before, sizeof options, "a refusal wrote to options");
}

Test(dlpack, offset_past_the_address_space)
{
    tconv_tensor tensor;
    src.tensor.byte_offset = UINT64_MAX;
    expect_failure(tconv_dlpack_tensor(&src.tensor, &tensor, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "tensor",
                   "tensor.byte_offset = 18446744073709551615");
}

Test(dlpack, read_only_tensors_are_refused_as_dst)
{
    DLManagedTensorVersioned versioned = {{1, 2}, NULL, NULL, 0, src.tensor};
    const DLTensor *tensor = NULL;
    expect_success(tconv_dlpack_versioned(&versioned, true, &tensor, &issue), issue);
    cr_assert_eq(tensor, &versioned.dl_tensor);
    versioned.flags = DLPACK_FLAG_BITMASK_READ_ONLY | 2; /* bit 1 (2): copied */
    expect_success(tconv_dlpack_versioned(&versioned, false, &tensor, &issue), issue);
    tensor = NULL;
    expect_failure(tconv_dlpack_versioned(&versioned, true, &tensor, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "dst", "must not be read-only");
    versioned.flags = 2;
    expect_success(tconv_dlpack_versioned(&versioned, true, &tensor, &issue), issue);
    versioned.version.major = 2;
    tensor = NULL;
    expect_failure(tconv_dlpack_versioned(&versioned, false, &tensor, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "tensor", "tensor.version = 2.2: must be 1.x");
    cr_assert_null(tensor);
    expect_failure(tconv_dlpack_versioned(NULL, false, &tensor, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "tensor",
                   "NULL");
}
