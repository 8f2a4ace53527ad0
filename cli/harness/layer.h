/*
 * Layers to test and to time: random layers, the corners by name, and both as arguments of `tconv bench`.
 */
#ifndef TCONV_HARNESS_LAYER_H
#define TCONV_HARNESS_LAYER_H

#include <stdbool.h>

#include "operation.h"
#include "post.h"
#include "random.h"
#include "tconv/tconv.h"

/* Everything that is needed to replay a failure but the numbers in the tensors. */
typedef struct harness_layer {
    tconv_desc desc;
    bool has_bias;
} harness_layer;

/* A tensor's logical shape and where its elements lie: element (a, b, c, d) is data[a * stride[0] + ... ]. Rows and planes
 * are dense in every layout of every tensor, so that one axis has the rows of all planes, plane after plane: row h of
 * plane z is harness_view_row(view, z, h). */
typedef struct harness_view {
    int64_t shape
        [4]; /* src, dst, an addend: n, c, d * h, w; weights: in_channels, out_channels / groups, kernel_d * kernel_h,
                          kernel_w; bias, operands of channels: their number, 1, 1, 1 */
    int64_t stride[4]; /* in elements */
    int64_t extent;    /* elements from the first to one past the last, gaps included; 0 for no image */
    int64_t planes;    /* d or kernel_d; shape[2] is a multiple of it */
} harness_view;

/* These return views of a valid layer's tensors (tconv_validate), computed from the formulas of tconv.h and not by the
 * library. */
harness_view harness_src_view(const tconv_desc *desc);
harness_view harness_dst_view(const tconv_desc *desc);
harness_view harness_weights_view(const tconv_desc *desc);
harness_view harness_view_of(const tconv_desc *desc, harness_role role);

/* Returns the type of a tensor's elements: the layer's; f32 for operands of channels where that is narrower. */
tconv_dtype harness_role_dtype(const tconv_desc *desc, harness_role role);

/* Returns the index of element (a, b, c, d) in data. */
static inline int64_t harness_view_index(const harness_view *view, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * view->stride[0] + b * view->stride[1] + c * view->stride[2] + d * view->stride[3];
}

/* Returns how many rows a plane has, and the index on axis 2 of a row of a plane. */
static inline int64_t harness_view_rows(const harness_view *view)
{
    return view->shape[2] / view->planes;
}

static inline int64_t harness_view_row(const harness_view *view, int64_t plane, int64_t row)
{
    return plane * harness_view_rows(view) + row;
}

/* Returns the number of elements of the logical shape, without gaps. */
int64_t harness_view_elements(const harness_view *view);

/* Whether the layer has more than one plane, or taps along depth that matter; where not, no field of depth changes any
 * result. The desc need not be valid. */
bool harness_has_depth(const tconv_desc *desc);

/* Gives the fields of depth their defaults. */
void harness_drop_depth(tconv_desc *desc);

/* Makes all strides dense. */
void harness_make_dense(tconv_desc *desc);

/* Returns the FLOP of a layer: two for each input pixel, pair of channels of a group and tap, including the taps that padding
 * crops. */
double harness_layer_flops(const tconv_desc *desc);

/* Draws a valid layer that runs in milliseconds: any dtype, layouts, groups, uneven strides, dilations and paddings on
 * four sides, output_padding up to its limit, slices with gaps, odd channels, size 1, now and then no image at all.
 * math is STRICT, or TF32 for some of the f32 layers. About one in seven has depth (HARNESS_DRAWS_DEPTH). */
void harness_random_layer(harness_random *random, harness_layer *layer);

/* Whether layers that are drawn may have depth, and corners in depth are among the corners: not before plans take such
 * layers. */
enum { HARNESS_DRAWS_DEPTH = 1 };

/* Gives a layer of two axes some depth in about one draw of seven, and makes it smaller where its work is beyond the limits:
 * of multiply-adds, and of outputs. Depth has a generator of its own, which is seeded by the state of random: layers
 * without depth, and all that is drawn after them, are as they would be without this call. */
void harness_draw_depth(const harness_random *random, tconv_desc *desc, double multiply_adds, double outputs);

