/* Layers of any size, for planning alone: most are larger than memory is. */
#ifndef TCONV_TESTS_WILD_H
#define TCONV_TESTS_WILD_H

#include "harness.h"

/* Draws a layer of any size, operation, dtype, layout and math: most are larger than memory is, some than numbers are. */
void draw_wild_layer(harness_random *random, harness_layer *layer);

#endif
