/* The block tile of an implicit GEMM, as its kernel is told of it: positions, MMA tiles, A tiles and B stages. */
#include "../cuda_target.h"
#include "plan.h"

#include "../../core/checked.h"
#include "../maps/hopper.h"

#include <limits.h>

enum {
    STAGE_ALIGNMENT = 1024, /* bytes of a B stage: the pattern of the swizzle of 128 bytes (PTX ISA) */
    RAW_STAGES = 2,         /* one is filled while one is transposed */
    RAW_STAGE_PIXELS = 512  /* pixels of a raw stage, at most: as many as the positions of a block tile */
};

/* Returns the planes of an operand in shared memory: big and small parts in strict f32. */
static int planes_of(numerics arithmetic)
{
    return numerics_split(arithmetic) ? 2 : 1;
}

/* Returns whether all phases of an axis have one tap, on the input of the same number, and as many outputs. */
static bool is_plain(const tconv_phase_table *table)
{
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].taps != 1 || table->phases[i].first_shift != 0 ||
            table->phases[i].outputs != table->phases[0].outputs)
            return false;
    return true;
}

/* Returns the strides of src as the kernel reads it. */
static tconv_strides src_strides(const tconv_problem *problem, bool src_transposed)
{
    if (!src_transposed)
        return problem->src;
    const int64_t pixel = tconv_igemm_transposed_pixel(problem);
    return (tconv_strides){.n = problem->h.in * problem->w.in * pixel, .c = 1, .h = problem->w.in * pixel, .w = pixel};
}

static bool is_merged(const tconv_layer *layer)
{
    return !layer->phases_of_src && is_plain(&layer->rows) && is_plain(&layer->columns);
}

static void describe_axis(const tconv_phase_table *table, bool of_src, axis_phase *phases)
{
    int taps = 0;
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        phases[i] = (axis_phase){.taps = (int)phase->taps,
                                 .first_tap = taps,
                                 .first_shift = (int)phase->first_shift,
                                 .residue = of_src ? 0 : (int)phase->residue,
                                 .outputs = (int)phase->outputs,
                                 .src_residue = of_src ? (int)phase->residue : 0,
                                 .first_kernel = (int)phase->first_kernel};
        taps += (int)phase->taps;
    }
}

/* Makes one phase of the two column phases. */
static void describe_pair(const tconv_layer *layer, parameters *params)
{
    const tconv_phase *phases = layer->columns.phases;
    params->column_phases = 1;
    params->column_taps = (int)layer->columns.max_taps;
    params->columns[0].taps = params->column_taps;
    params->phase_m_tiles = 2 * params->channel_m_tiles;
    for (int mma = 0; mma < 2; mma++)
        params->mma_taps[mma] = (int)phases[mma].taps;
    params->uneven = phases[0].taps != phases[1].taps;
    params->cuts_pairs = phases[0].outputs != phases[1].outputs;
}

/* Moves the first positions of the MMA tiles to where narrow tiles have them. */
static void place_narrow_mma_tiles(layer_plan *plan)
{
    parameters *params = &plan->params;
    params->mma_rows = plan->config.N / CORE_ROWS;
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
        for (int mma = 0; mma < plan->config.mma_tiles; mma++) {
            const int number = params->mma_position[warpgroup][mma] / plan->config.N;
            params->mma_pixel[warpgroup][mma] =
                number / params->across * params->mma_rows * params->pitch + number % params->across * CORE_ROWS;
        }
}

/* Returns the pixels of a box along an axis, at most, that lie so far apart. */
static int64_t most_box_pixels(int64_t stride)
{
    return (MAX_TMA_BOX - 1) / stride + 1;
}

/* Fills in raw stages, where TMA can read NCHW: it brings of each channel a run of pixels, of whole images or, where
 * positions are flat, of the tile. */
