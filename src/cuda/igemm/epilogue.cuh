/* From a warp's sums in registers to dst, through its own staging memory, so that neighbouring lanes store neighbouring elements;
 * where pixels go in dst is a table that a role of its own makes. */
#ifndef TCONV_CUDA_IGEMM_EPILOGUE_CUH
#define TCONV_CUDA_IGEMM_EPILOGUE_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "tile.cuh"

namespace tconv::igemm
{

template <class Element> constexpr int STAGED_PIXEL = tconv_igemm_staged_pixel(sizeof(Element));
template <class Element, int N> constexpr int STAGED_ROW = tconv_igemm_staged_row(N, sizeof(Element));
template <class Element, int N> constexpr int STAGED_BYTES = tconv_igemm_staged_bytes(N, sizeof(Element));

template <class Half> __device__ __forceinline__ uint32_t pack_pair(float first, float second)
{
    element_vector<Half, 2> pair;
    pair.at[0] = from_compute<Half>(first);
    pair.at[1] = from_compute<Half>(second);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* Stores two matrices of 8 x 8 elements of 16 bits, transposed: lane i < 16 says where row i % 8 of matrix i / 8 goes. */
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t first, uint32_t second)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(first),
                 "r"(second)
                 : "memory");
}

/* Half of a unit's 16 rows of M of a warp, from sum `first` on, pixel by pixel. Of the four sums for each 8 pixels, the first two are of row lane / 4 and
 * pixels lane % 4 * 2 and one on, the others of 8 rows on; bias is of these two rows. */
template <int N, int first>
__device__ __forceinline__ void stage_pixels(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                             float)
{
    constexpr int PIXEL = STAGED_PIXEL<float>;
    char *to = staged + lane % 4 * 2 * PIXEL + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        *reinterpret_cast<float *>(to + (i / 4 * 8 + i % 2) * PIXEL + i / 2 % 2 * 32) =
            sums[first + i] + bias[i / 2 % 2];
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_pixels(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                             Half)
{
    constexpr int PIXEL = STAGED_PIXEL<Half>;
    const uint32_t to = shared_address(staged) + lane % 8 * PIXEL + lane / 8 % 2 * 16;
#pragma unroll
    for (int i = 0; i < N / 4; i += 4)
        store_transposed(to + i * 2 * PIXEL, pack_pair<Half>(sums[first + i] + bias[0], sums[first + i + 1] + bias[0]),
                         pack_pair<Half>(sums[first + i + 2] + bias[1], sums[first + i + 3] + bias[1]));
}

/* The same, row of M by row. */
template <int N, int first>
__device__ __forceinline__ void stage_rows(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                           float)
{
    constexpr int ROW = STAGED_ROW<float, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < N / 4; i += 2)
        *reinterpret_cast<float2 *>(to + i / 4 * 32 + i / 2 % 2 * 8 * ROW) =
            make_float2(sums[first + i] + bias[i / 2 % 2], sums[first + i + 1] + bias[i / 2 % 2]);
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_rows(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                           Half)
{
    constexpr int ROW = STAGED_ROW<Half, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < N / 4; i += 2)
        *reinterpret_cast<uint32_t *>(to + i / 4 * 16 + i / 2 % 2 * 8 * ROW) =
            pack_pair<Half>(sums[first + i] + bias[i / 2 % 2], sums[first + i + 1] + bias[i / 2 % 2]);
}

