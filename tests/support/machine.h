/*
 * Machines that the tests can play instead of the one that they run on: TCONV_TESTS_MACHINE=zen3 (scripts/test --machine
 * zen3) has every plan of a test program made for two dozen cores with the caches and the instruction set of a Zen 3. The
 * functions by which the library looks at a machine are replaced as the test programs are linked (machine.c), so that this takes
 * no rights and no other system. Without the variable they are the library's own.
 *
 * An instruction set that the processor at hand lacks cannot be played: the best that it has is used.
 */
#ifndef TCONV_TESTS_MACHINE_H
#define TCONV_TESTS_MACHINE_H

#include "../../src/core/config.h"

struct machine {
    const char *name;
    int cores; /* one processing unit each */
    size_t l1_bytes, l2_bytes, l3_bytes;
    tconv_cpu_isa isa; /* the best that it has */
    tconv_cpu_tuning tuning;
};

/* Returns the machine that is played; NULL where none is. The variable is read as the program begins; a name that is not in the
 * table ends it with a message that lists those that are. */
const struct machine *machine_played(void);

#endif
