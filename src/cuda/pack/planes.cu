/* The kernel that copies axes of a tensor: a thread copies words that lie as many threads apart as there are. */
#include "planes.h"

#include <cuda_runtime_api.h>

#include "../numeric/divisor.cuh"

namespace tconv
{

namespace
{

template <class Word> __global__ void __launch_bounds__(PLANE_COPY_THREADS) plane_copy_kernel(const plane_copy of)
{
    const int all = (int)gridDim.x * PLANE_COPY_THREADS;
    /* word + all is below 2^31: there are at most 2^29 words, and no more blocks than they need */
    for (int word = (int)blockIdx.x * PLANE_COPY_THREADS + (int)threadIdx.x; word < of.words; word += all) {
        int64_t from = 0, to = 0, plane = of.plane;
        int rest = word;
#pragma unroll
        for (int axis = TCONV_COPY_AXES - 1; axis >= 0; axis--) {
            const quotient at = divide(rest, of.extents[axis]);
            const int index = axis > 0 ? at.rest : rest;
            rest = at.whole;
            from += index * of.from_strides[axis];
            to += index * of.to_strides[axis];
            plane += axis == 1 ? of.step * index : axis == 2 ? of.tap * index : 0;
        }
        Word value{};
        if (plane >= 0 && plane < of.planes)
            value = *reinterpret_cast<const Word *>(of.from + from + plane * of.plane_stride);
        *reinterpret_cast<Word *>(of.to + to) = value;
    }
}

} // namespace

extern "C" const void *tconv_plane_copy_kernel(int word)
{
    switch (word) {
    case 16: return (const void *)plane_copy_kernel<uint4>;
    case 8: return (const void *)plane_copy_kernel<uint2>;
    case 4: return (const void *)plane_copy_kernel<uint32_t>;
    case 2: return (const void *)plane_copy_kernel<uint16_t>;
    default: return (const void *)plane_copy_kernel<uint8_t>;
    }
}

} // namespace tconv
