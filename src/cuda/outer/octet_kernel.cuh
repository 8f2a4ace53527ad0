/*
 * The kernel of cuda_outer for Hopper whose operands are 16 bits and lie by octets (NCHW): the tiles, K-tiles and rows of slots
 * of kernel.cuh, both operands K-major in shared memory, as octet_operands.cuh has them; nothing is transposed. M are input
 * channels; N are the output channels of a chunk for all taps of a row of the group, and each row of taps is a product of its
 * own, whose octets are so many rows of slots on. The warpgroups have 64 input channels each, or all of 64 and half of the
 * output channels.
 *
 * Numeric order: as in kernel.cuh.
 */
#ifndef TCONV_CUDA_OUTER_OCTET_KERNEL_CUH
#define TCONV_CUDA_OUTER_OCTET_KERNEL_CUH

#include "octet_operands.cuh"
#include "warpgroup_kernel.cuh"

namespace tconv::outer
{

constexpr int OCTET_STEP = 16, OCTET_STEPS = OCTET_PIXELS / OCTET_STEP; /* pixels of an MMA; MMAs of a K-tile */
/* Fills the stages. The windows of the next K-tile come to memory of the thread's own while it picks those of one. */
template <int stride, int octets>
__device__ __forceinline__ void produce_octets(const parameters &p, const block_tile &block, const octet_tables &tables,
                                               uint32_t windows, const stage_ring &ring, int first, int count)
{
    constexpr int MOST_SHIFT = OCTET * octets - 1 - (OCTET - 1) * stride, NEXT = PRODUCERS * OCTET_BYTES;
    const int thread = (int)threadIdx.x - CONSUMERS, chunk = (int)p.tiles.chunk;
    const int octets_log2 = p.columns.tile_log2 - 3, m_log2 = 31 - __clz(p.tiles.block_m);
    const int chunk_log2 = 32 - __clz(chunk - 1);
    const int items = ((tables.row_count << (octets_log2 + chunk_log2)) + PRODUCERS - 1) / PRODUCERS;
    const int last = tables.first_shift + (tables.taps - 1) * p.octets.tap_step + (OCTET - 1) * stride;
    windows += thread * OCTET_BYTES;
    const auto copy_src = [&](const k_walk &walk, uint32_t to) {
        const origin from = src_origin<uint16_t>(p, block, walk);
#pragma unroll 1
        for (int i = thread; i < OCTET_PIXELS / OCTET * p.tiles.block_m; i += PRODUCERS) {
            const octet_item item(i, octets_log2, m_log2);
            const int number = item.row << octets_log2 | item.octet;
            const place at = tables.octets[number];
            copy_octet(to + number * p.src_pitch + item.channel * OCTET_BYTES, p.src_unit,
                       from.data + at.offset + item.channel * from.channel_stride, from.column + at.column,
                       from.columns, item.channel < from.channels && from.has_row(at));
        }
    };
    const auto copy_windows = [&](const k_walk &walk, uint32_t to) {
        const origin from = dst_origin<uint16_t>(p, block, walk);
#pragma unroll 1
        for (int i = 0; i < items; i++, to += octets * NEXT) {
            const octet_item item(thread + i * PRODUCERS, octets_log2, chunk_log2);
            if (item.row >= tables.row_count || item.channel >= chunk)
                continue;
            const place at = tables.rows[item.row];
            const int on = item.octet * OCTET * stride, column = from.column + at.column + on;
            const char *data = from.data + at.offset + on * (int)sizeof(uint16_t) + item.channel * from.channel_stride;
            const bool exists = item.channel < from.channels && from.has_row(at);
#pragma unroll
            for (int j = 0; j < octets; j++)
                if ((j + 1) * OCTET > tables.first_shift && j * OCTET <= last)
                    copy_octet(to + j * NEXT, p.dst_unit, data + j * OCTET_BYTES, column + j * OCTET, from.columns,
                               exists);
        }
    };
    const auto pick_windows = [&](uint32_t from, uint32_t slots) {
#pragma unroll 1
        for (int i = 0; i < items; i++, from += octets * NEXT) {
            const octet_item item(thread + i * PRODUCERS, octets_log2, chunk_log2);
            if (item.row >= tables.row_count || item.channel >= chunk)
                continue;
            const int channel = item.channel < p.octets.channels
                                    ? item.channel
                                    : item.channel - p.octets.channels + p.octets.part_rows;
            uint32_t to = slots + item.row * p.row_pitch + item.octet * p.column_pitch + channel * OCTET_BYTES;
            uint32_t window[4 * octets];
#pragma unroll
            for (int j = 0; j < octets; j++) {
                const uint4 words = load_shared<uint4>(from + j * NEXT);
                window[4 * j] = words.x, window[4 * j + 1] = words.y, window[4 * j + 2] = words.z,
                           window[4 * j + 3] = words.w;
            }
            int shift = tables.first_shift;
#pragma unroll 1
            for (int tap = 0; tap < tables.taps; tap++, shift += p.octets.tap_step) {
                with_shift<MOST_SHIFT>(shift, [&](auto known) {
                    store_shared(to, pick_octet<stride, known, octets>(window));
                });
                to += p.octets.channels * OCTET_BYTES;
            }
        }
    };
    stage_walk stage(ring, 1);
    k_walk walk, next;
    walk.begin(p, first);
    next = walk;
    copy_windows(walk, windows);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next(), walk = next) {
        cp_async_wait_all();
        stage.wait_empty();
        copy_src(walk, stage.buffer());
        cp_async_arrive(stage.full());
        next.advance(p);
        if (k + 1 < count)
            copy_windows(next, windows + (k + 1) % 2 * items * octets * NEXT);
        pick_windows(windows + k % 2 * items * octets * NEXT, stage.buffer() + p.src_bytes);
        stage.signal_written(thread % LANES);
    }
    cp_async_wait_all();
}

