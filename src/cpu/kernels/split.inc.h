/*
 * Splits rows into runs of every stride-th element; text that is included once for each dtype by rows.inc.h, with the same
 * macros, and LOAD_LANES(load, lanes, from), which converts elements as load_lanes_<dtype> does. Where loads can be masked, a row is read by whole vectors whatever lies outside of it; elsewhere by whole
 * vectors inside of it, and one by one at its ends.
 */
#if VECTOR_BYTES == 64
/* Loads LANES columns of all runs: vectors of the row, of which each run picks its lanes by pairs. */
ALWAYS_INLINE void NAME(split_columns)(const tconv_cpu_split_load *load, REAL *strip, const ELEMENT *row,
                                       int64_t column, const int64_t stride)
{
    SUMS(vector) row_of[MAX_SPLIT] = {{0}};
    const int64_t first = column * stride;
    const bool inside = first >= 0 && first + stride * LANES <= load->length;
    UNROLL_IF_CONSTANT
    for (int64_t i = 0; i < stride; i++)
        row_of[i] = LOAD_LANES(load, SUMS(lanes)(inside ? 0 : first + i * LANES, inside ? LANES : load->length),
                               row + first + i * LANES);
    for (const tconv_cpu_split_run *run = load->runs; run < load->runs + load->run_count; run++) {
        const int64_t at = column - run->first;
        if (at <= -LANES || at >= run->count)
            continue;
        const __m512i index = SUMS(every_lane)(stride, run->residue);
        SUMS(vector) picked = SUMS(pick_lanes)(row_of[0], index, row_of[1]);
        UNROLL_IF_CONSTANT
        for (int64_t i = 2; i < stride; i += 2)
            picked = SUMS(pick_more)(picked, i * LANES, row_of[i], index, row_of[i + 1 < stride ? i + 1 : i]);
        if (at >= 0 && at + LANES <= run->count)
            *(SUMS(loose_vector) *)(strip + run->strip + at) = picked;
        else
            SUMS(store_lanes)(strip + run->strip + at, SUMS(lanes)(at, run->count), picked);
    }
}

/* Splits columns [begin, end) of a row, and prefetches those of another. */
ALWAYS_INLINE void NAME(split_row)(const tconv_cpu_split_load *load, REAL *strip, const ELEMENT *row,
                                   const ELEMENT *ahead, int64_t begin, int64_t end, const int64_t stride)
{
    for (int64_t column = begin; column < end; column += LANES) {
        for (int64_t i = 0; i < LANES * stride; i += LINE / (int64_t)sizeof(ELEMENT))
            __builtin_prefetch(ahead + column * stride + i);
        NAME(split_columns)(load, strip, row, column, stride);
    }
}

ALWAYS_INLINE void NAME(split_rows)(const tconv_cpu_split_load *load, const int64_t stride)
{
    if (load->run_count == 0)
        return;
    int64_t begin = load->runs->first, end = begin;
    for (const tconv_cpu_split_run *run = load->runs; run < load->runs + load->run_count; run++) {
        begin = run->first < begin ? run->first : begin;
        end = run->first + run->count > end ? run->first + run->count : end;
    }
    const int64_t row_bytes = (end - begin) * stride * (int64_t)sizeof(ELEMENT);
    const int64_t rows = 1 + AHEAD_BYTES / (row_bytes + 1), ahead = rows < load->row_count ? rows : load->row_count;
    for (int64_t c = 0; c < load->channels; c++) {
        const ELEMENT *src = (const ELEMENT *)load->src + c * load->src_channel;
        const ELEMENT *next = c + 1 < load->channels ? src + load->src_channel : src;
        REAL *strip = (REAL *)load->strip + c * load->strip_channel;
        for (const tconv_cpu_padded_row *row = load->rows; row < load->rows + load->row_count; row++) {
            if (row->count > 0 && stride <= MAX_SPLIT) {
                const int64_t rest = load->rows + load->row_count - row;
                const ELEMENT *prefetched = rest > ahead ? src + row[ahead].src : next + load->rows[ahead - rest].src;
                NAME(split_row)(load, strip + row->strip, src + row->src, prefetched, begin, end, stride);
                continue;
            }
            for (const tconv_cpu_split_run *run = load->runs; run < load->runs + load->run_count; run++) {
                if (row->count > 0)
                    NAME(load_apart)(strip + row->strip + run->strip, src + row->src, load, run, 0, run->count);
                else
                    memset(strip + row->strip + run->strip, 0, (size_t)run->count * sizeof(REAL));
            }
        }
    }
}
#else
/* Loads columns [begin, end) of a run where the stride is two, by whole vectors, of which the last overlaps the one
 * before. */
