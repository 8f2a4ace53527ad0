/*
 * Layers of few columns on CUDA, in one launch: a frame or a few of a speech or audio decoder, the first layer of a
 * generator, a head of a network at batch 1. Their time is that of reading the weights, which are read where they lie, once,
 * and not packed. Each thread block multiplies the weights of a few output channels, all taps, with the pixels of whole
 * images, on tensor cores, and sums outputs from its own products; there is no workspace.
 *
 * f32 (strict by 3xTF32, or TF32), f16 and bf16; any kernel, stride, dilation and padding, any layout and strides of src and
 * dst; groups of at least 8 input channels; images of at most 128 pixels, or of one row; weights whose output channels and taps
 * follow one another in each input channel (IOHW). More pixels are shared out to thread blocks, by images or by strips of
 * columns. The kernels for few columns have warps that share the input channels; where a batch has many pixels, the
 * wide kernel brings weights and pixels to more products. Both give the same bits.
 *
 * Post-ops of any kind, and what dst holds, are applied where outputs are summed, on values in f32.
 *
 * A step of a stream of columns, and a flush, is one launch too. Nobody but the block of an image's first strip reads or writes
 * its part of the carry: a strip has no fewer columns of its own than outputs reach back over, so that the carry has a share in
 * the outputs of the first strip alone; and the columns before the first strip, of which src has none, are the last ones of src,
 * from which that block makes the new tail, after it has read the old one. Each call is cut for its own length and batch, never
 * into more columns than the plan's blocks have, so that what the plan has checked is enough: of either kernel, where the plan
 * has the wide one and leaves short chunks to the others.
 *
 * parameters.h says what the words mean, kernel.cuh is the kernel and gives the numeric order, which depends on the layer
 * alone and not on its batch: each image has the bits that it has alone. work.c counts for the cost model.
 */
#include <stdio.h>

#include "../../core/checked.h"
#include "../../core/stream.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../model/search.h"
#include "../pack/copy.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"
#include "plan.h"

enum {
    MIN_IN = 8,            /* channels of a group: fewer leave an MMA's K empty */
    MAX_EXTENT = 1 << 24,  /* of an axis and of channels: sums of a few, and products with a pixel's, fit in 32 bits */
    MAX_OUTPUTS = 1 << 30, /* of a block */
    MIN_WEIGHT_BYTES = 64, /* of an input channel that a block reads: two sectors */
    MOST_ROW_TILES = 2,    /* of a block of few columns: then all blocks may run at once; each brings src anew */
    BANKS = 32,            /* of 4 bytes, of shared memory */
    PITCH_REST = 5,        /* see product_pitch */
    WIDE_LEAST = 256       /* pixels from which on the wide kernel is faster, as times on an H200 say */
};

/* Says whether the output channels and taps of a group follow one another in each input channel. */
static bool rows_follow(const tconv_problem *problem)
{
    const tconv_weight_strides *weight = &problem->weight;
    const int64_t row_taps = problem->h.kernel, column_taps = problem->w.kernel;
    return (column_taps == 1 || weight->w == 1) && (row_taps == 1 || weight->h == column_taps) &&
           (problem->group_out == 1 || weight->out == row_taps * column_taps);
}

/* Returns the columns of src before the one where an output begins that it reaches back over. */
static int64_t columns_back(const tconv_axis *axis)
{
    return (axis->kernel - 1) * axis->dilation / axis->stride;
}

static bool axis_fits(const tconv_axis *axis)
{
    return axis->in < MAX_EXTENT && axis->out < MAX_EXTENT && axis->kernel < MAX_EXTENT && axis->stride < MAX_EXTENT &&
           axis->dilation < MAX_EXTENT && axis->pad < MAX_EXTENT && (axis->kernel - 1) * axis->dilation < MAX_EXTENT;
}

/* Returns the steps of a slice of the input channels. */
static int64_t slice_steps(const tconv_problem *problem)
{
    const int64_t step = STEP_WORDS * 4 / (int64_t)problem->element_size;
    return tconv_ceil_div(tconv_ceil_div(problem->group_in, step), SLICES);
}

