/*
 * The package's own operators without Python, which compiled programs call: kernels of tconv::conv_transpose2d,
 * tconv::conv_transpose2d_post, tconv::conv_transpose2d_backward_data and tconv::conv_transpose2d_backward_weights, of
 * those of 1-D and 3-D layers, and of tconv::conv_transpose1d_step.
 *
 * Each operator has a kernel at autograd's dispatch key and one below. Both compute what the table holds; the first one
 * where nothing is derived from and nothing looks on, which is how compiled programs run. Everything else is Python's,
 * by two operators with the same arguments, whose names end in _at_autograd and _below_autograd.
 */
#include "torch_calls.h"

#include <stdio.h>
#include <string.h>

/* The arguments in their order: of a layer, with post-ops or without, and of both gradients, which differ in the last ones. */
enum { INPUT, WEIGHT, BIAS, STRIDE, PADDING, OUTPUT_PADDING, GROUPS, DILATION, POST, OPERANDS };
static const layer_arguments of_layer = {STRIDE, PADDING, DILATION, OUTPUT_PADDING, GROUPS};
enum { FIRST, SECOND, G_SIZES, G_STRIDE, G_PADDING, G_GROUPS, G_DILATION, G_REST };

typedef outcome computation(stable_value *stack, thread_state *state, call_key *key);

static outcome compute_layer_of(stable_value *stack, bool has_post, thread_state *state, call_key *key)
{
    layer_call made;
    int64_t settings = 0;
    if (!read_layer(stack, &of_layer, &made) || !read_settings(&made.key.input, &settings) ||
        (has_post && !read_post(stack[POST], stack[OPERANDS], &made)))
        return UNREAD;
    made.key.flags = TCONV_TORCH_OURS | (settings & ~(int64_t)TCONV_TORCH_DETERMINISTIC);
    *key = made.key;
    torch_tensor *result = compute_layer(&made, state);
    if (result == NULL)
        return READ;
    release_layer(stack, &of_layer);
    if (has_post)
        release_post(stack[POST], stack[OPERANDS]);
    stack[0] = value_of(result);
    return DONE;
}

static outcome compute_forward(stable_value *stack, thread_state *state, call_key *key)
{
    return compute_layer_of(stack, false, state, key);
}

static outcome compute_post(stable_value *stack, thread_state *state, call_key *key)
{
    return compute_layer_of(stack, true, state, key);
}

/* Reads what both gradients have. */
static bool read_gradient(const stable_value *stack, stable_value channels_last, backward *made)
{
    call_key *key = &made->key;
    int64_t settings = 0;
    if (!read_tensor(made->cotangent, &key->third) || !read_settings(&key->third, &settings) ||
        !read_threads(&key->third, &key->threads))
        return false;
    key->groups = (int64_t)stack[G_GROUPS];
    key->flags |= IS_GRADIENT_OPERATOR | settings;
    if ((channels_last & 0xff) != 0)
        key->flags |= IS_CHANNELS_LAST;
    return read_spatial(key->third.rank, key) && read_list(stack[G_SIZES], key->spatial, key->output_padding) &&
           read_list(stack[G_STRIDE], key->spatial, key->stride) &&
           read_list(stack[G_PADDING], key->spatial, key->padding) &&
           read_list(stack[G_DILATION], key->spatial, key->dilation);
}

/* Computes a gradient by its plan in the table. Returns false, without results, where it could not. */
static bool compute_planned(const backward *made, torch_tensor *results[GRADIENTS], thread_state *state)
{
    entry *found = find(&made->key);
    if (found == NULL)
        return false;
    const bool done = compute_gradients(found, made, results, state);
    release(found);
    for (int i = 0; i < GRADIENTS && !done; i++)
        delete_tensor(results[i]);
    if (done)
        count_gradients(1, 0);
    return done;
}

static void release_lists(const stable_value *stack)
{
    static const int lists[] = {G_SIZES, G_STRIDE, G_PADDING, G_DILATION};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        torch.torch_delete_list(list_of(stack[lists[i]]));
}

