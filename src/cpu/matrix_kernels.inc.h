/*
 * The kernels of the matrix algorithm as text, that is compiled once for AMX and once for any machine, with
 *
 *     LEVEL          the suffix of the table
 *     HAS_REGISTERS  1: AMX's registers; 0: arrays of C, with the arithmetic of AMX, but that sums may be subnormal
 *
 * Registers 0 to 3 hold the sums of [fragment][block], 4 and 5 the strip of two fragments, 6 and 7 weights of two blocks.
 */
#include <string.h>

#include "half.h"
#include "matrix_kernels.h"

#if HAS_REGISTERS
#include <immintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define JOIN_NOW(a, b) a##_##b
#define JOIN(a, b)     JOIN_NOW(a, b)

enum { SIDE = TCONV_CPU_FRAGMENT, DEPTH = TCONV_CPU_MATRIX_DEPTH, SUMS = TCONV_CPU_MATRIX_SUMS };

/* ---------------------------------------------------------------------------------------------------- registers */

#if HAS_REGISTERS

/* What LDTILECFG reads: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A. */
struct configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static void begin(int64_t depth)
{
    struct configuration configuration = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        configuration.rows[i] = SIDE;
        configuration.row_bytes[i] = SIDE * sizeof(float);
    }
    for (int i = 4; i < 6; i++)
        configuration.row_bytes[i] = (uint16_t)(depth * (int64_t)sizeof(uint16_t));
    for (int i = 6; i < 8; i++)
        configuration.rows[i] = (uint8_t)(depth / 2);
    /* GCC's intrinsic names a part of it, and would let stores to the rest be left out. */
    __asm__ volatile("" : : "r"(&configuration) : "memory");
    _tile_loadconfig(&configuration);
}

static void end(void)
{
    _tile_release();
}

#define REGISTERS                      (void)0
#define ZERO(number)                   _tile_zero(number)
#define LOAD_STRIP(number, from)       _tile_loadd(number, from, tile->depth * 2)
#define LOAD_WEIGHTS(number, from)     _tile_loadd(number, from, DEPTH * 2)
#define MULTIPLY(sums, strip, weights) _tile_dpbf16ps(sums, strip, weights)
#define STORE(number, to, pitch)       _tile_stored(number, to, (pitch)*4)

#else

static void begin(int64_t depth)
{
    (void)depth;
}

static void end(void)
{
}

/* Factors stay where they lie. */
struct registers {
    int64_t depth;
    float sums[4][SIDE][SIDE];
    const uint16_t *strip[2], *weights[2];
};

/* A factor as AMX takes it: subnormals are zeros. */
ALWAYS_INLINE float factor_of(uint16_t bf16)
{
    return (bf16 & 0x7f80) != 0 ? tconv_float_from_bf16(bf16) : 0;
}

/* TDPBF16PS, as the manual has it: the even and the odd channels are summed apart, one after another. */
static void multiply_factors(float (*sums)[SIDE], const uint16_t *strip, const uint16_t *weights, int64_t depth)
{
    float factors[DEPTH][SIDE]; /* of the weights, channel by channel */
    for (int64_t k = 0; k < depth; k++)
        for (int c = 0; c < SIDE; c++)
            factors[k][c] = factor_of(weights[k / 2 * DEPTH + 2 * c + k % 2]);
    for (int p = 0; p < SIDE; p++) {
        float even[SIDE] = {0}, odd[SIDE] = {0};
        for (int64_t k = 0; k < depth; k += 2) {
            const float first = factor_of(strip[p * depth + k]), second = factor_of(strip[p * depth + k + 1]);
            if (first != 0) /* zeros are many, and their products change no sum */
                for (int c = 0; c < SIDE; c++)
                    even[c] += first * factors[k][c];
            if (second != 0)
                for (int c = 0; c < SIDE; c++)
                    odd[c] += second * factors[k + 1][c];
        }
        for (int c = 0; c < SIDE; c++)
            sums[p][c] += even[c] + odd[c];
    }
}

#define REGISTERS                                                                                                      \
    struct registers registers;                                                                                        \
    registers.depth = tile->depth
