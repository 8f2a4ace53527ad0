/* xoshiro256** seeded by splitmix64; both from their authors' description (prng.di.unimi.it). */
#include "random.h"

static uint64_t rotate_left(uint64_t value, int count)
{
    return value << count | value >> (64 - count);
}

void harness_random_seed(harness_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; ++i) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t mixed = seed;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
        random->state[i] = mixed ^ mixed >> 31;
    }
}

uint64_t harness_random_bits(harness_random *random)
{
    uint64_t *s = random->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

int64_t harness_random_integer(harness_random *random, int64_t minimum, int64_t maximum)
{
    /* The bias of the remainder is below span / 2^64: nothing that a test could see. */
    uint64_t span = (uint64_t)maximum - (uint64_t)minimum + 1;
    uint64_t bits = harness_random_bits(random);
    return (int64_t)((uint64_t)minimum + (span == 0 ? bits : bits % span));
}

double harness_random_real(harness_random *random)
{
    return (double)(harness_random_bits(random) >> 11) * 0x1p-52 - 1.0;
}

bool harness_random_chance(harness_random *random, int percent)
{
    return harness_random_integer(random, 1, 100) <= percent;
}
