#include "torch_plans.h"

#include <string.h>

#define ELEMENTS_OF(array) ((int)(sizeof(array) / sizeof *(array)))

/* ------------------------------------------------------------------------------------------------------- five axes */

static void insert_axis(int64_t at, tensor_key *key)
{
    const int64_t stride = at < key->rank ? key->sizes[at] * key->strides[at] : 1; /* as unsqueeze has it */
    for (int64_t i = key->rank; i > at; i--) {
        key->sizes[i] = key->sizes[i - 1];
        key->strides[i] = key->strides[i - 1];
    }
    key->sizes[at] = 1;
    key->strides[at] = stride;
    key->rank++;
}

static void remove_axis(int64_t at, tensor_key *key)
{
    key->rank--;
    for (int64_t i = at; i < key->rank; i++) {
        key->sizes[i] = key->sizes[i + 1];
        key->strides[i] = key->strides[i + 1];
    }
    key->sizes[key->rank] = key->strides[key->rank] = 0;
}

enum { DEPTH = 2 }; /* the place of the axes that a layer may lack, in N, C, D, H, W */

/* A tensor of a layer with all of N, C, D, H and W, and again as it was. */
static tensor_key with_axes(tensor_key key, int64_t spatial, bool has_images)
{
    if (!has_images)
        insert_axis(0, &key);
    for (int64_t axes = spatial; axes < TCONV_TORCH_SPATIAL; axes++)
        insert_axis(DEPTH, &key);
    return key;
}

static tensor_key without_axes(tensor_key key, int64_t spatial, bool has_images)
{
    for (int64_t axes = spatial; axes < TCONV_TORCH_SPATIAL; axes++)
        remove_axis(DEPTH, &key);
    if (!has_images)
        remove_axis(0, &key);
    return key;
}

/* The axes of N, C, D, H, W, or of the weights' I, O, D, H, W, from the fastest to the slowest. */
static const int in_nchw[TCONV_TORCH_AXES] = {4, 3, 2, 1, 0}, in_nhwc[TCONV_TORCH_AXES] = {1, 4, 3, 2, 0},
                 in_hwoi[TCONV_TORCH_AXES] = {0, 1, 4, 3, 2};

static void make_dense(const int order[TCONV_TORCH_AXES], tensor_key *key)
{
    int64_t stride = 1;
    for (int i = 0; i < TCONV_TORCH_AXES; i++) {
        key->strides[order[i]] = stride;
        stride *= key->sizes[order[i]] > 0 ? key->sizes[order[i]] : 1;
    }
}

static bool is_dense(const int order[TCONV_TORCH_AXES], const tensor_key *key)
{
    tensor_key dense = *key;
    make_dense(order, &dense);
    for (int i = 0; i < TCONV_TORCH_AXES; i++)
        if (key->sizes[i] != 1 && key->strides[i] != dense.strides[i])
            return false;
    return true;
}

/* Whether the library reads a tensor as it lies: images and channels (NCHW) or images and pixels (NHWC) may be further
 * apart than dense. */
static bool lies_in(bool channels_last, const tensor_key *key)
{
    const int64_t *sizes = key->sizes, *strides = key->strides;
    const int64_t plane = sizes[3] * sizes[4], pixels = sizes[2] * plane;
    if (sizes[0] == 0)
        return true;
    if (!channels_last) {
        const int64_t of_channels = sizes[1] == 1 ? pixels : strides[1];
        return (sizes[4] == 1 || strides[4] == 1) && (sizes[3] == 1 || strides[3] == sizes[4]) &&
               (sizes[2] == 1 || strides[2] == plane) && of_channels >= pixels &&
               (sizes[0] == 1 || strides[0] >= (sizes[1] - 1) * of_channels + pixels);
    }
    const int along = sizes[4] > 1   ? 4
                      : sizes[3] > 1 ? 3
                                     : 2; /* the distance of pixels may be that of rows or planes */
    const int64_t of_pixels = sizes[along] > 1 ? strides[along] : sizes[1];
    return (sizes[1] == 1 || strides[1] == 1) && of_pixels >= sizes[1] &&
           (sizes[3] == 1 || strides[3] == sizes[4] * of_pixels) &&
           (sizes[2] == 1 || strides[2] == plane * of_pixels) &&
           (sizes[0] == 1 || strides[0] >= (pixels - 1) * of_pixels + sizes[1]);
}

