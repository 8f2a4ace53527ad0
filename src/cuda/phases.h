/* The phases algorithm as the list of implementations sees it. */
#ifndef TCONV_CUDA_PHASES_H
#define TCONV_CUDA_PHASES_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_phases": every layer, on any device. */
extern const tconv_implementation tconv_cuda_phases;

#ifdef __cplusplus
}
#endif

#endif
