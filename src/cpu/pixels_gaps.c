/* Writes the bias to outputs of an NHWC tensor that no phase has: rows and columns between those of the phases. */
#include <string.h>

#include "../core/checked.h"
#include "pixels.h"

/* The bias to pixels [column, end) of an output row. */
static void fill_pixels(const tconv_cpu_gaps *gaps, int64_t image, int64_t row, int64_t column, int64_t end)
{
    const tconv_problem *problem = &gaps->layer->problem;
    const int64_t size = (int64_t)problem->element_size, bytes = gaps->channels * size;
    int64_t count = tconv_max(0, end - column);
    int64_t first = image * problem->dst.n + row * problem->dst.h + column * problem->dst.w + gaps->channel;
    char *dst = (char *)gaps->dst + first * size;
    const char *bias = gaps->bias;
    if (bias == NULL && gaps->channels == problem->dst.w) {
        memset(dst, 0, (size_t)(count * bytes));
        return;
    }
    for (; count > 0; count--, dst += problem->dst.w * size) {
        if (bias != NULL)
            memcpy(dst, bias + gaps->channel * size, (size_t)bytes);
        else
            memset(dst, 0, (size_t)bytes);
    }
}

/* The pixels [begin, end) of a row between those of the column phases. */
static void fill_row(const tconv_cpu_gaps *gaps, int64_t image, int64_t row, int64_t begin, int64_t end)
{
    const tconv_phase_table *columns = &gaps->layer->columns;
    for (int64_t start = begin; start < end; start += columns->stride) {
        int64_t stop = tconv_min(end, start + columns->stride), column = start;
        for (int64_t p = 0; p <= columns->count; p++) {
            int64_t next = p < columns->count ? tconv_min(stop, start + columns->phases[p].residue) : stop;
            fill_pixels(gaps, image, row, column, next);
            column = next + 1;
        }
    }
}

void tconv_cpu_fill_gaps(const tconv_cpu_gaps *gaps)
{
    const tconv_layer *layer = gaps->layer;
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    bool no_columns = columns->count == 0;
    bool gaps_in_rows = columns->bias_only > 0 && !gaps->whole_rows;
    if (rows->bias_only == 0 && !gaps_in_rows && !no_columns)
        return;
    int64_t begin = columns->stride * gaps->column;
    int64_t end = tconv_min(layer->problem.w.out, columns->stride * (gaps->column + gaps->columns));
    for (int64_t image = gaps->image; image < gaps->image + gaps->images; image++) {
        for (int64_t q = gaps->row; q < gaps->row + gaps->rows; q++) {
            int64_t start = rows->stride * q, stop = tconv_min(layer->problem.h.out, start + rows->stride), phase = 0;
            for (int64_t row = start; row < stop; row++) {
                bool summed = !no_columns && phase < rows->count && start + rows->phases[phase].residue == row;
                phase += summed;
                if (!summed)
                    fill_pixels(gaps, image, row, begin, end);
                else if (gaps_in_rows)
                    fill_row(gaps, image, row, begin, end);
            }
        }
    }
}
