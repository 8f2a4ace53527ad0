/* Layers on tensors without memory. */
#include "drive.h"

#include <string.h>

/* Terabytes apart: no tensor of a layer that fits a GPU meets another. */
#define SRC_ADDRESS       ((uintptr_t)0x300000000000 + DRIVE_LOWER_HALF)
#define WEIGHTS_ADDRESS   ((uintptr_t)0x310000000000 + DRIVE_LOWER_HALF)
#define BIAS_ADDRESS      ((uintptr_t)0x320000000000 + DRIVE_LOWER_HALF)
#define DST_ADDRESS       ((uintptr_t)0x330000000000 + DRIVE_LOWER_HALF)
#define WORKSPACE_ADDRESS ((uintptr_t)0x340000000000 + DRIVE_LOWER_HALF)

static tconv_tensor place(uintptr_t address, tconv_dtype dtype, int skew)
{
    const uintptr_t offset = (uintptr_t)skew * harness_element_size(dtype);
    return (tconv_tensor){(void *)(address + offset), dtype, TCONV_LOCATION_CUDA};
}

drive_tensors drive_place(const harness_layer *layer, int skew)
{
    const tconv_dtype dtype = layer->desc.dtype;
    return (drive_tensors){place(SRC_ADDRESS, dtype, skew),
                           place(WEIGHTS_ADDRESS, dtype, skew),
                           place(BIAS_ADDRESS, dtype, skew),
                           place(DST_ADDRESS, dtype, skew),
                           layer->has_bias,
                           (void *)WORKSPACE_ADDRESS};
}

tconv_status drive_execute(const tconv_plan *plan, const drive_tensors *tensors)
{
    size_t size = 0;
    tconv_status status = tconv_plan_workspace_size(plan, &size);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_plan_execute(plan, &tensors->src, &tensors->weights, tensors->has_bias ? &tensors->bias : NULL,
                              &tensors->dst, tensors->workspace, size, DRIVE_STREAM);
}

tconv_options drive_options(const char *implementation, int device)
{
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.implementation = implementation;
    options.device = device;
    return options;
}

const char *drive_implementation(size_t index)
{
    const char *name;
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++)
        if (strncmp(name, "cuda_", strlen("cuda_")) == 0 && index-- == 0)
            return name;
    return NULL;
}
