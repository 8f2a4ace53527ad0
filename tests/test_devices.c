/*
 * Two devices: a plan sets everything up on its own device, whichever is current, and refuses tensors of another. The
 * tests are skipped, visibly, where there is one device.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "support/expect.h"
#include "support/hold.h"
#include "support/placed.h"
#include "support/small_layer.h"

static void skip_without_two_devices(void)
{
    int count = 0;
    skip_without_cuda();
    expect_cuda(cudaGetDeviceCount(&count));
    if (count >= 2)
        return;
    fprintf(stderr, "skipped: this needs two CUDA devices\n");
    cr_skip_test("skipped: this needs two CUDA devices");
}

static void expect_current(int device)
{
    int current = -1;
    expect_cuda(cudaGetDevice(&current));
    cr_assert_eq(current, device, "device %d is current now", current);
}

/* Checks on both devices: on the first one first, so that anything set up there alone would be missing on the other;
 * then on both again. */
static void check_on_both(const harness_case *test, const struct way *way, size_t *taken)
{
    struct placed placed[2];
    cudaStream_t streams[2];
    if (!place_way(&placed[0], test, way, 0))
        return;
    cr_assert(place_way(&placed[1], test, way, 1), "%s: takes the layer on one device alone", way->text);
    for (int device = 0; device < 2; device++) {
        expect_cuda(cudaSetDevice(device));
        expect_cuda(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    }
    for (int current = 0; current < 2; current++) {
        expect_cuda(cudaSetDevice(current));
        for (int run = 0; run < 4; run++)
            for (int device = 0; device < 2; device++)
                placed_execute(&placed[device], run % 2 != 0, streams[device]);
        expect_current(current);
        for (int device = 0; device < 2; device++)
            placed_expect_same_bits(&placed[device], streams[device], device == 0 ? "device 0" : "device 1");
    }
    for (int device = 0; device < 2; device++) {
        expect_cuda(cudaStreamDestroy(streams[device]));
        placed_release(&placed[device]);
    }
    expect_current(1);
    expect_cuda(cudaSetDevice(0));
    ++*taken;
}

Test(devices_cuda, every_way_on_two_devices)
{
    static struct way ways[MAX_WAYS];
    static size_t taken[MAX_WAYS];
    skip_without_two_devices();
    const size_t way_count = list_ways(TCONV_BACKEND_CUDA, ways);
    for (size_t i = 0; i < PLACED_LAYERS; i++)
        for (int form = 0; form < PLACED_FORMS; form++) {
            harness_case test = make_placed_case(i, form);
            for (size_t w = 0; w < way_count; w++)
                check_on_both(&test, &ways[w], &taken[w]);
            harness_case_destroy(&test);
        }
    say_taken(ways, taken, way_count);
}

static struct small_layer layer;

/* The one call takes host tensors for a device that is not the current one. */
Test(devices_cuda, one_call_for_another_device)
{
    tconv_options options;
    tconv_issue issue;
    skip_without_two_devices();
    small_layer_init(&layer);
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.device = 1;
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
        issue);
    cr_assert(small_layer_is_right(&layer));
    expect_current(0);
}

Test(devices_cuda, tensors_of_another_device_are_refused)
{
    tconv_options options;
    tconv_issue issue;
    tconv_plan *plan, *packed;
    void *memory;
    skip_without_two_devices();
    small_layer_init(&layer);
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.device = 1;
    expect_success(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue);
    expect_cuda(cudaMalloc(&memory, sizeof layer.weights_data)); /* on device 0 */
    const tconv_tensor weights = {memory, TCONV_F32, TCONV_LOCATION_AUTO};
    expect_failure(tconv_plan_pack_weights(plan, &weights, NULL, &packed, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "weights.location", "must be device 1");
    expect_cuda(cudaFree(memory));
    tconv_plan_destroy(plan);
    expect_current(0);
}
