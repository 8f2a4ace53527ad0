/* How a layer is cut up for the row kernel: tiles of columns as wide as shared memory allows, and strips of rows that
 * end together; and the tables of taps. */
#include "../cuda_target.h"
#include "plan.h"

enum {
    LEAST_ZEROS = 256, /* elements, where a row of them does not fit: a few bulk stores a row */

    /* Channels of src in shared memory begin in different banks for the lanes of a fragment. */
    BANKS = 32,
    BANK_BYTES = 4,
    CHANNEL_SKEW = 8 /* elements: their pitch is an odd multiple */
};

/* A layer, and what planning it has in common. */
typedef struct row_planner {
    const tconv_layer *layer;
    const tconv_problem *problem;
    int64_t element;   /* bytes */
    int64_t length;    /* elements that a thread copies or stores at once */
    int64_t sector;    /* elements */
    int64_t steps;     /* of the longest sum, at one tap */
    int64_t positions; /* of a warp */
    row_sums sums;
    row_parameters *params; /* the plan */
} row_planner;

/* Counts how far the first tap of a phase reads back from its position. */
static int64_t back_of(const tconv_axis *axis, const tconv_phase *phase)
{
    return (phase->residue + axis->pad) / axis->stride - phase->first_shift;
}

static int64_t max_back(const tconv_axis *axis, const tconv_phase_table *table)
{
    int64_t most = 0;
    for (int64_t i = 0; i < table->count; i++)
        most = tconv_max(most, back_of(axis, &table->phases[i]) + (table->phases[i].taps - 1) * table->shift_step);
    return most;
}

/* Counts the steps of the longest sum. */
static int64_t count_additions(const row_planner *planner)
{
    return planner->layer->rows.max_taps * planner->layer->columns.max_taps * planner->steps;
}

static row_sums choose_sums(const row_planner *planner)
{
    if (planner->problem->dtype == TCONV_F32)
        return tconv_cuda_is_strict(planner->layer) ? ADDED : DIRECT;
    return count_additions(planner) > DIRECT_STEPS         ? ADDED
           : planner->problem->group_in <= NARROW_CHANNELS ? NARROW
                                                           : DIRECT;
}

static row_planner begin(const tconv_layer *layer, row_parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size;
    row_planner planner = {.layer = layer,
                           .problem = problem,
                           .element = element,
                           .length = VECTOR_BYTES / element,
                           .sector = SECTOR_BYTES / element,
                           .steps = tconv_ceil_div(problem->group_in * element, MMA_K_BYTES),
                           .positions = row_mmas_n((int)problem->w.stride) * MMA_SYNC_N,
                           .params = params};
    planner.sums = choose_sums(&planner);
    return planner;
}

