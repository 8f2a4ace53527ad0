/*
 * The kernels of cpu_outer beside the microkernels of the pixels algorithm; text that is included once for each type of
 * sums with REAL, NAME(name) and LANES as pixels_microkernel.inc.h has them.
 */

/* Adds rows of numbers to sums in double. Sums of double keep what rounding loses in low (tconv_cpu_reference_add). */
static void NAME(accumulate)(double *high, double *low, int64_t pitch, const void *numbers, int64_t rows, int64_t count)
{
    const REAL *from = numbers;
    for (int64_t r = 0; r < rows; r++, high += pitch, low += pitch, from += count) {
        if (sizeof(REAL) != sizeof(double)) {
            for (int64_t i = 0; i < count; i += LANES)
                UNROLL
            for (int l = 0; l < LANES; l++)
                high[i + l] += (double)from[i + l];
            continue;
        }
        for (int64_t i = 0; i < count; i++) {
            const double value = (double)from[i], sum = high[i] + value, added = sum - high[i];
            low[i] += (high[i] - (sum - added)) + (value - added);
            high[i] = sum;
        }
    }
}

/* Writes numbers as sums that begin with them, likewise. */
static void NAME(begin)(double *high, double *low, int64_t pitch, const void *numbers, int64_t rows, int64_t count)
{
    const REAL *from = numbers;
    for (int64_t r = 0; r < rows; r++, high += pitch, low += pitch, from += count) {
        for (int64_t i = 0; i < count; i++)
            high[i] = (double)from[i];
        for (int64_t i = 0; sizeof(REAL) == sizeof(double) && i < count; i++)
            low[i] = 0;
    }
}

/* Rounds a sum to Real; to odd where it is to be rounded once more: the last bit says that something was lost, so that
 * rounding a number with two bits less is as if the sum were rounded once (Boldo and Melquiond, "When double rounding is
 * odd", 2005). */
ALWAYS_INLINE REAL NAME(round_sum)(double sum, const bool to_odd)
{
    if (!to_odd || sizeof(REAL) == sizeof(double))
        return (REAL)sum;
    const float nearest = (float)sum;
    const double back = (double)nearest;
    const uint32_t bits = tconv_bits_of_float(nearest) - (uint32_t)(fabs(back) > fabs(sum));
    return (REAL)tconv_float_of_bits(bits | (uint32_t)(back != sum));
}

/* Rounds LANES sums, or half of them, and zeros. */
ALWAYS_INLINE NAME(vector) NAME(round_lanes)(const double *sums, const bool half, const bool to_odd)
{
    REAL rounded[LANES] __attribute__((aligned(LANES * sizeof(REAL)))) = {0};
    for (int l = 0; l < (half ? LANES / 2 : LANES); l++)
        rounded[l] = NAME(round_sum)(sums[l], to_odd);
    return *(const NAME(vector) *)rounded;
}

/* Rounds LANES rows of sums from r0 on and as many columns from c0 on, or as many as there are, and transposes them. */
ALWAYS_INLINE void NAME(transpose_sums)(const tconv_cpu_round *round, int64_t r0, int64_t c0, NAME(vector) block[LANES],
                                        const bool narrow, const bool to_odd)
{
    for (int64_t r = 0; r < LANES; r++) {
        if (r0 + r >= round->rows) {
            block[r] = (NAME(vector)){0};
            continue;
        }
        const int64_t at = round->row[r0 + r] * round->pitch + c0;
        if (narrow)
            block[r] = *(const NAME(vector) *)((const REAL *)round->sums + at);
        else
            block[r] = NAME(round_lanes)((const double *)round->sums + at, round->columns - c0 <= LANES / 2, to_odd);
    }
    NAME(transpose)(block);
}

/* Whether all numbers are finite; count is a multiple of LANES. */
static bool NAME(are_finite)(const void *numbers, int64_t count)
{
    const REAL *from = numbers;
    NAME(vector) rest = {0};
    bool finite = true;
    for (int64_t i = 0; i < count; i += LANES)
        rest += *(const NAME(vector) *)(from + i) * 0; /* NaN where one is not */
    for (int i = 0; i < LANES; i++)
        finite &= rest[i] == 0;
    return finite;
}
