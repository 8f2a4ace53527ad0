/*
 * tconv inside of PyTorch without Python: a kernel of aten::convolution looks up a planned layer and executes it.
 *
 * torch.conv_transpose1d, conv_transpose2d and conv_transpose3d end in aten::convolution. The package
 * (tconv/torch/_eager.py) calls them with a dispatch key included that leads to a kernel here in place of PyTorch's. A
 * layer that is in the table is executed; for any other this calls the operator tconv::unplanned, in Python, which
 * plans, computes, and puts the layer into the table for the next time. Where gradients are wanted the kernel lies above
 * autograd and calls aten::convolution_overrideable, which has a node of PyTorch's but no kernel of its.
 * torch_gradients.c has what that node calls.
 *
 * Functions here return 0 or -1; only errors of convolutions that are not the package's are thrown.
 */
#include "torch_calls.h"

#include <string.h>

/* -------------------------------------------------------------------------------------------------------- executing */

torch_tensor *make_tensor(const tensor_key *like, int64_t rank, const int64_t *sizes, const int64_t *strides)
{
    torch_tensor *made = NULL;
    return torch.aoti_torch_empty_strided(rank, sizes, strides, (int32_t)like->dtype, (int32_t)like->device_type,
                                          (int32_t)like->device_index, &made) == 0
               ? made
               : NULL;
}

torch_tensor *make_result(const tensor_key *like, const tconv_torch_plan *planned)
{
    return make_tensor(like, planned->is.rank, planned->is.sizes, planned->is.strides);
}

void delete_tensor(torch_tensor *tensor)
{
    if (tensor != NULL)
        torch.aoti_torch_delete_tensor_object(tensor);
}

torch_tensor *optional_tensor(stable_value value)
{
    bool defined = false; /* PyTorch passes undefined tensors, too */
    torch_tensor *tensor = value == 0 ? NULL : *(torch_tensor **)(uintptr_t)value;
    return tensor != NULL && torch.aoti_torch_is_defined(tensor, &defined) == 0 && defined ? tensor : NULL;
}

void delete_optional_tensor(stable_value value)
{
    stable_value *optional = (stable_value *)(uintptr_t)value;
    if (optional == NULL)
        return;
    delete_tensor(tensor_of(*optional));
    delete_optional(optional);
}

/* The tensors of a call as the library takes them. */
typedef struct described_call {
    tconv_tensor tensors[4], post[TCONV_MAX_POST_OPS];
    tconv_operands given;
} described_call;

bool describe(torch_tensor *tensor, int32_t dtype, int32_t location, tconv_tensor *made, const tconv_tensor **given)
{
    *given = tensor == NULL ? NULL : made;
    *made = (tconv_tensor){NULL, (tconv_dtype)dtype, (tconv_location)location};
    return tensor == NULL || torch.aoti_torch_get_data_ptr(tensor, &made->data) == 0;
}

static bool describe_call(const tconv_torch_layer *is, torch_tensor *const tensors[4], torch_tensor *const *operands,
                          described_call *made)
{
    tconv_operands *given = &made->given;
    const tconv_tensor **const targets[4] = {&given->src, &given->weights, &given->bias, &given->dst};
    *given = (tconv_operands){.struct_size = sizeof *given};
    for (int i = 0; i < 4; i++)
        if (!describe(tensors[i], is->dtype, is->location, &made->tensors[i], targets[i]))
            return false;
    for (int i = 0; i < is->post_count; i++)
        if (is->post_operands[i] >= 0 && !describe(operands[is->post_operands[i]], is->post_dtypes[i], is->location,
                                                   &made->post[i], &given->post[i]))
            return false;
    return true;
}

bool take_scratch(const tconv_torch_layer *is, const tensor_key *like, thread_state *state, scratch_memory *taken)
{
    const int64_t one = 1;
    *taken = (scratch_memory){state->scratch, NULL, NULL};
    if (is->location == TCONV_LOCATION_CUDA &&
        (torch.aoti_torch_get_current_cuda_stream == NULL ||
         torch.aoti_torch_get_current_cuda_stream((int32_t)like->device_index, &taken->stream) != 0))
        return false;
    if (is->workspace_elements == 0)
        return true;
    taken->owner = make_tensor(like, 1, &is->workspace_elements, &one);
    if (taken->owner != NULL && torch.aoti_torch_get_data_ptr(taken->owner, &taken->workspace) == 0)
        return true;
    delete_tensor(taken->owner);
    return false;
}

bool execute(const tconv_torch_plan *planned, const tensor_key *like, torch_tensor *const tensors[4],
             torch_tensor *const *operands, thread_state *state)
{
    const tconv_torch_layer *is = &planned->is;
    described_call call;
    scratch_memory memory;
    if (!describe_call(is, tensors, operands, &call) || !take_scratch(is, like, state, &memory))
        return false;
    const tconv_operands *given = &call.given;
    const tconv_status status =
        is->post_count > 0 ? is->execute_with(is->plan, given, memory.workspace, is->workspace_size, memory.stream)
                           : is->execute(is->plan, given->src, given->weights, given->bias, given->dst,
                                         memory.workspace, is->workspace_size, memory.stream);
    delete_tensor(memory.owner);
    return status == TCONV_SUCCESS;
}

