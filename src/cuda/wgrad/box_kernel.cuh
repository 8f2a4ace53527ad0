/*
 * The kernel of cuda_wgrad for Hopper by boxes, for 16 bits in NHWC. It has the tiles, K-tiles and split-K slices of
 * kernel.cuh. Both operands are MN-major in shared memory, as TMA brings them: a box has rows of 64 channels, and a row
 * is a pixel of the K-tile, or a slot. The M of an MMA are 64 output channels of a tap: its A operand begins at the
 * tap's first slot, and a pixel's row is as many slots on as the pixel's slots are from the first. N are input
 * channels.
 *
 * Numeric order: as in kernel.cuh.
 */
#ifndef TCONV_CUDA_WGRAD_BOX_KERNEL_CUH
#define TCONV_CUDA_WGRAD_BOX_KERNEL_CUH

#include "output_sums.cuh"
#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

constexpr int BOX_PRODUCERS = BOX_BLOCK_THREADS - CONSUMERS;
constexpr int BOX_CONSUMER_REGISTERS = 232, BOX_PRODUCER_REGISTERS = 40; /* of a thread: 168 on average */
constexpr int BOX_STEP = 16, BOX_STEPS = BOX_PIXELS / BOX_STEP;          /* pixels of an MMA; MMAs of a K-tile */

template <numerics MODE> constexpr wgmma_type BOTH_MN_MAJOR = MODE == NUMERICS_F16 ? WGMMA_F16_BOTH : WGMMA_BF16_BOTH;

/* Copies a K-tile's channels to boxes without TMA, element by element; zeros where they do not exist. */
template <class Element>
__device__ __forceinline__ void copy_elements(crew by, uint32_t to, const place *table, int count, int channels,
                                              const origin &from)
{
    constexpr int VECTOR = access_length<Element>;
#pragma unroll 1
    for (int i = by.thread; i < count * channels / VECTOR; i += by.threads) {
        const int row = i % count, vector = i / count, first = vector * VECTOR;
        const place at = table[row];
        const int existing = from.has(at) ? from.channels : 0;
        const char *data = from.data + at.offset + first * from.channel_stride;
        uint32_t words[VECTOR / 2];
#pragma unroll
        for (int j = 0; j < VECTOR; j++, data += from.channel_stride) {
            const uint32_t element = first + j < existing ? *reinterpret_cast<const uint16_t *>(data) : 0;
            words[j / 2] = j % 2 == 0 ? element : words[j / 2] | element << 16;
        }
        store_shared(to + (vector / VECTORS * count + row) * SWIZZLED_BYTES + (vector ^ row) % VECTORS * ACCESS_BYTES,
                     make_uint4(words[0], words[1], words[2], words[3]));
    }
}

/* Finds box i. The boxes of src come first, then those of the gradient of dst, ordered by 64 channels, then by
 * residue. */
template <int N> __device__ __forceinline__ tile_box find_box(const parameters &p, const block_tile &block, int i)
{
    constexpr int OF_SRC = N / BOX_CHANNELS;
    constexpr uint32_t BYTES = BOX_PIXELS * SWIZZLED_BYTES;
    if (i < OF_SRC) {
        const int first = (int)(block.at.group * p.tiles.group_in + block.at.m_tile * N);
        return {i * BYTES, first + i * BOX_CHANNELS, 0, 0};
    }
    i -= OF_SRC;
    const int residues = block.row_residues * block.column_residues;
    return find_slot_box(p, block, i % residues, i / residues * BOX_CHANNELS,
                         OF_SRC * BYTES + i * p.residue_slots * SWIZZLED_BYTES);
}

/* Has TMA fill the stages: each lane of one warp issues a box. */
template <int M, int N>
__device__ __forceinline__ void produce_boxes(const parameters &p, const tensor_maps &maps, const block_tile &block,
                                              const stage_ring &ring, int first, int count, int lane)
{
    constexpr int OF_SRC = N / BOX_CHANNELS;
    static_assert(WARPGROUPS * M * MMA_M / BOX_CHANNELS + OF_SRC <= WARP, "a lane has one box");
    const int of_dst = (int)p.tiles.chunk / BOX_CHANNELS * block.row_residues * block.column_residues;
    const int from = p.src != NULL ? 0 : OF_SRC; /* without src the bias alone is wanted */
    const uint32_t bytes = (OF_SRC - from) * BOX_PIXELS * SWIZZLED_BYTES + of_dst * p.box_bytes;
    const bool has_box = lane >= from && lane < OF_SRC + of_dst;
    const tile_box box = find_box<N>(p, block, has_box ? lane : 0);
    const bool of_src = lane < OF_SRC;
    const CUtensorMap *map = of_src ? &maps.src : &maps.dst;
    const int columns = of_src ? 1 : p.box_columns, rows = of_src ? 1 : p.rows.stride; /* from input to input */
    stage_walk stage(ring, 1);
    k_walk walk;
    walk.begin(p, first);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next(), walk.advance(p)) {
        if (lane == 0)
            stage.expect(bytes);
        __syncwarp();
        if (has_box)
            load_box(p, {box.to, box.x, box.y + walk.column * columns, box.z + walk.row * rows}, map, walk, !of_src,
                     stage.buffer(), stage.full());
    }
    if (p.dependents == AS_LOADS_END)
        launch_dependents();
}

