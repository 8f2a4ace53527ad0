/* A caller's own threads, given to tconv as a program that has some would give them: plain threads, any number on any
 * machine. */
#ifndef TCONV_HARNESS_POOL_H
#define TCONV_HARNESS_POOL_H

#include <tconv/tconv.h>

typedef struct harness_pool harness_pool;

/* Makes a pool of this many threads, the caller of parallel_for among them; NULL on failure. */
harness_pool *harness_pool_create(int threads);

/* NULL is allowed. */
void harness_pool_destroy(harness_pool *pool);

/* Returns the functions to copy into tconv_options. Index i of a call runs on thread i modulo the number of threads.
 * Calls run one at a time; a second thread that calls waits. */
tconv_parallel harness_pool_parallel(harness_pool *pool);

#endif
