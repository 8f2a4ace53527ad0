/*
 * In a process that has no Python the operators do by themselves what the package does else (tconv/torch/_compute.py): they
 * lay tensors as the library reads them, and plan layers.
 */
#ifndef TCONV_TORCH_PLANS_H
#define TCONV_TORCH_PLANS_H

#include "torch_calls.h"

/* The post-ops of an operator, as the library has them. */
typedef struct post_list {
    int32_t count;
    tconv_post_op steps[TCONV_MAX_POST_OPS];
    int32_t operands[TCONV_MAX_POST_OPS]; /* which of the call's operands a step takes, counted from 0; -1 for none */
    int32_t operand_count;
} post_list;

/* Reads a list as tconv/torch/_post_list.py writes it: "linear(2.0, 0.0) tanh". Returns false for another text. */
bool parse_posts(const char *text, size_t length, post_list *made);

/* A call, which is read once its tensors lie as they have to. */
typedef struct planned_call {
    layer_call layer;
    bool has_images; /* whether the input has an axis of them */
    bool is_channels_last;
    post_list posts;
} planned_call;

/* Reads a call of an operator, with post-ops where operands is not 0. A tensor that the library cannot read as it lies is
 * replaced on the stack by a copy. Returns false for a call that is not the library's to compute. */
bool read_call(stable_value *stack, const layer_arguments *at, stable_value text, stable_value operands,
               planned_call *made);

/* Plans the layer of a call, and puts it into the table. */
tconv_status plan_call(const planned_call *call, thread_state *state, tconv_issue *issue);

#endif
