/* src/cuda/ptx/wgmma.cuh: each product of a warpgroup against a matrix product in C, with K-major operands without
 * swizzle, MN-major ones as TMA swizzles them, and A in registers. */
#include "../../src/cuda/ptx/wgmma.cuh"
#include "../../src/cuda/wgmma/mainloop.cuh"
#include "families.h"
#include "hopper.cuh"
#include "products.h"

namespace tconv::check
{

namespace
{

constexpr int M = 64, THREADS = 128; /* of wgmma, and of a warpgroup */
constexpr int K_BYTES = 32;          /* of a product */
constexpr int CORE_ROW = 16;         /* bytes of K of a row of a core matrix */

constexpr factor_type factor_type_of(wgmma_type type)
{
    return type == WGMMA_TF32                                ? FACTOR_TF32
           : type == WGMMA_F16 || type == WGMMA_F16_MN_MAJOR ? FACTOR_F16
                                                             : FACTOR_BF16;
}

enum operand_source { A_SHARED, B_MN_MAJOR, A_REGISTERS };

/* The sums of a piece begin at accumulator number FIRST of a thread's. */
template <wgmma_type type, int n, operand_source source, int first = 0> struct piece {
    static constexpr wgmma_type TYPE = type;
    static constexpr int N = n, FIRST = first;
    static constexpr operand_source SOURCE = source;
    static constexpr int SUMS = first + n / 2; /* of a thread */
};

/* The B operand in shared memory, in bytes: 64 of N in a row of 128 bytes where it is MN-major, with 16 rows of K. */
template <class Piece>
constexpr int B_BYTES = Piece::SOURCE == B_MN_MAJOR ? (Piece::N + 63) / 64 * 2048 : Piece::N *K_BYTES;

template <class Piece> __device__ __forceinline__ uint64_t descriptor_of_b(uint32_t address)
{
#ifdef TCONV_CHECK_HOPPER
    if (Piece::SOURCE == B_MN_MAJOR)
        return (uint64_t)wgmma::MN_MAJOR_HIGH << 32 | descriptor_low(address, 2048);
#endif
    return descriptor(descriptor_low(address, Piece::N * CORE_ROW));
}

/* Multiplies twice: the first product replaces the sums where `clears`, the second is added. */
template <class Piece, bool clears>
__device__ __forceinline__ void multiply_twice(float (&sums)[Piece::SUMS], const uint32_t (&a)[4], uint64_t left,
                                               uint64_t right)
{
#ifdef TCONV_CHECK_HOPPER
    wgmma_fence();
    if constexpr (Piece::SOURCE == A_REGISTERS) {
        wgmma_rs<Piece::TYPE, Piece::N>::template add<Piece::FIRST>(sums, a, right, !clears);
        wgmma_rs<Piece::TYPE, Piece::N>::template add<Piece::FIRST>(sums, a, right, 1);
    } else {
        wgmma_ss<Piece::TYPE, Piece::N>::add(sums, left, right, !clears);
        wgmma_ss<Piece::TYPE, Piece::N>::add(sums, left, right, 1);
    }
    wgmma_commit();
    wgmma_wait<0>();
#endif
}

template <class Piece, bool clears>
__global__ void __launch_bounds__(THREADS)
    multiply(const uint32_t *a, const uint4 *of_lanes, const uint32_t *b, const float *before, float *after)
{
#ifdef TCONV_CHECK_HOPPER
    __shared__ __align__(1024) uint32_t operand_b[B_BYTES<Piece> / 4];
    __shared__ __align__(128) uint32_t operand_a[M * K_BYTES / 4];
    for (int i = (int)threadIdx.x; i < B_BYTES<Piece> / 4; i += THREADS)
        operand_b[i] = b[i];
    for (int i = (int)threadIdx.x; i < M * K_BYTES / 4; i += THREADS)
        operand_a[i] = a[i];
    const uint4 words = of_lanes[threadIdx.x];
    const uint32_t fragment[4] = {words.x, words.y, words.z, words.w};
    float sums[Piece::SUMS];
#pragma unroll
    for (int i = 0; i < Piece::SUMS; i++)
        sums[i] = before[i * THREADS + threadIdx.x];
    fence_proxy_async();
    __syncthreads();
    multiply_twice<Piece, clears>(sums, fragment, descriptor(descriptor_low(shared_address(operand_a), M * CORE_ROW)),
                                  descriptor_of_b<Piece>(shared_address(operand_b)));
#pragma unroll
    for (int i = 0; i < Piece::SUMS; i++)
        after[i * THREADS + threadIdx.x] = sums[i];
#endif
}

/* An operand as it lies in shared memory, K-major: [half of K][row][16 bytes]. */
std::vector<uint8_t> k_major(const factors &of)
{
    std::vector<uint8_t> bytes((size_t)of.rows * K_BYTES);
    const int size = factor_bytes(of.type), in_half = CORE_ROW / size;
    for (int row = 0; row < of.rows; row++)
        for (int k = 0; k < of.K; k++)
            of.put(row, k, &bytes[((size_t)(k / in_half) * of.rows + row) * CORE_ROW + k % in_half * size]);
    return bytes;
}

/* MN-major: boxes of 64 of N, each 16 rows of K of 128 bytes, swizzled. */
std::vector<uint8_t> mn_major(const factors &of, int bytes_of_all)
{
    std::vector<uint8_t> bytes((size_t)bytes_of_all, 0);
    for (int n = 0; n < of.rows; n++)
        for (int k = 0; k < of.K; k++)
            of.put(n, k, &bytes[(size_t)n / 64 * 2048 + swizzled((uint32_t)(k * 128 + n % 64 * 2), 128)]);
    return bytes;
}

/* The words of A that a thread has: of its warp's 16 rows, as the PTX ISA shares them out. */
std::vector<uint32_t> fragments_of(const factors &A)
{
    std::vector<uint32_t> words;
    for (int thread = 0; thread < THREADS; thread++)
        for (int word = 0; word < 4; word++) {
            const int lane = thread % 32, row = thread / 32 * 16 + lane / 4 + word % 2 * 8, half = word / 2;
            const int k = A.type == FACTOR_TF32 ? lane % 4 + 4 * half : 8 * half + lane % 4 * 2;
            words.push_back(A.type == FACTOR_TF32 ? A.bits(row, k) : A.bits(row, k) | A.bits(row, k + 1) << 16);
        }
    return words;
}

template <class Piece, bool clears> void check_product(factor_kind kind)
{
    const factor_type type = factor_type_of(Piece::TYPE);
    const int K = K_BYTES / factor_bytes(type);
    const factors A = make_factors(M, K, type, kind), B = make_factors(Piece::N, K, type, kind);
    std::vector<float> before((size_t)Piece::SUMS * THREADS);
    std::vector<double> wanted(before.size()), bounds(before.size(), 0);
    for (int i = 0; i < Piece::SUMS; i++)
        for (int thread = 0; thread < THREADS; thread++) {
            const size_t at = (size_t)i * THREADS + thread;
            wanted[at] = before[at] = kind == FACTOR_INTEGERS ? (float)random_integer(-99, 99) : random_real();
            const int of = i - Piece::FIRST, lane = thread % 32;
            if (of < 0)
                continue;
            const int row = thread / 32 * 16 + lane / 4 + of / 2 % 2 * 8, column = of / 4 * 8 + lane % 4 * 2 + of % 2;
            dot_product right = dot(A, row, B, column, 0, K);
            right = {2 * right.sum, 2 * right.magnitudes};
            right.sum += clears ? 0 : before[at];
            right.magnitudes += clears ? 0 : fabs((double)before[at]);
            wanted[at] = right.sum;
            bounds[at] = product_bound(kind, right, 2 * K);
        }
    begin_case("%s, %s", kind == FACTOR_INTEGERS ? "integers" : "reals", clears ? "from zero" : "added");
    const device_buffer a = input("a", k_major(A)), of_lanes = input("fragments of a", fragments_of(A)),
                        b = input("b", Piece::SOURCE == B_MN_MAJOR ? mn_major(B, B_BYTES<Piece>) : k_major(B)),
                        sums = input("sums", before), to = output("results", before.size() * sizeof(float));
    multiply<Piece, clears>
        <<<1, THREADS>>>(a.as<uint32_t>(), of_lanes.as<uint4>(), b.as<uint32_t>(), sums.as<float>(), to.as<float>());
    finish_kernels();
    compare_floats(to, wanted, bounds);
}

template <class Piece> void check_one()
{
    check_product<Piece, true>(FACTOR_INTEGERS);
    check_product<Piece, false>(FACTOR_INTEGERS);
    check_product<Piece, false>(FACTOR_REALS);
}

template <class... Pieces> void check_each()
{
    (check_one<Pieces>(), ...);
}

/* ------------------------------------------------------------------------------------------------------------ rates */

constexpr int BENCH_ROUNDS = 1024, BENCH_WARPGROUPS = 2;

/* The operands are whatever shared memory holds. */
template <class Piece> __global__ void __launch_bounds__(THREADS *BENCH_WARPGROUPS) repeat(float *to)
{
#ifdef TCONV_CHECK_HOPPER
    __shared__ __align__(1024) uint32_t memory[BENCH_WARPGROUPS * (B_BYTES<Piece> + M * K_BYTES) / 4];
    for (int i = (int)threadIdx.x; i < (int)(sizeof memory / 4); i += (int)blockDim.x)
        memory[i] = 0;
    fence_proxy_async();
    __syncthreads();
    const uint32_t first = shared_address(memory), group = threadIdx.x / THREADS;
    const uint64_t right = descriptor_of_b<Piece>(first + group * B_BYTES<Piece>);
    const uint64_t left =
        descriptor(descriptor_low(first + BENCH_WARPGROUPS * B_BYTES<Piece> + group * M * K_BYTES, M * CORE_ROW));
    const uint32_t a[4] = {threadIdx.x, 0, 0, 0};
    float sums[Piece::SUMS];
#pragma unroll
    for (int i = 0; i < Piece::SUMS; i++)
        sums[i] = 0;
#pragma unroll 1
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (Piece::SOURCE == A_REGISTERS)
                wgmma_rs<Piece::TYPE, Piece::N>::template add<Piece::FIRST>(sums, a, right, 1);
            else
                wgmma_ss<Piece::TYPE, Piece::N>::add(sums, left, right, 1);
        }
        wgmma_commit();
        wgmma_wait<1>();
    }
    wgmma_wait<0>();
    float all = 0;
#pragma unroll
    for (int i = 0; i < Piece::SUMS; i++)
        all += sums[i];
    if (all == 12345)
        *to = all;
#endif
}

