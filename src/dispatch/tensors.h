/* Checks of the tensors of a call: whether they are there, have the right type, and where they lie. */
#ifndef TCONV_DISPATCH_TENSORS_H
#define TCONV_DISPATCH_TENSORS_H

#include "../core/operation.h"

/* The tensors of a call, by their role; NULL for a tensor that the call goes without. */
typedef struct tconv_tensors {
    const tconv_tensor *of[TCONV_ROLES];
} tconv_tensors;

/* Returns the given tensors that have a part in the operation: without images neither src nor dst has. */
tconv_tensors tconv_tensors_in_use(const tconv_problem *problem, const tconv_tensors *given);

/* Returns the set of roles whose tensors are to be checked, because they are given or must be: of what the operation writes
 * one at least. */
unsigned tconv_tensors_due(const tconv_problem *problem, const tconv_tensors *tensors);

/* Checks pointer, dtype and alignment of one tensor. */
tconv_status tconv_tensor_check(const tconv_tensor *tensor, tconv_role role, const tconv_problem *problem,
                                tconv_issue *issue);

/* Finds where the tensor lies. *device is its CUDA device, -1 for the host or where the caller gave the location.
 * *anywhere is true for managed memory, which both backends may use. */
tconv_location tconv_tensor_locate(const tconv_tensor *tensor, int *device, bool *anywhere);

/* Checks that the tensor lies on the backend and device that compute. */
tconv_status tconv_tensor_check_location(const tconv_tensor *tensor, const char *name, tconv_backend backend,
                                         int device, tconv_issue *issue);

#endif
