/*
 * cuda_depthwise, backward_weights: the gradients of weights and bias of layers with one input channel a group and few
 * output channels, every dtype and either layout, straight from global memory.
 *
 * Most layers are summed by spans of neighbouring inputs, whose outputs lie in registers (weights_spans.c). The rest of this
 * file is about the kernel for all others, which goes pixel by pixel (weights_kernel.cu): f64, other column strides than 1, 2
 * and 4, dilated columns, and NHWC layers of few pixels.
 *
 * A block has a channel (NCHW, or very few channels), or 32 whose neighbours are in neighbouring threads (NHWC), a few of its
 * pairs of a tap and an output channel, and a part of the pixels. A thread loads an input once for all of its pairs, whose
 * sums are in registers; what pairs share comes from the first-level cache. Outputs that are not there are skipped. The sums
 * of a part are a slice (wgrad/tiles.h), as those of spans are.
 *
 * Numeric order of this kernel, by layer and number of multiprocessors alone: segments of SEGMENT pixels of a thread from
 * zero; segments, threads of a block and slices in double, in f64 with what rounding loses; one rounding.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "../wgrad/sums.h"
#include "kernels.h"
#include "weights_parameters.h"
#include "weights_spans.h"

#include <math.h>
#include <stdio.h>

enum {
    LEAST_CHANNELS = 8,   /* of a layer in NHWC, for blocks of LANES channels */
    MOST_OUT = 4,         /* output channels of a group: tensor cores do more better */
    MAX_EXTENT = 1 << 28, /* of coordinates, so that sums of a few fit in 32 bits */
    BLOCKS = 16,          /* of a multiprocessor, about */
    RESIDENT = 5,         /* of those, that registers are for */
    THREAD_PIXELS = 16,   /* that a thread sums, at least */
    MOST_SLICES_BYTES = 32 << 20,
    SUM_BYTES = (int)sizeof(double) /* of a sum in a slice */
};

typedef struct planned_layer {
    sum_tiles tiles;
    bool by_spans; /* then nothing below is planned */
    span_plan spans;
    parameters params; /* without addresses */
    bool by_lanes;     /* a warp's threads have a channel each */
    int64_t blocks;
} planned_layer;

/* Returns whether the coordinates along an axis fit in 32 bits. */
static bool is_small(const tconv_axis *wide)
{
    return wide->in < MAX_EXTENT && wide->out < MAX_EXTENT && wide->stride < MAX_EXTENT &&
           wide->in * wide->stride < 2 * (int64_t)MAX_EXTENT && (wide->kernel - 1) * wide->dilation < MAX_EXTENT &&
           wide->pad < MAX_EXTENT;
}

static axis narrow_axis(const tconv_axis *wide)
{
    const int64_t pad = wide->pad, reach = (wide->kernel - 1) * wide->dilation;
    return (axis){.in = (int)wide->in,
                  .out = (int)wide->out,
                  .kernel = (int)wide->kernel,
                  .stride = (int)wide->stride,
                  .dilation = (int)wide->dilation,
                  .pad = (int)pad,
                  .inside = {(int)pad, (int)(wide->out - 1 - reach + pad)}};
}

/* The corrections. */
static const double ISSUE_CYCLES = 805; /* of a pixel: its coordinates, and loads that nothing hides */
static const double TILE_CYCLES = 3200; /* of a block: the sums of its threads */

static const double CACHE_LOADS = 1.4;    /* a load of a warp takes so many times as long as one from shared memory, */
static const double CHECKED_LOADS = 0.89; /* and so many times more where outputs may not exist, */
static const double LINE_LOADS = 0.07;    /* and so many for each further 128 bytes from which a warp loads */

enum { LOAD_LINE = 4 * SECTOR_BYTES }; /* bytes that a warp of f32 loads at once where threads read neighbours */

/* Returns the share of the pixels of an axis whose outputs all exist, for all of `lanes` pixels that a warp has along the
 * axis. */
static double share_inside(const axis *along, int lanes)
{
    const int64_t first = tconv_max(0, tconv_ceil_div(along->inside.first, along->stride));
    const int64_t last = along->inside.last < 0 ? -1 : tconv_min(along->in - 1, along->inside.last / along->stride);
    const int64_t whole = (last + 1) / lanes - tconv_ceil_div(first, lanes);
    if (along->in <= lanes)
        return first == 0 && last == along->in - 1;
    return (double)(tconv_max(0, whole) * lanes) / (double)along->in;
}

/* Returns the lines beside the first from which a warp loads where its threads read values so many elements apart. */
static double further_lines(double apart, double size)
{
    return fmin(WARP, fmax(1, apart * size * WARP / LOAD_LINE)) - 1;
}

