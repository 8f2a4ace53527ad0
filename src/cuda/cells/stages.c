/* The pipeline stages of a plan: their layout and number; and the segments of long sums of strict f32. */
#include "../../core/checked.h"
#include "plan.h"

/* Returns the cycles of a load from a stage, on average over the warps that have all of their positions: four
 * channels of eight positions are read at once, and addresses that share a bank one after another. */
static double find_bank_cycles(const parameters *params)
{
    enum { BANKS = 32 };
    const int columns = params->tile_columns, rows = params->tile_rows, images = params->tile_images;
    /* Where they lie alike in all warps, one is enough. */
    const bool alike =
        (rows == 1 && images == 1) || columns % WARP_M == 0 || (WARP_M % columns == 0 && rows * columns % WARP_M == 0);
    const int warps = alike ? 1 : (int)tconv_max(1, images * rows * columns / WARP_M), loads = 2 * warps;
    int cycles = 0;
    for (int load = 0; load < loads; load++) {
        uint8_t taken[BANKS] = {0}, most = 0;
        bool missing = false; /* positions that the tile lacks are all read at the same address */
        for (int row = 0; row < 8; row++) {
            const int position = load / 2 * WARP_M + warp_position(params->neighbours, row, load % 2);
            const int offset = position_offset(params, position);
            if (offset == 0 && missing)
                continue;
            missing = missing || offset == 0;
            for (int channel = 0; channel < 4; channel++)
                taken[(unsigned)(offset + channel * params->channel_pitch) % BANKS]++;
        }
        for (int bank = 0; bank < BANKS; bank++)
            most = taken[bank] > most ? taken[bank] : most;
        cycles += most;
    }
    return (double)cycles / loads;
}

void tconv_cells_describe_box(int columns, int rows, layer_plan *plan)
{
    parameters *params = &plan->params;
    const int least = (int)tconv_ceil_div(columns, 4) * 4;
    int best_pitch = least, best_rows = rows;
    double best_cost = 0;
    for (int pitch = least; pitch <= least + 12; pitch += 4)
        for (int more = 0; more <= 1; more++) {
            params->row_pitch = pitch;
            params->channel_pitch = pitch * (rows + more);
            params->image_pitch = params->block_k * params->channel_pitch;
            if (best_cost > 0 && params->channel_pitch >= best_cost)
                continue;
            const double cycles = find_bank_cycles(params), cost = params->channel_pitch * (3 + cycles) / 4;
            if (best_cost == 0 || cost < best_cost) {
                best_cost = cost;
                best_pitch = pitch;
                best_rows = rows + more;
                plan->bank_cycles = cycles;
            }
        }
    plan->box_rows = best_rows;
    params->row_pitch = best_pitch;
    params->channel_pitch = best_pitch * best_rows;
    params->image_pitch = params->block_k * params->channel_pitch;
}

/* Returns the taps of an output along one axis. */
static int64_t axis_most_taps(const tconv_layer *layer, const tconv_phase_table *table)
{
    int64_t all = 0;
    for (int64_t i = 0; i < table->count; i++)
        all += table->phases[i].taps;
    return layer->phases_of_src ? all : table->max_taps;
}

int64_t tconv_cells_most_taps(const tconv_layer *layer)
{
    return axis_most_taps(layer, &layer->rows) * axis_most_taps(layer, &layer->columns);
}

bool tconv_cells_find_segments(const tconv_layer *layer, layer_plan *plan)
{
    /* The error of a sum of n like terms is at most n / 4 + 1 / 2 (compensated.cuh); that of a sum of segments is at
     * most both together, which is as much where they have two terms less in all. */
    enum { MARGIN_TERMS = 2 };
    parameters *params = &plan->params;
    const int64_t taps = tconv_cells_most_taps(layer);
    params->segment_k_blocks = params->k_blocks;
    if (!numerics_split(plan->numerics) || params->k_blocks * taps <= STRICT_ADDITIONS)
        return true;
    for (int segments = 2; segments < STRICT_ADDITIONS && segments <= params->k_blocks; segments++) {
        params->segment_k_blocks = (int)tconv_ceil_div(params->k_blocks, segments);
        if (params->segment_k_blocks * taps + segments + MARGIN_TERMS <= STRICT_ADDITIONS)
            return true;
    }
    return false;
}

bool tconv_cells_describe_stages(layer_plan *plan)
{
    parameters *params = &plan->params;
    int most_b_rows = 0;
    for (int p = 0; p < params->schedule_count; p++)
        for (int t = params->schedules[p].first_weight_tile; t < params->schedules[p].end_weight_tile; t++)
            most_b_rows = params->weight_tiles[t].b_rows > most_b_rows ? params->weight_tiles[t].b_rows : most_b_rows;
    const int64_t pixel_stage = (int64_t)params->image_pitch * params->tile_images * (int64_t)sizeof(float);
    params->b_row_bytes = (uint32_t)((numerics_split(plan->numerics) ? 2 : 1) * params->block_k * (int)sizeof(float));
    const int64_t weight_stage = (int64_t)most_b_rows * params->b_row_bytes;
    const int64_t memory = SHARED_MEMORY - (params->segment_k_blocks < params->k_blocks ? PARTIAL_SUM_BYTES : 0);
    if (2 * (pixel_stage + weight_stage) > memory)
        return false;
    params->pixel_stage_bytes = (uint32_t)pixel_stage;
    params->weight_stage_bytes = (uint32_t)weight_stage;
    params->pixel_stages = params->weight_stages = 2;
    const int stage_weight_tiles = (int)tconv_max(1, params->schedules[0].end_weight_tile / params->row_phases);
    const int most_pixel_stages = (int)tconv_min(MAX_STAGES, 4 * params->row_phases);
    for (;;) {
        const int64_t left = memory - params->pixel_stages * pixel_stage - params->weight_stages * weight_stage;
        const bool weights_first = params->weight_stages < params->pixel_stages * stage_weight_tiles;
        if (weights_first && params->weight_stages < MAX_STAGES && weight_stage <= left)
            params->weight_stages++;
        else if (params->pixel_stages < most_pixel_stages && pixel_stage <= left)
            params->pixel_stages++;
        else if (params->weight_stages < MAX_STAGES && weight_stage <= left)
            params->weight_stages++;
        else
            return true;
    }
}
