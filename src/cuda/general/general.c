/*
 * The general implementation on CUDA serves every layer: any dtype, layout, slice, group, stride and dilation, and any
 * size.
 *
 * Each (row phase, column phase) is a dense stride-1 correlation over its own taps (core/phases.h); all phases go in
 * one launch. Layers with many channels per group run as an implicit GEMM (gemm.cu), those with few straight from
 * global memory (direct.cu); outputs without a tap are filled by a kernel of their own (fill.c). Each output is
 * written exactly once, there are no atomics, and execute uses no memory beyond the packed weights.
 *
 * Taps that fall outside src are skipped, so that NaN and Inf in the weights go only where they belong.
 *
 * Numeric order, which depends on the layer alone: taps in the order of the kernel rows, then columns, input channels
 * inside; fused multiply-adds from zero over segments of at most `segment` terms, whole K-blocks in gemm.cu, and in
 * direct.cu whole taps where that is possible; segments added in order, but for f64 with compensation
 * (compensated.cuh); then the bias, what dst holds, and the post-ops, of any kind.
 */
#include <math.h>
#include <stdio.h>

#include "../../core/checked.h"
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../numeric/divisor.h"
#include "../numeric/segment.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"
#include "plan.h"

enum {
    TABLE_ALIGNMENT = 256,    /* bytes, of the packed weights behind the phase tables */
    NARROW_INDICES = 1 << 30, /* indices below this are 32-bit ones */

    /* Fewer channels of a group than this leave most of a GEMM tile empty. */
    GEMM_MIN_OUT = 12, /* output channels */
    GEMM_MIN_IN = 5,   /* input channels */

    MIN_SEGMENT = 64,    /* terms, in f64: shorter segments cost time and gain nothing that matters */
    SEGMENT_MULTIPLE = 8 /* terms: the GEMM's K-block, and a multiple of the direct kernels' batch */
};

/* The shape of the GEMM with the least time is taken: channels computed, padding included, over this rate of the shape,
 * relative to the others. A taller tile does more with each element it loads. */
static const int64_t GEMM_RATES[SHAPES] = {10, 8, 5};

device_axis tconv_general_axis(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phases)
{
    const int64_t most = tconv_ceil_div(axis->out, axis->stride);
    return (device_axis){phases,           table->count, most, axis->in, axis->out, axis->stride, table->kernel_step,
                         table->shift_step};
}

/* Returns the channels that a shape of the GEMM computes, padding included. */
static int64_t computed_channels(const tconv_problem *problem, bool is_f64, int number)
{
    const int channels = gemm_shape(is_f64, number).channels;
    return tconv_ceil_div(problem->group_out, channels) * channels;
}

static int choose_gemm(const tconv_problem *problem, bool is_f64)
{
    int best = 0;
    for (int i = 1; i < SHAPES; i++)
        if (computed_channels(problem, is_f64, i) * GEMM_RATES[best] <
            computed_channels(problem, is_f64, best) * GEMM_RATES[i])
            best = i;
    return best;
}

/* Returns the smallest direct kernel that has room for the channels of a group, or the largest. */
static int choose_direct(const tconv_problem *problem, bool is_f64)
{
    int fits = SHAPES - 1;
    while (fits > 0 && direct_shape(is_f64, fits).channels < problem->group_out)
        fits--;
    return fits;
}

static void choose_kernel(const tconv_problem *problem, planned_layer *plan)
{
    const bool is_f64 = problem->dtype == TCONV_F64;
    plan->is_gemm = problem->group_out >= GEMM_MIN_OUT && problem->group_in >= GEMM_MIN_IN;
    plan->number = plan->is_gemm ? choose_gemm(problem, is_f64) : choose_direct(problem, is_f64);
    plan->shape = plan->is_gemm ? gemm_shape(is_f64, plan->number) : direct_shape(is_f64, plan->number);
}

