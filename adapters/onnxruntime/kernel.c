/*
 * The kernel of a node. Weights that are constant are packed: before the model runs where the shape of the input is known by
 * then, after which ONNX Runtime may free its own copy; else in the second run of a shape, because packing may take longer
 * than a run and many shapes come once, and not at all where the plan reads the weights as they lie. All runs of a shape have
 * one implementation, and so the same bits. Weights that another node computes are packed by every run that needs it.
 */
#include <stdlib.h>
#include <string.h>

#include "plans.h"
#include "provider.h"

/* Bytes of packed weights that the plans of a node may keep, but for the first plan. */
#define MOST_PACKED_BYTES ((int64_t)64 << 20)

struct kernel {
    OrtKernelImpl base; /* first: what ONNX Runtime knows */
    struct tconv_ort_provider *provider;
    struct tconv_ort_layer layer;
    tconv_dtype dtype;
    struct tconv_ort_shape src; /* as it is known before the model runs */
    bool is_packed;             /* ONNX Runtime does not show the weights again */
    bool is_constant;           /* the weights are the same in every run */
    struct tconv_ort_plans plans;
};

static OrtStatus *status_of(const struct ort *ort, const tconv_issue *issue)
{
    return ort->CreateStatus(issue->status == TCONV_ERROR_INVALID_ARGUMENT ? ORT_INVALID_ARGUMENT : ORT_FAIL,
                             issue->message);
}

static OrtStatus *out_of_memory(const struct ort *ort)
{
    return ort->CreateStatus(ORT_FAIL, "out of memory");
}

/* ------------------------------------------------------------------------------------------------------------ threads */

/*
 * The run that the thread is in. A loop needs it and a plan does not know it: a plan serves all runs. tconv starts a loop from the
 * thread that called tconv, never from a task.
 */
static _Thread_local const OrtKernelContext *current_run;

struct loop {
    void (*task)(void *argument, int32_t index);
    void *argument;
};

static void run_task(void *argument, size_t index)
{
    const struct loop *loop = argument;
    loop->task(loop->argument, (int32_t)index);
}

/* Loops on ONNX Runtime's threads; outside of a run, as where weights are packed at first, on the calling one. */
static void parallel_for(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    const struct ort *ort = context;
    struct loop loop = {task, argument};
    if (current_run != NULL && count > 1) {
        OrtStatus *status = ort->KernelContext_ParallelFor(current_run, run_task, (size_t)count, 0, &loop);
        if (status == NULL)
            return;
        ort->ReleaseStatus(status); /* refused before the first task */
    }
    for (int32_t index = 0; index < count; index++)
        task(argument, index);
}

/* -------------------------------------------------------------------------------------------------------------- plans */

/* What a plan is made for. */
struct wish {
    const struct tconv_ort_shape *src, *weights;
    const void *packed;         /* the weights, where they are to be packed; else NULL */
    const char *implementation; /* that of another plan; NULL: the best */
};

/* Creates a plan for a layer. */
static bool create_plan(const struct kernel *kernel, const tconv_desc *desc, const struct wish *wish, tconv_plan **plan,
                        tconv_issue *issue)
{
    const tconv_tensor weights = {(void *)wish->packed, kernel->dtype, TCONV_LOCATION_HOST};
    tconv_plan *unpacked = NULL;
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = kernel->provider->threads;
    options.implementation = wish->implementation;
    options.parallel = (tconv_parallel){parallel_for, (void *)kernel->provider->ort};
    if (tconv_plan_create(desc, &options, &unpacked, issue) != TCONV_SUCCESS)
        return false;
    if (wish->packed == NULL) {
        *plan = unpacked;
        return true;
    }
    const tconv_status outcome = tconv_plan_pack_weights(unpacked, &weights, NULL, plan, issue);
    tconv_plan_destroy(unpacked);
    return outcome == TCONV_SUCCESS;
}

/* The bytes of weights of this shape. */
static int64_t bytes_of(const struct tconv_ort_shape *weights, tconv_dtype dtype)
{
    static const int64_t sizes[] = {[TCONV_F32] = 4, [TCONV_F64] = 8, [TCONV_F16] = 2, [TCONV_BF16] = 2};
    int64_t bytes = sizes[dtype];
    for (int i = 0; i < weights->rank; i++)
        bytes *= weights->dims[i];
    return bytes;
}

