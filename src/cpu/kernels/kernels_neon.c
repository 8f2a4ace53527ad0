/* NEON of AArch64 has 32 registers of 16 bytes and multiply-adds by one lane. */
#define LEVEL        neon
#define VECTOR_BYTES 16
#define MAX_CHANNELS 8
/* A micro-tile has at most 16 sums; the other 16 registers hold vectors of the strip, and a register for each weight,
 * because compilers load weights one by one. */
#define MAX_VECTORS                                                                                                    \
    {                                                                                                                  \
        0, 8, 8, 5, 4, 3, 2, 2, 2                                                                                      \
    }
#define MICROTILES(microtile)                                                                                          \
    UP_TO_8(microtile, 1)                                                                                              \
    UP_TO_8(microtile, 2)                                                                                              \
    UP_TO_5(microtile, 3)                                                                                              \
    UP_TO_4(microtile, 4)                                                                                              \
    UP_TO_3(microtile, 5)                                                                                              \
    UP_TO_2(microtile, 6)                                                                                              \
    UP_TO_2(microtile, 7)                                                                                              \
    UP_TO_2(microtile, 8)
#include "kernels.inc.h"

/* A micro-tile of channel vectors x pixels has at most 16 sums, beside vectors of weights and a broadcast input. */
#define MAX_PIXELS                                                                                                     \
    {                                                                                                                  \
        0, 12, 8                                                                                                       \
    }
#define PIXEL_MICROTILES(microtile) UP_TO_12(microtile, 1) UP_TO_8(microtile, 2)
#include "pixels_kernels.inc.h"
