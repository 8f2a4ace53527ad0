/*
 * The gradients of a layer without Python: a kernel of aten::convolution_backward_overrideable, which the node of
 * aten::convolution_overrideable calls.
 *
 * It lies at autograd's dispatch key and computes what is known: the gradients of a layer that nothing looks on at and
 * nothing is derived from. Everything else is Python's (tconv::unplanned_gradients): gradients of gradients, tangents,
 * modes, transforms, subclasses, and what is not in the table. Modes and the like have dispatch keys below autograd:
 * tconv::is_observed is asked by way of the dispatcher, and answered with yes by its kernels there, in Python, with no
 * by the one here.
 *
 * One of the two gradients may be PyTorch's, by aten::convolution_backward.
 */
#include "torch_calls.h"

#include <string.h>

/* The arguments of aten::convolution_backward_overrideable in their order, and where those of
 * aten::convolution_backward are, which has the sizes of the bias in addition. */
enum { COTANGENT, INPUT, WEIGHT, STRIDE, PADDING, DILATION, TRANSPOSED, OUTPUT_PADDING, GROUPS, WANTED, ARGUMENTS };
enum { BIAS_SIZES = STRIDE };

static atomic_llong computed, left_to_pytorch;

/* -------------------------------------------------------------------------------------------- what is nobody else's */

bool is_observed(torch_tensor *const tensors[3])
{
    stable_value stack[3];
    for (int i = 0; i < 3; i++) {
        torch_tensor *handle = NULL;
        if (torch.aoti_torch_new_tensor_handle(tensors[tensors[i] == NULL ? 0 : i], &handle) != 0)
            return true;
        stack[i] = value_of(handle);
    }
    return torch.torch_call_dispatcher("tconv::is_observed", "", stack, INTERFACE_VERSION) != 0 ||
           (stack[0] & 0xff) != 0;
}

bool has_tangent(torch_tensor *tensor)
{
    torch_tensor *handle = NULL;
    bool defined = true;
    /* without a level there is no tangent, which is the answer of nearly all calls */
    if (tensor == NULL || (torch.has_any_level != NULL && !torch.has_any_level()))
        return false;
    if (torch.aoti_torch_new_tensor_handle(tensor, &handle) != 0)
        return true;
    stable_value stack[] = {value_of(handle), 0 /* the level */};
    if (torch.torch_call_dispatcher("aten::_unpack_dual", "", stack, INTERFACE_VERSION) != 0)
        return true;
    if (torch.aoti_torch_is_defined(tensor_of(stack[1]), &defined) != 0)
        defined = true;
    delete_tensor(tensor_of(stack[0]));
    delete_tensor(tensor_of(stack[1]));
    return defined;
}

/* tconv::is_observed where nothing looks on. */
static void not_observed(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)results;
    for (uint64_t i = 0; i < arguments; i++)
        delete_tensor(tensor_of(stack[i]));
    stack[0] = 0;
}

/* ----------------------------------------------------------------------------------------------------------- a call */

bool read_wanted(stable_value value, int first, int count, backward *made)
{
    for (int i = first; i < first + count; i++) {
        stable_value item = 0;
        if (torch.torch_list_get_item(list_of(value), (size_t)(i - first), &item) != 0)
            return false;
        made->wanted[i] = (item & 0xff) != 0;
        made->key.flags |= (int64_t)made->wanted[i] << (WANTED_SHIFT + i);
    }
    return true;
}

/* Reads a call. Returns false for one that the table does not hold. The tensors stay the stack's. */
static bool read_backward(const stable_value *stack, backward *made)
{
    call_key *key = &made->key;
    int64_t settings = 0;
    memset(made, 0, sizeof *made);
    made->cotangent = tensor_of(stack[COTANGENT]);
    made->input = tensor_of(stack[INPUT]);
    made->weight = tensor_of(stack[WEIGHT]);
    torch_tensor *const tensors[] = {made->cotangent, made->input, made->weight};
    if (torch.aoti_torch_grad_mode_is_enabled() || (stack[TRANSPOSED] & 0xff) == 0 || is_observed(tensors) ||
        has_tangent(made->cotangent) || has_tangent(made->input) || has_tangent(made->weight) ||
        !read_tensor(made->input, &key->input) || !read_tensor(made->weight, &key->weight) ||
        !read_tensor(made->cotangent, &key->third) || !read_settings(&key->third, &settings) ||
        !read_threads(&key->third, &key->threads))
        return false;
    key->groups = (int64_t)stack[GROUPS];
    key->flags = IS_BACKWARD | settings;
    return read_spatial(key->weight.rank, key) && read_list(stack[STRIDE], key->spatial, key->stride) &&
           read_list(stack[PADDING], key->spatial, key->padding) &&
           read_list(stack[DILATION], key->spatial, key->dilation) && read_wanted(stack[WANTED], 0, GRADIENTS, made);
}

