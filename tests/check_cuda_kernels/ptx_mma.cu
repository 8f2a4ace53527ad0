/* src/cuda/ptx/mma.cuh: each product of a warp against a matrix product in C, by the fragments of the PTX ISA. */
#include "../../src/cuda/ptx/mma.cuh"
#include "families.h"
#include "products.h"

namespace tconv::check
{

namespace
{

constexpr int M = 16, N = 8; /* of mma.sync */
constexpr int ROUNDS = 64;   /* products of a check, each by another warp */
constexpr int PLACE_ROUNDS = 8;

struct tf32_piece {
    static constexpr factor_type TYPE = FACTOR_TF32;
    static constexpr int K = 8;
    static __device__ void add(float (&sums)[4], const fragment_a &a, const fragment_b &b)
    {
        mma_tf32(sums, a, b);
    }
};
template <class Half, factor_type type> struct half_piece {
    static constexpr factor_type TYPE = type;
    static constexpr int K = 16;
    static __device__ void add(float (&sums)[4], const fragment_a &a, const fragment_b &b)
    {
        mma_half(sums, a, b, Half());
    }
};
template <class Half, factor_type type> struct half_k8_piece {
    static constexpr factor_type TYPE = type;
    static constexpr int K = 8;
    static __device__ void add(float (&sums)[4], const fragment_a &a, const fragment_b &b)
    {
        mma_half_k8(sums, a, b, Half());
    }
};

template <class Piece> __global__ void multiply(const uint4 *a, const uint2 *b, const float4 *before, float4 *after)
{
    const int lane = (int)(blockIdx.x * 32 + threadIdx.x);
    float sums[4] = {before[lane].x, before[lane].y, before[lane].z, before[lane].w};
    const fragment_a fragment = load_fragment_a(a + lane);
    Piece::add(sums, fragment, fragment_b{{b[lane].x, b[lane].y}});
    after[lane] = make_float4(sums[0], sums[1], sums[2], sums[3]);
}

/* A lane's word `word` of a fragment, which has pairs of 16-bit types. Words that a product does not take are noise. */
uint32_t word_of_a(const factors &A, int first_row, int lane, int word)
{
    const int row = first_row + lane / 4 + word % 2 * 8, half = word / 2;
    if (A.type == FACTOR_TF32)
        return A.bits(row, lane % 4 + 4 * half);
    if (8 * half >= A.K)
        return 0x7fff7fff;
    return A.bits(row, 8 * half + lane % 4 * 2) | A.bits(row, 8 * half + lane % 4 * 2 + 1) << 16;
}
uint32_t word_of_b(const factors &B, int first_column, int lane, int word)
{
    const int column = first_column + lane / 4;
    if (B.type == FACTOR_TF32)
        return B.bits(column, lane % 4 + 4 * word);
    if (8 * word >= B.K)
        return 0x7fff7fff;
    return B.bits(column, 8 * word + lane % 4 * 2) | B.bits(column, 8 * word + lane % 4 * 2 + 1) << 16;
}

template <class Piece> void check_products(factor_kind kind)
{
    const factors A = make_factors(ROUNDS * M, Piece::K, Piece::TYPE, kind),
                  B = make_factors(ROUNDS * N, Piece::K, Piece::TYPE, kind);
    std::vector<uint32_t> a, b;
    std::vector<float> before;
    std::vector<double> wanted, bounds;
    for (int round = 0; round < ROUNDS; round++)
        for (int lane = 0; lane < 32; lane++) {
            for (int word = 0; word < 4; word++)
                a.push_back(word_of_a(A, round * M, lane, word));
            for (int word = 0; word < 2; word++)
                b.push_back(word_of_b(B, round * N, lane, word));
            for (int i = 0; i < 4; i++) {
                const int row = round * M + lane / 4 + i / 2 * 8, column = round * N + lane % 4 * 2 + i % 2;
                dot_product right = dot(A, row, B, column, 0, Piece::K);
                before.push_back(kind == FACTOR_INTEGERS ? (float)random_integer(-99, 99) : random_real());
                right.sum += before.back();
                right.magnitudes += fabs((double)before.back());
                wanted.push_back(right.sum);
                bounds.push_back(product_bound(kind, right, Piece::K));
            }
        }
    begin_case(kind == FACTOR_INTEGERS ? "integers" : "reals");
    const device_buffer from_a = input("a", a), from_b = input("b", b), sums = input("sums", before),
                        to = output("results", before.size() * sizeof(float));
    multiply<Piece><<<ROUNDS, 32>>>(from_a.as<uint4>(), from_b.as<uint2>(), sums.as<float4>(), to.as<float4>());
    finish_kernels();
    compare_floats(to, wanted, bounds);
}

/* The same rows of A and B, with the same sum before, at every place of an MMA, each among other rows: the bits of a sum
 * may not depend on where it is, nor on what is beside it. cuda_frames promises so of an image and its batch. */
template <class Piece> void check_places()
{
    constexpr int PLACES = M * N;
    factors A = make_factors(PLACES * M, Piece::K, Piece::TYPE, FACTOR_REALS),
            B = make_factors(PLACES * N, Piece::K, Piece::TYPE, FACTOR_REALS);
    const float sum = random_real();
    std::vector<uint32_t> a, b;
    std::vector<float> before;
    for (int place = 0; place < PLACES; place++) {
        const int row = place / N, column = place % N;
        A.copy_row(0, place * M + row);
        B.copy_row(0, place * N + column);
        for (int lane = 0; lane < 32; lane++) {
            for (int word = 0; word < 4; word++)
                a.push_back(word_of_a(A, place * M, lane, word));
            for (int word = 0; word < 2; word++)
                b.push_back(word_of_b(B, place * N, lane, word));
            for (int i = 0; i < 4; i++)
                before.push_back(lane / 4 + i / 2 * 8 == row && lane % 4 * 2 + i % 2 == column ? sum : random_real());
        }
    }
    begin_case("the same sum at every place");
    const device_buffer from_a = input("a", a), from_b = input("b", b), sums = input("sums", before),
                        to = output("results", before.size() * sizeof(float));
    multiply<Piece><<<PLACES, 32>>>(from_a.as<uint4>(), from_b.as<uint2>(), sums.as<float4>(), to.as<float4>());
    finish_kernels();
    const std::vector<float> got = contents<float>(to);
    for (int place = 0; place < PLACES; place++) {
        const int row = place / N, column = place % N, lane = row % 8 * 4 + column / 2;
        const float at = got[(size_t)(place * 32 + lane) * 4 + row / 8 * 2 + column % 2];
        if (bits_of(at) != bits_of(got[0]))
            fail("row %d, column %d: %.9g, not %.9g", row, column, (double)at, (double)got[0]);
    }
}

template <class Piece> void check()
{
    check_products<Piece>(FACTOR_INTEGERS);
    check_products<Piece>(FACTOR_REALS);
    for (int round = 0; round < PLACE_ROUNDS; round++)
        check_places<Piece>();
}

constexpr int CHAINS = 8, BENCH_PRODUCTS = 2048, BENCH_THREADS = 256;

template <class Piece> __global__ void __launch_bounds__(BENCH_THREADS) repeat(float *to)
{
    float sums[CHAINS][4] = {};
    const fragment_a a = {{threadIdx.x, threadIdx.x + 1, threadIdx.x + 2, threadIdx.x + 3}};
    const fragment_b b = {{threadIdx.x + 4, threadIdx.x + 5}};
#pragma unroll 1
    for (int i = 0; i < BENCH_PRODUCTS / CHAINS; i++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++)
            Piece::add(sums[c], a, b);
    float all = 0;
    for (int c = 0; c < CHAINS; c++)
        all += sums[c][0] + sums[c][1] + sums[c][2] + sums[c][3];
    if (all == 12345)
        *to = all;
}

template <class Piece> void bench()
{
    begin_case("rate");
    const device_buffer to = output("unused", 4);
    const int blocks = 2 * machine().multiprocessors;
    const double flops = 2.0 * M * N * Piece::K * BENCH_PRODUCTS * (BENCH_THREADS / 32) * blocks;
    rate(
        "", [&] { repeat<Piece><<<blocks, BENCH_THREADS>>>(to.as<float>()); }, flops, "GFLOP/s",
        mma_rate(factor_bytes(Piece::TYPE)));
}

using f16_piece = half_piece<__half, FACTOR_F16>;
using bf16_piece = half_piece<__nv_bfloat16, FACTOR_BF16>;
using f16_k8_piece = half_k8_piece<__half, FACTOR_F16>;
using bf16_k8_piece = half_k8_piece<__nv_bfloat16, FACTOR_BF16>;

const entry entries[] = {
    {"cuda/ptx/mma_tf32 m16n8k8", check<tf32_piece>, bench<tf32_piece>, false},
    {"cuda/ptx/mma_half f16 m16n8k16", check<f16_piece>, bench<f16_piece>, false},
    {"cuda/ptx/mma_half bf16 m16n8k16", check<bf16_piece>, bench<bf16_piece>, false},
    {"cuda/ptx/mma_half_k8 f16 m16n8k8", check<f16_k8_piece>, bench<f16_k8_piece>, false},
    {"cuda/ptx/mma_half_k8 bf16 m16n8k8", check<bf16_k8_piece>, bench<bf16_k8_piece>, false},
};

} // namespace

void check_ptx_mma()
{
    check_entries(entries);
}

} // namespace tconv::check