/* Returns why the kernels cannot take the layer, or NULL. */
static const char *find_refusal(const row_planner *planner)
{
    const tconv_layer *layer = planner->layer;
    const tconv_problem *problem = planner->problem;
    if (tconv_cuda_target_of(&layer->target).compute_capability < MIN_COMPUTE_CAPABILITY)
        return "needs compute capability 8.0";
    if (problem->layout != TCONV_NCHW)
        return "NHWC";
    if (!tconv_cuda_is_small_axis(&problem->h) || !tconv_cuda_is_small_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (problem->w.stride == 7 || problem->w.stride > 8)
        return "a column stride of 7, or above 8";
    if (max_back(&problem->w, &layer->columns) >= MAX_BACKS)
        return "taps that read more than 16 columns";
    if (problem->h.kernel * problem->w.kernel * problem->group_in >= SMALL_AXIS_EXTENT ||
        max_back(&problem->h, &layer->rows) * problem->group_in >= SMALL_AXIS_EXTENT ||
        problem->in_channels >= SMALL_AXIS_EXTENT || problem->out_channels >= SMALL_AXIS_EXTENT)
        return "too many weights or channels for 32-bit numbers";
    if (tconv_cuda_is_strict(layer) && count_additions(planner) > STRICT_ADDITIONS)
        return "strict f32 sums of more than 48 taps by 8 channels";
    return NULL;
}

/* Fills in what depends neither on tiles nor on the taps of columns. Positions are those of the padded outputs that
 * exist. */
static void fill_layer(const row_planner *planner)
{
    const tconv_layer *layer = planner->layer;
    const tconv_problem *problem = planner->problem;
    row_parameters *params = planner->params;
    params->src_image = problem->src.n;
    params->src_channel = problem->src.c;
    params->dst_image = problem->dst.n;
    params->dst_channel = problem->dst.c;
    params->in_rows = (int)problem->h.in;
    params->in_columns = (int)problem->w.in;
    params->out_rows = (int)problem->h.out;
    params->out_columns = (int)problem->w.out;
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->groups = (int)problem->groups;
    params->m_tiles = (int)tconv_ceil_div(problem->group_out, BLOCK_M);
    params->row_stride = (int)problem->h.stride;
    params->row_pad = (int)problem->h.pad;
    params->column_pad = (int)problem->w.pad;
    params->row_kernel_step = (int)layer->rows.kernel_step;
    params->row_back_step = (int)layer->rows.shift_step;
    params->max_row_back = (int)max_back(&problem->h, &layer->rows);
    params->max_column_back = (int)max_back(&problem->w, &layer->columns);
    params->first_row = (int)(problem->h.pad / problem->h.stride);
    params->end_row = (int)((problem->h.pad + problem->h.out - 1) / problem->h.stride + 1);
    params->first_column = (int)(problem->w.pad / problem->w.stride);
    params->end_column = (int)((problem->w.pad + problem->w.out - 1) / problem->w.stride + 1);
    params->steps = (int)planner->steps;
    params->stages = params->max_row_back + 2; /* and the next row, which is on its way */
    params->stage_channels =
        planner->sums == NARROW ? NARROW_CHANNELS : (int)(planner->steps * (MMA_K_BYTES / planner->element));
    for (int64_t i = 0; i < layer->rows.count; i++) {
        const tconv_phase *phase = &layer->rows.phases[i];
        const int64_t index = (phase->residue + problem->h.pad) % problem->h.stride;
        params->row_taps[index] = (int)phase->taps;
        params->row_kernel[index] = (int)phase->first_kernel;
        params->row_back[index] = (int)back_of(&problem->h, phase);
    }
}

/* Fills in the taps of columns. */
static void fill_columns(const row_planner *planner)
{
    const tconv_axis *axis = &planner->problem->w;
    const tconv_phase_table *table = &planner->layer->columns;
    row_parameters *params = planner->params;
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        const int64_t column_phase = (phase->residue + axis->pad) % axis->stride;
        for (int64_t tap = 0; tap < phase->taps; tap++) {
            const int64_t back = back_of(axis, phase) + tap * table->shift_step;
            params->column_phases[back] |= 1 << column_phase;
            params->kernel_column[back][column_phase] = (short)(phase->first_kernel + tap * table->kernel_step);
        }
        params->column_taps += (int)phase->taps;
    }
}

static int64_t count_weight_vectors(const row_planner *planner)
{
    const int64_t planes = tconv_cuda_is_strict(planner->layer) ? 2 : 1;
    return planner->problem->h.kernel * planner->params->column_taps * planner->steps * planes * WARP;
}

/* Fills in the sizes of weights and src, which fit in shared memory. */
static void fill_sizes(const row_planner *planner)
{
    row_parameters *params = planner->params;
    params->stage_elements = params->stage_channels * params->src_pitch;
    params->weight_vectors = (int)count_weight_vectors(planner);
    params->kernel_row_vectors = (int)(params->weight_vectors / planner->problem->h.kernel);
    const int tap_vectors = params->column_taps > 0 ? params->kernel_row_vectors / params->column_taps : 0;
    for (int back = 1; back < MAX_BACKS; back++)
        params->column_vectors[back] = params->column_vectors[back - 1] +
                                       __builtin_popcount((unsigned int)params->column_phases[back - 1]) * tap_vectors;
}