/* A quarter of both units of a pair, from sum `first` on: row of M by row, columns of the two phases in turn. */
template <int N, int first>
__device__ __forceinline__ void stage_pairs(const float (&even)[N / 2], const float (&odd)[N / 2],
                                            const float (&bias)[2], char *staged, int lane, float)
{
    constexpr int ROW = STAGED_ROW<float, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 16;
#pragma unroll
    for (int i = 0; i < N / 8; i += 2) {
        const float add = bias[i / 2 % 2];
        *reinterpret_cast<float4 *>(to + i / 4 * 64 + i / 2 % 2 * 8 * ROW) = make_float4(
            even[first + i] + add, odd[first + i] + add, even[first + i + 1] + add, odd[first + i + 1] + add);
    }
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_pairs(const float (&even)[N / 2], const float (&odd)[N / 2],
                                            const float (&bias)[2], char *staged, int lane, Half)
{
    constexpr int ROW = STAGED_ROW<Half, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < N / 8; i += 2) {
        const float add = bias[i / 2 % 2];
        *reinterpret_cast<uint2 *>(to + i / 4 * 32 + i / 2 % 2 * 8 * ROW) =
            make_uint2(pack_pair<Half>(even[first + i] + add, odd[first + i] + add),
                       pack_pair<Half>(even[first + i + 1] + add, odd[first + i + 1] + add));
    }
}

constexpr int64_t NOWHERE = -1;

/* The pixels of a tile that a lane looks at, LOOKERS apart: image, row and column of a patch or, where positions are flat, of
 * src. Divided once, then added up. */
constexpr int LOOKERS = ADDRESS_WARPS * WARP;
struct pixel_walk {
    int image, row, column, rows, columns;
    int image_step, row_step, column_step;
    __device__ __forceinline__ pixel_walk(const tconv_igemm_parameters &layer, int pixel)
        : rows(layer.by_rows.divisor), columns(layer.by_columns.divisor)
    {
        const quotient in_rows = divide(pixel, layer.by_columns), in_images = divide(in_rows.whole, layer.by_rows);
        column = in_rows.rest;
        row = in_images.rest;
        image = in_images.whole;
        const quotient row_steps = divide(LOOKERS, layer.by_columns), steps = divide(row_steps.whole, layer.by_rows);
        column_step = row_steps.rest;
        row_step = steps.rest;
        image_step = steps.whole;
    }
    __device__ __forceinline__ void next()
    {
        column += column_step;
        row += row_step;
        image += image_step;
        if (column >= columns) {
            column -= columns;
            row++;
        }
        if (row >= rows) {
            row -= rows;
            image++;
        }
    }
};

/* The same where units are rows of 8 pixels of a narrow tile. */
struct narrow_walk {
    static constexpr int STEP = LOOKERS / TCONV_IGEMM_ROW; /* rows; a unit has as many at least */
    int image, row, column, of_unit, unit, unit_rows, across;
    __device__ __forceinline__ narrow_walk(int pixel, int unit_rows_, int across_)
        : image(0), row(pixel / TCONV_IGEMM_ROW), column(pixel % TCONV_IGEMM_ROW), of_unit(row), unit(0),
          unit_rows(unit_rows_), across(across_)
    {
    }
    __device__ __forceinline__ void next()
    {
        row += STEP;
        of_unit += STEP;
        if (of_unit >= unit_rows) {
            of_unit -= unit_rows;
            unit++;
            column += TCONV_IGEMM_ROW;
            if (unit < across)
                row -= unit_rows;
            else {
                unit = 0;
                column -= across * TCONV_IGEMM_ROW;
            }
        }
    }
};

/* For each pixel of a tile its place in dst, as bytes from channel 0 of its group and from what the phase adds; NOWHERE for
 * one that is not there. */
template <class Element, class Walk>
__device__ __forceinline__ void fill_table(const tconv_igemm_parameters &layer, const tile_place &tile, Walk at,
                                           int64_t *outputs, int lane)
{
    const int rows = layer.rows[tile.row_phase].outputs, columns = layer.columns[tile.column_phase].outputs;
    const int64_t row_step = layer.row_stride * layer.to.h, column_step = layer.column_stride * layer.to.w;
    for (int pixel = lane; pixel < layer.covered; pixel += LOOKERS, at.next()) {
        const int image = tile.image + at.image;
        const int row = layer.flat ? at.row : tile.row + at.row;
        const int column = layer.flat ? at.column : tile.column + at.column;
        const bool of_tile = layer.flat ? pixel < layer.patch && (image < layer.images || layer.images == 1) &&
                                              (layer.tile_images > 1 || tile.column + pixel < layer.in_columns)
                                        : at.image < layer.tile_images && at.row < layer.tile_rows &&
                                              at.column < layer.tile_columns && image < layer.images;
        outputs[pixel] = of_tile && row < rows && column < columns
                             ? (image * layer.to.n + row * row_step + column * column_step) * (int64_t)sizeof(Element)
                             : NOWHERE;
    }
}

