/* Plans a layer: whether a kernel takes it, the cut into tiles and strips that all kernels share, and what is each
 * kernel's own: its config, shared memory and way of gathering, and the tensor map of src. */
#include "plan.h"
#include "../cuda_target.h"

#include "../../core/checked.h"
#include "../../core/post.h"
#include "../model/search.h"

enum {
    RESERVED = 1024,       /* bytes of shared memory that each block takes beside its own (CUDA) */
    MIN_IN = 16,           /* channels: fewer leave an MMA's K half empty and too little to do for each output */
    MAX_OUT_BLOCKS = 4,    /* of a group, each of which reads src: with more an ordinary GEMM is as good */
    MAX_KERNEL_TAPS = 256, /* no kernel has more N */

    /* Fewer pixels of an image, or of a row, leave most of a block tile empty. */
    MIN_PIXELS = 64,
    MIN_COLUMNS = 8,

    MAX_IDLE_SHARE = 4, /* of the images of a block, at most one in so many may be missing in the last block */

    /* Bytes of shared memory for the pipeline stages that TMA fills, and their barriers. */
    TMA_BYTES = TMA_STAGES * TMA_STAGE_BYTES + TMA_BARRIER_BYTES,
    MAX_BOX_BYTES = 128 /* of a row of a box: the most that are swizzled */
};

/* Returns the K steps of an MMA instruction along the channels of a group. */
static int64_t count_steps(const tconv_problem *problem)
{
    return tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, MMA_K_BYTES);
}

/* Returns the quotients of all output rows. */
static int64_t row_quotients(const tconv_axis *h)
{
    return (h->pad + h->out - 1) / h->stride + 1 - h->pad / h->stride;
}

/* Fills in how columns are cut into tiles. Returns false where outputs reach back over nearly a whole tile. */
static bool cut_columns(const tconv_problem *problem, parameters *params)
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
    params->row_pixels_log2 = log2;
    params->column_back = (int)back;
    params->column_step = (int)(w->in <= row_pixels ? row_pixels : step);
    params->column_tiles = w->in <= row_pixels ? 1 : (int)(1 + tconv_ceil_div(w->in - row_pixels, step));
    /* A tile alone has all columns; others the outputs of at most a tile of columns, and what reaches beyond src. */
    params->sum_columns =
        (int)tconv_min(w->out, params->column_tiles == 1 ? w->out : (row_pixels + back + 2) * w->stride + w->dilation);
    return true;
}

