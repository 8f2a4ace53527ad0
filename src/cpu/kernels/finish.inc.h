/*
 * Makes outputs of rows of sums (finish.h); text that rows.inc.h includes for each dtype, with its macros.
 */

/* Rounds and stores a row: all that is done where a finish is plain. */
ALWAYS_INLINE void NAME(store_row)(ELEMENT *to, const REAL *from, int64_t count)
{
    if (count < LANES && sizeof(ELEMENT) == sizeof(REAL)) {
        copy_short(to, from, (size_t)count * sizeof(REAL), LANES * sizeof(REAL));
        return;
    }
    if (count < LANES) {
        ELEMENT converted[LANES];
        REAL padded[LANES] = {0};
        copy_short(padded, from, (size_t)count * sizeof(REAL), sizeof padded);
        CONVERT_OUT(converted, padded);
        copy_short(to, converted, (size_t)count * sizeof(ELEMENT), sizeof converted);
        return;
    }
    for (int64_t i = 0; i < count - LANES; i += LANES)
        CONVERT_OUT(to + i, from + i);
    CONVERT_OUT(to + count - LANES, from + count - LANES);
}

/* Returns the bias of `count` lanes, at most LANES, of which the first is of channel `channel`; zeros after them. */
ALWAYS_INLINE SUMS(vector) NAME(bias_lanes)(const tconv_cpu_finish *finish, int64_t channel, int64_t count)
{
    const REAL *bias = finish->bias;
    REAL lanes[LANES] __attribute__((aligned(LANES * sizeof(REAL)))) = {0};
    if (finish->row_channels == 1 || channel + LANES > finish->row_channels) {
        for (int64_t i = 0; i < count; i++) {
            lanes[i] = bias[channel];
            if (finish->row_channels > 1)
                channel = channel + 1 < finish->row_channels ? channel + 1 : 0;
        }
        return *(const SUMS(vector) *)lanes;
    }
    return *(const SUMS(loose_vector) *)(bias + channel);
}

/* Makes LANES outputs. What else an output is made of comes here, before it is rounded. */
ALWAYS_INLINE void NAME(finish_lanes)(ELEMENT *to, SUMS(vector) sums, const SUMS(vector) * bias, const int steps)
{
    if (steps & TCONV_CPU_ADD_BIAS)
        sums += *bias;
    if (steps & TCONV_CPU_ADD_HELD) {
        REAL held[LANES];
        CONVERT_IN(held, to);
        sums = *(const SUMS(loose_vector) *)held + sums;
    }
    const SUMS(vector) output[] = {sums};
    CONVERT_OUT(to, (const REAL *)&output[0]);
}

/* Makes outputs of a row whose first element is of channel `channel` of those that are stored. */
ALWAYS_INLINE void NAME(finish_by_steps)(ELEMENT *to, const REAL *from, int64_t count, int64_t channel,
                                         const tconv_cpu_finish *finish, const int steps)
{
    const bool adds_bias = (steps & TCONV_CPU_ADD_BIAS) != 0;
    SUMS(vector) bias = {0}, rest = {0};
    if (adds_bias)
        bias = NAME(bias_lanes)(finish, channel, count < LANES ? count : LANES);
    for (; count >= LANES; count -= LANES, to += LANES, from += LANES) {
        NAME(finish_lanes)(to, *(const SUMS(loose_vector) *)from, &bias, steps);
        if (!adds_bias || finish->row_channels == 1)
            continue;
        channel += LANES;
        if (channel >= finish->row_channels)
            channel %= finish->row_channels;
        bias = NAME(bias_lanes)(finish, channel, count - LANES < LANES ? count - LANES : LANES);
    }
    if (count == 0)
        return;
    ELEMENT outputs[LANES] = {0}; /* lanes beyond the row are zeros: nothing else may be computed with */
    copy_short(&rest, from, (size_t)count * sizeof(REAL), sizeof rest);
    if (steps & TCONV_CPU_ADD_HELD)
        copy_short(outputs, to, (size_t)count * sizeof(ELEMENT), sizeof outputs);
    NAME(finish_lanes)(outputs, rest, &bias, steps);
    copy_short(to, outputs, (size_t)count * sizeof(ELEMENT), sizeof outputs);
}

/* Makes outputs of a row like finish_by_steps, with steps that are known at run time alone. */
static NOT_INLINED void NAME(finish_by_any)(ELEMENT *to, const REAL *from, int64_t count, int64_t channel,
                                            const tconv_cpu_finish *finish)
{
    NAME(finish_by_steps)(to, from, count, channel, finish, finish->steps);
}

#include "posts.inc.h"

/* Makes outputs of a row. The function is not inlined, because so many functions call it; layers that accumulate have
 * a loop of their own, because short rows took 7 % longer in one loop with the bias. */
static NOT_INLINED void NAME(finish_sums)(ELEMENT *to, const REAL *from, int64_t count, int64_t channel,
                                          const tconv_cpu_finish *finish)
{
    if (finish->steps == TCONV_CPU_ADD_HELD)
        NAME(finish_by_steps)(to, from, count, channel, finish, TCONV_CPU_ADD_HELD);
    else if (finish->steps & TCONV_CPU_APPLY_POSTS)
        NAME(finish_with_posts)(to, from, count, channel, finish, to, 1);
    else
        NAME(finish_by_any)(to, from, count, channel, finish);
}

/* Makes outputs of a row; `plain` is whether its finish is. */
ALWAYS_INLINE void NAME(finish_row)(ELEMENT *to, const REAL *from, int64_t count, int64_t channel,
                                    const tconv_cpu_finish *finish, const bool plain)
{
    if (plain)
        NAME(store_row)(to, from, count);
    else
        NAME(finish_sums)(to, from, count, channel, finish);
}
