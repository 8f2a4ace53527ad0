/* The choice of a layer's tile by the cost model, and the description of the layer in such tiles. */
#include "plan.h"
#include "../../core/checked.h"
#include "../maps/hopper.h"

#include <math.h>
#include <string.h>

enum { LEAST_COLUMNS = 8 }; /* of a tile that is narrower than the image */

/* The positions of one image. */
typedef struct position_space {
    bool flat; /* one row, which runs on over the rows of the image */
    int64_t rows, columns;
} position_space;

static position_space find_positions(const tconv_layer *layer, int cell_rows)
{
    const tconv_problem *problem = &layer->problem;
    position_space space;
    space.flat = tconv_cells_is_flat(layer) && cell_rows <= layer->rows.stride;
    space.rows = tconv_ceil_div(problem->h.out, tconv_max(cell_rows, period_of(layer, &layer->rows)));
    space.columns = tconv_ceil_div(problem->w.out, period_of(layer, &layer->columns));
    if (space.flat) {
        space.columns = problem->h.in * problem->w.in;
        space.rows = 1;
    }
    return space;
}

/* The share of a block tile that is of images, had they as many rows as they have. */
static double fill_of(const tile_choice *choice, int64_t rows)
{
    const double tiles = (double)tconv_ceil_div(rows, choice->rows);
    return (double)choice->images * choice->columns * (double)rows / tiles / BLOCK_M;
}

/* Offers tiles of fewer rows than the choice's, of several images, where more of them is of images. */
static void offer_fewer_rows(tile_search *search, tile_choice choice, int64_t all_rows)
{
    enum { TRIES = 8 };
    const double worth_trying = 1.03;
    const int64_t batch = search->layer->problem.batch, first = tconv_ceil_div(all_rows, choice.rows) + 1;
    double best = fill_of(&choice, all_rows);
    for (int64_t tiles = first; tiles < first + TRIES && tiles <= all_rows; tiles++) {
        choice.rows = (int)tconv_ceil_div(all_rows, tiles);
        choice.images = (int)tconv_min(tconv_min(batch, MAX_TMA_BOX), BLOCK_M / (choice.rows * choice.columns));
        if (choice.images < 2 || fill_of(&choice, all_rows) < worth_trying * best)
            continue;
        best = fill_of(&choice, all_rows);
        tconv_cells_offer(search, &choice);
    }
}

/* Offers all tiles with the choice's cells and K-blocks. */
static void offer_tiles(tile_search *search, tile_choice choice)
{
    const tconv_layer *layer = search->layer;
    const position_space space = find_positions(layer, choice.cell_rows);
    for (int64_t tiles = tconv_ceil_div(space.columns, BLOCK_M);; tiles += 1 + tiles / 4) {
        const int64_t columns = tconv_ceil_div(space.columns, tiles);
        const int64_t fit = tconv_min(space.rows, BLOCK_M / columns);
        const int64_t rows = tconv_ceil_div(space.rows, tconv_ceil_div(space.rows, fit));
        choice.columns = (int)columns;
        choice.rows = (int)rows;
        choice.images = 1;
        if (rows == space.rows && columns == space.columns)
            choice.images =
                (int)tconv_min(tconv_min(tconv_max(layer->problem.batch, 1), MAX_TMA_BOX), BLOCK_M / (rows * columns));
        tconv_cells_offer(search, &choice);
        offer_fewer_rows(search, choice, space.rows);
        if (columns <= LEAST_COLUMNS)
            return;
    }
}

/* Returns whether each schedule is one entry, whose window is all of N. */
static bool has_whole_entries(const parameters *params, int mma_tiles)
{
    for (int p = 0; p < params->schedule_count; p++) {
        const tap_schedule *schedule = &params->schedules[p];
        const schedule_entry *entry = &params->entries[schedule->first_entry];
        if (schedule->end_entry - schedule->first_entry != 1 || entry->pixel != 0 || entry->window != mma_tiles)
            return false;
    }
    return true;
}

