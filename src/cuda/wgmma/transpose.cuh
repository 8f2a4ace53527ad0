/* The transpose warps: they bring planes of src from raw stages, from the B stages themselves, or from src where TMA
 * cannot read it, to the K-major B operand, pixels of CORE_ROW_BYTES of channels, rounded or split on the way. */
#ifndef TCONV_CUDA_WGMMA_TRANSPOSE_CUH
#define TCONV_CUDA_WGMMA_TRANSPOSE_CUH

#include "../gemm/core_rows.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

/* Calls make(tile, from, to) for each raw stage that is full and the B stage that it becomes. */
template <class Make>
__device__ __forceinline__ void transform_raw_stages(const parameters &params, const shared_layout &shared, int lane,
                                                     Make make)
{
    stage_walk raw(shared.raw, 0), stage(shared.b, 1);
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        for (int k_block = 0; k_block < params.k_blocks; k_block++) {
            raw.wait_full();
            stage.wait_empty();
            make(tile, raw.buffer(), stage.buffer());
            stage.signal_written(lane);
            signal_for_warp(raw.empty(), lane);
            raw.next();
            stage.next();
        }
    }
}

/* The pixel of a raw stage that a lane transposes: its column in the patch, which may not exist there, and which pixel
 * of the patch it is. It is found by a division once, then moved on by steps; rows of the box end before column
 * `end`. */
struct pixel_walk {
    int column, pixel;
    __device__ __forceinline__ void next(const parameters &params, int end)
    {
        column += params.transpose_columns;
        pixel += params.transpose_pixels;
        if (column >= end) {
            column -= params.box_pitch;
            pixel += params.pitch - params.box_pitch;
        }
    }
};

/* Whether a lane loads a pixel that may not exist. It does, because that costs less than to ask: the value is dropped.
 * Racecheck would report the load where a bulk copy writes behind the raw stage meanwhile. */
__device__ __forceinline__ bool loads_pixel([[maybe_unused]] bool exists)
{
#ifdef TCONV_CUDA_FOR_RACECHECK
    return exists;
#else
    return true;
#endif
}

/* Transposes a lane's pixels of one core count times. All are loaded before the first is stored; the last may not
 * exist, where the box ends `left` pixels on: then it is not stored. */
template <class Mode, bool tight, int count>
__device__ __forceinline__ void transpose(const parameters &params, uint32_t from, uint32_t channel_bytes, uint32_t to,
                                          uint32_t plane, int step, pixel_walk &at, int end, int left)
{
    using CoreRows = core_rows<Mode>;
    uint32_t words[count][CoreRows::CHANNELS];
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int c = 0; c < CoreRows::CHANNELS; c++)
            if (loads_pixel(i < count - 1 || i * step < left))
                words[i][c] = load_shared<uint32_t>(from + c * channel_bytes +
                                                    i * step * (uint32_t)sizeof(typename Mode::Element));
#pragma unroll
    for (int i = 0; i < count; i++) {
        const bool exists = i < count - 1 || i * step < left;
        if (tight && exists)
            CoreRows::store_inside(words[i], to + at.pixel * CORE_ROW_BYTES, plane, at.column, params.pitch);
        else if (exists)
            CoreRows::store(words[i], to + (at.pixel + i * step) * CORE_ROW_BYTES, plane);
        if (tight)
            at.next(params, end);
    }
    if (!tight)
        at.pixel += count * step;
}

/* Transposes raw stages. Tight patches leave columns of the box out: that is slower by a walk over the columns, faster
 * where patches have several rows, of which more fit into the N of an MMA. */
