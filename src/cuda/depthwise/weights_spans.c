/*
 * The gradient of weights by spans: layers of f32, f16 and bf16 with column strides 1, 2 and 4 and no dilation of columns.
 *
 * dweights[c, ky, kx] sums src[iy, ix] * diff_dst[s iy + d ky - p, s ix + kx - p] over images and inputs. A thread has a span
 * of neighbouring ix, and loads the window of outputs that its taps reach once for all of them. A row of dst that (iy, ky)
 * reads is the one that (iy - d / g, ky + s / g) reads, g = gcd(s, d): a thread has a few kernel rows that are s / g apart,
 * and walks down input rows that are d / g apart, so that it loads each window once for all of its kernel rows as well.
 *
 * The warps of a block have different taps of the same spans, which come from the first-level cache. In NCHW, or with very few
 * channels, the threads of a warp have neighbouring spans; in NHWC neighbouring channels, of the same spans. NHWC layers whose
 * spans are fewer than the multiprocessors are left to the kernel that goes pixel by pixel.
 *
 * Numeric order, by layer and number of multiprocessors alone: the products of a span in f32, from zero; up to MAX_JOINS spans
 * of a thread in f32; these, threads of a warp, warps and slices in double; one rounding.
 */
#include "weights_spans.h"
#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../runtime/launch.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>

enum {
    LEAST_CHANNELS = 8,   /* of a layer in NHWC, for a channel to each thread of a warp */
    MOST_RUN_STEPS = 8,   /* rows of dst of a run */
    MOST_WAVES = 6,       /* of blocks */
    CHANNEL_THREADS = 128 /* of a block whose threads have channels: their sums fit in 48 KB of shared memory */
};

static const double MOST_OFFSET = 1 << 30; /* elements of an image of a channel, with what lies before and after it */
static const int64_t MOST_TASKS = 1 << 29;

/* The corrections, fitted to 48 times on an H200 (docs/log/2026-11-29-spans-of-weights.md), from which predictions are 16 %
 * off. */
static const double STEP_CYCLES = 1650;     /* of a step: its addresses, and loads that nothing hides */
static const double BLOCK_CYCLES = 1000;    /* of a block: the sums of its threads, */
static const double CHANNELS_CYCLES = 4000; /* which are WARP times as many where threads have channels */
static const double ELEMENT_LOADS =
    2.8; /* a load of an element, with its tests, takes so many times as long as one of a vector */
static const double LINE_LOADS = 0.05; /* and a load so many more for each further 128 bytes from which a warp loads */
static const double FURTHER_INSTRUCTIONS = 1.85; /* issued for a multiply-add: those beside it */

enum { LOAD_LINE = 4 * SECTOR_BYTES }; /* bytes that a warp of f32 loads at once where threads read neighbours */

static span_axis narrow_axis(const tconv_axis *wide)
{
    return (span_axis){(int)wide->in,     (int)wide->out,      (int)wide->kernel,
                       (int)wide->stride, (int)wide->dilation, (int)wide->pad};
}

/* Returns whether what a thread computes fits in 32 bits: offsets in an image of a channel, of columns and rows that are up to
 * a kernel beside it too; coordinates; numbers of weights. */
static bool fits(const tconv_problem *problem)
{
    const tconv_axis *rows = &problem->h, *columns = &problem->w;
    const double beside = 64, weights = (double)problem->group_out * (double)(rows->kernel * columns->kernel);
    const double lcm = (double)rows->stride * (double)rows->dilation;
    return ((double)rows->in + beside * (double)rows->dilation) * (double)problem->src.h < MOST_OFFSET &&
           ((double)columns->in + beside) * (double)problem->src.w < MOST_OFFSET &&
           (double)rows->out * (double)problem->dst.h < MOST_OFFSET &&
           ((double)columns->out + (double)columns->pad + 4 * beside) * (double)problem->dst.w < MOST_OFFSET &&
           (double)rows->in * (double)rows->stride + beside * lcm < MOST_OFFSET && weights < MOST_OFFSET &&
           (double)problem->out_channels < MOST_OFFSET;
}

