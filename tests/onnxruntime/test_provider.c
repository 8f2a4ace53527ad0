/*
 * The execution provider in a process without ONNX Runtime: a host with tables of its own (standin.h) loads the shared object
 * as ONNX Runtime does, runs nodes, and has each call and each allocation fail once. What is made is released, whatever fails; tables that are
 * older or not what they should be are refused.
 *
 *     test_provider LIBRARY.so
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"
#include "standin.h"

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s (call %d fails)\n", __FILE__, __LINE__, #condition, standin.fail_at);                    \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

typedef OrtStatus *create_factories(const char *, const OrtApiBase *, const OrtLogger *, OrtEpFactory **, size_t,
                                    size_t *);
typedef OrtStatus *release_factory(OrtEpFactory *);

static create_factories *create;
static release_factory *release;

static void look_up(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
}

/* Starts anew as a runtime of a version. */
static void reset(int version, int fail_at)
{
    standin = (struct standin){.version = version, .fail_at = fail_at};
}

/* ----------------------------------------------------------------------------------------------------------------- nodes */

#define CHANNELS_IN  2
#define CHANNELS_OUT 3
#define KERNEL       4
#define STRIDE       2

/* A node of one dimension, x [1, 2, length] and w [2, 3, 4], with attributes that fit. */
static struct OrtNode upsampling(const char *name, int64_t length)
{
    return (struct OrtNode){
        .name = name,
        .type = "ConvTranspose",
        .domain = "",
        .input_count = 2,
        .inputs = {{ORT_FLOAT, 3, {1, CHANNELS_IN, length}}, {ORT_FLOAT, 3, {CHANNELS_IN, CHANNELS_OUT, KERNEL}}},
        .attributes = {{.name = "strides", .count = 1, .values = {STRIDE}},
                       {.name = "pads", .count = 2, .values = {1, 1}},
                       {.name = "auto_pad", .text = "NOTSET"}}};
}

/* Asks which nodes of a graph the provider takes. */
static bool ask(OrtEp *provider)
{
    struct OrtNode nodes[6];
    for (int i = 0; i < 6; i++)
        nodes[i] = upsampling("taken", i == 1 ? -1 : 5);
    nodes[2].inputs[0].rank = 5, nodes[2].name = "other dimensions than its attributes";
    nodes[3].inputs[0].type = 7, nodes[3].name = "integers";
    nodes[4].type = "Conv", nodes[4].name = "another operator";
    nodes[5].name = "unknown version";
    const struct OrtGraph graph = {6, nodes};
    if (standin_take_status(provider->GetCapability(provider, &graph, NULL), NULL))
        return false;
    for (int i = 0; i < 6; i++)
        CHECK(nodes[i].is_taken == (i < 2));
    return true;
}

/* The sum for an output, by ONNX's definition. */
static double answer(const float *x, const float *w, int64_t length, int64_t channel, int64_t at)
{
    double sum = 0;
    for (int64_t i = 0; i < CHANNELS_IN; i++) {
        for (int64_t t = 0; t < length; t++) {
            const int64_t tap = at + 1 - STRIDE * t;
            if (tap >= 0 && tap < KERNEL)
                sum += (double)x[i * length + t] * w[(i * CHANNELS_OUT + channel) * KERNEL + tap];
        }
    }
    return sum;
}

/* Runs a kernel once and checks its output. */
static bool run(OrtKernelImpl *kernel, struct OrtValue *weights, const float *w, int64_t length)
{
    float x[CHANNELS_IN * 64];
    for (int i = 0; i < CHANNELS_IN * 64; i++)
        x[i] = (float)(i % 7 - 3);
    struct OrtValue input = {{ORT_FLOAT, 3, {1, CHANNELS_IN, length}}, x};
    struct OrtKernelContext context = {.inputs = {&input, weights}};
    const bool failed = standin_take_status(kernel->Compute(kernel, &context), NULL);
    const float *y = context.output.data;
    if (!failed) {
        const int64_t columns = context.output.info.dims[2];
        CHECK(context.output.info.rank == 3 && columns == STRIDE * length);
        for (int64_t channel = 0; channel < CHANNELS_OUT; channel++) {
            for (int64_t at = 0; at < columns; at++)
                CHECK(y[channel * columns + at] == (float)answer(x, w, length, channel, at));
        }
    }
    free(context.output.data);
    return !failed;
}

