/* Names the kernels of configs to the host, each held to the facts that the planner has of it. */
#ifndef TCONV_CUDA_IGEMM_CONFIGS_CUH
#define TCONV_CUDA_IGEMM_CONFIGS_CUH

#include "configs.h"
#include "kernel.cuh"

namespace tconv::igemm
{

/* Returns the kernel of the config at this place of a table. */
template <class Mode, const kernel_config *table, int place> const void *kernel_of()
{
    constexpr kernel_config config = table[place];
    static_assert(config.mma_tiles == Mode::MMA_TILES && config.parts == Mode::STAGED_PARTS &&
                      config.clustered == Mode::CLUSTERED && config.long_sums == (!Mode::STRICT || Mode::COMPENSATED),
                  "the planner has other facts of the kernel");
    return (const void *)implicit_gemm<Mode, config.N>;
}

} // namespace tconv::igemm

#endif
