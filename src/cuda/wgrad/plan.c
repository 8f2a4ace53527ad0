/* The search for a plan: candidates, each of which is laid out and predicted by its work (work.c). */
#include "plan.h"
#include "../cuda_target.h"

#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "../model/search.h"
#include "../numeric/divisor.h"
#include "../numeric/segment.h"
#include "images.h"
#include "plan_bias.h"
#include "plan_boxes.h"
#include "plan_lines.h"
#include "plan_splits.h"
#include "plan_tile.h"
#include "strict.h"
#include "vectors.h"
#include "work.h"

#include <string.h>

enum {
    BLOCK_SHARED_MEMORY = 1024, /* bytes that a block has beside its stages */
    TABLE_PIXEL = 20,           /* bytes of a block's tables for a pixel */
    TABLE_SLOT = 16,            /* bytes of a block's tables for a slot */
    MOST_BLOCK_SLOTS = 4096,    /* slots of a block's K-tile */
    FLUSH_TERMS = 8192,         /* terms that the tensor cores sum: they lose about 7e-9 of a sum with each */
    STRICT_TERMS = STRICT_ADDITIONS * STRICT_STEPS * 8, /* the same in 3xTF32 by wgmma */
    COPIES_BYTES = 44 << 20,                            /* of the copies of a chunk, beside COPIED_SLICES_BYTES */
    MOST_SHARERS = 2,                                   /* blocks of a multicast cluster */
    SHARERS_STAGES = 4,                                 /* stages that a cluster takes at least */
    MMA_STAGES = 3                                      /* stages of a kernel by mma.sync, at most */
};

/* The output channels of a tile of a kernel by mma.sync, at most. */
static const int64_t chunks[] = {64, 128, 256};

/* The bias of a gradient of dst of at most so many bytes is summed between the products and the pass that adds slices: beside the
 * products, a few multiprocessors would sum it. */
#define LATE_BYTES 8e6

/* Returns the neighbouring pixels of a row of `extent` pixels that one load can read, from multiples of `begins` on: a
 * power of two of at most a vector. */
static int unit_of(const tconv_problem *problem, const tconv_strides *strides, int64_t extent, int64_t begins)
{
    int64_t unit = vector_length(problem);
    while (unit > 1 &&
           (extent % unit != 0 || begins % unit != 0 || !tconv_cuda_begins_at_multiples(problem, strides, unit)))
        unit /= 2;
    return (int)unit;
}

/* Returns the load mode of a candidate. */
static load_mode load_of(const tconv_problem *problem, const candidate_tile *candidate)
{
    const kernel_family family = candidate->kernel->family;
    const bool src_vectors = has_vectors(problem, &problem->src, problem->group_in);
    if (candidate->lines)
        return LINES;
    if (src_vectors && has_vectors(problem, &problem->dst, problem->group_out))
        return family == BY_BOXES ? BOXES : CHANNELS;
    return src_vectors && problem->element_size == 2 && family == BY_WGMMA ? SRC_CHANNELS : ELEMENTS;
}

/* Returns the neighbouring pixels of src that one load reads in the rows of a K-tile. */
static int src_unit_of(const tconv_problem *problem, const candidate_tile *candidate)
{
    if (problem->layout != TCONV_NCHW)
        return 1;
    const int unit = unit_of(problem, &problem->src, problem->w.in, (int64_t)1 << candidate->column_log2);
    return problem->element_size == 4 && unit > 2 ? 2 : unit;
}

/* Returns the bytes of src in a stage. */
static int64_t src_bytes_of(const tconv_layer *layer, const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const int64_t size = (int64_t)layer->problem.element_size, channels = params->tiles.block_m;
    if (plan->kernel->family == BY_MMA)
        return (int64_t)params->k_pixels * params->src_pitch;
    return params->k_pixels * size * channels * (plan->math == NUMERICS_STRICT ? STRICT_PLANES : 1);
}

/* Returns the bytes of a block's tables. */
static int64_t table_bytes_of(const planned_layer *plan)
{
    const tile_slots *slots = &plan->slots;
    int64_t boxes = 0;
    if (plan->kernel->family == BY_WGMMA && plan->load == LINES)
        boxes = slots->rows.residues + MOST_SRC_BOXES;
    else if (plan->kernel->family == BY_WGMMA && plan->load == CHANNELS)
        boxes = (int64_t)slots->rows.residues * slots->columns.residues;
    return plan->params.k_pixels * TABLE_PIXEL + PIXELS_BEHIND * (int64_t)sizeof(int) + slots->count * TABLE_SLOT +
           boxes * BOX_TABLE_BYTES;
}

