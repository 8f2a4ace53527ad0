/* The layout of K-tiles in shared memory as lines of outputs (lines.cuh), and the boxes by which TMA brings them and
 * src. */
#include "plan_lines.h"

#include "../../core/checked.h"
#include "images.h"
#include "plan_boxes.h"
#include "vectors.h"

enum {
    MAX_TWINS = 4,    /* taps of neighbouring columns among a fragment's eight rows */
    ROW_BYTES = 128,  /* of a row of the operand, at most */
    MOST_TOGETHER = 8 /* channels of a line */
};

/* The first and the last output of the slots of a group of taps, of a K-tile whose first input is 0. */
typedef struct axis_ends {
    int first, last;
} axis_ends;

static axis_ends ends_of_group(const tile_axis *axis, int group)
{
    axis_ends ends = {axis->least[axis->first[group]], axis->least[axis->first[group]]};
    for (int i = axis->first[group]; i < axis->first[group + 1]; i++) {
        ends.first = axis->least[i] < ends.first ? axis->least[i] : ends.first;
        ends.last = axis->least[i] > ends.last ? axis->least[i] : ends.last;
    }
    ends.last += (axis->extent - 1) * axis->stride;
    return ends;
}

/* Returns the greatest power of two that divides a stride. */
static int power_in(int stride)
{
    return stride & -stride;
}

/* Returns the outputs at whose multiples lines begin. */
static int line_unit(const tconv_problem *problem)
{
    return LINE_BYTES / (int)problem->element_size;
}

/* Returns whether TMA takes the strides and the box of a map. */
static bool fits(const tensor_map_recipe *map)
{
    for (int i = 0; i < (map->extents[4] > 0 ? 4 : 3); i++)
        if (map->strides[i] % BOX_ALIGNMENT != 0)
            return false;
    return tconv_wgrad_has_box(map);
}

/* Returns a recipe for a tensor of columns, channels, rows and images, whose box and number of images are not filled in. */
static tensor_map_recipe recipe_of(const tconv_problem *problem, const tconv_strides *strides, int64_t columns,
                                   int64_t channels, int64_t rows)
{
    const uint64_t size = (uint64_t)problem->element_size;
    return (tensor_map_recipe){.dtype = problem->dtype,
                               .swizzle = SWIZZLE_NONE,
                               .extents = {(uint64_t)columns, (uint64_t)channels, (uint64_t)rows, 0,
                                           tconv_has_depth(problem) ? (uint64_t)problem->batch : 0},
                               .strides = {(uint64_t)strides->c * size, (uint64_t)strides->h * size,
                                           (uint64_t)image_stride(problem, strides) * size,
                                           (uint64_t)volume_stride(problem, strides) * size},
                               .box = {[4] = 1}};
}

/* Describes src in NCHW to TMA, whose boxes are the operand. Where whole rows follow one another in memory, a box takes
 * them as one row: TMA takes as long for a short row as for one of 128 bytes. */
static void describe_src(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    line_layout *lines = &params->lines;
    tensor_map_recipe *map = &plan->src;
    const int size = (int)problem->element_size;
    int columns = 1 << params->columns.tile_log2;
    const bool whole = problem->w.in == columns && problem->src.h == columns;
    lines->src_row_columns = whole ? columns : 0;
    if (whole) {
        columns <<= params->rows.tile_log2;
        *map = recipe_of(problem, &problem->src, problem->w.in * problem->h.in, problem->in_channels, 1);
        map->strides[1] = map->strides[0]; /* is not used */
    } else {
        *map = recipe_of(problem, &problem->src, problem->w.in, problem->in_channels, problem->h.in);
    }
    const int bytes = columns * size < ROW_BYTES ? columns * size : ROW_BYTES;
    map->rounds = plan->math == NUMERICS_TF32;
    map->box[0] = (uint32_t)(bytes / size);
    map->box[1] = (uint32_t)params->tiles.block_m;
    map->box[2] = whole ? 1 : (uint32_t)1 << params->rows.tile_log2;
    map->box[3] = (uint32_t)1 << params->images.tile_log2;
    map->swizzle = bytes == 128 ? SWIZZLE_128B : bytes == 64 ? SWIZZLE_64B : bytes == 32 ? SWIZZLE_32B : SWIZZLE_NONE;
    if (bytes < CORE_ROW_BYTES || !fits(map))
        return;
    lines->src_box_pixels = bytes / size;
    lines->src_boxes = columns * size / bytes;
    lines->src_box_bytes = params->k_pixels * params->tiles.block_m * size / lines->src_boxes;
}