template <class Element>
__device__ __forceinline__ void fill_record(const tconv_igemm_parameters &layer, const tile_place &tile,
                                            tile_record &record, int lane)
{
    static_assert(LOOKERS == TCONV_IGEMM_M, "a bias for each");
    const tap_walk tap(layer, tile);
    if (lane == 0) {
        record.row_taps = tap.row_taps;
        record.column_taps = tap.column_taps;
        record.first_shift = (row_shift(layer, tile, tap) - layer.first_row) * layer.pitch +
                             column_shift(layer, tile, tap) - layer.first_column;
    }
#pragma unroll 1
    for (int of_tile = 0; of_tile < layer.tile_blocks; of_tile++) {
        const block_place block = find_block(layer, tile, of_tile);
        const int channels = layer.group_out - block.channel, first = tile.group * layer.group_out + block.channel;
        record.bias[of_tile][lane] =
            layer.bias != NULL && lane < channels
                ? to_compute(static_cast<const Element *>(layer.bias)[(first + lane) / layer.bias_outputs])
                : 0.0f;
        if (lane == 0) {
            record.channels[of_tile] = channels;
            record.offset[of_tile] =
                (first / layer.together * layer.to.c + layer.rows[block.row_phase].residue * layer.to.h +
                 layer.columns[block.column_phase].residue * layer.to.w) *
                (int64_t)sizeof(Element);
        }
    }
}

/* The role that finds where sums go: tables and records. */
template <class Element>
__device__ __forceinline__ void find_outputs(const tconv_igemm_parameters &layer, const shared_layout &shared, int lane)
{
    pipeline_state table = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        int64_t *outputs = shared.outputs + table.at * layer.covered;
        mbarrier_wait(shared.outputs_empty + 8 * table.at, table.parity);
        fill_record<Element>(layer, tile, shared.records[table.at], lane);
        if (layer.across > 0)
            fill_table<Element>(layer, tile, narrow_walk(lane, layer.unit_rows, layer.across), outputs, lane);
        else
            fill_table<Element>(layer, tile, pixel_walk(layer, layer.flat ? tile.column + lane : lane), outputs, lane);
        __syncwarp();
        if (arrives_for_warp(lane % WARP))
            mbarrier_arrive(shared.outputs_full + 8 * table.at);
        table.next(layer.tables);
    }
}

/* Loads of staged sums and of the table: volatile, so that several are under way before the first is stored. */
__device__ __forceinline__ int64_t load_offset(uint32_t address)
{
    int64_t offset;
    asm volatile("ld.shared.s64 %0, [%1];" : "=l"(offset) : "r"(address) : "memory");
    return offset;
}

__device__ __forceinline__ void load_staged(uint32_t address, float &value)
{
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
}
template <class Half> __device__ __forceinline__ void load_staged(uint32_t address, Half &value)
{
    uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address) : "memory");
    value = reinterpret_cast<const Half &>(bits);
}
__device__ __forceinline__ void load_staged(uint32_t address, uint32_t &value)
{
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_staged(uint32_t address, uint2 &value)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_staged(uint32_t address, uint4 &value)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
}

