/*
 * What the blocking of cpu_phases takes from the microarchitecture, beyond its vectors and the sizes of its caches.
 * The table is in tuning.c; TCONV_CPU_TUNING names any entry of it on any machine.
 */
#ifndef TCONV_CPU_MACHINE_TUNING_H
#define TCONV_CPU_MACHINE_TUNING_H

#include <stdint.h>

#include "../../core/config.h"

typedef struct tconv_cpu_traits {
    const char *name; /* as TCONV_CPU_TUNING has it */
    /* The most output channels of a block, and so of a micro-tile. With more of them fewer vectors share the loads of
     * weights. */
    int block_channels;
    /* Outputs are streamed where they are larger than these percents of the last-level cache and of the second-level
     * caches of the threads together; 0: that one does not count. */
    int64_t stream_l3_percent, stream_l2_percent;
    /* The terms of an output from which plain stores are as good. */
    int64_t stream_terms;
    /* Multiply-adds of AVX512_BF16 in the time of one of f32. Pairs are worth it above 1. */
    double pairs_rate;
} tconv_cpu_traits;

/* Returns the tuning of this machine's processor. */
tconv_cpu_tuning tconv_cpu_detect_tuning(void);

/* Returns an entry; tuning is not DETECTED. */
const tconv_cpu_traits *tconv_cpu_find_traits(tconv_cpu_tuning tuning);

#endif
