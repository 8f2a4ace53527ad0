/*
 * How a layer is tiled for the kernels: what they are told of the layer itself, what a tiling implies (the tile and its
 * patch, the K-block and its pipeline stages in shared memory), and the search. The cost model (model/cost.c) predicts
 * the time of all tilings that fit, and the least is taken. Nothing depends on addresses, so that weights packed once
 * fit every call.
 */
#include "plan.h"

enum {
    MAX_EXTENT = 1 << 29,                       /* images, channels, rows or columns: coordinates are 32-bit ones */
    MAX_TILES = 1 << 30,                        /* of positions: block numbers are 32-bit ones */
    MAX_SHARED_WORDS = HOPPER_SHARED_BYTES / 4, /* of a block on any device; less where the device says so */
    MAX_LONG_STRIDE = 5,                        /* of columns, that there are kernels for sums of any length for */

    /* Steps that the tensor cores accumulate by themselves, which loses bits: with like terms in three products each, 8
     * may be 30 units off, 4 no more than 16. */
    STRICT_FLUSH_STEPS = 4,
    FLUSH_STEPS = 16 /* of the other arithmetic */
};

/* ------------------------------------------------------------------------------------------------- the layer itself */

static void fill_rows(const tconv_layer *layer, parameters *params)
{
    params->row_phases = (int)tconv_min(layer->problem.h.stride, layer->problem.h.out);
    for (int64_t i = 0; i < layer->rows.count; i++) {
        const tconv_phase *phase = &layer->rows.phases[i];
        params->rows[phase->residue] =
            (row_phase){(int)phase->taps, (int)phase->first_kernel, (int)(phase->first_shift - layer->rows.min_shift)};
    }
}

/* Fills in the column shifts at which phases have taps, in ascending order. Returns false where there are too many
 * shifts. */
static bool fill_columns(const tconv_layer *layer, parameters *params)
{
    const tconv_phase_table *table = &layer->columns;
    for (int64_t shift = table->min_shift; shift <= table->max_shift; shift++) {
        column_shift column = {0};
        column.shift = (short)(shift - table->min_shift);
        column.before = (short)params->column_taps;
        for (int64_t i = 0; i < table->count; i++) {
            const tconv_phase *phase = &table->phases[i];
            const int64_t tap = (phase->first_shift - shift) / table->shift_step;
            if (tap < 0 || tap >= phase->taps || phase->first_shift - tap * table->shift_step != shift)
                continue;
            column.phases = (short)(column.phases | 1 << phase->residue);
            column.kernel[phase->residue] = (short)(phase->first_kernel + tap * table->kernel_step);
            params->column_taps++;
        }
        if (column.phases == 0)
            continue;
        if (params->shifts == MAX_COLUMN_SHIFTS)
            return false;
        params->columns[params->shifts++] = column;
    }
    return true;
}

/* Fills in what follows from the layer alone. Returns why the kernels cannot take the layer, or NULL. */
static const char *fill_layer(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t extents[] = {problem->batch, problem->in_channels, problem->out_channels,
                               problem->h.in,  problem->w.in,        problem->h.out,
                               problem->w.out, problem->h.kernel,    problem->w.kernel};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        if (extents[i] > MAX_EXTENT)
            return "an extent of 2^29 or more";
    if (problem->h.stride > MAX_STRIDE_H || problem->w.stride > MAX_STRIDE_W)
        return "strides of at most 16 x 8";
    if (layer->rows.max_shift - layer->rows.min_shift > MAX_TILE_EXTENT ||
        layer->columns.max_shift - layer->columns.min_shift > MAX_TILE_EXTENT ||
        layer->rows.max_taps > MAX_TILE_EXTENT || problem->w.kernel > MAX_TILE_EXTENT)
        return "taps that lie too far apart for a patch in shared memory";
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->nhwc = problem->layout == TCONV_NHWC;
    params->batch = (int)problem->batch;
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->groups = (int)problem->groups;
    params->src_rows = (int)problem->h.in;
    params->src_columns = (int)problem->w.in;
    params->dst_rows = (int)problem->h.out;
    params->dst_columns = (int)problem->w.out;
    params->stride_rows = (int)problem->h.stride;
    params->row_kernel_step = (int)layer->rows.kernel_step;
    params->row_shift_step = (int)layer->rows.shift_step;
    params->min_row_shift = (int)layer->rows.min_shift;
    params->min_column_shift = (int)layer->columns.min_shift;
    if (layer->rows.count == 0 || layer->columns.count == 0)
        return "outputs that are only bias";
    fill_rows(layer, params);
    params->max_row_taps = (int)layer->rows.max_taps;
    return fill_columns(layer, params) ? NULL : "at most 32 different column shifts";
}

