/*
 * cuda_depthwise, backward_data: the gradient of src of layers with one input channel a group, every dtype and either
 * layout, straight from global memory. An element of it has few terms, and the time is that of reading the gradient of dst once.
 *
 * A thread sums ROWS elements down a column, so that it loads each weight once for all of them. Neighbouring threads have
 * neighbouring columns in NCHW and neighbouring channels in NHWC, there vectors of them; what taps share comes from the
 * first-level cache. In NCHW with an even stride a load brings the outputs of two or four taps; or, with strides up to MAX_SPAN_STRIDE, a thread
 * has COLUMNS neighbouring columns too, and loads the span of outputs of their taps by vectors.
 * Outputs that are not there are skipped: NaN and Inf go where the formula takes them.
 *
 * Weights are packed as those of cuda_general, or in NCHW read as they lie, where all lanes of a warp read the same.
 *
 * Numeric order: the taps of a kernel row by fused multiply-adds from zero; these sums, of the output channels of the group
 * and then of kernel rows, one after another. Both are at most SEGMENT, so that rounding stays in the bound of tconv.h.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../general/fill.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"
#include "data_parameters.h"
#include "kernels.h"
#include "packing.h"

#include <stdio.h>

enum {
    SEGMENT = 16,           /* terms: n round to within n / 2 units of the sum of their magnitudes */
    MAX_EXTENT = 1 << 28,   /* of coordinates, so that sums of a few fit in 32 bits */
    WARPS = THREADS / WARP, /* of a block */
    MAX_BLOCKS = 1 << 20    /* threads of this many blocks do the work of more */
};

static const double CACHE_LOADS = 1.6; /* as in forward: from the first-level cache, with their indices */
static const double LINE_LOADS = 0.18; /* that a load is for each more line of the cache that it touches */
static const double PIXEL_TIMES = 1.4; /* that loads take longer in NHWC */

typedef struct layer_plan {
    parameters params; /* without addresses, and weights as packed */
    int vector;        /* outputs that are loaded at once, in NHWC of as many channels, where tensors lie so */
    int columns;       /* of a thread: COLUMNS where it loads spans, where dst lies so, else 1 */
    launch_grid grid;
} layer_plan;

/* Returns the outputs between where a vector begins, and the first tap of a thread's first column. */
static int64_t before_span(const tconv_problem *problem)
{
    const int64_t vector = span_vector(problem->element_size);
    return (vector - problem->w.pad % vector) % vector;
}

static axis narrow_axis(const tconv_axis *wide)
{
    return (axis){(int)wide->in,     (int)wide->out,      (int)wide->kernel,
                  (int)wide->stride, (int)wide->dilation, (int)wide->pad};
}

/* Returns the threads' work where a thread has so many columns and channels. */
static double items_of(const tconv_problem *problem, int64_t columns, int64_t channels)
{
    const int64_t vectors = problem->in_channels / channels;
    return (double)problem->batch * (double)vectors * (double)tconv_ceil_div(problem->h.in, ROWS) *
           (double)tconv_ceil_div(problem->w.in, columns);
}

/* Returns the columns of a thread: COLUMNS where rows are vectors, and threads are enough. */
static int64_t columns_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = span_vector(problem->element_size);
    const double fewest = (double)THREADS * (double)tconv_max(tconv_cuda_target_of(&layer->target).multiprocessors, 1);
    return problem->layout == TCONV_NCHW && problem->dst.w == 1 && problem->w.dilation == 1 &&
                   problem->w.stride <= MAX_SPAN_STRIDE && problem->w.out % vector == 0 &&
                   tconv_rows_begin_at_multiples(&problem->dst, vector) && items_of(problem, COLUMNS, 1) >= fewest
               ? COLUMNS
               : 1;
}

/* Returns the channels of a thread, 1 in NCHW. In 16 bits, where vectors are of 8 bytes, more threads of one channel are faster. */
static int64_t channels_of(const tconv_problem *problem)
{
    const int64_t most = tconv_min(MAX_VECTOR, 16 / (int64_t)problem->element_size);
    const bool are_vectors = problem->layout == TCONV_NHWC && problem->element_size > 2 && problem->group_out == 1 &&
                             problem->in_channels % most == 0 && problem->src.c == 1 && problem->dst.c == 1 &&
                             tconv_cuda_begins_at_multiples(problem, &problem->src, most) &&
                             tconv_cuda_begins_at_multiples(problem, &problem->dst, most);
    return are_vectors ? most : 1;
}

