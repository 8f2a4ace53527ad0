/*
 * Stores what cpu_wgrad summed in float; text that is included once for each dtype with ELEMENT, NAME(name), LANES and
 * CONVERT_OUT as rows.inc.h has them, whose store_row does the work, and SUMS(name), a name with the suffix of float.
 */

/* Rounds a sum to float; to odd where it is rounded once more, to 16 bits: the last bit then says that something was lost, so
 * that it is as if the sum were rounded once (Boldo and Melquiond, "When double rounding is odd", 2005). */
ALWAYS_INLINE float NAME(round_sum)(double sum)
{
    if (sizeof(ELEMENT) == sizeof(float))
        return (float)sum;
    const float nearest = (float)sum;
    const double back = (double)nearest;
    const uint32_t bits = tconv_bits_of_float(nearest) - (uint32_t)(fabs(back) > fabs(sum));
    return tconv_float_of_bits(bits | (uint32_t)(back != sum));
}

/* Rounds LANES sums, or half of them, and zeros. */
ALWAYS_INLINE SUMS(vector) NAME(round_lanes)(const double *sums, const bool half)
{
    float rounded[LANES] __attribute__((aligned(LANES * sizeof(float)))) = {0};
    for (int l = 0; l < (half ? LANES / 2 : LANES); l++)
        rounded[l] = NAME(round_sum)(sums[l]);
    return *(const SUMS(vector) *)rounded;
}

/* Rounds and stores LANES rows of sums from r0 on and as many columns from c0 on, or as many as there are. */
ALWAYS_INLINE void NAME(round_block)(const tconv_cpu_round *round, int64_t r0, int64_t c0, const bool narrow)
{
    const int64_t rows = round->rows - r0 < LANES ? round->rows - r0 : LANES;
    const int64_t columns = round->columns - c0 < LANES ? round->columns - c0 : LANES;
    ELEMENT *to = (ELEMENT *)round->to + c0 * round->to_pitch + r0;
    SUMS(vector) block[LANES];
    for (int64_t r = 0; r < LANES; r++) {
        if (r >= rows) {
            block[r] = (SUMS(vector)){0};
            continue;
        }
        const int64_t at = round->row[r0 + r] * round->pitch + c0;
        if (narrow)
            block[r] = *(const SUMS(vector) *)((const float *)round->sums + at);
        else
            block[r] = NAME(round_lanes)((const double *)round->sums + at, columns <= LANES / 2);
    }
    SUMS(transpose)(block);
    for (int64_t c = 0; c < columns; c++)
        NAME(store_row)(to + c * round->to_pitch, (const float *)&block[c], rows);
}

ALWAYS_INLINE void NAME(round_blocks)(const tconv_cpu_round *round, const bool narrow)
{
    for (int64_t c0 = 0; c0 < round->columns; c0 += LANES)
        for (int64_t r0 = 0; r0 < round->rows; r0 += LANES)
            NAME(round_block)(round, r0, c0, narrow);
}

static void NAME(round_columns)(const tconv_cpu_round *round)
{
    if (round->narrow)
        NAME(round_blocks)(round, true);
    else
        NAME(round_blocks)(round, false);
}
