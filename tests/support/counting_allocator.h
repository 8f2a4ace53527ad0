/* An allocator that counts and can refuse. It tests for leaks, that nothing is allocated, and that the n-th allocation
 * may fail. */
#ifndef TCONV_TESTS_COUNTING_ALLOCATOR_H
#define TCONV_TESTS_COUNTING_ALLOCATOR_H

#include <stdatomic.h>

#include "tconv/tconv.h"

struct counting_allocator {
    atomic_size_t calls;       /* calls of allocate */
    atomic_size_t live;        /* blocks that were not released */
    atomic_size_t wrong;       /* releases of NULL or of what this allocator did not give */
    size_t fail_at;            /* the call that gets NULL, counted from 1; 0 for none */
    tconv_allocator functions; /* to copy into tconv_options */
};

/* counting is used in place: it must not move while anything holds its functions. */
void counting_init(struct counting_allocator *counting, size_t fail_at);

#endif
