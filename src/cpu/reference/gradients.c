/*
 * cpu_reference for the gradients: float64 loops straight from their formulas, for every layer, dtype and layout. With
 * s, d and p the stride, dilation and padding of an axis, c and o the channels of a group, and only terms whose output
 * exists,
 *
 *     diff_src[n, c, i]      = sum over o, k of diff_dst[n, o, s * i + d * k - p] * weights[c, o, k]
 *     diff_weights[c, o, k]  = sum over n, i of src[n, c, i] * diff_dst[n, o, s * i + d * k - p]
 *     diff_bias[o]           = sum over n, y of diff_dst[n, o, y]: every output, with a tap or without
 *
 * Numeric order: diff_src over kernel rows, kernel columns, then output channels, in double; the others over images, rows
 * and columns, in segments of double that are added without loss, because there are millions of terms. A sum starts from
 * what its output holds, where the layer accumulates. One rounding to the dtype at the end. No sum is shared by threads.
 */
#include <string.h>

#include "../../core/checked.h"
#include "../blocking/blocking.h"
#include "../cpu_backend.h"
#include "../cpu_target.h"
#include "../threads/parallel.h"
#include "reference.h"

/* Input columns that are summed at a time: 2 KiB of sums on the stack. It is chosen, not measured. */
enum { BLOCK = 256 };

/* One call of execute. */
struct job {
    const tconv_problem *problem;
    const tconv_arguments *arguments;
    const tconv_cpu_reference_access *access;
    tconv_cpu_reference_axis h, w;
    tconv_cpu_tasks tasks;
};

/* Inputs [begin, begin + count), from whose first one kernel element reaches `output`. */
struct reach {
    int64_t begin, count, output;
};

/* Returns the inputs among [begin, begin + length) from which kernel element k reaches an output. */
static struct reach reach_of(const tconv_cpu_reference_axis *axis, int64_t k, int64_t begin, int64_t length)
{
    const int64_t offset = k * axis->dilation - axis->pad;
    const int64_t first = tconv_max(begin, -tconv_floor_div(offset, axis->stride));
    const int64_t end = tconv_min(begin + length, tconv_floor_div(axis->out - 1 - offset, axis->stride) + 1);
    return (struct reach){first, tconv_max(0, end - first), axis->stride * first + offset};
}

static int64_t weight_index(const tconv_problem *problem, int64_t in, int64_t out, int64_t kh, int64_t kw)
{
    return in * problem->weight.in + out * problem->weight.out + kh * problem->weight.h + kw * problem->weight.w;
}

/* The gradient of dst from an output on, at every stride-th column. */
static tconv_cpu_reference_run run_of_dst(const struct job *job, int64_t n, int64_t channel, int64_t oh, int64_t ow)
{
    const tconv_strides *dst = &job->problem->dst;
    return (tconv_cpu_reference_run){job->arguments->dst, n * dst->n + channel * dst->c + oh * dst->h + ow * dst->w,
                                     job->w.stride * dst->w};
}

/* ---------------------------------------------------------------------------------------------------- gradient of src */

/* Adds kernel element (kh, kw) of all output channels to a block's sums. */
static void add_element(const struct job *job, double *sums, int64_t n, int64_t in, int64_t kh, int64_t kw, int64_t oh,
                        struct reach columns)
{
    const tconv_problem *problem = job->problem;
    const int64_t first_out = in / problem->group_in * problem->group_out;
    for (int64_t out = 0; out < problem->group_out; out++)
        job->access->accumulate(sums, 1, columns.count,
                                job->access->get(job->arguments->packed, weight_index(problem, in, out, kh, kw)),
                                run_of_dst(job, n, first_out + out, oh, columns.output));
}

/* Computes columns [begin, begin + length) of one row of the gradient of src. */
static void compute_block(const struct job *job, int64_t n, int64_t in, int64_t ih, int64_t begin, int64_t length)
{
    const tconv_problem *problem = job->problem;
    const int64_t index = n * problem->src.n + in * problem->src.c + ih * problem->src.h + begin * problem->src.w;
    double sums[BLOCK];
    for (int64_t i = 0; i < length; i++)
        sums[i] = tconv_cpu_reference_start(problem, job->arguments->src, index + i * problem->src.w);
    for (int64_t kh = 0; kh < job->h.kernel; kh++) {
        const struct reach row = reach_of(&job->h, kh, ih, 1);
        for (int64_t kw = 0; row.count > 0 && kw < job->w.kernel; kw++) {
            const struct reach columns = reach_of(&job->w, kw, begin, length);
            if (columns.count > 0)
                add_element(job, sums + columns.begin - begin, n, in, kh, kw, row.output, columns);
        }
    }
    for (int64_t i = 0; i < length; i++)
        tconv_cpu_finish_output(problem, job->arguments->src, index + i * problem->src.w, sums[i]);
}

