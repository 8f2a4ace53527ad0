/* Launches the passes of cuda_carry. */
#include "fold.h"

#include "../../core/checked.h"
#include "../runtime/launch.h"

tconv_status tconv_carry_stage(tconv_dtype dtype, const stage *of, void *stream, tconv_issue *issue)
{
    stage own = *of;
    void *arguments[] = {&own};
    return tconv_launch_blocks(tconv_carry_stage_kernel(dtype), tconv_ceil_div(of->rows * of->channels, FOLD_THREADS),
                               FOLD_THREADS, arguments, stream, issue, false);
}

tconv_status tconv_carry_fold(tconv_dtype dtype, bool exact, bool overlaps, const fold *of, void *stream,
                              tconv_issue *issue)
{
    fold own = *of;
    void *arguments[] = {&own};
    const int64_t threads = of->images * of->channels * of->other.out * of->step * of->parts;
    return tconv_launch_blocks(tconv_carry_fold_kernel(dtype, exact, of->products == NULL && of->src != NULL),
                               tconv_ceil_div(threads, FOLD_THREADS), FOLD_THREADS, arguments, stream, issue, overlaps);
}