#define ZERO(number)               memset(registers.sums[number], 0, sizeof registers.sums[number])
#define LOAD_STRIP(number, from)   (registers.strip[(number)-4] = (from))
#define LOAD_WEIGHTS(number, from) (registers.weights[(number)-6] = (from))
#define MULTIPLY(number, of_strip, of_weights)                                                                         \
    multiply_factors(registers.sums[number], registers.strip[(of_strip)-4], registers.weights[(of_weights)-6],         \
                     registers.depth)
#define STORE(number, to, pitch)                                                                                       \
    for (int p = 0; p < SIDE; p++)                                                                                     \
    memcpy((to) + p * (pitch), registers.sums[number][p], sizeof registers.sums[number][p])

#endif

/* ----------------------------------------------------------------------------------------------------- splitting */

/* Numbers that are split at a time. */
enum { LANES = HAS_REGISTERS ? SIDE : 4 };

typedef float numbers __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

ALWAYS_INLINE words choose(words where, words yes, words no)
{
    return (where & yes) | (~where & no);
}

ALWAYS_INLINE words least_of(words a, words b)
{
#if HAS_REGISTERS
    return (words)_mm512_min_epu32((__m512i)a, (__m512i)b);
#else
    return choose((words)(a < b), a, b);
#endif
}

/* The range of numbers, lane by lane: the least magnitude less one (of zero, that is the greatest number), and the least
 * complement of a magnitude. */
struct lane_ranges {
    words least, least_complement;
};

ALWAYS_INLINE void extend_range(const struct lane_ranges *ranges, tconv_cpu_matrix_range *range)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t least = ranges->least[i], most = ~ranges->least_complement[i];
        range->least = least < range->least - 1 ? least + 1 : range->least;
        range->most = most > range->most ? most : range->most;
    }
}

/* Returns bf16 nearest to each number. */
ALWAYS_INLINE words rounded_part(words bits)
{
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Which numbers are not split (TCONV_CPU_MATRIX_LEAST). */
ALWAYS_INLINE words whole_ones(words magnitude)
{
    const words below = (words)(magnitude - 1 < TCONV_CPU_MATRIX_LEAST - 1);
    return below | (words)(magnitude >= TCONV_CPU_MATRIX_MOST);
}

ALWAYS_INLINE bool has_whole_ones(words magnitude)
{
#if HAS_REGISTERS
    const __m512i bits = (__m512i)magnitude, least = _mm512_set1_epi32(TCONV_CPU_MATRIX_LEAST);
    const __m512i span = _mm512_set1_epi32(TCONV_CPU_MATRIX_MOST - TCONV_CPU_MATRIX_LEAST);
    return _mm512_mask_cmpge_epu32_mask(_mm512_test_epi32_mask(bits, bits), _mm512_sub_epi32(bits, least), span) != 0;
#else
    const words whole = whole_ones(magnitude);
    uint32_t any = 0;
    for (int i = 0; i < LANES; i++)
        any |= whole[i];
    return any != 0;
#endif
}

/* Returns what a part leaves of numbers: exact. */
ALWAYS_INLINE words rest_of(words bits, words part)
{
    return (words)((numbers)bits - (numbers)(part << 16));
}

/* Loads the first count numbers of a row, zeros for the rest; none beyond is read. */
ALWAYS_INLINE words load_numbers(const float *from, int64_t count)
{
#if HAS_REGISTERS
    return (words)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#else
    words bits = {0};
    memcpy(&bits, from, (size_t)count * sizeof *from);
    return bits;
#endif
}

ALWAYS_INLINE void store_part(words part, int64_t count, uint16_t *to)
{
#if HAS_REGISTERS
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << count) - 1), _mm512_cvtepi32_epi16((__m512i)part));
#else
    const halves taken = __builtin_convertvector(part, halves);
    memcpy(to, &taken, (size_t)count * sizeof *to);
#endif
}