template <class Mode, bool tight>
__device__ __forceinline__ void transpose_raw_stages(const parameters &params, const shared_layout &shared, int warp,
                                                     int lane)
{
    using CoreRows = core_rows<Mode>;
    constexpr int AT_ONCE = Mode::STRICT || CoreRows::PIXELS == 2 ? 2 : 4;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int patch = params.box_patch, cores = 2 * params.k_steps;
    const uint32_t channel_bytes = patch * element, core_bytes = params.patch * CORE_ROW_BYTES;
    const uint32_t plane = cores * core_bytes;
    /* Two warps go over each of two cores, or one over each of four. */
    const int core_warps = cores == 2 ? 2 : 1, first_core = warp / core_warps, core_step = TRANSPOSE_WARPS / core_warps;
    const int step = tight ? params.transpose_step : core_warps * WARP * CoreRows::PIXELS;
    const int warp_pixel = warp % core_warps * WARP * CoreRows::PIXELS, lane_pixel = lane * CoreRows::PIXELS,
              first_pixel = warp_pixel + lane_pixel;
    const int first_row = tight ? first_pixel / params.box_pitch : 0,
              first_column = first_pixel - first_row * params.box_pitch;
    transform_raw_stages(params, shared, lane, [&](const tile_place &tile, uint32_t from_stage, uint32_t to_stage) {
        const int skipped = tight ? stage_column(params, tile) - box_column(params, tile) : 0,
                  end = params.box_pitch - skipped;
        for (int core = first_core; core < cores; core += core_step) {
            uint32_t from = from_stage + core * CoreRows::CHANNELS * channel_bytes + first_pixel * element;
            const uint32_t to = to_stage + core * core_bytes;
            pixel_walk at = {first_column - skipped, first_row * params.pitch + first_column - skipped};
            int left = patch - warp_pixel; /* the same in all lanes, so that they do not diverge */
#pragma unroll 1
            for (; left > (AT_ONCE - 1) * step; left -= AT_ONCE * step, from += AT_ONCE * step * element)
                transpose<Mode, tight, AT_ONCE>(params, from, channel_bytes, to, plane, step, at, end,
                                                left - lane_pixel);
#pragma unroll 1
            for (; left > 0; left -= step, from += step * element)
                transpose<Mode, tight, 1>(params, from, channel_bytes, to, plane, step, at, end, left - lane_pixel);
        }
    });
}

/* Transposes a row of planes where it lies: a warp reads it whole before it writes. A lane has pixels count times, of
 * which the last may not exist. TMA has rounded to TF32 already. With space-to-depth, odd pixels follow all even
 * ones. */
template <class Mode, int count, bool space_to_depth>
__device__ __forceinline__ void transpose_row(uint32_t row, int pitch, int lane)
{
    using CoreRows = core_rows<Mode>;
    constexpr int STEP = WARP * CoreRows::PIXELS;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int pixel = lane * CoreRows::PIXELS;
    const bool last_exists = pixel + (count - 1) * STEP < pitch;
    uint32_t from = row + pixel * element, last = last_exists ? from + (count - 1) * STEP * element : from;
    uint32_t words[count][CoreRows::CHANNELS];
#pragma unroll
    for (int c = 0; c < CoreRows::CHANNELS; c++) {
#pragma unroll
        for (int i = 0; i < count - 1; i++)
            words[i][c] = load_shared<uint32_t>(from + i * STEP * element);
        words[count - 1][c] = load_shared<uint32_t>(last);
        from += pitch * element;
        last += pitch * element;
    }
    __syncwarp();
    constexpr int DEPTH = space_to_depth ? 2 : 1;
    const uint32_t next = (space_to_depth ? pitch / 2 : 1) * CORE_ROW_BYTES; /* from an even pixel to an odd one */
    const uint32_t to = row + pixel / DEPTH * CORE_ROW_BYTES + pixel % DEPTH * next;
#pragma unroll
    for (int i = 0; i < count; i++)
        if (i < count - 1 || last_exists)
            CoreRows::store_rounded(words[i], to + i * (STEP / DEPTH) * CORE_ROW_BYTES, next);
}

