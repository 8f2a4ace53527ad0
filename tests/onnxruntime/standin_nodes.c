#include "standin_functions.h"

#include <stdio.h>
#include <string.h>

struct OrtKernelDef {
    char type[32], domain[32], provider[32];
    int first, last;
};

struct OrtKernelDefBuilder {
    struct OrtKernelDef definition;
};

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

OrtStatus *fake_KernelInfoGetAttribute_int64(const OrtKernelInfo *info, const char *name, int64_t *value)
{
    const struct OrtOpAttr *attribute = find(as_node(info), name);
    if (attribute == NULL || attribute->count != 1)
        return standin_status(ORT_FAIL, "no such attribute");
    *value = attribute->values[0];
    return NULL;
}

OrtStatus *fake_KernelInfoGetAttribute_string(const OrtKernelInfo *info, const char *name, char *text, size_t *size)
{
    const struct OrtOpAttr *attribute = find(as_node(info), name);
    const size_t capacity = *size;
    if (attribute == NULL || attribute->text == NULL)
        return standin_status(ORT_FAIL, "no such attribute");
    *size = strlen(attribute->text) + 1;
    if (text == NULL)
        return NULL;
    if (capacity < *size)
        return standin_status(ORT_INVALID_ARGUMENT, "too small");
    memcpy(text, attribute->text, *size);
    return NULL;
}

OrtStatus *fake_KernelInfoGetAttributeArray_int64(const OrtKernelInfo *info, const char *name, int64_t *values,
                                                  size_t *size)
{
    const struct OrtOpAttr *attribute = find(as_node(info), name);
    if (attribute == NULL || attribute->count == 0)
        return standin_status(ORT_FAIL, "no such attribute");
    if (values != NULL)
        memcpy(values, attribute->values, attribute->count * sizeof values[0]);
    *size = attribute->count;
    return NULL;
}

OrtStatus *fake_KernelInfo_GetInputTypeInfo(const OrtKernelInfo *info, size_t index, OrtTypeInfo **type)
{
    OrtStatus *status = standin_enter("KernelInfo_GetInputTypeInfo");
    if (status != NULL)
        return status;
    *type = standin_make(sizeof **type);
    **type = as_node(info)->inputs[index];
    return NULL;
}

void fake_ReleaseTypeInfo(OrtTypeInfo *info)
{
    standin_drop(info);
}

OrtStatus *fake_ReadOpAttr(const OrtOpAttr *attribute, int type, void *data, size_t size, size_t *needed)
{
    const bool is_text = type == ORT_ATTRIBUTE_STRING;
    *needed = is_text ? strlen(attribute->text) : attribute->count * sizeof(int64_t);
    if (*needed > size)
        return standin_status(ORT_INVALID_ARGUMENT, "too small");
    memcpy(data, is_text ? (const void *)attribute->text : attribute->values, *needed);
    return NULL;
}

OrtStatus *fake_Node_GetAttributeByName(const OrtNode *node, const char *name, const OrtOpAttr **attribute)
{
    *attribute = find(node, name);
    return *attribute == NULL ? standin_status(ORT_INVALID_ARGUMENT, "no such attribute") : NULL;
}

OrtStatus *fake_Graph_GetNumNodes(const OrtGraph *graph, size_t *count)
{
    *count = graph->count;
    return standin_enter("Graph_GetNumNodes");
}

OrtStatus *fake_Graph_GetNodes(const OrtGraph *graph, const OrtNode **nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        nodes[i] = &graph->nodes[i];
    return standin_enter("Graph_GetNodes");
}

OrtStatus *fake_Node_GetName(const OrtNode *node, const char **name)
{
    *name = node->name;
    return standin_enter("Node_GetName");
}

OrtStatus *fake_Node_GetOperatorType(const OrtNode *node, const char **type)
{
    *type = node->type;
    return standin_enter("Node_GetOperatorType");
}

OrtStatus *fake_Node_GetDomain(const OrtNode *node, const char **domain)
{
    *domain = node->domain;
    return standin_enter("Node_GetDomain");
}

OrtStatus *fake_Node_GetNumInputs(const OrtNode *node, size_t *count)
{
    *count = node->input_count;
    return standin_enter("Node_GetNumInputs");
}

OrtStatus *fake_Node_GetInputs(const OrtNode *node, const OrtValueInfo **inputs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        inputs[i] = (const OrtValueInfo *)&node->inputs[i];
    return standin_enter("Node_GetInputs");
}

OrtStatus *fake_GetValueInfoTypeInfo(const OrtValueInfo *value, const OrtTypeInfo **info)
{
    *info = (const OrtTypeInfo *)value;
    return standin_enter("GetValueInfoTypeInfo");
}

/* ------------------------------------------------------------------------------------------------------------- registry */

