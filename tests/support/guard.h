/* Memory between two pages that may not be touched: touching the first byte past its end, or before its start, ends the
 * process. */
#ifndef TCONV_TESTS_GUARD_H
#define TCONV_TESTS_GUARD_H

#include <stddef.h>

/* Which end of the memory stands exactly at a forbidden page. */
enum guard_side { GUARD_BEFORE, GUARD_AFTER };

struct guarded {
    void *data; /* size bytes, all 0xff */
    void *mapping;
    size_t mapping_size;
};

/* data is never NULL: the process ends where there is no memory, and its test fails. */
struct guarded guard_allocate(size_t size, enum guard_side side);
void guard_release(struct guarded *guarded);

/* Makes the pages that hold data read-only. */
void guard_protect(const struct guarded *guarded);

#endif
