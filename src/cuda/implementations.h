/*
 * The CUDA implementations, as the list sees them. Each lies in a folder of its name, whose file of the same name
 * begins with a paragraph on the algorithm, the layers that it accepts, and its numeric order.
 */
#ifndef TCONV_CUDA_IMPLEMENTATIONS_H
#define TCONV_CUDA_IMPLEMENTATIONS_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a plan that can be part of another implementation's (inner/inner.h): cuda_cells' takes 5,272. */
#define TCONV_CUDA_MAX_INNER_PLAN 6144

/* Bytes of a plan that has such a one in it, and can be part of cuda_finish's: an assertion in cuda_dgrad and in
 * cuda_gemm_col2im holds theirs to it. */
#define TCONV_CUDA_MAX_OUTER_PLAN 10240

/* Bytes of a plan that can be part of cuda_nhwc's, cuda_wgrad's above all, whose assertion holds it to that. */
#define TCONV_CUDA_MAX_NHWC_PLAN 12288

/* "cuda_depthwise": one input channel per group (depthwise), on any device. */
extern const tconv_implementation tconv_cuda_depthwise_forward;

/* "cuda_col2im": few output channels from many input channels, on tensor cores. */
extern const tconv_implementation tconv_cuda_col2im;

/* "cuda_gemm_col2im": any number of taps and any stride, products and then their sums, on tensor cores. */
extern const tconv_implementation tconv_cuda_gemm_col2im;

/* "cuda_frames": few columns of many channels, weights read as they lie, on any device with tensor cores. */
extern const tconv_implementation tconv_cuda_frames;

/* "cuda_rows": strided NCHW layers with few channels per group, whose time is that of writing dst, on tensor cores. */
extern const tconv_implementation tconv_cuda_rows;

/* "cuda_cells": f32 layers of many channels in NCHW on Hopper, column strides 1, 2 and 4, in TF32 and in strict f32; of 16
 * bits gradients of src with even column strides. */
extern const tconv_implementation tconv_cuda_cells;

/* "cuda_wgmma": NCHW layers of many channels on Hopper, strides 1 and 2. */
extern const tconv_implementation tconv_cuda_wgmma;

/* "cuda_igemm": layers of many channels on Hopper, any stride and kernel, NHWC above all. */
extern const tconv_implementation tconv_cuda_igemm;

/* "cuda_mma": f32, f16 and bf16 with a fair number of channels per group, on any device with tensor cores. */
extern const tconv_implementation tconv_cuda_mma;

/* "cuda_general": every layer, on any device. */
extern const tconv_implementation tconv_cuda_general;

/* "cuda_depthwise": the gradient of src of layers with one input channel per group, on any device. */
extern const tconv_implementation tconv_cuda_depthwise_data;

/* "cuda_dgrad": the gradient of src, as a forward layer that one of these computes. */
extern const tconv_implementation tconv_cuda_dgrad;

/* "cuda_finish": forward and the gradient of src of layers that accumulate, and forward of layers with post-ops, by one of
 * these and a pass that makes outputs of its sums. */
extern const tconv_implementation tconv_cuda_finish;

/* "cuda_nhwc": layers in NCHW, in NHWC by one of these, between transpositions: all three operations. */
extern const tconv_implementation tconv_cuda_nhwc;

/* "cuda_carry": streams, by one of these that multiplies pixels and a pass that makes outputs and the carry. */
extern const tconv_implementation tconv_cuda_carry;

/* The gradients of weights and bias. "cuda_depthwise": groups of one input channel. */
extern const tconv_implementation tconv_cuda_depthwise_weights;

/* "cuda_wgrad": on tensor cores, f32, f16 and bf16. */
extern const tconv_implementation tconv_cuda_wgrad;

/* "cuda_general": every layer, on any device. */
extern const tconv_implementation tconv_cuda_general_weights;

#ifdef __cplusplus
}
#endif

#endif
