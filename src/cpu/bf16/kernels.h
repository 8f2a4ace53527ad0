/*
 * The kernels of the matrix algorithm: products of small matrices of 16-bit factors, as AMX's tile registers take them.
 *
 * A factor is split into parts, numbers of bf16 whose sum it is: three for f32, two for f16, one for bf16. Products of
 * parts are exact; of two factors all are summed but those of parts whose numbers (from 0) add up to 3 and more, which
 * are less than 2^-24 of the product.
 *
 * Words. A fragment is what a register holds: of the strip, 16 positions x a chunk of input channels; of the weights, a
 * chunk x 16 output channels (a block), pair of input channels by pair; of the sums, 16 positions x a block. depth is the
 * channels of a chunk, an even number.
 */
#ifndef TCONV_CPU_BF16_KERNELS_H
#define TCONV_CPU_BF16_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "tconv/tconv.h"

/* Rows of a fragment of sums, positions, and its columns, output channels. */
enum { TCONV_CPU_FRAGMENT = 16 };

/* The most input channels of a chunk: a row of 64 bytes. */
enum { TCONV_CPU_BF16_DEPTH = 32 };

/* Blocks and fragments of a micro-tile: four registers hold its sums, two the weights, two the strip. */
enum { TCONV_CPU_BF16_BLOCKS = 2, TCONV_CPU_BF16_FRAGMENTS = 2 };

/* Output channels and sums of the largest micro-tile. */
enum {
    TCONV_CPU_BF16_CHANNELS = TCONV_CPU_BF16_BLOCKS * TCONV_CPU_FRAGMENT,
    TCONV_CPU_BF16_SUMS = TCONV_CPU_BF16_CHANNELS * TCONV_CPU_BF16_FRAGMENTS * TCONV_CPU_FRAGMENT
};

/* Parts of an f32. */
enum { TCONV_CPU_BF16_PARTS = 3 };

/* Steps (a tap with a chunk) of a segment, whose products are summed in registers; see TCONV_CPU_SEGMENT. In a step, 16
 * terms follow one another in each of two sums, which are off by 4.5 roundings at most where terms are alike; 16 steps
 * by 4.5 more. */
enum { TCONV_CPU_BF16_STEPS = 16 };

/* Numbers are split whose magnitude is zero or, as the bits of an f32, from LEAST on (2^-100) and below MOST (2^127):
 * others leave bf16's range, or may round up to Inf. Of those the first parts are the bits of the f32, from the upper half
 * on, and the third of three is the mark that no part is; every NaN is the same. */
#define TCONV_CPU_BF16_LEAST (UINT32_C(27) << 23)
#define TCONV_CPU_BF16_MOST  (UINT32_C(254) << 23)

/* Stands in the strip, in all channels, for what lies outside the image, and in the third part of numbers that are not
 * split: no part is this NaN. */
enum { TCONV_CPU_BF16_MARK = 0xffff };

/* The least and the greatest of some numbers, without zeros and signs, as their bits. */
typedef struct tconv_cpu_bf16_range {
    uint32_t least, most;
} tconv_cpu_bf16_range;

#define TCONV_CPU_BF16_NO_RANGE                                                                                        \
    {                                                                                                                  \
        UINT32_MAX, 0                                                                                                  \
    }

/* Splits rows of f32: row r has `count` numbers at from + r * row, `step` apart, whose parts follow one another in the same
 * order at to + r * to_row. */
typedef struct tconv_cpu_bf16_split {
    const float *from;
    int64_t rows, count, row, step; /* either row or step is 1; at most TCONV_CPU_FRAGMENT where step is not */
    int parts;
    uint16_t *to;                /* the first part */
    int64_t to_row, part_pitch;  /* elements from row to row, and from part to part */
    tconv_cpu_bf16_range *range; /* is extended to these numbers */
} tconv_cpu_bf16_split;

typedef void tconv_cpu_bf16_split_function(const tconv_cpu_bf16_split *split);

/* The same of bf16, whose one part is the number itself: row r has `count` numbers at from + r * row; or, of pairs, so many
 * pairs at from + r, `step` apart, of which each is one for `count` and has its first number in its lower half. */
typedef struct tconv_cpu_bf16_copy {
    const void *from; /* uint16_t, of pairs uint32_t */
    bool pairs;
    int64_t rows, count, row, step; /* of pairs, count is at most TCONV_CPU_FRAGMENT */
    uint16_t *to;
    int64_t to_row; /* numbers */
    tconv_cpu_bf16_range *range;
} tconv_cpu_bf16_copy;

typedef void tconv_cpu_bf16_copy_function(const tconv_cpu_bf16_copy *copy);

/*
 * One call sums a micro-tile of fragments x blocks over steps,
 *
 *     sums[f][p][c] = bias[c] + sum over s, k of strip[f][steps[s] + p * depth + k] * weights[s][k / 2][c][k % 2]
 *
 * with a cascade of segments of steps as in tconv_cpu_microtile (kernels.h). In a segment, products of lesser parts are
 * summed before those of the greatest.
 */
typedef struct tconv_cpu_bf16_tile {
    int blocks, fragments, parts;
    int64_t depth;
    const uint16_t *strip[TCONV_CPU_BF16_FRAGMENTS]; /* the first position of each fragment */
    int64_t strip_part;                              /* elements from part to part */
    const int32_t *steps;                            /* what each adds to the place in the strip */
    int64_t step_count;
    const uint16_t *weights; /* [step][part][pair][output channel of a block][channel of the pair] */
    int64_t weights_block;   /* elements from block to block */
    float *levels;           /* aligned: the segment's sums, then the cascade's, TCONV_CPU_BF16_SUMS each */
    const float *bias;
    float *sums[TCONV_CPU_BF16_FRAGMENTS];
    int64_t sums_position, sums_channel; /* from one to the next; either is 1 */
} tconv_cpu_bf16_tile;

typedef void tconv_cpu_bf16_sum_function(const tconv_cpu_bf16_tile *tile);

/* What the machine multiplies at a time: numbers of f32, by C to the rules of the others; pairs of bf16 in a vector;
 * matrices of bf16. */
typedef enum tconv_cpu_multiplies { TCONV_CPU_NUMBERS, TCONV_CPU_PAIRS, TCONV_CPU_MATRICES } tconv_cpu_multiplies;

typedef struct tconv_cpu_bf16_kernels {
    tconv_cpu_multiplies multiplies;
    void (*begin)(int64_t depth); /* sets the thread's registers up */
    void (*end)(void);
    tconv_cpu_bf16_split_function *split;
    tconv_cpu_bf16_copy_function *copy;
    tconv_cpu_bf16_sum_function *sum;
    /* Joins the parts of each factor and multiplies in f32, for whatever numbers; leaves out what is outside. */
    tconv_cpu_bf16_sum_function *sum_joined;
} tconv_cpu_bf16_kernels;

extern const tconv_cpu_bf16_kernels tconv_cpu_bf16_kernels_generic;
extern const tconv_cpu_bf16_kernels tconv_cpu_bf16_kernels_avx512_bf16;
extern const tconv_cpu_bf16_kernels tconv_cpu_bf16_kernels_amx;

/* Returns the table of a level that tconv_cpu_resolve gave. */
const tconv_cpu_bf16_kernels *tconv_cpu_find_bf16_kernels(tconv_cpu_isa isa);

#endif
