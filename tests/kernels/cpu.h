/* The families of the CPU share this: the instruction sets of this machine with their kernels, and its rates. */
#ifndef TCONV_CHECK_CPU_H
#define TCONV_CHECK_CPU_H

#include "../../src/cpu/kernels/kernels.h"
#include "../../src/cpu/kernels/pixels_kernels.h"
#include "check.h"

/* A check is given one dtype of one instruction set. */
typedef struct cpu_kernel {
    tconv_cpu_isa isa;
    const char *isa_name;
    const tconv_cpu_kernels *kernels;
    const tconv_cpu_pixel_kernels *pixel_kernels;
    tconv_dtype dtype, real; /* real: the type of the sums */
    int lanes;               /* of a vector of sums */
    int rows, vectors;       /* of a micro-tile: channels or pixels, and vectors */
} cpu_kernel;

/* Calls visit with each instruction set that this machine has and each dtype. */
void cpu_each_dtype(void (*visit)(const cpu_kernel *kernel));

/* Checks each entry of a table, named "cpu/ISA/ENTRY DTYPE". */
void cpu_check_entries(const check_entry *entries, size_t count, const cpu_kernel *kernel);

/* Returns the FLOP/s of one core by the multiply-adds of the kernel's instruction set. */
double cpu_flops(const cpu_kernel *kernel);

/* Returns the bytes/s, read and written, of a copy that reads and writes so many together: that of the cache which
 * holds them. */
double cpu_copy_bytes(double bytes);

/* Wants a sum rounded to dst's dtype; with accumulate, what dst holds, which this draws, is added to it before. */
void cpu_want_stored(const cpu_kernel *kernel, check_buffer *dst, int64_t index, double sum, bool accumulate);

/* Rounds count up to whole vectors. */
int64_t cpu_whole_vectors(const cpu_kernel *kernel, int64_t count);

#endif
