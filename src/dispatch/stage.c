/*
 * Stages the tensors of the one-shot call. A tensor that does not lie where the plan runs is copied there first. So is
 * a result that is a slice, because its gaps are the caller's and are copied back with it. The call synchronises only
 * where it copied to or from the host.
 */
#include "stage.h"

#include <string.h>

#include "../core/alloc.h"
#include "../core/status.h"
#include "../cuda/cuda_backend.h"
#include "../cuda/cuda_target.h"
#include "overlap.h"
#include "plan.h"
#include "resolve.h"
#include "tensors.h"

/* The state of one call. */
struct stage {
    const tconv_problem *problem;
    tconv_operation operation;
    tconv_plan *plan;
    tconv_allocator allocator;
    tconv_backend backend; /* where the plan runs */
    int device;            /* the plan's, or that of the tensors where the plan runs on the CPU */
    void *stream;
    tconv_tensors given;               /* as the caller gave them */
    tconv_tensor tensors[TCONV_ROLES]; /* as the plan sees them, where they are given */
    void *copies[TCONV_ROLES];         /* NULL where the caller's tensor is used in place */
    size_t bytes[TCONV_ROLES];
    bool copied;
    void *workspace;
};

/* Allocates memory where the plan runs. */
static tconv_status allocate(const struct stage *stage, size_t size, const char *what, void **memory,
                             tconv_issue *issue)
{
    if (stage->backend == TCONV_BACKEND_CUDA)
        return tconv_cuda_allocate_async(stage->device, size, stage->stream, memory, issue);
    return tconv_allocate_for(&stage->allocator, size, what, memory, issue);
}

static void release(const struct stage *stage, void *memory)
{
    if (memory == NULL)
        return;
    if (stage->backend == TCONV_BACKEND_CUDA)
        tconv_cuda_release_async(stage->device, memory, stage->stream);
    else
        tconv_release(&stage->allocator, memory);
}

/* Gives one tensor a copy where the plan runs. The copy is filled unless the operation writes all of it and reads none. */
static tconv_status stage_tensor(struct stage *stage, tconv_role role, tconv_location wanted, tconv_issue *issue)
{
    tconv_status status = allocate(stage, stage->bytes[role], tconv_role_name(stage->problem->desc.op, role),
                                   &stage->copies[role], issue);
    if (status != TCONV_SUCCESS)
        return status;
    stage->copied = true;
    stage->tensors[role].data = stage->copies[role];
    stage->tensors[role].location = wanted;
    if (tconv_is_in(stage->operation.writes, role) && !stage->problem->desc.accumulate &&
        !tconv_role_has_gaps(stage->problem, role))
        return TCONV_SUCCESS;
    return tconv_cuda_copy(stage->device, stage->copies[role], stage->given.of[role]->data, stage->bytes[role],
                           stage->stream, issue);
}

/* Copies the tensors that the plan cannot reach to where it runs. */
static tconv_status copy_in(struct stage *stage, tconv_issue *issue)
{
    const tconv_location wanted = stage->backend == TCONV_BACKEND_CUDA ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    for (int role = 0; role < TCONV_ROLES; role++) {
        const tconv_tensor *given = stage->given.of[role];
        int device;
        bool anywhere;
        tconv_status status;
        if (given == NULL)
            continue;
        stage->tensors[role] = *given;
        if (tconv_tensor_locate(given, &device, &anywhere) == wanted || anywhere)
            continue; /* the plan itself checks the device */
        if ((status = stage_tensor(stage, (tconv_role)role, wanted, issue)))
            return status;
    }
    /* the CPU must not read before the stream has copied from the device */
    return stage->copied && stage->backend == TCONV_BACKEND_CPU
               ? tconv_cuda_synchronize(stage->device, stage->stream, issue)
               : TCONV_SUCCESS;
}

/* Copies the results from the staged copies to the caller's tensors. */
static tconv_status copy_out(const struct stage *stage, tconv_issue *issue)
{
    for (int role = 0; role < TCONV_ROLES; role++) {
        tconv_status status;
        if (tconv_is_in(stage->operation.writes, (tconv_role)role) && stage->copies[role] != NULL &&
            (status = tconv_cuda_copy(stage->device, stage->given.of[role]->data, stage->copies[role],
                                      stage->bytes[role], stage->stream, issue)))
            return status;
    }
    return TCONV_SUCCESS;
}

static tconv_status run(struct stage *stage, tconv_issue *issue)
{
    tconv_status status;
    tconv_tensors tensors;
    size_t size = tconv_plan_workspace(stage->plan);
    if ((status = copy_in(stage, issue)))
        return status;
    for (int role = 0; role < TCONV_ROLES; role++)
        tensors.of[role] = stage->given.of[role] != NULL ? &stage->tensors[role] : NULL;
    if (size > 0 && (status = allocate(stage, size, "workspace", &stage->workspace, issue)))
        return status;
    if ((status = tconv_plan_run(stage->plan, &tensors, stage->workspace, size, stage->stream, issue)))
        return status;
    return copy_out(stage, issue);
}

