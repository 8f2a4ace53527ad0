/* Host memory through the caller's allocator. */
#ifndef TCONV_CORE_ALLOC_H
#define TCONV_CORE_ALLOC_H

#include "tconv/tconv.h"

/* The alignment of every buffer that the library hands to its kernels: a cache line, and an AVX-512 vector. */
#define TCONV_ALIGNMENT 64

#ifdef __cplusplus
extern "C" {
#endif

/* Returns size bytes aligned to TCONV_ALIGNMENT, or NULL. A size of 0 gives a block that may be freed. */
void *tconv_allocate(const tconv_allocator *allocator, size_t size);

/* The same into *memory; fails with OUT_OF_MEMORY, of what there is no memory for. */
tconv_status tconv_allocate_for(const tconv_allocator *allocator, size_t size, const char *what, void **memory,
                                tconv_issue *issue);

/* Frees a block of tconv_allocate. NULL is allowed. */
void tconv_release(const tconv_allocator *allocator, void *memory);

#ifdef __cplusplus
}
#endif

/* Returns size rounded up to a multiple of alignment. */
static inline size_t tconv_align_up(size_t size, size_t alignment)
{
    return (size + alignment - 1) / alignment * alignment;
}

/* Returns the first address at or after memory that is a multiple of alignment. */
static inline void *tconv_align_pointer(void *memory, size_t alignment)
{
    return (char *)memory + (alignment - (uintptr_t)memory % alignment) % alignment;
}

#endif
