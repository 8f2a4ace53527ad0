/*
 * Little memory, by a limit of the address space (RLIMIT_AS), which makes mappings fail as well as malloc. The limit
 * rises in small steps from far too little; with one thread, the library returns OUT_OF_MEMORY or the right result. And
 * no file system: neither /proc nor /sys nor anything else (chroot into an empty directory, which needs root).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "attack_layer.h"

#define SECONDS 20
#define STEPS   64
#define STACK   ((size_t)256 << 10) /* bytes; more than a call takes */
#define STEP    ((size_t)16 << 10)

/* Returns the bytes of address space of the process: the first number in statm, which is in pages. */
static size_t address_space(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    if (file == NULL || fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Checks that status is a success or out of memory, and that dst is accordingly right or untouched. */
static void expect_honest(const attack_layer *layer, tconv_status status, const char *call)
{
    EXPECT(status == TCONV_SUCCESS || status == TCONV_ERROR_OUT_OF_MEMORY, "%s: status %d", call, (int)status);
    EXPECT(status == TCONV_SUCCESS ? attack_layer_is_right(layer) : attack_layer_is_untouched(layer),
           "%s: status %d and dst is neither right nor untouched", call, (int)status);
}

/* Makes the stack as large as it will need to be: it cannot grow later. */
static void touch_stack(void)
{
    volatile unsigned char bytes[STACK];
    for (size_t i = 0; i < sizeof bytes; i += 1024)
        bytes[i] = 1;
}

static int little_memory(void *room)
{
    static attack_layer layer;
    static char text[1 << 16];
    tconv_options options;
    tconv_plan *plan = NULL;
    size_t used;
    attack_layer_init(&layer, ATTACK_LARGE);
    tconv_options_init(&options);
    options.threads = 1;
    touch_stack();
    used = address_space();
    if (used == 0)
        return ATTACK_SKIPPED;
    const struct rlimit limit = {used + *(const size_t *)room, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, NULL);
    EXPECT(status == TCONV_SUCCESS || (status == TCONV_ERROR_OUT_OF_MEMORY && plan == NULL), "plan_create: status %d",
           (int)status);
    if (plan != NULL)
        expect_honest(&layer,
                      tconv_plan_execute(plan, &layer.src, &layer.weights, &layer.bias, &layer.dst, layer.workspace,
                                         layer.workspace_size, NULL),
                      "plan_execute");
    attack_layer_clear(&layer);
    expect_honest(
        &layer,
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, NULL),
        "conv_transpose2d");
    tconv_system_info(TCONV_TEXT_JSON, text, sizeof text, NULL);
    tconv_plan_destroy(plan);
    return attack_end();
}

static int nowhere(void *directory)
{
    static attack_layer layer;
    static char text[1 << 16];
    if (chroot(directory) != 0 || chdir("/") != 0) {
        attack_skip("no file system: this needs root");
        return attack_end();
    }
    attack_layer_init(&layer, ATTACK_LARGE);
    for (int32_t threads = 0; threads < 3; threads++) {
        tconv_options options;
        tconv_options_init(&options);
        options.threads = threads;
        attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, "without a file system");
    }
    EXPECT(tconv_system_info(TCONV_TEXT_PLAIN, text, sizeof text, NULL) == TCONV_SUCCESS, "system_info fails");
    printf("%.400s...\n", text);
    return attack_end();
}

int main(void)
{
    char directory[] = "/tmp/tconv-attack-XXXXXX";
    for (size_t i = 0; i < STEPS; i++) {
        /* the room grows by STEP first, and then doubles every four steps */
        size_t room = i < STEPS / 2 ? i * STEP : STEP * (STEPS / 2) << (i - STEPS / 2) / 4;
        char what[64];
        snprintf(what, sizeof what, "%zu KB of address space", room >> 10);
        attack_expect_success(attack_fork(little_memory, &room, SECONDS), what);
    }
    if (mkdtemp(directory) == NULL)
        return 2;
    attack_expect_success(attack_fork(nowhere, directory, SECONDS), "no file system");
    rmdir(directory);
    return attack_end();
}
