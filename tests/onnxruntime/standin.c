#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"

struct OrtStatus {
    int code;
    char message[256];
};

struct OrtKernelDef {
    char type[32], domain[32], provider[32];
    int first, last;
};

struct OrtKernelDefBuilder {
    struct OrtKernelDef definition;
};

struct OrtHardwareDevice {
    int kind;
};

struct OrtKeyValuePairs {
    char key[32], value[32];
};

struct standin standin;

/* Opaque objects that are nothing but counted. */
static void *make(size_t size)
{
    standin.live++;
    return refuse_never(size);
}

static void drop(void *object)
{
    if (object != NULL)
        standin.live--;
    free(object);
}

static bool is_broken(const char *name)
{
    return standin.broken != NULL && strcmp(standin.broken, name) == 0;
}

static OrtStatus *new_status(int code, const char *message)
{
    struct OrtStatus *status = make(sizeof *status);
    status->code = code;
    snprintf(status->message, sizeof status->message, "%s", message);
    return status;
}

/* Counts a call; a status where it is the one that fails. */
static OrtStatus *enter(const char *name)
{
    standin.calls++;
    return standin.calls == standin.fail_at ? new_status(ORT_FAIL, name) : NULL;
}

#define DECLARE(place, result, name, parameters) static result fake_##name parameters;
ORT_API_FUNCTIONS(DECLARE)
ORT_EP_API_FUNCTIONS(DECLARE)

/* ------------------------------------------------------------------------------------------------------------- statuses */

static OrtStatus *fake_CreateStatus(int code, const char *message)
{
    return new_status(code, message);
}

static int fake_GetErrorCode(const OrtStatus *status)
{
    return is_broken(__func__) ? 0 : status->code;
}

static const char *fake_GetErrorMessage(const OrtStatus *status)
{
    return is_broken(__func__) ? NULL : status->message;
}

static void fake_ReleaseStatus(OrtStatus *status)
{
    drop(status);
}

bool standin_take_status(OrtStatus *status, char *message)
{
    if (status == NULL)
        return false;
    if (message != NULL)
        snprintf(message, 256, "%s", status->message);
    drop(status);
    return true;
}

/* -------------------------------------------------------------------------------------------------------------- tensors */

static const OrtTensorTypeAndShapeInfo *as_tensor(const struct OrtTypeInfo *info)
{
    return (const OrtTensorTypeAndShapeInfo *)info;
}

static const struct OrtTypeInfo *as_info(const OrtTensorTypeAndShapeInfo *info)
{
    return (const struct OrtTypeInfo *)info;
}

static OrtStatus *fake_CastTypeInfoToTensorInfo(const OrtTypeInfo *info, const OrtTensorTypeAndShapeInfo **tensor)
{
    *tensor = info->type == 0 ? NULL : as_tensor(info);
    return enter("CastTypeInfoToTensorInfo");
}

static OrtStatus *fake_GetTensorElementType(const OrtTensorTypeAndShapeInfo *info, int *type)
{
    *type = as_info(info)->type;
    return enter("GetTensorElementType");
}

static OrtStatus *fake_GetDimensionsCount(const OrtTensorTypeAndShapeInfo *info, size_t *count)
{
    *count = as_info(info)->rank;
    return enter("GetDimensionsCount");
}

static OrtStatus *fake_GetDimensions(const OrtTensorTypeAndShapeInfo *info, int64_t *dims, size_t count)
{
    memcpy(dims, as_info(info)->dims, count * sizeof dims[0]);
    return enter("GetDimensions");
}

static OrtStatus *fake_GetTensorTypeAndShape(const OrtValue *value, OrtTensorTypeAndShapeInfo **info)
{
    OrtStatus *status = enter("GetTensorTypeAndShape");
    if (status != NULL)
        return status;
    if (value->data == NULL)
        return new_status(ORT_INVALID_ARGUMENT, "a value without a tensor");
    struct OrtTypeInfo *made = make(sizeof *made);
    *made = value->info;
    *info = (OrtTensorTypeAndShapeInfo *)made;
    return NULL;
}

