/*
 * Post-ops on vectors; text that is included once for each type of sums, after microkernel.inc.h, with the same macros
 * and
 *
 *     MULTIPLY_ADD(a, b, c)  a * b + c of three numbers of REAL, rounded once
 *     HAVE_ACTIVATIONS       if it is defined, activate.inc.h stands before this text; else activations go lane by lane
 *                            through the C library, in double
 *
 * Every lane does the same, so that an output's bits do not depend on how rows are cut.
 */

typedef __typeof__((NAME(vector)){0} < (NAME(vector)){0}) NAME(mask);

/* The operand of a post-op for a row: vector i is at at + i * step. step 0: all outputs have the same number. */
typedef struct NAME(operand) {
    const REAL *at;
    int64_t step;
} NAME(operand);

/* Rows of vectors that go through a post-op together; the operand of vector i is the same in all rows. Row r is at
 * values + to[r], or at values + r * pitch where to is NULL. */
typedef struct NAME(post_values) {
    REAL *values;
    const int64_t *to;
    int64_t pitch, rows, vectors;
} NAME(post_values);

ALWAYS_INLINE NAME(vector) NAME(repeat)(double number)
{
    NAME(vector) lanes = {0};
    for (int i = 0; i < LANES; i++)
        lanes[i] = (REAL)number;
    return lanes;
}

/* Returns the lanes of one vector where the mask is set, and those of the other elsewhere. */
ALWAYS_INLINE NAME(vector) NAME(choose)(NAME(mask) mask, NAME(vector) where_set, NAME(vector) elsewhere)
{
    return (NAME(vector))((mask & (NAME(mask))where_set) | (~mask & (NAME(mask))elsewhere));
}

ALWAYS_INLINE NAME(vector) NAME(multiply_add)(NAME(vector) a, NAME(vector) b, NAME(vector) c)
{
    NAME(vector) lanes = {0};
    for (int i = 0; i < LANES; i++)
        lanes[i] = MULTIPLY_ADD(a[i], b[i], c[i]);
    return lanes;
}

ALWAYS_INLINE NAME(vector) NAME(operand_lanes)(const NAME(operand) * operand, int64_t i)
{
    return *(const NAME(loose_vector) *)(operand->at + i * operand->step);
}

/* NaN is neither less nor more than a bound, and stays. */
ALWAYS_INLINE NAME(vector) NAME(clamp)(NAME(vector) y, NAME(vector) least, NAME(vector) most)
{
    return NAME(choose)(y < least, least, NAME(choose)(y > most, most, y));
}

ALWAYS_INLINE NAME(vector) NAME(leaky_relu)(NAME(vector) y, NAME(vector) slope)
{
    return NAME(choose)(y > (NAME(vector)){0}, y, slope * y);
}

/* Of no product: 0 times what is infinite is none. */
ALWAYS_INLINE NAME(vector) NAME(relu)(NAME(vector) y)
{
    const NAME(vector) zero = {0};
    return NAME(choose)(y < zero, zero, y);
}

#if !defined(HAVE_ACTIVATIONS)
/* Applies a kind that has no vector function, lane by lane. */
ALWAYS_INLINE NAME(vector) NAME(post_by_lane)(const tconv_post_op *post, NAME(vector) y, const NAME(vector) values[2])
{
    NAME(vector) lanes = {0};
    for (int i = 0; i < LANES; i++)
        lanes[i] = (REAL)tconv_post_in_double(post, (double)y[i],
                                              (tconv_post_values){(double)values[0][i], (double)values[1][i]});
    return lanes;
}
#endif

