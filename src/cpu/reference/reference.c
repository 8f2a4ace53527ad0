/*
 * cpu_reference: float64 loops straight from the formula of tconv.h, for every layer, dtype and layout.
 *
 * An output takes kernel element k where (output + pad - k * dilation) divides by the stride and the quotient lies in
 * the input; this file tests just that, from the caller's desc, and knows nothing of phases. Every other implementation
 * is measured against it.
 *
 * Post-ops follow in double. Numeric order: from the bias and what the output held, where the layer accumulates, over kernel rows, kernel columns, then
 * input channels, all in double; one rounding to the dtype at the end. The threads share the rows of the output, and no sum
 * crosses a row.
 */
#include <math.h>
#include <string.h>

#include "../../core/checked.h"
#include "../../core/operation.h"
#include "../../core/post.h"
#include "../../core/post_exact.h"
#include "../blocking/blocking.h"
#include "../cpu_backend.h"
#include "../cpu_target.h"
#include "../threads/parallel.h"
#include "reference.h"

/* Output columns that are summed at a time: 2 KiB of sums on the stack, and enough to hide the loops around them. It is
 * chosen, not measured. */
enum { BLOCK = 256 };

/* Rows of the output that a thread takes at a time. It is chosen, not measured. */
enum { ROWS = 4 };

/* The outputs of a block to which one kernel element contributes: every stride-th from first on, count of them; they
 * read the inputs from input on. */
struct reach {
    int64_t first, count, input;
};

/* Returns the reach of kernel element k in outputs [begin, begin + length). */
static struct reach reach_of(const tconv_cpu_reference_axis *axis, int64_t k, int64_t begin, int64_t length)
{
    struct reach none = {0, 0, 0}, found;
    int64_t numerator = begin + axis->pad - k * axis->dilation;
    int64_t input = tconv_floor_div(numerator, axis->stride), rest = numerator - input * axis->stride, skip = 0;
    if (rest != 0) { /* moves to the next output that divides */
        skip = axis->stride - rest;
        input++;
    }
    if (input < 0) {
        if (-input > (length - 1) / axis->stride) /* so many strides end beyond the block */
            return none;
        skip += -input * axis->stride;
        input = 0;
    }
    if (skip >= length || input >= axis->in)
        return none;
    found.first = skip;
    found.input = input;
    found.count = tconv_min((length - 1 - skip) / axis->stride + 1, axis->in - input);
    return found;
}

/* One call of execute, as every row sees it. */
struct job {
    const tconv_problem *problem;
    const tconv_arguments *arguments;
    const tconv_cpu_reference_access *access;
    tconv_cpu_reference_axis h, w;
    int64_t rows; /* rows of the output, in all images and channels */
    tconv_cpu_tasks tasks;
};

/* Adds kernel element (kh, kw) of all input channels to a block's sums; row is its input row, columns its reach. */
static void add_element(const struct job *job, double *sums, int64_t n, int64_t channel, int64_t kh, int64_t kw,
                        int64_t row, struct reach columns)
{
    const tconv_problem *problem = job->problem;
    int64_t first_in = channel / problem->group_out * problem->group_in;
    for (int64_t i = 0; i < problem->group_in; i++) {
        int64_t in = first_in + i;
        double weight = job->access->get(job->arguments->packed,
                                         in * problem->weight.in + channel % problem->group_out * problem->weight.out +
                                             kh * problem->weight.h + kw * problem->weight.w);
        int64_t index =
            n * problem->src.n + in * problem->src.c + row * problem->src.h + columns.input * problem->src.w;
        job->access->accumulate(sums + columns.first, job->w.stride, columns.count, weight,
                                (tconv_cpu_reference_run){job->arguments->src, index, problem->src.w});
    }
}

/* Returns the numbers that a post-op takes of its operand. */
static tconv_post_values values_of(const tconv_problem *problem, int index, const void *operand, int64_t channel,
                                   int64_t addend)
{
    const tconv_post_kind kind = problem->desc.post[index].kind;
    const tconv_cpu_reference_access *access =
        &tconv_cpu_reference_accesses[tconv_role_dtype(problem, (tconv_role)(TCONV_ROLE_POST + index))];
    const int vectors = tconv_post_channel_vectors(kind);
    tconv_post_values values = {0, 0};
    if (tconv_post_has_operand(kind))
        values.first = access->get(operand, vectors > 0 ? channel : addend);
    if (vectors > 1)
        values.second = access->get(operand, problem->out_channels + channel);
    return values;
}

