/* The kernels of cuda_general in a build without CUDA: there are none. */
#include "../cuda_backend.h"
#include "fill.h"

tconv_status tconv_general_pack_weights(const tconv_problem *problem, int64_t packed_out, const void *weights,
                                        void *packed, void *stream, tconv_issue *issue)
{
    (void)problem, (void)packed_out, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}
