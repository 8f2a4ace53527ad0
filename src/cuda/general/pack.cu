/* The kernels that pack phase tables and weights, see pack.c. */
#include <cstdint>

#include "../ptx/dependent_launch.cuh"
#include "packing.h"

namespace tconv::general
{

namespace
{

__global__ void pack_phases_kernel(const __grid_constant__ phases_piece piece, tconv_phase *phases, int count)
{
    if ((int)threadIdx.x < count)
        phases[threadIdx.x] = piece.phases[threadIdx.x];
}

template <class Word>
__global__ void __launch_bounds__(SIDE *SQUARE_ROWS)
    pack_weights_kernel(const __grid_constant__ weights_cut cut, const Word *from, Word *to)
{
    __shared__ Word square[SIDE][SIDE + 1];
    const int x = (int)threadIdx.x % SIDE;
    launch_dependents();
    for (uint64_t number = blockIdx.x; number < (uint64_t)cut.squares; number += gridDim.x) {
        uint64_t rest = number;
        const int64_t first_out = (int64_t)(rest % (uint64_t)cut.out_squares) * SIDE;
        rest /= (uint64_t)cut.out_squares;
        const int64_t first_inner = (int64_t)(rest % (uint64_t)cut.inner_squares) * SIDE;
        rest /= (uint64_t)cut.inner_squares;
        const int64_t middle = (int64_t)(rest % (uint64_t)cut.middle.extent);
        const int64_t outer = (int64_t)(rest / (uint64_t)cut.middle.extent);
        const Word *source = from + middle * cut.middle.from + outer * cut.outer.from;
        Word *target = to + middle * cut.middle.to + outer * cut.outer.to;

        for (int y = (int)threadIdx.x / SIDE; y < SIDE; y += SQUARE_ROWS) {
            const int out = cut.transposed ? y : x, inner = cut.transposed ? x : y;
            square[inner][out] = first_out + out < cut.out.extent && first_inner + inner < cut.inner.extent
                                     ? source[(first_out + out) * cut.out.from + (first_inner + inner) * cut.inner.from]
                                     : Word(0);
        }
        __syncthreads();
        for (int y = (int)threadIdx.x / SIDE; y < SIDE; y += SQUARE_ROWS)
            if (first_out + x < cut.packed_out && first_inner + y < cut.inner.extent)
                target[first_out + x + (first_inner + y) * cut.inner.to] = square[y][x];
        __syncthreads();
    }
}

} // namespace

extern "C" const void *tconv_general_phases_kernel(void)
{
    return (const void *)pack_phases_kernel;
}

extern "C" const void *tconv_general_weights_kernel(size_t element_size)
{
    return element_size == 8   ? (const void *)pack_weights_kernel<uint64_t>
           : element_size == 4 ? (const void *)pack_weights_kernel<uint32_t>
                               : (const void *)pack_weights_kernel<uint16_t>;
}

} // namespace tconv::general