/* ---------------------------------------------------------------------------------------------------------- a layer */

static tconv_torch_settings *get_settings;
static atomic_llong taken, fused;

/* The arguments of aten::convolution in their order. */
enum { INPUT, WEIGHT, BIAS, STRIDE, PADDING, DILATION, TRANSPOSED, OUTPUT_PADDING, GROUPS };
static const layer_arguments of_convolution = {STRIDE, PADDING, DILATION, OUTPUT_PADDING, GROUPS};

int64_t settings_that_count(int64_t flags, const tensor_key *like)
{
    const int64_t tf32 = like->dtype == torch.aoti_torch_dtype_float32() ? 0 : TCONV_TORCH_TF32;
    return flags & TCONV_TORCH_SETTINGS & ~tf32;
}

static bool is_on_cuda(const tensor_key *like)
{
    return like->device_type == torch.aoti_torch_device_type_cuda();
}

int64_t tconv_torch_read_settings(bool of_float32)
{
    if (torch.global_context == NULL || torch.user_enabled_cudnn == NULL || torch.deterministic_algorithms == NULL ||
        (of_float32 && torch.float32_precision == NULL))
        return get_settings(); /* Python, whose lock the engine's thread waits for */
    const void *context = torch.global_context();
    const bool tf32 =
        of_float32 && torch.float32_precision(context, FLOAT32_BACKEND_CUDA, FLOAT32_OP_CONV) == FLOAT32_PRECISION_TF32;
    return TCONV_TORCH_OURS | (tf32 ? TCONV_TORCH_TF32 : 0) |
           (torch.user_enabled_cudnn(context) ? TCONV_TORCH_CUDNN : 0) |
           (torch.deterministic_algorithms(context) ? TCONV_TORCH_DETERMINISTIC : 0);
}

bool read_settings(const tensor_key *like, int64_t *settings)
{
    *settings = 0;
    if (!is_on_cuda(like))
        return true;
    const int64_t flags = tconv_torch_read_settings(like->dtype == torch.aoti_torch_dtype_float32());
    *settings = settings_that_count(flags, like);
    return flags != 0;
}

bool read_threads(const tensor_key *like, int64_t *threads)
{
    uint32_t number = 0;
    if (!is_on_cuda(like) && torch.torch_get_num_threads(&number) != 0)
        return false;
    *threads = number;
    return true;
}

bool read_layer(const stable_value *stack, const layer_arguments *at, layer_call *made)
{
    call_key *key = &made->key;
    memset(made, 0, sizeof *made);
    made->input = tensor_of(stack[INPUT]);
    made->weight = tensor_of(stack[WEIGHT]);
    made->bias = optional_tensor(stack[BIAS]);
    if (!read_tensor(made->input, &key->input) || !read_tensor(made->weight, &key->weight) ||
        (made->bias != NULL && !read_tensor(made->bias, &key->third)))
        return false;
    key->groups = (int64_t)stack[at->groups];
    return read_threads(&key->input, &key->threads) && read_spatial(key->weight.rank, key) &&
           read_list(stack[at->stride], key->spatial, key->stride) &&
           read_list(stack[at->padding], key->spatial, key->padding) &&
           read_list(stack[at->dilation], key->spatial, key->dilation) &&
           read_list(stack[at->output_padding], key->spatial, key->output_padding);
}

