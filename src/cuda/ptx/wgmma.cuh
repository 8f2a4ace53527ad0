/* Matrix products of a warpgroup (compute capability 9.0), A from shared memory or from registers: PTX ISA,
 * "Asynchronous Warpgroup Level Matrix Instructions". */
#ifndef TCONV_CUDA_PTX_WGMMA_CUH
#define TCONV_CUDA_PTX_WGMMA_CUH

#include <cstdint>

namespace tconv
{

/* Precedes the first product that uses registers written since. */
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most so many commit groups are under way. */
template <int under_way> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(under_way) : "memory");
}

/* An address in shared memory in units of 16 bytes, in as many bits as a descriptor has for it. */
__device__ __forceinline__ uint32_t descriptor_address(uint32_t address)
{
    return (address & 0x3ffff) >> 4;
}

/*
 * The descriptor of a K-major operand without swizzle: a core matrix is eight rows (M or N) of 16 bytes of K, 128 bytes
 * one after another, and the other half of K lies `half` bytes on. In units of 16 bytes, the low word has the address
 * and the half, the high word the 128 bytes. Adding to the low word moves an operand by rows.
 */
__device__ __forceinline__ uint32_t descriptor_low(uint32_t address, uint32_t half)
{
    return descriptor_address(address) | half >> 4 << 16;
}

__device__ __forceinline__ uint64_t descriptor(uint32_t low)
{
    return (uint64_t)8 << 32 | low;
}

/* Types of factors: 32 bytes of K each, accumulators in f32. MN_MAJOR: the B operand is a row of N for each of K; BOTH: A is
 * a row of M as well. */
enum wgmma_type {
    WGMMA_TF32,
    WGMMA_F16,
    WGMMA_BF16,
    WGMMA_F16_MN_MAJOR,
    WGMMA_BF16_MN_MAJOR,
    WGMMA_F16_BOTH,
    WGMMA_BF16_BOTH
};

/* sums (64 x N over the warpgroup) = a * b, added to sums where accumulate is not 0. */
template <wgmma_type type, int N> struct wgmma_ss;

#define TCONV_SUMS_4(i)   "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TCONV_SUMS_12(i)  TCONV_SUMS_4(i), TCONV_SUMS_4(i + 4), TCONV_SUMS_4(i + 8)
#define TCONV_SUMS_16(i)  TCONV_SUMS_12(i), TCONV_SUMS_4(i + 12)
#define TCONV_SUMS_24(i)  TCONV_SUMS_12(i), TCONV_SUMS_12(i + 12)
#define TCONV_SUMS_32(i)  TCONV_SUMS_12(i), TCONV_SUMS_12(i + 12), TCONV_SUMS_4(i + 24), TCONV_SUMS_4(i + 28)
#define TCONV_SUMS_40(i)  TCONV_SUMS_32(i), TCONV_SUMS_4(i + 32), TCONV_SUMS_4(i + 36)
#define TCONV_SUMS_44(i)  TCONV_SUMS_40(i), TCONV_SUMS_4(i + 40)
#define TCONV_SUMS_48(i)  TCONV_SUMS_24(i), TCONV_SUMS_24(i + 24)
#define TCONV_SUMS_52(i)  TCONV_SUMS_44(i), TCONV_SUMS_4(i + 44), TCONV_SUMS_4(i + 48)
#define TCONV_SUMS_60(i)  TCONV_SUMS_48(i), TCONV_SUMS_12(i + 48)
#define TCONV_SUMS_64(i)  TCONV_SUMS_52(i), TCONV_SUMS_12(i + 52)
#define TCONV_SUMS_72(i)  TCONV_SUMS_48(i), TCONV_SUMS_24(i + 48)
#define TCONV_SUMS_84(i)  TCONV_SUMS_64(i), TCONV_SUMS_16(i + 64), TCONV_SUMS_4(i + 80)
#define TCONV_SUMS_96(i)  TCONV_SUMS_48(i), TCONV_SUMS_48(i + 48)
#define TCONV_SUMS_128(i) TCONV_SUMS_64(i), TCONV_SUMS_64(i + 64)

