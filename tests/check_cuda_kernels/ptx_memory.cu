/* src/cuda/ptx: barriers, copies into shared memory by threads, and matrices that are loaded and stored transposed. */
#include <cuda_fp16.h>

#include "../../src/cuda/igemm/epilogue.cuh"
#include "../../src/cuda/ptx/mma.cuh"
#include "families.h"
#include "hopper.cuh"

namespace tconv::check
{

namespace
{

std::vector<uint32_t> random_words(size_t count)
{
    std::vector<uint32_t> words(count);
    for (uint32_t &word : words)
        word = random_bits();
    return words;
}

/* --------------------------------------------------------------------------------------------------------- barriers */

/* Writes what tests of the barrier say, one after another. */
__global__ void walk_barrier(uint32_t *said)
{
    __shared__ uint64_t memory[2];
    const uint32_t barrier = shared_address(memory);
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 3);
        mbarrier_init_fence();
        said[0] = mbarrier_test(barrier, 0);
        said[1] = mbarrier_test(barrier, 1); /* the phase before the first counts as complete */
        mbarrier_arrive(barrier);
        mbarrier_arrive(barrier);
        said[2] = mbarrier_test(barrier, 0);
#if __CUDA_ARCH__ >= 900
        mbarrier_arrive_unless_0(0);
        said[3] = mbarrier_test(barrier, 0);
        mbarrier_arrive_unless_0(barrier);
#else
        said[3] = 0;
        mbarrier_arrive(barrier);
#endif
        said[4] = mbarrier_test(barrier, 0);
        said[5] = mbarrier_test(barrier, 1);
        for (int i = 0; i < 3; i++)
            mbarrier_arrive(barrier);
        while (!mbarrier_try_wait(barrier, 1))
            ;
        said[6] = mbarrier_test(barrier, 0);
    }
}

void check_barrier()
{
    begin_case("three arrivals");
    const device_buffer said = output("answers", 7 * sizeof(uint32_t));
    walk_barrier<<<1, 32>>>(said.as<uint32_t>());
    finish_kernels();
    compare_bits<uint32_t>(said, {0, 1, 0, 0, 1, 0, 0});
}

/* Each block of a cluster of two arrives at the other's barrier, and waits at its own until then. */
__global__ void TCONV_CHECK_CLUSTER_OF_2 arrive_at_each_other(uint32_t *said)
{
#ifdef TCONV_CHECK_HOPPER
    __shared__ uint64_t memory;
    __shared__ volatile uint32_t value;
    const uint32_t barrier = shared_address(&memory);
    const int rank = (int)blockIdx.x;
    if (threadIdx.x == 0) {
        value = 5;
        mbarrier_init(barrier, 1);
        mbarrier_init_fence();
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        said[4 * rank] = mbarrier_test(barrier, 0);
        said[4 * rank + 1] = value;
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_remote(barrier, 1 - rank);
        mbarrier_wait(barrier, 0);
        said[4 * rank + 2] = mbarrier_test(barrier, 0);
        mbarriers_wait(barrier, 0, barrier, 0);
        said[4 * rank + 3] = mbarrier_test(barrier, 1);
    }
    cluster_sync();
#endif
}

void check_remote()
{
    begin_case("a cluster of two");
    const device_buffer said = output("answers", 8 * sizeof(uint32_t));
    arrive_at_each_other<<<2, 32>>>(said.as<uint32_t>());
    finish_kernels();
    compare_bits<uint32_t>(said, {0, 5, 1, 0, 0, 5, 1, 0});
}

/* ---------------------------------------------------------------------------------------------------- cp.async etc. */

constexpr int COPY_THREADS = 64;

/* Each thread copies `size` bytes, of which bytes[thread] are read; then all is written out. */
template <int size> __global__ void copy_padded(const char *from, const int *bytes, char *to)
{
    __shared__ alignas(16) char memory[COPY_THREADS * size];
    for (int i = (int)threadIdx.x; i < COPY_THREADS * size; i += COPY_THREADS)
        memory[i] = 0x55;
    __syncthreads();
    cp_async_padded<size>(shared_address(memory) + threadIdx.x * size, from + threadIdx.x * size, bytes[threadIdx.x]);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    for (int i = (int)threadIdx.x; i < COPY_THREADS * size; i += COPY_THREADS)
        to[i] = memory[i];
}

