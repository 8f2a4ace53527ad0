/*
 * The step of a stream without Python: kernels of tconv::conv_transpose1d_step.
 *
 * A plan of a stream takes chunks up to its own extents, and the package makes one for each power of two of images and
 * inputs (tconv/torch/_stream.py). The key of a step therefore has these two rounded up, so that a chunk of a length that has
 * not been seen before finds its plan here, and nothing of slots, reset and active, which no plan depends on.
 */
#include "torch_calls.h"

#include <string.h>

/* The arguments in their order. */
enum { X, WEIGHT, BIAS, STATE, STRIDE, DILATION, GROUPS, SLOTS, RESET, ACTIVE, ARGUMENTS };
enum { ROWS = 3 }; /* slots, reset and active */

typedef struct step_call {
    torch_tensor *x, *weight, *bias, *state, *rows[ROWS];
    int64_t batch, length, slots;
    call_key key;
} step_call;

/* ----------------------------------------------------------------------------------------------------------- a call */

/* Whether a tensor's elements lie side by side. Its strides are of no more interest then, and become 0. */
static bool is_dense(tensor_key *key)
{
    int64_t dense = 1;
    bool is = true, empty = false;
    for (int64_t axis = key->rank - 1; axis >= 0; axis--) {
        is = is && (key->sizes[axis] == 1 || key->strides[axis] == dense);
        empty = empty || key->sizes[axis] == 0;
        dense *= key->sizes[axis];
        key->strides[axis] = 0;
    }
    return is || empty;
}

/* Returns the least power of two that is not below an extent, as the package's plans have it. */
static int64_t rounded_up(int64_t extent)
{
    int64_t power = 1;
    while (power < extent && power <= INT64_MAX / 2)
        power *= 2;
    return power;
}

/* Whether slots, reset or active is what the library reads: a vector of one number for each image, where x is. */
static bool read_row(stable_value value, bool is_slots, const step_call *made, torch_tensor **row)
{
    const tensor_key *x = &made->key.input;
    tensor_key key = {0};
    *row = optional_tensor(value);
    if (*row == NULL)
        return true;
    if (!read_tensor(*row, &key) || key.rank != 1 || key.sizes[0] != made->batch || !is_dense(&key) ||
        key.device_type != x->device_type || key.device_index != x->device_index)
        return false;
    return is_slots ? key.dtype == torch.aoti_torch_dtype_int32()
                    : key.dtype == torch.aoti_torch_dtype_bool() || key.dtype == torch.aoti_torch_dtype_uint8();
}

/* Reads a call. Returns false for one that the table does not hold: Python says what is wrong with it, or makes its tensors
 * dense. */
static bool read_step(const stable_value *stack, step_call *made)
{
    call_key *key = &made->key;
    tensor_key state = {0};
    int64_t settings = 0;
    memset(made, 0, sizeof *made);
    made->x = tensor_of(stack[X]);
    made->weight = tensor_of(stack[WEIGHT]);
    made->bias = optional_tensor(stack[BIAS]);
    made->state = tensor_of(stack[STATE]);
    if (!read_tensor(made->x, &key->input) || !read_tensor(made->weight, &key->weight) ||
        !read_tensor(made->state, &state) || (made->bias != NULL && !read_tensor(made->bias, &key->third)))
        return false;
    if (key->input.rank != 3 || key->weight.rank != 3 || state.rank != 3 || !is_dense(&key->input) ||
        !is_dense(&key->weight) || !is_dense(&state) || !is_dense(&key->third))
        return false;
    made->batch = key->input.sizes[0];
    made->length = key->input.sizes[2];
    made->slots = state.sizes[0];
    key->input.sizes[0] = rounded_up(made->batch);
    key->input.sizes[2] = rounded_up(made->length);
    state.sizes[0] = 0;
    key->spatial = 1;
    key->stride[0] = (int64_t)stack[STRIDE];
    key->dilation[0] = (int64_t)stack[DILATION];
    key->groups = (int64_t)stack[GROUPS];
    if (made->batch == 0 || made->length == 0 || !append_tensor(&state, key) ||
        !read_settings(&key->input, &settings) || !read_threads(&key->input, &key->threads))
        return false;
    key->flags = IS_STEP | (settings & ~(int64_t)TCONV_TORCH_DETERMINISTIC);
    for (int i = 0; i < ROWS; i++)
        if (!read_row(stack[SLOTS + i], i == 0, made, &made->rows[i]))
            return false;
    return true;
}

static void release_step(const stable_value *stack)
{
    delete_tensor(tensor_of(stack[X]));
    delete_tensor(tensor_of(stack[WEIGHT]));
    delete_optional_tensor(stack[BIAS]);
    delete_tensor(tensor_of(stack[STATE]));
    for (int i = 0; i < ROWS; i++)
        delete_optional_tensor(stack[SLOTS + i]);
}

/* -------------------------------------------------------------------------------------------------------- executing */

/* Computes a step by a plan. Returns false, with the state as it was, where it could not. */
static bool execute_step(const tconv_torch_plan *planned, const step_call *made, torch_tensor *result,
                         thread_state *state)
{
    const tconv_torch_layer *is = &planned->is;
    tconv_tensor tensors[5];
    tconv_step step = {.struct_size = sizeof step,
                       .batch = made->batch,
                       .length = made->length,
                       .slot_count = made->slots,
                       .workspace_size = is->workspace_size};
    void *rows[ROWS] = {NULL, NULL, NULL};
    scratch_memory memory;
    if (!describe(made->x, is->dtype, is->location, &tensors[0], &step.src) ||
        !describe(made->weight, is->dtype, is->location, &tensors[1], &step.weights) ||
        !describe(made->bias, is->dtype, is->location, &tensors[2], &step.bias) ||
        !describe(result, is->dtype, is->location, &tensors[3], &step.dst) ||
        !describe(made->state, is->carry_dtype, is->location, &tensors[4], &step.carry))
        return false;
    for (int i = 0; i < ROWS; i++)
        if (made->rows[i] != NULL && torch.aoti_torch_get_data_ptr(made->rows[i], &rows[i]) != 0)
            return false;
    step.slots = rows[0];
    step.reset = rows[1];
    step.active = rows[2];
    if (!take_scratch(is, &made->key.input, state, &memory))
        return false;
    step.workspace = memory.workspace;
    step.stream = memory.stream;
    const tconv_status status = is->step(is->plan, &step);
    delete_tensor(memory.owner);
    return status == TCONV_SUCCESS;
}

/* Returns NULL where the table has no plan, or the library refuses the step. */
static torch_tensor *compute_step(const step_call *made, thread_state *state)
{
    entry *found = find(&made->key);
    if (found == NULL)
        return NULL;
    const int64_t channels = found->plans[0]->is.sizes[1], length = made->length * made->key.stride[0];
    const int64_t sizes[] = {made->batch, channels, length}, strides[] = {channels * length, length, 1};
    torch_tensor *result = make_tensor(&made->key.input, 3, sizes, strides);
    if (result != NULL && !execute_step(found->plans[0], made, result, state)) {
        delete_tensor(result);
        result = NULL;
    }
    release(found);
    return result;
}

outcome compute_step_of(stable_value *stack, thread_state *state, call_key *key)
{
    step_call made;
    if (!read_step(stack, &made))
        return UNREAD;
    *key = made.key;
    torch_tensor *result = compute_step(&made, state);
    if (result == NULL)
        return READ;
    release_step(stack);
    stack[0] = value_of(result);
    count_taken();
    return DONE;
}