/* Fills the stages where TMA cannot. */
template <class Element, int N>
__device__ __forceinline__ void produce_elements(const parameters &p, const block_tile &block, const tables &tables,
                                                 const stage_ring &ring, int first, int count)
{
    const crew by = {(int)threadIdx.x - CONSUMERS, BOX_PRODUCERS};
    stage_walk stage(ring, 1);
    k_walk walk;
    walk.begin(p, first);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next(), walk.advance(p)) {
        stage.wait_empty();
        if (p.src != NULL)
            copy_elements<Element>(by, stage.buffer(), tables.inputs, BOX_PIXELS, N,
                                   src_origin<Element>(p, block, walk));
        copy_elements<Element>(by, stage.buffer() + p.src_bytes, tables.slots, block.slots, (int)p.tiles.chunk,
                               dst_origin<Element>(p, block, walk));
        stage.signal_written(by.thread % WARP);
    }
    launch_dependents();
}

/* Multiplies the stages. The MMAs of a K-tile are a commit group; its stage is released once the MMAs of the next
 * K-tile are issued. */
template <numerics MODE, int M, int N>
__device__ __forceinline__ void consume_boxes(const parameters &p, const block_tile &block, const tables &tables,
                                              const stage_ring &ring, int count, float *slice, float *stages, int warp,
                                              int lane)
{
    using Product = wgmma_ss<BOTH_MN_MAJOR<MODE>, N>;
    const int warpgroup = warp / WARPGROUP_WARPS;
    const int first_pair = warpgroup * M * MMA_M + warp % WARPGROUP_WARPS * WARP_M;
    const uint32_t src_high = 1u << 30 | CORE_ROWS * SWIZZLED_BYTES / 16;
    const uint32_t src_box = BOX_PIXELS * SWIZZLED_BYTES / 16 << 16;
    /* In units of 16 bytes: the offset of each MMA tile's slots, of each step's slots, and the distance of eight pixels
     * in a step. */
    uint32_t tiles[M], steps[BOX_STEPS], high[BOX_STEPS];
    output_sums<BOTH_MN_MAJOR<MODE>, M> outputs(block);
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int pair = (warpgroup * M + m) * MMA_M, channel = divide(pair, p.by.chunk).rest;
        tiles[m] = (pair_offset(p, block, pair - channel, 2) + channel / BOX_CHANNELS * block.slots * SWIZZLED_BYTES +
                    p.src_bytes) /
                   16;
        outputs.include(p, m, find_pair(p, block, pair - channel));
    }
#pragma unroll
    for (int s = 0; s < BOX_STEPS; s++) {
        const int *pixels = tables.pixels + s * BOX_STEP;
        steps[s] = pixels[0] / 16;
        high[s] = 1u << 30 | (pixels[CORE_ROWS] - pixels[0]) / 16;
    }
    const output_memory memory = find_output_memory<WARPGROUPS * M * MMA_M>(p, ring);
    const uint32_t own_sums = memory.sums + (first_pair + lane / 4) * (int)sizeof(float);
    float sums[M][N / 2];
    /* Calls `what` with the sums of 64 pairs by N channels and the numbers of the lane's two pairs. */
    const auto for_sums = [&](auto what) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            int first = first_pair + m * MMA_M + lane / 4;
            asm volatile("" : "+r"(first)); /* or where sums go is kept in registers through the main loop */
            what(sums[m], first, first + WARP_M / 2);
        }
    };
    const auto store = [&](bool adds) {
        for_sums([&](auto &of, int first, int second) {
            store_pairs<N, ADDED_AT_ONCE<BOX_CONSUMER_REGISTERS - M * N / 2>>(of, slice + first, second - first,
                                                                              p.tiles.block_n, adds, lane);
        });
    };
    const bool writes = p.weights.at != NULL;
    const int last = writes ? -1 : count - 1; /* whose sums go to the slice */
    bool flushed = p.adds;
    int until_flush = p.flush_tiles, accumulate = 0;
    uint32_t release = 0; /* the empty barrier of the stage before */
    stage_walk stage(ring, 0);
