/*
 * The provider of a session: which nodes it takes, the registry of its kernels, and workspaces.
 */
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_INPUTS 3 /* X, W and B */

/*
 * Layers of at most so many input pixels, of all images together, and so many bytes of weights or more take as long as their
 * weights take to be read. There ONNX Runtime's matrix product gains more from a second thread: on two cores of a Zen 4
 * layers of 16 and 32 pixels took 1.5 and 1.2 times as long with tconv, one of 48 pixels took .8 times as long.
 */
#define FEW_PIXELS         32
#define MANY_WEIGHTS_BYTES ((int64_t)4 << 20)

/* Stands for a number of rows or columns that is not known before the model runs: large enough for any padding. */
#define ANY_EXTENT 65536

/* -------------------------------------------------------------------------------------------------------------- types */

OrtStatus *tconv_ort_read_type(const struct ort *ort, const OrtTypeInfo *info, bool *is_known, tconv_dtype *dtype,
                               struct tconv_ort_shape *shape)
{
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    int type = 0;
    size_t rank = 0;
    *is_known = false;
    shape->rank = -1;
    OrtStatus *status = ort->CastTypeInfoToTensorInfo(info, &tensor);
    if (status != NULL || tensor == NULL)
        return status;
    if ((status = ort->GetTensorElementType(tensor, &type)) != NULL ||
        (status = ort->GetDimensionsCount(tensor, &rank)) != NULL)
        return status;
    *is_known = tconv_ort_dtype(type, dtype);
    if (rank == 0) /* a tensor of unknown rank; a scalar is nothing that a node takes */
        return NULL;
    shape->rank = rank <= TCONV_ORT_MAX_RANK ? (int)rank : TCONV_ORT_MAX_RANK + 1;
    return rank <= TCONV_ORT_MAX_RANK ? ort->GetDimensions(tensor, shape->dims, rank) : NULL;
}

/* --------------------------------------------------------------------------------------------------------- capability */

/* A node ConvTranspose as a graph has it. */
struct candidate {
    struct tconv_ort_attributes attributes;
    tconv_dtype dtype;
    struct tconv_ort_shape src, weights;
};

/* Reads a node; *reason says what is wrong with its inputs, where something is. */
static OrtStatus *read_candidate(const struct ort *ort, const OrtNode *node, struct candidate *candidate,
                                 const char **reason)
{
    const OrtValueInfo *inputs[MOST_INPUTS] = {NULL};
    const OrtTypeInfo *type = NULL;
    struct tconv_ort_shape *const shapes[2] = {&candidate->src, &candidate->weights};
    size_t count = 0;
    *reason = NULL;
    candidate->attributes = (struct tconv_ort_attributes){.ort = ort, .node = node};
    OrtStatus *status = ort->Node_GetNumInputs(node, &count);
    if (status == NULL && (count < 2 || count > MOST_INPUTS))
        *reason = "a node with another number of inputs than X, W and B";
    if (status != NULL || *reason != NULL || (status = ort->Node_GetInputs(node, inputs, count)) != NULL)
        return status;
    for (int i = 0; i < 2 && *reason == NULL; i++) {
        bool is_known = false;
        if (inputs[i] == NULL || (status = ort->GetValueInfoTypeInfo(inputs[i], &type)) != NULL || type == NULL ||
            (status = tconv_ort_read_type(ort, type, &is_known, &candidate->dtype, shapes[i])) != NULL || !is_known)
            *reason = "an input of a type that tconv does not have";
    }
    return status;
}

