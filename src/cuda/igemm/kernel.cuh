/*
 * The kernel of the implicit GEMM, for one mode of arithmetic (Mode) and N positions of an MMA tile.
 *
 * It is persistent: each thread block of 16 warps takes block tiles until none is left. Two consumer warpgroups
 * multiply (mainloop.cuh). Of the other eight warps one issues TMA of src (B stages), one bulk copies of weights (A
 * stages), and two find where positions go in dst (offsets.cuh). Four loader warps do what the layer needs: they split
 * f32 in place or transpose raw stages (load.cuh), or gather src where TMA cannot read it (gather.cuh); else they are
 * epilogue warps, which store a tile while the next one is multiplied (epilogue_warps.cuh). A pixel of a B stage is 32 to
 * 128 bytes of channels, K-major and swizzled, as TMA brings NHWC. A tap is an offset into the B stage, or has a stage of
 * its own.
 *
 * Numeric order: phases of src where tiles sum over them, K-blocks of channels, taps by rows, then channels, as the
 * layer alone decides. In strict f32 each factor is split, x = big + small, and small * big + big * small + big * big of
 * a tap and K-block are summed by the tensor cores from zero, then added to f32 accumulators, with compensation where
 * they may be many. The bias comes last; where a cluster shares out the K-blocks of a tile, behind those of its first block,
 * and the blocks' sums are added in their order, in double in strict f32.
 */
#ifndef TCONV_CUDA_IGEMM_KERNEL_CUH
#define TCONV_CUDA_IGEMM_KERNEL_CUH

#include "../gemm/kernel.cuh"
#include "../numeric/forgotten.cuh"
#include "../ptx/dependent_launch.cuh"
#include "cluster.cuh"
#include "epilogue_warps.cuh"
#include "gather.cuh"
#include "mainloop.cuh"
#include "offsets.cuh"