/* Returns the stride of columns; any will do for one column. */
static int64_t stride_of(const tconv_problem *problem)
{
    return problem->w.in == 1 ? 1 : problem->w.stride;
}

static bool takes(const tconv_problem *problem)
{
    const int64_t stride = stride_of(problem);
    return problem->dtype != TCONV_F64 && (stride == 1 || stride == 2 || stride == 4) &&
           (problem->w.dilation == 1 || problem->w.kernel == 1) && fits(problem);
}

/* Returns what the threads of a warp have: vectors where rows of both tensors are made of them. */
static int lanes_of(const tconv_problem *problem)
{
    if (problem->layout == TCONV_NHWC && problem->groups >= LEAST_CHANNELS)
        return LANE_CHANNELS;
    return problem->layout == TCONV_NCHW && problem->src.w == 1 && problem->dst.w == 1 &&
                   problem->w.in % SPAN_VECTOR == 0 && problem->w.out % SPAN_VECTOR == 0 &&
                   tconv_rows_begin_at_multiples(&problem->src, SPAN_VECTOR) &&
                   tconv_rows_begin_at_multiples(&problem->dst, SPAN_VECTOR)
               ? VECTOR_TASKS
               : ELEMENT_TASKS;
}

/* Cuts the taps into groups. */
static void plan_groups(const tconv_problem *problem, span_plan *plan)
{
    span_parameters *params = &plan->params;
    const int64_t kernel_rows = problem->h.kernel, kernel_columns = problem->w.kernel;
    const int64_t dilation = kernel_rows == 1 ? 1 : problem->h.dilation;
    const int64_t common = tconv_gcd(problem->h.stride, dilation);
    int64_t chunks = tconv_ceil_div(kernel_columns, MAX_CHUNK);
    const int64_t each = tconv_ceil_div(kernel_columns, chunks);
    params->walk_step = (int)(dilation / common);
    params->kernel_step = (int)(problem->h.stride / common);
    params->chunk = (int)(chunks > 1 ? tconv_round_up(each, SPAN_VECTOR) : each);
    params->chunks = (int)tconv_ceil_div(kernel_columns, params->chunk);
    params->before =
        plan->lanes == VECTOR_TASKS ? (int)((SPAN_VECTOR - problem->w.pad % SPAN_VECTOR) % SPAN_VECTOR) : 0;
    plan->taps = kernel_taps(params->before + params->chunk);
    params->classes = (int)tconv_min(params->kernel_step, kernel_rows);
    const int64_t class_rows = tconv_ceil_div(kernel_rows, params->kernel_step);
    const int64_t walk_rows = tconv_ceil_div(problem->h.in, params->walk_step);
    const int64_t row_groups = tconv_ceil_div(class_rows, tconv_min(walk_rows, most_rows(plan->taps)));
    params->group_rows = (int)tconv_ceil_div(class_rows, row_groups);
    params->groups = (int)(problem->group_out * params->chunks * params->classes * row_groups);
}

/* Cuts the inputs of a channel into tasks. Returns how many, which may be more than a plan can have. */
static int64_t plan_tasks(const tconv_problem *problem, span_plan *plan)
{
    span_parameters *params = &plan->params;
    const int64_t walks = tconv_min(params->walk_step, problem->h.in);
    const int64_t steps = tconv_ceil_div(problem->h.in, params->walk_step) + params->group_rows - 1;
    const int64_t runs = tconv_ceil_div(steps, MOST_RUN_STEPS);
    const int64_t spans = tconv_ceil_div(problem->w.in, span_inputs(plan->stride));
    params->walk_rows = (int)(problem->h.in / params->walk_step);
    params->longer = (int)(problem->h.in % params->walk_step);
    params->walks = divisor_of((int)walks);
    params->runs = divisor_of((int)runs);
    params->spans = divisor_of((int)spans);
    params->run_steps = (int)tconv_ceil_div(steps, runs);
    params->round_tasks = MAX_JOINS / params->run_steps;
    const double tasks = (double)problem->batch * (double)walks * (double)runs * (double)spans;
    return tasks < (double)MOST_TASKS ? problem->batch * walks * runs * spans : MOST_TASKS;
}

