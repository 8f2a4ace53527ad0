/* Post-ops in double, by the C library: what other implementations of them are measured against, and how f64 is computed. */
#ifndef TCONV_CORE_POST_EXACT_H
#define TCONV_CORE_POST_EXACT_H

#include "tconv/tconv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers that a post-op takes of its operand for one output: of a channel v[c], and v[out_channels + c] where the
 * kind has it; of an addend its element. 0 where the kind takes none. */
typedef struct tconv_post_values {
    double first, second;
} tconv_post_values;

/* Returns what a post-op makes of y. */
double tconv_post_in_double(const tconv_post_op *post, double y, tconv_post_values values);

#ifdef __cplusplus
}
#endif

#endif