/*
 * Returns the terms of a segment. In f32 segments are added with compensation, and have as many terms as the bound
 * allows. In f64 they are not: sums of n positive terms err by about sqrt(n) roundings; cut into segments of s terms,
 * they err by sqrt(s * s / n) within and sqrt(n / s) among segments, which is least in sum where s = n^(2/3), and then
 * far below the bound of 16 up to a million terms.
 */
static int64_t segment_of(const tconv_layer *layer)
{
    if (layer->problem.dtype != TCONV_F64)
        return SEGMENT_TERMS;
    const double terms =
        (double)layer->rows.max_taps * (double)layer->columns.max_taps * (double)layer->problem.group_in;
    return tconv_round_up(tconv_max((int64_t)cbrt(terms * terms), MIN_SEGMENT), SEGMENT_MULTIPLE);
}

/* Cuts the layer into tiles. */
static void set_tiles(planned_layer *plan)
{
    parameters *params = &plan->params;
    const kernel_shape *shape = &plan->shape;
    const int64_t blocks = params->groups * (params->packed_out / shape->channels);
    if (params->layout == TCONV_NHWC && !plan->is_gemm)
        params->channel_lanes_log2 = log2_at_least(tconv_min(blocks, shape->threads));
    const int64_t lanes = (int64_t)1 << params->channel_lanes_log2;
    const int64_t pixels = params->batch * params->rows.max_outputs * params->columns.max_outputs;
    params->channel_tiles = tconv_ceil_div(blocks, lanes);
    params->tiles = tconv_ceil_div(pixels, shape->pixels / lanes) * params->channel_tiles * params->rows.count *
                    params->columns.count;
}

static void set_parameters(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    params->rows = tconv_general_axis(&problem->h, &layer->rows, NULL);
    params->columns = tconv_general_axis(&problem->w, &layer->columns, NULL);
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->layout = problem->layout;
    params->batch = problem->batch;
    params->groups = problem->groups;
    params->group_in = problem->group_in;
    params->group_out = problem->group_out;
    params->kernel_columns = problem->w.kernel;
    params->packed_out = tconv_round_up(problem->group_out, plan->shape.channels);
    params->weight_pitch = params->groups * params->packed_out;
    params->weight_tap_pitch = params->group_in * params->weight_pitch;
    params->segment = segment_of(layer);
    params->src_in_runs = problem->layout == TCONV_NHWC && problem->group_in % SRC_RUN == 0 &&
                          tconv_cuda_begins_at_multiples(problem, &problem->src, SRC_RUN);
    set_tiles(plan);
}

/* Says whether every index that a kernel computes for the layer fits in 32 bits; sums of two then do as well. */
static bool is_narrow(const tconv_problem *problem, const parameters *params)
{
    const int64_t sizes[] = {problem->src_extent,
                             problem->dst_extent,
                             problem->addend_extent,
                             problem->h.kernel * problem->w.kernel * params->weight_tap_pitch,
                             problem->h.stride,
                             problem->w.stride,
                             (problem->h.kernel - 1) * problem->h.dilation + problem->h.pad,
                             (problem->w.kernel - 1) * problem->w.dilation + problem->w.pad,
                             params->tiles,
                             params->segment};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] >= NARROW_INDICES)
            return false;
    return true;
}

