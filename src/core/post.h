/* The list of post-ops of a layer: the rules that it follows, its text, and what each kind takes. */
#ifndef TCONV_CORE_POST_H
#define TCONV_CORE_POST_H

#include <stdbool.h>

#include "problem.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns how many numbers a kind takes of each output channel: 0, 1 or 2. */
static inline int tconv_post_channel_vectors(tconv_post_kind kind)
{
    if (kind == TCONV_POST_SNAKE)
        return 2;
    return kind == TCONV_POST_ADD_CHANNEL || kind == TCONV_POST_MUL_CHANNEL ? 1 : 0;
}

/* Whether a kind takes an operand when the layer is executed. */
static inline bool tconv_post_has_operand(tconv_post_kind kind)
{
    return kind == TCONV_POST_ADD_TENSOR || tconv_post_channel_vectors(kind) > 0;
}

/* Whether the post-op and the one after it are one operation: a scale and a shift by channel, rounded once. */
static inline bool tconv_post_scales_and_shifts(const tconv_desc *desc, int index)
{
    return desc->post[index].kind == TCONV_POST_MUL_CHANNEL && index + 1 < desc->post_count &&
           desc->post[index + 1].kind == TCONV_POST_ADD_CHANNEL;
}

/* Whether outputs go through anything between the sum and the rounding. */
static inline bool tconv_has_posts(const tconv_problem *problem)
{
    return problem->desc.post_count > 0;
}

/* Takes the list from a desc, for a layer that computes the sums alone. */
static inline void tconv_remove_posts(tconv_desc *desc)
{
    const tconv_post_op none = {(tconv_post_kind)0, 0, 0, 0};
    desc->post_count = 0;
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        desc->post[i] = none;
    for (int i = 0; i < 4; i++)
        desc->addend_strides[i] = 0;
}

/* Returns the index of the layer's addend in the list, -1 where there is none. */
int tconv_post_addend(const tconv_desc *desc);

/* Checks the rules of tconv_post_op; an issue names post_count, post[i].kind, post[i].alpha and so on. */
tconv_status tconv_posts_check(const tconv_desc *desc, tconv_issue *issue);

/* Returns the name of a kind in a problem's text, "mul_channel" and so on; NULL for a value that is none. */
const char *tconv_post_name(tconv_post_kind kind);

/* Returns how many of alpha and beta a kind has: 0, 1 (alpha) or 2. */
int tconv_post_numbers(tconv_post_kind kind);

/* Appends " post=mul_channel,add_channel,clamp:0:6", and the addend's strides where they are given; nothing where the
 * list is empty. */
void tconv_posts_format(const tconv_problem *problem, tconv_text *text);

#ifdef __cplusplus
}
#endif

#endif
