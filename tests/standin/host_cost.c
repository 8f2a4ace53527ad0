/*
 * host_cost [ROUNDS]: nanoseconds that tconv_plan_execute takes on the host beyond CUDA's own functions, for some
 * layers by every implementation that takes them, packed before or not. The stand-in's functions return at once here;
 * their own time, that of as many calls in a loop, is taken off. The median of many executes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "drive.h"
#include "standin.h"

#define ROUNDS  2001
#define WARM_UP 200

static const char *const problems[] = {
    "n=8 ci=64 h=128 w=128 co=64 k=3 p=1 b=1",    "n=16 ci=256 h=28 w=28 co=128 k=2 s=2 b=1",
    "n=16 ci=64 h=32 w=32 co=32 k=4 s=2 p=1 b=1", "n=4 ci=32 h=64 w=64 co=32 k=4 s=2 p=1 g=32",
    "n=4 ci=64 h=64 w=64 co=3 k=4 s=2 p=1",       "n=4 ci=16 h=64 w=64 co=16 k=4 s=4 b=1",
    "n=4 ci=32 h=64 w=64 co=64 k=3 s=5 p=1 d=2",  "n=1 ci=512 h=4 w=4 co=256 k=4 s=2 p=1",
};

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median(int64_t *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, ascending);
    return times[count / 2];
}

static const char *processor(void)
{
    static char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    const char *name = "unknown processor";
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "model name", strlen("model name")) == 0 && strchr(line, ':') != NULL) {
            line[strcspn(line, "\n")] = '\0';
            name = strchr(line, ':') + 2;
            break;
        }
    if (file != NULL)
        fclose(file);
    return name;
}

/* The calls of one execute, by kind. */
struct calls {
    int launches, maps, others;
};

static struct calls count_calls(const tconv_plan *plan, const drive_tensors *tensors)
{
    struct calls calls = {0};
    standin_forget_calls();
    if (drive_execute(plan, tensors) != TCONV_SUCCESS)
        fprintf(stderr, "execute fails\n");
    for (size_t i = 0; i < standin_call_count(); i++) {
        const standin_call *call = standin_call_at(i);
        if (standin_is_launch(call) || strcmp(call->name, "cudaMemsetAsync") == 0)
            calls.launches++;
        else if (strcmp(call->name, "cuTensorMapEncodeTiled") == 0)
            calls.maps++;
        else
            calls.others++;
    }
    return calls;
}

static int64_t time_execute(const tconv_plan *plan, const drive_tensors *tensors, int64_t *times, int rounds)
{
    size_t size = 0;
    tconv_plan_workspace_size(plan, &size);
    standin_quick(true);
    for (int i = -WARM_UP; i < rounds; i++) {
        const int64_t start = nanoseconds();
        tconv_plan_execute(plan, &tensors->src, &tensors->weights, tensors->has_bias ? &tensors->bias : NULL,
                           &tensors->dst, tensors->workspace, size, DRIVE_STREAM);
        if (i >= 0)
            times[i] = nanoseconds() - start;
    }
    standin_quick(false);
    return median(times, rounds);
}

/* Nanoseconds of reading the clock, and of one of the stand-in's calls. */
static void time_itself(int64_t *times, int rounds, double *clock, double *call)
{
    enum { REPEATS = 1000 };
    int value;
    for (int i = 0; i < rounds; i++) {
        const int64_t start = nanoseconds();
        times[i] = nanoseconds() - start;
    }
    *clock = (double)median(times, rounds);
    standin_quick(true);
    const int64_t start = nanoseconds();
    for (int i = 0; i < REPEATS; i++)
        cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0);
    *call = (double)(nanoseconds() - start) / REPEATS;
    standin_quick(false);
}

int main(int count, char **arguments)
{
    const int rounds = count > 1 ? atoi(arguments[1]) : ROUNDS;
    int64_t *times = malloc((size_t)(rounds > 0 ? rounds : 1) * sizeof *times);
    double clock, call;
    const char *name;
    if (times == NULL || rounds < 1)
        return 1;
    time_itself(times, rounds, &clock, &call);
    printf("# %s; ns of tconv_plan_execute beyond CUDA's calls, median of %d; a call of the stand-in takes %.1f ns\n",
           processor(), rounds, call);
    printf("%-14s %6s %6s   %-22s %-22s %s\n", "implementation", "ns", "packed", "launches, maps, others", "packed",
           "layer");
    for (size_t p = 0; p < sizeof problems / sizeof problems[0]; p++)
        for (size_t at = 0; (name = drive_implementation(at)) != NULL; at++) {
            harness_layer layer;
            char message[128];
            tconv_plan *plans[2] = {NULL, NULL};
            int64_t taken[2];
            struct calls calls[2];
            if (!harness_problem_parse(problems[p], &layer, message, sizeof message))
                return 1;
            const tconv_options options = drive_options(name, 0);
            const drive_tensors tensors = drive_place(&layer, 0);
            if (tconv_plan_create(&layer.desc, &options, &plans[0], NULL) != TCONV_SUCCESS ||
                tconv_plan_pack_weights(plans[0], &tensors.weights, DRIVE_STREAM, &plans[1], NULL) != TCONV_SUCCESS)
                continue;
            for (int i = 0; i < 2; i++) {
                calls[i] = count_calls(plans[i], &tensors);
                const double own = clock + call * (calls[i].launches + calls[i].maps + calls[i].others);
                taken[i] = (int64_t)((double)time_execute(plans[i], &tensors, times, rounds) - own);
            }
            printf("%-14s %6lld %6lld   %6d, %4d, %6d   %6d, %4d, %6d   %s\n", name, (long long)taken[0],
                   (long long)taken[1], calls[0].launches, calls[0].maps, calls[0].others, calls[1].launches,
                   calls[1].maps, calls[1].others, problems[p]);
            tconv_plan_destroy(plans[1]);
            tconv_plan_destroy(plans[0]);
        }
    free(times);
    return 0;
}