/* Returns the work of a plan, see ../model/work.h. A K-block is a pixel of each thread. */
static tconv_cuda_work work_of(const tconv_layer *layer, const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const double channels = plan->by_lanes ? LANES : 1, warps = THREADS / (double)WARP;
    const double size = (double)layer->problem.element_size;
    const double blocks = (double)plan->blocks / tconv_cuda_target_of(&layer->target).multiprocessors;
    const double checked =
        1 - share_inside(&params->rows, 1) * share_inside(&params->columns, plan->by_lanes ? 1 : WARP);
    const double src = plan->by_lanes ? 0 : further_lines((double)params->src_strides.w, size);
    const double dst = plan->by_lanes ? 0 : further_lines((double)params->dst_strides.w * params->columns.stride, size);
    const double pairs = fmin(PAIRS, (double)params->pairs);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks = fmax(1, (double)params->pixels / (double)tconv_max(1, params->parts) * channels / THREADS);
    work.ffma = (double)PAIRS * THREADS; /* those past the last pair, too */
    work.loads = warps * ((PAIRS + 1) * CACHE_LOADS * (1 + CHECKED_LOADS * checked) + LINE_LOADS * (pairs * dst + src));
    work.issues = 1;
    work.issue_cycles = ISSUE_CYCLES;
    work.tile_cycles = TILE_CYCLES;
    work.stores = PAIRS * channels / WARP;
    work.store_warps = warps;
    work.sectors = PAIRS * channels * SUM_BYTES / SECTOR_BYTES;
    work.rounds = tconv_cuda_rounds(blocks, RESIDENT);
    work.resident = fmin(RESIDENT, fmax(blocks, 1));
    work.passes = 1;
    work.pass_bytes = (double)params->parts * (double)params->groups * (double)params->pairs * SUM_BYTES;
    return work;
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    planned_layer *plan = memory;
    parameters *params = &plan->params;
    if (problem->group_in != 1 || (problem->group_out > MOST_OUT && !planned->named))
        return tconv_decline(issue, "needs one input channel a group and at most %d output channels", (int)MOST_OUT);
    if (!is_small(&problem->h) || !is_small(&problem->w) || problem->h.in * problem->w.in >= 2 * (int64_t)MAX_EXTENT)
        return tconv_decline(issue, "needs extents below 2^28");
    plan->tiles = tconv_wgrad_tiles_of_all_pairs(problem, 1);
    const int64_t bytes = problem->groups * plan->tiles.block_n * SUM_BYTES;
    plan->by_spans = tconv_depthwise_plan_spans(layer, MOST_SLICES_BYTES, &plan->spans);
    if (plan->by_spans) {
        const tconv_cuda_work work = tconv_depthwise_spans_work(layer, &plan->spans);
        planned->sizes.scratch = (size_t)tconv_max(plan->spans.parts * bytes, (int64_t)tconv_wgrad_bias_scratch(layer));
        tconv_cuda_predict(layer, &work, planned);
        return TCONV_SUCCESS;
    }
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->rows = narrow_axis(&problem->h);
    params->columns = narrow_axis(&problem->w);
    params->by_columns = divisor_of((int)problem->w.in);
    params->groups = problem->groups;
    params->group_out = problem->group_out;
    params->image_pixels = problem->h.in * problem->w.in;
    params->pixels = problem->batch * params->image_pixels;
    params->pairs = plan->tiles.block_n;
    params->pair_blocks = tconv_ceil_div(params->pairs, PAIRS);
    plan->by_lanes = problem->layout == TCONV_NHWC && problem->groups >= LEAST_CHANNELS;
    const int64_t channels = plan->by_lanes ? LANES : 1;
    params->channel_blocks = tconv_ceil_div(params->groups, channels);
    const int64_t blocks = BLOCKS * (int64_t)tconv_cuda_target_of(&layer->target).multiprocessors;
    const int64_t parts =
        tconv_min(tconv_ceil_div(blocks, params->channel_blocks * params->pair_blocks), MOST_SLICES_BYTES / bytes);
    params->part_pixels =
        tconv_max(THREAD_PIXELS * THREADS / channels, tconv_ceil_div(params->pixels, tconv_max(1, parts)));
    params->parts = tconv_ceil_div(params->pixels, params->part_pixels);
    plan->blocks = params->parts * params->channel_blocks * params->pair_blocks;
    planned->sizes.scratch = (size_t)tconv_max(params->parts * bytes, (int64_t)tconv_wgrad_bias_scratch(layer));
    const tconv_cuda_work work = work_of(layer, plan);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

/* Launches the kernel that writes the slices (wgrad_sum_weights). */
static tconv_status sum_weights(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                                wgrad_slices *slices, tconv_issue *issue)
{
    const planned_layer *plan = memory;
    slices->tiles = plan->tiles;
    slices->count = plan->by_spans ? plan->spans.parts : plan->params.parts;
    slices->are_double = true;
    if (slices->count == 0)
        return TCONV_SUCCESS;
    if (plan->by_spans)
        return tconv_depthwise_launch_spans(layer, &plan->spans, arguments, issue);
    parameters params = plan->params;
    params.src = arguments->src;
    params.diff_dst = arguments->dst;
    params.slices = arguments->scratch;
    void *kernel_arguments[] = {&params};
    return tconv_launch_blocks(tconv_depthwise_weights_kernel(layer->problem.dtype, plan->by_lanes), plan->blocks,
                               THREADS, kernel_arguments, arguments->stream, issue, false);
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    return tconv_wgrad_execute_gradients(layer, memory, arguments, sum_weights, issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const planned_layer *plan = memory;
    if (plan->by_spans) {
        tconv_depthwise_describe_spans(layer, &plan->spans, text, capacity);
        return;
    }
    snprintf(text, capacity, "pairs=%d parts=%lld blocks=%lld", PAIRS, (long long)plan->params.parts,
             (long long)plan->blocks);
}

const tconv_implementation tconv_cuda_depthwise_weights = {.name = "cuda_depthwise",
                                                           .backend = TCONV_BACKEND_CUDA,
                                                           .dtypes = TCONV_DTYPES_TO_F64,
                                                           .plan_bytes = sizeof(planned_layer),
                                                           .plan = plan_layer,
                                                           .pack = tconv_wgrad_pack_nothing,
                                                           .execute = execute,
                                                           .describe = describe,
                                                           .accumulates = true};
