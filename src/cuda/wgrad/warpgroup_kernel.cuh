/*
 * The kernel of cuda_wgrad by wgmma, for Hopper. It has the tiles, K-tiles and split-K slices of kernel.cuh, but M and
 * N change places: a row of M is a pair of a tap and an output channel, and N are input channels. Consumer warps load
 * the fragments of A from the slots, as in kernel.cuh. Producer warps write src as the B operand (src_operand.cuh), and
 * copy the slots. In load mode LINES the slots are lines, and TMA brings them and src where it can (lines.cuh). A block
 * that has all terms of its sums writes the weights (store_weights.cuh).
 *
 * Numeric order: as in kernel.cuh.
 */
#ifndef TCONV_CUDA_WGRAD_WARPGROUP_KERNEL_CUH
#define TCONV_CUDA_WGRAD_WARPGROUP_KERNEL_CUH

#include "../gemm/kernel.cuh"
#include "../gemm/pipeline.cuh"
#include "../ptx/mma.cuh"
#include "kernels.h"
#include "lines.cuh"
#include "slot_bias.cuh"
#include "src_operand.cuh"
#include "store_weights.cuh"

namespace tconv::wgrad
{

constexpr int CONSUMERS = WARPGROUPS * WARPGROUP_WARPS * WARP, PRODUCERS = WARPGROUP_BLOCK_THREADS - CONSUMERS;
constexpr int CONSUMER_REGISTERS = 176, PRODUCER_REGISTERS = 80; /* of a thread: 128 on average */

static_assert(PRODUCERS == WARPGROUP_PRODUCERS && PRODUCERS * BLOCK_CHANNELS * ACCESS_BYTES == HELD_SRC_BYTES,
              "as planned: each producer's registers hold one block of src");

/* Whether src is an MN-major operand: producers copy vectors of channels without a transposition. */
template <numerics MODE, load_mode LOAD>
constexpr bool SRC_IS_MN_MAJOR = LOAD == SRC_CHANNELS || (LOAD == CHANNELS && IS_HALF<MODE>);

template <numerics MODE, load_mode LOAD> constexpr bool SUMS_BIAS = producers_sum_bias(LOAD, IS_HALF<MODE>);

template <numerics MODE, bool mn_major>
constexpr wgmma_type TYPE_OF = MODE == NUMERICS_F16    ? mn_major ? WGMMA_F16_MN_MAJOR : WGMMA_F16
                               : MODE == NUMERICS_BF16 ? mn_major ? WGMMA_BF16_MN_MAJOR : WGMMA_BF16
                                                       : WGMMA_TF32;

/* Finds box i of those that TMA brings, in which the boxes of the gradient of dst come before those of src, and stores
 * it behind the block's tables. The blocks of a cluster take turns in issuing the boxes of the gradient of dst. */
template <class Element, load_mode LOAD>
__device__ __forceinline__ own_box make_own_box(const parameters &p, block_tile block, const tables &tables, int i)
{
    if (LOAD != LINES && LOAD != CHANNELS)
        return {0};
    /* Without this the compiler keeps in registers what other functions find of the block as well. */
    asm volatile(""
                 : "+r"(block.row_first), "+r"(block.row_residues), "+l"(block.at.group), "+l"(block.at.chunk),
                   "+l"(block.at.m_tile));
    const int of_dst = p.box_bytes == 0 ? 0
                       : LOAD == LINES  ? block.row_residues
                                        : block.row_residues * block.column_residues;
    if (i >= of_dst + (LOAD == LINES ? p.lines.src_boxes : 0))
        return {0};
    tile_box *place = reinterpret_cast<tile_box *>(tables.pixels + p.k_pixels + PIXELS_BEHIND) + i;
    *place = i >= of_dst     ? find_src_box(p, block, i - of_dst)
             : LOAD == LINES ? find_line_box<Element>(p, block, i)
                             : find_slot_box(p, block, i, 0, p.src_bytes + i * p.residue_slots * p.dst_pitch);
    const bool asks = p.sharers == 1 || i % p.sharers == (int)blockIdx.x % p.sharers;
    return {shared_address(place) + (i >= of_dst ? OF_SRC : asks ? OF_DST : EXPECTED)};
}

/* Copies the slots or lines of a K-tile where TMA does not bring them. */
template <class Element, load_mode LOAD>
__device__ __forceinline__ void copy_dst(const parameters &p, const block_tile &block, const tables &tables,
                                         const k_walk &k_tile, crew by, uint32_t slots)
{
    if constexpr (LOAD == LINES)
        copy_lines_by_units<Element>(p, block, by, slots, tables.slots, k_tile);
    else
        copy_pixels<Element, LOAD == CHANNELS>(by, slots, p.dst_pitch, tables.slots, block.slots, (int)p.tiles.chunk,
                                               dst_origin<Element>(p, block, k_tile));
}

/* Fills the stages. Where src goes through registers, a producer loads the block of the next K-tile before it waits for
 * a free stage. Producers that sum the bias do so `lag` K-tiles behind the one that they fill. */
template <numerics MODE, int N, load_mode LOAD, load_mode SRC_LOAD = LOAD>
__device__ __forceinline__ void produce(const parameters &p, const tensor_maps *maps, const block_tile &block,
                                        const tables &tables, const stage_ring &ring, int first, int count)
{
    using Element = element_of<MODE>;
    const crew by = {(int)threadIdx.x - CONSUMERS, PRODUCERS};
    const own_box box = make_own_box<Element, LOAD>(p, block, tables, box_of(by));
    const int pixels_log2 = p.images.tile_log2 + p.rows.tile_log2 + p.columns.tile_log2;
    const int vectors_log2 = pixels_log2 - (sizeof(Element) == 4 ? 2 : 3);
    const bool has_block =
        by.thread < N / BLOCK_CHANNELS << vectors_log2 && (LOAD != LINES || p.lines.src_box_pixels == 0);
    src_block held;
    const block_place<Element, SRC_LOAD> place(by.thread, vectors_log2, tables.inputs);
    const auto load_ahead = [&](const k_walk &at) {
        if constexpr (!SRC_IS_MN_MAJOR<MODE, LOAD>)
            if (has_block)
                load_block<Element, SRC_LOAD>(held, place, src_origin<Element>(p, block, at), p.src_unit);
    };
    stage_walk stage(ring, 1);
    k_walk walk;
    walk.begin(p, first);
    load_ahead(walk);
    const auto fill = [&] {
        stage.wait_empty();
        const uint32_t slots = stage.buffer() + p.src_bytes;
        box.load<LOAD>(p, maps, walk, stage.buffer(), stage.full());
        if ((LOAD != LINES && LOAD != CHANNELS) || p.box_bytes == 0)
            copy_dst<Element, LOAD>(p, block, tables, walk, by, slots);
        if constexpr (SRC_IS_MN_MAJOR<MODE, LOAD>)
            copy_boxes(by, stage.buffer(), tables.inputs, pixels_log2, N, src_origin<Element>(p, block, walk));
        else if (has_block)
            store_block<Element, SRC_LOAD>(held, place, stage.buffer(), N);
        cp_async_arrive(stage.full());
        if (LOAD == LINES && p.lines.src_box_pixels > 0) { /* all that wgmma reads is TMA's */
            __syncwarp();
            signal_for_warp(stage.full(), by.thread % WARP);
        } else {
            stage.signal_written(by.thread % WARP);
        }
        walk.advance(p);
    };
    if constexpr (SUMS_BIAS<MODE, LOAD>)
        if (p.bias_parts != NULL) {
            std::conditional_t<LOAD == LINES, line_sums<Element>, slot_sums<Element>> sums;
            bias_turns turns = {(int)block.at.m_tile};
            const int lag = p.stages - 1;
#pragma unroll 1
            for (int k = 0; k < count + lag; k++) {
                if (k < count)
                    fill();
                if (k + 1 < count)
                    load_ahead(walk);
                stage.next();
                if (k >= lag) { /* the stage that is the next to be filled, of the same parity */
                    stage.wait_full();
                    if (turns.next(p))
                        sums.add(p, block, by, stage.buffer() + p.src_bytes);
                    __syncwarp();
                    signal_for_warp(stage.empty(), by.thread % WARP);
                }
            }
            cp_async_wait_all();
            /* The last stages are not released; the one that would be filled next is. */
            stage.next();
            mbarrier_wait(stage.empty(), stage.state.parity ^ 1);
            block_work work = find_work(p);
            asm volatile("" : "+r"(work.number), "+r"(work.split)); /* or they are kept in registers all the time */
            sums.template finish<PRODUCERS>(p, work, by, stage.buffer());
            return;
        }
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next()) {
        fill();
        if (k + 1 < count)
            load_ahead(walk);
    }
    cp_async_wait_all();
}

