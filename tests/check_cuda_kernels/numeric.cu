/* src/cuda/numeric, and the roundings that implementations have of their own: over every number of TF32 with what may
 * follow it, over every f16 and bf16, and over random numbers. */
#include "../../src/cuda/cells/mainloop.cuh"
#include "../../src/cuda/col2im/operand.cuh"
#include "../../src/cuda/mma/mode.cuh"
#include "../../src/cuda/numeric/compensated.cuh"
#include "../../src/cuda/numeric/divisor.cuh"
#include "../../src/cuda/numeric/element.cuh"
#include "../../src/cuda/numeric/tf32.cuh"
#include "check.h"
#include "families.h"

namespace tconv::check
{

namespace
{

constexpr int THREADS = 256; /* of a block */
constexpr int RANDOM_WORDS = 1 << 20;
constexpr uint32_t KEPT = 0xffffe000u;                /* bits of TF32 */
constexpr uint32_t LEAST_INFINITE_TF32 = 0x7f7ff000u; /* magnitudes from here on would round up to infinity */

/* What a piece makes of a word: two words, of which the second may be nothing. */
struct words_of_word {
    uint32_t first, second;
};

struct round_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        return {round_to_tf32(bits), 0};
    }
};
struct split_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        words_of_word made;
        split_to_tf32(bits, &made.first, &made.second);
        return made;
    }
};
struct mma_round_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        return {round_for_mma(bits) & KEPT, 0};
    }
};
struct cells_round_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        return {cells::round_for_mma(bits, 1.0f) & KEPT, 0};
    }
};
struct rows_split_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        words_of_word made;
        mma::split_any(__uint_as_float(bits), &made.first, &made.second);
        return made;
    }
};
struct col2im_round_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        return {col2im::round_tf32(__uint_as_float(bits)) & KEPT, 0};
    }
};
struct col2im_split_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        const col2im::parts made = col2im::split(__uint_as_float(bits));
        return {made.big, made.small};
    }
};
struct f16_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        return {__half_as_ushort(from_compute<__half>(__uint_as_float(bits))), 0};
    }
};
struct bf16_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        return {__bfloat16_as_ushort(from_compute<__nv_bfloat16>(__uint_as_float(bits))), 0};
    }
};

template <class Piece> __global__ void __launch_bounds__(THREADS) apply(const uint32_t *from, uint2 *to, int count)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i < count) {
        const words_of_word made = Piece::of(from[i]);
        to[i] = make_uint2(made.first, made.second);
    }
}

/* Every number of TF32, followed by what is next to a tie, and random words. */
std::vector<uint32_t> words_to_round()
{
    static const uint32_t lower[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff};
    std::vector<uint32_t> words;
    words.reserve((1 << 19) * 6 + RANDOM_WORDS);
    for (uint32_t high = 0; high < 1u << 19; high++)
        for (uint32_t low : lower)
            words.push_back(high << 13 | low);
    for (int i = 0; i < RANDOM_WORDS; i++)
        words.push_back(random_word());
    return words;
}

/* want writes what is right, or returns false where nothing is said of the word. */
typedef bool want_function(uint32_t bits, words_of_word *right);

bool is_nan(uint32_t bits)
{
    return std::isnan(float_of(bits));
}

template <class Piece> void check_words(want_function *want, bool any_nan)
{
    const std::vector<uint32_t> words = words_to_round();
    const int count = (int)words.size();
    begin_case("%d words", count);
    const device_buffer from = input("words", words), to = output("results", words.size() * sizeof(uint2));
    apply<Piece><<<(count + THREADS - 1) / THREADS, THREADS>>>(from.as<uint32_t>(), to.as<uint2>(), count);
    finish_kernels();
    const std::vector<uint2> got = contents<uint2>(to);
    for (size_t i = 0; i < words.size(); i++) {
        words_of_word right = {0, 0};
        if (!want(words[i], &right))
            continue;
        const bool first = got[i].x == right.first || (any_nan && is_nan(got[i].x) && is_nan(right.first));
        const bool second = got[i].y == right.second || (any_nan && is_nan(got[i].y) && is_nan(right.second));
        if (!first || !second)
            fail("%#x gives %#x and %#x, not %#x and %#x", words[i], got[i].x, got[i].y, right.first, right.second);
    }
}

