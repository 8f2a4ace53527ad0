/*
 * A tensor that lies elsewhere than the plan runs is copied there first; dst also beforehand, because a slice's gaps are
 * the caller's and come back with it. The call synchronises only where it copied to or from the host.
 */
#include "stage.h"

#include <string.h>

#include "../core/alloc.h"
#include "../core/status.h"
#include "../cuda/cuda_backend.h"
#include "overlap.h"
#include "plan.h"
#include "tensors.h"

enum { SRC, WEIGHTS, BIAS, DST, TENSORS };

static const char *const tensor_names[TENSORS] = {"src", "weights", "bias", "dst"};

/* The state of one call. */
struct stage {
    tconv_plan *plan;
    tconv_allocator allocator;
    tconv_backend backend; /* where the plan runs */
    int device;            /* of the plan, or of the tensors where the plan runs on the CPU */
    void *stream;
    const tconv_tensor *given[TENSORS]; /* as the caller gave them; NULL for no bias */
    tconv_tensor tensors[TENSORS];      /* as the plan sees them */
    void *copies[TENSORS];              /* NULL where the caller's is used as it is */
    size_t bytes[TENSORS];
    bool has_gaps; /* dst is a slice: what lies between its elements is the caller's */
    bool copied;
    void *workspace;
};

/* Memory where the plan runs. */
static tconv_status allocate(const struct stage *stage, size_t size, const char *what, void **memory,
                             tconv_issue *issue)
{
    if (stage->backend == TCONV_BACKEND_CUDA)
        return tconv_cuda_allocate_async(stage->device, size, stage->stream, memory, issue);
    *memory = tconv_allocate(&stage->allocator, size);
    if (*memory == NULL)
        return tconv_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "allocator", "no memory for %zu bytes of %s", size, what);
    return TCONV_SUCCESS;
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

/* Gives one tensor a copy where the plan runs, filled unless all of it will be written. */
static tconv_status stage_tensor(struct stage *stage, int i, tconv_location wanted, tconv_issue *issue)
{
    tconv_status status = allocate(stage, stage->bytes[i], tensor_names[i], &stage->copies[i], issue);
    if (status != TCONV_SUCCESS)
        return status;
    stage->copied = true;
    stage->tensors[i].data = stage->copies[i];
    stage->tensors[i].location = wanted;
    if (i == DST && !stage->has_gaps)
        return TCONV_SUCCESS;
    return tconv_cuda_copy(stage->device, stage->copies[i], stage->given[i]->data, stage->bytes[i], stage->stream,
                           issue);
}

/* Brings the tensors that the plan cannot reach to where it runs. */
static tconv_status copy_in(struct stage *stage, tconv_issue *issue)
{
    const tconv_location wanted = stage->backend == TCONV_BACKEND_CUDA ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    for (int i = 0; i < TENSORS; i++) {
        int device;
        bool anywhere;
        tconv_status status;
        if (stage->given[i] == NULL)
            continue;
        stage->tensors[i] = *stage->given[i];
        if (tconv_tensor_locate(stage->given[i], &device, &anywhere) == wanted || anywhere)
            continue; /* the plan itself checks the device */
        if ((status = stage_tensor(stage, i, wanted, issue)))
            return status;
    }
    /* the CPU reads what the stream copies from the device */
    return stage->copied && stage->backend == TCONV_BACKEND_CPU
               ? tconv_cuda_synchronize(stage->device, stage->stream, issue)
               : TCONV_SUCCESS;
}

static tconv_status run(struct stage *stage, tconv_issue *issue)
{
    tconv_status status;
    size_t size = tconv_plan_workspace(stage->plan);
    if ((status = copy_in(stage, issue)))
        return status;
    if (size > 0 && (status = allocate(stage, size, "workspace", &stage->workspace, issue)))
        return status;
    if ((status = tconv_plan_run(stage->plan, &stage->tensors[SRC], &stage->tensors[WEIGHTS],
                                 stage->given[BIAS] != NULL ? &stage->tensors[BIAS] : NULL, &stage->tensors[DST],
                                 stage->workspace, size, stage->stream, issue)))
        return status;
    if (stage->copies[DST] == NULL)
        return TCONV_SUCCESS;
    return tconv_cuda_copy(stage->device, stage->given[DST]->data, stage->copies[DST], stage->bytes[DST], stage->stream,
                           issue);
}

