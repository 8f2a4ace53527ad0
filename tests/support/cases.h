/* Cases of the tests that run every implementation. */
#ifndef TCONV_TESTS_CASES_H
#define TCONV_TESTS_CASES_H

#include "harness.h"

#define THREAD_COUNTS 4

/* Numbers of threads: one, as many as a small machine has, and more than it has, odd ones among them. */
extern const int thread_counts[THREAD_COUNTS];

/* Calls harness_case_create; the test fails where that fails. */
harness_case make_case(const harness_layer *layer, harness_fill fill, uint64_t seed);

/* Returns a case of layer whose answer is computed once for all forms of a problem in which it is the same: *answered is that
 * of the first of them, made where it has no tensors yet, and the caller's to destroy after the last (harness_case_create_as). */
harness_case make_case_as(harness_case *answered, const harness_layer *layer, harness_fill fill, uint64_t seed);

/* Calls harness_case_create_sampled. Errors at other elements still show where the bits of ways are compared. */
harness_case make_sampled_case(const harness_layer *layer, harness_fill fill, uint64_t seed);

#define LARGER_LAYERS 12
#define LARGER_FORMS  8

/* Returns one of some layers that are worth several threads, with parts of tiles left over on every axis, each in eight
 * forms: four dtypes, two layouts. */
harness_layer larger_layer(size_t index, int form);

/* Makes an element NaN, Inf, -Inf or the NaN whose bits are all ones, which strips mark with what lies outside the image. */
void make_special(tconv_dtype dtype, void *data, int64_t index, harness_random *random);

#endif
