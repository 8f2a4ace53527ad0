/*
 * Operations as the harness knows them: the tensors of a layer that each reads and writes, by their role, and the
 * formula of its results. The rest of the harness fills, places, runs and judges tensors by this table.
 */
#ifndef TCONV_HARNESS_OPERATION_H
#define TCONV_HARNESS_OPERATION_H

#include <stdbool.h>

#include "tconv/tconv.h"

struct harness_case;

/* The role of a tensor in a layer, in the order of tconv_plan_execute's arguments. A gradient has the role of its
 * tensor. */
typedef enum harness_role {
    HARNESS_SRC,
    HARNESS_WEIGHTS,
    HARNESS_BIAS,
    HARNESS_DST,
    HARNESS_POST, /* the operand of the first post-op; those of the others follow */
    HARNESS_ROLES = HARNESS_POST + TCONV_MAX_POST_OPS
} harness_role;

/* Computes one element of a tensor that the operation writes, in float64 straight from the formula in tconv.h, without
 * what it may be added to and before its post-ops, and the sum of the absolute values of its terms. at is a place in the
 * shape of the tensor's view (layer.h). */
typedef void harness_formula(const struct harness_case *test, harness_role role, const int64_t at[4], double *value,
                             double *bound);

typedef struct harness_operation {
    bool reads[HARNESS_ROLES],
        writes[HARNESS_ROLES];               /* without operands of post-ops, which a layer reads by its list */
    double (*terms)(const tconv_desc *desc); /* number of products in its longest sum */
    harness_formula *formula;
} harness_operation;

/* Returns the operation, or NULL where the harness has no formula, and so no answer, for it. */
const harness_operation *harness_operation_of(tconv_op op);

/* Returns "src", "weights", "bias", "dst" or "post[0]" to "post[7]". */
const char *harness_role_name(harness_role role);

#endif
