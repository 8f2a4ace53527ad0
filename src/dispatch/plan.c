/* The life of a plan. tconv_plan_make resolves options and environment, takes the implementation that supports the
 * layer and suits it best, and keeps its sizes; execute checks its arguments, packs the weights unless the plan holds
 * them packed, and runs. */
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/alloc.h"
#include "../core/checked.h"
#include "../core/status.h"
#include "../cpu/cpu_backend.h"
#include "../cuda/cuda_backend.h"
#include "impl_list.h"
#include "overlap.h"
#include "tensors.h"
#include "verbose.h"

#define CUDA_ALIGNMENT 256 /* bytes; cudaMalloc aligns to that, so that kernels may use any vector width */

static size_t alignment_of(const tconv_plan *plan)
{
    return plan->layer.target.backend == TCONV_BACKEND_CUDA ? CUDA_ALIGNMENT : TCONV_ALIGNMENT;
}

/* ------------------------------------------------------------------------------------------------------- resolving */

tconv_status tconv_options_read(tconv_options *known, const tconv_options *options, tconv_issue *issue)
{
    tconv_status status;
    tconv_options_init(known);
    if (options == NULL)
        return TCONV_SUCCESS;
    if ((status =
             tconv_read_versioned(known, sizeof *known, options, offsetof(tconv_options, stream), "options", issue)))
        return status;
    const struct {
        const char *name, *accepts;
        long long value, least, most;
    } ranges[] = {
        {"backend", "auto (0), cpu (1) or cuda (2)", (int)known->backend, 0, TCONV_BACKEND_CUDA},
        {"location", "auto (0), host (1) or cuda (2)", (int)known->location, 0, TCONV_LOCATION_CUDA},
        {"device", "a CUDA device, or -1 for the current one", known->device, -1, INT32_MAX},
        {"threads", "from 1 to 65536, or 0 for automatic", known->threads, 0, TCONV_MAX_THREADS},
        {"cpu_isa", "default (0), generic (1), avx2 (2), avx512 (3) or neon (4)", (int)known->cpu_isa, 0,
         TCONV_CPU_ISA_NEON},
        {"verbose", "1 or 2, or 0 for what TCONV_VERBOSE says", known->verbose, 0, 2},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
            return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, ranges[i].name, "%s = %lld: must be %s",
                              ranges[i].name, ranges[i].value, ranges[i].accepts);
    if ((known->allocator.allocate == NULL) != (known->allocator.release == NULL))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "allocator",
                          "allocator: must have both allocate and release, or neither");
    return TCONV_SUCCESS;
}

tconv_status tconv_operation_check(const tconv_problem *problem, tconv_issue *issue)
{
    const tconv_op op = problem->desc.op;
    if (tconv_implementation_at(op, 0) != NULL)
        return TCONV_SUCCESS;
    return tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "op", "op = %s (%d): has no implementation in this version",
                      tconv_op_name(op), (int)op);
}

static bool is_implementation_name(const char *text)
{
    const char *name;
    for (size_t i = 0; (name = tconv_implementation_name_at(i)) != NULL; i++)
        if (strcmp(name, text) == 0)
            return true;
    return false;
}

/* Finds the operation's implementation that options name; NULL where they name none. */
static tconv_status named_implementation(tconv_op op, const tconv_options *options,
                                         const tconv_implementation **implementation, tconv_issue *issue)
{
    *implementation = NULL;
    if (options->implementation == NULL)
        return TCONV_SUCCESS;
    *implementation = tconv_implementation_find(op, options->implementation);
    if (*implementation == NULL && is_implementation_name(options->implementation))
        return tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "implementation",
                          "implementation = %.60s: does not take op %s", options->implementation, tconv_op_name(op));
    if (*implementation == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "implementation",
                          "implementation = %.60s: must be one that tconv_implementation_name lists",
                          options->implementation);
    if (options->backend != TCONV_BACKEND_AUTO && options->backend != (*implementation)->backend)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "implementation",
                          "implementation = %.60s: must be of the backend that was asked for, %s",
                          options->implementation, tconv_backend_name(options->backend));
    return TCONV_SUCCESS;
}

