/*
 * All kernels of one instruction set; text that a file kernels_<level>.c includes after it has defined
 *
 *     LEVEL              the level's name
 *     VECTOR_BYTES       the bytes of a vector register
 *     MICROTILES(define) define(channels, vectors) for each micro-tile that the registers hold, by UP_TO_n; alike for
 *                        float and double
 *     MAX_CHANNELS       the most channels of these
 *     MAX_VECTORS        the most vectors of a micro-tile of 0, 1, ... channels
 *
 * Everything here is static but the table: a function that is shared with another file could be the copy that the
 * linker keeps, with instructions that the machine does not have.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../../core/post_exact.h"
#include "half.h"
#include "kernels.h"

#if VECTOR_BYTES > 16 /* x86-64 */
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels_macros.inc.h"

/* Contiguous outputs up to which whole vectors are not worth it. It is chosen, not measured. */
enum { SHORT_RUN = 8 };

/* Vectors of a row that go through the post-ops at a time, in a buffer on the stack: as many as interleaving makes at a
 * time. It is chosen, not measured. */
enum { POST_VECTORS = TCONV_CPU_MAX_INTERLEAVE };

/* Returns a / b of numbers that are not negative, by a division of 32 bits where that is enough: it is several times as
 * fast on many processors. */
ALWAYS_INLINE int64_t quotient(int64_t a, int64_t b)
{
    if (a < b)
        return 0;
    return (uint64_t)a <= UINT32_MAX ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Copies an even number of bytes, fewer than a power of two of at most 64, by two moves of the largest width that fits,
 * which overlap. */
ALWAYS_INLINE void copy_short(void *to, const void *from, size_t bytes, const size_t power)
{
    char *out = to;
    const char *in = from;
#define COPY_TWICE(width)                                                                                              \
    if (power > (width) && bytes >= (width)) {                                                                         \
        char first[width], last[width];                                                                                \
        memcpy(first, in, (width));                                                                                    \
        memcpy(last, in + bytes - (width), (width));                                                                   \
        memcpy(out, first, (width));                                                                                   \
        memcpy(out + bytes - (width), last, (width));                                                                  \
        return;                                                                                                        \
    }
    COPY_TWICE(32)
    COPY_TWICE(16)
    COPY_TWICE(8)
    COPY_TWICE(4)
    COPY_TWICE(2)
#undef COPY_TWICE
}

/* Bytes of a cache line, the same on x86-64 and on most AArch64. */
enum { LINE = 64 };

/* Writes an aligned cache line, by streaming stores where the level has them. */
ALWAYS_INLINE void stream_line(char *to, const char *from)
{
#if VECTOR_BYTES == 64
    _mm512_stream_si512((__m512i *)(void *)to, _mm512_loadu_si512(from));
#elif VECTOR_BYTES == 32
    _mm256_stream_si256((__m256i *)(void *)to, _mm256_loadu_si256((const __m256i *)(const void *)from));
    _mm256_stream_si256((__m256i *)(void *)(to + 32), _mm256_loadu_si256((const __m256i *)(const void *)(from + 32)));
#else
    memcpy(to, from, LINE);
#endif
}

/* Copies bytes by streaming stores; step is how far from advances with each cache line, LINE or 0. */
ALWAYS_INLINE void stream_bytes(char *to, const char *from, size_t bytes, const size_t step)
{
    size_t head = -(uintptr_t)to % LINE;
    head = head < bytes ? head : bytes;
    copy_short(to, from, head, LINE);
    for (to += head, from += step > 0 ? head : 0, bytes -= head; bytes >= LINE; to += LINE, from += step, bytes -= LINE)
        stream_line(to, from);
    copy_short(to, from, bytes, LINE);
}

static void fill(void *dst, const void *value, size_t size, int64_t count, bool stream)
{
    char *to = dst, pattern[LINE];
    size_t bytes = (size_t)count * size, i;
    for (i = 0; i < LINE && i < bytes; i += size)
        memcpy(pattern + i, value, size);
    if (stream) {
        stream_bytes(to, pattern, bytes, 0);
        return;
    }
    for (; bytes >= LINE; to += LINE, bytes -= LINE)
        memcpy(to, pattern, LINE);
    copy_short(to, pattern, bytes, LINE);
}

static void order_stores(void)
{
#if VECTOR_BYTES > 16
    _mm_sfence();
#endif
}

/* ------------------------------------------------------------------------------------ tiles, by the type of sums */

#define REAL       float
#define NAME(name) JOIN(name, float)
#define LANES      (VECTOR_BYTES / 4)
#include "microkernel.inc.h"

#include "activate.inc.h"
#include "interleave.inc.h" /* uses its types */
#define MULTIPLY_ADD fmaf
#define HAVE_ACTIVATIONS
#include "post_vectors.inc.h"
#undef MULTIPLY_ADD
#undef HAVE_ACTIVATIONS
#undef REAL
#undef NAME
#undef LANES

#define REAL       double
#define NAME(name) JOIN(name, double)
#define LANES      (VECTOR_BYTES / 8)
#include "microkernel.inc.h"

#include "interleave.inc.h" /* uses its types */
#define MULTIPLY_ADD fma
#include "post_vectors.inc.h"
#undef MULTIPLY_ADD
#undef REAL
#undef NAME
#undef LANES

/* ------------------------------------------------------------------------------------------------ rows, by dtype */

#define COPY_VECTOR(to, from) memcpy((to), (from), VECTOR_BYTES)

#define LANES (VECTOR_BYTES / 4)

ALWAYS_INLINE void floats_from_f16(float *to, const uint16_t *from)
{
#if VECTOR_BYTES == 64
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from)));
#elif VECTOR_BYTES == 32
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from)));
#elif VECTOR_BYTES == 16 && defined(__aarch64__)
    vst1q_f32(to, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))));
