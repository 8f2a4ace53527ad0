/*
 * 16 bits: src as words of two columns. A word is 2 of K for wgmma, which has 16 of them in 16 bits where it has 8 in TF32,
 * so that a word of 16-bit elements is loaded, and multiplied with a word of weights, as an element of f32 is. Positions
 * are an even number of columns apart, so that taps of two neighbouring columns are a word's; where the kernel begins or
 * ends within one, the other half meets a weight of zero. Where more words would be needed than two columns to each, because
 * the kernel begins at an odd column, words straddle: their halves are taken from two of memory.
 */
#include "../../core/checked.h"
#include "plan.h"

namespace tconv::cells
{

namespace
{

int64_t floor_half(int64_t number)
{
    return number >= 0 ? number / 2 : -((1 - number) / 2);
}

/* The column of src, from a position's first, that tap t of a phase reads. */
int64_t column_of(const tconv_phase_table *table, const tconv_phase *phase, int64_t t)
{
    return table->stride * (phase->first_shift - t * table->shift_step) + phase->residue;
}

/* Whether the kernel's columns read columns of src one after another; from where on, and which there are. */
bool find_columns(const tconv_phase_table *table, int64_t *from, int64_t *first, int64_t *end)
{
    int64_t columns = 0;
    *from = *first = *end = 0;
    for (int64_t i = 0; i < table->count; i++)
        for (int64_t t = 0; t < table->phases[i].taps; t++) {
            const tconv_phase *phase = &table->phases[i];
            const int64_t kernel = phase->first_kernel + t * table->kernel_step;
            const int64_t begins = column_of(table, phase, t) - kernel;
            if (columns > 0 && begins != *from)
                return false;
            *from = begins;
            *first = columns > 0 ? tconv_min(*first, kernel) : kernel;
            *end = columns > 0 ? tconv_max(*end, kernel + 1) : kernel + 1;
            columns++;
        }
    return columns > 0;
}

} // namespace

const char *describe_words(const tconv_layer *layer, word_layer *words)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *src = &problem->src;
    int64_t from, first, end;
    if (src->w != 1 || (src->n | src->c | src->h | problem->w.in | layer->columns.stride) % 2 != 0)
        return "needs f32, or words of two columns";
    if (!find_columns(&layer->columns, &from, &first, &end))
        return "needs f32, or a dilation of 1";
    const int64_t first_word = floor_half(from + first), least = (end - first + 1) / 2;
    const int64_t count = floor_half(from + end - 1) + 1 - first_word;
    if (count > MAX_SHIFTS)
        return "has too many taps";
    words->straddle = count > least;
    words->word_column = (int)(words->straddle ? first : 2 * first_word - from);
    words->first_column = (int)first;
    words->end_column = (int)end;
    words->layer = *layer;
    words->layer.target.math = TCONV_MATH_TF32;
    tconv_problem *to = &words->layer.problem;
    to->dtype = TCONV_F32;
    to->element_size = sizeof(float);
    to->src = {src->n / 2, src->c / 2, src->h / 2, 1};
    to->src_extent /= 2;
    to->w.in /= 2;
    to->w.kernel = words->straddle ? least : count;
    tconv_phase_table *columns = &words->layer.columns;
    const int64_t outputs = columns->phases[0].outputs;
    *columns = {};
    columns->stride = layer->columns.stride / 2;
    columns->kernel_step = columns->max_taps = 1;
    columns->count = to->w.kernel;
    columns->phases = words->columns;
    for (int64_t i = 0; i < columns->count; i++)
        words->columns[i] = {first_word + i, outputs, 1, i, 0};
    return NULL;
}

} // namespace tconv::cells