/* The same of 16 bytes by cp_async and cp_async_line: all or nothing. */
__global__ void copy_or_not(const uint4 *from, const int *bytes, uint4 *to)
{
    __shared__ uint4 memory[2 * COPY_THREADS];
    memory[threadIdx.x] = memory[COPY_THREADS + threadIdx.x] = make_uint4(1, 2, 3, 4);
    __syncthreads();
    const bool exists = bytes[threadIdx.x] > 7;
    cp_async(memory + threadIdx.x, from + threadIdx.x, exists);
    cp_async_line(memory + COPY_THREADS + threadIdx.x, from + threadIdx.x, exists);
    cp_async_wait_all();
    __syncthreads();
    to[threadIdx.x] = memory[threadIdx.x];
    store_streaming(to + COPY_THREADS + threadIdx.x, memory + COPY_THREADS + threadIdx.x);
}

template <int size> void check_padded_copies()
{
    std::vector<uint8_t> from(COPY_THREADS * size), wanted(from.size(), 0);
    std::vector<int> bytes(COPY_THREADS);
    for (uint8_t &byte : from)
        byte = (uint8_t)random_bits();
    for (int i = 0; i < COPY_THREADS; i++) {
        bytes[i] = i % (size + 1);
        memcpy(&wanted[(size_t)i * size], &from[(size_t)i * size], (size_t)bytes[i]);
    }
    begin_case("%d bytes of a thread", size);
    const device_buffer src = input("src", from), counts = input("counts", bytes), dst = output("dst", from.size());
    copy_padded<size><<<1, COPY_THREADS>>>(src.as<char>(), counts.as<int>(), dst.as<char>());
    finish_kernels();
    compare_bits<uint8_t>(dst, wanted);
}

void check_cp_async()
{
    check_padded_copies<4>();
    check_padded_copies<8>();
    check_padded_copies<16>();
    const std::vector<uint32_t> from = random_words(4 * COPY_THREADS);
    std::vector<uint32_t> wanted(2 * from.size(), 0);
    std::vector<int> bytes(COPY_THREADS);
    for (int i = 0; i < COPY_THREADS; i++) {
        bytes[i] = i % 16;
        if (bytes[i] > 7)
            for (int half = 0; half < 2; half++)
                memcpy(&wanted[half * from.size() + 4 * i], &from[4 * i], 16);
    }
    begin_case("all or nothing");
    const device_buffer src = input("src", from), counts = input("counts", bytes),
                        dst = output("dst", wanted.size() * sizeof(uint32_t));
    copy_or_not<<<1, COPY_THREADS>>>(src.as<uint4>(), counts.as<int>(), dst.as<uint4>());
    finish_kernels();
    compare_bits<uint32_t>(dst, wanted);
}

/* ----------------------------------------------------------------------------------------------- ldmatrix, stmatrix */

/* A warp loads four matrices of 8 x 8, and stores what it has of them in the order of lanes. */
template <bool transposed> __global__ void load_four(const uint4 *from, uint4 *to)
{
    __shared__ uint4 memory[32];
    memory[threadIdx.x] = from[threadIdx.x];
    __syncwarp();
    const fragment_a a = load_matrices<transposed>(shared_address(memory + threadIdx.x));
    to[threadIdx.x] = make_uint4(a.at[0], a.at[1], a.at[2], a.at[3]);
}

template <bool transposed> void check_ldmatrix()
{
    std::vector<uint16_t> from(32 * 8), wanted(from.size());
    for (uint16_t &element : from)
        element = (uint16_t)random_bits();
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++)
            for (int i = 0; i < 2; i++) {
                const int row = lane / 4, column = lane % 4 * 2 + i;
                wanted[(lane * 4 + matrix) * 2 + i] =
                    from[matrix * 64 + (transposed ? column * 8 + row : row * 8 + column)];
            }
    begin_case("four matrices");
    const device_buffer src = input("src", from), dst = output("dst", wanted.size() * sizeof(uint16_t));
    load_four<transposed><<<1, 32>>>(src.as<uint4>(), dst.as<uint4>());
    finish_kernels();
    compare_bits<uint16_t>(dst, wanted);
}

/* A warp stores two matrices of 8 x 8 transposed: lane l % 16 says where row l % 8 of matrix l / 8 goes. */
__global__ void store_two(const uint2 *from, uint4 *to)
{
#ifdef TCONV_CHECK_HOPPER
    __shared__ uint4 memory[16];
    const uint2 words = from[threadIdx.x];
    store_transposed(shared_address(memory + threadIdx.x % 16), words.x, words.y);
    __syncwarp();
    if (threadIdx.x < 16)
        to[threadIdx.x] = memory[threadIdx.x];
#endif
}

