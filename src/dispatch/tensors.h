/* The tensors of a call: are they there, of the right type, and where. */
#ifndef TCONV_DISPATCH_TENSORS_H
#define TCONV_DISPATCH_TENSORS_H

#include "../core/problem.h"

/* Checks pointer, dtype and alignment of one tensor; name is "src", "weights", "bias" or "dst". */
tconv_status tconv_tensor_check(const tconv_tensor *tensor, const char *name, const tconv_problem *problem,
                                tconv_issue *issue);

/* Where the tensor lies. *device is its CUDA device, -1 for the host or where the caller gave the location. *anywhere is
 * true for managed memory, which both backends may use. */
tconv_location tconv_tensor_locate(const tconv_tensor *tensor, int *device, bool *anywhere);

/* Checks that the tensor lies where target computes. */
tconv_status tconv_tensor_check_location(const tconv_tensor *tensor, const char *name, tconv_backend backend,
                                         int device, tconv_issue *issue);

#endif