/* Returns the operand of a plan: the tensor, or where it is read in other strides a copy, which *copy owns then. NULL
 * where there is no memory. */
static torch_tensor *operand(torch_tensor *tensor, const tensor_key *key, const int64_t strides[TCONV_TORCH_AXES],
                             torch_tensor **copy)
{
    if (tensor == NULL || strides[0] == 0)
        return tensor;
    *copy = make_tensor(key, key->rank, key->sizes, strides);
    return *copy != NULL && torch.aoti_torch_copy_(*copy, tensor, 0) == 0 ? *copy : NULL;
}

/* Executes the plan of a gradient on copies of what it does not read as it lies. For the gradient of the bias alone the
 * input is not read. */
static bool execute_gradient(const tconv_torch_plan *planned, const backward *made, bool of_input,
                             torch_tensor *const results[GRADIENTS], thread_state *state)
{
    const tensor_key *like = &made->key.third;
    torch_tensor *const given = of_input ? made->weight : made->wanted[OF_WEIGHT] ? made->input : NULL;
    torch_tensor *copies[2] = {NULL, NULL};
    torch_tensor *cotangent = operand(made->cotangent, like, planned->is.copies[0], &copies[0]);
    torch_tensor *other =
        operand(given, of_input ? &made->key.weight : &made->key.input, planned->is.copies[1], &copies[1]);
    bool done = cotangent != NULL && (other != NULL) == (given != NULL);
    if (done) {
        torch_tensor *const of_src[] = {results[OF_INPUT], other, NULL, cotangent};
        torch_tensor *const of_weights[] = {other, results[OF_WEIGHT], results[OF_BIAS], cotangent};
        done = execute(planned, like, of_input ? of_src : of_weights, NULL, state);
    }
    delete_tensor(copies[0]);
    delete_tensor(copies[1]);
    return done;
}

/* Executes the plans of an entry on a gradient of the output that both read. */
static bool execute_plans(const entry *found, const backward *made, torch_tensor *results[GRADIENTS],
                          thread_state *state)
{
    const tensor_key *like = &made->key.third;
    const int64_t one = 1;
    if (found->plans[0] != NULL) {
        results[OF_INPUT] = make_result(like, found->plans[0]);
        if (results[OF_INPUT] == NULL || !execute_gradient(found->plans[0], made, true, results, state))
            return false;
    }
    if (found->plans[1] == NULL)
        return true;
    if (made->wanted[OF_WEIGHT])
        results[OF_WEIGHT] = make_result(like, found->plans[1]);
    if (made->wanted[OF_BIAS])
        results[OF_BIAS] = make_tensor(like, 1, &like->sizes[1], &one);
    return (results[OF_WEIGHT] != NULL) == made->wanted[OF_WEIGHT] &&
           (results[OF_BIAS] != NULL) == made->wanted[OF_BIAS] &&
           execute_gradient(found->plans[1], made, false, results, state);
}

bool compute_gradients(const entry *found, const backward *made, torch_tensor *results[GRADIENTS], thread_state *state)
{
    torch_tensor *copy = NULL;
    backward of_copy = *made;
    of_copy.cotangent = operand(made->cotangent, &made->key.third, found->copy, &copy);
    const bool done = of_copy.cotangent != NULL && execute_plans(found, &of_copy, results, state);
    delete_tensor(copy);
    return done;
}

static void release_arguments(const stable_value *stack)
{
    static const int lists[] = {STRIDE, PADDING, DILATION, OUTPUT_PADDING, WANTED};
    for (int i = COTANGENT; i <= WEIGHT; i++)
        delete_tensor(tensor_of(stack[i]));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        torch.torch_delete_list(list_of(stack[lists[i]]));
}

/* Returns a copy of a list; NULL where there is no memory. */
static torch_list *copy_list(torch_list *list)
{
    torch_list *copy = NULL;
    size_t size = 0;
    if (torch.torch_list_size(list, &size) != 0 || torch.torch_new_list_reserve_size(size, &copy) != 0)
        return NULL;
    for (size_t i = 0; i < size; i++) {
        stable_value item = 0;
        if (torch.torch_list_get_item(list, i, &item) != 0 || torch.torch_list_push_back(copy, item) != 0) {
            torch.torch_delete_list(copy);
            return NULL;
        }
    }
    return copy;
}

/* Has PyTorch compute the gradients that are not there. Returns false, with results as they were, where it could
 * not. */
