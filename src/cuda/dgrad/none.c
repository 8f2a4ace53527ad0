/* A build without CUDA has no kernels that rearrange tensors. */
#include "parameters.h"

const void *tconv_dgrad_split_rows_kernel(int word_bytes, int element_bytes, bool wide)
{
    (void)word_bytes, (void)element_bytes, (void)wide;
    return NULL;
}

const void *tconv_dgrad_split_pixels_kernel(int word_bytes, bool narrow, bool wide)
{
    (void)word_bytes, (void)narrow, (void)wide;
    return NULL;
}

const void *tconv_dgrad_derive_kernel(int element_bytes)
{
    (void)element_bytes;
    return NULL;
}

const void *tconv_dgrad_add_kernel(tconv_dtype dtype, bool channels_last)
{
    (void)dtype, (void)channels_last;
    return NULL;
}