/* Draws a valid layer of any operation by class (classes.c): of groups and channels, of each axis' inputs, kernel, stride,
 * dilation and padding. It runs in milliseconds, one in four in tens of them. */
void harness_class_layer(harness_random *random, harness_layer *layer);

/* Gives src, dst or both of a layer the strides of a slice now and then, with room between channels (NCHW) or pixels
 * (NHWC) and between images. */
void harness_draw_slices(harness_random *random, tconv_desc *desc);

/* Draws the strides of a slice for the addend. */
void harness_draw_slice_of_addend(harness_random *random, tconv_desc *desc);

/* The corners, each in every dtype and both layouts. harness_corner fills layer with the index-th and returns its name,
 * which is valid for ever; index < harness_corner_count(). */
enum { HARNESS_CORNER_FORMS = 8 }; /* forms of a corner, one after the other: four dtypes by two layouts */
size_t harness_corner_count(void);
const char *harness_corner(size_t index, harness_layer *layer);

/* Whether the CPU's answer to the index-th corner, which is layer, is judged at samples. Layers with more multiply-adds
 * than any random one are, in all of their forms but one; which one changes from corner to corner. The reference takes
 * longer for them than for everything else, and most of them are for the tiles of GPUs, where every output of every
 * corner is judged. */
bool harness_corner_is_sampled(size_t index, const harness_layer *layer);

/* Bytes that are enough for the text of any layer. */
#define HARNESS_LAYER_TEXT 1664

/* Writes the layer as arguments of `tconv bench`:
 *     --problem "n=16 ci=32 h=128 w=256 co=64 k=3x5 s=2x3 p=1x2x1x2 op=0x0 d=2x1 g=4 b=1" --dtype f32 --layout nchw
 *     --weight-layout iohw --math strict --op forward
 * Strides that are not 0 add ss=NxCxHxW and ds=NxCxHxW, accumulate acc=1, post-ops post=mul_channel,clamp:0:6, an addend's
 * strides as=NxCxHxW. A layer with depth has z=, its input planes, and lists have the number of depth as well: k=, s=, op=
 * and d= before the others, p= front x top x left x back x bottom x right, strides NxCxDxHxW. text is cut at capacity.
 * Returns the length as snprintf. */
int harness_layer_format(const harness_layer *layer, char *text, size_t capacity);

/* Reads the text between the quotes of --problem into *layer, whose desc is initialised here; dtype, layouts, math and
 * op keep their defaults. n, s, p, op, d, g, b and acc may be left out (1, 1, 0, 0, 1, 1, 0, 0), post too; sizes are pairs HxW or one
 * number for both; p takes one, two (HxW) or four (top x left x bottom x right) numbers. With z= sizes are triples DxHxW or one
 * number, and p takes one, three or six. On false, message says which part is wrong and why. The layer is not validated. */
bool harness_problem_parse(const char *text, harness_layer *layer, char *message, size_t capacity);

/* These return the names on the command line: "f32", "nchw", "iohw", "strict", "avx2" and so on; "?" for none. */
const char *harness_dtype_name(tconv_dtype dtype);
const char *harness_layout_name(tconv_layout layout);
const char *harness_weight_layout_name(tconv_weight_layout layout);
const char *harness_math_name(tconv_math math);
const char *harness_op_name(tconv_op op);
const char *harness_backend_name(tconv_backend backend);
const char *harness_cpu_isa_name(tconv_cpu_isa isa);

/* The same as tables in the order of the enumerators, which end with NULL. */
extern const char *const harness_dtype_names[],
    *const harness_layout_names[], *const harness_weight_layout_names[], *const harness_math_names[],
                                                                             *const harness_op_names[],
                                                                                 *const harness_backend_names[],
                                                                                     *const harness_cpu_isa_names[];

/* Whether an implementation is at a level what it is at the generic one, so that it need not be tested again: cpu_bf16
 * has the same kernels wherever there is neither AMX nor AVX512_BF16. */
bool harness_is_generic_again(const char *implementation, tconv_cpu_isa isa);

#endif
