/* Lays out the packed weights: what the A stages hold, and the boxes that the weights are cut into. */
#include "packing.h"

#include <string.h>

#include "plan.h"

void tconv_wgmma_choose_boxes(packing_layout *layout, const parameters *params, numerics arithmetic)
{
    const int64_t stages = params->max_k_block_a_stages, taps = layout->depth * all_column_taps(layout, params);
    const int warpgroups = channel_warpgroups(layout, params), parts = channel_parts(layout, params);
    pack_boxes *boxes = &layout->boxes;
    layout->product_rows = operand_planes(arithmetic) * 2 * MMA_M;
    boxes->step_rows = (int)taps * layout->product_rows;
    boxes->runs = layout->a_stage_columns > 0
                      ? stages * overlapping_runs(layout)
                      : stages * layout->warpgroups / warpgroups * params->stack * layout->depth * taps;
    tconv_cuda_choose_boxes(boxes, params->k_steps * 2 * CORE_ROW_BYTES / params->k_block_channels,
                            (int64_t)params->m_blocks * params->k_blocks * warpgroups * parts,
                            params->mma_tile_channels / parts, 2 * params->k_steps);
}

packing_layout tconv_wgmma_plan_packing(const tconv_layer *layer, const tile_plan *plan)
{
    const parameters *params = &plan->params;
    packing_layout packing;
    pack_boxes *boxes = &packing.boxes;
    memset(&packing, 0, sizeof packing);
    boxes->from = layer->problem.weight;
    boxes->group_in = boxes->diagonal_in = params->group_in;
    boxes->group_step = boxes->group_in * boxes->from.in;
    tconv_cuda_describe_pack_planes(boxes, &layer->problem.plane_taps);
    boxes->group_out = boxes->diagonal_rows = params->group_out;
    boxes->inner = (pack_rows){1, 1, 0, 0};
    boxes->outer_step = boxes->from.out;
    boxes->elements = layer->problem.h.kernel * layer->problem.w.kernel;
    boxes->core_step = MMA_M;
    if (plan->a_stage_columns > 0) {
        packing.a_stage_columns = plan->a_stage_columns;
        boxes->core_step = (int)params->weights_leading_bytes / CORE_ROW_BYTES;
        packing.a_stage_rows = (int)params->a_stage_bytes / CORE_ROW_BYTES;
    }
    packing.depth = 1 << params->space_to_depth_log2;
    packing.warpgroups = params->warpgroup_weights > 0 ? WARPGROUPS : 1;
    packing.mma_tiles = (int)layer->columns.count;
    for (int i = 0; i < 2; i++) {
        packing.row_taps[i] = (int)tconv_wgmma_row_phase(layer, i)->taps;
        packing.first_kernel_row[i] = (int)tconv_wgmma_row_phase(layer, i)->first_kernel;
        packing.first_kernel_column[i] = (int)tconv_wgmma_column_phase(layer, i)->first_kernel;
    }
    packing.kernel_row_step = (int)layer->rows.kernel_step;
    packing.kernel_column_step = (int)layer->columns.kernel_step;
    packing.kernel_columns = (int)layer->problem.w.kernel;
    tconv_wgmma_choose_boxes(&packing, params, plan->arithmetic);
    return packing;
}