/* wgmma reads A from registers while it runs. These instructions use the registers and are never executed; they keep
 * the compiler from reusing the registers before. never: 0, but the compiler does not know it. */
template <int count> __device__ __forceinline__ void keep_until_here(const fragment_a (&a)[count], uint32_t &never)
{
#pragma unroll
    for (int i = 0; i < count; i++)
        asm volatile("{\n.reg .pred happens;\nsetp.ne.b32 happens, %0, 0;\n"
                     "@happens lop3.b32 %0, %1, %2, %0, 0x96;\n@happens lop3.b32 %0, %3, %4, %0, 0x96;\n}"
                     : "+r"(never)
                     : "r"(a[i].at[0]), "r"(a[i].at[1]), "r"(a[i].at[2]), "r"(a[i].at[3]));
}

/* Returns the descriptor of the B operand without its address. The high word says that eight rows of a box are 1024
 * bytes. Where rows are pixels, the low word has the distance from a box to the next, which is 64 channels on. */
template <bool mn_major> __device__ __forceinline__ uint64_t operand_descriptor(int pixels)
{
    return (uint64_t)(1u << 30 | 8 * SWIZZLED_BYTES / 16) << 32 |
           (mn_major ? (uint32_t)(pixels * SWIZZLED_BYTES / 16) << 16 : 0);
}