/* Stores the parts of numbers, some of which are not split. */
static void store_whole_ones(words bits, int64_t count, uint16_t *to, int64_t part_pitch, const int parts)
{
    const words magnitude = bits & 0x7fffffff, whole = whole_ones(magnitude);
    const words same = choose((words)(magnitude > 0x7f800000), (words){0} + 0x7fc00000, bits), split = bits & ~whole;
    const words first = rounded_part(split), rest = rest_of(split, first), second = rounded_part(rest);
    store_part(choose(whole, same >> 16, first), count, to);
    if (parts > 1)
        store_part(choose(whole, same & 0xffff, parts > 2 ? second : rest >> 16), count, to + part_pitch);
    if (parts > 2)
        store_part(choose(whole, (words){0} + TCONV_CPU_MATRIX_MARK, rest_of(rest, second) >> 16), count,
                   to + 2 * part_pitch);
}

/* Splits the first count numbers of a row. */
ALWAYS_INLINE void split_row(const float *from, int64_t count, uint16_t *to, int64_t part_pitch, const int parts,
                             struct lane_ranges *ranges)
{
    const words bits = load_numbers(from, count), magnitude = bits & 0x7fffffff;
    ranges->least = least_of(magnitude - 1, ranges->least);
    ranges->least_complement = least_of(~magnitude, ranges->least_complement);
    if (has_whole_ones(magnitude)) {
        store_whole_ones(bits, count, to, part_pitch, parts);
        return;
    }
    const words first = rounded_part(bits);
    store_part(first, count, to);
    if (parts == 1)
        return;
    const words rest = rest_of(bits, first), second = parts > 2 ? rounded_part(rest) : rest >> 16;
    store_part(second, count, to + part_pitch); /* of the last part nothing is left */
    if (parts > 2)
        store_part(rest_of(rest, second) >> 16, count, to + 2 * part_pitch);
}

/* Splits numbers that follow one another. */
ALWAYS_INLINE void split_run(const float *from, int64_t count, uint16_t *to, int64_t part_pitch, const int parts,
                             struct lane_ranges *ranges)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        split_row(from + i, LANES, to + i, part_pitch, parts, ranges);
    if (i < count)
        split_row(from + i, count - i, to + i, part_pitch, parts, ranges);
}

/* Transposes a square of numbers, of rows that lie `pitch` apart: of the first given rows, the first count numbers; zeros
 * stand for the rest. */
#if HAS_REGISTERS
ALWAYS_INLINE void transpose(float *to, int64_t to_pitch, const float *from, int64_t pitch, int64_t given,
                             int64_t count)
{
    const __mmask16 mask = (__mmask16)((1u << count) - 1);
    __m512 rows[SIDE], pairs[SIDE];
#pragma GCC unroll 16
    for (int r = 0; r < SIDE; r++)
        rows[r] = _mm512_maskz_loadu_ps(r < given ? mask : 0, from + r * pitch);
#pragma GCC unroll 8
    for (int r = 0; r < SIDE; r += 2) {
        pairs[r] = _mm512_unpacklo_ps(rows[r], rows[r + 1]);
        pairs[r + 1] = _mm512_unpackhi_ps(rows[r], rows[r + 1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < SIDE; r += 4)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const __m512d first = _mm512_castps_pd(pairs[r + i]), second = _mm512_castps_pd(pairs[r + 2 + i]);
            rows[r + 2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
            rows[r + 2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
        }
        /* rows[r + i] holds columns i, i + 4, i + 8 and i + 12 of rows r to r + 3, four by four. */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 low = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0x88);
        const __m512 high = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0xdd);
        const __m512 next_low = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0x88);
        const __m512 next_high = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0xdd);
        _mm512_storeu_ps(to + i * to_pitch, _mm512_shuffle_f32x4(low, next_low, 0x88));
        _mm512_storeu_ps(to + (4 + i) * to_pitch, _mm512_shuffle_f32x4(high, next_high, 0x88));
        _mm512_storeu_ps(to + (8 + i) * to_pitch, _mm512_shuffle_f32x4(low, next_low, 0xdd));
        _mm512_storeu_ps(to + (12 + i) * to_pitch, _mm512_shuffle_f32x4(high, next_high, 0xdd));
    }
}
#else
ALWAYS_INLINE void transpose(float *to, int64_t to_pitch, const float *from, int64_t pitch, int64_t given,
                             int64_t count)
{
    for (int r = 0; r < SIDE; r++)
        for (int i = 0; i < SIDE; i++)
            to[i * to_pitch + r] = r < given && i < count ? from[r * pitch + i] : 0;
}
#endif