/* Makes a kernel of a node, shows it the constant weights, and runs it on some lengths, each twice. */
static bool run_node(const struct OrtNode *node, const int64_t *lengths, size_t count)
{
    float w[CHANNELS_IN * CHANNELS_OUT * KERNEL];
    for (int i = 0; i < CHANNELS_IN * CHANNELS_OUT * KERNEL; i++)
        w[i] = (float)(i % 5 - 2);
    struct OrtValue weights = {node->inputs[1], w};
    OrtKernelImpl *kernel = NULL;
    bool is_packed = false;
    if (standin_take_status(standin.create_kernel(standin.state, (const OrtKernelInfo *)node, &kernel), NULL))
        return false;
    bool right = !standin_take_status(kernel->PrePackWeight(kernel, &weights, 1, NULL, NULL, &is_packed), NULL);
    if (is_packed)
        weights.data = NULL; /* as ONNX Runtime frees them */
    for (size_t i = 0; i < count && right; i++) {
        for (int again = 0; again < 2 && right; again++)
            right = run(kernel, &weights, w, lengths[i]);
    }
    kernel->Release(kernel);
    return right;
}

/* ------------------------------------------------------------------------------------------------------------- scenarios */

static bool use_provider(OrtEpFactory *factory)
{
    static const struct OrtSessionOptions options = {"2"};
    static const int64_t known[1] = {5}, lengths[11] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 64};
    const OrtHardwareDevice *const hardware[2] = {standin_device(0), standin_device(1)};
    const struct OrtNode fixed = upsampling("fixed", 5), free_length = upsampling("free", -1);
    const OrtKernelRegistry *registry = NULL;
    OrtEpDevice *devices[2] = {NULL, NULL};
    OrtEp *provider = NULL;
    size_t count = 0;
    if (standin_take_status(factory->GetSupportedDevices(factory, hardware, 2, devices, 2, &count), NULL)) {
        CHECK(count == 0);
        return false;
    }
    CHECK(count == 1);
    bool right = !standin_take_status(factory->CreateEp(factory, hardware, NULL, 1, &options, NULL, &provider), NULL);
    if (right) {
        CHECK(strcmp(provider->GetName(provider), factory->GetName(factory)) == 0);
        CHECK(!standin_take_status(provider->GetKernelRegistry(provider, &registry), NULL) && registry != NULL);
        CHECK(standin.kernels == 3 && standin.ranges[0][0] == 1 && standin.ranges[2][1] >= 22);
        right = ask(provider) && run_node(&fixed, known, 1) && run_node(&free_length, lengths, 11);
        factory->ReleaseEp(factory, provider);
    } else {
        CHECK(provider == NULL);
    }
    standin_release_devices(devices, count);
    return right;
}

/* From loading to unloading. */
static bool live(void)
{
    OrtEpFactory *factory = NULL;
    size_t count = 0;
    if (standin_take_status(create("tconv", standin_base(), NULL, &factory, 1, &count), NULL)) {
        CHECK(count == 0);
        return false;
    }
    CHECK(count == 1 && factory->version == ORT_ABI_VERSION);
    const bool right = use_provider(factory);
    CHECK(!standin_take_status(release(factory), NULL));
    return right;
}

static void test_life(void)
{
    reset(ORT_ABI_VERSION, 0);
    CHECK(live() && standin.live == 0);
    reset(ORT_ABI_VERSION + 40, 0);
    CHECK(live() && standin.live == 0);
}

/* Each call fails once. The provider says so, or does without what failed, as with threads; it leaves nothing behind. */
static void test_failures(void)
{
    reset(ORT_ABI_VERSION, 0);
    live();
    const int calls = standin.calls;
    int survived = 0;
    CHECK(calls > 100);
    for (int i = 1; i <= calls; i++) {
        reset(ORT_ABI_VERSION, i);
        survived += live();
        CHECK(standin.live == 0);
    }
    CHECK(survived < calls / 4);
}