/* Waits until the stream has finished copying, then frees everything. A failure of the wait counts only after a
 * success. */
static tconv_status finish(struct stage *stage, tconv_status status, tconv_issue *issue)
{
    if (stage->copied) {
        tconv_issue late = {TCONV_SUCCESS, "", ""};
        if (tconv_cuda_synchronize(stage->device, stage->stream, &late) != TCONV_SUCCESS && status == TCONV_SUCCESS) {
            status = late.status;
            *issue = late;
        }
    }
    for (int role = 0; role < TCONV_ROLES; role++)
        release(stage, stage->copies[role]);
    release(stage, stage->workspace);
    tconv_plan_free(stage->plan);
    return status;
}

/* Checks the tensors. Finds the location of the first that is read, and the CUDA device that they are on: -1 where all
 * are on the host. */
static tconv_status look_at_tensors(struct stage *stage, tconv_location *read_location, tconv_issue *issue)
{
    const tconv_problem *problem = stage->problem;
    const unsigned due = tconv_tensors_due(problem, &stage->given);
    bool found = false;
    tconv_status status;
    for (int role = 0; role < TCONV_ROLES; role++) {
        const tconv_tensor *given = stage->given.of[role];
        int device = -1;
        bool anywhere;
        if (!tconv_is_in(due, (tconv_role)role))
            continue;
        if ((status = tconv_tensor_check(given, (tconv_role)role, problem, issue)))
            return status;
        stage->bytes[role] = (size_t)tconv_role_extent(problem, (tconv_role)role) *
                             tconv_dtype_size(tconv_role_dtype(problem, (tconv_role)role));
        tconv_location location = tconv_tensor_locate(given, &device, &anywhere);
        if (location == TCONV_LOCATION_CUDA && device < 0) /* the caller gave the location, but not the device */
            tconv_cuda_locate(given->data, &device, &anywhere);
        if (!found && tconv_is_in(stage->operation.reads, (tconv_role)role)) {
            found = true;
            *read_location = location;
        }
        if (stage->device < 0)
            stage->device = device;
    }
    const tconv_memory_in_use memory = {stage->given, NULL, 0};
    return tconv_overlap_check(problem, &memory, issue);
}

/* Resolves the backend and the device, and makes the plan. */
static tconv_status make_plan(struct stage *stage, const tconv_desc *desc, tconv_options *options,
                              tconv_location read_location, tconv_issue *issue)
{
    tconv_config config;
    tconv_status status = tconv_backend_named(stage->problem->desc.op, options, &config, &stage->backend, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (stage->backend == TCONV_BACKEND_AUTO) {
        tconv_location location = options->location != TCONV_LOCATION_AUTO ? options->location : read_location;
        stage->backend = location == TCONV_LOCATION_CUDA ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;
    }
    options->backend = stage->backend;
    if (options->device < 0)
        options->device = stage->device;
    if ((status = tconv_plan_make(desc, options, &stage->plan, issue)))
        return status;
    if (stage->backend == TCONV_BACKEND_CUDA)
        stage->device = tconv_cuda_target_of(&stage->plan->layer.target).device;
    return TCONV_SUCCESS;
}

tconv_status tconv_stage_and_run(const tconv_desc *desc, const tconv_options *options, const tconv_tensors *tensors,
                                 tconv_issue *issue)
{
    struct stage stage;
    tconv_problem problem;
    tconv_options known;
    tconv_location read_location = TCONV_LOCATION_HOST;
    tconv_status status;
    if ((status = tconv_problem_init(&problem, desc, issue)) ||
        (status = tconv_plan_check_no_stream(&problem, issue)) || (status = tconv_operation_check(&problem, issue)) ||
        (status = tconv_options_read(&known, options, issue)))
        return status;
    memset(&stage, 0, sizeof stage);
    stage.problem = &problem;
    stage.operation = tconv_operation_of(&problem);
    stage.allocator = known.allocator;
    stage.device = -1;
    stage.stream = known.stream;
    stage.given = tconv_tensors_in_use(&problem, tensors);
    const bool works = !tconv_operation_writes_nothing(&problem);
    if (works && (status = look_at_tensors(&stage, &read_location, issue)))
        return status;
    status = make_plan(&stage, desc, &known, read_location, issue);
    if (status == TCONV_SUCCESS && works)
        status = run(&stage, issue);
    return finish(&stage, status, issue);
}
