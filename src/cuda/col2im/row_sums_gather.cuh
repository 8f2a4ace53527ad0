/* The shared memory of a block of Hopper's kernels, and their col2im: outputs of the rows that are complete are
 * gathered from the column buffer and stored. */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_GATHER_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_GATHER_CUH

#include "../epilogue/affine.cuh"
#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "../numeric/divisor.cuh"
#include "tile.cuh"

#include <climits>
#include <type_traits>

namespace tconv::col2im::row_sums
{

constexpr int THREADS = ROW_SUMS_WARPS * 32; /* those that multiply and gather */

/* An output row of a channel. */
struct alignas(16) output_row {
    int64_t offset; /* elements from the first row of the block's first channel */
    float bias;
    int row; /* from the first that is complete; of a channel that does not exist, none that exists */
};

constexpr int NO_ROW = INT_MIN / 2; /* beside any row of dst, whose numbers are below SMALL_AXIS_EXTENT */

/* column_taps in shared memory, whose partials are fewer than 1 << 16 floats. */
struct kept_taps {
    unsigned short first, count;
};

static_assert(sizeof(output_row) == OUTPUT_BYTES, "as the host counts");
static_assert(sizeof(kept_taps) == COLUMN_BYTES, "as the host counts");
static_assert(sizeof(round_numbers) == NUMBERS_BYTES, "as the host counts");

/* The arrays in shared memory. GUARD zeros lie before the column buffers and behind each image's pixels: a tap that
 * reaches beyond them takes these. */
struct shared_layout {
    char *stages, *weights;
    int weight_bytes;
    float *column_buffer;   /* [buffer][n of a band][ROW_SUMS_PITCH] */
    output_row *outputs;    /* [stride][block_out]: the rows that are complete with a row of src */
    round_numbers *numbers; /* likewise, where post-ops are one round: what it multiplies with and adds */
    kept_taps *columns;     /* [sum_columns], where outputs are not gathered by runs */
};

extern __shared__ __align__(1024) char shared_memory[];

/* Tells what runs_rounds tells, as a constant, which device code may use. */
template <int CONFIG, bool strict> constexpr bool HAS_ROUNDS = runs_rounds(CONFIG, strict);

/* stage_bytes: the bytes of all pipeline stages. */
template <int CONFIG, int PARTS>
__device__ __forceinline__ shared_layout find_shared(const parameters &layer, int stage_bytes)
{
    constexpr int N_TILES = configs[CONFIG].n_tiles;
    constexpr int BAND_TILES = configs[CONFIG].band_tiles;
    shared_layout found;
    found.stages = shared_memory;
    found.weights = shared_memory + stage_bytes;
    found.weight_bytes = layer.steps * PARTS * N_TILES * TILE_N * MMA_K_BYTES;
    found.column_buffer = reinterpret_cast<float *>(found.weights + found.weight_bytes);
    found.column_buffer += GUARD;
    found.outputs =
        reinterpret_cast<output_row *>(found.column_buffer + layer.buffers * BAND_TILES * TILE_N * ROW_SUMS_PITCH);
    const int outputs = layer.rows.stride * layer.block_out;
    found.numbers = reinterpret_cast<round_numbers *>(found.outputs + outputs);
    found.columns = reinterpret_cast<kept_taps *>(found.numbers +
                                                  (HAS_ROUNDS<CONFIG, PARTS == 2> && layer.has_round ? outputs : 0));
    return found;
}

/* Fills the tables: the outputs' places, bias and numbers, and the taps of the columns; clears the column buffers. */
template <class Element>
__device__ __forceinline__ void fill_tables(const parameters &layer, const block_tile &block,
                                            const shared_layout &shared)
{
    if (layer.gather < FIRST_RUNS)
        for (int i = (int)threadIdx.x; i < block.outputs; i += THREADS) {
            const column_taps found = find_taps<ROW_SUMS_PITCH>(layer, block.first_column, block.first_output + i);
            const bool any = found.count > 0;
            shared.columns[i] = {(unsigned short)(any ? found.first : 0), (unsigned short)(any ? found.count : 0)};
        }
    float4 *first = reinterpret_cast<float4 *>(shared.column_buffer - GUARD);
    const int all = (int)(reinterpret_cast<float4 *>(shared.outputs) - first);
    for (int i = (int)threadIdx.x; i < all; i += THREADS)
        first[i] = make_float4(0, 0, 0, 0);
    for (int i = (int)threadIdx.x; i < layer.rows.stride * layer.block_out; i += THREADS) {
        const int row = i / layer.block_out, channel = i - row * layer.block_out;
        if (channel < block.outs)
            shared.outputs[i] = {row * layer.dst_strides.h + channel * layer.dst_strides.c,
                                 channel_bias<Element>(layer.bias, block.first_out + channel), row};
        else
            shared.outputs[i] = {0, 0.0f, NO_ROW};
        if (layer.has_round)
            shared.numbers[i] = read_numbers(layer.round, block.first_out + min(channel, block.outs - 1));
    }
}

/* Calls gather(line, count) for every other line from `line` on, count of them at a time; count is a constant, of at
 * most TOGETHER lines whose loads do not wait for each other. */
template <int TOGETHER, class Gather>
__device__ __forceinline__ void for_lines(int line, int lines, const Gather &gather)
{
#pragma unroll 1
    for (; line + 2 * (TOGETHER - 1) < lines; line += 2 * TOGETHER)
        gather(line, std::integral_constant<int, TOGETHER>());
#pragma unroll 1
    for (; line < lines; line += 2)
        gather(line, std::integral_constant<int, 1>());
}

/*
 * A thread's part in gathering, the same for every row. An image has two threads for each of its pixels in the block:
 * each has every other line, that is an output row of a channel, and of columns a run of `stride` from a multiple of it
 * on, or, where outputs are not gathered by runs, columns that are as many apart as the image has pixels in the block.
 */
template <class Element, int CONFIG, bool few_registers, bool strict> struct gatherer {
    static constexpr bool RUNS_ROUNDS = runs_rounds(CONFIG, strict);
    const parameters &layer;
    const block_tile &block;
    const shared_layout &shared;
    int image;   /* of the block */
    int line;    /* the thread's first */
    int run;     /* of the layer */
    bool exists; /* the run does */
    bool whole;  /* all columns of the run exist, and are stored at once */
    bool more;   /* the thread has another run */
    int from;    /* floats of the column buffer to the run's first quotient, in the first line */
    Element *to; /* the run in row 0 */

    __device__ __forceinline__ gatherer(const parameters &of, const block_tile &in, const shared_layout &arrays)
        : layer(of), block(in), shared(arrays), image((int)threadIdx.x >> (of.row_pixels_log2 + 1)),
          line((int)threadIdx.x >> of.row_pixels_log2 & 1)
    {
        static_assert(THREADS == 2 * BLOCK_M, "as said");
        begin(block.first_output / layer.columns.stride + ((int)threadIdx.x & (pixels() - 1)));
    }

    /* Pixels of an image in the block. */
    __device__ __forceinline__ int pixels() const
    {
        return 1 << layer.row_pixels_log2;
    }

    /* Lines that are complete with a row of src. */
    __device__ __forceinline__ int lines() const
    {
        return layer.rows.stride * layer.block_out;
    }

    __device__ __forceinline__ void begin(int new_run)
    {
        const int stride = layer.columns.stride, column = new_run * stride, before = block.first_output - column;
        const int end = before + block.outputs;
        run = new_run;
        exists = block.first_image + image < layer.images && end > 0;
        whole = layer.dst_runs && before <= 0 && end >= stride;
        more = exists && end > pixels() * stride;
        from = image * (pixels() + GUARD) +
               min(run + layer.columns.pad / stride - block.first_column, pixels() + GUARD - 2);
        to = find_dst<Element>(layer, block, block.first_image + image) + column * layer.dst_strides.w;
    }

    /* Takes the sums of COUNT lines, every other one from `at` on, through their bias and the one round of post-ops; then
     * no bias is left to be added. */
    template <int COUNT, int COLUMNS>
    __device__ __forceinline__ void run_round(float (&sums)[COUNT][COLUMNS], float (&bias)[COUNT], int at) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const round_numbers numbers = shared.numbers[at + 2 * i];
            for_each_value(sums[i], [&](float sum, int) {
                return run_affine_round(layer.round, numbers, finish_sum(sum, bias[i]));
            });
            bias[i] = NO_BIAS;
        }
    }

    /* Gathers COUNT lines of the run, every other one from `at` on. partials, row_to: the run in the column buffer and
     * in dst's row first_row. Not all columns have the last of TAPS taps. */
    template <int STRIDE, int TAPS, int COUNT>
    __device__ __forceinline__ void gather_lines(const float *partials, Element *row_to, int at, int first_row) const
    {
        constexpr bool VECTOR = (STRIDE & (STRIDE - 1)) == 0;
        const int pitch = layer.columns.kernel * ROW_SUMS_PITCH;
        float sums[COUNT][STRIDE], bias[COUNT];
        output_row outputs[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            outputs[i] = shared.outputs[at + 2 * i];
            if (RUNS_ROUNDS)
                bias[i] = outputs[i].bias;
#pragma unroll
            for (int j = 0; j < STRIDE; j++) {
                const float *first = partials + (at + 2 * i) * pitch + layer.run_taps[j];
                sums[i][j] = first[0];
#pragma unroll
                for (int t = 1; t < TAPS; t++)
                    if (t < TAPS - 1 || (layer.run_ends >> j & 1) != 0)
                        sums[i][j] += first[t * (STRIDE * ROW_SUMS_PITCH - 1)];
            }
        }
        if (RUNS_ROUNDS && layer.has_round)
            run_round(sums, bias, at);
        if (VECTOR && whole) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                element_vector<Element, VECTOR ? STRIDE : 1> vector;
#pragma unroll
                for (int j = 0; j < STRIDE; j++)
                    vector.at[VECTOR ? j : 0] =
                        finish_output<Element>(sums[i][j], RUNS_ROUNDS ? bias[i] : outputs[i].bias);
                if ((unsigned)(first_row + outputs[i].row) < (unsigned)layer.rows.out)
                    *reinterpret_cast<decltype(vector) *>(row_to + outputs[i].offset) = vector;
            }
            return;
        }
        const int before = block.first_output - run * STRIDE, end = before + block.outputs;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if ((unsigned)(first_row + outputs[i].row) >= (unsigned)layer.rows.out)
                continue;