/* Returns an axis' stride as a desc has it. */
static int64_t stride_of(const tensor_key *key, int axis)
{
    return key->sizes[0] == 0 || key->sizes[axis] == 1 ? 0 : key->strides[axis];
}

static void set_strides(const tensor_key *key, tconv_desc *desc)
{
    const int axes[4] = {0, 1, 3, 4};
    for (int i = 0; i < ELEMENTS_OF(axes); i++)
        desc->src_strides[i] = stride_of(key, axes[i]);
    desc->src_stride_d = stride_of(key, DEPTH);
}

static bool is_on_cuda(const tensor_key *key)
{
    return key->device_type == torch.aoti_torch_device_type_cuda();
}

/* Whether PyTorch takes a tensor for channels_last, as Tensor::suggest_memory_format says: strides grow in the order C, W, H,
 * D, N, and one channel of one pixel is no case of it. */
static bool seems_channels_last(const tensor_key *key)
{
    int64_t least = 0;
    if (key->strides[1] == 0)
        return false;
    for (int i = 0; i < TCONV_TORCH_AXES; i++) {
        const int axis = in_nhwc[i];
        if (key->sizes[axis] == 0 || key->strides[axis] < least || (axis == 0 && least == key->strides[1]))
            return false;
        least = key->strides[axis] * (key->sizes[axis] > 1 ? key->sizes[axis] : 1);
    }
    return true;
}

/* Whether PyTorch's own layer has such a result at all. It lies as PyTorch's would, because programs count on that: in
 * channels_last where the input or the weight does. (The input of a 1-D layer is made dense before.) */
static bool may_be_channels_last(const tensor_key *src, int64_t spatial, int64_t settings)
{
    if (spatial == 3 && !is_on_cuda(src)) /* oneDNN's: PyTorch's own 3-D layer has none */
        return src->dtype == torch.aoti_torch_dtype_float32() || src->dtype == torch.aoti_torch_dtype_bfloat16();
    return !is_on_cuda(src) || (src->dtype != torch.aoti_torch_dtype_float64() && (settings & TCONV_TORCH_CUDNN) != 0);
}

/* -------------------------------------------------------------------------------------------------------- the tensors */

static bool dtype_of(int64_t pytorchs, tconv_dtype *dtype)
{
    const struct {
        int32_t pytorchs;
        tconv_dtype dtype;
    } known[] = {{torch.aoti_torch_dtype_float32(), TCONV_F32},
                 {torch.aoti_torch_dtype_float64(), TCONV_F64},
                 {torch.aoti_torch_dtype_float16(), TCONV_F16},
                 {torch.aoti_torch_dtype_bfloat16(), TCONV_BF16}};
    for (int i = 0; i < ELEMENTS_OF(known); i++)
        if (known[i].pytorchs == pytorchs) {
            *dtype = known[i].dtype;
            return true;
        }
    return false;
}

static int64_t size_of(tconv_dtype dtype)
{
    return dtype == TCONV_F64 ? 8 : dtype == TCONV_F32 ? 4 : 2;
}

static bool are_alike(const tensor_key *one, const tensor_key *other)
{
    return one->dtype == other->dtype && one->device_type == other->device_type &&
           one->device_index == other->device_index;
}

