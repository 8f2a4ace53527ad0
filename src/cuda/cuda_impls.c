/* The lists of CUDA implementations. The order decides only between two that are predicted alike. */
#include "cuda_backend.h"
#include "implementations.h"

const tconv_implementation *const tconv_cuda_implementations[] = {&tconv_cuda_depthwise_forward,
                                                                  &tconv_cuda_frames,
                                                                  &tconv_cuda_col2im,
                                                                  &tconv_cuda_rows,
                                                                  &tconv_cuda_cells,
                                                                  &tconv_cuda_wgmma,
                                                                  &tconv_cuda_igemm,
                                                                  &tconv_cuda_mma,
                                                                  &tconv_cuda_gemm_col2im,
                                                                  &tconv_cuda_nhwc,
                                                                  &tconv_cuda_general,
                                                                  &tconv_cuda_finish,
                                                                  &tconv_cuda_carry,
                                                                  NULL};

const tconv_implementation *const tconv_cuda_backward_data[] = {&tconv_cuda_depthwise_data, &tconv_cuda_dgrad,
                                                                &tconv_cuda_nhwc, &tconv_cuda_finish, NULL};

const tconv_implementation *const tconv_cuda_backward_weights[] = {&tconv_cuda_depthwise_weights, &tconv_cuda_wgrad,
                                                                   &tconv_cuda_nhwc, &tconv_cuda_general_weights, NULL};
