/* Layers on tensors without memory. */
#include "drive.h"

#include <string.h>

#include "../../src/core/post.h"

/* Terabytes apart: no tensor of a layer that fits a GPU meets another. */
#define SRC_ADDRESS       ((uintptr_t)0x300000000000 + DRIVE_LOWER_HALF)
#define WEIGHTS_ADDRESS   ((uintptr_t)0x310000000000 + DRIVE_LOWER_HALF)
#define BIAS_ADDRESS      ((uintptr_t)0x320000000000 + DRIVE_LOWER_HALF)
#define DST_ADDRESS       ((uintptr_t)0x330000000000 + DRIVE_LOWER_HALF)
#define WORKSPACE_ADDRESS ((uintptr_t)0x340000000000 + DRIVE_LOWER_HALF)
#define CARRY_ADDRESS     ((uintptr_t)0x348000000000 + DRIVE_LOWER_HALF)
#define ARRAYS_ADDRESS    ((uintptr_t)0x34c000000000 + DRIVE_LOWER_HALF)
#define POST_ADDRESS(i)   ((uintptr_t)0x350000000000 + ((uintptr_t)(i) << 40) + DRIVE_LOWER_HALF)

static tconv_tensor place(uintptr_t address, tconv_dtype dtype, int skew)
{
    const uintptr_t offset = (uintptr_t)skew * harness_element_size(dtype);
    return (tconv_tensor){(void *)(address + offset), dtype, TCONV_LOCATION_CUDA};
}

drive_tensors drive_place(const harness_layer *layer, int skew)
{
    const tconv_dtype dtype = layer->desc.dtype;
    drive_tensors tensors = {.src = place(SRC_ADDRESS, dtype, skew),
                             .weights = place(WEIGHTS_ADDRESS, dtype, skew),
                             .bias = place(BIAS_ADDRESS, dtype, skew),
                             .dst = place(DST_ADDRESS, dtype, skew),
                             .has_bias = layer->has_bias,
                             .workspace = (void *)WORKSPACE_ADDRESS,
                             .is_stream = layer->desc.stream_axis != 0};
    tensors.carry = place(CARRY_ADDRESS, dtype == TCONV_F64 ? TCONV_F64 : layer->desc.carry_dtype, skew);
    for (int i = 0; i < layer->desc.post_count; i++) {
        const tconv_post_kind kind = layer->desc.post[i].kind;
        const bool of_channels = tconv_post_channel_vectors(kind) > 0 && dtype != TCONV_F64;
        tensors.has_operand[i] = tconv_post_has_operand(kind);
        tensors.post[i] = place(POST_ADDRESS(i), of_channels ? TCONV_F32 : dtype, skew);
    }
    return tensors;
}

/* Executes steps of a stream. */
static tconv_status execute_stream(const tconv_plan *plan, const drive_tensors *tensors, size_t size)
{
    tconv_step step;
    tconv_status status;
    tconv_step_init(&step);
    step.src = &tensors->src, step.weights = &tensors->weights, step.dst = &tensors->dst;
    step.bias = tensors->has_bias ? &tensors->bias : NULL;
    step.carry = &tensors->carry;
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        step.post[i] = tensors->has_operand[i] ? &tensors->post[i] : NULL;
    step.workspace = tensors->workspace, step.workspace_size = size, step.stream = DRIVE_STREAM;
    if ((status = tconv_plan_step(plan, &step)))
        return status;
    step.batch = step.length = 1;
    step.slots = (const int32_t *)ARRAYS_ADDRESS;
    step.reset = (const uint8_t *)ARRAYS_ADDRESS + 4096, step.active = step.reset + 4096;
    if ((status = tconv_plan_step(plan, &step)))
        return status;
    return tconv_plan_flush(plan, &step);
}

tconv_status drive_execute(const tconv_plan *plan, const drive_tensors *tensors)
{
    size_t size = 0;
    tconv_status status = tconv_plan_workspace_size(plan, &size);
    if (status != TCONV_SUCCESS)
        return status;
    if (tensors->is_stream)
        return execute_stream(plan, tensors, size);
    tconv_operands operands = {.struct_size = sizeof operands,
                               .src = &tensors->src,
                               .weights = &tensors->weights,
                               .bias = tensors->has_bias ? &tensors->bias : NULL,
                               .dst = &tensors->dst};
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        operands.post[i] = tensors->has_operand[i] ? &tensors->post[i] : NULL;
    return tconv_plan_execute_with(plan, &operands, tensors->workspace, size, DRIVE_STREAM);
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
