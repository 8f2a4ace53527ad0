/*
 * What the kernels of layers and of gradients share.
 */
#ifndef TCONV_TORCH_CALLS_H
#define TCONV_TORCH_CALLS_H

#include "torch_table.h"

/* Returns a new tensor of the dtype and on the device of another; NULL where there is no memory. */
torch_tensor *make_tensor(const tensor_key *like, int64_t rank, const int64_t *sizes, const int64_t *strides);
torch_tensor *make_result(const tensor_key *like, const tconv_torch_plan *planned);
void delete_tensor(torch_tensor *tensor);

/* An argument that may be missing; NULL where it is. */
torch_tensor *optional_tensor(stable_value value);
void delete_optional_tensor(stable_value value);

/* Executes a plan on src, weights, bias and dst, NULL for what it does without. Returns whether it was done. */
bool execute(const tconv_torch_plan *planned, const tensor_key *like, torch_tensor *const tensors[4],
             thread_state *state);

/* Returns the flags of PyTorch's settings now, for what is on CUDA; 0 elsewhere. */
int64_t settings_for(const tensor_key *like);

/* A call of a layer: its tensors, which stay the stack's, and its key. */
typedef struct layer_call {
    torch_tensor *input, *weight, *bias;
    call_key key;
} layer_call;

/* Where an operator that begins with input, weight and bias has its other arguments. */
typedef struct layer_arguments {
    int stride, padding, dilation, output_padding, groups;
} layer_arguments;

/* Reads a call, but for the flags of its key. Returns false for one that the table does not hold. */
bool read_layer(const stable_value *stack, const layer_arguments *at, layer_call *made);
void release_layer(const stable_value *stack, const layer_arguments *at);

/* Computes a call by its layer in the table, and counts it. Returns NULL where it could not. */
torch_tensor *compute_layer(const layer_call *made, thread_state *state);

/* The gradients of a layer. */
enum { OF_INPUT, OF_WEIGHT, OF_BIAS, GRADIENTS };

/* A call for gradients: the tensors, NULL for what they do without, and what is wanted. */
typedef struct backward {
    torch_tensor *cotangent, *input, *weight;
    bool wanted[GRADIENTS];
    call_key key;
} backward;

/* Bits of a key's flags, beside those of PyTorch's settings: which operator it is, and what is wanted. */
enum { IS_BACKWARD = 1 << 8, WANTED_SHIFT = 9, IS_GRADIENT_OPERATOR = 1 << 12, IS_CHANNELS_LAST = 1 << 13 };

/* Reads which of count gradients, from the first one on, are wanted. */
bool read_wanted(stable_value value, int first, int count, backward *made);

/* Computes those of the gradients that have a plan. Returns false where one of them could not be; what is there is the
 * caller's. */
bool compute_gradients(const entry *found, const backward *made, torch_tensor *results[GRADIENTS], thread_state *state);
void count_gradients(int ours, int pytorchs);

/* Whether a mode, a transform or a subclass is to see the calls with these tensors, or whether one of them has a
 * tangent, of forward mode; true where that cannot be told. Tensors may be NULL, but for the first. */
bool is_observed(torch_tensor *const tensors[3]);
bool has_tangent(torch_tensor *tensor);

struct kernel {
    const char *library, *dispatch_key, *name;
    torch_kernel *function;
};

/* Registers kernels. Returns 0, or -1, and then none is registered. */
int install(size_t count, const struct kernel *made, torch_library **libraries);
void uninstall(size_t count, torch_library **libraries);

#endif
