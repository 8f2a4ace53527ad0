/* The plan of Hopper's kernels: config, column buffers, the way of gathering, and the tensor map of src. */
#include "../../core/checked.h"
#include "../model/planned.h"
#include "plan.h"

namespace tconv::col2im::row_sums
{

namespace
{

constexpr int64_t MAX_IDLE_SHARE = 4; /* of a block's images, at most one in so many may be missing in the last block */

/* Bytes of shared memory for the pipeline stages that TMA fills, and their barriers. */
constexpr int64_t TMA_BYTES = TMA_STAGES * TMA_STAGE_BYTES + TMA_BARRIER_BYTES;

/* Blocks for all images, of as many as their rows leave room for. */
int64_t image_blocks(const tconv_problem *problem, const parameters *begun)
{
    return tconv_ceil_div(problem->batch, BLOCK_M >> begun->row_pixels_log2);
}

/* N of a kernel row. */
int64_t row_n_of(const tconv_problem *problem)
{
    return problem->group_out * problem->w.kernel;
}

/* Bytes of a group's packed weights. */
int64_t weight_bytes_of(const tconv_layer *layer, int config)
{
    return steps_of(&layer->problem) * configs[config].n_tiles * TILE_N * MMA_K_BYTES *
           (model::is_strict(layer) ? 2 : 1);
}

/* Chooses to gather outputs by runs of columns, but not where these are apart in dst, and those of other threads
 * between them. */
int gather_of(const tconv_layer *layer, int config)
{
    const tconv_axis *w = &layer->problem.w;
    const int taps = (int)tconv_max(layer->columns.max_taps, MIN_TAPS);
    const bool together = layer->problem.dst.w == 1 || w->stride == 1;
    const bool unrolled = w->dilation == 1 && w->kernel >= w->stride && w->stride <= MAX_RUN && taps <= MAX_TAPS &&
                          (compiled_runs.of_config[config] >> by_runs((int)w->stride, taps) & 1);
    return together && unrolled ? by_runs((int)w->stride, taps) : by_columns((int)tconv_min(taps, MAX_TAPS));
}

bool gathers_runs(const tconv_layer *layer, int config)
{
    return gather_of(layer, config) >= FIRST_RUNS;
}

/* Bytes of shared memory of a block whose pipeline stages take stage_bytes. */
int64_t shared_bytes_of(const tconv_layer *layer, int config, int64_t stage_bytes, int buffers, const parameters *made)
{
    const int64_t column_buffers = (int64_t)buffers * configs[config].band_tiles * TILE_N * PITCH + GUARD;
    const int64_t columns = gathers_runs(layer, config) ? 0 : made->sum_columns + made->sum_columns % 2;
    const int64_t outputs = layer->problem.h.stride * layer->problem.group_out;
    return stage_bytes + weight_bytes_of(layer, config) + column_buffers * (int64_t)sizeof(float) +
           outputs * OUTPUT_BYTES + columns * COLUMN_BYTES;
}

/* Bytes of shared memory for the pipeline stages that cp.async fills. */
int64_t cp_async_bytes(const tconv_layer *layer)
{
    return (int64_t)WARPS * STAGE_BYTES * cp_async_stages(model::is_strict(layer), layer->problem.element_size);
}

/* Blocks on a multiprocessor, as shared memory and the registers of the accumulators allow. */
int64_t resident_of(const tconv_layer *layer, int config, int64_t shared_bytes)
{
    return tconv_min((layer->target.shared_bytes + RESERVED) / (shared_bytes + RESERVED),
                     model::is_strict(layer) ? configs[config].strict_blocks : configs[config].blocks);
}

/* Two column buffers save a barrier for each row; there is one where two would cost a block. */
int buffers_of(const tconv_layer *layer, int config, int64_t stage_bytes, const parameters *made)
{
    return resident_of(layer, config, shared_bytes_of(layer, config, stage_bytes, 2, made)) <
                   resident_of(layer, config, shared_bytes_of(layer, config, stage_bytes, 1, made))
               ? 1
               : 2;
}

/* Additions that follow one another in an output's sum in strict f32: K-blocks of all its rows, then column taps. */
int64_t additions_of(const tconv_layer *layer)
{
    return tconv_ceil_div(steps_of(&layer->problem), K_STEPS) * layer->rows.max_taps + layer->columns.max_taps;
}

/* Says whether a run of `stride` columns from a multiple of it on is a vector of dst, if dst begins at a multiple of
 * such vectors. */
bool has_dst_runs(const tconv_problem *problem)
{
    const int64_t run = problem->w.stride;
    return (run & (run - 1)) == 0 && problem->dst.w == 1 && tconv_rows_begin_at_multiples(&problem->dst, run);
}

/* Finds the partials of a run of `stride` columns, of which the first is at a multiple of it in dst. */
void find_run(const tconv_problem *problem, int64_t taps, parameters *made)
{
    const int64_t stride = problem->w.stride;
    made->run_ends = 0;
    for (int64_t j = 0; j < stride; j++) {
        const int64_t ahead = problem->w.pad % stride + j, residue = ahead % stride;
        made->run_taps[j] = (int)(residue * PITCH + ahead / stride);
        made->run_ends |= (residue + (taps - 1) * stride < problem->w.kernel ? 1u : 0u) << j;
    }
}

/* The config for a layer that refusal lets pass; MMA_KERNEL where there is none. */
int choose_config(const tconv_layer *layer, const parameters *begun)
{
    const tconv_problem *problem = &layer->problem;
    if (!layer->target.has_sm90a || problem->h.dilation != 1 || problem->h.kernel < problem->h.stride)
        return MMA_KERNEL;
    if (model::is_strict(layer) && additions_of(layer) > MAX_ADDITIONS)
        return MMA_KERNEL;
    const int64_t places = image_blocks(problem, begun) * (BLOCK_M >> begun->row_pixels_log2);
    if ((places - problem->batch) * MAX_IDLE_SHARE > places)
        return MMA_KERNEL;
    const int config = config_of(problem->h.kernel, problem->h.stride, row_n_of(problem));
    return config < CONFIGS &&
                   shared_bytes_of(layer, config, cp_async_bytes(layer), 1, begun) <= layer->target.shared_bytes
               ? config
               : MMA_KERNEL;
}

/* Plans a launch whose pipeline stages take stage_bytes; begun: what the parameters of both launches share. */
void plan_launch(const tconv_layer *layer, const plan *made, int64_t stage_bytes, const parameters *begun,
                 planned_launch *launch)
{
    parameters *own = &launch->parameters;
    *own = *begun;
    own->buffers = buffers_of(layer, made->config, stage_bytes, own);
    launch->shared_bytes = shared_bytes_of(layer, made->config, stage_bytes, own->buffers, own);
    cut_rows(&layer->problem, &made->cut,
             layer->target.multiprocessors * resident_of(layer, made->config, launch->shared_bytes), own);
    launch->blocks = made->cut.others * own->strips;
}

/* Plans the launch with src by TMA, unless TMA cannot read src as it lies, or boxes would reach into the channels of
 * the next group or take too much memory. */
void plan_tma(const tconv_layer *layer, const parameters *begun, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    constexpr int64_t WIDTH = 128; /* bytes, the most that are swizzled */
    const int64_t element = (int64_t)problem->element_size;
    const int64_t channels = K_STEPS * MMA_K_BYTES / element;
    const int64_t pixels = tconv_min(WIDTH / element, (int64_t)1 << begun->row_pixels_log2);
    const tma_kernel_function kernel = tma_kernel(problem->dtype, layer->target.math == TCONV_MATH_TF32, made->config);
    if (kernel == NULL || problem->layout != TCONV_NCHW || problem->src.w != 1 ||
        (problem->groups > 1 && problem->group_in % channels != 0) ||
        shared_bytes_of(layer, made->config, TMA_BYTES, 1, begun) > layer->target.shared_bytes)
        return;
    /* Where there is but one row, the stride to the next is any number that TMA takes. */
    const int64_t row = problem->h.in > 1 ? problem->src.h : problem->src.c;
    made->src = {
        problem->dtype,
        pixels * element == WIDTH ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
        NULL,
        {(cuuint64_t)problem->w.in, (cuuint64_t)problem->h.in, (cuuint64_t)problem->in_channels,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)(row * element), (cuuint64_t)(problem->src.c * element), (cuuint64_t)(problem->src.n * element)},
        {(cuuint32_t)pixels, 1, (cuuint32_t)channels, 1},
        problem->dtype == TCONV_F32 && !model::is_strict(layer)};
    for (const cuuint64_t stride : made->src.strides)
        if (stride % BOX_ALIGNMENT != 0)
            return;
    made->by_tma.kernel = (const void *)kernel;
    made->by_tma.threads = (WARPS + 1) * 32;
    plan_launch(layer, made, TMA_BYTES, begun, &made->by_tma);
    made->by_tma.parameters.boxes = (int)(BLOCK_M / pixels);
}

} // namespace

