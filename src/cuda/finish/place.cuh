/* Where a thread of a pass reads and writes. */
#ifndef TCONV_CUDA_FINISH_PLACE_CUH
#define TCONV_CUDA_FINISH_PLACE_CUH

#include "../numeric/divisor.cuh"
#include "pass.h"

namespace tconv::finish
{

struct place {
    int64_t image, line, element;
};

/* The place of a number of neighbours, the i-th of all; a line has so many vectors of them. */
__device__ __forceinline__ place place_of(const walk &of, int64_t i, int64_t vectors, int count)
{
    const int64_t all_lines = divide(i, vectors), element = (i - all_lines * vectors) * count;
    const int64_t image = divide(all_lines, of.lines), line = all_lines - image * of.lines;
    return {image, line, element};
}

template <class From> __device__ __forceinline__ const From *from_at(const walk &of, const place &at)
{
    return static_cast<const From *>(of.from) + at.image * of.from_image + at.line * of.from_line + at.element;
}

template <class To> __device__ __forceinline__ To *to_at(const walk &of, const place &at)
{
    return static_cast<To *>(of.to) + at.image * of.to_image + at.line * of.to_line + at.element;
}

} // namespace tconv::finish

#endif
