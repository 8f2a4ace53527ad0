/*
 * The kernel of cuda_wgmma, for one type of factors (Mode) and N positions of an MMA tile.
 *
 * A persistent block of 20 warps (16 in strict f32) computes tiles. Two warpgroups multiply. Of the other warps, one
 * loads src by TMA into raw stages, one loads weights into A stages, four transpose raw stages into B stages (from a
 * plane for each channel to pixels of 16 bytes of channels, the K-major operand that wgmma wants, rounded or split on
 * the way), and four are epilogue warps (two in strict f32). Each stage has a full and an empty barrier. A tap is an
 * offset into the B stage: pixels of the patch that follow one another are columns of the product that do, so that
 * nothing is copied for a tap. In place, there are no raw stages: TMA puts planes into the B stage itself, a row of a
 * core's channels after another, which one warp reads whole and writes back as as many pixels.
 *
 * MN-major, there are no B stages: raw stages are swizzled boxes of 64 pixels of a K-block's channels, which wgmma of
 * 16-bit types takes as they lie. Such an operand begins at a multiple of 8 pixels, so that only flat layers have it.
 * Where channels do not begin at multiples of 16 bytes, raw stages hold them from the multiple before, and the
 * transpose warps realign them into B stages.
 *
 * Numeric order: K-blocks, taps by rows, then K steps and columns, as the layer and the device alone decide. In strict
 * f32 each factor is split, x = big + small, and small * big + big * small + big * big of up to four products at a time
 * are summed by the tensor cores from zero, and then added in f32. Bias is last.
 */
#ifndef TCONV_CUDA_WGMMA_KERNEL_CUH
#define TCONV_CUDA_WGMMA_KERNEL_CUH

#include "../gemm/kernel.cuh"
#include "../ptx/dependent_launch.cuh"
#include "load.cuh"
#include "mainloop.cuh"
#include "posts.cuh"
#include "realign.cuh"
#include "store.cuh"
#include "transpose.cuh"

namespace tconv::wgmma
{

/* Loads the bias of rows lane / 4 and lane / 4 + 8 of the warp's 16. It is not yet converted, so that nothing waits for
 * it before the main loop. */
template <class Element>
__device__ __forceinline__ void load_bias(const parameters &params, const tile_place &tile, int warpgroup, int warp,
                                          int lane, Element (&bias)[2])
{
    const Element *from = static_cast<const Element *>(params.bias) + tile.group * params.group_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int channel = accumulator_channel(params, tile, warpgroup, warp, lane, i);
        bias[i] = params.bias != NULL && channel < params.group_out ? from[channel] : from_compute<Element>(0);
    }
}