/* Says whether blocks of so many columns have room for images, or for strips of them. */
static bool columns_suffice(const tconv_problem *problem, int64_t columns)
{
    return problem->h.in * problem->w.in <= columns || (problem->h.in == 1 && columns_back(&problem->w) <= columns / 2);
}

/* Returns why the kernels do not take a layer, NULL where they may. */
static const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t additions = slice_steps(problem) + SLICES - 1 + layer->rows.max_taps * layer->columns.max_taps;
    if (layer->phases_of_src)
        return "phases of src";
    if (problem->group_in < MIN_IN)
        return "fewer than 8 input channels per group";
    if (!rows_follow(problem))
        return "weights of an input channel that do not follow one another";
    if (!axis_fits(&problem->h) || !axis_fits(&problem->w))
        return "an axis too large for 32-bit numbers";
    if (!columns_suffice(problem, WIDE_COLUMNS))
        return "more than 128 pixels in more than one row, or whose outputs reach back too far";
    if (problem->in_channels >= MAX_EXTENT || problem->out_channels >= MAX_EXTENT || problem->batch >= MAX_EXTENT ||
        problem->weight_extent > INT32_MAX)
        return "too many channels, images or weights for 32-bit numbers";
    if (tconv_cuda_is_strict(layer) && additions > STRICT_ADDITIONS)
        return "sums too long for strict f32";
    if (problem->desc.stream_axis == TCONV_STREAM_OF_ROWS)
        return "a stream of rows";
    return NULL;
}

static frames_axis make_axis(const tconv_axis *axis)
{
    return (frames_axis){
        .in = (int)axis->in,
        .out = (int)axis->out,
        .pad = (int)axis->pad,
        .span = (int)((axis->kernel - 1) * axis->dilation),
        .stride = divisor_of((int)axis->stride),
        .dilation = divisor_of((int)axis->dilation),
    };
}

/* Cuts images of more columns than a block has into strips, as even as may be, each of no fewer columns than it reaches back
 * over. Returns the pixels of an image in a block; a flush has room for a column. */
static int64_t cut_strips(const tconv_problem *problem, int64_t most_columns, parameters *params)
{
    const tconv_axis *w = &problem->w;
    const int64_t multiple = params->together, back = tconv_round_up(columns_back(w), multiple);
    const int64_t least = w->in > most_columns ? tconv_ceil_div(w->in, most_columns - back) : 1;
    const int64_t step =
        tconv_round_up(tconv_max(tconv_ceil_div(w->in, least), least > 1 ? back : 1), least > 1 ? multiple : 1);
    const int64_t strips = tconv_max(tconv_ceil_div(w->in, step), 1), columns = strips > 1 ? step + back : step;
    const int64_t last = w->out - ((strips - 1) * step * w->stride - w->pad);
    params->strips = divisor_of((int)strips);
    params->strip_step = (int)step;
    params->strip_back = strips > 1 ? (int)back : 0;
    params->strip_outs = divisor_of((int)((strips > 1 ? tconv_max(step * w->stride, last) : w->out) + problem->tail));
    params->row_outs = divisor_of((int)problem->h.out);
    params->image_columns = divisor_of((int)columns);
    params->image_pixels = divisor_of((int)(problem->h.in * columns));
    return problem->h.in * columns;
}

/* Returns how many neighbouring pixels of a row lie in 4 bytes that begin at a multiple of 4, if src does. */
static int pixels_together(const tconv_problem *problem)
{
    const tconv_strides *src = &problem->src;
    const bool in_pairs = problem->element_size == 2 && src->w == 1 && problem->w.in % 2 == 0 && src->h % 2 == 0 &&
                          src->c % 2 == 0 && src->n % 2 == 0;
    return in_pairs ? 2 : 1;
}