static void fake_ReleaseTensorTypeAndShapeInfo(OrtTensorTypeAndShapeInfo *info)
{
    drop(info);
}

static OrtStatus *fake_GetTensorMutableData(OrtValue *value, void **data)
{
    *data = value->data;
    return enter("GetTensorMutableData");
}

/* ----------------------------------------------------------------------------------------------------- nodes and kernels */

static const struct OrtNode *as_node(const OrtKernelInfo *info)
{
    return (const struct OrtNode *)info;
}

static const struct OrtOpAttr *find(const struct OrtNode *node, const char *name)
{
    for (int i = 0; i < STANDIN_MAX_ATTRIBUTES; i++) {
        if (node->attributes[i].name != NULL && strcmp(node->attributes[i].name, name) == 0)
            return &node->attributes[i];
    }
    return NULL;
}

static OrtStatus *fake_KernelInfoGetAttribute_int64(const OrtKernelInfo *info, const char *name, int64_t *value)
{
    const struct OrtOpAttr *attribute = find(as_node(info), name);
    if (attribute == NULL || attribute->count != 1)
        return new_status(ORT_FAIL, "no such attribute");
    *value = attribute->values[0];
    return NULL;
}

static OrtStatus *fake_KernelInfoGetAttribute_string(const OrtKernelInfo *info, const char *name, char *text,
                                                     size_t *size)
{
    const struct OrtOpAttr *attribute = find(as_node(info), name);
    const size_t capacity = *size;
    if (attribute == NULL || attribute->text == NULL)
        return new_status(ORT_FAIL, "no such attribute");
    *size = strlen(attribute->text) + 1;
    if (text == NULL)
        return NULL;
    if (capacity < *size)
        return new_status(ORT_INVALID_ARGUMENT, "too small");
    memcpy(text, attribute->text, *size);
    return NULL;
}

static OrtStatus *fake_KernelInfoGetAttributeArray_int64(const OrtKernelInfo *info, const char *name, int64_t *values,
                                                         size_t *size)
{
    const struct OrtOpAttr *attribute = find(as_node(info), name);
    if (attribute == NULL || attribute->count == 0)
        return new_status(ORT_FAIL, "no such attribute");
    if (values != NULL)
        memcpy(values, attribute->values, attribute->count * sizeof values[0]);
    *size = attribute->count;
    return NULL;
}

static OrtStatus *fake_KernelInfo_GetInputTypeInfo(const OrtKernelInfo *info, size_t index, OrtTypeInfo **type)
{
    OrtStatus *status = enter("KernelInfo_GetInputTypeInfo");
    if (status != NULL)
        return status;
    *type = make(sizeof **type);
    **type = as_node(info)->inputs[index];
    return NULL;
}

static void fake_ReleaseTypeInfo(OrtTypeInfo *info)
{
    drop(info);
}

static OrtStatus *fake_ReadOpAttr(const OrtOpAttr *attribute, int type, void *data, size_t size, size_t *needed)
{
    const bool is_text = type == ORT_ATTRIBUTE_STRING;
    *needed = is_text ? strlen(attribute->text) : attribute->count * sizeof(int64_t);
    if (*needed > size)
        return new_status(ORT_INVALID_ARGUMENT, "too small");
    memcpy(data, is_text ? (const void *)attribute->text : attribute->values, *needed);
    return NULL;
}

static OrtStatus *fake_Node_GetAttributeByName(const OrtNode *node, const char *name, const OrtOpAttr **attribute)
{
    *attribute = find(node, name);
    return *attribute == NULL ? new_status(ORT_INVALID_ARGUMENT, "no such attribute") : NULL;
}

static OrtStatus *fake_Graph_GetNumNodes(const OrtGraph *graph, size_t *count)
{
    *count = graph->count;
    return enter("Graph_GetNumNodes");
}

static OrtStatus *fake_Graph_GetNodes(const OrtGraph *graph, const OrtNode **nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        nodes[i] = &graph->nodes[i];
    return enter("Graph_GetNodes");
}