static void describe_raw_stages(const tconv_layer *layer, const tile_choice *choice, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, pixels = problem->h.in * problem->w.in;
    const int64_t run = params->flat && choice->images == 1 ? choice->columns : pixels;
    if (params->src_channels_last || layer->phases_of_src || run > MAX_TMA_BOX || run * element % BOX_ALIGNMENT != 0 ||
        problem->src.h != problem->w.in || problem->src.c * element % BOX_ALIGNMENT != 0 ||
        problem->src.n * element % BOX_ALIGNMENT != 0 ||
        choice->images * run * params->pixel_bytes > (int64_t)RAW_STAGE_PIXELS * params->pixel_bytes)
        return;
    params->box_columns = (int)run;
    params->by_tma = true;
    params->raw_stages = RAW_STAGES;
    params->raw_stage_bytes = (uint32_t)(choice->images * run * params->pixel_bytes);
}

/* Returns after how many rounds of the phases their order is rotated by one, so that no multiprocessor has the longest
 * always: from a tile to the next one a multiprocessor is as many tiles ahead as there are multiprocessors. Where that
 * alone leads through all phases, a rotation would undo it. */
static int phase_rotation_of(const parameters *params, int multiprocessors)
{
    const int64_t phases = (int64_t)params->row_phases * params->column_phases;
    const bool rotates_anyway = tconv_gcd(multiprocessors / params->tiles_along_m, phases) == 1;
    return (int)tconv_max(1, rotates_anyway ? params->tiles : multiprocessors / (params->tiles_along_m * phases));
}

static int64_t taps_of(const axis_phase *phases, int count)
{
    return phases[count - 1].first_tap + phases[count - 1].taps;
}

/* Returns the sum of the greatest of some numbers, of as many of them as are wanted. */
static int64_t sum_of_greatest(const int *numbers, int all, int64_t wanted)
{
    int64_t sum = 0;
    for (int64_t limit = (int64_t)INT_MAX + 1; wanted > 0;) {
        int greatest = INT_MIN; /* below the limit */
        int64_t times = 0;
        for (int i = 0; i < all; i++)
            if (numbers[i] < limit && numbers[i] >= greatest) {
                times = numbers[i] == greatest ? times + 1 : 1;
                greatest = numbers[i];
            }
        const int64_t taken = tconv_min(times, wanted);
        sum += taken * greatest;
        wanted -= taken;
        limit = greatest;
    }
    return sum;
}

/* Returns the taps of the part of phases with most of them. */
static int64_t taps_of_longest_part(const int *taps, int phases, int of_part)
{
    int64_t longest = 0, sum = 0;
    for (int i = 0; i < phases; i++) {
        sum = (i % of_part == 0 ? 0 : sum) + taps[i];
        longest = tconv_max(longest, sum);
    }
    return longest;
}

/* Returns the mean taps of the tiles of the multiprocessor with most to do: it has tiles of all phases in turn, and of
 * those left in the last round the longest. Of a tile that sums over phases, the mean taps of one. */
static double mean_tile_taps(const parameters *params, int multiprocessors)
{
    if (params->merged)
        return 1;
    int taps[MAX_PHASES * MAX_PHASES];
    int64_t sum = 0;
    const int phases = params->row_phases * params->column_phases;
    for (int i = 0; i < phases; i++)
        sum += taps[i] = params->rows[i / params->column_phases].taps * params->columns[i % params->column_phases].taps;
    if (params->sums_phases)
        return (double)taps_of_longest_part(taps, phases, params->src_phases) / params->src_phases;
    const int64_t tiles = tconv_ceil_div(params->tiles, multiprocessors), left = tiles % phases;
    sum *= tiles / phases;
    sum += sum_of_greatest(taps, phases, left);
    return (double)sum / (double)tiles;
}

/* Returns whether two neighbouring columns of src can be loaded at once, where loader warps have registers for them. */
static bool has_column_pairs(const layer_plan *plan)
{
    const parameters *params = &plan->params;
    return !numerics_split(plan->arithmetic) && !params->by_tma && !params->src_channels_last && params->from.w == 1 &&
           params->src_column_stride == 1 &&
           (params->from_volume | params->from.n | params->from.c | params->from.h | params->in_columns) % 2 == 0;
}

