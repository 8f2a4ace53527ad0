/* How matrix_kernels.inc.h splits numbers into parts of bf16, by vectors, and transposes squares of numbers. */

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
