#include "standin_functions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"

struct OrtStatus {
    int code;
    char message[256];
};

struct OrtHardwareDevice {
    int kind;
};

struct OrtKeyValuePairs {
    char key[32], value[32];
};

struct standin standin;

/* Opaque objects that are nothing but counted. */
void *standin_make(size_t size)
{
    standin.live++;
    return refuse_never(size);
}

void standin_drop(void *object)
{
    if (object != NULL)
        standin.live--;
    free(object);
}

bool standin_is_broken(const char *name)
{
    return standin.broken != NULL && strcmp(standin.broken, name) == 0;
}

OrtStatus *standin_status(int code, const char *message)
{
    struct OrtStatus *status = standin_make(sizeof *status);
    status->code = code;
    snprintf(status->message, sizeof status->message, "%s", message);
    return status;
}

/* Counts a call; a status where it is the one that fails. */
OrtStatus *standin_enter(const char *name)
{
    standin.calls++;
    return standin.calls == standin.fail_at ? standin_status(ORT_FAIL, name) : NULL;
}

/* ------------------------------------------------------------------------------------------------------------- statuses */

OrtStatus *fake_CreateStatus(int code, const char *message)
{
    return standin_status(code, message);
}

int fake_GetErrorCode(const OrtStatus *status)
{
    return standin_is_broken(__func__) ? 0 : status->code;
}

const char *fake_GetErrorMessage(const OrtStatus *status)
{
    return standin_is_broken(__func__) ? NULL : status->message;
}

void fake_ReleaseStatus(OrtStatus *status)
{
    standin_drop(status);
}

bool standin_take_status(OrtStatus *status, char *message)
{
    if (status == NULL)
        return false;
    if (message != NULL)
        snprintf(message, 256, "%s", status->message);
    standin_drop(status);
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

OrtStatus *fake_CastTypeInfoToTensorInfo(const OrtTypeInfo *info, const OrtTensorTypeAndShapeInfo **tensor)
{
    *tensor = info->type == 0 ? NULL : as_tensor(info);
    return standin_enter("CastTypeInfoToTensorInfo");
}

OrtStatus *fake_GetTensorElementType(const OrtTensorTypeAndShapeInfo *info, int *type)
{
    *type = as_info(info)->type;
    return standin_enter("GetTensorElementType");
}

OrtStatus *fake_GetDimensionsCount(const OrtTensorTypeAndShapeInfo *info, size_t *count)
{
    *count = as_info(info)->rank;
    return standin_enter("GetDimensionsCount");
}

OrtStatus *fake_GetDimensions(const OrtTensorTypeAndShapeInfo *info, int64_t *dims, size_t count)
{
    memcpy(dims, as_info(info)->dims, count * sizeof dims[0]);
    return standin_enter("GetDimensions");
}

OrtStatus *fake_GetTensorTypeAndShape(const OrtValue *value, OrtTensorTypeAndShapeInfo **info)
{
    OrtStatus *status = standin_enter("GetTensorTypeAndShape");
    if (status != NULL)
        return status;
    if (value->data == NULL)
        return standin_status(ORT_INVALID_ARGUMENT, "a value without a tensor");
    struct OrtTypeInfo *made = standin_make(sizeof *made);
    *made = value->info;
    *info = (OrtTensorTypeAndShapeInfo *)made;
    return NULL;
}

void fake_ReleaseTensorTypeAndShapeInfo(OrtTensorTypeAndShapeInfo *info)
{
    standin_drop(info);
}

OrtStatus *fake_GetTensorMutableData(OrtValue *value, void **data)
{
    *data = value->data;
    return standin_enter("GetTensorMutableData");
}

/* ----------------------------------------------------------------------------------------------------------------- runs */

OrtStatus *fake_KernelContext_GetInputCount(const OrtKernelContext *context, size_t *count)
{
    *count = context->inputs[2] != NULL ? 3 : 2;
    return standin_enter("KernelContext_GetInputCount");
}

OrtStatus *fake_KernelContext_GetInput(const OrtKernelContext *context, size_t index, const OrtValue **value)
{
    *value = context->inputs[index];
    return standin_enter("KernelContext_GetInput");
}

OrtStatus *fake_KernelContext_GetOutput(OrtKernelContext *context, size_t index, const int64_t *dims, size_t count,
                                        OrtValue **value)
{
    struct OrtValue *output = &context->output;
    size_t elements = 1;
    OrtStatus *status = standin_enter("KernelContext_GetOutput");
    if (status != NULL)
        return status;
    if (index != 0 || output->data != NULL || count > STANDIN_MAX_RANK)
        return standin_status(ORT_INVALID_ARGUMENT, "no such output");
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
OrtStatus *fake_KernelContext_ParallelFor(const OrtKernelContext *context, void (*function)(void *, size_t),
                                          size_t total, size_t batches, void *argument)
{
    if (context == NULL && !standin_is_broken(__func__))
        return standin_status(ORT_FAIL, "no context");
    OrtStatus *status = standin_enter("KernelContext_ParallelFor");
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

OrtStatus *fake_HasSessionConfigEntry(const OrtSessionOptions *options, const char *key, int *there)
{
    *there = options->threads != NULL && strcmp(key, "ep.tconvexecutionprovider.threads") == 0;
    return standin_enter("HasSessionConfigEntry");
}

OrtStatus *fake_GetSessionConfigEntry(const OrtSessionOptions *options, const char *key, char *text, size_t *size)
{
    (void)key;
    if (strlen(options->threads) >= *size)
        return standin_status(ORT_INVALID_ARGUMENT, "too small");
    snprintf(text, *size, "%s", options->threads);
    return standin_enter("GetSessionConfigEntry");
}

void fake_CreateKeyValuePairs(OrtKeyValuePairs **pairs)
{
    *pairs = standin_make(sizeof **pairs);
}

void fake_AddKeyValuePair(OrtKeyValuePairs *pairs, const char *key, const char *value)
{
    snprintf(pairs->key, sizeof pairs->key, "%s", key);
    snprintf(pairs->value, sizeof pairs->value, "%s", value);
}

const char *fake_GetKeyValue(const OrtKeyValuePairs *pairs, const char *key)
{
    return strcmp(pairs->key, key) == 0 || standin_is_broken(__func__) ? pairs->value : NULL;
}

void fake_ReleaseKeyValuePairs(OrtKeyValuePairs *pairs)
{
    standin_drop(pairs);
}

int fake_HardwareDevice_Type(const OrtHardwareDevice *device)
{
    return device->kind;
}

const OrtHardwareDevice *standin_device(int kind)
{
    static const struct OrtHardwareDevice devices[2] = {{0}, {1}};
    return &devices[kind];
}

OrtStatus *fake_CreateEpDevice(OrtEpFactory *factory, const OrtHardwareDevice *hardware,
                               const OrtKeyValuePairs *metadata, const OrtKeyValuePairs *options, OrtEpDevice **device)
{
    OrtStatus *status = standin_enter("CreateEpDevice");
    (void)factory, (void)hardware, (void)metadata, (void)options;
    if (status == NULL)
        *device = standin_make(1);
    return status;
}

void fake_ReleaseEpDevice(OrtEpDevice *device)
{
    standin_drop(device);
}

void standin_release_devices(OrtEpDevice **devices, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fake_ReleaseEpDevice(devices[i]);
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

const void *fake_GetEpApi(void)
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
