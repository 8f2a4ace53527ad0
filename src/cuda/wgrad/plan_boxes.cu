/* What TMA brings of K-tiles that lie by channels (NHWC), as boxes. */
#include "plan_boxes.h"

#include "../gemm/shape.h"

namespace tconv::wgrad
{

namespace
{

constexpr cuuint32_t MAX_BOX = 256; /* along an axis (CUDA driver API) */
constexpr int MIN_ROW_BYTES = 256;  /* of a slot, that TMA brings where taps share none */

/* Describes the gradient of dst to TMA, whose boxes are the slots of a residue of rows and one of columns; false where it
 * brings no such box. */
bool describe_dst(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *p = &plan->parameters;
    const cuuint64_t size = (cuuint64_t)problem->element_size;
    const tconv_strides *strides = &problem->dst;
    const auto span = [](const tile_axis &axis) { return (cuuint32_t)((axis.extent - 1) * axis.stride + 1); };
    plan->dst = {
        problem->dtype,
        plan->kernel.by_boxes ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        NULL,
        {(cuuint64_t)problem->out_channels, (cuuint64_t)problem->w.out, (cuuint64_t)problem->h.out,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)strides->w * size, (cuuint64_t)strides->h * size, (cuuint64_t)strides->n * size},
        {(cuuint32_t)(p->dst_pitch / (int)size), span(p->columns), span(p->rows), (cuuint32_t)1 << p->images_log2},
        false,
        {1, (cuuint32_t)p->columns.stride, (cuuint32_t)p->rows.stride, 1}};
    if (!has_box(&plan->dst))
        return false;
    /* Short rows that no taps share come slower so than as vectors. */
    return plan->kernel.by_boxes || p->dst_pitch >= MIN_ROW_BYTES || p->rows.extent > 1 << p->rows.tile_log2 ||
           p->columns.extent > 1 << p->columns.tile_log2;
}

/* Describes src to TMA, for a kernel by boxes: all pixels of a K-tile. */
void describe_src(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *p = &plan->parameters;
    const cuuint64_t size = (cuuint64_t)problem->element_size;
    const tconv_strides *strides = &problem->src;
    plan->src = {problem->dtype,
                 CU_TENSOR_MAP_SWIZZLE_128B,
                 NULL,
                 {(cuuint64_t)problem->in_channels, (cuuint64_t)problem->w.in, (cuuint64_t)problem->h.in,
                  (cuuint64_t)problem->batch},
                 {(cuuint64_t)strides->w * size, (cuuint64_t)strides->h * size, (cuuint64_t)strides->n * size},
                 {BOX_CHANNELS, (cuuint32_t)1 << p->columns.tile_log2, (cuuint32_t)1 << p->rows.tile_log2,
                  (cuuint32_t)1 << p->images_log2},
                 false,
                 {1, 1, 1, 1}};
}

/* Whether the slots of a tap for eight pixels of a K-tile, from multiples of eight on, are neighbours. */
bool has_core_rows(const parameters *p)
{
    int pixels_log2 = p->columns.tile_log2;
    if (p->columns.extent == 1 << p->columns.tile_log2) {
        pixels_log2 += p->rows.tile_log2;
        if (p->rows.extent == 1 << p->rows.tile_log2)
            pixels_log2 += p->images_log2;
    }
    return 1 << pixels_log2 >= CORE_ROWS;
}

} // namespace

bool has_box(const tensor_map_recipe *map)
{
    for (int i = 0; i < 4; i++)
        if (map->box[i] > MAX_BOX || map->steps[i] > MAX_BOX_STEP)
            return false;
    return true;
}

bool describe_boxes(const tconv_layer *layer, planned_layer *plan)
{
    parameters *p = &plan->parameters;
    const bool by_boxes = plan->kernel.by_boxes;
    if (by_boxes ? plan->reading != BOXES || !has_core_rows(p)
                 : !plan->kernel.by_warpgroups || plan->reading != CHANNELS)
        return !by_boxes;
    if (!describe_dst(layer, plan))
        return !by_boxes;
    if (by_boxes)
        describe_src(layer, plan);
    p->box_bytes = ((p->rows.extent * p->columns.extent) << p->images_log2) * p->dst_pitch;
    return true;
}

} // namespace tconv::wgrad