OrtStatus *fake_EpGraphSupportInfo_AddSingleNode(OrtEpGraphSupportInfo *support, const OrtNode *node)
{
    (void)support;
    ((struct OrtNode *)node)->is_taken = 1;
    return standin_enter("EpGraphSupportInfo_AddSingleNode");
}

OrtStatus *fake_EpGraphSupportInfo_LookUpKernel(OrtEpGraphSupportInfo *support, const OrtNode *node,
                                                const OrtKernelDef **definition)
{
    static const struct OrtKernelDef some;
    (void)support;
    *definition = strcmp(node->name, "unknown version") == 0 ? NULL : &some;
    return standin_enter("EpGraphSupportInfo_LookUpKernel");
}

OrtStatus *fake_CreateKernelRegistry(OrtKernelRegistry **registry)
{
    OrtStatus *status = standin_enter("CreateKernelRegistry");
    if (status == NULL)
        *registry = standin_make(1);
    return status;
}

void fake_ReleaseKernelRegistry(OrtKernelRegistry *registry)
{
    standin_drop(registry);
}

OrtStatus *fake_KernelRegistry_AddKernel(OrtKernelRegistry *registry, const OrtKernelDef *definition,
                                         ort_create_kernel *create, void *state)
{
    (void)registry;
    standin.ranges[standin.kernels][0] = definition->first;
    standin.ranges[standin.kernels][1] = definition->last;
    standin.kernels++;
    standin.create_kernel = create;
    standin.state = state;
    return standin_enter("KernelRegistry_AddKernel");
}

OrtStatus *fake_CreateKernelDefBuilder(OrtKernelDefBuilder **builder)
{
    OrtStatus *status = standin_enter("CreateKernelDefBuilder");
    if (status == NULL)
        *builder = standin_make(sizeof **builder);
    return status;
}

void fake_ReleaseKernelDefBuilder(OrtKernelDefBuilder *builder)
{
    standin_drop(builder);
}

OrtStatus *fake_KernelDefBuilder_SetOperatorType(OrtKernelDefBuilder *builder, const char *type)
{
    snprintf(builder->definition.type, sizeof builder->definition.type, "%s", type);
    return standin_enter("KernelDefBuilder_SetOperatorType");
}

OrtStatus *fake_KernelDefBuilder_SetDomain(OrtKernelDefBuilder *builder, const char *domain)
{
    snprintf(builder->definition.domain, sizeof builder->definition.domain, "%s", domain);
    return standin_enter("KernelDefBuilder_SetDomain");
}

OrtStatus *fake_KernelDefBuilder_SetSinceVersion(OrtKernelDefBuilder *builder, int first, int last)
{
    builder->definition.first = standin_is_broken(__func__) ? last : first;
    builder->definition.last = last;
    return standin_enter("KernelDefBuilder_SetSinceVersion");
}

OrtStatus *fake_KernelDefBuilder_SetExecutionProvider(OrtKernelDefBuilder *builder, const char *provider)
{
    snprintf(builder->definition.provider, sizeof builder->definition.provider, "%s", provider);
    return standin_enter("KernelDefBuilder_SetExecutionProvider");
}

OrtStatus *fake_KernelDefBuilder_AddTypeConstraint(OrtKernelDefBuilder *builder, const char *name,
                                                   const OrtDataType *const *types, size_t count)
{
    (void)builder, (void)types;
    if (strcmp(name, "T") != 0 || count == 0)
        return standin_status(ORT_INVALID_ARGUMENT, "no such type");
    return standin_enter("KernelDefBuilder_AddTypeConstraint");
}

OrtStatus *fake_KernelDefBuilder_Build(OrtKernelDefBuilder *builder, OrtKernelDef **definition)
{
    OrtStatus *status = standin_enter("KernelDefBuilder_Build");
    if (status != NULL)
        return status;
    *definition = standin_make(sizeof **definition);
    **definition = builder->definition;
    return NULL;
}

void fake_ReleaseKernelDef(OrtKernelDef *definition)
{
    standin_drop(definition);
}

const char *fake_KernelDef_GetOperatorType(const OrtKernelDef *definition)
{
    return standin_is_broken(__func__) ? definition->domain : definition->type;
}

const char *fake_KernelDef_GetDomain(const OrtKernelDef *definition)
{
    return definition->domain;
}

OrtStatus *fake_KernelDef_GetSinceVersion(const OrtKernelDef *definition, int *first, int *last)
{
    *first = definition->first;
    *last = definition->last;
    return standin_enter("KernelDef_GetSinceVersion");
}

const char *fake_KernelDef_GetExecutionProvider(const OrtKernelDef *definition)
{
    return definition->provider;
}

OrtStatus *fake_GetTensorDataType(int type, const OrtDataType **made)
{
    static const int some[32];
    *made = (const OrtDataType *)&some[type];
    return standin_enter("GetTensorDataType");
}