/* Counts the bytes of shared memory of a block with params, which need not be the planner's. */
static int64_t count_shared_bytes(const row_planner *planner, const row_parameters *params)
{
    const int64_t src = (int64_t)params->stages * params->stage_channels * params->src_pitch;
    return count_weight_vectors(planner) * VECTOR_BYTES +
           (src + BLOCK_M * params->staging_pitch + params->zeros) * planner->element + BLOCK_M * SECTOR_BYTES;
}

/* Counts how many lanes meet in one bank when sums are staged: lane l has channel l / 4, from output 2 * (l % 4) *
 * stride on. */
static int64_t count_conflicts(const row_planner *planner, int64_t pitch)
{
    const int64_t bytes = planner->element * (planner->problem->dst.c % 2 == 0 ? 2 : 1);
    const int64_t access = tconv_max(bytes, BANK_BYTES), accesses = BANKS * BANK_BYTES / access;
    int64_t lanes[BANKS] = {0}, most = 0;
    for (int64_t lane = 0; lane < WARP; lane++) {
        const int64_t offset = (lane / 4 * pitch + lane % 4 * 2 * planner->problem->w.stride) * planner->element;
        most = tconv_max(most, ++lanes[offset / access % accesses]);
    }
    return most;
}

/* Chooses the pitch of at least so many elements that goes with dst and has the fewest bank conflicts. */
static int64_t choose_pitch(const row_planner *planner, int64_t elements)
{
    const int64_t sector = planner->sector;
    const int64_t least = elements + (planner->problem->dst.c % sector - elements % sector + sector) % sector;
    int64_t best = least;
    for (int64_t pitch = least; pitch < least + BANKS * BANK_BYTES / planner->element; pitch += sector)
        if (count_conflicts(planner, pitch) < count_conflicts(planner, best))
            best = pitch;
    return best;
}

/* Fills in what depends on the columns of a tile: those of so many warps. */
static void divide_columns(const row_planner *planner, int64_t warps)
{
    const tconv_problem *problem = planner->problem;
    row_parameters *params = planner->params;
    const int64_t length = planner->length, sector = planner->sector;
    const int64_t columns = warps * planner->positions, outputs = columns * problem->w.stride;
    params->tile_columns = (int)columns;
    params->column_tiles = (int)tconv_ceil_div(params->end_column - params->first_column, columns);
    params->src_loaded = (int)tconv_round_up(columns + params->max_column_back + length - 1, length);
    params->src_pitch = (int)tconv_round_up(params->src_loaded, CHANNEL_SKEW);
    if (params->src_pitch % (2 * CHANNEL_SKEW) == 0)
        params->src_pitch += CHANNEL_SKEW;
    params->staging_pitch = (int)choose_pitch(planner, outputs + sector);
    params->zeros = planner->layer->rows.bias_only > 0 ? (int)tconv_round_up(outputs, sector) : 0;
    const int64_t together = problem->dtype == TCONV_F32 ? 1 : 2; /* channels that are copied together */
    const int64_t copy_warps = tconv_max(warps / tconv_ceil_div(problem->group_in, together), 1);
    params->copy_warps = (int)copy_warps;
    params->copy_channel_step = (int)(warps / copy_warps * together);
    params->copy_column_step = (int)(copy_warps * WARP * length);
    params->joins_rows = params->column_tiles == 1 && problem->w.out >= 2 * sector;
}

/* Fits the columns of a tile into so many bytes of shared memory. Tiles are as even as can be: each number of warps that
 * they may then have is tried. Returns false where none fits. */
static bool fit_columns(const row_planner *planner, int64_t bytes)
{
    row_parameters *params = planner->params;
    const int64_t all = tconv_ceil_div(params->end_column - params->first_column, planner->positions);
    for (int64_t most = MAX_WARPS; most > 0; most--) {
        divide_columns(planner, tconv_ceil_div(all, tconv_ceil_div(all, most)));
        if (count_shared_bytes(planner, params) > bytes)
            params->zeros = (int)tconv_min(params->zeros, LEAST_ZEROS);
        if (count_shared_bytes(planner, params) <= bytes)
            return true;
    }
    return false;
}

/* Chooses the warps of a block: as many as there are columns for, but so that enough blocks share a multiprocessor, if
 * they can. Returns false where nothing fits in shared memory. */
