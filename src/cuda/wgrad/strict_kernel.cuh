/*
 * The kernel of warpgroup_kernel.cuh in strict f32: each factor is split in big and small parts, and a product is three
 * of TF32. Consumer warps split the pairs' fragments in registers. src lies in a stage twice: producer warps split what
 * they load; of what TMA brings, seven warps split boxes in place while one has TMA bring the next.
 *
 * Numeric order: tensor cores sum STRICT_STEPS steps of K from zero, small products first, since they lose bits of a sum
 * that is large. These sums are added plainly in f32, STRICT_ADDITIONS of them, and their totals in the slice with
 * compensation.
 */
#ifndef TCONV_CUDA_WGRAD_STRICT_KERNEL_CUH
#define TCONV_CUDA_WGRAD_STRICT_KERNEL_CUH

#include "../numeric/compensated.cuh"
#include "strict.h"
#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

constexpr int STRICT_CONSUMER_REGISTERS = 184, STRICT_PRODUCER_REGISTERS = 72; /* as in warpgroup_kernel.cuh */

/* Of a partial sum: its channels, and the pixels of the steps that it has. */
constexpr int PARTIAL_CHANNELS = 64, PARTIAL_PIXELS = STRICT_STEPS * MMA_K_BYTES / (int)sizeof(float);

/* Splits four factors that lie together, and stores both parts, `plane` apart. */
__device__ __forceinline__ void store_split(uint32_t to, uint32_t plane, uint4 big)
{
    uint4 small;
    round_factor<true>(big.x, &small.x);
    round_factor<true>(big.y, &small.y);
    round_factor<true>(big.z, &small.z);
    round_factor<true>(big.w, &small.w);
    store_shared(to, big);
    store_shared(to + plane, small);
}

/* Stores a block to both planes of the operand. */
template <load_mode LOAD>
__device__ __forceinline__ void store_split_block(const src_block &of, const block_place<float, LOAD> &at, uint32_t to,
                                                  uint32_t plane, int channels)
{
    to += (at.vector / VECTORS * channels + at.channel) * SWIZZLED_BYTES;
#pragma unroll
    for (int c = 0; c < BLOCK_CHANNELS; c++) {
        const auto word = [&](int i) { return LOAD == CHANNELS ? of.at[i][c] : of.at[c][i]; };
        store_split(to + c * SWIZZLED_BYTES + (at.vector ^ (at.channel + c)) % VECTORS * ACCESS_BYTES, plane,
                    make_uint4(word(0), word(1), word(2), word(3)));
    }
}

/* Splits boxes in place, wherever their elements lie. */
__device__ __forceinline__ void split_boxes(crew by, uint32_t boxes, uint32_t plane)
{
#pragma unroll 2
    for (uint32_t at = by.thread * ACCESS_BYTES; at < plane; at += by.threads * ACCESS_BYTES)
        store_split(boxes + at, plane, load_shared<uint4>(boxes + at));
}

/* Fills the stages where TMA brings src; raw: the first of the barriers of its boxes. */
static __device__ __forceinline__ void produce_split_boxes(const parameters &p, const tensor_maps *maps,
                                                           const block_tile &block, const tables &tables,
                                                           const stage_ring &ring, uint32_t raw, int first, int count)
{
    const crew by = {(int)threadIdx.x - CONSUMERS - WARP, PRODUCERS - WARP};
    const bool issues = by.thread < 0;
    const int lane = (int)threadIdx.x % WARP;
    const int of_dst = p.box_bytes > 0 ? block.row_residues : 0;
    const own_box dst_box = {issues && lane < of_dst ? make_own_box<float, LINES>(p, block, tables, lane).place : 0},
                  src_box = {issues ? make_own_box<float, LINES>(p, block, tables, of_dst + lane).place : 0};
    stage_walk stage(ring, 1);
    k_walk walk;
    walk.begin(p, first);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next()) {
        stage.wait_empty();
        const uint32_t slots = stage.buffer() + p.src_bytes, raw_full = raw + 8 * stage.state.at;
        if (issues) {
            dst_box.load<LINES>(p, maps, walk, stage.buffer(), stage.full());
            src_box.load<LINES>(p, maps, walk, stage.buffer(), raw_full);
            __syncwarp();
            if (lane == 0)
                mbarrier_arrive(raw_full);
        } else {
            if (p.box_bytes == 0)
                copy_lines_by_units<float>(p, block, by, slots, tables.slots, walk);
            mbarrier_wait(raw_full, stage.state.parity ^ 1);
            split_boxes(by, stage.buffer(), (uint32_t)p.src_bytes / STRICT_PLANES);
        }
        cp_async_arrive(stage.full());
        stage.signal_written(lane);
        walk.advance(p);
    }
    cp_async_wait_all();
}

