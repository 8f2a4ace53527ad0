/* What a plan chooses from (plan.c): the implementations of each backend, best first. */
#include "impl_list.h"

#include <stdio.h>
#include <string.h>

#include "../core/status.h"
#include "../cpu/cpu_backend.h"
#include "../cuda/cuda_backend.h"

static const tconv_implementation *const cpu_implementations[] = {
    &tconv_cpu_pixels,
    &tconv_cpu_phases,
    &tconv_cpu_reference,
    NULL,
};

static const tconv_implementation *const *const backends[] = {tconv_cuda_implementations, cpu_implementations};

const tconv_implementation *tconv_implementation_at(size_t index)
{
    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++)
        for (size_t i = 0; backends[b][i] != NULL; i++)
            if (index-- == 0)
                return backends[b][i];
    return NULL;
}

const tconv_implementation *tconv_implementation_find(const char *name)
{
    const tconv_implementation *implementation;
    for (size_t i = 0; (implementation = tconv_implementation_at(i)) != NULL; i++)
        if (strcmp(implementation->name, name) == 0)
            return implementation;
    return NULL;
}

bool tconv_implementation_supports(const tconv_implementation *implementation, tconv_layer *layer,
                                   char reason[TCONV_REASON_SIZE])
{
    tconv_dtype dtype = layer->problem.dtype;
    if ((unsigned)dtype >= TCONV_DTYPES || !(implementation->dtypes & TCONV_DTYPE_BIT(dtype))) {
        snprintf(reason, TCONV_REASON_SIZE, "does not take dtype %d (%s)", (int)dtype, tconv_dtype_name(dtype));
        return false;
    }
    return implementation->supports(layer, reason);
}
