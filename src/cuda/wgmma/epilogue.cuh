/* The consumers' side of the epilogue: accumulators get their bias and are staged in shared memory as rows of dst. */
#ifndef TCONV_CUDA_WGMMA_EPILOGUE_CUH
#define TCONV_CUDA_WGMMA_EPILOGUE_CUH

#include "../epilogue/finish.cuh"
#include "../gemm/staging.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

/* A warp stages its accumulators in two subtiles: SINGLE, 16 rows of M of an MMA tile each; PHASES, where the MMA
 * tiles are two column phases, 8 rows of both, interleaved; SPACE_TO_DEPTH, 8 rows of an MMA tile that are one column
 * of dst, and those of the other, interleaved. */
enum staged_as { SINGLE, PHASES, SPACE_TO_DEPTH };
template <class Mode, int N, staged_as as> struct staging {
    using Element = typename Mode::Element;
    static constexpr bool HALVES = as == PHASES;                                 /* of each MMA tile, in each subtile */
    static constexpr int WARP_ROWS = as == SPACE_TO_DEPTH ? WARP_M / 2 : WARP_M; /* channels of a warp */
    static constexpr int ROWS = HALVES ? WARP_ROWS / 2 : WARP_ROWS;
    static constexpr int POSITION_COLUMNS = as == SINGLE ? 1 : 2; /* columns of dst for each position */
    static constexpr int PITCH = POSITION_COLUMNS * staged_pitch(N, sizeof(Element));
};
template <class Mode, int N> constexpr int STAGED_BYTES = staged_bytes(N, sizeof(typename Mode::Element));

/* The place of an MMA tile in dst: elements first to end of its rows, staged one after another. In a flat layer they
 * begin in the middle of the first row. */
struct mma_tile_place {
    int64_t offset;      /* elements: where the first row begins, of the first output channel of the group */
    fast_divisor by_row; /* elements of a row */
    int first, end;
};

/* stack_row is which of the rows that share M. */
__device__ __forceinline__ mma_tile_place find_mma_tile(const parameters &params, const tile_place &tile, int warpgroup,
                                                        int mma_tile, int stack_row, int position_columns)
{
    const int column = tile.column + params.mma_tile_first_column[warpgroup][mma_tile];
    int row = tile.row + params.mma_tile_first_row[warpgroup][mma_tile] + stack_row,
        first_element = column * position_columns;
    mma_tile_place place;
    if (params.flat_columns > 0) {
        const int left =
            min(params.tile_columns - params.mma_tile_first_column[warpgroup][mma_tile], params.in_columns - column);
        const quotient rows = divide(column, params.by_flat_columns);
        row = rows.whole;
        first_element = 0;
        place.by_row = params.by_row;
        place.first = rows.rest * position_columns;
        place.end = place.first + min(params.mma_tile_columns, left) * position_columns;
    }
    row = row * params.stride_h + params.row_residue[warpgroup];
    if (params.flat_columns == 0) {
        /* Strides are 1 or 2. */
        const int rows = (params.out_rows - row + params.stride_h - 1) >> (params.stride_h - 1);
        place.by_row = params.out_columns - first_element < params.by_row.divisor ? params.by_last_row : params.by_row;
        place.first = 0;
        place.end = min(params.mma_tile_rows, rows) * place.by_row.divisor;
    }
    place.offset = tile.image * params.dst_image + (int64_t)tile.group * params.group_out * params.dst_channel +
                   (int64_t)row * params.out_columns + first_element;
    return place;
}

/* Returns the first output channel of a warp's subtile, in its group. */
template <class Staging>
__device__ __forceinline__ int subtile_channel(const parameters &params, const tile_place &tile, int warpgroup,
                                               int warp, int subtile)
{
    const int m = warp * Staging::WARP_ROWS + (Staging::HALVES ? subtile * Staging::ROWS : 0);
    return tile.channel + warpgroup * params.warpgroup_channels + (m & (params.mma_tile_channels - 1)); /* 32 or 64 */
}

/* Returns the bytes by which a lane's rows of dst are past a multiple of 16: bulk copies want the staged rows to be so
 * as well. */
template <class Mode, class Staging>
__device__ __forceinline__ int staged_misalignment(const parameters &params, const tile_place &tile, int warpgroup,
                                                   int warp, int subtile, int lane)
{
    using Element = typename Mode::Element;
    if (!params.staged_misaligned)
        return 0;
    const int mma_tile = Staging::HALVES ? 0 : subtile,
              stack_row = params.stack > 1 && warp * WARP_M >= params.mma_tile_channels;
    const mma_tile_place place = find_mma_tile(params, tile, warpgroup, mma_tile, stack_row, Staging::POSITION_COLUMNS);
    const int channel = subtile_channel<Staging>(params, tile, warpgroup, warp, subtile) + lane / 4;
    const uint32_t offset = (uint32_t)place.offset + place.first + channel * (uint32_t)params.dst_channel;
    return (int)((uint32_t)(uintptr_t)params.dst + offset * (uint32_t)sizeof(Element)) & 15;
}

