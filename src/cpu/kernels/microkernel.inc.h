/*
 * The microkernel; text that is included once for each type of sums with
 *
 *     REAL, NAME(name)    the type, and a name with the type's suffix
 *     LANES               the lanes of a vector register
 *     MICROTILES(define)  define(channels, vectors) for each micro-tile that the registers can hold
 *     REPEAT(weight), ADD_PRODUCT(sum, weight, values)
 *                         a weight in all lanes; adds a product, of a weight or of one in all lanes; if not defined, those
 *                         of REAL
 *
 * A micro-tile is channels x vectors of positions. Its sums stay in registers; for each term, every vector of the strip
 * is loaded once and multiplied by each channel's weight, which is broadcast from memory: an outer product, as in a
 * matrix product's microkernel. The loops over the micro-tile have constant bounds and are unrolled. Numeric order: see
 * tconv_cpu_microtile; every lane does the same, whatever the micro-tile.
 */

/* Products are added by an instruction that is named: with AVX2 always, with AVX-512 where a sanitizer's tests of addresses keep the
 * compiler from contracting some of them. */
#if VECTOR_BYTES == 32 || (VECTOR_BYTES == 64 && defined(__SANITIZE_ADDRESS__))
#define HAVE_ADD_PRODUCT 1
#else
#define HAVE_ADD_PRODUCT 0
#endif
#if !defined(ADD_PRODUCT)
#define REPEAT(weight) ((weight) - (NAME(vector)){0})
#if HAVE_ADD_PRODUCT
#define ADD_PRODUCT(sum, weight, values) NAME(add_product)(&(sum), REPEAT(weight), values)
#else
#define ADD_PRODUCT(sum, weight, values) ((sum) += (weight) * (values))
#endif
#endif
#if defined(__aarch64__)
enum { NAME(HAVE_LANE_PRODUCTS) = 1 };
#define ADD_LANE_PRODUCT(sum, weights, lane, values)                                                                   \
    NAME(add_lane_product)(&(sum), *(const NAME(loose_vector) *)(weights), lane, values)
#else
enum { NAME(HAVE_LANE_PRODUCTS) = 0 };
#define ADD_LANE_PRODUCT(sum, weights, lane, values) (void)0
#endif

typedef REAL NAME(vector) __attribute__((vector_size(LANES * sizeof(REAL))));
/* A vector at any address. */
typedef REAL NAME(loose_vector) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/*
 * Multiply-adds as instructions of the form that leaves the sum in its register, where that gains. Compilers take other forms as
 * well, which move the sum to another register. With AVX2 sums leave too few of 16 registers for that, so that gcc and clang
 * spilled; with NEON gcc moved a third of the sums at each term, and loaded each weight by itself. With AVX-512 nothing is gained.
 */
#if HAVE_ADD_PRODUCT
ALWAYS_INLINE void NAME(add_product)(NAME(vector) * sum, NAME(vector) weight, NAME(vector) values)
{
    if (sizeof(REAL) == sizeof(float))
        __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sum) : "v"(weight), "v"(values));
    else
        __asm__("vfmadd231pd %2, %1, %0" : "+v"(*sum) : "v"(weight), "v"(values));
}
#elif defined(__aarch64__)
#define ADD_LANE(instruction) __asm__(instruction : "+w"(*sum) : "w"(values), "w"(weights))
/* The weight is a lane of a vector of weights. */
ALWAYS_INLINE void NAME(add_lane_product)(NAME(vector) * sum, NAME(vector) weights, const int lane, NAME(vector) values)
{
    switch (lane + (sizeof(REAL) == sizeof(double) ? 4 : 0)) {
    case 0: ADD_LANE("fmla %0.4s, %1.4s, %2.s[0]"); break;
    case 1: ADD_LANE("fmla %0.4s, %1.4s, %2.s[1]"); break;
    case 2: ADD_LANE("fmla %0.4s, %1.4s, %2.s[2]"); break;
    case 3: ADD_LANE("fmla %0.4s, %1.4s, %2.s[3]"); break;
    case 4: ADD_LANE("fmla %0.2d, %1.2d, %2.d[0]"); break;
    default: ADD_LANE("fmla %0.2d, %1.2d, %2.d[1]");
    }
}
#undef ADD_LANE
#endif

typedef NAME(vector) NAME(registers)[TCONV_CPU_MAX_CHANNELS][TCONV_CPU_MAX_VECTORS];

