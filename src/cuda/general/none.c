/* Stands for the kernels of cuda_general in a build without CUDA. */
#include "outputs.h"
#include "packing.h"
#include "parameters.h"
#include "weights.h"

const void *tconv_general_gemm_kernel(tconv_dtype dtype, int number, bool is_narrow)
{
    (void)dtype, (void)number, (void)is_narrow;
    return NULL;
}

const void *tconv_general_direct_kernel(tconv_dtype dtype, int number, bool is_narrow)
{
    (void)dtype, (void)number, (void)is_narrow;
    return NULL;
}

const void *tconv_general_fill_kernel(tconv_dtype dtype, fill_form form, bool has_posts)
{
    (void)dtype, (void)form, (void)has_posts;
    return NULL;
}

const void *tconv_general_phases_kernel(void)
{
    return NULL;
}

const void *tconv_general_weights_kernel(size_t element_size)
{
    (void)element_size;
    return NULL;
}

const void *tconv_general_sum_weights_kernel(tconv_dtype dtype)
{
    (void)dtype;
    return NULL;
}