template <class Piece> void bench_one()
{
    begin_case("rate");
    const device_buffer to = output("unused", 4);
    const int blocks = machine().multiprocessors, size = factor_bytes(factor_type_of(Piece::TYPE));
    const double flops = 2.0 * M * Piece::N * (K_BYTES / size) * 4 * BENCH_ROUNDS * BENCH_WARPGROUPS * blocks;
    char variant[32];
    snprintf(variant, sizeof variant, "N=%d", Piece::N);
    rate(
        variant, [&] { repeat<Piece><<<blocks, THREADS * BENCH_WARPGROUPS>>>(to.as<float>()); }, flops, "GFLOP/s",
        wgmma_rate(size));
}

template <class... Pieces> void bench_each()
{
    (bench_one<Pieces>(), ...);
}

template <wgmma_type type> void check_ss()
{
    check_each<piece<type, 64, A_SHARED>, piece<type, 80, A_SHARED>, piece<type, 88, A_SHARED>,
               piece<type, 96, A_SHARED>, piece<type, 104, A_SHARED>, piece<type, 128, A_SHARED>>();
}
template <wgmma_type type> void bench_ss()
{
    bench_each<piece<type, 64, A_SHARED>, piece<type, 104, A_SHARED>, piece<type, 128, A_SHARED>>();
}
template <wgmma_type type> void check_mn_major()
{
    check_each<piece<type, 104, B_MN_MAJOR>, piece<type, 128, B_MN_MAJOR>>();
}
template <wgmma_type type> void bench_mn_major()
{
    bench_each<piece<type, 104, B_MN_MAJOR>, piece<type, 128, B_MN_MAJOR>>();
}
template <wgmma_type type> void check_rs()
{
    check_each<piece<type, 24, A_REGISTERS>, piece<type, 32, A_REGISTERS>, piece<type, 48, A_REGISTERS>,
               piece<type, 64, A_REGISTERS>, piece<type, 80, A_REGISTERS>, piece<type, 96, A_REGISTERS>,
               piece<type, 168, A_REGISTERS>>();
}
template <wgmma_type type> void bench_rs()
{
    bench_each<piece<type, 24, A_REGISTERS>, piece<type, 96, A_REGISTERS>, piece<type, 168, A_REGISTERS>>();
}
void check_window()
{
    check_each<piece<WGMMA_TF32, 32, A_REGISTERS>, piece<WGMMA_TF32, 32, A_REGISTERS, 16>,
               piece<WGMMA_TF32, 64, A_REGISTERS, 32>, piece<WGMMA_TF32, 128, A_REGISTERS>,
               piece<WGMMA_TF32, 256, A_REGISTERS>>();
}
void bench_window()
{
    bench_each<piece<WGMMA_TF32, 32, A_REGISTERS>, piece<WGMMA_TF32, 128, A_REGISTERS>>();
}

