/* Plans a layer: whether a kernel takes it, the cut into tiles and strips that all kernels share, and what is each
 * kernel's own: its config, shared memory and way of gathering, and the tensor map of src. */
#include "plan.h"

#include "../../core/checked.h"
#include "../maps/small_axis.h"
#include "../model/planned.h"

#include <cmath>

namespace tconv::col2im
{

namespace
{

constexpr int64_t RESERVED = 1024; /* bytes of shared memory that each block takes beside its own (CUDA) */
constexpr int64_t MAX_WAVES = 8;   /* of blocks, that are tried: with more, the last one is a small part of all */
constexpr int64_t MIN_IN = 16; /* channels: fewer leave an MMA's K half empty and too little to do for each output */
constexpr int64_t MAX_OUT_BLOCKS = 4; /* of a group, each of which reads src: with more an ordinary GEMM is as good */
constexpr int64_t MAX_TAPS = 256;     /* no kernel has more N */

/* Fewer pixels of an image, or of a row, leave most of a block tile empty. */
constexpr int64_t MIN_PIXELS = 64;
constexpr int64_t MIN_COLUMNS = 8;

/* Additions of like terms may be off by a quarter of their number, so that strict f32 stays within the bound of 16 for
 * so many: of a sum's segments of channels, and of the partials of its taps. */
constexpr int64_t MAX_ADDITIONS = 48;

/* K steps of an MMA instruction along the channels of a group. */
int64_t steps_of(const tconv_problem *problem)
{
    return tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, MMA_K_BYTES);
}

/* Quotients of all output rows. */
int64_t row_quotients(const tconv_axis *h)
{
    return (h->pad + h->out - 1) / h->stride + 1 - h->pad / h->stride;
}

/* Fills in how columns are cut into tiles. Returns false where outputs reach back over nearly a whole tile. */
bool cut_columns(const tconv_problem *problem, parameters *made)
{
    const tconv_axis *w = &problem->w;
    const int64_t length = VECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t back = (w->kernel - 1) * w->dilation / w->stride;
    int log2 = 5;
    while (1 << log2 < BLOCK_M && 1 << log2 < w->in)
        log2++;
    const int64_t row_pixels = (int64_t)1 << log2, step = (row_pixels - back) / length * length;
    if (w->in > row_pixels && step < row_pixels / 2)
        return false;
    made->row_pixels_log2 = log2;
    made->column_back = (int)back;
    made->column_step = (int)(w->in <= row_pixels ? row_pixels : step);
    made->column_tiles = w->in <= row_pixels ? 1 : (int)(1 + tconv_ceil_div(w->in - row_pixels, step));
    /* A tile alone has all columns; others the outputs of at most a tile of columns, and what reaches beyond src. */
    made->sum_columns =
        (int)tconv_min(w->out, made->column_tiles == 1 ? w->out : (row_pixels + back + 2) * w->stride + w->dilation);
    return true;
}

/* Returns the reason why no kernel takes the layer, NULL where one may; fills in how columns are cut into tiles. */
const char *refusal(const tconv_layer *layer, parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    if (problem->group_in < MIN_IN)
        return "fewer than 16 input channels per group";
    if (!tconv_cuda_is_small_axis(&problem->h) || !tconv_cuda_is_small_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (problem->h.kernel * problem->w.kernel > MAX_TAPS)
        return "more than 256 taps";
    if (problem->h.in * problem->w.in < MIN_PIXELS || problem->w.in < MIN_COLUMNS)
        return "fewer than 64 pixels, or 8 columns";
    if (problem->w.in * problem->w.stride >= SMALL_AXIS_EXTENT)
        return "rows too long for 32-bit coordinates";
    if (problem->in_channels >= SMALL_AXIS_EXTENT || problem->out_channels >= SMALL_AXIS_EXTENT)
        return "too many channels for 32-bit numbers";
    if (!cut_columns(problem, made))
        return "columns of outputs reach back too far";
    return problem->batch * problem->groups >
                   INT32_MAX / MAX_OUT_BLOCKS / row_quotients(&problem->h) / made->column_tiles
               ? "too many images for 32-bit numbers of tiles"
               : NULL;
}

/* Fills in what the kernels' parameters share, beside how columns are cut. */
void begin(const tconv_layer *layer, parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const auto aligned = [&](int64_t bytes) {
        const int64_t length = bytes / (int64_t)problem->element_size;
        return problem->src.n % length == 0 && problem->src.h % length == 0 &&
               (nhwc ? problem->src.w : problem->src.c) % length == 0 &&
               (nhwc ? problem->group_in : problem->w.in) % length == 0;
    };
    made->rows = tconv_cuda_make_small_axis(&problem->h, &layer->rows);
    made->columns = tconv_cuda_make_small_axis(&problem->w, &layer->columns);
    made->src_strides = problem->src;
    made->dst_strides = problem->dst;
    made->group_in = (int)problem->group_in;
    made->group_out = (int)problem->group_out;
    made->groups = (int)problem->groups;
    made->block_out = made->group_out;
    made->out_blocks = 1;
    made->images = (int)problem->batch;
    made->steps = (int)steps_of(problem);
    made->src_aligned = aligned(VECTOR_BYTES);
    made->src_words = aligned(WORD_BYTES);
}

/* Blocks on a multiprocessor, as shared memory allows and registers, which are enough for `most`. */
int64_t resident_of(const tconv_layer *layer, int64_t shared_bytes, int most)
{
    return tconv_min((layer->target.shared_bytes + RESERVED) / (shared_bytes + RESERVED), most);
}

/* Plans the blocks of a launch, of which registers are enough for `most` on a multiprocessor. */
void plan_blocks(const tconv_layer *layer, const row_cut *cut, int most, planned_launch *launch)
{
    launch->resident = resident_of(layer, launch->shared_bytes, most);
    cut_rows(&layer->problem, cut, layer->target.multiprocessors * launch->resident, &launch->parameters);
    launch->blocks = cut->others * launch->parameters.strips;
}

/* --------------------------------------------------------------------------------------- the kernel for any device */

int64_t gemm_n_of(const tconv_problem *problem)
{
    return problem->group_out * problem->h.kernel * problem->w.kernel;
}

/* N tiles of the kernel, of which there are some. */
int n_tiles_of(const tconv_problem *problem)
{
    for (const int n_tiles : {2, 4, 6, 8})
        if (n_tiles * (int64_t)TILE_N >= gemm_n_of(problem))
            return n_tiles;
    return MAX_N_TILES;
}

/* Bytes of a group's packed weights. */
int64_t fragment_bytes_of(const tconv_problem *problem)
{
    return steps_of(problem) * n_tiles_of(problem) * 32 * FRAGMENT_BYTES;
}

/* The way of gathering that the layer can take. */
int gather_of(const tconv_problem *problem)
{
    static const struct {
        int64_t kernel, stride;
        int gather;
    } unrolled[] = {{3, 1, GATHER_3_BY_1}, {3, 2, GATHER_3_BY_2}, {4, 2, GATHER_4_BY_2}, {9, 4, GATHER_9_BY_4}};
    const tconv_axis *h = &problem->h, *w = &problem->w;
    if (h->dilation == 1 && w->dilation == 1 && h->stride == w->stride && h->kernel == w->kernel)
        for (const auto &of : unrolled)
            if (h->kernel == of.kernel && h->stride == of.stride)
                return of.gather;
    return GATHER_ANY;
}

/* Additions that follow one another in an output's sum: of segments, then of taps, which are added row by row, each by
 * itself, or all one after another. */
int64_t additions_of(const tconv_layer *layer)
{
    const int64_t rows = layer->rows.max_taps, columns = layer->columns.max_taps;
    return tconv_ceil_div(steps_of(&layer->problem), SEGMENT) +
           (gather_of(&layer->problem) == GATHER_ANY ? rows + columns : rows * columns);
}

int64_t shared_bytes_of(const tconv_problem *problem, const parameters *made)
{
    const int64_t stages = (int64_t)STAGE_BYTES * STAGES * WARPS;
    const int64_t column_buffer = n_tiles_of(problem) * (int64_t)TILE_N * PITCH;
    const int64_t sums = (int64_t)made->sum_rows * made->sum_columns * problem->group_out;
    const int64_t columns = made->sum_columns * 2; /* taps of each: two numbers */
    return fragment_bytes_of(problem) + stages +
           (column_buffer + columns + sums + problem->group_out) * (int64_t)sizeof(float);
}

/* Plans the kernel; begun: the parameters but for its own. Returns the reason why it does not take a layer that refusal
 * lets pass, else NULL. */
const char *plan_mma(const tconv_layer *layer, const parameters *begun, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    if (gemm_n_of(problem) > MAX_N_TILES * TILE_N)
        return "more than 88 weights per input channel";
    if (tconv_cuda_is_strict(layer) && additions_of(layer) > MAX_ADDITIONS)
        return "strict f32 sums of more than 48 segments of 64 channels, rows and columns of taps";
    /* A row of src completes `stride` rows of its outputs, and the others wait. */
    const int64_t rows = tconv_max((problem->h.kernel - 1) * problem->h.dilation + 1 - problem->h.stride, 1);
    if (rows * begun->sum_columns * problem->group_out >= SMALL_AXIS_EXTENT)
        return "sums too many for shared memory";
    planned_launch *launch = &made->any_src;
    parameters *own = &launch->parameters;
    *own = *begun;
    own->k_blocks = own->steps;
    own->tap_step = own->columns.kernel_step * PITCH - own->columns.shift_step;
    own->gather = gather_of(problem);
    own->sum_rows = (int)rows;
    launch->shared_bytes = shared_bytes_of(problem, own);
    if (launch->shared_bytes > layer->target.shared_bytes)
        return "weights or sums too many for shared memory";
    made->config = MMA_KERNEL;
    made->n_tiles = n_tiles_of(problem);
    made->packed_bytes = HEADER_BYTES + problem->groups * fragment_bytes_of(problem);
    made->cut = {row_quotients(&problem->h), tconv_max(problem->batch * problem->groups * begun->column_tiles, 1),
                 BLOCK_M >> begun->row_pixels_log2};
    launch->kernel = mma_kernel(layer, made->n_tiles);
    launch->threads = WARPS * 32;
    plan_blocks(layer, &made->cut, blocks_of(made->n_tiles), launch);
    return NULL;
}

} // namespace

/* ------------------------------------------------------------------------------------------------ Hopper's kernels */

namespace row_sums
{

namespace
{

constexpr int64_t MAX_IDLE_SHARE = 4; /* of a block's images, at most one in so many may be missing in the last block */

/* Bytes of shared memory for the pipeline stages that TMA fills, and their barriers. */
constexpr int64_t TMA_BYTES = TMA_STAGES * TMA_STAGE_BYTES + TMA_BARRIER_BYTES;

/* Bytes of shared memory for the pipeline stages that cp.async fills. */
int64_t cp_async_bytes(const tconv_layer *layer)
{
    return (int64_t)WARPS * STAGE_BYTES * cp_async_stages(tconv_cuda_is_strict(layer), layer->problem.element_size);
}

/* Blocks for all images, of as many as their rows leave room for. */
int64_t image_blocks(const tconv_problem *problem, const parameters *begun)
{
    return tconv_ceil_div(problem->batch, BLOCK_M >> begun->row_pixels_log2);
}

/* N of a kernel row. */
int64_t row_n_of(const tconv_problem *problem, const parameters *made)
{
    return made->block_out * problem->w.kernel;
}

/* Bytes of an output block's packed weights. */
int64_t weight_bytes_of(const tconv_layer *layer, int config)
{
    return steps_of(&layer->problem) * configs[config].n_tiles * TILE_N * MMA_K_BYTES *
           (tconv_cuda_is_strict(layer) ? 2 : 1);
}

/* Chooses to gather outputs by runs of columns, but not where these are apart in dst, and those of other threads
 * between them. */
int gather_of(const tconv_layer *layer, int config)
{
    const tconv_axis *w = &layer->problem.w;
    const int taps = (int)tconv_max(layer->columns.max_taps, MIN_TAPS);
    const bool together = layer->problem.dst.w == 1 || w->stride == 1;
    const bool unrolled = w->dilation == 1 && w->kernel >= w->stride && w->stride <= MAX_RUN && taps <= MAX_TAPS &&
                          has_runs(config, (int)w->stride, taps);
    return together && unrolled ? way_of((int)w->stride, taps) : way_of(0, (int)tconv_min(taps, MAX_TAPS));
}

/* Bytes of shared memory of a block whose pipeline stages take stage_bytes. */
int64_t shared_bytes_of(const tconv_layer *layer, int config, int64_t stage_bytes, int buffers, const parameters *made)
{
    const int64_t column_buffers = (int64_t)buffers * configs[config].band_tiles * TILE_N * PITCH + GUARD;
    const int64_t columns = gather_of(layer, config) >= FIRST_RUNS ? 0 : made->sum_columns + made->sum_columns % 2;
    const int64_t outputs = layer->problem.h.stride * made->block_out;
    return stage_bytes + weight_bytes_of(layer, config) + column_buffers * (int64_t)sizeof(float) +
           outputs * OUTPUT_BYTES + columns * COLUMN_BYTES;
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
    for (int64_t j = 0; j < stride; j++) {
        const int64_t ahead = problem->w.pad % stride + j, residue = ahead % stride;
        made->run_taps[j] = (int)(residue * PITCH + ahead / stride);
        made->run_ends |= (residue + (taps - 1) * stride < problem->w.kernel ? 1u : 0u) << j;
    }
}

/* Whether a config may take a layer that refusal lets pass. */
bool takes(const tconv_layer *layer, const parameters *begun)
{
    const tconv_problem *problem = &layer->problem;
    if (!layer->target.has_sm90a || problem->h.dilation != 1 || problem->h.kernel < problem->h.stride)
        return false;
    if (tconv_cuda_is_strict(layer) && additions_of(layer) > MAX_ADDITIONS)
        return false;
    const int64_t places = image_blocks(problem, begun) * (BLOCK_M >> begun->row_pixels_log2);
    return (places - problem->batch) * MAX_IDLE_SHARE <= places;
}

/* Plans a launch whose pipeline stages take stage_bytes; begun: what the parameters of both launches share. */
void plan_launch(const tconv_layer *layer, const plan *made, int64_t stage_bytes, const parameters *begun,
                 planned_launch *launch)
{
    const int most = blocks_of(made->config, tconv_cuda_is_strict(layer));
    const int64_t one = shared_bytes_of(layer, made->config, stage_bytes, 1, begun);
    const int64_t two = shared_bytes_of(layer, made->config, stage_bytes, 2, begun);
    /* Two column buffers save a barrier for each row; there is one where two would cost a block. */
    const bool costs = resident_of(layer, two, most) < resident_of(layer, one, most);
    launch->parameters = *begun;
    launch->parameters.buffers = costs ? 1 : 2;
    launch->shared_bytes = costs ? one : two;
    plan_blocks(layer, &made->cut, most, launch);
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
    const void *kernel = tma_kernel(layer, made->config);
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
        problem->dtype == TCONV_F32 && !tconv_cuda_is_strict(layer)};
    for (const cuuint64_t stride : made->src.strides)
        if (stride % BOX_ALIGNMENT != 0)
            return;
    made->by_tma.kernel = kernel;
    made->by_tma.threads = (WARPS + 1) * 32;
    plan_launch(layer, made, TMA_BYTES, begun, &made->by_tma);
    made->by_tma.parameters.boxes = (int)(BLOCK_M / pixels);
}

/* Plans the output blocks that begun has; false where no config holds one. */
bool plan_out_blocks(const tconv_layer *layer, const parameters *begun, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const int config = config_of(problem->h.kernel, problem->h.stride, row_n_of(problem, begun));
    if (config == CONFIGS ||
        shared_bytes_of(layer, config, cp_async_bytes(layer), 1, begun) > layer->target.shared_bytes)
        return false;
    made->config = config;
    made->n_tiles = configs[config].n_tiles;
    made->packed_bytes = problem->groups * begun->out_blocks * weight_bytes_of(layer, config);
    /* Quotients beyond src are only stored: the last strip takes them too. */
    const int64_t quotients = tconv_min(problem->h.in - problem->h.pad / problem->h.stride, row_quotients(&problem->h));
    made->cut = {tconv_max(quotients, 1),
                 tconv_max(image_blocks(problem, begun) * problem->groups * begun->out_blocks * begun->column_tiles, 1),
                 1};

    parameters shared = *begun;
    shared.k_blocks = (int)tconv_ceil_div(shared.steps, K_STEPS);
    shared.tap_step = shared.columns.kernel_step * PITCH - shared.columns.shift_step;
    shared.gather = gather_of(layer, config);
    if (shared.gather >= FIRST_RUNS)
        find_run(problem, taps_of(shared.gather), &shared);
    shared.dst_runs = has_dst_runs(problem);
    shared.gemm_n = (int)gemm_n_of(config, problem->h.kernel, problem->h.stride, row_n_of(problem, begun));

    made->any_src.kernel = cp_async_kernel(layer, config);
    made->any_src.threads = WARPS * 32;
    plan_launch(layer, made, cp_async_bytes(layer), &shared, &made->any_src);
    plan_tma(layer, &shared, made);
    return true;
}

/* Plans Hopper's kernels in the way of plan_mma, with the output blocks that take the least time; false where they do
 * not take a layer that refusal lets pass. */
bool plan_hopper(const tconv_layer *layer, const parameters *begun, plan *made)
{
    if (!takes(layer, begun))
        return false;
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    double least = INFINITY;
    int block_out = 0;
    for (int64_t blocks = 1; blocks <= MAX_OUT_BLOCKS; blocks++) {
        parameters tried = *begun;
        tried.block_out = (int)tconv_ceil_div(layer->problem.group_out, blocks);
        tried.out_blocks = (int)tconv_ceil_div(layer->problem.group_out, tried.block_out);
        plan candidate = {};
        if (tried.block_out == block_out || !plan_out_blocks(layer, &tried, &candidate))
            continue;
        block_out = tried.block_out;
        const tconv_cuda_work work = work_of(layer, &candidate);
        const double seconds = tconv_cuda_seconds_of(&machine, &work);
        if (seconds < least) {
            least = seconds;
            *made = candidate;
        }
    }
    return least < INFINITY;
}

} // namespace

} // namespace row_sums

void cut_rows(const tconv_problem *problem, const row_cut *cut, int64_t places, parameters *made)
{
    int64_t best = INT64_MAX;
    made->row_back = (int)((problem->h.kernel - 1) * problem->h.dilation / problem->h.stride);
    for (int64_t waves = 1; waves <= MAX_WAVES; waves++) {
        const int64_t strips = tconv_min(tconv_max(places * waves / cut->others, 1), cut->quotients);
        const int64_t rows = tconv_ceil_div(cut->quotients, strips);
        const int64_t taken = tconv_ceil_div(cut->others * tconv_ceil_div(cut->quotients, rows), places);
        const int64_t time = taken * tconv_ceil_div(rows + made->row_back, cut->step);
        if (time < best) {
            best = time;
            made->strip_rows = (int)rows;
        }
    }
    made->strips = (int)tconv_ceil_div(cut->quotients, made->strip_rows);
}

const char *make_plan(const tconv_layer *layer, plan *made)
{
    parameters begun = {};
    const char *why = refusal(layer, &begun);
    if (why != NULL)
        return why;
    begin(layer, &begun);
    return row_sums::plan_hopper(layer, &begun, made) ? NULL : plan_mma(layer, &begun, made);
}

} // namespace tconv::col2im