bool tconv_igemm_is_transposed_before(const tconv_layer *layer)
{
    return layer->phases_of_src && layer->problem.layout == TCONV_NCHW && layer->problem.src.c == 1 &&
           layer->problem.src.w > 1;
}

/* A K-block is always of four wgmmas in f32; in 16 bits of two where there are no more channels. */
int tconv_igemm_pixel_bytes(const tconv_problem *problem)
{
    const int64_t channels = problem->plane_taps.taps > 0 ? problem->plane_taps.channels : problem->group_in;
    return problem->element_size == 2 && channels <= 32 ? 64 : 128;
}

position_space tconv_igemm_space(const tconv_layer *layer, bool per_tap, bool src_transposed)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides src = src_strides(problem, src_transposed);
    position_space space = {.volumes = tconv_volumes(problem),
                            .images = tconv_max(1, tconv_volume_images(problem)),
                            .rows = tconv_igemm_most_outputs(&layer->rows),
                            .columns = tconv_igemm_most_outputs(&layer->columns)};
    if (!per_tap) {
        space.row_halo = layer->rows.max_shift - layer->rows.min_shift;
        space.column_halo = layer->columns.max_shift - layer->columns.min_shift;
    }
    const int64_t pixels = problem->h.in * problem->w.in;
    space.flat = is_merged(layer) && space.rows <= problem->h.in && space.columns <= problem->w.in &&
                 src.h == problem->w.in * src.w;
    space.whole = space.flat && problem->plane_taps.taps == 0 && space.volumes == 1 &&
                  (problem->layout == TCONV_NHWC || src_transposed) && src.n == pixels * src.w &&
                  pixels * problem->batch < HOPPER_MAX_EXTENT;
    if (space.flat) {
        space.rows = 1;
        space.columns = space.whole ? pixels * space.images : pixels;
        space.images = space.whole ? 1 : space.images;
    }
    return space;
}

position_space tconv_igemm_im2col_space(const tconv_layer *layer)
{
    position_space space = tconv_igemm_space(layer, true, false);
    space.columns *= space.rows * space.images;
    space.rows = space.images = 1;
    space.flat = space.whole = true;
    return space;
}

position_space tconv_igemm_space_of_choice(const tconv_layer *layer, const tile_choice *choice)
{
    return choice->im2col ? tconv_igemm_im2col_space(layer)
                          : tconv_igemm_space(layer, choice->per_tap, choice->src_transposed);
}

