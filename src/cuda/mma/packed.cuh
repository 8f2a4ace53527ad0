/* How packed weights lie (parameters.h has the picture): the kernel that packs them and those that read them agree
 * here. */
#ifndef TCONV_CUDA_MMA_PACKED_CUH
#define TCONV_CUDA_MMA_PACKED_CUH

#include "../numeric/element.cuh"
#include "parameters.h"

namespace tconv::mma
{

/* The channel, of a warp's, in row 8 * half + row of its MMA m of M: threads hold `run` neighbours, with a run of 1
 * they are in the order of the rows. */
static __device__ __forceinline__ int channel_of_row(int m, int half, int row, int run)
{
    const int index = 2 * m + half;
    return index / run * 8 * run + row * run + index % run;
}

/* What a block computes in all its tiles. */
struct block_origin {
    int group, m_tile, phase_set;
};

static __device__ __forceinline__ block_origin find_block(const parameters &params, unsigned int number)
{
    number %= (unsigned int)(params.groups * params.m_tiles * params.phase_sets);
    block_origin found;
    found.phase_set = (int)(number % (unsigned int)params.phase_sets);
    number /= (unsigned int)params.phase_sets;
    found.m_tile = (int)(number % (unsigned int)params.m_tiles);
    found.group = (int)(number / (unsigned int)params.m_tiles);
    return found;
}

static __device__ __forceinline__ int row_tap_words(const parameters &params)
{
    return params.column_taps * (params.block_k_words / MMA_K_WORDS) * (params.warp_m / MMA_SYNC_M) *
           params.a_fragments * FRAGMENT_WORDS;
}

static __device__ __forceinline__ int row_taps_of(const parameters &params, int phase)
{
    return phase < params.row_phases ? params.rows[phase].taps : 0;
}

/* Words from the start of an A tile to the weights of a warp. */
static __device__ __forceinline__ int warp_weights_offset(const parameters &params, int phase_set, int m_warp,
                                                          int phase_warp)
{
    int all = 0, before = 0;
    for (int i = 0; i < params.phase_warps; i++) {
        const int taps = row_taps_of(params, phase_set * params.phase_warps + i);
        all += taps;
        before += i < phase_warp ? taps : 0;
    }
    return (m_warp * all + before) * row_tap_words(params);
}

template <class Element> static __device__ __forceinline__ Element element_of_word(uint32_t word, int index)
{
    if constexpr (sizeof(Element) == 4)
        return __uint_as_float(word);
    else {
        const unsigned short bits = (unsigned short)(word >> 16 * index);
        return *reinterpret_cast<const Element *>(&bits);
    }
}

/* One weight, as f32, found by its channels; the slow way. warp_offset: warp_weights_offset. */
template <class Element>
__device__ __forceinline__ float packed_weight(const parameters &params, unsigned int block, int warp_offset,
                                               int row_tap, int shift, int column_phase, int channel, int in)
{
    constexpr int PER_WORD = 4 / (int)sizeof(Element);
    const column_shift &column = params.columns[shift];
    const int mmas_m = params.warp_m / MMA_SYNC_M, steps = params.block_k_words / MMA_K_WORDS;
    const int word = in / PER_WORD % params.block_k_words, k_block = in / PER_WORD / params.block_k_words;
    const int rank = __popc(column.phases & ((1 << column_phase) - 1));
    const int run = params.channel_run, index = channel / (8 * run) * run + channel % run, row = channel / run % 8;
    const int mma =
        ((row_tap * params.column_taps + column.before) * steps + word / MMA_K_WORDS * __popc(column.phases) + rank) *
            mmas_m +
        index / 2;
    const int lane = row * 4 + word % 4;
    const int64_t a_tile =
        (int64_t)(block % (unsigned int)(params.groups * params.m_tiles * params.phase_sets)) * params.k_blocks +
        k_block;
    const uint32_t *at = static_cast<const uint32_t *>(params.packed) + a_tile * params.a_tile_words + warp_offset +
                         mma * params.a_fragments * FRAGMENT_WORDS + lane * 4 + word / 4 % 2 * 2 + index % 2;
    float value = to_compute(element_of_word<Element>(*at, in % PER_WORD));
    if (params.a_fragments == 2)
        value += __uint_as_float(at[FRAGMENT_WORDS]);
    return value;
}

} // namespace tconv::mma

#endif
