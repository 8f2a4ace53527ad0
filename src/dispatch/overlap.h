/* Whether what a call writes (its results and the workspace) shares memory with what it reads or writes elsewhere. */
#ifndef TCONV_DISPATCH_OVERLAP_H
#define TCONV_DISPATCH_OVERLAP_H

#include "tensors.h"

/* The memory of one execute: the tensors that are there, and workspace, which may be NULL and of which the plan uses
 * workspace_size bytes. */
typedef struct tconv_memory_in_use {
    tconv_tensors tensors;
    const void *workspace;
    size_t workspace_size;
} tconv_memory_in_use;

/*
 * Fails where a tensor that the operation writes shares an element with another or with the workspace, or the workspace a byte
 * with any of them. The batch is at least 1. Takes constant time: slices of one tensor, whose strides are the same, are decided exactly, and so is
 * all that is dense; see tconv.h for the rest. Addresses alone are compared: those of the host and of CUDA devices never
 * coincide (they share one address space), and one memory that is mapped twice cannot be told.
 */
tconv_status tconv_overlap_check(const tconv_problem *problem, const tconv_memory_in_use *memory, tconv_issue *issue);

#endif
