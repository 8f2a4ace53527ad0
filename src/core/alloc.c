/* Aligned blocks cut from the caller's allocator (malloc by default): the block's own address stands just before it. */
#include "alloc.h"

#include <stdlib.h>

#include "status.h"

void *tconv_allocate(const tconv_allocator *allocator, size_t size)
{
    const size_t overhead = sizeof(void *) + TCONV_ALIGNMENT;
    void *block;
    if (size > (size_t)PTRDIFF_MAX - overhead)
        return NULL;
    block = allocator->allocate != NULL ? allocator->allocate(allocator->context, size + overhead)
                                        : malloc(size + overhead);
    if (block == NULL)
        return NULL;
    void **memory = (void **)tconv_align_pointer((char *)block + sizeof(void *), TCONV_ALIGNMENT);
    memory[-1] = block;
    return memory;
}

tconv_status tconv_allocate_for(const tconv_allocator *allocator, size_t size, const char *what, void **memory,
                                tconv_issue *issue)
{
    if ((*memory = tconv_allocate(allocator, size)) == NULL)
        return tconv_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "allocator", "no memory for %zu bytes of %s", size, what);
    return TCONV_SUCCESS;
}

void tconv_release(const tconv_allocator *allocator, void *memory)
{
    if (memory == NULL)
        return;
    void *block = ((void **)memory)[-1];
    if (allocator->release != NULL)
        allocator->release(allocator->context, block);
    else
        free(block);
}
