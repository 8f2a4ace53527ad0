/*
 * Every call of the CUDA runtime and the driver may fail, once. Whichever it is: the library says so by an error of
 * CUDA's and the function's name, or goes on where it can do without; nothing leaks, and device and last error are left
 * as found.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "standin/drive.h"
#include "standin/standin.h"
#include "support/expect.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What a failure of one call may show, beside an error of CUDA's that names the function. */
enum wrong {
    NOTHING,
    STATUS,     /* another status, or an issue that names another function */
    DEVICE,     /* another current device than the caller's */
    LAST_ERROR, /* a last error that the caller had not */
    LEAK,       /* memory that is not freed */
    CRASH,
};

static const char *const wrong_names[] = {
    "nothing",        "the status is wrong", "another device is current", "a last error stays",
    "memory is left", "the process crashes"};

/*
 * Functions that the library does without, and goes on. That nothing is lost is seen of each: the call succeeds, device
 * and last error are as found, no memory is left, and what is launched instead breaks no rule of the runtime's (one
 * that did would fail the call). A release cannot say that it failed: of the functions that are spared there alone,
 * the failing call must stand beside that of cudaFree or cudaFreeAsync, which finds the memory by its address.
 */
static const struct {
    const char *function;
    bool in_release;
} spares[] = {
    {"cudaDriverGetVersion", false},             /* nothing overlaps */
    {"cudaGetDriverEntryPointByVersion", false}, /* there are no tensor maps; the runtime sets attributes */
    {"cuTensorMapEncodeTiled", false},           /* another kernel reads src */
    {"cudaGetFuncBySymbol", false},              /* the runtime sets the attribute */
    {"cuFuncSetAttribute", false},
    {"cudaDeviceGetAttribute", false}, /* of any device, before one is chosen, while another answers */
    {"cudaFree", true},                /* the error is one of earlier work */
    {"cudaFreeAsync", true},
    {"cudaSetDevice", true},
    {"cudaGetDevice", true},
};

/* A layer for every implementation, and one that each takes another way for. */
static const struct {
    const char *implementation, *problem;
    tconv_math math;
    tconv_op op;
} ways[] = {
    {"cuda_depthwise", "n=4 ci=32 h=64 w=64 co=32 k=4 s=2 p=1 g=32 b=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_col2im", "n=4 ci=64 h=64 w=64 co=3 k=4 s=2 p=1 b=1", TCONV_MATH_TF32, TCONV_FORWARD},
    {"cuda_col2im", "n=4 ci=64 h=31 w=31 co=2 k=3 s=3 b=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_rows", "n=4 ci=16 h=64 w=64 co=16 k=4 s=4 b=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_cells", "n=16 ci=64 h=32 w=32 co=32 k=4 s=2 b=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_wgmma", "n=8 ci=64 h=128 w=128 co=64 k=3 p=1", TCONV_MATH_TF32, TCONV_FORWARD},
    {"cuda_igemm", "n=16 ci=256 h=28 w=28 co=128 k=2 s=2 b=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_mma", "n=4 ci=32 h=64 w=64 co=64 k=3 s=5 p=1 d=2", TCONV_MATH_TF32, TCONV_FORWARD},
    {"cuda_gemm_col2im", "n=2 ci=32 h=1 w=99 co=2 k=1x300 s=1x75 b=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_general", "n=3 ci=5 h=31 w=33 co=7 k=4 s=3 b=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_gemm_col2im", "n=3 ci=512 h=10 w=11 co=150 k=6 s=2 p=2 b=1", TCONV_MATH_STRICT,
     TCONV_FORWARD}, /* operands exchanged */
    {NULL, "n=8 ci=64 h=128 w=128 co=64 k=3 p=1", TCONV_MATH_STRICT, TCONV_FORWARD},
    {"cuda_depthwise", "n=4 ci=32 h=64 w=64 co=32 k=4 s=2 p=1 g=32", TCONV_MATH_STRICT, TCONV_BACKWARD_DATA},
    {"cuda_dgrad", "n=16 ci=64 h=32 w=32 co=64 k=4 s=2 p=1", TCONV_MATH_STRICT, TCONV_BACKWARD_DATA},
    {"cuda_dgrad", "n=8 ci=64 h=64 w=64 co=64 k=3 p=1", TCONV_MATH_TF32, TCONV_BACKWARD_DATA},
    {"cuda_depthwise", "n=4 ci=32 h=64 w=64 co=32 k=4 s=2 p=1 g=32", TCONV_MATH_STRICT, TCONV_BACKWARD_WEIGHTS},
    {"cuda_wgrad", "n=8 ci=64 h=64 w=64 co=64 k=3 p=1 b=1", TCONV_MATH_TF32, TCONV_BACKWARD_WEIGHTS},
    {"cuda_general", "n=3 ci=5 h=31 w=33 co=7 k=4 s=3 b=1", TCONV_MATH_STRICT, TCONV_BACKWARD_WEIGHTS},
    {"cuda_finish", "n=8 ci=64 h=128 w=128 co=64 k=3 p=1 b=1 acc=1", TCONV_MATH_TF32, TCONV_FORWARD},
    {"cuda_igemm", "n=16 ci=256 h=28 w=28 co=128 k=2 s=3 b=1 acc=1", TCONV_MATH_TF32, TCONV_FORWARD},
    {"cuda_dgrad", "n=16 ci=64 h=32 w=32 co=64 k=4 s=2 p=1 acc=1", TCONV_MATH_STRICT, TCONV_BACKWARD_DATA},
    {"cuda_finish", "n=16 ci=64 h=32 w=32 co=64 k=4 s=2 p=1 acc=1", TCONV_MATH_STRICT, TCONV_BACKWARD_DATA},
    {"cuda_finish", "n=8 ci=64 h=64 w=64 co=64 k=3 p=1 b=1 post=mul_channel,add_channel,leaky_relu:0", TCONV_MATH_TF32,
     TCONV_FORWARD},
};

