/*
 * The stencil algorithm on CUDA: layers with one input channel per group (depthwise, with or without a multiplier), which
 * are bound by bandwidth. All phases of a stretch of dst are computed together, from a tile of src in shared memory (NCHW,
 * stencil_planes.cu) or from the caches (NHWC, stencil_pixels.cu), so that dst is written in whole runs, bias-only outputs
 * included, and src is read about once. Any dtype, padding, slice and alignment; strides up to 16.
 *
 * Numeric order: see the two kernels; it depends on the layer and on the alignment of dst alone.
 */
#include "stencil.h"

#include <cstdio>
#include <cuda_runtime_api.h>

#include "../core/checked.h"
#include "../core/status.h"
#include "guard.h"
#include "phases_kernels.h"
#include "stencil_kernels.h"

namespace
{

constexpr int64_t NARROW = (int64_t)1 << 28; /* coordinates below this, and sums of a few, are 32-bit ones */
constexpr int64_t ACCESS = 16;               /* bytes that a thread loads or stores at once */
constexpr int64_t MAX_SHARED = 48 * 1024;    /* what a kernel may have without asking */
constexpr int64_t MAX_KERNEL = 512;          /* taps that are summed one by one; more would err by too many roundings */
constexpr int64_t MAX_TAPS = TCONV_CUDA_STENCIL_MAX_TAPS;

constexpr int MIN_LANES_LOG2 = 3, MAX_LANES_LOG2 = 7; /* threads along a row: at least one store of 128 bytes */
constexpr int64_t THREAD_ROWS = 16;                   /* of a thread: enough that setting up is small beside them */
constexpr int64_t MIN_TILE_ROWS = 4;                  /* quotients, so that the halo is not most of the tile */

/* Smaller planes leave most threads of a block without work, and those of cuda_phases take pixels of many images. */
constexpr int64_t MIN_PLANE = 64;

bool fits_axis(const tconv_axis *axis)
{
    return axis->in < NARROW && axis->out < NARROW && axis->stride <= TCONV_CUDA_STENCIL_MAX_STRIDE &&
           (axis->kernel - 1) * axis->dilation + axis->pad < NARROW;
}

/* Of a layer whose axes fit. */
tconv_cuda_stencil_axis axis_of(const tconv_axis *axis, const tconv_phase_table *table)
{
    tconv_cuda_stencil_axis made;
    made.in = (int)axis->in;
    made.out = (int)axis->out;
    made.kernel = (int)axis->kernel;
    made.stride = (int)axis->stride;
    made.pad = (int)axis->pad;
    made.kernel_step = (int)table->kernel_step;
    made.shift_step = (int)table->shift_step;
    made.min_shift = (int)table->min_shift;
    made.reach = (int)(table->max_shift - table->min_shift);
    for (int residue = 0; residue < TCONV_CUDA_STENCIL_MAX_STRIDE; residue++) {
        made.taps[residue] = made.first_kernel[residue] = 0;
        made.first_shift[residue] = made.min_shift;
    }
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        made.taps[phase->residue] = (int)phase->taps;
        made.first_kernel[phase->residue] = (int)phase->first_kernel;
        made.first_shift[phase->residue] = (int)phase->first_shift;
    }
    return made;
}

int log2_at_least(int64_t value, int least, int most)
{
    int found = least;
    while (found < most && (int64_t)1 << found < value)
        found++;
    return found;
}

