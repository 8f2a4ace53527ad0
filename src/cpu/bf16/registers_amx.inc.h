/* The registers of bf16/kernels.inc.h that AMX has. */

/* What LDTILECFG reads: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A. */
struct configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static void begin(int64_t depth)
{
    struct configuration configuration = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        configuration.rows[i] = SIDE;
        configuration.row_bytes[i] = SIDE * sizeof(float);
    }
    for (int i = 4; i < 6; i++)
        configuration.row_bytes[i] = (uint16_t)(depth * (int64_t)sizeof(uint16_t));
    for (int i = 6; i < 8; i++)
        configuration.rows[i] = (uint8_t)(depth / 2);
    /* GCC's intrinsic names a part of it, and would let stores to the rest be left out. */
    __asm__ volatile("" : : "r"(&configuration) : "memory");
    _tile_loadconfig(&configuration);
}

static void end(void)
{
    _tile_release();
}

#define REGISTERS                  (void)0
#define ZERO(number)               _tile_zero(number)
#define LOAD_STRIP(number, from)   _tile_loadd(number, from, tile->depth * 2)
#define LOAD_WEIGHTS(number, from) _tile_loadd(number, from, DEPTH * 2)
#define MULTIPLY(first, second, strip)                                                                                 \
    do {                                                                                                               \
        _tile_dpbf16ps(first, strip, 6);                                                                               \
        if (blocks > 1)                                                                                                \
            _tile_dpbf16ps(second, strip, 7);                                                                          \
    } while (0)
#define STORE(number, to, pitch) _tile_stored(number, to, (pitch)*4)
