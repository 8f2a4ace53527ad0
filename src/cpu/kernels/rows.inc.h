/*
 * Loads a strip and stores results; text that is included once for each dtype with
 *
 *     REAL, ELEMENT, NAME(name)  the type of the sums, of memory, and a name with the dtype's suffix
 *     SUMS(name)                 a name with the suffix of the type of the sums
 *     LANES                      the lanes of a vector of REAL
 *     CONVERT_IN(to, from)       converts exactly LANES elements to REAL
 *     CONVERT_OUT(to, from)      converts exactly LANES REAL to elements, rounding to nearest even
 *
 * and load_short_<dtype>(to, from, row), which loads a padded row of at most LANES in one go, or is false.
 *
 * Rows are whole vectors, the last of which overlaps the one before; rows shorter than a vector pass through a small
 * buffer. So nothing outside a row is ever read or written, and no lane is converted by other means than its
 * neighbours.
 */

ALWAYS_INLINE void NAME(load_row)(REAL *to, const ELEMENT *from, int64_t count)
{
    if (count < LANES && sizeof(ELEMENT) == sizeof(REAL)) {
        copy_short(to, from, (size_t)count * sizeof(REAL), LANES * sizeof(REAL));
        return;
    }
    if (count < LANES) {
        ELEMENT padded[LANES] = {0};
        REAL converted[LANES];
        copy_short(padded, from, (size_t)count * sizeof(ELEMENT), sizeof padded);
        CONVERT_IN(converted, padded);
        copy_short(to, converted, (size_t)count * sizeof(REAL), sizeof converted);
        return;
    }
    for (int64_t i = 0; i < count - LANES; i += LANES)
        CONVERT_IN(to + i, from + i);
    CONVERT_IN(to + count - LANES, from + count - LANES);
}

#include "finish.inc.h"

ALWAYS_INLINE void NAME(fill_zeros)(REAL *strip, const tconv_cpu_padded_row *row)
{
    for (int64_t i = 0; i < row->left; i++)
        strip[i] = 0;
    for (int64_t i = row->left + row->count; i < row->left + row->count + row->right; i++)
        strip[i] = 0;
}

static void NAME(load_planes)(const tconv_cpu_load *load)
{
    for (int64_t c = 0; c < load->channels; c++) {
        const ELEMENT *src = (const ELEMENT *)load->src + c * load->src_channel;
        REAL *strip = (REAL *)load->strip + c * load->strip_channel;
        for (const tconv_cpu_padded_row *row = load->rows; row < load->rows + load->row_count; row++) {
            if (NAME(load_short)(strip + row->strip, src + row->src, row))
                continue;
            NAME(fill_zeros)(strip + row->strip, row);
            if (row->count > 0)
                NAME(load_row)(strip + row->strip + row->left, src + row->src, row->count);
        }
    }
}

/* Loads elements [begin, end) of a run one by one. */
ALWAYS_INLINE void NAME(load_apart)(REAL *to, const ELEMENT *row, const tconv_cpu_split_load *load,
                                    const tconv_cpu_split_run *run, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += LANES) {
        const int64_t some = end - i < LANES ? end - i : LANES;
        ELEMENT gathered[LANES];
        for (int64_t lane = 0; lane < some; lane++) {
            const int64_t from = load->stride * (run->first + i + lane) + run->residue;
            gathered[lane] = from >= 0 && from < load->length ? row[from] : 0;
        }
        if (sizeof(ELEMENT) == sizeof(REAL))
            for (int64_t lane = 0; lane < some; lane++)
                memcpy(&to[i + lane], &gathered[lane], sizeof(REAL));
        else
            NAME(load_row)(to + i, gathered, some);
    }
}

#define LOAD_LANES(load, lanes, from) NAME(load_lanes)(lanes, from)
#include "split.inc.h"
#undef LOAD_LANES

/* Loads a block of pixels x channels, at most LANES each, transposed. What lies AHEAD_BLOCKS further is prefetched: the
 * rows are often planes apart, too far for the processor to foresee, and all of one set of the first-level cache, so that
 * they go to the second level. */
ALWAYS_INLINE void NAME(load_block)(const tconv_cpu_load *load, REAL *to, const ELEMENT *src, const int64_t pixels,
                                    const int64_t channels)
{
    SUMS(vector) block[LANES];
    UNROLL_IF_CONSTANT
    for (int64_t p = 0; p < pixels; p++) {
        __builtin_prefetch(src + p * load->src_pixel + AHEAD_BLOCKS * LANES, 0, 2);
#if VECTOR_BYTES == 64
        block[p] = NAME(load_lanes)(SUMS(lanes)(0, channels), src + p * load->src_pixel);
#else
        NAME(load_row)((REAL *)&block[p], src + p * load->src_pixel, channels);
#endif
    }
    for (int64_t p = pixels; p < LANES; p++)
        block[p] = (SUMS(vector)){0};
    SUMS(transpose)(block);
    UNROLL_IF_CONSTANT
    for (int64_t c = 0; c < channels; c++)
        SUMS(copy_lanes)(to + c * load->strip_channel, (const REAL *)&block[c], pixels);
}

