/* What the tests of the gradients share. */
#ifndef TCONV_TESTS_GRADIENTS_H
#define TCONV_TESTS_GRADIENTS_H

#include "harness.h"

/* Returns the layer of a problem (harness_problem_parse) with an operation; the test fails where the text is none. */
harness_layer gradient_layer(const char *problem, tconv_op op);

/* Returns the layer of the gradient of the weights in a dtype and a layout, as tensor cores have it: f32 is in TF32. */
harness_layer gradient_weights_layer(const char *problem, tconv_dtype dtype, tconv_layout layout);

/* Gives the layer one of 24 forms: four dtypes by two layouts by three layouts of weights, in this order from slow to
 * fast. */
enum { GRADIENT_FORMS = 24 };
void gradient_set_form(harness_layer *layer, int form);

/* Fails the test unless something took its layers: `taken` says how often. On CUDA the test is skipped, visibly, as long
 * as nothing there has the operation. */
void gradient_expect_taken(tconv_backend backend, size_t taken);

#endif
