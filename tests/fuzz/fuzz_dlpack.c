/*
 * Random DLTensors to tconv/dlpack.h: nothing crashes and nothing is read past ndim numbers, whatever their shapes,
 * strides, types and devices say; tensors that are refused leave desc and options as they were; and an accepted layer
 * has the tensors' shapes, and each element where their strides put it, by arithmetic in 128 bits.
 *
 * An input is a row of bytes that choose numbers: a byte below TABLE_END takes one from a table of critical numbers;
 * RAW takes the next eight bytes.
 */
#define TCONV_TESTS_DLPACK_1
#include "../support/dlpack_types.h"

#include <stdio.h>
#include <stdlib.h>

#include "../../src/core/problem.h"
#include "tconv/dlpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

__extension__ typedef __int128 wide;

#define REQUIRE(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char *condition, int line)
{
    fprintf(stderr, "fuzz_dlpack.c:%d: %s does not hold\n", line, condition);
    abort();
}

/* ------------------------------------------------------------------------------------------------------------- input */

struct input {
    const uint8_t *bytes;
    size_t left;
};

static uint8_t next_byte(struct input *input)
{
    if (input->left == 0)
        return 0;
    input->left--;
    return *input->bytes++;
}

#define RAW 255

static int64_t next_number(struct input *input)
{
    static const int64_t table[] = {0,
                                    -1,
                                    INT32_MAX,
                                    INT64_C(1) << 31,
                                    INT64_C(1) << 32,
                                    INT64_MAX,
                                    INT64_MAX - 1,
                                    INT64_MIN,
                                    INT64_MIN + 1,
                                    INT64_C(1) << 62,
                                    INT64_C(1) << 61,
                                    INT64_C(3037000500),
                                    INT64_MAX / 4,
                                    1000,
                                    65536};
    const uint8_t choice = next_byte(input);
    const size_t count = sizeof table / sizeof table[0];
    uint64_t raw = 0;
    if (choice != RAW) /* half of them are small, else no layer would ever be valid */
        return choice < 16 * count && choice % 2 == 1 ? table[choice / 2 % count] : choice / 2 % 8 + (choice < 200);
    for (int i = 0; i < 8; i++)
        raw = raw << 8 | next_byte(input);
    return (int64_t)raw;
}

/* A DLTensor whose shape and strides are as long as ndim says, and not a number longer. */
struct tensor {
    DLTensor dl;
    bool has_strides;
};

/* Whether a tensor has as many axes as one of a layer. */
static bool is_tensor_of_layer(const DLTensor *dl)
{
    return dl->ndim == 4 || dl->ndim == 5;
}

/* Gives the tensor dense strides in the order of axes that choice names, as far as they fit. */
static void lay_out(struct tensor *tensor, uint8_t choice)
{
    static const int orders[2][3][5] = {{{0, 1, 2, 3}, {0, 2, 3, 1}, {2, 3, 1, 0}},
                                        {{0, 1, 2, 3, 4}, {0, 2, 3, 4, 1}, {2, 3, 4, 1, 0}}};
    const int *order = orders[tensor->dl.ndim - 4][choice % 3];
    uint64_t stride = 1;
    for (int i = tensor->dl.ndim - 1; i >= 0; i--) {
        tensor->dl.strides[order[i]] = (int64_t)stride;
        stride *= (uint64_t)tensor->dl.shape[order[i]];
        stride += choice / 3 % 4 == 3 && i <= 2; /* a slice */
    }
}

