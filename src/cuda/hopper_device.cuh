/*
 * The instructions of Hopper (compute capability 9.0) that C++ has no name for, each as a function: barriers in shared
 * memory, bulk and tensor copies, warpgroup matrix products. Addresses in shared memory are 32-bit ones. Sources: PTX ISA,
 * "mbarrier", "cp.async.bulk" and "Asynchronous Warpgroup Level Matrix Instructions".
 */
#ifndef TCONV_CUDA_HOPPER_DEVICE_CUH
#define TCONV_CUDA_HOPPER_DEVICE_CUH

#include <cstdint>
#include <cuda.h>

namespace hopper
{

__device__ __forceinline__ uint32_t shared_address(const void *memory)
{
    return (uint32_t)__cvta_generic_to_shared(memory);
}

/* -------------------------------------------------------------------------------------------------------- barriers */

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* After the last init: makes them visible to the copy engine as well. */
__device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Waits for as many threads of the block: some of its warps, all that call it. */
template <int threads> __device__ __forceinline__ void named_barrier_wait()
{
    asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, without a branch; nothing where barrier is 0. */
__device__ __forceinline__ void barrier_arrive_unless_0(uint32_t barrier)
{
    asm volatile("{\n"
                 ".reg .pred is;\n"
                 "setp.ne.u32 is, %0, 0;\n"
                 "@is mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n"
                 "}" ::"r"(barrier)
                 : "memory");
}

/* Arrives, and has the phase wait for so many bytes of copies as well. */
__device__ __forceinline__ void barrier_arrive_expecting(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Whether the phase of this parity is complete. */
__device__ __forceinline__ bool barrier_is_complete(uint32_t barrier, uint32_t parity)
{
    uint32_t is;
    asm volatile("{\n"
                 ".reg .pred complete;\n"
                 "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 complete, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, complete;\n"
                 "}"
                 : "=r"(is)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return is != 0;
}

/* Waits until the phase of this parity is complete. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred complete;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 complete, [%0], %1;\n"
                 "@complete bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Both. */
__device__ __forceinline__ void barriers_wait(uint32_t one, uint32_t parity_of_one, uint32_t other,
                                              uint32_t parity_of_other)
{
    asm volatile("{\n"
                 ".reg .pred complete, other_complete;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 complete, [%0], %1;\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 other_complete, [%2], %3;\n"
                 "and.pred complete, complete, other_complete;\n"
                 "@complete bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"(one),
                 "r"(parity_of_one), "r"(other), "r"(parity_of_other)
                 : "memory");
}

/* -------------------------------------------------------------------------------------------------------- clusters */

/* Arrives at the barrier that lies where `barrier` does in this block, of the cluster's block `rank`. No writes are made visible
 * by it there, which would cost a fence of all memory: it tells that something has been read. */
__device__ __forceinline__ void barrier_arrive_in_cluster(uint32_t barrier, int rank)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

/* All threads of all blocks of the cluster. */
__device__ __forceinline__ void cluster_synchronize()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* copy_bulk to the same place in every block of the mask, whose barriers there are told. */
__device__ __forceinline__ void copy_bulk_to_cluster(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier,
                                                     uint16_t blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
                 : "memory");
}

/* ---------------------------------------------------------------------------------------------------------- copies */

/* Copies bytes (a multiple of 16, as both addresses) from global to shared memory; barrier is told. */
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Copies the map's box that begins at the coordinates, innermost first; barrier is told. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int x, int y, int z, int w,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
                 : "memory");
}

/* The same to the same place in every block of the mask, whose barriers there are told. */
__device__ __forceinline__ void copy_box_to_cluster(uint32_t to, const CUtensorMap *map, int x, int y, int z, int w,
                                                    uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "h"(blocks)
                 : "memory");
}

/* Copies bytes (a multiple of 16, as both addresses) from shared to global memory, for which the second-level cache has no
 * further use. Waiting for it is by groups, as below. */
__device__ __forceinline__ void store_bulk(void *to, uint32_t from, uint32_t bytes)
{
    constexpr uint64_t EVICT_FIRST = 0x12f0000000000000; /* what createpolicy.fractional makes of 1.0 */
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to), "r"(from),
                 "r"(bytes), "l"(EVICT_FIRST)
                 : "memory");
}

__device__ __forceinline__ void stores_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until at most so many committed groups of this thread still read shared memory. */
template <int under_way> __device__ __forceinline__ void stores_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(under_way) : "memory");
}

__device__ __forceinline__ void stores_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Writes 16 bytes to shared memory. */
__device__ __forceinline__ void store_quad(uint32_t address, const uint32_t (&words)[4])
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
}

/* Between a thread's own writes to shared memory and its telling others that a matrix product may read them. */
__device__ __forceinline__ void fence_for_async_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ------------------------------------------------------------------------------------------------------- registers */

template <int count> __device__ __forceinline__ void grow_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count> __device__ __forceinline__ void shrink_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

/* ------------------------------------------------------------------------------------------------- matrix products */

/* Before the first product that uses registers written since. */
__device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most so many committed groups are under way. */
template <int under_way> __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(under_way) : "memory");
}

