/*
 * 16 bits: src seen as words of two columns. wgmma has 16 of K in 16 bits and 8 in TF32, so that a word of 16-bit elements
 * is loaded, and multiplied by a word of weights, as an element of f32 is. Positions are an even number of columns apart,
 * so that the taps of two neighbouring columns are those of a word. Where the kernel begins or ends within a word, the
 * word's other half meets a weight of zero. Where the kernel begins at an odd column, and words as they lie in memory would
 * be more than half of the columns, words straddle: their halves are taken from two words of memory.
 */
#include "../../core/checked.h"
#include "plan.h"

/* Returns whether the kernel's columns read columns of src one after another; finds the column of src that kernel column 0
 * reads, or would read, and the first and the end of the kernel's columns that have taps. */
static bool find_columns(const tconv_phase_table *table, int64_t *origin, int64_t *first, int64_t *end)
{
    int64_t columns = 0;
    *origin = *first = *end = 0;
    for (int64_t i = 0; i < table->count; i++)
        for (int64_t t = 0; t < table->phases[i].taps; t++) {
            const tconv_phase *phase = &table->phases[i];
            const int64_t kernel = phase->first_kernel + t * table->kernel_step;
            const int64_t begins = src_column(table, phase, t) - kernel;
            if (columns > 0 && begins != *origin)
                return false;
            *origin = begins;
            *first = columns > 0 ? tconv_min(*first, kernel) : kernel;
            *end = columns > 0 ? tconv_max(*end, kernel + 1) : kernel + 1;
            columns++;
        }
    return columns > 0;
}

const char *tconv_cells_describe_words(const tconv_layer *layer, word_layer *words)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *src = &problem->src;
    int64_t origin, first, end;
    if (src->w != 1 || (src->n | src->c | src->h | problem->w.in | layer->columns.stride) % 2 != 0)
        return "needs f32, or words of two columns";
    if (!find_columns(&layer->columns, &origin, &first, &end))
        return "needs f32, or a dilation of 1";
    const int64_t first_word = tconv_floor_div(origin + first, 2), least = (end - first + 1) / 2;
    const int64_t count = tconv_floor_div(origin + end - 1, 2) + 1 - first_word;
    if (count > MAX_SHIFTS)
        return "has too many taps";
    words->straddle = count > least;
    words->word_column = (int)(words->straddle ? first : 2 * first_word - origin);
    words->first_column = (int)first;
    words->end_column = (int)end;
    words->layer = *layer;
    words->layer.target.math = TCONV_MATH_TF32;
    tconv_problem *problem_of_words = &words->layer.problem;
    problem_of_words->dtype = TCONV_F32;
    problem_of_words->element_size = sizeof(float);
    problem_of_words->src = (tconv_strides){.n = src->n / 2, .c = src->c / 2, .h = src->h / 2, .w = 1};
    problem_of_words->src_extent /= 2;
    problem_of_words->w.in /= 2;
    problem_of_words->w.kernel = words->straddle ? least : count;
    tconv_phase_table *columns = &words->layer.columns;
    const int64_t outputs = columns->phases[0].outputs;
    *columns = (tconv_phase_table){0};
    columns->stride = layer->columns.stride / 2;
    columns->kernel_step = columns->max_taps = 1;
    columns->count = problem_of_words->w.kernel;
    columns->phases = words->columns;
    for (int64_t i = 0; i < columns->count; i++)
        words->columns[i] = (tconv_phase){first_word + i, outputs, 1, i, 0};
    return NULL;
}
