/*
 * The launch before the kernel: turns src where the layer wants that, and packs the weights for the implicit matrix product: for each group, phase, tile of blocks, chunk of input channels and tap, in
 * the order in which a tile reads them, a slot
 *
 *     [block][step][plane][quad][64 rows of M][4 or 8 input channels]
 *
 * A row of M that is no output channel, and an input channel past the last, are zeros; where groups are seen as one, so are weights
 * from one of them to another.
 */
#include <cstring>

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../pack/boxes.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"
#include "transpose_src.cuh"

namespace tconv::igemm
{

namespace
{

/* The last phase that does not begin after `tap`. */
__device__ int find_phase(const tconv_igemm_phase *phases, int count, int tap)
{
    int phase = 0;
    while (phase + 1 < count && phases[phase + 1].first_tap <= tap)
        phase++;
    return phase;
}

struct igemm_order {
    tconv_igemm_parameters layer;
    tconv_igemm_packing packing;

    /* Blocks of channels; of phases that are merged those with channels. */
    __host__ __device__ int channel_blocks() const
    {
        return layer.merged ? layer.channel_blocks : layer.block_tiles * layer.tile_blocks / phases_of_block();
    }

    /* Column phases whose blocks follow one another where they are seen as one. */
    __host__ __device__ int phases_of_block() const
    {
        return layer.paired && !layer.merged ? 2 : 1;
    }

    __host__ __device__ int all_column_taps() const
    {
        return phases_of_block() == 2 ? packing.column_taps[0] + packing.column_taps[1] : layer.column_taps;
    }

    __device__ pack_place place_of(unsigned strip) const
    {
        pack_place place;
        const unsigned of_group = strip / layer.chunks, blocks = channel_blocks();
        place.k_block = (int)(strip - of_group * layer.chunks);
        place.group = (int)(of_group / blocks);
        place.block = (int)(of_group % blocks);
        place.out = place.block * TCONV_IGEMM_M;
        return place;
    }

    __device__ int64_t element_of(int row_phase, int row_tap, int column_phase, int column_tap) const
    {
        return (packing.first_kernel[0][row_phase] + row_tap * packing.kernel_step[0]) * packing.kernel_columns +
               packing.first_kernel[1][column_phase] + column_tap * packing.kernel_step[1];
    }