bool want_tf32(uint32_t bits, words_of_word *right)
{
    right->first = tf32_of(bits);
    return true;
}

bool rounds_below_infinity(uint32_t bits)
{
    return (bits & 0x7fffffff) < LEAST_INFINITE_TF32;
}

bool want_tf32_of_plain(uint32_t bits, words_of_word *right)
{
    right->first = tf32_of(bits);
    return rounds_below_infinity(bits);
}

bool want_parts(uint32_t bits, words_of_word *right)
{
    tf32_parts_of(bits, &right->first, &right->second);
    return true;
}

/* The tensor cores ignore the low bits of the small part, so that some split without rounding it. */
bool want_parts_not_rounded(uint32_t bits, words_of_word *right)
{
    tf32_parts_of(bits, &right->first, &right->second);
    right->second = bits_of(float_of(bits) - float_of(right->first));
    return true;
}

bool want_parts_of_plain(uint32_t bits, words_of_word *right)
{
    want_parts_not_rounded(bits, right);
    return rounds_below_infinity(bits);
}

bool want_f16(uint32_t bits, words_of_word *right)
{
    right->first = f16_of(float_of(bits));
    return true;
}

bool want_bf16(uint32_t bits, words_of_word *right)
{
    right->first = bf16_of(float_of(bits));
    return true;
}

void check_round()
{
    check_words<round_piece>(want_tf32, false);
}
void check_split()
{
    check_words<split_piece>(want_parts, false);
}
void check_mma_round()
{
    check_words<mma_round_piece>(want_tf32_of_plain, false);
}
void check_cells_round()
{
    check_words<cells_round_piece>(want_tf32, true);
}
void check_rows_split()
{
    check_words<rows_split_piece>(want_parts_not_rounded, true);
}
void check_col2im_round()
{
    check_words<col2im_round_piece>(want_tf32_of_plain, true);
}
void check_col2im_split()
{
    check_words<col2im_split_piece>(want_parts_of_plain, false);
}
void check_f16()
{
    check_words<f16_piece>(want_f16, false);
}
void check_bf16()
{
    check_words<bf16_piece>(want_bf16, false);
}

/* ----------------------------------------------------------------------------------- four factors at once, widening */

template <bool strict> __global__ void __launch_bounds__(THREADS) apply_to_four(const uint4 *from, uint4 *to, int count)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= count)
        return;
    const uint32_t words[4] = {from[i].x, from[i].y, from[i].z, from[i].w};
    uint32_t big[4], small[4] = {0, 0, 0, 0};
    round_or_split<strict>(words, big, small);
    to[2 * i] = make_uint4(big[0], big[1], big[2], big[3]);
    to[2 * i + 1] = make_uint4(small[0], small[1], small[2], small[3]);
}

template <bool strict> void check_four()
{
    const int count = RANDOM_WORDS / 4;
    std::vector<uint32_t> words(4 * (size_t)count), wanted(8 * (size_t)count, 0);
    for (size_t i = 0; i < words.size(); i++) {
        const size_t at = i / 4 * 8 + i % 4;
        words[i] = i % 64 < 32 ? bits_of(random_real()) : random_word();
        if (strict)
            tf32_parts_of(words[i], &wanted[at], &wanted[at + 4]);
        else
            wanted[at] = tf32_of(words[i]);
    }
    begin_case("%d times four words", count);
    const device_buffer from = input("words", words), to = output("results", wanted.size() * sizeof(uint32_t));
    apply_to_four<strict><<<(count + THREADS - 1) / THREADS, THREADS>>>(from.as<uint4>(), to.as<uint4>(), count);
    finish_kernels();
    compare_bits<uint32_t>(to, wanted);
}

template <class Element> __global__ void __launch_bounds__(THREADS) widen(const Element *from, float *to, int count)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i < count)
        to[i] = to_compute(from[i]);
}

template <class Element> void check_widening()
{
    constexpr int ALL = 1 << 16;
    std::vector<uint16_t> every(ALL);
    std::vector<double> wanted(ALL), bounds(ALL, 0);
    for (int i = 0; i < ALL; i++) {
        every[i] = (uint16_t)i;
        wanted[i] = sizeof(Element) == 2 && std::is_same<Element, __half>::value ? float_of_f16(every[i])
                                                                                 : float_of_bf16(every[i]);
    }
    begin_case("all");
    const device_buffer from = input("words", every), to = output("results", ALL * sizeof(float));
    widen<Element><<<ALL / THREADS, THREADS>>>(from.as<Element>(), to.as<float>(), ALL);
    finish_kernels();
    compare_floats(to, wanted, bounds);
}