/* usual: the axes that a tensor has where the input says nothing else; 0: of the first one, which most have. */
static void next_tensor(struct input *input, struct tensor *tensor, int32_t usual)
{
    static const DLDeviceType devices[] = {kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged, kDLOpenCL};
    const uint8_t flags = next_byte(input), kind = next_byte(input);
    DLTensor *dl = &tensor->dl;
    memset(tensor, 0, sizeof *tensor);
    dl->ndim = flags % 16 == 15                     ? (int32_t)(next_number(input) % 100)
               : usual == 4 || usual == 5           ? usual
               : flags % 16 >= 6 && flags % 16 < 10 ? 5
                                                    : 4;
    dl->device.device_type = flags / 16 < 12 ? kDLCPU : devices[flags / 16 - 11];
    dl->device.device_id = flags / 16 < 12 ? 0 : (int32_t)next_number(input);
    dl->dtype = (DLDataType){kDLFloat, 32, 1};
    if (kind >= 224)
        dl->dtype =
            (DLDataType){(uint8_t)next_number(input), (uint8_t)next_number(input), (uint16_t)next_number(input)};
    else if (kind >= 192)
        dl->dtype = (DLDataType){kDLBfloat, 16, 1};
    dl->data = kind % 8 == 7 ? NULL : (void *)(uintptr_t)((uint64_t)next_number(input) & ~UINT64_C(7));
    dl->byte_offset = kind % 8 == 6 ? (uint64_t)next_number(input) : 0;
    const size_t count = dl->ndim < 0 || dl->ndim > 8 ? 0 : (size_t)dl->ndim;
    tensor->has_strides = kind / 8 % 4 != 3;
    dl->shape = malloc(count * sizeof(int64_t));
    dl->strides = tensor->has_strides ? malloc(count * sizeof(int64_t)) : NULL;
    if (dl->shape == NULL || (tensor->has_strides && dl->strides == NULL))
        abort();
    for (size_t i = 0; i < count; i++)
        dl->shape[i] = next_number(input);
    if (!tensor->has_strides)
        return;
    const uint8_t lying = next_byte(input);
    if (is_tensor_of_layer(dl) && lying < 192)
        lay_out(tensor, lying);
    else
        for (size_t i = 0; i < count; i++)
            dl->strides[i] = next_number(input);
    if (is_tensor_of_layer(dl) && lying >= 160 && lying < 192)
        dl->strides[lying % count] = next_number(input);
}

static void release(struct tensor *tensor)
{
    free(tensor->dl.shape);
    free(tensor->dl.strides);
}

/* ------------------------------------------------------------------------------------------------------------ answers */

static void check_issue(tconv_status status, const tconv_issue *issue)
{
    if (status == TCONV_SUCCESS)
        return;
    REQUIRE(issue->status == status && issue->field[0] != '\0' && issue->message[0] != '\0');
    REQUIRE(memchr(issue->field, '\0', sizeof issue->field) != NULL);
    REQUIRE(memchr(issue->message, '\0', sizeof issue->message) != NULL);
}

/* Returns the stride of an axis as DLPack has it. */
static wide stride_of(const struct tensor *tensor, int axis)
{
    wide dense = 1;
    if (tensor->has_strides)
        return tensor->dl.strides[axis];
    for (int i = tensor->dl.ndim - 1; i > axis; i--)
        dense *= tensor->dl.shape[i];
    return dense;
}

/* Returns the place among n, c, d, h, w of an axis of a tensor. */
static int place_of(const struct tensor *tensor, int axis)
{
    return tensor->dl.ndim == 4 && axis >= 2 ? axis + 1 : axis;
}

/* Checks that the corners of a tensor lie where strides (n, c, d, h, w) have them; between the corners both are linear. */
static void check_strides(const struct tensor *tensor, const int64_t strides[5])
{
    for (int axis = 0; axis < tensor->dl.ndim; axis++)
        REQUIRE(tensor->dl.shape[axis] <= 1 || stride_of(tensor, axis) == strides[place_of(tensor, axis)]);
}

static void check_shape(const struct tensor *tensor, int ndim, const int64_t extents[5])
{
    REQUIRE(tensor->dl.ndim == ndim && (ndim == 5 || (ndim == 4 && extents[2] == 1)));
    for (int axis = 0; axis < ndim; axis++)
        REQUIRE(tensor->dl.shape[axis] == extents[place_of(tensor, axis)]);
}

static wide out_extent(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pads,
                       int64_t output_padding)
{
    return (wide)(in - 1) * stride - pads + (wide)dilation * (kernel - 1) + output_padding + 1;
}

