/* The kernels of cuda_wgrad in a build without CUDA: there are none, and launches fail. */
#include "../cuda_backend.h"
#include "bias.h"
#include "copy_kernels.h"
#include "kernels.h"
#include "row_sums.h"
#include "slot_pass.h"
#include "sums.h"

static const kernel_functions no_functions;

kernel_functions tconv_wgrad_mma_f32(numerics math, int number)
{
    (void)math, (void)number;
    return no_functions;
}

kernel_functions tconv_wgrad_mma_half(numerics math, int number)
{
    (void)math, (void)number;
    return no_functions;
}

kernel_functions tconv_wgrad_wgmma_tf32(int number)
{
    (void)number;
    return no_functions;
}

kernel_functions tconv_wgrad_wgmma_strict(int number)
{
    (void)number;
    return no_functions;
}

kernel_functions tconv_wgrad_wgmma_f16(int number)
{
    (void)number;
    return no_functions;
}

kernel_functions tconv_wgrad_wgmma_bf16(int number)
{
    (void)number;
    return no_functions;
}

kernel_functions tconv_wgrad_boxes_f16(int number)
{
    (void)number;
    return no_functions;
}

kernel_functions tconv_wgrad_boxes_bf16(int number)
{
    (void)number;
    return no_functions;
}

const void *tconv_wgrad_slot_kernel(tconv_dtype dtype, load_mode load)
{
    (void)dtype, (void)load;
    return NULL;
}

const void *tconv_wgrad_transpose_kernel(size_t element_size)
{
    (void)element_size;
    return NULL;
}

const void *tconv_wgrad_pad_kernel(int word_bytes)
{
    (void)word_bytes;
    return NULL;
}

const void *tconv_wgrad_row_sums_kernel(tconv_dtype dtype, bool are_double)
{
    (void)dtype, (void)are_double;
    return NULL;
}

const void *tconv_wgrad_bias_kernel(tconv_dtype dtype, tconv_layout layout, bool vectors)
{
    (void)dtype, (void)layout, (void)vectors;
    return NULL;
}

const void *tconv_wgrad_add_bias_kernel(tconv_dtype dtype)
{
    (void)dtype;
    return NULL;
}

tconv_status tconv_wgrad_add_slices(const tconv_layer *layer, const wgrad_slices *slices, const void *memory,
                                    void *weights, void *stream, tconv_issue *issue)
{
    (void)layer, (void)slices, (void)memory, (void)weights, (void)stream;
    return tconv_cuda_not_built(issue);
}