/* The role of a consumer warp is the main loop and its side of the epilogue. */
template <class Mode, int N>
__device__ __forceinline__ void consume(const parameters &params, const shared_layout &shared, int warp, int lane)
{
    using Element = typename Mode::Element;
    float accumulators[MMA_TILES][N / 2];
    const int warpgroup = warp / WARPGROUP_WARPS;
    const bool signals = (int)threadIdx.x % (WARPGROUP_WARPS * WARP) == 0; /* releases stages for its warpgroup */
    consumer_state b_stage(b_is_raw_stages<Mode>(params) ? shared.raw : shared.b), a_stage(shared.a);
    uint32_t staged_parity = ~0u; /* a bit for each staging buffer */
    bool weights_are_loaded = false;

    operands at;
    const mma_schedule schedule = in_registers(params.schedule[0]);
    at.pixels_small = params.k_steps * 2 * params.patch;
    const int a_stages = params.k_block_a_stages[warpgroup], max_a_stages = params.max_k_block_a_stages;
    const int k_blocks = params.k_blocks;
    uint32_t first_weights[MMA_TILES], first_pixel[MMA_TILES];
#pragma unroll
    for (int i = 0; i < MMA_TILES; i++) {
        first_weights[i] = descriptor_low(0, params.weights_leading_bytes) + warpgroup * params.warpgroup_weights +
                           i * params.mma_tile_weights;
        first_pixel[i] = descriptor_low(0, params.pixels_leading_bytes) + params.mma_tile_first_pixel[warpgroup][i];
    }

    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const int skipped = (first_column(params, tile) - stage_column(params, tile)) >> params.space_to_depth_log2;
        Element loaded_bias[2];
        load_bias<Element>(params, tile, warpgroup, warp % WARPGROUP_WARPS, lane, loaded_bias);
        pending_release pending = {0, 0};
        int accumulate = 0;
#pragma unroll 1
        for (int k_block = 0; k_block < k_blocks; k_block++) {
            wait_for_stage<Mode::STRICT>(b_stage.barrier, b_stage.parity, pending);
            uint32_t pixels = b_stage.buffer + skipped;
#pragma unroll 1
            for (int i = 0; i < max_a_stages; i++) {
                if (!weights_are_loaded)
                    wait_for_stage<Mode::STRICT>(a_stage.barrier, a_stage.parity, pending);
                if (i < a_stages) {
                    at.begin(first_weights, a_stage.buffer, first_pixel, pixels);
                    multiply_mma_tiles<Mode, N>(accumulators, params, at, schedule, accumulate, pending);
                } else {
                    wgmma_wait<0>();
                    pending.release();
                    warpgroup_sync(warpgroup);
                }
                pixels -= params.a_stage_step;
                pending.a = signals && !params.resident ? a_stage.barrier + EMPTY : 0;
                if (Mode::STRICT)
                    pending.release();
                a_stage.next();
            }
            pending.b = signals ? b_stage.barrier + EMPTY : 0;
            if (Mode::STRICT)
                pending.release();
            b_stage.next();
        }
        wgmma_wait<0>();
        pending.release();
        weights_are_loaded = params.resident;
        float bias[2] = {to_compute(loaded_bias[0]), to_compute(loaded_bias[1])};
        finish_tile<Mode, N>(params, shared, tile, accumulators, bias, warp, lane, staged_parity);
    }
}

/* Finds the barriers and stages in shared memory. */
__device__ __forceinline__ shared_layout lay_out(const parameters &params, uint64_t *barriers, char *buffers)
{
    const uint32_t each = 8 * STAGE_BARRIERS, first = forgotten(shared_address(barriers));
    shared_layout shared;
    shared.raw = {first, forgotten(shared_address(buffers)), params.raw_stage_bytes, params.raw_stages};
    shared.a = {first + each, shared.raw.end(), params.a_stage_bytes, params.a_stages};
    shared.b = {first + 2 * each, shared.a.end(), params.b_stage_bytes, params.b_stages};
    shared.staged_full = first + 3 * each;
    shared.staged_empty = shared.staged_full + 8 * CONSUMER_WARPS * SUBTILES;
    shared.staged = shared.b.end();
    return shared;
}

/* Inits all barriers, by four warps, because all threads wait for them. */
template <class Mode>
__device__ __forceinline__ void init_barriers(const shared_layout &shared, const parameters &params, int warp)
{
    if (warp >= 4 || !elected())
        return;
    if (warp == 0)
        shared.raw.init(1, b_is_raw_stages<Mode>(params) ? WARPGROUPS : TRANSPOSE_WARPS * WARP_ARRIVALS);
    else if (warp == 1)
        shared.a.init(1, WARPGROUPS);
    else if (warp == 2)
        shared.b.init(TRANSPOSE_WARPS * WARP_ARRIVALS, WARPGROUPS);
    else
        for (int i = 0; i < 2 * CONSUMER_WARPS * SUBTILES; i++)
            mbarrier_init(shared.staged_full + 8 * i, WARP_ARRIVALS);
    mbarrier_init_fence();
}

