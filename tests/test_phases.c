/*
 * Compares the phase table with the formula itself. For every output and every kernel index, the division of the
 * definition decides whether the tap exists and which input it reads, and the table must agree. The tests sweep all
 * small axes, then take axes whose numbers are far too large to sweep.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../src/core/phases.h"
#include "tconv/tconv.h"

static const tconv_allocator no_allocator;

/* Makes an axis, with out as the definition has it; returns false where it has no output. */
static bool make_axis(tconv_axis *axis, int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                      int64_t pad_after, int64_t output_padding)
{
    axis->in = in;
    axis->kernel = kernel;
    axis->stride = stride;
    axis->dilation = dilation;
    axis->pad = pad;
    axis->output_padding = output_padding;
    axis->out = (in - 1) * stride - pad - pad_after + dilation * (kernel - 1) + output_padding + 1;
    return axis->out >= 1;
}

static const char *axis_text(const tconv_axis *axis)
{
    static char text[256];
    snprintf(text, sizeof text,
             "in %" PRId64 " out %" PRId64 " kernel %" PRId64 " stride %" PRId64 " dilation %" PRId64 " pad %" PRId64
             " output_padding %" PRId64,
             axis->in, axis->out, axis->kernel, axis->stride, axis->dilation, axis->pad, axis->output_padding);
    return text;
}

static const tconv_phase *find_phase(const tconv_phase_table *table, int64_t residue)
{
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].residue == residue)
            return &table->phases[i];
    return NULL;
}

/* Checks that every tap of output o, by the definition, is a tap of the table with the same input, and that there are
 * no more. */
static void check_output(const tconv_axis *axis, const tconv_phase_table *table, int64_t o)
{
    const tconv_phase *phase = find_phase(table, o % axis->stride);
    int64_t q = o / axis->stride, next = 0;
    for (int64_t k = 0; k < axis->kernel; k++) {
        int64_t numerator = o + axis->pad - k * axis->dilation;
        if (numerator % axis->stride != 0)
            continue;
        cr_assert_not_null(phase, "output %" PRId64 " has tap %" PRId64 " but no phase: %s", o, k, axis_text(axis));
        cr_assert_lt(next, phase->taps, "output %" PRId64 " lacks tap %" PRId64 ": %s", o, k, axis_text(axis));
        cr_assert_eq(phase->first_kernel + next * table->kernel_step, k, "output %" PRId64 " tap %" PRId64 ": %s", o, k,
                     axis_text(axis));
        cr_assert_eq(q + phase->first_shift - next * table->shift_step, numerator / axis->stride,
                     "output %" PRId64 " reads another input at tap %" PRId64 ": %s", o, k, axis_text(axis));
        next++;
    }
    if (phase != NULL)
        cr_assert_eq(phase->taps, next, "output %" PRId64 " has %" PRId64 " taps, the table %" PRId64 ": %s", o, next,
                     phase->taps, axis_text(axis));
}

/* Checks that the sums and bounds of the table follow from its phases. */
static void check_summary(const tconv_axis *axis, const tconv_phase_table *table)
{
    int64_t outputs = 0, max_taps = 0, min_shift = 0, max_shift = 0, last_residue = -1;
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        int64_t last_shift = phase->first_shift - (phase->taps - 1) * table->shift_step;
        cr_assert_gt(phase->residue, last_residue, "residues out of order: %s", axis_text(axis));
        cr_assert(phase->residue < axis->stride && phase->outputs >= 1 && phase->taps >= 1, "phase %" PRId64 ": %s", i,
                  axis_text(axis));
        cr_assert_eq(phase->outputs, (axis->out - phase->residue + axis->stride - 1) / axis->stride,
                     "outputs of residue %" PRId64 ": %s", phase->residue, axis_text(axis));
        last_residue = phase->residue;
        outputs += phase->outputs;
        max_taps = phase->taps > max_taps ? phase->taps : max_taps;
        min_shift = i == 0 || last_shift < min_shift ? last_shift : min_shift;
        max_shift = i == 0 || phase->first_shift > max_shift ? phase->first_shift : max_shift;
    }
    cr_assert_leq(outputs, axis->out);
    cr_assert_eq(table->stride, axis->stride);
    cr_assert_eq(table->max_taps, max_taps, "max_taps %" PRId64 ": %s", table->max_taps, axis_text(axis));
    cr_assert_eq(table->min_shift, min_shift, "min_shift %" PRId64 ": %s", table->min_shift, axis_text(axis));
    cr_assert_eq(table->max_shift, max_shift, "max_shift %" PRId64 ": %s", table->max_shift, axis_text(axis));
    cr_assert_eq(table->count + table->bias_only, axis->stride < axis->out ? axis->stride : axis->out,
                 "bias_only %" PRId64 ": %s", table->bias_only, axis_text(axis));
}

