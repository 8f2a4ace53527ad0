/* Loads the library, uses it on two threads, and unloads it, again and again; OpenMP's threads wait in the meantime. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tconv/tconv.h>
#include <time.h>

enum { IN = 32, OUT = 32, SIDE = 24, CYCLES = 8 };

static float src[IN * SIDE * SIDE], weights[IN * OUT], dst[2][OUT * SIDE * SIDE];

static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return function;
}

static void run(const char *path, float *to)
{
    tconv_status (*init)(tconv_desc *, size_t);
    tconv_status (*init_options)(tconv_options *, size_t);
    tconv_status (*convolve)(const tconv_desc *, const tconv_options *, const tconv_tensor *, const tconv_tensor *,
                             const tconv_tensor *, const tconv_tensor *, tconv_issue *);
    tconv_desc desc;
    tconv_options options;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&init = find(library, "tconv_desc_init_sized");
    *(void **)&init_options = find(library, "tconv_options_init_sized");
    *(void **)&convolve = find(library, "tconv_conv_transpose2d");
    init(&desc, sizeof desc);
    init_options(&options, sizeof options);
    desc.in_channels = IN, desc.out_channels = OUT, desc.in_h = desc.in_w = SIDE, desc.kernel_h = desc.kernel_w = 1;
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 2;
    const tconv_tensor tensors[] = {{src, TCONV_F32, TCONV_LOCATION_HOST},
                                    {weights, TCONV_F32, TCONV_LOCATION_HOST},
                                    {to, TCONV_F32, TCONV_LOCATION_HOST}};
    for (int i = 0; i < 3; i++)
        if (convolve(&desc, &options, &tensors[0], &tensors[1], NULL, &tensors[2], &issue) != TCONV_SUCCESS) {
            fprintf(stderr, "%s\n", issue.message);
            exit(1);
        }
    dlclose(library);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    for (int i = 0; i < IN * SIDE * SIDE; i++)
        src[i] = (float)(i % 17 - 8);
    for (int i = 0; i < IN * OUT; i++)
        weights[i] = (float)(i % 13 - 6);
    for (int i = 0; i < CYCLES; i++) {
        const struct timespec moment = {.tv_nsec = 20000000};
        memset(dst[i > 0], 0xff, sizeof dst[0]);
        run(argv[1], dst[i > 0]);
        nanosleep(&moment, NULL);
        if (i > 0 && memcmp(dst[0], dst[1], sizeof dst[0]) != 0) {
            fprintf(stderr, "cycle %d gave other bits\n", i);
            return 1;
        }
    }
    return 0;
}
