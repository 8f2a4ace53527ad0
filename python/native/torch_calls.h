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

/* Executes a plan on src, weights, bias and dst, NULL for what it does without. Returns whether it was done. */
bool execute(const tconv_torch_plan *planned, const tensor_key *like, torch_tensor *const tensors[4],
             thread_state *state);

struct kernel {
    const char *library, *dispatch_key, *name;
    torch_kernel *function;
};

/* Registers kernels. Returns 0, or -1, and then none is registered. */
int install(size_t count, const struct kernel *made, torch_library **libraries);
void uninstall(size_t count, torch_library **libraries);

#endif
