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

/* Rounds LANES sums, or half of them, and zeros. */
ALWAYS_INLINE NAME(vector) NAME(round_lanes)(const double *sums, const bool half)
{
    REAL rounded[LANES] __attribute__((aligned(LANES * sizeof(REAL)))) = {0};
    for (int l = 0; l < (half ? LANES / 2 : LANES); l++)
        rounded[l] = (REAL)sums[l];
    return *(const NAME(vector) *)rounded;
}

/* Rounds sums of some rows and columns, and stores them transposed. */
ALWAYS_INLINE void NAME(round_blocks)(const tconv_cpu_round *round, const bool narrow)
{
    NAME(vector) block[LANES];
    for (int64_t c0 = 0; c0 < round->columns; c0 += LANES)
        for (int64_t r0 = 0; r0 < round->rows; r0 += LANES) {
            const int64_t rows = round->rows - r0 < LANES ? round->rows - r0 : LANES;
            const int64_t columns = round->columns - c0 < LANES ? round->columns - c0 : LANES;
            REAL *to = (REAL *)round->to + c0 * round->to_pitch + r0;
            for (int64_t r = 0; r < rows; r++) {
                const int64_t at = round->row[r0 + r] * round->pitch + c0;
                if (narrow)
                    block[r] = *(const NAME(vector) *)((const REAL *)round->sums + at);
                else
                    block[r] = NAME(round_lanes)((const double *)round->sums + at, columns <= LANES / 2);
            }
            for (int64_t r = rows; r < LANES; r++)
                block[r] = (NAME(vector)){0};
            NAME(transpose)(block);
            for (int64_t c = 0; c < columns; c++)
                NAME(copy_lanes)(to + c * round->to_pitch, (const REAL *)&block[c], rows);
        }
}

static void NAME(round_columns)(const tconv_cpu_round *round)
{
    if (round->narrow)
        NAME(round_blocks)(round, true);
    else
        NAME(round_blocks)(round, false);
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