/* Makes the plan for shapes. NULL where that fails, with the reason in *status, for which there may be no memory either. */
static struct tconv_ort_plan *make_plan(const struct kernel *kernel, const struct wish *wish, OrtStatus **status)
{
    const struct ort *ort = kernel->provider->ort;
    const struct tconv_ort_shape any = {.rank = -1};
    tconv_issue issue = {.status = TCONV_SUCCESS};
    tconv_desc desc;
    int64_t dst[TCONV_ORT_MAX_RANK];
    bool is_empty = false;
    struct tconv_ort_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        *status = out_of_memory(ort);
        return NULL;
    }
    for (int i = 2; i < wish->src->rank; i++)
        is_empty = is_empty || wish->src->dims[i] == 0;
    if (!tconv_ort_describe(&kernel->layer, kernel->dtype, wish->src, wish->weights, &desc, &issue) ||
        tconv_output_shape3d(&desc, dst, &issue) != TCONV_SUCCESS ||
        (!is_empty && !create_plan(kernel, &desc, wish, &plan->plan, &issue))) {
        free(plan);
        *status = status_of(ort, &issue);
        return NULL;
    }
    if (!is_empty) {
        tconv_plan_workspace_size(plan->plan, &plan->workspace_size);
        /* The workspace of a plan that reads the weights as they lie has no room for packed ones. */
        plan->is_packed = wish->packed != NULL;
        plan->would_pack = kernel->is_constant && !plan->is_packed &&
                           plan->workspace_size >= (size_t)bytes_of(wish->weights, kernel->dtype);
    }
    plan->src = *wish->src;
    plan->weights = kernel->is_constant ? any : *wish->weights;
    memcpy(plan->dst, dst, 2 * sizeof dst[0]);
    memcpy(plan->dst + 2, dst + TCONV_ORT_MAX_RANK - kernel->layer.axes, (size_t)kernel->layer.axes * sizeof dst[0]);
    *status = NULL;
    return plan;
}

/* Makes a plan, adds it to those of the kernel and takes it. NULL where that fails. */
static struct tconv_ort_plan *add_plan(struct kernel *kernel, const struct wish *wish, OrtStatus **status)
{
    struct tconv_ort_plan *plan = make_plan(kernel, wish, status);
    if (plan != NULL)
        tconv_ort_plans_add(&kernel->plans, plan);
    return plan;
}

/* A tensor of a run, or a constant. data is NULL where there is no tensor. */
struct view {
    void *data;
    struct tconv_ort_shape shape;
};

static OrtStatus *look_at(const struct ort *ort, const OrtValue *value, struct view *view)
{
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t rank = 0;
    view->data = NULL;
    view->shape.rank = -1;
    if (value == NULL)
        return NULL;
    OrtStatus *status = ort->GetTensorTypeAndShape(value, &info);
    if (status != NULL)
        return status;
    status = ort->GetDimensionsCount(info, &rank);
    if (status == NULL && rank > TCONV_ORT_MAX_RANK)
        status = ort->CreateStatus(ORT_INVALID_ARGUMENT, "a tensor of more than five dimensions");
    if (status == NULL)
        status = ort->GetDimensions(info, view->shape.dims, rank);
    view->shape.rank = (int)rank;
    ort->ReleaseTensorTypeAndShapeInfo(info);
    return status != NULL ? status : ort->GetTensorMutableData((OrtValue *)value, &view->data);
}

/* Takes the plan for the tensors of a run: made where the shape is new, replaced where it comes again. NULL where that fails. */
static struct tconv_ort_plan *take_plan(struct kernel *kernel, const struct view *src, const struct view *weights,
                                        OrtStatus **status)
{
    const struct tconv_ort_shape any = {.rank = -1};
    struct wish wish = {.src = &src->shape, .weights = &weights->shape};
    struct tconv_ort_plan *known =
        tconv_ort_plans_take(&kernel->plans, &src->shape, kernel->is_constant ? &any : &weights->shape);
    struct tconv_ort_plan *plan = NULL;
    *status = NULL;
    if (known != NULL && !known->would_pack)
        return known;
    if (known != NULL) {
        wish.packed = weights->data;
        wish.implementation = tconv_plan_implementation(known->plan);
    }
    if (weights->data == NULL)
        *status = kernel->provider->ort->CreateStatus(ORT_INVALID_ARGUMENT, "X: has another shape than the model says");
    else
        plan = add_plan(kernel, &wish, status);
    if (known != NULL)
        tconv_ort_plans_give(&kernel->plans, known);
    return plan;
}

