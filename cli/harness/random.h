/*
 * Random numbers from a seed: xoshiro256** (Blackman and Vigna), its state filled by splitmix64. The same seed gives
 * the same numbers on every machine, so that a failure replays.
 */
#ifndef TCONV_HARNESS_RANDOM_H
#define TCONV_HARNESS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct harness_random {
    uint64_t state[4];
} harness_random;

void harness_random_seed(harness_random *random, uint64_t seed);

/* Returns 64 random bits. */
uint64_t harness_random_bits(harness_random *random);

/* Returns an integer from minimum to maximum, both included. */
int64_t harness_random_integer(harness_random *random, int64_t minimum, int64_t maximum);

/* Returns a real in [-1, 1), a multiple of 2^-52. */
double harness_random_real(harness_random *random);

/* Returns true in percent of a hundred draws. */
bool harness_random_chance(harness_random *random, int percent);

#endif