/* Returns the outputs that are loaded at once: neighbouring taps of NCHW, which are aligned alike for every input and are in
 * dst all or none; or channels of NHWC. */
static int64_t vector_of(const tconv_problem *problem)
{
    const tconv_axis *columns = &problem->w;
    int64_t vector = tconv_min(MAX_VECTOR, 16 / (int64_t)problem->element_size);
    if (problem->layout == TCONV_NHWC)
        return channels_of(problem);
    if (problem->dst.w != 1 || columns->dilation != 1)
        return 1;
    while ((columns->stride | columns->pad | columns->kernel | columns->out) % vector != 0 ||
           !tconv_rows_begin_at_multiples(&problem->dst, vector))
        vector /= 2;
    return vector;
}

/* Returns whether the coordinates along an axis fit in 32 bits. */
static bool is_small(const tconv_axis *wide)
{
    return wide->in < MAX_EXTENT && wide->out < MAX_EXTENT && wide->pad < MAX_EXTENT && wide->stride < MAX_EXTENT &&
           wide->dilation < MAX_EXTENT / SEGMENT && (wide->in - 1 + ROWS) * wide->stride < MAX_EXTENT;
}

/* Returns the reason why the layer is not taken, NULL where it is. */
static const char *refusal(const tconv_problem *problem)
{
    if (problem->group_in != 1)
        return "more than one input channel per group";
    if (problem->w.kernel > SEGMENT || problem->h.kernel > SEGMENT || problem->group_out > SEGMENT ||
        problem->h.kernel * problem->group_out > SEGMENT)
        return "more than 16 taps in a row, or 16 rows and output channels";
    if (!is_small(&problem->h) || !is_small(&problem->w))
        return "an extent too large for 32-bit coordinates";
    if (items_of(problem, 1, 1) >= INT32_MAX || problem->out_channels >= INT32_MAX)
        return "too many elements for 32-bit numbers";
    return NULL;
}

/* Returns the time of a load by lanes that are so many elements apart, for the lines of the cache that it touches. */
static double load_times(const tconv_problem *problem, double elements)
{
    const double lines = elements * (double)problem->element_size / 4;
    return CACHE_LOADS + LINE_LOADS * ((lines < 1 ? 1 : lines > WARP ? WARP : lines) - 1);
}

/* Returns the loads of a thread, of outputs and weights. */
static double tap_loads(const tconv_problem *problem)
{
    const double terms = (double)(problem->h.kernel * problem->w.kernel * problem->group_out);
    if (problem->layout == TCONV_NHWC)
        return terms * (ROWS * load_times(problem, (double)vector_of(problem)) + CACHE_LOADS) * PIXEL_TIMES;
    return terms * (ROWS / (double)vector_of(problem) * load_times(problem, (double)problem->w.stride) + CACHE_LOADS);
}

/* Returns the loads of a thread that loads spans, vector by vector. */
static double span_loads(const tconv_problem *problem)
{
    const int64_t vectors = tconv_ceil_div(before_span(problem) + problem->w.stride * (COLUMNS - 1) + SPAN_TAPS,
                                           span_vector(problem->element_size));
    const double spans =
        (double)(problem->h.kernel * problem->group_out * tconv_ceil_div(problem->w.kernel, SPAN_TAPS));
    return spans * ((double)(ROWS * vectors) * load_times(problem, (double)(problem->w.stride * COLUMNS)) +
                    SPAN_TAPS * CACHE_LOADS);
}

/* A K-block is what a block of threads sums at once; a multiprocessor's share of all elements is one tile. */
static tconv_cuda_work work_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const double element = (double)problem->element_size;
    const double terms = (double)(problem->h.kernel * problem->w.kernel * problem->group_out);
    const int64_t columns = columns_of(layer), channels = channels_of(problem);
    const double elements = (double)(THREADS * ROWS * columns * channels);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks =
        items_of(problem, columns, channels) / THREADS / tconv_cuda_target_of(&layer->target).multiprocessors;
    work.k_blocks = work.k_blocks < 1 ? 1 : work.k_blocks;
    work.ffma = elements * terms * (problem->dtype == TCONV_F64 ? 2 : 1);
    work.loads = WARPS * (columns > 1 ? span_loads(problem) : tap_loads(problem));
    work.stores = elements / WARP * work.k_blocks;
    work.store_warps = WARPS;
    work.sectors = elements * element / SECTOR_BYTES * work.k_blocks;
    work.overlaps = true;
    return work;
}

