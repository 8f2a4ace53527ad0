/*
 * cuda_depthwise: the gradient of src of layers with one input channel a group, every dtype and either layout, straight
 * from global memory. An element of it has few terms, and the time is that of reading the gradient of dst once.
 *
 * A thread sums ROWS elements down a column, so that it loads each weight once for all of them. Neighbouring threads have
 * neighbouring columns in NCHW and neighbouring channels in NHWC; what taps share comes from the first-level cache. In
 * NCHW with an even stride a load brings the outputs of two or four taps; or, with strides up to MAX_SPAN_STRIDE, a thread
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
#include "../general/fill.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.cuh"
#include "spans.cuh"

#include <cstdio>

namespace tconv::depthwise
{

namespace
{

constexpr int MAX_VECTOR = 4;   /* outputs that are loaded at once */
constexpr int64_t SEGMENT = 16; /* terms: n round to within n / 2 units of the sum of their magnitudes */
constexpr int64_t MAX_EXTENT = (int64_t)1 << 28; /* of coordinates, so that sums of a few fit in 32 bits */
constexpr int64_t MAX_BLOCKS = (int64_t)1 << 20; /* more threads' work is done by the same */
constexpr double CACHE_LOADS = 1.6; /* as cuda_depthwise's: from the first-level cache, with their indices */
constexpr double LINE_LOADS = 0.18; /* that a load is for each more line of the cache that it touches */
constexpr double PIXEL_TIMES = 1.4; /* that loads take longer in NHWC */

struct plan {
    depthwise::parameters parameters; /* without addresses, and weights as packed */
    int vector;                       /* outputs that are loaded at once, where dst lies so */
    int columns;                      /* of a thread: COLUMNS where it loads spans, where dst lies so, else 1 */
    launch_grid grid;
};

/* vector: outputs of a row that are loaded at once; inside of dst are all of them, or none. */
template <class Element, bool channels_last, int vector>
__global__ void __launch_bounds__(THREADS) correlate(const __grid_constant__ parameters of)
{
    using Compute = compute_type<Element>;
    wait_for_weights();
    for (int64_t item = blockIdx.x * (int64_t)THREADS + threadIdx.x; item < of.items;
         item += gridDim.x * (int64_t)THREADS) {
        const place at = find<channels_last>(of, (int)item);
        const Element *weights = static_cast<const Element *>(of.weights) + at.channel * of.weight_in;
        const Element *dst = static_cast<const Element *>(of.dst) + at.image * of.dst_strides.n +
                             (int64_t)at.channel * of.group_out * of.dst_strides.c;
        const int x0 = of.columns.stride * at.column - of.columns.pad;
        Compute sums[ROWS] = {};
        for (int kernel_row = 0; kernel_row < of.rows.kernel; kernel_row++) {
            const Element *lines[ROWS];
            bool there[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int y = of.rows.stride * (at.row + r) + of.rows.dilation * kernel_row - of.rows.pad;
                there[r] = (unsigned)y < (unsigned)of.rows.out;
                lines[r] = dst + (there[r] ? y : 0) * of.dst_strides.h;
            }
            for (int o = 0; o < of.group_out; o++) {
                Compute parts[ROWS] = {};
#pragma unroll(MAX_VECTOR / vector)
                for (int k = 0; k < of.columns.kernel; k += vector) {
                    const int x = x0 + of.columns.dilation * k;
                    const bool inside = (unsigned)x < (unsigned)of.columns.out;
                    const int64_t from = (inside ? x : 0) * of.dst_strides.w + o * of.dst_strides.c;
                    Compute weight[vector];
#pragma unroll
                    for (int i = 0; i < vector; i++)
                        weight[i] = to_compute(
                            weights[o * of.weight_out + kernel_row * of.weight_row + (k + i) * of.weight_column]);
                    element_vector<Element, vector> values[ROWS];
#pragma unroll
                    for (int r = 0; r < ROWS; r++)
                        values[r] = *reinterpret_cast<const element_vector<Element, vector> *>(lines[r] + from);
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        Compute sum = parts[r];
#pragma unroll
                        for (int i = 0; i < vector; i++)
                            sum = fma(to_compute(values[r].at[i]), weight[i], sum);
                        parts[r] = inside && there[r] ? sum : parts[r];
                    }
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    sums[r] += parts[r];
            }
        }
        Element *src = static_cast<Element *>(of.src) + at.image * of.src_strides.n + at.channel * of.src_strides.c +
                       at.row * of.src_strides.h + at.column * of.src_strides.w;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (at.row + r < of.rows.in)
                src[r * of.src_strides.h] = from_compute<Element>(sums[r]);
    }
}

