/*
 * Loads, uses and unloads the library a thousand times, with one thread and with two: nothing crashes, and memory does
 * not grow. A thread that the library left behind would run in code that is no longer there.
 *
 *     attack_reload LIBRARY
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "attack_layer.h"

#define CYCLES   1000
#define WARM     100 /* cycles after which memory is at its final size */
#define GREW_KB  2048
#define SECONDS  60
#define MAX_PATH 4096

static char path[MAX_PATH];
static attack_layer layer;

static bool cycle(int threads)
{
    attack_library library;
    tconv_options options;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT(handle != NULL && attack_library_find(&library, handle), "%s cannot be loaded", path);
    if (handle == NULL || library.options_init_sized(&options, sizeof options) != TCONV_SUCCESS)
        return false;
    options.threads = threads;
    attack_layer_expect_right(&layer, &library, &options, "after loading");
    EXPECT(dlclose(handle) == 0, "dlclose fails");
    return true;
}

static int reload(void *threads)
{
    long before = 0;
    attack_layer_init(&layer, ATTACK_LARGE);
    for (int i = 0; i < CYCLES; i++) {
        if (!cycle(*(const int *)threads))
            break;
        if (i == WARM)
            before = attack_resident_kb();
    }
    long after = attack_resident_kb();
    printf("%d threads: %ld KB after %d cycles, %ld KB after %d\n", *(const int *)threads, before, WARM, after, CYCLES);
    EXPECT(after - before < GREW_KB, "memory grew from %ld to %ld KB", before, after);
    return attack_end();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        printf("usage: %s LIBRARY\n", argv[0]);
        return 2;
    }
    snprintf(path, sizeof path, "%s", argv[1]);
    for (int threads = 1; threads <= 2; threads++)
        attack_expect_success(attack_fork(reload, &threads, SECONDS),
                              threads == 1 ? "a thousand cycles, one thread" : "a thousand cycles, two threads");
    return attack_end();
}
