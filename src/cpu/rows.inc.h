/*
 * Loading a strip and storing results, as text: included once for each dtype with
 *
 *     REAL, ELEMENT, NAME(name)  the type of the sums, of memory, and a name with the dtype's suffix
 *     LANES                      of a vector of REAL
 *     CONVERT_IN(to, from)       exactly LANES elements to REAL
 *     CONVERT_OUT(to, from)      exactly LANES REAL to elements, rounding to nearest even
 *
 * Rows are whole vectors, the last of which overlaps the one before; rows shorter than a vector pass through a small
 * buffer. So nothing outside a row is ever read or written, and no lane is converted by other means than its neighbours.
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

ALWAYS_INLINE void NAME(store_row)(ELEMENT *to, const REAL *from, int64_t count)
{
    if (count < LANES && sizeof(ELEMENT) == sizeof(REAL)) {
        copy_short(to, from, (size_t)count * sizeof(REAL), LANES * sizeof(REAL));
        return;
    }
    if (count < LANES) {
        ELEMENT converted[LANES];
        REAL padded[LANES] = {0};
        copy_short(padded, from, (size_t)count * sizeof(REAL), sizeof padded);
        CONVERT_OUT(converted, padded);
        copy_short(to, converted, (size_t)count * sizeof(ELEMENT), sizeof converted);
        return;
    }
    for (int64_t i = 0; i < count - LANES; i += LANES)
        CONVERT_OUT(to + i, from + i);
    CONVERT_OUT(to + count - LANES, from + count - LANES);
}

ALWAYS_INLINE void NAME(fill_zeros)(REAL *strip, const tconv_cpu_line *line)
{
    for (int64_t i = 0; i < line->left; i++)
        strip[i] = 0;
    for (int64_t i = line->left + line->count; i < line->left + line->count + line->right; i++)
        strip[i] = 0;
}

static void NAME(load_planes)(const tconv_cpu_load *load)
{
    for (int64_t c = 0; c < load->channels; c++) {
        const ELEMENT *src = (const ELEMENT *)load->src + c * load->src_channel;
        REAL *strip = (REAL *)load->strip + c * load->strip_channel;
        for (const tconv_cpu_line *line = load->lines; line < load->lines + load->line_count; line++) {
            NAME(fill_zeros)(strip + line->strip, line);
            if (line->count > 0)
                NAME(load_row)(strip + line->strip + line->left, src + line->src, line->count);
        }
    }
}

/* Blocks of pixels x channels are converted into a square buffer, and read from it the other way round. */
static void NAME(load_pixels)(const tconv_cpu_load *load)
{
    REAL block[LANES][PIXEL_CHANNELS];
    for (const tconv_cpu_line *line = load->lines; line < load->lines + load->line_count; line++) {
        REAL *strip = (REAL *)load->strip + line->strip;
        for (int64_t c = 0; c < load->channels; c++)
            NAME(fill_zeros)(strip + c * load->strip_channel, line);
        strip += line->left;
        for (int64_t c0 = 0; c0 < load->channels; c0 += PIXEL_CHANNELS) {
            int64_t channels = load->channels - c0 < PIXEL_CHANNELS ? load->channels - c0 : PIXEL_CHANNELS;
            for (int64_t p0 = 0; p0 < line->count; p0 += LANES) {
                int64_t pixels = line->count - p0 < LANES ? line->count - p0 : LANES;
                const ELEMENT *src = (const ELEMENT *)load->src + line->src + p0 * load->src_pixel + c0;
                for (int64_t p = 0; p < pixels; p++)
                    NAME(load_row)(block[p], src + p * load->src_pixel, channels);
                for (int64_t c = 0; c < channels; c++)
                    for (int64_t p = 0; p < pixels; p++)
                        strip[(c0 + c) * load->strip_channel + p0 + p] = block[p][c];
            }
        }
    }
}

