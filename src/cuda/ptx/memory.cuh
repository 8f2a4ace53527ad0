/* Memory accesses of 16 bytes and less: asynchronous copies into shared memory, and stores that leave the caches to the
 * loads. */
#ifndef TCONV_CUDA_PTX_MEMORY_CUH
#define TCONV_CUDA_PTX_MEMORY_CUH

#include <cstdint>
#include <cstring>

namespace tconv
{

__device__ __forceinline__ uint32_t shared_address(const void *memory)
{
    return (uint32_t)__cvta_generic_to_shared(memory);
}

/* Loads a value of 2, 4, 8 or 16 bytes of shared memory at once. These loads stay in their order and before what
 * follows them, so that several are under way. */
template <class Value> __device__ __forceinline__ Value load_shared(uint32_t address)
{
    constexpr int BYTES = sizeof(Value);
    static_assert(BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES == 16, "one load");
    Value value;
    if constexpr (BYTES == 2) {
        uint16_t bits;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address) : "memory");
        memcpy(&value, &bits, BYTES);
    } else if constexpr (BYTES == 4) {
        uint32_t bits;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(address) : "memory");
        memcpy(&value, &bits, BYTES);
    } else if constexpr (BYTES == 8) {
        uint32_t words[2];
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
        memcpy(&value, words, BYTES);
    } else {
        uint32_t words[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
        memcpy(&value, words, BYTES);
    }
    return value;
}

/* Loads 16 bytes of the shared memory of the cluster's block `rank`, where they lie as at an address of this block's. These
 * loads stay in their order, too. */
template <class Value> __device__ __forceinline__ Value load_cluster(uint32_t address, int rank)
{
    static_assert(sizeof(Value) == 16, "one load");
    uint32_t there, words[4];
    Value value;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(there)
                 : "memory");
    memcpy(&value, words, sizeof value);
    return value;
}

/* Stores a value of 4, 8 or 16 bytes to shared memory at once. */
template <class Value> __device__ __forceinline__ void store_shared(uint32_t address, const Value &value)
{
    constexpr int BYTES = sizeof(Value);
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "one store");
    uint32_t words[BYTES / 4];
    memcpy(words, &value, BYTES);
    if constexpr (BYTES == 4)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(words[0]) : "memory");
    else if constexpr (BYTES == 8)
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(words[0]), "r"(words[1]) : "memory");
    else
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]),
                     "r"(words[2]), "r"(words[3])
                     : "memory");
}

/* Load what no kernel under way writes, zeros where it does not exist: without a branch, so that several loads are under way. */
__device__ __forceinline__ uint4 load_if(bool exists, const uint4 *from)
{
    uint4 value;
    asm("{\n"
        ".reg .pred exists;\n"
        "setp.ne.u32 exists, %5, 0;\n"
        "mov.u32 %0, 0;\n"
        "mov.u32 %1, 0;\n"
        "mov.u32 %2, 0;\n"
        "mov.u32 %3, 0;\n"
        "@exists ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "=&r"(value.x), "=&r"(value.y), "=&r"(value.z), "=&r"(value.w)
        : "l"(from), "r"((uint32_t)exists));
    return value;
}
__device__ __forceinline__ uint32_t load_if(bool exists, const uint32_t *from)
{
    uint32_t value;
    asm("{\n"
        ".reg .pred exists;\n"
        "setp.ne.u32 exists, %2, 0;\n"
        "mov.u32 %0, 0;\n"
        "@exists ld.global.nc.u32 %0, [%1];\n"
        "}"
        : "=&r"(value)
        : "l"(from), "r"((uint32_t)exists));
    return value;
}
__device__ __forceinline__ uint16_t load_if(bool exists, const uint16_t *from)
{
    uint16_t value;
    asm("{\n"
        ".reg .pred exists;\n"
        "setp.ne.u32 exists, %2, 0;\n"
        "mov.u16 %0, 0;\n"
        "@exists ld.global.nc.u16 %0, [%1];\n"
        "}"
        : "=&h"(value)
        : "l"(from), "r"((uint32_t)exists));
    return value;
}

/* Asks for a line of device memory to be brought to the second-level cache. */
__device__ __forceinline__ void prefetch(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

/* Accesses of 8 bytes of shared memory. */
__device__ __forceinline__ void store_shared_8(uint32_t address, int64_t value)
{
    asm volatile("st.shared.b64 [%0], %1;" ::"r"(address), "l"(value) : "memory");
}

__device__ __forceinline__ int64_t load_shared_8(uint32_t address)
{
    int64_t value;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(value) : "r"(address));
    return value;
}

constexpr int ACCESS_BYTES = 16; /* the most that one thread loads, copies or stores at once */

/* The elements of an access. */
template <class Element> constexpr int access_length = ACCESS_BYTES / (int)sizeof(Element);

/* Copies `size` bytes (4, 8 or 16; both addresses are multiples of it) to shared memory: the first `bytes` are read,
 * the others become zeros. Those of 16 bytes pass the first-level cache by. */
template <int size> static __device__ __forceinline__ void cp_async_padded(uint32_t to, const void *from, int bytes)
{
    if constexpr (size == ACCESS_BYTES)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes), "n"(size)
                     : "memory");
}

/* Copies an aligned access to shared memory; zeros where it does not exist, and then `from` is not read. */
static __device__ __forceinline__ void cp_async(void *shared, const void *from, bool exists)
{
    cp_async_padded<ACCESS_BYTES>(shared_address(shared), from, exists ? ACCESS_BYTES : 0);
}

/* The same, and brings the whole line of 128 bytes to the second-level cache, where it is read 16 bytes here and
 * there. */
static __device__ __forceinline__ void cp_async_line(void *shared, const void *from, bool exists)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    const int bytes = exists ? ACCESS_BYTES : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Ends a commit group of this thread's copies. */
static __device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Has the barrier count an arrival when this thread's copies so far are done: one of those that it counts anyway. */
static __device__ __forceinline__ void cp_async_arrive(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Waits until at most `pending` of this thread's commit groups are under way. */
template <int pending> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* Waits for all copies of this thread, in groups or not. */
static __device__ __forceinline__ void cp_async_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Stores 16 bytes that are not read again soon. */
static __device__ __forceinline__ void store_streaming(void *to, const void *vector)
{
    int4 bits;
    memcpy(&bits, vector, sizeof bits);
    __stcs(static_cast<int4 *>(to), bits);
}

} // namespace tconv

#endif
