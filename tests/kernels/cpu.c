#include "cpu.h"

#include <string.h>

#include "../../cli/floor.h"
#include "../../src/cpu/cpu_backend.h"
#include "harness.h"

void cpu_each_dtype(void (*visit)(const cpu_kernel *kernel))
{
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F64, TCONV_F16, TCONV_BF16};
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0] && tconv_cpu_has_isa((tconv_cpu_isa)isa); d++) {
            cpu_kernel kernel = {.isa = (tconv_cpu_isa)isa,
                                 .isa_name = harness_cpu_isa_name((tconv_cpu_isa)isa),
                                 .kernels = tconv_cpu_find_kernels((tconv_cpu_isa)isa),
                                 .pixel_kernels = tconv_cpu_find_pixel_kernels((tconv_cpu_isa)isa),
                                 .dtype = dtypes[d],
                                 .real = dtypes[d] == TCONV_F64 ? TCONV_F64 : TCONV_F32};
            kernel.lanes = kernel.kernels->real[kernel.real == TCONV_F64].lanes;
            visit(&kernel);
        }
    }
}

void cpu_check_entries(const check_entry *entries, size_t count, const cpu_kernel *kernel)
{
    for (size_t i = 0; i < count; i++)
        check_kernel(&entries[i], kernel, "cpu/%s/%s %s", kernel->isa_name, entries[i].name,
                     harness_dtype_name(kernel->dtype));
}

/* The rate is measured once for each instruction set. */
double cpu_flops(const cpu_kernel *kernel)
{
    static machine_floor floors[TCONV_CPU_ISA_AMX + 1];
    machine_floor *floor = &floors[kernel->isa];
    if (!floor->measured)
        floor_measure_cpu(1, kernel->isa, floor);
    return floor->flops_per_second[kernel->dtype];
}

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

static void run_copy(const void *argument)
{
    const copy *copied = argument;
    memcpy(copied->to, copied->from, copied->bytes);
}

double cpu_copy_bytes(double bytes)
{
    const int64_t half = (int64_t)bytes / 2 / 8;
    const copy copied = {check_scratch("copied", TCONV_F64, half, GUARD_AFTER)->data,
                         check_scratch("to copy", TCONV_F64, half, GUARD_AFTER)->data, (size_t)half * 8};
    return 2.0 * (double)copied.bytes / check_seconds(run_copy, &copied);
}

void cpu_want_stored(const cpu_kernel *kernel, check_buffer *dst, int64_t index, double sum, bool accumulate)
{
    if (accumulate)
        sum = harness_element_round(kernel->real, sum + check_hold(dst, index, CHECK_BITS));
    check_want(dst, index, harness_element_round(kernel->dtype, sum), 0);
}

int64_t cpu_whole_vectors(const cpu_kernel *kernel, int64_t count)
{
    return (count + kernel->lanes - 1) / kernel->lanes * kernel->lanes;
}
