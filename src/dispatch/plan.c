/* The life of a plan. tconv_plan_make resolves options and environment and has an implementation chosen; execute checks
 * its arguments, packs the weights unless the plan holds them packed, and runs. */
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/alloc.h"
#include "../core/status.h"
#include "../core/stream.h"
#include "../cpu/cpu_target.h"
#include "../cuda/cuda_backend.h"
#include "../cuda/cuda_target.h"
#include "choose.h"
#include "impl_list.h"
#include "overlap.h"
#include "resolve.h"
#include "tensors.h"
#include "verbose.h"
#include "volume.h"

/* What is faster with weights packed before has to take so much less time, by prediction, to be taken: the model is no
 * more exact than that. */
static const double WORTH_OTHER_BITS = 0.93;

static size_t alignment_of(const tconv_plan *plan)
{
    return plan->layer.target.backend == TCONV_BACKEND_CUDA ? TCONV_CUDA_ALIGNMENT : TCONV_ALIGNMENT;
}

/* The GPU of a plan whose backend is CUDA. */
static int device_of(const tconv_plan *plan)
{
    return tconv_cuda_target_of(&plan->layer.target).device;
}

/* Whether the plan's operation reads the weights, and so packs them. */
static bool reads_weights(const tconv_plan *plan)
{
    return tconv_is_in(tconv_operation_of(&plan->layer.problem).reads, TCONV_ROLE_WEIGHTS);
}

/* Has a plan take as much workspace as the one that will hold its weights packed, where that may be served by another
 * implementation whatever it needs: on the CPU where weights are read as they lie, and where the layer has depth. */
static tconv_status make_room(tconv_plan *plan, tconv_issue *issue)
{
    if (!plan->sizes.reads_unpacked || (plan->layer.target.backend != TCONV_BACKEND_CPU && plan->volume == NULL) ||
        !reads_weights(plan))
        return TCONV_SUCCESS;
    tconv_plan packed = *plan;
    packed.made = NULL;
    packed.volume = NULL;
    packed.verbose = 0;
    packed.layer.packed_before = packed.holds_packed = true;
    const tconv_status status = tconv_plan_choose(&packed, issue);
    if (status == TCONV_SUCCESS && packed.sizes.scratch > plan->sizes.scratch)
        plan->sizes.scratch = packed.sizes.scratch;
    tconv_plan_forget(&packed);
    if (status == TCONV_ERROR_OUT_OF_MEMORY)
        return status;
    tconv_issue_clear(issue); /* none takes packed weights, where one is named: it will hold them as they lie */
    return TCONV_SUCCESS;
}

tconv_status tconv_plan_make(const tconv_desc *desc, const tconv_options *options, tconv_plan **plan,
                             tconv_issue *issue)
{
    tconv_plan draft;
    tconv_options known;
    tconv_config config;
    void *made = NULL;
    tconv_status status;
    memset(&draft, 0, sizeof draft);
    draft.magic = TCONV_PLAN_MAGIC;
    if (plan == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "plan", "plan = NULL: must point to a pointer");
    *plan = NULL;
    if ((status = tconv_problem_init(&draft.layer.problem, desc, issue)) ||
        (status = tconv_operation_check(&draft.layer.problem, issue)) ||
        (status = tconv_options_read(&known, options, issue)))
        return status;
    draft.allocator = known.allocator;
    if ((status = tconv_target_resolve(&known, NULL, &draft.layer, &config, issue)) ||
        (status = tconv_implementation_named(draft.layer.problem.desc.op, &known, &draft.named, issue)))
        return status;
    draft.verbose = known.verbose != 0 ? known.verbose : config.verbose;
    draft.log = known.log;
    if ((status = tconv_layer_create_phases(&draft.layer, &draft.allocator, issue)) ||
        (status = tconv_plan_choose(&draft, issue)) || (status = make_room(&draft, issue)) ||
        (status = tconv_allocate_for(&draft.allocator, sizeof draft, "plan", &made, issue))) {
        tconv_plan_forget(&draft);
        tconv_layer_release_phases(&draft.layer, &draft.allocator);
        return status;
    }
    *plan = made;
    **plan = draft;
    if (draft.verbose >= 2)
        tconv_verbose_chosen(*plan, tconv_plan_workspace(*plan));
    return TCONV_SUCCESS;
}

