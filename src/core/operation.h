/* Operations as data: which tensors of a layer each reads and writes. Code that checks, compares, stages or places
 * tensors goes by this table and not by the position of an argument. */
#ifndef TCONV_CORE_OPERATION_H
#define TCONV_CORE_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The role of a tensor in a layer. Its gradient has the same role, shape and strides. */
typedef enum tconv_role {
    TCONV_ROLE_SRC,
    TCONV_ROLE_WEIGHTS,
    TCONV_ROLE_BIAS,
    TCONV_ROLE_DST,
    TCONV_ROLE_CARRY, /* of a stream, read and written: the sums of its tails */
    TCONV_ROLE_POST,  /* the operand of the first post-op; those of the others follow */
    TCONV_ROLES = TCONV_ROLE_POST + TCONV_MAX_POST_OPS
} tconv_role;

/* A set of roles has the bits of its members. */
#define TCONV_ROLE_BIT(role) (1u << (role))

typedef struct tconv_operation {
    unsigned reads, writes; /* sets of roles; a role that is in neither has no part in the operation */
    unsigned needs;         /* the set of tensors that a caller may not leave out */
    unsigned with_weights;  /* those that it may not leave out beside the weights */
} tconv_operation;

/* The operation of a valid desc; operands of post-ops are read, and needed, as is the carry of a stream that has a tail. */
tconv_operation tconv_operation_of(const tconv_problem *problem);

/* Whether the operation writes nothing: a layer without images has src and dst without elements. Its weights have
 * some all the same, and their gradient is 0, which is nothing to add to what they hold. */
bool tconv_operation_writes_nothing(const tconv_problem *problem);

static inline bool tconv_is_in(unsigned set, tconv_role role)
{
    return (set & TCONV_ROLE_BIT(role)) != 0;
}

/* The argument's name in issues: "src", "weights", "bias", "dst", "carry" or "post[0]", of a gradient "diff_src" and so on. */
const char *tconv_role_name(tconv_op op, tconv_role role);

/* Returns the number of elements from the first of the tensor to one past its last, gaps included. */
int64_t tconv_role_extent(const tconv_problem *problem, tconv_role role);

/* The type of the tensor's elements: the layer's, but for operands of a channel each, which have that of sums, and
 * the carry. */
tconv_dtype tconv_role_dtype(const tconv_problem *problem, tconv_role role);

/* Whether the tensor is a slice: memory between its elements then belongs to somebody else. */
bool tconv_role_has_gaps(const tconv_problem *problem, tconv_role role);

#ifdef __cplusplus
}
#endif

#endif
