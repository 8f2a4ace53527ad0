/*
 * The CUDA backend's promises about streams, with the CUDA runtime beside it: work is ordered on the caller's stream
 * and nowhere else, nothing waits, a call can be captured into a graph, and the caller's current device and last error
 * stay as they were.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "harness.h"
#include "support/expect.h"
#include "support/hold.h"
#include "support/small_layer.h"
#include "support/ways.h"

/* The small layer on the device. */
struct on_device {
    tconv_tensor src, weights, bias, dst;
    void *workspace;
    size_t workspace_size;
    tconv_plan *plan;
};

static struct small_layer layer;
static tconv_issue issue;

static tconv_tensor upload(const tconv_tensor *host, size_t size)
{
    tconv_tensor tensor = {NULL, host->dtype, TCONV_LOCATION_CUDA};
    expect_cuda(cudaMalloc(&tensor.data, size));
    expect_cuda(cudaMemcpy(tensor.data, host->data, size, cudaMemcpyHostToDevice));
    return tensor;
}

/* Makes a plan and tensors on the current device and runs them once, because code is loaded on first use, which may
 * wait for the device. */
static struct on_device make_on_device(void)
{
    struct on_device made;
    tconv_options options;
    skip_without_cuda();
    small_layer_init(&layer);
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    expect_success(tconv_plan_create(&layer.desc, &options, &made.plan, &issue), issue);
    made.src = upload(&layer.src, sizeof layer.src_data);
    made.weights = upload(&layer.weights, sizeof layer.weights_data);
    made.bias = upload(&layer.bias, sizeof layer.bias_data);
    made.dst = upload(&layer.dst, sizeof layer.dst_data);
    tconv_plan_workspace_size(made.plan, &made.workspace_size);
    expect_cuda(cudaMalloc(&made.workspace, made.workspace_size > 0 ? made.workspace_size : 1));
    cr_assert_eq(tconv_plan_execute(made.plan, &made.src, &made.weights, &made.bias, &made.dst, made.workspace,
                                    made.workspace_size, NULL),
                 TCONV_SUCCESS);
    expect_cuda(cudaDeviceSynchronize());
    expect_cuda(cudaMemcpy(made.dst.data, layer.dst_data, sizeof layer.dst_data, cudaMemcpyHostToDevice));
    return made;
}

static void release_on_device(struct on_device *made)
{
    expect_cuda(cudaDeviceSynchronize());
    tconv_plan_destroy(made->plan);
    expect_cuda(cudaFree(made->src.data));
    expect_cuda(cudaFree(made->weights.data));
    expect_cuda(cudaFree(made->bias.data));
    expect_cuda(cudaFree(made->dst.data));
    expect_cuda(cudaFree(made->workspace));
}

static void execute_on(const struct on_device *made, cudaStream_t stream)
{
    tconv_status status = tconv_plan_execute(made->plan, &made->src, &made->weights, &made->bias, &made->dst,
                                             made->workspace, made->workspace_size, stream);
    tconv_last_issue(&issue);
    expect_success(status, issue);
}

static void fetch(const struct on_device *made, cudaStream_t stream)
{
    expect_cuda(cudaMemcpyAsync(layer.dst_data, made->dst.data, sizeof layer.dst_data, cudaMemcpyDeviceToHost, stream));
    expect_cuda(cudaStreamSynchronize(stream));
}

/* The mistake would wait for the held stream, that is, until it gives up. */
Test(stream_cuda, mistake_synchronising_the_device)
{
    struct on_device made = make_on_device();
    struct hold hold;
    cudaStream_t stream;
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    hold_init(&hold);
    hold_up(&hold, stream);
    execute_on(&made, stream);
    cr_assert_not(hold_gave_up(&hold), "execute waited for its stream");
    let_go(&hold);
    fetch(&made, stream);
    cr_assert_not(hold_gave_up(&hold));
    cr_assert(small_layer_is_right(&layer));
    expect_cuda(cudaStreamDestroy(stream));
    release_on_device(&made);
}

/* With all tensors on the device the one call returns at once as well. */
Test(stream_cuda, one_call_on_device_tensors_does_not_wait)
{
    struct on_device made = make_on_device();
    struct hold hold;
    tconv_options options;
    cudaStream_t stream;
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    tconv_options_init(&options);
    options.stream = stream;
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &made.src, &made.weights, &made.bias, &made.dst, &issue), issue);
    fetch(&made, stream);
    cr_assert(small_layer_is_right(&layer));
    hold_init(&hold);
    hold_up(&hold, stream);
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &made.src, &made.weights, &made.bias, &made.dst, &issue), issue);
    cr_assert_not(hold_gave_up(&hold), "the call waited for its stream");
    let_go(&hold);
    expect_cuda(cudaStreamSynchronize(stream));
    expect_cuda(cudaStreamDestroy(stream));
    release_on_device(&made);
}