tconv_status tconv_backend_named(tconv_op op, const tconv_options *options, tconv_config *config,
                                 tconv_backend *backend, tconv_issue *issue)
{
    const tconv_implementation *implementation;
    tconv_status status;
    if ((status = named_implementation(op, options, &implementation, issue)) ||
        (status = tconv_config_get(config, issue)))
        return status;
    *backend = options->backend;
    if (*backend == TCONV_BACKEND_AUTO && implementation != NULL)
        *backend = implementation->backend;
    if (*backend == TCONV_BACKEND_AUTO)
        *backend = config->backend;
    return TCONV_SUCCESS;
}

/* Fills plan->layer.target and the resolved math from options, environment and machine. */
static tconv_status resolve_target(tconv_plan *plan, const tconv_options *options, tconv_issue *issue)
{
    tconv_target *target = &plan->layer.target;
    tconv_desc *desc = &plan->layer.problem.desc;
    tconv_config config;
    tconv_status status;
    if ((status = tconv_backend_named(desc->op, options, &config, &target->backend, issue)))
        return status;
    if (target->backend == TCONV_BACKEND_AUTO)
        target->backend = options->location == TCONV_LOCATION_CUDA ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;

    if (desc->math == TCONV_MATH_DEFAULT)
        desc->math = config.math == TCONV_MATH_DEFAULT ? TCONV_MATH_STRICT : config.math;
    target->math = desc->math;
    plan->verbose = options->verbose != 0 ? options->verbose : config.verbose;
    plan->log = options->log;

    if (target->backend == TCONV_BACKEND_CUDA) {
        if ((status = tconv_cuda_available(issue)))
            return status;
        return tconv_cuda_resolve(options->device, target, issue);
    }
    int threads = options->threads != 0 ? options->threads : config.threads;
    status = tconv_cpu_resolve(threads, options->cpu_isa != TCONV_CPU_ISA_DEFAULT ? options->cpu_isa : config.cpu_isa,
                               target, issue);
    target->parallel = options->parallel;
    if (options->parallel.parallel_for != NULL && threads != 0) /* not limited by the machine: they are the caller's */
        target->threads = (int)tconv_min(threads, TCONV_CPU_MAX_THREADS);
    return status;
}

static void pass_over(const tconv_plan *plan, const tconv_implementation *candidate, const char *reason)
{
    if (plan->verbose >= 2)
        tconv_verbose_passed_over(plan, candidate->name, reason);
}

/* Logs that the implementation with more estimated cycles is passed over. */
static void pass_over_slower(const tconv_plan *plan, const tconv_implementation *slower, double slower_cycles,
                             const tconv_implementation *faster, double faster_cycles)
{
    char reason[TCONV_REASON_SIZE];
    snprintf(reason, sizeof reason, "%s is estimated at %.0f %% of its time", faster->name,
             100 * faster_cycles / slower_cycles);
    pass_over(plan, slower, reason);
}

/* Chooses the implementation that options name; else the first of the plan's backend that supports the layer and suits
 * it. If that one gives an estimate of its time, the search goes on up to the next one that suits and gives none, and
 * the shortest estimate wins. */
