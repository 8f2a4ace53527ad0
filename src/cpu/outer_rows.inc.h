/*
 * Stores what cpu_outer summed in float; text that is included once for each dtype with REAL, ELEMENT, NAME(name), LANES and
 * CONVERT_OUT as rows.inc.h has them, whose store_row does the work, and SUMS(name), a name with the suffix of the type of
 * the sums.
 */

ALWAYS_INLINE void NAME(round_blocks)(const tconv_cpu_round *round, const bool narrow)
{
    for (int64_t c0 = 0; c0 < round->columns; c0 += LANES)
        for (int64_t r0 = 0; r0 < round->rows; r0 += LANES) {
            SUMS(vector) block[LANES];
            const int64_t rows = round->rows - r0 < LANES ? round->rows - r0 : LANES;
            const int64_t columns = round->columns - c0 < LANES ? round->columns - c0 : LANES;
            SUMS(transpose_sums)(round, r0, c0, block, narrow, sizeof(ELEMENT) < sizeof(REAL));
            ELEMENT *to = (ELEMENT *)round->to + c0 * round->to_pitch + r0;
            for (int64_t c = 0; c < columns; c++)
                NAME(store_row)(to + c * round->to_pitch, (const REAL *)&block[c], rows);
        }
}

static void NAME(round_columns)(const tconv_cpu_round *round)
{
    if (round->narrow)
        NAME(round_blocks)(round, true);
    else
        NAME(round_blocks)(round, false);
}