void check_stmatrix()
{
    std::vector<uint16_t> from(32 * 4), wanted(from.size());
    for (uint16_t &element : from)
        element = (uint16_t)random_bits();
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 2; matrix++)
            for (int i = 0; i < 2; i++)
                wanted[(matrix * 8 + lane % 4 * 2 + i) * 8 + lane / 4] = from[lane * 4 + matrix * 2 + i];
    begin_case("two matrices");
    const device_buffer src = input("src", from), dst = output("dst", wanted.size() * sizeof(uint16_t));
    store_two<<<1, 32>>>(src.as<uint2>(), dst.as<uint4>());
    finish_kernels();
    compare_bits<uint16_t>(dst, wanted);
}

/* -------------------------------------------------------------------------------------------- loads that may not be */

/* Every third thread loads nothing, from an address that nobody may read. */
template <class Value> __global__ void load_some(const Value *from, Value *to)
{
    const int i = (int)threadIdx.x;
    const bool exists = i % 3 != 0;
    to[i] = load_if(exists, exists ? from + i : reinterpret_cast<const Value *>(sizeof(uint4)));
}

template <class Value> void check_load_if()
{
    constexpr size_t THREADS = 64, WORDS = sizeof(Value) / sizeof(uint16_t);
    begin_case("values of %zu bytes", sizeof(Value));
    std::vector<uint16_t> from(THREADS * WORDS);
    for (uint16_t &bits : from)
        bits = (uint16_t)random_bits();
    std::vector<uint16_t> wanted = from;
    for (size_t i = 0; i < from.size(); i++)
        if (i / WORDS % 3 == 0)
            wanted[i] = 0;
    const device_buffer src = input("src", from), dst = output("dst", from.size() * sizeof(uint16_t));
    load_some<Value><<<1, THREADS>>>(src.as<Value>(), dst.as<Value>());
    finish_kernels();
    compare_bits<uint16_t>(dst, wanted);
}

void check_loads()
{
    check_load_if<uint16_t>();
    check_load_if<uint32_t>();
    check_load_if<uint4>();
}

/* ------------------------------------------------------------------------------------------------------------ lanes */

__global__ void __launch_bounds__(128) elect_lanes(uint32_t *of_warps)
{
#ifdef TCONV_CHECK_HOPPER
    const uint32_t ballot = __ballot_sync(~0u, elected());
    if (threadIdx.x % WARP == 0)
        of_warps[threadIdx.x / WARP] = (uint32_t)__popc(ballot);
#endif
}

void check_elected()
{
    begin_case("one of each warp");
    const device_buffer of_warps = output("of_warps", 4 * sizeof(uint32_t));
    elect_lanes<<<1, 128>>>(of_warps.as<uint32_t>());
    finish_kernels();
    compare_bits<uint32_t>(of_warps, {1, 1, 1, 1});
}

/* ------------------------------------------------------------------------------------------------------------ rates */

__global__ void stream_cp_async(const uint4 *from, int rounds, int vectors)
{
    extern __shared__ uint4 memory[];
    for (int i = 0; i < rounds; i++) {
        const int at = (int)((blockIdx.x * 977u + i) * blockDim.x + threadIdx.x) % vectors;
        cp_async(memory + (i % 8) * blockDim.x + threadIdx.x, from + at, true);
        cp_async_commit();
        cp_async_wait<7>();
    }
    cp_async_wait_all();
}

void bench_cp_async()
{
    constexpr int ROUNDS = 1024, THREADS = 256, VECTORS = 1 << 19;
    begin_case("rate");
    const device_buffer src = output("src", (size_t)VECTORS * 16);
    const int blocks = 4 * machine().multiprocessors;
    rate(
        "of L2", [&] { stream_cp_async<<<blocks, THREADS, 8 * THREADS * 16>>>(src.as<uint4>(), ROUNDS, VECTORS); },
        (double)blocks * ROUNDS * THREADS * 16, "GB/s", l2_rate());
}

const entry entries[] = {
    {"cuda/ptx/mbarrier", check_barrier, nullptr, false},
    {"cuda/ptx/mbarrier of a cluster", check_remote, nullptr, true},
    {"cuda/ptx/cp_async", check_cp_async, bench_cp_async, false},
    {"cuda/ptx/load_if", check_loads, nullptr, false},
    {"cuda/ptx/elected", check_elected, nullptr, true},
    {"cuda/ptx/ldmatrix", check_ldmatrix<false>, nullptr, false},
    {"cuda/ptx/ldmatrix transposed", check_ldmatrix<true>, nullptr, false},
    {"cuda/ptx/stmatrix transposed", check_stmatrix, nullptr, true},
};

} // namespace

void check_ptx_memory()
{
    check_entries(entries);
}

} // namespace tconv::check