/* The mistake would compute only when the held default stream is let go. */
Test(stream_cuda, mistake_computing_on_the_default_stream)
{
    struct on_device made = make_on_device();
    struct hold hold;
    cudaStream_t stream;
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    hold_init(&hold);
    hold_up(&hold, NULL);
    execute_on(&made, stream);
    fetch(&made, stream);
    cr_assert_not(hold_gave_up(&hold), "the stream waited for the default stream");
    cr_assert(small_layer_is_right(&layer), "dst was not computed on the stream");
    let_go(&hold);
    expect_cuda(cudaStreamDestroy(stream));
    release_on_device(&made);
}

/* Nothing of a later execute overtakes an earlier one, and each sees what the stream did before it. */
Test(stream_cuda, executes_are_ordered_on_their_stream)
{
    struct on_device made = make_on_device();
    cudaStream_t stream;
    void *zeros;
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    expect_cuda(cudaMalloc(&zeros, sizeof layer.src_data));
    expect_cuda(cudaMemset(zeros, 0, sizeof layer.src_data));
    for (int i = 0; i < 50; i++) {
        expect_cuda(cudaMemcpyAsync(made.src.data, zeros, sizeof layer.src_data, cudaMemcpyDeviceToDevice, stream));
        execute_on(&made, stream);
        expect_cuda(
            cudaMemcpyAsync(made.src.data, layer.src_data, sizeof layer.src_data, cudaMemcpyHostToDevice, stream));
        execute_on(&made, stream);
    }
    fetch(&made, stream);
    cr_assert(small_layer_is_right(&layer));
    expect_cuda(cudaFree(zeros));
    expect_cuda(cudaStreamDestroy(stream));
    release_on_device(&made);
}

/* One plan runs on two streams at once, each with its own dst and workspace. */
Test(stream_cuda, two_streams_at_once)
{
    struct on_device made = make_on_device(), other = made;
    cudaStream_t streams[2];
    other.dst = upload(&layer.dst, sizeof layer.dst_data);
    expect_cuda(cudaMalloc(&other.workspace, made.workspace_size > 0 ? made.workspace_size : 1));
    for (int i = 0; i < 2; i++)
        expect_cuda(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    for (int i = 0; i < 200; i++) {
        execute_on(&made, streams[0]);
        execute_on(&other, streams[1]);
    }
    fetch(&made, streams[0]);
    cr_assert(small_layer_is_right(&layer));
    small_layer_clear(&layer);
    fetch(&other, streams[1]);
    cr_assert(small_layer_is_right(&layer));
    for (int i = 0; i < 2; i++)
        expect_cuda(cudaStreamDestroy(streams[i]));
    expect_cuda(cudaFree(other.dst.data));
    expect_cuda(cudaFree(other.workspace));
    release_on_device(&made);
}

static void check_capture(const struct on_device *made, const tconv_plan *plan, const tconv_tensor *weights)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    expect_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    tconv_status status = tconv_plan_execute(plan, &made->src, weights, &made->bias, &made->dst, made->workspace,
                                             made->workspace_size, stream);
    tconv_last_issue(&issue);
    expect_cuda(cudaStreamEndCapture(stream, &graph));
    expect_success(status, issue);
    expect_cuda(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 0; launch < 3; launch++) {
        small_layer_clear(&layer);
        expect_cuda(cudaMemcpy(made->dst.data, layer.dst_data, sizeof layer.dst_data, cudaMemcpyHostToDevice));
        expect_cuda(cudaGraphLaunch(executable, stream));
        fetch(made, stream);
        cr_assert(small_layer_is_right(&layer), "launch %d", launch);
    }
    expect_cuda(cudaGraphExecDestroy(executable));
    expect_cuda(cudaGraphDestroy(graph));
    expect_cuda(cudaStreamDestroy(stream));
}

/* A capture refuses calls that wait, allocate or touch the default stream. */
Test(stream_cuda, execute_is_captured_into_a_graph)
{
    struct on_device made = make_on_device();
    tconv_plan *packed;
    check_capture(&made, made.plan, &made.weights);
    expect_success(tconv_plan_pack_weights(made.plan, &made.weights, NULL, &packed, &issue), issue);
    expect_cuda(cudaDeviceSynchronize());
    check_capture(&made, packed, NULL);
    tconv_plan_destroy(packed);
    release_on_device(&made);
}

