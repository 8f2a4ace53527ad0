/*
 * Unusual settings of OpenMP, each in a cold process, with as many threads as the library chooses, with two, and with
 * more than there are cores. The results are right, and no run takes long.
 */
#include <stdio.h>
#include <string.h>

#include "attack_layer.h"

#define SECONDS 20

/* Stack of OpenMP's threads: four times what the header asks for, and more with a sanitizer, which adds to each
 * frame. */
#if defined(__SANITIZE_ADDRESS__)
#define SMALL_STACK "OMP_STACKSIZE=1m"
#else
#define SMALL_STACK "OMP_STACKSIZE=64k"
#endif

static const char *const settings[] = {
    "OMP_NUM_THREADS=0",       "OMP_NUM_THREADS=-1",
    "OMP_NUM_THREADS=abc",     "OMP_NUM_THREADS=1000000",
    "OMP_NUM_THREADS=2,3,4",   "OMP_NUM_THREADS=",
    "OMP_PROC_BIND=close",     "OMP_PROC_BIND=spread",
    "OMP_PROC_BIND=primary",   "OMP_PLACES=cores",
    "OMP_PLACES={0}",          "OMP_PLACES={100000}",
    "OMP_DYNAMIC=true",        "OMP_NESTED=true",
    "OMP_MAX_ACTIVE_LEVELS=0", "OMP_THREAD_LIMIT=1",
    "OMP_THREAD_LIMIT=2",      "OMP_WAIT_POLICY=active",
    "OMP_WAIT_POLICY=passive", "OMP_SCHEDULE=dynamic,1",
    "OMP_SCHEDULE=nonsense",   SMALL_STACK,
    "OMP_STACKSIZE=nonsense",  "OMP_CANCELLATION=true",
    "GOMP_CPU_AFFINITY=0",     "GOMP_CPU_AFFINITY=5000-6000",
    "GOMP_SPINCOUNT=infinity",
};

static int child(void)
{
    static attack_layer layer;
    static const int32_t threads[] = {0, 2, 7};
    attack_layer_init(&layer, ATTACK_LARGE);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        tconv_options options;
        char what[32];
        tconv_options_init(&options);
        options.threads = threads[i];
        snprintf(what, sizeof what, "threads = %d", (int)threads[i]);
        attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, what);
    }
    attack_layer_release(&layer);
    return attack_end();
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "child") == 0)
        return child();
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        static char output[4096];
        const char *arguments[] = {argv[0], "child", NULL};
        const char *setting[] = {settings[i], NULL};
        attack_program program = {.arguments = arguments, .settings = setting, .seconds = SECONDS};
        attack_outcome outcome = attack_run(&program, output, sizeof output);
        attack_expect_success(outcome, settings[i]);
        if (outcome.code != 0 || outcome.signal != 0)
            printf("%s\n", output);
    }
    return attack_end();
}
