/* Products of fragments by AVX512_BF16, whose lanes add the products of a pair to an f32, as TDPBF16PS does. */

ALWAYS_INLINE __m512bh load_pairs(const uint16_t *pairs)
{
    return (__m512bh)_mm512_loadu_si512(pairs);
}

/* Returns a pair in all lanes. */
ALWAYS_INLINE __m512bh repeat_pair(const uint16_t *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

/* Sums even and odd pairs apart, so that no sum has more terms than one of AMX's, and adds both. */
static void multiply_factors(float (*sums)[SIDE], const uint16_t *strip, const uint16_t *weights, int64_t depth)
{
    enum { ROWS = 8 }; /* two sums each, of 32 registers */
    for (int p = 0; p < SIDE; p += ROWS) {
        const uint16_t *rows = strip + p * depth;
        __m512 even[ROWS], odd[ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
            even[i] = odd[i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < depth; k += 4) {
            const __m512bh first = load_pairs(weights + k / 2 * DEPTH);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++)
                even[i] = _mm512_dpbf16_ps(even[i], first, repeat_pair(rows + i * depth + k));
            if (k + 2 == depth)
                break;
            const __m512bh second = load_pairs(weights + (k / 2 + 1) * DEPTH);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++)
                odd[i] = _mm512_dpbf16_ps(odd[i], second, repeat_pair(rows + i * depth + k + 2));
        }
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            const __m512 both = _mm512_add_ps(even[i], odd[i]);
            _mm512_storeu_ps(sums[p + i], _mm512_add_ps(_mm512_loadu_ps(sums[p + i]), both));
        }
    }
}

/* Adds what a step gave of a row. */
ALWAYS_INLINE void add_step(float *sums, __m512 even, __m512 odd)
{
    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_add_ps(even, odd)));
}

/* Does what multiply_factors does for two blocks of output channels: a pair of the strip is repeated once for both. */
static void multiply_blocks(float (*first)[SIDE], float (*second)[SIDE], const uint16_t *strip, const uint16_t *weights,
                            const uint16_t *more, int64_t depth)
{
    enum { ROWS = 4 }; /* four sums each, of 32 registers */
    for (int p = 0; p < SIDE; p += ROWS) {
        const uint16_t *rows = strip + p * depth;
        __m512 even[2][ROWS], odd[2][ROWS];
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++)
            even[0][i] = even[1][i] = odd[0][i] = odd[1][i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < depth; k += 4) {
            const __m512bh even_first = load_pairs(weights + k / 2 * DEPTH),
                           even_second = load_pairs(more + k / 2 * DEPTH);
#pragma GCC unroll 4
            for (int i = 0; i < ROWS; i++) {
                const __m512bh pair = repeat_pair(rows + i * depth + k);
                even[0][i] = _mm512_dpbf16_ps(even[0][i], even_first, pair);
                even[1][i] = _mm512_dpbf16_ps(even[1][i], even_second, pair);
            }
            if (k + 2 == depth)
                break;
            const __m512bh odd_first = load_pairs(weights + (k / 2 + 1) * DEPTH);
            const __m512bh odd_second = load_pairs(more + (k / 2 + 1) * DEPTH);
#pragma GCC unroll 4
            for (int i = 0; i < ROWS; i++) {
                const __m512bh pair = repeat_pair(rows + i * depth + k + 2);
                odd[0][i] = _mm512_dpbf16_ps(odd[0][i], odd_first, pair);
                odd[1][i] = _mm512_dpbf16_ps(odd[1][i], odd_second, pair);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            add_step(first[p + i], even[0][i], odd[0][i]);
            add_step(second[p + i], even[1][i], odd[1][i]);
        }
    }
}