/* Stages MMA tile `subtile`; bias is of rows lane / 4 and 8 on. Accumulators are selected by values, not by index, so
 * that they stay in registers. */
template <class Mode, int N>
__device__ __forceinline__ void stage_mma_tile(const float (&accumulators)[MMA_TILES][N / 2], const float (&bias)[2],
                                               uint32_t staged, int subtile, int lane)
{
    stage_rows<typename Mode::Element, N / 2, staging<Mode, N, SINGLE>::PITCH>(staged, lane, [&](int i) {
        const float first = subtile == 0 ? accumulators[0][i] : accumulators[1][i];
        const float second = subtile == 0 ? accumulators[0][i + 1] : accumulators[1][i + 1];
        return finish_pair(first, second, bias[i / 2 % 2]);
    });
}

/* Stages two columns of dst side by side for each position: columns(i) are those that a lane has for its accumulator i
 * of 8 rows of M. */
template <class Staging, int N, class Columns>
__device__ __forceinline__ void stage_columns(uint32_t staged, int lane, Columns columns)
{
    using Element = typename Staging::Element;
    const uint32_t to = staged + lane / 4 * Staging::PITCH + lane % 4 * 4 * (int)sizeof(Element);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int k = 0; k < 2; k++)
            stage_pair<Element>(to + (j * 16 + k * 2) * (int)sizeof(Element), columns(4 * j + k));
}

/* Stages both columns of dst of MMA tile `subtile`. */
template <class Mode, int N>
__device__ __forceinline__ void stage_space_to_depth(const float (&accumulators)[MMA_TILES][N / 2], float bias,
                                                     uint32_t staged, int subtile, int lane)
{
    stage_columns<staging<Mode, N, SPACE_TO_DEPTH>, N>(staged, lane, [&](int i) {
        const float zero = subtile == 0 ? accumulators[0][i] : accumulators[1][i];
        const float one = subtile == 0 ? accumulators[0][i + 2] : accumulators[1][i + 2];
        return finish_pair(zero, one, bias);
    });
}

/* Stages both column phases; swapped where MMA tile 0 is the odd one. */
template <class Mode, int N>
__device__ __forceinline__ void stage_phases(const float (&accumulators)[MMA_TILES][N / 2], const float (&bias)[2],
                                             bool swapped, uint32_t staged, int subtile, int lane)
{
    const float add = subtile == 0 ? bias[0] : bias[1];
    stage_columns<staging<Mode, N, PHASES>, N>(staged, lane, [&](int i) {
        const float zero = finish_sum(subtile == 0 ? accumulators[0][i] : accumulators[0][i + 2], add);
        const float one = finish_sum(subtile == 0 ? accumulators[1][i] : accumulators[1][i + 2], add);
        return swapped ? make_float2(one, zero) : make_float2(zero, one);
    });
}

/* Stages a consumer warp's accumulators of a tile, each subtile when its staging buffer is empty. */
template <class Mode, int N>
__device__ __forceinline__ void stage_tile(const parameters &params, const shared_layout &shared,
                                           const tile_place &tile, const float (&accumulators)[MMA_TILES][N / 2],
                                           const float (&bias)[2], int warp, int lane, uint32_t &staged_parity)
{
    const int warpgroup = warp / WARPGROUP_WARPS, own = warp % WARPGROUP_WARPS;
    const bool interleaved = params.column_phases == 2;
    const auto misalignment = [&](auto staging, int subtile) {
        return staged_misalignment<Mode, decltype(staging)>(params, tile, warpgroup, own, subtile, lane);
    };
#pragma unroll
    for (int subtile = 0; subtile < SUBTILES; subtile++) {
        const int buffer = params.staging_buffers == 2 ? subtile : 0, place_of_warp = warp * SUBTILES + buffer;
        uint32_t staged = shared.staged + (warp * params.staging_buffers + buffer) * STAGED_BYTES<Mode, N>;
        mbarrier_wait(shared.staged_empty + 8 * place_of_warp, staged_parity >> buffer & 1);
        staged_parity ^= 1 << buffer;
        if (interleaved)
            stage_phases<Mode, N>(accumulators, bias, params.first_phase == 1,
                                  staged + misalignment(staging<Mode, N, PHASES>(), subtile), subtile, lane);
        else if (!Mode::STRICT && !Mode::MN_MAJOR && params.space_to_depth_log2 == 1)
            stage_space_to_depth<Mode, N>(accumulators, bias[0],
                                          staged + misalignment(staging<Mode, N, SPACE_TO_DEPTH>(), subtile), subtile,
                                          lane);
        else
            stage_mma_tile<Mode, N>(accumulators, bias, staged + misalignment(staging<Mode, N, SINGLE>(), subtile),
                                    subtile, lane);
        fence_proxy_async();
        __syncwarp();
        signal_for_warp(shared.staged_full + 8 * place_of_warp, lane);
    }
}

} // namespace tconv::wgmma

#endif