bool plan_hopper(const tconv_layer *layer, const parameters *begun, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const int config = choose_config(layer, begun);
    if (config == MMA_KERNEL)
        return false;
    made->config = config;
    made->n_tiles = configs[config].n_tiles;
    /* Quotients beyond src are only stored: the last strip takes them too. */
    const int64_t quotients = tconv_min(problem->h.in - problem->h.pad / problem->h.stride, row_quotients(&problem->h));
    made->cut = {tconv_max(quotients, 1),
                 tconv_max(image_blocks(problem, begun) * problem->groups * begun->column_tiles, 1), 1};

    parameters shared = *begun;
    shared.k_blocks = (int)tconv_ceil_div(shared.steps, K_STEPS);
    shared.gather = gather_of(layer, config);
    shared.tap_step = shared.columns.kernel_step * PITCH - shared.columns.shift_step;
    shared.dst_runs = has_dst_runs(problem);
    if (shared.gather >= FIRST_RUNS)
        find_run(problem, run_taps_of(shared.gather), &shared);
    shared.gemm_n = (int)gemm_n_of(config, problem->h.kernel, problem->h.stride, row_n_of(problem));

    made->any_src.kernel =
        (const void *)cp_async_kernel(problem->dtype, layer->target.math == TCONV_MATH_TF32, problem->layout, config);
    made->any_src.threads = WARPS * 32;
    plan_launch(layer, made, cp_async_bytes(layer), &shared, &made->any_src);
    plan_tma(layer, &shared, made);
    return true;
}

int64_t packed_bytes(const tconv_layer *layer, int config)
{
    return layer->problem.groups * weight_bytes_of(layer, config);
}

} // namespace tconv::col2im::row_sums
