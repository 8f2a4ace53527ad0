/*
 * Loads words of two numbers of bf16, from two channels, the first in the lower half; text of kernels.inc.h for AVX-512.
 * Nothing is converted: a word is moved as a lane of floats.
 */
ALWAYS_INLINE __m512 load_words(int64_t second, __mmask16 lanes, const uint16_t *from)
{
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
    if (second == 0)
        return _mm512_castsi512_ps(words);
    const __m512i upper = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from + second));
    return _mm512_castsi512_ps(_mm512_or_si512(words, _mm512_slli_epi32(upper, 16)));
}

static void load_pairs(const tconv_cpu_load *load)
{
    for (int64_t c = 0; c < load->channels; c++)
        for (const tconv_cpu_padded_row *row = load->rows; row < load->rows + load->row_count; row++) {
            const uint16_t *from = (const uint16_t *)load->src + c * load->src_channel + row->src;
            float *to = (float *)load->strip + c * load->strip_channel + row->strip;
            const int64_t end = row->left + row->count, all = end + row->right;
            for (int64_t i = 0; i < all; i += LANES) {
                const __mmask16 inside = lanes_float(i - row->left, row->count);
                store_lanes_float(to + i, lanes_float(i, all), load_words(load->second, inside, from + i - row->left));
            }
        }
}

/* Loads elements [begin, end) of a run one by one. */
ALWAYS_INLINE void load_apart_pairs(float *to, const uint16_t *row, const tconv_cpu_split_load *load,
                                    const tconv_cpu_split_run *run, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = load->stride * (run->first + i) + run->residue;
        uint32_t word = 0;
        if (from >= 0 && from < load->length)
            word = row[from] | (load->second != 0 ? (uint32_t)row[from + load->second] << 16 : 0);
        memcpy(&to[i], &word, sizeof word);
    }
}

#define ELEMENT                       uint16_t
#define NAME(name)                    JOIN(name, pairs)
#define LOAD_LANES(load, lanes, from) load_words((load)->second, lanes, from)
#include "split.inc.h"
#undef ELEMENT
#undef NAME
#undef LOAD_LANES