/* Puts a copy that lies as the key says in the place of a tensor. */
static bool copy_to(const tensor_key *key, stable_value *tensor)
{
    torch_tensor *made = make_tensor(key, key->rank, key->sizes, key->strides);
    if (made == NULL || torch.aoti_torch_copy_(made, tensor_of(*tensor), 0) != 0) {
        delete_tensor(made);
        return false;
    }
    delete_tensor(tensor_of(*tensor));
    *tensor = value_of(made);
    return true;
}

/* Whether the tensors of a call are those of a layer in a dtype that the library has. What is wrong with others PyTorch
 * says. */
static bool are_of_a_layer(const call_key *key, bool has_bias)
{
    const tensor_key *input = &key->input, *weight = &key->weight, *bias = &key->third;
    const int64_t channels_at = input->rank - key->spatial - 1;
    tconv_dtype dtype;
    if ((channels_at != 0 && channels_at != 1) || !dtype_of(input->dtype, &dtype) || !are_alike(input, weight) ||
        input->sizes[channels_at] != weight->sizes[0])
        return false;
    for (int64_t i = 0; i < weight->rank; i++)
        if (weight->sizes[i] == 0 || (i <= key->spatial && input->sizes[channels_at + i] == 0))
            return false;
    return !has_bias || (are_alike(input, bias) && bias->rank == 1 && bias->sizes[0] == weight->sizes[1] * key->groups);
}

static bool lay_tensors(stable_value *stack, const planned_call *call)
{
    enum { INPUT, WEIGHT, BIAS };
    const call_key *key = &call->layer.key;
    tensor_key src = with_axes(key->input, key->spatial, call->has_images);
    tensor_key weights = with_axes(key->weight, key->spatial, true), bias = key->third;
    if (!lies_in(call->is_channels_last, &src)) {
        make_dense(call->is_channels_last ? in_nhwc : in_nchw, &src);
        src = without_axes(src, key->spatial, call->has_images);
        if (!copy_to(&src, &stack[INPUT]))
            return false;
    }
    if (!is_dense(in_nchw, &weights) && !is_dense(in_nhwc, &weights) && !is_dense(in_hwoi, &weights)) {
        make_dense(seems_channels_last(&weights) ? in_nhwc : in_nchw, &weights); /* what PyTorch is passed lies alike */
        weights = without_axes(weights, key->spatial, true);
        if (!copy_to(&weights, &stack[WEIGHT]))
            return false;
    }
    if (call->layer.bias == NULL || bias.strides[0] == 1)
        return true;
    bias.strides[0] = 1;
    return copy_to(&bias, (stable_value *)(uintptr_t)stack[BIAS]);
}

/* ----------------------------------------------------------------------------------------------------------- the plan */

static void describe_layer(const planned_call *call, tconv_desc *desc)
{
    const call_key *key = &call->layer.key;
    const int64_t spatial = key->spatial, w = spatial - 1, h = spatial - 2, d = spatial - 3;
    const tensor_key src = with_axes(key->input, spatial, call->has_images);
    const tensor_key weights = with_axes(key->weight, spatial, true);
    tconv_desc_init(desc);
    desc->batch = src.sizes[0], desc->in_channels = src.sizes[1];
    desc->in_d = src.sizes[2], desc->in_h = src.sizes[3], desc->in_w = src.sizes[4];
    desc->out_channels = weights.sizes[1] * key->groups;
    desc->kernel_d = weights.sizes[2], desc->kernel_h = weights.sizes[3], desc->kernel_w = weights.sizes[4];
    if (d >= 0) {
        desc->stride_d = key->stride[d], desc->dilation_d = key->dilation[d];
        desc->pad_front = desc->pad_back = key->padding[d];
        desc->output_padding_d = key->output_padding[d];
    }
    if (h >= 0) {
        desc->stride_h = key->stride[h], desc->dilation_h = key->dilation[h];
        desc->pad_top = desc->pad_bottom = key->padding[h];
        desc->output_padding_h = key->output_padding[h];
    }
    desc->stride_w = key->stride[w], desc->dilation_w = key->dilation[w];
    desc->pad_left = desc->pad_right = key->padding[w];
    desc->output_padding_w = key->output_padding[w];
    desc->groups = key->groups;
    dtype_of(key->input.dtype, &desc->dtype);
    desc->math = (key->flags & TCONV_TORCH_TF32) != 0 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    desc->layout = call->is_channels_last ? TCONV_NHWC : TCONV_NCHW;
    desc->weight_layout = is_dense(in_nchw, &weights)   ? TCONV_WEIGHT_IOHW
                          : is_dense(in_nhwc, &weights) ? TCONV_WEIGHT_IHWO
                                                        : TCONV_WEIGHT_HWOI;
    set_strides(&src, desc);
}

