/* How K-tiles lie in shared memory line by line (lines.cuh), and what of them TMA brings. */
#include "plan_lines.h"

#include "../../core/checked.h"
#include "../gemm/shape.h"
#include "cost.h"
#include "plan_boxes.h"

namespace tconv::wgrad
{

namespace
{

constexpr int MAX_TWINS = 4;         /* taps of a fragment's eight rows */
constexpr int BOX_PLACE = 128;       /* bytes: where boxes begin in shared memory is a multiple of it */
constexpr int ROW_BYTES = 128;       /* of the operand's rows, at most */
constexpr int64_t MOST_TOGETHER = 8; /* channels of a line */

/* The greatest power of two that divides a stride. */
int power_in(int stride)
{
    return stride & -stride;
}

/* Outputs at whose multiples lines begin. */
int line_unit(const tconv_problem *problem)
{
    return LINE_BYTES / (int)problem->element_size;
}

bool fits(const tensor_map_recipe *map)
{
    for (const cuuint64_t stride : map->strides)
        if (stride % BOX_ALIGNMENT != 0)
            return false;
    return has_box(map);
}

/* A tensor of columns, channels, rows and images. */
tensor_map_recipe recipe_of(const tconv_problem *problem, const tconv_strides *strides, int64_t columns,
                            int64_t channels, int64_t rows)
{
    tensor_map_recipe map = {};
    map.dtype = problem->dtype;
    map.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
    const int64_t extents[4] = {columns, channels, rows, problem->batch},
                  pitches[3] = {strides->c, strides->h, strides->n};
    for (int i = 0; i < 4; i++) {
        map.extents[i] = (cuuint64_t)extents[i];
        map.steps[i] = 1;
        if (i < 3)
            map.strides[i] = (cuuint64_t)pitches[i] * problem->element_size;
    }
    return map;
}

/* src, of channels that are as far apart as planes: whose boxes are the operand. Whole rows that lie beside each other are one:
 * TMA takes as long for a short row as for one of 128 bytes. */
void describe_src(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *p = &plan->parameters;
    const int size = (int)problem->element_size;
    int columns = 1 << p->columns.tile_log2;
    const bool whole = problem->w.in == columns && problem->src.h == columns;
    p->lines.src_row_columns = whole ? columns : 0;
    if (p->lines.src_row_columns > 0) {
        columns <<= p->rows.tile_log2;
        plan->src = recipe_of(problem, &problem->src, problem->w.in * problem->h.in, problem->in_channels, 1);
        plan->src.strides[1] = plan->src.strides[0]; /* is not used */
    } else {
        plan->src = recipe_of(problem, &problem->src, problem->w.in, problem->in_channels, problem->h.in);
    }
    const int bytes = columns * size < ROW_BYTES ? columns * size : ROW_BYTES;
    plan->src.rounds = plan->mode == MODE_TF32;
    plan->src.box[0] = (cuuint32_t)(bytes / size);
    plan->src.box[1] = (cuuint32_t)p->tiles.block_m;
    plan->src.box[2] = p->lines.src_row_columns > 0 ? 1 : (cuuint32_t)1 << p->rows.tile_log2;
    plan->src.box[3] = (cuuint32_t)1 << p->images_log2;
    plan->src.swizzle = bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                        : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                        : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                      : CU_TENSOR_MAP_SWIZZLE_NONE;
    if (bytes < CORE_ROW_BYTES || !fits(&plan->src))
        return;
    p->lines.src_box_pixels = bytes / size;
    p->lines.src_boxes = columns * size / bytes;
    p->lines.src_box_bytes = p->k_pixels * (int)p->tiles.block_m * size / p->lines.src_boxes;
}

/* The gradient of dst, as lines of a row of each channel, or of all together. */
void describe_dst(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *p = &plan->parameters;
    const tconv_strides *strides = &problem->dst;
    const int64_t line = problem->w.out * p->lines.channels, channels = problem->out_channels / p->lines.channels;
    const int64_t tile = ((int64_t)p->columns.stride * p->lines.channels) << p->columns.tile_log2;
    tensor_map_recipe *map = &plan->dst;
    plan->dst = recipe_of(problem, strides, line, channels, problem->h.out);
    map->rounds = plan->mode == MODE_TF32;
    if (channels == 1) /* the distance to the next is not used */
        map->strides[0] = map->strides[1];
    map->box[0] = (cuuint32_t)p->lines.length;
    map->box[1] = (cuuint32_t)tconv_min(channels, p->tiles.chunk);
    map->box[2] = (cuuint32_t)((p->rows.extent - 1) * p->rows.stride + 1);
    map->box[3] = (cuuint32_t)1 << p->images_log2;
    map->steps[2] = (cuuint32_t)p->rows.stride;
    p->box_bytes = tile % line_unit(problem) == 0 && fits(map) ? (p->rows.extent << p->images_log2) * p->row_pitch : 0;
    p->lines.unit = line_unit(problem);
    while (tile % p->lines.unit != 0 || line % p->lines.unit != 0 || strides->c % p->lines.unit * (channels > 1) != 0 ||
           strides->h % p->lines.unit != 0 || strides->n % p->lines.unit != 0)
        p->lines.unit /= 2;
}

/* Whether channels of src are vectors: also where there is one pixel. */
bool has_channels_beside(const tconv_problem *problem)
{
    const tconv_strides *src = &problem->src;
    if (problem->h.in == 1 && problem->w.in == 1)
        return src->c == 1 && src->n % line_unit(problem) == 0 && problem->group_in % line_unit(problem) == 0;
    return has_vectors(problem, src, problem->group_in);
}

} // namespace

bool can_be_lines(const tconv_problem *problem)
{
    return problem->layout == TCONV_NCHW ||
           (problem->dtype == TCONV_F32 &&
            (problem->out_channels <= MOST_TOGETHER && problem->dst.c == 1 && problem->dst.w == problem->out_channels &&
             !has_vectors(problem, &problem->dst, problem->group_out)));
}

void lay_out_lines(const tconv_layer *layer, planned_layer *plan)
{
    parameters *p = &plan->parameters;
    const tile_axis *axis = &p->columns;
    const int size = (int)layer->problem.element_size, unit = line_unit(&layer->problem);
    int span = 0;
    for (int group = 0; group < p->tiles.columns.groups; group++) {
        const axis_ends ends = ends_of_group(axis, group);
        const int columns = ends.last - (ends.first & -unit) + 1;
        span = columns > span ? columns : span;
    }
    const bool together = layer->problem.layout == TCONV_NHWC;
    const int power = power_in(axis->stride) < MAX_TWINS ? power_in(axis->stride) : MAX_TWINS;
    p->lines.channels = together ? (int)layer->problem.out_channels : 1;
    p->lines.length = (int)tconv_round_up(span * p->lines.channels, unit);
    /* A step of channels fills the banks between those of four pixels and of the twins. */
    while (!together && p->lines.length / unit % (2 * power) != power)
        p->lines.length += unit;
    p->lines.twins = 1;
    while (2 * p->lines.twins <= power && 2 * p->lines.twins <= p->tiles.columns.group_taps &&
           p->tiles.columns.groups == 1)
        p->lines.twins *= 2;
    p->dst_pitch = together ? size : p->lines.length * size;
    p->row_pitch = (together ? 1 : (int)p->tiles.chunk) * p->lines.length * size;
    p->column_pitch = axis->stride * p->lines.channels * size;
    p->lines.src_vectors = has_channels_beside(&layer->problem);
    if (!together)
        describe_src(layer, plan);
    describe_dst(layer, plan);
    p->lines.residue_bytes = (int)tconv_round_up((int64_t)(p->rows.extent << p->images_log2) * p->row_pitch, BOX_PLACE);
}

} // namespace tconv::wgrad
