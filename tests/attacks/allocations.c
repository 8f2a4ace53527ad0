/*
 * Counts every allocation of the process, OpenMP's too: a warm execute makes none, on one thread and on two. In a cold
 * process whose n-th allocation is refused, for every n, the first plan and the first execute on one thread return
 * success or OUT_OF_MEMORY.
 */
#include "attack_case.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* NOLINTBEGIN(bugprone-reserved-identifier,readability-inconsistent-declaration-parameter-name): glibc's own, behind the
 * names that are replaced here for the whole process. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_long calls, refused; /* refused: the number of the call that fails; 0: none */

static bool refuses(void)
{
    return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&refused);
}

void *malloc(size_t size)
{
    return refuses() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refuses() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return refuses() ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return refuses() ? NULL : __libc_memalign(alignment, size);
}

/* NOLINTEND(bugprone-reserved-identifier,readability-inconsistent-declaration-parameter-name) */

/* ------------------------------------------------------------------------------------------------------------- warm */

static void check_warm(const harness_case *test, const char *implementation, int threads)
{
    tconv_options options;
    tconv_plan *plan, *packed;
    tconv_issue issue;
    size_t size;
    const tconv_dtype dtype = test->layer.desc.dtype;
    tconv_options_init(&options);
    options.implementation = implementation;
    options.threads = threads;
    tconv_status status = tconv_plan_create(&test->layer.desc, &options, &plan, &issue);
    if (status == TCONV_ERROR_UNSUPPORTED)
        return;
    require(status == TCONV_SUCCESS, "%s", issue.message);
    const tconv_tensor src = {test->src.data, dtype, TCONV_LOCATION_HOST};
    const tconv_tensor weights = {test->weights.data, dtype, TCONV_LOCATION_HOST};
    harness_buffer buffer = harness_buffer_create(test->dst_view.extent, harness_element_size(dtype), 0);
    const tconv_tensor dst = {buffer.data, dtype, TCONV_LOCATION_HOST};
    require(tconv_plan_pack_weights(plan, &weights, NULL, &packed, &issue) == TCONV_SUCCESS, "%s", issue.message);
    require(tconv_plan_workspace_size(plan, &size) == TCONV_SUCCESS, "no size");
    void *workspace = __libc_malloc(size + 1);
    for (int turn = 0; turn < 20; turn++) {
        long before = atomic_load(&calls);
        const tconv_plan *use = turn % 2 == 0 ? plan : packed;
        require(tconv_plan_execute(use, &src, &weights, NULL, &dst, workspace, size, NULL) == TCONV_SUCCESS, "failed");
        long made = atomic_load(&calls) - before;
        require(turn < 2 || made == 0, "%s, %d threads, execute %d: %ld allocations", implementation, threads, turn,
                made);
    }
    free(workspace);
    harness_buffer_release(&buffer);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------------------------- cold */

/* Makes the first calls of a process with the which-th allocation refused. It does not use harness_run, so that all of
 * the caller's memory exists before. */
static int run_cold(long which)
{
    static float src[8 * 16 * 16], weights[8 * 8 * 9], dst[8 * 18 * 18], workspace[1 << 20];
    static char text[1 << 16];
    tconv_desc desc;
    tconv_options options;
    tconv_plan *plan;
    size_t length;
    tconv_desc_init(&desc);
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 1;
    desc.in_channels = desc.out_channels = 8, desc.in_h = desc.in_w = 16, desc.kernel_h = desc.kernel_w = 3;
    for (int i = 0; i < 8 * 16 * 16; i++)
        src[i] = 1;
    for (int i = 0; i < 8 * 8 * 9; i++)
        weights[i] = 1;
    const tconv_tensor s = {src, TCONV_F32, TCONV_LOCATION_HOST}, w = {weights, TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor d = {dst, TCONV_F32, TCONV_LOCATION_HOST};
    if (dlsym(RTLD_DEFAULT, "__kmpc_fork_call") != NULL)
        setenv("TCONV_NUM_THREADS", "1", 1); /* LLVM's run-time ends the process when asked for its number of threads */
    const long before = atomic_load(&calls);
    atomic_store(&refused, which > 0 ? before + which : 0);
    tconv_status first = tconv_plan_create(&desc, &options, &plan, NULL), second = first, third;
    if (first == TCONV_SUCCESS)
        second = tconv_plan_execute(plan, &s, &w, NULL, &d, workspace, sizeof workspace, NULL);
    tconv_plan_destroy(plan);
    third = tconv_conv_transpose2d(&desc, &options, &s, &w, NULL, &d, NULL);
    tconv_status fourth = tconv_system_info(TCONV_TEXT_JSON, text, sizeof text, &length);
    const long made = atomic_load(&calls) - before;
    atomic_store(&refused, 0);
    const tconv_status statuses[] = {first, second, third, fourth};
    int refusals = 0;
    for (int i = 0; i < 4; i++) {
        require(statuses[i] == TCONV_SUCCESS || statuses[i] == TCONV_ERROR_OUT_OF_MEMORY, "call %d: %s", i,
                tconv_status_string(statuses[i]));
        refusals += statuses[i] != TCONV_SUCCESS;
    }
    require(refusals == 0 || (which > 0 && which <= made), "refused for nothing");
    require(third != TCONV_SUCCESS || (dst[0] == 8 && dst[2 * 18 + 2] == 72), "wrong: %g, %g", (double)dst[0],
            (double)dst[2 * 18 + 2]);
    return which > made ? ATTACK_SKIPPED : 0; /* there are fewer allocations */
}

static int run_in_cold_process(char *program, long which)
{
    char text[32];
    int status = 0;
    snprintf(text, sizeof text, "%ld", which);
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, text, (char *)NULL);
        _exit(1);
    }
    require(child > 0 && waitpid(child, &status, 0) == child, "no process");
    require(WIFEXITED(status), "allocation %ld refused: signal %d", which, WTERMSIG(status));
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"cpu_phases", "cpu_pixels", "cpu_reference"};
    if (argc > 1)
        return run_cold(atol(argv[1]));
    long which = 0;
    for (int code = 0; code == 0; which++) {
        code = run_in_cold_process(argv[0], which);
        require(code == 0 || code == ATTACK_SKIPPED, "allocation %ld refused: exit code %d", which, code);
    }
    printf("%ld allocations refused in turn\n", which - 2);
    harness_case test = attack_case(ATTACK_PROBLEM), pixels = attack_case("n=4 ci=32 h=1 w=1 co=32 k=16");
    for (int i = 0; i < 3; i++)
        for (int threads = 1; threads <= 2; threads++) {
            check_warm(&test, names[i], threads);
            check_warm(&pixels, names[i], threads);
        }
    harness_case_destroy(&test);
    harness_case_destroy(&pixels);
    return 0;
}
