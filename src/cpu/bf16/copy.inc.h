/* How bf16/kernels.inc.h takes bf16 as it is, by vectors of twice as many numbers as of f32. */

/* Numbers of a vector. */
enum { HALVES = 2 * LANES };

/* The range of numbers as lane_ranges has it, in the upper halves of their bits as f32. */
struct half_ranges {
    whole_halves least, least_complement;
};

ALWAYS_INLINE void extend_half_range(const struct half_ranges *ranges, tconv_cpu_bf16_range *range)
{
    for (int i = 0; i < HALVES; i++) {
        const uint32_t least = ranges->least[i], most = (uint16_t)~ranges->least_complement[i];
        if (least < UINT16_MAX && (least + 1) << 16 < range->least)
            range->least = (least + 1) << 16;
        range->most = most << 16 > range->most ? most << 16 : range->most;
    }
}

/* Copies the first count numbers of a row; every NaN becomes the same, which is not the mark. */
ALWAYS_INLINE void copy_row(const uint16_t *from, int64_t count, uint16_t *to, struct half_ranges *ranges)
{
    const whole_halves bits = load_halves(from, count), magnitude = bits & 0x7fff;
    const whole_halves nan = (whole_halves)(magnitude > 0x7f80);
    ranges->least = least_half(magnitude - 1, ranges->least);
    ranges->least_complement = least_half(~magnitude, ranges->least_complement);
    store_halves((bits & ~nan) | (nan & 0x7fc0), count, to);
}

ALWAYS_INLINE void copy_run(const uint16_t *from, int64_t count, uint16_t *to, struct half_ranges *ranges)
{
    int64_t i = 0;
    for (; i + HALVES <= count; i += HALVES)
        copy_row(from + i, HALVES, to + i, ranges);
    if (i < count)
        copy_row(from + i, count - i, to + i, ranges);
}

/* Copies up to a fragment of rows, which lie pair by pair. */
ALWAYS_INLINE void copy_square(const tconv_cpu_bf16_copy *copy, int64_t first, struct half_ranges *ranges)
{
    float rows[SIDE][SIDE];
    const int64_t left = copy->rows - first < SIDE ? copy->rows - first : SIDE;
    transpose(rows[0], SIDE, (const float *)copy->from + first, copy->step, copy->count, left);
    for (int64_t r = 0; r < left; r++)
        copy_run((const uint16_t *)(const void *)rows[r], 2 * copy->count, copy->to + (first + r) * copy->to_row,
                 ranges);
}

static void copy(const tconv_cpu_bf16_copy *copy)
{
    struct half_ranges ranges = {(whole_halves){0} - 1, (whole_halves){0} - 1};
    for (int64_t r = 0; !copy->pairs && r < copy->rows; r++) {
        const uint16_t *from = (const uint16_t *)copy->from + r * copy->row;
        prefetch_row(from, AHEAD * copy->row, copy->count, sizeof *from);
        copy_run(from, copy->count, copy->to + r * copy->to_row, &ranges);
    }
    for (int64_t r = 0; copy->pairs && r < copy->rows; r += SIDE)
        copy_square(copy, r, &ranges);
    extend_half_range(&ranges, copy->range);
}
