/*
 * The passes that every gradient of weights and bias on CUDA shares: the addition of the split-K slices that a kernel
 * has written to the workspace, and the gradient of the bias. Other rooms include this header beside their own.
 */
#ifndef TCONV_CUDA_WGRAD_SUMS_H
#define TCONV_CUDA_WGRAD_SUMS_H

#include "../../core/impl.h"
#include "../cuda_target.h"
#include "../hardware.h"
#include "tiles.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

/* The partial sums of the gradient of the bias that the kernel which adds slices adds as well, in the order in which bias.cu
 * has its own. */
typedef struct wgrad_bias_parts {
    const void *parts;
    void *bias; /* the gradient */
    int64_t channels;
    int64_t count;    /* of a channel */
    int64_t blocks;   /* that add them, of BIAS_THREADS each; 0: there are none */
    bool by_blocks;   /* there are many: a block adds those of a channel, not a warp */
    bool accumulates; /* to what the gradient holds */
} wgrad_bias_parts;

/* The split-K slices that a kernel has written to the workspace, and what else it has computed of the gradients. */
typedef struct wgrad_slices {
    sum_tiles tiles;
    int64_t count;         /* slices; 0: all sums are 0 */
    bool are_double;       /* the sums of the slices are double, else float */
    bool are_added;        /* the gradient of the weights holds the sums already, */
    bool bias_is_added;    /* and that of the bias */
    wgrad_bias_parts with; /* that are added beside the slices */
} wgrad_slices;

/* Launches the kernels that compute the gradient of the weights as far as slices, and describes these in *slices, which
 * is all zeros before. plan is what the implementation's plan has decided. */
typedef tconv_status (*wgrad_sum_weights)(const tconv_layer *layer, const void *plan, const tconv_arguments *arguments,
                                          wgrad_slices *slices, tconv_issue *issue);

/* Executes a gradient of weights and bias on the layer's device. Each gradient is computed where the caller asks for
 * it: sum_weights writes slices to the workspace, whose sums join the gradient of the weights; then comes the bias. */
tconv_status tconv_wgrad_execute_gradients(const tconv_layer *layer, const void *plan, const tconv_arguments *arguments,
                                           wgrad_sum_weights sum_weights, tconv_issue *issue);

/* The member `pack` of implementations that read no weights: it does nothing. */
tconv_status tconv_wgrad_pack_nothing(const tconv_layer *layer, const void *plan, const void *weights, void *packed,
                                      void *stream, tconv_issue *issue);

/* Returns into how many parts slices are cut, each of which threads of their own add before the parts' sums are added
 * in order: a power of two. */
static inline int tconv_wgrad_parts_of_slices(int64_t slices)
{
    enum { MOST_SLICE_PARTS = 8, LEAST_PART_SLICES = 4 };
    int parts = 1;
    while (parts < MOST_SLICE_PARTS && parts * 2 * LEAST_PART_SLICES <= slices)
        parts *= 2;
    return parts;
}

/* Returns whether a kernel of this layer may begin while the kernel before it still runs: then it waits by itself
 * before it reads or overwrites what that kernel writes or reads (ptx/dependent_launch.cuh). The first kernel of a call
 * must not. */
static inline bool tconv_wgrad_may_overlap(const tconv_layer *layer)
{
    return tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
}

/* Launches the kernel that adds the slices in memory in order, in double, and rounds the sums to the layer's dtype
 * once. */
tconv_status tconv_wgrad_add_slices(const tconv_layer *layer, const wgrad_slices *slices, const void *memory,
                                    void *weights, void *stream, tconv_issue *issue);

/* The same for many weights, row after row of a tile: a block reads sums in the order of the slice, and transposes them
 * in shared memory to the order of the weights. tconv_wgrad_add_slices does so where tconv_wgrad_adds_rows is true. */
bool tconv_wgrad_adds_rows(const tconv_layer *layer, const wgrad_slices *slices);
tconv_status tconv_wgrad_add_rows(const tconv_layer *layer, const wgrad_slices *slices, const void *memory,
                                  void *weights, void *stream, tconv_issue *issue);

/* Returns the bytes of workspace that the gradient of the bias takes. */
size_t tconv_wgrad_bias_scratch(const tconv_layer *layer);

/* Launches the kernels that sum the gradient of dst over all images and outputs of a channel, in double, compensated,
 * in an order that the layer fixes. overlaps: they may begin while the kernel of this call before them still runs. */
tconv_status tconv_wgrad_sum_bias(const tconv_layer *layer, const void *diff_dst, void *scratch, void *bias,
                                  bool overlaps, void *stream, tconv_issue *issue);

/* When the kernel that writes partial sums of the bias runs: after the kernel ahead; from before its end on; or beside it, in
 * a place of the workspace of its own, where the kernel ahead has its dependents launched as it begins. */
typedef enum bias_order { BIAS_AFTER, BIAS_OVERLAPPING, BIAS_BESIDE } bias_order;

/* The two steps of that: the partial sums, of which each channel gets *count, and their description for a kernel that adds
 * them. */
tconv_status tconv_wgrad_sum_bias_parts(const tconv_layer *layer, const void *diff_dst, void *parts, bias_order order,
                                        int64_t *count, void *stream, tconv_issue *issue);
wgrad_bias_parts tconv_wgrad_bias_parts_of(const tconv_layer *layer, const void *parts, int64_t count, void *bias);

/* Launches the kernel that adds `count` partial sums of each channel, in order, to the gradient of the bias. The second
 * function returns the bytes of `parts` partial sums of all channels. */
tconv_status tconv_wgrad_add_bias_parts(const tconv_layer *layer, const void *parts, int64_t count, void *bias,
                                        void *stream, tconv_issue *issue);
size_t tconv_wgrad_bias_parts_bytes(const tconv_layer *layer, int64_t parts);

TCONV_ROOM_END

#endif
