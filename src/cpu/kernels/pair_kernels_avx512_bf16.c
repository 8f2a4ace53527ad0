/* Pairs by AVX512_BF16, whose lanes add the products of a pair to an f32. The micro-tiles are those of AVX-512. */
#include <immintrin.h>
#include <string.h>

#include "kernels_macros.inc.h"
#include "pair_kernels.h"

#include "microtiles_avx512.inc.h"

/* A term of a microkernel is a pair: REAL is a word of two numbers of bf16, and a lane of the sums. */
#define REAL           float
#define LANES          16
#define NAME(name)     JOIN(name, pairs)
#define REPEAT(weight) _mm512_set1_ps(weight)
#define ADD_PRODUCT(sum, weight, values)                                                                               \
    ((sum) = (NAME(vector))_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(values), (__m512bh)TO_VECTOR(weight)))
#define TO_VECTOR(weight) _Generic((weight), float : repeat_word, default : keep_words)(weight)

ALWAYS_INLINE __m512 repeat_word(float word)
{
    return _mm512_set1_ps(word);
}

ALWAYS_INLINE __m512 keep_words(__m512 words)
{
    return words;
}

#include "microkernel.inc.h"

/* A word of the strip, which begins with any number of it. */
typedef float loose_word __attribute__((aligned(2), may_alias));

#define WITHOUT_DEPTHWISE
#define STRIP_REAL          loose_word
#define STRIP_AT(strip, at) ((const loose_word *)(const void *)((const uint16_t *)(strip) + (at)))
#define STREAM(to, values)  _mm512_stream_ps((to), (__m512)(values))
#include "pixels_microkernel.inc.h"

/* Zeros less one are the greatest of all. */
static void find_range(tconv_cpu_pair_range *range, const uint16_t *numbers, int64_t count)
{
    enum { HALVES = 2 * LANES };
    const __m512i magnitude = _mm512_set1_epi16(0x7fff), one = _mm512_set1_epi16(1);
    __m512i least = _mm512_set1_epi16(-1), most = _mm512_setzero_si512();
    for (int64_t i = 0; i < count; i += HALVES) {
        const __mmask32 lanes = count - i < HALVES ? (__mmask32)((UINT32_C(1) << (count - i)) - 1) : UINT32_MAX;
        const __m512i bits = _mm512_and_si512(_mm512_maskz_loadu_epi16(lanes, numbers + i), magnitude);
        least = _mm512_min_epu16(least, _mm512_sub_epi16(bits, one));
        most = _mm512_max_epu16(most, bits);
    }
    uint16_t lanes[2][HALVES];
    memcpy(lanes[0], &least, sizeof least);
    memcpy(lanes[1], &most, sizeof most);
    for (int i = 0; i < HALVES; i++) {
        const uint16_t low = lanes[0][i] == UINT16_MAX ? UINT16_MAX : (uint16_t)(lanes[0][i] + 1);
        range->least = low < range->least ? low : range->least;
        range->most = lanes[1][i] > range->most ? lanes[1][i] : range->most;
    }
}

static void join_rows(void *floats, int64_t rows, int64_t width)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    for (int64_t r = 0; r < rows; r += 2) {
        const uint32_t *from = (const uint32_t *)floats + r * width;
        uint32_t *to = (uint32_t *)floats + r / 2 * width;
        for (int64_t i = 0; i < width; i += LANES) {
            const __m512i first = _mm512_srli_epi32(_mm512_loadu_si512(from + i), 16);
            const __m512i second = r + 1 < rows ? _mm512_loadu_si512(from + width + i) : _mm512_setzero_si512();
            _mm512_storeu_si512(to + i, _mm512_or_si512(first, _mm512_and_si512(second, upper)));
        }
    }
}

static void pack(void *floats, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 lanes = count - i < LANES ? (__mmask16)((1u << (count - i)) - 1) : (__mmask16)-1;
        const __m512i numbers = _mm512_srli_epi32(_mm512_maskz_loadu_epi32(lanes, (const uint32_t *)floats + i), 16);
        _mm512_mask_cvtepi32_storeu_epi16((uint16_t *)floats + i, lanes, numbers);
    }
}

#define MICROKERNEL(channels, vectors)     [channels][vectors] = microkernel_##channels##x##vectors##_pairs,
#define PIXEL_MICROKERNEL(vectors, pixels) [vectors][pixels] = dense_##vectors##x##pixels##_pairs,

const tconv_cpu_pair_kernels tconv_cpu_pair_kernels_avx512_bf16 = {
    .microkernels = {MICROTILES(MICROKERNEL)},
    .pixels = {PIXEL_MICROTILES(PIXEL_MICROKERNEL)},
    .join_rows = join_rows,
    .pack = pack,
    .find_range = find_range,
};
