#include "stream.h"

#include <string.h>

#include "element.h"

tconv_desc harness_one_call(const tconv_desc *desc)
{
    tconv_desc one = *desc;
    const int rows = desc->stream_axis == 1;
    const int64_t kernel = rows ? desc->kernel_h : desc->kernel_w, stride = rows ? desc->stride_h : desc->stride_w;
    const int64_t span = (rows ? desc->dilation_h : desc->dilation_w) * (kernel - 1) + 1;
    if (desc->stream_axis == 0)
        return one;
    *(rows ? &one.pad_bottom : &one.pad_right) = span > stride ? span - stride : 0;
    *(rows ? &one.output_padding_h : &one.output_padding_w) = span < stride ? stride - span : 0;
    one.stream_axis = 0;
    one.carry_dtype = TCONV_F32;
    return one;
}

static tconv_dtype carry_dtype(const tconv_desc *desc)
{
    return desc->dtype == TCONV_F64 ? TCONV_F64 : desc->carry_dtype;
}

size_t harness_carry_bytes(const tconv_desc *desc)
{
    int64_t shape[4];
    if (desc->stream_axis == 0 || tconv_carry_shape(desc, shape, NULL) != TCONV_SUCCESS)
        return 0;
    return (size_t)(shape[0] * shape[1] * shape[2] * shape[3]) * harness_element_size(carry_dtype(desc));
}

tconv_status harness_execute(const tconv_plan *plan, const tconv_desc *desc, const tconv_operands *operands,
                             void *carry, void *workspace, size_t workspace_size, void *stream)
{
    const tconv_tensor state = {carry, carry_dtype(desc), operands->dst->location};
    tconv_step step;
    if (desc->stream_axis == 0)
        return tconv_plan_execute_with(plan, operands, workspace, workspace_size, stream);
    tconv_step_init(&step);
    step.src = operands->src, step.weights = operands->weights, step.bias = operands->bias, step.dst = operands->dst;
    step.carry = carry != NULL ? &state : NULL;
    memcpy(step.post, operands->post, sizeof step.post);
    step.workspace = workspace, step.workspace_size = workspace_size, step.stream = stream;
    return tconv_plan_step(plan, &step);
}