/* Waits for what the stream still copies, then frees everything. A failure of the wait counts only after a success. */
static tconv_status finish(struct stage *stage, tconv_status status, tconv_issue *issue)
{
    if (stage->copied) {
        tconv_issue late = {TCONV_SUCCESS, "", ""};
        if (tconv_cuda_synchronize(stage->device, stage->stream, &late) != TCONV_SUCCESS && status == TCONV_SUCCESS) {
            status = late.status;
            *issue = late;
        }
    }
    for (int i = 0; i < TENSORS; i++)
        release(stage, stage->copies[i]);
    release(stage, stage->workspace);
    tconv_plan_free(stage->plan);
    return status;
}

/* Checks the tensors, finds the location of src and the CUDA device that they are on: -1 where all are on the host. */
static tconv_status look_at_tensors(struct stage *stage, const tconv_problem *problem, tconv_location *src_location,
                                    tconv_issue *issue)
{
    const int64_t elements[TENSORS] = {problem->src_extent, problem->weight_extent, problem->out_channels,
                                       problem->dst_extent};
    for (int i = 0; i < TENSORS; i++) {
        int device = -1;
        bool anywhere;
        tconv_status status;
        if (i == BIAS && stage->given[i] == NULL)
            continue;
        if ((status = tconv_tensor_check(stage->given[i], tensor_names[i], problem, issue)))
            return status;
        stage->bytes[i] = (size_t)elements[i] * problem->element_size;
        tconv_location location = tconv_tensor_locate(stage->given[i], &device, &anywhere);
        if (location == TCONV_LOCATION_CUDA && device < 0) /* the caller said where, but not on which device */
            tconv_cuda_locate(stage->given[i]->data, &device, &anywhere);
        if (i == SRC)
            *src_location = location;
        if (stage->device < 0)
            stage->device = device;
    }
    const tconv_memory_in_use memory = {
        stage->given[SRC], stage->given[WEIGHTS], stage->given[BIAS], stage->given[DST], NULL, 0};
    tconv_status status = tconv_overlap_check(problem, &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    stage->has_gaps = problem->dst_extent != problem->batch * problem->out_channels * problem->h.out * problem->w.out;
    return TCONV_SUCCESS;
}

/* Settles the backend and the device, and makes the plan. */
static tconv_status make_plan(struct stage *stage, const tconv_desc *desc, tconv_options *options,
                              tconv_location src_location, tconv_issue *issue)
{
    tconv_config config;
    tconv_status status = tconv_backend_named(options, &config, &stage->backend, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (stage->backend == TCONV_BACKEND_AUTO) {
        tconv_location location = options->location != TCONV_LOCATION_AUTO ? options->location : src_location;
        stage->backend = location == TCONV_LOCATION_CUDA ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;
    }
    options->backend = stage->backend;
    if (options->device < 0)
        options->device = stage->device;
    if ((status = tconv_plan_make(desc, options, &stage->plan, issue)))
        return status;
    if (stage->backend == TCONV_BACKEND_CUDA)
        stage->device = stage->plan->layer.target.device;
    return TCONV_SUCCESS;
}

tconv_status tconv_stage_and_run(const tconv_desc *desc, const tconv_options *options, const tconv_call *call,
                                 tconv_issue *issue)
{
    struct stage stage;
    tconv_problem problem;
    tconv_options known;
    tconv_location src_location = TCONV_LOCATION_HOST;
    tconv_status status;
    if ((status = tconv_problem_init(&problem, desc, issue)) || (status = tconv_options_read(&known, options, issue)))
        return status;
    memset(&stage, 0, sizeof stage);
    stage.allocator = known.allocator;
    stage.device = -1;
    stage.stream = known.stream;
    stage.given[SRC] = call->src;
    stage.given[WEIGHTS] = call->weights;
    stage.given[BIAS] = call->bias;
    stage.given[DST] = call->dst;
    if (problem.batch > 0 && (status = look_at_tensors(&stage, &problem, &src_location, issue)))
        return status;
    status = make_plan(&stage, desc, &known, src_location, issue);
    if (status == TCONV_SUCCESS && problem.batch > 0)
        status = run(&stage, issue);
    return finish(&stage, status, issue);
}
