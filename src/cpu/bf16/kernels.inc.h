/*
 * The kernels of the matrix algorithm as text, that is compiled once for each way to multiply, with
 *
 *     LEVEL          the suffix of the table
 *     HAS_AVX512     1: AVX-512 and AVX512_BF16, else any machine
 *     HAS_AMX        1: AMX too
 *
 * Each register is named by its number. 0 to 3 hold the sums of [fragment][block], 4 and 5 the strip of two fragments, 6 and
 * 7 weights of two blocks:
 *
 *     REGISTERS                   declares them
 *     ZERO(number)                clears sums
 *     LOAD_STRIP(number, from)    16 positions, tile->depth numbers each
 *     LOAD_WEIGHTS(number, from)  tile->depth / 2 pairs of 16 output channels
 *     MULTIPLY(first, second, strip)  to the first sums the products with the first block's weights, and to the second ones,
 *                                 where there are two blocks, with the second's
 *     STORE(number, to, pitch)    writes sums, rows `pitch` floats apart
 */
#include <string.h>

#include "../kernels/half.h"
#include "kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define JOIN_NOW(a, b) a##_##b
#define JOIN(a, b)     JOIN_NOW(a, b)

enum { SIDE = TCONV_CPU_FRAGMENT, DEPTH = TCONV_CPU_BF16_DEPTH, SUMS = TCONV_CPU_BF16_SUMS };

/* Vectors of so many numbers are split at a time. */
enum { LANES = HAS_AVX512 ? SIDE : 4 };

typedef float numbers __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef uint16_t whole_halves __attribute__((vector_size(2 * LANES * sizeof(uint16_t)))); /* as many bits as words */

ALWAYS_INLINE words choose(words where, words yes, words no)
{
    return (where & yes) | (~where & no);
}

/* Which numbers are not split (TCONV_CPU_BF16_LEAST). */
ALWAYS_INLINE words whole_ones(words magnitude)
{
    const words below = (words)(magnitude - 1 < TCONV_CPU_BF16_LEAST - 1);
    return below | (words)(magnitude >= TCONV_CPU_BF16_MOST);
}

#if HAS_AVX512
#include <immintrin.h>

#include "lanes_avx512.inc.h"
#else
#include "lanes_generic.inc.h"
#endif
#if HAS_AMX
#include "registers_amx.inc.h"
#elif HAS_AVX512
#include "multiply_avx512_bf16.inc.h"
#include "registers_memory.inc.h"
#else
#include "multiply_generic.inc.h"
#include "registers_memory.inc.h"
#endif
#include "split.inc.h"

#include "copy.inc.h" /* prefetches as the other does */

/* ------------------------------------------------------------------------------------------------------- cascade */

/* Adds sums to others. */
ALWAYS_INLINE void add_sums(float *to, const float *from, const int count)
{
    for (int i = 0; i < count; i++)
        to[i] += from[i];
}

/* Joins a segment's sums, in levels, with the cascade's, which they leave in levels after the last. */
ALWAYS_INLINE void join_segment(float *levels, int64_t segment, bool last, const int count)
{
    int64_t level = 0;
    for (; segment >> level != 0 && (last || (segment >> level & 1) != 0); level++)
        if ((segment >> level & 1) != 0)
            add_sums(levels, levels + (level + 1) * SUMS, count);
    if (!last)
        memcpy(levels + (level + 1) * SUMS, levels, (size_t)count * sizeof(float));
}

/* Writes sums with the bias, position by position or, transposed, channel by channel. */
ALWAYS_INLINE void finish_sums(const tconv_cpu_bf16_tile *tile, const int blocks, const int fragments)
{
    const int width = blocks * SIDE;
    for (int p = 0; p < fragments * SIDE; p++)
        for (int c = 0; c < width; c++)
            tile->levels[p * width + c] += tile->bias[c];
    for (int f = 0; f < fragments; f++) {
        const float *from = tile->levels + f * SIDE * width;
        if (tile->sums_channel == 1)
            for (int p = 0; p < SIDE; p++)
                memcpy(tile->sums[f] + p * tile->sums_position, from + p * width, (size_t)width * sizeof(float));
        else
            for (int block = 0; block < blocks; block++)
                transpose(tile->sums[f] + block * SIDE * tile->sums_channel, tile->sums_channel, from + block * SIDE,
                          width, SIDE, SIDE);
    }
}