/* -------------------------------------------------------------------------------------------- compensated summation */

/* Thread i sums the terms i, i + threads, ... by a pair of sums, of which the second has the terms' opposites. */
__global__ void sum_compensated(const float *terms, int count, float2 *sums)
{
    const int threads = (int)blockDim.x, own = (int)threadIdx.x;
    float sum = 0, lost = 0, of_pair = 0, next = 0;
    lost_parts<float, 2> kept = {};
    for (int i = 0; i < count; i++) {
        const float term = terms[i * threads + own];
        add_compensated(sum, lost, term);
        kept.add(0, of_pair, next, term, -term);
    }
    sums[2 * own] = make_float2(sum, lost);
    sums[2 * own + 1] = make_float2(of_pair, next);
}

struct c_sum {
    float sum = 0, lost = 0;
    void add(float term)
    {
        const volatile float corrected = term - lost, total = sum + corrected, moved = total - sum;
        const float rest = moved - corrected;
        lost = std::isfinite(rest) ? rest : 0;
        sum = total;
    }
};

void check_sums(int kind, const char *text)
{
    constexpr int SUMS = 64, TERMS = 20000;
    std::vector<float> terms((size_t)SUMS * TERMS), wanted((size_t)SUMS * 4);
    for (size_t i = 0; i < terms.size(); i++)
        terms[i] = kind == 0 ? 0.1f : kind == 1 ? random_real() : i % 977 == 500 ? INFINITY : fabsf(random_real());
    begin_case("%d terms, %s", TERMS, text);
    const device_buffer from = input("terms", terms), to = output("sums", wanted.size() * sizeof(float));
    sum_compensated<<<1, SUMS>>>(from.as<float>(), TERMS, to.as<float2>());
    finish_kernels();
    const std::vector<float> got = contents<float>(to);
    for (int s = 0; s < SUMS; s++) {
        c_sum whole, kept;
        double exact = 0, magnitudes = 0;
        for (int i = 0; i < TERMS; i++) {
            const float term = terms[(size_t)i * SUMS + s];
            whole.add(term);
            kept.add(term);
            kept.lost = float_of_bf16(bf16_of(kept.lost));
            exact += term;
            magnitudes += fabs((double)term);
        }
        const float right[] = {whole.sum, whole.lost, kept.sum, -kept.sum};
        for (int i = 0; i < 4; i++)
            if (bits_of(got[s * 4 + i]) != bits_of(right[i]))
                fail("number %d of sum %d is %.9g, not %.9g", i, s, got[s * 4 + i], right[i]);
        for (int i = 0; i < 4; i += 2)
            if (!(got[s * 4 + i] == exact) && !(fabs(got[s * 4 + i] - exact) <= 1.5 * 0x1p-24 * magnitudes))
                fail("sum %d is %.9g, and exactly %.17g", s, got[s * 4 + i], exact);
    }
}

void check_compensated()
{
    static_assert(SEGMENT_TERMS % 16 == 0, "a multiple of 8 and 16");
    check_sums(0, "all alike");
    check_sums(1, "of either sign");
    check_sums(2, "with infinity");
}

/* ---------------------------------------------------------------------------------------------------------- divisor */

__global__ void __launch_bounds__(THREADS) divide_all(const int *numbers, const fast_divisor *by, int2 *to, int count)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i < count) {
        const quotient found = divide(numbers[i], by[i]);
        to[i] = make_int2(found.whole, found.rest);
    }
}

