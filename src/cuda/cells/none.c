/* The kernels of cuda_cells in a build without CUDA: there are none. */
#include "../cuda_backend.h"
#include "configs.h"
#include "parameters.h"

const void *tconv_cells_streaming_kernel(numerics mode, bool straddle, int number)
{
    (void)mode, (void)straddle, (void)number;
    return NULL;
}

const void *tconv_cells_stationary_kernel(int cell_columns)
{
    (void)cell_columns;
    return NULL;
}

tconv_status tconv_cells_pack(const parameters *layer, const packing *order, numerics mode, const void *weights,
                              void *packed, void *stream, tconv_issue *issue)
{
    (void)layer, (void)order, (void)mode, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}
