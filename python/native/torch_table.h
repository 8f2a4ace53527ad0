/*
 * The table of calls whose plans are known, and what each thread has.
 */
#ifndef TCONV_TORCH_TABLE_H
#define TCONV_TORCH_TABLE_H

#include "torch_interface.h"
#include "torch_shim.h"

#include <stdatomic.h>

/* Everything about a tensor that a plan depends on. Unused axes are 0. */
typedef struct tensor_key {
    int32_t rank, dtype, device_type, device_index;
    int64_t sizes[TCONV_TORCH_AXES], strides[TCONV_TORCH_AXES];
} tensor_key;

/* Words of a key for post-ops: their list as text, and how the tensors lie that they take; of a step, for the state. A
 * list that needs more is Python's. */
#define POST_WORDS 64

typedef struct call_key {
    tensor_key input, weight;
    tensor_key third; /* the bias, all 0 where there is none, or the gradient of the output */
    int64_t stride[TCONV_TORCH_SPATIAL], padding[TCONV_TORCH_SPATIAL], dilation[TCONV_TORCH_SPATIAL];
    int64_t output_padding[TCONV_TORCH_SPATIAL];
    int64_t groups;
    int64_t flags; /* those of the calling thread: PyTorch's settings; and which operator and gradients these are */
    int64_t threads;
    int32_t spatial;    /* how many axes of these there are */
    int32_t post_words; /* how many there are of the following words; 0 of a layer without post-ops */
    int64_t post[POST_WORDS];
} call_key;

/* A plan that executes and the package share. The last of its uses destroys it. */
struct tconv_torch_plan {
    tconv_torch_layer is;
    atomic_int uses;
};

/* What the table holds of a call: the plan of a layer, or those of its two gradients, of the input and of the weight.
 * NULL where PyTorch computes, or nothing is wanted. */
typedef struct entry {
    call_key key;
    tconv_torch_plan *plans[2];
    /* Strides in which the gradient of the output is copied for both; 0 where it is not. */
    int64_t copy[TCONV_TORCH_AXES];
    atomic_int uses;    /* of the table and of calls */
    struct entry *next; /* next in its bucket */
    struct entry *newer, *older;
} entry;

/* Returns false for a tensor that the table holds no calls of. */
bool read_tensor(torch_tensor *tensor, tensor_key *key);

/* Appends words to the key of the post-ops. Return false where there is no room. */
bool append_text(const char *text, size_t length, call_key *key);
bool append_tensor(const tensor_key *tensor, call_key *key);

/* Says of how many spatial axes a call is whose tensors have this rank. Returns false where there is no such layer. */
bool read_spatial(int64_t rank, call_key *key);

/* Reads a list of one number for each spatial axis, or one for all. */
bool read_list(stable_value value, int32_t spatial, int64_t numbers[TCONV_TORCH_SPATIAL]);

/* Finds the entry of this key, which the caller releases; NULL where there is none. */
entry *find(const call_key *key);
void release(entry *given);

/* Bytes: the largest workspace on the host that is the thread's own, so that small layers allocate nothing
 * (tconv/_plan.py). */
#define SCRATCH_BYTES (64 * 1024)

typedef struct thread_state {
    /* Not 0 while the package calls: marks the next convolution as the package's, and holds PyTorch's settings. */
    int64_t flags;
    bool has_call; /* whether key is that of a call that the package is planning; each kernel begins by clearing it */
    call_key key;
    char error[1024]; /* the text of an exception of Python, which not every PyTorch tells */
    _Alignas(64) char scratch[SCRATCH_BYTES];
} thread_state;

/* Returns 0, or -1. */
int make_states(void);

/* Bits of a key's flags, beside TCONV_TORCH_OURS and those of PyTorch's settings: which operator it is, and which
 * gradients are wanted. */
enum {
    IS_BACKWARD = 1 << 8,
    WANTED_SHIFT = 9,
    IS_GRADIENT_OPERATOR = 1 << 12,
    IS_CHANNELS_LAST = 1 << 13,
    IS_STEP = 1 << 14 /* of a stream */
};

/* The calling thread's; NULL where it has none. */
thread_state *get_state(void);

/* Makes it where there is none; NULL where there is no memory. */
thread_state *make_state(void);

#endif
