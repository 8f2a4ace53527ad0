/*
 * Memory that runs out: a malloc and a calloc that stand in for the C library's in the whole process and refuse one call. The
 * stand-in for ONNX Runtime has memory of its own, so that calls of the provider alone are counted. Not under sanitizers,
 * which have their own.
 */
#ifndef TCONV_TESTS_ORT_REFUSE_H
#define TCONV_TESTS_ORT_REFUSE_H

#include <stddef.h>

/* Counts from here on, and refuses the call of this number; 0: none. */
void refuse_from_here(long at);

/* Ends that, and returns how many calls there were. */
long refuse_end(void);

/* Memory that is never refused, all zeros, for free(). */
void *refuse_never(size_t size);

#endif
