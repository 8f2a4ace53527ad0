/*
 * Measures the rates of the CPU. The multiply-add loop is one macro for every vector width, compiled for its
 * instruction set by a target attribute; the plan's instruction set chooses among them. The loop keeps more independent
 * chains than latency x units of any core we know (4 cycles x 2 units = 8), so that only the units limit it. This file
 * is compiled with -ffp-contract=fast, so that a multiplication and an addition are one instruction.
 */
#include <stdlib.h>
#include <string.h>

#include "floor.h"
#include "harness.h"

#define REPEATS      10           /* the fastest counts */
#define LOOP_SECONDS 0.02         /* length of one repeat */
#define COPY_BYTES   (256L << 20) /* bytes of each array, all threads together: past the caches we know */
#define FIRST_STEPS  1e5

typedef double fma_loop(long steps);

/* Runs steps x chains x lanes multiply-adds; returns a number that depends on all of them. Parentheses cannot stand
 * around a type or an attribute: NOLINTBEGIN(bugprone-macro-parentheses) */
#define FMA_LOOP(name, attributes, type, bytes, chains)                                                                \
    typedef type name##_vector __attribute__((vector_size(bytes)));                                                    \
    attributes static double name(long steps)                                                                          \
    {                                                                                                                  \
        name##_vector chain[chains] = {{0}}, factor = {0}, addend = {0};                                               \
        for (size_t lane = 0; lane < (bytes) / sizeof(type); ++lane) {                                                 \
            factor[lane] = (type)0.999;                                                                                \
            addend[lane] = (type)0.001;                                                                                \
            for (int i = 0; i < (chains); ++i)                                                                         \
                chain[i][lane] = (type)(i + (int)lane);                                                                \
        }                                                                                                              \
        for (long step = 0; step < steps; ++step)                                                                      \
            for (int i = 0; i < (chains); ++i)                                                                         \
                chain[i] = chain[i] * factor + addend;                                                                 \
        double sum = 0;                                                                                                \
        for (int i = 0; i < (chains); ++i)                                                                             \
            for (size_t lane = 0; lane < (bytes) / sizeof(type); ++lane)                                               \
                sum += (double)chain[i][lane];                                                                         \
        return sum;                                                                                                    \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

/* Chains: as many as leave registers for the two factors, and as compilers unroll in full. */
#define GENERIC_CHAINS 10
#define AVX_CHAINS     12

FMA_LOOP(fma_f32_generic, , float, 16, GENERIC_CHAINS)
FMA_LOOP(fma_f64_generic, , double, 16, GENERIC_CHAINS)
#if defined(__x86_64__)
FMA_LOOP(fma_f32_avx2, __attribute__((target("avx2,fma"))), float, 32, AVX_CHAINS)
FMA_LOOP(fma_f64_avx2, __attribute__((target("avx2,fma"))), double, 32, AVX_CHAINS)
FMA_LOOP(fma_f32_avx512, __attribute__((target("avx512f"))), float, 64, AVX_CHAINS)
FMA_LOOP(fma_f64_avx512, __attribute__((target("avx512f"))), double, 64, AVX_CHAINS)
#endif

typedef struct fma_kernel {
    fma_loop *f32, *f64;
    int vector_bytes, chains;
} fma_kernel;

/* Finds the loop of an instruction set. Compilers for AArch64 always assume NEON. */
static fma_kernel find_kernel(tconv_cpu_isa isa)
{
#if defined(__x86_64__)
    if (isa == TCONV_CPU_ISA_AVX512 || isa == TCONV_CPU_ISA_AVX512_BF16 || isa == TCONV_CPU_ISA_AMX)
        return (fma_kernel){fma_f32_avx512, fma_f64_avx512, 64, AVX_CHAINS};
    if (isa == TCONV_CPU_ISA_AVX2)
        return (fma_kernel){fma_f32_avx2, fma_f64_avx2, 32, AVX_CHAINS};
#endif
    (void)isa;
    return (fma_kernel){fma_f32_generic, fma_f64_generic, 16, GENERIC_CHAINS};
}

/* Times a loop on all threads. With one thread it does not enter OpenMP, whose run-time ends the process where it gets
 * no memory. */
static double time_loop(fma_loop *loop, int threads, long steps)
{
    double sum = 0, start = harness_seconds();
    if (threads == 1) {
        sum = loop(steps);
    } else {
#pragma omp parallel num_threads(threads) reduction(+ : sum)
        sum += loop(steps);
    }
    double seconds = harness_seconds() - start;
    return sum != 0 ? seconds : 0; /* uses the sum, so that the compiler keeps the loop */
}

/* Returns the best rate of several loops, because one that waited for a core shows too low a rate. Each is as long as
 * the best rate so far suggests. */
static double measure_flops(fma_loop *loop, int threads, double flops_per_step)
{
    const double flops = flops_per_step * threads;
    double best = 0, steps = FIRST_STEPS;
    for (int i = 0; i < REPEATS; ++i) {
        double seconds = time_loop(loop, threads, (long)steps);
        double rate = seconds > 0 ? flops * steps / seconds : 0;
        best = rate > best ? rate : best;
        steps = best * LOOP_SECONDS / flops + 1;
    }
    return best;
}

static double copy_once(char *to, const char *from, int threads)
{
    const size_t share = (size_t)COPY_BYTES / (size_t)threads;
    double start = harness_seconds();
    if (threads == 1) {
        memcpy(to, from, share);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int thread = 0; thread < threads; ++thread)
            memcpy(to + (size_t)thread * share, from + (size_t)thread * share, share);
    }
    return harness_seconds() - start;
}

/* Returns the bytes read and written in a second; 0 when out of memory. */
static double measure_copy(int threads)
{
    char *from = malloc((size_t)COPY_BYTES), *to = malloc((size_t)COPY_BYTES);
    double best = 0;
    if (from != NULL && to != NULL) {
        memset(from, 1, (size_t)COPY_BYTES);
        memset(to, 2, (size_t)COPY_BYTES);
        for (int i = 0; i < REPEATS; ++i) {
            double rate = 2.0 * (double)COPY_BYTES / copy_once(to, from, threads);
            best = rate > best ? rate : best;
        }
    }
    free(from);
    free(to);
    return best;
}

bool floor_measure_cpu(int threads, tconv_cpu_isa isa, machine_floor *floor)
{
    const fma_kernel kernel = find_kernel(isa);
    const double values = (double)kernel.chains * kernel.vector_bytes;
    *floor = (machine_floor){.bytes_per_second = measure_copy(threads)};
    double f32 = measure_flops(kernel.f32, threads, 2 * values / (double)sizeof(float));
    double f64 = measure_flops(kernel.f64, threads, 2 * values / (double)sizeof(double));
    floor->flops_per_second[TCONV_F32] = floor->tf32_flops_per_second = f32;
    floor->flops_per_second[TCONV_F16] = floor->flops_per_second[TCONV_BF16] = f32; /* their sums are in f32 */
    floor->flops_per_second[TCONV_F64] = f64;
    floor->measured = floor->bytes_per_second > 0;
    return floor->measured;
}
