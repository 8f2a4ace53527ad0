/*
 * The launch before the implicit GEMM: some thread blocks transpose src where the layer wants that, the others pack the
 * weights. For each channel group, phase, block tile along M, K-block of channels and tap, in the order in which a tile
 * reads them, there is an A tile
 *
 *     [M tile][wgmma along K][plane][core matrix along K][64 rows of M][4 or 8 input channels]
 *
 * A row of M that is no output channel, and an input channel past the last, are zeros. Where groups are fused the
 * weights are block-diagonal, with zeros from one group to another.
 */
#include <cstring>

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../pack/boxes.cuh"
#include "../ptx/dependent_launch.cuh"
#include "plan.h"
#include "transpose_src.cuh"

namespace tconv::igemm
{

namespace
{

/* The last phase that does not begin after `tap`. */
__device__ int find_phase(const axis_phase *phases, int count, int tap)
{
    int phase = 0;
    while (phase + 1 < count && phases[phase + 1].first_tap <= tap)
        phase++;
    return phase;
}

struct weight_order {
    parameters layer;
    weight_source source;

    /* The M tiles of a phase's channels. */
    __host__ __device__ int channel_m_tiles() const
    {
        return layer.merged ? layer.channel_m_tiles : layer.tiles_along_m * layer.m_tiles / phases_of_m_tile();
    }

    /* The column phases whose M tiles alternate, because they are seen as a pair. */
    __host__ __device__ int phases_of_m_tile() const
    {
        return layer.paired && !layer.merged ? 2 : 1;
    }

    __host__ __device__ int all_column_taps() const
    {
        return phases_of_m_tile() == 2 ? source.column_taps[0] + source.column_taps[1] : layer.column_taps;
    }

    __device__ pack_place place_of(unsigned strip) const
    {
        pack_place place;
        const unsigned of_group = strip / layer.k_blocks, m_tiles = channel_m_tiles();
        place.k_block = (int)(strip - of_group * layer.k_blocks);
        place.group = (int)(of_group / m_tiles);
        place.block = (int)(of_group % m_tiles);
        place.out = place.block * MMA_M;
        return place;
    }

    __device__ int64_t element_of(int row_phase, int row_tap, int column_phase, int column_tap) const
    {
        return (source.first_kernel[0][row_phase] + row_tap * source.kernel_step[0]) * source.kernel_columns +
               source.first_kernel[1][column_phase] + column_tap * source.kernel_step[1];
    }

