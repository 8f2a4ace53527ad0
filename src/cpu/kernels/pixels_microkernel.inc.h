/*
 * The microkernels of the pixels algorithm; text that is included once for each type of sums with
 *
 *     REAL, NAME(name)          the type, and a name with the type's suffix
 *     LANES                     the lanes of a vector register
 *     PIXEL_MICROTILES(define)  define(vectors, pixels) for each micro-tile that the registers can hold
 *     STREAM(to, values)        writes a vector by a streaming store
 *     WITHOUT_DEPTHWISE         if it is defined, there are no depthwise microkernels
 *     STRIP_REAL, STRIP_AT(strip, at)  where the strip is not of REAL: what a term reads of it, and the address of an element
 *
 * and what microkernel.inc.h was included with, its types among them.
 *
 * A micro-tile is pixels x vectors of output channels. Its sums stay in registers; for each term, the vectors of
 * weights are loaded once and multiplied by each pixel's input, which is broadcast from memory (depthwise: a vector of
 * it). Each pixel keeps its address in a register and all share one index, so that pixels may lie anywhere in the
 * strip. The loops over the micro-tile have constant bounds and are unrolled. Numeric order: see
 * tconv_cpu_pixel_microtile; every lane does the same, whatever the micro-tile.
 */

#if !defined(STRIP_REAL)
#define STRIP_REAL          REAL
#define STRIP_AT(strip, at) ((const REAL *)(strip) + (at))
#endif

_Static_assert((int)TCONV_CPU_MAX_PIXELS <= (int)TCONV_CPU_MAX_CHANNELS &&
                   (int)TCONV_CPU_MAX_PIXEL_VECTORS <= (int)TCONV_CPU_MAX_VECTORS,
               "pixels are the rows of the registers");

