/*
 * The streaming kernel of cuda_cells: NCHW on Hopper's tensor cores, f32 in TF32 or, in strict f32, as 3xTF32; and 16 bits,
 * where src is words of two columns (words.c), as which it is loaded: a word is 2 of K.
 *
 * A persistent block computes block tiles of BLOCK_M positions by one cell. Each of the two consumer warpgroups
 * multiplies 64 positions: a position is a row of M, whose pixels are loaded from the planes of src in shared memory
 * straight into A fragments and rounded there; its cell is N. So src is not transposed, a shift is an address, and an
 * input that several outputs share is read once. One producer warp issues TMA loads of pixels, another bulk copies of
 * weights. The two blocks of a cluster differ in their positions alone: each multicasts half of a weight tile to both.
 *
 * Numeric order: K-blocks, then the schedule's entries, then wgmma steps, as the layer and the device alone decide. In
 * strict f32 each factor is split, x = big + small; wgmma sums small * big + big * small + big * big of an entry from
 * zero, and the result is then added in f32; so are the partial sums of segments, in their order. Bias is added last;
 * post-ops follow.
 */
#ifndef TCONV_CUDA_CELLS_KERNEL_CUH
#define TCONV_CUDA_CELLS_KERNEL_CUH

#include "../gemm/kernel.cuh"
#include "../ptx/dependent_launch.cuh"
#include "epilogue.cuh"
#include "load.cuh"
#include "mainloop.cuh"

namespace tconv::cells
{

/* Roles of the producer warps: all others than WEIGHT_WARP are COPY_WARPS where TMA cannot read src. */
constexpr int PIXEL_WARP = 0;
constexpr int WEIGHT_WARP = 3;
constexpr int CONSUMER_REGISTERS = 232; /* of a thread; of all threads 168 on average, which the launch gives each */
constexpr int PRODUCER_REGISTERS = 40;

/* Returns where a thread's positions are read, in bytes from the beginning of a stage. */
__device__ __forceinline__ pixel_pair own_pixels(const parameters &layer, int warp, int lane)
{
    pixel_pair own;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int offset = position_offset(&layer, own_position(layer, warp, lane, h));
        own.half[h] = (uint32_t)(offset + lane % 4 * layer.channel_pitch) * sizeof(float);
    }
    return own;
}

/* Arrives at the empty barriers of the stages that end with an entry of these flags. */
__device__ __forceinline__ void release_stages(uint32_t flags, uint32_t weights_empty, uint32_t pixels_empty,
                                               bool signals, int lane)
{
    if (flags & WEIGHT_TILE_ENDS && signals)
        for (int rank = 0; rank < CLUSTER_BLOCKS; rank++)
            mbarrier_arrive_remote(weights_empty, rank);
    if (flags & STAGE_ENDS)
        signal_for_warp(pixels_empty, lane);
}

/*
 * Runs a consumer warp: main loop and epilogue. While wgmma runs on an entry, everything for the next one is done: its
 * stages are waited for, its fragments loaded and rounded. Then the wgmma group is waited for: two warpgroups keep the
 * tensor cores busy alternately. That needs two stages of each pipeline: one is waited for before the one before it is
 * released.
 */
