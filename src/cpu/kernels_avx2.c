/* AVX2, FMA, F16C: 16 registers of 32 bytes. */
#define LEVEL        avx2
#define VECTOR_BYTES 32
#define MAX_CHANNELS 6
/* At most 12 sums; the others hold a broadcast weight and vectors of the strip. */
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

/* Channel vectors x pixels: at most 12 sums, beside the weights and a broadcast input. */
#define MAX_PIXELS                                                                                                     \
    {                                                                                                                  \
        0, 12, 6                                                                                                       \
    }
#define PIXEL_MICROTILES(microtile) UP_TO_12(microtile, 1) UP_TO_6(microtile, 2)
#include "pixels_kernels.inc.h"
