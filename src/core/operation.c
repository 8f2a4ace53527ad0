/* The table of operations, and functions that look a tensor up by its role. */
#include "operation.h"

#include "post.h"

enum {
    SRC = TCONV_ROLE_BIT(TCONV_ROLE_SRC),
    WEIGHTS = TCONV_ROLE_BIT(TCONV_ROLE_WEIGHTS),
    BIAS = TCONV_ROLE_BIT(TCONV_ROLE_BIAS),
    DST = TCONV_ROLE_BIT(TCONV_ROLE_DST),
    CARRY = TCONV_ROLE_BIT(TCONV_ROLE_CARRY),
};

static const tconv_operation operations[] = {
    [TCONV_FORWARD] = {.reads = SRC | WEIGHTS | BIAS, .writes = DST, .needs = SRC | WEIGHTS | DST},
    [TCONV_BACKWARD_DATA] = {.reads = WEIGHTS | DST, .writes = SRC, .needs = WEIGHTS | DST | SRC},
    [TCONV_BACKWARD_WEIGHTS] = {.reads = SRC | DST, .writes = WEIGHTS | BIAS, .needs = DST, .with_weights = SRC},
};

/* Of the tensors themselves, and of their gradients. */
static const char *const names[TCONV_ROLES] = {"src",     "weights", "bias",    "dst",     "carry",
                                               "post[0]", "post[1]", "post[2]", "post[3]", "post[4]",
                                               "post[5]", "post[6]", "post[7]"};
static const char *const gradient_names[] = {"diff_src", "diff_weights", "diff_bias", "diff_dst"};

tconv_operation tconv_operation_of(const tconv_problem *problem)
{
    tconv_operation operation = operations[problem->desc.op];
    for (int i = 0; i < problem->desc.post_count; i++)
        if (tconv_post_has_operand(problem->desc.post[i].kind))
            operation.reads |= TCONV_ROLE_BIT(TCONV_ROLE_POST + i);
    if (problem->carry_extent > 0) {
        operation.reads |= CARRY;
        operation.writes |= CARRY;
    }
    operation.needs |= operation.reads & ~operations[problem->desc.op].reads;
    if (problem->flushes) {
        operation.reads &= ~(unsigned)(SRC | WEIGHTS);
        operation.needs &= ~(unsigned)(SRC | WEIGHTS);
    }
    return operation;
}

bool tconv_operation_writes_nothing(const tconv_problem *problem)
{
    const bool of_images = (tconv_operation_of(problem).writes & (WEIGHTS | BIAS)) == 0;
    return problem->batch == 0 && (of_images || problem->desc.accumulate);
}

const char *tconv_role_name(tconv_op op, tconv_role role)
{
    const bool is_gradient =
        op != TCONV_FORWARD && (role == TCONV_ROLE_DST || tconv_is_in(operations[op].writes, role));
    return is_gradient ? gradient_names[role] : names[role];
}

/* The kind of the post-op of an operand. */
static tconv_post_kind kind_of(const tconv_problem *problem, tconv_role role)
{
    return problem->desc.post[role - TCONV_ROLE_POST].kind;
}

int64_t tconv_role_extent(const tconv_problem *problem, tconv_role role)
{
    if (role >= TCONV_ROLE_POST)
        return kind_of(problem, role) == TCONV_POST_ADD_TENSOR
                   ? problem->addend_extent
                   : problem->out_channels * tconv_post_channel_vectors(kind_of(problem, role));
    switch (role) {
    case TCONV_ROLE_SRC: return problem->src_extent;
    case TCONV_ROLE_WEIGHTS: return problem->weight_extent;
    case TCONV_ROLE_BIAS: return problem->out_channels;
    case TCONV_ROLE_DST: return problem->dst_extent;
    case TCONV_ROLE_CARRY: return problem->carry_extent;
    default: return 0;
    }
}

tconv_dtype tconv_role_dtype(const tconv_problem *problem, tconv_role role)
{
    if (role == TCONV_ROLE_CARRY)
        return problem->carry_dtype;
    const bool of_channels = role >= TCONV_ROLE_POST && kind_of(problem, role) != TCONV_POST_ADD_TENSOR;
    return of_channels && problem->dtype != TCONV_F64 ? TCONV_F32 : problem->dtype;
}

bool tconv_role_has_gaps(const tconv_problem *problem, tconv_role role)
{
    int64_t elements = tconv_role_extent(problem, role); /* weights and bias are dense */
    if (role == TCONV_ROLE_SRC)
        elements = problem->batch * problem->in_channels * problem->d.in * problem->h.in * problem->w.in;
    else if (role == TCONV_ROLE_DST || (role >= TCONV_ROLE_POST && kind_of(problem, role) == TCONV_POST_ADD_TENSOR))
        elements = problem->batch * problem->out_channels * problem->d.out * problem->h.out * problem->w.out;
    return tconv_role_extent(problem, role) != elements;
}
