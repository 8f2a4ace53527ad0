/* How bf16/kernels.inc.h splits numbers into parts of bf16, by vectors. */

/* The range of numbers, lane by lane: the least magnitude less one (of zero, that is the greatest number), and the least
 * complement of a magnitude. */
struct lane_ranges {
    words least, least_complement;
};

ALWAYS_INLINE void extend_range(const struct lane_ranges *ranges, tconv_cpu_bf16_range *range)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t least = ranges->least[i], most = ~ranges->least_complement[i];
        range->least = least < range->least - 1 ? least + 1 : range->least;
        range->most = most > range->most ? most : range->most;
    }
}

/* Returns bf16 nearest to each number. */
ALWAYS_INLINE words rounded_part(words bits)
{
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Returns what a part leaves of numbers: exact. */
ALWAYS_INLINE words rest_of(words bits, words part)
{
    return (words)((numbers)bits - (numbers)(part << 16));
}

/* Stores the parts of numbers, some of which are not split. */
static void store_whole_ones(words bits, int64_t count, uint16_t *to, int64_t part_pitch, const int parts)
{
    const words magnitude = bits & 0x7fffffff, whole = whole_ones(magnitude);
    const words same = choose((words)(magnitude > 0x7f800000), (words){0} + 0x7fc00000, bits), split = bits & ~whole;
    const words first = rounded_part(split), rest = rest_of(split, first), second = rounded_part(rest);
    store_part(choose(whole, same >> 16, first), count, to);
    if (parts > 1)
        store_part(choose(whole, same & 0xffff, parts > 2 ? second : rest >> 16), count, to + part_pitch);
    if (parts > 2)
        store_part(choose(whole, (words){0} + TCONV_CPU_BF16_MARK, rest_of(rest, second) >> 16), count,
                   to + 2 * part_pitch);
}

/* Splits the first count numbers of a row. */
ALWAYS_INLINE void split_row(const float *from, int64_t count, uint16_t *to, int64_t part_pitch, const int parts,
                             struct lane_ranges *ranges)
{
    const words bits = load_numbers(from, count), magnitude = bits & 0x7fffffff;
    ranges->least = least_of(magnitude - 1, ranges->least);
    ranges->least_complement = least_of(~magnitude, ranges->least_complement);
    if (has_whole_ones(magnitude)) {
        store_whole_ones(bits, count, to, part_pitch, parts);
        return;
    }
    const words first = rounded_part(bits);
    store_part(first, count, to);
    if (parts == 1)
        return;
    const words rest = rest_of(bits, first), second = parts > 2 ? rounded_part(rest) : rest >> 16;
    store_part(second, count, to + part_pitch); /* of the last part nothing is left */
    if (parts > 2)
        store_part(rest_of(rest, second) >> 16, count, to + 2 * part_pitch);
}

/* Splits numbers that follow one another. */
ALWAYS_INLINE void split_run(const float *from, int64_t count, uint16_t *to, int64_t part_pitch, const int parts,
                             struct lane_ranges *ranges)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        split_row(from + i, LANES, to + i, part_pitch, parts, ranges);
    if (i < count)
        split_row(from + i, count - i, to + i, part_pitch, parts, ranges);
}

/* Splits up to a fragment of rows, which lie channel by channel. */
ALWAYS_INLINE void split_square(const tconv_cpu_bf16_split *split, int64_t first, const int parts,
                                struct lane_ranges *ranges)
{
    float rows[SIDE][SIDE];
    const int64_t left = split->rows - first < SIDE ? split->rows - first : SIDE;
    uint16_t *to = split->to + first * split->to_row;
    transpose(rows[0], SIDE, split->from + first, split->step, split->count, left);
    for (int64_t r = 0; r < left; r++)
        split_run(rows[r], split->count, to + r * split->to_row, split->part_pitch, parts, ranges);
}

/* Rows that are prefetched ahead. From memory a row of 32 numbers took 16 to 22 ns without and 12 to 15 ns with it, with
 * 8 rows 14 to 17 (docs/log/2026-11-27-cpu-amx-gradients.md). */
enum { AHEAD = 16 };

/* Prefetches a row of so many numbers of so many bytes that lies `apart` numbers after `from`, in the tensor or not. */
ALWAYS_INLINE void prefetch_row(const void *from, int64_t apart, int64_t count, const size_t size)
{
    enum { LINE = 64 };
    const uintptr_t first = (uintptr_t)from + (uintptr_t)apart * size;
    for (uintptr_t byte = 0; byte < (uintptr_t)count * size; byte += LINE)
        __builtin_prefetch((const void *)(first + byte));
}

ALWAYS_INLINE void split_rows(const tconv_cpu_bf16_split *split, const int parts)
{
    struct lane_ranges ranges = {(words){0} - 1, (words){0} - 1};
    for (int64_t r = 0; split->step == 1 && r < split->rows; r++) {
        const float *from = split->from + r * split->row;
        prefetch_row(from, AHEAD * split->row, split->count, sizeof *from);
        split_run(from, split->count, split->to + r * split->to_row, split->part_pitch, parts, &ranges);
    }
    for (int64_t r = 0; split->step != 1 && r < split->rows; r += SIDE)
        split_square(split, r, parts, &ranges);
    extend_range(&ranges, split->range);
}

static void split(const tconv_cpu_bf16_split *split)
{
    switch (split->parts) {
    case 1: split_rows(split, 1); return;
    case 2: split_rows(split, 2); return;
    default: split_rows(split, 3);
    }
}
