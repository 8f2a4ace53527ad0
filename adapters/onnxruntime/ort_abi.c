#include "ort_abi.h"

#include <stdio.h>
#include <string.h>

/* Copies a table's entry, because ISO C keeps pointers to functions apart from pointers to data. */
static void read_entry(const void *table, size_t place, void *function)
{
    memcpy(function, (const char *)table + place * sizeof(void *), sizeof(void *));
}

static void read_api(struct ort *ort, const void *table)
{
#define READ(place, result, name, parameters) read_entry(table, place, &ort->name);
    ORT_API_FUNCTIONS(READ)
}

static void read_ep_api(struct ort *ort, const void *table)
{
    ORT_EP_API_FUNCTIONS(READ)
#undef READ
}

/* ------------------------------------------------------------------------------------------------------------- tries */

static bool same(const char *text, const char *expected)
{
    return text != NULL && strcmp(text, expected) == 0;
}

/* Takes a status that is expected: releases it and says whether there was one. */
static bool refused(const struct ort *ort, OrtStatus *status)
{
    if (status == NULL)
        return false;
    ort->ReleaseStatus(status);
    return true;
}

static bool statuses_work(const struct ort *ort)
{
    OrtStatus *status = ort->CreateStatus(ORT_INVALID_ARGUMENT, "a try");
    const bool right = status != NULL && ort->GetErrorCode(status) == ORT_INVALID_ARGUMENT &&
                       same(ort->GetErrorMessage(status), "a try");
    ort->ReleaseStatus(status);
    return right;
}

static bool pairs_work(const struct ort *ort)
{
    OrtKeyValuePairs *pairs = NULL;
    ort->CreateKeyValuePairs(&pairs);
    if (pairs == NULL)
        return false;
    ort->AddKeyValuePair(pairs, "key", "value");
    const bool right = same(ort->GetKeyValue(pairs, "key"), "value") && ort->GetKeyValue(pairs, "none") == NULL;
    ort->ReleaseKeyValuePairs(pairs);
    return right;
}

static void do_nothing(void *argument, size_t index)
{
    (void)argument, (void)index;
}

static bool loops_work(const struct ort *ort)
{
    return refused(ort, ort->KernelContext_ParallelFor(NULL, do_nothing, 1, 0, NULL));
}

static bool is_as_defined(const struct ort *ort, const OrtKernelDef *definition)
{
    int first = 0, last = 0;
    return same(ort->KernelDef_GetOperatorType(definition), "Try") &&
           same(ort->KernelDef_GetDomain(definition), "tconv.try") &&
           same(ort->KernelDef_GetExecutionProvider(definition), "TryProvider") &&
           !refused(ort, ort->KernelDef_GetSinceVersion(definition, &first, &last)) && first == 3 && last == 7;
}

static bool definitions_work(const struct ort *ort)
{
    OrtKernelDefBuilder *builder = NULL;
    OrtKernelDef *definition = NULL;
    const OrtDataType *type = NULL;
    if (refused(ort, ort->CreateKernelDefBuilder(&builder)) || builder == NULL)
        return false;
    bool right = !refused(ort, ort->KernelDefBuilder_SetOperatorType(builder, "Try")) &&
                 !refused(ort, ort->KernelDefBuilder_SetDomain(builder, "tconv.try")) &&
                 !refused(ort, ort->KernelDefBuilder_SetSinceVersion(builder, 3, 7)) &&
                 !refused(ort, ort->KernelDefBuilder_SetExecutionProvider(builder, "TryProvider")) &&
                 !refused(ort, ort->GetTensorDataType(ORT_FLOAT, &type)) && type != NULL &&
                 !refused(ort, ort->KernelDefBuilder_AddTypeConstraint(builder, "T", &type, 1)) &&
                 !refused(ort, ort->KernelDefBuilder_Build(builder, &definition)) && definition != NULL;
    right = right && is_as_defined(ort, definition);
    if (definition != NULL)
        ort->ReleaseKernelDef(definition);
    ort->ReleaseKernelDefBuilder(builder);
    return right;
}

static const struct {
    bool (*works)(const struct ort *ort);
    const char *what;
} tries[] = {{statuses_work, "statuses"},
             {pairs_work, "key-value pairs"},
             {loops_work, "parallel loops"},
             {definitions_work, "definitions of kernels"}};

/* -------------------------------------------------------------------------------------------------------------- load */

/* A status of an ONNX Runtime that is too old: the first function of every table makes statuses. */
static OrtStatus *too_old(const OrtApiBase *base)
{
    char message[160];
    OrtStatus *(*create_status)(int code, const char *message) = NULL;
    const void *api = base->GetApi(1);
    if (api == NULL)
        return NULL;
    read_entry(api, 0, &create_status);
    const char *version = base->GetVersionString();
    snprintf(message, sizeof message, "tconv's execution provider needs ONNX Runtime 1.%d or newer; this is %.32s",
             ORT_ABI_VERSION, version != NULL ? version : "an older one");
    return create_status(ORT_FAIL, message);
}

OrtStatus *tconv_ort_load(const OrtApiBase *base, struct ort *ort, bool *loaded)
{
    char message[160];
    const void *api = base->GetApi(ORT_ABI_VERSION);
    *loaded = false;
    if (api == NULL)
        return too_old(base);
    read_api(ort, api);
    const void *ep_api = ort->GetEpApi();
    if (ep_api == NULL)
        return ort->CreateStatus(ORT_FAIL, "this ONNX Runtime was built without execution providers from plug-ins");
    read_ep_api(ort, ep_api);
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        if (!tries[i].works(ort)) {
            snprintf(
                message, sizeof message,
                "the interface of this ONNX Runtime is not the one that tconv's execution provider knows: %s differ",
                tries[i].what);
            return ort->CreateStatus(ORT_FAIL, message);
        }
    }
    *loaded = true;
    return NULL;
}