/* NHWC: blocks of LANES pixels x LANES channels are converted and transposed. */
static void NAME(load_pixels)(const tconv_cpu_load *load)
{
    for (const tconv_cpu_padded_row *row = load->rows; row < load->rows + load->row_count; row++) {
        REAL *strip = (REAL *)load->strip + row->strip;
        for (int64_t c = 0; c < load->channels; c++)
            NAME(fill_zeros)(strip + c * load->strip_channel, row);
        strip += row->left;
        for (int64_t c0 = 0; c0 < load->channels; c0 += LANES) {
            int64_t channels = load->channels - c0 < LANES ? load->channels - c0 : LANES;
            for (int64_t p0 = 0; p0 < row->count; p0 += LANES) {
                int64_t pixels = row->count - p0 < LANES ? row->count - p0 : LANES;
                const ELEMENT *src = (const ELEMENT *)load->src + row->src + p0 * load->src_pixel + c0;
                REAL *to = strip + c0 * load->strip_channel + p0;
                if (pixels == LANES && channels == LANES)
                    NAME(load_block)(load, to, src, LANES, LANES);
                else
                    NAME(load_block)(load, to, src, pixels, channels);
            }
        }
    }
}

/* Stores a few outputs of one channel, one by one. */
ALWAYS_INLINE void NAME(interleave_short)(const tconv_cpu_store *store, int64_t channel, const int residues,
                                          const bool plain)
{
    const REAL *sums = (const REAL *)store->sums + channel * store->channel_stride;
    const REAL *bias = (const REAL *)store->finish.bias + channel;
    const bool adds_bias = !plain && (store->finish.steps & TCONV_CPU_ADD_BIAS);
    REAL outputs[LANES > SHORT_RUN ? LANES : SHORT_RUN] = {0};
    for (int64_t i = 0; i < store->count; sums++)
        for (int r = 0; r < residues && i < store->count; r++, i++)
            outputs[i] = store->rows[r] >= 0 ? sums[store->rows[r]] : adds_bias ? 0 : bias[-1 - store->rows[r]];
    NAME(finish_row)
    ((ELEMENT *)store->dst + channel * store->dst_channel, outputs, store->count, channel, &store->finish, plain);
}

/* Interleaves and stores the residues of one channel. */
ALWAYS_INLINE void NAME(interleave_channel)(const tconv_cpu_store *store, int64_t channel, const int residues,
                                            const bool plain)
{
    const REAL *from[TCONV_CPU_MAX_INTERLEAVE];
    int64_t step[TCONV_CPU_MAX_INTERLEAVE];
    SUMS(vector) rows[TCONV_CPU_MAX_INTERLEAVE], outputs[TCONV_CPU_MAX_INTERLEAVE], bias[TCONV_CPU_MAX_INTERLEAVE];
    ELEMENT *dst = (ELEMENT *)store->dst + channel * store->dst_channel,
            *to = store->stage != NULL ? store->stage : dst;
    const bool adds_bias = !plain && (store->finish.steps & TCONV_CPU_ADD_BIAS);
    int64_t rest = store->count, filled = 0;
    if (residues == 1 && sizeof(ELEMENT) == sizeof(REAL) && store->stage != NULL && store->rows[0] >= 0) {
        const REAL *sums = (const REAL *)store->sums + channel * store->channel_stride + store->rows[0];
        stream_bytes((char *)dst, (const char *)sums, (size_t)store->count * sizeof(REAL), LINE);
        return;
    }
    for (int r = 0; r < residues; r++) { /* a bias-only residue repeats its bias */
        bool summed = store->rows[r] >= 0;
        from[r] = (const REAL *)&bias[r];
        step[r] = summed ? LANES : 0;
        if (summed)
            from[r] = (const REAL *)store->sums + channel * store->channel_stride + store->rows[r];
        else
            for (int i = 0; i < LANES; i++)
                bias[r][i] = adds_bias ? 0 : ((const REAL *)store->finish.bias)[channel - 1 - store->rows[r]];
    }
    for (;; rest -= LANES * residues, to += LANES * residues) {
        UNROLL_IF_CONSTANT
        for (int r = 0; r < residues; r++) {
            rows[r] = *(const SUMS(loose_vector) *)from[r];
            from[r] += step[r];
        }
        SUMS(interleave)(outputs + filled, rows, residues);
        if (!plain) { /* as many vectors as there is room for are finished together */
            const int64_t before = filled * LANES;
            const bool ends = rest <= LANES * residues;
            filled += residues;
            if (!ends && filled + residues <= TCONV_CPU_MAX_INTERLEAVE)
                continue;
            NAME(finish_sums)
            (to - before, (const REAL *)outputs, before + (ends ? rest : LANES * residues), channel, &store->finish);
            filled = 0;
            if (ends)
                return;
            continue;
        }
        if (rest < LANES * residues) /* nothing was summed beyond */
            break;
        UNROLL_IF_CONSTANT
        for (int r = 0; r < residues; r++)
            CONVERT_OUT(to + r * LANES, (const REAL *)&outputs[r]);
        if (rest <= LANES * residues)
            break;
    }
    if (rest < LANES * residues)
        NAME(store_row)(to, (const REAL *)outputs, rest);
    if (store->stage != NULL)
        stream_bytes((char *)dst, store->stage, (size_t)store->count * sizeof(ELEMENT), LINE);
}