/* Returns for how many blocks of a multiprocessor there is memory, of so many more bytes each. */
static int blocks_by_memory(const tconv_layer *layer, const planned_layer *plan, int more)
{
    return (tconv_cuda_target_of(&layer->target).shared_bytes + BLOCK_SHARED_MEMORY) /
           (shared_bytes_of(&plan->params) + more + BLOCK_SHARED_MEMORY);
}

/* Finds how many stages, and blocks of a multiprocessor, there is memory for; false where there is too little. What a kernel by boxes
 * needs to sum the bias takes memory that is left. */
static bool choose_stages(const tconv_layer *layer, planned_layer *plan)
{
    parameters *params = &plan->params;
    const int sums = (int)tconv_round_up(plan->kernel->pairs * (int)sizeof(float) + ONES_BYTES, BOX_DESTINATION);
    const int by_registers = plan->kernel->resident_warps / (plan->threads / WARP);
    params->stages = plan->kernel->family == BY_MMA ? MMA_STAGES : MAX_STAGES;
    for (; params->stages >= 2; params->stages--) {
        const int by_memory = blocks_by_memory(layer, plan, 0);
        plan->resident = by_memory < by_registers ? by_memory : by_registers;
        if (plan->resident < 1)
            continue;
        plan->sums_outputs = plan->kernel->family == BY_BOXES && blocks_by_memory(layer, plan, sums) >= plan->resident;
        if (plan->sums_outputs)
            params->table_bytes += sums;
        return true;
    }
    return false;
}

/* Returns whether blocks that are neighbours along the input channels are to share the gradient of dst by multicast.
 * They wait for each other: it takes stages to hide that, and where src goes through registers it costs more than it
 * saves. */
static bool can_share(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    return plan->kernel->family != BY_MMA && plan->math == NUMERICS_TF32 && params->box_bytes > 0 &&
           params->tiles.m_tiles % MOST_SHARERS == 0 && params->stages >= SHARERS_STAGES && plan->load == LINES &&
           params->lines.src_box_pixels > 0;
}

/* Lays a K-tile of src and of the gradient of dst out in shared memory. */
static void lay_out_stage(const tconv_layer *layer, planned_layer *plan)
{
    const tile_slots *slots = &plan->slots;
    parameters *params = &plan->params;
    const sum_tiles *tiles = &params->tiles;
    const bool half = layer->problem.element_size == 2, mma = plan->kernel->family == BY_MMA;
    const bool boxes = plan->kernel->family == BY_BOXES;
    params->src_pitch = tconv_wgrad_pitch(tiles->block_m, half);
    params->dst_pitch = boxes ? BOX_CHANNELS * (int)sizeof(uint16_t) : tconv_wgrad_pitch(tiles->chunk, half);
    params->row_pitch = params->columns.extent * params->dst_pitch;
    params->column_pitch = params->dst_pitch;
    params->box_bytes = 0;
    params->lines = (line_layout){0};
    if (plan->load == LINES)
        tconv_wgrad_lay_out_lines(layer, plan);
    params->src_bytes = (int)src_bytes_of(layer, plan);
    const int64_t dst_bytes = plan->load == LINES
                                  ? (int64_t)slots->rows.residues * params->lines.residue_bytes
                                  : slots->count * params->dst_pitch * (boxes ? tiles->chunk / BOX_CHANNELS : 1);
    params->stage_bytes = (int)tconv_round_up(params->src_bytes + dst_bytes, mma ? BOX_DESTINATION : STAGE_ALIGNMENT);
    params->table_bytes =
        (int)tconv_round_up(table_bytes_of(plan) + (mma ? 0 : BARRIER_BYTES + RAW_BARRIER_BYTES), BOX_DESTINATION);
}

/* The search for the plan of a layer. */
typedef struct tile_search {
    const tconv_layer *layer; /* what tiles are cut of: the layer, or a part of it, whose tensors are copied */
    tconv_cuda_work begun;    /* of the whole layer */
    bool offered;             /* a candidate was laid out */
    planned_layer trial;      /* the candidate's: what all candidates have alike is set in it */
    tconv_search best;
} tile_search;

/* Makes of the plan of a candidate what is the same for all K-tiles; false where there is no such tile. */
static bool cut_tile(tile_search *search, const candidate_tile *candidate)
{
    const tconv_problem *problem = &search->layer->problem;
    planned_layer *plan = &search->trial;
    plan->kernel = candidate->kernel;
    if (!tconv_wgrad_cut_channels(search->layer, candidate, plan) || !tconv_wgrad_cut_taps(search->layer, plan))
        return false;
    const int64_t columns = plan->params.tiles.block_n;
    plan->params.weights = (weight_store){.strides = problem->weight,
                                          .outputs_inner = problem->weight.out == 1,
                                          .accumulates = problem->desc.accumulate != 0,
                                          .pitch = (int)(columns + columns / WARP) | 1};
    plan->load = load_of(problem, candidate);
    return true;
}

