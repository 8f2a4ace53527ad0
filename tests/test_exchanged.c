/*
 * The gradient of src as a layer whose src is the gradient of dst (src/core/views.h), computed from the phases of its src as
 * implementations do, against the formula of the gradient, for random layers.
 */
#include <criterion/criterion.h>

#include "../src/core/views.h"
#include "support/seen_layer.h"

enum { LAYERS = 10000, LEAST_VIEWED = 700, MOST_PHASES = 64 };

/* Returns an element of the gradient of src by the formula; what dst of the tensors holds is the gradient of dst. */
static double gradient_at(const struct seen_layer *seen, const struct tensors *tensors, int64_t image, int64_t in,
                          int64_t y, int64_t x)
{
    const tconv_problem *problem = seen->problem;
    double sum = 0;
    for (int64_t kernel_row = 0; kernel_row < problem->h.kernel; kernel_row++)
        for (int64_t kernel_column = 0; kernel_column < problem->w.kernel; kernel_column++) {
            const int64_t row = y * problem->h.stride + kernel_row * problem->h.dilation - problem->h.pad;
            const int64_t column = x * problem->w.stride + kernel_column * problem->w.dilation - problem->w.pad;
            if (row < 0 || row >= problem->h.out || column < 0 || column >= problem->w.out)
                continue;
            for (int64_t out = 0; out < problem->group_out; out++) {
                const int64_t channel = in / problem->group_in * problem->group_out + out;
                sum += tensors->dst[image * problem->dst.n + channel * problem->dst.c + row * problem->dst.h +
                                    column * problem->dst.w] *
                       weight_at(seen, tensors, in, out, kernel_row, kernel_column);
            }
        }
    return sum;
}

/* Finds the place of src that a tap of a phase reads for an output, as tconv_layer.phases_of_src has it; false where there is
 * none. */
static bool find_place(const tconv_phase_table *table, const tconv_phase *phase, int64_t tap, int64_t output,
                       int64_t places, int64_t *place)
{
    *place = table->stride * (output + phase->first_shift - tap * table->shift_step) + phase->residue;
    return *place >= 0 && *place < places;
}

/* Returns an output of a layer with phases of src, by one row phase and one column phase. */
static double sum_phase(const tconv_layer *layer, const struct tensors *tensors, const tconv_phase *row_phase,
                        const tconv_phase *column_phase, const int64_t output[4])
{
    const tconv_problem *problem = &layer->problem;
    const tconv_weight_strides *weight = &problem->weight;
    const int64_t group = output[1] / problem->group_out, out = output[1] % problem->group_out;
    double sum = 0;
    int64_t row, column;
    for (int64_t s = 0; s < row_phase->taps; s++)
        for (int64_t t = 0; t < column_phase->taps; t++) {
            if (!find_place(&layer->rows, row_phase, s, output[2], problem->h.in, &row) ||
                !find_place(&layer->columns, column_phase, t, output[3], problem->w.in, &column))
                continue;
            const int64_t kernel_row = row_phase->first_kernel + s * layer->rows.kernel_step;
            const int64_t kernel_column = column_phase->first_kernel + t * layer->columns.kernel_step;
            for (int64_t in = 0; in < problem->group_in; in++)
                sum += tensors->dst[output[0] * problem->src.n + (group * problem->group_in + in) * problem->src.c +
                                    row * problem->src.h + column * problem->src.w] *
                       tensors->weights[group * layer->group_weights + in * weight->in + out * weight->out +
                                        kernel_row * weight->h + kernel_column * weight->w];
        }
    return sum;
}

/* Returns whether a kernel element reaches an output from some input. */
static bool reaches(const tconv_axis *axis, int64_t kernel)
{
    for (int64_t input = 0; input < axis->in; input++) {
        const int64_t output = input * axis->stride + kernel * axis->dilation - axis->pad;
        if (output >= 0 && output < axis->out)
            return true;
    }
    return false;
}

/* Makes the phases of src of an axis. Expects that no kernel element is left out that reaches an output; and that those at
 * either end of the others reach one, if any does, where no input is skipped. */
