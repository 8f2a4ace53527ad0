/* Describes the operands of a plan as they lie: the weights, for the packing kernel or for TMA, and src for TMA. */
#include "../cuda_target.h"
#include "plan.h"

#include "../../core/checked.h"
#include "../maps/hopper.h"

static void describe_phases(const tconv_phase_table *table, packed_phase *phases)
{
    int taps = 0;
    for (int64_t i = 0; i < table->count; i++) {
        phases[i] = (packed_phase){taps, (int)table->phases[i].taps, (int)table->phases[i].first_kernel};
        taps += phases[i].taps;
    }
}

void tconv_igemm_plan_packing(planned_layer *planned)
{
    const parameters *params = &planned->plan.params;
    weight_source *source = &planned->weights;
    pack_boxes *boxes = &source->boxes;
    const packed_phase *last_row = &source->rows[params->row_phases - 1];
    const packed_phase *columns = source->columns;
    source->merged = params->merged;
    source->alternating = params->paired && !params->merged;
    source->k_steps = params->k_steps;
    source->tiles_along_m = params->tiles_along_m;
    source->channel_m_tiles = params->channel_m_tiles;
    source->phase_m_tiles = params->phase_m_tiles;
    source->row_phases = params->row_phases;
    source->column_phases = params->column_phases;
    source->column_taps = params->column_taps;
    source->group_a_tiles = params->group_a_tiles;
    const int strips = params->merged ? params->channel_m_tiles
                                      : params->tiles_along_m * params->m_tiles / (source->alternating ? 2 : 1);
    const int run_columns = source->alternating ? columns[1].first_tap + columns[1].taps : params->column_taps;
    source->by_k_blocks = divisor_of(params->k_blocks);
    source->by_strips = divisor_of(strips);
    source->by_columns = divisor_of(params->merged ? params->column_phases : run_columns);
    source->by_m_tiles = divisor_of(params->m_tiles);
    if (source->alternating) /* packed with as many taps as the other */
        source->columns[0].taps = source->columns[1].taps = params->column_taps;
    boxes->runs = params->merged ? (int64_t)params->row_phases * params->column_phases +
                                       params->tiles_along_m * params->m_tiles - params->phase_m_tiles
                                 : (int64_t)(last_row->first_tap + last_row->taps) * run_columns;
    boxes->step_rows = (numerics_split(planned->plan.arithmetic) ? 2 : 1) * 2 * MMA_M;
    boxes->core_step = MMA_M;
    tconv_cuda_choose_boxes(boxes, params->pixel_bytes / params->k_block_channels,
                            (int64_t)params->src_groups * strips * params->k_blocks, MMA_M, 2 * params->k_steps);
}

/* Fills in the weights as the packing kernel reads them. */
static void describe_weights(const tconv_layer *layer, const layer_view *view, planned_layer *planned)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_layer *viewed = view->one_pixel ? layer : &view->layer;
    const tconv_phase_table *const axes[] = {&viewed->rows, &viewed->columns};
    weight_source *source = &planned->weights;
    pack_boxes *boxes = &source->boxes;
    boxes->from = viewed->problem.weight;
    boxes->group_in = planned->plan.params.group_in;
    boxes->group_step = boxes->group_in * boxes->from.in;
    boxes->group_out = planned->plan.params.group_out;
    boxes->outer_step = viewed->problem.weight.out;
    boxes->inner = (pack_rows){.count = (int)view->outputs,
                               .columns = (int)view->out_columns,
                               .row_step = problem->weight.h,
                               .column_step = problem->weight.w};
    boxes->diagonal_in = (int)problem->group_in;
    boxes->diagonal_rows = (int)(problem->group_out * view->outputs);
    if (layer->phases_of_src) {
        boxes->group_step = view->fused_groups * layer->group_weights;
        boxes->diagonal_step = layer->group_weights - problem->group_in * boxes->from.in;
    }
    tconv_cuda_describe_pack_planes(boxes, &problem->plane_taps);
    if (view->channels_inside) {
        boxes->outer_step = problem->weight.w;
        boxes->inner = (pack_rows){.count = (int)problem->out_channels, .columns = 1, .row_step = problem->weight.out};
    } else if (view->runs.rows > view->runs.columns ||
               (view->runs.rows > 1 && view->runs.columns * viewed->problem.w.kernel > problem->w.kernel))
        boxes->filling = (pack_filling){.columns = (int)viewed->problem.w.kernel,
                                        .count = view->runs.columns,
                                        .kernel = (int)problem->w.kernel,
                                        .row_step = problem->weight.h};
    boxes->elements = viewed->problem.h.kernel * viewed->problem.w.kernel;
    source->kernel_columns = (int)viewed->problem.w.kernel;
    if (view->one_pixel) { /* of the layer's kernel, a channel's first output takes this */
        boxes->elements = 1;
        boxes->first_element =
            axes[0]->phases[0].first_kernel * source->kernel_columns + axes[1]->phases[0].first_kernel;
        source->rows[0].taps = source->columns[0].taps = 1;
    } else {
        describe_phases(axes[0], source->rows);
        describe_phases(axes[1], source->columns);
        for (int axis = 0; axis < 2; axis++)
            source->kernel_step[axis] = (int)axes[axis]->kernel_step;
    }
    tconv_igemm_plan_packing(planned);
}

