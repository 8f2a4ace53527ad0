/*
 * Packs the weights for the implicit matrix product: for each group, phase, tile of blocks, chunk of input channels and tap, in
 * the order in which a tile reads them, a slot
 *
 *     [block][step][plane][quad][64 rows of M][4 or 8 input channels]
 *
 * A row of M that is no output channel, and an input channel past the last, are zeros.
 */
#include "element.cuh"
#include "igemm_kernels.h"
#include "phases_kernels.h"
#include "tf32_device.cuh"

namespace
{

constexpr int THREADS = 256;

/* A row of 16 bytes: where it lies in the weights. */
struct packed_row {
    int64_t in, out; /* input channel of the group; output channel of the layer's group, -1 past the last */
    int64_t kernel_row, kernel_column;
    int group;
    int64_t at; /* its number among rows of all planes, of the first plane */
};

/* The last phase that does not begin after `tap`, where each tap of its axis stands for `each`. */
__device__ int find_phase(const tconv_igemm_phase *phases, int count, int64_t tap, int64_t each)
{
    int phase = 0;
    while (phase + 1 < count && phases[phase + 1].first_tap * each <= tap)
        phase++;
    return phase;
}

__device__ packed_row find_row(const tconv_igemm_parameters &layer, const tconv_igemm_packing &packing,
                               int quad_channels, int planes, int64_t number)
{
    const int m = (int)(number % TCONV_IGEMM_M), quad = (int)(number / TCONV_IGEMM_M % 2);
    const int64_t product = number / (2 * TCONV_IGEMM_M);
    const int step = (int)(product % layer.steps), of_tile = (int)(product / layer.steps % layer.tile_blocks);
    int64_t slot = product / layer.steps / layer.tile_blocks;
    packed_row row;
    row.group = (int)(slot / layer.group_slots);
    slot %= layer.group_slots;

    int row_phase = 0, column_phase = 0, taps = 1, column_taps = 1;
    if (!layer.merged) {
        const int64_t each = (int64_t)layer.chunks * layer.block_tiles, tap = slot / each;
        row_phase = find_phase(layer.rows, layer.row_phases, tap, layer.column_taps);
        const tconv_igemm_phase &rows = layer.rows[row_phase];
        const int64_t before = rows.first_tap * (int64_t)layer.column_taps;
        column_phase = find_phase(layer.columns, layer.column_phases, tap - before, rows.taps);
        column_taps = layer.columns[column_phase].taps;
        taps = rows.taps * column_taps;
        slot -= (before + (int64_t)rows.taps * layer.columns[column_phase].first_tap) * each;
    }
    const int tap = (int)(slot % taps), chunk = (int)(slot / taps % layer.chunks);
    const int64_t block = slot / taps / layer.chunks * layer.tile_blocks + of_tile;
    row.out = block * TCONV_IGEMM_M + m;
    if (layer.merged) {
        const int64_t of_rows = block / layer.column_phases;
        row.out = block < layer.blocks ? of_rows % layer.channel_blocks * TCONV_IGEMM_M + m : layer.group_out;
        row_phase = (int)(of_rows / layer.channel_blocks % layer.row_phases);
        column_phase = (int)(block % layer.column_phases);
    }
    row.kernel_row = packing.first_kernel[0][row_phase] + (int64_t)(tap / column_taps) * packing.kernel_step[0];
    row.kernel_column = packing.first_kernel[1][column_phase] + (int64_t)(tap % column_taps) * packing.kernel_step[1];
    if (row.out >= layer.group_out) {
        row.out = -1;
    } else if (packing.outputs > 1) {
        /* Neighbouring outputs of one input take neighbouring elements of the kernel. */
        const int64_t output = row.out % packing.outputs;
        row.out /= packing.outputs;
        row.kernel_row += output / packing.out_columns;
        row.kernel_column += output % packing.out_columns;
    }
    row.in = (int64_t)chunk * layer.chunk_channels + (2 * step + quad) * quad_channels;
    row.at = product * planes * 2 * TCONV_IGEMM_M + quad * TCONV_IGEMM_M + m;
    return row;
}

__device__ __forceinline__ void put(float value, bool strict, int i, element_vector<float, 4> *big,
                                    element_vector<float, 4> *small)
{
    uint32_t parts[2];
    if (strict)
        split_to_tf32(__float_as_uint(value), &parts[0], &parts[1]);
    else
        parts[0] = parts[1] = round_to_tf32(__float_as_uint(value));
    big->at[i] = __uint_as_float(parts[0]);
    small->at[i] = __uint_as_float(parts[1]);
}
template <class Half>
__device__ __forceinline__ void put(Half value, bool, int i, element_vector<Half, 8> *big, element_vector<Half, 8> *)
{
    big->at[i] = value;
}

template <class Element, int planes>
__global__ void __launch_bounds__(THREADS)
    igemm_pack(const __grid_constant__ tconv_igemm_parameters layer,
               const __grid_constant__ tconv_igemm_packing packing, const Element *from, void *packed)
{
    constexpr int CHANNELS = TCONV_IGEMM_QUAD / (int)sizeof(Element);
    using Quad = element_vector<Element, CHANNELS>;
    Quad *to = static_cast<Quad *>(packed);
    for (int64_t number = (int64_t)blockIdx.x * THREADS + threadIdx.x; number < packing.rows;
         number += (int64_t)gridDim.x * THREADS) {
        const packed_row row = find_row(layer, packing, CHANNELS, planes, number);
        const Element *source = from + (row.group * (int64_t)layer.group_in + row.in) * packing.from.in +
                                row.out * packing.from.out + row.kernel_row * packing.from.h +
                                row.kernel_column * packing.from.w;
        Quad big, small;
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
            put(row.out >= 0 && row.in + i < layer.group_in ? source[i * packing.from.in] : from_compute<Element>(0),
                planes == 2, i, &big, &small);
        to[row.at] = big;
        if (planes == 2)
            to[row.at + 2 * TCONV_IGEMM_M] = small;
    }
}

} // namespace

tconv_status tconv_igemm_pack(const tconv_igemm_parameters *layer, const tconv_igemm_packing *packing,
                              tconv_igemm_mode mode, const void *weights, void *packed, void *stream,
                              tconv_issue *issue)
{
    const void *const kernels[] = {(const void *)igemm_pack<float, 1>, (const void *)igemm_pack<float, 2>,
                                   (const void *)igemm_pack<__half, 1>, (const void *)igemm_pack<__nv_bfloat16, 1>};
    tconv_igemm_parameters layer_copy = *layer;
    tconv_igemm_packing packing_copy = *packing;
    void *arguments[] = {&layer_copy, &packing_copy, &weights, &packed};
    return tconv_cuda_launch(kernels[mode], (packing->rows + THREADS - 1) / THREADS, THREADS, arguments, stream, issue);
}