void check_divisor()
{
    std::vector<int> numbers, wanted;
    std::vector<fast_divisor> divisors;
    for (int i = 0; i < 60000; i++) {
        const int shift = random_integer(0, 30);
        const int divisor = i < 5000 ? i + 1 : i < 5031 ? (int)(1u << (i - 5000)) : (int)(random_bits() >> 1 >> shift);
        const int by = divisor > 0 ? divisor : INT32_MAX;
        const int multiple = INT32_MAX / by * by;
        const int tried[] = {0,
                             1,
                             by - 1,
                             by,
                             INT32_MAX,
                             multiple,
                             multiple - 1,
                             (int)(random_bits() >> 1),
                             (int)(random_bits() >> 1) / by * by};
        for (int number : tried) {
            numbers.push_back(number);
            divisors.push_back(divisor_of(by));
            wanted.push_back(number / by);
            wanted.push_back(number % by);
        }
    }
    const int count = (int)numbers.size();
    begin_case("%d quotients", count);
    const device_buffer from = input("numbers", numbers), by = input("divisors", divisors),
                        to = output("quotients", wanted.size() * sizeof(int));
    divide_all<<<(count + THREADS - 1) / THREADS, THREADS>>>(from.as<int>(), by.as<fast_divisor>(), to.as<int2>(),
                                                             count);
    finish_kernels();
    compare_bits<int>(to, wanted);
}

/* ------------------------------------------------------------------------------------------------------------ rates */

constexpr int BENCH_ROUNDS = 4096, BENCH_BLOCKS_OF_MULTIPROCESSOR = 8;

struct divide_piece {
    static __device__ words_of_word of(uint32_t bits)
    {
        const fast_divisor by = {(int)(blockDim.x + 37), 40, 3753488571u}; /* it need not be right to be timed */
        const quotient found = divide((int)(bits & 0x7fffffff), by);
        return {(uint32_t)found.whole, (uint32_t)found.rest};
    }
};

template <class Piece> __global__ void __launch_bounds__(THREADS) repeat(uint32_t *to)
{
    constexpr int CHAINS = 4; /* that do not wait for each other */
    uint32_t words[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        words[c] = 0x3f800000u + threadIdx.x * 17 + c;
#pragma unroll 4
    for (int i = 0; i < BENCH_ROUNDS / CHAINS; i++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++) {
            const words_of_word made = Piece::of(words[c]);
            words[c] = (made.first ^ made.second) + 0x123;
            asm volatile("" : "+r"(words[c])); /* the compiler must not see what comes of it */
        }
    for (int c = 0; c < CHAINS; c++)
        if (words[c] == 0xdeadbeef)
            *to = words[c];
}

/* Beside the multiply-adds that the machine does: a piece takes several instructions. */
template <class Piece> void bench_piece()
{
    begin_case("rate");
    const device_buffer to = output("unused", 4);
    const int blocks = machine().multiprocessors * BENCH_BLOCKS_OF_MULTIPROCESSOR;
    const double fma_rate = 128 / machine().ffma * machine().hz * machine().multiprocessors;
    rate(
        "", [&] { repeat<Piece><<<blocks, THREADS>>>(to.as<uint32_t>()); }, (double)blocks * THREADS * BENCH_ROUNDS,
        "G/s", fma_rate);
}

const entry entries[] = {
    {"cuda/numeric/round_to_tf32", check_round, bench_piece<round_piece>, false},
    {"cuda/numeric/split_to_tf32", check_split, bench_piece<split_piece>, false},
    {"cuda/numeric/round_or_split rounds", check_four<false>, nullptr, false},
    {"cuda/numeric/round_or_split splits", check_four<true>, nullptr, false},
    {"cuda/numeric/from_compute f16", check_f16, bench_piece<f16_piece>, false},
    {"cuda/numeric/from_compute bf16", check_bf16, bench_piece<bf16_piece>, false},
    {"cuda/numeric/to_compute f16", check_widening<__half>, nullptr, false},
    {"cuda/numeric/to_compute bf16", check_widening<__nv_bfloat16>, nullptr, false},
    {"cuda/numeric/add_compensated", check_compensated, nullptr, false},
    {"cuda/numeric/divide", check_divisor, bench_piece<divide_piece>, false},
    {"cuda/numeric/round_for_mma", check_mma_round, bench_piece<mma_round_piece>, false},
    {"cuda/cells/round_for_mma", check_cells_round, bench_piece<cells_round_piece>, false},
    {"cuda/mma/split_any", check_rows_split, bench_piece<rows_split_piece>, false},
    {"cuda/col2im/round_tf32", check_col2im_round, bench_piece<col2im_round_piece>, false},
    {"cuda/col2im/split", check_col2im_split, bench_piece<col2im_split_piece>, false},
};

} // namespace

void check_numeric()
{
    check_entries(entries);
}

} // namespace tconv::check
