/*
 * What the CUDA backend does on the host, on simulated devices: which calls it makes, that each is one that the runtime
 * and the driver accept, that execute may be captured and waits for nothing, and that all is left as it was found. No
 * kernel runs, so nothing here says that a result is right.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin/drive.h"
#include "standin/layers.h"
#include "standin/standin.h"
#include "support/expect.h"
#include "support/wild.h"

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

/* The table makes figures of kernels true, for compute capability 9.0; without it they are the most there may be. It
 * has none where the build has no machine code for that, or zstd, which unpacks it, is not installed. */
static void read_kernels(void)
{
#ifdef STANDIN_KERNELS
    const int known = standin_read_kernels(STANDIN_KERNELS);
    cr_assert(known == 0 || known == standin_kernel_count(), "%s has %d of %d kernels", STANDIN_KERNELS, known,
              standin_kernel_count());
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

/* Checks the calls since `first`: none failed, and of execute and pack each is one that a capture allows, on the
 * stream and the device. Returns the number of launches. */
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

/* Whether a tap takes a plane of src to one of dst. */
static bool a_plane_has_a_tap(const tconv_desc *desc)
{
    const int64_t first = -desc->pad_front, reach = (desc->kernel_d - 1) * desc->dilation_d;
    const int64_t planes =
        (desc->in_d - 1) * desc->stride_d + reach + 1 + desc->output_padding_d - desc->pad_front - desc->pad_back;
    for (int64_t plane = 0; plane < desc->in_d; plane++)
        for (int64_t tap = 0; tap < desc->kernel_d; tap++) {
            const int64_t to = first + plane * desc->stride_d + tap * desc->dilation_d;
            if (to >= 0 && to < planes)
                return true;
        }
    return false;
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
    const tconv_desc *desc = &way->layer->layer.desc;
    const bool writes = desc->batch > 0 || (desc->op == TCONV_BACKWARD_WEIGHTS && !desc->accumulate);
    if (!desc->accumulate || a_plane_has_a_tap(desc)) /* else there is nothing to add but a bias */
        cr_assert_eq(launches > 0, writes, "%s: %zu launches: %s", what, launches, text_of(way));
    expect_as_found(way, what);
}

/* Plans, executes and, where weights are read, packs and executes packed. Returns false where the implementation does not take the layer. */
static bool check_way(const struct way *way)
{
    const drive_tensors tensors = drive_place(&way->layer->layer, way->skew);
    const tconv_options options = drive_options(way->implementation, way->device);
    tconv_plan *plan, *packed;
    size_t size, packed_size;
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
    if (way->layer->layer.desc.op == TCONV_BACKWARD_WEIGHTS) { /* has no weights to pack */
        tconv_plan_destroy(plan);
        return true;
    }

    size_t first = standin_call_count();
    cr_assert_eq(tconv_plan_pack_weights(plan, &tensors.weights, DRIVE_STREAM, &packed, &issue), TCONV_SUCCESS,
                 "%s: %s", issue.message, text_of(way));
    check_calls(way, first, false, "pack");
    expect_as_found(way, "pack");
    cr_assert_eq(standin_live_pieces(), 1, "%d pieces of memory for packed weights: %s", standin_live_pieces(),
                 text_of(way));
    check_execute(way, packed, &tensors, "packed execute");
    tconv_plan_workspace_size(plan, &size);
    tconv_plan_workspace_size(packed, &packed_size);
    cr_assert_leq(packed_size, size, "%s", text_of(way));
    if (way->implementation != NULL) /* a layer with depth speaks of its largest part, which another may take */
        cr_assert_str_eq(tconv_plan_implementation(packed), tconv_plan_implementation(plan), "%s", text_of(way));
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

/* Every layer as it is chosen and by every implementation, every now and then with tensors off alignment, for
 * another device than the current one, and with an error of the caller's. Every implementation has to be reached. */
static void check_layers(const struct layers *layers, int devices, size_t step, bool reaches_all)
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
        cr_expect(taken[at] > 10 || !reaches_all, "%s took %zu layers", name, taken[at]);
}

Test(standin, every_call_is_legal_and_all_is_left_as_found)
{
    const struct layers layers = all_layers();
    read_kernels();
    check_layers(&layers, 1, 1, true);
    free(layers.items);
}

Test(standin, every_way_on_the_second_device_and_from_it)
{
    const standin_device devices[] = {standin_h200, standin_h200};
    const struct layers layers = all_layers();
    standin_set_devices(devices, 2, cudaSuccess);
    read_kernels();
    check_layers(&layers, 2, 3, true);
    free(layers.items);
}

/* The build may lack code for it, and then says so. */
Test(standin, every_call_is_legal_on_an_a100)
{
    const struct layers layers = all_layers();
    tconv_issue issue;
    standin_set_devices(&standin_a100, 1, cudaSuccess);
    if (tconv_backend_available(TCONV_BACKEND_CUDA, &issue) == TCONV_SUCCESS) {
        check_layers(&layers, 1, 2, false);
    } else {
        expect_failure(tconv_backend_available(TCONV_BACKEND_CUDA, &issue), issue, TCONV_ERROR_UNAVAILABLE, "backend",
                       "no code for any device here; device 0 has compute capability 8.0");
    }
    free(layers.items);
}

/* A driver of before CUDA 12.3 may not be asked for launches that overlap. */
Test(standin, nothing_overlaps_by_an_older_driver)
{
    const struct layers layers = all_layers();
    standin_set_driver_version(12020);
    read_kernels();
    for (size_t i = 0; i < layers.count; i += 3) {
        const struct way way = {&layers.items[i], NULL, 0, 0, 0, cudaSuccess};
        check_way(&way);
        for (size_t at = 0; at < standin_call_count(); at++)
            cr_assert(!standin_call_at(at)->overlaps, "%s", text_of(&way));
    }
    free(layers.items);
}

/* ---------------------------------------------------------------------------------------------------- repeatability */

/* A plan is decided by the layer and the device's description alone: the calls of a second one are the same, from
 * other stack and heap memory. Parameters are compared by the trace, which knows what of them is padding. */
static void expect_same_calls(const struct way *way, size_t count)
{
    cr_assert_eq(standin_call_count(), 2 * count, "%zu calls, then %zu: %s", count, standin_call_count() - count,
                 text_of(way));
    for (size_t i = 0; i < count; i++) {
        const standin_call *a = standin_call_at(i), *b = standin_call_at(count + i);
        const bool same = strcmp(a->name, b->name) == 0 && a->kernel == b->kernel && a->bytes == b->bytes &&
                          a->value == b->value && a->digest == b->digest && a->memory == b->memory &&
                          a->overlaps == b->overlaps && memcmp(a->grid, b->grid, sizeof a->grid) == 0 &&
                          memcmp(a->block, b->block, sizeof a->block) == 0;
        cr_assert(same, "call %zu is %s, then %s: %s", i, a->name, b->name, text_of(way));
    }
}

static bool run_once(const struct way *way)
{
    const drive_tensors tensors = drive_place(&way->layer->layer, 0);
    const tconv_options options = drive_options(way->implementation, 0);
    tconv_plan *plan;
    if (tconv_plan_create(&way->layer->layer.desc, &options, &plan, NULL) != TCONV_SUCCESS)
        return false;
    cr_assert_eq(drive_execute(plan, &tensors), TCONV_SUCCESS, "%s", text_of(way));
    tconv_plan_destroy(plan);
    return true;
}

Test(standin, the_same_layer_is_planned_the_same)
{
    const struct layers layers = all_layers();
    for (size_t i = 0; i < layers.count; i++)
        for (size_t at = 0; at == 0 || drive_implementation(at - 1) != NULL; at++) {
            const struct way way = {&layers.items[i], at == 0 ? NULL : drive_implementation(at - 1), 0, 0, 0,
                                    cudaSuccess};
            run_once(&way); /* what is looked up once is */
            standin_forget_calls();
            if (!run_once(&way))
                continue;
            const size_t count = standin_call_count();
            run_once(&way);
            expect_same_calls(&way, count);
        }
    free(layers.items);
}

/* ---------------------------------------------------------------------------------------------------------- wild
 * layers */

#define WILD_LAYERS    10000
#define WILD_SEED      7
#define PLANNING_LIMIT 1.0 /* second of processor time for a layer, as docs/promises.md has it */

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#define WILD_TENSOR ((double)((int64_t)1 << 40)) /* bytes; larger ones would meet where drive.c places them */

/* Executes what was planned, if the addresses have room for its tensors: what is supported never fails later. */
static void execute_wild(const harness_layer *layer)
{
    const standin_layer named = {"wild", *layer};
    const drive_tensors tensors = drive_place(layer, 0);
    for (int role = 0; role < HARNESS_ROLES; role++)
        if ((double)harness_view_of(&layer->desc, (harness_role)role).extent *
                (double)harness_element_size(layer->desc.dtype) >
            WILD_TENSOR)
            return;
    for (size_t at = 0; at == 0 || drive_implementation(at - 1) != NULL; at++) {
        const struct way way = {&named, at == 0 ? NULL : drive_implementation(at - 1), 0, 0, 0, cudaSuccess};
        const tconv_options options = drive_options(way.implementation, 0);
        tconv_plan *plan;
        standin_forget_calls();
        if (tconv_plan_create(&layer->desc, &options, &plan, NULL) == TCONV_SUCCESS)
            check_execute(&way, plan, &tensors, "execute");
        tconv_plan_destroy(plan);
    }
}

/* Layers of any size: a plan that executes, or an error that is documented; in bounded time. */
Test(standin, wild_layers_are_planned_or_refused)
{
    harness_random random;
    double worst = 0, sum = 0;
    int planned = 0;
    char text[HARNESS_LAYER_TEXT], worst_text[HARNESS_LAYER_TEXT] = "";
    harness_random_seed(&random, WILD_SEED);
    read_kernels();
    for (int i = 0; i < WILD_LAYERS; i++) {
        harness_layer layer;
        tconv_plan *plan;
        tconv_issue issue;
        draw_wild_layer(&random, &layer);
        const tconv_options options = drive_options(NULL, 0);
        const double start = processor_seconds();
        const tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, &issue);
        const double taken = processor_seconds() - start;
        harness_layer_format(&layer, text, sizeof text);
        cr_assert(status == TCONV_SUCCESS || status == TCONV_ERROR_OVERFLOW || status == TCONV_ERROR_INVALID_ARGUMENT ||
                      (status == TCONV_ERROR_UNSUPPORTED && layer.desc.op != TCONV_FORWARD),
                  "%s: %s", issue.message, text);
        cr_assert(taken < PLANNING_LIMIT, "planning took %.3f s: %s", taken, text);
        sum += taken;
        if (taken > worst)
            memcpy(worst_text, text, sizeof text);
        worst = taken > worst ? taken : worst;
        planned += status == TCONV_SUCCESS;
        tconv_plan_destroy(plan);
        if (status == TCONV_SUCCESS)
            execute_wild(&layer);
    }
    cr_log_info("%d of %d planned; mean %.1f us, worst %.1f us: %s", planned, WILD_LAYERS, 1e6 * sum / WILD_LAYERS,
                1e6 * worst, worst_text);
    cr_assert_gt(planned, WILD_LAYERS / 4, "%d planned", planned);
}
