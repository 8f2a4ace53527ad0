/* Blocks carry a mark before their first byte, so that a release of anything else shows. */
#include "counting_allocator.h"

#include <stdint.h>
#include <stdlib.h>

#define MARK UINT64_C(0x7463616c6c6f6361)

/* The header of a block. It is as large as malloc's alignment, so that blocks are aligned as malloc's. */
union header {
    uint64_t mark;
    max_align_t alignment;
};

static void *allocate(void *context, size_t size)
{
    struct counting_allocator *counting = context;
    size_t call = atomic_fetch_add(&counting->calls, 1) + 1;
    if (call == counting->fail_at)
        return NULL;
    union header *header = malloc(sizeof *header + size);
    if (header == NULL)
        return NULL;
    header->mark = MARK;
    atomic_fetch_add(&counting->live, 1);
    return header + 1;
}

static void release(void *context, void *memory)
{
    struct counting_allocator *counting = context;
    union header *header = (union header *)memory - 1;
    if (memory == NULL || header->mark != MARK) {
        atomic_fetch_add(&counting->wrong, 1);
        return;
    }
    header->mark = 0;
    atomic_fetch_sub(&counting->live, 1);
    free(header);
}

void counting_init(struct counting_allocator *counting, size_t fail_at)
{
    atomic_init(&counting->calls, 0);
    atomic_init(&counting->live, 0);
    atomic_init(&counting->wrong, 0);
    counting->fail_at = fail_at;
    counting->functions = (tconv_allocator){allocate, release, counting};
}
