/* src/cuda/ptx/tma.cuh: bulk copies and boxes of tensors. */
#include "families.h"
#include "hopper.cuh"

namespace tconv::check
{

namespace
{

/* ------------------------------------------------------------------------------------------------- boxes of tensors */

/* ------------------------------------------------------------------------------------------------------ bulk copies */

constexpr int BULK_BYTES = 4096;

/* Block 0 of each cluster copies to itself, and half of the bytes to both blocks; each block then stores what it has by
 * bulk stores. */
__global__ void TCONV_CHECK_CLUSTER_OF_2 copy_bulk(const char *from, char *to, int bytes)
{
#ifdef TCONV_CHECK_HOPPER
    __shared__ alignas(128) char memory[2 * BULK_BYTES];
    __shared__ uint64_t barrier_memory;
    const uint32_t barrier = shared_address(&barrier_memory), at = shared_address(memory);
    const int rank = (int)blockIdx.x % 2;
    for (int i = (int)threadIdx.x; i < 2 * BULK_BYTES; i += (int)blockDim.x)
        memory[i] = 0x55;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init_fence();
    }
    fence_proxy_async();
    __syncthreads();
    cluster_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(barrier, rank == 0 ? 2 * bytes : bytes);
        if (rank == 0) {
            bulk_load(at, from, bytes, barrier);
            bulk_load_multicast(at + BULK_BYTES, from + bytes, bytes, barrier, 3);
        }
        mbarrier_wait(barrier, 0);
        bulk_store(to + rank * 2 * BULK_BYTES, at, BULK_BYTES);
        bulk_store_commit();
        bulk_store(to + rank * 2 * BULK_BYTES + BULK_BYTES, at + BULK_BYTES, BULK_BYTES);
        bulk_store_commit();
        bulk_store_wait_read<1>();
        bulk_store_wait_read<0>();
        bulk_store_wait();
    }
    cluster_sync();
#endif
}

void check_bulk()
{
    for (int bytes : {16, 48, 2048, BULK_BYTES}) {
        std::vector<uint8_t> from(2 * (size_t)bytes), wanted(4 * BULK_BYTES, 0x55);
        for (uint8_t &byte : from)
            byte = (uint8_t)random_bits();
        memcpy(&wanted[0], &from[0], (size_t)bytes);
        for (int rank = 0; rank < 2; rank++)
            memcpy(&wanted[(size_t)(2 * rank + 1) * BULK_BYTES], &from[(size_t)bytes], (size_t)bytes);
        begin_case("%d bytes", bytes);
        const device_buffer src = input("src", from, 16), dst = output("dst", wanted.size(), 16);
        copy_bulk<<<2, 64>>>(src.as<char>(), dst.as<char>(), bytes);
        finish_kernels();
        compare_bits<uint8_t>(dst, wanted);
    }
}

/* ------------------------------------------------------------------------------------------------- boxes of tensors */

/* Both blocks of a cluster write out the box that they have: one copies it for both where `multicast`. */
__global__ void TCONV_CHECK_CLUSTER_OF_2 copy_box(const __grid_constant__ CUtensorMap map, int x, int y, int z, int w,
                                                  int bytes, bool multicast, char *to)
{
#ifdef TCONV_CHECK_HOPPER
    extern __shared__ __align__(1024) char box[];
    __shared__ uint64_t barrier_memory;
    const uint32_t barrier = shared_address(&barrier_memory);
    const int rank = (int)blockIdx.x;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init_fence();
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(barrier, bytes);
        if (!multicast)
            tma_load(shared_address(box), &map, x, y, z, w, barrier);
        else if (rank == 0)
            tma_load_multicast(shared_address(box), &map, x, y, z, w, barrier, 3);
    }
    mbarrier_wait(barrier, 0);
    for (int i = (int)threadIdx.x; i < bytes; i += (int)blockDim.x)
        to[rank * bytes + i] = box[i];
    cluster_sync();
#endif
}

struct box_case {
    tconv_dtype dtype;
    int swizzle; /* bytes; 0: none */
    bool rounds, multicast;
    int extents[4], box[4], at[4];
};

