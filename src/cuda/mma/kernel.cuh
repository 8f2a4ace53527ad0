/*
 * The kernel: a persistent block takes tiles of positions; each tile's patch of src and the block's weights pass
 * through pipeline stages in shared memory, a K-block at a time. They are filled by asynchronous copies that all
 * threads issue ahead of the main loop, into the next tile too. parameters.h says how a layer is tiled.
 *
 * Numeric order of an output: input channels K-block by K-block, in each row taps, then column shifts, then steps. The
 * MMAs accumulate flush_steps steps, then f32 adds take that to the accumulators (but for TF32), with compensation in
 * the kernels for sums of any length; the bias comes last.
 */
#ifndef TCONV_CUDA_MMA_KERNEL_CUH
#define TCONV_CUDA_MMA_KERNEL_CUH

#include "../ptx/dependent_launch.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "epilogue.cuh"
#include "load.cuh"
#include "mainloop.cuh"
#include "packed.cuh"
#include "parameters.h"
#include "schedule.cuh"

namespace tconv::mma
{

/* Returns the warps that a multiprocessor holds, as planning counts them (parameters.h). */
template <mode MODE> constexpr int resident_warps_of(int mmas)
{
    const numerics arithmetic = IS_F16<MODE>      ? NUMERICS_F16
                                : IS_BF16<MODE>   ? NUMERICS_BF16
                                : IS_STRICT<MODE> ? NUMERICS_STRICT
                                                  : NUMERICS_TF32;
    return resident_warps(arithmetic, MODE == COMPENSATED, mmas);
}

constexpr int registers_of(int warps)
{
    return warps <= 8 ? 255 : 65536 / WARP / warps / 8 * 8;
}

template <mode MODE, int STRIDE_W, int MMAS_M, int MMAS_N>
__global__ void __launch_bounds__(MAX_WARPS *WARP)
    __maxnreg__(registers_of(resident_warps_of<MODE>(STRIDE_W *MMAS_M *MMAS_N)))
        compute_tiles(const __grid_constant__ parameters params)
{
    extern __shared__ __align__(128) uint32_t shared[];
    __shared__ uint64_t full[MAX_STAGES];
    const block_origin block = find_block(params, blockIdx.x);
    loader<MODE> load(params, shared, block);
    make_tables(params, shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < params.stages; i++)
            mbarrier_init(shared_address(full + i), 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) /* which copies them */
        wait_for_weights();

    /* The prologue fills stages in the same loop as all others, so that what issue inlines is compiled once; but
     * compensated sums leave no register for that. */
    constexpr bool FILLS_IN_LOOP = MODE != COMPENSATED;
    for (int i = 1; !FILLS_IN_LOOP && i < params.stages; i++) {
        load.issue(full);
        __syncthreads(); /* the next may be of another tile */
    }

    const int number = (int)threadIdx.x / WARP, rest = number / params.n_warps;
    const int phase = block.phase_set * params.phase_warps + rest % params.phase_warps;
    const int m_warp = rest / params.phase_warps;
    const bool has_taps = phase < params.row_phases;
    warp_tile<MODE, STRIDE_W, MMAS_M, MMAS_N> warp = {
        {params, shared, (int)threadIdx.x % WARP, number, number % params.n_warps, block.group,
         (block.m_tile * params.m_warps + m_warp) * params.warp_m, phase, has_taps ? params.rows[phase].taps : 0,
         has_taps ? params.rows[phase].first_shift : 0,
         warp_weights_offset(params, block.phase_set, m_warp, rest % params.phase_warps)}};
    warp.find_pixels();
    warp.load_bias();
    warp.clear();
    int stage = 0;
    uint32_t parity = 0;
    tile_scheduler scheduler(params);
    while (scheduler.exists()) {
        uint32_t *words = shared + stage * params.stage_words;
        const bool fills = FILLS_IN_LOOP && load.issued < params.stages - 1; /* the first ones: none to wait for yet */
        if (!fills)
            load.wait(words);
        __syncthreads(); /* stage and table of offsets are free: the next K-block may be of another tile */
        load.issue(full);
        if (fills)
            continue;
        while (!mbarrier_try_wait(shared_address(full + stage), parity))
            ;
        warp.multiply(words, scheduler.tile.skew);
        if (++stage == params.stages) {
            stage = 0;
            parity ^= 1;
        }
        if (scheduler.k_block == params.k_blocks - 1)
            warp.finish(scheduler.tile);
        scheduler.next_k_block();
    }
}

/* Returns the kernel of a number, of those compiled for the shapes of a list of parameters.h. */
template <mode MODE, int... SHAPES> const void *kernel_of_number(int number)
{
    static constexpr void (*kernels[])(parameters) = {
        compute_tiles<MODE, SHAPES / 100, SHAPES / 10 % 10, SHAPES % 10>...};
    return (const void *)kernels[number];
}

} // namespace tconv::mma

#endif