/* The role of a transpose warp. MN-major, it has one only where planes are realigned. */
template <class Mode>
__device__ __forceinline__ void make_b_stages(const parameters &params, const shared_layout &shared, int role, int lane)
{
    if constexpr (Mode::MN_MAJOR) {
        if (params.channel_alignment == 8)
            realign_raw_stages<8>(params, shared, role, lane);
        else if (params.channel_alignment == 4)
            realign_raw_stages<4>(params, shared, role, lane);
        else if (params.channel_alignment == 2)
            realign_raw_stages<2>(params, shared, role, lane);
    } else {
        if (!Mode::STRICT && params.by_tma && params.space_to_depth_log2 == 1)
            transpose_in_place<Mode, true>(params, shared, role, lane);
        else if (!Mode::STRICT && params.by_tma && params.in_place)
            transpose_in_place<Mode, false>(params, shared, role, lane);
        else if (params.by_tma && params.tight)
            transpose_raw_stages<Mode, true>(params, shared, role, lane);
        else if (params.by_tma)
            transpose_raw_stages<Mode, false>(params, shared, role, lane);
        else
            gather_src<Mode>(params, shared, role, lane);
    }
}

/* The role of the thread that loads src. */
template <class Mode>
__device__ __forceinline__ void load_src(const parameters &params, const CUtensorMap *map, const shared_layout &shared)
{
    if (Mode::MN_MAJOR && params.channel_alignment > 0)
        load_misaligned_raw_stages(params, map, shared);
    else if (!Mode::STRICT && params.in_place)
        load_b_stages_in_place<Mode>(params, map, shared);
    else
        load_raw_stages(params, map, shared);
}

/* The role of an epilogue warp. */
template <class Mode, int N>
__device__ __forceinline__ void store(const parameters &params, const shared_layout &shared, int epilogue_warp,
                                      int lane)
{
    if (params.row_phases_together)
        store_tiles_of_both<Mode, N>(params, shared, epilogue_warp, lane);
    else
        store_tiles<Mode, N>(params, shared, epilogue_warp, lane);
}

/* Warpgroups share registers out: all warps of one run the same setmaxnreg. */
template <class Mode, int N>
__global__ void TCONV_HOPPER_BOUNDS(Mode::THREADS)
    implicit_gemm(const __grid_constant__ parameters params, const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char buffers[]; /* bytes, for swizzled boxes */
    __shared__ __align__(8) uint64_t barriers[BARRIERS];
    const shared_layout shared = lay_out(params, barriers, buffers);
    const int warp = warp_of_block();
    if (threadIdx.x == Mode::THREADS - 1)
        prefetch_tensor_map(&map);
    init_barriers<Mode>(shared, params, warp);
    __syncthreads();
    if (warp < CONSUMER_WARPS) {
        setmaxnreg_increase<Mode::CONSUMER_REGISTERS>();
        consume<Mode, N>(params, shared, warp_of_block(), lane_of_warp());
    } else {
        const int role = warp_of_block() - CONSUMER_WARPS, lane = lane_of_warp();
        if (role < TRANSPOSE_WARPS) {
            setmaxnreg_decrease<Mode::TRANSPOSE_REGISTERS>();
            make_b_stages<Mode>(params, shared, role, lane);
        } else if (role < 2 * WARPGROUP_WARPS) {
            setmaxnreg_decrease<Mode::LOAD_REGISTERS>();
            if (role == SRC_WARP) {
                if (params.by_tma && elected())
                    load_src<Mode>(params, &map, shared);
            } else if (role == WEIGHTS_WARP) {
                if (elected()) {
                    wait_for_weights();
                    load_a_stages(params, shared);
                }
            } else if constexpr (Mode::STRICT) {
                store<Mode, N>(params, shared, role - Mode::FIRST_EPILOGUE_WARP, lane);
            }
        } else if constexpr (!Mode::STRICT) {
            setmaxnreg_decrease<Mode::EPILOGUE_REGISTERS>();
            store<Mode, N>(params, shared, role - Mode::FIRST_EPILOGUE_WARP, lane);
        }
    }
#endif
}

typedef void kernel_function(parameters params, CUtensorMap map);

} // namespace tconv::wgmma

#endif
