/* A caller's threads, as a program that has its own gives them to tconv: plain ones, any number on any machine. */
#ifndef TCONV_HARNESS_POOL_H
#define TCONV_HARNESS_POOL_H

#include <tconv/tconv.h>

typedef struct harness_pool harness_pool;

/* So many threads, the one that calls parallel_for among them; NULL where they cannot be made. */
harness_pool *harness_pool_create(int threads);

/* NULL is allowed. */
void harness_pool_destroy(harness_pool *pool);

/* What goes into tconv_options. Index i of a call runs on thread i modulo the threads. One call at a time; a second thread
 * that calls waits. */
tconv_parallel harness_pool_parallel(harness_pool *pool);

#endif