/* Shares the images out to blocks of at most so many columns, as evenly as may be. */
static void cut_images(const tconv_problem *problem, bool is_wide, int64_t most_columns, frames_plan *plan)
{
    plan->params.together = is_wide ? pixels_together(problem) : 1;
    const int64_t pixels = cut_strips(problem, most_columns, &plan->params), batch = tconv_max(problem->batch, 1);
    const int64_t tiles = tconv_ceil_div(batch, most_columns / pixels), images = tconv_ceil_div(batch, tiles);
    plan->params.images = (int)problem->batch;
    plan->params.tile_images = (int)images;
    plan->params.image_tiles = divisor_of((int)tconv_ceil_div(batch, images));
    plan->columns = (int)(images * pixels);
    plan->kernel = is_wide ? FRAMES_WIDE : plan->columns > FEW_COLUMNS ? FRAMES_MANY : FRAMES_FEW;
    plan->threads = WARP * (is_wide ? WIDE_WARPS : SLICES * (int)tconv_ceil_div(plan->columns, PART_COLUMNS));
}

/* Returns the rows that so many output channels take, where the first may begin within a lane's rows. */
static int64_t rows_of(const tconv_problem *problem, int64_t channels)
{
    const int64_t lane_rows = LANE_BYTES / (int64_t)problem->element_size;
    const int64_t rows = channels * problem->h.kernel * problem->w.kernel;
    return channels == problem->group_out ? rows : rows + lane_rows - tconv_gcd(lane_rows, rows);
}

/* Returns the most output channels, up to so many, for whose rows there is room; at least one. */
static int64_t fit_channels(const tconv_problem *problem, int64_t channels, int64_t room)
{
    for (; channels > 1; channels--)
        if (rows_of(problem, channels) <= room)
            return channels;
    return 1;
}

int tconv_frames_resident(const frames_plan *plan)
{
    return plan->kernel == FRAMES_WIDE || plan->threads > SLICES * WARP ? 1 : 2;
}

/* Shares the output channels out to blocks: as many as a row tile, or a block of the wide kernel, has room for, at least one; fewer
 * where each block has a multiprocessor even so, or all blocks run at the same time. Each block more brings src once more, so that several to a
 * multiprocessor are of use where the weights of a block are more than its pixels: twice as many, as times on an H200 say. */
static void cut_channels(const tconv_problem *problem, int64_t multiprocessors, frames_plan *plan)
{
    const int64_t bytes = problem->h.kernel * problem->w.kernel * (int64_t)problem->element_size;
    const int64_t tile = tile_rows((int)problem->element_size);
    const int64_t room = plan->kernel == FRAMES_WIDE ? WIDE_ROWS : tile * plan->most_row_tiles;
    const int64_t places = multiprocessors * (tile > 2 * plan->columns ? tconv_frames_resident(plan) : 1);
    const int64_t others = (int64_t)plan->params.image_tiles.divisor * plan->params.strips.divisor * problem->groups;
    const int64_t at_once = tconv_ceil_div(problem->group_out, tconv_max(places / others, 1));
    const int64_t least = tconv_max(at_once, tconv_ceil_div(MIN_WEIGHT_BYTES, bytes));
    const int64_t most = tconv_min(room * (int64_t)problem->element_size / bytes, problem->group_out);
    const int64_t channels = fit_channels(problem, tconv_min(least, most), room);
    plan->params.block_out = (int)channels;
    plan->params.block_channels = divisor_of((int)channels);
    plan->params.row_tiles = (int)tconv_ceil_div(rows_of(problem, channels), tile);
    plan->params.out_tiles = divisor_of((int)tconv_ceil_div(problem->group_out, channels));
    plan->blocks = plan->params.out_tiles.divisor * others;
}

/* Returns the bytes of shared memory that a block of so many images has for the carry. */
static int64_t carried_bytes(const tconv_problem *problem, const frames_plan *plan, int64_t images)
{
    return tconv_is_stream(problem) ? images * (1 + plan->params.block_out * problem->h.out * problem->tail) * 4 : 0;
}

static int64_t products_bytes(const frames_plan *plan)
{
    const int64_t kept = plan->kernel == FRAMES_WIDE ? 1 : SLICES;
    return kept * plan->columns * plan->params.product_pitch * 4;
}

