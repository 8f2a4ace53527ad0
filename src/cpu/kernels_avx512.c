/* AVX-512 (F, BW, DQ, VL) has 32 registers of 64 bytes; the multiply-add itself broadcasts a weight. */
#define LEVEL        avx512
#define VECTOR_BYTES 64
#include "microtiles_avx512.inc.h"

#include "kernels.inc.h"

/* A micro-tile of channel vectors x pixels has at most 24 sums, beside vectors of weights and a broadcast input. */
#define MAX_PIXELS                                                                                                     \
    {                                                                                                                  \
        0, 12, 12                                                                                                      \
    }
#define PIXEL_MICROTILES(microtile) UP_TO_12(microtile, 1) UP_TO_12(microtile, 2)
#include "pixels_kernels.inc.h"
