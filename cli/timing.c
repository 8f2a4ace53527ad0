/* Times a layer; see timing.h. The plan decides whether it is on the CPU or on CUDA, and the sets follow. */
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define MEASURED_SECONDS 0.3
#define LEAST_RUNS       5
#define MOST_RUNS        TIMING_MOST_RUNS
#define LONG_SECONDS     20.0 /* seconds: once the runs took so long together, two are enough */
#define WARM_UP_RUNS     3    /* on CUDA, for clocks and caches; the CPU takes one, which starts its threads */
#define CACHE_MULTIPLE   3    /* times the size of the L2 cache that the sets must fill */
#define MOST_SETS        64
#define DEVICE_RESERVE   (1L << 30) /* bytes of device memory left free when sets are made */

/* The tensors of a call by their role; data is NULL for a tensor that is not in this set. */
typedef struct tensor_set {
    tconv_tensor tensors[HARNESS_ROLES];
    void *owned[HARNESS_ROLES];
} tensor_set;

typedef struct bench_run {
    const timing_request *request;
    tconv_issue *issue;
    bool cuda;
    void *stream;
    tconv_plan *made, *packed;
    const tconv_plan *plan;  /* the one to execute */
    void *workspace, *carry; /* carry: of a stream */
    size_t workspace_bytes;
    tensor_set constant;        /* weights, bias and operands of channels */
    tensor_set sets[MOST_SETS]; /* src, dst and an addend */
    int set_count;
    double milliseconds[MOST_RUNS]; /* of each run */
    int64_t runs;
    harness_event *events[MOST_RUNS + 1]; /* CUDA */
} bench_run;

static tconv_status fail(const bench_run *run, tconv_status status, const char *field, const char *message)
{
    memset(run->issue, 0, sizeof *run->issue);
    run->issue->status = status;
    snprintf(run->issue->field, sizeof run->issue->field, "%s", field);
    snprintf(run->issue->message, sizeof run->issue->message, "%s: %s", field, message);
    return status;
}

void timing_plan_fact(const tconv_plan *plan, const char *key, char *value, size_t capacity)
{
    char line[1024];
    value[0] = '\0';
    if (tconv_plan_describe(plan, line, sizeof line, NULL) != TCONV_SUCCESS)
        return;
    const char *at = strstr(line, key);
    if (at == NULL)
        return;
    at += strlen(key);
    snprintf(value, capacity, "%.*s", (int)strcspn(at, " "), at);
}

/* ----------------------------------------------------------------------------------------------------------- preparing */

/* Allocates memory where the plan runs, and copies from to it if that is not NULL. */
static void *allocate(const bench_run *run, size_t bytes, const void *from)
{
    if (!run->cuda) {
        void *memory = malloc(bytes > 0 ? bytes : 1);
        if (memory != NULL && from != NULL)
            memcpy(memory, from, bytes);
        return memory;
    }
    void *memory = harness_device_allocate(bytes);
    if (memory != NULL && from != NULL && !harness_device_copy(memory, from, bytes, run->stream)) {
        harness_device_release(memory);
        return NULL;
    }
    return memory;
}

static void release(const bench_run *run, void *memory)
{
    if (run->cuda)
        harness_device_release(memory);
    else
        free(memory);
}

static size_t bytes_of(const bench_run *run, harness_role role)
{
    const harness_case *test = run->request->test;
    return (size_t)test->views[role].extent * harness_element_size(harness_role_dtype(&test->layer.desc, role));
}

static bool is_image(const bench_run *run, harness_role role)
{
    const int addend = harness_post_addend(&run->request->test->layer.desc);
    return role == HARNESS_SRC || role == HARNESS_DST || (addend >= 0 && role == (harness_role)(HARNESS_POST + addend));
}

/* Places a tensor where the plan runs, unless the operation goes without it. On the host, images that are read are used
 * in place. */
static bool place(const bench_run *run, harness_role role, tensor_set *set)
{
    const harness_case *test = run->request->test;
    const bool reads = harness_case_reads(test, role);
    if (!reads && !harness_case_writes(test, role))
        return true;
    void *data = test->tensors[role].data;
    if (run->cuda || !reads || !is_image(run, role))
        data = set->owned[role] = allocate(run, bytes_of(run, role), data);
    set->tensors[role] = (tconv_tensor){data, harness_role_dtype(&test->layer.desc, role),
                                        run->cuda ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST};
    return data != NULL;
}

/* Places the images, or what is the same in every run. */
static bool place_all(const bench_run *run, bool images, tensor_set *set)
{
    bool placed = true;
    for (int role = 0; role < HARNESS_ROLES; ++role)
        if (is_image(run, (harness_role)role) == images)
            placed = placed && place(run, (harness_role)role, set);
    return placed;
}

static void release_all(const bench_run *run, const tensor_set *set)
{
    for (int role = 0; role < HARNESS_ROLES; ++role)
        release(run, set->owned[role]);
}