/* Task: a row of a channel. */
static void run_rows(void *argument, int index)
{
    struct job *job = argument;
    const tconv_problem *problem = job->problem;
    for (int64_t row; (row = tconv_cpu_take_task(&job->tasks, &index)) < job->tasks.count;) {
        const int64_t ih = row % job->h.in, in = row / job->h.in % problem->in_channels;
        const int64_t n = row / job->h.in / problem->in_channels;
        for (int64_t begin = 0; begin < job->w.in; begin += BLOCK)
            compute_block(job, n, in, ih, begin, tconv_min(BLOCK, job->w.in - begin));
    }
}

/* ---------------------------------------------------------------------------------------- gradients of weights and bias */

static void compute_weight(const struct job *job, int64_t in, int64_t out, int64_t kh, int64_t kw)
{
    const tconv_problem *problem = job->problem;
    const struct reach rows = reach_of(&job->h, kh, 0, job->h.in), columns = reach_of(&job->w, kw, 0, job->w.in);
    const int64_t channel = in / problem->group_in * problem->group_out + out;
    const int64_t index = weight_index(problem, in, out, kh, kw);
    tconv_cpu_reference_sum sum = {tconv_cpu_reference_start(problem, job->arguments->weights, index), 0};
    for (int64_t n = 0; n < problem->batch && columns.count > 0; n++)
        for (int64_t row = 0; row < rows.count; row++) {
            const int64_t src = n * problem->src.n + in * problem->src.c + (rows.begin + row) * problem->src.h +
                                columns.begin * problem->src.w;
            job->access->dot(&sum, columns.count, (tconv_cpu_reference_run){job->arguments->src, src, problem->src.w},
                             run_of_dst(job, n, channel, rows.output + row * job->h.stride, columns.output));
        }
    job->access->put(job->arguments->weights, index, tconv_cpu_reference_total(&sum));
}

static void compute_bias(const struct job *job, int64_t channel)
{
    tconv_cpu_reference_sum sum = {tconv_cpu_reference_start(job->problem, job->arguments->bias, channel), 0};
    for (int64_t n = 0; n < job->problem->batch; n++)
        for (int64_t oh = 0; oh < job->h.out; oh++)
            for (int64_t ow = 0; ow < job->w.out; ow++) {
                const tconv_cpu_reference_run at = run_of_dst(job, n, channel, oh, ow);
                tconv_cpu_reference_add(&sum, job->access->get(at.memory, at.index));
            }
    job->access->put(job->arguments->bias, channel, tconv_cpu_reference_total(&sum));
}

/* Task: the weights of an input and an output channel of its group, and, after all of these, the bias of a channel. */
static void run_weights(void *argument, int index)
{
    struct job *job = argument;
    const tconv_problem *problem = job->problem;
    const int64_t pairs = job->arguments->weights != NULL ? problem->in_channels * problem->group_out : 0;
    for (int64_t task; (task = tconv_cpu_take_task(&job->tasks, &index)) < job->tasks.count;) {
        for (int64_t kh = 0; task < pairs && kh < job->h.kernel; kh++)
            for (int64_t kw = 0; kw < job->w.kernel; kw++)
                compute_weight(job, task / problem->group_out, task % problem->group_out, kh, kw);
        if (task >= pairs)
            compute_bias(job, task - pairs);
    }
}

/* ------------------------------------------------------------------------------------------------ implementations */

static tconv_status run(const tconv_layer *layer, const tconv_arguments *arguments, int64_t tasks,
                        tconv_cpu_share *share)
{
    const tconv_problem *problem = &layer->problem;
    struct job job = {
        .problem = problem,
        .arguments = arguments,
        .access = &tconv_cpu_reference_accesses[problem->dtype],
        .h = tconv_cpu_reference_rows(problem),
        .w = tconv_cpu_reference_columns(problem),
    };
    const int shares = tconv_cpu_count_shares(&layer->target, tconv_cpu_target_of(&layer->target).threads, tasks);
    tconv_cpu_tasks_init(&job.tasks, tasks, shares);
    tconv_cpu_run_shares(&layer->target, shares, share, &job);
    return TCONV_SUCCESS;
}

static tconv_status execute_data(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                                 tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    (void)made, (void)issue;
    return run(layer, arguments, problem->batch * problem->in_channels * problem->h.in, run_rows);
}

static tconv_status execute_weights(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                                    tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    (void)made, (void)issue;
    return run(layer, arguments,
               (arguments->weights != NULL ? problem->in_channels * problem->group_out : 0) +
                   (arguments->bias != NULL ? problem->out_channels : 0),
               run_weights);
}

static tconv_status plan_data(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    (void)made, (void)issue;
    planned->sizes.packed = (size_t)layer->problem.weight_extent * layer->problem.element_size;
    return TCONV_SUCCESS;
}

static tconv_status plan_weights(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    (void)layer, (void)made, (void)planned, (void)issue;
    return TCONV_SUCCESS;
}

const tconv_implementation tconv_cpu_reference_data = {
    .name = "cpu_reference",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .plan_bytes = 1, /* there is nothing to decide */
    .plan = plan_data,
    .pack = tconv_cpu_copy_weights,
    .execute = execute_data,
    .batch_invariant = tconv_always_batch_invariant,
};

const tconv_implementation tconv_cpu_reference_weights = {
    .name = "cpu_reference",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .plan_bytes = 1,
    .plan = plan_weights,
    .execute = execute_weights,
};