/* Returns whether no plan with the candidate's tile and K-tiles of so many pixels would be kept, for certain. */
static bool is_beyond(tile_search *search, int k_pixels)
{
    const tconv_problem *problem = &search->layer->problem;
    planned_layer *plan = &search->trial;
    const int64_t k_tiles = tconv_ceil_div(problem->batch * problem->d.in * problem->h.in * problem->w.in, k_pixels);
    plan->params.k_pixels = k_pixels;
    plan->params.k_tiles = (int)tconv_min(k_tiles, WGRAD_MAX_EXTENT);
    plan->resident = plan->kernel->resident_warps / (plan->threads / WARP);
    return search->offered && tconv_wgrad_is_beyond(&search->best, &search->begun, plan);
}

/* Makes the rest of the plan of a candidate; false where it does not fit. */
static bool lay_out(tile_search *search, const candidate_tile *candidate)
{
    const tconv_layer *layer = search->layer;
    planned_layer *plan = &search->trial;
    parameters *params = &plan->params;
    if (!tconv_wgrad_cut_pixels(layer, candidate, plan))
        return false;
    int64_t k_tiles = (int64_t)params->images.tiles * params->images.volumes;
    if (!tconv_checked_mul((int64_t)params->rows.tiles * params->columns.tiles, k_tiles, &k_tiles) ||
        k_tiles >= WGRAD_MAX_EXTENT || plan->slots.count > MOST_BLOCK_SLOTS)
        return false;
    params->k_tiles = (int)k_tiles;
    params->src_unit = src_unit_of(&layer->problem, candidate);
    lay_out_stage(layer, plan);
    if (!tconv_wgrad_is_near(layer, candidate, plan) || !tconv_wgrad_describe_boxes(layer, plan))
        return false;
    params->flush_tiles = (plan->math == NUMERICS_STRICT ? STRICT_TERMS : FLUSH_TERMS) / params->k_pixels;
    if (!choose_stages(layer, plan))
        return false;
    params->sharers = can_share(plan) ? MOST_SHARERS : 1;
    return true;
}

/* Offers a candidate. */
static void offer(tile_search *search, const candidate_tile *candidate)
{
    if (!lay_out(search, candidate))
        return;
    search->offered = true;
    if (tconv_wgrad_choose_splits(&search->best, &search->begun, &search->trial))
        tconv_search_keep(&search->best, &search->trial, search->trial.seconds);
}

/* Offers all boxes of 2^k_log2 inputs as K-tiles. Of those that are predicted alike the first is taken, which has the longest
 * rows. */
static void offer_boxes(tile_search *search, candidate_tile *candidate)
{
    const tconv_problem *problem = &search->layer->problem;
    const int k = candidate->k_log2, columns = log2_at_least(problem->w.in), rows = log2_at_least(problem->h.in);
    const int images = log2_at_least(tconv_max(1, src_images(problem)));
    for (int column = (int)tconv_min(k, columns); column >= 0; column--)
        for (int row = (int)tconv_min(k - column, rows); row >= 0; row--) {
            candidate->column_log2 = column;
            candidate->row_log2 = row;
            if (k - column - row <= images || (column == columns && row == rows))
                offer(search, candidate);
        }
}

/* Offers K-tiles of all numbers of pixels that a kernel takes. */
static void offer_k_tiles(tile_search *search, candidate_tile *candidate)
{
    const bool only_most = candidate->kernel->family != BY_MMA && search->layer->problem.element_size == 2;
    for (int k = only_most ? 6 : 5; 1 << k <= candidate->kernel->most_pixels; k++) {
        candidate->k_log2 = k;
        if (!is_beyond(search, 1 << k))
            offer_boxes(search, candidate);
    }
}

/* Returns the next lower number of taps that a group may have, of so many taps in even groups; 0 behind the last. */
static int64_t fewer_taps(int64_t kernel, int64_t taps)
{
    return taps > 1 ? tconv_ceil_div(kernel, tconv_ceil_div(kernel, taps - 1)) : 0;
}

/* Offers all groups of taps: of kernel rows; and of kernel columns where the group is one row, or the kernel is by boxes, whose
 * tiles have few GEMM columns. */
