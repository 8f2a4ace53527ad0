/*
 * Positions of which some tap lies outside of dst, where weights are Inf or NaN: the zeros of a strip would not silence
 * those. They are summed again, without those taps, in double, over taps, then output channels. Where results are added to,
 * what was there is gone once they are stored: then all positions are summed here, and nowhere else.
 */
#include "../reference/reference.h"
#include "task.h"

/* Input channels of the widest block. */
enum { MAX_WIDTH = TCONV_CPU_MAX_PIXEL_VECTORS * TCONV_ALIGNMENT / sizeof(float) };
_Static_assert((int)MAX_WIDTH >= (int)TCONV_CPU_MAX_CHANNELS, "blocks of planes are no wider");

/* A position of the layer. */
struct position {
    int64_t image, row, column;
};

/* Finds the output that a tap of a walk reads from a position; false where it lies outside. */
static bool find_output(const tconv_layer *layer, const tconv_cpu_dgrad_walk *walk, const struct position *position,
                        int64_t *row, int64_t *column)
{
    const tconv_phase *rows = walk->phase.row, *columns = walk->phase.column;
    const int64_t q_row = position->row - tconv_cpu_shift(&layer->rows, rows, walk->tap.row_tap);
    const int64_t q_column = position->column - tconv_cpu_shift(&layer->columns, columns, walk->tap.column_tap);
    if (q_row < 0 || q_row >= rows->outputs || q_column < 0 || q_column >= columns->outputs)
        return false;
    *row = layer->rows.stride * q_row + rows->residue;
    *column = layer->columns.stride * q_column + columns->residue;
    return true;
}

static bool is_whole(const tconv_cpu_dgrad_job *job, const struct position *position)
{
    tconv_cpu_dgrad_walk walk = {0};
    int64_t row, column;
    while (tconv_cpu_next_dgrad_tap(job->plan, job->layer, &walk))
        if (!find_output(job->layer, &walk, position, &row, &column))
            return false;
    return true;
}

/* Adds a tap to the sums of a block. output is where the group's first channel of the output is in dst. */
static void add_tap(const tconv_cpu_dgrad_job *job, const tconv_cpu_dgrad_block *block, int64_t tap, int64_t output,
                    double sums[MAX_WIDTH])
{
    const tconv_cpu_dgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const tconv_cpu_reference_access *of_dst = &tconv_cpu_reference_accesses[problem->dtype];
    const tconv_cpu_reference_access *of_weights = &tconv_cpu_reference_accesses[plan->real ? TCONV_F64 : TCONV_F32];
    for (int64_t o = 0; o < plan->group_out; o++) {
        const int64_t weights = block->weights + tconv_cpu_dgrad_weight(plan, block, tap, o);
        for (int64_t c = 0; c < block->count; c++) {
            const int64_t channel = plan->depthwise ? block->first + c : o;
            sums[c] +=
                of_dst->get(job->dst, output + channel * problem->dst.c) * of_weights->get(job->weights, weights + c);
        }
    }
}

static void compute_position(const tconv_cpu_dgrad_job *job, int64_t group, const tconv_cpu_dgrad_block *block,
                             const struct position *position)
{
    const tconv_problem *problem = &job->layer->problem;
    const int64_t first = group * job->plan->group_out * problem->dst.c + position->image * problem->dst.n;
    const int64_t src = position->image * problem->src.n + position->row * problem->src.h +
                        position->column * problem->src.w +
                        (group * job->plan->group_in + block->first) * problem->src.c;
    tconv_cpu_dgrad_walk walk = {0};
    double sums[MAX_WIDTH] = {0};
    int64_t row, column;
    while (tconv_cpu_next_dgrad_tap(job->plan, job->layer, &walk))
        if (find_output(job->layer, &walk, position, &row, &column))
            add_tap(job, block, walk.tap.index, first + row * problem->dst.h + column * problem->dst.w, sums);
    for (int64_t c = 0; c < block->count; c++) {
        const int64_t at = src + c * problem->src.c;
        tconv_cpu_finish_output(problem, job->src, at, sums[c] + tconv_cpu_reference_start(problem, job->src, at));
    }
}

void tconv_cpu_correlate_border(const tconv_cpu_dgrad_task *task)
{
    const tconv_cpu_dgrad_job *job = task->job;
    struct position position;
    for (position.row = task->row; position.row < task->row + task->rows; position.row++)
        for (position.column = task->column; position.column < task->column + task->columns; position.column++) {
            if (!job->layer->problem.desc.accumulate && is_whole(job, &position))
                continue;
            for (position.image = task->image; position.image < task->image + task->images; position.image++)
                for (int64_t group = task->group; group < task->group + task->groups; group++)
                    for (int64_t b = task->block; b < task->block + task->blocks; b++) {
                        const tconv_cpu_dgrad_block block = tconv_cpu_dgrad_block_of(job->plan, group, b);
                        compute_position(job, group, &block, &position);
                    }
        }
}
