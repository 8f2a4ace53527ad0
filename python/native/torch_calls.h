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

/* Executes a plan on src, weights, bias and dst, NULL for what it does without, and on the operands of post-ops, NULL
 * where they take none. Returns whether it was done. */
bool execute(const tconv_torch_plan *planned, const tensor_key *like, torch_tensor *const tensors[4],
             torch_tensor *const *operands, thread_state *state);

/* Describes a tensor, NULL for none, and has *given point to what it made. Returns false where PyTorch fails. */
bool describe(torch_tensor *tensor, int32_t dtype, int32_t location, tconv_tensor *made, const tconv_tensor **given);

/* What a plan is executed with: its workspace, of the thread or of a tensor, NULL for none, which the receiver deletes; and
 * PyTorch's current stream. */
typedef struct scratch_memory {
    void *workspace, *stream;
    torch_tensor *owner;
} scratch_memory;

/* Returns false where there is no memory, or PyTorch fails. */
bool take_scratch(const tconv_torch_layer *is, const tensor_key *like, thread_state *state, scratch_memory *taken);

/* PyTorch's settings on which plans with such a tensor depend, now: flags, on CUDA alone, and the number of threads,
 * elsewhere. Return false where Python raised an exception, or PyTorch fails. */
bool read_settings(const tensor_key *like, int64_t *settings);
bool read_threads(const tensor_key *like, int64_t *threads);

/* Returns, of flags that were read for any tensor, those of settings that matter to this one's dtype. */
int64_t settings_that_count(int64_t flags, const tensor_key *like);

/* What every kernel begins with: returns the calling thread's state, with no call that Python serves; NULL where the
 * thread has none. An exception may have passed by what would have ended the call before. */
thread_state *begin(thread_state *state);

/* Has an operator in Python serve a call, and takes its arguments over. The package may put it into the table by its key,
 * NULL for a call that the table does not hold. An error of the operator is thrown. */
void serve(const char *name, stable_value *stack, const call_key *key, thread_state *state);

/* A call of a layer: its tensors, which stay the stack's, and its key. */
typedef struct layer_call {
    torch_tensor *input, *weight, *bias;
    size_t operand_count; /* of post-ops */
    torch_tensor *operands[TCONV_MAX_POST_OPS];
    call_key key;
} layer_call;

/* Where an operator that begins with input, weight and bias has its other arguments. */
typedef struct layer_arguments {
    int stride, padding, dilation, output_padding, groups;
} layer_arguments;

/* Reads a call, but for the flags of its key. Returns false for one that the table does not hold. */
bool read_layer(const stable_value *stack, const layer_arguments *at, layer_call *made);
void release_layer(const stable_value *stack, const layer_arguments *at);

/* Reads the post-ops of a call: their list as text, and the tensors that they take. Returns false for a call that the
 * table does not hold. */
bool read_post(stable_value text, stable_value operands, layer_call *made);
void release_post(stable_value text, stable_value operands);

/* Takes a string over, and returns its bytes as a list of integers. Operators in Python get the text so, because some
 * versions of PyTorch (2.11) leak each string that C passes to the dispatcher. */
stable_value bytes_of(stable_value text);

/* Counts a call that was computed without Python. */
void count_taken(void);

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

/* Reads which of count gradients, from the first one on, are wanted. */
bool read_wanted(stable_value value, int first, int count, backward *made);

/* Computes those of the gradients that have a plan. Returns false where one of them could not be; what is there is the
 * caller's. */
bool compute_gradients(const entry *found, const backward *made, torch_tensor *results[GRADIENTS], thread_state *state);
void count_gradients(int ours, int pytorchs);

/* What became of a call of an operator: the stack is as it was but for DONE. A call that is READ has its key. */
typedef enum outcome { UNREAD, READ, DONE } outcome;

/* The next chunk of a stream (torch_stream.c). */
outcome compute_step_of(stable_value *stack, thread_state *state, call_key *key);

/* Whether a mode, a transform or a subclass is to see the calls with these tensors, or whether one of them has a
 * tangent, of forward mode; true where that cannot be told. Tensors may be NULL, but for the first. */
bool is_observed(torch_tensor *const tensors[3]);
bool has_tangent(torch_tensor *tensor);

struct kernel {
    const char *library, *dispatch_key, *name;
    torch_kernel *function;
};

/* Looks up PyTorch's functions, before all else. Kernels on CUDA ask for the settings where this PyTorch does not tell
 * them. Returns 0, or -1 where PyTorch lacks what the kernels need. */
int prepare(tconv_torch_settings *settings);

/* Registers kernels. Returns 0, or -1, and then none is registered. */
int install(size_t count, const struct kernel *made, torch_library **libraries);
void uninstall(size_t count, torch_library **libraries);

#endif
