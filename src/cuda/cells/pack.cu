/*
 * Packs the weights for the cells kernels: for each group, cell of output channels, program and chunk of input channels, its
 * slots one after another, each
 *
 *     [step][big, small][half of K][tap][output channel of the cell][4 input channels]
 *
 * of which only strict f32 has small parts (tf32_device.cuh). What is no channel is zeros.
 */
#include "../general/parameters.h"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

namespace tconv::cells
{

namespace
{

constexpr int THREADS = 256, QUAD = 4;

template <bool STRICT>
__global__ void __launch_bounds__(THREADS)
    cells_pack(const __grid_constant__ tconv_cells_parameters layer,
               const __grid_constant__ tconv_cells_packing packing, const float *from, uint4 *to)
{
    launch_dependents();
    constexpr int PLANES = STRICT ? 2 : 1;
    const int quads = 2 * layer.steps; /* of a row of N, of a plane */
    for (int64_t number = (int64_t)blockIdx.x * THREADS + threadIdx.x; number < packing.rows;
         number += (int64_t)gridDim.x * THREADS) {
        const int64_t cell_quads = (int64_t)layer.all_rows * layer.chunks * quads;
        const int64_t cell = number / cell_quads;
        int64_t rest = number - cell * cell_quads;
        int p = layer.programs - 1;
        while (rest < (int64_t)layer.program[p].first_row * layer.chunks * quads)
            p--;
        const tconv_cells_program &program = layer.program[p];
        rest -= (int64_t)program.first_row * layer.chunks * quads;
        const int chunk = (int)(rest / (program.rows * quads));
        int of_chunk = (int)(rest % (program.rows * quads)), s = program.end_slot - 1;
        while (of_chunk < layer.slot[s].first_row * quads)
            s--;
        const tconv_cells_slot slot = layer.slot[s];
        of_chunk -= slot.first_row * quads;
        const int quad = of_chunk / slot.rows, row = of_chunk % slot.rows;
        const auto tap = packing.tap[packing.first_tap[s] + (row >> layer.channel_shift)];
        const int64_t group = cell / layer.channel_tiles;
        const int64_t out = cell % layer.channel_tiles * layer.channels + (row & (layer.channels - 1));
        const int64_t in = (int64_t)chunk * layer.chunk_channels + quad * QUAD;
        const float *source = from + (group * layer.group_in + in) * packing.from.in + out * packing.from.out +
                              tap.row * packing.from.h + tap.column * packing.from.w;
        uint32_t big[QUAD], small[QUAD];
#pragma unroll
        for (int i = 0; i < QUAD; i++) {
            const bool exists = out < layer.group_out && in + i < layer.group_in;
            const uint32_t bits = exists ? __float_as_uint(source[i * packing.from.in]) : 0;
            if (STRICT)
                split_to_tf32(bits, &big[i], &small[i]);
            else
                big[i] = round_to_tf32(bits);
        }
        uint4 *slot_to = to + PLANES * (number - ((int64_t)quad * slot.rows + row));
        const int first = (quad / 2 * PLANES * 2 + quad % 2) * slot.rows + row;
        slot_to[first] = make_uint4(big[0], big[1], big[2], big[3]);
        if (STRICT)
            slot_to[first + 2 * slot.rows] = make_uint4(small[0], small[1], small[2], small[3]);
    }
}

} // namespace

tconv_status tconv_cells_pack(const tconv_cells_parameters *layer, const tconv_cells_packing *packing, bool strict,
                              const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    tconv_cells_parameters layer_copy = *layer;
    tconv_cells_packing packing_copy = *packing;
    void *arguments[] = {&layer_copy, &packing_copy, &weights, &packed};
    const void *kernel = strict ? (const void *)cells_pack<true> : (const void *)cells_pack<false>;
    return launch_blocks(kernel, (packing->rows + THREADS - 1) / THREADS, THREADS, arguments, stream, issue);
}

} // namespace tconv::cells
