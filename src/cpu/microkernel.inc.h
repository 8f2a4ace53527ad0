/*
 * The microkernel, as text: included once for each type of sums with
 *
 *     REAL, NAME(name)  the type, and a name with the type's suffix
 *     LANES             of a vector register
 *     TILES(tile)       tile(channels, vectors) for each tile that the registers can hold
 *
 * A tile is channels x vectors of positions. Its sums stay in registers; for each term, every vector of the strip is
 * loaded once and multiplied by each channel's weight, which is broadcast from memory. The loops over the tile have
 * constant bounds and vanish. Numeric order: see tconv_cpu_tile; every lane does the same, whatever the tile.
 */

typedef REAL NAME(vector) __attribute__((vector_size(LANES * sizeof(REAL))));
/* The same at any address. */
typedef REAL NAME(loose_vector) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

typedef NAME(vector) NAME(registers)[TCONV_CPU_MAX_CHANNELS][TCONV_CPU_MAX_VECTORS];

ALWAYS_INLINE void NAME(store_sums)(REAL *to, NAME(registers) sums, int64_t stride, const int rows, const int vectors)
{
    UNROLL
    for (int m = 0; m < rows; m++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        *(NAME(vector) *)(to + m * stride + v * LANES) = sums[m][v];
}

/* Adds the levels of a cascade (tconv_cpu_tile) of which so many sums are done: those at the end, or all if this sum is
 * the last one. Returns the level where the sum waits if it is not. */
ALWAYS_INLINE REAL *NAME(add_levels)(NAME(registers) sums, REAL *level, int64_t level_stride, int64_t stride,
                                     int64_t done, bool last, const int rows, const int vectors)
{
    for (; last ? done != 0 : done % 2 != 0; done /= 2, level += level_stride)
        if (done % 2 != 0)
            UNROLL
    for (int m = 0; m < rows; m++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        sums[m][v] += *(const NAME(vector) *)(level + m * stride + v * LANES);
    return level;
}

/* One term: each vector is loaded once. */
ALWAYS_INLINE void NAME(add_term)(NAME(registers) sums, const REAL *const *strip, int64_t offset, const REAL *weights,
                                  const int channels, const int vectors)
{
    NAME(vector) values[TCONV_CPU_MAX_VECTORS];
    UNROLL
    for (int v = 0; v < vectors; v++)
        values[v] = *(const NAME(loose_vector) *)(strip[v] + offset);
    UNROLL
    for (int m = 0; m < channels; m++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        sums[m][v] += weights[m] * values[v];
}

ALWAYS_INLINE void NAME(sum_tile)(const tconv_cpu_tile *tile, const int channels, const int vectors)
{
    const REAL *weights = tile->weights, *bias = tile->bias, *strip[TCONV_CPU_MAX_VECTORS];
    const tconv_cpu_run *run = tile->runs;
    const int64_t round_terms = tile->round_terms, width = vectors * LANES;
    int64_t left = tile->terms, begin = 0;
    NAME(registers) sums;
    UNROLL
    for (int v = 0; v < vectors; v++)
        strip[v] = (const REAL *)tile->strip + tile->vectors[v];
    for (int64_t segment = 0;; segment++, run += run->more) {
        const char *const line = run->first;
        const int32_t *ahead = tile->ahead;
        int64_t length = tile->segment < left ? tile->segment : left;
        length = length < round_terms - begin ? length : round_terms - begin;
        const int32_t *offset = tile->offsets + begin, *const end = offset + length;
        UNROLL
        for (int m = 0; m < channels; m++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[m][v] = (NAME(vector)){0};
        for (; offset + TERMS_AT_ONCE <= end; ahead++) {
            UNROLL
            for (int t = 0; t < TERMS_AT_ONCE; t++, offset++, weights += channels)
                NAME(add_term)(sums, strip, *offset, weights, channels, vectors);
            __builtin_prefetch(line + *ahead, 0, 2);
        }
        if (TERMS_AT_ONCE > 1)
            for (; offset < end; offset++, weights += channels)
                NAME(add_term)(sums, strip, *offset, weights, channels, vectors);
        left -= length;
        begin += length;
        REAL *level =
            NAME(add_levels)(sums, tile->levels, channels * width, width, segment, left == 0, channels, vectors);
        if (left == 0)
            break;
        NAME(store_sums)(level, sums, width, channels, vectors);
        if (begin == round_terms) {
            begin = 0;
            UNROLL
            for (int v = 0; v < vectors; v++)
                strip[v] += tile->round_stride;
        }
    }
    REAL *out = NAME(add_levels)(sums, tile->sums, tile->sums_level, tile->sums_stride, tile->calls_done, tile->last,
                                 channels, vectors);
    if (tile->last) {
        out = tile->sums;
        UNROLL
        for (int m = 0; m < channels; m++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[m][v] += bias[m];
    }
    NAME(store_sums)(out, sums, tile->sums_stride, channels, vectors);
}

#define DEFINE_TILE(channels, vectors)                                                                                 \
    static void NAME(tile_##channels##x##vectors)(const tconv_cpu_tile *tile)                                          \
    {                                                                                                                  \
        NAME(sum_tile)(tile, channels, vectors);                                                                       \
    }
TILES(DEFINE_TILE)
#undef DEFINE_TILE
