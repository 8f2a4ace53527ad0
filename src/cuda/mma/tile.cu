/* What a tiling implies: the tile and its patch, the K-block and its pipeline stages in shared memory, the width of
 * accesses. */
#include "plan.h"

namespace tconv::mma
{

namespace
{

constexpr int64_t MAX_TILES = (int64_t)1 << 30; /* of positions: block numbers are 32-bit ones */
constexpr int MAX_SHARED_WORDS = 232448 / 4;    /* of a block on any device; less where the device says so */

/* The most elements, up to those of 16 bytes, that every one of the numbers is a multiple of. */
int common_vector(size_t element_size, const int64_t *numbers, size_t count)
{
    int vector = (int)(16 / element_size);
    for (size_t i = 0; i < count; i++)
        while (vector > 1 && numbers[i] % vector != 0)
            vector /= 2;
    return vector;
}

} // namespace

int set_taps(const parameters *params, int set)
{
    if (set < 0) {
        int most = 0;
        for (int i = 0; i < params->phase_sets; i++)
            most = (int)tconv_max(most, set_taps(params, i));
        return most;
    }
    int taps = 0;
    for (int i = 0; i < params->phase_warps; i++)
        if (set * params->phase_warps + i < params->row_phases)
            taps += params->rows[set * params->phase_warps + i].taps;
    return taps;
}

void share_warps(parameters *params, int phase_warps, int m_warps, int n_warps)
{
    params->phase_warps = phase_warps;
    params->phase_sets = ceil_div(params->row_phases, phase_warps);
    params->m_warps = m_warps;
    params->m_tiles = ceil_div(params->group_out, params->warp_m * m_warps);
    params->n_warps = n_warps;
}

bool lay_out_tile(const search *in, parameters *params, const kernel_config *config, int columns)
{
    const int vector = 16 / in->element_size;
    params->block_n = params->n_warps * config->mmas_n * MMA_N;
    if (columns > params->block_n || columns > MAX_TILE_EXTENT)
        return false;
    params->tile_columns = columns;
    params->tile_rows = (int)tconv_min(params->block_n / columns, in->position_rows);
    params->tile_rows = ceil_div(in->position_rows, ceil_div(in->position_rows, params->tile_rows)); /* even ones */
    params->tile_images =
        params->tile_rows == in->position_rows && columns >= in->position_columns
            ? (int)tconv_min(params->block_n / (columns * params->tile_rows), tconv_max(params->batch, 1))
            : 1;
    params->patch_rows = params->tile_rows + in->row_halo;
    params->patch_columns = columns + in->column_halo;
    if (!params->nhwc)
        params->patch_columns = round_up(params->patch_columns + vector - 1, vector);
    if (params->patch_rows > MAX_TILE_EXTENT || params->patch_columns > MAX_TILE_EXTENT ||
        (int64_t)params->tile_images * params->patch_rows * params->patch_columns > MAX_SHARED_WORDS)
        return false;
    params->row_tiles = ceil_div(in->position_rows, params->tile_rows);
    params->column_tiles = ceil_div(in->position_columns, columns);
    const int64_t tiles = (int64_t)ceil_div((int)tconv_max(params->batch, 1), params->tile_images) * params->row_tiles *
                          params->column_tiles;
    if (tiles >= MAX_TILES)
        return false;
    params->n_tiles = (unsigned int)tiles;
    params->linear = !params->nhwc && columns % (MMA_N * config->mmas_n) == 0;
    return true;
}

bool lay_out_shared(const search *in, parameters *params, int block_k_words, int stages)
{
    const int vector = 16 / in->element_size, word_elements = 4 / in->element_size;
    const int pixels = params->tile_images * params->patch_rows * params->patch_columns;
    const bool patch_16bit = !params->nhwc && word_elements == 2;
    params->patch_16bit = patch_16bit;
    params->block_k_words = block_k_words;
    params->k_blocks = ceil_div(params->group_in, block_k_words * word_elements);
    params->stages = stages;
    params->steps = params->shifts * (block_k_words / MMA_K_WORDS);
    /* Threads of a step's 4 words and 8 columns must meet 32 banks: 8 or 24 banks from a word to the next (NCHW), 4
     * times an odd number from a pixel to the next (NHWC). */
    const int channel_pitch = round_up(pixels - 8, 16) + 8;
    params->word_pitch = params->nhwc ? 1 : patch_16bit ? 2 * channel_pitch : channel_pitch;
    params->pixel_pitch = params->nhwc ? block_k_words + 4 : 1;
    params->weights_at = params->nhwc ? pixels * params->pixel_pitch : block_k_words * channel_pitch;
    const int64_t a_tile_words = (int64_t)params->m_warps * in->most_row_taps * params->column_taps *
                                 (block_k_words / MMA_K_WORDS) * (params->warp_m / MMA_M) * params->a_fragments *
                                 FRAGMENT_WORDS;
    if (stages * (params->weights_at + a_tile_words) * 4 > in->shared_bytes)
        return false;
    /* What is added from here on fits in 32 bits with the stages. */
    params->a_tile_words = (int)a_tile_words;
    params->stage_words = params->weights_at + params->a_tile_words;
    params->positions_at = stages * params->stage_words;
    params->schedule_at = params->positions_at + params->block_n;
    params->staging_at = params->schedule_at + params->max_row_taps * params->steps + 2;
    params->staged = !params->nhwc && in->layer->problem.w.stride > 2 && in->layer->problem.w.stride < 7 &&
                     in->layer->problem.w.stride != 4 && params->tile_columns % MMA_N == 0 &&
                     params->flat_columns % MMA_N == 0;
    const int staging = params->staged ? MMA_N * MMA_M / 2 * (int)in->layer->problem.w.stride * block_warps(params) : 0;
    params->offsets_at = round_up(params->staging_at + staging, 2);
    params->shared_bytes = (params->offsets_at + 2 * pixels / (params->nhwc ? 1 : vector)) * 4;
    return params->shared_bytes <= in->shared_bytes;
}

void fill_vectors(const tconv_problem *problem, parameters *params)
{
    const size_t size = problem->element_size;
    const tconv_strides *src = &problem->src, *dst = &problem->dst;
    const int64_t src_columns[] = {src->n, src->c, params->flat_columns != 0 ? 0 : src->h, params->src_columns};
    const int64_t src_pixels[] = {src->n, src->h, src->w, params->groups > 1 ? problem->group_in : 0};
    const int64_t dst_columns[] = {dst->n, dst->c, dst->h, 2 * problem->w.stride};
    const int64_t dst_pixels[] = {dst->n, dst->h, dst->w, params->groups > 1 ? problem->group_out : 0};
    params->src_vector = common_vector(size, params->nhwc ? src_pixels : src_columns, 4);
    params->store_vector = common_vector(size, params->nhwc ? dst_pixels : dst_columns, 4);
}

} // namespace tconv::mma