/* Describes the gradient of dst to TMA: a line is a row of each channel, or of all channels together. */
static void describe_dst(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    line_layout *lines = &params->lines;
    tensor_map_recipe *map = &plan->dst;
    const tconv_strides *strides = &problem->dst;
    const int64_t line = problem->w.out * lines->channels, channels = problem->out_channels / lines->channels;
    const int64_t tile = ((int64_t)params->columns.stride * lines->channels) << params->columns.tile_log2;
    *map = recipe_of(problem, strides, line, channels, problem->h.out);
    map->rounds = plan->math == NUMERICS_TF32;
    if (channels == 1) /* the distance to the next channel is not used */
        map->strides[0] = map->strides[1];
    map->box[0] = (uint32_t)lines->length;
    map->box[1] = (uint32_t)tconv_min(channels, params->tiles.chunk);
    map->box[2] = (uint32_t)((params->rows.extent - 1) * params->rows.stride + 1);
    map->box[3] = met_box(&params->images);
    map->steps[2] = (uint32_t)params->rows.stride;
    map->steps[3] = met_step(&params->images);
    params->box_bytes = 0;
    if (tile % line_unit(problem) == 0 && fits(map))
        params->box_bytes = (params->rows.extent << params->images.tile_log2) * params->row_pitch;
    lines->unit = line_unit(problem);
    while (tile % lines->unit != 0 || line % lines->unit != 0 || (channels > 1 && strides->c % lines->unit != 0) ||
           strides->h % lines->unit != 0 || !images_begin_at_multiples(problem, strides, lines->unit))
        lines->unit /= 2;
}

/* Returns whether src is read by vectors of channels; a layer of one pixel may be so in any layout. */
static bool has_src_vectors(const tconv_problem *problem)
{
    const tconv_strides *src = &problem->src;
    if (problem->h.in == 1 && problem->w.in == 1)
        return src->c == 1 && images_begin_at_multiples(problem, src, line_unit(problem)) &&
               problem->group_in % line_unit(problem) == 0;
    return has_vectors(problem, src, problem->group_in);
}

bool tconv_wgrad_can_be_lines(const tconv_problem *problem)
{
    return problem->layout == TCONV_NCHW ||
           (problem->dtype == TCONV_F32 && problem->out_channels <= MOST_TOGETHER && problem->dst.c == 1 &&
            problem->dst.w == problem->out_channels && !has_vectors(problem, &problem->dst, problem->group_out));
}

void tconv_wgrad_lay_out_lines(const tconv_layer *layer, planned_layer *plan)
{
    parameters *params = &plan->params;
    line_layout *lines = &params->lines;
    const tile_axis *axis = &params->columns;
    const int size = (int)layer->problem.element_size, unit = line_unit(&layer->problem);
    int span = 0;
    for (int group = 0; group < params->tiles.columns.groups; group++) {
        const axis_ends ends = ends_of_group(axis, group);
        const int columns = ends.last - (ends.first & -unit) + 1;
        span = columns > span ? columns : span;
    }
    const bool together = layer->problem.layout == TCONV_NHWC;
    const int power = power_in(axis->stride) < MAX_TWINS ? power_in(axis->stride) : MAX_TWINS;
    lines->channels = together ? (int)layer->problem.out_channels : 1;
    lines->length = (int)tconv_round_up(span * lines->channels, unit);
    /* Lanes read four pixels of several channels at once, and no two of them may meet in a bank: the padding of a line
     * makes channels fill the banks between the pixels of the twins. */
    while (!together && lines->length / unit % (2 * power) != power)
        lines->length += unit;
    lines->twins = 1;
    while (2 * lines->twins <= power && 2 * lines->twins <= params->tiles.columns.group_taps &&
           params->tiles.columns.groups == 1)
        lines->twins *= 2;
    params->dst_pitch = together ? size : lines->length * size;
    params->row_pitch = (together ? 1 : (int)params->tiles.chunk) * lines->length * size;
    params->column_pitch = axis->stride * lines->channels * size;
    lines->src_vectors = has_src_vectors(&layer->problem);
    if (!together)
        describe_src(layer, plan);
    describe_dst(layer, plan);
    lines->residue_bytes = (int)tconv_round_up(
        (int64_t)(params->rows.extent << params->images.tile_log2) * params->row_pitch, BOX_DESTINATION);
}