static void check_axis(const tconv_axis *axis)
{
    tconv_phase_table table;
    tconv_issue issue;
    cr_assert_eq(tconv_phases_create(axis, &no_allocator, &table, &issue), TCONV_SUCCESS, "%s", axis_text(axis));
    for (int64_t o = 0; o < axis->out; o++)
        check_output(axis, &table, o);
    check_summary(axis, &table);
    tconv_phases_release(&table, &no_allocator);
}

Test(phases, dense_sweep_agrees_with_the_formula)
{
    enum { IN = 5, KERNEL = 6, STRIDE = 6, DILATION = 5, PAD = 7 };
    int64_t axes = 0;
    for (int64_t in = 1; in <= IN; in += 1 + (in > 2))
        for (int64_t kernel = 1; kernel <= KERNEL; kernel++)
            for (int64_t stride = 1; stride <= STRIDE; stride++)
                for (int64_t dilation = 1; dilation <= DILATION; dilation++)
                    for (int64_t pad = 0; pad <= PAD; pad++)
                        for (int64_t output_padding = 0; output_padding < (stride > dilation ? stride : dilation);
                             output_padding += 2) {
                            tconv_axis axis;
                            if (!make_axis(&axis, in, kernel, stride, dilation, pad, pad / 2, output_padding))
                                continue;
                            check_axis(&axis);
                            axes++;
                        }
    cr_assert_gt(axes, 5000, "the sweep shrank to %" PRId64 " axes", axes);
}

Test(phases, only_multiples_of_the_common_divisor_have_taps)
{
    for (int64_t stride = 1; stride <= 12; stride++)
        for (int64_t dilation = 1; dilation <= 12; dilation++) {
            int64_t common = tconv_gcd(stride, dilation);
            tconv_axis axis;
            tconv_phase_table table;
            tconv_issue issue;
            make_axis(&axis, 30, 13, stride, dilation, 0, 0, 0);
            tconv_phases_create(&axis, &no_allocator, &table, &issue);
            cr_assert_eq(table.count, stride / common, "%s", axis_text(&axis));
            cr_assert_eq(table.bias_only, stride - stride / common, "%s", axis_text(&axis));
            for (int64_t i = 0; i < table.count; i++)
                cr_assert_eq(table.phases[i].residue % common, 0, "%s", axis_text(&axis));
            tconv_phases_release(&table, &no_allocator);
        }
}