/* Rounds to TF32 as a tensor map does: ties to even. */
uint32_t tf32_ties_to_even(uint32_t bits)
{
    return (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000u;
}

void check_box(const box_case &box)
{
    const size_t element = box.dtype == TCONV_F32 ? 4 : 2;
    const size_t row = ((size_t)box.extents[0] * element + 15) / 16 * 16, plane = row * box.extents[1],
                 image = plane * box.extents[2];
    std::vector<uint8_t> from(image * box.extents[3]);
    for (size_t i = 0; i < from.size(); i += 4) {
        const uint32_t word = element == 4 ? bits_of(random_real()) : random_bits();
        memcpy(&from[i], &word, 4);
    }
    const size_t bytes = element * box.box[0] * box.box[1] * box.box[2] * box.box[3];
    std::vector<uint8_t> wanted(2 * bytes);
    for (size_t i = 0; i < bytes; i += element) {
        size_t rest = i / element;
        int at[4];
        bool inside = true;
        for (int axis = 0; axis < 4; axis++) {
            at[axis] = box.at[axis] + (int)(rest % box.box[axis]);
            rest /= box.box[axis];
            inside = inside && at[axis] >= 0 && at[axis] < box.extents[axis];
        }
        uint32_t value = 0;
        if (inside)
            memcpy(&value, &from[at[0] * element + at[1] * row + at[2] * plane + at[3] * image], element);
        if (box.rounds)
            value = tf32_ties_to_even(value);
        const size_t to = swizzled((uint32_t)i, box.swizzle);
        memcpy(&wanted[to], &value, element);
        memcpy(&wanted[bytes + to], &value, element);
    }
    begin_case("dtype %d, swizzle %d, %s%sbox %dx%dx%dx%d at %d %d %d %d", (int)box.dtype, box.swizzle,
               box.rounds ? "rounded, " : "", box.multicast ? "multicast, " : "", box.box[0], box.box[1], box.box[2],
               box.box[3], box.at[0], box.at[1], box.at[2], box.at[3]);
    const device_buffer src = input("src", from), dst = output("dst", 2 * bytes);
    tensor_map_recipe recipe = {};
    recipe.dtype = box.dtype;
    recipe.swizzle = box.swizzle == 128  ? SWIZZLE_128B
                     : box.swizzle == 64 ? SWIZZLE_64B
                     : box.swizzle == 32 ? SWIZZLE_32B
                                         : SWIZZLE_NONE;
    for (int axis = 0; axis < 4; axis++) {
        recipe.extents[axis] = (cuuint64_t)box.extents[axis];
        recipe.box[axis] = (cuuint32_t)box.box[axis];
    }
    recipe.strides[0] = row;
    recipe.strides[1] = plane;
    recipe.strides[2] = image;
    recipe.rounds = box.rounds;
    allow_shared_bytes(copy_box, 64 * 1024);
    copy_box<<<2, 128, bytes>>>(tensor_map_of(recipe, src.data), box.at[0], box.at[1], box.at[2], box.at[3], (int)bytes,
                                box.multicast, dst.as<char>());
    finish_kernels();
    compare_bits<uint8_t>(dst, wanted);
}

void check_boxes()
{
    static const box_case cases[] = {
        {TCONV_F32, 0, false, false, {33, 9, 5, 2}, {12, 3, 4, 1}, {4, 2, 0, 1}},
        {TCONV_F32, 0, false, false, {33, 9, 5, 2}, {40, 4, 8, 1}, {-4, -1, -2, 0}},
        {TCONV_F32, 0, true, false, {33, 9, 5, 2}, {36, 11, 2, 2}, {0, -1, 3, 0}},
        {TCONV_F32, 0, false, true, {64, 9, 8, 1}, {32, 4, 8, 1}, {-4, 6, 0, 0}},
        {TCONV_F16, 0, false, false, {40, 7, 9, 2}, {24, 5, 8, 1}, {-8, 3, 1, 1}},
        {TCONV_BF16, 0, false, true, {40, 7, 9, 2}, {24, 5, 8, 2}, {32, 3, 1, 0}},
    };
    for (const box_case &box : cases)
        check_box(box);
}

void check_swizzled_boxes()
{
    static const box_case cases[] = {
        {TCONV_F32, 128, false, false, {64, 12, 7, 2}, {32, 10, 3, 1}, {32, -1, 5, 1}},
        {TCONV_F32, 128, true, true, {64, 12, 7, 2}, {32, 16, 3, 1}, {-8, -1, -1, 0}},
        {TCONV_F16, 128, false, false, {72, 12, 7, 2}, {64, 10, 3, 2}, {8, -1, 5, 0}},
        {TCONV_BF16, 128, false, true, {72, 12, 7, 2}, {64, 10, 8, 1}, {16, 4, -3, 0}},
        {TCONV_F32, 64, true, false, {64, 12, 7, 2}, {16, 10, 3, 1}, {56, -1, 5, 1}},
        {TCONV_F16, 64, false, false, {72, 12, 7, 2}, {32, 10, 3, 1}, {48, -1, 5, 1}},
        {TCONV_BF16, 32, false, false, {72, 12, 7, 2}, {16, 10, 3, 1}, {64, -1, 5, 1}},
    };
    for (const box_case &box : cases)
        check_box(box);
}

/* ------------------------------------------------------------------------------------------------------------ rates */

constexpr int RATE_STAGES = 6, RATE_STAGE_BYTES = 16 * 1024;

/* Every block brings boxes or bulk copies into its stages, and nobody reads them. */
__global__ void stream_boxes(const __grid_constant__ CUtensorMap map, const char *from, bool boxes, int rounds,
                             int planes)
{
#ifdef TCONV_CHECK_HOPPER
    extern __shared__ __align__(1024) char stages[];
    __shared__ uint64_t barriers[RATE_STAGES];
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < RATE_STAGES; i++)
        mbarrier_init(shared_address(barriers + i), 1);
    mbarrier_init_fence();
    for (int i = 0; i < rounds + RATE_STAGES; i++) {
        const uint32_t barrier = shared_address(barriers + i % RATE_STAGES);
        if (i >= RATE_STAGES)
            mbarrier_wait(barrier, (i / RATE_STAGES - 1) & 1);
        if (i >= rounds)
            continue;
        const int plane = (int)((blockIdx.x * 977u + i) % planes);
        const uint32_t to = shared_address(stages) + i % RATE_STAGES * RATE_STAGE_BYTES;
        mbarrier_arrive_expect_tx(barrier, RATE_STAGE_BYTES);
        if (boxes)
            tma_load(to, &map, 0, 0, plane, 0, barrier);
        else
            bulk_load(to, from + (size_t)plane * RATE_STAGE_BYTES, RATE_STAGE_BYTES, barrier);
    }
#endif
}

