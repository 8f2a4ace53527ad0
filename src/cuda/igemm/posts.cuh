/*
 * Post-ops of the implicit GEMM's outputs. A list whose steps are all affine is run by the consumers on a tile's
 * accumulators, in their registers. Any other list is run on what is staged, a few values at a time, by the warp that
 * stores it. In f32 that is in place, and what is staged is stored as if there were no post-ops. In 16 bits f32 is
 * staged, in parts that are half as large or less, and values are rounded and stored as they come. A value that has no
 * output is computed too, but reads no addend.
 *
 * An addend that is the first step, as what dst holds always is, is added to what is staged before the other steps: a warp
 * then has several loads of it under way.
 */
#ifndef TCONV_CUDA_IGEMM_POSTS_CUH
#define TCONV_CUDA_IGEMM_POSTS_CUH

#include "../epilogue/posts.cuh"
#include "../ptx/memory.cuh"
#include "configs.h"
#include "offsets.cuh"

#include <type_traits>

namespace tconv::igemm
{

/* Tells whether a kernel's outputs may have post-ops: they are no parts of sums. */
template <class Mode> constexpr bool HAS_POSTS = std::is_same<typename Mode::Element, typename Mode::Output>::value;

/* Tells whether they may have those that are not affine, and whether outputs are stored as they come from those. */
template <class Mode, int N>
constexpr bool HAS_ANY_POSTS = HAS_POSTS<Mode> &&runs_any_posts(N, Mode::MMA_TILES, sizeof(typename Mode::Output));
template <class Mode, int N> constexpr bool STORES_POSTS = HAS_ANY_POSTS<Mode, N> && sizeof(typename Mode::Output) == 2;

/* Columns of a row of M that a warp has staged in f32 for post-ops: of one MMA tile, which are pixels, or of a pair. */
template <class Element, int N>
constexpr int POSTS_COLUMNS = sizeof(Element) == 4 ? N / 2
                              : N % 64 == 0        ? N / 4
                                                   : N / 6;
template <class Element, int N>
constexpr int POSTS_ROW_BYTES = sizeof(Element) == 4 ? STAGED_ROW_BYTES<float, N>
                                                     : (POSTS_COLUMNS<Element, N> + 4) * (int)sizeof(float);

/* What is added to the sums of a row of an M tile where they are staged. Affine post-ops have added the bias before. */
__device__ __forceinline__ float bias_of(const parameters &layer, const tile_record &tile, int m_tile, int row)
{
    return layer.posts_of_sums ? NO_BIAS : tile.bias[m_tile][row];
}

/* Bytes from a position's offset in dst to that of a row of an M tile in NCHW. */
template <class Element>
__device__ __forceinline__ int64_t offset_of_row(const parameters &layer, const tile_record &tile, int m_tile, int row)
{
    return tile.offset[m_tile] +
           (row / layer.runs.rows * layer.to.c + (row & (layer.runs.rows - 1))) * (int64_t)sizeof(Element);
}

/* Runs post-ops that are all affine on a consumer's accumulators, which get their bias. */
template <class Mode, int N>
__device__ __forceinline__ void run_posts_of_sums(const parameters &layer, const tile_record &tile, int warp, int lane,
                                                  float (&sums)[Mode::MMA_TILES][N / 2])
{
    const int row = warp % WARPGROUP_WARPS * WARP_M + lane / 4;
#pragma unroll
    for (int mma = 0; mma < Mode::MMA_TILES; mma++) {
        const int m_tile = layer.mma_m_tile[warp / WARPGROUP_WARPS][mma], first = tile.first[m_tile] + row;
        const float bias[2] = {tile.bias[m_tile][row], tile.bias[m_tile][row + 8]};
        const int channels[2] = {channel_of_dst(layer, first), channel_of_dst(layer, first + 8)};
        run_affine_posts(
            layer.posts, sums[mma], [&](int i) { return bias[i / 2 % 2]; },
            [&](const void *array) {
                const float *numbers = static_cast<const float *>(array);
                const float2 of_rows = {__ldg(numbers + channels[0]), __ldg(numbers + channels[1])};
                return [=](int i) { return i / 2 % 2 == 0 ? of_rows.x : of_rows.y; };
            });
    }
}

/* Vectors of an addend that is the first step whose loads a lane of a consumer has under way: accumulators leave no registers
 * for more. */
constexpr int CONSUMER_ADDENDS = 1;

/* A part of an M tile's rows that a warp, or several, have staged in f32: pixel by pixel, with rows of M side by side, or
 * row by row of M. A vector is so many neighbouring rows of a column. */
template <class Element, int VALUES> struct staged_part {
    using Values = element_vector<float, VALUES>;
    using Elements = element_vector<Element, VALUES>;
    bool by_pixels;
    bool of_pair;   /* a pixel has two columns, else one */
    int first;      /* the first row's output channel, of all channel groups */
    int rows;       /* that exist; may be 0 or less */
    int run_column; /* of its run that the first row is */
    int run_log2;   /* of the part's rows that are columns of one channel */
    int64_t offset; /* bytes from a position's offset in dst to that of the first row */
    const int64_t *offset_table;

    /* Calls with the number of each of a vector's values that has an output, and the output's bytes from dst's first. */
    template <class Each>
    __device__ __forceinline__ void for_each_output(const parameters &layer, int column, int row,
                                                    const Each &each) const
    {
        const int64_t pixel = offset_table[of_pair ? column / 2 : column];
        const int of_pixel = of_pair ? column % 2 : 0;
        const int begin = pixel & CUT_BEGIN ? layer.runs.begin : 0,
                  end = pixel & CUT_END ? layer.runs.end : layer.runs.columns;
        if (pixel < 0 || (of_pixel > 0 && pixel & CUT_END))
            return;
        const int run = 1 << run_log2;
        int of_run = row & (run - 1);
        int64_t at = offset + (pixel & ~(CUT_BEGIN | CUT_END)) +
                     ((row >> run_log2) * layer.to.c + of_run + of_pixel) * (int64_t)sizeof(Element);
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            if (row + i < rows && run_column + of_run >= begin && run_column + of_run < end)
                each(i, at);
            const bool ends = ++of_run == run;
            at += (ends ? layer.to.c - run + 1 : 1) * (int64_t)sizeof(Element);
            of_run = ends ? 0 : of_run;
        }
    }

