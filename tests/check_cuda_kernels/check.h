/*
 * The frame of check_cuda_kernels: names, guarded buffers on the device, random numbers, comparison and timing. It is
 * what tests/kernels/check.h is to the CPU's kernels.
 *
 * A family is a file. It has a table of entries and a function that hands it to check_entries; main.cu lists these
 * functions. A check goes through cases, each of which is
 *
 *     begin_case("%d rows of %d", rows, count);
 *     const device_buffer src = input("src", values);
 *     const device_buffer dst = output("dst", count * sizeof(float));
 *     kernel<<<1, 32>>>(src.as<float>(), dst.as<float>(), count);
 *     finish_kernels();
 *     compare_bits<uint32_t>(dst, wanted);            // what is not wanted may not be written
 *
 * Every buffer lies between two zones of GUARD_BYTES of NaN, and an output is NaN before the kernel runs: what is read
 * there by mistake spoils the sums, and finish_kernels sees what was written there, or into an input. Buffers are
 * released where the next case begins. A kernel that fails a case is reported by name, and the next one's check begins.
 */
#ifndef TCONV_CHECK_CUDA_H
#define TCONV_CHECK_CUDA_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

#include "../../src/cuda/model/machine.h"

namespace tconv::check
{

/* ---------------------------------------------------------------------------------------------------------- kernels */

/* A name is cuda/FOLDER/PIECE VARIANT, such as "cuda/ptx/wgmma f16 ss N=64". */
struct entry {
    const char *name;
    void (*check)();
    void (*bench)();   /* calls rate; NULL: there is nothing to time */
    bool needs_hopper; /* runs as sm_90a code alone */
};

/* Lists, checks or times each entry whose name is asked for. */
void check_entries(const entry *entries, int count);

template <int count> void check_entries(const entry (&entries)[count])
{
    check_entries(entries, count);
}

/* Begins a case; the text says which, where it fails. */
void begin_case(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends this kernel's check. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the check where a function of the CUDA runtime did not succeed. */
void require_cuda(cudaError_t error, const char *what);

/* Waits for the device. Fails where a kernel did, or where a zone beside a buffer or an input has changed. */
void finish_kernels();

/* ---------------------------------------------------------------------------------------------------------- buffers */

constexpr size_t GUARD_BYTES = 4096; /* on either side of a buffer */

struct device_buffer {
    const char *name;
    void *data;
    size_t bytes;
    template <class T> T *as() const
    {
        return static_cast<T *>(data);
    }
};

/* Its data begins `offset` bytes past a multiple of 1024. Kernels may not write it. */
device_buffer input_bytes(const char *name, const void *bytes, size_t size, size_t offset);
template <class T> device_buffer input(const char *name, const std::vector<T> &values, size_t offset = 0)
{
    return input_bytes(name, values.data(), values.size() * sizeof(T), offset);
}

/* All bytes are 0xff, a NaN of every type. */
device_buffer output(const char *name, size_t bytes, size_t offset = 0);

void copy_from_device(const device_buffer &buffer, void *to);
template <class T> std::vector<T> contents(const device_buffer &buffer)
{
    std::vector<T> values(buffer.bytes / sizeof(T));
    copy_from_device(buffer, values.data());
    return values;
}

/* Fails at the first element of a buffer whose bits differ from what is wanted. */
template <class Bits> void compare_bits(const device_buffer &buffer, const std::vector<Bits> &wanted)
{
    const std::vector<Bits> got = contents<Bits>(buffer);
    if (got.size() != wanted.size())
        fail("%s has %zu elements, and %zu are wanted", buffer.name, got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); i++)
        if (got[i] != wanted[i])
            fail("%s[%zu] of %zu is %#llx, not %#llx", buffer.name, i, got.size(), (unsigned long long)got[i],
                 (unsigned long long)wanted[i]);
}

/* Fails at the first float that is not within its bound. */
void compare_floats(const device_buffer &buffer, const std::vector<double> &wanted, const std::vector<double> &bounds);

/* ---------------------------------------------------------------------------------------------------------- numbers */

uint32_t random_bits();
int random_integer(int least, int most);
float random_real(); /* in [-1, 1) */

/* Anything that 32 bits may be: NaN, infinities, subnormal numbers, ties between neighbours in TF32, f16 and bf16. */
uint32_t random_word();

/* Plain C statements of what the library's conversions do. */
uint32_t bits_of(float value);

/* Elements of so many bytes: of 4, reals and now and then any word; of 2, any bits. */
std::vector<uint8_t> random_elements(size_t count, size_t size);

/* The least multiple of b that is no less than a. */
inline int round_up(int a, int b)
{
    return (a + b - 1) / b * b;
}
float float_of(uint32_t bits);
uint16_t f16_of(float value);
uint16_t bf16_of(float value);
float float_of_f16(uint16_t bits);
float float_of_bf16(uint16_t bits);

/* Rounds to the 11 bits of TF32, ties away from zero, never to infinity; a NaN is 0x7fffe000. */
uint32_t tf32_of(uint32_t bits);

/* The parts of a factor of strict f32. */
void tf32_parts_of(uint32_t bits, uint32_t *big, uint32_t *small);

/* ----------------------------------------------------------------------------------------------------------- timing */

/* The device, and what the cost model knows of it. */
const tconv_cuda_machine &machine();

/* Seconds of one call, which launches kernels: the median of several loops. */
double seconds_of(const std::function<void()> &call);

/* Times call and prints how much work it does, in units of 1e9 a second, beside what the machine does a second. */
void rate(const char *variant, const std::function<void()> &call, double work, const char *unit, double machine_rate);

/* Rates of the whole machine a second: bytes of device memory and of shared memory, and flops of either matrix
 * instruction on factors of so many bytes. */
double dram_rate();
double pass_rate();
double l2_rate();
double shared_rate();
double wgmma_rate(int element_size);
double mma_rate(int element_size);

/* ------------------------------------------------------------------------------------------------------ for main.cu */

struct options {
    bool list, bench, verbose;
    bool unchecked;      /* bench alone */
    const char *pattern; /* a part of the names that are asked for, or a pattern as the shell has them; NULL: all */
    uint64_t seed;
    int part, parts; /* every parts-th of them, from the part-th on, counted from 1 */
};

void begin(const options &options);

/* Prints the summary and returns the exit status. */
int end();

} // namespace tconv::check

#endif