static outcome compute_data(stable_value *stack, thread_state *state, call_key *key)
{
    torch_tensor *results[GRADIENTS] = {NULL, NULL, NULL};
    backward made;
    memset(&made, 0, sizeof made);
    made.cotangent = tensor_of(stack[FIRST]);
    made.weight = tensor_of(stack[SECOND]);
    made.wanted[OF_INPUT] = true;
    made.key.flags = (int64_t)1 << (WANTED_SHIFT + OF_INPUT);
    if (!read_tensor(made.weight, &made.key.weight) || !read_gradient(stack, stack[G_REST], &made))
        return UNREAD;
    *key = made.key;
    if (!compute_planned(&made, results, state))
        return READ;
    delete_tensor(made.cotangent);
    delete_tensor(made.weight);
    release_lists(stack);
    stack[0] = value_of(results[OF_INPUT]);
    return DONE;
}

/* Those of the weight and the bias. One that is not wanted has no elements. */
static outcome compute_weights(stable_value *stack, thread_state *state, call_key *key)
{
    static const int64_t none = 0, one = 1;
    torch_tensor *results[GRADIENTS] = {NULL, NULL, NULL};
    backward made;
    memset(&made, 0, sizeof made);
    made.input = optional_tensor(stack[FIRST]);
    made.cotangent = tensor_of(stack[SECOND]);
    if (!read_wanted(stack[G_REST], OF_WEIGHT, 2, &made) || (made.wanted[OF_WEIGHT] && made.input == NULL) ||
        (made.input != NULL && !read_tensor(made.input, &made.key.input)) ||
        !read_gradient(stack, stack[G_REST + 1], &made))
        return UNREAD;
    *key = made.key;
    if (!compute_planned(&made, results, state))
        return READ;
    for (int i = OF_WEIGHT; i < GRADIENTS; i++)
        if (results[i] == NULL)
            results[i] = make_tensor(&made.key.third, 1, &none, &one);
    if (results[OF_WEIGHT] == NULL || results[OF_BIAS] == NULL) {
        delete_tensor(results[OF_WEIGHT]);
        delete_tensor(results[OF_BIAS]);
        return READ;
    }
    delete_optional_tensor(stack[FIRST]);
    delete_tensor(made.cotangent);
    release_lists(stack);
    torch.torch_delete_list(list_of(stack[G_REST]));
    stack[0] = value_of(results[OF_WEIGHT]);
    stack[1] = value_of(results[OF_BIAS]);
    return DONE;
}

/* --------------------------------------------------------------------------------------------------------- a kernel */

/* Whether nothing looks on at these tensors, and none has a tangent. The last ones may be NULL. */
static bool are_plain(torch_tensor *const tensors[3])
{
    return !is_observed(tensors) && !has_tangent(tensors[0]) && !has_tangent(tensors[1]) && !has_tangent(tensors[2]);
}

/* Whether that holds of these tensors and those of a list, which may be NULL. They are asked about by threes. */
static bool are_all_plain(torch_tensor *const tensors[3], torch_list *more)
{
    torch_tensor *group[3] = {NULL, NULL, NULL};
    size_t filled = 0, count = 0;
    if (more != NULL && torch.torch_list_size(more, &count) != 0)
        return false;
    for (size_t i = 0; i < 3 + count; i++) {
        stable_value item = i < 3 ? value_of(tensors[i]) : 0;
        if (i >= 3 && torch.torch_list_get_item(more, i - 3, &item) != 0)
            return false;
        if (item == 0)
            continue;
        if (filled == 3) {
            if (!are_plain(group))
                return false;
            group[1] = group[2] = NULL;
            filled = 0;
        }
        group[filled++] = tensor_of(item);
    }
    return are_plain(group);
}

/* Whether a call at autograd's key may be computed there: nothing looks on, nothing is derived from. */
static bool is_plain(torch_tensor *const tensors[3], torch_list *more)
{
    return !torch.aoti_torch_grad_mode_is_enabled() && are_all_plain(tensors, more);
}

/* Has Python serve a call of the operator with this computation. */
static void serve_operator(computation *by_table, const char *name, stable_value *stack, const call_key *key,
                           thread_state *state)
{
    if (by_table == compute_post)
        stack[POST] = bytes_of(stack[POST]);
    serve(name, stack, key, state);
}

/* Computes a call of an operator, or has Python compute it: at_autograd, NULL for a call below autograd, where the call is
 * not plain. */
static void compute(computation *by_table, stable_value *stack, bool plain, const char *at_autograd,
                    const char *below_autograd)
{
    thread_state *state = begin(make_state());
    call_key key;
    if (!plain) {
        serve_operator(by_table, at_autograd, stack, NULL, state);
        return;
    }
    const outcome how = state == NULL ? UNREAD : by_table(stack, state, &key);
    if (how != DONE)
        serve_operator(by_table, below_autograd, stack, how == READ ? &key : NULL, state);
}

