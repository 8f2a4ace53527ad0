/*
 * The library to preload (fail_malloc.h). It forwards to glibc's own functions by their second names, needs no
 * constructor, and never allocates, so that it is in force from the first call of the process on, in every thread.
 */
#include "fail_malloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

void *memalign(size_t alignment, size_t size);
int __libc_start_main(int (*main_function)(int, char **, char **), int argc, char **argv,
                      int (*init)(int, char **, char **), void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
fail_malloc_count_function fail_malloc_count;

static struct fail_malloc *told; /* NULL until the environment is there */
static atomic_int counting;

/* The shared memory, mapped at the first call that finds the environment in place. */
static struct fail_malloc *find_told(void)
{
    const char *descriptor = told == NULL && environ != NULL ? getenv(FAIL_MALLOC_VARIABLE) : NULL;
    if (descriptor == NULL)
        return told;
    void *memory = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(descriptor), 0);
    if (memory == MAP_FAILED)
        _exit(EXIT_FAILURE);
    told = memory;
    if (told->from == FAIL_MALLOC_FROM_START)
        atomic_store(&counting, 1);
    return told;
}

static bool fails(void)
{
    struct fail_malloc *now = find_told();
    if (now == NULL || atomic_load(&counting) == 0)
        return false;
    long call = atomic_fetch_add(&now->counted, 1) + 1;
    if (now->at == 0 || (now->all_from_there != 0 ? call < now->at : call != now->at))
        return false;
    errno = ENOMEM;
    return true;
}

static void *given(void *memory)
{
    if (memory != NULL && told != NULL)
        atomic_fetch_add(&told->live, 1);
    return memory;
}

void fail_malloc_count(int now)
{
    atomic_store(&counting, now);
}

void *malloc(size_t size)
{
    return fails() ? NULL : given(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : given(__libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
    if (fails())
        return NULL;
    return memory == NULL ? given(__libc_realloc(memory, size)) : __libc_realloc(memory, size);
}

void *reallocarray(void *memory, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(memory, count * size);
}

void *memalign(size_t alignment, size_t size)
{
    return fails() ? NULL : given(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    void *got = memalign(alignment, size);
    if (got == NULL)
        return ENOMEM;
    *memory = got;
    return 0;
}

void free(void *memory)
{
    if (memory != NULL && told != NULL)
        atomic_fetch_sub(&told->live, 1);
    __libc_free(memory);
}

/* ------------------------------------------------------------------------------------------------------- from main on */

static int (*callers_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **variables)
{
    const struct fail_malloc *now = find_told();
    if (now != NULL && now->from == FAIL_MALLOC_FROM_MAIN)
        atomic_store(&counting, 1);
    return callers_main(argc, argv, variables);
}

int __libc_start_main(int (*main_function)(int, char **, char **), int argc, char **argv,
                      int (*init)(int, char **, char **), void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    int (*next)(int (*)(int, char **, char **), int, char **, int (*)(int, char **, char **), void (*)(void),
                void (*)(void), void *);
    void *found = dlsym(RTLD_NEXT, "__libc_start_main");
    memcpy(&next, &found, sizeof next);
    callers_main = main_function;
    return next(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
