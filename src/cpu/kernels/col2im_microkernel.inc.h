/*
 * The kernel of cpu_col2im for few pixels; text that is included once for each type of sums with
 *
 *     REAL, NAME(name)  the type, and a name with the type's suffix
 *     LANES             the lanes of a vector register
 *
 * Rows of weights are read as they lie, some side by side, so that they come from memory as streams; the sums stay in
 * the first-level cache. Two vectors of each row are held in registers for all pixels. Numeric order: see
 * tconv_cpu_sweep; every column does the same, whatever its place.
 */

/* Adds a product as lanes of a vector do, whether or not the compiler would contract it. */
ALWAYS_INLINE REAL NAME(add_one)(REAL sum, REAL weight, REAL value)
{
#if defined(__FMA__) || defined(__aarch64__)
    return sizeof(REAL) == sizeof(float) ? (REAL)__builtin_fmaf((float)weight, (float)value, (float)sum)
                                         : (REAL)__builtin_fma(weight, value, sum);
#else
    return sum + weight * value;
#endif
}

/* Adds rows [row, row + rows), and asks for those that follow. */
ALWAYS_INLINE void NAME(sweep_rows)(const tconv_cpu_sweep *sweep, int64_t row, const int rows)
{
    const int64_t pitch = sweep->weights_pitch, count = sweep->count;
    const int64_t ahead = row + 2 * rows <= sweep->readable ? rows * pitch : 0;
    const REAL *weights = (const REAL *)sweep->weights + row * pitch, *src = (const REAL *)sweep->src + row;
    int64_t column = 0;
    for (; column + 2 * LANES <= count; column += 2 * LANES) {
        NAME(vector) loaded[TCONV_CPU_SWEEP_ROWS][2];
        UNROLL
        for (int r = 0; r < rows; r++) {
            const REAL *from = weights + r * pitch + column;
            loaded[r][0] = *(const NAME(loose_vector) *)from;
            loaded[r][1] = *(const NAME(loose_vector) *)(from + LANES);
            UNROLL
            for (int line = 0; line < 2 * LANES; line += TCONV_ALIGNMENT / (int)sizeof(REAL))
                __builtin_prefetch(from + ahead + line, 0, 2);
        }
        for (int64_t p = 0; p < sweep->pixels; p++) {
            REAL *to = (REAL *)sweep->sums + p * sweep->sums_pitch + column;
            NAME(vector) first = *(NAME(loose_vector) *)to, second = *(NAME(loose_vector) *)(to + LANES);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const REAL value = src[p * sweep->src_pitch + r];
                ADD_PRODUCT(first, value, loaded[r][0]);
                ADD_PRODUCT(second, value, loaded[r][1]);
            }
            *(NAME(loose_vector) *)to = first;
            *(NAME(loose_vector) *)(to + LANES) = second;
        }
    }
    for (; column < count; column++)
        for (int64_t p = 0; p < sweep->pixels; p++) {
            REAL *to = (REAL *)sweep->sums + p * sweep->sums_pitch + column, sum = *to;
            UNROLL
            for (int r = 0; r < rows; r++)
                sum = NAME(add_one)(sum, src[p * sweep->src_pitch + r], weights[r * pitch + column]);
            *to = sum;
        }
}

static void NAME(sweep)(const tconv_cpu_sweep *sweep)
{
    int64_t row = 0;
    for (; row + TCONV_CPU_SWEEP_ROWS <= sweep->rows; row += TCONV_CPU_SWEEP_ROWS)
        NAME(sweep_rows)(sweep, row, TCONV_CPU_SWEEP_ROWS);
    for (; row < sweep->rows; row++)
        NAME(sweep_rows)(sweep, row, 1);
}