/* Makes one set on the CPU; on CUDA as many as fill the L2 cache several times over, or as memory has room for. */
static tconv_status make_sets(bench_run *run)
{
    size_t bytes = 1;
    int count = 1;
    for (int role = 0; role < HARNESS_ROLES; ++role)
        bytes += is_image(run, (harness_role)role) ? bytes_of(run, (harness_role)role) : 0;
    if (run->cuda) {
        size_t available = harness_device_free_bytes();
        size_t room = available > DEVICE_RESERVE ? (available - DEVICE_RESERVE) / bytes : 1;
        size_t wanted = CACHE_MULTIPLE * harness_device_l2_bytes() / bytes + 2;
        count = (int)(wanted < MOST_SETS ? wanted : MOST_SETS);
        if ((size_t)count > room)
            count = room > 0 ? (int)room : 1;
    }
    while (run->set_count < count)
        if (!place_all(run, true, &run->sets[run->set_count++]))
            return fail(run, TCONV_ERROR_OUT_OF_MEMORY, "dst", "no memory for the tensors");
    return TCONV_SUCCESS;
}

static tconv_status prepare(bench_run *run)
{
    const harness_case *test = run->request->test;
    tconv_status status = tconv_plan_create(&test->layer.desc, run->request->options, &run->made, run->issue);
    if (status != TCONV_SUCCESS)
        return status;
    run->plan = run->made;
    run->cuda = strncmp(tconv_plan_implementation(run->made), "cuda_", strlen("cuda_")) == 0;
    if (run->cuda && (run->stream = harness_stream_create()) == NULL)
        return fail(run, TCONV_ERROR_CUDA, "stream", harness_device_error());

    if (!place_all(run, false, &run->constant))
        return fail(run, TCONV_ERROR_OUT_OF_MEMORY, "weights", "no memory for the weights");
    if (!run->request->pack_each && harness_case_reads(test, HARNESS_WEIGHTS)) {
        const tconv_tensor *weights = &run->constant.tensors[HARNESS_WEIGHTS];
        if ((status = tconv_plan_pack_weights(run->made, weights, run->stream, &run->packed, run->issue)))
            return status;
        run->plan = run->packed;
    }
    tconv_plan_workspace_size(run->plan, &run->workspace_bytes);
    if (run->workspace_bytes > 0 && (run->workspace = allocate(run, run->workspace_bytes, NULL)) == NULL)
        return fail(run, TCONV_ERROR_OUT_OF_MEMORY, "workspace", "no memory for the workspace");
    const size_t carry = harness_carry_bytes(&test->layer.desc);
    if (carry > 0 && (run->carry = allocate(run, carry, NULL)) == NULL)
        return fail(run, TCONV_ERROR_OUT_OF_MEMORY, "carry", "no memory for the carry");
    if (carry > 0 && run->cuda)
        harness_device_fill(run->carry, 0, carry, run->stream);
    else if (carry > 0)
        memset(run->carry, 0, carry);
    return make_sets(run);
}

static void clean_up(bench_run *run)
{
    if (run->stream != NULL)
        harness_stream_synchronize(run->stream);
    for (int i = 0; i < run->set_count; ++i)
        release_all(run, &run->sets[i]);
    release_all(run, &run->constant);
    release(run, run->workspace);
    release(run, run->carry);
    tconv_plan_destroy(run->packed);
    tconv_plan_destroy(run->made);
    for (int i = 0; i <= MOST_RUNS; ++i)
        harness_event_destroy(run->events[i]);
    harness_stream_destroy(run->stream);
}

/* -------------------------------------------------------------------------------------------------------------- timing */

/* Returns the tensor of a set as execute takes it. */
static const tconv_tensor *given(const tensor_set *set, harness_role role)
{
    return set->tensors[role].data != NULL ? &set->tensors[role] : NULL;
}

static tconv_status execute(const bench_run *run, int64_t turn)
{
    const tensor_set *set = &run->sets[turn % run->set_count];
    tconv_operands all = {.struct_size = sizeof all,
                          .src = given(set, HARNESS_SRC),
                          .weights = given(&run->constant, HARNESS_WEIGHTS),
                          .bias = given(&run->constant, HARNESS_BIAS),
                          .dst = given(set, HARNESS_DST)};
    for (int i = 0; i < run->request->test->layer.desc.post_count; ++i) {
        const harness_role role = (harness_role)(HARNESS_POST + i);
        all.post[i] = given(is_image(run, role) ? set : &run->constant, role);
    }
    tconv_status status = harness_execute(run->plan, &run->request->test->layer.desc, &all, run->carry, run->workspace,
                                          run->workspace_bytes, run->stream);
    if (status != TCONV_SUCCESS)
        tconv_last_issue(run->issue);
    return status;
}

