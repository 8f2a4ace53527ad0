/*
 * The bias as both algorithms use it: converted to the type of the sums for the microkernels that add it, and written
 * as it is to bias-only outputs, which no phase has.
 */
#ifndef TCONV_CPU_BLOCKING_BIAS_H
#define TCONV_CPU_BLOCKING_BIAS_H

#include "../../core/impl.h"
#include "../kernels/finish.h"

/* Converts count elements of dtype to the type of the sums; writes zeros where bias is NULL. */
void tconv_cpu_convert_bias(tconv_dtype dtype, const void *bias, int64_t count, void *converted);

/* A region of dst: positions (blocking.h) of images, and the same channels of some groups. Regions of tasks are
 * disjoint: what is added to is added to once. */
typedef struct tconv_cpu_bias_only {
    const tconv_layer *layer;
    void *dst;
    const void *bias;             /* the caller's; NULL: there is none */
    const tconv_cpu_posts *posts; /* where the layer has a list */
    int64_t image, images, row, rows, column, columns;
    int64_t group, groups, group_out; /* of group_out output channels each */
    int64_t channel, channels;        /* of each of the groups */
    bool whole_rows;                  /* rows that have a phase are written whole already */
    bool stream;                      /* NCHW: long runs are written with streaming stores */
} tconv_cpu_bias_only;

/* Writes the bias to all outputs of the region that no phase has, or adds it to them. */
void tconv_cpu_fill_bias_only(const tconv_cpu_bias_only *region);

#endif