void tconv_igemm_describe_layer(const tconv_layer *layer, bool src_transposed, layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const position_space space = tconv_igemm_space(layer, true, src_transposed);
    parameters *params = &plan->params;
    const int element = (int)problem->element_size;
    params->from = src_strides(problem, src_transposed);
    params->to = problem->dst;
    params->src_transposed = src_transposed;
    params->dst_channels_last =
        problem->layout == TCONV_NHWC || (problem->dst.c == 1 && problem->dst.w == problem->out_channels);
    params->src_channels_last =
        problem->layout == TCONV_NHWC || src_transposed || tconv_igemm_is_transposed_before(layer);
    params->volumes = (int)space.volumes;
    params->from_volume = src_transposed ? tconv_igemm_transposed_volume(problem) : problem->volumes.read;
    params->to_volume = problem->volumes.written;
    params->by_tma =
        params->src_channels_last &&
        (params->from.n | params->from.h | params->from.w | params->from_volume) * element % BOX_ALIGNMENT == 0 &&
        tconv_igemm_tma_reaches_phases(layer);
    params->flat = space.flat;
    params->merged = is_merged(layer);
    params->images = (int)space.images;
    params->in_rows = space.flat ? 1 : (int)problem->h.in;
    params->in_columns = space.flat ? (int)space.columns : (int)problem->w.in;
    params->flat_rows = (int)problem->h.in;
    params->flat_columns = (int)problem->w.in;
    params->groups = (int)problem->groups;
    params->src_groups = (int)tconv_igemm_src_groups(problem);
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->pixel_bytes = tconv_igemm_pixel_bytes(problem);
    params->k_steps = params->pixel_bytes / MMA_K_BYTES;
    params->k_block_channels = params->pixel_bytes / element;
    params->k_blocks = (int)tconv_ceil_div(problem->group_in, params->k_block_channels);
    params->row_phases = (int)layer->rows.count;
    params->column_phases = (int)layer->columns.count;
    params->row_step = (int)layer->rows.shift_step;
    params->column_step = (int)layer->columns.shift_step;
    const bool of_src = layer->phases_of_src;
    params->sums_phases = of_src;
    params->sums = plan->sums;
    params->src_phases = of_src ? params->row_phases * params->column_phases * params->src_groups / params->groups : 1;
    params->row_stride = of_src ? 1 : (int)layer->rows.stride;
    params->column_stride = of_src ? 1 : (int)layer->columns.stride;
    params->src_row_stride = of_src ? (int)layer->rows.stride : 1;
    params->src_column_stride = of_src ? (int)layer->columns.stride : 1;
    params->gathers_pairs = has_column_pairs(plan);
    describe_axis(&layer->rows, of_src, params->rows);
    describe_axis(&layer->columns, of_src, params->columns);
    params->column_taps = (int)taps_of(params->columns, params->column_phases);
    params->src_images = problem->plane_taps.taps > 0 ? (int)problem->plane_taps.planes : params->images;
    params->by_plane_channels = divisor_of(INT_MAX);
    params->held_channels = INT_MAX;
    params->image_planes = 1;
    if (problem->plane_taps.taps > 0) {
        params->by_plane_channels = divisor_of((int)problem->plane_taps.channels);
        params->held_channels = (int)problem->plane_taps.held;
        params->first_plane = (int)problem->plane_taps.first;
        params->plane_step = (int)problem->plane_taps.step;
        params->image_planes = (int)problem->plane_taps.image_step;
        params->by_planes = true;
    }
    tconv_igemm_describe_phases(layer, params);
    params->kernel_columns = (int)problem->w.kernel;
    params->kernel_row_step = (int)layer->rows.kernel_step;
    params->kernel_column_step = (int)layer->columns.kernel_step;
    params->channel_m_tiles = (int)tconv_ceil_div(problem->group_out, MMA_M);
    params->phase_m_tiles =
        params->merged ? params->channel_m_tiles * params->row_phases * params->column_phases : params->channel_m_tiles;
}

/* Returns the taps of a phase of src, or one where tiles sum over none. */
static int taps_of_phase(const parameters *params, int phase)
{
    return params->src_phases == 1
               ? 1
               : params->rows[phase / params->column_phases].taps * params->columns[phase % params->column_phases].taps;
}

/* Returns how many clusters run at once, a block to a multiprocessor. Those of a cluster are neighbours on the device, in parts
 * of it of 16 to 18 (an H200 runs 66 clusters of 2 blocks, 39 of 3, 30 of 4, 15 of 8). */
static int64_t most_clusters(int multiprocessors, int cluster_blocks)
{
    return cluster_blocks == 2 ? multiprocessors / 2 : (int64_t)multiprocessors * 8 / 9 / cluster_blocks;
}