static void offer_taps(tile_search *search, candidate_tile *candidate)
{
    const int64_t rows = search->layer->problem.h.kernel, columns = search->layer->problem.w.kernel;
    for (int64_t row_taps = rows; row_taps > 0; row_taps = fewer_taps(rows, row_taps))
        for (int64_t column_taps = columns; column_taps > 0; column_taps = fewer_taps(columns, column_taps)) {
            candidate->row_taps = row_taps;
            candidate->column_taps = column_taps;
            if ((column_taps == columns || row_taps == 1 || candidate->kernel->family == BY_BOXES) &&
                cut_tile(search, candidate))
                offer_k_tiles(search, candidate);
        }
}

static image_axis images_of(const tconv_problem *problem)
{
    const bool deep = tconv_has_depth(problem);
    return (image_axis){.in = (int)src_images(problem),
                        .out = (int)dst_images(problem),
                        .step = deep ? (int)problem->d.stride : 1,
                        .are_planes = deep,
                        .first = deep ? (int)-problem->d.pad : 0,
                        .tap = deep ? (int)problem->d.dilation : 0,
                        .volumes = (int)volumes_of(problem),
                        .dst_image = image_stride(problem, &problem->dst)};
}

/* Returns the strides of a tensor whose neighbouring images in a K-tile are `step` images apart. */
static tconv_strides strides_of(const tconv_problem *problem, const tconv_strides *of, int64_t step)
{
    tconv_strides strides = *of;
    strides.n = step * image_stride(problem, of);
    return strides;
}

/* Begins a search for the best plan. It points to both. */
static void begin(tile_search *search, const tconv_layer *layer, planned_layer *best)
{
    const tconv_problem *problem = &layer->problem;
    memset(search, 0, sizeof *search);
    search->layer = layer;
    search->begun = tconv_wgrad_begin_work(layer, &(copy_cut){0});
    search->best = tconv_search_begin(layer, 0, best, sizeof *best);
    search->trial.math = numerics_of(layer);
    parameters *params = &search->trial.params;
    params->images = images_of(problem);
    params->src_strides = strides_of(problem, &problem->src, 1);
    params->dst_strides = strides_of(problem, &problem->dst, params->images.step);
    params->sharers = 1;
    params->tiles.planes = problem->d.kernel;
    params->tiles.groups = problem->groups;
    params->tiles.group_in = problem->group_in;
    params->tiles.group_out = problem->group_out;
}

/* Offers all kernels of a family whose blocks have one tile, by lines or not. */
static void offer_kernels(tile_search *search, kernel_family family, bool lines)
{
    const kernel_list list = tconv_wgrad_kernels(family, search->trial.math);
    candidate_tile candidate = {.warps_m = 1, .lines = lines};
    for (int i = 0; i < list.count; i++) {
        candidate.kernel = &list.kernels[i];
        offer_taps(search, &candidate);
    }
}

/* Offers the kernels by mma.sync. */
static void offer_mma(tile_search *search)
{
    const tconv_problem *problem = &search->layer->problem;
    const kernel_list list = tconv_wgrad_kernels(BY_MMA, search->trial.math);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        if (i > 0 && 2 * problem->group_out <= chunks[i])
            return;
        candidate_tile candidate = {.chunk = chunks[i]};
        for (int j = 0; j < list.count; j++) {
            candidate.kernel = &list.kernels[j];
            for (candidate.warps_m = 1; candidate.warps_m <= 4; candidate.warps_m *= 2)
                if (candidate.warps_m * candidate.kernel->channels < 2 * tconv_max(16, problem->group_in))
                    offer_taps(search, &candidate);
        }
    }
}

/* Offers copies in NHWC, where tensors lie in NCHW or have channels that do not fill vectors. */
static void offer_copies(tile_search *search)
{
    const tconv_layer *layer = search->layer;
    const tconv_problem *problem = &layer->problem;
    const bool has_src = has_vectors(problem, &problem->src, problem->group_in);
    if ((has_src && has_vectors(problem, &problem->dst, problem->group_out)) || tconv_has_depth(problem) ||
        !tconv_wgrad_can_copy(problem))
        return;
    const int64_t weights =
        problem->in_channels * problem->group_out * problem->h.kernel * problem->w.kernel * (int64_t)sizeof(float);
    const copy_cut cut =
        tconv_wgrad_cut_copies(problem, has_src, weights <= COPIED_SLICES_BYTES ? COPIES_BYTES : weights);
    const bool half = problem->element_size == 2, is_strict = search->trial.math == NUMERICS_STRICT;
    if (cut.images == 0 || (is_strict && problem->layout == TCONV_NCHW)) /* which cuda_nhwc copies */
        return;
    tconv_layer chunk = *layer;
    tconv_wgrad_take_chunk(&chunk.problem, &cut);
    tile_search copies = *search;
    copies.layer = &chunk;
    copies.begun = tconv_wgrad_begin_work(layer, &cut);
    copies.offered = false;
    copies.trial.copies = cut;
    copies.trial.params.images = images_of(&chunk.problem);
    copies.trial.params.src_strides = chunk.problem.src;
    copies.trial.params.dst_strides = chunk.problem.dst;
    if (half)
        offer_kernels(&copies, BY_BOXES, false);
    if (chunks_of(&cut) <= 1 || !is_strict) /* strict f32 adds to slices in its own way */
        offer_kernels(&copies, BY_WGMMA, false);
    search->best = copies.best;
}