#define TCONV_NAMES_4  "%0, %1, %2, %3"
#define TCONV_NAMES_12 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define TCONV_NAMES_16 TCONV_NAMES_12 ", %12, %13, %14, %15"
#define TCONV_NAMES_24 TCONV_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TCONV_NAMES_32 TCONV_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TCONV_NAMES_40 TCONV_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TCONV_NAMES_44 TCONV_NAMES_40 ", %40, %41, %42, %43"
#define TCONV_NAMES_48 TCONV_NAMES_44 ", %44, %45, %46, %47"
#define TCONV_NAMES_52 TCONV_NAMES_44 ", %44, %45, %46, %47, %48, %49, %50, %51"
#define TCONV_NAMES_60 TCONV_NAMES_52 ", %52, %53, %54, %55, %56, %57, %58, %59"
#define TCONV_NAMES_64 TCONV_NAMES_60 ", %60, %61, %62, %63"
#define TCONV_NAMES_72 TCONV_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TCONV_NAMES_84                                                                                                 \
    TCONV_NAMES_72                                                                                                     \
    ", %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83"
#define TCONV_NAMES_96                                                                                                 \
    TCONV_NAMES_84                                                                                                     \
    ", %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TCONV_NAMES_128                                                                                                \
    TCONV_NAMES_96                                                                                                     \
    ", %96, %97, %98, %99"                                                                                             \
    ", %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"                                         \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123"                                         \
    ", %124, %125, %126, %127"

