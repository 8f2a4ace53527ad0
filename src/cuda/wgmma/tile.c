/*
 * Lays a tile out in the layer: its MMA tiles, its patch, and its rows.
 *
 * The two MMA tiles of two warpgroups share a tile out: by row phases and column phases where there are two, else by
 * rows of positions or, the warpgroups, by output channels. A layer with one tap to a phase and no halo reads each
 * pixel of src at its own position alone: it is flat, and its positions go over all rows of an image, as if they were
 * one row, whatever their width.
 */
#include "plan.h"

#include "../../core/checked.h"
#include "../maps/hopper.h"

enum {
    MAX_PATCH = 16383,        /* pixels, of 16 bytes: the 14 bits of a descriptor's leading byte offset */
    STAGED_ROW_ALIGNMENT = 8, /* bytes: of the vectors that store tight rows */
    STAGE_PIXELS = 8          /* a core that is transposed in place has a multiple of these: 128 bytes */
};

/* MMA tile 0 is the column phase with more taps. */
static int first_column_phase(const tconv_phase_table *columns)
{
    return columns->count == 2 && columns->phases[1].taps > columns->phases[0].taps ? 1 : 0;
}

/* Shares a tile out among MMA tiles: by phases, and what is left over by rows of positions. */
static void lay_out_mma_tiles(const tconv_layer *layer, const tile_choice *choice, parameters *params)
{
    const bool column_phases = layer->columns.count == 2, same_rows = layer->rows.count == 2 || choice->split_channels;
    const int group_rows = (column_phases ? 1 : MMA_TILES) * choice->mma_tile_rows * choice->stack;
    params->box_parts = params->stage_boxes = params->map_row_channels = 1;
    params->stack = choice->stack;
    params->space_to_depth_log2 = choice->space_to_depth ? 1 : 0;
    params->position_columns = column_phases || choice->space_to_depth ? 2 : 1;
    params->mma_tile_channels = MMA_M / choice->stack >> params->space_to_depth_log2;
    params->warpgroup_channels = choice->split_channels ? params->mma_tile_channels : 0;
    params->tile_channels = params->mma_tile_channels + params->warpgroup_channels;
    params->mma_tile_rows = choice->mma_tile_rows;
    params->tile_rows = (same_rows ? 1 : WARPGROUPS) * group_rows;
    params->column_phases = column_phases ? 2 : 1;
    params->first_phase = first_column_phase(&layer->columns);
    params->stride_h = (int)layer->rows.stride;
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++) {
        params->row_residue[warpgroup] = (int)tconv_wgmma_row_phase(layer, warpgroup)->residue;
        params->k_block_a_stages[warpgroup] = (int)tconv_wgmma_row_phase(layer, warpgroup)->taps + choice->stack - 1;
        for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++)
            params->mma_tile_first_row[warpgroup][mma_tile] =
                (same_rows ? 0 : warpgroup * group_rows) +
                (column_phases ? 0 : mma_tile * choice->mma_tile_rows * choice->stack);
    }
    for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++)
        params->column_taps[mma_tile] = choice->space_to_depth ? tconv_wgmma_space_to_depth_taps(layer)
                                                               : (int)tconv_wgmma_column_phase(layer, mma_tile)->taps;
    params->max_k_block_a_stages = (int)tconv_max(params->k_block_a_stages[0], params->k_block_a_stages[1]);
    params->in_rows = (int)layer->problem.h.in;
    params->in_columns = (int)layer->problem.w.in;
    params->out_rows = (int)layer->problem.h.out;
    params->out_columns = (int)layer->problem.w.out;
}

/* Lays out a flat layer: all of src is one row, on which MMA tiles that are not phases follow one another, and so is
 * dst where its rows have one phase. */
