#include "refuse.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static atomic_long calls, refused;
static atomic_bool is_counting;

void refuse_from_here(long at)
{
    atomic_store(&calls, 0);
    atomic_store(&refused, at);
    atomic_store(&is_counting, true);
}

long refuse_end(void)
{
    atomic_store(&is_counting, false);
    return atomic_load(&calls);
}

#ifdef TCONV_TESTS_SANITIZED

void *refuse_never(size_t size)
{
    return calloc(1, size);
}

#else

/* The GNU C library's functions by their other names. NOLINTBEGIN(bugprone-reserved-identifier) */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);

static bool refuses(void)
{
    if (!atomic_load(&is_counting) || atomic_fetch_add(&calls, 1) + 1 != atomic_load(&refused))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return refuses() ? NULL : __libc_malloc(size);
}

void *calloc(size_t nmemb, size_t size)
{
    return refuses() ? NULL : __libc_calloc(nmemb, size);
}

void *refuse_never(size_t size)
{
    return __libc_calloc(1, size);
}
/* NOLINTEND(bugprone-reserved-identifier) */

#endif