/* Returns the reason why no kernel takes the layer, NULL where one may; fills in how columns are cut into tiles. */
static const char *refusal(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    if (problem->group_in < MIN_IN)
        return "fewer than 16 input channels per group";
    if (!tconv_cuda_is_small_axis(&problem->h) || !tconv_cuda_is_small_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (problem->h.kernel * problem->w.kernel > MAX_KERNEL_TAPS)
        return "more than 256 taps";
    if (problem->h.in * problem->w.in < MIN_PIXELS || problem->w.in < MIN_COLUMNS)
        return "fewer than 64 pixels, or 8 columns";
    if (problem->w.in * problem->w.stride >= SMALL_AXIS_EXTENT)
        return "rows too long for 32-bit coordinates";
    if (problem->in_channels >= SMALL_AXIS_EXTENT || problem->out_channels >= SMALL_AXIS_EXTENT)
        return "too many channels for 32-bit numbers";
    if (!cut_columns(problem, params))
        return "columns of outputs reach back too far";
    return problem->batch * problem->groups >
                   INT32_MAX / MAX_OUT_BLOCKS / row_quotients(&problem->h) / params->column_tiles
               ? "too many images for 32-bit numbers of tiles"
               : NULL;
}

/* Says whether all rows of src (in NHWC all pixels) begin and end at multiples of so many bytes. */
static bool src_is_aligned(const tconv_problem *problem, int64_t bytes)
{
    const bool nhwc = problem->layout == TCONV_NHWC;
    const int64_t length = bytes / (int64_t)problem->element_size;
    return problem->src.n % length == 0 && problem->src.h % length == 0 &&
           (nhwc ? problem->src.w : problem->src.c) % length == 0 &&
           (nhwc ? problem->group_in : problem->w.in) % length == 0;
}

/* Fills in what the parameters of all kernels share, beside how columns are cut. */
static void begin(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    params->rows = tconv_cuda_make_small_axis(&problem->h, &layer->rows);
    params->columns = tconv_cuda_make_small_axis(&problem->w, &layer->columns);
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->groups = (int)problem->groups;
    params->block_out = params->group_out;
    params->out_blocks = 1;
    params->images = (int)problem->batch;
    params->steps = (int)count_steps(problem);
    params->src_aligned = src_is_aligned(problem, VECTOR_BYTES);
    params->src_words = src_is_aligned(problem, WORD_BYTES);
}

/* Returns the blocks on a multiprocessor, as shared memory allows and registers, which are enough for `most`. */
static int64_t count_resident(const tconv_layer *layer, int64_t shared_bytes, int most)
{
    return tconv_min((tconv_cuda_target_of(&layer->target).shared_bytes + RESERVED) / (shared_bytes + RESERVED), most);
}

/* Plans the blocks of a launch, of which registers are enough for `most` on a multiprocessor. */
static void plan_blocks(const tconv_layer *layer, const row_cut *cut, int most, planned_launch *launch)
{
    launch->resident = count_resident(layer, launch->shared_bytes, most);
    tconv_col2im_cut_rows(&layer->problem, cut, tconv_cuda_target_of(&layer->target).multiprocessors * launch->resident,
                          &launch->params);
    launch->blocks = cut->others * launch->params.strips;
}

/* --------------------------------------------------------------------------------------- the kernel for any device */

static int64_t mma_gemm_n(const tconv_problem *problem)
{
    return problem->group_out * problem->h.kernel * problem->w.kernel;
}

/* Returns the N tiles of the kernel that is compiled for so many or the next more; the most of all beyond those. */
static int choose_n_tiles(const tconv_problem *problem)
{
    int number = 0;
    while (number < MMA_KERNELS - 1 && mma_n_tiles(number) * (int64_t)TILE_N < mma_gemm_n(problem))
        number++;
    return mma_n_tiles(number);
}

/* Returns the bytes of a group's packed weights. */
static int64_t mma_weight_bytes(const tconv_problem *problem)
{
    return count_steps(problem) * choose_n_tiles(problem) * WARP * FRAGMENT_BYTES;
}

/* Returns the way of gathering that the layer can take: post-ops are in the one for any kernel and stride alone. */
static int choose_mma_gather(const tconv_problem *problem)
{
    static const struct {
        int64_t kernel, stride;
        int gather;
    } unrolled[] = {{3, 1, GATHER_3_BY_1}, {3, 2, GATHER_3_BY_2}, {4, 2, GATHER_4_BY_2}, {9, 4, GATHER_9_BY_4}};
    const tconv_axis *h = &problem->h, *w = &problem->w;
    if (tconv_cuda_count_steps(problem) == 0 && h->dilation == 1 && w->dilation == 1 && h->stride == w->stride &&
        h->kernel == w->kernel)
        for (size_t i = 0; i < sizeof unrolled / sizeof unrolled[0]; i++)
            if (h->kernel == unrolled[i].kernel && h->stride == unrolled[i].stride)
                return unrolled[i].gather;
    return GATHER_ANY;
}

/* Returns the additions that follow one another in an output's sum: of segments, then of taps, which are added row by
 * row, each by itself, or all one after another. */
static int64_t count_mma_additions(const tconv_layer *layer)
{
    const int64_t rows = layer->rows.max_taps, columns = layer->columns.max_taps;
    return tconv_ceil_div(count_steps(&layer->problem), SEGMENT) +
           (choose_mma_gather(&layer->problem) == GATHER_ANY ? rows + columns : rows * columns);
}

static int64_t mma_shared_bytes(const tconv_problem *problem, const parameters *params)
{
    const int64_t stages = (int64_t)STAGE_BYTES * MMA_STAGES * MMA_WARPS;
    const int64_t column_buffer = choose_n_tiles(problem) * (int64_t)TILE_N * MMA_PITCH;
    const int64_t sums = (int64_t)params->sum_rows * params->sum_columns * problem->group_out;
    const int64_t columns = params->sum_columns * 2; /* taps of each: two numbers */
    return mma_weight_bytes(problem) + stages +
           (column_buffer + columns + sums + problem->group_out) * (int64_t)sizeof(float);
}

/* Plans the kernel; common: the parameters but for its own. Returns the reason why it does not take a layer that refusal
 * lets pass, else NULL. */
static const char *plan_mma(const tconv_layer *layer, const parameters *common, col2im_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    if (mma_gemm_n(problem) > MAX_N_TILES * TILE_N)
        return "more than 88 weights per input channel";
    if (tconv_cuda_is_strict(layer) && count_mma_additions(layer) > STRICT_ADDITIONS)
        return "strict f32 sums of more than 48 segments of 64 channels, rows and columns of taps";
    /* A row of src completes `stride` rows of its outputs, and the others wait. */
    const int64_t rows = tconv_max((problem->h.kernel - 1) * problem->h.dilation + 1 - problem->h.stride, 1);
    if (rows * common->sum_columns * problem->group_out >= SMALL_AXIS_EXTENT)
        return "sums too many for shared memory";
    planned_launch *launch = &plan->any_src;
    parameters *own = &launch->params;
    *own = *common;
    own->k_blocks = own->steps;
    own->tap_step = own->columns.kernel_step * MMA_PITCH - own->columns.shift_step;
    own->gather = choose_mma_gather(problem);
    own->sum_rows = (int)rows;
    launch->shared_bytes = mma_shared_bytes(problem, own);
    if (launch->shared_bytes > tconv_cuda_target_of(&layer->target).shared_bytes)
        return "weights or sums too many for shared memory";
    plan->config = MMA_KERNEL;
    plan->n_tiles = choose_n_tiles(problem);
    plan->packed_bytes = HEADER_BYTES + problem->groups * mma_weight_bytes(problem);
    plan->cut.quotients = row_quotients(&problem->h);
    plan->cut.others = tconv_max(problem->batch * problem->groups * common->column_tiles, 1);
    plan->cut.step = BLOCK_M >> common->row_pixels_log2;
    launch->threads = MMA_WARPS * WARP;
    plan_blocks(layer, &plan->cut, mma_blocks(plan->n_tiles), launch);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ Hopper's kernels */

/* Returns the bytes of shared memory for the pipeline stages that cp.async fills. */
static int64_t cp_async_bytes(const tconv_layer *layer)
{
    return (int64_t)ROW_SUMS_WARPS * STAGE_BYTES *
           cp_async_stages(tconv_cuda_is_strict(layer), layer->problem.element_size);
}

/* Returns the blocks for all images, each of as many as their rows leave room for. */
static int64_t image_blocks(const tconv_problem *problem, const parameters *common)
{
    return tconv_ceil_div(problem->batch, BLOCK_M >> common->row_pixels_log2);
}

/* Returns the N of a kernel row. */
static int64_t kernel_row_n(const tconv_problem *problem, const parameters *params)
{
    return params->block_out * problem->w.kernel;
}

/* Returns the bytes of an output block's packed weights. */
static int64_t weight_bytes(const tconv_layer *layer, int config)
{
    return count_steps(&layer->problem) * configs[config].n_tiles * TILE_N * MMA_K_BYTES *
           (tconv_cuda_is_strict(layer) ? 2 : 1);
}

/* Chooses to gather outputs by runs of columns, but not where these are apart in dst, and those of other threads
 * between them. */
static int choose_gather(const tconv_layer *layer, int config)
{
    const tconv_axis *w = &layer->problem.w;
    const int taps = (int)tconv_max(layer->columns.max_taps, MIN_TAPS);
    const bool together = layer->problem.dst.w == 1 || w->stride == 1;
    const bool unrolled = w->dilation == 1 && w->kernel >= w->stride && w->stride <= MAX_RUN && taps <= MAX_TAPS &&
                          has_runs(config, (int)w->stride, taps);
    return together && unrolled ? gather_code((int)w->stride, taps) : gather_code(0, (int)tconv_min(taps, MAX_TAPS));
}

/* Returns the bytes of shared memory of a block whose pipeline stages take stage_bytes. */
static int64_t shared_bytes(const tconv_layer *layer, int config, int64_t stage_bytes, int buffers,
                            const parameters *params)
{
    const int64_t column_buffers = (int64_t)buffers * configs[config].band_tiles * TILE_N * ROW_SUMS_PITCH + GUARD;
    const int64_t columns =
        choose_gather(layer, config) >= FIRST_RUNS ? 0 : params->sum_columns + params->sum_columns % 2;
    const int64_t outputs = layer->problem.h.stride * params->block_out;
    const int64_t output_bytes = OUTPUT_BYTES + (params->has_round ? NUMBERS_BYTES : 0);
    return stage_bytes + weight_bytes(layer, config) + column_buffers * (int64_t)sizeof(float) +
           outputs * output_bytes + columns * COLUMN_BYTES;
}

/* Returns the additions that follow one another in an output's sum in strict f32: K-blocks of all its rows, then column
 * taps. */
static int64_t count_additions(const tconv_layer *layer)
{
    return tconv_ceil_div(count_steps(&layer->problem), K_STEPS) * layer->rows.max_taps + layer->columns.max_taps;
}

/* Says whether a run of `stride` columns from a multiple of it on is a vector of dst, if dst begins at a multiple of
 * such vectors. */
static bool has_dst_runs(const tconv_problem *problem)
{
    const int64_t run = problem->w.stride;
    return (run & (run - 1)) == 0 && problem->dst.w == 1 && tconv_rows_begin_at_multiples(&problem->dst, run);
}

/* Finds the partials of a run of `stride` columns, of which the first is at a multiple of it in dst. */
static void find_run(const tconv_problem *problem, int64_t taps, parameters *params)
{
    const int64_t stride = problem->w.stride;
    for (int64_t j = 0; j < stride; j++) {
        const int64_t ahead = problem->w.pad % stride + j, residue = ahead % stride;
        params->run_taps[j] = (int)(residue * ROW_SUMS_PITCH + ahead / stride);
        params->run_ends |= (residue + (taps - 1) * stride < problem->w.kernel ? 1u : 0u) << j;
    }
}

/* Says whether a config may take a layer that refusal lets pass. */
static bool may_take(const tconv_layer *layer, const parameters *common)
{
    const tconv_problem *problem = &layer->problem;
    if (!tconv_cuda_target_of(&layer->target).has_sm90a || problem->h.dilation != 1 ||
        problem->h.kernel < problem->h.stride)
        return false;
    if (tconv_cuda_is_strict(layer) && count_additions(layer) > STRICT_ADDITIONS)
        return false;
    const int64_t places = image_blocks(problem, common) * (BLOCK_M >> common->row_pixels_log2);
    return (places - problem->batch) * MAX_IDLE_SHARE <= places;
}

/* Plans a launch whose pipeline stages take stage_bytes; common: what the parameters of both launches share. */
static void plan_launch(const tconv_layer *layer, const col2im_plan *plan, int64_t stage_bytes,
                        const parameters *common, planned_launch *launch)
{
    const int most = row_sums_blocks(plan->config, tconv_cuda_is_strict(layer));
    const int64_t one = shared_bytes(layer, plan->config, stage_bytes, 1, common);
    const int64_t two = shared_bytes(layer, plan->config, stage_bytes, 2, common);
    /* Two column buffers save a barrier for each row; there is one where two would cost a block. */
    const bool costs = count_resident(layer, two, most) < count_resident(layer, one, most);
    launch->params = *common;
    launch->params.buffers = costs ? 1 : 2;
    launch->shared_bytes = costs ? one : two;
    plan_blocks(layer, &plan->cut, most, launch);
}

/* Describes src to TMA, in boxes of so many pixels by so many channels. Returns false where TMA cannot take its
 * strides. */
static bool describe_src(const tconv_layer *layer, int64_t pixels, int64_t channels, tensor_map_recipe *src)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size;
    /* Where there is but one row, the stride to the next is any number that TMA takes. */
    const int64_t row = problem->h.in > 1 ? problem->src.h : problem->src.c;
    *src = (tensor_map_recipe){
        .dtype = problem->dtype,
        .swizzle = pixels * element == MAX_BOX_BYTES ? SWIZZLE_128B : SWIZZLE_64B,
        .extents = {(uint64_t)problem->w.in, (uint64_t)problem->h.in, (uint64_t)problem->in_channels,
                    (uint64_t)problem->batch},
        .strides = {(uint64_t)(row * element), (uint64_t)(problem->src.c * element),
                    (uint64_t)(problem->src.n * element)},
        .box = {(uint32_t)pixels, 1, (uint32_t)channels, 1},
        .rounds = problem->dtype == TCONV_F32 && !tconv_cuda_is_strict(layer),
    };
    for (int i = 0; i < 3; i++)
        if (src->strides[i] % BOX_ALIGNMENT != 0)
            return false;
    return true;
}

/* Plans the launch with src by TMA, unless TMA cannot read src as it lies, or boxes would reach into the channels of
 * the next group or take too much memory. */
static void plan_tma(const tconv_layer *layer, const parameters *common, col2im_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t channels = K_STEPS * MMA_K_BYTES / element;
    const int64_t pixels = tconv_min(MAX_BOX_BYTES / element, (int64_t)1 << common->row_pixels_log2);
    if (!has_tma_kernel(plan->config, tconv_cuda_is_strict(layer)) || problem->layout != TCONV_NCHW ||
        problem->src.w != 1 || (problem->groups > 1 && problem->group_in % channels != 0) ||
        shared_bytes(layer, plan->config, TMA_BYTES, 1, common) > tconv_cuda_target_of(&layer->target).shared_bytes)
        return;
    if (!describe_src(layer, pixels, channels, &plan->src))
        return;
    plan->has_tma = true;
    plan->by_tma.threads = (ROW_SUMS_WARPS + 1) * WARP;
    plan_launch(layer, plan, TMA_BYTES, common, &plan->by_tma);
    plan->by_tma.params.boxes = (int)(BLOCK_M / pixels);
}

/* Plans the output blocks that common has; false where no config holds one. */
static bool plan_out_blocks(const tconv_layer *layer, const parameters *common, col2im_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t row_n = kernel_row_n(problem, common);
    const int config = find_config(problem->h.kernel, problem->h.stride, row_n);
    if (config == CONFIGS || shared_bytes(layer, config, cp_async_bytes(layer), 1, common) >
                                 tconv_cuda_target_of(&layer->target).shared_bytes)
        return false;
    plan->config = config;
    plan->n_tiles = configs[config].n_tiles;
    plan->packed_bytes = problem->groups * common->out_blocks * weight_bytes(layer, config);
    /* Quotients beyond src are only stored: the last strip takes them too. */
    const int64_t quotients = tconv_min(problem->h.in - problem->h.pad / problem->h.stride, row_quotients(&problem->h));
    plan->cut.quotients = tconv_max(quotients, 1);
    plan->cut.others =
        tconv_max(image_blocks(problem, common) * problem->groups * common->out_blocks * common->column_tiles, 1);
    plan->cut.step = 1;

    parameters params = *common;
    params.has_round = common->has_round && runs_rounds(config, tconv_cuda_is_strict(layer));
    params.k_blocks = (int)tconv_ceil_div(params.steps, K_STEPS);
    params.tap_step = params.columns.kernel_step * ROW_SUMS_PITCH - params.columns.shift_step;
    params.gather = choose_gather(layer, config);
    if (params.gather >= FIRST_RUNS)
        find_run(problem, gather_taps(params.gather), &params);
    params.dst_runs = has_dst_runs(problem);
    params.run_length = divisor_of(params.columns.stride);
    params.run_pad = params.columns.pad / params.columns.stride;
    params.gemm_n = (int)config_gemm_n(config, problem->h.kernel, problem->h.stride, row_n);

    plan->any_src.threads = ROW_SUMS_WARPS * WARP;
    plan_launch(layer, plan, cp_async_bytes(layer), &params, &plan->any_src);
    plan_tma(layer, &params, plan);
    return true;
}

/* Plans Hopper's kernels, with the output blocks that take the least time; common: the parameters but for their own.
 * Returns false where they do not take a layer that refusal lets pass. */
static bool plan_hopper(const tconv_layer *layer, const parameters *common, col2im_plan *plan)
{
    if (!may_take(layer, common))
        return false;
    tconv_search search = tconv_search_begin(layer, 0, plan, sizeof *plan);
    const bool has_round = tconv_has_posts(&layer->problem) && layer->problem.desc.accumulate == 0 &&
                           tconv_cuda_posts_are_a_round(&layer->problem);
    int block_out = 0;
    for (int64_t blocks = 1; blocks <= MAX_OUT_BLOCKS; blocks++) {
        parameters tried = *common;
        tried.has_round = has_round;
        tried.block_out = (int)tconv_ceil_div(layer->problem.group_out, blocks);
        tried.out_blocks = (int)tconv_ceil_div(layer->problem.group_out, tried.block_out);
        col2im_plan candidate = {0};
        if (tried.block_out == block_out || !plan_out_blocks(layer, &tried, &candidate))
            continue;
        block_out = tried.block_out;
        const tconv_cuda_work work = tconv_col2im_work_of(layer, &candidate);
        tconv_search_offer(&search, &candidate, &work);
    }
    return search.found;
}

void tconv_col2im_cut_rows(const tconv_problem *problem, const row_cut *cut, int64_t places, parameters *params)
{
    params->row_back = (int)((problem->h.kernel - 1) * problem->h.dilation / problem->h.stride);
    params->strip_rows = (int)tconv_cuda_strip_rows(cut->quotients, params->row_back, cut->step, cut->others, places);
    params->strips = (int)tconv_ceil_div(cut->quotients, params->strip_rows);
}

const char *tconv_col2im_make_plan(const tconv_layer *layer, col2im_plan *plan)
{
    parameters common = {0};
    const char *why = refusal(layer, &common);
    if (why != NULL)
        return why;
    begin(layer, &common);
    return plan_hopper(layer, &common, plan) ? NULL : plan_mma(layer, &common, plan);
}