static OrtStatus *fake_Node_GetName(const OrtNode *node, const char **name)
{
    *name = node->name;
    return enter("Node_GetName");
}

static OrtStatus *fake_Node_GetOperatorType(const OrtNode *node, const char **type)
{
    *type = node->type;
    return enter("Node_GetOperatorType");
}

static OrtStatus *fake_Node_GetDomain(const OrtNode *node, const char **domain)
{
    *domain = node->domain;
    return enter("Node_GetDomain");
}

static OrtStatus *fake_Node_GetNumInputs(const OrtNode *node, size_t *count)
{
    *count = node->input_count;
    return enter("Node_GetNumInputs");
}

static OrtStatus *fake_Node_GetInputs(const OrtNode *node, const OrtValueInfo **inputs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        inputs[i] = (const OrtValueInfo *)&node->inputs[i];
    return enter("Node_GetInputs");
}

static OrtStatus *fake_GetValueInfoTypeInfo(const OrtValueInfo *value, const OrtTypeInfo **info)
{
    *info = (const OrtTypeInfo *)value;
    return enter("GetValueInfoTypeInfo");
}

/* ----------------------------------------------------------------------------------------------------------------- runs */

static OrtStatus *fake_KernelContext_GetInputCount(const OrtKernelContext *context, size_t *count)
{
    *count = context->inputs[2] != NULL ? 3 : 2;
    return enter("KernelContext_GetInputCount");
}

static OrtStatus *fake_KernelContext_GetInput(const OrtKernelContext *context, size_t index, const OrtValue **value)
{
    *value = context->inputs[index];
    return enter("KernelContext_GetInput");
}

static OrtStatus *fake_KernelContext_GetOutput(OrtKernelContext *context, size_t index, const int64_t *dims,
                                               size_t count, OrtValue **value)
{
    struct OrtValue *output = &context->output;
    size_t elements = 1;
    OrtStatus *status = enter("KernelContext_GetOutput");
    if (status != NULL)
        return status;
    if (index != 0 || output->data != NULL || count > STANDIN_MAX_RANK)
        return new_status(ORT_INVALID_ARGUMENT, "no such output");
    output->info.rank = count;
    for (size_t i = 0; i < count; i++) {
        output->info.dims[i] = dims[i];
        elements *= (size_t)dims[i];
    }
    output->data = refuse_never(elements * sizeof(float) + 1);
    *value = output;
    return NULL;
}

struct half {
    void (*function)(void *, size_t);
    void *argument;
    size_t begin, end;
};

static void *run_half(void *argument)
{
    const struct half *half = argument;
    for (size_t i = half->begin; i < half->end; i++)
        half->function(half->argument, i);
    return NULL;
}

/* On two threads, the caller's and a new one. */
static OrtStatus *fake_KernelContext_ParallelFor(const OrtKernelContext *context, void (*function)(void *, size_t),
                                                 size_t total, size_t batches, void *argument)
{
    if (context == NULL && !is_broken(__func__))
        return new_status(ORT_FAIL, "no context");
    OrtStatus *status = enter("KernelContext_ParallelFor");
    struct half halves[2] = {{function, argument, 0, total / 2}, {function, argument, total / 2, total}};
    pthread_t thread;
    (void)batches;
    if (status != NULL)
        return status;
    const bool has_thread = pthread_create(&thread, NULL, run_half, &halves[1]) == 0;
    run_half(&halves[0]);
    if (has_thread)
        pthread_join(thread, NULL);
    else
        run_half(&halves[1]);
    return NULL;
}

/* -------------------------------------------------------------------------------------------------- options, pairs, devices */

static OrtStatus *fake_HasSessionConfigEntry(const OrtSessionOptions *options, const char *key, int *there)
{
    *there = options->threads != NULL && strcmp(key, "ep.tconvexecutionprovider.threads") == 0;
    return enter("HasSessionConfigEntry");
}