static void check_layer(const tconv_desc *desc, const struct tensor *src, const struct tensor *weights,
                        const struct tensor *dst)
{
    tconv_problem problem;
    tconv_issue issue;
    REQUIRE(tconv_problem_init(&problem, desc, &issue) == TCONV_SUCCESS);
    const int ndim = src->dl.ndim;
    const tconv_weight_strides *weight = &problem.weight;
    check_shape(src, ndim, (int64_t[]){desc->batch, desc->in_channels, desc->in_d, desc->in_h, desc->in_w});
    REQUIRE((wide)weights->dl.shape[1] * desc->groups == desc->out_channels);
    check_shape(weights, ndim,
                (int64_t[]){desc->in_channels, desc->out_channels / desc->groups, desc->kernel_d, desc->kernel_h,
                            desc->kernel_w});
    check_strides(src, (int64_t[]){problem.src.n, problem.src.c, problem.src.d, problem.src.h, problem.src.w});
    check_strides(weights, (int64_t[]){weight->in, weight->out, weight->d, weight->h, weight->w});
    const wide out_d = out_extent(desc->in_d, desc->kernel_d, desc->stride_d, desc->dilation_d,
                                  desc->pad_front + desc->pad_back, desc->output_padding_d);
    const wide out_h = out_extent(desc->in_h, desc->kernel_h, desc->stride_h, desc->dilation_h,
                                  desc->pad_top + desc->pad_bottom, desc->output_padding_h);
    const wide out_w = out_extent(desc->in_w, desc->kernel_w, desc->stride_w, desc->dilation_w,
                                  desc->pad_left + desc->pad_right, desc->output_padding_w);
    REQUIRE(problem.d.out == out_d && problem.h.out == out_h && problem.w.out == out_w);
    if (dst == NULL)
        return;
    check_shape(dst, ndim,
                (int64_t[]){desc->batch, desc->out_channels, (int64_t)out_d, (int64_t)out_h, (int64_t)out_w});
    check_strides(dst, (int64_t[]){problem.dst.n, problem.dst.c, problem.dst.d, problem.dst.h, problem.dst.w});
}

static void try_layer(struct input *input, struct tensor tensors[3])
{
    tconv_desc desc, before;
    tconv_issue issue;
    tconv_desc_init(&desc);
    const uint8_t fields = next_byte(input);
    if (fields & 1) {
        desc.stride_h = next_number(input), desc.stride_w = next_number(input);
        desc.dilation_h = next_number(input), desc.dilation_w = next_number(input);
    }
    if (fields & 2) {
        desc.pad_top = desc.pad_bottom = next_number(input) / 2,
        desc.pad_left = desc.pad_right = next_number(input) / 2;
        desc.output_padding_h = next_number(input), desc.output_padding_w = next_number(input);
    }
    if (fields & 4)
        desc.groups = next_number(input);
    if ((fields & 4) && tensors[0].dl.ndim == 5) {
        desc.stride_d = next_number(input), desc.dilation_d = next_number(input);
        desc.pad_front = desc.pad_back = next_number(input) / 2, desc.output_padding_d = next_number(input);
    }
    if (fields & 8) { /* the shape that dst must have, where there is one */
        tconv_desc made = desc;
        int64_t shape[5];
        if (is_tensor_of_layer(&tensors[2].dl) && tensors[2].dl.ndim == tensors[0].dl.ndim &&
            tconv_dlpack_layer(&made, &tensors[0].dl, &tensors[1].dl, NULL, NULL) == TCONV_SUCCESS &&
            tconv_output_shape3d(&made, shape, NULL) == TCONV_SUCCESS) {
            for (int axis = 0; axis < tensors[2].dl.ndim; axis++)
                tensors[2].dl.shape[axis] = shape[place_of(&tensors[2], axis)];
            tensors[2].dl.dtype = tensors[0].dl.dtype;
            if (tensors[2].has_strides && (fields & 32) == 0)
                lay_out(&tensors[2], fields / 64);
        }
    }
    before = desc;
    const bool has_dst = (fields & 16) == 0;
    tconv_status status =
        tconv_dlpack_layer(&desc, &tensors[0].dl, &tensors[1].dl, has_dst ? &tensors[2].dl : NULL, &issue);
    check_issue(status, &issue);
    if (status == TCONV_SUCCESS)
        check_layer(&desc, &tensors[0], &tensors[1], has_dst ? &tensors[2] : NULL);
    else
        REQUIRE(memcmp(&before, &desc, sizeof desc) == 0);
}

