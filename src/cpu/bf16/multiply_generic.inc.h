/* Products of fragments in C, with AMX's arithmetic, but that sums may be subnormal. */

/* A quarter of a row of sums: a vector on every machine, also where the compiler is not to optimise. */
typedef float quarter __attribute__((vector_size(SIDE)));

enum { QUARTERS = SIDE * sizeof(float) / sizeof(quarter) };

/* A factor as AMX takes it: subnormals are zeros. */
ALWAYS_INLINE float factor_of(uint16_t bf16)
{
    return (bf16 & 0x7f80) != 0 ? tconv_float_from_bf16(bf16) : 0;
}

/* Sanitizers leave out what would take minutes of their tests: it reads packed weights, which are whole fragments, and what
 * the caller made of the strip. */
#define NOT_SANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

/* Converts weights, channel by channel. */
NOT_SANITIZED static void convert_weights(quarter (*to)[QUARTERS], const uint16_t *weights, int64_t depth)
{
    for (int64_t k = 0; k < depth; k++)
        for (int c = 0; c < SIDE; c++)
            to[k][c / 4][c % 4] = factor_of(weights[k / 2 * DEPTH + 2 * c + k % 2]);
}

/* Sums the products of even and of odd channels apart, one after another, and adds both. */
NOT_SANITIZED static void multiply_row(float *sums, const float *strip, quarter (*weights)[QUARTERS], int64_t depth)
{
    quarter even[QUARTERS] = {{0}}, odd[QUARTERS] = {{0}};
    for (int64_t k = 0; k < depth; k += 2) {
        if (strip[k] != 0) /* zeros are many, and their products change no sum */
            for (int q = 0; q < QUARTERS; q++)
                even[q] += strip[k] * weights[k][q];
        if (strip[k + 1] != 0)
            for (int q = 0; q < QUARTERS; q++)
                odd[q] += strip[k + 1] * weights[k + 1][q];
    }
    for (int q = 0; q < QUARTERS; q++)
        even[q] += odd[q];
    for (int c = 0; c < SIDE; c++)
        sums[c] += even[c / 4][c % 4];
}

/* TDPBF16PS, as the manual has it. */
static void multiply_factors(float (*sums)[SIDE], const uint16_t *strip, const uint16_t *weights, int64_t depth)
{
    quarter factors[DEPTH][QUARTERS];
    convert_weights(factors, weights, depth);
    for (int p = 0; p < SIDE; p++) {
        float row[DEPTH];
        for (int64_t k = 0; k < depth; k++)
            row[k] = factor_of(strip[p * depth + k]);
        multiply_row(sums[p], row, factors, depth);
    }
}

/* Does what multiply_factors does for two blocks of output channels. */
static void multiply_blocks(float (*first)[SIDE], float (*second)[SIDE], const uint16_t *strip, const uint16_t *weights,
                            const uint16_t *more, int64_t depth)
{
    multiply_factors(first, strip, weights, depth);
    multiply_factors(second, strip, more, depth);
}