const void *kernel_of(const tconv_problem *problem, int vector)
{
    return with_element(problem->dtype, [&](auto element) {
        using Element = decltype(element);
        constexpr int MOST = sizeof(Element) == 8 ? 2 : MAX_VECTOR;
        return problem->layout == TCONV_NHWC ? (const void *)correlate<Element, true, 1>
               : vector > 2                  ? (const void *)correlate<Element, false, MOST>
               : vector > 1                  ? (const void *)correlate<Element, false, 2>
                                             : (const void *)correlate<Element, false, 1>;
    });
}

/* SPAN_VECTOR of the layer. */
int64_t span_vector(const tconv_problem *problem)
{
    return problem->element_size == 8 ? 2 : 4;
}

/* The outputs between where a vector begins, and the first tap of a thread's first column. */
int64_t before_span(const tconv_problem *problem)
{
    const int64_t vector = span_vector(problem);
    return (vector - problem->w.pad % vector) % vector;
}

template <class Element, int stride> const void *spans_kernel_of(int64_t before)
{
    static_assert(COLUMNS % 4 == 0, "spans of all threads begin alike");
    if constexpr (SPAN_VECTOR<Element> == 2)
        return before == 0 ? (const void *)correlate_spans<Element, stride, 0>
                           : (const void *)correlate_spans<Element, stride, 1>;
    else
        return before == 0   ? (const void *)correlate_spans<Element, stride, 0>
               : before == 1 ? (const void *)correlate_spans<Element, stride, 1>
               : before == 2 ? (const void *)correlate_spans<Element, stride, 2>
                             : (const void *)correlate_spans<Element, stride, 3>;
}

const void *spans_kernel_of(const tconv_problem *problem)
{
    return with_element(problem->dtype, [&](auto element) {
        using Element = decltype(element);
        return problem->w.stride == 1 ? spans_kernel_of<Element, 1>(before_span(problem))
                                      : spans_kernel_of<Element, 2>(before_span(problem));
    });
}

axis axis_of(const tconv_axis *axis)
{
    return {(int)axis->in, (int)axis->out, (int)axis->kernel, (int)axis->stride, (int)axis->dilation, (int)axis->pad};
}

double items_of(const tconv_problem *problem, int64_t columns)
{
    return (double)problem->batch * (double)problem->in_channels * (double)tconv_ceil_div(problem->h.in, ROWS) *
           (double)tconv_ceil_div(problem->w.in, columns);
}

/* The columns of a thread: COLUMNS where rows are vectors, and threads are enough. */
int64_t columns_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = span_vector(problem);
    const double fewest = (double)THREADS * tconv_max(layer->target.multiprocessors, 1);
    return problem->layout == TCONV_NCHW && problem->dst.w == 1 && problem->w.dilation == 1 &&
                   problem->w.stride <= MAX_SPAN_STRIDE && problem->w.out % vector == 0 &&
                   tconv_rows_begin_at_multiples(&problem->dst, vector) && items_of(problem, COLUMNS) >= fewest
               ? COLUMNS
               : 1;
}

/* The outputs that are loaded at once: neighbouring taps of NCHW, which are aligned alike for every input and are in dst all
 * or none. */