/* -------------------------------------------------------------------------------------------- what a tiling implies */

/* Counts the row taps of all phases of a set of row phases. */
static int set_taps(const parameters *params, int set)
{
    int taps = 0;
    for (int phase = set * params->phase_warps; phase < (set + 1) * params->phase_warps; phase++)
        taps += phase < params->row_phases ? params->rows[phase].taps : 0;
    return taps;
}

/* Fills in how a block's warps are shared out. */
static void share_warps(tiling_search *search, int phase_warps, int m_warps, int n_warps)
{
    parameters *params = &search->tried.params;
    params->phase_warps = phase_warps;
    params->phase_sets = ceil_div(params->row_phases, phase_warps);
    params->m_warps = m_warps;
    params->m_tiles = ceil_div(params->group_out, params->warp_m * m_warps);
    params->n_warps = n_warps;
    params->block_n = n_warps * search->tried.config.mmas_n * MMA_SYNC_N;
    search->most_row_taps = 0;
    for (int set = 0; set < params->phase_sets; set++)
        search->most_row_taps = (int)tconv_max(search->most_row_taps, set_taps(params, set));
}

/* Fills in the tile for the warps' positions, in rows of so many columns. Returns false where there is none. */
static bool lay_out_tile(tiling_search *search, int columns)
{
    parameters *params = &search->tried.params;
    const int vector = VECTOR_BYTES / search->element_size, batch = (int)tconv_max(params->batch, 1);
    if (columns < 1 || columns > params->block_n || columns > MAX_TILE_EXTENT)
        return false;
    params->tile_columns = columns;
    params->tile_rows = (int)tconv_min(params->block_n / columns, search->position_rows);
    params->tile_rows =
        ceil_div(search->position_rows, ceil_div(search->position_rows, params->tile_rows)); /* even ones */
    params->tile_images = params->tile_rows == search->position_rows && columns >= search->position_columns
                              ? (int)tconv_min(params->block_n / (columns * params->tile_rows), batch)
                              : 1;
    params->patch_rows = params->tile_rows + search->row_halo;
    params->patch_columns = columns + search->column_halo;
    if (!params->nhwc)
        params->patch_columns = round_up(params->patch_columns + vector - 1, vector);
    if (params->patch_rows > MAX_TILE_EXTENT || params->patch_columns > MAX_TILE_EXTENT ||
        (int64_t)params->tile_images * params->patch_rows * params->patch_columns > MAX_SHARED_WORDS)
        return false;
    params->row_tiles = ceil_div(search->position_rows, params->tile_rows);
    params->column_tiles = ceil_div(search->position_columns, columns);
    const int64_t tiles = (int64_t)ceil_div(batch, params->tile_images) * params->row_tiles * params->column_tiles;
    if (tiles >= MAX_TILES)
        return false;
    params->n_tiles = (unsigned int)tiles;
    params->linear = !params->nhwc && columns % (MMA_SYNC_N * search->tried.config.mmas_n) == 0;
    return true;
}

/* Fills in K-blocks of so many words, the pipeline stages, and the layout of shared memory. Returns false where a block
 * may not ask for so much. */
