#include "bare_layer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/core/alloc.h"
#include "../../src/cpu/cpu_backend.h"
#include "../../src/cpu/cpu_target.h"
#include "harness.h"

static const tconv_allocator from_malloc;

bool bare_layer_make(tconv_layer *layer, const char *problem, tconv_dtype dtype, tconv_layout layout,
                     const struct bare_target *target)
{
    harness_layer parsed;
    char message[128];
    tconv_issue issue;
    cr_assert(harness_problem_parse(problem, &parsed, message, sizeof message), "%s", message);
    memset(layer, 0, sizeof *layer);
    parsed.desc.layout = layout;
    parsed.desc.dtype = dtype;
    parsed.desc.weight_layout = target->weights;
    cr_assert_eq(tconv_problem_init(&layer->problem, &parsed.desc, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert_eq(tconv_phases_create(&layer->problem.h, &from_malloc, &layer->rows, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_phases_create(&layer->problem.w, &from_malloc, &layer->columns, &issue), TCONV_SUCCESS);
    cr_assert_gt(target->threads, 0);
    cr_assert_eq(tconv_cpu_resolve(1, target->isa, TCONV_CPU_TUNING_COMMON, &layer->target, &issue), TCONV_SUCCESS);
    layer->target.backend = TCONV_BACKEND_CPU;
    tconv_cpu_target machine = tconv_cpu_target_of(&layer->target);
    machine.threads = target->threads;
    machine.l1_bytes = BARE_L1_BYTES;
    machine.l2_bytes = target->cache > 0 ? target->cache : BARE_L2_BYTES;
    machine.l3_bytes = BARE_L3_BYTES;
    tconv_cpu_target_set(&layer->target, machine);
    return parsed.has_bias;
}

tconv_status bare_layer_plan(const tconv_layer *layer, const tconv_implementation *implementation, void **made,
                             tconv_memory_sizes *sizes, tconv_issue *issue)
{
    tconv_planned planned = {.named = true};
    cr_assert_not_null(*made = calloc(1, implementation->plan_bytes));
    const tconv_status status = implementation->plan(layer, *made, &planned, issue);
    *sizes = planned.sizes;
    if (status != TCONV_SUCCESS) {
        free(*made);
        *made = NULL;
    }
    return status;
}

bool bare_layer_is_taken(const tconv_layer *layer, const tconv_implementation *implementation, tconv_issue *issue)
{
    tconv_memory_sizes sizes;
    void *made;
    const bool taken = bare_layer_plan(layer, implementation, &made, &sizes, issue) == TCONV_SUCCESS;
    free(made);
    return taken;
}

void bare_layer_release(tconv_layer *layer)
{
    tconv_phases_release(&layer->rows, &from_malloc);
    tconv_phases_release(&layer->columns, &from_malloc);
}

void bare_layer_run(const tconv_layer *layer, const tconv_implementation *implementation,
                    const struct bare_tensors *tensors)
{
    tconv_memory_sizes sizes;
    tconv_issue issue;
    void *made;
    cr_assert_eq(bare_layer_plan(layer, implementation, &made, &sizes, &issue), TCONV_SUCCESS);
    void *packed = aligned_alloc(TCONV_ALIGNMENT, tconv_align_up(sizes.packed + 1, TCONV_ALIGNMENT));
    void *scratch = aligned_alloc(TCONV_ALIGNMENT, tconv_align_up(sizes.scratch + 1, TCONV_ALIGNMENT));
    cr_assert(packed != NULL && scratch != NULL);
    memset(packed, 0xff, sizes.packed);
    memset(scratch, 0xff, sizes.scratch);
    const bool packs = implementation->pack != NULL;
    if (packs)
        cr_assert_eq(implementation->pack(layer, made, tensors->weights, packed, NULL, &issue), TCONV_SUCCESS);
    const tconv_arguments arguments = {.src = tensors->src,
                                       .packed = packed,
                                       .bias = tensors->bias,
                                       .dst = tensors->dst,
                                       .scratch = scratch,
                                       .weights = packs ? NULL : tensors->weights};
    cr_assert_eq(implementation->execute(layer, made, &arguments, &issue), TCONV_SUCCESS);
    free(packed);
    free(scratch);
    free(made);
}
