/*
 * Packs the weights for the tensor-core kernels, as mma_kernels.h has them: a thread writes one lane's 4 words of one
 * plane. What is past the channels of a group is zeros, and so is what no row residue of a smaller set fills.
 */
#include "../../core/checked.h"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "packed.cuh"

namespace tconv::mma
{

namespace
{

constexpr int THREADS = 256;
constexpr int64_t MAX_GRID = 1 << 20; /* blocks; threads go on to the next lane of another */

struct pack_source {
    tconv_weight_strides strides;
    int64_t quads, blob_quads;
};

/* To TF32, to nearest; towards zero where that would be Inf. NaN and Inf stay. */
__device__ float big_part(float value)
{
    const uint32_t bits = __float_as_uint(value);
    if (!(fabsf(value) < __int_as_float(0x7f800000)))
        return value;
    const uint32_t rounded = (bits + 0x1000u) & 0xffffe000u;
    return (rounded & 0x7fffffffu) == 0x7f800000u ? __uint_as_float(bits & 0xffffe000u) : __uint_as_float(rounded);
}

/* Where a lane's words come from. */
struct lane_place {
    int row_tap, residue, shift, column_residue, first_word, index, plane, lane;
    int channel; /* of the group: of row 0 of the block of 16 channels' part */
    bool exists;
};

__device__ lane_place find_lane(const tconv_cuda_mma_parameters &layer, int64_t blob, int at)
{
    const int steps = layer.chunk_words / TCONV_CUDA_MMA_STEP_WORDS, blocks = layer.part_channels / UNIT_ROWS;
    const block_place block = find_block(layer, (unsigned int)(blob / layer.chunks));
    lane_place found = {};
    found.lane = at % 32;
    at /= 32;
    found.plane = at % layer.planes;
    at /= layer.planes;
    const int ub = at % blocks;
    at /= blocks;
    const int row_tap_units = layer.column_taps * steps;
    int row_tap = at / row_tap_units;
    at -= row_tap * row_tap_units;
    for (int part = 0; part < layer.channel_parts * layer.residue_parts; part++) {
        const int residue = block.residue_set * layer.residue_parts + part % layer.residue_parts;
        const int taps = residue_taps(layer, residue);
        if (row_tap < taps) {
            found.exists = true;
            found.residue = residue;
            found.channel =
                (block.channel_tile * layer.channel_parts + part / layer.residue_parts) * layer.part_channels;
            break;
        }
        row_tap -= taps;
    }
    found.row_tap = row_tap;
    while (found.shift + 1 < layer.shifts && layer.columns[found.shift + 1].before * steps <= at)
        found.shift++;
    const tconv_cuda_mma_shift &column = layer.columns[found.shift];
    at -= column.before * steps;
    const int taps = __popc(column.residues), step = at / taps;
    for (int rank = at % taps;; found.column_residue++)
        if ((column.residues >> found.column_residue & 1) != 0 && rank-- == 0)
            break;
    found.first_word = (int)(blob % layer.chunks) * layer.chunk_words + step * TCONV_CUDA_MMA_STEP_WORDS;
    found.index = ub;
    return found;
}

template <class Element>
__device__ __forceinline__ uint32_t pack_word(const tconv_cuda_mma_parameters &layer, const pack_source &source,
                                              const Element *weights, int channel, int word, int plane)
{
    constexpr int PER_WORD = 4 / (int)sizeof(Element);
    if constexpr (PER_WORD == 1) {
        if (channel >= layer.group_out || word >= layer.group_in)
            return 0;
        const float value = weights[word * source.strides.in + channel * source.strides.out];
        const float big = big_part(value);
        if (plane == 0)
            return __float_as_uint(big);
        return __float_as_uint(fabsf(value) < __int_as_float(0x7f800000) ? value - big : 0);
    } else {
        uint32_t packed = 0;
        for (int i = 0; i < PER_WORD; i++)
            if (channel < layer.group_out && word * PER_WORD + i < layer.group_in)
                packed |= (uint32_t) reinterpret_cast<const unsigned short *>(
                              weights)[(word * PER_WORD + i) * source.strides.in + channel * source.strides.out]
                          << 16 * i;
        return packed;
    }
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    pack_weights(const __grid_constant__ tconv_cuda_mma_parameters layer, const __grid_constant__ pack_source source,
                 const Element *weights, uint4 *packed)
{
    launch_dependents();
    for (int64_t number = (int64_t)blockIdx.x * THREADS + threadIdx.x; number < source.quads;
         number += (int64_t)gridDim.x * THREADS) {
        const int64_t blob = number / source.blob_quads;
        const lane_place place = find_lane(layer, blob, (int)(number - blob * source.blob_quads));
        uint32_t words[4] = {0, 0, 0, 0};
        if (place.exists) {
            const int group = find_block(layer, (unsigned int)(blob / layer.chunks)).group;
            const tconv_cuda_mma_row &row = layer.rows[place.residue];
            const int kernel_row = row.first_kernel + place.row_tap * layer.row_kernel_step;
            const int kernel_column = layer.columns[place.shift].kernel[place.column_residue];
            const Element *from = weights + (int64_t)group * layer.group_in * source.strides.in +
                                  kernel_row * source.strides.h + kernel_column * source.strides.w;
            for (int i = 0; i < 4; i++)
                words[i] = pack_word(layer, source, from,
                                     place.channel +
                                         tconv_cuda_mma_channel(place.index, i % 2, place.lane / 4, layer.channel_run),
                                     place.first_word + place.lane % 4 + i / 2 * 4, place.plane);
        }
        packed[number] = {words[0], words[1], words[2], words[3]};
    }
}

} // namespace

tconv_status tconv_cuda_mma_pack(const tconv_layer *layer, const tconv_cuda_mma_parameters *parameters,
                                 const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    pack_source source;
    source.strides = layer->problem.weight;
    source.blob_quads = parameters->blob_words / 4;
    source.quads = (int64_t)parameters->groups * parameters->channel_tiles * parameters->residue_sets *
                   parameters->chunks * source.blob_quads;
    const void *kernel =
        layer->problem.element_size == 4 ? (const void *)pack_weights<float> : (const void *)pack_weights<__half>;
    void *arguments[] = {const_cast<tconv_cuda_mma_parameters *>(parameters), &source, &weights, &packed};
    const int64_t blocks = tconv_min(tconv_ceil_div(source.quads, THREADS), MAX_GRID);
    const launch_grid grid = {kernel, blocks, THREADS, 0, false};
    return launch_kernel(&grid, arguments, stream, issue);
}

} // namespace tconv::mma