    /* The elements of an addend that a vector has. They may lie in dst itself, and are no constants of the kernel. */
    __device__ __forceinline__ Values addend(const parameters &layer, const void *addend, int column, int row) const
    {
        const char *from = static_cast<const char *>(addend);
        Values values = {};
        if (layer.addend_by_vectors) {
            const int64_t pixel = offset_table[column];
            if (pixel >= 0 && row < rows) {
                const auto elements =
                    *reinterpret_cast<const Elements *>(from + offset + pixel + row * (int)sizeof(Element));
#pragma unroll
                for (int i = 0; i < VALUES; i++)
                    values.at[i] = to_compute(elements.at[i]);
            }
        } else {
            for_each_output(layer, column, row, [&](int i, int64_t at) {
                values.at[i] = to_compute(*reinterpret_cast<const Element *>(from + at));
            });
        }
        return values;
    }

    /* Rounds and stores a vector. */
    __device__ __forceinline__ void store(const parameters &layer, int column, int row,
                                          const float (&values)[VALUES]) const
    {
        const auto elements = to_outputs<Element, VALUES>(values);
        char *to = static_cast<char *>(layer.dst);
        if (by_pixels && layer.store_vectors) {
            const int64_t pixel = offset_table[column];
            if (pixel >= 0 && row < rows)
                *reinterpret_cast<Elements *>(to + offset + pixel + row * (int)sizeof(Element)) = elements;
        } else {
            for_each_output(layer, column, row,
                            [&](int i, int64_t at) { *reinterpret_cast<Element *>(to + at) = elements.at[i]; });
        }
    }
};