/* An address in shared memory in units of 16 bytes, as many bits as an operand has for it. */
__device__ __forceinline__ uint32_t operand_address(uint32_t address)
{
    return (address & 0x3ffff) >> 4;
}

/*
 * An operand without swizzle whose rows (M or N) are 16 bytes of K: eight rows are 128 bytes, one after another, and the
 * other half of K lies `half` bytes on. In units of 16 bytes: the low word is the address and the half, the high word the
 * 128 bytes. Moving an operand by rows is adding to the low word.
 */
__device__ __forceinline__ uint32_t operand_low(uint32_t address, uint32_t half)
{
    return operand_address(address) | half >> 4 << 16;
}

__device__ __forceinline__ uint64_t operand(uint32_t low)
{
    return (uint64_t)8 << 32 | low;
}

/* Types of factors: 32 bytes of K each, sums in f32. TRANSPOSED: b lies by rows of N, one for each of K. */
enum product_type { PRODUCT_TF32, PRODUCT_F16, PRODUCT_BF16, PRODUCT_F16_TRANSPOSED, PRODUCT_BF16_TRANSPOSED };

/* sums (64 x N over the warpgroup) = a * b, added to sums where accumulate is not 0. */
template <product_type type, int N> struct product;

#define TCONV_SUMS_4(i)   "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TCONV_SUMS_12(i)  TCONV_SUMS_4(i), TCONV_SUMS_4(i + 4), TCONV_SUMS_4(i + 8)
#define TCONV_SUMS_16(i)  TCONV_SUMS_12(i), TCONV_SUMS_4(i + 12)
#define TCONV_SUMS_24(i)  TCONV_SUMS_12(i), TCONV_SUMS_12(i + 12)
#define TCONV_SUMS_32(i)  TCONV_SUMS_12(i), TCONV_SUMS_12(i + 12), TCONV_SUMS_4(i + 24), TCONV_SUMS_4(i + 28)
#define TCONV_SUMS_40(i)  TCONV_SUMS_32(i), TCONV_SUMS_4(i + 32), TCONV_SUMS_4(i + 36)
#define TCONV_SUMS_44(i)  TCONV_SUMS_40(i), TCONV_SUMS_4(i + 40)
#define TCONV_SUMS_48(i)  TCONV_SUMS_24(i), TCONV_SUMS_24(i + 24)
#define TCONV_SUMS_52(i)  TCONV_SUMS_44(i), TCONV_SUMS_4(i + 44), TCONV_SUMS_4(i + 48)
#define TCONV_SUMS_64(i)  TCONV_SUMS_52(i), TCONV_SUMS_12(i + 52)
#define TCONV_SUMS_84(i)  TCONV_SUMS_64(i), TCONV_SUMS_16(i + 64), TCONV_SUMS_4(i + 80)
#define TCONV_SUMS_128(i) TCONV_SUMS_64(i), TCONV_SUMS_64(i + 64)

#define TCONV_NAMES_12 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define TCONV_NAMES_16 TCONV_NAMES_12 ", %12, %13, %14, %15"
#define TCONV_NAMES_24 TCONV_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TCONV_NAMES_32 TCONV_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TCONV_NAMES_40 TCONV_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TCONV_NAMES_44 TCONV_NAMES_40 ", %40, %41, %42, %43"
#define TCONV_NAMES_48 TCONV_NAMES_44 ", %44, %45, %46, %47"
#define TCONV_NAMES_52 TCONV_NAMES_44 ", %44, %45, %46, %47, %48, %49, %50, %51"
#define TCONV_NAMES_64 TCONV_NAMES_52 ", %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TCONV_NAMES_84                                                                                                 \
    TCONV_NAMES_64                                                                                                     \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83"
#define TCONV_NAMES_128                                                                                                \
    TCONV_NAMES_84                                                                                                     \
    ", %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99"                                 \
    ", %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"                                         \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123"                                         \
    ", %124, %125, %126, %127"

/* flags: for 16-bit types, which operands are transposed. */
#define TCONV_PRODUCT(type, shape, flags, N, count, a, b, accumulate_)                                                 \
    template <> struct product<type, N> {                                                                              \
        static __device__ __forceinline__ void add(float (&sums)[count], uint64_t left, uint64_t right,                \
                                                   int accumulate)                                                     \
        {                                                                                                              \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #accumulate_ ", 0;\n"                              \
                         "wgmma.mma_async.sync.aligned.m64n" #N shape " {" TCONV_NAMES_##count                         \
                         "}, %" #a ", %" #b ", adds, 1, 1" flags ";\n}"                                                \
                         : TCONV_SUMS_##count(0)                                                                       \
                         : "l"(left), "l"(right), "r"(accumulate));                                                    \
        }                                                                                                              \
    };
#define TCONV_PRODUCTS(N, count, a, b, accumulate)                                                                     \
    TCONV_PRODUCT(PRODUCT_TF32, "k8.f32.tf32.tf32", "", N, count, a, b, accumulate)                                    \
    TCONV_PRODUCT(PRODUCT_F16, "k16.f32.f16.f16", ", 0, 0", N, count, a, b, accumulate)                                \
    TCONV_PRODUCT(PRODUCT_BF16, "k16.f32.bf16.bf16", ", 0, 0", N, count, a, b, accumulate)