/* The tile of a plane; shared_bytes says whether it fits. */
tconv_cuda_stencil_tile tile_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const int64_t reach = layer->columns.max_shift - layer->columns.min_shift;
    tconv_cuda_stencil_tile made;
    made.lanes_log2 = log2_at_least(tconv_ceil_div(problem->w.out, length), MIN_LANES_LOG2, MAX_LANES_LOG2);
    const int64_t tile_columns = length << made.lanes_log2;
    const int64_t lines = TCONV_CUDA_STENCIL_THREADS >> made.lanes_log2; /* threads along a column */
    const int64_t quotients = tconv_ceil_div(problem->h.out, problem->h.stride);
    const int64_t rows =
        tconv_min(tconv_max(tconv_ceil_div(THREAD_ROWS * lines, problem->h.stride), MIN_TILE_ROWS), quotients);
    made.row_tiles = (int)tconv_ceil_div(quotients, rows);
    made.rows = (int)tconv_ceil_div(quotients, made.row_tiles);
    made.parts = (int)tconv_min(tconv_ceil_div(lines, problem->h.stride), made.rows);
    made.part_rows = (int)tconv_ceil_div(made.rows, made.parts);
    made.column_tiles = (int)tconv_ceil_div(problem->w.out, tile_columns);

    /* Quotients of the tile's columns, the halo, and up to an access less one before them. */
    const int64_t src_columns = (tile_columns - 1) / problem->w.stride + 2 + reach + length - 1;
    made.chunks = (int)tconv_ceil_div(src_columns, length);
    made.pitch = (int)((made.chunks + 1) * length);
    made.load_rows = made.rows + (int)(layer->rows.max_shift - layer->rows.min_shift);
    made.load_lanes_log2 = log2_at_least(made.chunks, 0, 5);
    made.src_aligned = false;
    const int64_t compute_size = problem->dtype == TCONV_F64 ? 8 : 4;
    made.shared_bytes = (size_t)((int64_t)made.load_rows * made.pitch * (int64_t)problem->element_size +
                                 (problem->h.kernel * problem->w.kernel + 1) * compute_size);
    return made;
}

/* Whether addresses and strides of runs along memory are all multiples of an access. */
bool is_aligned(const void *base, const tconv_strides *strides, bool planes, size_t element_size)
{
    const int64_t length = ACCESS / (int64_t)element_size;
    return (uintptr_t)base % ACCESS == 0 && strides->n % length == 0 && strides->h % length == 0 &&
           (planes ? strides->c : strides->w) % length == 0;
}

/* Which way of finding columns the layer allows, for `vectors` as tconv_cuda_stencil_planes has it. */
int columns_of(const tconv_layer *layer, int taps, bool vectors)
{
    const tconv_axis *w = &layer->problem.w;
    if (taps > MAX_TAPS || (taps > 1 && layer->rows.max_taps > 1 && layer->rows.shift_step != 1))
        return TCONV_CUDA_STENCIL_LOOP;
    if (vectors && w->dilation == 1 && w->kernel == taps * w->stride) {
        const int window = w->stride == 1  ? TCONV_CUDA_STENCIL_WINDOW_1
                           : w->stride > 2 ? TCONV_CUDA_STENCIL_TABLE
                           : w->pad % 2    ? TCONV_CUDA_STENCIL_WINDOW_2_ODD
                                           : TCONV_CUDA_STENCIL_WINDOW_2_EVEN;
        if (tconv_cuda_stencil_planes(layer->problem.dtype, window, taps, vectors) != NULL)
            return window;
    }
    return TCONV_CUDA_STENCIL_TABLE;
}

int taps_of(const tconv_layer *layer)
{
    return (int)tconv_max(tconv_max(layer->rows.max_taps, layer->columns.max_taps), 1);
}

/* Threads of the NHWC kernel, channels one by one where `vectors` is false. */
int64_t pixels_work(const tconv_problem *problem, bool vectors, int64_t *row_work, int64_t *runs)
{
    const int64_t length = vectors ? ACCESS / (int64_t)problem->element_size : 1;
    *row_work = problem->out_channels / length * problem->w.stride;
    *runs = tconv_ceil_div(tconv_ceil_div(problem->w.out, problem->w.stride), TCONV_CUDA_STENCIL_PIXELS_RUN);
    return *row_work * problem->h.out * *runs * problem->batch;
}

const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    if (problem->group_in != 1)
        return "more than one input channel per group";
    if (problem->out_channels >= NARROW)
        return "too many channels for 32-bit numbers";
    if (!fits_axis(&problem->h) || !fits_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (problem->h.kernel * problem->w.kernel > MAX_KERNEL)
        return "more than 512 taps";
    if (problem->h.out * problem->w.out < MIN_PLANE)
        return "fewer than 64 outputs in a plane";
    /* Planes hold at least MIN_PLANE outputs, and a tile of one at least a quarter of that on average. */
    int64_t row_work, runs;
    if (problem->dst_extent / (MIN_PLANE / 4) >= INT32_MAX ||
        pixels_work(problem, false, &row_work, &runs) >= UINT32_MAX - TCONV_CUDA_STENCIL_THREADS)
        return "too many outputs for 32-bit numbers of tiles";
    if (problem->layout == TCONV_NHWC)
        return taps_of(layer) > MAX_TAPS || (layer->columns.max_taps > 1 && layer->columns.shift_step != 1)
                   ? "NHWC with more than 3 taps along an axis, or with taps apart"
                   : NULL;
    const tconv_cuda_stencil_tile tile = tile_of(layer);
    return tile.shared_bytes > (size_t)MAX_SHARED ? "dilation or kernel too large for a tile in shared memory" : NULL;
}

