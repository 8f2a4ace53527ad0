/* Packs the weights, in the order of row_parameters.h. */
#include "../pack/vectors.cuh"
#include "row_parameters.h"

namespace tconv::mma
{

namespace
{

struct order : vector_order {
    row_parameters params;
    int kernel_rows;

    /* The kernel column of a tap, in the order of packed weights. */
    __device__ __forceinline__ int kernel_column_of(int tap) const
    {
        int back = 0;
        while (tap >= __popc(params.column_phases[back]))
            tap -= __popc(params.column_phases[back++]);
        return params.kernel_column[back][nth_bit((unsigned)params.column_phases[back], tap)];
    }

    template <int per_word> __device__ __forceinline__ pack_vector vector_of(int64_t number) const
    {
        pack_vector vector = a_fragment_vector<per_word>(number, planes);
        number /= 32;
        vector.in += take_index(number, params.steps) * (MMA_K_BYTES / 4) * per_word;
        const int column = kernel_column_of(take_index(number, params.column_taps));
        const int row = take_index(number, kernel_rows);
        vector.out += take_index(number, params.m_tiles) * BLOCK_M;
        vector.from = weights_at(number, row, column);
        return vector;
    }
};

} // namespace

tconv_status tconv_mma_launch_row_packing(const tconv_layer *layer, const row_parameters *params, const void *weights,
                                          void *packed, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const bool split = numerics_split(numerics_of(layer));
    order order = {order_of(problem->weight, problem->group_in, problem->group_out, split), *params,
                   (int)problem->h.kernel};
    order.vectors = (int64_t)params->groups * params->m_tiles * params->weight_vectors / order.planes;
    return launch_vectors(vectors_kernel(problem->element_size, order), order, weights, packed, stream, issue);
}

} // namespace tconv::mma