ALWAYS_INLINE void NAME(interleave_channels)(const tconv_cpu_store *store, const int residues, const bool plain)
{
    for (int64_t m = 0; m < store->channels; m++) {
        if (store->count <= SHORT_RUN)
            NAME(interleave_short)(store, m, residues, plain);
        else
            NAME(interleave_channel)(store, m, residues, plain);
    }
}

static void NAME(finish_interleaved)(const tconv_cpu_store *store)
{
    if (store->residues > 1 || store->rows[0] < 0) {
        NAME(interleave_channels)(store, (int)store->residues, false);
        return;
    }
    const REAL *sums = (const REAL *)store->sums + store->rows[0];
    ELEMENT *dst = store->dst;
    for (int64_t m = 0; m < store->channels; m++, sums += store->channel_stride, dst += store->dst_channel)
        NAME(finish_sums)(dst, sums, store->count, m, &store->finish);
}

/* Constant counts of residues let the compiler permute registers; other counts go through memory. */
static void NAME(store_interleaved)(const tconv_cpu_store *store)
{
    if (store->finish.steps != 0) {
        NAME(finish_interleaved)(store);
        return;
    }
    switch (store->residues) {
    case 1: NAME(interleave_channels)(store, 1, true); break;
    case 2: NAME(interleave_channels)(store, 2, true); break;
    case 3: NAME(interleave_channels)(store, 3, true); break;
    case 4: NAME(interleave_channels)(store, 4, true); break;
    case 5: NAME(interleave_channels)(store, 5, true); break;
    case 6: NAME(interleave_channels)(store, 6, true); break;
    case 8: NAME(interleave_channels)(store, 8, true); break;
    default: NAME(interleave_channels)(store, (int)store->residues, true);
    }
}

static void NAME(store_scattered)(const tconv_cpu_store *store)
{
    for (int64_t m = 0; m < store->channels; m++) {
        const REAL *sums = (const REAL *)store->sums + m * store->channel_stride;
        ELEMENT *dst = (ELEMENT *)store->dst + m * store->dst_channel, converted[LANES];
        for (int64_t position = 0; position < store->count; position += LANES) {
            int64_t count = store->count - position < LANES ? store->count - position : LANES;
            for (int64_t i = 0; (store->finish.steps & TCONV_CPU_ADD_HELD) && i < count; i++)
                converted[i] = dst[i * store->dst_position];
            if (store->finish.steps & TCONV_CPU_APPLY_POSTS) {
                NAME(finish_with_posts)
                (converted, sums + position, count, m, &store->finish, dst, store->dst_position);
            } else {
                NAME(finish_row)(converted, sums + position, count, m, &store->finish, store->finish.steps == 0);
            }
            for (int64_t i = 0; i < count; i++, dst += store->dst_position)
                *dst = converted[i];
        }
    }
}

/* Stores LANES positions of some channels, transposed. */
ALWAYS_INLINE void NAME(store_block)(const tconv_cpu_store *store, int64_t position, int64_t pixels, const int channels)
{
    ELEMENT *dst = (ELEMENT *)store->dst + position * store->dst_position;
    const REAL *sums = (const REAL *)store->sums + position;
    SUMS(vector) rows[TCONV_CPU_MAX_CHANNELS], transposed[TCONV_CPU_MAX_CHANNELS];
    for (int m = 0; m < channels; m++)
        rows[m] = *(const SUMS(loose_vector) *)(sums + m * store->channel_stride);
    SUMS(interleave)(transposed, rows, channels);
    for (int64_t p = 0; p < pixels; p++, dst += store->dst_position)
        NAME(finish_row)
    (dst, (const REAL *)transposed + p * channels, channels, 0, &store->finish, store->finish.steps == 0);
}

