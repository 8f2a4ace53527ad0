/* The producer warps: TMA loads of src into raw stages or, where planes are transposed in place, into B stages, and
 * bulk copies of weights into A stages. */
#ifndef TCONV_CUDA_WGMMA_LOAD_CUH
#define TCONV_CUDA_WGMMA_LOAD_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/divisor.h"
#include "../ptx/mbarrier.cuh"
#include "../ptx/tma.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

__device__ __forceinline__ void load_raw_stages(const parameters &params, const CUtensorMap *map,
                                                const shared_layout &shared)
{
    pipeline_state raw = {0, 1};
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const int column = box_column(params, tile), row = tile.row + params.first_row;
        int channel = tile.group * params.group_in;
#pragma unroll 1
        for (int k_block = 0; k_block < params.k_blocks; k_block++, channel += params.k_block_channels) {
            const uint32_t full = shared.raw_full + 8 * raw.at;
            mbarrier_wait(shared.raw_empty + 8 * raw.at, raw.parity);
            mbarrier_arrive_expect_tx(full, params.raw_stage_bytes);
#pragma unroll 1
            for (int box = 0; box < params.stage_boxes; box++)
                tma_load(shared.raw_stages + raw.at * params.raw_stage_bytes + box * params.pixels_leading_bytes, map,
                         column + box * SWIZZLE_PIXELS, row, channel, tile.image, full);
            raw.next(params.raw_stages);
        }
    }
}

/* Loads planes that are transposed in place: for each core, rows of the patch, each with the planes of all of the
 * core's channels. */
template <class Mode>
__device__ __forceinline__ void load_b_stages_in_place(const parameters &params, const CUtensorMap *map,
                                                       const shared_layout &shared)
{
    constexpr int CORE_ROW_CHANNELS = CORE_ROW_BYTES / sizeof(typename Mode::Element);
    pipeline_state stage = {0, 1};
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const int column = box_column(params, tile), row = tile.row + params.first_row;
        int channel = tile.group * params.group_in;
#pragma unroll 1
        for (int k_block = 0; k_block < params.k_blocks; k_block++) {
            const uint32_t full = shared.raw_full + 8 * stage.at;
            uint32_t to = shared.b_stages + stage.at * params.b_stage_bytes;
            mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
            mbarrier_arrive_expect_tx(full, params.b_stage_bytes);
#pragma unroll 1
            for (int core = 0; core < 2 * params.k_steps; core++) {
                tma_load(to, map, column, channel, row, tile.image, full);
                to += params.pixels_leading_bytes;
                channel += CORE_ROW_CHANNELS;
            }
            stage.next(params.b_stages);
        }
    }
}

__device__ __forceinline__ void load_a_stages(const parameters &params, const shared_layout &shared)
{
    pipeline_state stage = {0, 1};
    const int stages = params.k_blocks * params.max_k_block_a_stages;
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const char *from = static_cast<const char *>(params.weights) +
                           (size_t)divide(number, params.by_m_blocks).rest * stages * params.a_stage_bytes;
        /* Not unrolled: ptxas 13.0 would drop the upper half of an address. */
#pragma unroll 1
        for (int i = 0; i < stages; i++, from += params.a_stage_bytes) {
            const uint32_t full = shared.a_full + 8 * stage.at;
            mbarrier_wait(shared.a_empty + 8 * stage.at, stage.parity);
            mbarrier_arrive_expect_tx(full, params.a_stage_bytes);
            bulk_load(shared.a_stages + stage.at * params.a_stage_bytes, from, params.a_stage_bytes, full);
            stage.next(params.a_stages);
        }
        if (params.resident)
            return;
    }
}

} // namespace tconv::wgmma

#endif