template <class Mode, int count, bool space_to_depth>
__device__ __forceinline__ void transpose_stages(const parameters &params, const shared_layout &shared, int warp,
                                                 int lane)
{
    const uint32_t row_bytes = params.pitch * CORE_ROW_BYTES;
    const int tiles = (params.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    stage_walk stage(shared.b, 0);
    for (int64_t left = (int64_t)tiles * params.k_blocks; left > 0; left--) {
        const uint32_t first = stage.buffer();
        mbarrier_wait(shared.raw.barriers + 8 * stage.state.at, stage.state.parity);
#pragma unroll 1
        for (uint32_t row = warp * row_bytes; row < params.b_stage_bytes; row += TRANSPOSE_WARPS * row_bytes)
            transpose_row<Mode, count, space_to_depth>(first + row, params.pitch, lane);
        stage.signal_written(lane);
        stage.next();
    }
}

template <class Mode, bool space_to_depth>
constexpr int TRANSPOSED_COLUMNS = max_transposed_columns(sizeof(typename Mode::Element), space_to_depth);

/* Does the same, compiled for each count that a row may take. */
template <class Mode, bool space_to_depth, int count = 1>
__device__ __forceinline__ void transpose_in_place(const parameters &params, const shared_layout &shared, int warp,
                                                   int lane)
{
    constexpr int STEP = WARP * core_rows<Mode>::PIXELS;
    if constexpr (count * STEP < TRANSPOSED_COLUMNS<Mode, space_to_depth>) {
        if (params.pitch > count * STEP) {
            transpose_in_place<Mode, space_to_depth, count + 1>(params, shared, warp, lane);
            return;
        }
    }
    transpose_stages<Mode, count, space_to_depth>(params, shared, warp, lane);
}

/* Gathers B stages from src itself, element by element, where it lies so that TMA cannot read it. */
template <class Mode>
__device__ __forceinline__ void gather_src(const parameters &params, const shared_layout &shared, int warp, int lane)
{
    using CoreRows = core_rows<Mode>;
    using Element = typename Mode::Element;
    constexpr int AT_ONCE = Mode::STRICT ? 2 : 4; /* cores whose loads are under way */
    const int cores = 2 * params.k_steps;
    const uint32_t core_bytes = params.patch * CORE_ROW_BYTES, plane = cores * core_bytes;
    stage_walk stage(shared.b, 1);
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const int first_column = stage_column(params, tile), first_row = tile.row + params.first_row;
        int channel_of_layer = tile.group * params.group_in;
        for (int channels = params.group_in; channels > 0; channels -= params.k_block_channels) {
            const plane_place at(params, tile, channel_of_layer);
            const Element *src = static_cast<const Element *>(params.src) + at.image * params.src_image +
                                 at.channel * params.src_channel;
            const int there = (unsigned)at.image < (unsigned)params.src_images
                                  ? min(min(channels, params.k_block_channels), params.held_channels - at.channel)
                                  : 0;
            stage.wait_empty();
            const uint32_t to = stage.buffer();
            for (int pixel = warp * WARP + lane; pixel < params.patch; pixel += TRANSPOSE_WARPS * WARP) {
                const int patch_row = pixel / params.pitch, column_of = pixel - patch_row * params.pitch;
                const int row = first_row + patch_row, column = first_column + column_of;
                const int place = params.space_to_depth_log2 == 0
                                      ? pixel
                                      : pixel - column_of + (column_of & 1) * (params.pitch / 2) + column_of / 2;
                const bool inside =
                    (unsigned)row < (unsigned)params.in_rows && (unsigned)column < (unsigned)params.in_columns;
                int left = inside ? there : 0;
                const Element *from = src + (int64_t)row * params.in_columns + column;
#pragma unroll 1
                for (int first = 0; first < cores; first += AT_ONCE) {
                    uint32_t values[AT_ONCE][CoreRows::CHANNELS];
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                        for (int c = 0; c < CoreRows::CHANNELS; c++) {
                            const int channel = i * CoreRows::CHANNELS + c;
                            values[i][c] = load_element(from + channel * params.src_channel, channel < left);
                        }
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++)
                        if (first + i < cores)
                            CoreRows::store_pixel(values[i], to + (first + i) * core_bytes + place * CORE_ROW_BYTES,
                                                  plane);
                    from += AT_ONCE * CoreRows::CHANNELS * params.src_channel;
                    left -= AT_ONCE * CoreRows::CHANNELS;
                }
            }
            stage.signal_written(lane);
            stage.next();
            channel_of_layer += params.k_block_channels;
        }
    }
}

} // namespace tconv::wgmma

#endif