ALWAYS_INLINE void NAME(load_half)(REAL *to, const ELEMENT *row, int64_t begin, int64_t end, const bool odd)
{
    for (int64_t column = begin; column < end; column += LANES) {
        const int64_t at = column < end - LANES ? column : end - LANES;
        SUMS(vector) both[2];
        CONVERT_IN((REAL *)&both[0], row + 2 * at);
        CONVERT_IN((REAL *)&both[1], row + 2 * at + LANES);
        *(SUMS(loose_vector) *)(to + at) = SUMS(every_second)(both[0], both[1], odd);
    }
}

/* Loads LANES columns of all runs: LANES elements of each of them, transposed. */
ALWAYS_INLINE void NAME(split_columns)(const tconv_cpu_split_load *load, REAL *strip, const ELEMENT *row,
                                       int64_t column, const int64_t stride)
{
    SUMS(vector) block[LANES];
    int64_t split = -1; /* the residue of block[0] */
    for (const tconv_cpu_split_run *run = load->runs; run < load->runs + load->run_count; run++) {
        const int64_t first = stride <= LANES ? 0 : run->residue / LANES * LANES;
        if (first != split) {
            UNROLL
            for (int i = 0; i < LANES; i++)
                CONVERT_IN((REAL *)&block[i], row + (column + i) * stride + first);
            SUMS(transpose)(block);
            split = first;
        }
        *(SUMS(loose_vector) *)(strip + run->strip + column - run->first) = block[run->residue - first];
    }
}

/* Loads some runs of a row: columns [begin, end), which are inside of it, by vectors, what is left one by one. */
ALWAYS_INLINE void NAME(split_row)(const tconv_cpu_split_load *load, REAL *strip, const ELEMENT *row, int64_t begin,
                                   int64_t end, const int64_t stride)
{
    if (stride == 2 && begin < end && load->runs->residue == 0)
        NAME(load_half)(strip + load->runs->strip - load->runs->first, row, begin, end, false);
    else if (stride == 2 && begin < end)
        NAME(load_half)(strip + load->runs->strip - load->runs->first, row, begin, end, true);
    for (int64_t column = begin; stride != 2 && column < end; column += LANES)
        NAME(split_columns)(load, strip, row, column < end - LANES ? column : end - LANES, stride);
    for (const tconv_cpu_split_run *run = load->runs; run < load->runs + load->run_count; run++) {
        const int64_t inside = begin < end ? begin - run->first : 0, rest = begin < end ? end - run->first : 0;
        NAME(load_apart)(strip + run->strip, row, load, run, 0, inside);
        NAME(load_apart)(strip + run->strip, row, load, run, rest, run->count);
    }
}

/* Runs share the vectors of a row, but for a stride of two, where none costs more by itself. */
ALWAYS_INLINE void NAME(split_rows)(const tconv_cpu_split_load *load, const int64_t stride)
{
    tconv_cpu_split_load part = *load;
    int64_t begin, end;
    if (stride == 2)
        part.run_count = 1;
    else
        find_columns(&part, stride, LANES, &begin, &end);
    for (int64_t c = 0; c < load->channels; c++) {
        const ELEMENT *src = (const ELEMENT *)load->src + c * load->src_channel;
        REAL *strip = (REAL *)load->strip + c * load->strip_channel;
        for (const tconv_cpu_padded_row *row = load->rows; row < load->rows + load->row_count; row++) {
            for (part.runs = load->runs; part.runs < load->runs + load->run_count; part.runs += part.run_count) {
                if (row->count == 0) {
                    for (int64_t i = 0; i < part.run_count; i++)
                        memset(strip + row->strip + part.runs[i].strip, 0, (size_t)part.runs[i].count * sizeof(REAL));
                    continue;
                }
                if (stride == 2)
                    find_columns(&part, stride, LANES, &begin, &end);
                NAME(split_row)(&part, strip + row->strip, src + row->src, begin, end, stride);
            }
        }
    }
}

#endif

/* With a constant stride the compiler keeps vectors in registers, and leaves out what it does not need of a transposed
 * block. */
static void NAME(load_split)(const tconv_cpu_split_load *load)
{
    switch (load->stride) {
    case 2: NAME(split_rows)(load, 2); break;
    case 3: NAME(split_rows)(load, 3); break;
    case 4: NAME(split_rows)(load, 4); break;
#if VECTOR_BYTES == 64
    case 5: NAME(split_rows)(load, 5); break;
    case 6: NAME(split_rows)(load, 6); break;
    case 8: NAME(split_rows)(load, 8); break;
#endif
    default: NAME(split_rows)(load, load->stride);
    }
}
