/* A plan chooses from these lists (plan.c): the implementations of each operation and backend, best first. */
#include "impl_list.h"

#include <string.h>

#include "../core/capability.h"
#include "../core/status.h"
#include "../core/stream.h"
#include "../cpu/cpu_backend.h"
#include "../cuda/cuda_backend.h"
#include "plan_object.h"

static const tconv_implementation *const cpu_forward[] = {
    &tconv_cpu_col2im,
    &tconv_cpu_bf16,
    &tconv_cpu_pixels,
    &tconv_cpu_phases,
    &tconv_cpu_carry,
    &tconv_cpu_reference,
    NULL,
};

static const tconv_implementation *const cpu_backward_data[] = {&tconv_cpu_bf16_data, &tconv_cpu_dgrad,
                                                                &tconv_cpu_reference_data, NULL};
static const tconv_implementation *const cpu_backward_weights[] = {&tconv_cpu_wgrad, &tconv_cpu_reference_weights,
                                                                   NULL};

/* The order of a row's lists is the order in which the implementations of its operation are numbered. */
static const struct {
    tconv_op op;
    const tconv_implementation *const *implementations;
} lists[] = {
    {TCONV_FORWARD, tconv_cuda_implementations},           {TCONV_FORWARD, cpu_forward},
    {TCONV_BACKWARD_DATA, tconv_cuda_backward_data},       {TCONV_BACKWARD_DATA, cpu_backward_data},
    {TCONV_BACKWARD_WEIGHTS, tconv_cuda_backward_weights}, {TCONV_BACKWARD_WEIGHTS, cpu_backward_weights},
};

const tconv_implementation *tconv_implementation_at(tconv_op op, size_t index)
{
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        for (size_t i = 0; lists[l].op == op && lists[l].implementations[i] != NULL; i++)
            if (index-- == 0)
                return lists[l].implementations[i];
    return NULL;
}

/* Whether a list after number l has an implementation of the name: so the reference, which every operation of the CPU has,
 * is the last name. */
static bool is_named_after(size_t l, const char *name)
{
    for (size_t after = l + 1; after < sizeof lists / sizeof lists[0]; after++)
        for (size_t i = 0; lists[after].implementations[i] != NULL; i++)
            if (strcmp(lists[after].implementations[i]->name, name) == 0)
                return true;
    return false;
}

const char *tconv_implementation_name_at(size_t index)
{
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        for (size_t i = 0; lists[l].implementations[i] != NULL; i++) {
            const char *name = lists[l].implementations[i]->name;
            if (!is_named_after(l, name) && index-- == 0)
                return name;
        }
    return NULL;
}

const tconv_implementation *tconv_implementation_find(tconv_op op, const char *name)
{
    const tconv_implementation *implementation;
    for (size_t i = 0; (implementation = tconv_implementation_at(op, i)) != NULL; i++)
        if (strcmp(implementation->name, name) == 0)
            return implementation;
    return NULL;
}

/* Checks that the size of the workspace fits. */
static tconv_status check_sizes(const tconv_memory_sizes *sizes, tconv_issue *issue)
{
    const size_t most = (size_t)PTRDIFF_MAX / 2 - 2 * TCONV_CUDA_ALIGNMENT;
    if (sizes->packed > most || sizes->scratch > most)
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size",
                          "workspace: its size must be at most 2^63 - 1");
    return TCONV_SUCCESS;
}

tconv_status tconv_implementation_plan(const tconv_implementation *implementation, const tconv_layer *layer, void *made,
                                       tconv_planned *planned, tconv_issue *issue)
{
    const tconv_dtype dtype = layer->problem.dtype;
    *planned = (tconv_planned){.work = planned->work, .limit = planned->limit, .named = planned->named};
    if ((unsigned)dtype >= TCONV_DTYPES || !(implementation->dtypes & TCONV_DTYPE_BIT(dtype)))
        return tconv_decline(issue, "does not take dtype %d (%s)", (int)dtype, tconv_dtype_name(dtype));
    const char *const missing = tconv_missing_capability(implementation, layer);
    if (missing != NULL)
        return tconv_decline(issue, "%s", missing);
    if (tconv_is_stream(&layer->problem) && !implementation->streams)
        return tconv_decline(issue, "computes no streams");
    memset(made, 0, implementation->plan_bytes);
    const tconv_status status = implementation->plan(layer, made, planned, issue);
    return status != TCONV_SUCCESS ? status : check_sizes(&planned->sizes, issue);
}

size_t tconv_implementation_most_bytes(tconv_op op, tconv_backend backend)
{
    const tconv_implementation *implementation;
    size_t most = 0;
    for (size_t i = 0; (implementation = tconv_implementation_at(op, i)) != NULL; i++)
        if (implementation->backend == backend && implementation->plan_bytes > most)
            most = implementation->plan_bytes;
    return most;
}
