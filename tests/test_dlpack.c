/* tconv/dlpack.h: tensors of other libraries become layers without a copy, or an issue says what prevents it. */
#define TCONV_TESTS_DLPACK_1
#include "support/dlpack_types.h"

#include <criterion/criterion.h>
#include <string.h>

#include "harness.h"
#include "support/expect.h"
#include "support/small_layer.h"
#include "tconv/dlpack.h"

static struct small_layer layer;
static tconv_issue issue;

/* The small layer's tensors as NumPy or PyTorch would hand them out. */
static struct exported {
    DLTensor tensor;
    int64_t shape[5], strides[5];
} src, weights, dst;

/* Makes a tensor of five axes, dense in their order. */
static void export_volume(struct exported *exported, void *data, const int64_t shape[5])
{
    memcpy(exported->shape, shape, sizeof exported->shape);
    for (int axis = 4, dense = 1; axis >= 0; dense *= (int)shape[axis--])
        exported->strides[axis] = dense;
    exported->tensor = (DLTensor){data, {kDLCPU, 0}, 5, {kDLFloat, 32, 1}, exported->shape, exported->strides, 0};
}

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

static void lie(struct exported *exported, float *data, const int64_t shape[5], int lying, int64_t nonsense)
{
    const int64_t c = shape[1], d = shape[2], h = shape[3], w = shape[4], gap = lying / 2;
    const int64_t pixel = c + gap, volume = d * h * w + gap;
    const int64_t planes_last[5] = {c * volume + gap, volume, h * w, w, 1};
    const int64_t channels_last[5] = {d * h * w * pixel + gap, 1, h * w * pixel, w * pixel, pixel};
    export_volume(exported, data, shape);
    memcpy(exported->strides, lying % 2 == 0 ? planes_last : channels_last, sizeof exported->strides);
    for (int axis = 0; axis < 5; axis++)
        if (shape[axis] == 1)
            exported->strides[axis] = nonsense;
}

/* Takes away the axis of depth, which has one plane. */
static void drop_depth(struct exported *exported)
{
    memmove(&exported->shape[2], &exported->shape[3], 2 * sizeof exported->shape[0]);
    memmove(&exported->strides[2], &exported->strides[3], 2 * sizeof exported->strides[0]);
    exported->tensor.ndim = 4;
}

/* Returns an element of a tensor of five axes, or of four where at[2] is 0. */
static float *element(const struct exported *exported, const int64_t at[5])
{
    float *data = exported->tensor.data;
    for (int axis = exported->tensor.ndim - 1, of = 4; axis >= 0; axis--, of--) {
        of -= of == 2 && exported->tensor.ndim == 4;
        data += exported->shape[axis] == 1 ? 0 : at[of] * exported->strides[axis];
    }
    return data;
}

/* Whether the library takes the strides of both tensors in some layout. */
static bool some_layout_takes(const tconv_desc *dense)
{
    for (int layout = TCONV_NCHW; layout <= TCONV_NHWC; layout++) {
        tconv_desc desc = *dense;
        desc.layout = (tconv_layout)layout;
        for (int axis = 0, to = 0; axis < src.tensor.ndim; axis++) {
            const bool of_depth = src.tensor.ndim == 5 && axis == 2;
            *(of_depth ? &desc.src_stride_d : &desc.src_strides[to]) = src.shape[axis] == 1 ? 0 : src.strides[axis];
            *(of_depth ? &desc.dst_stride_d : &desc.dst_strides[to]) = dst.shape[axis] == 1 ? 0 : dst.strides[axis];
            to += !of_depth;
        }
        if (tconv_validate(&desc, NULL) == TCONV_SUCCESS)
            return true;
    }
    return false;
}

