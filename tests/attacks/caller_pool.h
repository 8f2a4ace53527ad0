/* A pool of threads of the caller's, as tconv_parallel takes it: one worker beside the caller, made once. Running it
 * allocates nothing. */
#ifndef TCONV_ATTACKS_CALLER_POOL_H
#define TCONV_ATTACKS_CALLER_POOL_H

#include <stdbool.h>

#include "tconv/tconv.h"

/* Starts the worker; false where no thread can be made. */
bool caller_pool_start(void);
void caller_pool_stop(void);

/* Returns the functions to copy into tconv_options. */
tconv_parallel caller_pool_functions(void);

/* Returns how often parallel_for was called. */
long caller_pool_calls(void);

#endif
