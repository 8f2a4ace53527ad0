/* Address space without memory: pages come into being, as zeros, when they are touched. It is for tensors far larger
 * than the part that a test reads and writes. */
#ifndef TCONV_TESTS_SPARSE_H
#define TCONV_TESTS_SPARSE_H

#include <stddef.h>

/* Returns size bytes, or NULL where the machine does not give that much address space. */
void *sparse_allocate(size_t size);
void sparse_release(void *memory, size_t size);

/* Returns the bytes that this machine can give without swapping, by /proc/meminfo and the cgroup; 0 where unknown. */
size_t memory_available(void);

#endif