/* flags: for 16-bit types, the operands that are MN-major. */
#define TCONV_WGMMA(type, shape, flags, N, count, a, b, accumulate_)                                                   \
    template <> struct wgmma_ss<type, N> {                                                                             \
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
#define TCONV_WGMMAS(N, count, a, b, accumulate)                                                                       \
    TCONV_WGMMA(WGMMA_TF32, "k8.f32.tf32.tf32", "", N, count, a, b, accumulate)                                        \
    TCONV_WGMMA(WGMMA_F16, "k16.f32.f16.f16", ", 0, 0", N, count, a, b, accumulate)                                    \
    TCONV_WGMMA(WGMMA_BF16, "k16.f32.bf16.bf16", ", 0, 0", N, count, a, b, accumulate)
TCONV_WGMMAS(64, 32, 32, 33, 34)
TCONV_WGMMAS(80, 40, 40, 41, 42)
TCONV_WGMMAS(88, 44, 44, 45, 46)
TCONV_WGMMAS(96, 48, 48, 49, 50)
TCONV_WGMMAS(104, 52, 52, 53, 54)
TCONV_WGMMAS(128, 64, 64, 65, 66)
TCONV_WGMMA(WGMMA_F16_MN_MAJOR, "k16.f32.f16.f16", ", 0, 1", 104, 52, 52, 53, 54)
TCONV_WGMMA(WGMMA_F16_MN_MAJOR, "k16.f32.f16.f16", ", 0, 1", 128, 64, 64, 65, 66)
TCONV_WGMMA(WGMMA_BF16_MN_MAJOR, "k16.f32.bf16.bf16", ", 0, 1", 104, 52, 52, 53, 54)
TCONV_WGMMA(WGMMA_BF16_MN_MAJOR, "k16.f32.bf16.bf16", ", 0, 1", 128, 64, 64, 65, 66)
#define TCONV_WGMMAS_BOTH(N, count, a, b, accumulate)                                                                  \
    TCONV_WGMMA(WGMMA_F16_BOTH, "k16.f32.f16.f16", ", 1, 1", N, count, a, b, accumulate)                               \
    TCONV_WGMMA(WGMMA_BF16_BOTH, "k16.f32.bf16.bf16", ", 1, 1", N, count, a, b, accumulate)
TCONV_WGMMAS_BOTH(8, 4, 4, 5, 6)
TCONV_WGMMAS_BOTH(64, 32, 32, 33, 34)
TCONV_WGMMAS_BOTH(128, 64, 64, 65, 66)
TCONV_WGMMAS_BOTH(192, 96, 96, 97, 98)
TCONV_WGMMAS_BOTH(256, 128, 128, 129, 130)
#undef TCONV_WGMMAS_BOTH
#undef TCONV_WGMMAS
#undef TCONV_WGMMA

/* The same with a in registers: a thread has rows lane / 4 and 8 on of its warp's 16, of the 4 bytes of K of number
 * lane % 4, then both of 4 such numbers on. The sums begin at number first of a thread's. */
template <wgmma_type type, int N> struct wgmma_rs;

/* flags: for 16-bit types, that b is K-major. */
#define TCONV_WGMMA(type, shape, flags, N, count, a0, a1, a2, a3, b, accumulate_)                                      \
    template <> struct wgmma_rs<type, N> {                                                                             \
        template <int first = 0, int all>                                                                              \
        static __device__ __forceinline__ void add(float (&sums)[all], const uint32_t (&a)[4], uint64_t right,         \
                                                   int accumulate)                                                     \
        {                                                                                                              \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #accumulate_ ", 0;\n"                              \
                         "wgmma.mma_async.sync.aligned.m64n" #N shape " {" TCONV_NAMES_##count                         \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", adds, 1, 1" flags ";\n}"               \
                         : TCONV_SUMS_##count(first)                                                                   \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "r"(accumulate));                   \
        }                                                                                                              \
    };
#define TCONV_WGMMA_TF32(N, count, a0, a1, a2, a3, b, accumulate)                                                      \
    TCONV_WGMMA(WGMMA_TF32, "k8.f32.tf32.tf32", "", N, count, a0, a1, a2, a3, b, accumulate)
#define TCONV_WGMMAS(N, count, a0, a1, a2, a3, b, accumulate)                                                          \
    TCONV_WGMMA_TF32(N, count, a0, a1, a2, a3, b, accumulate)                                                          \
    TCONV_WGMMA(WGMMA_F16, "k16.f32.f16.f16", ", 0", N, count, a0, a1, a2, a3, b, accumulate)                          \
    TCONV_WGMMA(WGMMA_BF16, "k16.f32.bf16.bf16", ", 0", N, count, a0, a1, a2, a3, b, accumulate)
#define TCONV_WGMMAS_MN_MAJOR(N, count, a0, a1, a2, a3, b, accumulate)                                                 \
    TCONV_WGMMA(WGMMA_F16_MN_MAJOR, "k16.f32.f16.f16", ", 1", N, count, a0, a1, a2, a3, b, accumulate)                 \
    TCONV_WGMMA(WGMMA_BF16_MN_MAJOR, "k16.f32.bf16.bf16", ", 1", N, count, a0, a1, a2, a3, b, accumulate)
TCONV_WGMMAS(24, 12, 12, 13, 14, 15, 16, 17)
TCONV_WGMMAS(32, 16, 16, 17, 18, 19, 20, 21)
TCONV_WGMMAS(48, 24, 24, 25, 26, 27, 28, 29)
TCONV_WGMMAS(64, 32, 32, 33, 34, 35, 36, 37)
TCONV_WGMMAS(80, 40, 40, 41, 42, 43, 44, 45)
TCONV_WGMMAS(96, 48, 48, 49, 50, 51, 52, 53)
TCONV_WGMMAS(120, 60, 60, 61, 62, 63, 64, 65)
TCONV_WGMMAS(144, 72, 72, 73, 74, 75, 76, 77)
TCONV_WGMMAS(168, 84, 84, 85, 86, 87, 88, 89)
TCONV_WGMMAS(128, 64, 64, 65, 66, 67, 68, 69)
TCONV_WGMMAS_MN_MAJOR(64, 32, 32, 33, 34, 35, 36, 37)
TCONV_WGMMAS_MN_MAJOR(128, 64, 64, 65, 66, 67, 68, 69)
TCONV_WGMMA_TF32(256, 128, 128, 129, 130, 131, 132, 133)
#undef TCONV_WGMMAS_MN_MAJOR
#undef TCONV_WGMMAS
#undef TCONV_WGMMA_TF32
#undef TCONV_WGMMA

} // namespace tconv

#endif
