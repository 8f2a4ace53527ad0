/* The micro-tiles of 32 registers of 64 bytes. */
#define MAX_CHANNELS 12
/* A micro-tile has at most 24 sums; the other 8 registers hold vectors of the strip. */
#define MAX_VECTORS                                                                                                    \
    {                                                                                                                  \
        0, 8, 8, 8, 6, 4, 4, 3, 3, 2, 2, 2, 2                                                                          \
    }
#define MICROTILES(microtile)                                                                                          \
    UP_TO_8(microtile, 1)                                                                                              \
    UP_TO_8(microtile, 2)                                                                                              \
    UP_TO_8(microtile, 3)                                                                                              \
    UP_TO_6(microtile, 4)                                                                                              \
    UP_TO_4(microtile, 5)                                                                                              \
    UP_TO_4(microtile, 6)                                                                                              \
    UP_TO_3(microtile, 7)                                                                                              \
    UP_TO_3(microtile, 8)                                                                                              \
    UP_TO_2(microtile, 9)                                                                                              \
    UP_TO_2(microtile, 10)                                                                                             \
    UP_TO_2(microtile, 11)                                                                                             \
    UP_TO_2(microtile, 12)

/* A micro-tile of channel vectors x pixels has at most 24 sums, beside vectors of weights and a broadcast input. */
#define MAX_PIXELS                                                                                                     \
    {                                                                                                                  \
        0, 12, 12                                                                                                      \
    }
#define PIXEL_MICROTILES(microtile) UP_TO_12(microtile, 1) UP_TO_12(microtile, 2)