/* Finds the kernel for so many wgmma steps with the largest MMA_N up to max_n; false where there is none. */
static bool find_config(int max_n, int mma_steps, layer_plan *plan)
{
    const bool half = numerics_bytes(plan->numerics) == 2, strict = numerics_split(plan->numerics);
    const kernel_config *configs = half ? half_configs : strict ? strict_configs : tf32_configs;
    const int count = half ? HALF_CONFIGS : strict ? STRICT_CONFIGS : TF32_CONFIGS;
    plan->config.mma_n = 0;
    for (int i = 0; i < count; i++)
        if (configs[i].mma_steps == mma_steps && configs[i].mma_n <= max_n && configs[i].mma_n > plan->config.mma_n) {
            plan->config = configs[i];
            plan->config_number = i;
        }
    return plan->config.mma_n > 0;
}

/* Describes the cell and finds the kernel; false where there is none. */
static bool describe_cell(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan)
{
    parameters *params = &plan->params;
    const int64_t stride = period_of(layer, &layer->rows);
    const bool phases = choice->cell_rows < stride;
    params->cell_rows = choice->cell_rows;
    params->cell_columns = (int)period_of(layer, &layer->columns);
    params->neighbours = params->cell_columns < 4; /* a cell of 4 columns is a vector by itself */
    params->stationary = choice->stationary;
    const int n = params->stationary ? STATIONARY_BLOCK_N : block_n(numerics_split(plan->numerics));
    params->cell_channels = n / (params->cell_rows * params->cell_columns);
    for (params->cell_channels_log2 = 0; 1 << params->cell_channels_log2 < params->cell_channels;
         params->cell_channels_log2++) {
    }
    if (phases && (params->cell_rows != 1 || stride > MAX_SCHEDULES))
        return false;
    if (params->stationary)
        plan->config = (kernel_config){params->cell_channels, choice->mma_steps}; /* its kernels have one window */
    else if (!find_config((int)tconv_min(params->cell_channels, n / 2), choice->mma_steps, plan))
        return false;
    params->schedule_count = phases ? (int)stride : 1;
    params->row_step = phases ? 1 : (int)(params->cell_rows / stride);
    params->column_step = layer->phases_of_src ? (int)layer->columns.stride : 1;
    params->src_row_step = layer->phases_of_src ? (int)layer->rows.stride : 1;
    params->row_phases = layer->phases_of_src ? (int)layer->rows.count : 1;
    if (params->row_phases > MAX_ROW_PHASES)
        return false;
    params->out_row_step = phases ? (int)stride : params->cell_rows;
    return true;
}

/* Describes the layer's extents and the K-blocks. false where a K-block would reach into the next channel group, but where
 * phases are those of src: then pixels are copied, as far as the group's channels. */
static bool describe_extents(const tconv_layer *layer, const tile_choice *choice, const position_space *space,
                             parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    params->images = (int)problem->batch;
    params->in_rows = space->flat ? 1 : (int)problem->h.in;
    params->in_columns = (int)(space->flat ? problem->h.in * problem->w.in : problem->w.in);
    params->flat_columns = space->flat ? (int)problem->w.in : 0;
    params->out_rows = (int)problem->h.out;
    params->out_columns = (int)problem->w.out;
    params->tile_images = choice->images;
    params->tile_rows = choice->rows;
    params->tile_columns = choice->columns;
    params->mma_steps = choice->mma_steps;
    params->block_k = choice->mma_steps * MMA_K;
    params->groups = (int)problem->groups;
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->k_blocks = (int)tconv_ceil_div(params->group_in, params->block_k);
    params->copied = params->groups > 1 && params->group_in % params->block_k != 0;
    return !params->copied || (layer->phases_of_src && !params->stationary);
}

/* Counts the tiles; false where they are too many for the kernel's 32-bit numbers. */
static bool count_tiles(const position_space *space, parameters *params)
{
    params->channel_tiles = (int)tconv_ceil_div(params->group_out, params->cell_channels);
    params->image_tiles = (int)tconv_ceil_div(params->images, params->tile_images);
    params->row_tiles = (int)tconv_ceil_div(space->rows, params->tile_rows);
    params->column_tiles = (int)tconv_ceil_div(space->columns, params->tile_columns);
    const double m_tiles = (double)params->image_tiles * params->row_tiles * params->column_tiles;
    const double tiles =
        ceil(m_tiles / CLUSTER_BLOCKS) * params->groups * params->channel_tiles * params->schedule_count;
    if (CLUSTER_BLOCKS * tiles >= (double)HOPPER_MAX_EXTENT)
        return false;
    params->m_tiles = (int)m_tiles;
    params->tiles = (int)tiles;
    return true;
}