/* Returns whether the numbers of images fit in what kernels keep them in. */
static bool takes_images(const tconv_problem *problem)
{
    const tconv_axis *d = &problem->d;
    const int64_t most = WGRAD_MAX_EXTENT, stride = image_stride(problem, &problem->dst);
    int64_t apart;
    return problem->batch < most && d->in < most && d->out < most && d->kernel < most && d->dilation < most &&
           d->stride < most / MAX_PIXELS && d->pad < most && d->pad > -most && d->stride * d->in < most &&
           d->dilation * d->kernel < most &&
           (!tconv_has_depth(problem) || tconv_checked_mul(MAX_PIXELS * d->stride, stride, &apart));
}

/* Returns the divisor of a number; of 1 where the number is 0, and nothing is divided. */
static fast_divisor divisor_by(int64_t number)
{
    return divisor_of((int)tconv_max(1, number));
}

static void divide_taps(const wgrad_tap_order *order, tap_divisors *by)
{
    by->whole = order->kernel / order->kernel_step;
    by->longer = order->kernel % order->kernel_step;
    by->step = divisor_by(order->kernel_step);
    by->whole_taps = divisor_by(by->whole);
    by->more_taps = divisor_by(by->whole + 1);
}

/* Finds what blocks of a plan divide by. */
static void find_divisors(parameters *params)
{
    const sum_tiles *tiles = &params->tiles;
    block_divisors *by = &params->by;
    by->tiles = divisor_by(tiles->count);
    by->shared_tiles = divisor_by(tiles->count / params->sharers);
    by->column_groups = divisor_by(tiles->columns.groups);
    by->row_groups = divisor_by(tiles->rows.groups);
    by->chunks = divisor_by(tiles->chunks);
    by->m_tiles = divisor_by(tiles->m_tiles);
    by->groups = divisor_by(tiles->groups);
    by->splits = divisor_by(params->splits);
    by->column_k_tiles = divisor_by(params->columns.tiles);
    by->row_k_tiles = divisor_by(params->rows.tiles);
    by->taps = divisor_by(tiles->rows.group_taps * tiles->columns.group_taps);
    by->column_taps = divisor_by(tiles->columns.group_taps);
    by->chunk = divisor_by(tiles->chunk);
    by->residue_slots = divisor_by(params->residue_slots);
    by->row_slots = divisor_by(params->rows.extent);
    by->column_slots = divisor_by(params->columns.extent);
    divide_taps(&tiles->rows, &by->rows);
    divide_taps(&tiles->columns, &by->columns);
}

bool tconv_wgrad_choose(const tconv_layer *layer, planned_layer *best)
{
    const tconv_problem *problem = &layer->problem;
    if (tconv_cuda_target_of(&layer->target).compute_capability < 80 || !takes_images(problem) ||
        !tconv_wgrad_takes_axis(&problem->h) || !tconv_wgrad_takes_axis(&problem->w))
        return false;
    tile_search search;
    begin(&search, layer, best);
    /* The kernels that are most often the best come first: the others are then found to be beyond them. */
    if (tconv_cuda_why_not_hopper(layer) == NULL) {
        if (tconv_wgrad_can_be_lines(problem))
            offer_kernels(&search, BY_WGMMA, true);
        offer_kernels(&search, BY_BOXES, false);
        offer_copies(&search);
        offer_kernels(&search, BY_WGMMA, false);
    }
    offer_mma(&search);
    best->bias_parts = search.best.found ? tconv_wgrad_plan_bias(layer, best) : 0;
    best->bias_apart = best->bias_parts == 0;
    best->bias_early = best->writes_weights || (double)(problem->batch * problem->out_channels) *
                                                       (double)(problem->d.out * problem->h.out * problem->w.out) *
                                                       (double)problem->element_size >
                                                   LATE_BYTES;
    if (search.best.found)
        find_divisors(&best->params);
    return search.best.found;
}