#define STAGED_WAY 9 /* small, and all of its tensors are read and written */

static const cudaError_t played[] = {cudaErrorUnknown, cudaErrorMemoryAllocation};

static harness_layer layer_of(size_t way)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(ways[way].problem, &layer, message, sizeof message), "%s", message);
    layer.desc.math = ways[way].math;
    layer.desc.op = ways[way].op;
    return layer;
}

/* Plans, executes and, where weights are read, packs and executes packed, as far as it goes. */
static tconv_status run_plans(const harness_layer *layer, const char *implementation, int device, tconv_issue *issue)
{
    const tconv_options options = drive_options(implementation, device);
    const drive_tensors tensors = drive_place(layer, 0);
    tconv_plan *plan = NULL, *packed = NULL;
    tconv_status status = tconv_plan_create(&layer->desc, &options, &plan, issue);
    if (status == TCONV_SUCCESS && (status = drive_execute(plan, &tensors)) != TCONV_SUCCESS)
        tconv_last_issue(issue);
    const bool packs = layer->desc.op != TCONV_BACKWARD_WEIGHTS;
    if (status == TCONV_SUCCESS && packs)
        status = tconv_plan_pack_weights(plan, &tensors.weights, DRIVE_STREAM, &packed, issue);
    if (status == TCONV_SUCCESS && packs && (status = drive_execute(packed, &tensors)) != TCONV_SUCCESS)
        tconv_last_issue(issue);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
    return status;
}

/* One call, with tensors in host memory that are copied to the device and back. */
static tconv_status run_staged(const harness_layer *layer, const char *implementation, int device, tconv_issue *issue)
{
    static float src[1 << 16], weights[1 << 12], dst[1 << 20];
    tconv_options options = drive_options(implementation, device);
    options.stream = DRIVE_STREAM;
    const tconv_tensor tensors[] = {{src, TCONV_F32, TCONV_LOCATION_HOST},
                                    {weights, TCONV_F32, TCONV_LOCATION_HOST},
                                    {dst, TCONV_F32, TCONV_LOCATION_HOST}};
    return tconv_conv_transpose2d(&layer->desc, &options, &tensors[0], &tensors[1], NULL, &tensors[2], issue);
}

typedef tconv_status run_function(const harness_layer *, const char *, int, tconv_issue *);

static bool is_free(size_t call)
{
    return call < standin_call_count() && strncmp(standin_call_at(call)->name, "cudaFree", strlen("cudaFree")) == 0;
}

/* Whether the call that failed is a release, or makes the memory's device current for one, or the caller's after one.
 * The functions of errors, which stand between, do not count. */
static bool is_in_release(const char *function)
{
    size_t failed = 0, before, after;
    while (failed < standin_call_count() &&
           (standin_call_at(failed)->result == cudaSuccess || strcmp(standin_call_at(failed)->name, function) != 0))
        failed++;
    for (before = failed; before > 0 && strstr(standin_call_at(before - 1)->name, "LastError") != NULL; before--)
        ;
    for (after = failed + 1; after < standin_call_count(); after++) {
        const char *name = standin_call_at(after)->name;
        if (strstr(name, "LastError") == NULL && strcmp(name, "cudaSetDevice") != 0)
            break;
    }
    return is_free(failed) || (before > 0 && is_free(before - 1)) || is_free(after);
}

static bool is_spare(const char *function)
{
    for (size_t i = 0; i < COUNT(spares); i++)
        if (strcmp(function, spares[i].function) == 0)
            return !spares[i].in_release || is_in_release(function);
    return false;
}

/* Whether an issue's message begins with the name of the function, which for the runtime's variants is the shorter
 * one. */
static bool names(const tconv_issue *issue, const char *function)
{
    const size_t length = strcspn(issue->message, ":");
    return length > 4 && strncmp(issue->message, function, length) == 0;
}

