/* A build without CUDA plans for no GPU: costs can be computed, work is not counted. */
#include "work.h"

tconv_cuda_work_function *tconv_cuda_work_named(const char *implementation)
{
    (void)implementation;
    return NULL;
}