#else
    for (int i = 0; i < LANES; i++)
        to[i] = tconv_float_from_f16(from[i]);
#endif
}

ALWAYS_INLINE void f16_from_floats(uint16_t *to, const float *from)
{
#if VECTOR_BYTES == 64
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph(_mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#elif VECTOR_BYTES == 32
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#elif VECTOR_BYTES == 16 && defined(__aarch64__)
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from))));
#else
    for (int i = 0; i < LANES; i++)
        to[i] = tconv_f16_from_float(from[i]);
#endif
}

ALWAYS_INLINE void floats_from_bf16(float *to, const uint16_t *from)
{
#if VECTOR_BYTES == 64
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from));
    _mm512_storeu_si512(to, _mm512_slli_epi32(wide, 16));
#elif VECTOR_BYTES == 32
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_slli_epi32(wide, 16));
#else
    for (int i = 0; i < LANES; i++)
        to[i] = tconv_float_from_bf16(from[i]);
#endif
}

/* Computes tconv_bf16_from_float on all lanes. */
ALWAYS_INLINE void bf16_from_floats(uint16_t *to, const float *from)
{
#if VECTOR_BYTES == 64
    __m512i bits = _mm512_loadu_si512(from), upper = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(bits), _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16(rounded));
#elif VECTOR_BYTES == 32
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)from), upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    __m256 nan = _mm256_cmp_ps(_mm256_castsi256_ps(bits), _mm256_castsi256_ps(bits), _CMP_UNORD_Q);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(packed));
#else
    for (int i = 0; i < LANES; i++)
        to[i] = tconv_bf16_from_float(from[i]);
#endif
}

/* Masked loads and stores, where the level has them: load_short_* loads a padded row by one of each. */
#if VECTOR_BYTES == 64
ALWAYS_INLINE __m512 masked_floats_from_f16(__mmask16 mask, const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
}

ALWAYS_INLINE __m512 masked_floats_from_bf16(__mmask16 mask, const uint16_t *from)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