static tconv_phase_table make_phases(const tconv_axis *axis, tconv_phase *phases, int number)
{
    int64_t first;
    bool any = false;
    const tconv_axis reaching = tconv_reaching_kernel(axis, &first);
    const int64_t end = first + reaching.kernel;
    cr_assert(first >= 0 && reaching.kernel >= 1 && end <= axis->kernel);
    for (int64_t k = 0; k < axis->kernel; k++) {
        const bool needed = reaches(axis, k);
        cr_expect((k >= first && k < end) || !needed, "layer %d lacks element %lld", number, (long long)k);
        any |= needed;
    }
    if ((axis->stride == 1 || axis->in == 1) && any)
        cr_expect(reaches(axis, first) && reaches(axis, end - 1), "layer %d has an element in vain", number);
    const tconv_phase_table table = tconv_phases_of_src(&reaching, first, phases);
    cr_assert(table.count <= MOST_PHASES && table.min_shift == 0 && table.bias_only == 0);
    int64_t max_shift = 0, max_taps = 0, taps = 0;
    for (int64_t i = 0; i < table.count; i++) {
        cr_expect_eq(phases[i].outputs, axis->in);
        const int64_t shift = phases[i].first_shift - (phases[i].taps - 1) * table.shift_step;
        max_shift = shift > max_shift ? shift : max_shift;
        max_taps = phases[i].taps > max_taps ? phases[i].taps : max_taps;
        taps += phases[i].taps;
    }
    cr_expect(table.max_shift == max_shift && table.max_taps == max_taps && taps == reaching.kernel,
              "layer %d: another table", number);
    return table;
}

static void check_exchanged(harness_random *random, const tconv_layer *layer, int number)
{
    const tconv_problem *problem = &layer->problem;
    const struct seen_layer plain = see_plainly(problem);
    tconv_phase row_phases[MOST_PHASES], column_phases[MOST_PHASES];
    tconv_layer view = *layer;
    view.problem = tconv_exchanged(problem);
    view.phases_of_src = true;
    view.group_weights = problem->group_in * problem->weight.in;
    view.rows = make_phases(&problem->h, row_phases, number);
    view.columns = make_phases(&problem->w, column_phases, number);
    const tconv_problem *gradient = &view.problem;
    cr_assert(gradient->out_channels == problem->in_channels && gradient->h.out == problem->h.in &&
              gradient->w.out == problem->w.in && gradient->src_extent == problem->dst_extent &&
              gradient->dst_extent == problem->src_extent && gradient->h.stride == 1 && gradient->w.pad == 0);
    struct tensors tensors = make_tensors(random, problem);
    int others = 0, places = 0;
    for (int64_t n = 0; n < problem->batch; n++)
        for (int64_t c = 0; c < problem->in_channels; c++)
            for (int64_t y = 0; y < problem->h.in; y++)
                for (int64_t x = 0; x < problem->w.in; x++) {
                    const int64_t output[4] = {n, c, y, x};
                    double sum = 0;
                    for (int64_t i = 0; i < view.rows.count * view.columns.count; i++)
                        sum += sum_phase(&view, &tensors, &row_phases[i / view.columns.count],
                                         &column_phases[i % view.columns.count], output);
                    others += sum != gradient_at(&plain, &tensors, n, c, y, x);
                    places += n * gradient->dst.n + c * gradient->dst.c + y * gradient->dst.h + x * gradient->dst.w !=
                              n * problem->src.n + c * problem->src.c + y * problem->src.h + x * problem->src.w;
                }
    cr_expect(others == 0 && places == 0, "layer %d: %d elements are others, %d elsewhere", number, others, places);
    release_tensors(&tensors);
}

Test(views, exchanged_operands_are_the_gradient_of_src)
{
    harness_random random;
    int viewed = 0;
    harness_random_seed(&random, 20261202);
    for (int number = 0; number < LAYERS; number++) {
        tconv_layer layer;
        tconv_desc desc = draw_seen_layer(&random);
        if (number % 4 == 0)
            draw_one_pixel(&random, &desc);
        if (!make_seen_layer(&random, &desc, &layer))
            continue;
        check_exchanged(&random, &layer, number);
        viewed++;
        release_seen_layer(&layer);
    }
    cr_expect_geq(viewed, LEAST_VIEWED, "%d were viewed", viewed);
}
