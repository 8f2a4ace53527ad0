/* The operations of bf16/split.inc.h on a vector, in plain C for any machine. */

ALWAYS_INLINE words least_of(words a, words b)
{
    return choose((words)(a < b), a, b);
}

ALWAYS_INLINE bool has_whole_ones(words magnitude)
{
    const words whole = whole_ones(magnitude);
    uint32_t any = 0;
    for (int i = 0; i < LANES; i++)
        any |= whole[i];
    return any != 0;
}

/* Loads the first count numbers of a row, zeros for the rest; none beyond is read. */
ALWAYS_INLINE words load_numbers(const float *from, int64_t count)
{
    words bits = {0};
    memcpy(&bits, from, (size_t)count * sizeof *from);
    return bits;
}

ALWAYS_INLINE void store_part(words part, int64_t count, uint16_t *to)
{
    const halves taken = __builtin_convertvector(part, halves);
    memcpy(to, &taken, (size_t)count * sizeof *to);
}

ALWAYS_INLINE whole_halves least_half(whole_halves a, whole_halves b)
{
    const whole_halves first = (whole_halves)(a < b);
    return (first & a) | (~first & b);
}

ALWAYS_INLINE whole_halves load_halves(const uint16_t *from, int64_t count)
{
    whole_halves bits = {0};
    memcpy(&bits, from, (size_t)count * sizeof *from);
    return bits;
}

ALWAYS_INLINE void store_halves(whole_halves bits, int64_t count, uint16_t *to)
{
    memcpy(to, &bits, (size_t)count * sizeof *to);
}

/* Transposes a square of numbers, of rows that lie `pitch` apart: of the first given rows, the first count numbers; zeros
 * stand for the rest. */
ALWAYS_INLINE void transpose(float *to, int64_t to_pitch, const float *from, int64_t pitch, int64_t given,
                             int64_t count)
{
    for (int r = 0; r < SIDE; r++)
        for (int i = 0; i < SIDE; i++)
            to[i * to_pitch + r] = r < given && i < count ? from[r * pitch + i] : 0;
}