    __device__ pack_run run_of(const pack_place &place, int planes, int run) const
    {
        int64_t a_tile;
        int of_tile, element;
        if (layer.merged) {
            const int row_phase = run / layer.column_phases, column_phase = run - row_phase * layer.column_phases;
            const bool exists = row_phase < layer.row_phases;
            /* The M tiles that are left of the last block tile have no channels; the boxes of the first M tile write
             * them. */
            const int m_tile =
                exists ? (row_phase * layer.channel_m_tiles + place.block) * layer.column_phases + column_phase
                       : layer.phase_m_tiles + run - layer.row_phases * layer.column_phases;
            if (!exists && place.block > 0)
                return {-1, -1};
            a_tile = m_tile / layer.m_tiles * (int64_t)layer.k_blocks + place.k_block;
            of_tile = m_tile % layer.m_tiles;
            element = !exists ? -1 : source.one_pixel ? 0 : (int)element_of(row_phase, 0, column_phase, 0);
        } else {
            const int column_taps = all_column_taps(), alternating = phases_of_m_tile();
            int row_tap = run / column_taps, column_tap = run - row_tap * column_taps;
            const int row_phase = find_phase(layer.rows, layer.row_phases, row_tap);
            const int column_phase = alternating == 2 ? column_tap >= source.column_taps[0]
                                                      : find_phase(layer.columns, layer.column_phases, column_tap);
            const axis_phase &rows = layer.rows[row_phase];
            const axis_phase &columns = layer.columns[alternating == 2 ? 0 : column_phase];
            const int m_tile = place.block * alternating + (alternating == 2 ? column_phase : 0);
            const int64_t before = rows.first_tap * (int64_t)layer.column_taps + (int64_t)rows.taps * columns.first_tap;
            row_tap -= rows.first_tap;
            column_tap -= alternating == 2 ? column_phase * source.column_taps[0] : columns.first_tap;
            a_tile = before * layer.k_blocks * layer.tiles_along_m +
                     (m_tile / layer.m_tiles * (int64_t)layer.k_blocks + place.k_block) * (rows.taps * columns.taps) +
                     row_tap * columns.taps + column_tap;
            of_tile = m_tile % layer.m_tiles;
            element = (int)element_of(row_phase, row_tap, column_phase, column_tap);
        }
        a_tile += place.group * layer.group_a_tiles;
        const int64_t product = (a_tile * layer.m_tiles + of_tile) * layer.k_steps + place.step();
        return {product * planes * 2 * MMA_M + place.step_row(), element};
    }
};

/* The first thread blocks transpose src, the others pack. */
template <class Element, int planes>
__global__ void __launch_bounds__(PACK_THREADS)
    transpose_and_pack(const __grid_constant__ weight_order order, const __grid_constant__ pack_boxes boxes,
                       const __grid_constant__ src_transpose transpose, const Element *__restrict__ from,
                       void *__restrict__ packed)
{
    launch_dependents();
    if (blockIdx.x < transpose.thread_blocks)
        transpose_tile<Element>(transpose, (int)blockIdx.x);
    else
        pack_every<planes>(order, boxes, from, packed, blockIdx.x - transpose.thread_blocks,
                           gridDim.x - transpose.thread_blocks);
}

/* The boxes that the weights are cut into. */
pack_boxes boxes_of(const weight_order *order, int planes)
{
    const parameters *layer = &order->layer;
    const weight_source *source = &order->source;
    pack_boxes boxes;
    memset(&boxes, 0, sizeof boxes);
    boxes.from = source->from;
    boxes.group_in = layer->group_in;
    boxes.group_out = layer->group_out;
    boxes.outputs = (int)source->outputs;
    boxes.out_columns = (int)source->out_columns;
    boxes.diagonal_in = source->diagonal_in;
    boxes.diagonal_out = source->diagonal_out;
    boxes.elements = source->kernel_rows * source->kernel_columns;
    boxes.output_rows_step = source->output_rows_step;
    boxes.output_columns_step = source->output_columns_step;
    if (source->one_pixel) {
        boxes.elements = 1;
        boxes.first_element = (int)(source->first_kernel[0][0] * source->kernel_columns + source->first_kernel[1][0]);
    }
    boxes.step_rows = planes * 2 * MMA_M;
    int row_taps = 0;
    for (int i = 0; i < layer->row_phases; i++)
        row_taps += layer->rows[i].taps;
    boxes.runs = layer->merged ? layer->row_phases * layer->column_phases + layer->tiles_along_m * layer->m_tiles -
                                     layer->phase_m_tiles
                               : row_taps * order->all_column_taps();
    pack_choose_boxes(&boxes, layer->pixel_bytes / layer->k_block_channels,
                      (int64_t)layer->groups * order->channel_m_tiles() * layer->k_blocks, MMA_M, 2 * layer->k_steps);
    return boxes;
}

} // namespace

int64_t transposed_pixel(const tconv_problem *problem)
{
    const int64_t vector = CORE_ROW_BYTES / (int64_t)problem->element_size;
    return tconv_ceil_div(problem->in_channels, vector) * vector;
}

int64_t transposed_bytes(const tconv_problem *problem)
{
    return problem->batch * problem->h.in * problem->w.in * transposed_pixel(problem) * (int64_t)problem->element_size;
}

src_transpose transpose_of(const tconv_problem *problem)
{
    const int64_t vector = CORE_ROW_BYTES / (int64_t)problem->element_size;
    const int64_t image = problem->h.in * problem->w.in;
    src_transpose transpose;
    memset(&transpose, 0, sizeof transpose);
    transpose.from = problem->src;
    transpose.pixels = (int)(problem->batch * image);
    transpose.channels = (int)problem->in_channels;
    transpose.pixel_vectors = (int)(transposed_pixel(problem) / vector);
    transpose.channel_tiles = (int)tconv_ceil_div(transpose.pixel_vectors, TRANSPOSE_VECTORS);
    transpose.thread_blocks = (int)tconv_ceil_div(transpose.pixels, TRANSPOSE_PIXELS) * transpose.channel_tiles;
    transpose.vectors = problem->src.w == 1 && problem->src.h == problem->w.in && image % vector == 0 &&
                        problem->src.c % vector == 0 && problem->src.n % vector == 0;
    transpose.by_image = divisor_of((int)image);
    transpose.by_columns = divisor_of((int)problem->w.in);
    transpose.by_channel_tiles = divisor_of(transpose.channel_tiles);
    return transpose;
}

tconv_status pack(const planned_layer *made, const src_transpose *transpose, const void *weights, void *packed,
                  void *stream, tconv_issue *issue)
{
    const void *const kernels[] = {
        (const void *)transpose_and_pack<float, 1>, (const void *)transpose_and_pack<float, 2>,
        (const void *)transpose_and_pack<__half, 1>, (const void *)transpose_and_pack<__nv_bfloat16, 1>};
    const mode mode = made->plan.mode;
    weight_order order = {made->plan.parameters, made->weights};
    pack_boxes boxes;
    memset(&boxes, 0, sizeof boxes);
    if (weights != NULL)
        boxes = boxes_of(&order, mode == MODE_STRICT ? 2 : 1);
    void *arguments[] = {&order, &boxes, (void *)transpose, &weights, &packed};
    const int64_t shared_bytes = tconv_max(transpose->thread_blocks > 0 ? TRANSPOSE_SHARED_BYTES : 0,
                                           weights != NULL ? pack_shared_bytes(&boxes) : 0);
    return launch_blocks_shared(kernels[mode], (int64_t)transpose->thread_blocks + boxes.count, PACK_THREADS,
                                shared_bytes, arguments, stream, issue);
}

} // namespace tconv::igemm
