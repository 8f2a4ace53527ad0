#include "sparse.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

void *sparse_allocate(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void sparse_release(void *memory, size_t size)
{
    munmap(memory, size);
}

/* Reads the number in a file of the cgroup; returns otherwise where there is none. */
static unsigned long long read_number(const char *path, unsigned long long otherwise)
{
    unsigned long long number = otherwise;
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%llu", &number) != 1)
            number = otherwise; /* "max" */
        fclose(file);
    }
    return number;
}

size_t memory_available(void)
{
    unsigned long long kilobytes = 0, limit, used, free_bytes;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
            break;
    if (file != NULL)
        fclose(file);
    free_bytes = kilobytes * 1024;
    limit = read_number("/sys/fs/cgroup/memory.max", UINT64_MAX);
    used = read_number("/sys/fs/cgroup/memory.current", 0);
    if (limit > used && limit - used < free_bytes)
        free_bytes = limit - used;
    return (size_t)free_bytes;
}