/* ------------------------------------------------------------------------------------------------------------ callbacks */

/* Sets every output to the bias of its channel, or 0. */
static void fill(const struct kernel *kernel, const struct tconv_ort_plan *plan, const char *bias, char *output)
{
    const struct tconv_ort_shape one = {.rank = 0};
    const size_t size = (size_t)bytes_of(&one, kernel->dtype);
    int64_t pixels = 1;
    for (int i = 2; i < kernel->layer.axes + 2; i++)
        pixels *= plan->dst[i];
    for (int64_t channel = 0; channel < plan->dst[0] * plan->dst[1]; channel++) {
        for (int64_t pixel = 0; pixel < pixels; pixel++, output += size) {
            if (bias != NULL)
                memcpy(output, bias + (size_t)(channel % plan->dst[1]) * size, size);
            else
                memset(output, 0, size);
        }
    }
}

/* Runs a plan on tensors that fit it. */
static OrtStatus *execute(struct kernel *kernel, const struct tconv_ort_plan *plan, const struct view *src,
                          const struct view *weights, const struct view *bias, void *output)
{
    const tconv_tensor x = {src->data, kernel->dtype, TCONV_LOCATION_HOST};
    const tconv_tensor w = {weights->data, kernel->dtype, TCONV_LOCATION_HOST};
    const tconv_tensor b = {bias->data, kernel->dtype, TCONV_LOCATION_HOST};
    const tconv_tensor y = {output, kernel->dtype, TCONV_LOCATION_HOST};
    struct tconv_ort_workspace *workspace = NULL;
    if (plan->plan == NULL) {
        fill(kernel, plan, bias->data, output);
        return NULL;
    }
    if (plan->workspace_size > 0) {
        workspace = tconv_ort_workspace_take(kernel->provider, plan->workspace_size);
        if (workspace == NULL)
            return out_of_memory(kernel->provider->ort);
    }
    const tconv_status outcome =
        tconv_plan_execute(plan->plan, &x, &w, bias->data != NULL ? &b : NULL, &y,
                           workspace != NULL ? workspace->data : NULL, plan->workspace_size, NULL);
    tconv_ort_workspace_give(kernel->provider, workspace);
    if (outcome == TCONV_SUCCESS)
        return NULL;
    tconv_issue issue;
    tconv_last_issue(&issue);
    return status_of(kernel->provider->ort, &issue);
}

/* Looks at the inputs of a run, but for weights that ONNX Runtime has freed. */
static OrtStatus *read_inputs(const struct kernel *kernel, const OrtKernelContext *context, struct view inputs[3])
{
    const struct ort *ort = kernel->provider->ort;
    size_t count = 0;
    OrtStatus *status = ort->KernelContext_GetInputCount(context, &count);
    for (size_t i = 0; i < 3 && status == NULL; i++) {
        const OrtValue *value = NULL;
        if (i < count && !(i == 1 && kernel->is_packed))
            status = ort->KernelContext_GetInput(context, i, &value);
        if (status == NULL)
            status = look_at(ort, value, &inputs[i]);
    }
    if (status == NULL && inputs[0].shape.rank == -1)
        status = ort->CreateStatus(ORT_INVALID_ARGUMENT, "X: must be a tensor");
    return status;
}

/* Runs a plan on the inputs of a run, whose output it makes. */
static OrtStatus *run_plan(struct kernel *kernel, const struct tconv_ort_plan *plan, OrtKernelContext *context,
                           const struct view inputs[3])
{
    const struct ort *ort = kernel->provider->ort;
    const struct view *bias = &inputs[2];
    OrtValue *output = NULL;
    void *data = NULL;
    if (bias->data != NULL && (bias->shape.rank != 1 || bias->shape.dims[0] != plan->dst[1]))
        return ort->CreateStatus(ORT_INVALID_ARGUMENT, "B: must have one value for each channel of the output");
    OrtStatus *status = ort->KernelContext_GetOutput(context, 0, plan->dst, (size_t)inputs[0].shape.rank, &output);
    if (status == NULL)
        status = ort->GetTensorMutableData(output, &data);
    return status != NULL ? status : execute(kernel, plan, &inputs[0], &inputs[1], bias, data);
}

