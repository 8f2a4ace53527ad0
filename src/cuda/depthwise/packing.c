/* Packs weights for the forward kernels and for those of the gradient of src, which read them alike. */
#include "packing.h"

#include "../cuda_target.h"
#include "../general/fill.h"
#include "../runtime/guard.h"

tconv_memory_sizes tconv_depthwise_packed_sizes(const tconv_problem *problem, bool reads_unpacked)
{
    tconv_memory_sizes sizes = {.packed = (size_t)(problem->h.kernel * problem->w.kernel * problem->out_channels) *
                                          problem->element_size};
    sizes.execute_packs = sizes.reads_unpacked = reads_unpacked;
    return sizes;
}

tconv_status tconv_depthwise_pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed,
                                  void *stream, tconv_issue *issue)
{
    (void)memory; /* what is packed depends on the layer alone */
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_general_pack_weights(&layer->problem, layer->problem.group_out, weights, packed, stream, issue);
    return tconv_device_leave(&guard, status, issue);
}