double tconv_cpu_reference_posts(const tconv_problem *problem, const void *const operands[TCONV_MAX_POST_OPS],
                                 int64_t channel, int64_t addend, double sum)
{
    for (int i = 0; i < problem->desc.post_count; i++) {
        const tconv_post_op *post = &problem->desc.post[i];
        const tconv_post_values values = values_of(problem, i, operands[i], channel, addend);
        if (!tconv_post_scales_and_shifts(&problem->desc, i)) {
            sum = tconv_post_in_double(post, sum, values);
            continue;
        }
        i++; /* both are one operation */
        sum = fma(sum, values.first, values_of(problem, i, operands[i], channel, addend).first);
    }
    return sum;
}

/* Computes columns [begin, begin + length) of one output row. */
static void compute_block(const struct job *job, int64_t n, int64_t channel, int64_t oh, int64_t begin, int64_t length)
{
    const tconv_problem *problem = job->problem;
    double sums[BLOCK];
    const int64_t index = n * problem->dst.n + channel * problem->dst.c + oh * problem->dst.h + begin * problem->dst.w;
    double bias = job->arguments->bias != NULL ? job->access->get(job->arguments->bias, channel) : 0;
    for (int64_t i = 0; i < length; i++)
        sums[i] = bias + tconv_cpu_reference_start(problem, job->arguments->dst, index + i * problem->dst.w);
    for (int64_t kh = 0; kh < job->h.kernel; kh++) {
        struct reach row = reach_of(&job->h, kh, oh, 1);
        if (row.count == 0)
            continue;
        for (int64_t kw = 0; kw < job->w.kernel; kw++) {
            struct reach columns = reach_of(&job->w, kw, begin, length);
            if (columns.count > 0)
                add_element(job, sums, n, channel, kh, kw, row.input, columns);
        }
    }
    const tconv_strides *strides = &problem->addend;
    const int64_t addend = n * strides->n + channel * strides->c + oh * strides->h + begin * strides->w;
    for (int64_t i = 0; i < length; i++) {
        const double y =
            tconv_cpu_reference_posts(problem, job->arguments->post, channel, addend + i * strides->w, sums[i]);
        tconv_cpu_finish_output(problem, job->arguments->dst, index + i * problem->dst.w, y);
    }
}

static void compute_row(const struct job *job, int64_t index)
{
    const tconv_problem *problem = job->problem;
    int64_t oh = index % problem->h.out, image = index / problem->h.out;
    for (int64_t begin = 0; begin < problem->w.out; begin += BLOCK)
        compute_block(job, image / problem->out_channels, image % problem->out_channels, oh, begin,
                      tconv_min(BLOCK, problem->w.out - begin));
}

static void run_share(void *argument, int index)
{
    struct job *job = argument;
    for (int64_t task; (task = tconv_cpu_take_task(&job->tasks, &index)) < job->tasks.count;)
        for (int64_t row = task * ROWS; row < tconv_min(job->rows, (task + 1) * ROWS); row++)
            compute_row(job, row);
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    struct job job = {.problem = problem,
                      .arguments = arguments,
                      .access = &tconv_cpu_reference_accesses[problem->dtype],
                      .h = tconv_cpu_reference_rows(problem),
                      .w = tconv_cpu_reference_columns(problem),
                      .rows = problem->batch * problem->out_channels * problem->h.out};
    int64_t tasks = tconv_ceil_div(job.rows, ROWS);
    int shares = tconv_cpu_count_shares(&layer->target, tconv_cpu_target_of(&layer->target).threads, tasks);
    (void)made, (void)issue;
    tconv_cpu_tasks_init(&job.tasks, tasks, shares);
    tconv_cpu_run_shares(&layer->target, shares, run_share, &job);
    return TCONV_SUCCESS;
}

static tconv_status plan(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    (void)made, (void)issue;
    planned->sizes.packed =
        (size_t)layer->problem.weight_extent * layer->problem.element_size; /* tconv_problem_init checked it */
    return TCONV_SUCCESS;
}

const tconv_implementation tconv_cpu_reference = {
    .name = "cpu_reference",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .applies_posts = true,
    .plan_bytes = 1, /* there is nothing to decide */
    .plan = plan,
    .pack = tconv_cpu_copy_weights,
    .execute = execute,
    .batch_invariant = tconv_always_batch_invariant,
};