static OrtStatus *compute(OrtKernelImpl *base, OrtKernelContext *context)
{
    struct kernel *kernel = (struct kernel *)base;
    struct view inputs[3];
    const OrtKernelContext *outer_run = current_run;
    OrtStatus *status = read_inputs(kernel, context, inputs);
    if (status != NULL)
        return status;
    current_run = context;
    struct tconv_ort_plan *plan = take_plan(kernel, &inputs[0], &inputs[1], &status);
    if (plan != NULL) {
        status = run_plan(kernel, plan, context, inputs);
        tconv_ort_plans_give(&kernel->plans, plan);
    }
    current_run = outer_run;
    return status;
}

/* The weights are a constant: packed at once where the shape of src is known. */
static OrtStatus *prepack(OrtKernelImpl *base, const OrtValue *value, int input, OrtAllocator *allocator,
                          OrtSharedPrePackedWeightCache *cache, bool *is_packed)
{
    struct kernel *kernel = (struct kernel *)base;
    const struct ort *ort = kernel->provider->ort;
    struct view weights;
    bool is_static = kernel->src.rank != -1;
    (void)allocator, (void)cache;
    *is_packed = false;
    if (input != 1)
        return NULL;
    OrtStatus *status = look_at(ort, value, &weights);
    if (status != NULL)
        return status;
    if (weights.shape.rank == -1)
        return ort->CreateStatus(ORT_INVALID_ARGUMENT, "W: must be a tensor");
    const int64_t bytes = bytes_of(&weights.shape, kernel->dtype);
    const int64_t most = bytes > 0 ? MOST_PACKED_BYTES / bytes : 1;
    kernel->plans.most_packed = most < 1 ? 1 : most < TCONV_ORT_MOST_PLANS ? (int)most : TCONV_ORT_MOST_PLANS;
    kernel->is_constant = true;
    for (int i = 0; i < kernel->src.rank; i++)
        is_static = is_static && kernel->src.dims[i] >= 0;
    if (!is_static)
        return NULL;
    const struct wish wish = {.src = &kernel->src, .weights = &weights.shape, .packed = weights.data};
    struct tconv_ort_plan *plan = add_plan(kernel, &wish, &status);
    if (plan == NULL)
        return status;
    *is_packed = kernel->is_packed = plan->is_packed;
    tconv_ort_plans_give(&kernel->plans, plan);
    return NULL;
}

static void release(OrtKernelImpl *base)
{
    struct kernel *kernel = (struct kernel *)base;
    if (kernel == NULL)
        return;
    tconv_ort_plans_destroy(&kernel->plans);
    free(kernel);
}

/* Reads the node's attributes, and what is known of its input before the model runs. */
static OrtStatus *read_node(struct kernel *kernel, const OrtKernelInfo *info)
{
    const struct ort *ort = kernel->provider->ort;
    const struct tconv_ort_attributes attributes = {.ort = ort, .info = info};
    tconv_issue issue = {.status = TCONV_SUCCESS};
    struct tconv_ort_shape weights = {.rank = -1};
    tconv_dtype dtype = TCONV_F32;
    bool is_known = false;
    for (size_t input = 0; input < 2; input++) {
        OrtTypeInfo *type = NULL;
        OrtStatus *status = ort->KernelInfo_GetInputTypeInfo(info, input, &type);
        if (status != NULL)
            return status;
        status = tconv_ort_read_type(ort, type, &is_known, input == 0 ? &kernel->dtype : &dtype,
                                     input == 0 ? &kernel->src : &weights);
        ort->ReleaseTypeInfo(type);
        if (status != NULL)
            return status;
    }
    const int rank = kernel->src.rank != -1 ? kernel->src.rank : weights.rank;
    if (!is_known)
        return ort->CreateStatus(ORT_FAIL, "an input of a type that tconv does not have");
    return tconv_ort_read_layer(&attributes, rank, &kernel->layer, &issue) ? NULL : status_of(ort, &issue);
}

OrtStatus *tconv_ort_create_kernel(void *state, const OrtKernelInfo *info, OrtKernelImpl **made)
{
    struct tconv_ort_provider *provider = state;
    struct kernel *kernel = calloc(1, sizeof *kernel);
    *made = NULL;
    if (kernel == NULL)
        return out_of_memory(provider->ort);
    kernel->base =
        (OrtKernelImpl){.version = ORT_ABI_VERSION, .Compute = compute, .Release = release, .PrePackWeight = prepack};
    kernel->provider = provider;
    tconv_ort_plans_init(&kernel->plans);
    OrtStatus *status = read_node(kernel, info);
    if (status != NULL) {
        release(&kernel->base);
        return status;
    }
    *made = &kernel->base;
    return NULL;
}