static OrtStatus *fake_GetSessionConfigEntry(const OrtSessionOptions *options, const char *key, char *text,
                                             size_t *size)
{
    (void)key;
    if (strlen(options->threads) >= *size)
        return new_status(ORT_INVALID_ARGUMENT, "too small");
    snprintf(text, *size, "%s", options->threads);
    return enter("GetSessionConfigEntry");
}

static void fake_CreateKeyValuePairs(OrtKeyValuePairs **pairs)
{
    *pairs = make(sizeof **pairs);
}

static void fake_AddKeyValuePair(OrtKeyValuePairs *pairs, const char *key, const char *value)
{
    snprintf(pairs->key, sizeof pairs->key, "%s", key);
    snprintf(pairs->value, sizeof pairs->value, "%s", value);
}

static const char *fake_GetKeyValue(const OrtKeyValuePairs *pairs, const char *key)
{
    return strcmp(pairs->key, key) == 0 || is_broken(__func__) ? pairs->value : NULL;
}

static void fake_ReleaseKeyValuePairs(OrtKeyValuePairs *pairs)
{
    drop(pairs);
}

static int fake_HardwareDevice_Type(const OrtHardwareDevice *device)
{
    return device->kind;
}

const OrtHardwareDevice *standin_device(int kind)
{
    static const struct OrtHardwareDevice devices[2] = {{0}, {1}};
    return &devices[kind];
}

static OrtStatus *fake_CreateEpDevice(OrtEpFactory *factory, const OrtHardwareDevice *hardware,
                                      const OrtKeyValuePairs *metadata, const OrtKeyValuePairs *options,
                                      OrtEpDevice **device)
{
    OrtStatus *status = enter("CreateEpDevice");
    (void)factory, (void)hardware, (void)metadata, (void)options;
    if (status == NULL)
        *device = make(1);
    return status;
}

static void fake_ReleaseEpDevice(OrtEpDevice *device)
{
    drop(device);
}

void standin_release_devices(OrtEpDevice **devices, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fake_ReleaseEpDevice(devices[i]);
}

/* ------------------------------------------------------------------------------------------------------------- registry */

static OrtStatus *fake_EpGraphSupportInfo_AddSingleNode(OrtEpGraphSupportInfo *support, const OrtNode *node)
{
    (void)support;
    ((struct OrtNode *)node)->is_taken = 1;
    return enter("EpGraphSupportInfo_AddSingleNode");
}

static OrtStatus *fake_EpGraphSupportInfo_LookUpKernel(OrtEpGraphSupportInfo *support, const OrtNode *node,
                                                       const OrtKernelDef **definition)
{
    static const struct OrtKernelDef some;
    (void)support;
    *definition = strcmp(node->name, "unknown version") == 0 ? NULL : &some;
    return enter("EpGraphSupportInfo_LookUpKernel");
}

static OrtStatus *fake_CreateKernelRegistry(OrtKernelRegistry **registry)
{
    OrtStatus *status = enter("CreateKernelRegistry");
    if (status == NULL)
        *registry = make(1);
    return status;
}

static void fake_ReleaseKernelRegistry(OrtKernelRegistry *registry)
{
    drop(registry);
}

static OrtStatus *fake_KernelRegistry_AddKernel(OrtKernelRegistry *registry, const OrtKernelDef *definition,
                                                ort_create_kernel *create, void *state)
{
    (void)registry;
    standin.ranges[standin.kernels][0] = definition->first;
    standin.ranges[standin.kernels][1] = definition->last;
    standin.kernels++;
    standin.create_kernel = create;
    standin.state = state;
    return enter("KernelRegistry_AddKernel");
}

static OrtStatus *fake_CreateKernelDefBuilder(OrtKernelDefBuilder **builder)
{
    OrtStatus *status = enter("CreateKernelDefBuilder");
    if (status == NULL)
        *builder = make(sizeof **builder);
    return status;
}

static void fake_ReleaseKernelDefBuilder(OrtKernelDefBuilder *builder)
{
    drop(builder);
}

