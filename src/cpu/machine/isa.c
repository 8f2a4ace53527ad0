/*
 * Chooses the instruction set that runs, from one table, best first, of the levels that this build has code for. A
 * level counts where the processor has it and the operating system saves its registers: the compiler's own
 * __builtin_cpu_supports looks at both (CPUID and XCR0).
 */
#define _GNU_SOURCE /* syscall */
#include "../bf16/kernels.h"
#include "../cpu_target.h"
#include "../kernels/kernels.h"
#include "../kernels/pair_kernels.h"
#include "../kernels/pixels_kernels.h"

#include "../../core/status.h"
#include "../cpu_backend.h"
#include "tuning.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(TCONV_CPU_HAVE_AMX)
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool has_generic(void)
{
    return true;
}

#if defined(TCONV_CPU_HAVE_AVX2) || defined(TCONV_CPU_HAVE_AVX512)
/* CPUID is asked, because not every compiler's __builtin_cpu_supports knows "f16c". Its registers are AVX's. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
#endif

#if defined(TCONV_CPU_HAVE_AVX512)
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

#if defined(TCONV_CPU_HAVE_AVX512_BF16)
static bool has_avx512_bf16(void)
{
    enum { BIT = 1 << 5 };
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BIT) != 0;
}
#endif

#if defined(TCONV_CPU_HAVE_AMX)
/* Linux gives AMX's registers to a process that asks (arch/x86/kernel/fpu/xstate.c): ARCH_REQ_XCOMP_PERM of
 * XFEATURE_XTILEDATA. It saves them in signal frames from then on, and refuses where some alternative stack is too small
 * for that. */
enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

static bool has_amx(void)
{
    static _Atomic int known; /* 1: no, 2: yes */
    enum { BF16_BIT = 1 << 22, TILE_BIT = 1 << 24 };
    unsigned a, b, c, d;
    if (atomic_load_explicit(&known, memory_order_relaxed) == 0) {
        const bool has = has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16_BIT) != 0 &&
                         (d & TILE_BIT) != 0 && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
        atomic_store_explicit(&known, has ? 2 : 1, memory_order_relaxed);
    }
    return atomic_load_explicit(&known, memory_order_relaxed) == 2;
}
#endif

#if defined(TCONV_CPU_HAVE_AVX512_BF16)
#define PAIR_KERNELS &tconv_cpu_pair_kernels_avx512_bf16
#else
#define PAIR_KERNELS NULL
#endif

static const struct level {
    tconv_cpu_isa isa;
    bool (*has)(void);
    const tconv_cpu_kernels *kernels;
    const tconv_cpu_pixel_kernels *pixel_kernels;
    const tconv_cpu_bf16_kernels *matrix_kernels;
    const tconv_cpu_pair_kernels *pair_kernels; /* NULL: none */
} levels[] = {
#if defined(TCONV_CPU_HAVE_AMX)
    {TCONV_CPU_ISA_AMX, has_amx, &tconv_cpu_kernels_avx512, &tconv_cpu_pixel_kernels_avx512,
     &tconv_cpu_bf16_kernels_amx, PAIR_KERNELS},
#endif
#if defined(TCONV_CPU_HAVE_AVX512_BF16)
    {TCONV_CPU_ISA_AVX512_BF16, has_avx512_bf16, &tconv_cpu_kernels_avx512, &tconv_cpu_pixel_kernels_avx512,
     &tconv_cpu_bf16_kernels_avx512_bf16, PAIR_KERNELS},
#endif
#if defined(TCONV_CPU_HAVE_AVX512)
    {TCONV_CPU_ISA_AVX512, has_avx512, &tconv_cpu_kernels_avx512, &tconv_cpu_pixel_kernels_avx512,
     &tconv_cpu_bf16_kernels_generic, NULL},
#endif
#if defined(TCONV_CPU_HAVE_AVX2)
    {TCONV_CPU_ISA_AVX2, has_avx2, &tconv_cpu_kernels_avx2, &tconv_cpu_pixel_kernels_avx2,
     &tconv_cpu_bf16_kernels_generic, NULL},
#endif
#if defined(TCONV_CPU_HAVE_NEON) /* every AArch64 has it */
    {TCONV_CPU_ISA_NEON, has_generic, &tconv_cpu_kernels_neon, &tconv_cpu_pixel_kernels_neon,
     &tconv_cpu_bf16_kernels_generic, NULL},
#endif
    {TCONV_CPU_ISA_GENERIC, has_generic, &tconv_cpu_kernels_generic, &tconv_cpu_pixel_kernels_generic,
     &tconv_cpu_bf16_kernels_generic, NULL},
};