static bool lay_out_shared(tiling_search *search, int block_k_words, int stages)
{
    parameters *params = &search->tried.params;
    const int vector = VECTOR_BYTES / search->element_size, word_elements = 4 / search->element_size,
              stride = search->tried.config.stride_w;
    const int pixels = params->tile_images * params->patch_rows * params->patch_columns;
    params->patch_16bit = !params->nhwc && word_elements == 2;
    params->block_k_words = block_k_words;
    params->k_blocks = ceil_div(params->group_in, block_k_words * word_elements);
    params->stages = stages;
    params->steps = params->shifts * (block_k_words / MMA_K_WORDS);
    /* Threads of a step's 4 words and 8 columns must meet 32 banks: 8 or 24 banks from a word to the next (NCHW), 4
     * times an odd number from a pixel to the next (NHWC). */
    const int channel_pitch = round_up(pixels - 8, 16) + 8;
    params->word_pitch = params->nhwc ? 1 : params->patch_16bit ? 2 * channel_pitch : channel_pitch;
    params->pixel_pitch = params->nhwc ? block_k_words + 4 : 1;
    params->weights_at = params->nhwc ? pixels * params->pixel_pitch : block_k_words * channel_pitch;
    const int64_t a_tile_words = (int64_t)params->m_warps * search->most_row_taps * params->column_taps *
                                 (block_k_words / MMA_K_WORDS) * (params->warp_m / MMA_SYNC_M) * params->a_fragments *
                                 FRAGMENT_WORDS;
    if (stages * (params->weights_at + a_tile_words) * 4 > search->shared_bytes)
        return false;
    /* What is added from here on fits in 32 bits with the stages. */
    params->a_tile_words = (int)a_tile_words;
    params->stage_words = params->weights_at + params->a_tile_words;
    params->positions_at = stages * params->stage_words;
    params->schedule_at = params->positions_at + params->block_n;
    params->staging_at = params->schedule_at + params->max_row_taps * params->steps + 2;
    params->staged = !params->nhwc && is_staged_stride(stride) && params->tile_columns % MMA_SYNC_N == 0 &&
                     params->flat_columns % MMA_SYNC_N == 0;
    const int staging = params->staged ? MMA_SYNC_N * MMA_SYNC_M / 2 * stride * block_warps(params) : 0;
    params->offsets_at = round_up(params->staging_at + staging, 2);
    params->shared_bytes = (params->offsets_at + 2 * pixels / (params->nhwc ? 1 : vector)) * 4;
    return params->shared_bytes <= search->shared_bytes;
}

/* Returns the most elements, up to those of a vector, that each of four numbers is a multiple of. */
static int common_vector(size_t element_size, const int64_t numbers[4])
{
    int vector = (int)(VECTOR_BYTES / element_size);
    for (int i = 0; i < 4; i++)
        while (vector > 1 && numbers[i] % vector != 0)
            vector /= 2;
    return vector;
}

/* Fills in the elements that a thread loads and stores at once, as far as strides allow: they are the same for all
 * tilings. */
static void fill_vectors(const tconv_problem *problem, parameters *params)
{
    const tconv_strides *src = &problem->src, *dst = &problem->dst;
    const int64_t src_columns[] = {src->n, src->c, params->flat_columns != 0 ? 0 : src->h, params->src_columns};
    const int64_t src_pixels[] = {src->n, src->h, src->w, params->groups > 1 ? problem->group_in : 0};
    const int64_t dst_columns[] = {dst->n, dst->c, dst->h, 2 * problem->w.stride};
    const int64_t dst_pixels[] = {dst->n, dst->h, dst->w, params->groups > 1 ? problem->group_out : 0};
    params->src_vector = common_vector(problem->element_size, params->nhwc ? src_pixels : src_columns);
    params->store_vector = common_vector(problem->element_size, params->nhwc ? dst_pixels : dst_columns);
}