/* The descriptor of an operand that TMA has brought, and the distances from a step of K to the next and to the second
 * next, in units of 16 bytes. Rows are 128, 64, 32 or 16 bytes, with the swizzle of that length. */
struct box_operand {
    uint64_t descriptor;
    uint32_t step, two_steps;
};

__device__ __forceinline__ box_operand find_operand(int row_bytes, int channels)
{
    const uint32_t row = (uint32_t)row_bytes / 16, box = row * channels;
    const uint32_t swizzle = row == 8 ? 1 : row == 4 ? 2 : row == 2 ? 3 : 0;
    return {(uint64_t)(swizzle << 30 | 8 * row) << 32 | (row == 1 ? box << 16 : 0),
            row >= 4   ? 2
            : row == 2 ? box
                       : 2 * box,
            row == 8   ? 4
            : row == 4 ? box
            : row == 2 ? 2 * box
                       : 4 * box};
}

/* Loads a fragment of 64 pairs by a step of pixels from the slots. In f32 the MMA's rows g and g + 8 are pairs 2g and
 * 2g + 1, at the lane's first pixel and so many bytes on at its second. */
template <bool half> __device__ __forceinline__ void load_pairs(fragment_a &to, uint32_t from, int second_pixel)
{
    if constexpr (half) {
        to = load_matrices<true>(from);
    } else {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint2 rows = load_shared<uint2>(from + k * second_pixel);
            to.at[2 * k] = rows.x, to.at[2 * k + 1] = rows.y;
        }
    }
}

/* Loads a fragment from lines. rows: the offsets of the lane's two rows of M (line_offset). In 16 bits a register has
 * two pixels. */
template <bool half>
__device__ __forceinline__ void load_line_pairs(fragment_a &to, uint32_t from, const int (&rows)[2], int second_pixel,
                                                int eight_pixels)
{
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t at = from + rows[j];
            if constexpr (half) {
                const uint32_t first = load_shared<uint16_t>(at + k * eight_pixels);
                const uint32_t second = load_shared<uint16_t>(at + k * eight_pixels + second_pixel);
                to.at[2 * k + j] = __byte_perm(first, second, 0x5410);
            } else {
                to.at[2 * k + j] = load_shared<uint32_t>(at + k * second_pixel);
            }
        }
}

