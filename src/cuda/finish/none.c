/* A build without CUDA has no kernels of passes. */
#include "pass.h"

const void *tconv_finish_widen_kernel(tconv_dtype dtype, bool vectors)
{
    (void)dtype, (void)vectors;
    return NULL;
}

const void *tconv_finish_posts_kernel(tconv_dtype dtype, bool exact, bool vectors)
{
    (void)dtype, (void)exact, (void)vectors;
    return NULL;
}