/* Cuts the tasks into parts that fill so many waves of blocks. */
static void plan_parts(const tconv_layer *layer, int waves, int64_t slices_bytes, span_plan *plan)
{
    span_parameters *params = &plan->params;
    const int64_t places =
        (int64_t)tconv_cuda_target_of(&layer->target).multiprocessors * (RESIDENT_THREADS / plan->threads);
    const int64_t channels_groups = (int64_t)params->channel_blocks * params->group_blocks;
    const int64_t slice = params->channels * layer->problem.group_out * layer->problem.h.kernel *
                          layer->problem.w.kernel * (int64_t)sizeof(double);
    const int64_t most = tconv_min(tconv_ceil_div(params->tasks, params->task_step), slices_bytes / slice);
    const int64_t parts = tconv_max(1, tconv_min(most, waves * places / channels_groups));
    params->part_tasks = (int)tconv_round_up(tconv_ceil_div(params->tasks, parts), params->task_step);
    plan->parts = params->tasks > 0 ? (int)tconv_ceil_div(params->tasks, params->part_tasks) : 0;
    plan->blocks = plan->parts * channels_groups;
}

/* Returns the loads of a warp, of `count` elements by vectors or one by one, by threads that read them so many elements apart;
 * in units of a load of a vector by threads that read neighbours. */
static double loads_of(const span_plan *plan, int count, double apart, double size)
{
    const double lines = LINE_LOADS * (fmin(WARP, fmax(1, apart * size * WARP / LOAD_LINE)) - 1);
    return plan->lanes == VECTOR_TASKS ? (double)tconv_ceil_div(count, SPAN_VECTOR) * (1 + lines)
                                       : count * (ELEMENT_LOADS + lines);
}

/* A K-block is a step of each thread. */
tconv_cuda_work tconv_depthwise_spans_work(const tconv_layer *layer, const span_plan *plan)
{
    const span_parameters *params = &plan->params;
    const double size = (double)layer->problem.element_size, warps = (double)plan->threads / WARP;
    const int inputs = span_inputs(plan->stride), window = plan->stride * (inputs - 1) + plan->taps;
    const bool by_lanes = plan->lanes == LANE_CHANNELS;
    const double channels = by_lanes ? WARP : 1;
    const double src_apart = by_lanes ? 1 : (double)(inputs * layer->problem.src.w);
    const double dst_apart = by_lanes ? 1 : (double)(inputs * plan->stride * layer->problem.dst.w);
    const double blocks = (double)plan->blocks / tconv_cuda_target_of(&layer->target).multiprocessors;
    const int places = RESIDENT_THREADS / plan->threads;
    const double sums = (double)(params->block_groups * params->group_rows * params->chunk) * channels;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks = fmax(1, (double)params->part_tasks / params->task_step * params->run_steps);
    work.ffma = (double)plan->threads * params->group_rows * params->chunk * (inputs + 1) * FURTHER_INSTRUCTIONS;
    work.loads = warps * (loads_of(plan, inputs, src_apart, size) + loads_of(plan, window, dst_apart, size));
    work.issues = 1;
    work.issue_cycles = STEP_CYCLES;
    work.tile_cycles = by_lanes ? CHANNELS_CYCLES : BLOCK_CYCLES;
    work.stores = sums / WARP;
    work.store_warps = warps;
    work.sectors = sums * (double)sizeof(double) / SECTOR_BYTES;
    work.rounds = tconv_cuda_rounds(blocks, places);
    work.resident = fmin(places, fmax(ceil(blocks), 1)); /* of the fullest multiprocessor */
    work.passes = 1;
    work.pass_bytes = (double)plan->parts * params->channels * (double)layer->problem.group_out *
                      (double)(layer->problem.h.kernel * layer->problem.w.kernel) * (double)sizeof(double);
    return work;
}

