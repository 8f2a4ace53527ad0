#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct guarded guard_allocate(size_t size, enum guard_side side)
{
    struct guarded guarded;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
    guarded.mapping_size = room + 2 * page;
    guarded.mapping = mmap(NULL, guarded.mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *first = (char *)guarded.mapping + page;
    if (guarded.mapping == MAP_FAILED || (room > 0 && mprotect(first, room, PROT_READ | PROT_WRITE) != 0)) {
        fprintf(stderr, "no memory for %zu guarded bytes\n", size);
        abort();
    }
    memset(first, 0xff, room);
    guarded.data = side == GUARD_AFTER ? first + room - size : first;
    return guarded;
}

void guard_release(struct guarded *guarded)
{
    munmap(guarded->mapping, guarded->mapping_size);
    guarded->mapping = guarded->data = NULL;
}

void guard_protect(const struct guarded *guarded)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (guarded->mapping_size > 2 * page)
        mprotect((char *)guarded->mapping + page, guarded->mapping_size - 2 * page, PROT_READ);
}
