/* A build without CUDA has no kernels that widen and add. */
#include "add.h"

const void *tconv_accumulate_widen_kernel(tconv_dtype dtype, bool vectors)
{
    (void)dtype, (void)vectors;
    return NULL;
}

const void *tconv_accumulate_add_kernel(tconv_dtype dtype, bool vectors)
{
    (void)dtype, (void)vectors;
    return NULL;
}