/* The kernels of an operator, whose tensors are at first, second and optional, NULL where it is missing, and in a list,
 * NULL for none. */
#define OPERATOR(name, by_table, first, second, optional, more)                                                        \
    static void name##_below(stable_value *stack, uint64_t arguments, uint64_t results)                                \
    {                                                                                                                  \
        (void)arguments, (void)results;                                                                                \
        compute(by_table, stack, true, NULL, "tconv::" #name "_below_autograd");                                       \
    }                                                                                                                  \
    static void name##_at(stable_value *stack, uint64_t arguments, uint64_t results)                                   \
    {                                                                                                                  \
        (void)arguments, (void)results;                                                                                \
        torch_tensor *const tensors[] = {tensor_of(stack[first]), second, optional};                                   \
        compute(by_table, stack, is_plain(tensors, more), "tconv::" #name "_at_autograd",                              \
                "tconv::" #name "_below_autograd");                                                                    \
    }
#define OPERATORS(spatial)                                                                                             \
    OPERATOR(conv_transpose##spatial##d, compute_forward, INPUT, tensor_of(stack[WEIGHT]),                             \
             optional_tensor(stack[BIAS]), NULL)                                                                       \
    OPERATOR(conv_transpose##spatial##d_post, compute_post, INPUT, tensor_of(stack[WEIGHT]),                           \
             optional_tensor(stack[BIAS]), list_of(stack[OPERANDS]))                                                   \
    OPERATOR(conv_transpose##spatial##d_backward_data, compute_data, FIRST, tensor_of(stack[SECOND]), NULL, NULL)      \
    OPERATOR(conv_transpose##spatial##d_backward_weights, compute_weights, SECOND, NULL,                               \
             optional_tensor(stack[FIRST]), NULL)
OPERATORS(1)
OPERATORS(2)
OPERATORS(3)

/* The kernels of a step, whose other tensors are the state and, after three numbers, slots, reset and active. */
enum { STEP_STATE = BIAS + 1, STEP_SLOTS = STEP_STATE + 4, STEP_RESET, STEP_ACTIVE };

static void conv_transpose1d_step_below(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    compute(compute_step_of, stack, true, NULL, "tconv::conv_transpose1d_step_below_autograd");
}

static void conv_transpose1d_step_at(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    torch_tensor *const tensors[] = {tensor_of(stack[INPUT]), tensor_of(stack[WEIGHT]), tensor_of(stack[STEP_STATE])};
    static const int optional[] = {BIAS, STEP_SLOTS, STEP_RESET, STEP_ACTIVE};
    bool plain = is_plain(tensors, NULL);
    for (size_t i = 0; plain && i < sizeof optional / sizeof optional[0]; i++) {
        torch_tensor *const one[] = {optional_tensor(stack[optional[i]]), NULL, NULL};
        plain = one[0] == NULL || are_plain(one);
    }
    compute(compute_step_of, stack, plain, "tconv::conv_transpose1d_step_at_autograd",
            "tconv::conv_transpose1d_step_below_autograd");
}

/* ------------------------------------------------------------------------------------------- what the package calls */

#define KERNELS_OF(name)                                                                                               \
    {"tconv", "CPU", #name, name##_below}, {"tconv", "CUDA", #name, name##_below},                                     \
        {"tconv", "AutogradCPU", #name, name##_at},                                                                    \
    {                                                                                                                  \
        "tconv", "AutogradCUDA", #name, name##_at                                                                      \
    }
#define KERNELS_FOR(spatial)                                                                                           \
    KERNELS_OF(conv_transpose##spatial##d), KERNELS_OF(conv_transpose##spatial##d_post),                               \
        KERNELS_OF(conv_transpose##spatial##d_backward_data), KERNELS_OF(conv_transpose##spatial##d_backward_weights)
static const struct kernel kernels[] = {KERNELS_FOR(1), KERNELS_FOR(2), KERNELS_FOR(3),
                                        KERNELS_OF(conv_transpose1d_step)};
#define KERNELS (sizeof kernels / sizeof *kernels)

static torch_library *installed[KERNELS];

void tconv_torch_uninstall_operators(void)
{
    uninstall(KERNELS, installed);
}

void tconv_torch_say(const char *error)
{
    thread_state *state = get_state();
    if (state != NULL)
        snprintf(state->error, sizeof state->error, "%s", error);
}

int tconv_torch_install_operators(void)
{
    return install(KERNELS, kernels, installed);
}
