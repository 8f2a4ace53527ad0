/* The candidates for the block tile of an implicit GEMM, of which the one with the least predicted time is taken. */
#include "../../core/checked.h"
#include "../model/planned.h"
#include "plan.h"

#include <cstring>

namespace tconv::igemm
{

namespace
{

constexpr int64_t LEAST_COLUMNS = 8; /* positions: narrower tiles are not tried where there are wider ones */

/* Bytes of src, at most, for it to be transposed: what is read again should come from the second-level cache, and the
 * workspace be small. */
constexpr int64_t MOST_TRANSPOSED_BYTES = 48 << 20;

mode mode_of(const tconv_layer *layer)
{
    if (layer->problem.dtype == TCONV_F16)
        return MODE_F16;
    if (layer->problem.dtype == TCONV_BF16)
        return MODE_BF16;
    return layer->target.math == TCONV_MATH_TF32 ? MODE_TF32 : MODE_STRICT;
}

const config *configs_of(const search *in)
{
    const config *const configs[] = {tf32_configs, strict_configs, f16_configs, bf16_configs};
    const config *const sums[] = {tf32_configs, strict_configs, f16_sums_configs, bf16_sums_configs};
    return (in->sums ? sums : configs)[mode_of(in->seen)];
}

/* Tells whether src can be transposed in the workspace. */
bool may_be_transposed(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t elements = problem->batch * problem->in_channels * problem->h.in * problem->w.in;
    return problem->layout == TCONV_NCHW && !is_transposed_before(layer) && elements <= MOST_TRANSPOSED_BYTES &&
           transposed_bytes(problem) <= MOST_TRANSPOSED_BYTES;
}

/* The partial sums that those of the phase with most taps are made of, or of as many phases as a tile sums over. */
int64_t most_partial_sums(const tconv_layer *layer, const parameters *of)
{
    return of->k_blocks * layer->rows.max_taps * layer->columns.max_taps * of->src_phases;
}

/* Tells whether tiles may be of the plan's config. Those of fewer MMA tiles than the mode's others are for layers that
 * do not fill the multiprocessors; not where pairs are stored, or where raw stages are transposed for each tap, which
 * more tiles do more often. */
bool may_have(const search *in, const tile_choice *choice, const layer_plan *plan)
{
    const tconv_layer *layer = in->seen;
    const parameters *of = &plan->parameters;
    return plan->config.mma_tiles == configs_of(in)[0].mma_tiles ||
           (of->tiles <= layer->target.multiprocessors && !(of->merged && has_pairs(layer, choice, of)) &&
            (of->src_channels_last || !of->per_tap));
}

/* Plans the layer in tiles of this choice; false where that does not fit, or takes no less than the limit. */
bool describe_candidate(const search *in, const tile_choice *choice, double limit, layer_plan *plan)
{
    const tconv_layer *layer = in->seen;
    *plan = layer_plan();
    plan->mode = mode_of(layer);
    plan->config = configs_of(in)[choice->config];
    plan->output_bytes = in->output_bytes;
    describe_layer(layer, choice->src_transposed, plan);
    if (layer->phases_of_src && !plan->parameters.by_tma)
        return false; /* a pixel between others would be gathered one by one */
    if (plan->config.N % MMA_M != 0 && !is_fed_by_tma(plan))
        return false; /* N of 96 was timed there alone */
    describe_mma_tiles(layer, choice, plan);
    if (!describe_tile(layer, choice, plan) ||
        (!plan->config.long_sums && most_partial_sums(layer, &plan->parameters) > MAX_PLAIN_SUMS))
        return false;
    if (!may_have(in, choice, plan))
        return false;
    const tconv_cuda_work tile = tile_work_of(in, plan);
    return !tconv_cuda_is_beyond(limit, &in->machine, &tile) && choose_stages(in, choice, &tile, plan);
}

/* Takes the candidate where its predicted time is the least up to now. */
void try_tile(const search *in, const tile_choice *choice, layer_plan *best)
{
    const double limit = best->seconds > 0 ? best->seconds : in->limit;
    layer_plan plan;
    if (limit > 0 && least_seconds_of(in, choice, &configs_of(in)[choice->config]) >= limit)
        return;
    if (describe_candidate(in, choice, limit, &plan) && (limit == 0 || plan.seconds < limit))
        *best = plan;
}

/* Tries all tiles of so many M tiles: rows of positions in equal parts, as many rows and images as fit. */
void try_tiles(const search *in, tile_choice choice, const config *config, layer_plan *best)
{
    const position_space space = space_of(in->seen, &choice);
    const int64_t block_n = mma_tiles_of(config) / choice.m_tiles * config->N;
    for (int64_t tiles = tconv_ceil_div(space.columns, block_n);; tiles += 1 + tiles / 8) {
        const int64_t columns = tiles == 1 && space.columns < block_n ? space.columns
                                : space.flat                          ? block_n
                                                                      : tconv_ceil_div(space.columns, tiles);
        const int64_t pitch = columns + space.column_halo;
        int64_t rows = tconv_min(space.rows, (block_n - columns) / pitch + 1);
        rows = tconv_ceil_div(space.rows, tconv_ceil_div(space.rows, rows));
        const int64_t image = (rows + space.row_halo) * pitch, first = (rows - 1) * pitch + columns;
        choice.columns = (int)columns;
        choice.rows = (int)rows;
        choice.images = 1;
        if (rows == space.rows && columns == space.columns)
            choice.images = (int)tconv_min(tconv_min(space.images, MAX_TMA_BOX), (block_n - first) / image + 1);
        try_tile(in, &choice, best);
        if (space.flat || columns <= LEAST_COLUMNS)
            return;
    }
}

/* Tries the narrow tiles of so many M tiles: MMA tiles below and beside one another. */
void try_narrow_tiles(const search *in, tile_choice choice, const config *config, layer_plan *best)
{
    const int n_tiles = mma_tiles_of(config) / choice.m_tiles;
    choice.per_tap = false;
    choice.images = 1;
    for (choice.across = 1; choice.across <= n_tiles; choice.across *= 2) {
        choice.columns = choice.across * CORE_ROWS;
        choice.rows = n_tiles / choice.across * config->N / CORE_ROWS;
        try_tile(in, &choice, best);
    }
}

} // namespace

int mma_tiles_of(const config *config)
{
    return WARPGROUPS * config->mma_tiles;
}

bool choose(const search *in, layer_plan *best)
{
    const tconv_layer *layer = in->seen;
    const config *configs = configs_of(in);
    /* Without a halo a plain tile is as good as a narrow one, and in NCHW a row should have many neighbours. */
    const position_space space = space_of(layer, false, false);
    const bool halo = space.row_halo + space.column_halo > 0;
    tile_choice choice;
    memset(&choice, 0, sizeof choice);
    for (choice.config = 0; choice.config < CONFIGS && configs[choice.config].N > 0; choice.config++)
        for (choice.m_tiles = 1; choice.m_tiles <= mma_tiles_of(&configs[choice.config]); choice.m_tiles *= 2) {
            for (int src_transposed = 0; src_transposed <= (may_be_transposed(layer) ? 1 : 0); src_transposed++) {
                choice.src_transposed = src_transposed == 1;
                for (int per_tap = 0; per_tap < 2; per_tap++) {
                    choice.per_tap = per_tap == 1;
                    try_tiles(in, choice, &configs[choice.config], best);
                }
                choice.im2col = may_be_im2col(layer);
                if (choice.im2col)
                    try_tiles(in, choice, &configs[choice.config], best);
                choice.im2col = false;
                if (halo &&
                    (choice.src_transposed || is_transposed_before(layer) || layer->problem.layout == TCONV_NHWC))
                    try_narrow_tiles(in, choice, &configs[choice.config], best);
            }
        }
    if (best->seconds == 0)
        return false;
    describe_divisors(&best->parameters);
    return true;
}

} // namespace tconv::igemm