/* The sums of a slice that are loaded before one is stored, where a thread has so many registers beside its own sums: a load takes
 * hundreds of cycles, and loads that wait for one another hold the products up. */
template <int SPARE_REGISTERS> constexpr int ADDED_AT_ONCE = SPARE_REGISTERS >= 80 ? 16 : SPARE_REGISTERS >= 48 ? 8 : 4;

/* Writes the sums of 64 pairs by N channels to the slice, or adds them to what the slice holds. to: the place of the
 * lane's first pair; second: the distance from there to the place of its second pair. */
template <int N, int AT_ONCE>
__device__ __forceinline__ void store_pairs(const float (&sums)[N / 2], float *to, int second, int64_t pitch, bool adds,
                                            int lane)
{
    to += lane % 4 * 2 * pitch;
#pragma unroll
    for (int i = 0; i < N / 2; i += AT_ONCE) {
        /* Addresses are computed here, one after the other: there are no registers for more. */
        asm volatile("" : "+l"(to), "+l"(pitch)::"memory");
        const auto place = [&](int j) { return to + (j / 4 * 8 + j % 2) * pitch + j / 2 % 2 * second; };
        float before[AT_ONCE];
        if (adds) {
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                before[j] = *place(j);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            *place(j) = adds ? before[j] + sums[i + j] : sums[i + j];
        to += AT_ONCE * 2 * pitch;
    }
}

/* Signals that the warp has read a stage, to all blocks of the cluster, whose producers write it. There are no clusters
 * for 16 bits, where a loop here would make ptxas wait for each product. */
template <bool half> __device__ __forceinline__ void signal_sharers(const parameters &p, uint32_t empty, int lane)
{
    if (half || p.sharers == 1)
        signal_for_warp(empty, lane);
    else if (arrives_for_warp(lane))
        for (int rank = 0; rank < p.sharers; rank++)
            mbarrier_arrive_remote(empty, rank);
}

/* Multiplies the stages. The MMAs of a step of K are issued in groups: while one group runs, the consumer loads the
 * fragments of the next. A K-tile is a box whose extents are powers of two, so the address of a slot is the sum of the
 * address of the slot of the step's first pixel and an offset that a lane has alike in all steps. */
template <numerics MODE, int M, int N, load_mode LOAD>
__device__ __forceinline__ void consume(const parameters &p, const block_tile &block, const tables &tables,
                                        const stage_ring &ring, int count, float *slice, float *stages, int warp,
                                        int lane)
{
    using Element = element_of<MODE>;
    constexpr bool HALF = IS_HALF<MODE>, MN_MAJOR = SRC_IS_MN_MAJOR<MODE, LOAD>, BY_LINES = LOAD == LINES;
    constexpr int STEP = HALF ? 16 : 8, STEPS = 4;                         /* pixels of a step; steps without a loop */
    constexpr int GROUP = M < 4 ? M : 2, GROUPS = (M + GROUP - 1) / GROUP; /* MMAs; groups of a step */
    using Product = wgmma_rs<TYPE_OF<MODE, MN_MAJOR>, N>;
    constexpr uint32_t B_STEP = (MN_MAJOR ? STEP * SWIZZLED_BYTES : MMA_K_BYTES) / 16, B_BOX = N * SWIZZLED_BYTES / 16;
    box_operand operand = {operand_descriptor<MN_MAJOR>(p.k_pixels), B_STEP, 2 * B_STEP};
    if (BY_LINES && p.lines.src_box_pixels > 0)
        operand = find_operand(p.lines.src_box_pixels * (int)sizeof(Element), N);
    const int first_pair = warp / WARPGROUP_WARPS * M * MMA_M + warp % WARPGROUP_WARPS * WARP_M;
    uint32_t never = count <= 0;
    const int second_pixel = HALF && !BY_LINES ? 0 : tables.pixels[1], eight_pixels = tables.pixels[CORE_ROWS];
    int pairs[M], line_pairs[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int first = first_pair + m * MMA_M,
                  pixel = tables.pixels[HALF && !BY_LINES ? lane / 16 * 8 + lane % 8 : lane % 4 * 2];
        if constexpr (BY_LINES)
            for (int j = 0; j < 2; j++)
                line_pairs[m][j] = line_offset<Element>(p, block, first + j * 8 + lane / 4) + pixel;
        else
            pairs[m] = pair_offset(p, block, first + (HALF ? lane / 8 % 2 * 8 : lane / 4 * 2), HALF ? 2 : 4) + pixel;
    }
    float sums[M][N / 2];
    const auto clear = [&] {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sums[m][i] = 0;
    };
    /* Calls `what` with the sums of 64 pairs by N channels and the numbers of the lane's two pairs. */
    const auto for_sums = [&](auto what) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            int row = first_pair + m * MMA_M + (HALF || BY_LINES ? lane / 4 : lane / 4 * 2);
            asm volatile("" : "+r"(row)); /* or where sums go is kept in registers through the main loop */
            int first = row, second = row + (HALF || BY_LINES ? 8 : 1);
            if constexpr (BY_LINES)
                first = line_pair(p, first), second = line_pair(p, second);
            what(sums[m], first, second);
        }
    };
    const auto store = [&](bool adds) {
        for_sums([&](auto &of, int first, int second) {
            store_pairs<N, BY_LINES ? 4 : ADDED_AT_ONCE<CONSUMER_REGISTERS - M * N / 2>>(
                of, slice + first, second - first, p.tiles.block_n, adds, lane);
        });
    };
    clear();
    fragment_a a[2][GROUP];
    const bool writes = p.weights.at != NULL;
    const int last = writes ? -1 : count - 1; /* whose sums go to the slice */
    bool flushed = p.adds;
    int until_flush = p.flush_tiles;
    uint32_t release = 0; /* the empty barrier of the stage before */
    stage_walk stage(ring, 0);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next()) {
        const int *pixels = tables.pixels;
        int at = *pixels;
        stage.wait_full();
        if constexpr (MN_MAJOR)
            fence_proxy_async(); /* what cp.async has written is for wgmma to read */
        const uint32_t slots = stage.buffer() + p.src_bytes;
        uint64_t b = operand.descriptor | descriptor_address(stage.buffer());
#pragma unroll 1
        for (int i = 0; i < p.k_pixels; i += STEPS * STEP, b += B_BOX) {
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const uint32_t from = slots + at;
                pixels += STEP;
                at = *pixels; /* behind the last the table goes on */
#pragma unroll
                for (int first = 0; first < M; first += GROUP) {
                    fragment_a(&now)[GROUP] = a[(s * GROUPS + first / GROUP) % 2];
#pragma unroll
                    for (int m = first; m < first + GROUP && m < M; m++)
                        if constexpr (BY_LINES)
                            load_line_pairs<HALF>(now[m - first], from, line_pairs[m], second_pixel, eight_pixels);
                        else
                            load_pairs<HALF>(now[m - first], from + pairs[m], second_pixel);
#pragma unroll
                    for (int m = 0; m < GROUP && !HALF; m++)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            round_factor<false>(now[m].at[j], nullptr);
                    wgmma_fence();
#pragma unroll
                    for (int m = first; m < first + GROUP && m < M; m++)
                        Product::add(sums[m], now[m - first].at,
                                     b + (BY_LINES ? s % 2 * operand.step + s / 2 * operand.two_steps : s * B_STEP), 1);
                    wgmma_commit();
                    wgmma_wait<1>();
                    keep_until_here(a[(s * GROUPS + first / GROUP + 1) % 2], never);
                    if (s == 0 && first == 0 && release != 0) {
                        signal_sharers<HALF>(p, release, lane);
                        release = 0;
                    }
                }
            }
        }
        release = stage.empty();
        if (--until_flush == 0 || k == last) {
            wgmma_wait<0>();
            store(flushed);
            clear();
            flushed = true;
            until_flush = p.flush_tiles;
        }
    }
    wgmma_wait<0>();
    keep_until_here(a[1], never);
    if (writes)
        write_tile<element_of<MODE>, N, CONSUMERS>(p, stages, lane, for_sums);
}