/* Fills them where src goes through registers. */
template <int N, load_mode LOAD, load_mode SRC_LOAD>
__device__ __forceinline__ void produce_split(const parameters &p, const tensor_maps *maps, const block_tile &block,
                                              const tables &tables, const stage_ring &ring, int first, int count)
{
    const crew by = {(int)threadIdx.x - CONSUMERS, PRODUCERS};
    const own_box box = make_own_box<float, LOAD>(p, block, tables, box_of(by));
    const int vectors_log2 = p.images.tile_log2 + p.rows.tile_log2 + p.columns.tile_log2 - 2;
    const bool has_block = by.thread < N / BLOCK_CHANNELS << vectors_log2;
    src_block held;
    const block_place<float, SRC_LOAD> place(by.thread, vectors_log2, tables.inputs);
    const auto load_ahead = [&](const k_walk &at) {
        if (has_block)
            load_block<float, SRC_LOAD>(held, place, src_origin<float>(p, block, at), p.src_unit);
    };
    stage_walk stage(ring, 1);
    k_walk walk;
    walk.begin(p, first);
    load_ahead(walk);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next()) {
        stage.wait_empty();
        const uint32_t slots = stage.buffer() + p.src_bytes;
        box.load<LOAD>(p, maps, walk, stage.buffer(), stage.full());
        if ((LOAD != LINES && LOAD != CHANNELS) || p.box_bytes == 0)
            copy_dst<float, LOAD>(p, block, tables, walk, by, slots);
        if (has_block)
            store_split_block<SRC_LOAD>(held, place, stage.buffer(), (uint32_t)p.src_bytes / STRICT_PLANES, N);
        cp_async_arrive(stage.full());
        stage.signal_written(by.thread % WARP);
        walk.advance(p);
        if (k + 1 < count)
            load_ahead(walk);
    }
    cp_async_wait_all();
}

/* Adds the sums of 64 pairs by PARTIAL_CHANNELS to what the slice holds, with what its additions lost, so far behind;
 * the last time the slice gets the whole. */
static __device__ __forceinline__ void add_pairs(const float (&sums)[PARTIAL_CHANNELS / 2], float *to, int64_t lost,
                                                 int second, int64_t pitch, bool first, bool last, int lane)
{
    constexpr int AT_ONCE = 8; /* of PARTIAL_CHANNELS / 2 sums; as in store_pairs */
    to += lane % 4 * 2 * pitch;
#pragma unroll
    for (int i = 0; i < PARTIAL_CHANNELS / 2; i += AT_ONCE) {
        asm volatile("" : "+l"(to), "+l"(pitch)::"memory");
        const auto place = [&](int j) { return to + (j / 4 * 8 + j % 2) * pitch + j / 2 % 2 * second; };
        float total[AT_ONCE], rest[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const float *at = place(j);
            total[j] = first ? 0 : *at;
            rest[j] = first ? 0 : at[lost];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            float *at = place(j);
            add_compensated(total[j], rest[j], sums[i + j]);
            *at = last ? total[j] - rest[j] : total[j];
            if (!last)
                at[lost] = rest[j];
        }
        to += AT_ONCE * 2 * pitch;
    }
}

/* The fragments of the steps of a partial sum. */
struct step_fragments {
    fragment_a at[STRICT_STEPS];
};

