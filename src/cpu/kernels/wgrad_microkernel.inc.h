/*
 * The kernels of cpu_wgrad beside the microkernels of the pixels algorithm; text that is included once for each type of
 * sums with REAL, NAME(name) and LANES as kernels/pixels_microkernel.inc.h has them.
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
