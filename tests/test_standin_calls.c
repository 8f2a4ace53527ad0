/*
 * Where there is no device to use, the library says so; one call copies, waits and frees; weights that are packed before may
 * have another implementation. On simulated devices, as test_standin.c, whose suite these tests are of.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "standin/drive.h"
#include "standin/standin.h"
#include "support/expect.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void expect_unavailable(const char *text)
{
    harness_layer small;
    char message[128];
    tconv_issue issue;
    tconv_plan *plan;
    const tconv_options options = drive_options(NULL, -1);
    cr_assert(harness_problem_parse("n=1 ci=8 h=8 w=8 co=8 k=3", &small, message, sizeof message), "%s", message);
    for (int again = 0; again < 2; again++) {
        expect_failure(tconv_backend_available(TCONV_BACKEND_CUDA, &issue), issue, TCONV_ERROR_UNAVAILABLE, "backend",
                       text);
        expect_failure(tconv_plan_create(&small.desc, &options, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE,
                       "backend", text);
        cr_assert_eq(cudaPeekAtLastError(), cudaSuccess);
    }
}

Test(standin, no_device_is_unavailable)
{
    standin_set_devices(NULL, 0, cudaErrorNoDevice);
    expect_unavailable("no CUDA device");
}

Test(standin, no_driver_is_unavailable)
{
    standin_set_devices(NULL, 0, cudaErrorInsufficientDriver);
    expect_unavailable("no CUDA driver");
}

Test(standin, a_device_without_code_is_unavailable)
{
    standin_device old = standin_a100;
    old.major = 7;
    old.minor = 5;
    standin_set_devices(&old, 1, cudaSuccess);
    expect_unavailable("device 0 has compute capability 7.5");
}

/* Host tensors, the GPU's backend: copied there and back on the caller's stream, and waited for once; nothing is
 * left. */
static void stage(bool pools)
{
    static float src[2 * 3 * 5 * 6], weights[3 * 4 * 2 * 2], bias[4], dst[2 * 4 * 10 * 12];
    const tconv_tensor tensors[] = {{src, TCONV_F32, TCONV_LOCATION_HOST},
                                    {weights, TCONV_F32, TCONV_LOCATION_HOST},
                                    {bias, TCONV_F32, TCONV_LOCATION_HOST},
                                    {dst, TCONV_F32, TCONV_LOCATION_HOST}};
    standin_device device = standin_h200;
    harness_layer layer;
    tconv_issue issue;
    char message[128];
    int copies = 0, waits = 0;
    device.memory_pools = pools;
    standin_set_devices(&device, 1, cudaSuccess);
    cr_assert(harness_problem_parse("n=2 ci=3 h=5 w=6 co=4 k=2 s=2 b=1", &layer, message, sizeof message), "%s",
              message);
    tconv_options options = drive_options(NULL, 0);
    options.stream = DRIVE_STREAM;
    standin_forget_calls();
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &tensors[0], &tensors[1], &tensors[2], &tensors[3], &issue),
        issue);
    for (size_t i = 0; i < standin_call_count(); i++) {
        const standin_call *call = standin_call_at(i);
        copies += strcmp(call->name, "cudaMemcpyAsync") == 0;
        waits += strcmp(call->name, "cudaStreamSynchronize") == 0;
        cr_assert_eq(call->result, 0, "%s", call->name);
        cr_assert(pools || strstr(call->name, "Async") == NULL || strcmp(call->name, "cudaMemcpyAsync") == 0, "%s",
                  call->name);
        if (call->stream != NULL || strcmp(call->name, "cudaMemcpyAsync") == 0)
            cr_assert_eq(call->stream, DRIVE_STREAM, "%s", call->name);
    }
    cr_assert_eq(copies, 4, "%d copies", copies);
    cr_assert_eq(waits, 1, "%d waits", waits);
    cr_assert_eq(standin_live_pieces(), 0);
}

Test(standin, the_one_call_copies_waits_and_frees)
{
    stage(true);
    stage(false);
}

/* Calls that pack read and write the weights before they are multiplied, unless they are read as they lie. A plan that
 * holds them packed does not, so that another implementation may be the fastest: many weights over few pixels. */
