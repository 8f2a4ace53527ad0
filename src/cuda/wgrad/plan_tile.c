/* The tiles of a candidate. */
#include "plan_tile.h"

#include "../../core/checked.h"
#include "images.h"
#include "vectors.h"

enum { MAX_OFFSET = 32000 }; /* outputs from a K-tile's first: kernels keep them in 16 bits */

bool tconv_wgrad_takes_axis(const tconv_axis *axis)
{
    return axis->kernel <= MAX_TAPS && axis->in < WGRAD_MAX_EXTENT && axis->out < WGRAD_MAX_EXTENT &&
           axis->stride < MAX_OFFSET && axis->in * axis->stride < 4 * WGRAD_MAX_EXTENT &&
           axis->dilation * (axis->kernel - 1) < MAX_OFFSET && axis->pad < MAX_OFFSET &&
           axis->dilation * (axis->kernel - 1) - axis->pad < MAX_OFFSET;
}

static wgrad_tap_order order_of(const tconv_axis *axis, int64_t kernel_step, int64_t group_taps)
{
    return (wgrad_tap_order){(int)axis->kernel, (int)kernel_step, (int)group_taps,
                             (int)tconv_ceil_div(axis->kernel, group_taps)};
}

bool tconv_wgrad_cut_channels(const tconv_layer *layer, const candidate_tile *candidate, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    sum_tiles *tiles = &plan->params.tiles;
    const kernel_choice *kernel = candidate->kernel;
    const int64_t taps = candidate->row_taps * candidate->column_taps;
    const int64_t unit = kernel->family == BY_BOXES ? BOX_CHANNELS : candidate->lines ? 1 : vector_length(problem);
    const int64_t most = kernel->family == BY_MMA ? candidate->chunk : kernel->pairs / taps / unit * unit;
    if (most == 0)
        return false;
    tiles->chunks = tconv_ceil_div(problem->group_out, most);
    tiles->chunk = tconv_round_up(tconv_ceil_div(problem->group_out, tiles->chunks), unit);
    tiles->rows = order_of(&problem->h, layer->rows.kernel_step, candidate->row_taps);
    tiles->columns = order_of(&problem->w, layer->columns.kernel_step, candidate->column_taps);
    tiles->block_m = kernel->channels * candidate->warps_m;
    tiles->block_n = tconv_round_up(taps * tiles->chunk, kernel->pairs);
    tiles->m_tiles = tconv_ceil_div(problem->group_in, tiles->block_m);
    tiles->count =
        tiles->planes * problem->groups * tiles->m_tiles * tiles->chunks * tiles->rows.groups * tiles->columns.groups;
    plan->params.images.by_plane_tiles = divisor_of((int)tconv_min(tiles->count / tiles->planes, WGRAD_MAX_EXTENT));
    plan->params.images.by_planes = divisor_of((int)tiles->planes);
    const int64_t warps = candidate->warps_m * tiles->block_n / kernel->pairs;
    plan->threads = kernel->family == BY_BOXES   ? (int)BOX_BLOCK_THREADS
                    : kernel->family == BY_WGMMA ? (int)WARPGROUP_BLOCK_THREADS
                                                 : (int)warps * WARP;
    plan->params.warps_m = candidate->warps_m;
    return warps <= MAX_WARPS && tiles->count < WGRAD_MAX_EXTENT;
}

/* Lists the kernel indices of an axis in the order of tiles. */
static void list_taps(const wgrad_tap_order *order, int64_t taps[MAX_TAPS])
{
    int place = 0;
    for (int residue = 0; residue < order->kernel_step && residue < order->kernel; residue++)
        for (int k = residue; k < order->kernel; k += order->kernel_step)
            taps[place++] = k;
}

/* Lists the taps of each group of an axis by residues, for K-tiles of any size; false where there are too many slots. */
static bool cut_taps(const tconv_axis *axis, const wgrad_tap_order *order, tile_axis *tile, axis_slots *slots)
{
    int64_t taps[MAX_TAPS] = {0};
    tile->in = (int)axis->in;
    tile->out = (int)axis->out;
    tile->stride = (int)axis->stride;
    list_taps(order, taps);
    int residues = 0;
    *slots = (axis_slots){0};
    for (int group = 0; group < order->groups; group++) {
        int place = group * order->group_taps;
        const int end = place + order->group_taps < order->kernel ? place + order->group_taps : order->kernel;
        const int first = residues;
        int64_t ends[2] = {INT64_MAX, INT64_MIN};
        tile->first[group] = (int16_t)first;
        for (; place < end; residues++) { /* the taps of one residue; their outputs rise */
            const int64_t residue = taps[place] % order->kernel_step;
            const int64_t least = axis->dilation * taps[place] - axis->pad;
            tile->least[residues] = (int16_t)least;
            ends[0] = tconv_min(ends[0], least);
            ends[1] = tconv_max(ends[1], least);
            for (; place < end && taps[place] % order->kernel_step == residue; place++) {
                const int64_t slot = (axis->dilation * taps[place] - axis->pad - least) / axis->stride;
                if (slot >= MAX_SLOTS)
                    return false;
                tile->tap_residue[place] = (int16_t)(residues - first);
                tile->tap_slot[place] = (int16_t)slot;
                slots->reach = slot > slots->reach ? (int)slot : slots->reach;
            }
        }
        slots->residues = residues - first > slots->residues ? residues - first : slots->residues;
        slots->width = (int)tconv_max(slots->width, ends[1] - ends[0] + 1);
    }
    tile->first[order->groups] = (int16_t)residues;
    return true;
}