static bool complete(const stable_value *stack, const backward *made, torch_tensor *results[GRADIENTS])
{
    static const int lists[] = {STRIDE, PADDING, DILATION, OUTPUT_PADDING, WANTED};
    stable_value arguments[ARGUMENTS + 1];
    torch_list *sizes = NULL;
    memcpy(arguments, stack, BIAS_SIZES * sizeof *stack);
    memcpy(arguments + BIAS_SIZES + 1, stack + BIAS_SIZES, (ARGUMENTS - BIAS_SIZES) * sizeof *stack);
    arguments[BIAS_SIZES] = 0;
    for (int i = COTANGENT; i <= WEIGHT; i++) {
        torch_tensor *handle = NULL;
        if (torch.aoti_torch_new_tensor_handle(tensor_of(stack[i]), &handle) != 0)
            return false;
        arguments[i] = value_of(handle);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        torch_list *copy = copy_list(list_of(stack[lists[i]]));
        if (copy == NULL)
            return false;
        arguments[lists[i] + 1] = value_of(copy);
    }
    for (int i = 0; i < GRADIENTS; i++)
        if (torch.torch_list_set_item(list_of(arguments[WANTED + 1]), (size_t)i,
                                      made->wanted[i] && results[i] == NULL) != 0)
            return false;
    if (made->wanted[OF_BIAS] && results[OF_BIAS] == NULL) {
        if (torch.torch_new_list_reserve_size(1, &sizes) != 0 ||
            torch.torch_list_push_back(sizes, (stable_value)made->key.third.sizes[1]) != 0)
            return false;
        stable_value *optional = new_optional(value_of(sizes));
        if (optional == NULL)
            return false;
        arguments[BIAS_SIZES] = value_of(optional);
    }
    if (torch.torch_call_dispatcher("aten::convolution_backward", "", arguments, INTERFACE_VERSION) != 0)
        return false;
    for (int i = 0; i < GRADIENTS; i++) {
        if (results[i] == NULL)
            results[i] = tensor_of(arguments[i]);
        else
            delete_tensor(tensor_of(arguments[i]));
    }
    return true;
}

void count_gradients(int ours, int pytorchs)
{
    atomic_fetch_add_explicit(&computed, ours, memory_order_relaxed);
    atomic_fetch_add_explicit(&left_to_pytorch, pytorchs, memory_order_relaxed);
}

/* Computes all that is wanted by what the table holds of the call. Returns false where it could not. */
static bool compute_known(const stable_value *stack, const backward *made, torch_tensor *results[GRADIENTS],
                          thread_state *state)
{
    entry *found = find(&made->key);
    if (found == NULL)
        return false;
    bool done = compute_gradients(found, made, results, state);
    release(found);
    const int ours = (results[OF_INPUT] != NULL) + (results[OF_WEIGHT] != NULL || results[OF_BIAS] != NULL);
    const int wanted = made->wanted[OF_INPUT] + (made->wanted[OF_WEIGHT] || made->wanted[OF_BIAS]);
    done = done && (ours == wanted || complete(stack, made, results));
    for (int i = 0; i < GRADIENTS; i++) {
        if (done && results[i] == NULL) {
            torch.aoti_torch_new_uninitialized_tensor(&results[i]);
        } else if (!done) {
            delete_tensor(results[i]);
            results[i] = NULL;
        }
    }
    if (done)
        count_gradients(ours, wanted - ours);
    return done;
}

/* aten::convolution_backward_overrideable at autograd's key. */
static void convolution_backward(stable_value *stack, uint64_t arguments, uint64_t result_count)
{
    (void)arguments, (void)result_count;
    backward made;
    torch_tensor *results[GRADIENTS] = {NULL, NULL, NULL};
    thread_state *state = begin(make_state());
    const bool is_read = state != NULL && read_backward(stack, &made);
    if (is_read && compute_known(stack, &made, results, state)) {
        release_arguments(stack);
        for (int i = 0; i < GRADIENTS; i++)
            stack[i] = value_of(results[i]);
        return;
    }
    serve("tconv::unplanned_gradients", stack, is_read ? &made.key : NULL, state);
}

/* ------------------------------------------------------------------------------------------- what the package calls */

static const struct kernel kernels[] = {
    {"tconv", "CPU", "is_observed", not_observed},
    {"tconv", "CUDA", "is_observed", not_observed},
    {"aten", "AutogradCPU", "convolution_backward_overrideable", convolution_backward},
    {"aten", "AutogradCUDA", "convolution_backward_overrideable", convolution_backward},
};
#define KERNELS (sizeof kernels / sizeof *kernels)

static torch_library *installed[KERNELS];

void tconv_torch_uninstall_gradients(void)
{
    uninstall(KERNELS, installed);
}

int tconv_torch_install_gradients(void)
{
    return install(KERNELS, kernels, installed);
}

int64_t tconv_torch_gradients(void)
{
    return atomic_load(&computed);
}

int64_t tconv_torch_left(void)
{
    return atomic_load(&left_to_pytorch);
}