/* LANES positions of one channel as LANES * residues outputs side by side. */
ALWAYS_INLINE void NAME(interleave)(REAL *outputs, const tconv_cpu_store *store, int64_t channel, int64_t position,
                                    const int residues)
{
    REAL rows[TCONV_CPU_MAX_INTERLEAVE][LANES];
    const REAL *sums = (const REAL *)store->sums + channel * store->channel_stride + position;
    for (int r = 0; r < residues; r++) {
        if (store->phases[r] >= 0) {
            memcpy(rows[r], sums + store->phases[r] * store->phase_stride, sizeof rows[r]);
        } else {
            REAL bias = ((const REAL *)store->bias)[channel];
            for (int i = 0; i < LANES; i++)
                rows[r][i] = bias;
        }
    }
    for (int i = 0; i < LANES; i++)
        for (int r = 0; r < residues; r++)
            outputs[i * residues + r] = rows[r][i];
}

/* A few outputs of one channel, one by one. */
ALWAYS_INLINE void NAME(store_short)(const tconv_cpu_store *store, int64_t channel, const int residues)
{
    const REAL *sums = (const REAL *)store->sums + channel * store->channel_stride;
    REAL outputs[LANES > SHORT_RUN ? LANES : SHORT_RUN] = {0};
    for (int64_t i = 0, r = 0; i < store->count; i++) {
        outputs[i] =
            store->phases[r] >= 0 ? sums[store->phases[r] * store->phase_stride] : ((const REAL *)store->bias)[channel];
        if (++r == residues) {
            r = 0;
            sums++;
        }
    }
    NAME(store_row)((ELEMENT *)store->dst + channel * store->dst_channel, outputs, store->count);
}

ALWAYS_INLINE void NAME(store_residues)(const tconv_cpu_store *store, const int residues)
{
    REAL outputs[TCONV_CPU_MAX_INTERLEAVE * LANES];
    const int step = LANES * residues;
    for (int64_t m = 0; m < store->channels; m++) {
        ELEMENT *dst = (ELEMENT *)store->dst + m * store->dst_channel;
        int64_t position = 0, rest = store->count;
        if (rest <= SHORT_RUN) {
            NAME(store_short)(store, m, residues);
            continue;
        }
        for (; rest >= step; rest -= step, dst += step, position += LANES) {
            NAME(interleave)(outputs, store, m, position, residues);
            for (int r = 0; r < residues; r++)
                CONVERT_OUT(dst + r * LANES, outputs + r * LANES);
        }
        if (rest > 0) {
            NAME(interleave)(outputs, store, m, position, residues);
            NAME(store_row)(dst, outputs, rest);
        }
    }
}

/* Constant counts of residues let the compiler permute registers; the others go through memory. */
static void NAME(store_interleaved)(const tconv_cpu_store *store)
{
    switch (store->residues) {
    case 1: NAME(store_residues)(store, 1); break;
    case 2: NAME(store_residues)(store, 2); break;
    case 3: NAME(store_residues)(store, 3); break;
    case 4: NAME(store_residues)(store, 4); break;
    case 5: NAME(store_residues)(store, 5); break;
    case 8: NAME(store_residues)(store, 8); break;
    default: NAME(store_residues)(store, (int)store->residues);
    }
}

static void NAME(store_scattered)(const tconv_cpu_store *store)
{
    for (int64_t m = 0; m < store->channels; m++) {
        const REAL *sums = (const REAL *)store->sums + m * store->channel_stride;
        ELEMENT *dst = (ELEMENT *)store->dst + m * store->dst_channel, converted[LANES];
        for (int64_t position = 0; position < store->count; position += LANES) {
            int64_t count = store->count - position < LANES ? store->count - position : LANES;
            NAME(store_row)(converted, sums + position, count);
            for (int64_t i = 0; i < count; i++, dst += store->dst_position)
                *dst = converted[i];
        }
    }
}

static void NAME(store_pixels)(const tconv_cpu_store *store)
{
    ELEMENT *dst = store->dst;
    for (int64_t position = 0; position < store->count; position++, dst += store->dst_position) {
        const REAL *sums = (const REAL *)store->sums + position;
        REAL pixel[TCONV_CPU_MAX_CHANNELS] = {0};
        for (int64_t m = 0; m < store->channels; m++)
            pixel[m] = sums[m * store->channel_stride];
        NAME(store_row)(dst, pixel, store->channels);
    }
}