#define DEFINE_LOAD_SHORT(name, real, element, lanes, mask, load, store)                                               \
    ALWAYS_INLINE bool name(real *to, const element *from, const tconv_cpu_padded_row *row)                            \
    {                                                                                                                  \
        int64_t inside = row->left + row->count, all = inside + row->right;                                            \
        if (all > (lanes))                                                                                             \
            return false;                                                                                              \
        store(to, (mask)((1u << all) - 1), load((mask)((1u << inside) - (1u << row->left)), from - row->left));        \
        return true;                                                                                                   \
    }
DEFINE_LOAD_SHORT(load_short_f32, float, float, 16, __mmask16, _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps)
DEFINE_LOAD_SHORT(load_short_f64, double, double, 8, __mmask8, _mm512_maskz_loadu_pd, _mm512_mask_storeu_pd)
DEFINE_LOAD_SHORT(load_short_f16, float, uint16_t, 16, __mmask16, masked_floats_from_f16, _mm512_mask_storeu_ps)
DEFINE_LOAD_SHORT(load_short_bf16, float, uint16_t, 16, __mmask16, masked_floats_from_bf16, _mm512_mask_storeu_ps)
#define DEFINE_LOAD_MASKED(name, real, element, lanes, bits, load, store)                                              \
    static void name(const tconv_cpu_masked_load *masked)                                                              \
    {                                                                                                                  \
        for (int64_t c = 0; c < masked->channels; c++) {                                                               \
            for (int64_t n = 0; n < masked->images; n++) {                                                             \
                const element *from = (const element *)masked->src + c * masked->src_channel + n * masked->src_image;  \
                real *to = (real *)masked->strip + c * masked->strip_channel + n * masked->strip_image;                \
                const int64_t end = masked->count + (n == masked->images - 1 ? masked->zeros : 0);                     \
                for (int64_t i = 0; i < end; i += (lanes)) {                                                           \
                    int64_t rest = end - i;                                                                            \
                    bits mask;                                                                                         \
                    memcpy(&mask, masked->mask + i / 8, sizeof mask);                                                  \
                    store(to + i, (bits)(rest < (lanes) ? (1u << rest) - 1 : ~0u), load(mask, from + i));              \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
DEFINE_LOAD_MASKED(load_masked_f32, float, float, 16, uint16_t, _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps)
DEFINE_LOAD_MASKED(load_masked_f64, double, double, 8, uint8_t, _mm512_maskz_loadu_pd, _mm512_mask_storeu_pd)
DEFINE_LOAD_MASKED(load_masked_f16, float, uint16_t, 16, uint16_t, masked_floats_from_f16, _mm512_mask_storeu_ps)
DEFINE_LOAD_MASKED(load_masked_bf16, float, uint16_t, 16, uint16_t, masked_floats_from_bf16, _mm512_mask_storeu_ps)
#else
#define load_short_f32(to, from, row)  false
#define load_short_f64(to, from, row)  false
#define load_short_f16(to, from, row)  false
#define load_short_bf16(to, from, row) false
#define load_masked_f32                NULL
#define load_masked_f64                NULL
#define load_masked_f16                NULL
#define load_masked_bf16               NULL
#endif

/* Blocks of a vector's elements by which load_pixels prefetches ahead. It is chosen. */
enum { AHEAD_BLOCKS = 2 };

#if VECTOR_BYTES == 64
/* What split.inc.h is written with: of a vector at an element of a row, the lanes that are inside; the lanes of a row's
 * first vectors that are a stride apart; and those of them that two vectors have, the first two or later ones. */
enum { MAX_SPLIT = 16 };

/* Bytes of a row's columns that are prefetched ahead of those that are split: the hardware sees neither across a page nor
 * from row to row where some are left out. It is chosen. */
enum { AHEAD_BYTES = 2048 };

ALWAYS_INLINE __mmask16 lanes_float(int64_t at, int64_t length)
{
    const int64_t left = at >= 0 ? 0 : at > -16 ? -at : 16, rest = length - at;
    const unsigned all = rest >= 16 ? 0xffff : rest > 0 ? (1u << rest) - 1 : 0;
    return (__mmask16)(all & (0xffffu << left));
}

ALWAYS_INLINE __mmask8 lanes_double(int64_t at, int64_t length)
{
    return (__mmask8)(lanes_float(at, length) & 0xff);
}

ALWAYS_INLINE __m512i every_lane_float(int64_t stride, int64_t first)
{
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)stride)), _mm512_set1_epi32((int)first));
}

