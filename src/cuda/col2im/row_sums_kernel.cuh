/*
 * Hopper's kernels share the way of a block down its rows (row_sums_cp_async.cu has their description): multiply a row
 * of src, put the partials of the first band into the column buffer, shift the other bands, gather outputs.
 */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_KERNEL_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_KERNEL_CUH

#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "row_sums_gather.cuh"
#include "row_sums_mainloop.cuh"
#include "row_sums_tile.cuh"

namespace tconv::col2im::row_sums
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Writes the partials of the first band to the column buffer, zeros for pixels that do not exist. end: the end of those
 * that do. A lane's two pixels are neighbours or 8 apart. */
template <int N_TILES, int BAND_TILES, bool neighbours>
__device__ __forceinline__ void store_partials(float *partials, int lane, int end, float (&sums)[N_TILES * 4])
{
    if (end < WARP_M) {
#pragma unroll
        for (int i = 0; i < BAND_TILES * 4; i++)
            if ((neighbours ? lane / 4 * 2 + i % 4 / 2 : lane / 4 + i % 4 / 2 * 8) >= end)
                sums[i] = 0;
    }
    float *to = partials + lane % 4 * 2 * PITCH + lane / 4 * (neighbours ? 2 : 1);
#pragma unroll
    for (int n = 0; n < BAND_TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float *partial = to + (n * TILE_N + i) * PITCH;
            const float one = sums[n * 4 + i], other = sums[n * 4 + i + 2];
            if (neighbours) {
                *reinterpret_cast<float2 *>(partial) = make_float2(one, other);
            } else {
                partial[0] = one;
                partial[8] = other;
            }
        }
}

/* Shifts the sums of each other band to the band before. Of the last TAIL N tiles some may not exist. */
template <int N_TILES, int BAND_TILES, int TAIL>
__device__ __forceinline__ void shift_bands(int gemm_n, int lane, float (&sums)[N_TILES * 4])
{
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int from = n + BAND_TILES;
            const bool exists =
                from < N_TILES && (from < N_TILES - TAIL || from * TILE_N + lane % 4 * 2 + i % 2 < gemm_n);
            sums[n * 4 + i] = exists ? sums[from < N_TILES ? from * 4 + i : 0] : 0.0f;
        }
}

/* Goes down the rows, from the first K step's fragments on. */
template <int CONFIG, class Operand>
__device__ __forceinline__ void main_loop(const parameters &layer, const block_tile &block, const shared_layout &shared,
                                          Operand &operand, int warp, int lane)
{
    constexpr int N_TILES = configs[CONFIG].n_tiles;
    constexpr int BAND_TILES = configs[CONFIG].band_tiles;
    using Element = typename Operand::Arithmetic::Element;
    const int pixel = warp * WARP_M, row_pixels = 1 << layer.row_pixels_log2;
    const uint32_t weights = descriptor_low(shared_address(shared.weights), N_TILES * TILE_N * MMA_K_BYTES / 2);
    const int buffer_pixel = pixel + (pixel >> layer.row_pixels_log2) * GUARD;
    const int end_pixel = layer.columns.in - block.columns.first_column - (pixel & (row_pixels - 1));
    constexpr bool SPLITS = Operand::Arithmetic::PARTS > 1;
    const gatherer<Element> kept(layer, block);
    float sums[N_TILES * 4] = {};
    int buffer = 0;
    for (int row = block.first_row; row < block.end_quotient; row++) {
        if (row < layer.rows.in)
            multiply_row<N_TILES>(layer, operand, weights, sums);
        float *partials = shared.column_buffer + buffer * BAND_TILES * TILE_N * PITCH;
        const bool complete = row >= block.first_quotient;
        if (complete) {
            if (layer.buffers == 1)
                named_barrier_sync<THREADS>(); /* the last row has been gathered */
            store_partials<N_TILES, BAND_TILES, Operand::NEIGHBOURS>(partials + buffer_pixel, lane, end_pixel, sums);
        }
        if (layer.gemm_n > (N_TILES - 1) * TILE_N)
            shift_bands<N_TILES, BAND_TILES, 1>(layer.gemm_n, lane, sums);
        else
            shift_bands<N_TILES, BAND_TILES, N_TILES>(layer.gemm_n, lane, sums);
        if (complete) {
            named_barrier_sync<THREADS>();
            if constexpr (SPLITS && N_TILES <= 8) { /* there are no registers to keep it in */
                const gatherer<Element> mine(layer, block);
                gather<Element, (BAND_TILES < 3), CONFIG>(layer, block, shared, mine, partials, row);
            } else {
                gather<Element, (N_TILES > 8), CONFIG>(layer, block, shared, kept, partials, row);
            }
            buffer = layer.buffers - 1 - buffer;
        }
    }
}

#define ROW_SUMS_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define ROW_SUMS_BOUNDS(threads, blocks) __launch_bounds__((threads) > 32 ? 32 : (threads))
#endif

/* Blocks on a multiprocessor. */
template <int CONFIG, int PARTS>
constexpr int RESIDENT_BLOCKS = PARTS == 2 ? configs[CONFIG].strict_blocks : configs[CONFIG].blocks;

} // namespace tconv::col2im::row_sums

#endif
