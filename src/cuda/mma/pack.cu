/* Packs the weights, in the order of parameters.h. Past the channels of a group there are zeros, and so there are where
 * a smaller set of row phases leaves room. */
#include "../pack/vectors.cuh"
#include "packed.cuh"

namespace tconv::mma
{

namespace
{

struct order : vector_order {
    parameters params;
    int a_tile_vectors; /* of a plane of an A tile */

    /* Inf and NaN are big; small is what rounding leaves, not rounded itself, so that both make the weight again
     * (packed_weight). */
    using vector_order::convert;
    template <int planes> static __device__ __forceinline__ void convert(uint32_t bits, uint32_t (&parts)[planes])
    {
        const bool finite = fabsf(__uint_as_float(bits)) < __int_as_float(0x7f800000);
        parts[0] = finite ? round_to_tf32(bits) : bits;
        if constexpr (planes == 2)
            parts[1] = finite ? __float_as_uint(__uint_as_float(bits) - __uint_as_float(parts[0])) : 0;
    }

    /* Finds the warp whose weights a row tap of an A tile is, of all its warps', and makes the tap one of that warp.
     * Returns the number of the warp's row phase and m warp; past the last where the row tap is room that is left. */
    __device__ __forceinline__ int find_warp(const block_origin &block, int &row_tap) const
    {
        int warp = 0;
        for (; warp < params.m_warps * params.phase_warps; warp++) {
            const int taps = row_taps_of(params, phase_of(block, warp));
            if (row_tap < taps)
                break;
            row_tap -= taps;
        }
        return warp;
    }

    __device__ __forceinline__ int phase_of(const block_origin &block, int warp) const
    {
        return block.phase_set * params.phase_warps + warp % params.phase_warps;
    }

    template <int per_word> __device__ __forceinline__ pack_vector vector_of(int64_t number) const
    {
        const int steps = params.block_k_words / MMA_K_WORDS;
        const int64_t a_tile = number / a_tile_vectors;
        const block_origin block = find_block(params, (unsigned int)(a_tile / params.k_blocks));
        pack_vector vector = a_fragment_vector<per_word>(number, planes);
        int row_tap = (int)(number - a_tile * a_tile_vectors) / WARP;
        const int m = take_index(row_tap, params.warp_m / MMA_SYNC_M);
        int at = take_index(row_tap, params.column_taps * steps), shift = 0;
        const int warp = find_warp(block, row_tap);
        if (warp == params.m_warps * params.phase_warps) {
            vector.out = group_out;
            return vector;
        }
        while (shift + 1 < params.shifts && params.columns[shift + 1].before * steps <= at)
            shift++;
        const column_shift &column = params.columns[shift];
        at -= column.before * steps;
        const int rank = take_index(at, __popc(column.phases)); /* at is the step now */
        const int kernel_column = column.kernel[nth_bit((unsigned)column.phases, rank)];
        const row_phase &row = params.rows[phase_of(block, warp)];
        const int first = channel_of_row(m, 0, vector.out, params.channel_run);
        vector.odd_out = channel_of_row(m, 1, vector.out, params.channel_run) - first;
        vector.out = (block.m_tile * params.m_warps + warp / params.phase_warps) * params.warp_m + first;
        vector.in += ((int)(a_tile % params.k_blocks) * params.block_k_words + at * MMA_K_WORDS) * per_word;
        vector.from = weights_at(block.group, row.first_kernel + row_tap * params.row_kernel_step, kernel_column);
        return vector;
    }
};

} // namespace

tconv_status tconv_mma_launch_packing(const tconv_layer *layer, const parameters *params, const void *weights,
                                      void *packed, void *stream, tconv_issue *issue)
{
    order order = {order_of(layer->problem.weight, params->group_in, params->group_out, params->a_fragments == 2),
                   *params, params->a_tile_words / 4 / params->a_fragments};
    order.vectors =
        (int64_t)params->groups * params->m_tiles * params->phase_sets * params->k_blocks * order.a_tile_vectors;
    return launch_vectors(vectors_kernel(layer->problem.element_size, order), order, weights, packed, stream, issue);
}

} // namespace tconv::mma
