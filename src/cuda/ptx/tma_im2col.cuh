/* Boxes of pixels by the tensor memory accelerator's im2col mode: PTX ISA, "Im2col mode". */
#ifndef TCONV_CUDA_PTX_TMA_IM2COL_CUH
#define TCONV_CUDA_PTX_TMA_IM2COL_CUH

#include <cstdint>
#include <cuda.h>

namespace tconv
{

/* The first pixel of a box, and how far each is from where the map has it. */
struct im2col_origin {
    int column, row, image;
    uint16_t column_offset, row_offset;
};

/* Copies the tensor map's channels from the first on, of as many pixels as it says, from row to row and from image to
 * image; barrier counts the bytes. */
__device__ __forceinline__ void tma_load_im2col(uint32_t to, const CUtensorMap *map, int channel,
                                                const im2col_origin &from, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
                 "l"(map), "r"(channel), "r"(from.column), "r"(from.row), "r"(from.image), "r"(barrier),
                 "h"(from.column_offset), "h"(from.row_offset)
                 : "memory");
}

} // namespace tconv

#endif
