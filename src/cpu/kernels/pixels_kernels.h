/*
 * The kernels of one instruction set for the pixels algorithm: microkernels whose vectors run along output channels,
 * and the functions on rows around them, for every dtype. kernels/pixels_kernels.inc.h is compiled once for each level; each
 * file exports one table.
 *
 * "Real" is the type of the sums: double for f64, float for every other dtype. Strides and offsets count elements.
 */
#ifndef TCONV_CPU_KERNELS_PIXELS_KERNELS_H
#define TCONV_CPU_KERNELS_PIXELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "../../core/dtype.h"
#include "finish.h"

/* Pixels of the largest micro-tile of any level: with one address register for each pixel, x86-64 has registers for
 * 12. */
enum { TCONV_CPU_MAX_PIXELS = 12 };

/* Vectors of output channels of the largest micro-tile of any level: 12 pixels x 2 vectors are AVX-512's 24 sums. */
enum { TCONV_CPU_MAX_PIXEL_VECTORS = 2 };

/* A tap: the offset that it adds to a pixel's place in the strip, and its index among the weights. */
typedef struct tconv_cpu_pixel_tap {
    int32_t strip, weights;
} tconv_cpu_pixel_tap;

/*
 * One call of a microkernel: it sums a micro-tile of pixels x vectors over tap_count * channels terms,
 *
 *     sums[p][lane] = sum over t, i of strip[at[p] + taps[t].strip + i] * weights[taps[t].weights][i][lane]
 *
 * or, depthwise, over tap_count terms, each lane with a channel of its own,
 *
 *     sums[p][lane] = sum over t of strip[at[p] + taps[t].strip + lane] * weights[taps[t].weights][lane]
 *
 * in the order of t, then i, in segments of so many terms and by the two cascades of tconv_cpu_microtile (kernels.h).
 * Only the last call for a pixel adds the bias.
 */
typedef struct tconv_cpu_pixel_microtile {
    const void *strip;
    const int32_t *at; /* where each pixel begins in the strip */
    const tconv_cpu_pixel_tap *taps;
    int64_t tap_count, channels; /* at least 0, at least 1; depthwise: channels is 1 */
    int64_t segment;             /* at least 1 */
    const void *weights;
    void *levels;       /* this call's cascade: aligned, [level][pixels][vectors * lanes] */
    void *sums;         /* level 0 of the calls' cascade: aligned, [pixels][vectors * lanes] */
    int64_t sums_level; /* from one level of the calls' cascade to the next */
    int64_t calls_done; /* calls before this one */
    const void *bias;   /* [vectors * lanes]; NULL: this is not the last call */
    void *dst;          /* the last call stores all lanes here, as Real; NULL: in sums */
    const int64_t *to;  /* where each pixel begins in dst */
    bool stream;        /* by streaming stores: every place in dst is aligned for vectors */
} tconv_cpu_pixel_microtile;

typedef void tconv_cpu_pixel_microkernel(const tconv_cpu_pixel_microtile *tile);

/* Copies rows of count elements, converted to Real. */
typedef struct tconv_cpu_pixel_load {
    const void *src;
    void *strip;
    int64_t rows, count;
    int64_t src_pitch, strip_pitch; /* from row to row */
} tconv_cpu_pixel_load;

typedef void tconv_cpu_pixel_load_function(const tconv_cpu_pixel_load *load);

/* Copies rows of count elements, converted from Real. */
typedef struct tconv_cpu_pixel_store {
    const void *sums;
    int64_t rows, count;
    int64_t sums_pitch; /* from row to row */
    void *dst;
    const int64_t *to; /* where each row begins in dst */
    bool stream;       /* whole cache lines are written by streaming stores; the finish is plain */
    tconv_cpu_finish finish;
} tconv_cpu_pixel_store;

typedef void tconv_cpu_pixel_store_function(const tconv_cpu_pixel_store *store);

/* Rows of weights that a sweep reads side by side: with two vectors of each, half of the 16 registers. */
enum { TCONV_CPU_SWEEP_ROWS = 4 };

/*
 * Adds the products of some rows of weights, as they lie, to the sums of all pixels:
 *
 *     sums[p][column] += sum over r of src[p][r] * weights[r][column]
 *
 * in the order of r, each added to the sum.
 */
typedef struct tconv_cpu_sweep {
    const void *src, *weights; /* Real */
    void *sums;
    int64_t pixels, rows, count;                  /* count: columns */
    int64_t src_pitch, weights_pitch, sums_pitch; /* from row to row */
    int64_t readable;                             /* rows of weights: those beyond `rows` may be prefetched */
} tconv_cpu_sweep;

typedef void tconv_cpu_sweep_function(const tconv_cpu_sweep *sweep);

/* Rounds sums of double, or of Real, once to the dtype and stores them transposed: to[c * to_pitch + r] =
 * sums[row[r] * pitch + c]. Columns are read by halves of vectors, those of Real by whole ones: a row goes on so far. */
typedef struct tconv_cpu_round {
    const void *sums;
    bool narrow; /* sums are Real */
    const int32_t *row;
    int64_t rows, columns, pitch;
    void *to;
    int64_t to_pitch;
} tconv_cpu_round;

typedef struct tconv_cpu_pixel_kernels {
    bool streams; /* streaming stores are worth it */
    /* By the type of the sums: [0] float, [1] double. */
    struct {
        int lanes;
        int max_pixels[TCONV_CPU_MAX_PIXEL_VECTORS + 1]; /* of a micro-tile, by its vectors */
        tconv_cpu_pixel_microkernel *dense[TCONV_CPU_MAX_PIXEL_VECTORS + 1][TCONV_CPU_MAX_PIXELS + 1];
        tconv_cpu_pixel_microkernel *depthwise[TCONV_CPU_MAX_PIXEL_VECTORS + 1][TCONV_CPU_MAX_PIXELS + 1];
        tconv_cpu_sweep_function *sweep; /* of cpu_col2im */
        /* Of cpu_wgrad: high += numbers, in rows of count, whole vectors, of sums a pitch apart, and low += what that
         * rounds off (Real is double), or high = numbers; whether numbers, whole aligned vectors of them, are finite. */
        void (*accumulate)(double *high, double *low, int64_t pitch, const void *numbers, int64_t rows, int64_t count);
        void (*begin)(double *high, double *low, int64_t pitch, const void *numbers, int64_t rows, int64_t count);
        bool (*are_finite)(const void *numbers, int64_t count);
    } real[2];
    /* By dtype. */
    struct {
        tconv_cpu_pixel_load_function *load;
        tconv_cpu_pixel_store_function *store;
        void (*round)(const tconv_cpu_round *round); /* of cpu_wgrad; NULL: f64 */
    } dtype[TCONV_DTYPES];
} tconv_cpu_pixel_kernels;

extern const tconv_cpu_pixel_kernels tconv_cpu_pixel_kernels_generic;
extern const tconv_cpu_pixel_kernels tconv_cpu_pixel_kernels_avx2;
extern const tconv_cpu_pixel_kernels tconv_cpu_pixel_kernels_avx512;
extern const tconv_cpu_pixel_kernels tconv_cpu_pixel_kernels_neon;

/* Returns the table of a level that tconv_cpu_resolve gave. */
const tconv_cpu_pixel_kernels *tconv_cpu_find_pixel_kernels(tconv_cpu_isa isa);

#endif