/* Sets what is not known of the shapes to what any model may have, and says whether rows, columns and kernel are known. */
static bool complete(const struct tconv_ort_layer *layer, struct candidate *candidate)
{
    struct tconv_ort_shape *src = &candidate->src, *weights = &candidate->weights;
    const int rank = layer->axes + 2;
    bool known = true;
    for (int i = 0; i < rank; i++) {
        if (src->rank == -1)
            src->dims[i] = -1;
        if (weights->rank == -1)
            weights->dims[i] = -1;
    }
    src->rank = src->rank == -1 ? rank : src->rank;
    weights->rank = weights->rank == -1 ? rank : weights->rank;
    if (src->dims[0] < 0)
        src->dims[0] = 1;
    if (weights->dims[1] < 0)
        weights->dims[1] = 1;
    if (src->dims[1] < 0)
        src->dims[1] = weights->dims[0] < 0 ? layer->groups : weights->dims[0];
    if (weights->dims[0] < 0)
        weights->dims[0] = src->dims[1];
    for (int i = 2; i < rank; i++) {
        const int axis = i - layer->axes;
        if (src->dims[i] < 0) {
            src->dims[i] = ANY_EXTENT;
            known = known && layer->padding != TCONV_ORT_OUTPUT_SHAPE;
        }
        if (weights->dims[i] < 0) {
            weights->dims[i] = layer->kernel[axis] != 0 ? layer->kernel[axis] : 1;
            known = known && (layer->kernel[axis] != 0 || layer->padding == TCONV_ORT_EXPLICIT);
        }
    }
    return known;
}

/* Whether the layer is known to be of FEW_PIXELS and MANY_WEIGHTS_BYTES. */
static bool is_few_pixels(const struct candidate *candidate)
{
    int64_t pixels = 1, bytes = 4;
    if (candidate->dtype != TCONV_F32 || candidate->src.rank < 3 || candidate->weights.rank != candidate->src.rank)
        return false;
    for (int i = 0; i < candidate->src.rank; i++) {
        const int64_t extent = i == 1 ? 1 : candidate->src.dims[i];
        if (extent < 0 || candidate->weights.dims[i] < 0 || pixels > FEW_PIXELS)
            return false;
        pixels *= extent;
        bytes = bytes < MANY_WEIGHTS_BYTES ? bytes * candidate->weights.dims[i] : bytes;
    }
    return pixels <= FEW_PIXELS && bytes >= MANY_WEIGHTS_BYTES;
}

/* Whether tconv takes the layer, whatever of its shapes is still unknown; else the issue has the reason. */
static bool takes(struct candidate *candidate, tconv_issue *issue)
{
    struct tconv_ort_layer layer;
    tconv_desc desc;
    const int rank = candidate->src.rank != -1 ? candidate->src.rank : candidate->weights.rank;
    if (!tconv_ort_read_layer(&candidate->attributes, rank, &layer, issue))
        return false;
    if (is_few_pixels(candidate)) {
        snprintf(issue->message, sizeof issue->message,
                 "few pixels and many weights: ONNX Runtime is as fast or faster");
        return false;
    }
    if (!complete(&layer, candidate)) {
        snprintf(issue->message, sizeof issue->message,
                 "auto_pad or output_shape: need shapes that are known before the model runs");
        return false;
    }
    return tconv_ort_describe(&layer, candidate->dtype, &candidate->src, &candidate->weights, &desc, issue);
}

/* Takes a node, or leaves it to ONNX Runtime and says why. */
static OrtStatus *consider(const struct tconv_ort_provider *provider, const OrtNode *node,
                           OrtEpGraphSupportInfo *support)
{
    const struct ort *ort = provider->ort;
    const OrtKernelDef *definition = NULL;
    const char *name = NULL, *reason = NULL;
    struct candidate candidate = {.dtype = TCONV_F32};
    tconv_issue issue = {.status = TCONV_SUCCESS};
    OrtStatus *status = read_candidate(ort, node, &candidate, &reason);
    if (status == NULL && reason == NULL && !takes(&candidate, &issue))
        reason = issue.message;
    if (status == NULL && reason == NULL) {
        status = ort->EpGraphSupportInfo_LookUpKernel(support, node, &definition);
        if (status == NULL && definition == NULL)
            reason = "a version of the operator that tconv does not know, or another provider has the node";
    }
    if (status == NULL && reason == NULL)
        status = ort->EpGraphSupportInfo_AddSingleNode(support, node);
    if (status != NULL || !provider->verbose)
        return status;
    status = ort->Node_GetName(node, &name);
    if (status == NULL)
        fprintf(stderr, "tconv,onnxruntime,node=%s,%s%s\n", name != NULL ? name : "",
                reason == NULL ? "taken" : "left to ONNX Runtime: ", reason == NULL ? "" : reason);
    return status;
}

