/* The kernels of cuda_frames for an arithmetic. */
#ifndef TCONV_CUDA_FRAMES_CONFIGS_CUH
#define TCONV_CUDA_FRAMES_CONFIGS_CUH

#include "kernel.cuh"
#include "wide.cuh"

namespace tconv::frames
{

namespace
{

template <class Mode, bool VECTORS> const void *kernel_by(frames_kernel kind)
{
    switch (kind) {
    case FRAMES_FEW: return (const void *)multiply_frames<Mode, FEW_COLUMNS / TILE_N, VECTORS>;
    case FRAMES_MANY: return (const void *)multiply_frames<Mode, PART_COLUMNS / TILE_N, VECTORS>;
    case FRAMES_WIDE: return (const void *)multiply_wide<Mode, VECTORS>;
    }
    return NULL;
}

template <class Mode> const void *choose_kernel(frames_kernel kind, bool by_vectors)
{
    return by_vectors ? kernel_by<Mode, true>(kind) : kernel_by<Mode, false>(kind);
}

} // namespace

} // namespace tconv::frames

#endif
