/*
 * The weight-stationary kernel of cuda_cells, where each pixel of src is read at its own position alone (a kernel as
 * large as the stride) and all of K fits: the weights of one N tile stay in shared memory while block tiles of
 * positions pass by.
 *
 * A block has the weights of one N tile: a cell of some channels, all input channels. Four consumer warpgroups form two
 * pairs that take block tiles alternately (ping-pong): while one pair multiplies, the other stores. A block tile is two
 * warpgroup tiles of 64 positions, one for each warpgroup of a pair. Images are cut into warpgroup tiles one after
 * another; the tail of an image, less than a warpgroup tile, shares one with those of the images that follow. The
 * blocks of a cluster have the same block tiles and two N tiles: each multicasts the pixels of one warpgroup tile to
 * both. Where N tiles do not come in pairs, the blocks have different block tiles.
 *
 * Numeric order: as in kernel.cuh with one entry, K-blocks in order.
 */
#ifndef TCONV_CUDA_CELLS_KERNEL_STATIONARY_CUH
#define TCONV_CUDA_CELLS_KERNEL_STATIONARY_CUH

#include "../epilogue/finish.cuh"
#include "../gemm/kernel.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/tma.cuh"
#include "epilogue.cuh"
#include "mainloop.cuh"

namespace tconv::cells
{

constexpr size_t MAX_PARAMETER_BYTES = 4096; /* of a kernel, with drivers of CUDA 12.0 and before */
static_assert((sizeof(parameters) + alignof(CUtensorMap) - 1) / alignof(CUtensorMap) * alignof(CUtensorMap) +
                      2 * sizeof(CUtensorMap) <=
                  MAX_PARAMETER_BYTES,
              "the layer and two tensor maps");

constexpr int STATIONARY_CONSUMER_WARPS = PINGPONG_PAIRS * PAIR_WARPGROUPS * WARPGROUP_WARPS;
constexpr int STATIONARY_MMA_STEPS = 4; /* wgmmas along a K-block */
constexpr int STATIONARY_CONSUMER_REGISTERS =
    112; /* of a thread; of all threads 96 on average, which the launch gives each */
constexpr int STATIONARY_PRODUCER_REGISTERS = 32;
constexpr int STATIONARY_PERIOD = 16; /* accumulators, as of run_posts_of_cells */
constexpr uint32_t BOX_CHANNELS = STATIONARY_MMA_STEPS * MMA_K;
constexpr uint32_t BOX_BYTES = BOX_CHANNELS * BOX_PITCH * (uint32_t)sizeof(float);

/* Addresses in shared memory. */
struct stationary_layout {
    uint32_t pixel_barriers; /* of the boxes of the first warpgroup of each pair, then of the second */
    uint32_t weights_full;   /* of each K-block */
    uint32_t weights_empty;  /* of all K-blocks */
    uint32_t order;          /* of each consumer warpgroup: it has read all pixels of its block tile */
    uint32_t bias;           /* of an N tile's channels, that is added to sums when they are stored */
    uint32_t weights, pixels;
    /* The boxes of one warpgroup of each pair: those of the other lie between them. */
    __device__ __forceinline__ stage_ring boxes(const parameters &layer, int warpgroup) const
    {
        return {pixel_barriers + warpgroup * (8 * STAGE_BARRIERS), pixels + warpgroup * BOX_BYTES,
                PAIR_WARPGROUPS * BOX_BYTES, layer.pixel_stages};
    }
};

/* The pixels of a warpgroup tile. */
struct warpgroup_tile_coord {
    int image, column;
    bool main; /* of one image; else the tails of several, from `column` on of each */
};

__device__ __forceinline__ warpgroup_tile_coord find_warpgroup_tile(const parameters &layer, int number)
{
    const int main_tiles = layer.images * layer.image_warpgroup_tiles;
    if (number >= layer.warpgroup_tiles)
        return {layer.images, 0, true};
    if (number >= main_tiles)
        return {(number - main_tiles) * layer.tail_images, layer.image_warpgroup_tiles * WARPGROUP_M, false};
    const int image = number / layer.image_warpgroup_tiles;
    return {image, (number - image * layer.image_warpgroup_tiles) * WARPGROUP_M, true};
}

/* The tile scheduler. A block takes N tiles and block tiles together with the other block of its cluster where they
 * share pixels, else alone. */
struct tile_scheduler {
    int set, set_step, first_tile;
    __device__ __forceinline__ tile_scheduler(const parameters &layer)
    {
        const int number = (int)blockIdx.x / layer.set_blocks;
        set_step = layer.set_step;
        set = number % set_step;
        first_tile = number / set_step;
    }
    /* The block's N tile, of all channel groups and schedules. */
    __device__ __forceinline__ int n_tile(const parameters &layer) const
    {
        return set * layer.set_blocks + (layer.set_blocks > 1 ? cluster_rank() : 0);
    }
    __device__ __forceinline__ bool has_tiles(const parameters &layer) const
    {
        return set < layer.n_tile_sets && first_tile < layer.tile_step;
    }
};

/* Finds the first output channel, the schedule and the channel group of an N tile. */
__device__ __forceinline__ tile_coord find_n_tile(const parameters &layer, int number)
{
    tile_coord tile;
    tile.exists = number < layer.n_tiles;
    number = min(number, layer.n_tiles - 1);
    tile.channel = number % layer.channel_tiles * layer.cell_channels;
    number /= layer.channel_tiles;
    tile.schedule = number % layer.schedule_count;
    tile.group = number / layer.schedule_count;
    return tile;
}

/* Advances by so many stages of a pipeline of `count`, which the other pair reads. */
__device__ __forceinline__ void skip(pipeline_state &stage, int stages, int count)
{
    stage.at += stages;
    while (stage.at >= count) {
        stage.at -= count;
        stage.parity ^= 1;
    }
}

/* Returns one of a thread's two positions of a warpgroup tile, half 0 or 1. They are neighbours, but not in cells of
 * 4 columns, each of which is a vector by itself. Four channels of eight positions, or of four pairs of them, lie in
 * 32 banks. */
template <int COLUMNS> __device__ __forceinline__ int tile_position(int warp, int lane, int half)
{
    return warp % WARPGROUP_WARPS * WARP_M + (COLUMNS < 4 ? lane / 4 * 2 + half : lane / 4 + 8 * half);
}

/* Loads the A fragments of half of a K-block. half_k: bytes to the channel 4 on. */
template <int COLUMNS>
__device__ __forceinline__ void load_half_k_block(pixel_pair from, uint32_t half_k,
                                                  uint32_t (&to)[STATIONARY_MMA_STEPS / 2][4])
{
#pragma unroll
    for (int i = 0; i < STATIONARY_MMA_STEPS; i++) {
        uint32_t *words = &to[i / 2][i % 2 * 2];
        if (COLUMNS < 4) {
            const uint2 pair = load_shared<uint2>(from.half[0] + i * half_k);
            words[0] = pair.x;
            words[1] = pair.y;
        } else {
            words[0] = load_shared<uint32_t>(from.half[0] + i * half_k);
            words[1] = load_shared<uint32_t>(from.half[1] + i * half_k);
        }
    }
}

/* Stores a thread's two cells, whose first elements are `to`: by vectors, which hold the columns of both cells where a
 * cell has fewer than 4, or by single elements. `channels` of the cell exist, from the thread's first one on. */
template <int COLUMNS, bool VECTORS>
__device__ __forceinline__ void
store_two_cells(const parameters &layer, const float (&accumulators)[STATIONARY_BLOCK_N / 2], float *const (&to)[2],
                const bool (&exists)[2], int channels, uint32_t bias)
{
    constexpr int COLUMN_ACCUMULATORS = STATIONARY_BLOCK_N / 2 / COLUMNS, VECTOR = COLUMNS < 4 ? 2 * COLUMNS : COLUMNS;
#pragma unroll
    for (int i = 0; i < COLUMN_ACCUMULATORS; i += 4) {
        const int channel = 2 * i & (layer.cell_channels - 1), row = 2 * i >> layer.cell_channels_log2;
        const int64_t offset = row * layer.dst_strides.h + channel * layer.dst_strides.c;
        const auto add = load_shared<element_vector<float, 2>>(bias + channel * (uint32_t)sizeof(float));
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const bool is = channel + pair < channels;
            float values[2 * COLUMNS];
#pragma unroll
            for (int c = 0; c < 2 * COLUMNS; c++)
                values[c] = finish_sum(accumulators[c % COLUMNS * COLUMN_ACCUMULATORS + i + c / COLUMNS * 2 + pair],
                                       add.at[pair]);
            if constexpr (VECTORS) {
#pragma unroll
                for (int first = 0; first < 2 * COLUMNS; first += VECTOR) {
                    float vector[VECTOR];
#pragma unroll
                    for (int c = 0; c < VECTOR; c++)
                        vector[c] = values[first + c];
                    store_columns_if(is && exists[first / COLUMNS],
                                     to[first / COLUMNS] + offset + pair * layer.dst_strides.c, vector);
                }
            } else {
#pragma unroll
                for (int c = 0; c < 2 * COLUMNS; c++)
                    if (is && exists[c / COLUMNS])
                        to[c / COLUMNS][offset + pair * layer.dst_strides.c + c % COLUMNS] = values[c];
            }
        }
    }
}