static OrtStatus *get_capability(OrtEp *base, const OrtGraph *graph, OrtEpGraphSupportInfo *support)
{
    const struct tconv_ort_provider *provider = (const struct tconv_ort_provider *)base;
    const struct ort *ort = provider->ort;
    const char *type = NULL, *domain = NULL;
    size_t count = 0;
    OrtStatus *status = ort->Graph_GetNumNodes(graph, &count);
    if (status != NULL || count == 0)
        return status;
    const OrtNode **nodes = calloc(count, sizeof(const OrtNode *));
    if (nodes == NULL)
        return ort->CreateStatus(ORT_FAIL, "out of memory");
    status = ort->Graph_GetNodes(graph, nodes, count);
    for (size_t i = 0; i < count && status == NULL; i++) {
        if ((status = ort->Node_GetOperatorType(nodes[i], &type)) != NULL ||
            (status = ort->Node_GetDomain(nodes[i], &domain)) != NULL)
            break;
        if (type != NULL && strcmp(type, "ConvTranspose") == 0 &&
            (domain == NULL || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0))
            status = consider(provider, nodes[i], support);
    }
    free(nodes);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- registry */

/* The versions of the operator and the types that they have for T. */
static const struct {
    int first, last;
    int types[4];
    size_t type_count;
} definitions[] = {{1, 10, {ORT_FLOAT, ORT_DOUBLE, ORT_FLOAT16}, 3},
                   {11, 21, {ORT_FLOAT, ORT_DOUBLE, ORT_FLOAT16}, 3},
                   {22, INT32_MAX, {ORT_FLOAT, ORT_DOUBLE, ORT_FLOAT16, ORT_BFLOAT16}, 4}};

static OrtStatus *set_definition(const struct ort *ort, size_t index, OrtKernelDefBuilder *builder)
{
    const OrtDataType *types[4] = {NULL};
    OrtStatus *status = ort->KernelDefBuilder_SetOperatorType(builder, "ConvTranspose");
    if (status == NULL)
        status = ort->KernelDefBuilder_SetDomain(builder, "");
    if (status == NULL)
        status = ort->KernelDefBuilder_SetSinceVersion(builder, definitions[index].first, definitions[index].last);
    if (status == NULL)
        status = ort->KernelDefBuilder_SetExecutionProvider(builder, TCONV_ORT_PROVIDER_NAME);
    for (size_t i = 0; i < definitions[index].type_count && status == NULL; i++)
        status = ort->GetTensorDataType(definitions[index].types[i], &types[i]);
    if (status == NULL)
        status = ort->KernelDefBuilder_AddTypeConstraint(builder, "T", types, definitions[index].type_count);
    return status;
}

static OrtStatus *add_kernel(struct tconv_ort_provider *provider, size_t index)
{
    const struct ort *ort = provider->ort;
    OrtKernelDefBuilder *builder = NULL;
    OrtKernelDef *definition = NULL;
    OrtStatus *status = ort->CreateKernelDefBuilder(&builder);
    if (status != NULL)
        return status;
    status = set_definition(ort, index, builder);
    if (status == NULL)
        status = ort->KernelDefBuilder_Build(builder, &definition);
    if (status == NULL)
        status = ort->KernelRegistry_AddKernel(provider->registry, definition, tconv_ort_create_kernel, provider);
    if (definition != NULL)
        ort->ReleaseKernelDef(definition);
    ort->ReleaseKernelDefBuilder(builder);
    return status;
}

static OrtStatus *make_registry(struct tconv_ort_provider *provider)
{
    OrtStatus *status = provider->ort->CreateKernelRegistry(&provider->registry);
    for (size_t i = 0; i < sizeof definitions / sizeof definitions[0] && status == NULL; i++)
        status = add_kernel(provider, i);
    return status;
}

static OrtStatus *get_kernel_registry(OrtEp *base, const OrtKernelRegistry **registry)
{
    *registry = ((const struct tconv_ort_provider *)base)->registry;
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- workspaces */

struct tconv_ort_workspace *tconv_ort_workspace_take(struct tconv_ort_provider *provider, size_t size)
{
    pthread_mutex_lock(&provider->lock);
    struct tconv_ort_workspace *workspace = provider->workspaces;
    if (workspace != NULL)
        provider->workspaces = workspace->next;
    pthread_mutex_unlock(&provider->lock);
    if (workspace != NULL && workspace->size >= size)
        return workspace;
    free(workspace);
    workspace = size <= SIZE_MAX - sizeof *workspace ? malloc(sizeof *workspace + size) : NULL;
    if (workspace != NULL)
        workspace->size = size;
    return workspace;
}

void tconv_ort_workspace_give(struct tconv_ort_provider *provider, struct tconv_ort_workspace *workspace)
{
    if (workspace == NULL)
        return;
    pthread_mutex_lock(&provider->lock);
    workspace->next = provider->workspaces;
    provider->workspaces = workspace;
    pthread_mutex_unlock(&provider->lock);
}

/* ------------------------------------------------------------------------------------------------------------ provider */

static const char *get_name(const OrtEp *base)
{
    (void)base;
    return TCONV_ORT_PROVIDER_NAME;
}

/* Reads the option threads, which ONNX Runtime keeps under the provider's name in lower case. */
static OrtStatus *read_threads(const struct ort *ort, const OrtSessionOptions *options, int32_t *threads)
{
    static const char key[] = "ep.tconvexecutionprovider.threads";
    char text[16] = "", *end = text;
    size_t size = sizeof text;
    int there = 0;
    OrtStatus *status = options != NULL ? ort->HasSessionConfigEntry(options, key, &there) : NULL;
    *threads = 0;
    if (status != NULL || there == 0)
        return status;
    status = ort->GetSessionConfigEntry(options, key, text, &size);
    if (status != NULL)
        return status;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 0 || value > 1024)
        return ort->CreateStatus(ORT_INVALID_ARGUMENT, "threads: must be 0, which is every core, to 1024");
    *threads = (int32_t)value;
    return NULL;
}

OrtStatus *tconv_ort_provider_create(const struct ort *ort, const OrtSessionOptions *options,
                                     struct tconv_ort_provider **made)
{
    int32_t threads = 0;
    *made = NULL;
    OrtStatus *status = read_threads(ort, options, &threads);
    if (status != NULL)
        return status;
    struct tconv_ort_provider *provider = calloc(1, sizeof *provider);
    if (provider == NULL)
        return ort->CreateStatus(ORT_FAIL, "out of memory");
    const char *verbose = getenv("TCONV_VERBOSE");
    provider->ort = ort;
    provider->threads = threads;
    provider->verbose = verbose != NULL && (strcmp(verbose, "1") == 0 || strcmp(verbose, "2") == 0);
    provider->base = (OrtEp){.version = ORT_ABI_VERSION,
                             .GetName = get_name,
                             .GetCapability = get_capability,
                             .GetKernelRegistry = get_kernel_registry};
    pthread_mutex_init(&provider->lock, NULL);
    status = make_registry(provider);
    if (status != NULL) {
        tconv_ort_provider_destroy(provider);
        return status;
    }
    *made = provider;
    return NULL;
}

void tconv_ort_provider_destroy(struct tconv_ort_provider *provider)
{
    if (provider == NULL)
        return;
    while (provider->workspaces != NULL) {
        struct tconv_ort_workspace *workspace = provider->workspaces;
        provider->workspaces = workspace->next;
        free(workspace);
    }
    if (provider->registry != NULL)
        provider->ort->ReleaseKernelRegistry(provider->registry);
    pthread_mutex_destroy(&provider->lock);
    free(provider);
}
