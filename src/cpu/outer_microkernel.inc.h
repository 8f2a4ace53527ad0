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

ALWAYS_INLINE void NAME(pick_every)(REAL *to, const REAL *from, const int64_t step, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i * step];
}

/* Copies every step-th number. Constant steps let the compiler permute registers. */
static void NAME(pick)(void *to, const void *from, int64_t step, int64_t count)
{
    switch (step) {
#if HAVE_SHUFFLE
    case 2: NAME(pick_second)(to, from, count); break;
#endif
    case 3: NAME(pick_every)(to, from, 3, count); break;
    case 4: NAME(pick_every)(to, from, 4, count); break;
    case 8: NAME(pick_every)(to, from, 8, count); break;
    default: NAME(pick_every)(to, from, step, count);
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