/* --------------------------------------------------------------------------------------------------------- sums */

/* Loads a part of the step's weights, or of its strip; multiplies both. */
#define LOAD_WEIGHTS_OF(part)                                                                                          \
    do {                                                                                                               \
        const uint16_t *from = weights + (part)*SIDE * tile->depth;                                                    \
        LOAD_WEIGHTS(6, from);                                                                                         \
        if (blocks > 1)                                                                                                \
            LOAD_WEIGHTS(7, from + tile->weights_block);                                                               \
    } while (0)
#define LOAD_STRIP_OF(part)                                                                                            \
    do {                                                                                                               \
        const int64_t at = (part)*tile->strip_part + tile->steps[step];                                                \
        LOAD_STRIP(4, tile->strip[0] + at);                                                                            \
        if (fragments > 1)                                                                                             \
            LOAD_STRIP(5, tile->strip[1] + at);                                                                        \
    } while (0)
#define MULTIPLY_ALL                                                                                                   \
    do {                                                                                                               \
        MULTIPLY(0, 1, 4);                                                                                             \
        if (fragments > 1)                                                                                             \
            MULTIPLY(2, 3, 5);                                                                                         \
    } while (0)
#define STORE_ALL                                                                                                      \
    do {                                                                                                               \
        const int pitch = blocks * SIDE;                                                                               \
        STORE(0, tile->levels, pitch);                                                                                 \
        if (blocks > 1)                                                                                                \
            STORE(1, tile->levels + SIDE, pitch);                                                                      \
        if (fragments > 1)                                                                                             \
            STORE(2, tile->levels + SIDE * pitch, pitch);                                                              \
        if (fragments > 1 && blocks > 1)                                                                               \
            STORE(3, tile->levels + SIDE * pitch + SIDE, pitch);                                                       \
    } while (0)

/* Of two pairs of parts that follow each other one part is the same, so that it is loaded once. */
ALWAYS_INLINE void sum_tile(const tconv_cpu_bf16_tile *tile, const int blocks, const int fragments, const int parts)
{
    const int64_t step_weights = parts * SIDE * tile->depth, steps = TCONV_CPU_BF16_STEPS;
    const int count = blocks * fragments * SIDE * SIDE;
    REGISTERS;
    for (int64_t begin = 0, segment = 0; begin < tile->step_count; begin += steps, segment++) {
        const int64_t end = begin + steps < tile->step_count ? begin + steps : tile->step_count;
        ZERO(0);
        ZERO(1);
        ZERO(2);
        ZERO(3);
        for (int64_t step = begin; parts > 1 && step < end; step++) {
            const uint16_t *weights = tile->weights + step * step_weights;
            LOAD_WEIGHTS_OF(0);
            if (parts > 2) {
                LOAD_STRIP_OF(2);
                MULTIPLY_ALL;
            }
            LOAD_STRIP_OF(1);
            MULTIPLY_ALL;
            LOAD_WEIGHTS_OF(1);
            MULTIPLY_ALL;
            LOAD_STRIP_OF(0);
            MULTIPLY_ALL;
            if (parts > 2) {
                LOAD_WEIGHTS_OF(2);
                MULTIPLY_ALL;
            }
        }
        for (int64_t step = begin; step < end; step++) {
            const uint16_t *weights = tile->weights + step * step_weights;
            LOAD_WEIGHTS_OF(0);
            LOAD_STRIP_OF(0);
            MULTIPLY_ALL;
        }
        STORE_ALL;
        join_segment(tile->levels, segment, end == tile->step_count, count);
    }
    if (tile->step_count == 0)
        memset(tile->levels, 0, (size_t)count * sizeof(float));
    finish_sums(tile, blocks, fragments);
}