#pragma unroll
            for (int j = 0; j < STRIDE; j++)
                if (j >= before && j < end)
                    row_to[outputs[i].offset + j * layer.dst_strides.w] =
                        finish_output<Element>(sums[i][j], RUNS_ROUNDS ? bias[i] : outputs[i].bias);
        }
    }

    /* The same as the functions, where device code needs it. */
    template <int STRIDE, int TAPS> static constexpr int CODE = gather_code(STRIDE, TAPS);
    template <int STRIDE, int TAPS> static constexpr bool HAS_RUNS = has_runs(CONFIG, STRIDE, TAPS);

    /* Adds up and stores the lines that are complete with a row of src, by runs of STRIDE columns, where kernels of the
     * config have code for these. TAPS: the most that a column has. */
    template <int STRIDE, int TAPS> __device__ __forceinline__ void gather_runs(const float *partials, int row) const
    {
        static_assert(TAPS < GUARD, "pixels beyond an image that a run may read");
        if (!HAS_RUNS<STRIDE, TAPS> || !exists)
            return;
        const int first_row = row * layer.rows.stride - layer.rows.pad;
        gatherer mine = *this;
        while (true) {
            const float *of_run = partials + mine.from;
            Element *row_to = mine.to + first_row * layer.dst_strides.h;
            for_lines<(STRIDE > 2 ? 2 : 3) - (few_registers ? 1 : 0)>(mine.line, lines(), [&](int at, auto count) {
                mine.template gather_lines<STRIDE, TAPS, decltype(count)::value>(of_run, row_to, at, first_row);
            });
            if (!mine.more)
                break;
            mine.begin(mine.run + pixels());
        }
    }

    /* The same by single columns; missing taps of the first TAPS lie at zeros. */
    template <int TAPS> __device__ __forceinline__ void gather_columns(const float *partials, int row) const
    {
        if (block.first_image + image >= layer.images)
            return;
        const int first_row = row * layer.rows.stride - layer.rows.pad, pitch = layer.columns.kernel * ROW_SUMS_PITCH;
        Element *dst = find_dst<Element>(layer, block, block.first_image + image) + first_row * layer.dst_strides.h;
        partials += image * (pixels() + GUARD);
        for (int column = (int)threadIdx.x & (pixels() - 1); column < block.outputs; column += pixels()) {
            const kept_taps found = shared.columns[column];
            const float *taps[TAPS];
#pragma unroll
            for (int t = 0; t < TAPS; t++)
                taps[t] = partials + (t < found.count ? found.first + t * layer.tap_step : pixels());
            Element *column_to = dst + (block.first_output + column) * layer.dst_strides.w;
            for_lines<few_registers ? 2 : 3>(line, lines(), [&](int at, auto count) {
                constexpr int COUNT = decltype(count)::value;
                const output_row *output = shared.outputs + at;
                float sums[COUNT][1], bias[COUNT];
#pragma unroll
                for (int i = 0; i < COUNT; i++) {
                    if (RUNS_ROUNDS)
                        bias[i] = output[2 * i].bias;
                    sums[i][0] = taps[0][(at + 2 * i) * pitch];
#pragma unroll
                    for (int t = 1; t < TAPS; t++)
                        sums[i][0] += taps[t][(at + 2 * i) * pitch];
                }
                for (int t = TAPS; t < found.count; t++)
#pragma unroll
                    for (int i = 0; i < COUNT; i++)
                        sums[i][0] += taps[0][(at + 2 * i) * pitch + t * layer.tap_step];
                if (RUNS_ROUNDS && layer.has_round)
                    run_round(sums, bias, at);
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    if ((unsigned)(first_row + output[2 * i].row) < (unsigned)layer.rows.out)
                        column_to[output[2 * i].offset] =
                            finish_output<Element>(sums[i][0], RUNS_ROUNDS ? bias[i] : output[2 * i].bias);
            });
        }
    }

    /*
     * With other post-ops outputs are gathered by one loop for all codes, so that the text of the kinds is there once: by pieces
     * of POST_VALUES outputs, which are neighbouring columns of a run, or every other line of a column. Few registers are
     * left beside the sums of rows: where a piece lies is one number, from which all is found again before and after the
     * post-ops.
     */
    static constexpr int POST_VALUES = 2, LINE_BITS = 8, COLUMN_BITS = 3;

    struct post_piece {
        int unit;              /* of the thread's runs, or columns */
        int column;            /* of the run, or 0 */
        int line;              /* the first */
        bool is_run, is_pair;  /* is_pair: of columns, not of lines */
        bool exists;           /* the unit does */
        bool whole;            /* columns are stored at once */
        int from;              /* floats of the column buffer to the run or column, in line 0 */
        int first, begin, end; /* column of dst; those of the unit, from there on, that are the block's */
        int columns;           /* of a unit */
    };

    __device__ __forceinline__ post_piece find_piece(int at) const
    {
        post_piece piece = {};
        piece.line = at & ((1 << LINE_BITS) - 1);
        piece.column = at >> LINE_BITS & ((1 << COLUMN_BITS) - 1);
        piece.unit = at >> (LINE_BITS + COLUMN_BITS);
        piece.is_run = layer.gather >= FIRST_RUNS;
        piece.columns = piece.is_run ? layer.columns.stride : 1;
        piece.is_pair = piece.columns > 1;
        const int i = ((int)threadIdx.x & (pixels() - 1)) + piece.unit * pixels();
        const int place = (int)threadIdx.x >> (layer.row_pixels_log2 + 1);
        if (piece.is_run) {
            const int this_run = divide(block.first_output, layer.run_length).whole + i;
            piece.first = this_run * layer.columns.stride;
            piece.begin = block.first_output - piece.first;
            piece.end = piece.begin + block.outputs;
            piece.whole = layer.dst_runs && piece.begin <= 0 && piece.end >= layer.columns.stride;
            piece.from =
                place * (pixels() + GUARD) + min(this_run + layer.run_pad - block.first_column, pixels() + GUARD - 2);
        } else {
            piece.first = block.first_output + i;
            piece.end = block.outputs - i;
            piece.from = place * (pixels() + GUARD) + (piece.end > 0 ? shared.columns[i].first : 0);
        }
        piece.exists = block.first_image + place < layer.images && piece.end > 0;
        return piece;
    }

    /* Output i of a piece: one that does not exist has the place of the first. */
    __device__ __forceinline__ bool piece_has(const post_piece &piece, int i) const
    {
        return i == 0 || (piece.is_pair ? piece.column + 1 < piece.columns : piece.line + 2 < lines());
    }
    __device__ __forceinline__ int line_of(const post_piece &piece, int i) const
    {
        return piece.line + (!piece.is_pair && piece_has(piece, i) ? 2 * i : 0);
    }
    __device__ __forceinline__ int column_of(const post_piece &piece, int i) const
    {
        return piece.column + (piece.is_pair && piece_has(piece, i) ? i : 0);
    }
    __device__ __forceinline__ bool is_stored(const post_piece &piece, int i, int first_row) const
    {
        const int column = column_of(piece, i), row = first_row + shared.outputs[line_of(piece, i)].row;
        return piece_has(piece, i) && column >= piece.begin && column < piece.end &&
               (unsigned)row < (unsigned)layer.rows.out;
    }

    __device__ __forceinline__ void sum_piece(const post_piece &piece, const float *partials,
                                              float (&sums)[POST_VALUES]) const
    {
        const int pitch = layer.columns.kernel * ROW_SUMS_PITCH;
#pragma unroll
        for (int i = 0; i < POST_VALUES; i++) {
            const int line = line_of(piece, i), column = column_of(piece, i);
            const float *taps = partials + piece.from + line * pitch + (piece.is_run ? layer.run_taps[column] : 0);
            const int count = piece.is_run ? layer.gather % GATHER_STRIDES - 1 + (int)(layer.run_ends >> column & 1)
                                           : shared.columns[piece.first - block.first_output].count;
            sums[i] = count > 0 ? taps[0] : 0;
#pragma unroll 1
            for (int t = 1; t < count; t++)
                sums[i] += taps[t * layer.tap_step];
            sums[i] = finish_sum(sums[i], shared.outputs[line].bias);
        }
    }

    __device__ __forceinline__ void store_piece(const post_piece &piece, int first_row,
                                                const float (&values)[POST_VALUES]) const
    {
        const int place = (int)threadIdx.x >> (layer.row_pixels_log2 + 1);
        Element *to = find_dst<Element>(layer, block, block.first_image + place) + first_row * layer.dst_strides.h +
                      piece.first * layer.dst_strides.w;
        if (piece.whole && piece.is_pair) {
            if (is_stored(piece, 0, first_row))
                *reinterpret_cast<element_vector<Element, POST_VALUES> *>(
                    to + piece.column + shared.outputs[piece.line].offset) = to_outputs<Element, POST_VALUES>(values);
            return;
        }
#pragma unroll
        for (int i = 0; i < POST_VALUES; i++)
            if (is_stored(piece, i, first_row))
                to[shared.outputs[line_of(piece, i)].offset + column_of(piece, i) * layer.dst_strides.w] =
                    to_output<Element>(values[i]);
    }

    __device__ __forceinline__ void gather_with_posts(const float *partials, int row) const
    {
        const int first_row = row * layer.rows.stride - layer.rows.pad;
        const int begin = (int)threadIdx.x >> layer.row_pixels_log2 & 1;
        if (begin >= lines())
            return;
#pragma unroll 1
        for (int at = begin;;) {
            float values[POST_VALUES];
            {
                const post_piece piece = find_piece(at);
                if (!piece.exists)
                    return;
                sum_piece(piece, partials, values);
            }
            at = forgotten(at);
            /* Rows of a channel that does not exist have no number. */
            const auto channel = [&](int i) {
                const int line = line_of(find_piece(at), i), line_row = shared.outputs[line].row;
                return block.first_out + (line_row >= 0 ? line - line_row * layer.block_out : 0);
            };
            run_layer_posts<Element>(layer.posts, values, channel, [&](int i) {
                const tconv_strides &strides = layer.posts.addend_strides;
                const post_piece piece = find_piece(at);
                const int place = (int)threadIdx.x >> (layer.row_pixels_log2 + 1);
                const int64_t to_row = first_row + shared.outputs[line_of(piece, i)].row;
                return is_stored(piece, i, first_row)
                           ? (block.first_image + place) * strides.n + channel(i) * strides.c + to_row * strides.h +
                                 (piece.first + column_of(piece, i)) * strides.w
                           : NO_PLACE;
            });
            at = forgotten(at);
            post_piece piece = find_piece(at);
            store_piece(piece, first_row, values);
            /* On to the next lines, then columns, then units. */
            at += piece.is_pair ? 2 : 2 * POST_VALUES;
            if ((at & ((1 << LINE_BITS) - 1)) < lines())
                continue;
            piece.column += piece.is_pair ? POST_VALUES : 1;
            if (piece.column >= piece.columns) {
                piece.column = 0;
                piece.unit++;
            }
            at = begin | (piece.column | piece.unit << COLUMN_BITS) << LINE_BITS;
        }
    }

    /* Adds up and stores the outputs that are complete with a row of src. */
    __device__ __forceinline__ void gather(const float *partials, int row) const
    {
        static_assert(MAX_RUN == 4 && MIN_TAPS == 2 && MAX_TAPS == 3, "as here");
        switch (layer.gather) {
        case CODE<1, 2>: gather_runs<1, 2>(partials, row); break;
        case CODE<1, 3>: gather_runs<1, 3>(partials, row); break;
        case CODE<2, 2>: gather_runs<2, 2>(partials, row); break;
        case CODE<2, 3>: gather_runs<2, 3>(partials, row); break;
        case CODE<3, 2>: gather_runs<3, 2>(partials, row); break;
        case CODE<3, 3>: gather_runs<3, 3>(partials, row); break;
        case CODE<4, 2>: gather_runs<4, 2>(partials, row); break;
        case CODE<4, 3>: gather_runs<4, 3>(partials, row); break;
        case CODE<0, 2>: gather_columns<2>(partials, row); break;
        default: gather_columns<3>(partials, row);
        }
    }
};

} // namespace tconv::col2im::row_sums

#endif
