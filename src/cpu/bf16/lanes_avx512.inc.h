/* The operations of bf16/split.inc.h on a vector of AVX-512. */

ALWAYS_INLINE words least_of(words a, words b)
{
    return (words)_mm512_min_epu32((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE bool has_whole_ones(words magnitude)
{
    const __m512i bits = (__m512i)magnitude, least = _mm512_set1_epi32(TCONV_CPU_BF16_LEAST);
    const __m512i span = _mm512_set1_epi32(TCONV_CPU_BF16_MOST - TCONV_CPU_BF16_LEAST);
    return _mm512_mask_cmpge_epu32_mask(_mm512_test_epi32_mask(bits, bits), _mm512_sub_epi32(bits, least), span) != 0;
}

/* Loads the first count numbers of a row, zeros for the rest; none beyond is read. */
ALWAYS_INLINE words load_numbers(const float *from, int64_t count)
{
    return (words)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}

ALWAYS_INLINE void store_part(words part, int64_t count, uint16_t *to)
{
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << count) - 1), _mm512_cvtepi32_epi16((__m512i)part));
}

ALWAYS_INLINE whole_halves least_half(whole_halves a, whole_halves b)
{
    return (whole_halves)_mm512_min_epu16((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE whole_halves load_halves(const uint16_t *from, int64_t count)
{
    return (whole_halves)_mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << count) - 1), from);
}

ALWAYS_INLINE void store_halves(whole_halves bits, int64_t count, uint16_t *to)
{
    _mm512_mask_storeu_epi16(to, (__mmask32)((UINT64_C(1) << count) - 1), (__m512i)bits);
}

/* Transposes a square of numbers, of rows that lie `pitch` apart: of the first given rows, the first count numbers; zeros
 * stand for the rest. */
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
