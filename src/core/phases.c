/* Builds the phase table: one phase for each of the first stride / gcd(stride, dilation) kernel indices, by residue. */
#include "phases.h"

#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "checked.h"
#include "status.h"

int64_t tconv_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int by_residue(const void *left, const void *right)
{
    int64_t a = ((const tconv_phase *)left)->residue, b = ((const tconv_phase *)right)->residue;
    return (a > b) - (a < b);
}

/* Makes the phase whose first tap is kernel index k: its residue makes (residue + pad - k * dilation) divisible by
 * stride. */
static tconv_phase phase_of(const tconv_axis *axis, int64_t k, int64_t kernel_step)
{
    tconv_phase phase;
    int64_t offset = k * axis->dilation - axis->pad; /* cannot wrap: both terms are below the checked dense extent */
    phase.first_shift = -tconv_floor_div(offset, axis->stride); /* (residue - offset) / stride */
    phase.residue = offset + phase.first_shift * axis->stride;
    phase.first_kernel = k;
    phase.taps = (axis->kernel - 1 - k) / kernel_step + 1;
    phase.outputs = phase.residue < axis->out ? (axis->out - 1 - phase.residue) / axis->stride + 1 : 0;
    return phase;
}

tconv_status tconv_phases_create(const tconv_axis *axis, const tconv_allocator *allocator, tconv_phase_table *table,
                                 tconv_issue *issue)
{
    int64_t common = tconv_gcd(axis->stride, axis->dilation);
    memset(table, 0, sizeof *table);
    table->stride = axis->stride;
    table->kernel_step = axis->stride / common;
    table->shift_step = axis->dilation / common;

    int64_t candidates = tconv_min(axis->kernel, table->kernel_step), bytes;
    if (!tconv_checked_mul(candidates, (int64_t)sizeof(tconv_phase), &bytes) ||
        (table->phases = tconv_allocate(allocator, (size_t)bytes)) == NULL)
        return tconv_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "allocator", "no memory for a phase table of %lld phases",
                          (long long)candidates);

    for (int64_t k = 0; k < candidates; k++) {
        tconv_phase phase = phase_of(axis, k, table->kernel_step);
        if (phase.outputs == 0)
            continue;
        int64_t last_shift = phase.first_shift - (phase.taps - 1) * table->shift_step;
        if (table->count == 0) {
            table->min_shift = last_shift;
            table->max_shift = phase.first_shift;
        }
        table->min_shift = tconv_min(table->min_shift, last_shift);
        table->max_shift = tconv_max(table->max_shift, phase.first_shift);
        table->max_taps = tconv_max(table->max_taps, phase.taps);
        table->phases[table->count++] = phase;
    }
    qsort(table->phases, (size_t)table->count, sizeof(tconv_phase), by_residue);
    table->bias_only = tconv_min(axis->stride, axis->out) - table->count;
    return TCONV_SUCCESS;
}

void tconv_phases_release(tconv_phase_table *table, const tconv_allocator *allocator)
{
    tconv_release(allocator, table->phases);
    table->phases = NULL;
    table->count = 0;
}
