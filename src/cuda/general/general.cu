/*
 * The general implementation on CUDA serves every layer: any dtype, layout, slice, group, stride and dilation, and any
 * size.
 *
 * Each (row phase, column phase) is a dense stride-1 correlation over its own taps (core/phases.h); all phases go in
 * one launch. Layers with many channels per group run as an implicit GEMM (gemm.cu), those with few straight from
 * global memory (direct.cu); outputs without a tap are filled by a kernel of their own (fill.cu). Each output is
 * written exactly once, there are no atomics, and execute uses no memory beyond the packed weights.
 *
 * Taps that fall outside src are skipped, so that NaN and Inf in the weights go only where they belong.
 *
 * Numeric order, which depends on the layer alone: taps in the order of the kernel rows, then columns, input channels
 * inside; fused multiply-adds from zero over segments of at most `segment` terms, whole K-blocks in gemm.cu, and in
 * direct.cu whole taps where that is possible; segments added in order, but for f64 with compensation
 * (compensated.cuh); bias last.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../numeric/compensated.cuh"
#include "../numeric/divisor.h"
#include "../runtime/launch.h"
#include "plan.h"

#include <cmath>
#include <cstdio>

namespace tconv::general
{

device_axis axis_of(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phases)
{
    const int64_t most = tconv_ceil_div(axis->out, axis->stride);
    return {phases, table->count, most, axis->in, axis->out, axis->stride, table->kernel_step, table->shift_step};
}

namespace
{

constexpr int64_t TABLE_ALIGNMENT = 256;     /* bytes, of the packed weights behind the phase tables */
constexpr int64_t NARROW = (int64_t)1 << 30; /* indices below this are 32-bit ones */

/* Fewer channels of a group than this leave most of a GEMM tile empty. */
constexpr int64_t GEMM_MIN_OUT = 12; /* output channels */
constexpr int64_t GEMM_MIN_IN = 5;   /* input channels */

/* The shape of the GEMM with the least time is taken: channels computed, padding included, over this rate of the shape,
 * relative to the others. A taller tile does more with each element it loads. */
constexpr int64_t GEMM_RATES[GEMM_SHAPES] = {10, 8, 5};

constexpr int64_t MIN_SEGMENT = 64;     /* terms, in f64: shorter segments cost time and gain nothing that matters */
constexpr int64_t SEGMENT_MULTIPLE = 8; /* terms: the GEMM's K-block, and a multiple of the direct kernels' batch */

kernel_choice choose_gemm(const tconv_problem *problem)
{
    const int64_t out = problem->group_out;
    const kernel_choice *gemm = gemm_kernels(problem->dtype);
    int best = 0;
    for (int i = 1; i < GEMM_SHAPES; i++)
        if (tconv_ceil_div(out, gemm[i].channels) * gemm[i].channels * GEMM_RATES[best] <
            tconv_ceil_div(out, gemm[best].channels) * gemm[best].channels * GEMM_RATES[i])
            best = i;
    return gemm[best];
}

/* Returns the smallest direct kernel that has room for the channels of a group, or the largest. */
kernel_choice choose_direct(const tconv_problem *problem)
{
    const kernel_choice *direct = direct_kernels(problem->dtype);
    int fits = DIRECT_SHAPES - 1;
    while (fits > 0 && direct[fits].channels < problem->group_out)
        fits--;
    return direct[fits];
}

/*
 * The terms of a segment. In f32 segments are added with compensation, and have as many terms as the bound allows. In
 * f64 they are not: sums of n positive terms err by about sqrt(n) roundings; cut into segments of s terms, they err by
 * sqrt(s * s / n) within and sqrt(n / s) among segments, which is least in sum where s = n^(2/3), and then far below
 * the bound of 16 up to a million terms.
 */
int64_t segment_of(const tconv_layer *layer)
{
    if (layer->problem.dtype != TCONV_F64)
        return SEGMENT_TERMS;
    const double terms =
        (double)layer->rows.max_taps * (double)layer->columns.max_taps * (double)layer->problem.group_in;
    return tconv_round_up(tconv_max((int64_t)cbrt(terms * terms), MIN_SEGMENT), SEGMENT_MULTIPLE);
}

/* Cuts the layer into tiles. */
void set_tiles(planned_layer *planned)
{
    parameters *made = &planned->parameters;
    const kernel_choice *shape = &planned->shape;
    const int64_t blocks = made->groups * (made->packed_out / shape->channels);
    if (made->layout == TCONV_NHWC && !planned->is_gemm)
        made->channel_lanes_log2 = log2_at_least(tconv_min(blocks, shape->threads));
    const int64_t lanes = (int64_t)1 << made->channel_lanes_log2;
    const int64_t pixels = made->batch * made->rows.max_outputs * made->columns.max_outputs;
    made->channel_tiles = tconv_ceil_div(blocks, lanes);
    made->tiles =
        tconv_ceil_div(pixels, shape->pixels / lanes) * made->channel_tiles * made->rows.count * made->columns.count;
}