namespace tconv::igemm
{

/* What is staged for post-ops that are not affine. */
template <class Mode, int N>
using posts_staged = std::conditional_t<STORES_POSTS<Mode, N>, float, typename Mode::Output>;

/* Hands a tile's accumulators to the epilogue warps, and stores them, as what is staged. */
template <class Mode, int N, class Staged>
__device__ __forceinline__ void stage_tile(const parameters &layer, const shared_layout &shared,
                                           const float (&sums)[Mode::MMA_TILES][N / 2], const tile_record &tile,
                                           pipeline_state &staging, int warp, int lane)
{
    if (PAIRS<Mode> && layer.paired)
        stage_accumulators<Mode, N, PAIRS<Mode>, Staged>(layer, shared, sums, tile, staging, warp, lane);
    else
        stage_accumulators<Mode, N, false, Staged>(layer, shared, sums, tile, staging, warp, lane);
}
template <class Mode, int N, class Staged>
__device__ __forceinline__ void store_tiles(const parameters &layer, const shared_layout &shared, int storer, int lane)
{
    if (PAIRS<Mode> && layer.paired)
        run_epilogue<Mode, N, PAIRS<Mode>, Staged>(layer, shared, storer, lane);
    else
        run_epilogue<Mode, N, false, Staged>(layer, shared, storer, lane);
}

template <class Mode, int N>
__device__ __forceinline__ void consume(const parameters &layer, const shared_layout &shared, int warp, int lane)
{
    accumulators<Mode, N> sums;
    const int warpgroup = warp / WARPGROUP_WARPS;
    const bool signals = (int)threadIdx.x % (WARPGROUP_WARPS * WARP) == 0;
    const bool has_pixels = layer.mma_pixel[warpgroup][0] < layer.stage_pixels; /* else it only drains the pipelines */
    consumer_state b_stage(shared.b), a_stage(shared.a);
    stage_walk table(shared.tables, 0);
    pipeline_state staging = {0, 1};

    for (int number = first_tile<Mode>(layer); number < layer.tiles; number += tile_step<Mode>(layer)) {
        const tile_record &tile = shared.records[table.state.at];
        table.wait_full();
        if (PAIRS<Mode> && layer.uneven)
            multiply_block_tile<Mode, N, PAIRS<Mode>>(layer, tile, warpgroup, has_pixels, signals, b_stage, a_stage,
                                                      sums);
        else
            multiply_block_tile<Mode, N, false>(layer, tile, warpgroup, has_pixels, signals, b_stage, a_stage, sums);
        if constexpr (HAS_POSTS<Mode>)
            if (layer.posts_of_sums) {
                wgmma_wait<0>(); /* as was done before, but without it ptxas serializes all products */
                run_posts_of_sums<Mode, N>(layer, tile, warp, lane, sums.of);
            }
        /* Before, the next kernel would have no room beside this one, and crowd on multiprocessors that are left. */
        if (number + tile_step<Mode>(layer) >= layer.tiles)
            launch_dependents();
        if constexpr (Mode::CLUSTERED)
            store_by_cluster<Mode, N>(layer, sums.of, tile, shared.offsets + table.state.at * layer.block_n,
                                      shared.b.buffers, warp, lane);
        else if (STORES_POSTS<Mode, N> && layer.epilogue_warps && layer.posts_of_staged)
            stage_tile<Mode, N, posts_staged<Mode, N>>(layer, shared, sums.of, tile, staging, warp, lane);
        else if (layer.epilogue_warps)
            stage_tile<Mode, N, typename Mode::Output>(layer, shared, sums.of, tile, staging, warp, lane);
        else
            store_accumulators<Mode, N>(layer, sums.of, tile, shared.offsets + table.state.at * layer.block_n,
                                        shared.staging + warp * WARP_STAGING_BYTES<typename Mode::Output, N>, warp,
                                        lane);
        __syncwarp();
        signal_for_warp(table.empty(), lane);
        table.next();
    }
}

__device__ __forceinline__ shared_layout lay_out_shared_memory(const parameters &layer, uint64_t *barriers,
                                                               tile_record *records, int staged_bytes, char *buffers)
{
    const uint32_t each = 8 * STAGE_BARRIERS;
    const uint32_t first = forgotten(shared_address(barriers)), memory = forgotten(shared_address(buffers));
    shared_layout shared;
    shared.b = {first, memory, layer.b_stage_bytes, layer.b_stages};
    shared.a = {first + each, shared.b.end(), layer.a_stage_taps * layer.a_tile_bytes, layer.a_stages};
    shared.raw = {first + 2 * each, shared.a.end(), layer.raw_stage_bytes, layer.raw_stages};
    shared.tables = {first + 3 * each, 0, 0, layer.tables};
    shared.staging_barriers = first + 4 * each;
    shared.records = records;
    char *tables = buffers + (shared.raw.end() - memory);
    shared.offsets = reinterpret_cast<int64_t *>(tables);
    char *staging = tables + layer.tables * layer.block_n * sizeof *shared.offsets;
    shared.staging = shared_address(staging);
    shared.coordinates = reinterpret_cast<uint32_t *>(staging + staged_bytes);
    return shared;
}

/* Inits the barriers of the pipelines, those of each by a warp of its own: they are a hundred, and all threads wait for them. */
__device__ __forceinline__ void init_barriers(const shared_layout &shared, int stage_arrivals, int table_readers,
                                              int warp)
{
    if (warp >= 4 + WARPGROUPS || !elected())
        return;
    if (warp == 0)
        shared.b.init(stage_arrivals, WARPGROUPS);
    else if (warp == 1)
        shared.a.init(1, WARPGROUPS);
    else if (warp == 2)
        shared.raw.init(1, LOADER_WARPS * WARP_ARRIVALS);
    else if (warp == 3)
        shared.tables.init(ADDRESS_WARPS * WARP_ARRIVALS, table_readers * WARP_ARRIVALS);
    else
        stage_ring{shared.staging_barriers + (warp - 4) * 8 * STAGE_BARRIERS, 0, 0, 0}.init(
            WARPGROUP_WARPS * WARP_ARRIVALS, WARPGROUP_EPILOGUE_WARPS * WARP_ARRIVALS);
    mbarrier_init_fence();
}

template <class Mode, int N>
__global__ void TCONV_HOPPER_BOUNDS(THREADS)
    implicit_gemm(const __grid_constant__ parameters layer, const __grid_constant__ CUtensorMap map,
                  const __grid_constant__ CUtensorMap weights_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char buffers[];
    __shared__ __align__(8) uint64_t barriers[BARRIERS];
    __shared__ tile_record records[MAX_TABLES];
    const shared_layout shared = lay_out_shared_memory(
        layer, barriers, records, Mode::CLUSTERED ? 0 : CONSUMER_WARPS * WARP_STAGING_BYTES<typename Mode::Output, N>,
        buffers);
    const int warp = warp_of_block(), lane = (int)threadIdx.x % WARP;
    if (layer.sums) /* are added by a kernel of one round, which begins with this one */
        launch_dependents();
    if (threadIdx.x == THREADS - 1) {
        prefetch_tensor_map(&map);
        prefetch_tensor_map(&weights_map);
    }
    init_barriers(shared, layer.by_tma && layer.src_channels_last && !Mode::SPLITS ? 1 : LOADER_WARPS * WARP_ARRIVALS,
                  CONSUMER_WARPS + (layer.epilogue_warps ? LOADER_WARPS : 0), warp);
    __syncthreads();
    if (layer.begins)
        wait_for_weights();
    if (warp < CONSUMER_WARPS) {
        setmaxnreg_increase<Mode::CONSUMER_REGISTERS>();
        consume<Mode, N>(layer, shared, warp, lane);
    } else {
        setmaxnreg_decrease<Mode::OTHER_REGISTERS>();
        const int role = warp - CONSUMER_WARPS;
        if (layer.src_transposed && role <= B_WARP)
            wait_for_weights(); /* the launch that packs them transposes src too */
        if (role < LOADER_WARPS) {
            if (!layer.by_tma)
                gather<Mode>(layer, shared, role * WARP + lane);
            else if (!Mode::CLUSTERED && !layer.src_channels_last && 2 * layer.stage_pixels <= LOADER_WARPS * WARP)
                transpose_raw<Mode, 2>(layer, shared, role * WARP + lane);
            else if (!Mode::CLUSTERED && !layer.src_channels_last)
                transpose_raw<Mode, 1>(layer, shared, role * WARP + lane);
            else if constexpr (Mode::SPLITS)
                split_b<Mode>(layer, shared, role * WARP + lane);
            else if constexpr (Mode::CLUSTERED)
                return;
            else if (STORES_POSTS<Mode, N> && layer.epilogue_warps && layer.posts_of_staged)
                store_tiles<Mode, N, posts_staged<Mode, N>>(layer, shared, role, lane);
            else if (layer.epilogue_warps)
                store_tiles<Mode, N, typename Mode::Output>(layer, shared, role, lane);
        } else if (role == B_WARP) {
            if (layer.by_tma && elected()) {
                if (layer.src_channels_last)
                    load_b<Mode>(layer, &map, shared);
                else
                    load_raw(layer, &map, shared);
            }
        } else if (role == A_WARP) {
            if (!elected())
                return;
            if (!Mode::STRICT && layer.weights_in_place) {
                load_a_boxes<Mode>(layer, &weights_map, shared);
            } else {
                wait_for_weights();
                load_a<Mode>(layer, shared);
            }
        } else {
            find_offsets<Mode>(layer, shared, (role - FIRST_ADDRESS_WARP) * WARP + lane);
        }
    }
#endif
}

} // namespace tconv::igemm

#endif