/* Finds the size of the packed buffer, which has both phase tables, then the weights. */
static tconv_status find_sizes(const tconv_layer *layer, planned_layer *plan, tconv_memory_sizes *sizes,
                               tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int channels = plan->shape.channels;
    int64_t size;
    plan->weights_begin =
        tconv_round_up((layer->rows.count + layer->columns.count) * (int64_t)sizeof(tconv_phase), TABLE_ALIGNMENT);
    if (!tconv_checked_mul(tconv_ceil_div(problem->group_out, channels), channels, &size) ||
        !tconv_checked_mul(size, problem->in_channels, &size) ||
        !tconv_checked_mul(size, problem->h.kernel * problem->w.kernel, &size) ||
        !tconv_checked_mul(size, (int64_t)problem->element_size, &size) ||
        !tconv_checked_add(size, plan->weights_begin, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    return TCONV_SUCCESS;
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    planned_layer *plan = memory;
    tconv_status status = tconv_cuda_check_steps(&layer->problem, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (layer->problem.volumes.images > 0 &&
        ((layer->rows.count > 0 && layer->columns.count > 0) || layer->problem.batch > INT32_MAX))
        return tconv_decline(issue, "takes images of several volumes only where they are few and no output has a tap");
    choose_kernel(&layer->problem, plan);
    status = find_sizes(layer, plan, &planned->sizes, issue);
    if (status != TCONV_SUCCESS)
        return status;
    set_parameters(layer, plan);
    plan->is_narrow = is_narrow(&layer->problem, &plan->params);
    const tconv_cuda_work work = tconv_general_work(layer, plan);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

/* Packs on the current device. */
static tconv_status pack_both(const tconv_layer *layer, const planned_layer *plan, const void *weights, void *packed,
                              void *stream, tconv_issue *issue)
{
    const tconv_status status = tconv_general_pack_phases(layer, packed, stream, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_general_pack_weights(&layer->problem, plan->params.packed_out, weights,
                                      (char *)packed + plan->weights_begin, stream, issue);
}

static tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(&guard, pack_both(layer, memory, weights, packed, stream, issue), issue);
    return status;
}

/* Launches the kernels on the current device. */
static tconv_status launch(const tconv_layer *layer, const planned_layer *plan, const tconv_arguments *arguments,
                           tconv_issue *issue)
{
    const kernel_shape *shape = &plan->shape;
    const tconv_phase *phases = arguments->packed;
    parameters params = plan->params;
    params.src = arguments->src;
    params.weights = (const char *)arguments->packed + plan->weights_begin;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.posts = tconv_cuda_layer_posts(&layer->problem, arguments);
    params.rows.phases = phases;
    params.columns.phases = phases + params.rows.count;
    if ((uintptr_t)arguments->src % (SRC_RUN * layer->problem.element_size) != 0)
        params.src_in_runs = false;
    tconv_status status = TCONV_SUCCESS;
    if (layer->rows.bias_only > 0 || layer->columns.bias_only > 0)
        status = tconv_general_fill_bias_only(layer, phases, arguments, issue);
    if (status != TCONV_SUCCESS || params.tiles == 0)
        return status;
    const tconv_dtype dtype = layer->problem.dtype;
    const void *kernel = plan->is_gemm ? tconv_general_gemm_kernel(dtype, plan->number, plan->is_narrow)
                                       : tconv_general_direct_kernel(dtype, plan->number, plan->is_narrow);
    void *kernel_arguments[] = {&params};
    return tconv_launch_blocks_shared(kernel, params.tiles, shape->threads, shape->shared_bytes, kernel_arguments,
                                      arguments->stream, issue);
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(&guard, launch(layer, memory, arguments, issue), issue);
    return status;
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    (void)layer;
    const planned_layer *plan = memory;
    const int lanes = 1 << plan->params.channel_lanes_log2;
    const int length = snprintf(text, capacity, "kernel=%s block_tile=%dx%d segment=%lld index=%d-bit",
                                plan->is_gemm ? "gemm" : "direct", plan->shape.channels * lanes,
                                plan->shape.pixels / lanes, (long long)plan->params.segment, plan->is_narrow ? 32 : 64);
    if (!plan->is_gemm && (size_t)length < capacity)
        snprintf(text + length, capacity - (size_t)length, " channel_lanes=%d src_in_runs=%d", lanes,
                 plan->params.src_in_runs);
}

const tconv_implementation tconv_cuda_general = {.name = "cuda_general",
                                                 .backend = TCONV_BACKEND_CUDA,
                                                 .dtypes = TCONV_DTYPES_TO_F64,
                                                 .plan_bytes = sizeof(planned_layer),
                                                 .plan = plan_layer,
                                                 .pack = pack,
                                                 .execute = execute,
                                                 .describe = describe,
                                                 .accumulates = true,
                                                 .takes_volumes = true,
                                                 .applies_posts = true,
                                                 .batch_invariant = tconv_always_batch_invariant};