/* Calls everything that the library does, once. */
static void call_everything(const struct on_device *made)
{
    tconv_plan *packed = NULL;
    tconv_options options;
    char text[4096];
    execute_on(made, NULL);
    expect_success(tconv_plan_pack_weights(made->plan, &made->weights, NULL, &packed, &issue), issue);
    tconv_plan_destroy(packed);
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
        issue);
    expect_success(
        tconv_conv_transpose2d(&layer.desc, NULL, &made->src, &made->weights, &made->bias, &made->dst, &issue), issue);
    options.device = 4711;
    cr_assert_neq(tconv_plan_create(&layer.desc, &options, &packed, &issue), TCONV_SUCCESS);
    tconv_plan_execute(made->plan, &layer.src, &made->weights, NULL, &made->dst, made->workspace, made->workspace_size,
                       NULL);
    tconv_system_info(TCONV_TEXT_PLAIN, text, sizeof text, NULL);
    tconv_backend_available(TCONV_BACKEND_CUDA, NULL);
}

Test(stream_cuda, last_error_is_left_as_found)
{
    struct on_device made = make_on_device();
    expect_cuda(cudaGetLastError());
    call_everything(&made);
    cr_assert_eq(cudaPeekAtLastError(), cudaSuccess, "the library left %s", cudaGetErrorString(cudaPeekAtLastError()));

    cr_assert_eq(cudaSetDevice(4711), cudaErrorInvalidDevice); /* an error of the caller's own */
    call_everything(&made);
    cr_assert_eq(cudaGetLastError(), cudaErrorInvalidDevice, "the library took the caller's error away");
    release_on_device(&made);
}

/* The calls go to the last device while the first is current, where there are two; else to the only one. */
Test(stream_cuda, current_device_is_left_as_found)
{
    struct on_device made = make_on_device();
    int count, device = -1;
    tconv_options options;
    expect_cuda(cudaGetDeviceCount(&count));
    expect_cuda(cudaSetDevice(0));
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.device = count - 1;
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
        issue);
    cr_assert(small_layer_is_right(&layer));
    call_everything(&made);
    expect_cuda(cudaGetDevice(&device));
    cr_assert_eq(device, 0, "device %d is current now", device);
    release_on_device(&made);
}

static void CUDART_CB sleep_a_while(void *argument)
{
    const struct timespec pause = {0, 300000000};
    (void)argument;
    nanosleep(&pause, NULL);
}

/* Host tensors are ready when the call returns, however busy the stream. A copy into page-locked memory does not wait
 * by itself. */
Test(stream_cuda, one_call_waits_for_host_tensors)
{
    struct on_device made = make_on_device();
    cudaStream_t stream;
    void *locked;
    tconv_options options;
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    expect_cuda(cudaMallocHost(&locked, sizeof layer.dst_data));
    memset(locked, 0xff, sizeof layer.dst_data);
    const tconv_tensor dst = {locked, TCONV_F32, TCONV_LOCATION_HOST};
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.stream = stream;
    expect_cuda(cudaLaunchHostFunc(stream, sleep_a_while, NULL));
    expect_success(tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &dst, &issue),
                   issue);
    cr_assert_arr_eq(locked, layer.expected, sizeof layer.expected, "the call came back before dst was ready");
    expect_cuda(cudaFreeHost(locked));
    expect_cuda(cudaStreamDestroy(stream));
    release_on_device(&made);
}

/* Page-locked host memory is the host's; managed memory may be used on both sides. */
Test(stream_cuda, page_locked_and_managed_memory)
{
    struct on_device made = make_on_device();
    void *locked, *managed;
    tconv_options options;
    expect_cuda(cudaMallocHost(&locked, sizeof layer.src_data));
    memcpy(locked, layer.src_data, sizeof layer.src_data);
    expect_cuda(cudaMallocManaged(&managed, sizeof layer.dst_data, cudaMemAttachGlobal));
    const tconv_tensor src = {locked, TCONV_F32, TCONV_LOCATION_AUTO}, dst = {managed, TCONV_F32, TCONV_LOCATION_AUTO};
    tconv_options_init(&options);
    for (int backend = TCONV_BACKEND_AUTO; backend <= TCONV_BACKEND_CUDA; backend++) {
        options.backend = (tconv_backend)backend;
        memset(managed, 0xff, sizeof layer.dst_data);
        expect_success(tconv_conv_transpose2d(&layer.desc, &options, &src, &layer.weights, &layer.bias, &dst, &issue),
                       issue);
        expect_cuda(cudaDeviceSynchronize());
        cr_assert_arr_eq(managed, layer.expected, sizeof layer.expected, "backend %d", backend);
    }
    expect_cuda(cudaFreeHost(locked));
    expect_cuda(cudaFree(managed));
    release_on_device(&made);
}
