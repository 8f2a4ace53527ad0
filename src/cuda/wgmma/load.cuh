/* The producer warps: TMA loads of src into raw stages or, where planes are transposed in place, into B stages, and
 * bulk copies of weights into A stages. */
#ifndef TCONV_CUDA_WGMMA_LOAD_CUH
#define TCONV_CUDA_WGMMA_LOAD_CUH

#include "../ptx/tma.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

__device__ __forceinline__ void load_raw_stages(const parameters &params, const CUtensorMap *map,
                                                const shared_layout &shared)
{
    load_k_blocks(params, shared.raw, shared.raw.barriers, params.raw_stage_bytes,
                  [&](const tile_place &tile, int channel, uint32_t to, uint32_t full) {
                      const plane_place plane(params, tile, channel);
#pragma unroll 1
                      for (int box = 0; box < params.stage_boxes; box++)
                          tma_load(to + box * params.pixels_leading_bytes, map,
                                   box_column(params, tile) + box * SWIZZLE_PIXELS, tile.row + params.first_row,
                                   plane.channel, plane.image, full);
                  });
}

/* Loads planes that are transposed in place: for each core, rows of the patch, each with the planes of all of the
 * core's channels. The raw stages' full barriers tell of it. */
template <class Mode>
__device__ __forceinline__ void load_b_stages_in_place(const parameters &params, const CUtensorMap *map,
                                                       const shared_layout &shared)
{
    constexpr int CORE_ROW_CHANNELS = CORE_ROW_BYTES / sizeof(typename Mode::Element);
    load_k_blocks(params, shared.b, shared.raw.barriers, params.b_stage_bytes,
                  [&](const tile_place &tile, int channel, uint32_t to, uint32_t full) {
                      plane_place plane(params, tile, channel);
#pragma unroll 1
                      for (int core = 0; core < 2 * params.k_steps; core++) {
                          tma_load(to, map, box_column(params, tile), plane.channel, tile.row + params.first_row,
                                   plane.image, full);
                          to += params.pixels_leading_bytes;
                          plane.channel += CORE_ROW_CHANNELS;
                      }
                  });
}

/* Loads raw stages from the multiple of 16 bytes before each channel's first pixel (see realign.cuh). */
__device__ __forceinline__ void load_misaligned_raw_stages(const parameters &params, const CUtensorMap *map,
                                                           const shared_layout &shared)
{
    load_k_blocks(params, shared.raw, shared.raw.barriers, params.expected_bytes,
                  [&](const tile_place &tile, int channel, uint32_t to, uint32_t full) {
                      const int row = channel >> __popc(params.map_row_channels - 1); /* of the map */
                      int first = params.src_misalignment + tile.column;
#pragma unroll 1
                      for (int part = 0; part < params.box_parts; part++, first += params.part_pixels) {
                          int pixel = first;
#pragma unroll 1
                          for (int box = 0; box < params.map_row_channels; box++) {
                              tma_load(to, map, pixel & -params.column_alignment, 0, row, tile.image, full);
                              to += params.box_step_bytes;
                              pixel += (int)params.src_channel;
                          }
                      }
                  });
}

__device__ __forceinline__ void load_a_stages(const parameters &params, const shared_layout &shared)
{
    stage_walk stage(shared.a, 1);
    const int stages = params.k_blocks * params.max_k_block_a_stages;
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const char *from = static_cast<const char *>(params.weights) +
                           (size_t)divide(number, params.by_m_blocks).rest * stages * params.a_stage_bytes;
        /* Not unrolled: ptxas 13.0 would drop the upper half of an address. */
#pragma unroll 1
        for (int i = 0; i < stages; i++, from += params.a_stage_bytes) {
            stage.expect(params.a_stage_bytes);
            bulk_load(stage.buffer(), from, params.a_stage_bytes, stage.full());
            stage.next();
        }
        if (params.resident)
            return;
    }
}

} // namespace tconv::wgmma

#endif