ALWAYS_INLINE __m512i every_lane_double(int64_t stride, int64_t first)
{
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi64(_mm512_mullo_epi64(lanes, _mm512_set1_epi64(stride)), _mm512_set1_epi64(first));
}

#define pick_lanes_float  _mm512_permutex2var_ps
#define pick_lanes_double _mm512_permutex2var_pd

ALWAYS_INLINE __m512 pick_more_float(__m512 picked, int64_t from, __m512 first, __m512i index, __m512 second)
{
    const __mmask16 more = _mm512_cmpge_epi32_mask(index, _mm512_set1_epi32((int)from));
    return _mm512_mask_blend_ps(more, picked, _mm512_permutex2var_ps(first, index, second));
}

ALWAYS_INLINE __m512d pick_more_double(__m512d picked, int64_t from, __m512d first, __m512i index, __m512d second)
{
    const __mmask8 more = _mm512_cmpge_epi64_mask(index, _mm512_set1_epi64(from));
    return _mm512_mask_blend_pd(more, picked, _mm512_permutex2var_pd(first, index, second));
}

#define store_lanes_float  _mm512_mask_storeu_ps
#define store_lanes_double _mm512_mask_storeu_pd
#define load_lanes_f32     _mm512_maskz_loadu_ps
#define load_lanes_f64     _mm512_maskz_loadu_pd
#define load_lanes_f16     masked_floats_from_f16
#define load_lanes_bf16    masked_floats_from_bf16
#else
/* Finds the columns, elements of each residue, that all these runs of a row have and that can be split by vectors of so many
 * lanes, none of which reaches beyond the row; none where they are fewer than the lanes. */
ALWAYS_INLINE void find_columns(const tconv_cpu_split_load *load, const int64_t stride, const int64_t lanes,
                                int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = load->run_count > 0 ? INT64_MAX : 0;
    for (const tconv_cpu_split_run *run = load->runs; run < load->runs + load->run_count; run++) {
        const int64_t first = run->residue / lanes * lanes, last = run->first + run->count;
        const int64_t reach = stride == 2 ? 2 * lanes : (lanes - 1) * stride + first + lanes;
        const int64_t inside = load->length < reach ? 0 : (load->length - reach) / stride + lanes;
        *begin = *begin < run->first ? run->first : *begin;
        *end = last < *end ? last : *end;
        *end = inside < *end ? inside : *end;
    }
    if (*end - *begin < lanes)
        *end = *begin;
}
#endif

/* A block of weights that is packed (pack.inc.h). Its rows are channels that lie side by side in what is packed, its columns are
 * neighbours in memory: so many runs, each a step behind the one before. */
typedef struct pack_block {
    int64_t from, columns; /* from: of the first column */
    int64_t runs, length, step;
    int64_t ahead;                /* to what is prefetched: a later block's */
    int64_t to[VECTOR_BYTES / 4]; /* where each column goes in what is packed; -1: nowhere */
} pack_block;

/* Filters are taken whole where their taps are within so many elements: it is chosen, not measured. */
enum { PACK_RUN = 256 };

/* Lists where the elements of a filter from the first tap on go: the tap that each is, or -1. Returns how many they are up to the
 * last tap; 0 where most of them, or too many, are no taps. */
