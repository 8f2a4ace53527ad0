/* The registers of bf16/kernels.inc.h in memory, for vectors that are multiplied: sums; factors stay where they lie. */

static void begin(int64_t depth)
{
    (void)depth;
}

static void end(void)
{
}

struct registers {
    int64_t depth;
    float sums[4][SIDE][SIDE];
    const uint16_t *strip[2], *weights[2];
};

#define REGISTERS                                                                                                      \
    struct registers registers;                                                                                        \
    registers.depth = tile->depth
#define ZERO(number)               memset(registers.sums[number], 0, sizeof registers.sums[number])
#define LOAD_STRIP(number, from)   (registers.strip[(number)-4] = (from))
#define LOAD_WEIGHTS(number, from) (registers.weights[(number)-6] = (from))
#define MULTIPLY(first, second, of_strip)                                                                              \
    do {                                                                                                               \
        const uint16_t *strip = registers.strip[(of_strip)-4];                                                         \
        if (blocks > 1)                                                                                                \
            multiply_blocks(registers.sums[first], registers.sums[second], strip, registers.weights[0],                \
                            registers.weights[1], registers.depth);                                                    \
        else                                                                                                           \
            multiply_factors(registers.sums[first], strip, registers.weights[0], registers.depth);                     \
    } while (0)
#define STORE(number, to, pitch)                                                                                       \
    for (int p = 0; p < SIDE; p++)                                                                                     \
    memcpy((to) + p * (pitch), registers.sums[number][p], sizeof registers.sums[number][p])
