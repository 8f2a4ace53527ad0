/* The table of microarchitectures, and which of them this processor is. */
#include "tuning.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const tconv_cpu_traits table[] = {
    /* Two cores of a Zen 4 (docs/log/2026-11-21-cpu.md): an output of half the last-level cache would not stay there,
     * and streaming it took kb81 and fcn_x8 1.5 and 1.8 times as fast, kb75 and dw_up2 1.2 to 1.4 times; from 200 terms
     * on stores are done before they are in anyone's way, and streaming took 2 to 3 % longer on kb57 and kb71. */
    [TCONV_CPU_TUNING_COMMON] = {"common", 12, 50, 0, 200, 2},
    /* Two cores of an Emerald Rapids (docs/log/2026-11-26-cpu-intel.md): two multiply-adds of 64 bytes a cycle leave
     * little room for loads, and micro-tiles of 8 channels x 3 vectors have the fewest; a store that misses the
     * second-level cache waits for its line, however large the last-level cache. Gradients by pairs make 74 to 83 GFLOP/s
     * where f32 makes 127 to 159 (docs/log/2026-11-27-cpu-amx-gradients.md). */
    [TCONV_CPU_TUNING_XEON] = {"xeon", 8, 0, 100, INT64_MAX, 0.53},
};

const tconv_cpu_traits *tconv_cpu_find_traits(tconv_cpu_tuning tuning)
{
    return &table[tuning];
}

/* Tells whether this is an Intel processor with AVX-512, which has two ports for it: the Xeons from Skylake on. */
static bool is_xeon(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_INTEL_ebx || d != signature_INTEL_edx ||
        c != signature_INTEL_ecx)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX512F) != 0;
#else
    return false;
#endif
}

tconv_cpu_tuning tconv_cpu_detect_tuning(void)
{
    return is_xeon() ? TCONV_CPU_TUNING_XEON : TCONV_CPU_TUNING_COMMON;
}