void tconv_plan_free(tconv_plan *plan)
{
    if (!tconv_plan_is_alive(plan))
        return;
    *(volatile uint64_t *)&plan->magic = 0; /* volatile, else the compiler drops this store */
    const tconv_allocator allocator = plan->allocator;
    if (plan->layer.target.backend == TCONV_BACKEND_CUDA)
        tconv_cuda_release(device_of(plan), plan->packed);
    else
        tconv_release(&allocator, plan->packed);
    tconv_plan_forget(plan);
    tconv_layer_release_phases(&plan->layer, &allocator);
    tconv_release(&allocator, plan);
}

/* --------------------------------------------------------------------------------------------------------- packing */

bool tconv_plan_is_alive(const tconv_plan *plan)
{
    return plan != NULL && plan->magic == TCONV_PLAN_MAGIC;
}

tconv_status tconv_plan_check(const tconv_plan *plan, tconv_issue *issue)
{
    if (plan == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "plan", "plan = NULL: must be a plan");
    if (!tconv_plan_is_alive(plan))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "plan", "plan = %p: must be a plan; was it destroyed?",
                          (const void *)plan);
    return TCONV_SUCCESS;
}

tconv_status tconv_plan_check_no_stream(const tconv_problem *problem, tconv_issue *issue)
{
    if (!tconv_is_stream(problem))
        return TCONV_SUCCESS;
    return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis",
                      "stream_axis = %d: must be 0 here; tconv_plan_step computes streams",
                      (int)problem->desc.stream_axis);
}

