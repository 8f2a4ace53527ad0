/* Sizes derived from extents that are each valid by themselves. */
#ifndef TCONV_CORE_SHAPE_H
#define TCONV_CORE_SHAPE_H

#include "problem.h"
#include "text.h"

/* The most elements that an axis may span before padding crops it: a quarter of int64_t's range. It is chosen so that
 * the sum of a few coordinates, strides and pads never wraps. */
#define TCONV_AXIS_LIMIT (INT64_MAX / 4)

/* The most phases of an axis. It is chosen so that a phase table is 2.5 MiB at most and made in milliseconds, whatever
 * the layer; layers in use have strides of a few dozen. */
#define TCONV_MAX_PHASES 65536

/* Fills *axis from one axis of a desc whose fields are each valid by themselves; suffix is "d", "h" or "w". pad_end is the
 * back, bottom or right padding. Checks that the output has at least one element, that nothing overflows and that there are
 * not too many phases. */
tconv_status tconv_axis_init(tconv_axis *axis, int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                             int64_t pad_begin, int64_t pad_end, int64_t output_padding, const char *suffix,
                             tconv_issue *issue);

/* Returns the same axis in the form in which implementations see it. With one kernel element, dilation has no effect
 * and becomes 1. With one input, stride has no effect (only input 0 exists) and becomes dilation * kernel, so that each
 * phase has one tap: a 4 x 4 kernel on a 1 x 1 image is then 16 phases of one product, not one phase of 16 taps of
 * which 15 fall outside the image. For a kernel of more than TCONV_MAX_PHASES the stride becomes
 * dilation * TCONV_MAX_PHASES. */
tconv_axis tconv_axis_canonical(tconv_axis axis);

/* Extents of a tensor, and its name for issues: "src", "dst" or "addend". */
typedef struct tconv_shape {
    int64_t n, c, d, h, w;
    const char *name;
    bool images_anywhere; /* of a derived layer, whose images may lie inside of its channels */
} tconv_shape;

/* Resolves the caller's strides (0: dense) of a tensor, those of planes apart, and checks the rules of tconv_desc. *extent
 * becomes the number of elements from the first to one past the last. */
tconv_status tconv_strides_init(tconv_strides *strides, int64_t *extent, const int64_t given[4], int64_t given_d,
                                const tconv_shape *shape, tconv_layout layout, size_t element_size, tconv_issue *issue);

/* Appends " key=NxCxHxW" where the caller gave any of the strides, NxCxDxHxW where the layer is deep. */
void tconv_strides_format(const tconv_strides *strides, const int64_t given[4], int64_t given_d, bool deep,
                          const char *key, tconv_text *text);

/* Computes the weights' strides and extent; in_channels counts over all groups. */
tconv_status tconv_weight_strides_init(tconv_weight_strides *strides, int64_t *extent, const tconv_problem *problem,
                                       tconv_weight_layout layout, tconv_issue *issue);

#endif