static OrtStatus *fake_KernelDefBuilder_SetOperatorType(OrtKernelDefBuilder *builder, const char *type)
{
    snprintf(builder->definition.type, sizeof builder->definition.type, "%s", type);
    return enter("KernelDefBuilder_SetOperatorType");
}

static OrtStatus *fake_KernelDefBuilder_SetDomain(OrtKernelDefBuilder *builder, const char *domain)
{
    snprintf(builder->definition.domain, sizeof builder->definition.domain, "%s", domain);
    return enter("KernelDefBuilder_SetDomain");
}

static OrtStatus *fake_KernelDefBuilder_SetSinceVersion(OrtKernelDefBuilder *builder, int first, int last)
{
    builder->definition.first = is_broken(__func__) ? last : first;
    builder->definition.last = last;
    return enter("KernelDefBuilder_SetSinceVersion");
}

static OrtStatus *fake_KernelDefBuilder_SetExecutionProvider(OrtKernelDefBuilder *builder, const char *provider)
{
    snprintf(builder->definition.provider, sizeof builder->definition.provider, "%s", provider);
    return enter("KernelDefBuilder_SetExecutionProvider");
}

static OrtStatus *fake_KernelDefBuilder_AddTypeConstraint(OrtKernelDefBuilder *builder, const char *name,
                                                          const OrtDataType *const *types, size_t count)
{
    (void)builder, (void)types;
    if (strcmp(name, "T") != 0 || count == 0)
        return new_status(ORT_INVALID_ARGUMENT, "no such type");
    return enter("KernelDefBuilder_AddTypeConstraint");
}

static OrtStatus *fake_KernelDefBuilder_Build(OrtKernelDefBuilder *builder, OrtKernelDef **definition)
{
    OrtStatus *status = enter("KernelDefBuilder_Build");
    if (status != NULL)
        return status;
    *definition = make(sizeof **definition);
    **definition = builder->definition;
    return NULL;
}

static void fake_ReleaseKernelDef(OrtKernelDef *definition)
{
    drop(definition);
}

static const char *fake_KernelDef_GetOperatorType(const OrtKernelDef *definition)
{
    return is_broken(__func__) ? definition->domain : definition->type;
}

static const char *fake_KernelDef_GetDomain(const OrtKernelDef *definition)
{
    return definition->domain;
}

static OrtStatus *fake_KernelDef_GetSinceVersion(const OrtKernelDef *definition, int *first, int *last)
{
    *first = definition->first;
    *last = definition->last;
    return enter("KernelDef_GetSinceVersion");
}

static const char *fake_KernelDef_GetExecutionProvider(const OrtKernelDef *definition)
{
    return definition->provider;
}

static OrtStatus *fake_GetTensorDataType(int type, const OrtDataType **made)
{
    static const int some[32];
    *made = (const OrtDataType *)&some[type];
    return enter("GetTensorDataType");
}

/* --------------------------------------------------------------------------------------------------------------- tables */

#define MOST_PLACES 400

static void *api[MOST_PLACES], *ep_api[MOST_PLACES];

/* Enters a function, because ISO C keeps pointers to functions apart from pointers to data. */
#define ENTER(table, place, name)                                                                                      \
    {                                                                                                                  \
        __typeof__(&fake_##name) function = fake_##name;                                                               \
        memcpy(&(table)[place], &function, sizeof function);                                                           \
    }

static const void *fake_GetEpApi(void)
{
    return standin.has_no_ep_api ? NULL : ep_api;
}

static const void *get_api(uint32_t version)
{
    return version <= (uint32_t)standin.version ? api : NULL;
}

static const char *get_version(void)
{
    return "1.0-standin";
}

const OrtApiBase *standin_base(void)
{
    static const OrtApiBase base = {get_api, get_version};
#define ENTER_API(place, result, name, parameters)    ENTER(api, place, name)
#define ENTER_EP_API(place, result, name, parameters) ENTER(ep_api, place, name)
    ORT_API_FUNCTIONS(ENTER_API)
    ORT_EP_API_FUNCTIONS(ENTER_EP_API)
    return &base;
}