    __device__ pack_run run_of(const pack_place &place, int planes, int run) const
    {
        int64_t slot;
        int of_tile, element;
        if (layer.merged) {
            const int row_phase = run / layer.column_phases, column_phase = run - row_phase * layer.column_phases;
            const bool exists = row_phase < layer.row_phases;
            /* The blocks that are left of the last tile have no channels; the first block's boxes write them. */
            const int block =
                exists ? (row_phase * layer.channel_blocks + place.block) * layer.column_phases + column_phase
                       : layer.blocks + run - layer.row_phases * layer.column_phases;
            if (!exists && place.block > 0)
                return {-1, -1};
            slot = block / layer.tile_blocks * (int64_t)layer.chunks + place.k_block;
            of_tile = block % layer.tile_blocks;
            element = !exists ? -1 : packing.one_pixel ? 0 : (int)element_of(row_phase, 0, column_phase, 0);
        } else {
            const int column_taps = all_column_taps(), in_turn = phases_of_block();
            int row_tap = run / column_taps, column_tap = run - row_tap * column_taps;
            const int row_phase = find_phase(layer.rows, layer.row_phases, row_tap);
            const int column_phase = in_turn == 2 ? column_tap >= packing.column_taps[0]
                                                  : find_phase(layer.columns, layer.column_phases, column_tap);
            const tconv_igemm_phase &rows = layer.rows[row_phase];
            const tconv_igemm_phase &columns = layer.columns[in_turn == 2 ? 0 : column_phase];
            const int block = place.block * in_turn + (in_turn == 2 ? column_phase : 0);
            const int64_t before = rows.first_tap * (int64_t)layer.column_taps + (int64_t)rows.taps * columns.first_tap;
            row_tap -= rows.first_tap;
            column_tap -= in_turn == 2 ? column_phase * packing.column_taps[0] : columns.first_tap;
            slot = before * layer.chunks * layer.block_tiles +
                   (block / layer.tile_blocks * (int64_t)layer.chunks + place.k_block) * (rows.taps * columns.taps) +
                   row_tap * columns.taps + column_tap;
            of_tile = block % layer.tile_blocks;
            element = (int)element_of(row_phase, row_tap, column_phase, column_tap);
        }
        slot += place.group * layer.group_slots;
        const int64_t product = (slot * layer.tile_blocks + of_tile) * layer.steps + place.step();
        return {product * planes * 2 * TCONV_IGEMM_M + place.step_row(), element};
    }
};

/* The first blocks turn src, the others pack. */
template <class Element, int planes>
__global__ void __launch_bounds__(PACK_THREADS)
    turn_and_pack(const __grid_constant__ igemm_order order, const __grid_constant__ pack_boxes boxes,
                  const __grid_constant__ tconv_igemm_turning turning, const Element *__restrict__ from,
                  void *__restrict__ packed)
{
    launch_dependents();
    if (blockIdx.x < turning.blocks)
        turn_tile<Element>(turning, (int)blockIdx.x);
    else
        pack_every<planes>(order, boxes, from, packed, blockIdx.x - turning.blocks, gridDim.x - turning.blocks);
}

/* How the weights are cut into boxes. */
pack_boxes boxes_of(const igemm_order *order, int planes)
{
    const tconv_igemm_parameters *layer = &order->layer;
    const tconv_igemm_packing *packing = &order->packing;
    pack_boxes boxes;
    memset(&boxes, 0, sizeof boxes);
    boxes.from = packing->from;
    boxes.group_in = layer->group_in;
    boxes.group_out = layer->group_out;
    boxes.outputs = (int)packing->outputs;
    boxes.out_columns = (int)packing->out_columns;
    boxes.diagonal_in = packing->lone_in;
    boxes.diagonal_out = packing->lone_out;
    boxes.elements = packing->kernel_rows * packing->kernel_columns;
    boxes.output_rows_step = packing->output_rows_step;
    boxes.output_columns_step = packing->output_columns_step;
    if (packing->one_pixel) {
        boxes.elements = 1;
        boxes.first_element =
            (int)(packing->first_kernel[0][0] * packing->kernel_columns + packing->first_kernel[1][0]);
    }
    boxes.step_rows = planes * 2 * TCONV_IGEMM_M;
    int row_taps = 0;
    for (int i = 0; i < layer->row_phases; i++)
        row_taps += layer->rows[i].taps;
    boxes.runs = layer->merged ? layer->row_phases * layer->column_phases + layer->block_tiles * layer->tile_blocks -
                                     layer->blocks
                               : row_taps * order->all_column_taps();
    pack_choose_boxes(&boxes, layer->row_bytes / layer->chunk_channels,
                      (int64_t)layer->groups * order->channel_blocks() * layer->chunks, TCONV_IGEMM_M,
                      2 * layer->steps);
    return boxes;
}

} // namespace

int64_t tconv_igemm_turned_pixel(const tconv_problem *problem)
{
    const int64_t vector = TCONV_IGEMM_QUAD / (int64_t)problem->element_size;
    return tconv_ceil_div(problem->in_channels, vector) * vector;
}

int64_t tconv_igemm_turned_bytes(const tconv_problem *problem)
{
    return problem->batch * problem->h.in * problem->w.in * tconv_igemm_turned_pixel(problem) *
           (int64_t)problem->element_size;
}

tconv_igemm_turning tconv_igemm_turning_of(const tconv_problem *problem, const void *src, void *to)
{
    const int64_t vector = TCONV_IGEMM_QUAD / (int64_t)problem->element_size;
    const int64_t image = problem->h.in * problem->w.in;
    tconv_igemm_turning turning;
    turning.src = src;
    turning.to = to;
    turning.from = problem->src;
    turning.pixels = (int)(problem->batch * image);
    turning.channels = (int)problem->in_channels;
    turning.pixel_quads = (int)(tconv_igemm_turned_pixel(problem) / vector);
    turning.channel_tiles = (int)tconv_ceil_div(turning.pixel_quads, TURN_QUADS);
    turning.blocks = (int)tconv_ceil_div(turning.pixels, TURN_PIXELS) * turning.channel_tiles;
    turning.vectors = problem->src.w == 1 && problem->src.h == problem->w.in && image % vector == 0 &&
                      problem->src.c % vector == 0 && problem->src.n % vector == 0 &&
                      (uintptr_t)src % TCONV_IGEMM_QUAD == 0;
    turning.by_image = divisor_of((int)image);
    turning.by_columns = divisor_of((int)problem->w.in);
    turning.by_channel_tiles = divisor_of(turning.channel_tiles);
    return turning;
}

tconv_status tconv_igemm_pack(const tconv_igemm_parameters *layer, const tconv_igemm_packing *packing,
                              const tconv_igemm_turning *turning, tconv_igemm_mode mode, const void *weights,
                              void *packed, void *stream, tconv_issue *issue)
{
    const void *const kernels[] = {(const void *)turn_and_pack<float, 1>, (const void *)turn_and_pack<float, 2>,
                                   (const void *)turn_and_pack<__half, 1>,
                                   (const void *)turn_and_pack<__nv_bfloat16, 1>};
    igemm_order order = {*layer, *packing};
    pack_boxes boxes;
    memset(&boxes, 0, sizeof boxes);
    if (weights != NULL)
        boxes = boxes_of(&order, mode == TCONV_IGEMM_STRICT ? 2 : 1);
    tconv_igemm_turning turning_copy = *turning;
    void *arguments[] = {&order, &boxes, &turning_copy, &weights, &packed};
    const int64_t shared_bytes =
        tconv_max(turning->blocks > 0 ? TURN_SHARED_BYTES : 0, weights != NULL ? pack_shared_bytes(&boxes) : 0);
    return launch_blocks_shared(kernels[mode], (int64_t)turning->blocks + boxes.count, PACK_THREADS, shared_bytes,
                                arguments, stream, issue);
}

} // namespace tconv::igemm
