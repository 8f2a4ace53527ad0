/* What stands in place of the kernels of cuda_col2im in a build without CUDA. */
#include "../cuda_backend.h"
#include "parameters.h"

const void *tconv_col2im_mma_kernel(numerics kind, bool nhwc, int n_tiles)
{
    (void)kind, (void)nhwc, (void)n_tiles;
    return NULL;
}

const void *tconv_col2im_cp_async_kernel(numerics kind, bool nhwc, int config)
{
    (void)kind, (void)nhwc, (void)config;
    return NULL;
}

const void *tconv_col2im_tma_kernel(numerics kind, int config)
{
    (void)kind, (void)config;
    return NULL;
}

tconv_status tconv_col2im_pack_fragments(const tconv_problem *problem, int steps, int n_tiles, const void *weights,
                                         void *packed, void *stream, tconv_issue *issue)
{
    (void)problem, (void)steps, (void)n_tiles, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_col2im_pack_row_sums(const tconv_problem *problem, bool split, const parameters *params, int config,
                                        const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    (void)problem, (void)split, (void)params, (void)config, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}
