/*
 * Packs the weights for the wgmma kernels: for each block of output channels, chunk of input channels and row of taps, in
 * the order in which a tile reads them, a slot
 *
 *     [warpgroup][step][unit and its column taps][plane][quad][64 rows of M][4 or 8 input channels]
 *
 * where warpgroups, and units, that share their weights have them once. A row of M that is no output channel, an input
 * channel past the last, and a tap that an output row of a stack does not have, are zeros.
 */
#include "element.cuh"
#include "tf32_device.cuh"
#include "wgmma_kernels.h"

#include "phases_kernels.h"

namespace
{

constexpr int THREADS = 256;

/* A row of 16 bytes: where it lies in the weights. */
struct packed_row {
    int64_t in, out;                      /* input channel of the group, output channel of the layer's group */
    int group, kernel_row, kernel_column; /* group of the layer; kernel_row < 0: no such tap */
    int64_t at;                           /* its number among rows of all planes, of the first plane */
};

__device__ packed_row find_row(const tconv_wgmma_packing &packing, int quad_channels, int planes, int64_t number)
{
    const int taps = packing.column_taps[0] + (packing.units == 2 ? packing.column_taps[1] : 0);
    const int m = (int)(number % TCONV_WGMMA_M);
    const int quad = (int)(number / TCONV_WGMMA_M % 2);
    const int64_t product = number / (2 * TCONV_WGMMA_M);
    int64_t rest = product;
    int tap = (int)(rest % taps);
    rest /= taps;
    const int step = (int)(rest % packing.steps);
    rest /= packing.steps;
    const int warpgroup = (int)(rest % packing.groups);
    rest /= packing.groups;
    const int row_tap = (int)(rest % packing.max_row_taps);
    rest /= packing.max_row_taps;
    const int chunk = (int)(rest % packing.chunks), block = (int)(rest / packing.chunks);

    packed_row row;
    const int unit = tap >= packing.column_taps[0], row_of_stack = m / packing.block_channels;
    tap -= unit * packing.column_taps[0];
    /* The rows of a stack take the same taps, each a row later than the one before it. */
    const int own_tap = row_tap - (packing.stack - 1) + row_of_stack;
    row.kernel_row = own_tap >= 0 && own_tap < packing.row_taps[warpgroup]
                         ? packing.first_kernel_row[warpgroup] + own_tap * packing.kernel_row_step
                         : -1;
    row.kernel_column = packing.first_kernel_column[unit] + tap * packing.kernel_column_step;
    row.group = block / packing.group_blocks;
    row.out = (int64_t)(block % packing.group_blocks) * packing.tile_channels + warpgroup * packing.group_channels +
              m % packing.block_channels;
    row.in = (int64_t)chunk * packing.chunk_channels + (2 * step + quad) * quad_channels;
    row.at = product * planes * 2 * TCONV_WGMMA_M + quad * TCONV_WGMMA_M + m;
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
    wgmma_pack(const __grid_constant__ tconv_wgmma_packing packing, const Element *from, void *packed)
{
    constexpr int CHANNELS = TCONV_WGMMA_QUAD / (int)sizeof(Element);
    using Quad = element_vector<Element, CHANNELS>;
    Quad *to = static_cast<Quad *>(packed);
    for (int64_t number = (int64_t)blockIdx.x * THREADS + threadIdx.x; number < packing.rows;
         number += (int64_t)gridDim.x * THREADS) {
        const packed_row row = find_row(packing, CHANNELS, planes, number);
        const bool exists = row.kernel_row >= 0 && row.out < packing.group_out;
        const Element *source = from + (row.group * (int64_t)packing.group_in + row.in) * packing.from.in +
                                row.out * packing.from.out + row.kernel_row * packing.from.h +
                                row.kernel_column * packing.from.w;
        Quad big, small;
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
            put(exists && row.in + i < packing.group_in ? source[i * packing.from.in] : from_compute<Element>(0),
                planes == 2, i, &big, &small);
        to[row.at] = big;
        if (planes == 2)
            to[row.at + 2 * TCONV_WGMMA_M] = small;
    }
}

} // namespace

tconv_status tconv_wgmma_pack(const tconv_wgmma_packing *packing, tconv_wgmma_mode mode, const void *weights,
                              void *packed, void *stream, tconv_issue *issue)
{
    const void *const kernels[] = {(const void *)wgmma_pack<float, 1>, (const void *)wgmma_pack<float, 2>,
                                   (const void *)wgmma_pack<__half, 1>, (const void *)wgmma_pack<__nv_bfloat16, 1>};
    tconv_wgmma_packing copy = *packing;
    void *arguments[] = {&copy, &weights, &packed};
    return tconv_cuda_launch(kernels[mode], (packing->rows + THREADS - 1) / THREADS, THREADS, arguments, stream, issue);
}