/* Checks one tensor of a plan, including its location. */
static tconv_status check_tensor(const tconv_plan *plan, const tconv_tensor *tensor, tconv_role role,
                                 tconv_issue *issue)
{
    const tconv_target *target = &plan->layer.target;
    tconv_status status = tconv_tensor_check(tensor, role, &plan->layer.problem, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_tensor_check_location(tensor, tconv_role_name(plan->layer.problem.desc.op, role), target->backend,
                                       target->backend == TCONV_BACKEND_CUDA ? device_of(plan) : -1, issue);
}

/* The bytes of workspace that hold packed weights. */
static size_t workspace_packed(const tconv_plan *plan)
{
    const bool holds = plan->packed == NULL && !plan->sizes.reads_unpacked;
    return holds ? tconv_align_up(plan->sizes.packed, alignment_of(plan)) : 0;
}

/* Whether what was chosen for weights that are packed before is worth the other bits, and needs no more workspace. The
 * CPU's implementations predict nothing, and there plans have room for it (make_room): scratch grows with threads, and
 * choices do not depend on them. */
static bool is_worth_it(const tconv_plan *plan, const tconv_plan *made)
{
    if (plan->layer.target.backend == TCONV_BACKEND_CPU || made->volume != NULL)
        return true;
    const bool faster = plan->seconds == 0 || made->seconds < WORTH_OTHER_BITS * plan->seconds;
    return faster && made->sizes.scratch <= workspace_packed(plan) + plan->sizes.scratch;
}

/* Chooses anew for weights that are packed before, which may be served best by another implementation, or tiles, than
 * calls that pack; else it is planned like the plan itself. One that is named may decline. */
static tconv_status choose_packed(const tconv_plan *plan, tconv_plan *made, tconv_issue *issue)
{
    made->layer.packed_before = true;
    tconv_status status = tconv_plan_choose(made, issue);
    if (status != TCONV_ERROR_UNSUPPORTED &&
        (status != TCONV_SUCCESS || plan->layer.packed_before || is_worth_it(plan, made)))
        return status;
    tconv_plan_forget(made);
    tconv_issue_clear(issue);
    made->named = plan->volume != NULL ? plan->named : plan->implementation;
    made->layer.packed_before = plan->layer.packed_before;
    return tconv_plan_choose(made, issue);
}

/* Makes a plan of the same layer, with phase tables of its own, for weights that are packed before. It has none yet. */
static tconv_status clone(const tconv_plan *plan, tconv_plan **copy, tconv_issue *issue)
{
    void *memory;
    tconv_status status = tconv_allocate_for(&plan->allocator, sizeof *plan, "plan", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_plan *made = memory;
    *made = *plan;
    made->packed = made->made = NULL;
    made->volume = NULL;
    made->holds_packed = true;
    memset(&made->layer.rows, 0, sizeof made->layer.rows);
    memset(&made->layer.columns, 0, sizeof made->layer.columns);
    if ((status = tconv_layer_create_phases(&made->layer, &plan->allocator, issue)) == TCONV_SUCCESS)
        status = choose_packed(plan, made, issue);
    if (status != TCONV_SUCCESS) {
        tconv_plan_free(made);
        return status;
    }
    *copy = made;
    return TCONV_SUCCESS;
}

tconv_status tconv_plan_pack(const tconv_plan *plan, const tconv_tensor *weights, void *stream, tconv_plan **packed,
                             tconv_issue *issue)
{
    tconv_plan *made = NULL;
    tconv_status status;
    if (packed == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "packed", "packed = NULL: must point to a pointer");
    *packed = NULL;
    if ((status = tconv_plan_check(plan, issue)))
        return status;
    if (!reads_weights(plan))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "op", "op = %s (%d): must be one that reads the weights",
                          tconv_op_name(plan->layer.problem.desc.op), (int)plan->layer.problem.desc.op);
    if ((status = check_tensor(plan, weights, TCONV_ROLE_WEIGHTS, issue)) || (status = clone(plan, &made, issue)))
        return status;

    size_t size = made->sizes.packed > 0 ? made->sizes.packed : 1; /* never NULL, which means "not packed" */
    if (plan->layer.target.backend == TCONV_BACKEND_CUDA)
        status = tconv_cuda_allocate(device_of(plan), size, &made->packed, issue);
    else
        status = tconv_allocate_for(&plan->allocator, size, "packed weights", &made->packed, issue);
    if (status == TCONV_SUCCESS && made->volume != NULL)
        status = tconv_volume_pack(made, weights->data, made->packed, stream, issue);
    else if (status == TCONV_SUCCESS)
        status = made->implementation->pack(&made->layer, made->made, weights->data, made->packed, stream, issue);
    if (status != TCONV_SUCCESS) {
        tconv_plan_free(made);
        return status;
    }
    *packed = made;
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------- executing */

size_t tconv_plan_workspace(const tconv_plan *plan)
{
    size_t bytes = workspace_packed(plan) + plan->sizes.scratch;
    return bytes > 0 ? bytes + alignment_of(plan) - 1 : 0; /* room to align any address */
}

/* Checks the tensors of a call, without the weights where the plan holds them packed. */
static tconv_status check_tensors(const tconv_plan_call *call, tconv_issue *issue)
{
    const unsigned held = call->plan->packed != NULL ? TCONV_ROLE_BIT(TCONV_ROLE_WEIGHTS) : 0;
    const unsigned due = tconv_tensors_due(call->problem, &call->tensors) & ~held;
    tconv_status status;
    for (int role = 0; role < TCONV_ROLES; role++)
        if (tconv_is_in(due, (tconv_role)role) &&
            (status = check_tensor(call->plan, call->tensors.of[role], (tconv_role)role, issue)))
            return status;
    return TCONV_SUCCESS;
}

static tconv_status check_arguments(const tconv_plan_call *call, tconv_issue *issue)
{
    const size_t needed = tconv_plan_workspace(call->plan);
    tconv_status status = check_tensors(call, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (call->workspace_size < needed)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "workspace_size",
                          "workspace_size = %zu: must be at least %zu", call->workspace_size, needed);
    if (call->workspace == NULL && needed > 0)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "workspace", "workspace = NULL: must point to %zu bytes",
                          needed);
    const tconv_memory_in_use memory = {call->tensors, call->workspace, needed};
    return tconv_overlap_check(call->problem, &memory, issue);
}

static void *data_of(const tconv_tensors *tensors, tconv_role role)
{
    return tensors->of[role] != NULL ? tensors->of[role]->data : NULL;
}

tconv_status tconv_plan_compute(tconv_plan_call *call, tconv_issue *issue)
{
    const tconv_plan *plan = call->plan;
    const bool reads = tconv_is_in(tconv_operation_of(call->problem).reads, TCONV_ROLE_WEIGHTS);
    tconv_tensors *tensors = &call->tensors;
    tconv_status status;
    if (plan->packed != NULL)
        tensors->of[TCONV_ROLE_WEIGHTS] = NULL;
    if ((status = check_arguments(call, issue)))
        return status;

    char *memory = call->workspace != NULL ? tconv_align_pointer(call->workspace, alignment_of(plan)) : NULL;
    tconv_arguments arguments = {
        .src = data_of(tensors, TCONV_ROLE_SRC),
        .packed = plan->packed,
        .bias = data_of(tensors, TCONV_ROLE_BIAS),
        .dst = data_of(tensors, TCONV_ROLE_DST),
        .scratch = memory != NULL ? memory + workspace_packed(plan) : NULL,
        .stream = call->stream,
        .packs = reads && plan->packed == NULL,
        .step = call->step,
    };
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        arguments.post[i] = data_of(tensors, (tconv_role)(TCONV_ROLE_POST + i));
    int64_t start = plan->verbose >= 1 ? tconv_verbose_clock() : 0;
    void *weights = data_of(tensors, TCONV_ROLE_WEIGHTS);
    if (!reads_weights(plan) || plan->sizes.execute_packs)
        arguments.weights = weights;
    if (reads && plan->packed == NULL && plan->volume == NULL) {
        arguments.packed = memory;
        if (!plan->sizes.execute_packs &&
            (status = plan->implementation->pack(&plan->layer, plan->made, weights, memory, call->stream, issue)))
            return status;
    }
    status = plan->volume != NULL ? tconv_volume_execute(plan, &arguments, issue)
                                  : plan->implementation->execute(&plan->layer, plan->made, &arguments, issue);
    if (status == TCONV_SUCCESS && plan->verbose >= 1)
        tconv_verbose_executed(plan, arguments.bias != NULL, tconv_verbose_clock() - start);
    return status;
}

tconv_status tconv_plan_run(const tconv_plan *plan, const tconv_tensors *given, void *workspace, size_t workspace_size,
                            void *stream, tconv_issue *issue)
{
    tconv_status status = tconv_plan_check(plan, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_plan_check_no_stream(&plan->layer.problem, issue);
    if (status != TCONV_SUCCESS || tconv_operation_writes_nothing(&plan->layer.problem))
        return status;
    tconv_plan_call call = {.plan = plan,
                            .problem = &plan->layer.problem,
                            .tensors = tconv_tensors_in_use(&plan->layer.problem, given),
                            .workspace = workspace,
                            .workspace_size = workspace_size,
                            .stream = stream};
    return tconv_plan_compute(&call, issue);
}

size_t tconv_plan_format(const tconv_plan *plan, char *text, size_t capacity)
{
    const tconv_target *target = &plan->layer.target;
    char problem[TCONV_PROBLEM_TEXT_SIZE], where[64], calls[32] = "";
    tconv_problem_format(&plan->layer.problem, false, problem, sizeof problem);
    if (target->backend == TCONV_BACKEND_CUDA) {
        const tconv_cuda_target gpu = tconv_cuda_target_of(target);
        snprintf(where, sizeof where, "device=%d sm=%d", gpu.device, gpu.compute_capability);
    } else {
        const tconv_cpu_target cpu = tconv_cpu_target_of(target);
        snprintf(where, sizeof where, "threads=%d isa=%s", cpu.threads, tconv_cpu_isa_name(cpu.cpu_isa));
    }
    if (plan->volume != NULL)
        snprintf(calls, sizeof calls, " calls=%" PRId64, tconv_volume_calls(plan));
    int length = snprintf(text, capacity,
                          "backend=%s impl=%s %s packed=%s batch_invariant=%s%s%s workspace=%zu bench=--backend %s %s",
                          tconv_backend_name(target->backend), plan->implementation->name, where,
                          plan->packed != NULL ? "yes" : "no", tconv_plan_is_batch_invariant(plan) ? "yes" : "no",
                          tconv_chunk_invariance(plan->implementation, &plan->layer, plan->made), calls,
                          tconv_plan_workspace(plan), tconv_backend_name(target->backend), problem);
    return length > 0 ? (size_t)length : 0;
}