enum { LEVELS = sizeof levels / sizeof levels[0] };

/* Whether a machine of this architecture can have isa at all. */
static bool is_of_this_architecture(tconv_cpu_isa isa)
{
    switch (isa) {
    case TCONV_CPU_ISA_DEFAULT:
    case TCONV_CPU_ISA_GENERIC: return true;
    case TCONV_CPU_ISA_AVX2:
    case TCONV_CPU_ISA_AVX512:
    case TCONV_CPU_ISA_AVX512_BF16:
    case TCONV_CPU_ISA_AMX:
#if defined(__x86_64__)
        return true;
#else
        return false;
#endif
    case TCONV_CPU_ISA_NEON:
#if defined(__aarch64__)
        return true;
#else
        return false;
#endif
    }
    return false;
}

/* The best level of this machine that is no higher than cap. */
static const struct level *best_level(tconv_cpu_isa cap)
{
    const struct level *level = levels;
    while (level < &levels[LEVELS - 1] && ((cap != TCONV_CPU_ISA_DEFAULT && level->isa > cap) || !level->has()))
        level++;
    return level;
}

tconv_cpu_isa tconv_cpu_best_isa(void)
{
    return best_level(TCONV_CPU_ISA_DEFAULT)->isa;
}

bool tconv_cpu_has_isa(tconv_cpu_isa isa)
{
    for (int i = 0; i < LEVELS; i++)
        if (levels[i].isa == isa)
            return levels[i].has();
    return false;
}

/* The level that tconv_cpu_resolve gave. */
static const struct level *find_level(tconv_cpu_isa isa)
{
    for (int i = 0; i < LEVELS; i++)
        if (levels[i].isa == isa)
            return &levels[i];
    return &levels[LEVELS - 1];
}

const tconv_cpu_kernels *tconv_cpu_find_kernels(tconv_cpu_isa isa)
{
    return find_level(isa)->kernels;
}

const tconv_cpu_pixel_kernels *tconv_cpu_find_pixel_kernels(tconv_cpu_isa isa)
{
    return find_level(isa)->pixel_kernels;
}

const tconv_cpu_bf16_kernels *tconv_cpu_find_bf16_kernels(tconv_cpu_isa isa)
{
    return find_level(isa)->matrix_kernels;
}

const tconv_cpu_pair_kernels *tconv_cpu_find_pair_kernels(tconv_cpu_isa isa)
{
    return find_level(isa)->pair_kernels;
}

/* Bytes of the first-level data cache where the machine does not tell: the smallest of server and desktop processors
 * of the last ten years. */
enum { UNKNOWN_L1_BYTES = 32 << 10 };

/* Bytes of the second-level cache where the machine does not tell, chosen likewise. */
enum { UNKNOWN_L2_BYTES = 256 << 10 };

/* Bytes of the last-level cache where the machine does not tell, chosen likewise. */
enum { UNKNOWN_L3_BYTES = 8 << 20 };

tconv_status tconv_cpu_resolve(int threads, tconv_cpu_isa isa, tconv_cpu_tuning tuning, tconv_target *target,
                               tconv_issue *issue)
{
    const tconv_cpu_topology *topology = tconv_cpu_get_topology();
    if (!is_of_this_architecture(isa))
        return tconv_fail(issue, TCONV_ERROR_UNAVAILABLE, "cpu_isa", "cpu_isa = %s: not of this machine's architecture",
                          tconv_cpu_isa_name(isa));
    const tconv_cpu_target found = {
        .threads = tconv_cpu_limit_threads(threads > 0 ? threads : tconv_cpu_default_threads()),
        .cpu_isa = best_level(isa)->isa,
        .tuning = tuning != TCONV_CPU_TUNING_DETECTED ? tuning : tconv_cpu_detect_tuning(),
        .l1_bytes = topology->l1_bytes > 0 ? topology->l1_bytes : UNKNOWN_L1_BYTES,
        .l2_bytes = topology->l2_bytes > 0 ? topology->l2_bytes : UNKNOWN_L2_BYTES,
        .l3_bytes = topology->l3_bytes > 0 ? topology->l3_bytes : UNKNOWN_L3_BYTES,
    };
    tconv_cpu_target_set(target, found);
    return TCONV_SUCCESS;
}