/* Compares a layer of stride 1 without padding by its formula with the library's result. */
static void check_answer(const tconv_desc *desc)
{
    int64_t shape[5];
    expect_success(tconv_output_shape3d(desc, shape, &issue), issue);
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2] * shape[3] * shape[4]; i++) {
        int64_t to[5], k[5];
        float sum = 0;
        for (int64_t axis = 4, rest = i; axis >= 0; rest /= shape[axis--])
            to[axis] = rest % shape[axis];
        for (int64_t t = 0, taps = desc->kernel_d * desc->kernel_h * desc->kernel_w; t < taps * desc->in_channels;
             t++) {
            k[0] = t / taps, k[1] = to[1], k[2] = t % taps / (desc->kernel_h * desc->kernel_w);
            k[3] = t / desc->kernel_w % desc->kernel_h, k[4] = t % desc->kernel_w;
            const int64_t from[5] = {to[0], k[0], to[2] - k[2], to[3] - k[3], to[4] - k[4]};
            if (from[2] >= 0 && from[2] < desc->in_d && from[3] >= 0 && from[3] < desc->in_h && from[4] >= 0 &&
                from[4] < desc->in_w)
                sum += *element(&src, from) * *element(&weights, k);
        }
        cr_assert_eq(*element(&dst, to), sum);
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
    const int last = src.tensor.ndim - 1;
    dense.batch = src.shape[0], dense.in_channels = src.shape[1], dense.out_channels = weights.shape[1];
    dense.in_h = src.shape[last - 1], dense.in_w = src.shape[last];
    dense.kernel_h = weights.shape[last - 1], dense.kernel_w = weights.shape[last];
    if (last == 4)
        dense.in_d = src.shape[2], dense.kernel_d = weights.shape[2];
    cr_assert_eq(status == TCONV_SUCCESS, some_layout_takes(&dense), "%s",
                 status == TCONV_SUCCESS ? "taken" : issue.message);
    if (status != TCONV_SUCCESS)
        return false;
    expect_success(tconv_dlpack_tensor(&src.tensor, &s, &issue), issue);
    expect_success(tconv_dlpack_tensor(&weights.tensor, &w, &issue), issue);
    expect_success(tconv_dlpack_tensor(&dst.tensor, &d, &issue), issue);
    if (harness_has_depth(&desc) && !HARNESS_DRAWS_DEPTH)
        return true;
    expect_success(tconv_conv_transpose(&desc, NULL, &s, &w, NULL, &d, &issue), issue);
    check_answer(&desc);
    return true;
}

/* In all shapes of up to two of everything, tensors that some layout takes are accepted and computed right. Weights lie
 * in each of three layouts; with a kernel of one tap, or one channel, several of these are the same. */
static void try_ambiguous_shapes(int planes, int kernel_planes, int ndim)
{
    static float src_data[256], weights_data[128], dst_data[2048];
    static const int64_t nonsense[] = {1, 0, -7, 1000003};
    const int64_t d = planes, kd = kernel_planes;
    int taken = 0, refused = 0;
    for (int i = 0; i < 256; i++)
        src_data[i] = (float)(i % 9 - 4);
    for (int i = 0; i < 128; i++)
        weights_data[i] = (float)(i % 7 - 3);
    for (int bits = 0; bits < 128; bits++)
        for (int lying = 0; lying < LYINGS * LYINGS * 3; lying++) {
            const int64_t n = 1 + bits % 2, ci = 1 + bits / 2 % 2, h = 1 + bits / 4 % 2, w = 1 + bits / 8 % 2;
            const int64_t co = 1 + bits / 16 % 2, kh = 1 + bits / 32 % 2, kw = 1 + bits / 64 % 2;
            const int64_t strides[3][5] = {{co * kd * kh * kw, kd * kh * kw, kh * kw, kw, 1},
                                           {kd * kh * kw * co, 1, kh * kw * co, kw * co, co},
                                           {1, ci, kh * kw * co * ci, kw * co * ci, co * ci}};
            lie(&src, src_data, (int64_t[]){n, ci, d, h, w}, lying % LYINGS, nonsense[(bits + lying) % 4]);
            lie(&dst, dst_data, (int64_t[]){n, co, d + kd - 1, h + kh - 1, w + kw - 1}, lying / LYINGS % LYINGS,
                nonsense[(bits + lying + 1) % 4]);
            export_volume(&weights, weights_data, (int64_t[]){ci, co, kd, kh, kw});
            memcpy(weights.strides, strides[lying / (LYINGS * LYINGS)], sizeof weights.strides);
            for (int i = 0; i < 3 && ndim == 4; i++)
                drop_depth((struct exported *[]){&src, &weights, &dst}[i]);
            if (try_layer())
                taken++;
            else
                refused++;
        }
    cr_assert(taken > 2000 && refused > 500, "%d taken, %d refused", taken, refused);
}

Test(dlpack, ambiguous_shapes_take_the_other_tensors_layout)
{
    try_ambiguous_shapes(1, 1, 4);
}