/* The epilogue. Hiding these numbers from the compiler keeps it from computing what follows from them before the
 * main loop, which needs the registers. */
template <int COLUMNS>
__device__ __forceinline__ void store_warpgroup_tile(const parameters &layer, const stationary_layout &shared,
                                                     float (&accumulators)[STATIONARY_BLOCK_N / 2], int number,
                                                     tile_scheduler scheduler, int warp, int lane)
{
    asm volatile("" : "+r"(number), "+r"(scheduler.set), "+r"(warp), "+r"(lane));
    const tile_coord tile = find_n_tile(layer, scheduler.n_tile(layer));
    const int first_channel = tile.channel + lane % 4 * 2;
    if (layer.posts.count > 0)
        run_posts_of_cells<STATIONARY_PERIOD>(layer, accumulators, tile, first_channel);
    const warpgroup_tile_coord coord = find_warpgroup_tile(layer, number);
    float *to[2];
    bool exists[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int position = tile_position<COLUMNS>(warp, lane, h), image = coord.image;
        exists[h] = tile.exists;
        if (!coord.main) {
            const int images = position / layer.tail_columns;
            exists[h] = tile.exists && images < layer.tail_images;
            position -= images * layer.tail_columns;
            image += images;
        }
        exists[h] = exists[h] && image < layer.images;
        const int pixel = coord.column + position, row = pixel / layer.flat_columns;
        to[h] = static_cast<float *>(layer.dst) + image * layer.dst_strides.n +
                (tile.group * (int64_t)layer.group_out + first_channel) * layer.dst_strides.c +
                (row * layer.out_row_step + layer.schedules[tile.schedule].residue) * layer.dst_strides.h +
                (pixel - row * layer.flat_columns) * COLUMNS;
    }
    const uint32_t bias = shared.bias + lane % 4 * 2 * (uint32_t)sizeof(float);
    bool vectors = layer.vector_stores;
    if (COLUMNS < 4)
        vectors =
            layer.pair_stores && to[1] == to[0] + COLUMNS && (uintptr_t)to[0] % (2 * COLUMNS * sizeof(float)) == 0;
    if (vectors)
        store_two_cells<COLUMNS, true>(layer, accumulators, to, exists, layer.group_out - first_channel, bias);
    else
        store_two_cells<COLUMNS, false>(layer, accumulators, to, exists, layer.group_out - first_channel, bias);
}

