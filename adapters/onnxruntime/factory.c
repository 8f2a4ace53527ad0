/*
 * What the shared object exports, and the factory of providers. ONNX Runtime loads the object, calls CreateEpFactories, and
 * calls ReleaseEpFactory before it unloads the object.
 */
#include <stdlib.h>

#include "provider.h"

/* A factory has its own tables, because two libraries of ONNX Runtime may be in one process. */
struct factory {
    OrtEpFactory base; /* first: what ONNX Runtime knows */
    struct ort ort;
};

static const char *get_name(const OrtEpFactory *factory)
{
    (void)factory;
    return TCONV_ORT_PROVIDER_NAME;
}

static const char *get_vendor(const OrtEpFactory *factory)
{
    (void)factory;
    return "tconv";
}

static uint32_t get_vendor_id(const OrtEpFactory *factory)
{
    (void)factory;
    return 0;
}

static const char *get_version(const OrtEpFactory *factory)
{
    (void)factory;
    return tconv_version();
}

static bool is_stream_aware(const OrtEpFactory *factory)
{
    (void)factory;
    return false;
}

static OrtStatus *create_data_transfer(OrtEpFactory *factory, OrtDataTransferImpl **made)
{
    (void)factory;
    *made = NULL;
    return NULL;
}

/* No memory is registered for the devices, so that tensors are the CPU provider's and nothing is copied. */
static OrtStatus *get_supported_devices(OrtEpFactory *base, const OrtHardwareDevice *const *devices, size_t count,
                                        OrtEpDevice **made, size_t most, size_t *made_count)
{
    struct factory *factory = (struct factory *)base;
    OrtStatus *status = NULL;
    *made_count = 0;
    for (size_t i = 0; i < count && *made_count < most && status == NULL; i++) {
        if (factory->ort.HardwareDevice_Type(devices[i]) != ORT_HARDWARE_CPU)
            continue;
        status = factory->ort.CreateEpDevice(base, devices[i], NULL, NULL, &made[*made_count]);
        if (status == NULL)
            (*made_count)++;
    }
    while (status != NULL && *made_count > 0)
        factory->ort.ReleaseEpDevice(made[--*made_count]);
    return status;
}

static OrtStatus *create_provider(OrtEpFactory *base, const OrtHardwareDevice *const *devices,
                                  const OrtKeyValuePairs *const *metadata, size_t count,
                                  const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **made)
{
    struct factory *factory = (struct factory *)base;
    struct tconv_ort_provider *provider = NULL;
    (void)devices, (void)metadata, (void)count, (void)logger;
    OrtStatus *status = tconv_ort_provider_create(&factory->ort, options, &provider);
    *made = provider != NULL ? &provider->base : NULL;
    return status;
}

static void release_provider(OrtEpFactory *factory, OrtEp *provider)
{
    (void)factory;
    tconv_ort_provider_destroy((struct tconv_ort_provider *)provider);
}

/* ----------------------------------------------------------------------------------------------------------- exported */

TCONV_API OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                                       OrtEpFactory **factories, size_t most, size_t *count);
TCONV_API OrtStatus *ReleaseEpFactory(OrtEpFactory *factory);

OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                             OrtEpFactory **factories, size_t most, size_t *count)
{
    struct ort ort;
    bool loaded = false;
    (void)name, (void)logger;
    *count = 0;
    OrtStatus *status = tconv_ort_load(base, &ort, &loaded);
    if (!loaded)
        return status;
    if (most < 1)
        return ort.CreateStatus(ORT_INVALID_ARGUMENT, "tconv's execution provider needs room for one factory");
    struct factory *factory = calloc(1, sizeof *factory);
    if (factory == NULL)
        return ort.CreateStatus(ORT_FAIL, "out of memory");
    factory->ort = ort;
    factory->base = (OrtEpFactory){.version = ORT_ABI_VERSION,
                                   .GetName = get_name,
                                   .GetVendor = get_vendor,
                                   .GetSupportedDevices = get_supported_devices,
                                   .CreateEp = create_provider,
                                   .ReleaseEp = release_provider,
                                   .GetVendorId = get_vendor_id,
                                   .GetVersion = get_version,
                                   .CreateDataTransfer = create_data_transfer,
                                   .IsStreamAware = is_stream_aware};
    factories[0] = &factory->base;
    *count = 1;
    return NULL;
}

OrtStatus *ReleaseEpFactory(OrtEpFactory *factory)
{
    free(factory);
    return NULL;
}