/* Finds the tile of a block. In a kernel by elements it uses the compiler's divisions: by divisors, ptxas has the producers spill. */
template <load_mode LOAD> __device__ __forceinline__ block_tile find_own_block(const parameters &p, uint32_t number)
{
    if constexpr (LOAD == ELEMENTS)
        return find_block(p, find_tile(p.tiles, number));
    else
        return find_block(p, number);
}

template <numerics MODE, int M, int N, load_mode LOAD>
__global__ void TCONV_HOPPER_BOUNDS(WARPGROUP_BLOCK_THREADS)
    warpgroup_kernel(const __grid_constant__ parameters p, const __grid_constant__ tensor_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    static_assert(STAGE_BARRIERS * sizeof(uint64_t) <= BARRIER_BYTES, "they fit");
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
    const block_tile block = find_own_block<LOAD>(p, number);
    const auto [first, count] = find_k_tiles(p, split);
    const stage_ring ring = {shared_address(barriers), shared_address(shared), (uint32_t)p.stage_bytes, p.stages};
    if (threadIdx.x == 0) {
        const int readers = p.bias_parts != NULL ? CONSUMERS + PRODUCERS : CONSUMERS;
        ring.init(PRODUCERS + PRODUCERS / WARP * WARP_ARRIVALS, readers / WARP * WARP_ARRIVALS * p.sharers);
        mbarrier_init_fence();
    }
    using Element = element_of<MODE>;
    const tables tables = make_tables<Element>(
        p, barriers + BARRIER_BYTES, LOAD == LINES ? line_rows(p, block) : block.slots, [&](int i) {
            return LOAD == LINES ? find_line<Element>(p, block, i) : find_slot(p, block, i, (int)sizeof(Element));
        });
    __syncthreads();
    if (p.sharers > 1)
        cluster_sync();
    if (warp < CONSUMERS / WARP) {
        setmaxnreg_increase<CONSUMER_REGISTERS>();
        float *slice = p.slices + (split * p.tiles.count + number) * p.tiles.block_m * p.tiles.block_n;
        consume<MODE, M, N, LOAD>(p, block, tables, ring, count, slice, reinterpret_cast<float *>(shared), warp,
                                  (int)threadIdx.x % WARP);
    } else {
        setmaxnreg_decrease<PRODUCER_REGISTERS>();
        if constexpr (LOAD != LINES)
            produce<MODE, N, LOAD>(p, &maps, block, tables, ring, first, count);
        else if (IS_HALF<MODE> ? p.src_unit > 1 : p.lines.src_vectors)
            produce<MODE, N, LOAD, IS_HALF<MODE> ? LINES : CHANNELS>(p, &maps, block, tables, ring, first, count);
        else
            produce<MODE, N, LOAD, ELEMENTS>(p, &maps, block, tables, ring, first, count);
        launch_dependents(); /* what adds slices: not before, or it would crowd where no block is */
    }
    if (p.sharers > 1) /* no block ends while another still arrives at its barriers */
        cluster_sync();
#endif
}

template <numerics MODE, int M, int N> kernel_functions wgmma_kernels()
{
    kernel_functions functions = {};
    functions.at[ELEMENTS] = (const void *)warpgroup_kernel<MODE, M, N, ELEMENTS>;
    functions.at[CHANNELS] = (const void *)warpgroup_kernel<MODE, M, N, CHANNELS>;
    if constexpr (IS_HALF<MODE>)
        functions.at[SRC_CHANNELS] = (const void *)warpgroup_kernel<MODE, M, N, SRC_CHANNELS>;
    functions.at[LINES] = (const void *)warpgroup_kernel<MODE, M, N, LINES>;
    return functions;
}

} // namespace tconv::wgrad

#endif