Test(standin, weights_packed_before_may_have_another_implementation)
{
    static const struct {
        const char *problem, *calls, *packed;
        tconv_dtype dtype;
    } layers[] = {
        {"n=1 ci=1536 h=1 w=87 co=768 k=1x16 s=1x8 p=0x4 b=1", "cuda_gemm_col2im", "cuda_igemm", TCONV_F32},
        {"n=64 ci=2048 h=1 w=1 co=512 k=7 b=1", "cuda_gemm_col2im", "cuda_igemm", TCONV_BF16},
    };
    for (size_t i = 0; i < COUNT(layers); i++) {
        harness_layer layer;
        char message[128];
        cr_assert(harness_problem_parse(layers[i].problem, &layer, message, sizeof message), "%s", message);
        layer.desc.dtype = layers[i].dtype;
        layer.desc.math = layers[i].dtype == TCONV_F32 ? TCONV_MATH_TF32 : TCONV_MATH_DEFAULT;
        const tconv_options options = drive_options(NULL, 0);
        const drive_tensors tensors = drive_place(&layer, 0);
        tconv_plan *plan, *packed, *again;
        cr_assert_eq(tconv_plan_create(&layer.desc, &options, &plan, NULL), TCONV_SUCCESS);
        cr_assert_eq(tconv_plan_pack_weights(plan, &tensors.weights, NULL, &packed, NULL), TCONV_SUCCESS);
        cr_assert_eq(tconv_plan_pack_weights(packed, &tensors.weights, NULL, &again, NULL), TCONV_SUCCESS);
        cr_expect_str_eq(tconv_plan_implementation(plan), layers[i].calls, "%s", layers[i].problem);
        cr_expect_str_eq(tconv_plan_implementation(packed), layers[i].packed, "%s", layers[i].problem);
        cr_expect_str_eq(tconv_plan_implementation(again), layers[i].packed, "%s", layers[i].problem);
        tconv_plan_destroy(again);
        tconv_plan_destroy(packed);
        tconv_plan_destroy(plan);
    }
}

/* The volumes of a layer whose channels lie inside: copied weights, packed or read as they lie, and one launch that multiplies, as
 * TMA finds each volume by a fifth axis. Where TMA takes no address, the launch is the same. */
Test(standin, all_volumes_are_multiplied_by_one_launch)
{
    static const struct {
        const char *problem;
        tconv_op op;
        size_t most;
    } layers[] = {
        {"n=16 ci=32 z=16 h=32 w=32 co=64 k=3 s=2 p=1 d=2", TCONV_BACKWARD_DATA, 3},
        {"n=3 ci=64 z=9 h=16 w=16 co=48 k=3", TCONV_BACKWARD_DATA, 3},
        {"n=3 ci=64 z=7 h=24 w=24 co=64 k=5x3x3 p=2x1x1", TCONV_FORWARD, 3},
        {"n=5 ci=64 z=7 h=24 w=24 co=64 k=3x5x5 d=2x1x1 b=1", TCONV_FORWARD, 3},
    };
    for (size_t i = 0; i < 2 * COUNT(layers); i++) {
        harness_layer layer;
        char message[128];
        size_t launches = 0;
        cr_assert(harness_problem_parse(layers[i / 2].problem, &layer, message, sizeof message), "%s", message);
        layer.desc.op = layers[i / 2].op;
        layer.desc.layout = TCONV_NHWC;
        layer.desc.weight_layout = TCONV_WEIGHT_IHWO;
        layer.desc.dtype = TCONV_BF16;
        const tconv_options options = drive_options(NULL, 0);
        const drive_tensors tensors = drive_place(&layer, i % 2 == 0 ? 0 : 1);
        tconv_plan *plan;
        cr_assert_eq(tconv_plan_create(&layer.desc, &options, &plan, NULL), TCONV_SUCCESS);
        standin_forget_calls();
        cr_assert_eq(drive_execute(plan, &tensors), TCONV_SUCCESS);
        for (size_t at = 0; at < standin_call_count(); at++)
            launches += standin_is_launch(standin_call_at(at));
        cr_expect_leq(launches, layers[i / 2].most, "%zu launches: %s", launches, layers[i / 2].problem);
        tconv_plan_destroy(plan);
    }
}