static tconv_status choose(tconv_plan *plan, const tconv_options *options, tconv_issue *issue)
{
    const tconv_op op = plan->layer.problem.desc.op;
    const tconv_implementation *named, *candidate;
    char reason[TCONV_REASON_SIZE] = "";
    double least = 0;   /* estimated cycles of plan->implementation; 0 before there is one */
    int64_t choice = 0; /* layer.choice of plan->implementation */
    tconv_status status = named_implementation(op, options, &named, issue);
    if (status != TCONV_SUCCESS)
        return status;
    for (size_t i = 0; (candidate = tconv_implementation_at(op, i)) != NULL; i++) {
        double cycles = 0;
        if (candidate->backend != plan->layer.target.backend || (named != NULL && candidate != named))
            continue;
        plan->layer.choice = 0;
        if (!tconv_implementation_supports(candidate, &plan->layer, reason) ||
            (named == NULL && candidate->suits != NULL && !candidate->suits(&plan->layer, &cycles, reason))) {
            pass_over(plan, candidate, reason);
            continue;
        }
        if (plan->implementation == NULL || (cycles > 0 && cycles < least)) {
            if (plan->implementation != NULL)
                pass_over_slower(plan, plan->implementation, least, candidate, cycles);
            plan->implementation = candidate;
            choice = plan->layer.choice;
            least = cycles;
        } else if (cycles > 0) {
            pass_over_slower(plan, candidate, cycles, plan->implementation, least);
        }
        if (cycles == 0)
            break;
    }
    plan->layer.choice = choice;
    if (plan->implementation != NULL)
        return TCONV_SUCCESS;
    return tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "implementation", "implementation = %.40s: %s",
                      named != NULL ? named->name : tconv_backend_name(plan->layer.target.backend), reason);
}

static tconv_status out_of_memory(tconv_issue *issue, size_t bytes, const char *what)
{
    return tconv_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "allocator", "no memory for %zu bytes of %s", bytes, what);
}

/* Has the implementation decide how to cut the layer up, into memory that the plan owns. */
static tconv_status decide(tconv_plan *plan, tconv_issue *issue)
{
    const tconv_implementation *implementation = plan->implementation;
    size_t bytes = implementation->decisions_bytes;
    plan->decisions = NULL;
    if (implementation->decide == NULL)
        return TCONV_SUCCESS;
    if ((plan->decisions = tconv_allocate(&plan->allocator, bytes)) == NULL)
        return out_of_memory(issue, bytes, "decisions");
    plan->layer.decisions = plan->decisions;
    return implementation->decide(&plan->layer, plan->decisions, issue);
}

/* Asks the implementation for its sizes, and checks that the size of the workspace fits. */
static tconv_status measure(tconv_plan *plan, tconv_issue *issue)
{
    plan->sizes = (tconv_memory_sizes){0};
    tconv_status status = plan->implementation->memory(&plan->layer, &plan->sizes, issue);
    size_t most = (size_t)PTRDIFF_MAX / 2 - 2 * CUDA_ALIGNMENT;
    if (status != TCONV_SUCCESS)
        return status;
    if (plan->sizes.packed > most || plan->sizes.scratch > most)
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size",
                          "workspace: its size must be at most 2^63 - 1");
    return TCONV_SUCCESS;
}

