/*
 * The provider of a session: which nodes it takes, the registry of its kernels, and workspaces.
 */
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_INPUTS 3 /* X, W and B */

/*
 * Layers that are hardly more than a matrix product, at which ONNX Runtime is the better on two cores of a Zen 4. Up to so many
 * input pixels, of all images together, and from so many bytes of weights on, a layer takes as long as its weights take to be
 * read: layers of 16 and 32 pixels took 1.5 and 1.2 times as long with tconv, one of 48 pixels took .8 times as long.
 */
#define FEW_PIXELS         32
#define MANY_WEIGHTS_BYTES ((int64_t)4 << 20)

/* The same of layers whose outputs have one tap each, up to so many bytes of output: seven of eight took 1.1 to 1.3 times as
 * long with tconv, and larger ones .7 to 1. */
#define SMALL_OUTPUT_BYTES ((int64_t)2 << 20)

/* Stand for a number of planes, rows or columns that is not known before the model runs: large enough for any padding, and for
 * volumes small enough to have a size. */
#define ANY_EXTENT           65536
#define ANY_EXTENT_OF_VOLUME 4096

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

/* Sets what is not known of the shapes to what any model may have, and says whether extents and kernel are known. */
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
        const int axis = i - 2 + TCONV_ORT_AXES - layer->axes;
        if (src->dims[i] < 0) {
            src->dims[i] = layer->axes < TCONV_ORT_AXES ? ANY_EXTENT : ANY_EXTENT_OF_VOLUME;
            known = known && layer->padding != TCONV_ORT_OUTPUT_SHAPE;
        }
        if (weights->dims[i] < 0) {
            weights->dims[i] = layer->kernel[axis] != 0 ? layer->kernel[axis] : 1;
            known = known && (layer->kernel[axis] != 0 || layer->padding == TCONV_ORT_EXPLICIT);
        }
    }
    return known;
}

static bool is_known(const struct tconv_ort_shape *shape)
{
    bool known = shape->rank > 0;
    for (int i = 0; i < shape->rank && i < TCONV_ORT_MAX_RANK; i++)
        known = known && shape->dims[i] >= 0;
    return known;
}

/* Whether a layer is hardly more than a matrix product. */
static bool is_mere_product(const tconv_desc *desc)
{
    int64_t dst[TCONV_ORT_MAX_RANK];
    if (desc->dtype != TCONV_F32 || desc->groups != 1 || tconv_output_shape3d(desc, dst, NULL) != TCONV_SUCCESS)
        return false;
    const double images = (double)desc->batch * (double)desc->in_d, size = sizeof(float);
    const double pixels = images * (double)desc->in_h * (double)desc->in_w;
    const double taps = (double)desc->kernel_d * (double)desc->kernel_h * (double)desc->kernel_w;
    const double weights = size * taps * (double)desc->in_channels * (double)desc->out_channels;
    double output = size;
    for (int i = 0; i < TCONV_ORT_MAX_RANK; i++)
        output *= (double)dst[i];
    const bool has_one_tap = desc->kernel_d == desc->stride_d && desc->kernel_h == desc->stride_h &&
                             desc->kernel_w == desc->stride_w && taps > 1 && desc->dilation_d == 1 &&
                             desc->dilation_h == 1 && desc->dilation_w == 1;
    return (pixels <= FEW_PIXELS && weights >= MANY_WEIGHTS_BYTES) || (has_one_tap && output <= SMALL_OUTPUT_BYTES);
}

/* Whether tconv takes the layer, whatever of its shapes is still unknown; else the issue has the reason. */
static bool takes(struct candidate *candidate, bool takes_all, tconv_issue *issue)
{
    struct tconv_ort_layer layer;
    tconv_desc desc;
    const bool are_known = is_known(&candidate->src) && is_known(&candidate->weights);
    const int rank = candidate->src.rank != -1 ? candidate->src.rank : candidate->weights.rank;
    if (!tconv_ort_read_layer(&candidate->attributes, rank, &layer, issue))
        return false;
    if (!complete(&layer, candidate)) {
        snprintf(issue->message, sizeof issue->message,
                 "auto_pad or output_shape: need shapes that are known before the model runs");
        return false;
    }
    if (!tconv_ort_describe(&layer, candidate->dtype, &candidate->src, &candidate->weights, &desc, issue))
        return false;
    if (are_known && !takes_all && is_mere_product(&desc)) {
        snprintf(issue->message, sizeof issue->message, "hardly more than a matrix product, which is faster there");
        return false;
    }
    return true;
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
    if (status == NULL && reason == NULL && !takes(&candidate, provider->takes_all, &issue))
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

/* Reads an option, a number from 0 on that is 0 where it is not set. ONNX Runtime keeps it under the provider's name. */
static OrtStatus *read_option(const struct ort *ort, const OrtSessionOptions *options, const char *name, long most,
                              int32_t *value)
{
    char key[64], message[64], text[16] = "", *end = text;
    size_t size = sizeof text;
    int there = 0;
    snprintf(key, sizeof key, "ep.tconvexecutionprovider.%s", name);
    OrtStatus *status = options != NULL ? ort->HasSessionConfigEntry(options, key, &there) : NULL;
    *value = 0;
    if (status != NULL || there == 0)
        return status;
    status = ort->GetSessionConfigEntry(options, key, text, &size);
    if (status != NULL)
        return status;
    const long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < 0 || number > most) {
        snprintf(message, sizeof message, "%s: must be a number from 0 to %ld", name, most);
        return ort->CreateStatus(ORT_INVALID_ARGUMENT, message);
    }
    *value = (int32_t)number;
    return NULL;
}

OrtStatus *tconv_ort_provider_create(const struct ort *ort, const OrtSessionOptions *options,
                                     struct tconv_ort_provider **made)
{
    int32_t threads = 0, takes_all = 0;
    *made = NULL;
    OrtStatus *status = read_option(ort, options, "threads", 1024, &threads);
    if (status == NULL)
        status = read_option(ort, options, "take_all", 1, &takes_all);
    if (status != NULL)
        return status;
    struct tconv_ort_provider *provider = calloc(1, sizeof *provider);
    if (provider == NULL)
        return ort->CreateStatus(ORT_FAIL, "out of memory");
    const char *verbose = getenv("TCONV_VERBOSE");
    provider->ort = ort;
    provider->threads = threads;
    provider->takes_all = takes_all != 0;
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
