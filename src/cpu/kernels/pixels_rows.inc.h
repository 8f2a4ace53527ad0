/*
 * Loads and stores rows for the pixels algorithm; text that is included once for each dtype with REAL, ELEMENT,
 * NAME(name), LANES and CONVERT_OUT as rows.inc.h has them, whose load_row and finish_row do the work, and
 * STREAM_ELEMENTS(to, from), which writes LANES elements by a streaming store.
 */

static void NAME(load_pixel_rows)(const tconv_cpu_pixel_load *load)
{
    for (int64_t r = 0; r < load->rows; r++)
        NAME(load_row)
    ((REAL *)load->strip + r * load->strip_pitch, (const ELEMENT *)load->src + r * load->src_pitch, load->count);
}

/* Writes a row, its whole cache lines by streaming stores: parts of a line would each go to memory by themselves. */
ALWAYS_INLINE void NAME(stream_row)(ELEMENT *to, const REAL *from, int64_t count)
{
    const int64_t line = TCONV_ALIGNMENT / (int64_t)sizeof(ELEMENT);
    int64_t done = (int64_t)((TCONV_ALIGNMENT - (uintptr_t)to % TCONV_ALIGNMENT) % TCONV_ALIGNMENT / sizeof(ELEMENT));
    if (done > count)
        done = count;
    if (done > 0)
        NAME(store_row)(to, from, done);
    for (; done + line <= count; done += line)
        for (int64_t i = done; i < done + line; i += LANES) {
            ELEMENT converted[LANES];
            CONVERT_OUT(converted, from + i);
            STREAM_ELEMENTS(to + i, converted);
        }
    if (done < count)
        NAME(store_row)(to + done, from + done, count - done);
}

static void NAME(store_pixel_rows)(const tconv_cpu_pixel_store *store)
{
    for (int64_t r = 0; r < store->rows; r++) {
        ELEMENT *to = (ELEMENT *)store->dst + store->to[r];
        const REAL *from = (const REAL *)store->sums + r * store->sums_pitch;
        if (store->stream)
            NAME(stream_row)(to, from, store->count);
        else
            NAME(finish_row)(to, from, store->count, 0, &store->finish, store->finish.steps == 0);
    }
}