static tconv_status create_phases(tconv_plan *plan, tconv_issue *issue)
{
    tconv_layer *layer = &plan->layer;
    tconv_status status = tconv_phases_create(&layer->problem.h, &plan->allocator, &layer->rows, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_phases_create(&layer->problem.w, &plan->allocator, &layer->columns, issue);
    return status;
}

tconv_status tconv_plan_make(const tconv_desc *desc, const tconv_options *options, tconv_plan **plan,
                             tconv_issue *issue)
{
    tconv_plan draft;
    tconv_options known;
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
    if ((status = resolve_target(&draft, &known, issue)) || (status = create_phases(&draft, issue)) ||
        (status = choose(&draft, &known, issue)) || (status = decide(&draft, issue)) ||
        (status = measure(&draft, issue)))
        goto cleanup;

    tconv_plan *made = tconv_allocate(&draft.allocator, sizeof *made);
    if (made == NULL) {
        status = out_of_memory(issue, sizeof *made, "plan");
        goto cleanup;
    }
    *made = draft;
    *plan = made;
    if (made->verbose >= 2)
        tconv_verbose_chosen(made, tconv_plan_workspace(made));
    return TCONV_SUCCESS;

cleanup:
    tconv_release(&draft.allocator, draft.decisions);
    tconv_phases_release(&draft.layer.rows, &draft.allocator);
    tconv_phases_release(&draft.layer.columns, &draft.allocator);
    return status;
}

void tconv_plan_free(tconv_plan *plan)
{
    if (!tconv_plan_is_alive(plan))
        return;
    *(volatile uint64_t *)&plan->magic = 0; /* volatile, else the compiler drops this store */
    const tconv_allocator allocator = plan->allocator;
    if (plan->layer.target.backend == TCONV_BACKEND_CUDA)
        tconv_cuda_release(plan->layer.target.device, plan->packed);
    else
        tconv_release(&allocator, plan->packed);
    tconv_release(&allocator, plan->decisions);
    tconv_phases_release(&plan->layer.rows, &allocator);
    tconv_phases_release(&plan->layer.columns, &allocator);
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

/* Whether the plan's operation reads the weights, and so packs them. */
static bool reads_weights(const tconv_plan *plan)
{
    return tconv_is_in(tconv_operation_of(&plan->layer.problem)->reads, TCONV_ROLE_WEIGHTS);
}

/* Checks one tensor of a plan, including its location. */
static tconv_status check_tensor(const tconv_plan *plan, const tconv_tensor *tensor, tconv_role role,
                                 tconv_issue *issue)
{
    const tconv_target *target = &plan->layer.target;
    tconv_status status = tconv_tensor_check(tensor, role, &plan->layer.problem, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_tensor_check_location(tensor, role, target->backend, target->device, issue);
}

/* Makes a copy of plan, with phase tables and decisions of its own and no packed weights. */
static tconv_status clone(const tconv_plan *plan, tconv_plan **copy, tconv_issue *issue)
{
    tconv_plan *made = tconv_allocate(&plan->allocator, sizeof *made);
    if (made == NULL)
        return out_of_memory(issue, sizeof *made, "plan");
    *made = *plan;
    made->packed = made->decisions = NULL;
    memset(&made->layer.rows, 0, sizeof made->layer.rows);
    memset(&made->layer.columns, 0, sizeof made->layer.columns);
    tconv_status status = create_phases(made, issue);
    if (status == TCONV_SUCCESS)
        status = decide(made, issue);
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

    size_t size = plan->sizes.packed > 0 ? plan->sizes.packed : 1; /* never NULL, which means "not packed" */
    if (plan->layer.target.backend == TCONV_BACKEND_CUDA)
        status = tconv_cuda_allocate(plan->layer.target.device, size, &made->packed, issue);
    else if ((made->packed = tconv_allocate(&plan->allocator, size)) == NULL)
        status = out_of_memory(issue, size, "packed weights");
    if (status == TCONV_SUCCESS)
        status = plan->implementation->pack(&made->layer, weights->data, made->packed, stream, issue);
    if (status != TCONV_SUCCESS) {
        tconv_plan_free(made);
        return status;
    }
    *packed = made;
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------- executing */

/* Returns the bytes of workspace that hold packed weights. */
static size_t workspace_packed(const tconv_plan *plan)
{
    return plan->packed == NULL ? tconv_align_up(plan->sizes.packed, alignment_of(plan)) : 0;
}

size_t tconv_plan_workspace(const tconv_plan *plan)
{
    size_t bytes = workspace_packed(plan) + plan->sizes.scratch;
    return bytes > 0 ? bytes + alignment_of(plan) - 1 : 0; /* room to align any address */
}

/* Checks the tensors of a call, without the weights where the plan holds them packed. */
static tconv_status check_tensors(const tconv_plan *plan, const tconv_tensors *tensors, tconv_issue *issue)
{
    const unsigned held = plan->packed != NULL ? TCONV_ROLE_BIT(TCONV_ROLE_WEIGHTS) : 0;
    const unsigned due = tconv_tensors_due(tconv_operation_of(&plan->layer.problem), tensors) & ~held;
    tconv_status status;
    for (int role = 0; role < TCONV_ROLES; role++)
        if (tconv_is_in(due, (tconv_role)role) &&
            (status = check_tensor(plan, tensors->of[role], (tconv_role)role, issue)))
            return status;
    return TCONV_SUCCESS;
}

static tconv_status check_arguments(const tconv_plan *plan, const tconv_tensors *tensors, const void *workspace,
                                    size_t workspace_size, tconv_issue *issue)
{
    size_t needed = tconv_plan_workspace(plan);
    tconv_status status = check_tensors(plan, tensors, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (workspace_size < needed)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "workspace_size",
                          "workspace_size = %zu: must be at least %zu", workspace_size, needed);
    if (workspace == NULL && needed > 0)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "workspace", "workspace = NULL: must point to %zu bytes",
                          needed);
    const tconv_memory_in_use memory = {*tensors, workspace, needed};
    return tconv_overlap_check(&plan->layer.problem, &memory, issue);
}

static void *data_of(const tconv_tensors *tensors, tconv_role role)
{
    return tensors->of[role] != NULL ? tensors->of[role]->data : NULL;
}

tconv_status tconv_plan_run(const tconv_plan *plan, const tconv_tensors *given, void *workspace, size_t workspace_size,
                            void *stream, tconv_issue *issue)
{
    tconv_status status = tconv_plan_check(plan, issue);
    if (status != TCONV_SUCCESS || tconv_operation_writes_nothing(&plan->layer.problem))
        return status;
    tconv_tensors tensors = tconv_tensors_in_use(tconv_operation_of(&plan->layer.problem), given);
    if (plan->packed != NULL)
        tensors.of[TCONV_ROLE_WEIGHTS] = NULL;
    if ((status = check_arguments(plan, &tensors, workspace, workspace_size, issue)))
        return status;

    char *memory = workspace != NULL ? tconv_align_pointer(workspace, alignment_of(plan)) : NULL;
    tconv_arguments arguments = {
        .src = data_of(&tensors, TCONV_ROLE_SRC),
        .packed = plan->packed,
        .bias = data_of(&tensors, TCONV_ROLE_BIAS),
        .dst = data_of(&tensors, TCONV_ROLE_DST),
        .scratch = memory != NULL ? memory + workspace_packed(plan) : NULL,
        .stream = stream,
        .packs = reads_weights(plan) && plan->packed == NULL,
    };
    int64_t start = plan->verbose >= 1 ? tconv_verbose_clock() : 0;
    void *weights = data_of(&tensors, TCONV_ROLE_WEIGHTS);
    if (!reads_weights(plan) || plan->sizes.execute_packs)
        arguments.weights = weights;
    if (reads_weights(plan) && plan->packed == NULL) {
        arguments.packed = memory;
        if (!plan->sizes.execute_packs &&
            (status = plan->implementation->pack(&plan->layer, weights, memory, stream, issue)))
            return status;
    }
    status = plan->implementation->execute(&plan->layer, &arguments, issue);
    if (status == TCONV_SUCCESS && plan->verbose >= 1)
        tconv_verbose_executed(plan, arguments.bias != NULL, tconv_verbose_clock() - start);
    return status;
}

size_t tconv_plan_format(const tconv_plan *plan, char *text, size_t capacity)
{
    const tconv_target *target = &plan->layer.target;
    char problem[TCONV_PROBLEM_TEXT_SIZE], where[64];
    tconv_problem_format(&plan->layer.problem, false, problem, sizeof problem);
    if (target->backend == TCONV_BACKEND_CUDA)
        snprintf(where, sizeof where, "device=%d sm=%d", target->device, target->compute_capability);
    else
        snprintf(where, sizeof where, "threads=%d isa=%s", target->threads, tconv_cpu_isa_name(target->cpu_isa));
    int length = snprintf(text, capacity, "backend=%s impl=%s %s packed=%s workspace=%zu bench=--backend %s %s",
                          tconv_backend_name(target->backend), plan->implementation->name, where,
                          plan->packed != NULL ? "yes" : "no", tconv_plan_workspace(plan),
                          tconv_backend_name(target->backend), problem);
    return length > 0 ? (size_t)length : 0;
}