bool tconv_depthwise_plan_spans(const tconv_layer *layer, int64_t slices_bytes, span_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    if (!takes(problem))
        return false;
    span_parameters *params = &plan->params;
    plan->stride = (int)stride_of(problem);
    plan->lanes = lanes_of(problem);
    plan_groups(problem, plan);
    const int64_t tasks = plan_tasks(problem, plan);
    if (tasks >= MOST_TASKS)
        return false;
    params->rows = narrow_axis(&problem->h);
    params->columns = narrow_axis(&problem->w);
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->src_row = (int)problem->src.h;
    params->src_step = (int)problem->src.h * params->walk_step;
    params->src_column = (int)problem->src.w;
    params->dst_row = (int)problem->dst.h;
    params->dst_column = (int)problem->dst.w;
    params->tasks = (int)tasks;
    params->group_out = (int)problem->group_out;
    params->channels = (int)problem->groups;
    const bool by_lanes = plan->lanes == LANE_CHANNELS;
    params->channel_blocks = (int)tconv_ceil_div(problem->groups, by_lanes ? WARP : 1);
    const int64_t warps = (by_lanes ? CHANNEL_THREADS : MAX_SPAN_THREADS) / WARP;
    const int64_t task_warps = by_lanes ? tasks : tconv_ceil_div(tasks, WARP);
    params->group_blocks = (int)tconv_ceil_div(params->groups, warps);
    params->block_groups = (int)tconv_ceil_div(params->groups, params->group_blocks);
    params->sets = (int)tconv_max(1, tconv_min(warps / params->block_groups, task_warps));
    params->task_step = params->sets * (by_lanes ? 1 : WARP);
    plan->threads = params->sets * params->block_groups * WARP;
    if (by_lanes &&
        task_warps * params->channel_blocks * params->groups < tconv_cuda_target_of(&layer->target).multiprocessors)
        return false; /* a warp walks alone; weights_kernel.cu gives more threads to so few pixels */
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    span_plan best = {.seconds = INFINITY};
    for (int waves = 1; waves <= MOST_WAVES; waves++) {
        plan_parts(layer, waves, slices_bytes, plan);
        const tconv_cuda_work work = tconv_depthwise_spans_work(layer, plan);
        plan->seconds = tconv_cuda_seconds_of(&machine, &work);
        if (plan->seconds < best.seconds)
            best = *plan;
    }
    *plan = best;
    return plan->blocks <= INT32_MAX;
}

tconv_status tconv_depthwise_launch_spans(const tconv_layer *layer, const span_plan *plan,
                                          const tconv_arguments *arguments, tconv_issue *issue)
{
    const uintptr_t vector = SPAN_VECTOR * layer->problem.element_size;
    const bool aligned = ((uintptr_t)arguments->src | (uintptr_t)arguments->dst) % vector == 0;
    span_parameters params = plan->params;
    params.src = arguments->src;
    params.diff_dst = arguments->dst;
    params.slices = arguments->scratch;
    const int pitch = (plan->lanes == LANE_CHANNELS) ? CHANNEL_PITCH : 1;
    const launch_grid grid = {
        .kernel = tconv_depthwise_weight_spans_kernel(
            layer->problem.dtype, plan->lanes == VECTOR_TASKS && !aligned ? ELEMENT_TASKS : plan->lanes, plan->stride,
            plan->taps),
        .blocks = plan->blocks,
        .threads = plan->threads,
        .shared_bytes = (int64_t)sizeof(double) * pitch * most_rows(plan->taps) * plan->taps * (plan->threads / WARP)};
    void *kernel_arguments[] = {&params};
    return tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue);
}

void tconv_depthwise_describe_spans(const tconv_layer *layer, const span_plan *plan, char *text, size_t capacity)
{
    const span_parameters *params = &plan->params;
    snprintf(text, capacity, "inputs=%d rows=%d taps=%d vector=%d groups=%d sets=%d parts=%d blocks=%lld",
             span_inputs(plan->stride), params->group_rows, params->chunk,
             plan->lanes == VECTOR_TASKS ? SPAN_VECTOR * (int)layer->problem.element_size
                                         : (int)layer->problem.element_size,
             params->groups, params->sets, plan->parts, (long long)plan->blocks);
}