ALWAYS_INLINE void NAME(store_sums)(REAL *to, NAME(registers) sums, int64_t stride, const int rows, const int vectors)
{
    UNROLL
    for (int m = 0; m < rows; m++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        *(NAME(vector) *)(to + m * stride + v * LANES) = sums[m][v];
}

/* Adds to sums the levels of a cascade (tconv_cpu_microtile) of which `done` sums are done: those that end with them,
 * or all if this sum is the last one. Returns the level at which the sum is kept if it is not. */
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

/* Adds one term. Of its vectors and its weights the fewer are held in registers, so that beside the sums there is room for
 * them and for one of the others. */
ALWAYS_INLINE void NAME(add_term)(NAME(registers) sums, const REAL *const *strip, int64_t offset, const REAL *weights,
                                  const int channels, const int vectors)
{
    NAME(vector) held[TCONV_CPU_MAX_VECTORS];
    if (channels < vectors) {
        UNROLL
        for (int m = 0; m < channels; m++)
            held[m] = REPEAT(weights[m]);
        UNROLL
        for (int v = 0; v < vectors; v++) {
            NAME(vector) values = *(const NAME(loose_vector) *)(strip[v] + offset);
            if (channels > 1)
                IN_REGISTER(values);
            UNROLL
            for (int m = 0; m < channels; m++)
                ADD_PRODUCT(sums[m][v], held[m], values);
        }
        return;
    }
    UNROLL
    for (int v = 0; v < vectors; v++)
        held[v] = *(const NAME(loose_vector) *)(strip[v] + offset);
    UNROLL
    for (int m = 0; m < channels; m++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        if (NAME(HAVE_LANE_PRODUCTS) && m < channels - channels % LANES)
            ADD_LANE_PRODUCT(sums[m][v], weights + m - m % LANES, m % LANES, held[v]);
        else
            ADD_PRODUCT(sums[m][v], weights[m], held[v]);
}

ALWAYS_INLINE void NAME(sum_microtile)(const tconv_cpu_microtile *microtile, const int channels, const int vectors)
{
    const REAL *weights = microtile->weights, *bias = microtile->bias, *strip[TCONV_CPU_MAX_VECTORS];
    const tconv_cpu_prefetch_piece *piece = microtile->pieces;
    const int64_t period = microtile->period, width = vectors * LANES;
    int64_t left = microtile->terms, begin = 0;
    NAME(registers) sums;
    UNROLL
    for (int v = 0; v < vectors; v++)
        strip[v] = (const REAL *)microtile->strip + microtile->vectors[v];
    for (int64_t segment = 0;; segment++, piece += piece->more) {
        const char *const base = piece->first;
        const int32_t *next_line = microtile->line_offsets;
        int64_t length = microtile->segment < left ? microtile->segment : left;
        length = length < period - begin ? length : period - begin;
        const int32_t *offset = microtile->offsets + begin, *const end = offset + length;
        UNROLL
        for (int m = 0; m < channels; m++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[m][v] = (NAME(vector)){0};
        for (; offset + TCONV_CPU_UNROLL <= end; next_line++) {
            UNROLL
            for (int t = 0; t < TCONV_CPU_UNROLL; t++, offset++, weights += channels)
                NAME(add_term)(sums, strip, *offset, weights, channels, vectors);
            __builtin_prefetch(base + *next_line, 0, 2);
        }
        for (; offset < end; offset++, weights += channels)
            NAME(add_term)(sums, strip, *offset, weights, channels, vectors);
        left -= length;
        begin += length;
        REAL *level =
            NAME(add_levels)(sums, microtile->levels, channels * width, width, segment, left == 0, channels, vectors);
        if (left == 0)
            break;
        NAME(store_sums)(level, sums, width, channels, vectors);
        if (begin == period) {
            begin = 0;
            UNROLL
            for (int v = 0; v < vectors; v++)
                strip[v] += microtile->period_stride;
        }
    }
    REAL *out = NAME(add_levels)(sums, microtile->sums, microtile->sums_level, microtile->sums_stride,
                                 microtile->calls_done, microtile->last, channels, vectors);
    if (microtile->last) {
        out = microtile->sums;
        UNROLL
        for (int m = 0; m < channels; m++)
            UNROLL
        for (int v = 0; v < vectors; v++)
            sums[m][v] += bias[m];
    }
    NAME(store_sums)(out, sums, microtile->sums_stride, channels, vectors);
}

#define DEFINE_MICROKERNEL(channels, vectors)                                                                          \
    static void NAME(microkernel_##channels##x##vectors)(const tconv_cpu_microtile *microtile)                         \
    {                                                                                                                  \
        NAME(sum_microtile)(microtile, channels, vectors);                                                             \
    }
MICROTILES(DEFINE_MICROKERNEL)
#undef DEFINE_MICROKERNEL
