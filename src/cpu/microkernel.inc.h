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

ALWAYS_INLINE void NAME(add_sums)(NAME(registers) sums, const REAL *from, int64_t stride, const int channels,
                                  const int vectors)
{
    UNROLL
    for (int m = 0; m < channels; m++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        sums[m][v] += *(const NAME(vector) *)(from + m * stride + v * LANES);
}

ALWAYS_INLINE void NAME(sum_tile)(const tconv_cpu_tile *tile, const int channels, const int vectors)
{
    const REAL *weights = tile->weights, *bias = tile->bias;
    const tconv_cpu_run *runs = tile->runs;
    tconv_cpu_run run = *runs;
    const int64_t inner_stride = tile->inner_stride;
    int64_t outer_begin = 0, inner_begin = 0, segment = tile->segments_done;
    int64_t start[TCONV_CPU_MAX_VECTORS];
    UNROLL
    for (int v = 0; v < vectors; v++)
        start[v] = tile->vectors[v];
    for (bool more = true; more; segment++) {
        NAME(registers) sums;
        REAL *out = tile->sums;
        int64_t outer_rest = tile->outer_count - outer_begin, inner_rest = tile->inner_count - inner_begin;
        int64_t outer_end = outer_begin + (outer_rest < tile->outer_segment ? outer_rest : tile->outer_segment);
        int64_t inner_length = inner_rest < tile->inner_segment ? inner_rest : tile->inner_segment;
        UNROLL
        for (int m = 0; m < channels; m++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[m][v] = (NAME(vector)){0};
        for (int64_t o = outer_begin; o < outer_end; o++) {
            const REAL *from = (const REAL *)tile->strip + tile->outer[o] + inner_begin * inner_stride;
            for (int64_t rest = inner_length, count; rest > 0; rest -= count) {
                count = rest < run.count ? rest : run.count;
                for (int64_t i = count; i > 0; i--, from += inner_stride, weights += channels, run.first += run.step) {
                    NAME(vector) values[TCONV_CPU_MAX_VECTORS];
                    UNROLL
                    for (int v = 0; v < vectors; v++)
                        values[v] = *(const NAME(loose_vector) *)(from + start[v]);
                    UNROLL
                    for (int m = 0; m < channels; m++)
                        UNROLL
                    for (int v = 0; v < vectors; v++)
                        sums[m][v] += weights[m] * values[v];
                    __builtin_prefetch(run.first, 0, 2);
                }
                run.count -= count;
                if (run.count == 0)
                    run = *++runs;
            }
        }
        inner_begin += inner_length;
        if (inner_begin >= tile->inner_count) {
            inner_begin = 0;
            outer_begin = outer_end;
        }
        more = outer_begin < tile->outer_count;
        bool last = !more && tile->last, fold = tile->folded != 0 && (last || (segment + 1) % TCONV_CPU_FOLD == 0);
        if (tile->folded != 0 ? segment % TCONV_CPU_FOLD != 0 : segment != 0)
            NAME(add_sums)(sums, out, tile->sums_stride, channels, vectors);
        if (fold && segment >= TCONV_CPU_FOLD)
            NAME(add_sums)(sums, out + tile->folded, tile->sums_stride, channels, vectors);
        if (last)
            UNROLL
        for (int m = 0; m < channels; m++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[m][v] += bias[m];
        if (fold && !last)
            out += tile->folded;
        UNROLL
        for (int m = 0; m < channels; m++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            *(NAME(vector) *)(out + m * tile->sums_stride + v * LANES) = sums[m][v];
    }
}

#define DEFINE_TILE(channels, vectors)                                                                                 \
    static void NAME(tile_##channels##x##vectors)(const tconv_cpu_tile *tile)                                          \
    {                                                                                                                  \
        NAME(sum_tile)(tile, channels, vectors);                                                                       \
    }
TILES(DEFINE_TILE)
#undef DEFINE_TILE
