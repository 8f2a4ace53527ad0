/* Launches the copy of weights. */
#include "copy.h"

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../hardware.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"

tconv_status tconv_copy_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                tconv_issue *issue)
{
    int64_t bytes = layer->problem.weight_extent * (int64_t)layer->problem.element_size;
    void *arguments[] = {&packed, &weights, &bytes};
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_launch_blocks(tconv_copy_kernel(), tconv_ceil_div(bytes, COPY_THREADS * VECTOR_BYTES), COPY_THREADS,
                                 arguments, stream, issue, false);
    return tconv_device_leave(&guard, status, issue);
}
