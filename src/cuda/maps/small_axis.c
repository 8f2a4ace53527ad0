/* Makes the tables of an axis that go with a kernel's parameters. */
#include "small_axis.h"

bool tconv_cuda_is_small_axis(const tconv_axis *axis)
{
    const int64_t limit = SMALL_AXIS_EXTENT;
    return axis->in < limit && axis->out < limit && axis->stride <= SMALL_AXIS_STRIDE && axis->dilation < limit &&
           (axis->kernel - 1) * axis->dilation + axis->pad < limit;
}

small_axis tconv_cuda_make_small_axis(const tconv_axis *axis, const tconv_phase_table *table)
{
    small_axis made;
    made.in = (int)axis->in;
    made.out = (int)axis->out;
    made.kernel = (int)axis->kernel;
    made.stride = (int)axis->stride;
    made.dilation = (int)axis->dilation;
    made.pad = (int)axis->pad;
    made.kernel_step = (int)table->kernel_step;
    made.shift_step = (int)table->shift_step;
    made.min_shift = (int)table->min_shift;
    made.reach = (int)(table->max_shift - table->min_shift);
    for (int residue = 0; residue < SMALL_AXIS_STRIDE; residue++) {
        made.taps[residue] = made.first_kernel[residue] = 0;
        made.first_shift[residue] = made.min_shift;
    }
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        made.taps[phase->residue] = (int)phase->taps;
        made.first_kernel[phase->residue] = (int)phase->first_kernel;
        made.first_shift[phase->residue] = (int)phase->first_shift;
    }
    return made;
}