/* ------------------------------------------------------------------------------------------------------- the search */

/* Offers tilings of so many columns, where the warps are given, with each K-block and the most stages that fit. */
static void offer_columns(tiling_search *search, int columns)
{
    const parameters *params = &search->tried.params;
    const int resident = search->tried.config.warps / block_warps(params);
    if (!lay_out_tile(search, columns) || resident == 0)
        return;
    const int share = (search->shared_bytes + SHARED_RESERVED) / resident - SHARED_RESERVED;
    const int all_words = round_up(ceil_div(params->group_in, 4 / search->element_size), MMA_K_WORDS);
    for (int words = 32; words >= MMA_K_WORDS; words /= 2) {
        if (words >= 2 * all_words)
            continue;
        int stages = MAX_STAGES;
        bool fits;
        do
            fits = lay_out_shared(search, words < all_words ? words : all_words, stages);
        while ((!fits || params->shared_bytes > share) && --stages >= 2);
        if (!fits)
            continue;
        const tconv_cuda_work work = tconv_mma_count_work(search);
        tconv_search_offer(&search->best, &search->tried, &work);
    }
}

/* Offers tilings for all ways to share out a block's warps. */
static void offer_warps(tiling_search *search, int phase_warps)
{
    const parameters *params = &search->tried.params;
    const int full = round_up(search->position_columns, 2);
    for (int m_warps = 1; m_warps * phase_warps <= MAX_WARPS; m_warps *= 2) {
        if (m_warps > 1 && params->warp_m * m_warps >= 2 * params->group_out)
            break;
        for (int warps = 1; warps * m_warps * phase_warps <= MAX_WARPS; warps++) {
            if (warps * m_warps * phase_warps * 2 < MAX_WARPS / 2)
                continue;
            share_warps(search, phase_warps, m_warps, warps);
            const int positions = params->block_n;
            offer_columns(search, full);
            for (int columns = tconv_min(positions, full) >= 64 ? 64 : 32; columns >= 16; columns /= 2)
                if (columns < full)
                    offer_columns(search, columns);
            if (positions < full && positions > 64)
                offer_columns(search, positions);
        }
    }
}

/* Makes one row of an image whose positions each read one pixel alone, that of the same coordinates (kernel = stride, nothing cut off): rows
 * need not be told apart then, and tiles divide the row without rest. */
static void flatten(tiling_search *search)
{
    parameters *params = &search->tried.params;
    if (search->row_halo != 0 || search->column_halo != 0 || params->min_row_shift != 0 ||
        params->min_column_shift != 0 || search->position_rows != params->src_rows ||
        search->position_columns != params->src_columns || params->src_columns % 2 != 0 ||
        (int64_t)params->src_rows * params->src_columns > MAX_EXTENT)
        return;
    params->flat_columns = params->src_columns;
    params->src_columns *= params->src_rows;
    params->src_rows = 1;
    search->position_columns = params->src_columns;
    search->position_rows = 1;
}

/* Returns whether sums in strict f32 are so long that a kernel has to keep what additions lose. */
static bool needs_compensation(const tconv_layer *layer, const parameters *params)
{
    /* How often what the tensor cores accumulated is added to an output; steps without a tap included. */
    const int64_t steps = tconv_ceil_div(layer->problem.group_in, MMA_K_WORDS);
    const int64_t additions = tconv_ceil_div(layer->rows.max_taps * params->shifts * steps, STRICT_FLUSH_STEPS);
    return additions > STRICT_ADDITIONS;
}

