/* The list of CUDA implementations, best first. */
#include "cuda_backend.h"
#include "mma.h"
#include "phases.h"

const tconv_implementation *const tconv_cuda_implementations[] = {&tconv_cuda_mma, &tconv_cuda_phases, NULL};