/* With one tap the one phase is known in closed form: residue -pad mod stride, shift by rounding -pad down. */
Test(phases, stride_of_two_to_the_forty)
{
    const int64_t stride = INT64_C(1) << 40;
    const int64_t pads[] = {0, 1, stride - 1, stride, stride + 1, 2 * stride + 12345};
    for (size_t i = 0; i < sizeof pads / sizeof pads[0]; i++) {
        tconv_axis axis;
        tconv_phase_table table;
        tconv_issue issue;
        cr_assert(make_axis(&axis, 5, 1, stride, 1, pads[i], 0, 0));
        cr_assert_eq(tconv_phases_create(&axis, &no_allocator, &table, &issue), TCONV_SUCCESS);
        cr_assert_eq(table.count, 1);
        cr_assert_eq(table.phases[0].residue, (stride - pads[i] % stride) % stride, "%s", axis_text(&axis));
        cr_assert_eq(table.phases[0].first_shift, (pads[i] + stride - 1) / stride, "%s", axis_text(&axis));
        cr_assert_eq(table.phases[0].taps, 1);
        cr_assert_eq(table.bias_only, (stride < axis.out ? stride : axis.out) - 1, "%s", axis_text(&axis));
        check_summary(&axis, &table);
        tconv_phases_release(&table, &no_allocator);
    }
}

/* Where an axis is too long to sweep, outputs are sampled around every tap's image of the first and last inputs. */
Test(phases, large_numbers_agree_with_the_formula_at_samples)
{
    static const int64_t axes[][7] = {
        /* in, kernel, stride, dilation, pad, pad after, output padding */
        {INT64_C(1) << 20, 7, INT64_C(1) << 40, INT64_C(3) << 38, 0, 0, 0},
        {1000003, 5, 999999937, 999999929, 1234567890123, 7, 999999936},
        {INT64_C(1) << 50, 3, 1, INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 39, 5},
        {3, 9, INT64_C(1) << 58, INT64_C(1) << 57, 99, 1, 0},
        {2, 2, 6, INT64_C(1) << 60, (INT64_C(1) << 60) - 3, 0, 0},
    };
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        const int64_t *a = axes[i];
        tconv_axis axis;
        tconv_phase_table table;
        tconv_issue issue;
        cr_assert(make_axis(&axis, a[0], a[1], a[2], a[3], a[4], a[5], a[6]), "row %zu", i);
        cr_assert_eq(tconv_phases_create(&axis, &no_allocator, &table, &issue), TCONV_SUCCESS);
        check_summary(&axis, &table);
        for (int64_t k = 0; k < axis.kernel; k++)
            for (int64_t offset = -2; offset <= 2; offset++) {
                const int64_t images[] = {k * axis.dilation - axis.pad + offset,
                                          (axis.in - 1) * axis.stride + k * axis.dilation - axis.pad + offset};
                for (int j = 0; j < 2; j++)
                    if (images[j] >= 0 && images[j] < axis.out)
                        check_output(&axis, &table, images[j]);
            }
        tconv_phases_release(&table, &no_allocator);
    }
}

/* The definition allows outputs whose taps all fall outside the input, and layers whose every output is the bias. */
Test(phases, a_crop_may_leave_no_tap)
{
    tconv_axis axis;
    tconv_phase_table table;
    tconv_issue issue;
    cr_assert(make_axis(&axis, 3, 1, 5, 1, 1, 6, 0)); /* outputs 1..4 before the crop: between the images of inputs */
    cr_assert_eq(axis.out, 4);
    cr_assert_eq(tconv_phases_create(&axis, &no_allocator, &table, &issue), TCONV_SUCCESS);
    cr_assert_eq(table.count, 0, "%s", axis_text(&axis));
    cr_assert_eq(table.bias_only, 4);
    cr_assert_eq(table.max_taps, 0);
    check_summary(&axis, &table);
    tconv_phases_release(&table, &no_allocator);
}

Test(phases, gcd)
{
    cr_assert_eq(tconv_gcd(1, 1), 1);
    cr_assert_eq(tconv_gcd(12, 18), 6);
    cr_assert_eq(tconv_gcd(18, 12), 6);
    cr_assert_eq(tconv_gcd(7, 0), 7);
    cr_assert_eq(tconv_gcd(INT64_C(1) << 62, INT64_C(1) << 40), INT64_C(1) << 40);
    cr_assert_eq(tconv_gcd(INT64_MAX, INT64_MAX - 1), 1);
}
