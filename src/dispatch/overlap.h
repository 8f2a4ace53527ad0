/* Checks whether the memory that a call writes (its results and the workspace) is shared with other memory that it
 * reads or writes. */
#ifndef TCONV_DISPATCH_OVERLAP_H
#define TCONV_DISPATCH_OVERLAP_H

#include "tensors.h"

/* The memory of one execute: the tensors that are there, and the workspace, which may be NULL and of which the plan
 * uses workspace_size bytes. */
typedef struct tconv_memory_in_use {
    tconv_tensors tensors;
    const void *workspace;
    size_t workspace_size;
} tconv_memory_in_use;

/*
 * Fails where a tensor that the operation writes shares an element with another or with the workspace, or the workspace
 * a byte with any of them. The batch is at least 1. Takes constant time. Slices of one tensor, whose strides are the
 * same, and dense tensors are decided exactly; tconv.h says what holds for the others. Addresses alone are compared:
 * those of the host and of CUDA devices never coincide (they share one address space), and memory that is mapped twice
 * is not recognised.
 */
tconv_status tconv_overlap_check(const tconv_problem *problem, const tconv_memory_in_use *memory, tconv_issue *issue);

#endif