/* Returns the most bytes of the stages of src of a block. */
static int64_t most_stage_bytes(const tconv_problem *problem, const frames_plan *plan)
{
    return plan->kernel == FRAMES_WIDE
               ? (int64_t)WIDE_BUFFERS * WIDE_CHANNELS * 2 * wide_pitch((int)problem->element_size)
               : (int64_t)plan->threads / WARP * STAGE_WORDS * 4;
}

/* Returns the products from a column to the next one, of so many rows. With PITCH_REST more than a multiple of the banks,
 * lanes that store products, and those that sum neighbouring outputs, meet in few banks: kernels of 4 to 16 taps and strides of 2 to
 * 8 were counted. */
static int64_t product_pitch(int64_t rows)
{
    return tconv_round_up(tconv_max(rows - PITCH_REST, 0), BANKS) + PITCH_REST;
}

/* Lays out the stage of src that each warp has of a kernel for few columns. Returns the bytes. */
static int64_t lay_out_stages(frames_plan *plan)
{
    parameters *params = &plan->params;
    const int64_t existing = tconv_min(plan->columns, PART_COLUMNS), least = STAGE_STEPS;
    const int64_t columns = plan->kernel == FRAMES_MANY ? tconv_round_up(existing, TILES_AT_ONCE * TILE_N) : existing;
    const int64_t room = STAGE_WORDS / columns / STEP_WORDS - 1; /* steps that one more still fits beside */
    const int64_t steps = tconv_min(room / least * least, tconv_round_up(tconv_max(params->slice_steps, 1), least));
    params->stage_steps = (int)steps;
    params->stage_pitch = (int)((steps + 1) * STEP_WORDS);
    params->stage_words = (int)tconv_round_up(columns * params->stage_pitch, LANE_BYTES / 4);
    params->stage_lanes_log2 = log2_at_least(tconv_min(existing, TILE_N));
    return (int64_t)plan->threads / WARP * params->stage_words * 4;
}

/* Lays out shared memory: stages of src, products, and what is carried. */
static void lay_out_shared(const tconv_problem *problem, frames_plan *plan)
{
    const int64_t stages = plan->kernel == FRAMES_WIDE ? most_stage_bytes(problem, plan) : lay_out_stages(plan);
    plan->params.product_pitch = (int)product_pitch(rows_of(problem, plan->params.block_out));
    plan->shared_bytes = stages + products_bytes(plan) + carried_bytes(problem, plan, plan->params.tile_images);
}

/* Shares outputs out to threads by place, and by output channel, so that a thread has the fewest. */
static void share_outputs(const tconv_problem *problem, frames_plan *plan)
{
    parameters *params = &plan->params;
    const int64_t places = params->tile_images * problem->h.out * params->strip_outs.divisor;
    const int64_t at_once = plan->kernel == FRAMES_WIDE ? WIDE_OUTS : 1;
    int64_t fewest = INT64_MAX;
    for (int log2 = 0; plan->threads >> log2 >= WARP; log2++) {
        const int64_t of_places = tconv_ceil_div(places, plan->threads >> log2);
        const int64_t rounds = of_places * tconv_ceil_div(params->block_out, at_once << log2);
        if (rounds < fewest) {
            fewest = rounds;
            params->parts_log2 = log2;
        }
    }
}

/* Plans a layer that is not refused, or a chunk of a stream, by the wide kernel or the others, in blocks of at most so many
 * columns. */
