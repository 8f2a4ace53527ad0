/* The address warps of the implicit GEMM: where the positions of a block tile go in dst, and what the consumers need to
 * know of it. */
#ifndef TCONV_CUDA_IGEMM_OFFSETS_CUH
#define TCONV_CUDA_IGEMM_OFFSETS_CUH

#include "../numeric/element.cuh"
#include "tile.cuh"

namespace tconv::igemm
{

constexpr int64_t NOWHERE = -1;

/* Bits above an offset in dst: of a pixel whose columns, a run or a pair, are the first, the last of a row and are cut
 * there. */
constexpr int64_t CUT_BEGIN = (int64_t)1 << 61, CUT_END = (int64_t)1 << 60;

/* The pixels of a tile that a lane of the address warps visits, ADDRESS_THREADS apart: image, row and column of a B
 * stage or, where positions are flat, of src. It divides once, then adds. */
constexpr int ADDRESS_THREADS = ADDRESS_WARPS * WARP;
struct pixel_walk {
    int image, row, column, rows, columns;
    int image_step, row_step, column_step;
    __device__ __forceinline__ pixel_walk(const parameters &layer, int pixel)
        : rows(layer.by_rows.divisor), columns(layer.by_columns.divisor)
    {
        const quotient in_rows = divide(pixel, layer.by_columns), in_images = divide(in_rows.whole, layer.by_rows);
        column = in_rows.rest;
        row = in_images.rest;
        image = in_images.whole;
        const quotient row_steps = divide(ADDRESS_THREADS, layer.by_columns),
                       steps = divide(row_steps.whole, layer.by_rows);
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

/* The same walk where MMA tiles are rows of 8 pixels of a narrow tile. */
struct narrow_walk {
    static constexpr int STEP = ADDRESS_THREADS / CORE_ROWS; /* rows; an MMA tile has as many at least */
    int image, row, column, of_mma_tile, mma, mma_rows, across;
    __device__ __forceinline__ narrow_walk(int pixel, int mma_rows_, int across_)
        : image(0), row(pixel / CORE_ROWS), column(pixel % CORE_ROWS), of_mma_tile(row), mma(0), mma_rows(mma_rows_),
          across(across_)
    {
    }
    __device__ __forceinline__ void next()
    {
        row += STEP;
        of_mma_tile += STEP;
        if (of_mma_tile >= mma_rows) {
            of_mma_tile -= mma_rows;
            mma++;
            column += CORE_ROWS;
            if (mma < across)
                row -= mma_rows;
            else {
                mma = 0;
                column -= across * CORE_ROWS;
            }
        }
    }
};

/* Writes for each position of a tile its offset in dst, in bytes from channel 0 of its group and from what the phase
 * adds; NOWHERE for one that is not there. */
template <class Output, class Walk>
__device__ __forceinline__ void fill_table(const parameters &layer, const tile_place &tile, Walk at,
                                           int64_t *offset_table, int lane)
{
    const int rows = layer.rows[tile.row_phase].outputs, columns = layer.columns[tile.column_phase].outputs;
    const int64_t row_step = layer.row_stride * layer.to.h, column_step = layer.column_stride * layer.to.w;
    const int64_t cut_begin = layer.runs.begin > 0 ? CUT_BEGIN : 0,
                  cut_end = layer.cuts_pairs || layer.runs.end < layer.runs.columns ? CUT_END : 0;
    for (int pixel = lane; pixel < layer.block_n; pixel += ADDRESS_THREADS, at.next()) {
        const int image = tile.image + at.image;
        const int row = layer.flat ? at.row : tile.row + at.row;
        const int column = layer.flat ? at.column : tile.column + at.column;
        const bool of_tile = layer.im2col ? image < layer.images
                             : layer.flat ? pixel < layer.stage_pixels && (image < layer.images || layer.images == 1) &&
                                                (layer.tile_images > 1 || tile.column + pixel < layer.in_columns)
                                          : at.image < layer.tile_images && at.row < layer.tile_rows &&
                                                at.column < layer.tile_columns && image < layer.images;
        const int64_t cuts = (column == 0 ? cut_begin : 0) | (column == columns - 1 ? cut_end : 0);
        offset_table[pixel] =
            of_tile && row < rows && column < columns
                ? (image * layer.to.n + row * row_step + column * column_step) * (int64_t)sizeof(Output) | cuts
                : NOWHERE;
    }
}

template <class Element, class Output>
__device__ __forceinline__ void fill_record(const parameters &layer, const tile_place &tile, tile_record &record,
                                            int lane)
{
    static_assert(ADDRESS_THREADS == MMA_M, "a bias for each");
    const tap_walk tap(layer, tile);
    if (lane == 0) {
        record.row_phase = tile.row_phase;
        record.column_phase = tile.column_phase;
        record.row_taps = tap.row_taps;
        record.column_taps = tap.column_taps;
        record.first_shift = (row_shift(layer, tile, tap) - layer.first_row) * layer.pitch +
                             column_shift(layer, tile, tap) - layer.first_column;
    }
#pragma unroll 1
    for (int of_tile = 0; of_tile < layer.m_tiles; of_tile++) {
        const m_tile_place m_tile = find_m_tile(layer, tile, of_tile);
        const int channels = layer.group_out - m_tile.channel, first = tile.group * layer.group_out + m_tile.channel;
        record.bias[of_tile][lane] =
            layer.bias != NULL && lane < channels
                ? to_compute(static_cast<const Element *>(layer.bias)[channel_of_dst(layer, first + lane)])
                : 0.0f;
        if (lane == 0) {
            record.channels[of_tile] = channels;
            record.first[of_tile] = first;
            record.offset[of_tile] = (tile.volume * layer.to_volume + first / layer.runs.rows * layer.to.c +
                                      layer.rows[m_tile.row_phase].residue * layer.to.h +
                                      layer.columns[m_tile.column_phase].residue * layer.to.w - layer.runs.begin) *
                                     (int64_t)sizeof(Output);
        }
    }
}

/* The role of the address warps: they make tables and records. */
template <class Mode>
__device__ __forceinline__ void find_offsets(const parameters &layer, const shared_layout &shared, int lane)
{
    stage_walk table(shared.tables, 1);
    for (int number = first_tile<Mode>(layer); number < layer.tiles; number += tile_step<Mode>(layer)) {
        const tile_place tile = find_tile(layer, number);
        int64_t *offset_table = shared.offsets + table.state.at * layer.block_n;
        table.wait_empty();
        fill_record<typename Mode::Element, typename Mode::Output>(layer, tile, shared.records[table.state.at], lane);
        if (layer.across > 0)
            fill_table<typename Mode::Output>(layer, tile, narrow_walk(lane, layer.mma_rows, layer.across),
                                              offset_table, lane);
        else
            fill_table<typename Mode::Output>(layer, tile, pixel_walk(layer, layer.flat ? tile.column + lane : lane),
                                              offset_table, lane);
        __syncwarp();
        signal_for_warp(table.full(), lane % WARP);
        table.next();
    }
}

} // namespace tconv::igemm

#endif