bool stencil_supports(const tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    const char *why = refusal(layer);
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    return why == NULL;
}

tconv_status stencil_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    (void)issue;
    sizes->packed = (size_t)(problem->h.kernel * problem->w.kernel * problem->out_channels) * problem->element_size;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status stencil_pack(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    tconv_cuda_guard guard;
    tconv_status status = tconv_cuda_enter(&guard, layer->target.device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_cuda_pack_weights(&layer->problem, layer->problem.group_out, weights, packed, stream, issue);
    tconv_cuda_leave(&guard);
    return status;
}

tconv_cuda_stencil_parameters parameters_of(const tconv_layer *layer, const tconv_arguments *arguments)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cuda_stencil_parameters made = {};
    made.src = arguments->src;
    made.weights = arguments->packed;
    made.bias = arguments->bias;
    made.dst = arguments->dst;
    made.rows = axis_of(&problem->h, &layer->rows);
    made.columns = axis_of(&problem->w, &layer->columns);
    made.src_strides = problem->src;
    made.dst_strides = problem->dst;
    made.channels = (int)problem->out_channels;
    made.multiplier = (int)problem->group_out;
    return made;
}

struct launch {
    tconv_cuda_stencil_kernel kernel;
    int64_t blocks;
    size_t shared_bytes;
};

/* Completes the parameters for planes, and says what to launch. */
launch planes_launch(const tconv_layer *layer, tconv_cuda_stencil_parameters *parameters)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const bool vectors =
        problem->w.out % length == 0 && is_aligned(parameters->dst, &problem->dst, true, problem->element_size);
    const int taps = taps_of(layer), columns = columns_of(layer, taps, vectors);
    parameters->tile = tile_of(layer);
    parameters->tile.src_aligned =
        problem->w.in % length == 0 && is_aligned(parameters->src, &problem->src, true, problem->element_size);
    const int64_t blocks =
        problem->batch * problem->out_channels * parameters->tile.row_tiles * parameters->tile.column_tiles;
    return {tconv_cuda_stencil_planes(problem->dtype, columns, taps, vectors), blocks, parameters->tile.shared_bytes};
}

/* The same for pixels. */
launch pixels_launch(const tconv_layer *layer, tconv_cuda_stencil_parameters *parameters)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const bool vectors = problem->group_out == 1 && problem->out_channels % length == 0 &&
                         is_aligned(parameters->src, &problem->src, false, problem->element_size) &&
                         is_aligned(parameters->dst, &problem->dst, false, problem->element_size);
    int64_t row_work, runs;
    const int64_t work = pixels_work(problem, vectors, &row_work, &runs);
    parameters->work = (unsigned)work;
    parameters->row_work = (int)row_work;
    parameters->runs = (int)runs;
    return {tconv_cuda_stencil_pixels(problem->dtype, taps_of(layer), vectors),
            tconv_ceil_div(work, TCONV_CUDA_STENCIL_THREADS), 0};
}

tconv_status stencil_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_cuda_stencil_parameters parameters = parameters_of(layer, arguments);
    const launch launch =
        layer->problem.layout == TCONV_NHWC ? pixels_launch(layer, &parameters) : planes_launch(layer, &parameters);
    void *kernel_arguments[] = {&parameters};
    tconv_cuda_guard guard;
    tconv_status status = tconv_cuda_enter(&guard, layer->target.device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_cuda_check(cudaLaunchKernel((const void *)launch.kernel, dim3((unsigned)launch.blocks),
                                               dim3(TCONV_CUDA_STENCIL_THREADS), kernel_arguments, launch.shared_bytes,
                                               (cudaStream_t)arguments->stream),
                              "cudaLaunchKernel", issue);
    tconv_cuda_leave(&guard);
    return status;
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_stencil = {"cuda_stencil", TCONV_BACKEND_CUDA, stencil_supports,
                                                            stencil_memory, stencil_pack,       stencil_execute};