/* Multiplies the stages: the MMAs of a K-tile are a commit group, and its stage is released when those of the next are on
 * their way. */
template <mode MODE, bool halves, int N, int ROWS>
__device__ __forceinline__ void consume_octets(const parameters &p, const block_tile &block, const stage_ring &ring,
                                               int count, float *slice, float *stages, int warp, int lane)
{
    using Product = wgmma_ss<TYPE_OF<MODE, false>, N>;
    const int warpgroup = warp / WARPGROUP_WARPS, octets_log2 = p.columns.tile_log2 - 3;
    /* Of each step the octets of src and, for taps without offset, of the outputs; of each row of taps its slots. All in
     * units of 16 bytes, a step's with how far the second octet is from the first. */
    uint32_t src_steps[OCTET_STEPS], dst_steps[OCTET_STEPS], rows[ROWS];
    const auto slots_of = [&](int octet) {
        const int row = octet >> octets_log2, in_image = row & ((1 << p.rows.tile_log2) - 1);
        return ((row >> p.rows.tile_log2) * p.rows.extent + in_image) * p.row_pitch +
               (octet & ((1 << octets_log2) - 1)) * p.column_pitch;
    };
#pragma unroll
    for (int s = 0; s < OCTET_STEPS; s++) {
        src_steps[s] = descriptor_low(2 * s * p.src_pitch + (halves ? 0 : warpgroup * MMA_M * OCTET_BYTES),
                                      (uint32_t)p.src_pitch);
        dst_steps[s] =
            descriptor_low(slots_of(2 * s) + p.src_bytes + (halves ? warpgroup * p.octets.part_rows * OCTET_BYTES : 0),
                           (uint32_t)(slots_of(2 * s + 1) - slots_of(2 * s)));
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = block.at.row_group * p.tiles.rows.group_taps + i;
        const bool exists = i < p.tiles.rows.group_taps && row < p.tiles.rows.kernel;
        rows[i] = exists ? ((p.rows.tap_residue[row] * p.rows.extent << p.images_log2) + p.rows.tap_slot[row]) *
                               p.row_pitch / OCTET_BYTES
                         : 0;
    }
    float sums[ROWS][N / 2];
    const auto store = [&](bool adds, float *to, bool as_weights) {
        int channel = warp % WARPGROUP_WARPS * WARP_M + lane / 4 + (halves ? 0 : warpgroup * MMA_M);
        asm volatile("" : "+r"(channel)); /* or where sums go is kept in registers through the main loop */
        const int64_t pitch = as_weights ? p.weights.pitch : p.tiles.block_n;
        to += channel * pitch;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int pair = i * p.tiles.columns.group_taps * (int)p.tiles.chunk + (halves ? warpgroup * p.octets.channels : 0);
            int left = p.octets.channels, taps = p.tiles.columns.group_taps;
            if (i >= p.tiles.rows.group_taps)
                break;
#pragma unroll
            for (int n = 0; n < N / 2; n += 4) {
                const int at[2] = {pair + lane % 4 * 2, pair + lane % 4 * 2 + 1};
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float *sum =
                        to + (as_weights ? skewed(weight_number(p, at[j % 2])) : at[j % 2]) + j / 2 * CORE_ROWS * pitch;
                    if (taps > 0)
                        *sum = adds ? *sum + sums[i][n + j] : sums[i][n + j];
                }
                pair += OCTET;
                left -= OCTET;
                if (left == 0) {
                    left = p.octets.channels;
                    pair += (int)p.tiles.chunk - p.octets.channels;
                    taps--;
                }
            }
        }
    };
    bool flushed = false;
    int until_flush = p.flush_tiles, accumulate = 0;
    uint32_t release = 0; /* the empty barrier of the stage before */
    stage_walk stage(ring, 0);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next()) {
        stage.wait_full();
        fence_proxy_async(); /* what cp.async has written is for wgmma to read */
        const uint32_t buffer = descriptor_address(stage.buffer());
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < OCTET_STEPS; s++) {
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                Product::add(sums[i], descriptor(src_steps[s] + buffer), descriptor(dst_steps[s] + buffer + rows[i]),
                             accumulate);
            accumulate = 1;
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (release != 0)
            signal_for_warp(release, lane);
        release = stage.empty();
        if (--until_flush == 0) {
            wgmma_wait<0>();
            store(flushed, slice, false);
            flushed = true;
            accumulate = 0;
            until_flush = p.flush_tiles;
        }
    }
    wgmma_wait<0>();
    if (!accumulate)
        return;
    const bool writes = p.weights.at != NULL;
    if (writes)
        named_barrier_sync<CONSUMERS>();
    store(flushed, writes ? stages : slice, writes);
    if (writes) {
        named_barrier_sync<CONSUMERS>();
        write_weights<element_of<MODE>>(p, {(int)threadIdx.x, CONSUMERS}, stages);
    }
}