bool tconv_wgrad_cut_taps(const tconv_layer *layer, planned_layer *plan)
{
    parameters *params = &plan->params;
    tile_slots *slots = &plan->slots;
    return cut_taps(&layer->problem.h, &params->tiles.rows, &params->rows, &slots->rows) &&
           cut_taps(&layer->problem.w, &params->tiles.columns, &params->columns, &slots->columns);
}

/* Cuts an axis into K-tiles of 2^tile_log2 inputs; false where there are too many slots. */
static bool cut_axis(const axis_slots *slots, int tile_log2, tile_axis *tile)
{
    tile->tile_log2 = tile_log2;
    tile->tiles = (int)tconv_ceil_div(tile->in, (int64_t)1 << tile_log2);
    tile->extent = slots->reach + (1 << tile_log2);
    return slots->residues * tile->extent <= MAX_SLOTS && (int64_t)tile->stride * tile->extent <= MAX_OFFSET;
}

/* Returns the elements from the end of so many images to the next volume: modulo 2^64, where there are no other volumes. */
static int64_t beyond(int64_t volume, int64_t images, int64_t image)
{
    return (int64_t)((uint64_t)volume - (uint64_t)images * (uint64_t)image);
}

/* Cuts the images into K-tiles of 2^tile_log2. */
static void cut_images(const tconv_problem *problem, int tile_log2, parameters *params)
{
    image_axis *images = &params->images;
    images->tile_log2 = tile_log2;
    images->tiles = (int)tconv_ceil_div(images->in, (int64_t)1 << tile_log2);
    images->by_tiles = divisor_of(images->tiles > 0 ? images->tiles : 1);
    const int64_t cut = (int64_t)images->tiles << tile_log2;
    images->src_beyond = beyond(problem->src.n, cut, params->src_strides.n);
    images->dst_beyond = beyond(problem->dst.n, cut, params->dst_strides.n);
}

bool tconv_wgrad_cut_pixels(const tconv_layer *layer, const candidate_tile *candidate, planned_layer *plan)
{
    parameters *params = &plan->params;
    tile_slots *slots = &plan->slots;
    params->k_pixels = 1 << candidate->k_log2;
    cut_images(&layer->problem, candidate->k_log2 - candidate->row_log2 - candidate->column_log2, params);
    if (!cut_axis(&slots->rows, candidate->row_log2, &params->rows) ||
        !cut_axis(&slots->columns, candidate->column_log2, &params->columns))
        return false;
    params->residue_slots = (int)tconv_round_up(
        ((int64_t)params->rows.extent * params->columns.extent) << params->images.tile_log2, SLOT_BLOCK);
    slots->count = (int64_t)params->residue_slots * slots->rows.residues * slots->columns.residues;
    return true;
}

int tconv_wgrad_pitch(int64_t channels, bool half)
{
    if (!half) {
        int64_t words = tconv_round_up(channels, 4);
        while (words % 16 != 8)
            words += 4;
        return (int)words * 4;
    }
    const int64_t rows = tconv_ceil_div(channels, 8);
    return (int)(rows % 2 == 1 ? rows : rows + 1) * 16;
}

/* Returns the outputs from a K-tile's first to that of the slot which is furthest from it. */
static int64_t furthest_slot(const tile_axis *axis, int residues)
{
    int64_t furthest = 0;
    for (int i = 0; i < residues; i++) {
        const int64_t least = axis->least[i], greatest = least + axis->stride * (axis->extent - 1);
        furthest = tconv_max(furthest, tconv_max(-least, greatest));
    }
    return furthest;
}

/* Returns whether a place in a tensor so many images, rows and columns on is fewer bytes away than 32 bits hold. */
static bool is_within(const tconv_problem *problem, const tconv_strides *strides, int images_log2, int64_t rows,
                      int64_t columns)
{
    const int64_t images = ((int64_t)1 << images_log2) - 1;
    return images * strides->n + rows * strides->h + columns * strides->w <= INT32_MAX / (int64_t)problem->element_size;
}

bool tconv_wgrad_is_near(const tconv_layer *layer, const candidate_tile *candidate, const planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    const tile_axis *rows = &params->rows, *columns = &params->columns;
    return is_within(problem, &params->src_strides, params->images.tile_log2, 1 << candidate->row_log2,
                     1 << candidate->column_log2) &&
           is_within(problem, &params->dst_strides, params->images.tile_log2,
                     furthest_slot(rows, rows->first[params->tiles.rows.groups]),
                     furthest_slot(columns, columns->first[params->tiles.columns.groups]));
}
