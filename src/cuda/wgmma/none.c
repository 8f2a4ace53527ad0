/* Stands for the kernels of cuda_wgmma in a build without CUDA. */
#include "../cuda_backend.h"
#include "packing.h"

const void *tconv_wgmma_f32_kernel(numerics arithmetic, int config)
{
    (void)arithmetic, (void)config;
    return NULL;
}

const void *tconv_wgmma_half_kernel(numerics arithmetic, bool mn_major, int config)
{
    (void)arithmetic, (void)mn_major, (void)config;
    return NULL;
}

tconv_status tconv_wgmma_pack_weights(const packing_layout *layout, const parameters *params, numerics arithmetic,
                                      const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    (void)layout, (void)params, (void)arithmetic, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}
