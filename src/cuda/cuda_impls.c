/* The list of CUDA implementations, best first. */
#include "cells.h"
#include "cuda_backend.h"
#include "igemm.h"
#include "mma.h"
#include "phases.h"
#include "products.h"
#include "rows.h"
#include "stencil.h"
#include "wgmma.h"

const tconv_implementation *const tconv_cuda_implementations[] = {
    &tconv_cuda_stencil, &tconv_cuda_products, &tconv_cuda_rows,
    &tconv_cuda_cells,   &tconv_cuda_wgmma,    &tconv_cuda_igemm,
    &tconv_cuda_mma,     &tconv_cuda_phases,   NULL};
