/*
 * Packs weights (kernels.h: tconv_cpu_pack); text that is included once for each dtype after rows.inc.h, with the same macros.
 *
 * Neighbours in memory are channels of either side, or taps. Where they are the channels that lie side by side in what is packed,
 * rows are copied; else blocks of at most LANES of these channels by LANES neighbours are transposed.
 */

/* Loads LANES neighbours. */
ALWAYS_INLINE SUMS(vector) NAME(load_whole)(const ELEMENT *from)
{
    REAL lanes[LANES] __attribute__((aligned(LANES * sizeof(REAL))));
    CONVERT_IN(lanes, from);
    return *(const SUMS(vector) *)lanes;
}

/* Loads fewer neighbours, and zeros. */
ALWAYS_INLINE SUMS(vector) NAME(load_some)(const ELEMENT *from, int64_t count)
{
#if VECTOR_BYTES == 64
    return NAME(load_lanes)(SUMS(lanes)(0, count), from);
#else
    REAL lanes[LANES] __attribute__((aligned(LANES * sizeof(REAL)))) = {0};
    NAME(load_row)(lanes, from, count);
    return *(const SUMS(vector) *)lanes;
#endif
}

/* Loads a row of a block; only the columns are read. */
ALWAYS_INLINE SUMS(vector) NAME(load_packed)(const ELEMENT *from, const pack_block *block)
{
    ELEMENT elements[LANES] = {0};
    if (block->runs == 1) {
        __builtin_prefetch(from + block->ahead, 0, 2);
        return block->columns == LANES ? NAME(load_whole)(from) : NAME(load_some)(from, block->columns);
    }
    for (int64_t run = 0; run < block->runs; run++) {
        const ELEMENT *const piece = from + run * block->step;
        ELEMENT *const to = elements + run * block->length;
        __builtin_prefetch(piece + block->ahead, 0, 2);
        if (LANES > 4 && block->length == 4) /* kernels of 2 x 2 */
            memcpy(to, piece, (LANES > 4 ? 4 : 1) * sizeof(ELEMENT));
        else if (LANES > 8 && block->length == 8)
            memcpy(to, piece, (LANES > 8 ? 8 : 1) * sizeof(ELEMENT));
        else
            for (int64_t i = 0; i < block->length; i++)
                to[i] = piece[i];
    }
    return NAME(load_whole)(elements);
}

/* Stores the first lanes of a row of what is packed. */
ALWAYS_INLINE void NAME(store_packed)(REAL *to, SUMS(vector) row, int64_t lanes)
{
    if (lanes >= LANES) {
        *(SUMS(loose_vector) *)to = row;
        return;
    }
#if VECTOR_BYTES == 64
    SUMS(store_lanes)(to, SUMS(lanes)(0, lanes), row);
#else
    SUMS(copy_lanes)(to, (const REAL *)&row, lanes);
#endif
}

/* Packs a block, and what lies beside it up to the width; returns 0 in all lanes where it is finite, else NaN in some. */
ALWAYS_INLINE SUMS(vector) NAME(pack_block)(const tconv_cpu_pack *pack, const pack_block *block)
{
    SUMS(vector) rows[LANES], check = {0};
    for (int64_t m0 = 0; m0 < pack->width; m0 += LANES) {
        const int64_t count = pack->count - m0, width = pack->width - m0;
        for (int64_t m = 0; m < LANES; m++)
            rows[m] = m < count ? NAME(load_packed)((const ELEMENT *)pack->weights + pack->places[m0 + m] + block->from,
                                                    block)
                                : (SUMS(vector)){0};
        SUMS(transpose)(rows);
        for (int64_t j = 0; j < block->columns; j++) {
            REAL *const to = (REAL *)pack->packed + block->to[j] + m0;
            if (block->to[j] < 0)
                continue;
            check += rows[j] - rows[j]; /* Inf - Inf and NaN - NaN are NaN */
            NAME(store_packed)(to, rows[j], width);
        }
    }
    return check;
}

/* Channels are neighbours in memory. */
ALWAYS_INLINE SUMS(vector) NAME(pack_channels)(const tconv_cpu_pack *pack)
{
    SUMS(vector) check = {0};
    for (int64_t t = 0; t < pack->tap_count; t++)
        for (int64_t c = 0; c < pack->channels; c += LANES) {
            pack_block block = {.from = pack->taps[t].from + c, .runs = 1, .ahead = AHEAD_BLOCKS * LANES};
            block.columns = pack->channels - c < LANES ? pack->channels - c : LANES;
            for (int64_t j = 0; j < block.columns; j++)
                block.to[j] = pack->taps[t].to + (c + j) * pack->taps[t].pitch;
            check += NAME(pack_block)(pack, &block);
        }
    return check;
}