/* Describes the launch of threads of so many columns. */
static launch_grid describe_items(const tconv_problem *problem, int columns, int vector, parameters *params)
{
    const int64_t channels = problem->layout == TCONV_NHWC ? vector : 1;
    params->items = (int)items_of(problem, columns, channels);
    params->column_count = divisor_of((int)tconv_ceil_div(problem->w.in, columns));
    params->channels = divisor_of((int)(problem->in_channels / channels));
    return (launch_grid){.kernel = columns > 1
                                       ? tconv_depthwise_spans_kernel(problem->dtype, problem->w.stride == 1 ? 1 : 2,
                                                                      (int)before_span(problem))
                                       : tconv_depthwise_data_kernel(problem->dtype, problem->layout, vector),
                         .blocks = tconv_min(tconv_ceil_div(params->items, THREADS), MAX_BLOCKS),
                         .threads = THREADS};
}

static void describe_layer(const tconv_layer *layer, layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    params->dst_strides = problem->dst;
    params->src_strides = problem->src;
    params->weight_in = problem->group_out;
    params->weight_out = 1;
    params->weight_row = problem->w.kernel * problem->out_channels;
    params->weight_column = problem->out_channels;
    params->rows = narrow_axis(&problem->h);
    params->columns = narrow_axis(&problem->w);
    params->group_out = (int)problem->group_out;
    plan->vector = (int)vector_of(problem);
    plan->columns = (int)columns_of(layer);
    params->row_groups = divisor_of((int)tconv_ceil_div(problem->h.in, ROWS));
    plan->grid = describe_items(problem, plan->columns, plan->vector, params);
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = refusal(problem);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    describe_layer(layer, memory);
    planned->sizes = tconv_depthwise_packed_sizes(problem, problem->layout == TCONV_NCHW);
    const tconv_cuda_work work = work_of(layer);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const layer_plan *plan = memory;
    const tconv_problem *problem = &layer->problem;
    const tconv_weight_strides *weight = &problem->weight;
    parameters params = plan->params;
    launch_grid grid = plan->grid;
    const size_t element = problem->element_size;
    const size_t vector = plan->columns > 1 ? (size_t)span_vector(element) : (size_t)plan->vector;
    /* NHWC stores vectors too. */
    const uintptr_t stored = problem->layout == TCONV_NHWC ? (uintptr_t)arguments->src : 0;
    if (((uintptr_t)arguments->dst | stored) % (vector * element) != 0)
        grid = describe_items(problem, 1, 1, &params);
    params.stores_vectors =
        problem->src.w == 1 && problem->w.in % COLUMNS == 0 && tconv_rows_begin_at_multiples(&problem->src, COLUMNS) &&
        (uintptr_t)arguments->src % (COLUMNS * element < VECTOR_BYTES ? COLUMNS * element : VECTOR_BYTES) == 0;
    params.dst = arguments->dst;
    params.src = arguments->src;
    params.weights = arguments->packed;
    if (arguments->weights != NULL) { /* NCHW: they are read where they lie */
        params.weights = arguments->weights;
        params.weight_in = weight->in;
        params.weight_out = weight->out;
        params.weight_row = weight->h;
        params.weight_column = weight->w;
    }
    grid.overlaps = arguments->packs && arguments->weights == NULL &&
                    tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    void *kernel_arguments[] = {&params};
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue), issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const layer_plan *plan = memory;
    snprintf(text, capacity, "rows=%d columns=%d vector=%d blocks=%lld weights=%s", ROWS, plan->columns, plan->vector,
             (long long)plan->grid.blocks, layer->problem.layout == TCONV_NCHW ? "as_they_lie" : "packed");
}

const tconv_implementation tconv_cuda_depthwise_data = {.name = "cuda_depthwise",
                                                        .backend = TCONV_BACKEND_CUDA,
                                                        .dtypes = TCONV_DTYPES_TO_F64,
                                                        .plan_bytes = sizeof(layer_plan),
                                                        .plan = plan_layer,
                                                        .pack = tconv_depthwise_pack,
                                                        .execute = execute,
                                                        .describe = describe};