static void make_plan(const tconv_problem *problem, const tconv_target *target, bool is_wide, int64_t most_columns,
                      frames_plan *plan)
{
    parameters *params = &plan->params;
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->weight_pitch = problem->weight.in;
    params->rows = make_axis(&problem->h);
    params->columns = make_axis(&problem->w);
    params->kernel_columns = (int)problem->w.kernel;
    params->taps = (int)(problem->h.kernel * problem->w.kernel);
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->slice_steps = (int)slice_steps(problem);
    params->carry.tail = (int)problem->tail;
    params->carry.tail_places = divisor_of((int)tconv_max(problem->tail, 1));
    params->carry.channels = (int)problem->out_channels;
    params->carry.narrow = tconv_carry_is_narrow(problem);
    params->more_taps = (int)((problem->w.kernel - 1) / problem->w.stride);
    params->last_tap_rest = (int)((problem->w.kernel - 1) % problem->w.stride);
    params->is_one_row = problem->h.in == 1 && problem->h.out == 1 && problem->h.kernel == 1 && problem->h.pad == 0 &&
                         problem->w.dilation == 1;
    cut_images(problem, is_wide, most_columns, plan);
    cut_channels(problem, tconv_cuda_target_of(target).multiprocessors, plan);
    lay_out_shared(problem, plan);
    share_outputs(problem, plan);
    plan->by_vectors = problem->weight.in * (int64_t)problem->element_size % LANE_BYTES == 0;
}

/* Returns the most images of a block; a stream's short chunks have more in one than its long ones. */
static int64_t most_images(const tconv_problem *problem, const frames_plan *plan)
{
    return tconv_is_stream(problem) ? tconv_min(problem->batch, plan->columns / problem->h.in)
                                    : plan->params.tile_images;
}

/* Returns the most outputs of a block, whatever the chunk: a flush has two tails. */
static double block_outputs(const tconv_problem *problem, const frames_plan *plan)
{
    return (double)most_images(problem, plan) * plan->params.block_out * plan->params.row_outs.divisor *
           ((double)plan->params.strip_outs.divisor + plan->params.carry.tail);
}

/* Returns the most bytes of shared memory of a block, whatever the chunk. A chunk has no more blocks of images than the plan,
 * and so no more channels in a block. */
static int64_t block_bytes(const tconv_problem *problem, const frames_plan *plan)
{
    return tconv_is_stream(problem) ? most_stage_bytes(problem, plan) + products_bytes(plan) +
                                          carried_bytes(problem, plan, most_images(problem, plan))
                                    : plan->shared_bytes;
}

/* Says whether the kernels have room for a plan, whatever the chunk. */
static bool has_room(const tconv_layer *layer, const frames_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    return (plan->kernel != FRAMES_WIDE || rows_of(problem, plan->params.block_out) <= WIDE_ROWS) &&
           block_outputs(problem, plan) <= MAX_OUTPUTS && plan->blocks <= INT32_MAX &&
           block_bytes(problem, plan) <= tconv_cuda_target_of(&layer->target).shared_bytes;
}

/* Returns the pixels of all images. */
static int64_t pixels_of(const tconv_problem *problem)
{
    return problem->batch * problem->h.in * problem->w.in;
}

/* Offers a plan in blocks of at most so many columns. Returns whether there is room for it. */
static bool offer(const tconv_layer *layer, bool is_wide, int64_t columns, int most_row_tiles, int narrow_columns,
                  tconv_search *search)
{
    frames_plan trial = {.most_row_tiles = most_row_tiles};
    make_plan(&layer->problem, &layer->target, is_wide, columns, &trial);
    if (!has_room(layer, &trial))
        return false;
    trial.narrow_columns = is_wide ? narrow_columns : trial.columns;
    const tconv_cuda_work work = tconv_frames_work_of(layer, &trial);
    tconv_search_offer(search, &trial, &work);
    return true;
}

/* Finds the kernel and the columns of blocks: fewer are more blocks, which bring the same weights. */
static tconv_search find_plan(const tconv_layer *layer, frames_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    tconv_search search = tconv_search_begin(layer, 0, plan, sizeof *plan);
    bool has_narrow = false;
    for (int64_t columns = MAX_COLUMNS; columns >= TILE_N && columns_suffice(problem, columns); columns /= 2)
        for (int row_tiles = 1; row_tiles <= (columns > FEW_COLUMNS ? 1 : MOST_ROW_TILES); row_tiles++)
            has_narrow |= offer(layer, false, columns, row_tiles, 0, &search);
    if (!has_narrow || pixels_of(problem) >= WIDE_LEAST)
        offer(layer, true, WIDE_COLUMNS, 1, has_narrow ? plan->narrow_columns : 0, &search);
    return search;
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    frames_plan *plan = memory;
    const tconv_problem *problem = &layer->problem;
    const tconv_status steps = tconv_cuda_check_steps(problem, issue);
    if (steps != TCONV_SUCCESS)
        return steps;
    const char *why = refusal(layer);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    const tconv_search search = find_plan(layer, plan);
    if ((why = tconv_search_refusal(&search, "products too many for shared memory, or outputs for 32-bit numbers")) !=
        NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)(problem->weight_extent * (int64_t)problem->element_size);
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = true;
    tconv_cuda_predict(layer, &search.work, planned);
    return TCONV_SUCCESS;
}