template <bool STRICT, int MMA_N, int MMA_STEPS, class Element, bool straddle>
__device__ __forceinline__ void consume_tiles(const parameters &layer, shared_layout shared, int warp, int lane)
{
    constexpr int N = block_n(STRICT);
    constexpr wgmma_type TYPE = TYPE_OF<Element>;
    float accumulators[N / 2], entry_accumulators[STRICT ? N / 2 : 2];
    const bool signals = warp % WARPGROUP_WARPS == 0 && lane == 0, never = layer.tiles <= 0;
    float one = 1.0f;
    asm volatile("" : "+f"(one));
    operand_strides strides;
    strides.half_k = 4 * layer.channel_pitch * sizeof(float);
    strides.a_step = 2 * strides.half_k;
    const pixel_pair own = own_pixels(layer, warp, lane);
    const uint32_t partial_sums = shared.partial_sums + (warp * WARP + lane) * 4 * (uint32_t)sizeof(float);
    /* This keeps them in registers: the compiler would compute them again for every entry. */
    asm volatile("" : "+r"(shared.pixels.barriers), "+r"(shared.pixels.buffers));
    asm volatile("" : "+r"(shared.weights.barriers), "+r"(shared.weights.buffers));
    schedule_walk<MMA_N == N, STRICT, N> at(layer);
    const auto prepare = [&](uint32_t(&to)[MMA_STEPS][4]) {
        mbarriers_wait(shared.pixels.barriers + 8 * at.pixel_stage.at, at.pixel_stage.parity,
                       shared.weights.barriers + 8 * at.weight_stage.at, at.weight_stage.parity);
        const uint32_t pixels =
            shared.pixels.buffers + at.pixel_stage.at * layer.pixel_stage_bytes + at.pixels + at.pixel * sizeof(float);
        load_fragments<straddle>({{pixels + own.half[0], pixels + own.half[1]}}, strides, to);
        if (TYPE == WGMMA_TF32 && !STRICT)
            round_fragments(to, one);
    };
    a_fragments<STRICT, MMA_STEPS> a;
    {
        uint32_t first[MMA_STEPS][4];
        prepare(first);
        take_fragments(first, a);
    }
    for (int number = at.tile; number < layer.tiles; number = at.tile) {
        const tile_coord tile = find_tile(layer, number);
        bool first = true, last = true;
        do {
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                accumulators[i] = 0;
            bool segment_ends;
#pragma unroll 1
            do {
                strides.small_part = 2 * at.b_rows;
                strides.b_step = (STRICT ? 2 : 1) * strides.small_part;
                const uint32_t b =
                    descriptor_low(shared.weights.buffers + at.weight_stage.at * layer.weight_stage_bytes,
                                   at.b_rows * 4 * (uint32_t)sizeof(float)) +
                    at.b_row;
                const int window = (int)at.window;
                with_window<MMA_N, N>(window, [&](auto mma) {
                    if constexpr (STRICT)
                        multiply_window<STRICT, MMA_N, mma.first, mma.count>(entry_accumulators, a, b, strides);
                    else
                        multiply_window<STRICT, MMA_N, mma.first, mma.count, TYPE>(accumulators, a, b, strides);
                });
                const uint32_t flags = at.flags,
                               weights_empty = shared.weights.barriers + EMPTY + 8 * at.weight_stage.at,
                               pixels_empty = shared.pixels.barriers + EMPTY + 8 * at.pixel_stage.at;
                segment_ends = at.advance(layer);
                uint32_t next[MMA_STEPS][4];
                if (at.tile < layer.tiles)
                    prepare(next);
                wgmma_wait<0>();
                keep_until_here(a, never);
                release_stages(flags, weights_empty, pixels_empty, signals, lane);
                if constexpr (STRICT)
                    with_window<MMA_N, N>(window, [&](auto mma) {
#pragma unroll
                        for (int i = mma.first * MMA_N / 2; i < (mma.first + mma.count) * MMA_N / 2; i++)
                            accumulators[i] += entry_accumulators[i];
                    });
                take_fragments(next, a);
            } while (!segment_ends);
            last = !STRICT || at.tile != number;
            if (STRICT && !(first && last))
                join_segments(accumulators, partial_sums, first, last);
            first = false;
        } while (!last);
        store_tile<Element>(layer, accumulators, tile, warp, lane);
    }
}

template <bool STRICT, int MMA_N, int MMA_STEPS, class Element = float, bool straddle = false>
__global__ void TCONV_CLUSTER_BOUNDS(CLUSTER_BLOCKS, STREAMING_THREADS)
    streaming_gemm(const __grid_constant__ parameters layer, const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) char stages[];
    __shared__ __align__(8) uint64_t barriers[2 * STAGE_BARRIERS];
    const uint32_t first = forgotten(shared_address(barriers));
    const stage_ring pixels = {first, forgotten(shared_address(stages)), layer.pixel_stage_bytes, layer.pixel_stages};
    const stage_ring weights = {first + 8 * STAGE_BARRIERS, pixels.end(), layer.weight_stage_bytes,
                                layer.weight_stages};
    const shared_layout shared = {pixels, weights, weights.end()};
    const int warp = warp_of_block(), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == blockDim.x - 1)
        prefetch_tensor_map(&map);
    if (threadIdx.x == 0) {
        pixels.init(layer.by_tma ? 1 : COPY_WARPS * WARP, CONSUMER_WARPS * WARP_ARRIVALS);
        weights.init(1, CONSUMER_WARPGROUPS * CLUSTER_BLOCKS);
        mbarrier_init_fence();
    }
    cluster_sync();
    if (warp < CONSUMER_WARPS) {
        setmaxnreg_increase<CONSUMER_REGISTERS>();
        consume_tiles<STRICT, MMA_N, MMA_STEPS, Element, straddle>(layer, shared, warp, lane);
    } else {
        setmaxnreg_decrease<PRODUCER_REGISTERS>();
        const int role = warp - CONSUMER_WARPS;
        if (role == WEIGHT_WARP) {
            if (elected()) {
                wait_for_weights();
                load_weights(layer, shared);
            }
        } else if (!layer.by_tma) {
            load_pixels<Element>(layer, shared, role * WARP + lane);
        } else if (role == PIXEL_WARP && elected()) {
            load_pixels_tma(layer, &map, shared);
        }
    }
    cluster_sync(); /* no block ends while another still copies to it or arrives at its barriers */
#endif
}

} // namespace tconv::cells

#endif