static bool choose_columns(const row_planner *planner)
{
    const int64_t most_bytes = tconv_cuda_target_of(&planner->layer->target).shared_bytes;
    return fit_columns(planner, (most_bytes + SHARED_RESERVED) / MIN_BLOCKS - SHARED_RESERVED) ||
           fit_columns(planner, most_bytes);
}

/* Counts the blocks with params that share a multiprocessor. */
static int64_t count_resident(const row_planner *planner, const row_parameters *params)
{
    const tconv_problem *problem = planner->problem;
    const int64_t blocks = row_max_blocks(problem->element_size, planner->sums, (int)problem->w.stride);
    const int64_t by_shared = (tconv_cuda_target_of(&planner->layer->target).shared_bytes + SHARED_RESERVED) /
                              (count_shared_bytes(planner, params) + SHARED_RESERVED);
    return tconv_min(by_shared, blocks * MAX_WARPS / (params->tile_columns / planner->positions));
}

/* Counts the rows without taps that follow those of a row phase. */
static int bias_rows_behind(const row_parameters *params, int index)
{
    int bias_rows = 0;
    while (bias_rows < params->row_stride && params->row_taps[(index + bias_rows + 1) % params->row_stride] == 0)
        bias_rows++;
    return bias_rows;
}

/* Has rows without taps written together with the row before, where room for them costs no block. */
static void join_bias_rows(const row_planner *planner)
{
    row_parameters *params = planner->params;
    row_parameters joined = *params;
    for (int index = 0; index < params->row_stride; index++) {
        joined.bias_rows_after[index] = params->row_taps[index] > 0 ? bias_rows_behind(params, index) : 0;
        joined.bias_rows = (int)tconv_max(joined.bias_rows, joined.bias_rows_after[index]);
    }
    const int64_t outputs = params->tile_columns * planner->problem->w.stride;
    joined.staging_pitch = (int)choose_pitch(planner, outputs * (joined.bias_rows + 1) + 2 * planner->sector);
    joined.zeros = (int)tconv_min(params->zeros, LEAST_ZEROS);
    if (params->joins_rows && joined.bias_rows > 0 &&
        count_resident(planner, &joined) >= count_resident(planner, params))
        *params = joined;
}

const char *tconv_mma_plan_rows(const tconv_layer *layer, row_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    row_parameters *params = &plan->params;
    const row_planner planner = begin(layer, params);
    const char *why = find_refusal(&planner);
    if (why != NULL)
        return why;
    fill_layer(&planner);
    fill_columns(&planner);
    if (!choose_columns(&planner))
        return "weights, or rows of src, too many for shared memory";
    const int64_t tiles = (int64_t)params->column_tiles * params->m_tiles;
    if (problem->batch * problem->groups > INT32_MAX / (params->end_row - params->first_row) / tiles)
        return "too many images for 32-bit numbers of blocks";
    fill_sizes(&planner);
    join_bias_rows(&planner);
    plan->resident = count_resident(&planner, params);
    const int64_t rows = params->end_row - params->first_row;
    const int64_t others = tconv_max(problem->batch, 1) * problem->groups * tiles;
    params->strip_rows =
        (int)tconv_cuda_strip_rows(rows, params->max_row_back + 1, 1, others,
                                   tconv_cuda_target_of(&layer->target).multiprocessors * plan->resident);
    params->strips = (int)tconv_ceil_div(rows, params->strip_rows);

    params->src_aligned = problem->src.n % planner.length == 0 && problem->src.c % planner.length == 0 &&
                          problem->w.in % planner.length == 0;
    params->staging_pairs = problem->dst.c % 2 == 0;
    plan->sums = planner.sums;
    plan->grid.blocks = problem->batch * problem->groups * params->strips * tiles;
    plan->grid.threads = (int)(params->tile_columns / planner.positions * WARP);
    plan->grid.shared_bytes = count_shared_bytes(&planner, params);
    /* Without weights packing launches nothing. */
    plan->grid.overlaps = params->weight_vectors > 0 &&
                          tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    return NULL;
}
