/* A build without CUDA has no kernels of streams. */
#include "fold.h"

const void *tconv_carry_stage_kernel(tconv_dtype dtype)
{
    (void)dtype;
    return NULL;
}

const void *tconv_carry_fold_kernel(tconv_dtype dtype, bool exact, bool forms)
{
    (void)dtype, (void)exact, (void)forms;
    return NULL;
}