/* Taps are neighbours in memory: `run` elements of each filter from the first tap on, which tap_of lists. */
ALWAYS_INLINE SUMS(vector)
    NAME(pack_filters)(const tconv_cpu_pack *pack, int64_t first, int64_t run, const int8_t *tap_of)
{
    SUMS(vector) check = {0};
    for (int64_t c = 0, at = 0; c < pack->channels;) {
        pack_block block = {.from = first + c * pack->step + at, .runs = 1, .length = run, .step = pack->step};
        const int64_t rest = pack->step == run ? (pack->channels - c) * run - at : run - at;
        block.columns = rest < LANES ? rest : LANES;
        if (pack->step != run && run <= LANES / 2) {
            block.runs = pack->channels - c < LANES / run ? pack->channels - c : LANES / run;
            block.columns = block.runs * run;
        }
        block.ahead = pack->step == run || run >= AHEAD_BLOCKS * LANES ? AHEAD_BLOCKS * LANES : block.runs * pack->step;
        bool live = false;
        for (int64_t j = 0; j < block.columns; j++) {
            const int8_t tap = tap_of[at];
            live |= tap >= 0;
            block.to[j] = tap < 0 ? -1 : pack->taps[tap].to + c * pack->taps[tap].pitch;
            if (++at == run) {
                at = 0;
                c++;
            }
        }
        if (live)
            check += NAME(pack_block)(pack, &block);
    }
    return check;
}

/* The channels that lie side by side in what is packed do so in memory. */
ALWAYS_INLINE SUMS(vector) NAME(pack_rows)(const tconv_cpu_pack *pack)
{
    SUMS(vector) check = {0};
    for (int64_t t = 0; t < pack->tap_count; t++)
        for (int64_t c = 0; c < pack->channels; c++) {
            const ELEMENT *const from = (const ELEMENT *)pack->weights + pack->taps[t].from + c * pack->step;
            REAL *const to = (REAL *)pack->packed + pack->taps[t].to + c * pack->taps[t].pitch;
            int64_t m = 0;
            for (; m + LANES <= pack->count; m += LANES) {
                __builtin_prefetch(from + AHEAD_BLOCKS * pack->step + m, 0, 2);
                const SUMS(vector) some = NAME(load_whole)(from + m);
                NAME(store_packed)(to + m, some, LANES);
                check += some - some;
            }
            if (m < pack->width) {
                const SUMS(vector) some =
                    m < pack->count ? NAME(load_some)(from + m, pack->count - m) : (SUMS(vector)){0};
                NAME(store_packed)(to + m, some, pack->width - m);
                check += some - some;
            }
            for (m += LANES; m < pack->width; m++)
                to[m] = 0;
        }
    return check;
}

/* Any places of channels and taps, one by one. */
ALWAYS_INLINE SUMS(vector) NAME(pack_each)(const tconv_cpu_pack *pack)
{
    SUMS(vector) check = {0};
    for (int64_t t = 0; t < pack->tap_count; t++)
        for (int64_t c = 0; c < pack->channels; c++) {
            const ELEMENT *const from = (const ELEMENT *)pack->weights + pack->taps[t].from + c * pack->step;
            REAL *const to = (REAL *)pack->packed + pack->taps[t].to + c * pack->taps[t].pitch;
            for (int64_t m = 0; m < pack->count; m++) {
                NAME(load_row)(to + m, from + pack->places[m], 1);
                check[0] += to[m] - to[m];
            }
            for (int64_t m = pack->count; m < pack->width; m++)
                to[m] = 0;
        }
    return check;
}

static bool NAME(pack)(const tconv_cpu_pack *pack)
{
    int8_t tap_of[PACK_RUN];
    int64_t first, run;
    SUMS(vector) check;
    bool dense = true, finite = true;
    if (pack->tap_count == 0)
        return true;
    for (int64_t m = 0; m < pack->count; m++)
        dense &= pack->places[m] == m;
    if (dense)
        check = NAME(pack_rows)(pack);
    else if (pack->step == 1)
        check = NAME(pack_channels)(pack);
    else if ((run = list_run(pack, &first, tap_of)) > 1)
        check = NAME(pack_filters)(pack, first, run, tap_of);
    else
        check = NAME(pack_each)(pack);
    for (int i = 0; i < LANES; i++)
        finite &= check[i] == 0;
    return finite;
}