/* Returns the factor whose parts lie so far apart. */
ALWAYS_INLINE float join_parts(const uint16_t *first, int64_t apart, const int parts)
{
    if (parts > 2 && first[2 * apart] == TCONV_CPU_BF16_MARK)
        return tconv_float_of_bits((uint32_t)first[0] << 16 | first[apart]);
    float sum = tconv_float_from_bf16(first[0]);
    for (int part = 1; part < parts; part++)
        sum += tconv_float_from_bf16(first[part * apart]);
    return sum;
}

/* Sums a step of one fragment of sums, whose positions lie `pitch` apart. */
ALWAYS_INLINE void sum_joined_step(const tconv_cpu_bf16_tile *tile, int64_t step, int block, int fragment, float *sums,
                                   int64_t pitch, const int parts)
{
    const int64_t part = SIDE * tile->depth;
    const uint16_t *weights = tile->weights + step * parts * part + block * tile->weights_block;
    const uint16_t *strip = tile->strip[fragment] + tile->steps[step];
    float joined[DEPTH][SIDE];
    for (int64_t k = 0; k < tile->depth; k++)
        for (int c = 0; c < SIDE; c++)
            joined[k][c] = join_parts(weights + k / 2 * DEPTH + 2 * c + k % 2, part, parts);
    for (int p = 0; p < SIDE; p++) {
        float row[SIDE] = {0};
        for (int64_t k = 0; k < tile->depth; k++) {
            const uint16_t *first = strip + p * tile->depth + k;
            const float factor = join_parts(first, tile->strip_part, parts);
            for (int c = 0; *first != TCONV_CPU_BF16_MARK && c < SIDE; c++)
                row[c] += factor * joined[k][c];
        }
        memcpy(sums + p * pitch, row, sizeof row);
    }
}

/* A step is a segment. */
ALWAYS_INLINE void sum_joined_tile(const tconv_cpu_bf16_tile *tile, const int blocks, const int fragments,
                                   const int parts)
{
    const int count = blocks * fragments * SIDE * SIDE;
    const int64_t pitch = blocks * SIDE;
    for (int64_t step = 0; step < tile->step_count; step++) {
        for (int block = 0; block < blocks; block++)
            for (int f = 0; f < fragments; f++)
                sum_joined_step(tile, step, block, f, tile->levels + f * SIDE * pitch + block * SIDE, pitch, parts);
        join_segment(tile->levels, step, step == tile->step_count - 1, count);
    }
    if (tile->step_count == 0)
        memset(tile->levels, 0, (size_t)count * sizeof(float));
    finish_sums(tile, blocks, fragments);
}

/* Calls a function with constants, by the micro-tile's blocks and fragments. */
#define BY_SHAPE(function, parts)                                                                                      \
    switch (tile->blocks * 2 + tile->fragments) {                                                                      \
    case 3: function(tile, 1, 1, parts); return;                                                                       \
    case 4: function(tile, 1, 2, parts); return;                                                                       \
    case 5: function(tile, 2, 1, parts); return;                                                                       \
    default: function(tile, 2, 2, parts); return;                                                                      \
    }

#define DEFINE_BY_PARTS(name, function)                                                                                \
    static void name(const tconv_cpu_bf16_tile *tile)                                                                  \
    {                                                                                                                  \
        switch (tile->parts) {                                                                                         \
        case 1: BY_SHAPE(function, 1)                                                                                  \
        case 2: BY_SHAPE(function, 2)                                                                                  \
        default: BY_SHAPE(function, 3)                                                                                 \
        }                                                                                                              \
    }

DEFINE_BY_PARTS(sum, sum_tile)
DEFINE_BY_PARTS(sum_joined, sum_joined_tile)

const tconv_cpu_bf16_kernels JOIN(tconv_cpu_bf16_kernels, LEVEL) = {
    .multiplies = HAS_AMX      ? TCONV_CPU_MATRICES
                  : HAS_AVX512 ? TCONV_CPU_PAIRS
                               : TCONV_CPU_NUMBERS,
    .begin = begin,
    .end = end,
    .split = split,
    .copy = copy,
    .sum = sum,
    .sum_joined = sum_joined,
};