bool tconv_igemm_describe_cluster(const tconv_layer *layer, int cluster_blocks, layer_plan *plan)
{
    parameters *params = &plan->params;
    params->cluster_blocks = cluster_blocks;
    params->cluster_pitch = params->dst_channels_last ? params->m_tiles * MMA_M + 4 : params->block_n + 8;
    if (cluster_blocks == 1) {
        plan->k_blocks = params->k_blocks * plan->mean_taps * params->src_phases;
        return true;
    }
    if (params->k_blocks > UINT16_MAX)
        return false;
    int64_t all = 0, passed = 0, before = 0, longest = 0; /* in taps */
    int block = 0;
    for (int phase = 0; phase < params->src_phases; phase++)
        all += (int64_t)taps_of_phase(params, phase) * params->k_blocks;
    params->k_begins[0] = (k_place){0, 0};
    for (int phase = 0; phase < params->src_phases; phase++)
        for (int k_block = 0; k_block < params->k_blocks; k_block++) {
            const int taps = taps_of_phase(params, phase);
            /* The next block begins with the K-block whose middle is behind the end of this one's share. */
            if (block + 1 < cluster_blocks && (2 * passed + taps) * cluster_blocks > 2 * (block + 1) * all) {
                if (passed == before)
                    return false;
                params->k_begins[++block] = (k_place){(uint16_t)phase, (uint16_t)k_block};
                longest = tconv_max(longest, passed - before);
                before = passed;
            }
            passed += taps;
        }
    params->k_begins[block + 1] = (k_place){(uint16_t)params->src_phases, 0};
    longest = tconv_max(longest, passed - before);
    plan->k_blocks = (double)longest * (params->src_phases == 1 ? plan->mean_taps : 1);
    return block + 1 == cluster_blocks &&
           params->tiles <= most_clusters(tconv_cuda_target_of(&layer->target).multiprocessors, cluster_blocks);
}

bool tconv_igemm_has_pairs(const tconv_layer *layer, const tile_choice *choice, const parameters *params)
{
    return !layer->phases_of_src && !params->dst_channels_last && layer->columns.count % 2 == 0 &&
           layer->columns.bias_only == 0 && layer->problem.dst.w == 1 &&
           (params->merged || (layer->columns.count == 2 && !choice->per_tap));
}

void tconv_igemm_describe_mma_tiles(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan)
{
    parameters *params = &plan->params;
    const int mma_tiles = plan->config.mma_tiles, n_tiles = mma_tiles_of(&plan->config) / choice->m_tiles;
    params->paired = tconv_igemm_has_pairs(layer, choice, params) && mma_tiles == 2 && choice->m_tiles > 1 &&
                     !plan->config.clustered;
    if (params->paired && !params->merged)
        describe_pair(layer, params);
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
        for (int mma = 0; mma < mma_tiles; mma++) {
            const bool alternating = params->paired && choice->m_tiles == 2;
            const int number = alternating ? mma * WARPGROUPS + warpgroup : warpgroup * mma_tiles + mma;
            params->mma_m_tile[warpgroup][mma] = number / n_tiles;
            params->mma_position[warpgroup][mma] = number % n_tiles * plan->config.N;
            params->mma_pixel[warpgroup][mma] = params->mma_position[warpgroup][mma];
        }
}

void tconv_igemm_describe_divisors(parameters *params)
{
    params->by_tiles_along_m = divisor_of(params->tiles_along_m);
    params->by_phases = divisor_of(params->row_phases * params->column_phases);
    params->by_phase_rotation = divisor_of(params->phase_rotation);
    params->by_column_phases = divisor_of(params->column_phases);
    params->by_groups = divisor_of(params->groups);
    params->by_src_groups = divisor_of(params->src_groups);
    params->by_column_tiles = divisor_of(params->column_tiles);
    params->by_row_tiles = divisor_of(params->row_tiles);
    params->by_image_tiles = divisor_of(params->image_tiles);
    params->by_channel_m_tiles = divisor_of(params->channel_m_tiles);
    params->by_columns = divisor_of(params->flat ? params->flat_columns : params->pitch);
    params->by_rows = divisor_of(params->flat ? params->flat_rows : params->image_pixels / params->pitch);
}

