/*
 * Small random layers and the formula, written out on the strides and axes of a tconv_problem alone, for tests of layers that
 * are seen as others (src/core/views.h). Numbers are small integers, so that every sum is exact.
 */
#ifndef TCONV_TESTS_SEEN_LAYER_H
#define TCONV_TESTS_SEEN_LAYER_H

#include "../../src/core/impl.h"
#include "harness.h"

enum { SEEN_CHANNELS = 512 }; /* at most */

/* Tensors of a layer, by the number of an element in memory. */
struct tensors {
    double *src, *weights, *dst;
    int *written; /* how often each element of the tensor that is computed was written */
    int64_t src_extent, weight_extent, dst_extent;
};

/* A problem, and where the channels of a view lie. */
struct seen_layer {
    const tconv_problem *problem;
    int64_t dst_channel[SEEN_CHANNELS];    /* elements from the first output to that of each output channel */
    int64_t weight_channel[SEEN_CHANNELS]; /* likewise of the weights, by the output channels of a group */
    int64_t diagonal_in, diagonal_out;     /* channels of a block of weights: those of other blocks are zero */
};

/* Returns a problem whose channels lie as its strides say. */
struct seen_layer see_plainly(const tconv_problem *problem);

/* Makes tensors of random numbers; dst has some, too. */
struct tensors make_tensors(harness_random *random, const tconv_problem *problem);
void release_tensors(struct tensors *tensors);

/* Finds the input that an output takes a kernel element from; false where there is none. */
bool find_input(const tconv_axis *axis, int64_t output, int64_t kernel, int64_t *input);

/* Returns a weight of an input channel, counted over all groups, and an output channel of a group. */
double weight_at(const struct seen_layer *seen, const struct tensors *tensors, int64_t in, int64_t out, int64_t row,
                 int64_t column);

/* Computes dst by the formula, and counts what is written. */
void compute_seen(const struct seen_layer *seen, struct tensors *tensors);

/* Draws a layer of few channels and pixels. */
tconv_desc draw_seen_layer(harness_random *random);

/* Has the images of a layer one pixel; most of their outputs have a tap. */
void draw_one_pixel(harness_random *random, tconv_desc *desc);

/* Makes the layer of a description, with gaps between images, channels or pixels now and then; false where it is none. */
bool make_seen_layer(harness_random *random, tconv_desc *desc, tconv_layer *layer);
void release_seen_layer(tconv_layer *layer);

#endif