/* Returns where a thread's positions are read in the first stage. Positions that a tile of tails lacks are read
 * where its first one is. */
template <int COLUMNS>
__device__ __forceinline__ pixel_pair own_pixels(const parameters &layer, const stationary_layout &shared, bool main,
                                                 int pitch, int warpgroup, int warp, int lane)
{
    pixel_pair own;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int pixel = tile_position<COLUMNS>(warp, lane, h);
        if (!main) {
            const int image = pixel / layer.tail_columns;
            pixel += image < layer.tail_images ? image * ((int)BOX_CHANNELS * pitch - layer.tail_columns) : -pixel;
        }
        own.half[h] = shared.pixels + warpgroup * BOX_BYTES + (pixel + lane % 4 * pitch) * (uint32_t)sizeof(float);
    }
    return own;
}

/* Runs a consumer warp: main loop and epilogue. */
template <int COLUMNS>
__device__ __forceinline__ void consume_tiles(const parameters &layer, const stationary_layout &shared, int warp,
                                              int lane)
{
    constexpr int N = STATIONARY_BLOCK_N, HALF = STATIONARY_MMA_STEPS / 2;
    const int pair = warp / (PAIR_WARPGROUPS * WARPGROUP_WARPS), warpgroup = warp / WARPGROUP_WARPS % PAIR_WARPGROUPS;
    const bool expects = layer.by_tma && warp % WARPGROUP_WARPS == 0 && lane == 0, never = layer.warpgroup_tiles <= 0;
    const int loader_rank = layer.multicast_pixels ? warpgroup : cluster_rank(); /* the block that loads the pixels */
    const stage_ring boxes = shared.boxes(layer, warpgroup);
    const operand_strides strides = {0, 0, 2 * N, 0};
    pipeline_state stage = {0, 0};
    uint32_t weights_parity = 0;
    int sequence = 0; /* number of the block tile among this block's */
    for (tile_scheduler scheduler(layer); scheduler.has_tiles(layer);
         scheduler.set += scheduler.set_step, weights_parity ^= 1) {
        for (int number = scheduler.first_tile; number < layer.m_tiles; number += layer.tile_step, sequence++) {
            if (sequence % PINGPONG_PAIRS != pair) {
                skip(stage, layer.k_blocks, layer.pixel_stages);
                continue;
            }
            const bool main = find_warpgroup_tile(layer, number * PAIR_WARPGROUPS + warpgroup).main;
            const int pitch = main ? BOX_PITCH : layer.tail_pitch;
            const pixel_pair own = own_pixels<COLUMNS>(layer, shared, main, pitch, warpgroup, warp, lane);
            const uint32_t half_k = 4 * pitch * (uint32_t)sizeof(float);
            float accumulators[N / 2];
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                accumulators[i] = 0;
            /* A parity tells a stage's phase only from the one before: the other pair must have read its tile's
             * pixels. */
            if (sequence > 0)
                mbarrier_wait(shared.order + 8 * (PAIR_WARPGROUPS * (1 - pair) + warpgroup),
                              (sequence - 1) / PINGPONG_PAIRS & 1);
            /* Fragments of one half of a K-block are loaded while the wgmmas of the other half run. */
            a_fragments<false, HALF> a[2];
            uint32_t b = descriptor_low(shared.weights, N * 4 * (uint32_t)sizeof(float));
#pragma unroll 1
            for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
                const uint32_t full = boxes.barriers + 8 * stage.at;
                mbarriers_wait(full, stage.parity, shared.weights_full + 8 * k_block, weights_parity);
                if (expects)
                    mbarrier_arrive_expect_tx(full, BOX_BYTES); /* for the next box in this stage */
                const uint32_t box = stage.at * boxes.bytes;
                pixel_pair from = {{box + own.half[0], box + own.half[1]}};
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    load_half_k_block<COLUMNS>(from, half_k, a[half].big);
                    from.half[0] += STATIONARY_MMA_STEPS * half_k;
                    from.half[1] += STATIONARY_MMA_STEPS * half_k;
                    multiply_window<false, N, 0, 1>(accumulators, a[half], b, strides);
                    wgmma_wait<1>();
                    keep_until_here(a[1 - half], never);
                    b += HALF * strides.b_step;
                }
                if (arrives_for_warp(lane))
                    mbarrier_arrive_remote(full + EMPTY, loader_rank);
                stage.next(layer.pixel_stages);
            }
            signal_for_warp(shared.order + 8 * (PAIR_WARPGROUPS * pair + warpgroup), lane);
            wgmma_wait<0>();
            keep_until_here(a[1], never);
            store_warpgroup_tile<COLUMNS>(layer, shared, accumulators, number * PAIR_WARPGROUPS + warpgroup, scheduler,
                                          warp, lane);
        }
        signal_for_warp(shared.weights_empty, lane);
    }
}