bool tconv_igemm_describe_tile(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan)
{
    parameters *params = &plan->params;
    const position_space space = tconv_igemm_space_of_choice(layer, choice);
    const int64_t block_n = mma_tiles_of(&plan->config) / choice->m_tiles * plan->config.N;
    params->block_n = (int)block_n;
    params->per_tap = choice->per_tap;
    params->across = choice->across;
    params->tile_images = choice->images;
    params->tile_rows = choice->rows;
    params->tile_columns = choice->columns;
    const int64_t pitch = choice->columns + space.column_halo, stage_rows = choice->rows + space.row_halo;
    const int64_t most_columns = most_box_pixels(params->src_column_stride);
    if (stage_rows > most_box_pixels(params->src_row_stride) || choice->images > MAX_TMA_BOX ||
        (params->image_rows > 0 && choice->images > 1) ||
        (pitch > most_columns && (stage_rows > 1 || choice->images > 1)))
        return false;
    params->pitch = (int)pitch;
    params->image_pixels = (int)(stage_rows * pitch);
    params->stage_pixels = choice->images * params->image_pixels;
    params->boxes = choice->im2col ? 1 : (int)tconv_ceil_div(pitch, most_columns);
    if (pitch % params->boxes != 0 || (!params->src_channels_last && params->stage_pixels > MAX_COORDINATES))
        return false;
    params->box_columns = (int)pitch / params->boxes;
    if (params->boxes > 1 && params->box_columns * params->pixel_bytes % BOX_DESTINATION != 0)
        return false;
    describe_raw_stages(layer, choice, params);
    params->first_row = (int)layer->rows.min_shift;
    params->first_column = (int)layer->columns.min_shift;
    if (choice->im2col)
        tconv_igemm_describe_im2col(layer, params);
    params->image_tiles = (int)tconv_ceil_div(space.images, choice->images);
    params->row_tiles = (int)tconv_ceil_div(space.rows, choice->rows);
    params->column_tiles = (int)tconv_ceil_div(space.columns, choice->columns);
    params->m_tiles = choice->m_tiles;
    params->tiles_along_m = (int)tconv_ceil_div(params->phase_m_tiles, choice->m_tiles);
    const int64_t taps = taps_of(params->rows, params->row_phases) * params->column_taps;
    params->group_a_tiles = (int64_t)params->k_blocks * params->tiles_along_m * (params->merged ? 1 : taps);
    const int64_t tiles = space.volumes * params->image_tiles * params->row_tiles * params->column_tiles *
                          params->groups * params->tiles_along_m *
                          (params->merged || layer->phases_of_src ? 1 : params->row_phases * params->column_phases);
    params->tiles = (int)tiles;
    params->phase_rotation = phase_rotation_of(params, tconv_cuda_target_of(&layer->target).multiprocessors);
    plan->mean_taps = mean_tile_taps(params, tconv_cuda_target_of(&layer->target).multiprocessors);
    if (params->across > 0)
        place_narrow_mma_tiles(plan);
    if (params->paired && !params->merged)
        for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
            params->mma_pixel[warpgroup][1] +=
                (int)(layer->columns.phases[1].first_shift - layer->columns.phases[0].first_shift);
    /* The last MMA tile reads as many pixels as any, whether the stage has them or not. */
    const int64_t reach = params->across > 0
                              ? params->stage_pixels
                              : tconv_max(params->stage_pixels, block_n + space.row_halo * pitch + space.column_halo);
    params->plane_bytes = (uint32_t)tconv_round_up(reach * params->pixel_bytes, STAGE_ALIGNMENT);
    params->b_stage_bytes = params->plane_bytes * (uint32_t)planes_of(plan->arithmetic);
    params->a_tile_bytes = (uint32_t)(choice->m_tiles * planes_of(plan->arithmetic) * MMA_M * params->pixel_bytes);
    if (params->across > 0)
        return tiles < HOPPER_MAX_EXTENT;
    return tiles < HOPPER_MAX_EXTENT &&
           (choice->images - 1) * (int64_t)params->image_pixels + (choice->rows - 1) * pitch + choice->columns <=
               block_n;
}