const entry entries[] = {
    {"cuda/ptx/wgmma_ss tf32", check_ss<WGMMA_TF32>, bench_ss<WGMMA_TF32>, true},
    {"cuda/ptx/wgmma_ss f16", check_ss<WGMMA_F16>, bench_ss<WGMMA_F16>, true},
    {"cuda/ptx/wgmma_ss bf16", check_ss<WGMMA_BF16>, bench_ss<WGMMA_BF16>, true},
    {"cuda/ptx/wgmma_ss f16 mn-major", check_mn_major<WGMMA_F16_MN_MAJOR>, bench_mn_major<WGMMA_F16_MN_MAJOR>, true},
    {"cuda/ptx/wgmma_ss bf16 mn-major", check_mn_major<WGMMA_BF16_MN_MAJOR>, bench_mn_major<WGMMA_BF16_MN_MAJOR>, true},
    {"cuda/ptx/wgmma_rs tf32", check_rs<WGMMA_TF32>, bench_rs<WGMMA_TF32>, true},
    {"cuda/ptx/wgmma_rs f16", check_rs<WGMMA_F16>, bench_rs<WGMMA_F16>, true},
    {"cuda/ptx/wgmma_rs bf16", check_rs<WGMMA_BF16>, bench_rs<WGMMA_BF16>, true},
    {"cuda/ptx/wgmma_rs window tf32", check_window, bench_window, true},
};

} // namespace

void check_ptx_wgmma()
{
    check_entries(entries);
}

} // namespace tconv::check