static bool lay_out_flat(const tconv_layer *layer, tile_plan *plan)
{
    parameters *params = &plan->params;
    const tconv_problem *problem = &layer->problem;
    const int64_t alignment = BOX_ALIGNMENT / (int64_t)problem->element_size;
    const int mma_tiles = params->column_phases == 2 ? 1 : MMA_TILES;
    const int warpgroups = params->stride_h == 2 || params->warpgroup_channels > 0 ? 1 : WARPGROUPS;
    const int64_t positions = problem->h.in * problem->w.in, most = warpgroups * mma_tiles * plan->N;
    int64_t tiles = tconv_ceil_div(positions, plan->choice.mn_major ? most : tconv_min(most, MAX_TMA_BOX));
    int64_t tile_columns = tconv_round_up(tconv_ceil_div(positions, tiles), alignment);
    int64_t mma_tile_columns = tconv_round_up(tconv_ceil_div(tile_columns, warpgroups * mma_tiles), alignment);
    /* MMA tiles begin with boxes. */
    if (plan->choice.mn_major && warpgroups * mma_tiles > 1) {
        mma_tile_columns = plan->N;
        tile_columns = most;
    }
    params->tile_rows = 1;
    params->tile_columns = (int)tile_columns;
    params->column_tiles = (int)tiles;
    params->column_alignment = params->stage_alignment = (int)alignment;
    params->pitch = params->patch = params->box_pitch = params->box_patch = (int)tile_columns;
    plan->patch_rows = 1;
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
        for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++) {
            const int before = (warpgroups == 1 ? 0 : warpgroup * mma_tiles) + (mma_tiles == 1 ? 0 : mma_tile);
            params->mma_tile_first_row[warpgroup][mma_tile] = 0;
            params->mma_tile_first_column[warpgroup][mma_tile] = params->mma_tile_first_pixel[warpgroup][mma_tile] =
                (int)mma_tile_columns * before;
        }
    params->mma_tile_columns = (int)mma_tile_columns;
    params->in_rows = 1;
    params->in_columns = (int)positions;
    params->flat_columns = params->stride_h == 1 ? (int)positions : (int)problem->w.in;
    if (params->stride_h == 1) {
        params->out_rows = 1;
        params->out_columns = (int)(problem->h.out * problem->w.out);
    }
    const bool begin_with_boxes = warpgroups * mma_tiles == 1 || mma_tile_columns % SWIZZLE_PIXELS == 0;
    return mma_tile_columns <= plan->N && (!plan->choice.mn_major || begin_with_boxes);
}

/* Returns the columns of a row of the patch after space-to-depth, for a tile that reads `columns` of src and those of
 * the halo, from `first` on. Where all tiles begin alike modulo TMA's 16 bytes, the row begins as far past these as the
 * first column does. In f32, even and odd columns that follow one another are transposed without meeting in a bank. */
static int space_to_depth_pitch(const tconv_layer *layer, int64_t columns, int64_t halo, int64_t first)
{
    const int64_t element = (int64_t)layer->problem.element_size, alignment = BOX_ALIGNMENT / element;
    const int64_t beside = columns % alignment == 0 ? first & (alignment - 1) : alignment - 1;
    const int64_t pitch = tconv_round_up(columns + halo + beside, STAGE_PIXELS);
    return (int)(element == 4 ? pitch | STAGE_PIXELS : pitch);
}

/* Lays out a tile that is not flat. It has as many columns as an MMA tile's rows of the patch allow, made even over the
 * tiles of a row. */