static tconv_status time_cpu(bench_run *run)
{
    tconv_status status = execute(run, 0);
    double total = 0;
    const int64_t wanted = run->request->repeat;
    while (status == TCONV_SUCCESS && run->runs < MOST_RUNS) {
        bool enough = run->runs >= LEAST_RUNS && total >= MEASURED_SECONDS;
        if (wanted > 0 ? run->runs == wanted : enough || (run->runs >= 2 && total >= LONG_SECONDS))
            break;
        double start = harness_seconds();
        status = execute(run, run->runs);
        double seconds = harness_seconds() - start;
        run->milliseconds[run->runs++] = 1e3 * seconds;
        total += seconds;
    }
    return status;
}

/* Estimates the milliseconds of one run from several in a row. */
static tconv_status estimate_cuda(const bench_run *run, double *milliseconds)
{
    tconv_status status = TCONV_SUCCESS;
    for (int i = 0; i < WARM_UP_RUNS && status == TCONV_SUCCESS; ++i)
        status = execute(run, i);
    bool recorded = harness_event_record(run->events[0], run->stream);
    for (int i = 0; i < WARM_UP_RUNS && status == TCONV_SUCCESS; ++i)
        status = execute(run, i);
    recorded = recorded && harness_event_record(run->events[1], run->stream);
    if (status != TCONV_SUCCESS)
        return status;
    *milliseconds = recorded ? harness_event_elapsed(run->events[0], run->events[1]) / WARM_UP_RUNS : -1;
    return *milliseconds >= 0 ? TCONV_SUCCESS : fail(run, TCONV_ERROR_CUDA, "execute", harness_device_error());
}

/* Queues all runs, with an event before each and one after the last, and then reads the times. */
static tconv_status time_queued(bench_run *run, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        if (!harness_event_record(run->events[i], run->stream))
            return fail(run, TCONV_ERROR_CUDA, "event", harness_device_error());
        tconv_status status = execute(run, i);
        if (status != TCONV_SUCCESS)
            return status;
    }
    if (!harness_event_record(run->events[count], run->stream) || !harness_stream_synchronize(run->stream))
        return fail(run, TCONV_ERROR_CUDA, "execute", harness_device_error());
    for (; run->runs < count; ++run->runs) {
        double elapsed = harness_event_elapsed(run->events[run->runs], run->events[run->runs + 1]);
        if (elapsed < 0)
            return fail(run, TCONV_ERROR_CUDA, "event", harness_device_error());
        run->milliseconds[run->runs] = elapsed;
    }
    return TCONV_SUCCESS;
}

static tconv_status time_cuda(bench_run *run)
{
    double estimate = 0;
    for (int i = 0; i <= MOST_RUNS; ++i)
        if ((run->events[i] = harness_event_create()) == NULL)
            return fail(run, TCONV_ERROR_CUDA, "event", harness_device_error());
    tconv_status status = estimate_cuda(run, &estimate);
    if (status != TCONV_SUCCESS)
        return status;
    int64_t count = run->request->repeat;
    if (count == 0) {
        double wanted = estimate > 0 ? 1e3 * MEASURED_SECONDS / estimate : MOST_RUNS;
        count = wanted < LEAST_RUNS ? LEAST_RUNS : wanted > MOST_RUNS ? MOST_RUNS : (int64_t)wanted;
    }
    return time_queued(run, count);
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Returns the instruction set of a plan; DEFAULT where it names none. */
static tconv_cpu_isa plan_isa(const tconv_plan *plan)
{
    char name[16];
    timing_plan_fact(plan, " isa=", name, sizeof name);
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; ++isa)
        if (strcmp(name, harness_cpu_isa_name((tconv_cpu_isa)isa)) == 0)
            return (tconv_cpu_isa)isa;
    return TCONV_CPU_ISA_DEFAULT;
}

tconv_status timing_measure(const timing_request *request, timing *result, tconv_issue *issue)
{
    bench_run run = {.request = request, .issue = issue};
    memset(result, 0, sizeof *result);
    tconv_status status = prepare(&run);
    if (status == TCONV_SUCCESS)
        status = run.cuda ? time_cuda(&run) : time_cpu(&run);
    if (status == TCONV_SUCCESS) {
        char threads[16], math[16];
        qsort(run.milliseconds, (size_t)run.runs, sizeof run.milliseconds[0], compare_doubles);
        timing_plan_fact(run.made, " threads=", threads, sizeof threads);
        timing_plan_fact(run.made, " --math ", math, sizeof math);
        *result = (timing){
            .median_ms = (run.milliseconds[run.runs / 2] + run.milliseconds[(run.runs - 1) / 2]) / 2,
            .minimum_ms = run.milliseconds[0],
            .runs = run.runs,
            .workspace_bytes = run.workspace_bytes,
            .implementation = tconv_plan_implementation(run.made),
            .cuda = run.cuda,
            .threads = atoi(threads) > 0 ? atoi(threads) : 1,
            .cpu_isa = plan_isa(run.made),
            .math = strcmp(math, harness_math_name(TCONV_MATH_TF32)) == 0 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT,
        };
    }
    clean_up(&run);
    return status;
}
