#include "check.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fnmatch.h>

namespace tconv::check
{

namespace
{

constexpr int TIMINGS = 7;            /* whose median counts */
constexpr double LOOP_SECONDS = 5e-4; /* the least of one timing: a thousand times what an event resolves */
constexpr int LEAST_CALLS = 2;        /* of a loop */
constexpr size_t ALIGNMENT = 1024;    /* bytes: of swizzled boxes in global memory no more is asked */
constexpr unsigned char UNTOUCHED = 0xff;

struct failure {
};

struct kept_buffer {
    device_buffer buffer;
    unsigned char *memory;
    size_t before;                       /* bytes of memory ahead of data */
    std::vector<unsigned char> contents; /* of an input; empty for an output */
};

struct {
    options asked;
    int listed, checked, failed, left_out;
    char name[128], text[256]; /* of the piece, and of its case */
    uint64_t random;
    std::vector<kept_buffer> buffers;
    tconv_cuda_machine machine;
    bool hopper;
} state;

/* Tells whether the device runs code for sm_90a. */
__global__ void tell_code(int *has_hopper)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    *has_hopper = 1;
#else
    *has_hopper = 0;
#endif
}

bool runs_hopper_code()
{
    int *on_device = nullptr, has = 0;
    if (cudaMalloc((void **)&on_device, sizeof has) != cudaSuccess)
        return false;
    tell_code<<<1, 1>>>(on_device);
    cudaMemcpy(&has, on_device, sizeof has, cudaMemcpyDeviceToHost);
    cudaFree(on_device);
    return has == 1;
}

void release_buffers()
{
    for (const kept_buffer &kept : state.buffers)
        cudaFree(kept.memory);
    state.buffers.clear();
}

} // namespace

/* ---------------------------------------------------------------------------------------------------------- buffers */

void require_cuda(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("FAILED %s, %s: %s: %s\n", state.name, state.text, what, cudaGetErrorString(error));
    cudaGetLastError();
    if (cudaDeviceSynchronize() != cudaSuccess) {
        printf("The device takes no more work; what was left is not checked.\n");
        fflush(stdout);
        exit(EXIT_FAILURE);
    }
    throw failure();
}

