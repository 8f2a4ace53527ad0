/* The kernels of each instruction set that this machine has, and guarded memory for them. */
#ifndef TCONV_TESTS_LEVELS_H
#define TCONV_TESTS_LEVELS_H

#include "../../src/cpu/kernels.h"
#include "guard.h"

#define MAX_LEVELS TCONV_CPU_ISA_NEON

/* A number that marks memory where nothing may be written; it is exact in every dtype, and no result of any test. */
#define LEVEL_MARK 9984.0

struct level {
    const tconv_cpu_kernels *kernels;
    const char *name;
};

/* Fills levels and returns how many there are: at least the one that every machine has. */
int list_levels(struct level levels[MAX_LEVELS]);

/* These return the type of the sums of a dtype, and the lanes of a vector of them. */
tconv_dtype level_real(tconv_dtype dtype);
int level_lanes(const struct level *level, tconv_dtype dtype);

/* Returns memory for count elements that are all value, or random; a page that may not be touched stands at one end. */
struct guarded level_make_elements(tconv_dtype dtype, int64_t count, double value, enum guard_side side);
struct guarded level_make_random(tconv_dtype dtype, int64_t count, enum guard_side side, uint64_t seed);

#endif