#pragma unroll 1
    for (int k = 0; k < count; k++, stage.next()) {
        stage.wait_full();
        const uint32_t buffer = descriptor_address(stage.buffer());
        wgmma_fence();
        const auto slots = [&](int m, int s) { return (uint64_t)high[s] << 32 | (buffer + tiles[m] + steps[s]); };
        outputs.template add<BOX_STEPS>(p, memory.ones, slots);
#pragma unroll
        for (int s = 0; s < BOX_STEPS; s++) {
            const uint64_t b = (uint64_t)src_high << 32 | src_box | (buffer + s * BOX_STEP * SWIZZLED_BYTES / 16);
#pragma unroll
            for (int m = 0; m < M; m++)
                Product::add(sums[m], slots(m, s), b, accumulate);
            accumulate = 1;
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (release != 0)
            signal_for_warp(release, lane);
        release = stage.empty();
        if (--until_flush == 0 || k == last) {
            wgmma_wait<0>();
            if (p.src != NULL)
                store(flushed);
            outputs.flush(own_sums, lane);
            flushed = true;
            accumulate = 0;
            until_flush = p.flush_tiles;
        }
    }
    wgmma_wait<0>();
    if (p.bias_parts != NULL) {
        outputs.flush(own_sums, lane);
        hand_over<CONSUMERS + WRITERS>();
    }
    if (writes)
        write_tile<element_of<MODE>, N, CONSUMERS>(p, stages, lane, for_sums);
}

template <numerics MODE, int M, int N, load_mode LOAD>
__global__ void TCONV_HOPPER_BOUNDS(BOX_BLOCK_THREADS)
    box_kernel(const __grid_constant__ parameters p, const __grid_constant__ tensor_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(STAGE_ALIGNMENT) char shared[]; /* the stages, the barriers and the tables */
    char *barriers = shared + p.stages * p.stage_bytes;
    if (p.dependents == AS_BLOCKS_BEGIN)
        launch_dependents();
    if (threadIdx.x == blockDim.x - 1) {
        prefetch_tensor_map(&maps.dst);
        if (p.src != NULL)
            prefetch_tensor_map(&maps.src);
    }
    const int warp = warp_of_block();
    const auto [number, split] = find_work(p);
    const block_tile block = find_block(p, number);
    const auto [first, count] = find_k_tiles(p, split);
    const stage_ring ring = {forgotten(shared_address(barriers)), forgotten(shared_address(shared)),
                             (uint32_t)p.stage_bytes, p.stages};
    if (threadIdx.x == 0) {
        ring.init(LOAD == BOXES ? 1 : BOX_PRODUCERS / WARP * WARP_ARRIVALS, CONSUMERS / WARP * WARP_ARRIVALS);
        mbarrier_init_fence();
    }
    using Element = element_of<MODE>;
    const tables tables = make_tables<Element>(p, barriers + BARRIER_BYTES, LOAD == ELEMENTS ? block.slots : 0,
                                               [&](int i) { return find_slot(p, block, i, (int)sizeof(Element)); });
    begin_output_sums<Element, WARPGROUPS * M * MMA_M>(p, ring);
    __syncthreads();
    if (warp < CONSUMERS / WARP) {
        setmaxnreg_increase<BOX_CONSUMER_REGISTERS>();
        float *slice = p.slices + (split * p.tiles.count + number) * p.tiles.block_m * p.tiles.block_n;
        consume_boxes<MODE, M, N>(p, block, tables, ring, count, slice, reinterpret_cast<float *>(shared), warp,
                                  (int)threadIdx.x % WARP);
        launch_dependents();
    } else {
        setmaxnreg_decrease<BOX_PRODUCER_REGISTERS>();
        if constexpr (LOAD == ELEMENTS)
            produce_elements<Element, N>(p, block, tables, ring, first, count);
        else if (warp == CONSUMERS / WARP)
            produce_boxes<M, N>(p, maps, block, ring, first, count, (int)threadIdx.x % WARP);
        constexpr int PAIRS = WARPGROUPS * M * MMA_M;
        const int writer = (int)threadIdx.x - (BOX_BLOCK_THREADS - WRITERS);
        if (p.bias_parts != NULL && writer >= 0)
            write_output_sums<Element, PAIRS, CONSUMERS, LOAD == BOXES>(
                p, {number, split}, find_output_memory<PAIRS>(p, ring).sums, writer);
    }
#endif
}

template <numerics MODE, int M, int N> kernel_functions box_kernels()
{
    kernel_functions functions = {};
    functions.at[ELEMENTS] = (const void *)box_kernel<MODE, M, N, ELEMENTS>;
    functions.at[BOXES] = (const void *)box_kernel<MODE, M, N, BOXES>;
    return functions;
}

} // namespace tconv::wgrad

#endif