int64_t vector_of(const tconv_problem *problem)
{
    const tconv_axis *columns = &problem->w;
    int64_t vector = tconv_min(MAX_VECTOR, 16 / (int64_t)problem->element_size);
    if (problem->layout != TCONV_NCHW || problem->dst.w != 1 || columns->dilation != 1)
        return 1;
    while ((columns->stride | columns->pad | columns->kernel | columns->out) % vector != 0 ||
           !tconv_rows_begin_at_multiples(&problem->dst, vector))
        vector /= 2;
    return vector;
}

const char *refusal(const tconv_problem *problem)
{
    if (problem->group_in != 1)
        return "more than one input channel per group";
    if (problem->w.kernel > SEGMENT || problem->h.kernel > SEGMENT || problem->group_out > SEGMENT ||
        problem->h.kernel * problem->group_out > SEGMENT)
        return "more than 16 taps in a row, or 16 rows and output channels";
    for (const tconv_axis *axis : {&problem->h, &problem->w})
        if (axis->in >= MAX_EXTENT || axis->out >= MAX_EXTENT || axis->pad >= MAX_EXTENT ||
            axis->stride >= MAX_EXTENT || axis->dilation >= MAX_EXTENT / SEGMENT ||
            (axis->in - 1 + ROWS) * axis->stride >= MAX_EXTENT)
            return "an extent too large for 32-bit coordinates";
    if (items_of(problem, 1) >= INT32_MAX || problem->out_channels >= INT32_MAX)
        return "too many elements for 32-bit numbers";
    return NULL;
}

/* What a load takes that lanes have so many elements apart, for the lines of the cache that it touches. */
double load_times(const tconv_problem *problem, double elements)
{
    const double lines = elements * (double)problem->element_size / 4;
    return CACHE_LOADS + LINE_LOADS * ((lines < 1 ? 1 : lines > WARP ? WARP : lines) - 1);
}

/* The loads of a thread, of outputs and weights. */
double tap_loads(const tconv_problem *problem)
{
    const bool nhwc = problem->layout == TCONV_NHWC;
    const double terms = (double)(problem->h.kernel * problem->w.kernel * problem->group_out);
    return terms *
           (ROWS / (double)vector_of(problem) * load_times(problem, nhwc ? 1 : (double)problem->w.stride) +
            CACHE_LOADS) *
           (nhwc ? PIXEL_TIMES : 1);
}

/* Of spans, vector by vector. */
double span_loads(const tconv_problem *problem)
{
    const int64_t vectors =
        tconv_ceil_div(before_span(problem) + problem->w.stride * (COLUMNS - 1) + SPAN_TAPS, span_vector(problem));
    const double spans =
        (double)(problem->h.kernel * problem->group_out * tconv_ceil_div(problem->w.kernel, SPAN_TAPS));
    return spans * ((double)(ROWS * vectors) * load_times(problem, (double)(problem->w.stride * COLUMNS)) +
                    SPAN_TAPS * CACHE_LOADS);
}

/* A K-block is what a block of threads sums at once; a multiprocessor's share of all elements is one tile. */
tconv_cuda_work work_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const double element = (double)problem->element_size;
    const double terms = (double)(problem->h.kernel * problem->w.kernel * problem->group_out);
    const int64_t columns = columns_of(layer);
    const double elements = (double)(THREADS * ROWS * columns);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks = items_of(problem, columns) / THREADS / layer->target.multiprocessors;
    work.k_blocks = work.k_blocks < 1 ? 1 : work.k_blocks;
    work.ffma = elements * terms * (problem->dtype == TCONV_F64 ? 2 : 1);
    work.loads = THREADS / WARP * (columns > 1 ? span_loads(problem) : tap_loads(problem));
    work.stores = elements / WARP * work.k_blocks;
    work.store_warps = THREADS / WARP;
    work.sectors = elements * element / SECTOR_BYTES * work.k_blocks;
    work.overlaps = true;
    return work;
}

