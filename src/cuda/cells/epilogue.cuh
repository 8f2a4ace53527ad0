/* The epilogue of the streaming kernel: adds bias, runs post-ops and stores a tile's cells from the accumulators. */
#ifndef TCONV_CUDA_CELLS_EPILOGUE_CUH
#define TCONV_CUDA_CELLS_EPILOGUE_CUH

#include "../epilogue/affine.cuh"
#include "../epilogue/finish.cuh"
#include "tile.cuh"

namespace tconv::cells
{

/* A thread's cell in dst: its first output, channels left out, and the rows and columns of dst from there on. */
template <class Element> struct cell_outputs {
    Element *to;
    int rows, columns;
};

template <class Element>
__device__ __forceinline__ cell_outputs<Element> find_cell(const parameters &layer, const tile_coord &tile, int number)
{
    const position_coord own = find_position(layer, number);
    cell_outputs<Element> cell;
    int row = tile.row + own.row, column = tile.column + own.column;
    const int image = tile.image + own.image;
    bool exists = tile.exists && own.exists && image < layer.images;
    if (layer.flat_columns > 0) {
        exists = exists && column < layer.in_columns;
        row = column / layer.flat_columns;
        column -= row * layer.flat_columns;
    }
    row = row * layer.out_row_step + layer.schedules[tile.schedule].residue;
    column *= layer.cell_columns;
    cell.rows = layer.out_rows - row;
    cell.columns = exists ? layer.out_columns - column : 0;
    cell.to = static_cast<Element *>(layer.dst) + image * layer.dst_strides.n + row * layer.dst_strides.h + column;
    return cell;
}

/* False, which the compiler does not know: what follows a return after it is not begun before, which would take registers. */
__device__ __forceinline__ bool never(const parameters &layer)
{
    return forgotten(layer.cell_channels) == 0;
}

/* Calls take(accumulator, number) for a thread's accumulators with what read(channel) returns. first_channel: the thread's
 * first one, of the group. Accumulators lie by 8 channels, of which a thread has two at each of its two positions; a
 * column of a cell has all channels of whole rows, so that an accumulator's place among all of them tells its channel
 * whatever the columns. PERIOD accumulators, of twice as many channels, have the channels of the next PERIOD: a cell has
 * no more channels, or PERIOD is all. */
template <int PERIOD, int all, class Read, class Take>
__device__ __forceinline__ void for_channels(const parameters &layer, float (&accumulators)[all], int first_channel,
                                             const Read &read, const Take &take)
{
    /* Else the compiler would find all channels before all rounds, and keep them in registers. */
    const int cell_channels = forgotten(layer.cell_channels), last_channel = layer.group_out - 1;
    first_channel = forgotten(first_channel);
    constexpr int BLOCK = 16; /* accumulators whose numbers are on their way at once */
#pragma unroll
    for (int i = 0; i < PERIOD; i += 4) {
        if (i > 0 && i % BLOCK == 0 && never(layer))
            return;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const auto number = read(min(first_channel + (2 * i & (cell_channels - 1)) + pair, last_channel));
#pragma unroll
            for (int first = i + pair; first < all; first += PERIOD) {
                take(accumulators[first], number);
                take(accumulators[first + 2], number);
            }
        }
    }
}

/* Takes a thread's accumulators through the layer's post-ops, bias included. */
template <int PERIOD, int all>
__device__ __forceinline__ void run_posts_of_cells(const parameters &layer, float (&accumulators)[all],
                                                   const tile_coord &tile, int first_channel)
{
    const unsigned of_group = (unsigned)(tile.group * layer.group_out);
    const auto for_all = [&](const auto &read, const auto &take) {
        if (layer.cell_channels <= 2 * PERIOD)
            for_channels<PERIOD>(layer, accumulators, first_channel, read, take);
        else
            for_channels<all>(layer, accumulators, first_channel, read, take);
    };
    if (layer.bias != NULL) {
        const float *bias = static_cast<const float *>(layer.bias);
        for_all([=](int channel) { return __ldg(bias + (of_group + (unsigned)channel)); },
                [](float &sum, float add) { sum += add; });
    }
    run_affine_rounds(layer.posts, accumulators, [&](const affine_round &round) {
        const numbers_reader read(round);
        for_all([&](int channel) { return read(of_group + (unsigned)channel); },
                [](float &y, const round_numbers &numbers) { y = numbers(y); });
    });
}