/* Each allocation of the provider and of the library in it is refused once: a status, and nothing of the runtime's is left. */
static void test_memory(void)
{
    reset(ORT_ABI_VERSION, 0);
    refuse_from_here(0);
    live();
    const long allocations = refuse_end();
    int survived = 0;
    for (long i = 1; i <= allocations; i++) {
        reset(ORT_ABI_VERSION, 0);
        refuse_from_here(i);
        survived += live();
        refuse_end();
        CHECK(standin.live == 0);
    }
    CHECK(survived <= allocations / 4);
#ifndef TCONV_TESTS_SANITIZED
    CHECK(allocations > 20);
#endif
}

/* Creates factories and expects a refusal with these words. */
static void refused(const char *words)
{
    char message[256] = "";
    OrtEpFactory *factory = NULL;
    size_t count = 7;
    CHECK(standin_take_status(create("tconv", standin_base(), NULL, &factory, 1, &count), message));
    if (strstr(message, words) == NULL) {
        printf("\"%s\": must have \"%s\"\n", message, words);
        failures++;
    }
    CHECK(count == 0 && factory == NULL && standin.live == 0);
}

static void test_refusals(void)
{
    static const char *const broken[][2] = {{"fake_GetErrorCode", "statuses differ"},
                                            {"fake_GetErrorMessage", "statuses differ"},
                                            {"fake_GetKeyValue", "key-value pairs differ"},
                                            {"fake_KernelContext_ParallelFor", "parallel loops differ"},
                                            {"fake_KernelDefBuilder_SetSinceVersion", "definitions of kernels differ"},
                                            {"fake_KernelDef_GetOperatorType", "definitions of kernels differ"}};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        reset(ORT_ABI_VERSION, 0);
        standin.broken = broken[i][0];
        refused(broken[i][1]);
    }
    reset(ORT_ABI_VERSION - 1, 0);
    refused("needs ONNX Runtime 1.24 or newer; this is 1.0-standin");
    reset(ORT_ABI_VERSION, 0);
    standin.has_no_ep_api = true;
    refused("without execution providers from plug-ins");
    OrtEpFactory *factory = NULL;
    size_t count = 7;
    reset(0, 0); /* no table at all, not even for a status */
    CHECK(!standin_take_status(create("tconv", standin_base(), NULL, &factory, 1, &count), NULL) && count == 0);
    reset(ORT_ABI_VERSION, 0);
    CHECK(standin_take_status(create("tconv", standin_base(), NULL, &factory, 0, &count), NULL) && count == 0);
    CHECK(standin.live == 0);
}

static void test_options(void)
{
    static const char *const bad[] = {"-1", "2x", "", "5000", "12345678901234567890"};
    OrtEpFactory *factory = NULL;
    size_t count = 0;
    reset(ORT_ABI_VERSION, 0);
    CHECK(!standin_take_status(create("tconv", standin_base(), NULL, &factory, 1, &count), NULL));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0] && count == 1; i++) {
        const struct OrtSessionOptions options = {bad[i]};
        OrtEp *provider = NULL;
        CHECK(standin_take_status(factory->CreateEp(factory, NULL, NULL, 0, &options, NULL, &provider), NULL));
        CHECK(provider == NULL);
    }
    CHECK(!standin_take_status(release(factory), NULL) && standin.live == 0);
}

int main(int count, char **arguments)
{
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        printf("%s\n", count == 2 ? dlerror() : "test_provider LIBRARY.so");
        return 1;
    }
    look_up(library, "CreateEpFactories", &create);
    look_up(library, "ReleaseEpFactory", &release);
    if (create == NULL || release == NULL) {
        printf("%s: must export CreateEpFactories and ReleaseEpFactory\n", arguments[1]);
        return 1;
    }
    test_life();
    test_failures();
    test_memory();
    test_refusals();
    test_options();
    dlclose(library);
    printf("%d failures\n", failures);
    return failures != 0;
}