static bool is_on_host(const DLTensor *dl)
{
    return dl->device.device_type == kDLCPU || dl->device.device_type == kDLCUDAHost;
}

static void try_tensor(const DLTensor *dl)
{
    tconv_tensor tensor = {NULL, TCONV_F32, TCONV_LOCATION_AUTO};
    tconv_issue issue;
    tconv_status status = tconv_dlpack_tensor(dl, &tensor, &issue);
    check_issue(status, &issue);
    if (status != TCONV_SUCCESS)
        return;
    const wide address = (wide)(uintptr_t)dl->data + (wide)dl->byte_offset;
    REQUIRE(tensor.data == NULL ? dl->data == NULL : (wide)(uintptr_t)tensor.data == address);
    REQUIRE(tensor.location == (is_on_host(dl) ? TCONV_LOCATION_HOST : TCONV_LOCATION_CUDA));
    REQUIRE(dl->dtype.lanes == 1 && dl->dtype.bits == (tensor.dtype == TCONV_F32   ? 32
                                                       : tensor.dtype == TCONV_F64 ? 64
                                                                                   : 16));
    REQUIRE(dl->dtype.code == (tensor.dtype == TCONV_BF16 ? kDLBfloat : kDLFloat));
}

static void try_options(const struct tensor tensors[3])
{
    tconv_options options, before;
    tconv_issue issue;
    tconv_options_init(&options);
    before = options;
    tconv_status status = tconv_dlpack_options(&options, &tensors[0].dl, &tensors[1].dl, NULL, &tensors[2].dl, &issue);
    check_issue(status, &issue);
    if (status != TCONV_SUCCESS) {
        REQUIRE(memcmp(&before, &options, sizeof options) == 0);
        return;
    }
    for (int i = 0; i < 3; i++) {
        const DLTensor *dl = &tensors[i].dl;
        REQUIRE(options.location == (is_on_host(dl) ? TCONV_LOCATION_HOST : TCONV_LOCATION_CUDA));
        REQUIRE(options.device == (is_on_host(dl) ? -1 : dl->device.device_id));
    }
}

static void try_versioned(struct input *input, const struct tensor *tensor)
{
    DLManagedTensorVersioned versioned = {
        {next_byte(input) % 3, next_byte(input)}, NULL, NULL, next_byte(input), tensor->dl};
    const DLTensor *found = NULL;
    tconv_issue issue;
    const bool is_written = next_byte(input) % 2;
    tconv_status status = tconv_dlpack_versioned(&versioned, is_written, &found, &issue);
    check_issue(status, &issue);
    REQUIRE((status == TCONV_SUCCESS) == (versioned.version.major == 1 && !(is_written && versioned.flags % 2 == 1)));
    REQUIRE(found == (status == TCONV_SUCCESS ? &versioned.dl_tensor : NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct input input = {bytes, size};
    struct tensor tensors[3];
    for (int i = 0; i < 3; i++)
        next_tensor(&input, &tensors[i], i == 0 ? 0 : tensors[0].dl.ndim);
    if (next_byte(&input) % 4 != 0 && is_tensor_of_layer(&tensors[0].dl) &&
        tensors[1].dl.ndim == tensors[0].dl.ndim) { /* weights that fit src */
        tensors[1].dl.shape[0] = tensors[0].dl.shape[1];
        tensors[1].dl.dtype = tensors[0].dl.dtype;
        if (tensors[1].has_strides)
            lay_out(&tensors[1], next_byte(&input) % 3);
    }
    for (int i = 0; i < 3; i++)
        try_tensor(&tensors[i].dl);
    try_options(tensors);
    try_versioned(&input, &tensors[2]);
    try_layer(&input, tensors);
    for (int i = 0; i < 3; i++)
        release(&tensors[i]);
    return 0;
}
