/*
 * The bias beside the sums, whatever the algorithm: converted for the microkernels that add it, and written as it is to
 * the gaps, outputs that no phase has.
 */
#ifndef TCONV_CPU_BIAS_H
#define TCONV_CPU_BIAS_H

#include "../core/impl.h"

/* Converts count elements of dtype to the type of the sums; zeros where bias is NULL. */
void tconv_cpu_convert_bias(tconv_dtype dtype, const void *bias, int64_t count, void *converted);

/* Some positions (blocking.h) of some images, and channels counted over all groups. */
typedef struct tconv_cpu_bias_only {
    const tconv_layer *layer;
    void *dst;
    const void *bias; /* as the caller's, NULL for none */
    int64_t image, images, row, rows, column, columns, channel, channels;
    bool whole_rows; /* rows that have a phase were written whole */
    bool stream;     /* NCHW: long runs go past the caches */
} tconv_cpu_bias_only;

/* Writes the bias to all outputs there that no phase has. */
void tconv_cpu_fill_bias_only(const tconv_cpu_bias_only *gaps);

#endif
