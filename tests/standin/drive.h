/* Plans and executes layers on the stand-in, on tensors that are addresses without memory: nothing reads them. */
#ifndef TCONV_TESTS_STANDIN_DRIVE_H
#define TCONV_TESTS_STANDIN_DRIVE_H

#include "harness.h"

#define DRIVE_STREAM ((void *)(uintptr_t)0x5eed0) /* the caller's stream: an address, too */

/* The lower half of the tensors' addresses: not zero, so that an address that was half overwritten is known
 * (trace.c). */
#define DRIVE_LOWER_HALF 0x10000000

typedef struct drive_tensors {
    tconv_tensor src, weights, bias, dst;
    tconv_tensor post[TCONV_MAX_POST_OPS]; /* operands of post-ops */
    bool has_operand[TCONV_MAX_POST_OPS];
    bool has_bias;
    void *workspace;
    bool is_stream;
    tconv_tensor carry; /* of a stream */
} drive_tensors;

/* Places the tensors of a layer, 256 bytes aligned but for skew elements. */
drive_tensors drive_place(const harness_layer *layer, int skew);

/* Executes the plan on DRIVE_STREAM, in a workspace of just its size: of a stream a longest step, one of the shortest, with
 * slots, resets and masks, and a flush. */
tconv_status drive_execute(const tconv_plan *plan, const drive_tensors *tensors);

/* Options for an implementation (NULL: the one that is chosen) on a device. */
tconv_options drive_options(const char *implementation, int device);

/* The index-th CUDA implementation's name; NULL past the last. */
const char *drive_implementation(size_t index);

#endif