/* The tensors of post-ops as the library takes them: numbers of channels in the type of sums, and an addend that has the
 * result's shape and layout. Others are replaced by copies. */
static bool lay_operands(const planned_call *call, stable_value operands)
{
    const call_key *key = &call->layer.key;
    tconv_desc desc;
    tensor_key result = key->input, numbers = key->input;
    size_t count = 0;
    describe_layer(call, &desc);
    if (torch.torch_list_size(list_of(operands), &count) != 0 || (int32_t)count != call->posts.operand_count ||
        tconv_output_shape3d(&desc, result.sizes, NULL) != TCONV_SUCCESS)
        return false;
    result.rank = TCONV_TORCH_AXES;
    make_dense(call->is_channels_last ? in_nhwc : in_nchw, &result);
    result = without_axes(result, key->spatial, call->has_images);
    numbers.rank = 1, numbers.strides[0] = 1;
    numbers.dtype = desc.dtype == TCONV_F64 ? key->input.dtype : torch.aoti_torch_dtype_float32();
    for (int32_t i = 0; i < call->posts.count; i++) {
        const tconv_post_kind kind = call->posts.steps[i].kind;
        const tensor_key *due = kind == TCONV_POST_ADD_TENSOR ? &result : &numbers;
        tensor_key is = {0};
        stable_value item = 0;
        if (call->posts.operands[i] < 0)
            continue;
        const size_t at = (size_t)call->posts.operands[i];
        numbers.sizes[0] = desc.out_channels * (kind == TCONV_POST_SNAKE ? 2 : 1);
        if (torch.torch_list_get_item(list_of(operands), at, &item) != 0 || !read_tensor(tensor_of(item), &is) ||
            is.rank != due->rank || memcmp(is.sizes, due->sizes, (size_t)is.rank * sizeof *is.sizes) != 0 ||
            is.device_type != due->device_type || is.device_index != due->device_index)
            return false;
        if (is.dtype == due->dtype && memcmp(is.strides, due->strides, (size_t)is.rank * sizeof *is.strides) == 0)
            continue;
        if (!copy_to(due, &item) || torch.torch_list_set_item(list_of(operands), at, item) != 0)
            return false;
    }
    return true;
}

bool read_call(stable_value *stack, const layer_arguments *at, stable_value text, stable_value operands,
               planned_call *made)
{
    layer_call *layer = &made->layer;
    const call_key *key = &layer->key;
    const char *characters = NULL;
    size_t length = 0;
    int64_t settings = 0;
    memset(made, 0, sizeof *made);
    if (operands != 0 &&
        (torch.torch_string_length(string_of(text), &length) != 0 ||
         torch.torch_string_c_str(string_of(text), &characters) != 0 || !parse_posts(characters, length, &made->posts)))
        return false;
    if (!read_layer(stack, at, layer) || !are_of_a_layer(key, layer->bias != NULL) ||
        !read_settings(&key->input, &settings))
        return false;
    made->has_images = key->input.rank == key->spatial + 2;
    const tensor_key src = with_axes(key->input, key->spatial, made->has_images);
    const tensor_key weights = with_axes(key->weight, key->spatial, true);
    made->is_channels_last = src.sizes[0] > 0 && may_be_channels_last(&src, key->spatial, settings) &&
                             ((key->spatial > 1 && seems_channels_last(&src)) || seems_channels_last(&weights));
    if (!lay_tensors(stack, made) || !read_layer(stack, at, layer))
        return false;
    layer->key.flags = TCONV_TORCH_OURS | (settings & ~(int64_t)TCONV_TORCH_DETERMINISTIC) |
                       (made->is_channels_last ? IS_CHANNELS_LAST : 0);
    return operands == 0 || (lay_operands(made, operands) && read_post(text, operands, layer));
}