/* Weights that a plan holds are a copy. */
static tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    (void)memory;
    return tconv_copy_weights(layer, weights, packed, stream, issue);
}

/* Cuts the chunk of a call. */
static void plan_chunk(const tconv_layer *layer, const tconv_step_arguments *step, frames_plan *plan)
{
    const tconv_problem *problem = step->problem;
    const bool is_wide = plan->kernel == FRAMES_WIDE && (plan->narrow_columns == 0 || pixels_of(problem) >= WIDE_LEAST);
    make_plan(problem, &layer->target, is_wide, is_wide ? plan->columns : plan->narrow_columns, plan);
    frames_carry *carry = &plan->params.carry;
    carry->sums = step->carry;
    carry->slot_count = step->slot_count;
    carry->slots = step->slots;
    carry->reset = step->reset;
    carry->active = step->active;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    frames_plan plan = *(const frames_plan *)memory;
    parameters *params = &plan.params;
    if (arguments->step != NULL)
        plan_chunk(layer, arguments->step, &plan);
    params->src = arguments->src;
    params->weights = arguments->weights != NULL ? arguments->weights : arguments->packed;
    params->bias = arguments->bias;
    params->dst = arguments->dst;
    params->posts =
        tconv_cuda_layer_posts(arguments->step != NULL ? arguments->step->problem : &layer->problem, arguments);
    const bool by_vectors = plan.by_vectors && (uintptr_t)params->weights % LANE_BYTES == 0;
    if ((uintptr_t)params->src % 4 != 0)
        params->together = 1;
    const numerics kind = numerics_of(layer);
    const tconv_cuda_target target = tconv_cuda_target_of(&layer->target);
    void *kernel_arguments[] = {params};
    const launch_grid grid = {
        .kernel = numerics_bytes(kind) == 4 ? tconv_frames_f32_kernel(kind, plan.kernel, by_vectors)
                                            : tconv_frames_half_kernel(kind, plan.kernel, by_vectors),
        .blocks = plan.blocks,
        .threads = plan.threads,
        .shared_bytes = plan.shared_bytes,
        .overlaps = target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY,
    };
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, target.device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_allow_shared(grid.kernel, target.shared_bytes, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const frames_plan *plan = memory;
    const parameters *params = &plan->params;
    snprintf(
        text, capacity, "numerics=%s block_out=%d columns=%d row_tiles=%d slice_steps=%d stage_steps=%d blocks=%lld%s",
        numerics_name(numerics_of(layer)), params->block_out, plan->columns, params->row_tiles, params->slice_steps,
        params->stage_steps, (long long)plan->blocks, plan->kernel == FRAMES_WIDE ? " wide" : "");
}

/* A carry of fewer digits is rounded wherever a chunk ends. */
static bool is_chunk_invariant(const tconv_layer *layer, const void *memory)
{
    (void)layer;
    return !((const frames_plan *)memory)->params.carry.narrow;
}

const tconv_implementation tconv_cuda_frames = {
    .name = "cuda_frames",
    .backend = TCONV_BACKEND_CUDA,
    .dtypes = TCONV_DTYPES_TO_F32,
    .plan_bytes = sizeof(frames_plan),
    .plan = plan_layer,
    .pack = pack,
    .execute = execute,
    .describe = describe,
    .accumulates = true,
    .applies_posts = true,
    .streams = true,
    .chunk_invariant = is_chunk_invariant,
    .batch_invariant = tconv_always_batch_invariant,
};