static int64_t list_run(const tconv_cpu_pack *pack, int64_t *first, int8_t tap_of[PACK_RUN])
{
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t t = 0; t < pack->tap_count; t++) {
        least = pack->taps[t].from < least ? pack->taps[t].from : least;
        most = pack->taps[t].from > most ? pack->taps[t].from : most;
    }
    *first = least;
    if (pack->tap_count > INT8_MAX || most - least >= PACK_RUN || most - least >= 4 * pack->tap_count)
        return 0;
    memset(tap_of, -1, PACK_RUN);
    for (int64_t t = 0; t < pack->tap_count; t++)
        tap_of[pack->taps[t].from - least] = (int8_t)t;
    return most - least + 1;
}

#define REAL       float
#define SUMS(name) JOIN(name, float)

#define ELEMENT     float
#define NAME(name)  JOIN(name, f32)
#define CONVERT_IN  COPY_VECTOR
#define CONVERT_OUT COPY_VECTOR
#include "rows.inc.h"
#undef ELEMENT
#undef NAME
#undef CONVERT_IN
#undef CONVERT_OUT

#define ELEMENT     uint16_t
#define NAME(name)  JOIN(name, f16)
#define CONVERT_IN  floats_from_f16
#define CONVERT_OUT f16_from_floats
#include "rows.inc.h"
#undef NAME
#undef CONVERT_IN
#undef CONVERT_OUT

#define NAME(name)  JOIN(name, bf16)
#define CONVERT_IN  floats_from_bf16
#define CONVERT_OUT bf16_from_floats
#include "rows.inc.h"
#undef ELEMENT
#undef NAME
#undef CONVERT_IN
#undef CONVERT_OUT
#if VECTOR_BYTES == 64
#include "pairs.inc.h"
#endif
#undef REAL
#undef SUMS
#undef LANES

#define REAL        double
#define SUMS(name)  JOIN(name, double)
#define LANES       (VECTOR_BYTES / 8)
#define ELEMENT     double
#define NAME(name)  JOIN(name, f64)
#define CONVERT_IN  COPY_VECTOR
#define CONVERT_OUT COPY_VECTOR
#include "rows.inc.h"
#undef ELEMENT
#undef NAME
#undef CONVERT_IN
#undef CONVERT_OUT
#undef REAL
#undef SUMS
#undef LANES

/* ---------------------------------------------------------------------------------------------------- the table */

#define MICROKERNEL_FLOAT(channels, vectors)  [channels][vectors] = microkernel_##channels##x##vectors##_float,
#define MICROKERNEL_DOUBLE(channels, vectors) [channels][vectors] = microkernel_##channels##x##vectors##_double,
#define ROWS(name)                                                                                                     \
    {                                                                                                                  \
        load_planes_##name, load_pixels_##name, load_split_##name, load_masked_##name, store_interleaved_##name,       \
            store_scattered_##name, store_pixels_##name, stencil_##name, pack_##name                                   \
    }

const tconv_cpu_kernels JOIN(tconv_cpu_kernels, LEVEL) = {
    .max_channels = MAX_CHANNELS,
    .streams = VECTOR_BYTES > 16,
    .fill = fill,
    .activate = activate_float,
    .order_stores = order_stores,
#if VECTOR_BYTES == 64
    .load_pairs = load_pairs,
    .split_pairs = load_split_pairs,
#endif
    .real = {{VECTOR_BYTES / 4, post_rows_float, MAX_VECTORS, {MICROTILES(MICROKERNEL_FLOAT)}},
             {VECTOR_BYTES / 8, post_rows_double, MAX_VECTORS, {MICROTILES(MICROKERNEL_DOUBLE)}}},
    .dtype = {[TCONV_F32] = ROWS(f32), [TCONV_F64] = ROWS(f64), [TCONV_F16] = ROWS(f16), [TCONV_BF16] = ROWS(bf16)},
};
