/*
 * A malloc that fails when it is told to, for whole processes: fail_malloc.c is a shared library to preload, which
 * stands in for malloc, calloc, realloc, reallocarray, aligned_alloc, memalign and posix_memalign of everything in the
 * process, the C library's own calls too. Its orders and its counts are in memory that it shares with the driver.
 */
#ifndef TCONV_ATTACKS_FAIL_MALLOC_H
#define TCONV_ATTACKS_FAIL_MALLOC_H

#include <stdatomic.h>

/* The environment variable with the number of the descriptor of the shared memory. */
#define FAIL_MALLOC_VARIABLE "FAIL_MALLOC_FD"

enum fail_malloc_from {
    FAIL_MALLOC_FROM_START,  /* counts from the first call of the process, before the constructors */
    FAIL_MALLOC_FROM_MAIN,   /* from the call of main */
    FAIL_MALLOC_FROM_MARKER, /* from fail_malloc_count(1), which the program calls */
};

struct fail_malloc {
    int from;
    long at;             /* the call that fails, counted from 1; 0 for none */
    int all_from_there;  /* whether every later call fails as well */
    atomic_long counted; /* calls so far */
    atomic_long live;    /* blocks that were not freed, whatever function allocated them */
};

/* The type of fail_malloc_count in the preloaded library, found with dlsym: 1 starts counting and 0 stops it.
 * Allocations that are not counted succeed. */
typedef void fail_malloc_count_function(int counting);
#define FAIL_MALLOC_COUNT "fail_malloc_count"

#endif