/* Replaces each vector by an expression, in which y is the vector and i the vector's index in its row. */
#define EACH_VECTOR(value)                                                                                             \
    do {                                                                                                               \
        for (int64_t r = 0; r < of->rows; r++) {                                                                       \
            NAME(loose_vector) *const row =                                                                            \
                (NAME(loose_vector) *)(of->values + (of->to != NULL ? of->to[r] : r * of->pitch));                     \
            for (int64_t i = 0; i < of->vectors; i++) {                                                                \
                const NAME(vector) y = row[i];                                                                         \
                row[i] = (value);                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

/* values * scale + shift: MUL_CHANNEL and the ADD_CHANNEL behind it. */
static NOT_INLINED void NAME(scale_and_shift)(const NAME(post_values) * of, const NAME(operand) * scale,
                                              const NAME(operand) * shift)
{
    EACH_VECTOR(NAME(multiply_add)(y, NAME(operand_lanes)(scale, i), NAME(operand_lanes)(shift, i)));
}

/* Applies a post-op to some vectors. operands: as many as the kind has. */
static NOT_INLINED void NAME(apply_post)(const NAME(post_values) * of, const tconv_post_op *post,
                                         const NAME(operand) operands[2])
{
    const NAME(vector) alpha = NAME(repeat)(post->alpha), beta = NAME(repeat)(post->beta);
    switch (post->kind) {
    case TCONV_POST_ADD_CHANNEL: EACH_VECTOR(y + NAME(operand_lanes)(&operands[0], i)); break;
    case TCONV_POST_MUL_CHANNEL: EACH_VECTOR(y * NAME(operand_lanes)(&operands[0], i)); break;
    case TCONV_POST_ADD_TENSOR: EACH_VECTOR(NAME(multiply_add)(alpha, NAME(operand_lanes)(&operands[0], i), y)); break;
    case TCONV_POST_LINEAR: EACH_VECTOR(NAME(multiply_add)(alpha, y, beta)); break;
    case TCONV_POST_CLAMP: EACH_VECTOR(NAME(clamp)(y, alpha, beta)); break;
    case TCONV_POST_LEAKY_RELU:
        if (post->alpha == 0)
            EACH_VECTOR(NAME(relu)(y));
        else
            EACH_VECTOR(NAME(leaky_relu)(y, alpha));
        break;
#if defined(HAVE_ACTIVATIONS)
    case TCONV_POST_SIGMOID: EACH_VECTOR(NAME(post_sigmoid)(y)); break;
    case TCONV_POST_TANH: EACH_VECTOR(NAME(post_tanh)(y)); break;
    case TCONV_POST_SILU: EACH_VECTOR(NAME(post_silu)(y)); break;
    case TCONV_POST_GELU: EACH_VECTOR(NAME(post_gelu)(y)); break;
    case TCONV_POST_GELU_TANH: EACH_VECTOR(NAME(post_gelu_tanh)(y)); break;
    case TCONV_POST_MISH: EACH_VECTOR(NAME(post_mish)(y)); break;
    case TCONV_POST_ELU: EACH_VECTOR(NAME(post_elu)(y, alpha)); break;
    case TCONV_POST_SOFTPLUS: EACH_VECTOR(NAME(post_softplus)(y)); break;
    case TCONV_POST_HARDSWISH: EACH_VECTOR(NAME(post_hardswish)(y)); break;
    case TCONV_POST_SNAKE:
        EACH_VECTOR(NAME(post_snake)(y, NAME(operand_lanes)(&operands[0], i), NAME(operand_lanes)(&operands[1], i)));
        break;
#else
    case TCONV_POST_SNAKE:
        EACH_VECTOR(NAME(post_by_lane)(
            post, y,
            (const NAME(vector)[2]){NAME(operand_lanes)(&operands[0], i), NAME(operand_lanes)(&operands[1], i)}));
        break;
    default: EACH_VECTOR(NAME(post_by_lane)(post, y, (const NAME(vector)[2]){{0}, {0}}));
#endif
    }
}
#undef EACH_VECTOR

/* Returns the numbers that sums have of their channels: all the same one, that of `channel`, or neighbours from there
 * on, of which as many are copied as do not fill a vector. */
ALWAYS_INLINE NAME(operand)
    NAME(channel_numbers)(const void *array, int64_t channel, bool pixels, int64_t count, NAME(vector) * copied)
{
    const REAL *numbers = (const REAL *)array + channel;
    if (pixels && count >= LANES)
        return (NAME(operand)){numbers, LANES};
    *copied = NAME(repeat)(pixels ? 0 : (double)*numbers);
    if (pixels)
        memcpy(copied, numbers, (size_t)count * sizeof(REAL));
    return (NAME(operand)){(const REAL *)copied, 0};
}

/* Takes rows through a list without an addend. count: the sums of each row, whole vectors or fewer sums than one has. */
static void NAME(run_list)(const NAME(post_values) * of, int64_t count, const tconv_cpu_posts *posts, int64_t channel,
                           bool pixels)
{
    const tconv_desc *desc = &posts->problem->desc;
    NAME(vector) copied[2];
    for (int p = 0; p < desc->post_count; p++) {
        const tconv_post_op *post = &desc->post[p];
        const REAL *numbers = posts->operands[p];
        const int channel_vectors = tconv_post_channel_vectors(post->kind);
        NAME(operand) operands[2] = {{NULL, 0}, {NULL, 0}};
        if (channel_vectors > 0)
            operands[0] = NAME(channel_numbers)(numbers, channel, pixels, count, &copied[0]);
        if (channel_vectors > 1)
            operands[1] =
                NAME(channel_numbers)(numbers + posts->problem->out_channels, channel, pixels, count, &copied[1]);
        if (!tconv_post_scales_and_shifts(desc, p)) {
            NAME(apply_post)(of, post, operands);
            continue;
        }
        operands[1] = NAME(channel_numbers)(posts->operands[++p], channel, pixels, count, &copied[1]);
        NAME(scale_and_shift)(of, &operands[0], &operands[1]);
    }
}

/* Takes rows of sums through the list where they lie (tconv_cpu_sum_rows). */
static void NAME(post_rows)(const tconv_cpu_sum_rows *rows)
{
    const int64_t rest = rows->count % LANES, whole = rows->count - rest;
    const NAME(post_values) values = {rows->sums, rows->to, rows->pitch, rows->rows, whole / LANES};
    if (whole > 0)
        NAME(run_list)(&values, whole, rows->posts, rows->channel, rows->pixels);
    for (int64_t r = 0; rest > 0 && r < rows->rows; r++) {
        REAL *from = (REAL *)rows->sums + (rows->to != NULL ? rows->to[r] : r * rows->pitch) + whole;
        NAME(vector) last = {0};
        const NAME(post_values) one = {(REAL *)&last, NULL, 0, 1, 1};
        copy_short(&last, from, (size_t)rest * sizeof(REAL), sizeof last);
        NAME(run_list)(&one, rest, rows->posts, rows->channel + (rows->pixels ? whole : 0), rows->pixels);
        copy_short(from, &last, (size_t)rest * sizeof(REAL), sizeof last);
    }
}

#if defined(HAVE_ACTIVATIONS)
/* Puts a row through a post-op that has no operand, or two of as many numbers; what checks of a level call. */
static void NAME(activate)(REAL *row, int64_t count, const tconv_post_op *post, const REAL *first, const REAL *second)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const size_t bytes = (size_t)(count - i < LANES ? count - i : LANES) * sizeof(REAL);
        NAME(vector) value = {0}, numbers[2] = {{0}, {0}};
        memcpy(&value, row + i, bytes);
        memcpy(&numbers[0], first + i, bytes);
        memcpy(&numbers[1], second + i, bytes);
        const NAME(operand) operands[] = {{(const REAL *)&numbers[0], 0}, {(const REAL *)&numbers[1], 0}};
        const NAME(post_values) one = {(REAL *)&value, NULL, 0, 1, 1};
        NAME(apply_post)(&one, post, operands);
        memcpy(row + i, &value, bytes);
    }
}
#endif