/* Multiplies the stages. A warpgroup waits for each partial sum; meanwhile the other's products are under way. */
template <int M, int N, load_mode LOAD>
__device__ __forceinline__ void consume_split(const parameters &p, const block_tile &block, const tables &tables,
                                              const stage_ring &ring, int count, float *slice, float *stages, int warp,
                                              int lane)
{
    constexpr bool BY_LINES = LOAD == LINES;
    constexpr int STEP = MMA_K_BYTES / (int)sizeof(float), PARTS = N / PARTIAL_CHANNELS;
    using Product = wgmma_rs<WGMMA_TF32, PARTIAL_CHANNELS>;
    constexpr uint32_t B_STEP = MMA_K_BYTES / 16, B_BOX = N * SWIZZLED_BYTES / 16;
    box_operand operand = {operand_descriptor<false>(p.k_pixels), B_STEP, 2 * B_STEP};
    uint32_t part_step = PARTIAL_CHANNELS * SWIZZLED_BYTES / 16; /* from a part's channels to the next's */
    if (BY_LINES && p.lines.src_box_pixels > 0) {
        operand = find_operand(p.lines.src_box_pixels * (int)sizeof(float), N);
        part_step = PARTIAL_CHANNELS * p.lines.src_box_pixels * (int)sizeof(float) / 16;
    }
    const uint32_t small_plane = (uint32_t)p.src_bytes / STRICT_PLANES / 16;
    /* Tiles of 64 pairs change between warpgroups, so that both have some where the last are none. */
    const int first_tile = warp / WARPGROUP_WARPS, warp_pair = warp % WARPGROUP_WARPS * WARP_M;
    const int existing = p.tiles.rows.group_taps * p.tiles.columns.group_taps * (int)p.tiles.chunk;
    uint32_t never = count <= 0;
    const int second_pixel = tables.pixels[1];
    int pairs[M], line_pairs[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int first = (first_tile + m * WARPGROUPS) * MMA_M + warp_pair, pixel = tables.pixels[lane % 4 * 2];
        if constexpr (BY_LINES)
            for (int j = 0; j < 2; j++)
                line_pairs[m][j] = line_offset<float>(p, block, first + j * 8 + lane / 4) + pixel;
        else
            pairs[m] = pair_offset(p, block, first + lane / 4 * 2, (int)sizeof(float)) + pixel;
    }
    float sums[M][PARTS][PARTIAL_CHANNELS / 2];
    const auto clear = [&] {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int i = 0; i < PARTIAL_CHANNELS / 2; i++)
                    sums[m][part][i] = 0;
    };
    /* Calls `what` with the sums of 64 pairs by a part of the channels, the numbers of the lane's two pairs and the
     * part's first channel. */
    const auto for_sums = [&](auto what) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            int row = (first_tile + m * WARPGROUPS) * MMA_M + warp_pair + (BY_LINES ? lane / 4 : lane / 4 * 2);
            asm volatile("" : "+r"(row)); /* or where sums go is kept in registers through the main loop */
            int first = row, second = row + (BY_LINES ? 8 : 1);
            if constexpr (BY_LINES)
                first = line_pair(p, first), second = line_pair(p, second);
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                what(sums[m][part], first, second, part * PARTIAL_CHANNELS);
        }
    };
    const int64_t lost = p.splits * p.tiles.count * p.tiles.block_m * p.tiles.block_n;
    const auto flush = [&](bool first, bool last) {
        for_sums([&](auto &of, int one, int other, int64_t channel) {
            add_pairs(of, slice + one + channel * p.tiles.block_n, lost, other - one, p.tiles.block_n, first, last,
                      lane);
        });
    };
    clear();
    constexpr bool AHEAD =
        PARTS == 1; /* the next fragments are loaded while products run: there are registers for it */
    step_fragments raw, big, small;
    bool flushed = false;
    int until_flush = p.flush_tiles;
    stage_walk stage(ring, 0);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next()) {
        stage.wait_full();
        const uint32_t slots = stage.buffer() + p.src_bytes;
        const auto load = [&](int pixel, int m) {
#pragma unroll
            for (int s = 0; s < STRICT_STEPS; s++) {
                const uint32_t from = slots + tables.pixels[pixel + s * STEP];
                if constexpr (BY_LINES)
                    load_line_pairs<false>(raw.at[s], from, line_pairs[m], second_pixel, 0);
                else
                    load_pairs<false>(raw.at[s], from + pairs[m], second_pixel);
            }
        };
        uint64_t b = operand.descriptor | descriptor_address(stage.buffer());
        if (AHEAD)
            load(0, 0);
#pragma unroll 1
        for (int i = 0; i < p.k_pixels; i += PARTIAL_PIXELS, b += B_BOX) {
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (m > 0 && (first_tile + m * WARPGROUPS) * MMA_M >= existing)
                    continue;
                if (!AHEAD)
                    load(i, m);
#pragma unroll
                for (int s = 0; s < STRICT_STEPS; s++)
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        big.at[s].at[j] = raw.at[s].at[j];
                        round_factor<true>(big.at[s].at[j], &small.at[s].at[j]);
                    }
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    float partial[PARTIAL_CHANNELS / 2];
#pragma unroll
                    for (int j = 0; j < PARTIAL_CHANNELS / 2; j++)
                        partial[j] = 0;
                    const auto of_step = [&](int s) {
                        return b + part * part_step +
                               (BY_LINES ? s % 2 * operand.step + s / 2 * operand.two_steps : s * B_STEP);
                    };
                    wgmma_fence();
#pragma unroll
                    for (int s = 0; s < STRICT_STEPS; s++) {
                        Product::add(partial, small.at[s].at, of_step(s), s > 0);
                        Product::add(partial, big.at[s].at, of_step(s) + small_plane, 1);
                    }
#pragma unroll
                    for (int s = 0; s < STRICT_STEPS; s++)
                        Product::add(partial, big.at[s].at, of_step(s), 1);
                    wgmma_commit();
                    if (AHEAD) {
                        if (m + 1 < M && (first_tile + (m + 1) * WARPGROUPS) * MMA_M < existing)
                            load(i, m + 1);
                        else if (i + PARTIAL_PIXELS < p.k_pixels)
                            load(i + PARTIAL_PIXELS, 0);
                    }
                    wgmma_wait<0>();
#pragma unroll
                    for (int j = 0; j < PARTIAL_CHANNELS / 2; j++)
                        sums[m][part][j] += partial[j];
                }
                keep_until_here(big.at, never);
                keep_until_here(small.at, never);
            }
        }
        signal_for_warp(stage.empty(), lane);
        if (--until_flush == 0 && k + 1 < count) {
            flush(!flushed, false);
            clear();
            flushed = true;
            until_flush = p.flush_tiles;
        }
    }
    if (flushed) {
        flush(false, true);
        return;
    }
    if (p.weights.at == NULL) {
        for_sums([&](auto &of, int first, int second, int64_t channel) {
            store_pairs<PARTIAL_CHANNELS, 4>(of, slice + first + channel * p.tiles.block_n, second - first,
                                             p.tiles.block_n, false, lane);
        });
        return;
    }
    write_tile<float, PARTIAL_CHANNELS, CONSUMERS>(p, stages, lane, for_sums);
}

