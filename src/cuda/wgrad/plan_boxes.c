/* The boxes of K-tiles that TMA brings in NHWC. */
#include "plan_boxes.h"

#include "images.h"

enum { MIN_ROW_BYTES = 256 }; /* of a slot: TMA brings shorter slots only where taps share them */

/* Returns a recipe for a tensor in NHWC, whose box and number of images are not filled in. */
static tensor_map_recipe recipe_of(const tconv_problem *problem, const tconv_strides *strides, int64_t channels,
                                   int64_t columns, int64_t rows)
{
    const uint64_t size = (uint64_t)problem->element_size;
    return (tensor_map_recipe){.dtype = problem->dtype,
                               .extents = {(uint64_t)channels, (uint64_t)columns, (uint64_t)rows, 0,
                                           tconv_has_depth(problem) ? (uint64_t)problem->batch : 0},
                               .strides = {(uint64_t)strides->w * size, (uint64_t)strides->h * size,
                                           (uint64_t)image_stride(problem, strides) * size,
                                           (uint64_t)volume_stride(problem, strides) * size},
                               .box = {[4] = 1}};
}

/* Returns the outputs from the first slot of a residue to the last. */
static uint32_t span_of(const tile_axis *axis)
{
    return (uint32_t)((axis->extent - 1) * axis->stride + 1);
}

/* Has a map of one row take the columns of a residue, which are a stride apart, for neighbours, and residues for rows: boxes of
 * long strides then span no more than their slots. Columns that end amid a stride would go on in the next row. */
static void see_residues_as_rows(const tconv_problem *problem, parameters *params, tensor_map_recipe *map)
{
    const uint64_t stride = (uint64_t)problem->w.stride;
    map->extents[1] = (uint64_t)problem->w.out / stride;
    map->extents[2] = stride;
    map->strides[1] = map->strides[0];
    map->strides[0] *= stride;
    map->box[1] = (uint32_t)params->columns.extent;
    map->steps[1] = 1;
    params->box_columns = 1;
}

/* Describes the gradient of dst to TMA, with boxes of the slots of a residue of rows and a residue of columns; false
 * where TMA brings no such box. */
static bool describe_dst(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    const bool boxes = plan->kernel->family == BY_BOXES;
    tensor_map_recipe *map = &plan->dst;
    *map = recipe_of(problem, &problem->dst, problem->out_channels, problem->w.out, problem->h.out);
    map->swizzle = boxes ? SWIZZLE_128B : SWIZZLE_NONE;
    map->box[0] = (uint32_t)(params->dst_pitch / (int)problem->element_size);
    map->box[1] = span_of(&params->columns);
    map->box[2] = span_of(&params->rows);
    map->box[3] = met_box(&params->images);
    map->steps[1] = (uint32_t)params->columns.stride;
    map->steps[2] = (uint32_t)params->rows.stride;
    map->steps[3] = met_step(&params->images);
    params->box_columns = params->columns.stride;
    if (!tconv_wgrad_has_box(map) && problem->h.in == 1 && problem->h.out == 1 &&
        problem->w.out % problem->w.stride == 0)
        see_residues_as_rows(problem, params, map);
    if (!tconv_wgrad_has_box(map))
        return false;
    /* TMA is slower than vector copies for short rows that no taps share. */
    return boxes || params->dst_pitch >= MIN_ROW_BYTES || params->rows.extent > 1 << params->rows.tile_log2 ||
           params->columns.extent > 1 << params->columns.tile_log2;
}

/* Describes src to TMA, for a kernel by boxes: a box has all pixels of a K-tile. */
static void describe_src(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    tensor_map_recipe *map = &plan->src;
    *map = recipe_of(problem, &problem->src, problem->in_channels, problem->w.in, problem->h.in);
    map->swizzle = SWIZZLE_128B;
    map->box[0] = BOX_CHANNELS;
    map->box[1] = (uint32_t)1 << params->columns.tile_log2;
    map->box[2] = (uint32_t)1 << params->rows.tile_log2;
    map->box[3] = (uint32_t)1 << params->images.tile_log2;
}

/* Returns whether the slots of a tap are neighbours for each eight pixels of a K-tile that begin at a multiple of
 * eight: a core matrix has eight rows. */
static bool has_core_rows(const parameters *params)
{
    int pixels_log2 = params->columns.tile_log2;
    if (params->columns.extent == 1 << params->columns.tile_log2) {
        pixels_log2 += params->rows.tile_log2;
        if (params->rows.extent == 1 << params->rows.tile_log2)
            pixels_log2 += params->images.tile_log2;
    }
    return 1 << pixels_log2 >= CORE_ROWS;
}

bool tconv_wgrad_has_box(const tensor_map_recipe *map)
{
    for (int i = 0; i < 4; i++)
        if (map->box[i] > MAX_TMA_BOX || map->steps[i] > MAX_BOX_STEP)
            return false;
    return true;
}

bool tconv_wgrad_describe_boxes(const tconv_layer *layer, planned_layer *plan)
{
    parameters *params = &plan->params;
    const bool boxes = plan->kernel->family == BY_BOXES;
    if (boxes ? plan->load != BOXES || !has_core_rows(params)
              : plan->kernel->family == BY_MMA || plan->load != CHANNELS)
        return !boxes;
    if (!describe_dst(layer, plan))
        return !boxes;
    if (boxes)
        describe_src(layer, plan);
    params->box_bytes =
        ((params->rows.extent * params->columns.extent) << params->images.tile_log2) * params->dst_pitch;
    return true;
}