static void NAME(store_pixels)(const tconv_cpu_store *store)
{
    for (int64_t position = 0; position < store->count; position += LANES) {
        int64_t pixels = store->count - position < LANES ? store->count - position : LANES;
        switch (store->channels) {
        case 1: NAME(store_block)(store, position, pixels, 1); break;
        case 2: NAME(store_block)(store, position, pixels, 2); break;
        case 3: NAME(store_block)(store, position, pixels, 3); break;
        case 4: NAME(store_block)(store, position, pixels, 4); break;
        case 6: NAME(store_block)(store, position, pixels, 6); break;
        case 8: NAME(store_block)(store, position, pixels, 8); break;
        case 12: NAME(store_block)(store, position, pixels, 12); break;
        default: NAME(store_block)(store, position, pixels, (int)store->channels);
        }
    }
}

/* Sums TCONV_CPU_STENCIL_VECTORS vectors of positions, and interleaves their outputs. */
ALWAYS_INLINE void NAME(stencil_outputs)(const tconv_cpu_stencil *stencil, const REAL *strip, SUMS(vector) * outputs,
                                         const int residues)
{
    enum { VECTORS = TCONV_CPU_STENCIL_VECTORS };
    const REAL *weights = stencil->weights, bias = *(const REAL *)stencil->bias;
    SUMS(vector) sums[VECTORS][TCONV_CPU_MAX_INTERLEAVE] = {{{0}}};
    UNROLL_IF_CONSTANT
    for (int r = 0; r < residues; r++) {
        SUMS(vector) sum[VECTORS] = {{0}};
        for (int32_t t = stencil->terms[r]; t < stencil->terms[r + 1]; t++)
            UNROLL
        for (int v = 0; v < VECTORS; v++)
            sum[v] += weights[t] * *(const SUMS(loose_vector) *)(strip + v * LANES + stencil->offsets[t]);
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            sums[v][r] = sum[v] + bias;
    }
    UNROLL
    for (int v = 0; v < VECTORS; v++)
        SUMS(interleave)(outputs + v * residues, sums[v], residues);
}

/* With posts, as many vectors as there is room for go through the list together. */
ALWAYS_INLINE void NAME(stencil_row)(const tconv_cpu_stencil *stencil, const int residues, const bool posts)
{
    enum { VECTORS = TCONV_CPU_STENCIL_VECTORS, ROOM = VECTORS * TCONV_CPU_MAX_INTERLEAVE };
    const REAL *strip = stencil->strip;
    ELEMENT *to = stencil->stage != NULL ? stencil->stage : stencil->dst;
    SUMS(vector) outputs[ROOM];
    const int vectors = VECTORS * residues, most = posts ? ROOM / vectors * vectors : vectors;
    for (int64_t rest = stencil->count; rest > 0;) {
        int made = 0;
        for (; made < most && made * LANES < rest; made += vectors, strip += VECTORS * LANES)
            NAME(stencil_outputs)(stencil, strip, outputs + made, residues);
        if (posts) {
            const SUMS(post_values) values = {(REAL *)outputs, NULL, 0, 1, made};
            SUMS(run_list)(&values, made * LANES, stencil->posts, stencil->channel, false);
        }
        if (rest < made * LANES && stencil->stage == NULL) {
            NAME(store_row)(to, (const REAL *)outputs, rest);
            return;
        }
        for (int i = 0; i < made; i += vectors, to += vectors * LANES) {
            UNROLL_IF_CONSTANT
            for (int v = 0; v < vectors; v++)
                CONVERT_OUT(to + v * LANES, (const REAL *)&outputs[i + v]);
        }
        rest -= made * LANES;
    }
    if (stencil->stage != NULL)
        stream_bytes(stencil->dst, stencil->stage, (size_t)stencil->count * sizeof(ELEMENT), LINE);
}

/* The rows with and without a list have functions of their own, because their frames would add up in one. */
static NOT_INLINED void NAME(stencil_with_posts)(const tconv_cpu_stencil *stencil)
{
    if (stencil->residues == 2)
        NAME(stencil_row)(stencil, 2, true);
    else
        NAME(stencil_row)(stencil, (int)stencil->residues, true);
}

static NOT_INLINED void NAME(stencil_without_posts)(const tconv_cpu_stencil *stencil)
{
    switch (stencil->residues) {
    case 1: NAME(stencil_row)(stencil, 1, false); break;
    case 2: NAME(stencil_row)(stencil, 2, false); break;
    case 3: NAME(stencil_row)(stencil, 3, false); break;
    case 4: NAME(stencil_row)(stencil, 4, false); break;
    case 8: NAME(stencil_row)(stencil, 8, false); break;
    default: NAME(stencil_row)(stencil, (int)stencil->residues, false);
    }
}

static void NAME(stencil)(const tconv_cpu_stencil *stencil)
{
    if (stencil->posts != NULL)
        NAME(stencil_with_posts)(stencil);
    else
        NAME(stencil_without_posts)(stencil);
}

#include "pack.inc.h"
