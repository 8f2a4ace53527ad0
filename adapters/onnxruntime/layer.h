/*
 * A node ConvTranspose as a layer: what its attributes say, whether tconv takes the layer, and the tconv_desc of the layer at
 * given shapes. Nothing here keeps anything of ONNX Runtime's.
 */
#ifndef TCONV_ORT_LAYER_H
#define TCONV_ORT_LAYER_H

#include <tconv/tconv.h>

#include "ort_abi.h"

#define TCONV_ORT_MAX_RANK 5 /* images, channels, planes, rows, columns */
#define TCONV_ORT_AXES     3 /* planes, rows, columns */

/* How the outputs at the borders are cut off. */
enum tconv_ort_padding {
    TCONV_ORT_EXPLICIT,     /* as the attribute pads says; auto_pad VALID is this without pads */
    TCONV_ORT_SAME_UPPER,   /* so that out = in * stride, the odd column at the end */
    TCONV_ORT_SAME_LOWER,   /* the same, the odd column at the beginning */
    TCONV_ORT_OUTPUT_SHAPE, /* so that out is the attribute output_shape; upper says where the odd column goes */
};

/* A node's attributes, for planes, rows and columns; a node of fewer dimensions has the neutral values in front. */
struct tconv_ort_layer {
    int axes; /* spatial ones: 1 to 3; 0 where nothing says */
    int64_t stride[TCONV_ORT_AXES], dilation[TCONV_ORT_AXES], pad_begin[TCONV_ORT_AXES], pad_end[TCONV_ORT_AXES];
    int64_t output_padding[TCONV_ORT_AXES], output_shape[TCONV_ORT_AXES];
    int64_t kernel[TCONV_ORT_AXES]; /* kernel_shape, 0 where it is not given */
    int64_t groups;
    enum tconv_ort_padding padding;
    bool upper; /* auto_pad is SAME_UPPER */
};

/* A tensor's shape. A rank of -1 and an extent of -1 are not known. */
struct tconv_ort_shape {
    int rank;
    int64_t dims[TCONV_ORT_MAX_RANK];
};

/* Where attributes are read: of a node of a graph or of a kernel that is made; the other one is NULL. */
struct tconv_ort_attributes {
    const struct ort *ort;
    const OrtNode *node;
    const OrtKernelInfo *info;
};

/* Finds tconv's type for one of ONNX's. false: there is none. */
bool tconv_ort_dtype(int type, tconv_dtype *dtype);

/*
 * Reads a node's attributes; rank is that of its tensors, or -1. false: tconv does not take such a layer, for the reason
 * that the issue has.
 */
bool tconv_ort_read_layer(const struct tconv_ort_attributes *from, int rank, struct tconv_ort_layer *layer,
                          tconv_issue *issue);

/*
 * Fills desc for src and weights of these shapes, which are known, and validates it. false: the shapes do not fit the node or
 * tconv does not take the layer, for the reason that the issue has. Where src has no planes, rows or columns, desc is that
 * of a layer that has one and the same output, which is the bias.
 */
bool tconv_ort_describe(const struct tconv_ort_layer *layer, tconv_dtype dtype, const struct tconv_ort_shape *src,
                        const struct tconv_ort_shape *weights, tconv_desc *desc, tconv_issue *issue);

#endif
