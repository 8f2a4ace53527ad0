/*
 * Computes the borders of a task anew where some weight is Inf or NaN. The microkernels multiply taps outside the image
 * by a zero of the strip, which is as good as skipping them as long as the weight is finite. Here, outputs with such
 * taps are computed from src, one channel block at a time, without these taps. Where outputs are added to, what was there
 * is gone once they are stored: then this computes all outputs of a task, and nothing else does.
 *
 * Numeric order: over live taps inside the image, then input channels, in double; then the bias, then what the output held, where the
 * layer accumulates, then the post-ops, in double too.
 */
#include "border.h"

#include "../../core/checked.h"
#include "../reference/reference.h"

static double get_real(const tconv_cpu_plan *plan, const void *array, int64_t index)
{
    return plan->real ? ((const double *)array)[index] : (double)((const float *)array)[index];
}

/* One output of one image and group, by its row phase, its column phase and its position. */
struct output {
    const tconv_cpu_pass *passes; /* the passes that sum it: all of the row phase if fused, else one */
    int64_t pass_count;
    int64_t number; /* the column phase's number in the plan's order */
    const tconv_phase *column_phase;
    int64_t image, group, row, column; /* positions */
};

/* Returns the input row or column that the tap number `tap` of some taps of a phase reads. */
static int64_t input_of(const tconv_phase_table *table, const tconv_phase *phase, tconv_cpu_taps taps, int64_t tap,
                        int64_t position)
{
    return position + tconv_cpu_shift(table, phase, taps.first + tap);
}

/* Whether all live taps of a phase lie inside [0, in): the first reads the largest input, the last the smallest. */
static bool is_whole(const tconv_phase_table *table, const tconv_phase *phase, tconv_cpu_taps taps, int64_t position,
                     int64_t in)
{
    return taps.count == 0 || (input_of(table, phase, taps, 0, position) < in &&
                               input_of(table, phase, taps, taps.count - 1, position) >= 0);
}

/* Adds to an output's sums the terms of one pass. */
static void add_pass(const tconv_cpu_task *task, const struct output *output, const tconv_cpu_pass *pass,
                     tconv_cpu_block block, double sums[TCONV_CPU_MAX_CHANNELS])
{
    const tconv_cpu_job *job = task->job;
    const tconv_layer *layer = job->layer;
    const tconv_problem *problem = &layer->problem;
    const tconv_cpu_reference_access *access = &tconv_cpu_reference_accesses[problem->dtype];
    int64_t group_in = problem->group_in, all_taps = job->plan->rows.taps * job->plan->columns.taps;
    int64_t channel = output->group * problem->group_out + block.first, width = pass->phases * block.count;
    int64_t weights = channel * group_in * all_taps + pass->weights * group_in * block.count +
                      (output->number - pass->first) * block.count;
    for (int64_t tap = 0; tap < tconv_cpu_pass_taps(pass); tap++) {
        int64_t row = input_of(&layer->rows, pass->row, pass->row_taps, tap / pass->column_taps.count, output->row);
        int64_t column = input_of(&layer->columns, output->column_phase, pass->column_taps,
                                  tap % pass->column_taps.count, output->column);
        if (row < 0 || row >= problem->h.in || column < 0 || column >= problem->w.in)
            continue;
        for (int64_t i = 0; i < group_in; i++) {
            double value =
                access->get(job->src, output->image * problem->src.n + (output->group * group_in + i) * problem->src.c +
                                          row * problem->src.h + column * problem->src.w);
            for (int64_t m = 0; m < block.count; m++)
                sums[m] += value * get_real(job->plan, job->weights,
                                            weights + tconv_cpu_term(job->plan, pass, group_in, tap, i) * width + m);
        }
    }
}

static void compute_output(const tconv_cpu_task *task, const struct output *output, tconv_cpu_block block)
{
    const tconv_cpu_job *job = task->job;
    const tconv_problem *problem = &job->layer->problem;
    double sums[TCONV_CPU_MAX_CHANNELS] = {0};
    for (const tconv_cpu_pass *pass = output->passes; pass < output->passes + output->pass_count; pass++)
        if (output->number >= pass->first && output->number < pass->first + pass->phases)
            add_pass(task, output, pass, block, sums);
    int64_t channel = output->group * problem->group_out + block.first;
    int64_t index = output->image * problem->dst.n + channel * problem->dst.c +
                    (problem->h.stride * output->row + output->passes->row->residue) * problem->dst.h +
                    (problem->w.stride * output->column + output->column_phase->residue) * problem->dst.w;
    const tconv_strides *strides = &problem->addend;
    int64_t addend = output->image * strides->n + channel * strides->c +
                     (problem->h.stride * output->row + output->passes->row->residue) * strides->h +
                     (problem->w.stride * output->column + output->column_phase->residue) * strides->w;
    for (int64_t m = 0; m < block.count; m++, index += problem->dst.c, addend += strides->c) {
        const double held = tconv_cpu_reference_start(problem, job->dst, index);
        const double sum = sums[m] + get_real(job->plan, job->bias, channel + m) + held;
        tconv_cpu_finish_output(problem, job->dst, index,
                                tconv_cpu_reference_posts(problem, job->posts.operands, channel + m, addend, sum));
    }
}

/* Computes the border outputs, or all, of a row phase and a column phase, in one image and group. */
static void compute_phases(const tconv_cpu_task *task, struct output output)
{
    const tconv_layer *layer = task->job->layer;
    const tconv_cpu_pass *pass = output.passes;
    tconv_cpu_taps columns = tconv_cpu_live_taps(&layer->problem.w, &layer->columns, output.column_phase);
    int64_t row_end = tconv_min(task->row + task->rows, pass->row->outputs);
    int64_t column_end = tconv_min(task->column + task->columns, output.column_phase->outputs);
    for (output.row = task->row; output.row < row_end; output.row++) {
        bool whole = !layer->problem.desc.accumulate &&
                     is_whole(&layer->rows, pass->row, pass->row_taps, output.row, layer->problem.h.in);
        for (output.column = task->column; output.column < column_end; output.column++) {
            if (whole && is_whole(&layer->columns, output.column_phase, columns, output.column, layer->problem.w.in))
                continue;
            for (int64_t b = task->block; b < task->block + task->blocks; b++)
                compute_output(task, &output, tconv_cpu_block_of(task->job->plan, layer->problem.group_out, b));
        }
    }
}

void tconv_cpu_compute_border(const tconv_cpu_task *task)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    tconv_cpu_pass passes[TCONV_CPU_MAX_CHANNELS], pass = {0};
    struct output output = {.passes = passes};
    while (tconv_cpu_next_pass(plan, layer, &pass)) {
        passes[output.pass_count++] = pass;
        if (plan->fused && !pass.ends_row)
            continue;
        int64_t first = passes->first, end = first + passes->phases; /* the first pass has all phases */
        for (output.number = first; output.number < end; output.number++) {
            output.column_phase = tconv_cpu_column_phase(plan, layer, output.number);
            for (output.image = task->image; output.image < task->image + task->images; output.image++)
                for (output.group = task->group; output.group < task->group + task->groups; output.group++)
                    compute_phases(task, output);
        }
        output.pass_count = 0;
    }
}