/* Stores a vector of so many columns, or nothing, without a branch. */
template <int columns>
__device__ __forceinline__ void store_columns_if(bool is, float *to, const float (&values)[columns])
{
    if constexpr (columns == 4)
        asm volatile("{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.v4.f32 [%1], {%2, %3, %4, %5};\n}" ::"r"(
                         (uint32_t)is),
                     "l"(to), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                     : "memory");
    else if constexpr (columns == 2)
        asm volatile(
            "{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.v2.f32 [%1], {%2, %3};\n}" ::"r"((uint32_t)is),
            "l"(to), "f"(values[0]), "f"(values[1])
            : "memory");
    else
        asm volatile("{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.f32 [%1], %2;\n}" ::"r"((uint32_t)is),
                     "l"(to), "f"(values[0])
                     : "memory");
}

/* The same of 16 bits. */
template <int columns, class Element>
__device__ __forceinline__ void store_columns_if(bool is, Element *to, const float (&values)[columns])
{
    const auto vector = to_outputs<Element, columns>(values);
    if (is)
        *reinterpret_cast<element_vector<Element, columns> *>(to) = vector;
}

/*
 * Stores a thread's two cells by vectors of `width` columns: one vector holds the columns of both cells, of one or a
 * part of it. The accumulators of a cell's first column are the first of N / columns, and so on.
 */
template <int columns, int width, class Element, int all>
__device__ __forceinline__ void store_vectors(const parameters &layer, const float (&accumulators)[all],
                                              const cell_outputs<Element> (&cells)[2], int first_channel,
                                              const Element *bias)
{
    constexpr int COLUMN_ACCUMULATORS = all / columns; /* of a thread; 4 for 8 channels */
    constexpr int BATCH = 16;                          /* accumulators of a column whose bias is read at once */
    constexpr bool TOGETHER = width > columns;
    /* The steps to the next 8 channels: within a row of the cell, and from its last channels to the next row's
     * first. */
    const int64_t channel_step = layer.dst_strides.c, next_channels = 8 * channel_step,
                  next_row = layer.dst_strides.h - (layer.cell_channels - 8) * channel_step;
    int cell_channels = layer.cell_channels;
    /* This hides the number from the compiler, which would compute in advance what follows from it for all stores,
     * and take too many registers. */
    asm volatile("" : "+r"(cell_channels));
    Element *to[2] = {cells[0].to, cells[1].to};
    int row = 0;
    const bool has_posts = layer.posts.count > 0; /* with which the bias is added already */
#pragma unroll
    for (int batch = 0; batch < COLUMN_ACCUMULATORS; batch += BATCH) {
        float add[BATCH / 2];
#pragma unroll
        for (int i = 0; i < BATCH / 2; i++) {
            const int channel = first_channel + ((2 * batch + i / 2 * 8) & (cell_channels - 1)) + i % 2;
            add[i] = has_posts            ? NO_BIAS
                     : layer.bias != NULL ? to_compute(__ldg(bias + min(channel, layer.group_out - 1)))
                                          : 0.0f;
        }
#pragma unroll
        for (int i = batch; i < batch + BATCH; i += 4) {
            const int channels = layer.group_out - first_channel - (2 * i & (cell_channels - 1));
#pragma unroll
            for (int pair = 0; pair < 2; pair++) {
                float values[2 * columns];
#pragma unroll
                for (int c = 0; c < columns; c++) {
                    const int at = c * COLUMN_ACCUMULATORS + i + pair;
                    values[c] = finish_sum(accumulators[at], add[(i - batch) / 2 + pair]);
                    values[columns + c] = finish_sum(accumulators[at + 2], add[(i - batch) / 2 + pair]);
                }
#pragma unroll
                for (int first = 0; first < 2 * columns; first += width) {
                    const int cell = first / columns, column = first % columns;
                    const bool is = pair < channels && row < cells[cell].rows &&
                                    (TOGETHER || column + width <= cells[cell].columns);
                    float vector[width];
#pragma unroll
                    for (int c = 0; c < width; c++)
                        vector[c] = values[first + c];
                    store_columns_if<width>(is, to[cell] + column + pair * channel_step, vector);
                }
            }
            const bool row_ends = ((2 * i + 8) & (cell_channels - 1)) == 0;
            row += row_ends;
            to[0] += row_ends ? next_row : next_channels;
            to[1] += row_ends ? next_row : next_channels;
        }
    }
}

