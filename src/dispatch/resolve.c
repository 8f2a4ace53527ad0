/* What a plan is made for: options and environment as one, the backend, and the machine. */
#include "resolve.h"

#include <string.h>

#include "../core/checked.h"
#include "../core/status.h"
#include "../cpu/cpu_backend.h"
#include "../cpu/cpu_target.h"
#include "../cuda/cuda_backend.h"
#include "../cuda/model/machine.h"
#include "impl_list.h"

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
        {"cpu_isa", "default (0), generic (1), avx2 (2), avx512 (3), neon (4), avx512_bf16 (5) or amx (6)",
         (int)known->cpu_isa, 0, TCONV_CPU_ISA_AMX},
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

tconv_status tconv_implementation_named(tconv_op op, const tconv_options *options,
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
    if ((status = tconv_implementation_named(op, options, &implementation, issue)) ||
        (status = tconv_config_get(config, issue)))
        return status;
    *backend = options->backend;
    if (*backend == TCONV_BACKEND_AUTO && implementation != NULL)
        *backend = implementation->backend;
    if (*backend == TCONV_BACKEND_AUTO)
        *backend = config->backend;
    return TCONV_SUCCESS;
}

/* Finds a GPU that the cost model knows, in every build: kernels are not needed to plan. */
static tconv_status resolve_machine(const char *machine, tconv_target *target, tconv_issue *issue)
{
    if (target->backend != TCONV_BACKEND_CUDA || !tconv_cuda_resolve_named(machine, target))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "device",
                          "device = %.60s: must be one of %s, with backend cuda", machine, tconv_cuda_machine_names());
    return TCONV_SUCCESS;
}

tconv_status tconv_target_resolve(const tconv_options *options, const char *machine, tconv_layer *layer,
                                  tconv_config *config, tconv_issue *issue)
{
    tconv_target *target = &layer->target;
    tconv_desc *desc = &layer->problem.desc;
    tconv_status status;
    if ((status = tconv_backend_named(desc->op, options, config, &target->backend, issue)))
        return status;
    if (target->backend == TCONV_BACKEND_AUTO)
        target->backend = options->location == TCONV_LOCATION_CUDA ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;

    if (desc->math == TCONV_MATH_DEFAULT)
        desc->math = config->math == TCONV_MATH_DEFAULT ? TCONV_MATH_STRICT : config->math;
    target->math = desc->math;

    if (machine != NULL)
        return resolve_machine(machine, target, issue);
    if (target->backend == TCONV_BACKEND_CUDA) {
        if ((status = tconv_cuda_available(issue)))
            return status;
        return tconv_cuda_resolve(options->device, target, issue);
    }
    int threads = options->threads != 0 ? options->threads : config->threads;
    status = tconv_cpu_resolve(threads, options->cpu_isa != TCONV_CPU_ISA_DEFAULT ? options->cpu_isa : config->cpu_isa,
                               config->cpu_tuning, target, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_cpu_target cpu = tconv_cpu_target_of(target);
    cpu.parallel = options->parallel;
    if (options->parallel.parallel_for != NULL && threads != 0) /* not limited by the machine: they are the caller's */
        cpu.threads = (int)tconv_min(threads, TCONV_CPU_MAX_THREADS);
    tconv_cpu_target_set(target, cpu);
    return TCONV_SUCCESS;
}

tconv_status tconv_layer_create_phases(tconv_layer *layer, const tconv_allocator *allocator, tconv_issue *issue)
{
    const tconv_status status = tconv_phases_create(&layer->problem.h, allocator, &layer->rows, issue);
    return status == TCONV_SUCCESS ? tconv_phases_create(&layer->problem.w, allocator, &layer->columns, issue) : status;
}

void tconv_layer_release_phases(tconv_layer *layer, const tconv_allocator *allocator)
{
    tconv_phases_release(&layer->rows, allocator);
    tconv_phases_release(&layer->columns, allocator);
}