/* Returns the elements from the first to the last of so many pixels, a step apart. */
static uint32_t span_of(int pixels, int step)
{
    return (uint32_t)((pixels - 1) * step + 1);
}

static tensor_map_swizzle swizzle_of(const parameters *params)
{
    return params->pixel_bytes == 128 ? SWIZZLE_128B : SWIZZLE_64B;
}

/* Returns the tensor map of channel planes, of which raw stages have boxes, without the address of src. */
static tensor_map_recipe describe_planes(const tconv_problem *problem, const parameters *params)
{
    const uint64_t element = problem->element_size, image = (uint64_t)params->from.n * element;
    return (tensor_map_recipe){
        .dtype = problem->dtype,
        .swizzle = SWIZZLE_NONE,
        .extents = {(uint64_t)(problem->h.in * problem->w.in), (uint64_t)problem->in_channels, (uint64_t)problem->batch,
                    1},
        .strides = {(uint64_t)params->from.c * element, image, image},
        .box = {(uint32_t)params->box_columns, (uint32_t)params->k_block_channels, (uint32_t)params->tile_images, 1}};
}

/* Returns the tensor map of pixels of src, without the address of src. */
static tensor_map_recipe describe_pixels(const tconv_problem *problem, const layer_plan *plan)
{
    const parameters *params = &plan->params;
    const uint64_t element = problem->element_size;
    const int row_step = params->src_row_stride, column_step = params->src_column_stride;
    tensor_map_recipe map = {.dtype = problem->dtype,
                             .swizzle = swizzle_of(params),
                             .extents = {(uint64_t)tconv_src_channels(problem), (uint64_t)params->in_columns,
                                         (uint64_t)params->in_rows, (uint64_t)params->src_images,
                                         params->volumes > 1 ? (uint64_t)params->volumes : 0},
                             .strides = {(uint64_t)params->from.w * element, (uint64_t)params->from.h * element,
                                         (uint64_t)params->from.n * element, (uint64_t)params->from_volume * element},
                             .box = {(uint32_t)params->k_block_channels, span_of(params->box_columns, column_step),
                                     span_of(params->image_pixels / params->pitch, row_step),
                                     span_of(params->tile_images, params->image_planes), 1},
                             .rounds = plan->arithmetic == NUMERICS_TF32,
                             .steps = {1, (uint32_t)column_step, (uint32_t)row_step,
                                       params->tile_images > 1 ? (uint32_t)params->image_planes : 1}};
    if (params->im2col) {
        const int last_column = params->first_column + (params->flat_columns - 1) * params->src_column_stride;
        const int last_row = params->first_row + (params->flat_rows - 1) * params->src_row_stride;
        map.im2col_pixels = (uint32_t)params->stage_pixels;
        map.lower[0] = params->first_column;
        map.lower[1] = params->first_row;
        map.upper[0] = last_column - (params->in_columns - 1);
        map.upper[1] = last_row - (params->in_rows - 1);
    }
    return map;
}

/* Returns whether so many elements are whole sectors, at least one. */
static bool are_sectors(int64_t elements, const tconv_problem *problem)
{
    return elements > 0 && elements * (int64_t)problem->element_size % SECTOR_BYTES == 0;
}

/* Returns whether TMA brings A tiles from the weights as they lie, where calls would pack them: the input channels of
 * an output channel and tap follow one another, where cuda_dgrad's layers have weights in channels_last. Not where rows
 * of boxes are parts of sectors, or are few: that took up to 1.8 times as long, all others no longer than without
 * packing. */