template <int M, int N, load_mode LOAD>
__global__ void TCONV_HOPPER_BOUNDS(WARPGROUP_BLOCK_THREADS)
    strict_warpgroup_kernel(const __grid_constant__ parameters p, const __grid_constant__ tensor_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(STAGE_ALIGNMENT) char shared[]; /* the stages, the barriers and the tables */
    char *barriers = shared + p.stages * p.stage_bytes;
    if (p.dependents == AS_BLOCKS_BEGIN)
        launch_dependents();
    if (threadIdx.x == blockDim.x - 1) {
        prefetch_tensor_map(&maps.dst);
        prefetch_tensor_map(&maps.src);
    }
    const int warp = warp_of_block();
    const auto [number, split] = find_work(p);
    const block_tile block = find_block(p, number);
    const auto [first, count] = find_k_tiles(p, split);
    const stage_ring ring = {forgotten(shared_address(barriers)), forgotten(shared_address(shared)),
                             (uint32_t)p.stage_bytes, p.stages};
    const uint32_t raw = ring.barriers + BARRIER_BYTES;
    if (threadIdx.x == 0) {
        ring.init(PRODUCERS + PRODUCERS / WARP * WARP_ARRIVALS, CONSUMERS / WARP * WARP_ARRIVALS);
        for (int i = 0; i < MAX_STAGES; i++)
            mbarrier_init(raw + 8 * i, 1);
        mbarrier_init_fence();
    }
    const tables tables = make_tables<float>(
        p, barriers + BARRIER_BYTES + RAW_BARRIER_BYTES, LOAD == LINES ? line_rows(p, block) : block.slots, [&](int i) {
            return LOAD == LINES ? find_line<float>(p, block, i) : find_slot(p, block, i, (int)sizeof(float));
        });
    __syncthreads();
    if (warp < CONSUMERS / WARP) {
        setmaxnreg_increase<STRICT_CONSUMER_REGISTERS>();
        float *slice = p.slices + (split * p.tiles.count + number) * p.tiles.block_m * p.tiles.block_n;
        consume_split<M, N, LOAD>(p, block, tables, ring, count, slice, reinterpret_cast<float *>(shared), warp,
                                  (int)threadIdx.x % WARP);
    } else {
        setmaxnreg_decrease<STRICT_PRODUCER_REGISTERS>();
        if constexpr (LOAD != LINES)
            produce_split<N, LOAD, LOAD>(p, &maps, block, tables, ring, first, count);
        else if (p.lines.src_box_pixels > 0)
            produce_split_boxes(p, &maps, block, tables, ring, raw, first, count);
        else if (p.lines.src_vectors)
            produce_split<N, LOAD, CHANNELS>(p, &maps, block, tables, ring, first, count);
        else
            produce_split<N, LOAD, ELEMENTS>(p, &maps, block, tables, ring, first, count);
        launch_dependents(); /* what adds slices: not before, or it would crowd where no block is */
    }
#endif
}

template <int M, int N> kernel_functions strict_wgmma_kernels()
{
    kernel_functions functions = {};
    functions.at[ELEMENTS] = (const void *)strict_warpgroup_kernel<M, N, ELEMENTS>;
    functions.at[LINES] = (const void *)strict_warpgroup_kernel<M, N, LINES>;
    functions.at[CHANNELS] = (const void *)strict_warpgroup_kernel<M, N, CHANNELS>;
    return functions;
}

} // namespace tconv::wgrad

#endif
