/* Calls of a stream's plan: reads and checks what a step has beside tensors, and describes its chunk as a layer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/status.h"
#include "../core/stream.h"
#include "../cuda/cuda_target.h"
#include "plan.h"

/* Reads a number of a step, where 0 stands for the most. */
static tconv_status read_count(const char *name, int64_t given, int64_t most, const char *of, int64_t *count,
                               tconv_issue *issue)
{
    *count = given == 0 ? most : given;
    if (given < 0 || given > most)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name,
                          "%s = %" PRId64 ": must be from 1 to %" PRId64 ", %s of the desc, or 0 for that", name, given,
                          most, of);
    return TCONV_SUCCESS;
}

/* Finds the size of the chunk. */
static tconv_status read_chunk(const tconv_problem *whole, const tconv_step *step, tconv_chunk *chunk,
                               tconv_issue *issue)
{
    tconv_status status = read_count("batch", step->batch, whole->batch, "batch", &chunk->batch, issue);
    if (status == TCONV_SUCCESS && !chunk->flushes)
        status = read_count("length", step->length, tconv_streamed_axis(whole)->in,
                            whole->desc.stream_axis == TCONV_STREAM_OF_ROWS ? "in_h" : "in_w", &chunk->length, issue);
    if (status != TCONV_SUCCESS)
        return status;
    chunk->slots = step->slot_count != 0 ? step->slot_count : whole->batch;
    if (chunk->slots < 1 || (step->slots == NULL && chunk->slots < chunk->batch))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "slot_count",
                          "slot_count = %" PRId64 ": must be at least %" PRId64 "%s", step->slot_count,
                          step->slots == NULL ? chunk->batch : 1, step->slots == NULL ? ", the batch of the step" : "");
    return TCONV_SUCCESS;
}

/* Checks where an array of a step lies, and that its address fits its elements. */
static tconv_status check_array(const tconv_plan *plan, const char *name, const void *array, size_t size,
                                const tconv_step *step, tconv_issue *issue)
{
    const tconv_target *target = &plan->layer.target;
    if (array == NULL)
        return TCONV_SUCCESS;
    if ((uintptr_t)array % size != 0)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name, "%s = %p: must be a multiple of %zu", name, array,
                          size);
    const tconv_tensor tensor = {.data = (void *)(uintptr_t)array,
                                 .location = step->carry != NULL ? step->carry->location : TCONV_LOCATION_AUTO};
    return tconv_tensor_check_location(&tensor, name, target->backend,
                                       target->backend == TCONV_BACKEND_CUDA ? tconv_cuda_target_of(target).device : -1,
                                       issue);
}

static bool is_active(const tconv_step *step, int64_t image)
{
    return step->active == NULL || step->active[image] != 0;
}

/* Checks slots that the host can read: each image's is a slot of the carry, and no other's. */
static tconv_status check_slots(const tconv_step *step, const tconv_chunk *chunk, tconv_issue *issue)
{
    char field[32];
    for (int64_t image = 0; image < chunk->batch; image++) {
        const int32_t slot = step->slots[image];
        int64_t same = 0;
        if (!is_active(step, image))
            continue;
        while (step->slots[same] != slot || !is_active(step, same))
            same++;
        if (slot >= 0 && slot < chunk->slots && same == image)
            continue;
        snprintf(field, sizeof field, "slots[%" PRId64 "]", image);
        if (same != image)
            return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field,
                              "%s = %" PRId32 ": must be no other image's, slots[%" PRId64 "] is", field, slot, same);
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field,
                          "%s = %" PRId32 ": must be from 0 to %" PRId64 ", below slot_count", field, slot,
                          chunk->slots - 1);
    }
    return TCONV_SUCCESS;
}

static tconv_status check_arrays(const tconv_plan *plan, const tconv_step *step, const tconv_chunk *chunk,
                                 tconv_issue *issue)
{
    tconv_status status;
    if ((status = check_array(plan, "slots", step->slots, sizeof *step->slots, step, issue)) ||
        (status = check_array(plan, "reset", step->reset, sizeof *step->reset, step, issue)) ||
        (status = check_array(plan, "active", step->active, sizeof *step->active, step, issue)))
        return status;
    return plan->layer.target.backend == TCONV_BACKEND_CPU && step->slots != NULL ? check_slots(step, chunk, issue)
                                                                                  : TCONV_SUCCESS;
}

static tconv_tensors tensors_of(const tconv_step *step)
{
    tconv_tensors tensors = {{[TCONV_ROLE_SRC] = step->src,
                              [TCONV_ROLE_WEIGHTS] = step->weights,
                              [TCONV_ROLE_BIAS] = step->bias,
                              [TCONV_ROLE_DST] = step->dst,
                              [TCONV_ROLE_CARRY] = step->carry}};
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        tensors.of[TCONV_ROLE_POST + i] = step->post[i];
    return tensors;
}

tconv_status tconv_plan_run_step(const tconv_plan *plan, const tconv_step *given, bool flushes, tconv_issue *issue)
{
    tconv_step step;
    tconv_chunk chunk = {.flushes = flushes};
    tconv_problem problem;
    tconv_status status = tconv_plan_check(plan, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const tconv_problem *whole = &plan->layer.problem;
    if (!tconv_is_stream(whole))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis",
                          "stream_axis = 0: must be 1 (rows) or 2 (columns); tconv_plan_execute computes other layers");
    memset(&step, 0, sizeof step);
    if (given == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "step", "step = NULL: must point to a tconv_step");
    if ((status = tconv_read_versioned(&step, sizeof step, given, sizeof step, "step", issue)))
        return status;
    if (whole->batch == 0 || (flushes && whole->tail == 0))
        return TCONV_SUCCESS;
    if ((status = read_chunk(whole, &step, &chunk, issue)) ||
        (status = tconv_stream_chunk_init(&problem, whole, &chunk, issue)))
        return status;
    const tconv_tensors tensors = tensors_of(&step);
    const tconv_step_arguments arguments = {
        .problem = &problem,
        .carry = problem.carry_extent > 0 && step.carry != NULL ? step.carry->data : NULL,
        .slot_count = chunk.slots,
        .slots = step.slots,
        .reset = step.reset,
        .active = step.active,
    };
    tconv_plan_call call = {.plan = plan,
                            .problem = &problem,
                            .tensors = tconv_tensors_in_use(&problem, &tensors),
                            .workspace = step.workspace,
                            .workspace_size = step.workspace_size,
                            .stream = step.stream,
                            .step = &arguments};
    if ((status = check_arrays(plan, &step, &chunk, issue)))
        return status;
    return tconv_plan_compute(&call, issue);
}