static bool may_read_weights(const layer_view *view, const layer_plan *plan)
{
    const tconv_layer *viewed = &view->layer;
    const tconv_problem *problem = &viewed->problem;
    const tconv_weight_strides *weight = &problem->weight;
    const int64_t taps = problem->h.kernel * problem->w.kernel;
    return viewed->phases_of_src && !viewed->packed_before && tconv_igemm_is_fed_by_tma(plan) &&
           !plan->params.src_transposed && view->fused_groups == 1 && weight->in == 1 && problem->group_out >= WARP_M &&
           are_sectors(weight->out, problem) && taps < HOPPER_MAX_EXTENT &&
           (taps == 1 || (are_sectors(weight->w, problem) && weight->h == problem->w.kernel * weight->w)) &&
           (problem->plane_taps.taps > 0   ? are_sectors(problem->plane_taps.weights, problem)
            : plan->params.src_groups == 1 ? true
                                           : are_sectors(viewed->group_weights, problem));
}

/* Returns the tensor map of the weights: a box is an A tile. Outermost are channel groups, or planes of channels. */
static tensor_map_recipe describe_map_of_weights(const tconv_layer *viewed, const layer_plan *plan)
{
    const parameters *params = &plan->params;
    const tconv_problem *problem = &viewed->problem;
    const uint64_t element = problem->element_size, taps = (uint64_t)(problem->h.kernel * problem->w.kernel);
    const uint64_t row = (uint64_t)problem->weight.out * element;
    const tconv_plane_taps *planes = &problem->plane_taps;
    const bool by_planes = planes->taps > 0;
    const int64_t outer = by_planes ? planes->weights : viewed->group_weights;
    const uint64_t count = (uint64_t)(by_planes ? planes->taps : params->src_groups);
    return (tensor_map_recipe){.dtype = problem->dtype,
                               .swizzle = swizzle_of(params),
                               .extents = {by_planes ? (uint64_t)planes->held : (uint64_t)params->group_in, taps,
                                           (uint64_t)params->group_out, count},
                               .strides = {taps > 1 ? (uint64_t)problem->weight.w * element : row, row,
                                           count > 1 ? (uint64_t)outer * element : row},
                               .box = {(uint32_t)params->k_block_channels, 1, (uint32_t)(params->m_tiles * MMA_M), 1},
                               .rounds = plan->arithmetic == NUMERICS_TF32};
}

/* Returns the bytes of a vector if every pixel of dst has its channels in whole vectors of 16 bytes or, where columns
 * are stored together, those are one; else 0. */
static size_t vector_bytes_of(const parameters *params, int64_t element)
{
    if (params->runs.rows > 1)
        return (size_t)(params->run_vector * element);
    if (params->cuts_pairs)
        return 0;
    const int64_t vector = params->paired ? 2 : VECTOR_BYTES / element;
    const bool whole = params->to_volume % vector == 0 && params->to.n % vector == 0 && params->to.h % vector == 0 &&
                       (params->paired ? params->to.c : params->to.w) % vector == 0 &&
                       (params->paired || params->group_out % vector == 0);
    return whole ? (size_t)(vector * element) : 0;
}

static const void *kernel_of(const layer_plan *plan)
{
    switch (plan->arithmetic) {
    case NUMERICS_F16:
    case NUMERICS_BF16:
        return tconv_igemm_half_kernel(plan->arithmetic == NUMERICS_BF16, plan->sums, plan->config_place);
    default: return tconv_igemm_f32_kernel(plan->arithmetic == NUMERICS_STRICT, plan->config_place);
    }
}

void tconv_igemm_describe_operands(const tconv_layer *layer, const layer_view *view, planned_layer *planned)
{
    const layer_plan *plan = &planned->plan;
    const parameters *params = &plan->params;
    const tconv_problem *viewed = &view->layer.problem;
    describe_weights(layer, view, planned);
    if (params->src_transposed)
        planned->transpose = tconv_igemm_transpose_of(&layer->problem);
    if (params->by_tma)
        planned->src = params->src_channels_last ? describe_pixels(viewed, plan) : describe_planes(viewed, params);
    if (may_read_weights(view, plan))
        planned->map_of_weights = describe_map_of_weights(&view->layer, plan);
    planned->vector_bytes = vector_bytes_of(params, plan->output_bytes);
    planned->grid =
        (launch_grid){.kernel = kernel_of(plan),
                      .blocks = params->cluster_blocks > 1
                                    ? (int64_t)params->tiles * params->cluster_blocks
                                    : tconv_min(params->tiles, tconv_cuda_target_of(&layer->target).multiprocessors),
                      .cluster_blocks = params->cluster_blocks > 1 ? params->cluster_blocks : 0,
                      .threads = THREADS,
                      .shared_bytes = SHARED_MEMORY};
}

bool tconv_igemm_reads_weights(const planned_layer *planned)
{
    return planned->map_of_weights.extents[0] > 0;
}