/* Loads a box where TMA cannot, by a warp, element by element; outside of src it is zeros. */
__device__ __forceinline__ void load_box_elementwise(const parameters &layer, const warpgroup_tile_coord &coord,
                                                     int channel, uint32_t to, uint32_t full, int lane)
{
    const int pitch = coord.main ? BOX_PITCH : layer.tail_pitch, rows = BOX_PITCH / pitch * (int)BOX_CHANNELS;
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
        const int image = coord.image + row / (int)BOX_CHANNELS, in = channel + row % (int)BOX_CHANNELS;
        const bool exists = image < layer.images && in < layer.groups * layer.group_in;
        const float *from =
            static_cast<const float *>(layer.src) + image * layer.src_strides.n + in * layer.src_strides.c;
#pragma unroll 1
        for (int i = lane; i < pitch; i += WARP) {
            const int column = coord.column + i;
            const float value = exists && column < layer.in_columns ? from[column] : 0.0f;
            store_shared(to + (row * pitch + i) * (int)sizeof(float), round_to_tf32(__float_as_uint(value)));
        }
    }
    __syncwarp();
    signal_for_warp(full, lane);
}

/* Loads the weights of each N tile by a warp; and the bias, unless there are post-ops: then consumers read it. */
__device__ __forceinline__ void load_weights(const parameters &layer, const stationary_layout &shared, int lane)
{
    uint32_t parity = 1;
    for (tile_scheduler scheduler(layer); scheduler.has_tiles(layer);
         scheduler.set += scheduler.set_step, parity ^= 1) {
        const tile_coord tile = find_n_tile(layer, scheduler.n_tile(layer));
        const int64_t cell = tile.group * layer.channel_tiles + (tile.channel >> layer.cell_channels_log2);
        const int64_t b_row = (cell * layer.b_rows + layer.schedules[tile.schedule].first_b_row) * layer.k_blocks;
        const char *from = static_cast<const char *>(layer.weights) + b_row * layer.b_row_bytes;
        uint32_t to = shared.weights, full = shared.weights_full;
        mbarrier_wait(shared.weights_empty, parity);
        for (int i = lane; i < layer.cell_channels; i += WARP) {
            float value = layer.posts.count > 0 ? NO_BIAS : 0;
            if (layer.posts.count == 0 && layer.bias != NULL && tile.channel + i < layer.group_out)
                value = static_cast<const float *>(layer.bias)[tile.group * layer.group_out + tile.channel + i];
            store_shared(shared.bias + i * (int)sizeof(float), value);
        }
        __syncwarp();
        const bool copies = elected();
        if (WARP_ARRIVALS > 1 && !copies)
            mbarrier_arrive(full); /* for the bias; the lane that copies arrives with the first copy */
#pragma unroll 1
        for (int k_block = 0; copies && k_block < layer.k_blocks; k_block++) {
            mbarrier_arrive_expect_tx(full, layer.weight_stage_bytes);
            bulk_load(to, from, layer.weight_stage_bytes, full);
            from += layer.weight_stage_bytes;
            to += layer.weight_stage_bytes;
            full += 8;
        }
    }
}

