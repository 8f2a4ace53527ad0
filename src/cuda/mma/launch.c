/* Launches the kernel of cuda_mma. */
#include "../cuda_target.h"
#include "plan.h"

#include "../runtime/launch.h"

/* The kernel is persistent, and a block keeps its weights throughout: the number of blocks is a multiple of the sets of
 * weights. */
tconv_status tconv_mma_launch(const tconv_layer *layer, const void *kernel, parameters *params, bool packs,
                              void *stream, tconv_issue *issue)
{
    const int threads = block_warps(params) * WARP;
    const int64_t sets = weight_sets_of(params);
    int resident = 1;
    tconv_status status = tconv_allow_shared(kernel, shared_limit(layer), issue);
    if (status == TCONV_SUCCESS)
        status = tconv_resident_blocks(kernel, threads, params->shared_bytes, &resident, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t waves =
        tconv_max(1, (int64_t)tconv_cuda_target_of(&layer->target).multiprocessors * tconv_max(1, resident) / sets);
    void *arguments[] = {params};
    const launch_grid grid = {.kernel = kernel,
                              .blocks = sets * tconv_min(params->n_tiles, waves),
                              .threads = threads,
                              .shared_bytes = params->shared_bytes,
                              .overlaps = packs && tconv_cuda_target_of(&layer->target).compute_capability >=
                                                       DEPENDENT_LAUNCH_CAPABILITY};
    return tconv_launch_kernel(&grid, arguments, stream, issue);
}
