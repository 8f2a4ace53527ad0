/*
 * Shapes of .npy files of layers of two and three axes, in any layout, and the logical extents that they stand for: n, c, d,
 * h, w of activations; in_channels, out_channels / groups, kernel_d, kernel_h, kernel_w of weights.
 */
#ifndef TCONV_CLI_SHAPES_H
#define TCONV_CLI_SHAPES_H

#include "harness.h"
#include "npy.h"

enum { N, C, D, H, W, AXES };

/* These return the places in a file of three axes at which the logical axes lie. A file of two axes lacks that of D. */
const int *shapes_of_layout(tconv_layout layout);
const int *shapes_of_weights(tconv_weight_layout layout);

/* Finds the logical extents of a file with these axes, which has 4 to 5 of them where it is deep and 3 to 4 else. One of two
 * axes has one plane; one without an axis of images has one image. */
void shapes_logical(const npy_array *array, bool deep, const int axes[AXES], int64_t logical[AXES]);

/* Writes the shape that a file has of a tensor of the logical extents, and returns its rank. */
int shapes_in_file(const int64_t logical[AXES], bool deep, bool has_images, const int axes[AXES],
                   int64_t shape[NPY_MAX_RANK]);

/* Writes the logical extents of a view. */
void shapes_of_view(const harness_view *view, int64_t logical[AXES]);

#endif
