/*
 * The least time that a layer can take on this machine: its bytes (src, weights and dst once each) at the rate of a
 * copy, or its arithmetic at the rate of multiply-adds, whichever is longer.
 *
 * On the CPU both rates are measured on as many threads as the plan has: a loop of independent fused multiply-adds of
 * the plan's instruction set, and a copy far larger than the caches. On CUDA the copy is measured; the arithmetic rates
 * are nominal: the best matrix products reach them on one H200. On another GPU the floor is only a yardstick.
 */
#ifndef TCONV_CLI_FLOOR_H
#define TCONV_CLI_FLOOR_H

#include <stdbool.h>

#include "tconv/tconv.h"

typedef struct machine_floor {
    bool measured;
    bool nominal;               /* whether the arithmetic rates are nominal, not measured here */
    double bytes_per_second;    /* read and written */
    double flops_per_second[4]; /* by tconv_dtype; F32 is for strict math */
    double tf32_flops_per_second;
} machine_floor;

/* Measures the CPU with this many threads and the instruction set that a plan uses. Returns false when out of
 * memory. */
bool floor_measure_cpu(int threads, tconv_cpu_isa isa, machine_floor *floor);

/* Measures the current device. Returns false on a CUDA error. */
bool floor_measure_cuda(machine_floor *floor);

/* Returns the floor of a layer in milliseconds; math is as the plan resolved it. */
double floor_milliseconds(const machine_floor *floor, const tconv_desc *desc, tconv_math math, double bytes);

#endif
