/*
 * How a layer is tiled for the kernels: the cost model (model/cost.c) predicts the time of all tilings that fit, and
 * the least is taken. Nothing depends on addresses, so that weights packed once fit every call.
 */
#include "../model/planned.h"
#include "plan.h"

namespace tconv::mma
{

namespace
{

/* Steps that the tensor cores accumulate by themselves, which loses bits: with like terms in three products each, 8 may
 * be 30 units off, 4 no more than 16. */
constexpr int STRICT_FLUSH_STEPS = 4;
constexpr int FLUSH_STEPS = 16; /* of the other modes */

/* In strict f32 the additions of what tensor cores have accumulated may be off by a quarter of their number (like
 * terms): so many are within the bound of 16. */
constexpr int MAX_ADDITIONS = 48;

constexpr int64_t MAX_LONG_STRIDE = 5; /* of columns, that there are kernels for sums of any length for */

const kernel_config *configs_of(const tconv_layer *layer)
{
    static const kernel_config *const configs[MODES] = {tf32_configs,      strict_configs,   f16_nhwc_configs,
                                                        bf16_nhwc_configs, f16_nchw_configs, bf16_nchw_configs};
    return configs[mode_of(layer)];
}

/* Chooses the K-block and the stages for a tiling whose tile and warps are given, and keeps it if it is the best. */
void consider(search *in, parameters *params, const kernel_config *config)
{
    const int word_elements = 4 / in->element_size;
    const int all_words = round_up(ceil_div(params->group_in, word_elements), MMA_K_WORDS);
    for (int words = 32; words >= MMA_K_WORDS; words /= 2) {
        if (words >= 2 * all_words)
            continue;
        const int k_block = words < all_words ? words : all_words;
        const int resident = config->warps / block_warps(params);
        if (resident == 0)
            continue;
        const int share = (in->shared_bytes + SHARED_RESERVED) / resident - SHARED_RESERVED;
        int stages = MAX_STAGES;
        bool fits;
        do
            fits = lay_out_shared(in, params, k_block, stages);
        while ((!fits || params->shared_bytes > share) && --stages >= 2);
        if (!fits)
            continue;
        const tconv_cuda_work work = work_of(in, params, config);
        const double seconds = model::seconds_of(&in->machine, &work);
        if (in->best->config == NULL || seconds < in->best_seconds) {
            in->best->params = *params;
            in->best->config = config;
            in->best_work = work;
            in->best_seconds = seconds;
        }
    }
}

void consider_tile(search *in, parameters *params, const kernel_config *config, int columns)
{
    if (lay_out_tile(in, params, config, columns))
        consider(in, params, config);
}

/* Considers all ways to share out a block's warps. */
void consider_warps(search *in, parameters *params, const kernel_config *config, int phase_warps)
{
    const int full = round_up(in->position_columns, 2);
    for (int m_warps = 1; m_warps * phase_warps <= MAX_WARPS; m_warps *= 2) {
        if (m_warps > 1 && params->warp_m * m_warps >= 2 * params->group_out)
            break;
        for (int warps = 1; warps * m_warps * phase_warps <= MAX_WARPS; warps++) {
            if (warps * m_warps * phase_warps * 2 < MAX_WARPS / 2)
                continue;
            const int positions = warps * config->mmas_n * MMA_N;
            share_warps(params, phase_warps, m_warps, warps);
            in->most_row_taps = set_taps(params, -1);
            consider_tile(in, params, config, full);
            const int width = positions < full ? positions : full;
            for (int columns = width >= 64 ? 64 : 32; columns >= 16; columns /= 2)
                if (columns < full)
                    consider_tile(in, params, config, columns);
            if (positions < full && positions > 64)
                consider_tile(in, params, config, positions);
        }
    }
}

/* Makes one row of an image where every position reads its own pixel alone (kernel = stride, nothing cut off): rows
 * need not be told apart then, and tiles divide the row without rest. */
void flatten(search *in, parameters *params)
{
    const tconv_problem *problem = &in->layer->problem;
    if (in->row_halo != 0 || in->column_halo != 0 || params->min_row_shift != 0 || params->min_column_shift != 0 ||
        in->position_rows != params->src_rows || in->position_columns != params->src_columns ||
        params->src_columns % 2 != 0 || problem->h.in * problem->w.in > MAX_EXTENT)
        return;
    params->flat_columns = params->src_columns;
    params->src_columns *= params->src_rows;
    params->src_rows = 1;
    in->position_columns = params->src_columns;
    in->position_rows = 1;
}

/* How often what the tensor cores accumulated is added to an output; steps without a tap included. */
int64_t additions_of(const tconv_layer *layer, const parameters *params)
{
    const int64_t steps = tconv_ceil_div(layer->problem.group_in, MMA_K_WORDS);
    return tconv_ceil_div(layer->rows.max_taps * params->shifts * steps, params->flush_steps);
}

/* Begins a search, and fills in what all of its tilings have in common. */
void begin(const tconv_layer *layer, search *in, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const bool strict = mode_of(layer) == STRICT;
    in->layer = layer;
    in->shared_bytes = shared_limit(layer);
    in->element_size = (int)problem->element_size;
    in->row_halo = (int)(layer->rows.max_shift - layer->rows.min_shift);
    in->column_halo = (int)(layer->columns.max_shift - layer->columns.min_shift);
    in->position_rows = (int)tconv_ceil_div(problem->h.out, problem->h.stride);
    in->position_columns = (int)tconv_ceil_div(problem->w.out, problem->w.stride);
    params->a_fragments = strict ? 2 : 1;
    params->skew_mask = params->nhwc ? 0 : 16 / in->element_size - 1;
    flatten(in, params);
    fill_vectors(problem, params);
    params->flush_steps = strict ? STRICT_FLUSH_STEPS : FLUSH_STEPS;
    begin_works(in);
}

} // namespace

mode mode_of(const tconv_layer *layer)
{
    const bool nchw = layer->problem.layout == TCONV_NCHW;
    if (layer->problem.dtype == TCONV_F16)
        return nchw ? F16_NCHW : F16_NHWC;
    if (layer->problem.dtype == TCONV_BF16)
        return nchw ? BF16_NCHW : BF16_NHWC;
    return layer->target.math == TCONV_MATH_TF32 ? TF32 : STRICT;
}

const char *choose(const tconv_layer *layer, planned_layer *made, tconv_cuda_work *work)
{
    const int stride = (int)layer->problem.w.stride;
    parameters params;
    search in = {};
    const char *why = fill_layer(layer, &params);
    if (why != NULL)
        return why;
    in.best = made;
    begin(layer, &in, &params);
    const bool long_sums = mode_of(layer) == STRICT && additions_of(layer, &params) > MAX_ADDITIONS;
    for (const kernel_config *each = configs_of(layer); each->function != NULL; each++) {
        if (each->stride_w != stride || each->any_length != long_sums)
            continue;
        params.warp_m = MMA_M * each->mmas_m;
        params.channel_run = params.nhwc ? channel_run_of(each->mmas_m, layer->problem.element_size) : 1;
        if (each->mmas_m > 1 && params.warp_m >= 2 * params.group_out)
            continue;
        consider_warps(&in, &params, each, (int)tconv_min(params.row_phases, MAX_WARPS));
        if (params.row_phases > 1)
            consider_warps(&in, &params, each, 1);
    }
    if (made->config == NULL)
        return long_sums && stride > MAX_LONG_STRIDE
                   ? "strict f32 sums of more than 48 times 64 terms, whose rounding would have to be compensated, in "
                     "columns of a stride above 5"
                   : "no tile of this stride and kernel fits in shared memory";
    *work = in.best_work;
    return NULL;
}

} // namespace tconv::mma
