/* One layer with every parameter in use, small enough to look at, for tests of calls rather than of numbers. */
#ifndef TCONV_TESTS_SMALL_LAYER_H
#define TCONV_TESTS_SMALL_LAYER_H

#include <stdbool.h>

#include "tconv/tconv.h"

enum {
    SMALL_SRC = 2 * 4 * 3 * 5,
    SMALL_WEIGHTS = 4 * 3 * 3 * 2,
    SMALL_BIAS = 6,
    SMALL_DST = 2 * 6 * 6 * 10,
    SMALL_WORKSPACE = 1 << 18 /* more than the layer needs, whatever the implementation */
};

struct small_layer {
    tconv_desc desc;
    float src_data[SMALL_SRC], weights_data[SMALL_WEIGHTS], bias_data[SMALL_BIAS], dst_data[SMALL_DST];
    float expected[SMALL_DST];
    tconv_tensor src, weights, bias, dst;
    _Alignas(64) unsigned char workspace[SMALL_WORKSPACE];
};

/* Makes the layer: two images, 4 x 3 x 5 to 6 x 6 x 10, groups 2, kernel 3 x 2, stride 2; integers, and the right
 * answer by the formula with the bias. layer is used in place: it must not move. */
void small_layer_init(struct small_layer *layer);

/* Fills dst with a number that no output has. */
void small_layer_clear(struct small_layer *layer);

/* Whether dst is the right answer, or still untouched since small_layer_clear. */
bool small_layer_is_right(const struct small_layer *layer);
bool small_layer_is_untouched(const struct small_layer *layer);

/* Returns a plan for the layer; the test fails where there is none. */
tconv_plan *small_layer_plan(const struct small_layer *layer, const tconv_options *options);

/* Clears dst and executes the plan; issue becomes the thread's last issue. */
tconv_status small_layer_execute(struct small_layer *layer, const tconv_plan *plan, tconv_issue *issue);

/* Fails the test unless the plan executes and dst is right then. */
void small_layer_expect_right(struct small_layer *layer, const tconv_plan *plan);

#endif