/* Splits up to a fragment of rows, which lie channel by channel. */
ALWAYS_INLINE void split_square(const tconv_cpu_matrix_split *split, int64_t first, const int parts,
                                struct lane_ranges *ranges)
{
    float rows[SIDE][SIDE];
    const int64_t left = split->rows - first < SIDE ? split->rows - first : SIDE;
    uint16_t *to = split->to + first * split->to_row;
    transpose(rows[0], SIDE, split->from + first, split->step, split->count, left);
    for (int64_t r = 0; r < left; r++)
        if (split->count == SIDE)
            split_run(rows[r], SIDE, to + r * split->to_row, split->part_pitch, parts, ranges);
        else
            split_run(rows[r], split->count, to + r * split->to_row, split->part_pitch, parts, ranges);
}

ALWAYS_INLINE void split_rows(const tconv_cpu_matrix_split *split, const int parts)
{
    struct lane_ranges ranges = {(words){0} - 1, (words){0} - 1};
    for (int64_t r = 0; split->step == 1 && r < split->rows; r++)
        split_run(split->from + r * split->row, split->count, split->to + r * split->to_row, split->part_pitch, parts,
                  &ranges);
    for (int64_t r = 0; split->step != 1 && r < split->rows; r += SIDE)
        split_square(split, r, parts, &ranges);
    extend_range(&ranges, split->range);
}

static void split(const tconv_cpu_matrix_split *split)
{
    switch (split->parts) {
    case 1: split_rows(split, 1); return;
    case 2: split_rows(split, 2); return;
    default: split_rows(split, 3);
    }
}

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
ALWAYS_INLINE void finish_sums(const tconv_cpu_matrix_tile *tile, const int blocks, const int fragments)
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
        MULTIPLY(0, 4, 6);                                                                                             \
        if (blocks > 1)                                                                                                \
            MULTIPLY(1, 4, 7);                                                                                         \
        if (fragments > 1)                                                                                             \
            MULTIPLY(2, 5, 6);                                                                                         \
        if (fragments > 1 && blocks > 1)                                                                               \
            MULTIPLY(3, 5, 7);                                                                                         \
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
ALWAYS_INLINE void sum_tile(const tconv_cpu_matrix_tile *tile, const int blocks, const int fragments, const int parts)
{
    const int64_t step_weights = parts * SIDE * tile->depth, steps = TCONV_CPU_MATRIX_STEPS;
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
    if (parts > 2 && first[2 * apart] == TCONV_CPU_MATRIX_MARK)
        return tconv_float_of_bits((uint32_t)first[0] << 16 | first[apart]);
    float sum = tconv_float_from_bf16(first[0]);
    for (int part = 1; part < parts; part++)
        sum += tconv_float_from_bf16(first[part * apart]);
    return sum;
}

/* Sums a step of one fragment of sums, whose positions lie `pitch` apart. */
ALWAYS_INLINE void sum_joined_step(const tconv_cpu_matrix_tile *tile, int64_t step, int block, int fragment,
                                   float *sums, int64_t pitch, const int parts)
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
            for (int c = 0; *first != TCONV_CPU_MATRIX_MARK && c < SIDE; c++)
                row[c] += factor * joined[k][c];
        }
        memcpy(sums + p * pitch, row, sizeof row);
    }
}

/* A step is a segment. */
ALWAYS_INLINE void sum_joined_tile(const tconv_cpu_matrix_tile *tile, const int blocks, const int fragments,
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
    static void name(const tconv_cpu_matrix_tile *tile)                                                                \
    {                                                                                                                  \
        switch (tile->parts) {                                                                                         \
        case 1: BY_SHAPE(function, 1)                                                                                  \
        case 2: BY_SHAPE(function, 2)                                                                                  \
        default: BY_SHAPE(function, 3)                                                                                 \
        }                                                                                                              \
    }

DEFINE_BY_PARTS(sum, sum_tile)
DEFINE_BY_PARTS(sum_joined, sum_joined_tile)

const tconv_cpu_matrix_kernels JOIN(tconv_cpu_matrix_kernels, LEVEL) = {
    .has_registers = HAS_REGISTERS,
    .begin = begin,
    .end = end,
    .split = split,
    .sum = sum,
    .sum_joined = sum_joined,
};