/* Describes the launch of threads of so many columns. */
launch_grid describe_items(const tconv_problem *problem, int columns, int vector, parameters *of)
{
    of->items = (int)items_of(problem, columns);
    of->column_count = divisor_of((int)tconv_ceil_div(problem->w.in, columns));
    return {columns > 1 ? spans_kernel_of(problem) : kernel_of(problem, vector),
            tconv_min(tconv_ceil_div(of->items, THREADS), MAX_BLOCKS), THREADS, 0, false};
}

void describe_layer(const tconv_layer *layer, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    parameters *of = &made->parameters;
    of->dst_strides = problem->dst;
    of->src_strides = problem->src;
    of->weight_in = problem->group_out;
    of->weight_out = 1;
    of->weight_row = problem->w.kernel * problem->out_channels;
    of->weight_column = problem->out_channels;
    of->rows = axis_of(&problem->h);
    of->columns = axis_of(&problem->w);
    of->group_out = (int)problem->group_out;
    made->vector = (int)vector_of(problem);
    made->columns = (int)columns_of(layer);
    of->row_groups = divisor_of((int)tconv_ceil_div(problem->h.in, ROWS));
    of->channels = divisor_of((int)problem->in_channels);
    made->grid = describe_items(problem, made->columns, made->vector, of);
}

tconv_status plan_layer(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = refusal(problem);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    describe_layer(layer, static_cast<plan *>(to));
    planned->sizes.packed =
        (size_t)(problem->h.kernel * problem->w.kernel * problem->out_channels) * problem->element_size;
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = problem->layout == TCONV_NCHW;
    const tconv_cuda_work work = work_of(layer);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    return on_device(layer->target.device, issue, [&] {
        return general::pack_weights(&layer->problem, layer->problem.group_out, weights, packed, stream, issue);
    });
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const plan *made = static_cast<const plan *>(from);
    const tconv_problem *problem = &layer->problem;
    const tconv_weight_strides *weight = &problem->weight;
    parameters of = made->parameters;
    launch_grid grid = made->grid;
    const size_t element = problem->element_size;
    const size_t vector = made->columns > 1 ? (size_t)span_vector(problem) : (size_t)made->vector;
    if ((uintptr_t)arguments->dst % (vector * element) != 0)
        grid = describe_items(problem, 1, 1, &of);
    of.stores_vectors = problem->src.w == 1 && problem->w.in % COLUMNS == 0 &&
                        tconv_rows_begin_at_multiples(&problem->src, COLUMNS) &&
                        (uintptr_t)arguments->src % tconv_min(COLUMNS * element, VECTOR_BYTES) == 0;
    of.dst = arguments->dst;
    of.src = arguments->src;
    of.weights = arguments->packed;
    if (arguments->weights != NULL) { /* NCHW: they are read where they lie */
        of.weights = arguments->weights;
        of.weight_in = weight->in;
        of.weight_out = weight->out;
        of.weight_row = weight->h;
        of.weight_column = weight->w;
    }
    grid.overlaps = arguments->packs && arguments->weights == NULL &&
                    layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    void *kernel_arguments[] = {&of};
    return on_device(layer->target.device, issue,
                     [&] { return tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue); });
}

void describe(const tconv_layer *layer, const void *from, char *text, size_t capacity)
{
    const plan *made = static_cast<const plan *>(from);
    snprintf(text, capacity, "rows=%d columns=%d vector=%d blocks=%lld weights=%s", ROWS, made->columns, made->vector,
             (long long)made->grid.blocks, layer->problem.layout == TCONV_NCHW ? "as_they_lie" : "packed");
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_depthwise_data = {"cuda_depthwise",
                                                                   TCONV_BACKEND_CUDA,
                                                                   TCONV_DTYPES_TO_F64,
                                                                   sizeof(plan),
                                                                   plan_layer,
                                                                   pack,
                                                                   execute,
                                                                   describe,
                                                                   false,
                                                                   NULL};

} // namespace tconv::depthwise