void release_layer(const stable_value *stack, const layer_arguments *at)
{
    const int lists[] = {at->stride, at->padding, at->dilation, at->output_padding};
    delete_tensor(tensor_of(stack[INPUT]));
    delete_tensor(tensor_of(stack[WEIGHT]));
    delete_optional_tensor(stack[BIAS]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        torch.torch_delete_list(list_of(stack[lists[i]]));
}

void count_taken(void)
{
    atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
}

torch_tensor *compute_layer(const layer_call *made, thread_state *state)
{
    entry *found = find(&made->key);
    if (found == NULL)
        return NULL;
    torch_tensor *result = make_result(&made->key.input, found->plans[0]);
    torch_tensor *const tensors[] = {made->input, made->weight, made->bias, result};
    if (result != NULL && !execute(found->plans[0], &made->key.input, tensors, made->operands, state)) {
        delete_tensor(result);
        result = NULL;
    }
    release(found);
    if (result != NULL)
        count_taken();
    if (result != NULL && made->key.post_words != 0)
        atomic_fetch_add_explicit(&fused, 1, memory_order_relaxed);
    return result;
}

/* Computes the package's call by its layer in the table, or has Python compute it. */
static void compute(stable_value *stack, thread_state *state)
{
    layer_call made;
    const bool is_read = read_layer(stack, &of_convolution, &made) && (stack[TRANSPOSED] & 0xff) != 0;
    made.key.flags = TCONV_TORCH_OURS | settings_that_count(state->flags, &made.key.input);
    state->flags = 0;
    torch_tensor *result = is_read ? compute_layer(&made, state) : NULL;
    if (result != NULL) {
        release_layer(stack, &of_convolution);
        stack[0] = value_of(result);
        return;
    }
    serve("tconv::unplanned", stack, is_read ? &made.key : NULL, state);
}

thread_state *begin(thread_state *state)
{
    if (state != NULL)
        state->has_call = false;
    return state;
}

void serve(const char *name, stable_value *stack, const call_key *key, thread_state *state)
{
    char error[sizeof state->error] = "";
    if (state != NULL) {
        state->error[0] = '\0';
        state->has_call = key != NULL;
        if (key != NULL)
            state->key = *key;
    }
    const bool failed = torch.torch_call_dispatcher(name, "", stack, INTERFACE_VERSION) != 0;
    if (state != NULL) {
        state->has_call = false; /* also before an error is thrown */
        memcpy(error, state->error, sizeof error);
        state->error[0] = '\0';
    }
    if (failed && error[0] != '\0')
        torch.aoti_torch_check(false, name, __FILE__, __LINE__, error);
    if (failed)
        throw_error_of(name);
}

/* The kernels. Each is also called without the package. */

static bool is_ours(const thread_state *state)
{
    return state != NULL && state->flags != 0;
}

/* aten::convolution below autograd: without the package, of views of complex tensors, which have the dispatch key
 * themselves. */
static void convolution(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    thread_state *state = begin(get_state());
    if (is_ours(state))
        compute(stack, state);
    else
        call_operator("tconv::negated", stack);
}

/* Gives a list of one number for all axes one for each, as the node's own lists are to be. */
static void fill_list(stable_value value, int64_t spatial)
{
    torch_list *list = list_of(value);
    size_t size = 0;
    stable_value number = 0;
    if (torch.torch_list_size(list, &size) != 0 || size != 1 || torch.torch_list_get_item(list, 0, &number) != 0)
        return;
    for (int64_t i = 1; i < spatial; i++)
        torch.torch_list_push_back(list, number);
}

/* aten::convolution above autograd. */
static void convolution_with_graph(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    int64_t rank = 0;
    if (!is_ours(begin(get_state()))) {
        call_operator("tconv::foreign", stack);
        return;
    }
    if (torch.aoti_torch_get_dim(tensor_of(stack[WEIGHT]), &rank) == 0) {
        const int lists[] = {STRIDE, PADDING, DILATION, OUTPUT_PADDING};
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
            fill_list(stack[lists[i]], rank - 2);
    }
    call_operator("aten::convolution_overrideable", stack);
}

/* aten::convolution_overrideable below autograd. */
static void convolution_overrideable(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    thread_state *state = begin(get_state());
    if (is_ours(state))
        compute(stack, state);
    else
        call_operator("tconv::foreign", stack);
}

/* ------------------------------------------------------------------------------------------- what the package calls */

static const struct kernel kernels[] = {
    {"aten", "Negative", "convolution", convolution},
    {"aten", "AutogradNestedTensor", "convolution", convolution_with_graph},
    {"aten", "CPU", "convolution_overrideable", convolution_overrideable},
    {"aten", "CUDA", "convolution_overrideable", convolution_overrideable},
};
#define KERNELS (sizeof kernels / sizeof *kernels)

static torch_library *installed[KERNELS];

void uninstall(size_t count, torch_library **libraries)
{
    for (size_t i = 0; i < count; i++) {
        if (libraries[i] != NULL)
            torch.aoti_torch_delete_library_object(libraries[i]);
        libraries[i] = NULL;
    }
}

int install(size_t count, const struct kernel *made, torch_library **libraries)
{
    for (size_t i = 0; i < count; i++)
        if (torch.aoti_torch_library_init_impl(made[i].library, made[i].dispatch_key, __FILE__, __LINE__,
                                               &libraries[i]) != 0 ||
            torch.torch_library_impl(libraries[i], made[i].name, made[i].function, INTERFACE_VERSION) != 0) {
            uninstall(count, libraries);
            return -1;
        }
    return 0;
}

void tconv_torch_uninstall(void)
{
    uninstall(KERNELS, installed);
}

int prepare(tconv_torch_settings *settings)
{
    get_settings = settings;
    return look_up_functions() ? make_states() : -1;
}

int tconv_torch_install(tconv_torch_settings *settings)
{
    return prepare(settings) == 0 ? install(KERNELS, kernels, installed) : -1;
}

int64_t *tconv_torch_flags(void)
{
    thread_state *state = make_state();
    return state == NULL ? NULL : &state->flags;
}

int64_t tconv_torch_taken(void)
{
    return atomic_load(&taken);
}

int64_t tconv_torch_fused(void)
{
    return atomic_load(&fused);
}