bool tconv_cells_is_flat(const tconv_layer *layer)
{
    return !layer->phases_of_src && tconv_cuda_is_flat(layer) &&
           (layer->problem.h.in == 1 || layer->problem.src.h == layer->problem.w.in);
}

/* Plans the layer with this choice; false where it does not fit, or takes no less than the best plan for certain. */
static bool describe_layer(const tile_search *search, const tile_choice *choice, layer_plan *plan)
{
    const tconv_layer *layer = search->layer;
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    memset(plan, 0, sizeof *plan);
    plan->numerics = search->numerics;
    plan->straddle = search->straddle;
    if (!describe_cell(layer, choice, plan))
        return false;
    const position_space space = find_positions(layer, choice->cell_rows);
    axis_taps rows, columns;
    if (!tconv_cells_find_taps(layer, &layer->rows, params->cell_rows, 0, &rows) ||
        !tconv_cells_find_column_taps(layer, params->cell_columns, &columns))
        return false;
    for (int i = 0; i < params->row_phases; i++)
        params->first_rows[i] = rows.min_shift + (layer->phases_of_src ? (int)layer->rows.phases[i].residue : 0);
    params->first_column = columns.min_shift;
    if (!describe_extents(layer, choice, &space, params) || !tconv_cells_find_segments(layer, plan) ||
        !count_tiles(&space, params))
        return false;
    const tconv_cuda_work least = tconv_cells_least_work_of(layer, plan);
    if (tconv_search_is_beyond(&search->best, &least))
        return false;
    int skipped = 0; /* columns of a box before its tile's first, at most */
    for (int tile = 0; tile < COLUMN_ALIGNMENT && tile * (int64_t)params->tile_columns < space.columns; tile++)
        skipped = (int)tconv_max(skipped, (tile * params->tile_columns * params->column_step + params->first_column) &
                                              (COLUMN_ALIGNMENT - 1));
    params->used_columns =
        skipped + (params->tile_columns - 1) * params->column_step + columns.shifts + (plan->straddle ? 1 : 0);
    params->used_rows = (params->tile_rows - 1) * params->row_step + rows.shifts;
    tconv_cells_describe_box(params->used_columns, params->used_rows, plan);
    if (params->row_pitch > MAX_TMA_BOX || (plan->box_rows - 1) * params->src_row_step >= MAX_TMA_BOX ||
        params->tile_images > MAX_TMA_BOX || params->tile_images * params->tile_rows * params->tile_columns > BLOCK_M)
        return false;
    if (!tconv_cells_write_schedules(layer, choice, &columns, plan))
        return false;
    if (!(params->stationary ? tconv_cells_describe_stationary(layer, plan) : tconv_cells_describe_stages(plan)))
        return false;
    const int n = block_n(numerics_split(plan->numerics));
    if (!params->stationary && has_whole_entries(params, n / plan->config.mma_n))
        find_config(n, choice->mma_steps, plan);
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    plan->packing.strides = problem->weight;
    plan->packing.group_step = layer->phases_of_src ? layer->group_weights : problem->group_in * problem->weight.in;
    plan->packing.core_rows =
        (int64_t)params->groups * params->channel_tiles * params->b_rows * params->k_blocks * params->mma_steps * 2;
    return true;
}

void tconv_cells_offer(tile_search *search, const tile_choice *choice)
{
    layer_plan plan;
    if (!describe_layer(search, choice, &plan))
        return;
    const tconv_cuda_work work = tconv_cells_work_of(search->layer, &plan);
    tconv_search_offer(&search->best, &plan, &work);
}

tconv_search tconv_cells_choose(const tconv_layer *layer, numerics mode, bool straddle, double limit, layer_plan *best)
{
    tile_search search = {layer, mode, straddle, tconv_search_begin(layer, limit, best, sizeof *best)};
    const int most_rows = block_n(numerics_split(mode)) / 32 / (int)period_of(layer, &layer->columns);
    for (int rows = 1; rows <= most_rows; rows *= 2) {
        if (rows > 1 && rows % period_of(layer, &layer->rows) != 0)
            continue;
        for (int mma_steps = 2; mma_steps <= 4; mma_steps += 2)
            for (int per_shift = 0; per_shift < 2; per_shift++) {
                const tile_choice choice = {false, rows, mma_steps, per_shift == 1, 1, 1, 1};
                offer_tiles(&search, choice);
            }
    }
    tconv_cells_offer_stationary(&search);
    return search.best;
}