/* Says what is wrong after a call failed with error. Finding no device is no error of CUDA's to a caller. */
static enum wrong judge(tconv_status status, const tconv_issue *issue, cudaError_t error, const char *function)
{
    const tconv_status expected = error == cudaErrorMemoryAllocation ? TCONV_ERROR_OUT_OF_MEMORY : TCONV_ERROR_CUDA;
    const bool unavailable = status == TCONV_ERROR_UNAVAILABLE && strcmp(function, "cudaGetDeviceCount") == 0;
    const bool restored = !standin_failed_setting(0);
    int device = -1;
    standin_fail(0, cudaSuccess, 0);
    cudaGetDevice(&device);
    if (!unavailable && !(status == expected && names(issue, function)) &&
        !(status == TCONV_SUCCESS && is_spare(function)))
        return STATUS;
    if (device != 0 && restored)
        return DEVICE;
    if (cudaPeekAtLastError() != cudaSuccess)
        return LAST_ERROR;
    return standin_live_pieces() != 0 ? LEAK : NOTHING;
}

/* What a child tells its parent, in memory that both see. */
struct outcome {
    const char *function; /* that failed; NULL: no call was left to fail */
    enum wrong wrong;
    tconv_status status;
    char message[sizeof(((tconv_issue *)NULL)->message)];
};

static struct outcome *told;

static void tell_crash(int signal)
{
    (void)signal;
    told->function = standin_failed();
    told->wrong = CRASH;
    _exit(0);
}

/* Runs a way with its nth call failing, and does not return. */
static void fail_in_child(run_function *run, size_t way, int device, int64_t nth, cudaError_t error)
{
    const harness_layer layer = layer_of(way);
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    signal(SIGSEGV, tell_crash);
    standin_forget_calls();
    standin_fail(nth, error, 1);
    told->status = run(&layer, ways[way].implementation, device, &issue);
    told->function = standin_failed();
    memcpy(told->message, issue.message, sizeof told->message);
    if (told->function != NULL)
        told->wrong = judge(told->status, &issue, error, told->function);
    else
        told->wrong = told->status == TCONV_SUCCESS ? NOTHING : STATUS;
    _exit(0);
}

/* Has every n-th call fail once, in processes of their own: what one failure leaves, the next does not see. */
static void fail_every_call(run_function *run, size_t way, int device)
{
    const char *implementation = ways[way].implementation != NULL ? ways[way].implementation : "the chosen";
    int64_t failures = 0;
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)told, MAP_FAILED);
    for (size_t e = 0; e < COUNT(played); e++)
        for (int64_t nth = 1;; nth++) {
            int result;
            memset(told, 0, sizeof *told);
            const pid_t child = fork();
            if (child == 0)
                fail_in_child(run, way, device, nth, played[e]);
            cr_assert_eq(waitpid(child, &result, 0), child);
            cr_assert(WIFEXITED(result) && WEXITSTATUS(result) == 0, "%s, call %d: the process ended by signal %d",
                      implementation, (int)nth, WTERMSIG(result));
            if (told->function == NULL) {
                cr_assert_eq(told->wrong, NOTHING, "%s: %s", implementation, told->message);
                break;
            }
            failures++;
            cr_expect(told->wrong == NOTHING, "%s \"%s\", device %d, call %d: %s fails with %s, and %s: %s (%s)",
                      implementation, ways[way].problem, device, (int)nth, told->function, cudaGetErrorName(played[e]),
                      wrong_names[told->wrong], tconv_status_string(told->status), told->message);
        }
    munmap(told, sizeof *told);
    cr_assert_gt(failures, ways[way].op == TCONV_BACKWARD_WEIGHTS ? 6 : 20); /* those are executed once, packed never */
}

static void use_two_devices(bool pools)
{
    standin_device devices[] = {standin_h200, standin_h200};
    devices[0].memory_pools = devices[1].memory_pools = pools;
    standin_set_devices(devices, 2, cudaSuccess);
}

/* Has everything been looked up that is looked up once. */
static void warm_up(void)
{
    tconv_issue issue;
    for (size_t way = 0; way < COUNT(ways); way++) {
        const harness_layer layer = layer_of(way);
        expect_success(run_plans(&layer, ways[way].implementation, 0, &issue), issue);
    }
}

Test(standin, every_call_of_a_plan_may_fail_once)
{
    use_two_devices(true);
    warm_up();
    for (size_t way = 0; way < COUNT(ways); way++)
        for (int device = 0; device < 2; device++)
            fail_every_call(run_plans, way, device);
}

Test(standin, every_call_of_the_one_call_may_fail_once)
{
    for (int pools = 0; pools < 2; pools++) {
        use_two_devices(pools);
        fail_every_call(run_staged, STAGED_WAY, 1);
    }
}

Test(standin, every_call_of_a_cold_process_may_fail_once)
{
    for (size_t way = 0; way < COUNT(ways); way++)
        fail_every_call(run_plans, way, 0);
}