/* Where a part's vectors are staged: from a pixel to the next, and from a row of M to the next; in a pixel vectors of 16
 * bytes are swizzled. */
template <int PIXEL_BYTES, int ROW_BYTES, int SWIZZLE> struct staged_places {
    uint32_t staged;
    __device__ __forceinline__ uint32_t at(bool by_pixels, int column, int row) const
    {
        return by_pixels ? staged + column * PIXEL_BYTES + (row * (int)sizeof(float) ^ (column & SWIZZLE) * 16)
                         : staged + row * ROW_BYTES + column * (int)sizeof(float);
    }
    template <class Values> __device__ __forceinline__ Values load(bool by_pixels, int column, int row) const
    {
        constexpr int COUNT = sizeof(Values) / sizeof(float);
        const uint32_t from = at(by_pixels, column, row);
        Values values;
        if (by_pixels)
            return load_shared<Values>(from);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            values.at[i] = load_shared<float>(from + i * ROW_BYTES);
        return values;
    }
    template <class Values>
    __device__ __forceinline__ void store(bool by_pixels, int column, int row, const Values &values) const
    {
        constexpr int COUNT = sizeof(Values) / sizeof(float);
        const uint32_t to = at(by_pixels, column, row);
        if (by_pixels)
            return store_shared(to, values);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            store_shared(to + i * ROW_BYTES, values.at[i]);
    }
};

/* The vectors of a part that a lane takes: from number `first` on, a step apart. By pixels those of a pixel follow one
 * another, so many, and a step is of whole pixels; by rows those of as many columns. */
template <int VALUES, int pixel_vectors, int columns> struct part_walk {
    bool by_pixels;
    int first, step, count;

    __device__ __forceinline__ int column_of(int vector) const
    {
        return by_pixels ? vector / pixel_vectors : vector % columns;
    }
    __device__ __forceinline__ int row_of(int vector) const
    {
        return (by_pixels ? vector % pixel_vectors : vector / columns) * VALUES;
    }
};

/* Adds an addend that is the first step to vectors of a part, where these are staged. */
template <int AT_ONCE, class Walk, class Part, class Places>
__device__ __forceinline__ void add_to_part(const parameters &layer, const Walk &walk, const Part &part,
                                            const Places &places)
{
    using Values = typename Part::Values;
#pragma unroll 1
    for (int vector = walk.first; vector < walk.count; vector += AT_ONCE * walk.step) {
        Values addends[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int at = vector + i * walk.step;
            if (at < walk.count)
                addends[i] = part.addend(layer, layer.first_addend, walk.column_of(at), walk.row_of(at));
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int at = vector + i * walk.step;
            if (at >= walk.count)
                break;
            Values values = places.template load<Values>(walk.by_pixels, walk.column_of(at), walk.row_of(at));
            for_each_value(values.at, [&](float y, int e) {
                return multiply_add_rounded(layer.first_addend_times, addends[i].at[e], y);
            });
            places.store(walk.by_pixels, walk.column_of(at), walk.row_of(at), values);
        }
    }
}

/* Runs the post-ops on vectors of a part. Then it leaves f32 where it was staged, and stores 16 bits. part_of() describes
 * the part: anew where it is needed, so that no register is kept for it while post-ops run. */
