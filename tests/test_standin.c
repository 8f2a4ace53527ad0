/*
 * What the CUDA backend does on the host, on simulated devices: which calls it makes, that each is one that the runtime and
 * the driver accept, that execute may be captured and waits for nothing, and that all is left as it was found. No kernel
 * runs, so nothing here says that a result is right.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "standin/drive.h"
#include "standin/layers.h"
#include "standin/standin.h"
#include "support/expect.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* All that execute may call: nothing of it waits, allocates or is forbidden while a stream is captured. */
static const char *const captured[] = {
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaDeviceGetAttribute",
    "cudaDriverGetVersion",
    "cudaFuncGetAttributes",
    "cudaFuncSetAttribute",
    "cudaGetFuncBySymbol",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaGetDriverEntryPointByVersion",
    "cuFuncSetAttribute",
    "cuTensorMapEncodeTiled",
    "cudaMemsetAsync",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
};

static const char *const queued[] = {"cudaMemsetAsync", "cudaLaunchKernel", "cudaLaunchKernelExC"};

static bool is_in(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

/* The table makes figures of kernels true; without it they are the most there may be. */
static void read_kernels(void)
{
#ifdef STANDIN_KERNELS
    cr_assert_eq(standin_read_kernels(STANDIN_KERNELS), standin_kernel_count(), "%s does not have all kernels",
                 STANDIN_KERNELS);
#endif
}

struct layers {
    standin_layer *items;
    size_t count;
};

static struct layers all_layers(void)
{
    struct layers layers;
    layers.count = standin_list_layers(NULL, 0, &layers.items);
    cr_assert_gt(layers.count, 1000);
    return layers;
}

/* One layer by one implementation (NULL: the chosen one), as its caller asks for it. */
struct way {
    const standin_layer *layer;
    const char *implementation;
    int device;         /* the plan's */
    int current;        /* the caller's */
    int skew;           /* elements that the tensors are off alignment */
    cudaError_t before; /* the caller's last error */
};

static const char *text_of(const struct way *way)
{
    static char text[HARNESS_LAYER_TEXT + 256];
    char layer[HARNESS_LAYER_TEXT];
    harness_layer_format(&way->layer->layer, layer, sizeof layer);
    snprintf(text, sizeof text, "%s, %s, device %d from %d, skew %d: %s",
             way->implementation != NULL ? way->implementation : "chosen", way->layer->name, way->device, way->current,
             way->skew, layer);
    return text;
}

static void expect_as_found(const struct way *way, const char *after)
{
    int device = -1;
    cudaGetDevice(&device);
    cr_assert_eq(device, way->current, "after %s device %d is current: %s", after, device, text_of(way));
    cr_assert_eq(cudaPeekAtLastError(), way->before, "after %s the last error is %s: %s", after,
                 cudaGetErrorName(cudaPeekAtLastError()), text_of(way));
}

/* Checks the calls since `first`: none failed, and of execute and pack each is one that a capture allows, on the stream and
 * the device. Returns the number of launches. */
static size_t check_calls(const struct way *way, size_t first, bool is_captured, const char *what)
{
    size_t launches = 0;
    for (size_t i = first; i < standin_call_count(); i++) {
        const standin_call *call = standin_call_at(i);
        cr_assert_eq(call->result, 0, "%s: %s fails with %d (%s): %s", what, call->name, call->result,
                     call->why != NULL ? call->why : "", text_of(way));
        cr_assert(!is_captured || is_in(call->name, captured, COUNT(captured)), "%s calls %s: %s", what, call->name,
                  text_of(way));
        if (is_in(call->name, queued, COUNT(queued))) {
            cr_assert_eq(call->stream, DRIVE_STREAM, "%s: %s on another stream: %s", what, call->name, text_of(way));
            cr_assert_eq(call->device, way->device, "%s: %s on device %d: %s", what, call->name, call->device,
                         text_of(way));
        }
        launches += standin_is_launch(call);
    }
    return launches;
}

static void check_execute(const struct way *way, const tconv_plan *plan, const drive_tensors *tensors, const char *what)
{
    const size_t first = standin_call_count();
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    const tconv_status status = drive_execute(plan, tensors);
    if (status != TCONV_SUCCESS)
        tconv_last_issue(&issue);
    const size_t launches = check_calls(way, first, true, what);
    cr_assert_eq(status, TCONV_SUCCESS, "%s: %s: %s", what, issue.message, text_of(way));
    cr_assert_eq(launches > 0, way->layer->layer.desc.batch > 0, "%s: %zu launches: %s", what, launches, text_of(way));
    expect_as_found(way, what);
}

/* Plans, executes, packs and executes packed. Returns false where the implementation does not take the layer. */
static bool check_way(const struct way *way)
{
    const drive_tensors tensors = drive_place(&way->layer->layer, way->skew);
    const tconv_options options = drive_options(way->implementation, way->device);
    tconv_plan *plan, *packed;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    standin_forget_calls();
    const tconv_status status = tconv_plan_create(&way->layer->layer.desc, &options, &plan, &issue);
    check_calls(way, 0, false, "plan");
    cr_assert_eq(standin_live_pieces(), 0, "the plan holds memory of the device: %s", text_of(way));
    expect_as_found(way, "plan");
    if (way->implementation != NULL && status == TCONV_ERROR_UNSUPPORTED)
        return false;
    cr_assert_eq(status, TCONV_SUCCESS, "%s: %s", issue.message, text_of(way));
    check_execute(way, plan, &tensors, "execute");

    size_t first = standin_call_count();
    cr_assert_eq(tconv_plan_pack_weights(plan, &tensors.weights, DRIVE_STREAM, &packed, &issue), TCONV_SUCCESS,
                 "%s: %s", issue.message, text_of(way));
    check_calls(way, first, false, "pack");
    expect_as_found(way, "pack");
    cr_assert_eq(standin_live_pieces(), 1, "%d pieces of memory for packed weights: %s", standin_live_pieces(),
                 text_of(way));
    check_execute(way, packed, &tensors, "packed execute");
    first = standin_call_count();
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
    check_calls(way, first, false, "destroy");
    expect_as_found(way, "destroy");
    cr_assert_eq(standin_live_pieces(), 0, "%zu bytes are left: %s", standin_live_bytes(), text_of(way));
    return true;
}

/* Leaves an error that the caller has not seen yet. */
static void make_error(void)
{
    cr_assert_eq(cudaSetDevice(STANDIN_MAX_DEVICES), cudaErrorInvalidDevice);
}

/* Every layer as it is chosen and by every implementation, every now and then with tensors off alignment, for another device
 * than the current one, and with an error of the caller's. Every implementation has to be reached. */
static void check_layers(const struct layers *layers, int devices, size_t step)
{
    const char *name;
    size_t taken[16] = {0};
    for (size_t i = 0; i < layers->count; i += step) {
        struct way way = {&layers->items[i], NULL, 0, 0, 0, cudaSuccess};
        way.skew = i % 4 == 3;
        way.device = devices > 1 ? (int)(i % 3 == 0) : 0;
        way.current = devices > 1 ? (int)(i % 2) : 0;
        cudaSetDevice(way.current);
        cudaGetLastError();
        if (i % 5 == 4) {
            make_error();
            way.before = cudaErrorInvalidDevice;
        }
        cr_assert(check_way(&way), "%s", text_of(&way));
        for (size_t at = 0; (name = drive_implementation(at)) != NULL; at++) {
            way.implementation = name;
            taken[at] += check_way(&way);
        }
    }
    for (size_t at = 0; (name = drive_implementation(at)) != NULL; at++)
        cr_expect(taken[at] > 10 || standin_h200.major != 9, "%s took %zu layers", name, taken[at]);
}

Test(standin, every_call_is_legal_and_all_is_left_as_found)
{
    const struct layers layers = all_layers();
    read_kernels();
    check_layers(&layers, 1, 1);
    free(layers.items);
}

Test(standin, every_way_on_the_second_device_and_from_it)
{
    const standin_device devices[] = {standin_h200, standin_h200};
    const struct layers layers = all_layers();
    standin_set_devices(devices, 2, cudaSuccess);
    read_kernels();
    check_layers(&layers, 2, 3);
    free(layers.items);
}