/* Of NHWC: rows of 16 channels, a Vector (an element, or 16 bytes of them) at a time. */
template <class Element, int N, class Vector>
__device__ __forceinline__ void store_pixels(char *dst, const int64_t *outputs, const char *staged, int channels,
                                             int lane)
{
    constexpr int LENGTH = sizeof(Vector) / sizeof(Element), LANES = TCONV_IGEMM_STAGED / LENGTH, STEP = WARP / LANES;
    constexpr int ROUNDS = N / 2 / STEP, AT_ONCE = ROUNDS % 4 == 0 ? 4 : ROUNDS % 2 == 0 ? 2 : 1;
    static_assert(N / 2 % STEP == 0, "whole rounds");
    const int channel = lane % LANES * LENGTH, first_pixel = lane / LANES;
    if (channel >= channels)
        return;
    dst += channel * sizeof(Element);
    const uint32_t offset = shared_address(outputs + first_pixel);
    const uint32_t from = shared_address(staged) + first_pixel * STAGED_PIXEL<Element> + channel * (int)sizeof(Element);
#pragma unroll
    for (int first = 0; first < ROUNDS; first += AT_ONCE) {
        Vector vectors[AT_ONCE];
        int64_t offsets[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            offsets[i] = load_offset(offset + (first + i) * STEP * (int)sizeof *outputs);
            load_staged(from + (first + i) * STEP * STAGED_PIXEL<Element>, vectors[i]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (offsets[i] >= 0)
                *reinterpret_cast<Vector *>(dst + offsets[i]) = vectors[i];
    }
}

/* Of NCHW: neighbouring lanes take neighbouring pixels, each a Vector (an element, or two neighbouring columns); lanes past
 * the pixels take other channels. */
template <class Element, int N, int pixels, class Vector>
__device__ __forceinline__ void store_rows(char *dst, int64_t channel_bytes, const int64_t *outputs, const char *staged,
                                           int channels, int lane)
{
    constexpr int SHARE = pixels < WARP ? WARP / pixels : 1; /* of lanes to a pixel */
    constexpr int AT_ONCE = sizeof(Vector) == 8 ? 4 : 8;
    static_assert(TCONV_IGEMM_STAGED / SHARE % AT_ONCE == 0, "whole rounds");
    const int first_channel = lane / (WARP / SHARE) * (TCONV_IGEMM_STAGED / SHARE);
    channels = min(channels, first_channel + TCONV_IGEMM_STAGED / SHARE);
#pragma unroll 1
    for (int pixel = lane % (WARP / SHARE); pixel < pixels; pixel += WARP) {
        const int64_t offset = outputs[pixel];
        if (offset < 0)
            continue;
        char *to = dst + offset + first_channel * channel_bytes;
        const uint32_t from = shared_address(staged) + pixel * (int)sizeof(Vector);
#pragma unroll 1
        for (int first = first_channel; first < channels; first += AT_ONCE) {
            Vector vectors[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                load_staged(from + (first + i) * STAGED_ROW<Element, N>, vectors[i]);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++, to += channel_bytes)
                if (first + i < channels)
                    *reinterpret_cast<Vector *>(to) = vectors[i];
        }
    }
}

/* Of a pair, 16 bytes at a time: a lane takes pixels whose columns are these bytes. Whether it could: they must follow one
 * another in dst, all or none of them, and begin at a whole vector. */
template <class Element, int N, int pixels>
__device__ __forceinline__ bool store_wide_rows(char *dst, int64_t channel_bytes, const int64_t *outputs,
                                                const char *staged, int channels, int lane)
{
    constexpr int PIXEL = 2 * (int)sizeof(Element), LENGTH = 16 / PIXEL, LANES = pixels / LENGTH;
    constexpr int STEP = WARP / LANES, ROUNDS = (TCONV_IGEMM_STAGED + STEP - 1) / STEP;
    constexpr int AT_ONCE = ROUNDS % 4 == 0 ? 4 : 2;
    static_assert(pixels % LENGTH == 0 && ROUNDS % AT_ONCE == 0, "whole rounds");
    bool whole = channel_bytes % 16 == 0;
#pragma unroll 1
    for (int pixel = lane; pixel < pixels; pixel += WARP) {
        const int64_t first = outputs[pixel / LENGTH * LENGTH];
        const int64_t expected = first < 0 ? NOWHERE : first + pixel % LENGTH * PIXEL;
        whole = whole && outputs[pixel] == expected && (first < 0 || (uintptr_t)(dst + first) % 16 == 0);
    }
    if (!__all_sync(~0u, whole))
        return false;
    const int vector = lane % LANES, first_channel = lane / LANES;
    const int64_t first = outputs[vector * LENGTH];
    if (first < 0 || first_channel >= STEP)
        return true;
    const uint32_t from = shared_address(staged) + vector * 16;
    char *to = dst + first + first_channel * channel_bytes;
#pragma unroll 1
    for (int row = first_channel; row < channels; row += AT_ONCE * STEP) {
        uint4 vectors[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (row + i * STEP < channels)
                load_staged(from + (row + i * STEP) * STAGED_ROW<Element, N>, vectors[i]);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, to += STEP * channel_bytes)
            if (row + i * STEP < channels)
                *reinterpret_cast<uint4 *>(to) = vectors[i];
    }
    return true;
}

/* The same of a pair where its columns cannot be stored at once. */
template <class Element, int N, int pixels>
__device__ __forceinline__ void store_columns(char *dst, int64_t channel_bytes, const int64_t *outputs,
                                              const char *staged, int channels, int lane)
{
    for (int column = lane; column < 2 * pixels; column += WARP) {
        const int64_t offset = outputs[column / 2];
        if (offset < 0)
            continue;
        char *to = dst + offset + column % 2 * (int)sizeof(Element);
        const char *from = staged + column * (int)sizeof(Element);
        for (int c = 0; c < channels; c++, to += channel_bytes)
            *reinterpret_cast<Element *>(to) = *reinterpret_cast<const Element *>(from + c * STAGED_ROW<Element, N>);
    }
}

/* Of NCHW where rows of M are columns of a channel: neighbouring lanes take neighbouring pixels, and store a channel's columns
 * at once where `vectors`. */
template <class Element, int N, int together>
__device__ __forceinline__ void store_together(char *dst, int64_t channel_bytes, const int64_t *outputs,
                                               const char *staged, int rows, bool vectors, int lane)
{
    using Columns = element_vector<Element, together>;
    constexpr int CHANNELS = TCONV_IGEMM_STAGED / together;
#pragma unroll 1
    for (int pixel = lane; pixel < N / 2; pixel += WARP) {
        const int64_t offset = outputs[pixel];
        if (offset < 0)
            continue;
        char *to = dst + offset;
        const uint32_t from = shared_address(staged) + pixel * (int)sizeof(Element);
        Columns channels[CHANNELS];
#pragma unroll
        for (int i = 0; i < TCONV_IGEMM_STAGED; i++)
            load_staged(from + i * STAGED_ROW<Element, N>, channels[i / together].at[i % together]);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++, to += channel_bytes) {
            if (c * together >= rows)
                break;
            if (vectors)
                *reinterpret_cast<Columns *>(to) = channels[c];
            else
#pragma unroll
                for (int j = 0; j < together; j++)
                    reinterpret_cast<Element *>(to)[j] = channels[c].at[j];
        }
    }
}

/* Where a warp's 16 rows of M of a block go. */
template <class Element> struct unit_place {
    char *dst;     /* of the first row's channel */
    int channels;  /* that exist; may be 0 or less */
    float bias[2]; /* of rows lane / 4 and lane / 4 + 8 */
    __device__ __forceinline__ unit_place(const tconv_igemm_parameters &layer, const tile_record &tile, int block,
                                          int warp, int lane)
    {
        const int row = warp * TCONV_IGEMM_STAGED;
        channels = min(TCONV_IGEMM_STAGED, tile.channels[block] - row);
        dst = static_cast<char *>(layer.dst) + tile.offset[block] +
              row / layer.together * layer.to.c * (int64_t)sizeof(Element);
        bias[0] = tile.bias[block][row + lane / 4];
        bias[1] = tile.bias[block][row + lane / 4 + 8];
    }
};

/* Half of a warp's sums of a unit, from number `first` on, to staging memory and from there to dst. */
template <class Mode, int N, int first>
__device__ __forceinline__ void store_half(const tconv_igemm_parameters &layer, const float (&sums)[N / 2],
                                           const unit_place<typename Mode::Element> &place, const int64_t *outputs,
                                           char *staged, int lane)
{
    using Element = typename Mode::Element;
    __syncwarp();
    if (layer.dst_channels_last)
        stage_pixels<N, first>(sums, place.bias, staged, lane, Element{});
    else
        stage_rows<N, first>(sums, place.bias, staged, lane, Element{});
    __syncwarp();
    outputs += first * 2;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
    if (sizeof(Element) == 4 && layer.together == 2)
        store_together<Element, N, 2>(place.dst, channel_bytes, outputs, staged, place.channels, layer.store_vectors,
                                      lane);
    else if (layer.together == 4)
        store_together<Element, N, 4>(place.dst, channel_bytes, outputs, staged, place.channels, layer.store_vectors,
                                      lane);
    else if (sizeof(Element) == 2 && layer.together == 8)
        store_together<Element, N, 8>(place.dst, channel_bytes, outputs, staged, place.channels, layer.store_vectors,
                                      lane);
    else if (!layer.dst_channels_last)
        store_rows<Element, N, N / 2, Element>(place.dst, channel_bytes, outputs, staged, place.channels, lane);
    else if (layer.store_vectors)
        store_pixels<Element, N, uint4>(place.dst, outputs, staged, place.channels, lane);
    else
        store_pixels<Element, N, Element>(place.dst, outputs, staged, place.channels, lane);
}

template <class Element> struct two_columns {
    using type = uint32_t;
};
template <> struct two_columns<float> {
    using type = uint2;
};

/* A quarter of the sums of both units of a pair. */
template <class Mode, int N, int first>
__device__ __forceinline__ void store_pairs(const tconv_igemm_parameters &layer, const float (&even)[N / 2],
                                            const float (&odd)[N / 2], const unit_place<typename Mode::Element> &place,
                                            const int64_t *outputs, char *staged, int lane)
{
    using Element = typename Mode::Element;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
    __syncwarp();
    stage_pairs<N, first>(even, odd, place.bias, staged, lane, Element{});
    __syncwarp();
    outputs += first * 2;
    if (layer.store_vectors)
        store_rows<Element, N, N / 4, typename two_columns<Element>::type>(place.dst, channel_bytes, outputs, staged,
                                                                           place.channels, lane);
    else
        store_columns<Element, N, N / 4>(place.dst, channel_bytes, outputs, staged, place.channels, lane);
}

/* All of a warp's sums of a tile. */
template <class Mode, int N>
__device__ __forceinline__ void store_sums(const tconv_igemm_parameters &layer, const float (&sums)[Mode::UNITS][N / 2],
                                           const tile_record &tile, const int64_t *outputs, char *staged, int warp,
                                           int lane)
{
    using Place = unit_place<typename Mode::Element>;
    const int group = warp / GROUP_WARPS;
    if constexpr (PAIRS<Mode>)
        if (layer.paired) {
            const Place place(layer, tile, layer.unit_block[group][0], warp % GROUP_WARPS, lane);
            outputs += layer.unit_output[group][0];
            store_pairs<Mode, N, 0>(layer, sums[0], sums[1], place, outputs, staged, lane);
            store_pairs<Mode, N, N / 8>(layer, sums[0], sums[1], place, outputs, staged, lane);
            store_pairs<Mode, N, N / 4>(layer, sums[0], sums[1], place, outputs, staged, lane);
            store_pairs<Mode, N, 3 * N / 8>(layer, sums[0], sums[1], place, outputs, staged, lane);
            return;
        }
#pragma unroll
    for (int unit = 0; unit < Mode::UNITS; unit++) {
        if (layer.unit_pixel[group][unit] >= layer.patch)
            continue; /* none is there */
        const Place place(layer, tile, layer.unit_block[group][unit], warp % GROUP_WARPS, lane);
        const int64_t *of_unit = outputs + layer.unit_output[group][unit];
        store_half<Mode, N, 0>(layer, sums[unit], place, of_unit, staged, lane);
        store_half<Mode, N, N / 4>(layer, sums[unit], place, of_unit, staged, lane);
    }
}

} // namespace tconv::igemm

#endif