template <class Element, int VALUES, int ADDENDS, int pixel_vectors, int columns, class Part, class Places>
__device__ __forceinline__ void run_posts_of_part(const parameters &layer, bool by_pixels, const Part &part_of,
                                                  const Places &places, int first, int step, int count)
{
    using Values = element_vector<float, VALUES>;
    const part_walk<VALUES, pixel_vectors, columns> walk = {by_pixels, first, step, count};
    if (layer.first_addend != NULL)
        add_to_part<ADDENDS>(layer, walk, part_of(), places);
    if (sizeof(Element) == sizeof(float) && layer.posts.count == 0)
        count = 0;
#pragma unroll 1 /* the text of all kinds is there once */
    for (int vector = first; vector < count; vector += step) {
        const int column = walk.column_of(vector);
        int row = walk.row_of(vector);
        asm volatile("" : "+r"(row)::"memory"); /* nor for what follows from a row that stays the same */
        Values addend = {};
        if (layer.addend != NULL)
            addend = part_of().addend(layer, layer.addend, column, row);
        Values values = places.template load<Values>(by_pixels, column, row);
        run_posts(
            layer.posts, values.at,
            [&](const void *array) {
                const float *numbers = static_cast<const float *>(array);
                const int channel = part_of().first + row;
                Values of_rows;
#pragma unroll
                for (int i = 0; i < VALUES; i++)
                    of_rows.at[i] = __ldg(numbers + channel_of_dst(layer, channel + i));
                return of_rows;
            },
            [&]() { return addend; });
        asm volatile("" : "+r"(row)::"memory");
        if constexpr (sizeof(Element) == sizeof(float))
            places.store(by_pixels, column, row, values);
        else
            part_of().store(layer, column, row, values.at);
    }
    __syncwarp();
}

/* Runs the post-ops on what a warp has staged of 16 rows of an M tile, from `first_row` on. */
template <class Element, int N, bool may_be_pixels, int VALUES, int ADDENDS>
__device__ __forceinline__ void run_posts_of_rows(const parameters &layer, const tile_record &tile, int m_tile,
                                                  int first_row, const int64_t *offset_table, uint32_t staged, int lane)
{
    constexpr int COLUMNS = POSTS_COLUMNS<Element, N>, PIXEL_VECTORS = WARP_M / VALUES;
    constexpr int VECTORS = COLUMNS * PIXEL_VECTORS;
    static_assert(VECTORS % WARP == 0, "whole rounds");
    const bool by_pixels = may_be_pixels && layer.dst_channels_last;
    const auto part_of = [&]() -> staged_part<Element, VALUES> {
        return {by_pixels,
                layer.paired,
                tile.first[m_tile] + first_row,
                min(WARP_M, tile.channels[m_tile] - first_row),
                first_row & (layer.runs.rows - 1),
                31 - __clz(min(layer.runs.rows, WARP_M)),
                offset_of_row<Element>(layer, tile, m_tile, first_row),
                offset_table};
    };
    const staged_places<STAGED_PIXEL_BYTES<float>, POSTS_ROW_BYTES<Element, N>, 0> places = {staged};
    run_posts_of_part<Element, VALUES, ADDENDS, PIXEL_VECTORS, COLUMNS>(layer, by_pixels, part_of, places, lane, WARP,
                                                                        VECTORS);
}

/* Runs the post-ops on the pixels of a part that an epilogue warp stores (store_pixels). */
template <class Element, int pixels, int warps, int swizzle_mask, int VALUES, int ADDENDS>
__device__ __forceinline__ void run_posts_of_pixels(const parameters &layer, const tile_record &tile, int m_tile,
                                                    const int64_t *offset_table, uint32_t staged, int warp, int lane)
{
    constexpr int VECTORS = MMA_M / VALUES, PIXELS = WARP / VECTORS, STEP = PIXELS * warps; /* pixels at once */
    static_assert(VECTORS <= WARP && pixels % STEP == 0, "whole rounds");
    const auto part_of = [&]() -> staged_part<Element, VALUES> {
        return {true, false, tile.first[m_tile],  min(MMA_M, tile.channels[m_tile]),
                0,    0,     tile.offset[m_tile], offset_table};
    };
    const staged_places<MMA_M *(int)sizeof(float), 0, swizzle_mask> places = {staged};
    /* By vectors a warp stores two pixels at once, else one. */
    const int pixel = layer.store_vectors ? warp * PIXELS + lane / VECTORS : warp + lane / VECTORS * warps;
    run_posts_of_part<Element, VALUES, ADDENDS, VECTORS, 1>(
        layer, true, part_of, places, pixel * VECTORS + lane % VECTORS, STEP * VECTORS, pixels * VECTORS);
}

} // namespace tconv::igemm

#endif