void bench_boxes(bool boxes)
{
    constexpr int ROUNDS = 512;
    struct {
        const char *text;
        int planes;
        double most;
    } const kinds[] = {{"of L2", 512, l2_rate()}, {"of device memory", 32768, dram_rate()}};
    for (const auto &kind : kinds) {
        begin_case("rate");
        const device_buffer src = output("src", (size_t)kind.planes * RATE_STAGE_BYTES);
        tensor_map_recipe recipe = {};
        recipe.dtype = TCONV_F32;
        recipe.swizzle = SWIZZLE_128B;
        const cuuint64_t extents[4] = {32, 128, (cuuint64_t)kind.planes, 1};
        const cuuint32_t box[4] = {32, 128, 1, 1};
        for (int axis = 0; axis < 4; axis++) {
            recipe.extents[axis] = extents[axis];
            recipe.box[axis] = box[axis];
        }
        recipe.strides[0] = 128;
        recipe.strides[1] = recipe.strides[2] = RATE_STAGE_BYTES;
        const CUtensorMap map = tensor_map_of(recipe, src.data);
        const int blocks = 2 * machine().multiprocessors;
        const size_t shared_bytes = (size_t)RATE_STAGES * RATE_STAGE_BYTES;
        allow_shared_bytes(stream_boxes, shared_bytes);
        rate(
            kind.text,
            [&] { stream_boxes<<<blocks, 32, shared_bytes>>>(map, src.as<char>(), boxes, ROUNDS, kind.planes); },
            (double)blocks * ROUNDS * RATE_STAGE_BYTES, "GB/s", kind.most);
    }
}

void bench_swizzled_boxes()
{
    bench_boxes(true);
}
void bench_bulk()
{
    bench_boxes(false);
}

const entry entries[] = {
    {"cuda/ptx/tma boxes", check_boxes, nullptr, true},
    {"cuda/ptx/tma boxes swizzled", check_swizzled_boxes, bench_swizzled_boxes, true},
    {"cuda/ptx/bulk copies", check_bulk, bench_bulk, true},
};

} // namespace

void check_ptx_tma()
{
    check_entries(entries);
}

} // namespace tconv::check
