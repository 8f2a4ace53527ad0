/*
 * A layer seen as another layer of the same memory, which an implementation computes in its place. Implementations decide
 * when a view is worth it, and what that means for their weights.
 *
 * One pixel: images of one input pixel, each of whose outputs has a tap, have those outputs as channels of one output
 * pixel. Output `output` of a channel, counted by rows and columns, is channel `channel * outputs + output`.
 *
 * Columns as channels (space-to-depth along W): where P divides the columns' stride, padding, kernel and number, columns
 * P * o + j, j < P, take the taps P * k + j of the same pixels. They are P times as many channels of a layer with stride,
 * padding, kernel and columns over P: channel `channel * P + j`.
 *
 * Fused groups: several channel groups are one, whose weights are block-diagonal.
 *
 * Exchanged: the gradient of src is a layer of stride 1 whose src is the gradient of dst, and whose dst is the gradient of
 * src. The phases of its src have the taps (tconv_layer.phases_of_src).
 *
 * space_to_depth.h has the view of layers whose gradient of the weights is wanted.
 */
#ifndef TCONV_CORE_VIEWS_H
#define TCONV_CORE_VIEWS_H

#include "impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------ one pixel */

/* Returns the axis of one input and one output, by one tap. */
tconv_axis tconv_one_pixel_axis(void);

/* Returns whether an axis has one input and one output, by one tap. Its stride has no effect. */
bool tconv_is_one_pixel_axis(const tconv_axis *axis);

/* Returns whether each output of an axis has exactly one tap, and each input as many outputs of its own as the stride. */
bool tconv_has_single_taps(const tconv_axis *axis);

/* Returns the phase table of an axis of stride 1, or of one input, where stride has no effect: the one phase, which is
 * written to *phase, and to which the table points. */
tconv_phase_table tconv_one_phase(const tconv_axis *axis, tconv_phase *phase);

/* Returns whether all images of a layer are one input pixel, each of whose outputs has a tap, and one that no other output
 * has. Channels must be neighbours in src, and the outputs of a channel in dst, for the layer to be seen by
 * tconv_flatten_one_pixel. */
bool tconv_is_one_pixel(const tconv_layer *layer);

/* Makes channels of the outputs of an image: the layout becomes NHWC. The strides of rows and columns, of which there is one,
 * become those of images. The strides of the weights stay what they are: which weights an output has is for the caller
 * to say. */
void tconv_flatten_one_pixel(tconv_problem *problem);

/* --------------------------------------------------------------------------------------------- columns as channels */

/* Returns the most columns that may be channels; whatever divides that may be, too. 1: none. */
int64_t tconv_most_columns_as_channels(const tconv_layer *layer);

/* Makes channels of `columns` neighbouring columns, which divide what tconv_most_columns_as_channels returns. The phases are
 * written to phases: as many as before, by `columns`. A channel's first column is dst.c and weight.out behind that of
 * the channel before, as they were; a column of it dst.w / columns and weight.w / columns behind the column before. */
void tconv_columns_as_channels(tconv_layer *layer, int64_t columns, tconv_phase *phases);

/* ---------------------------------------------------------------------------------------------------- fused groups */

/* Makes one group of each `fused` groups, which divide the groups. Output channel o of the new group has the weights of the
 * input channels of its own group, and zeros for those of others. */
void tconv_fuse_groups(tconv_problem *problem, int64_t fused);

/* ------------------------------------------------------------------------------------------------------- exchanged */

/* Returns a layer with the roles of src and dst exchanged: channels, extents and strides, and those of the weights. Axes
 * have stride 1 and no padding: the phases of src have them. */
tconv_problem tconv_exchanged(const tconv_problem *problem);

/* Returns an axis without the kernel elements at either end that reach no output: *first_kernel is the first of the others.
 * Where none reaches an output, the first one is left. */
tconv_axis tconv_reaching_kernel(const tconv_axis *axis, int64_t *first_kernel);

/* Returns the phases of src that an exchanged axis has, for an axis without the first_kernel elements before its own ones:
 * axis->in is the number of outputs, which are the same for all phases. They are min(kernel, kernel_step), and are written to
 * phases. A residue is that of the first place that a phase reads, and may be negative or more than the stride. */
tconv_phase_table tconv_phases_of_src(const tconv_axis *axis, int64_t first_kernel, tconv_phase *phases);

#ifdef __cplusplus
}
#endif

#endif