void set_parameters(const tconv_layer *layer, planned_layer *planned)
{
    const tconv_problem *problem = &layer->problem;
    parameters *made = &planned->parameters;
    made->rows = axis_of(&problem->h, &layer->rows, NULL);
    made->columns = axis_of(&problem->w, &layer->columns, NULL);
    made->src_strides = problem->src;
    made->dst_strides = problem->dst;
    made->layout = problem->layout;
    made->batch = problem->batch;
    made->groups = problem->groups;
    made->group_in = problem->group_in;
    made->group_out = problem->group_out;
    made->kernel_columns = problem->w.kernel;
    made->packed_out = tconv_round_up(problem->group_out, planned->shape.channels);
    made->weight_pitch = made->groups * made->packed_out;
    made->weight_tap_pitch = made->group_in * made->weight_pitch;
    made->segment = segment_of(layer);
    made->src_in_runs = problem->layout == TCONV_NHWC && problem->group_in % SRC_RUN == 0 &&
                        tconv_cuda_begins_at_multiples(problem, &problem->src, SRC_RUN);
    set_tiles(planned);
}

/* Says whether every index that a kernel computes for the layer fits in 32 bits; sums of two then do as well. */
bool is_narrow(const tconv_problem *problem, const parameters *parameters)
{
    for (const int64_t size :
         {problem->src_extent, problem->dst_extent,
          problem->h.kernel * problem->w.kernel * parameters->weight_tap_pitch, problem->h.stride, problem->w.stride,
          (problem->h.kernel - 1) * problem->h.dilation + problem->h.pad,
          (problem->w.kernel - 1) * problem->w.dilation + problem->w.pad, parameters->tiles, parameters->segment})
        if (size >= NARROW)
            return false;
    return true;
}

/* The packed buffer has both phase tables, then the weights. */
tconv_status find_sizes(const tconv_layer *layer, planned_layer *made, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int channels = made->shape.channels;
    int64_t size;
    made->weights_at =
        tconv_round_up((layer->rows.count + layer->columns.count) * (int64_t)sizeof(tconv_phase), TABLE_ALIGNMENT);
    if (!tconv_checked_mul(tconv_ceil_div(problem->group_out, channels), channels, &size) ||
        !tconv_checked_mul(size, problem->in_channels, &size) ||
        !tconv_checked_mul(size, problem->h.kernel * problem->w.kernel, &size) ||
        !tconv_checked_mul(size, (int64_t)problem->element_size, &size) ||
        !tconv_checked_add(size, made->weights_at, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    return TCONV_SUCCESS;
}

tconv_status plan(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    planned_layer *made = (planned_layer *)to;
    made->is_gemm = problem->group_out >= GEMM_MIN_OUT && problem->group_in >= GEMM_MIN_IN;
    made->shape = made->is_gemm ? choose_gemm(problem) : choose_direct(problem);
    const tconv_status status = find_sizes(layer, made, &planned->sizes, issue);
    if (status != TCONV_SUCCESS)
        return status;
    set_parameters(layer, made);
    made->is_narrow = is_narrow(problem, &made->parameters);
    const tconv_cuda_work work = work_of(layer, made);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *from, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)from;
    return on_device(layer->target.device, issue, [&] {
        const tconv_status status = tconv_general_pack_phases(layer, (tconv_phase *)packed, stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
        return tconv_general_pack_weights(&layer->problem, made->parameters.packed_out, weights,
                                          (char *)packed + made->weights_at, stream, issue);
    });
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)from;
    const kernel_choice *shape = &made->shape;
    const tconv_phase *phases = (const tconv_phase *)arguments->packed;
    parameters parameters = made->parameters;
    parameters.src = arguments->src;
    parameters.weights = (const char *)arguments->packed + made->weights_at;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    parameters.rows.phases = phases;
    parameters.columns.phases = phases + parameters.rows.count;
    if ((uintptr_t)arguments->src % (SRC_RUN * layer->problem.element_size) != 0)
        parameters.src_in_runs = false;
    void *kernel_arguments[] = {&parameters};
    return on_device(layer->target.device, issue, [&] {
        tconv_status status = TCONV_SUCCESS;
        if (layer->rows.bias_only > 0 || layer->columns.bias_only > 0)
            status = tconv_general_fill_bias_only(layer, phases, arguments, issue);
        if (status != TCONV_SUCCESS || parameters.tiles == 0)
            return status;
        return tconv_launch_blocks_shared((const void *)(made->is_narrow ? shape->narrow : shape->wide),
                                          parameters.tiles, shape->threads, shape->shared_bytes, kernel_arguments,
                                          arguments->stream, issue);
    });
}

void describe(const tconv_layer *, const void *from, char *text, size_t capacity)
{
    const planned_layer *made = (const planned_layer *)from;
    const int lanes = 1 << made->parameters.channel_lanes_log2;
    const int length =
        snprintf(text, capacity, "kernel=%s block_tile=%dx%d segment=%lld index=%d-bit",
                 made->is_gemm ? "gemm" : "direct", made->shape.channels * lanes, made->shape.pixels / lanes,
                 (long long)made->parameters.segment, made->is_narrow ? 32 : 64);
    if (!made->is_gemm && (size_t)length < capacity)
        snprintf(text + length, capacity - (size_t)length, " channel_lanes=%d src_in_runs=%d", lanes,
                 made->parameters.src_in_runs);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_general = {"cuda_general",
                                                            TCONV_BACKEND_CUDA,
                                                            TCONV_DTYPES_TO_F64,
                                                            sizeof(planned_layer),
                                                            plan,
                                                            pack,
                                                            execute,
                                                            describe,
                                                            false,
                                                            tconv_always_batch_invariant};

} // namespace tconv::general