static void describe_plan(const planned_call *call, const tconv_desc *desc, const int64_t shape[TCONV_TORCH_AXES],
                          tconv_torch_layer *made)
{
    tensor_key result = call->layer.key.input;
    const bool on_cuda = is_on_cuda(&result);
    result.rank = TCONV_TORCH_AXES;
    memcpy(result.sizes, shape, sizeof result.sizes);
    make_dense(call->is_channels_last ? in_nhwc : in_nchw, &result);
    result = without_axes(result, call->layer.key.spatial, call->has_images);
    *made = (tconv_torch_layer){
        .execute = tconv_plan_execute,
        .execute_with = tconv_plan_execute_with,
        .destroy = tconv_plan_destroy,
        .rank = result.rank,
        .dtype = (int32_t)desc->dtype,
        .location = on_cuda ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST,
        .op = TCONV_FORWARD,
        .post_count = call->posts.count,
    };
    memcpy(made->sizes, result.sizes, sizeof made->sizes);
    memcpy(made->strides, result.strides, sizeof made->strides);
    for (int32_t i = 0; i < call->posts.count; i++) {
        const bool is_addend = call->posts.steps[i].kind == TCONV_POST_ADD_TENSOR;
        made->post_operands[i] = call->posts.operands[i];
        made->post_dtypes[i] = is_addend || desc->dtype == TCONV_F64 ? (int32_t)desc->dtype : TCONV_F32;
    }
}

tconv_status plan_call(const planned_call *call, thread_state *state, tconv_issue *issue)
{
    const call_key *key = &call->layer.key;
    const bool on_cuda = is_on_cuda(&key->input);
    tconv_desc desc;
    tconv_options options;
    tconv_torch_layer made;
    int64_t shape[TCONV_TORCH_AXES];
    describe_layer(call, &desc);
    desc.post_count = call->posts.count;
    memcpy(desc.post, call->posts.steps, (size_t)call->posts.count * sizeof *desc.post);
    tconv_options_init(&options);
    options.backend = on_cuda ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;
    options.location = on_cuda ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    if (on_cuda)
        options.device = (int32_t)key->input.device_index;
    else
        options.threads = (int32_t)key->threads;
    tconv_status status = tconv_output_shape3d(&desc, shape, issue);
    if (status != TCONV_SUCCESS)
        return status;
    describe_plan(call, &desc, shape, &made);
    status = tconv_plan_create(&desc, &options, &made.plan, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_plan_workspace_size(made.plan, &made.workspace_size);
    if (on_cuda || made.workspace_size > SCRATCH_BYTES)
        made.workspace_elements = ((int64_t)made.workspace_size + size_of(desc.dtype) - 1) / size_of(desc.dtype);
    tconv_torch_plan *plan = tconv_torch_own(&made);
    if (plan == NULL) {
        tconv_plan_destroy(made.plan);
        return TCONV_ERROR_OUT_OF_MEMORY;
    }
    state->has_call = true;
    state->key = *key;
    tconv_torch_remember(plan, NULL, NULL, key->flags & TCONV_TORCH_SETTINGS, key->threads);
    state->has_call = false;
    tconv_torch_release(plan);
    return TCONV_SUCCESS;
}