/* Stores cells of so many columns. Those of two columns or one are stored in pairs where they are neighbours in dst:
 * the first of them is half 1 in the lanes whose rows are in the other order (warp_position). */
template <class Element, int columns, int all>
__device__ __forceinline__ void store_cells(const parameters &layer, float (&accumulators)[all], const tile_coord &tile,
                                            int warp, int lane)
{
    constexpr int PAIR = columns < 4 ? 2 * columns : columns;
    const bool swapped = columns < 4 && lane >= WARP / 2;
    cell_outputs<Element> cells[2];
    const int first_channel = tile.channel + lane % 4 * 2;
    const Element *bias = static_cast<const Element *>(layer.bias) + tile.group * layer.group_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        cells[i] = find_cell<Element>(layer, tile, own_position(layer, warp, lane, swapped ? 1 - i : i));
        cells[i].to += (tile.group * (int64_t)layer.group_out + first_channel) * layer.dst_strides.c;
    }
    if (columns < 4) {
#pragma unroll
        for (int i = 0; i < all; i += i % 2 == 0 ? 1 : 3) {
            const float half = accumulators[i], other = accumulators[i + 2];
            accumulators[i] = swapped ? other : half;
            accumulators[i + 2] = swapped ? half : other;
        }
    }
    const bool together = layer.pair_stores && cells[1].to == cells[0].to + columns && cells[0].rows == cells[1].rows &&
                          cells[1].columns >= columns && cells[0].columns > 0 &&
                          (uintptr_t)cells[0].to % (PAIR * sizeof(Element)) == 0;
    const bool each = layer.vector_stores && (cells[0].columns >= columns || cells[0].columns <= 0) &&
                      (cells[1].columns >= columns || cells[1].columns <= 0);
    if (columns < 4 && together)
        store_vectors<columns, PAIR>(layer, accumulators, cells, first_channel, bias);
    else if (columns > 1 && each)
        store_vectors<columns, columns>(layer, accumulators, cells, first_channel, bias);
    else
        store_vectors<columns, 1>(layer, accumulators, cells, first_channel, bias);
}

template <class Element, int all>
__device__ __forceinline__ void store_tile(const parameters &layer, float (&accumulators)[all], const tile_coord &tile,
                                           int warp, int lane)
{
    constexpr int PERIOD = 32; /* accumulators: cells of several columns have 64 channels or fewer */
    if constexpr (sizeof(Element) == 4) {
        if (layer.posts.count > 0)
            run_posts_of_cells<PERIOD>(layer, accumulators, tile, tile.channel + lane % 4 * 2);
    }
    if (sizeof(Element) == 2 || layer.cell_columns == 1) /* 16 bits: of layers whose phases are those of src alone */
        store_cells<Element, 1>(layer, accumulators, tile, warp, lane);
    else if (layer.cell_columns == 2)
        store_cells<Element, 2>(layer, accumulators, tile, warp, lane);
    else
        store_cells<Element, 4>(layer, accumulators, tile, warp, lane);
}

} // namespace tconv::cells

#endif