/* Calls `what` with the stride and the octets of a window as constants. */
template <class Do> __device__ __forceinline__ void with_window(int stride, int octets, Do what)
{
    using std::integral_constant;
    if (stride == 1 && octets == 2)
        what(integral_constant<int, 1>(), integral_constant<int, 2>());
    else if (stride == 1)
        what(integral_constant<int, 1>(), integral_constant<int, 3>());
    else if (stride == 2 && octets == 2)
        what(integral_constant<int, 2>(), integral_constant<int, 2>());
    else if (stride == 2)
        what(integral_constant<int, 2>(), integral_constant<int, 3>());
    else
        what(integral_constant<int, 4>(), integral_constant<int, 5>());
}

template <mode MODE, bool halves, int N, int ROWS>
__global__ void TCONV_HOPPER_BOUNDS(WARPGROUP_BLOCK_THREADS)
    octet_kernel(const __grid_constant__ parameters p, const __grid_constant__ tensor_maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(STAGE_ALIGNMENT) char shared[]; /* the stages, the barriers and the tables */
    char *barriers = shared + p.stages * p.stage_bytes;
    const int warp = warp_of_block();
    const int64_t number = blockIdx.x % p.tiles.count;
    const int split = (int)(blockIdx.x / p.tiles.count);
    const block_tile block = find_block(p, number);
    const int first = (int)((int64_t)p.k_tiles * split / p.splits);
    const int count = (int)((int64_t)p.k_tiles * (split + 1) / p.splits) - first;
    const stage_ring ring = {shared_address(barriers), shared_address(shared), (uint32_t)p.stage_bytes, p.stages};
    if (threadIdx.x == 0) {
        ring.init(PRODUCERS + PRODUCERS / LANES * WARP_ARRIVALS, CONSUMERS / LANES * WARP_ARRIVALS);
        mbarrier_init_fence();
    }
    const octet_tables tables = make_octet_tables(p, block, barriers + BARRIER_BYTES);
    __syncthreads();
    if (warp < CONSUMERS / LANES) {
        setmaxnreg_increase<CONSUMER_REGISTERS>();
        float *slice = p.slices + (split * p.tiles.count + number) * p.tiles.block_m * p.tiles.block_n;
        consume_octets<MODE, halves, N, ROWS>(p, block, ring, count, slice, reinterpret_cast<float *>(shared), warp,
                                              (int)threadIdx.x % LANES);
    } else {
        setmaxnreg_decrease<PRODUCER_REGISTERS>();
        with_window(p.columns.stride, p.octets.window_octets, [&](auto stride, auto octets) {
            produce_octets<stride, octets>(p, block, tables,
                                           shared_address(shared) + p.stages * p.stage_bytes + p.octets.windows_at, ring,
                                           first, count);
        });
    }
#endif
}

template <mode MODE, bool halves, int N, int ROWS> kernel_choice octets()
{
    kernel_choice made = {};
    made.functions[OCTETS] = (const void *)octet_kernel<MODE, halves, N, ROWS>;
    made.channels = halves ? MMA_M : WARPGROUPS * MMA_M;
    made.pairs = N;
    made.rows = ROWS;
    made.resident_warps = WARPGROUP_BLOCK_THREADS / LANES;
    made.most_pixels = OCTET_PIXELS;
    made.by_warpgroups = made.by_octets = true;
    return made;
}

} // namespace tconv::outer

#endif
