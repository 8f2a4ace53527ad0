/*
 * Post-ops as the harness knows them: their names and numbers, random lists, their formulas in double, and how large the
 * error of an output may be. Nothing here calls the library.
 */
#ifndef TCONV_HARNESS_POST_H
#define TCONV_HARNESS_POST_H

#include <stdbool.h>

#include "random.h"
#include "tconv/tconv.h"

struct harness_case;

/* The name of a kind in a problem's text, "mul_channel"; "?" for a value that is no kind. */
const char *harness_post_name(tconv_post_kind kind);

/* How many of alpha and beta a kind has, and how many numbers of each output channel its operand has. */
int harness_post_numbers(tconv_post_kind kind);
int harness_post_vectors(tconv_post_kind kind);

/* Whether a kind takes an operand when the layer is executed. */
bool harness_post_has_operand(tconv_post_kind kind);

/* Returns the index of the layer's addend in the list, -1 where there is none. */
int harness_post_addend(const tconv_desc *desc);

/* Bytes that are enough for the text of any list. */
#define HARNESS_POSTS_TEXT 512

/* Writes a list as "mul_channel,add_channel,clamp:0:6", cut at capacity. Returns the length as snprintf. */
int harness_posts_format(const tconv_desc *desc, char *text, size_t capacity);

/* Reads the first length bytes of text into the list of desc. Numbers that a text leaves out are 0. On false, message
 * says which part is wrong and why, and desc is as it was. The list is not validated. */
bool harness_posts_parse(const char *text, size_t length, tconv_desc *desc, char *message, size_t capacity);

/* Gives a forward layer a random list of 0 to 8 post-ops; half of the lists have such kinds and numbers alone that
 * integers stay exact. An addend is a slice now and then. */
void harness_draw_posts(harness_random *random, tconv_desc *desc);

/* Returns the largest |sum|, up to limit, for which every step of the layer's list is exact in f32 when operands are
 * integers up to `added` (MUL_CHANNEL: up to HARNESS_LARGEST_FACTOR), and no result is above most. 0 where there is
 * none: kinds from SIGMOID on, and numbers with more than a few binary digits, have no exact results. */
double harness_posts_largest_sum(const tconv_desc *desc, double added, double limit, double most);
enum { HARNESS_LARGEST_FACTOR = 2 };

/* Returns what a post-op makes of y, by the formula in tconv.h. first and second are the numbers that the kind takes of
 * its operand. */
double harness_post_value(const tconv_post_op *post, double y, double first, double second);

/* Takes an output of the case through the layer's post-ops: *value is the exact sum, *error the largest error that the
 * computed sum may have, and both become those of the result before its rounding to the dtype. *error may be NULL. */
void harness_apply_posts(const struct harness_case *test, const int64_t at[4], double *value, double *error);

#endif
