/* The public functions that concern plans: each clears an issue, calls the function that does the work, and reports. */
#include <string.h>

#include "../core/status.h"
#include "../cuda/cuda_backend.h"
#include "impl_list.h"
#include "plan.h"
#include "stage.h"

const char *tconv_version(void)
{
    return TCONV_VERSION_STRING;
}

tconv_status tconv_backend_available(tconv_backend backend, tconv_issue *issue)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    switch (backend) {
    case TCONV_BACKEND_AUTO:
    case TCONV_BACKEND_CPU: break;
    case TCONV_BACKEND_CUDA: tconv_cuda_available(&found); break;
    default:
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, "backend",
                   "backend = %d: must be auto (0), cpu (1) or cuda (2)", (int)backend);
    }
    return tconv_report(&found, issue);
}

const char *tconv_implementation_name(size_t index)
{
    return tconv_implementation_name_at(index);
}

tconv_status tconv_plan_create(const tconv_desc *desc, const tconv_options *options, tconv_plan **plan,
                               tconv_issue *issue)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_plan_make(desc, options, plan, &found);
    return tconv_report(&found, issue);
}

/* Checks the arguments that the queries below have in common. */
static tconv_status check_question(const tconv_plan *plan, const void *answer, const char *name, tconv_issue *issue)
{
    tconv_status status = tconv_plan_check(plan, issue);
    if (status == TCONV_SUCCESS && answer == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name, "%s = NULL: must point to room for the answer",
                          name);
    return status;
}

tconv_status tconv_plan_workspace_size(const tconv_plan *plan, size_t *size)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    if (check_question(plan, size, "size", &found) == TCONV_SUCCESS)
        *size = tconv_plan_workspace(plan);
    return tconv_report(&found, NULL);
}

tconv_status tconv_plan_pack_weights(const tconv_plan *plan, const tconv_tensor *weights, void *stream,
                                     tconv_plan **packed, tconv_issue *issue)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_plan_pack(plan, weights, stream, packed, &found);
    return tconv_report(&found, issue);
}

static tconv_tensors tensors_of(const tconv_tensor *src, const tconv_tensor *weights, const tconv_tensor *bias,
                                const tconv_tensor *dst)
{
    return (tconv_tensors){
        {[TCONV_ROLE_SRC] = src, [TCONV_ROLE_WEIGHTS] = weights, [TCONV_ROLE_BIAS] = bias, [TCONV_ROLE_DST] = dst}};
}

tconv_status tconv_plan_execute(const tconv_plan *plan, const tconv_tensor *src, const tconv_tensor *weights,
                                const tconv_tensor *bias, const tconv_tensor *dst, void *workspace,
                                size_t workspace_size, void *stream)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    const tconv_tensors tensors = tensors_of(src, weights, bias, dst);
    tconv_plan_run(plan, &tensors, workspace, workspace_size, stream, &found);
    return tconv_report(&found, NULL);
}

/* Reads the operands of a call, of which an older caller knows fewer. */
static tconv_status read_operands(const tconv_operands *operands, tconv_tensors *tensors, tconv_issue *issue)
{
    tconv_operands known;
    tconv_status status;
    memset(&known, 0, sizeof known);
    if (operands == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "operands",
                          "operands = NULL: must point to a tconv_operands");
    if ((status = tconv_read_versioned(&known, sizeof known, operands, sizeof known, "operands", issue)))
        return status;
    *tensors = tensors_of(known.src, known.weights, known.bias, known.dst);
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        tensors->of[TCONV_ROLE_POST + i] = known.post[i];
    return TCONV_SUCCESS;
}

tconv_status tconv_plan_execute_with(const tconv_plan *plan, const tconv_operands *operands, void *workspace,
                                     size_t workspace_size, void *stream)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_tensors tensors;
    if (read_operands(operands, &tensors, &found) == TCONV_SUCCESS)
        tconv_plan_run(plan, &tensors, workspace, workspace_size, stream, &found);
    return tconv_report(&found, NULL);
}

tconv_status tconv_plan_step(const tconv_plan *plan, const tconv_step *step)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_plan_run_step(plan, step, false, &found);
    return tconv_report(&found, NULL);
}

tconv_status tconv_plan_flush(const tconv_plan *plan, const tconv_step *step)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_plan_run_step(plan, step, true, &found);
    return tconv_report(&found, NULL);
}

const char *tconv_plan_implementation(const tconv_plan *plan)
{
    return tconv_plan_is_alive(plan) ? plan->implementation->name : "";
}

tconv_status tconv_plan_describe(const tconv_plan *plan, char *text, size_t capacity, size_t *length)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    if (check_question(plan, capacity > 0 ? (const void *)text : (const void *)plan, "text", &found) == TCONV_SUCCESS) {
        size_t full = tconv_plan_format(plan, text, capacity);
        if (length != NULL)
            *length = full;
    }
    return tconv_report(&found, NULL);
}

void tconv_plan_destroy(tconv_plan *plan)
{
    tconv_plan_free(plan);
}

tconv_status tconv_conv_transpose(const tconv_desc *desc, const tconv_options *options, const tconv_tensor *src,
                                  const tconv_tensor *weights, const tconv_tensor *bias, const tconv_tensor *dst,
                                  tconv_issue *issue)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    const tconv_tensors tensors = tensors_of(src, weights, bias, dst);
    tconv_stage_and_run(desc, options, &tensors, &found);
    return tconv_report(&found, issue);
}

tconv_status tconv_conv_transpose_with(const tconv_desc *desc, const tconv_options *options,
                                       const tconv_operands *operands, tconv_issue *issue)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_tensors tensors;
    if (read_operands(operands, &tensors, &found) == TCONV_SUCCESS)
        tconv_stage_and_run(desc, options, &tensors, &found);
    return tconv_report(&found, issue);
}

tconv_status tconv_conv_transpose2d(const tconv_desc *desc, const tconv_options *options, const tconv_tensor *src,
                                    const tconv_tensor *weights, const tconv_tensor *bias, const tconv_tensor *dst,
                                    tconv_issue *issue)
{
    return tconv_conv_transpose(desc, options, src, weights, bias, dst, issue);
}

tconv_status tconv_conv_transpose2d_with(const tconv_desc *desc, const tconv_options *options,
                                         const tconv_operands *operands, tconv_issue *issue)
{
    return tconv_conv_transpose_with(desc, options, operands, issue);
}