TCONV_PRODUCTS(64, 32, 32, 33, 34)
TCONV_PRODUCTS(80, 40, 40, 41, 42)
TCONV_PRODUCTS(88, 44, 44, 45, 46)
TCONV_PRODUCTS(96, 48, 48, 49, 50)
TCONV_PRODUCTS(104, 52, 52, 53, 54)
TCONV_PRODUCTS(128, 64, 64, 65, 66)
TCONV_PRODUCT(PRODUCT_F16_TRANSPOSED, "k16.f32.f16.f16", ", 0, 1", 104, 52, 52, 53, 54)
TCONV_PRODUCT(PRODUCT_F16_TRANSPOSED, "k16.f32.f16.f16", ", 0, 1", 128, 64, 64, 65, 66)
TCONV_PRODUCT(PRODUCT_BF16_TRANSPOSED, "k16.f32.bf16.bf16", ", 0, 1", 104, 52, 52, 53, 54)
TCONV_PRODUCT(PRODUCT_BF16_TRANSPOSED, "k16.f32.bf16.bf16", ", 0, 1", 128, 64, 64, 65, 66)
#undef TCONV_PRODUCTS
#undef TCONV_PRODUCT

/* sums (64 x N over the warpgroup) = a * b, a being in registers; added to sums where accumulate is not 0. */
template <product_type type, int N> struct register_product;

/* flags: for 16-bit types, that b is not transposed. */
#define TCONV_PRODUCT(type, shape, flags, N, count, a0, a1, a2, a3, b, accumulate_)                                    \
    template <> struct register_product<type, N> {                                                                     \
        static __device__ __forceinline__ void add(float (&sums)[count], const uint32_t (&a)[4], uint64_t right,       \
                                                   int accumulate)                                                     \
        {                                                                                                              \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #accumulate_ ", 0;\n"                              \
                         "wgmma.mma_async.sync.aligned.m64n" #N shape " {" TCONV_NAMES_##count                         \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", adds, 1, 1" flags ";\n}"               \
                         : TCONV_SUMS_##count(0)                                                                       \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "r"(accumulate));                   \
        }                                                                                                              \
    };
#define TCONV_PRODUCTS(N, count, a0, a1, a2, a3, b, accumulate)                                                        \
    TCONV_PRODUCT(PRODUCT_TF32, "k8.f32.tf32.tf32", "", N, count, a0, a1, a2, a3, b, accumulate)                       \
    TCONV_PRODUCT(PRODUCT_F16, "k16.f32.f16.f16", ", 0", N, count, a0, a1, a2, a3, b, accumulate)                      \
    TCONV_PRODUCT(PRODUCT_BF16, "k16.f32.bf16.bf16", ", 0", N, count, a0, a1, a2, a3, b, accumulate)
TCONV_PRODUCTS(24, 12, 12, 13, 14, 15, 16, 17)
TCONV_PRODUCTS(32, 16, 16, 17, 18, 19, 20, 21)
TCONV_PRODUCTS(48, 24, 24, 25, 26, 27, 28, 29)
TCONV_PRODUCTS(64, 32, 32, 33, 34, 35, 36, 37)
TCONV_PRODUCTS(80, 40, 40, 41, 42, 43, 44, 45)
TCONV_PRODUCTS(96, 48, 48, 49, 50, 51, 52, 53)
TCONV_PRODUCTS(168, 84, 84, 85, 86, 87, 88, 89)
#undef TCONV_PRODUCTS
#undef TCONV_PRODUCT

/*
 * sums (64 x N over the warpgroup), which begin at first of a thread's, = a * b in TF32, added to them where accumulate; a of
 * registers: a thread has rows lane / 4 and 8 on of its warp's 16 of column lane % 4, then both of 4 columns on.
 */
template <int N> struct product_from_registers;

#define TCONV_PRODUCT_FROM(N, count, a0, a1, a2, a3, b, accumulates)                                                   \
    template <> struct product_from_registers<N> {                                                                     \
        template <int first, bool accumulate, int all>                                                                 \
        static __device__ __forceinline__ void add(float (&sums)[all], const uint32_t (&left)[4], uint64_t right)      \
        {                                                                                                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" TCONV_NAMES_##count               \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", %" #accumulates ", 1, 1;"              \
                         : TCONV_SUMS_##count(first)                                                                   \
                         : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(accumulate));       \
        }                                                                                                              \
    };
TCONV_PRODUCT_FROM(32, 16, 16, 17, 18, 19, 20, 21)
TCONV_PRODUCT_FROM(64, 32, 32, 33, 34, 35, 36, 37)
TCONV_PRODUCT_FROM(128, 64, 64, 65, 66, 67, 68, 69)
TCONV_PRODUCT_FROM(256, 128, 128, 129, 130, 131, 132, 133)
#undef TCONV_PRODUCT_FROM

} // namespace hopper

#endif
