/* Gradients of weights and bias, once the kernels of an implementation have written their slices. */
#include "sums.h"
#include "../cuda_target.h"

#include "../runtime/guard.h"

sum_tiles tconv_wgrad_tiles_of_all_pairs(const tconv_problem *problem, int block_m)
{
    const int rows = (int)problem->h.kernel, columns = (int)problem->w.kernel;
    return (sum_tiles){.planes = 1,
                       .groups = problem->groups,
                       .group_in = problem->group_in,
                       .group_out = problem->group_out,
                       .rows = {rows, 1, rows, 1},
                       .columns = {columns, 1, columns, 1},
                       .block_m = block_m,
                       .block_n = problem->group_out * problem->h.kernel * problem->w.kernel,
                       .chunk = problem->group_out,
                       .m_tiles = (problem->group_in - 1) / block_m + 1,
                       .chunks = 1,
                       .count = problem->groups * ((problem->group_in - 1) / block_m + 1)};
}

/* Launches the kernels of both gradients on the current device. */
static tconv_status launch_gradients(const tconv_layer *layer, const void *plan, const tconv_arguments *arguments,
                                     wgrad_sum_weights sum_weights, tconv_issue *issue)
{
    const bool has_weights = arguments->weights != NULL;
    void *const stream = arguments->stream;
    tconv_status status = TCONV_SUCCESS;
    wgrad_slices slices = {0};
    if (has_weights)
        status = sum_weights(layer, plan, arguments, &slices, issue);
    if (has_weights && status == TCONV_SUCCESS && !slices.are_added)
        status = tconv_wgrad_add_slices(layer, &slices, arguments->scratch, arguments->weights, stream, issue);
    if (status != TCONV_SUCCESS || arguments->bias == NULL || slices.bias_is_added)
        return status;
    return tconv_wgrad_sum_bias(layer, arguments->dst, arguments->scratch, arguments->bias, has_weights, stream, issue);
}

tconv_status tconv_wgrad_execute_gradients(const tconv_layer *layer, const void *plan, const tconv_arguments *arguments,
                                           wgrad_sum_weights sum_weights, tconv_issue *issue)
{
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, launch_gradients(layer, plan, arguments, sum_weights, issue), issue);
}

tconv_status tconv_wgrad_pack_nothing(const tconv_layer *layer, const void *plan, const void *weights, void *packed,
                                      void *stream, tconv_issue *issue)
{
    (void)layer, (void)plan, (void)weights, (void)packed, (void)stream, (void)issue;
    return TCONV_SUCCESS;
}