/* Loads the pixels of one warpgroup tile of each block tile: by one thread or, where TMA cannot, by a warp. */
template <bool BY_TMA>
__device__ __forceinline__ void load_pixels(const parameters &layer, const CUtensorMap *main_map,
                                            const CUtensorMap *tail_map, const stationary_layout &shared, int warpgroup,
                                            int lane)
{
    const uint16_t blocks = layer.multicast_pixels ? ALL_BLOCKS : (uint16_t)(1 << cluster_rank());
    const stage_ring boxes = shared.boxes(layer, warpgroup);
    stage_walk box(boxes, 1);
    for (tile_scheduler scheduler(layer); scheduler.has_tiles(layer); scheduler.set += scheduler.set_step) {
        const int group = scheduler.n_tile(layer) / (layer.channel_tiles * layer.schedule_count);
        for (int number = scheduler.first_tile; number < layer.m_tiles; number += layer.tile_step) {
            const warpgroup_tile_coord coord = find_warpgroup_tile(layer, number * PAIR_WARPGROUPS + warpgroup);
            int channel = group * layer.group_in;
#pragma unroll 1
            for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
                box.wait_empty();
                if (!BY_TMA)
                    load_box_elementwise(layer, coord, channel, box.buffer(), box.full(), lane);
                else
                    tma_load_multicast(box.buffer(), coord.main ? main_map : tail_map, coord.column, 0, channel,
                                       coord.image, box.full(), blocks);
                channel += (int)BOX_CHANNELS;
                box.next();
            }
        }
    }
}