Test(dlpack, ambiguous_shapes_of_volumes_take_the_other_tensors_layout)
{
    for (int planes = 1; planes <= 2; planes++)
        for (int kernel_planes = 1; kernel_planes <= 2; kernel_planes++)
            try_ambiguous_shapes(planes, kernel_planes, 5);
}

/* ------------------------------------------------------------------------------------------------------------- volumes */

/* Makes tensors of a layer of three axes, channels_last_3d where asked for. */
static tconv_desc export_volumes(bool channels_last)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.stride_d = 3, desc.stride_h = 2, desc.pad_front = 1, desc.output_padding_d = 2;
    export_volume(&src, layer.src_data, (int64_t[]){2, 4, 3, 5, 6});
    export_volume(&weights, layer.weights_data, (int64_t[]){4, 7, 2, 3, 1});
    export_volume(&dst, layer.dst_data, (int64_t[]){2, 7, 9, 11, 6});
    for (int i = 0; i < 3 && channels_last; i++) {
        struct exported *of = (struct exported *[]){&src, &weights, &dst}[i];
        const int64_t *shape = of->shape, c = shape[1];
        const int64_t strides[5] = {c * shape[2] * shape[3] * shape[4], 1, c * shape[3] * shape[4], c * shape[4], c};
        memcpy(of->strides, strides, sizeof strides);
    }
    return desc;
}

Test(dlpack, five_axes_are_a_layer_of_three)
{
    for (int channels_last = 0; channels_last < 2; channels_last++) {
        tconv_desc desc = export_volumes(channels_last != 0);
        expect_success(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue);
        cr_assert(desc.batch == 2 && desc.in_channels == 4 && desc.in_d == 3 && desc.in_h == 5 && desc.in_w == 6);
        cr_assert(desc.out_channels == 7 && desc.kernel_d == 2 && desc.kernel_h == 3 && desc.kernel_w == 1);
        cr_assert_eq(desc.layout, channels_last ? TCONV_NHWC : TCONV_NCHW);
        cr_assert_eq(desc.weight_layout, channels_last ? TCONV_WEIGHT_IHWO : TCONV_WEIGHT_IOHW);
        cr_assert_eq(desc.src_stride_d, channels_last ? 4 * 5 * 6 : 5 * 6);
        cr_assert_eq(desc.dst_stride_d, channels_last ? 7 * 11 * 6 : 11 * 6);
        cr_assert(desc.src_strides[2] == (channels_last ? 4 * 6 : 6) && desc.src_strides[3] == (channels_last ? 4 : 1));
    }
}

/* Expects that volumes are refused with this field and text, and makes them anew. */
static void expect_volumes_refused(tconv_desc desc, const char *field, const char *text)
{
    const tconv_desc before = desc;
    expect_failure(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, &dst.tensor, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, field, text);
    cr_assert_arr_eq(&desc, &before, sizeof desc, "%s: desc was written", issue.message);
    export_volumes(false);
}

Test(dlpack, volumes_that_make_no_layer)
{
    tconv_desc desc = export_volumes(false);
    weights.tensor.ndim = 4;
    expect_volumes_refused(desc, "weights", "weights.ndim = 4: must be 5, the same");
    dst.tensor.ndim = 4;
    expect_volumes_refused(desc, "dst", "dst.ndim = 4: must be 5, the same");
    src.tensor.ndim = 6;
    expect_volumes_refused(desc, "src", "src.ndim = 6: must be 4 or 5");
    dst.shape[2] = 8;
    expect_volumes_refused(desc, "dst", "dst.shape[2] = 8: must be 9");
    dst.shape[4] = 7;
    expect_volumes_refused(desc, "dst", "dst.shape[4] = 7: must be 6");
    src.strides[2] = 31;
    expect_volumes_refused(desc, "src_stride_d", "must be 30, planes are dense");
    dst.strides[2] = 67;
    expect_volumes_refused(desc, "dst_stride_d", "must be 66, planes are dense");
    weights.strides[2] = 4;
    expect_volumes_refused(desc, "weights", "must be dense");
    src.shape[2] = INT64_MAX / 2;
    expect_volumes_refused(desc, "src", "src.shape[2] = 4611686018427387903: must be at least 0, the size");
    drop_depth(&src), drop_depth(&weights);
    src.tensor.strides = weights.tensor.strides = NULL;
    expect_failure(tconv_dlpack_layer(&desc, &src.tensor, &weights.tensor, NULL, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "src", "src.ndim = 4: must be 5, the layer has 2 output planes");
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
