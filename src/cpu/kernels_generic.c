/* What the compiler assumes of every machine: vectors of 16 bytes (SSE2 on x86-64), 16 registers, or what it makes of
 * them elsewhere. */
#define LEVEL        generic
#define VECTOR_BYTES 16
#define MAX_CHANNELS 6
/* At most 12 sums; the others hold a broadcast weight and vectors of the strip. */
#define MAX_VECTORS                                                                                                    \
    {                                                                                                                  \
        0, 8, 6, 4, 3, 2, 2                                                                                            \
    }
#define TILES(tile)                                                                                                    \
    UP_TO_8(tile, 1)                                                                                                   \
    UP_TO_6(tile, 2)                                                                                                   \
    UP_TO_4(tile, 3)                                                                                                   \
    UP_TO_3(tile, 4)                                                                                                   \
    UP_TO_2(tile, 5)                                                                                                   \
    UP_TO_2(tile, 6)
#include "kernels.inc.h"

/* Channel vectors x pixels: at most 12 sums, beside the weights and a broadcast input. */
#define MAX_TILE_PIXELS                                                                                                \
    {                                                                                                                  \
        0, 12, 6                                                                                                       \
    }
#define PIXEL_TILES(tile) UP_TO_12(tile, 1) UP_TO_6(tile, 2)
#include "pixels_kernels.inc.h"