template <int COLUMNS>
__global__ void TCONV_CLUSTER_BOUNDS(CLUSTER_BLOCKS, STATIONARY_THREADS)
    stationary_gemm(const __grid_constant__ parameters layer, const __grid_constant__ CUtensorMap main_map,
                    const __grid_constant__ CUtensorMap tail_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) char stages[];
    __shared__ float bias[STATIONARY_BLOCK_N];
    constexpr int PIXEL_BARRIERS = PAIR_WARPGROUPS * STAGE_BARRIERS;
    __shared__ __align__(8)
        uint64_t barriers[PIXEL_BARRIERS + MAX_STATIONARY_K_BLOCKS + 1 + PINGPONG_PAIRS * PAIR_WARPGROUPS];
    const uint32_t first = forgotten(shared_address(barriers)), memory = forgotten(shared_address(stages)),
                   weights_full = first + 8 * PIXEL_BARRIERS,
                   weights_empty = weights_full + 8 * MAX_STATIONARY_K_BLOCKS;
    const stationary_layout shared = {first,
                                      weights_full,
                                      weights_empty,
                                      weights_empty + 8,
                                      shared_address(bias),
                                      memory,
                                      memory + layer.k_blocks * layer.weight_stage_bytes};
    const int warp = warp_of_block(), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == STATIONARY_THREADS - 1) {
        prefetch_tensor_map(&main_map);
        prefetch_tensor_map(&tail_map);
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < PAIR_WARPGROUPS; i++)
            shared.boxes(layer, i).init(layer.by_tma ? 1 : WARP_ARRIVALS,
                                        WARPGROUP_WARPS * WARP_ARRIVALS *
                                            (layer.multicast_pixels ? CLUSTER_BLOCKS : 1));
        for (int i = 0; i < MAX_STATIONARY_K_BLOCKS; i++)
            mbarrier_init(shared.weights_full + 8 * i, i == 0 ? WARP_ARRIVALS : 1);
        mbarrier_init(shared.weights_empty, STATIONARY_CONSUMER_WARPS * WARP_ARRIVALS);
        for (int i = 0; i < PINGPONG_PAIRS * PAIR_WARPGROUPS; i++)
            mbarrier_init(shared.order + 8 * i, WARPGROUP_WARPS * WARP_ARRIVALS);
        mbarrier_init_fence();
        for (int i = 0; layer.by_tma && i < PAIR_WARPGROUPS * MAX_STAGES; i++)
            mbarrier_arrive_expect_tx(shared.boxes(layer, i / MAX_STAGES).barriers + 8 * (i % MAX_STAGES), BOX_BYTES);
    }
    cluster_sync();
    if (warp < STATIONARY_CONSUMER_WARPS) {
        setmaxnreg_increase<STATIONARY_CONSUMER_REGISTERS>();
        consume_tiles<COLUMNS>(layer, shared, warp, lane);
    } else {
        setmaxnreg_decrease<STATIONARY_PRODUCER_REGISTERS>();
        const int role = warp - STATIONARY_CONSUMER_WARPS;
        const bool loads_pixels = layer.multicast_pixels ? role == cluster_rank() : role < PAIR_WARPGROUPS;
        if (loads_pixels && !layer.by_tma) {
            load_pixels<false>(layer, &main_map, &tail_map, shared, role, lane);
        } else if (loads_pixels) {
            if (elected())
                load_pixels<true>(layer, &main_map, &tail_map, shared, role, lane);
        } else if (role == PAIR_WARPGROUPS) {
            wait_for_weights();
            load_weights(layer, shared, lane);
        }
    }
    cluster_sync(); /* no block ends while another still copies to it or arrives at its barriers */
#endif
}

} // namespace tconv::cells

#endif
