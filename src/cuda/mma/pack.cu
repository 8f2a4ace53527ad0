/*
 * Packs the weights, in the order of parameters.h: a thread writes one lane's 4 words of one A fragment. Past the
 * channels of a group there are zeros, and so there are where a smaller set of row phases leaves room.
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

constexpr int THREADS = 256;          /* of a block */
constexpr int64_t MAX_GRID = 1 << 20; /* blocks; with more to pack, threads go on to other lanes */

struct pack_source {
    tconv_weight_strides strides;
    int64_t vectors;        /* 16-byte vectors of all packed weights: one for each lane */
    int64_t a_tile_vectors; /* of an A tile */
};

/* Rounds to TF32, to nearest; towards zero where that would be Inf. NaN and Inf stay. */
__device__ float big_part(float value)
{
    const uint32_t bits = __float_as_uint(value);
    if (!(fabsf(value) < __int_as_float(0x7f800000)))
        return value;
    const uint32_t rounded = (bits + 0x1000u) & 0xffffe000u;
    return (rounded & 0x7fffffffu) == 0x7f800000u ? __uint_as_float(bits & 0xffffe000u) : __uint_as_float(rounded);
}

/* Where a lane's words of a fragment come from. */
struct lane_origin {
    int row_tap, phase, shift, column_phase, first_word, m, fragment, lane;
    int channel; /* of the group: the first of the warp's */
    bool exists;
};

/* at: lane's place in the A tile, in lanes. */
__device__ lane_origin find_lane(const parameters &params, int64_t a_tile, int at)
{
    const int steps = params.block_k_words / MMA_K_WORDS, mmas_m = params.warp_m / MMA_M;
    const block_origin block = find_block(params, (unsigned int)(a_tile / params.k_blocks));
    lane_origin found = {};
    found.lane = at % LANES;
    at /= LANES;
    found.fragment = at % params.a_fragments;
    at /= params.a_fragments;
    const int m = at % mmas_m;
    at /= mmas_m;
    const int row_tap_mmas = params.column_taps * steps;
    int row_tap = at / row_tap_mmas;
    at -= row_tap * row_tap_mmas;
    for (int warp = 0; warp < params.m_warps * params.phase_warps; warp++) {
        const int phase = block.phase_set * params.phase_warps + warp % params.phase_warps;
        const int taps = row_taps_of(params, phase);
        if (row_tap < taps) {
            found.exists = true;
            found.phase = phase;
            found.channel = (block.m_tile * params.m_warps + warp / params.phase_warps) * params.warp_m;
            break;
        }
        row_tap -= taps;
    }
    found.row_tap = row_tap;
    while (found.shift + 1 < params.shifts && params.columns[found.shift + 1].before * steps <= at)
        found.shift++;
    const column_shift &column = params.columns[found.shift];
    at -= column.before * steps;
    const int taps = __popc(column.phases), step = at / taps;
    for (int rank = at % taps;; found.column_phase++)
        if ((column.phases >> found.column_phase & 1) != 0 && rank-- == 0)
            break;
    found.first_word = (int)(a_tile % params.k_blocks) * params.block_k_words + step * MMA_K_WORDS;
    found.m = m;
    return found;
}

template <class Element>
__device__ __forceinline__ uint32_t pack_word(const parameters &params, const pack_source &source,
                                              const Element *weights, int channel, int word, int fragment)
{
    constexpr int PER_WORD = 4 / (int)sizeof(Element);
    if constexpr (PER_WORD == 1) {
        if (channel >= params.group_out || word >= params.group_in)
            return 0;
        const float value = weights[word * source.strides.in + channel * source.strides.out];
        const float big = big_part(value);
        if (fragment == 0)
            return __float_as_uint(big);
        return __float_as_uint(fabsf(value) < __int_as_float(0x7f800000) ? value - big : 0);
    } else {
        uint32_t packed = 0;
        for (int i = 0; i < PER_WORD; i++)
            if (channel < params.group_out && word * PER_WORD + i < params.group_in)
                packed |= (uint32_t) reinterpret_cast<const unsigned short *>(
                              weights)[(word * PER_WORD + i) * source.strides.in + channel * source.strides.out]
                          << 16 * i;
        return packed;
    }
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    pack_weights(const __grid_constant__ parameters params, const __grid_constant__ pack_source source,
                 const Element *weights, uint4 *packed)
{
    launch_dependents();
    for (int64_t number = (int64_t)blockIdx.x * THREADS + threadIdx.x; number < source.vectors;
         number += (int64_t)gridDim.x * THREADS) {
        const int64_t a_tile = number / source.a_tile_vectors;
        const lane_origin lane = find_lane(params, a_tile, (int)(number - a_tile * source.a_tile_vectors));
        uint32_t words[4] = {0, 0, 0, 0};
        if (lane.exists) {
            const int group = find_block(params, (unsigned int)(a_tile / params.k_blocks)).group;
            const row_phase &row = params.rows[lane.phase];
            const int kernel_row = row.first_kernel + lane.row_tap * params.row_kernel_step;
            const int kernel_column = params.columns[lane.shift].kernel[lane.column_phase];
            const Element *from = weights + (int64_t)group * params.group_in * source.strides.in +
                                  kernel_row * source.strides.h + kernel_column * source.strides.w;
            for (int i = 0; i < 4; i++)
                words[i] = pack_word(params, source, from,
                                     lane.channel + channel_of_row(lane.m, i % 2, lane.lane / 4, params.channel_run),
                                     lane.first_word + lane.lane % 4 + i / 2 * 4, lane.fragment);
        }
        packed[number] = {words[0], words[1], words[2], words[3]};
    }
}

} // namespace

tconv_status launch_packing(const tconv_layer *layer, const parameters *params, const void *weights, void *packed,
                            void *stream, tconv_issue *issue)
{
    pack_source source;
    source.strides = layer->problem.weight;
    source.a_tile_vectors = params->a_tile_words / 4;
    source.vectors =
        (int64_t)params->groups * params->m_tiles * params->phase_sets * params->k_blocks * source.a_tile_vectors;
    const void *kernel =
        layer->problem.element_size == 4 ? (const void *)pack_weights<float> : (const void *)pack_weights<__half>;
    void *arguments[] = {const_cast<parameters *>(params), &source, &weights, &packed};
    const int64_t blocks = tconv_min(tconv_ceil_div(source.vectors, THREADS), MAX_GRID);
    const launch_grid grid = {kernel, blocks, THREADS, 0, false};
    return launch_kernel(&grid, arguments, stream, issue);
}

} // namespace tconv::mma