/* Begins a search: fills in what all tilings have in common. Returns why there is none, or NULL. */
static const char *begin(const tconv_layer *layer, tiling_search *search)
{
    const tconv_problem *problem = &layer->problem;
    mma_plan *tried = &search->tried;
    parameters *params = &tried->params;
    const char *why = fill_layer(layer, params);
    if (why != NULL)
        return why;
    search->layer = layer;
    search->shared_bytes = shared_limit(layer);
    search->element_size = (int)problem->element_size;
    search->row_halo = (int)(layer->rows.max_shift - layer->rows.min_shift);
    search->column_halo = (int)(layer->columns.max_shift - layer->columns.min_shift);
    search->position_rows = (int)tconv_ceil_div(problem->h.out, problem->h.stride);
    search->position_columns = (int)tconv_ceil_div(problem->w.out, problem->w.stride);
    search->begun = tconv_cuda_begin_work(layer);
    search->strict = tconv_cuda_is_strict(layer);
    search->row_vector = tconv_cuda_row_vector(layer);
    search->src_row_vector = tconv_cuda_src_row_vector(layer);
    tried->numerics = numerics_of(layer);
    tried->compensated = tried->numerics == NUMERICS_STRICT && needs_compensation(layer, params);
    params->a_fragments = search->strict ? 2 : 1;
    params->flush_steps = search->strict ? STRICT_FLUSH_STEPS : FLUSH_STEPS;
    params->skew_mask = params->nhwc ? 0 : VECTOR_BYTES / search->element_size - 1;
    flatten(search);
    fill_vectors(problem, params);
    return NULL;
}

/* Returns the shapes of the kernels of an arithmetic, ending with 0. */
static const short *shapes_of(numerics arithmetic, bool compensated)
{
    static const short tf32[] = {TCONV_MMA_TF32_SHAPES, 0}, strict[] = {TCONV_MMA_STRICT_SHAPES, 0},
                       long_sums[] = {TCONV_MMA_COMPENSATED_SHAPES, 0}, half[] = {TCONV_MMA_HALF_SHAPES, 0};
    if (arithmetic == NUMERICS_TF32)
        return tf32;
    if (arithmetic == NUMERICS_STRICT)
        return compensated ? long_sums : strict;
    return half;
}

/* Returns the kernel of a number among an arithmetic's shapes. */
static kernel_config config_of(const mma_plan *plan, int number)
{
    const int shape = shapes_of(plan->numerics, plan->compensated)[number];
    const int stride_w = shape / 100, mmas_m = shape / 10 % 10, mmas_n = shape % 10;
    const int warps = resident_warps(plan->numerics, plan->compensated, stride_w * mmas_m * mmas_n);
    return (kernel_config){number, stride_w, mmas_m, mmas_n, warps};
}

const char *tconv_mma_choose(const tconv_layer *layer, double limit, mma_plan *plan, tconv_cuda_work *work)
{
    tiling_search search = {.best = tconv_search_begin(layer, limit, plan, sizeof *plan)};
    const char *why = begin(layer, &search);
    if (why != NULL)
        return why;
    mma_plan *tried = &search.tried;
    parameters *params = &tried->params;
    const short *shapes = shapes_of(tried->numerics, tried->compensated);
    for (int number = 0; shapes[number] != 0; number++) {
        tried->config = config_of(tried, number);
        const int mmas_m = tried->config.mmas_m;
        params->warp_m = MMA_SYNC_M * mmas_m;
        params->channel_run = params->nhwc ? channel_run_of(mmas_m, layer->problem.element_size) : 1;
        if (tried->config.stride_w != layer->problem.w.stride ||
            (mmas_m > 1 && params->warp_m >= 2 * params->group_out))
            continue;
        offer_warps(&search, (int)tconv_min(params->row_phases, MAX_WARPS));
        if (params->row_phases > 1)
            offer_warps(&search, 1);
    }
    *work = search.best.work;
    return tconv_search_refusal(
        &search.best,
        tried->compensated && layer->problem.w.stride > MAX_LONG_STRIDE
            ? "strict f32 sums of more than 48 times 64 terms, whose rounding would have to be compensated, in "
              "columns of a stride above 5"
            : "no tile of this stride and kernel fits in shared memory");
}