static bool lay_out_patch(const tconv_layer *layer, tile_plan *plan)
{
    const tile_choice *choice = &plan->choice;
    parameters *params = &plan->params;
    const tconv_problem *problem = &layer->problem;
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const int64_t alignment = BOX_ALIGNMENT / (int64_t)problem->element_size;
    const int64_t depth = choice->space_to_depth ? 2 : 1;
    const int64_t first_of_pair = choice->space_to_depth ? tconv_wgmma_space_to_depth_first(layer) : 0;
    const int64_t positions = tconv_ceil_div(problem->w.out, columns->stride * depth);
    /* Columns of src: the halo, and from the first position to the first that is read. */
    const int64_t halo =
        choice->space_to_depth ? depth * (params->column_taps[0] - 1) : columns->max_shift - columns->min_shift;
    const int64_t first = choice->space_to_depth ? columns->max_shift - halo : columns->min_shift;
    const int64_t N = plan->N, mma_tile_rows = choice->mma_tile_rows;
    /* Columns beside the halo; rows are staged as far apart as they are here. */
    const int64_t skip = choice->tight ? 0 : alignment - 1;
    const int64_t multiple =
        choice->tight ? tconv_max(1, STAGED_ROW_ALIGNMENT / ((int64_t)problem->element_size * columns->count))
                      : alignment;
    /* N covers mma_tile_rows - 1 rows of the pitch and the columns of the last: most where the last is as long as the
     * others. */
    int64_t most = mma_tile_rows == 1 ? N : 0;
    const int64_t even = (N + halo + skip) / mma_tile_rows / multiple * multiple;
    for (int64_t pitch = even; mma_tile_rows > 1 && pitch <= even + multiple; pitch += multiple)
        most = tconv_max(most, tconv_min(pitch - halo - skip, N - (mma_tile_rows - 1) * pitch));
    if (most <= 0)
        return false;
    const int64_t tiles = tconv_ceil_div(positions, most);
    int64_t tile_columns = tconv_ceil_div(positions, tiles);
    if (tiles > 1 && tconv_round_up(tile_columns, alignment) <= most)
        tile_columns = tconv_round_up(tile_columns, alignment);
    params->tile_columns = params->mma_tile_columns = (int)tile_columns;
    params->column_tiles = (int)tconv_ceil_div(positions, tile_columns);
    params->column_alignment = (int)alignment;
    params->stage_alignment = choice->tight ? 1 : (int)alignment;
    params->tight = choice->tight;
    params->first_row = (int)rows->min_shift;
    params->first_column = (int)first;
    params->pitch = (int)tconv_round_up(tile_columns + halo + skip, multiple);
    params->box_pitch = (int)tconv_round_up(tile_columns + halo + alignment - 1, alignment);
    if (choice->space_to_depth)
        params->pitch = params->box_pitch = space_to_depth_pitch(layer, depth * tile_columns, halo, first);
    plan->patch_rows = (int)(params->tile_rows + rows->max_shift - rows->min_shift);
    params->in_place = choice->in_place;
    if (choice->in_place && plan->patch_rows * params->pitch % STAGE_PIXELS != 0)
        params->pitch = params->box_pitch += (int)alignment;
    params->patch = plan->patch_rows * params->pitch;
    params->box_patch = plan->patch_rows * params->box_pitch;
    params->a_stage_step = (int)rows->shift_step * params->pitch;
    params->column_step = (int)columns->shift_step;
    const int64_t first_pixel =
        choice->space_to_depth ? params->column_taps[0] - 1 + first_of_pair * params->pitch / 2 : 0;
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
        for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++)
            params->mma_tile_first_pixel[warpgroup][mma_tile] =
                (int)(params->mma_tile_first_row[warpgroup][mma_tile] + choice->stack - 1 +
                      tconv_wgmma_row_phase(layer, warpgroup)->first_shift - rows->min_shift) *
                    params->pitch +
                (int)(choice->space_to_depth
                          ? first_pixel
                          : tconv_wgmma_column_phase(layer, mma_tile)->first_shift - columns->min_shift);
    return params->box_pitch <= MAX_TMA_BOX && plan->patch_rows <= MAX_TMA_BOX && params->patch <= MAX_PATCH &&
           (mma_tile_rows - 1) * params->pitch + tile_columns <= N &&
           (!choice->in_place ||
            (params->pitch <= max_transposed_columns((int)problem->element_size, choice->space_to_depth) &&
             params->patch % STAGE_PIXELS == 0));
}

const tconv_phase *tconv_wgmma_row_phase(const tconv_layer *layer, int warpgroup)
{
    return &layer->rows.phases[layer->rows.count == 2 ? warpgroup : 0];
}

const tconv_phase *tconv_wgmma_column_phase(const tconv_layer *layer, int mma_tile)
{
    const tconv_phase_table *columns = &layer->columns;
    return &columns->phases[columns->count == 2 ? mma_tile ^ first_column_phase(columns) : 0];
}

bool tconv_wgmma_is_aligned(int64_t stride, const tconv_problem *problem)
{
    return stride * (int64_t)problem->element_size % BOX_ALIGNMENT == 0;
}

int tconv_wgmma_space_to_depth_taps(const tconv_layer *layer)
{
    return (int)(layer->problem.w.kernel / 2 + 1);
}

int tconv_wgmma_space_to_depth_first(const tconv_layer *layer)
{
    return (int)(layer->columns.max_shift & 1);
}

int tconv_wgmma_aligned_channels(const tconv_problem *problem)
{
    int channels = 1;
    while (!tconv_wgmma_is_aligned(channels * problem->src.c, problem))
        channels *= 2;
    return channels;
}

bool tconv_wgmma_lay_out_tile(const tconv_layer *layer, tile_plan *plan)
{
    lay_out_mma_tiles(layer, &plan->choice, &plan->params);
    return tconv_cuda_is_flat(layer) ? lay_out_flat(layer, plan) : lay_out_patch(layer, plan);
}