/* Adds one term: the inputs at one place of each pixel's. */
ALWAYS_INLINE void NAME(add_pixel_term)(NAME(registers) sums, const STRIP_REAL *const strip[], int64_t at,
                                        const REAL *weights, const bool depthwise, const int vectors, const int pixels)
{
    NAME(vector) loaded[TCONV_CPU_MAX_PIXEL_VECTORS];
    UNROLL
    for (int v = 0; v < vectors; v++)
        loaded[v] = *(const NAME(vector) *)(weights + v * LANES);
    UNROLL
    for (int p = 0; p < pixels; p++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        if (depthwise)
            sums[p][v] += *(const NAME(loose_vector) *)(strip[p] + at + v * LANES) * loaded[v];
        else
            ADD_PRODUCT(sums[p][v], strip[p][at], loaded[v]);
}

/* Adds terms [begin, end) of one tap; depthwise there is one. */
ALWAYS_INLINE void NAME(sum_tap)(NAME(registers) sums, const STRIP_REAL *const strip[], int64_t begin, int64_t end,
                                 const REAL *weights, const bool depthwise, const int vectors, const int pixels)
{
    const int64_t width = vectors * LANES;
    int64_t at = begin;
    for (; !depthwise && at + TCONV_CPU_UNROLL <= end; at += TCONV_CPU_UNROLL, weights += TCONV_CPU_UNROLL * width)
        UNROLL
    for (int t = 0; t < TCONV_CPU_UNROLL; t++)
        NAME(add_pixel_term)(sums, strip, at + t, weights + t * width, depthwise, vectors, pixels);
    for (; at < end; at++, weights += width)
        NAME(add_pixel_term)(sums, strip, at, weights, depthwise, vectors, pixels);
}

#define STORE_LOOSE(address, values) (*(NAME(loose_vector) *)(address) = (values))

/* Writes each pixel's vectors to dst. */
#define STORE_PIXELS(store_vector)                                                                                     \
    UNROLL                                                                                                             \
    for (int p = 0; p < pixels; p++)                                                                                   \
        UNROLL                                                                                                         \
    for (int v = 0; v < vectors; v++)                                                                                  \
    store_vector((REAL *)microtile->dst + microtile->to[p] + v * LANES, sums[p][v])

/* Adds the bias to the last call's sums, and writes them to dst or to sums. */
ALWAYS_INLINE void NAME(finish_pixels)(const tconv_cpu_pixel_microtile *microtile, NAME(registers) sums,
                                       const int vectors, const int pixels)
{
    const REAL *bias = microtile->bias;
    UNROLL
    for (int p = 0; p < pixels; p++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        sums[p][v] += *(const NAME(vector) *)(bias + v * LANES);
    if (microtile->dst == NULL)
        NAME(store_sums)(microtile->sums, sums, vectors * LANES, pixels, vectors);
    else if (microtile->stream)
        STORE_PIXELS(STREAM);
    else
        STORE_PIXELS(STORE_LOOSE);
}

ALWAYS_INLINE void NAME(sum_pixels)(const tconv_cpu_pixel_microtile *microtile, const bool depthwise, const int vectors,
                                    const int pixels)
{
    const STRIP_REAL *strip[TCONV_CPU_MAX_PIXELS];
    const REAL *const all_weights = microtile->weights;
    const int64_t channels = depthwise ? 1 : microtile->channels, width = vectors * LANES;
    int64_t tap = 0, channel = 0;
    NAME(registers) sums;
    UNROLL
    for (int p = 0; p < pixels; p++)
        strip[p] = STRIP_AT(microtile->strip, microtile->at[p]);
    for (int64_t segment = 0;; segment++) {
        UNROLL
        for (int p = 0; p < pixels; p++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[p][v] = (NAME(vector)){0};
        for (int64_t left = microtile->segment; left > 0 && tap < microtile->tap_count;) {
            int64_t rest = channels - channel, length = rest < left ? rest : left;
            int64_t begin = microtile->taps[tap].strip + channel;
            const REAL *weights = all_weights + (microtile->taps[tap].weights * channels + channel) * width;
            NAME(sum_tap)(sums, strip, begin, begin + length, weights, depthwise, vectors, pixels);
            left -= length;
            channel += length;
            if (channel == channels) {
                channel = 0;
                tap++;
            }
        }
        bool last = tap == microtile->tap_count;
        REAL *level = NAME(add_levels)(sums, microtile->levels, pixels * width, width, segment, last, pixels, vectors);
        if (last)
            break;
        NAME(store_sums)(level, sums, width, pixels, vectors);
    }
    bool last = microtile->bias != NULL;
    REAL *out = NAME(add_levels)(sums, microtile->sums, microtile->sums_level, width, microtile->calls_done, last,
                                 pixels, vectors);
    if (last)
        NAME(finish_pixels)(microtile, sums, vectors, pixels);
    else
        NAME(store_sums)(out, sums, width, pixels, vectors);
}

#define DEFINE_PIXEL_MICROKERNEL(vectors, pixels)                                                                      \
    static void NAME(dense_##vectors##x##pixels)(const tconv_cpu_pixel_microtile *microtile)                           \
    {                                                                                                                  \
        NAME(sum_pixels)(microtile, false, vectors, pixels);                                                           \
    }
PIXEL_MICROTILES(DEFINE_PIXEL_MICROKERNEL)
#undef DEFINE_PIXEL_MICROKERNEL

#if !defined(WITHOUT_DEPTHWISE)
#define DEFINE_PIXEL_MICROKERNEL(vectors, pixels)                                                                      \
    static void NAME(depthwise_##vectors##x##pixels)(const tconv_cpu_pixel_microtile *microtile)                       \
    {                                                                                                                  \
        NAME(sum_pixels)(microtile, true, vectors, pixels);                                                            \
    }
PIXEL_MICROTILES(DEFINE_PIXEL_MICROKERNEL)
#undef DEFINE_PIXEL_MICROKERNEL
#endif
#undef STORE_PIXELS
#undef STORE_LOOSE
