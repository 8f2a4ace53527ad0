/*
 * The microkernels of the pixels algorithm, as text: included once for each type of sums with
 *
 *     REAL, NAME(name)          the type, and a name with the type's suffix
 *     LANES                     of a vector register
 *     PIXEL_TILES(tile)         tile(vectors, pixels) for each tile that the registers can hold
 *     STREAM(to, values)        stores a vector past the caches
 *
 * A tile is pixels x vectors of output channels. Its sums stay in registers; for each term, the vectors of weights are
 * loaded once and multiplied by each pixel's input, which is broadcast from memory (depthwise: a vector of it). Each pixel
 * keeps its address in a register and all share one index, so that pixels may lie anywhere in the strip. The loops over
 * the tile have constant bounds and vanish. Numeric order: see tconv_cpu_pixel_tile; every lane does the same, whatever
 * the tile.
 */

typedef NAME(vector) NAME(pixel_sums)[TCONV_CPU_MAX_PIXELS][TCONV_CPU_MAX_PIXEL_VECTORS];

/* Terms [begin, end) of one tap. */
ALWAYS_INLINE void NAME(sum_tap)(NAME(pixel_sums) sums, const REAL *const strip[], int64_t begin, int64_t end,
                                 const REAL *weights, const bool depthwise, const int vectors, const int pixels)
{
    for (int64_t at = begin; at < end; at++, weights += vectors * LANES) {
        NAME(vector) loaded[TCONV_CPU_MAX_PIXEL_VECTORS];
        UNROLL
        for (int v = 0; v < vectors; v++)
            loaded[v] = *(const NAME(vector) *)(weights + v * LANES);
        UNROLL
        for (int p = 0; p < pixels; p++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            if (depthwise)
                sums[p][v] += *(const NAME(vector) *)(strip[p] + at + v * LANES) * loaded[v];
            else
                sums[p][v] += strip[p][at] * loaded[v];
    }
}

ALWAYS_INLINE void NAME(add_pixel_sums)(NAME(pixel_sums) sums, const REAL *from, const int vectors, const int pixels)
{
    UNROLL
    for (int p = 0; p < pixels; p++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        sums[p][v] += *(const NAME(vector) *)(from + (p * vectors + v) * LANES);
}

#define STORE_LOOSE(address, values) (*(NAME(loose_vector) *)(address) = (values))

/* Each pixel's vectors to dst. */
#define STORE_PIXELS(store_vector)                                                                                     \
    UNROLL                                                                                                             \
    for (int p = 0; p < pixels; p++)                                                                                   \
        UNROLL                                                                                                         \
    for (int v = 0; v < vectors; v++)                                                                                  \
    store_vector((REAL *)tile->dst + tile->to[p] + v * LANES, sums[p][v])

ALWAYS_INLINE void NAME(sum_pixels)(const tconv_cpu_pixel_tile *tile, const bool depthwise, const int vectors,
                                    const int pixels)
{
    const REAL *bias = tile->bias, *strip[TCONV_CPU_MAX_PIXELS];
    const int64_t channels = depthwise ? 1 : tile->channels;
    int64_t tap_begin = 0, channel_begin = 0, segment = tile->segments_done;
    UNROLL
    for (int p = 0; p < pixels; p++)
        strip[p] = (const REAL *)tile->strip + tile->at[p];
    for (bool more = true; more; segment++) {
        NAME(pixel_sums) sums;
        REAL *out = tile->sums;
        int64_t tap_rest = tile->tap_count - tap_begin, channel_rest = channels - channel_begin;
        int64_t tap_end = tap_begin + (tap_rest < tile->tap_segment ? tap_rest : tile->tap_segment);
        int64_t length = channel_rest < tile->channel_segment ? channel_rest : tile->channel_segment;
        UNROLL
        for (int p = 0; p < pixels; p++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[p][v] = (NAME(vector)){0};
        for (int64_t t = tap_begin; t < tap_end; t++) {
            int64_t begin = tile->taps[t].strip + channel_begin;
            const REAL *weights =
                (const REAL *)tile->weights + (tile->taps[t].weights * channels + channel_begin) * (vectors * LANES);
            NAME(sum_tap)(sums, strip, begin, begin + (depthwise ? 1 : length), weights, depthwise, vectors, pixels);
        }
        channel_begin += length;
        if (channel_begin >= channels) {
            channel_begin = 0;
            tap_begin = tap_end;
        }
        more = tap_begin < tile->tap_count;
        bool last = !more && bias != NULL, fold = tile->folded != 0 && (last || (segment + 1) % TCONV_CPU_FOLD == 0);
        if (tile->folded != 0 ? segment % TCONV_CPU_FOLD != 0 : segment != 0)
            NAME(add_pixel_sums)(sums, out, vectors, pixels);
        if (fold && segment >= TCONV_CPU_FOLD)
            NAME(add_pixel_sums)(sums, out + tile->folded, vectors, pixels);
        if (fold && !last)
            out += tile->folded;
        if (last)
            UNROLL
        for (int p = 0; p < pixels; p++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[p][v] += *(const NAME(vector) *)(bias + v * LANES);
        if (last && tile->dst != NULL) {
            if (tile->stream)
                STORE_PIXELS(STREAM);
            else
                STORE_PIXELS(STORE_LOOSE);
            return;
        }
        UNROLL
        for (int p = 0; p < pixels; p++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            *(NAME(vector) *)(out + (p * vectors + v) * LANES) = sums[p][v];
    }
}

#define DEFINE_PIXEL_TILE(vectors, pixels)                                                                             \
    static void NAME(dense_##vectors##x##pixels)(const tconv_cpu_pixel_tile *tile)                                     \
    {                                                                                                                  \
        NAME(sum_pixels)(tile, false, vectors, pixels);                                                                \
    }                                                                                                                  \
    static void NAME(depthwise_##vectors##x##pixels)(const tconv_cpu_pixel_tile *tile)                                 \
    {                                                                                                                  \
        NAME(sum_pixels)(tile, true, vectors, pixels);                                                                 \
    }
PIXEL_TILES(DEFINE_PIXEL_TILE)
#undef DEFINE_PIXEL_TILE
#undef STORE_PIXELS
#undef STORE_LOOSE
