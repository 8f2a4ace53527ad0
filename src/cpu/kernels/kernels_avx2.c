/* AVX2 with FMA and F16C has 16 registers of 32 bytes. */
#define LEVEL        avx2
#define VECTOR_BYTES 32
#define MAX_CHANNELS 6
/* A micro-tile has at most 12 sums; the other 4 registers hold a broadcast weight and vectors of the strip. */
#define MAX_VECTORS                                                                                                    \
    {                                                                                                                  \
        0, 8, 6, 4, 3, 2, 2                                                                                            \
    }
#define MICROTILES(microtile)                                                                                          \
    UP_TO_8(microtile, 1)                                                                                              \
    UP_TO_6(microtile, 2)                                                                                              \
    UP_TO_4(microtile, 3)                                                                                              \
    UP_TO_3(microtile, 4)                                                                                              \
    UP_TO_2(microtile, 5)                                                                                              \
    UP_TO_2(microtile, 6)
#include "kernels.inc.h"

/* A micro-tile of channel vectors x pixels has at most 12 sums, beside vectors of weights and a broadcast input. */
#define MAX_PIXELS                                                                                                     \
    {                                                                                                                  \
        0, 12, 6                                                                                                       \
    }
#define PIXEL_MICROTILES(microtile) UP_TO_12(microtile, 1) UP_TO_6(microtile, 2)
#include "pixels_kernels.inc.h"