static device_buffer make_buffer(const char *name, const void *bytes, size_t size, size_t offset)
{
    const size_t before = GUARD_BYTES + offset, all = before + size + GUARD_BYTES;
    kept_buffer kept;
    require_cuda(cudaMalloc((void **)&kept.memory, (all + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT), "cudaMalloc");
    kept.buffer = {name, kept.memory + before, size};
    kept.before = before;
    if (bytes != nullptr)
        kept.contents.assign((const unsigned char *)bytes, (const unsigned char *)bytes + size);
    state.buffers.push_back(kept);
    require_cuda(cudaMemset(kept.memory, UNTOUCHED, all), "cudaMemset");
    if (bytes != nullptr)
        require_cuda(cudaMemcpy(kept.buffer.data, bytes, size, cudaMemcpyHostToDevice), "cudaMemcpy");
    return kept.buffer;
}

device_buffer input_bytes(const char *name, const void *bytes, size_t size, size_t offset)
{
    return make_buffer(name, bytes, size, offset);
}

device_buffer output(const char *name, size_t bytes, size_t offset)
{
    return make_buffer(name, nullptr, bytes, offset);
}

void copy_from_device(const device_buffer &buffer, void *to)
{
    require_cuda(cudaMemcpy(to, buffer.data, buffer.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

static bool is_untouched(const unsigned char *bytes, size_t size)
{
    return size == 0 || (bytes[0] == UNTOUCHED && memcmp(bytes, bytes + 1, size - 1) == 0);
}

void finish_kernels()
{
    require_cuda(cudaGetLastError(), "launch");
    require_cuda(cudaDeviceSynchronize(), "kernel");
    for (const kept_buffer &kept : state.buffers) {
        const size_t size = kept.buffer.bytes;
        std::vector<unsigned char> memory(kept.before + size + GUARD_BYTES);
        copy_from_device({kept.buffer.name, kept.memory, memory.size()}, memory.data());
        if (!is_untouched(memory.data(), kept.before))
            fail("something was written before %s", kept.buffer.name);
        if (!is_untouched(memory.data() + kept.before + size, GUARD_BYTES))
            fail("something was written behind %s", kept.buffer.name);
        if (!kept.contents.empty() && memcmp(memory.data() + kept.before, kept.contents.data(), size) != 0)
            fail("something was written to %s, which is only read", kept.buffer.name);
    }
}

void compare_floats(const device_buffer &buffer, const std::vector<double> &wanted, const std::vector<double> &bounds)
{
    const std::vector<float> got = contents<float>(buffer);
    for (size_t i = 0; i < got.size(); i++) {
        const bool right =
            std::isnan(wanted[i]) ? std::isnan(got[i]) : got[i] == wanted[i] || fabs(got[i] - wanted[i]) <= bounds[i];
        if (!right)
            fail("%s[%zu] of %zu is %.9g, not %.17g (within %.3g)", buffer.name, i, got.size(), got[i], wanted[i],
                 bounds[i]);
    }
}

/* ---------------------------------------------------------------------------------------------------------- numbers */

/* splitmix64 (S. Vigna). */
uint32_t random_bits()
{
    uint64_t z = state.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

int random_integer(int least, int most)
{
    return least + (int)(random_bits() % (uint32_t)(most - least + 1));
}

float random_real()
{
    return (float)(int32_t)random_bits() * 0x1p-31f;
}

uint32_t random_word()
{
    static const uint32_t corners[] = {0,          0x80000000, 1,          0x007fffff, 0x00800000, 0x7f7fffff,
                                       0x7f7ff000, 0x7f7fefff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                                       0xffffffff, 0x3f800000, 0x477fe000, 0x477ff000, 0x477fefff, 0x33000000};
    const uint32_t bits = random_bits(), kind = random_bits() % 8;
    switch (kind) {
    case 0: return corners[bits % (sizeof corners / sizeof corners[0])];
    case 1: return (bits & 0xffffe000u) | 0x1000u;     /* a tie in TF32 */
    case 2: return (bits & 0xffff0000u) | 0x8000u;     /* a tie in bf16 */
    case 3: return (bits & 0x8fffe000u) | 0x38001000u; /* a tie in f16, of its normal numbers */
    case 4: return (bits & 0x83ffffffu) | 0x30000000u; /* what is subnormal in f16 */
    case 5: return bits & 0x807fffffu;                 /* subnormal */
    default: return bits;
    }
}

uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

std::vector<uint8_t> random_elements(size_t count, size_t size)
{
    std::vector<uint8_t> bytes(count * size);
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = size == 4 ? (i % 16 == 0 ? random_word() : bits_of(random_real())) : random_bits();
        memcpy(&bytes[i * size], &bits, size);
    }
    return bytes;
}

float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds a magnitude to a multiple of 2^exponent, ties to even. It is exact in double. */
static double round_to_multiple(double magnitude, int exponent)
{
    const double units = ldexp(magnitude, -exponent), whole = floor(units), rest = units - whole;
    const bool up = rest > 0.5 || (rest == 0.5 && fmod(whole, 2) == 1);
    return ldexp(whole + (up ? 1 : 0), exponent);
}

uint16_t f16_of(float value)
{
    const uint16_t sign = (uint16_t)(bits_of(value) >> 16 & 0x8000);
    if (std::isnan(value))
        return 0x7fff;
    int exponent = 0;
    frexp(value, &exponent); /* value is in [2^(exponent - 1), 2^exponent) */
    const double magnitude =
        std::isinf(value) ? (double)INFINITY : round_to_multiple(fabs((double)value), std::max(exponent - 11, -24));
    if (magnitude >= 65520)
        return sign | 0x7c00;
    if (magnitude < 0x1p-14)
        return sign | (uint16_t)ldexp(magnitude, 24);
    frexp(magnitude, &exponent);
    return sign | (uint16_t)((exponent + 14) << 10 | ((int)ldexp(magnitude, 11 - exponent) - 1024));
}

float float_of_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double magnitude = exponent == 31  ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                             : exponent == 0 ? ldexp(fraction, -24)
                                             : ldexp(1024 + fraction, exponent - 25);
    return (float)((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

uint16_t bf16_of(float value)
{
    const uint32_t bits = bits_of(value);
    if (std::isnan(value))
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float float_of_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint32_t tf32_of(uint32_t bits)
{
    const float value = float_of(bits);
    if (std::isnan(value))
        return 0x7fffe000;
    if (std::isinf(value) || value == 0)
        return bits;
    int exponent = 0;
    frexp((double)value, &exponent);
    const int unit = std::max(exponent - 11, -126 - 10); /* subnormal numbers share the least unit */
    const double units = ldexp(fabs((double)value), -unit);
    double magnitude = ldexp(floor(units + 0.5), unit);
    if (magnitude > 0x1.ffcp127)
        magnitude = 0x1.ffcp127;
    return bits_of((float)magnitude) | (bits & 0x80000000u);
}

void tf32_parts_of(uint32_t bits, uint32_t *big, uint32_t *small)
{
    const float value = float_of(bits);
    *big = std::isfinite(value) ? tf32_of(bits) : 0;
    *small = tf32_of(bits_of(value - float_of(*big)));
}

/* ---------------------------------------------------------------------------------------------------------- kernels */

void begin_case(const char *format, ...)
{
    va_list arguments;
    release_buffers();
    va_start(arguments, format);
    vsnprintf(state.text, sizeof state.text, format, arguments);
    va_end(arguments);
}

void fail(const char *format, ...)
{
    va_list arguments;
    printf("FAILED %s, %s: ", state.name, state.text);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    throw failure();
}

/* Returns false where it failed. */
static bool run(void (*function)())
{
    bool right = true;
    try {
        begin_case("before its first case");
        function();
    } catch (const failure &) {
        right = false;
    }
    release_buffers();
    return right;
}

/* A piece's numbers do not depend on which others are checked. */
static void seed_by_name()
{
    state.random = state.asked.seed;
    for (const char *at = state.name; *at != '\0'; at++)
        state.random = (state.random ^ (unsigned char)*at) * 0x100000001b3u;
}

static void check_entry(const entry &entry)
{
    const char *pattern = state.asked.pattern;
    if (pattern != nullptr && strstr(entry.name, pattern) == nullptr && fnmatch(pattern, entry.name, 0) != 0)
        return;
    if (state.listed++ % state.asked.parts != state.asked.part - 1)
        return;
    if (state.asked.list) {
        printf("%s\n", entry.name);
        return;
    }
    if (entry.needs_hopper && !state.hopper) {
        state.left_out++;
        return;
    }
    snprintf(state.name, sizeof state.name, "%s", entry.name);
    seed_by_name();
    state.checked++;
    if ((!state.asked.unchecked && !run(entry.check)) ||
        (state.asked.bench && entry.bench != nullptr && !run(entry.bench)))
        state.failed++;
    else if (state.asked.verbose)
        printf("ok     %s\n", entry.name);
    fflush(stdout);
}

void check_entries(const entry *entries, int count)
{
    for (int i = 0; i < count; i++)
        check_entry(entries[i]);
}

/* ----------------------------------------------------------------------------------------------------------- timing */

const tconv_cuda_machine &machine()
{
    return state.machine;
}

double seconds_of(const std::function<void()> &call)
{
    cudaEvent_t first, last;
    double seconds[TIMINGS];
    require_cuda(cudaEventCreate(&first), "cudaEventCreate");
    require_cuda(cudaEventCreate(&last), "cudaEventCreate");
    int calls = LEAST_CALLS;
    call();
    for (int i = 0; i < TIMINGS;) {
        float milliseconds = 0;
        cudaEventRecord(first);
        for (int k = 0; k < calls; k++)
            call();
        cudaEventRecord(last);
        require_cuda(cudaGetLastError(), "launch");
        require_cuda(cudaEventSynchronize(last), "kernel");
        cudaEventElapsedTime(&milliseconds, first, last);
        if (i == 0 && milliseconds * 1e-3 < LOOP_SECONDS)
            calls *= 2;
        else
            seconds[i++] = milliseconds * 1e-3 / calls;
    }
    cudaEventDestroy(first);
    cudaEventDestroy(last);
    std::sort(seconds, seconds + TIMINGS);
    return seconds[TIMINGS / 2];
}

void rate(const char *variant, const std::function<void()> &call, double work, const char *unit, double machine_rate)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s%s", state.name, *variant != '\0' ? " " : "", variant);
    const double measured = work / seconds_of(call);
    printf("%-58s %10.1f %-7s %6.1f %% of %.1f\n", name, 1e-9 * measured, unit, 100 * measured / machine_rate,
           1e-9 * machine_rate);
}

static double cycles_a_second()
{
    return state.machine.hz * state.machine.multiprocessors;
}

double dram_rate()
{
    return state.machine.dram * cycles_a_second();
}
double pass_rate()
{
    return state.machine.pass * cycles_a_second();
}
double l2_rate()
{
    return state.machine.l2 * cycles_a_second();
}
double shared_rate()
{
    return state.machine.shared * cycles_a_second();
}
/* The model's products have 32 bytes of K: 64 x 8 by wgmma, 16 x 8 by mma.sync on each of four tensor cores. */
double wgmma_rate(int element_size)
{
    return 2.0 * 64 * 8 * (32.0 / element_size) / state.machine.wgmma * cycles_a_second();
}
double mma_rate(int element_size)
{
    return 4 * 2.0 * 16 * 8 * (32.0 / element_size) / state.machine.mma_sync * cycles_a_second();
}

/* ------------------------------------------------------------------------------------------------------ the program */

void begin(const options &asked)
{
    cudaDeviceProp device = {};
    state.asked = asked;
    if (asked.list)
        return;
    cudaGetDeviceProperties(&device, 0);
    state.machine = tconv_cuda_machine_like(device.major * 10 + device.minor, device.multiProcessorCount);
    state.hopper = runs_hopper_code();
    printf("%s, %d multiprocessors; rates of the machine are those of \"%s\"\n", device.name,
           device.multiProcessorCount, state.machine.name);
}

int end()
{
    if (state.listed == 0) {
        fprintf(stderr, "check_cuda_kernels: no piece has such a name (see --list)\n");
        return EXIT_FAILURE;
    }
    if (!state.asked.list)
        printf("%d pieces %s, %d failed, %d left out that need compute capability 9.0, seed %llu\n", state.checked,
               state.asked.unchecked ? "timed, not checked" : "checked", state.failed, state.left_out,
               (unsigned long long)state.asked.seed);
    return state.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

} // namespace tconv::check
