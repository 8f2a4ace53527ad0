/*
 * Post-ops of the implicit GEMM's outputs. The affine steps with which a list begins are run by the consumers on a tile's
 * accumulators, in their registers. The others are run on what is staged in f32, one step on all values of a part before
 * the next, by the warp that stores the part: what a step costs beside its arithmetic, its place in the list above all, is
 * paid once for many values. In f32 that is in place, and what is staged is stored as if there were no post-ops. For 16
 * bits parts are half as large or less, and values are rounded and stored after the last step. A value that has no output
 * is computed too, but reads no addend.
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

/* Tells whether a kernel's outputs may have post-ops: its sums are no parts of others. */
template <class Mode>
constexpr bool HAS_POSTS = std::is_same<typename Mode::Element, typename Mode::Output>::value && !Mode::CLUSTERED;

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

/* The activation functions of a mode. */
template <class Mode> using functions_of = std::conditional_t<Mode::STRICT, exact_functions, fast_functions>;

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

/* Runs the first post-ops on a consumer's accumulators, which get their bias. */
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
            layer.posts.of_sums, sums[mma], [&](int i) { return bias[i / 2 % 2]; },
            [&](const void *array) {
                const float *numbers = static_cast<const float *>(array);
                const float2 of_rows = {__ldg(numbers + channels[0]), __ldg(numbers + channels[1])};
                return [=](int i) { return i / 2 % 2 == 0 ? of_rows.x : of_rows.y; };
            });
    }
}

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

    /* The elements of the addend that a vector has. They may lie in dst itself, and are no constants of the kernel. */
    __device__ __forceinline__ Values addend(const parameters &layer, int column, int row) const
    {
        const char *from = static_cast<const char *>(layer.posts.addend);
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

/* The vectors of a part that a lane has: from number `first` on, `step` apart, of `count`. By pixels those of a pixel
 * follow one another, so many; by rows those of as many columns. AT_ONCE of them go through a step together. part_of()
 * describes the part: anew where it is needed, so that no register is kept for it while post-ops run. */
template <class Element, int VALUES, int AT_ONCE, int pixel_vectors, int columns, class Part, class Places>
struct staged_vectors {
    using Values = element_vector<float, VALUES>;
    const parameters &layer;
    const bool by_pixels;
    const Part &part_of;
    const Places &places;
    const int first, step, count;
    const post_tail *tail;             /* of the step that is run */
    int column[AT_ONCE], row[AT_ONCE]; /* of the vectors that for_each_value is at */

    __device__ __forceinline__ void go_to(int vector)
    {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, vector += step) {
            column[i] = by_pixels ? vector / pixel_vectors : vector % columns;
            row[i] = (by_pixels ? vector % pixel_vectors : vector / columns) * VALUES;
            asm volatile("" : "+r"(row[i])::"memory"); /* nothing is kept for a row that stays the same */
        }
    }
    __device__ __forceinline__ Values load(int i) const
    {
        return places.template load<Values>(by_pixels, column[i], row[i]);
    }
};

template <class Element, int VALUES, int AT_ONCE, int pixel_vectors, int columns, class Part, class Places,
          class Function>
__device__ __forceinline__ void
for_each_value(staged_vectors<Element, VALUES, AT_ONCE, pixel_vectors, columns, Part, Places> &vectors,
               Function function)
{
    /* Read once where there are registers for it: parameters by an index are read slowly. */
    using Tail = std::conditional_t<(AT_ONCE > 1), const post_tail, const post_tail &>;
    Tail tail = *vectors.tail;
#pragma unroll 1
    for (int vector = vectors.first; vector < vectors.count; vector += AT_ONCE * vectors.step) {
        float values[AT_ONCE * VALUES];
        vectors.go_to(vector);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const auto loaded = vectors.load(i);
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                values[i * VALUES + j] = loaded.at[j];
        }
        tconv::for_each_value(values, function);
        if (tail.exists)
            run_tail(tail, values);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            element_vector<float, VALUES> done;
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                done.at[j] = values[i * VALUES + j];
            vectors.places.store(vectors.by_pixels, vectors.column[i], vectors.row[i], done);
        }
    }
}

/* run_post takes the channels' numbers from this object. */
template <int VALUES, class Vectors> struct numbers_of_vectors {
    struct elements {
        const Vectors &vectors;
        const float *numbers;
        __device__ __forceinline__ float operator[](int i) const
        {
            const int channel = vectors.part_of().first + vectors.row[i / VALUES] + i % VALUES;
            return __ldg(numbers + channel_of_dst(vectors.layer, channel));
        }
    } at;
};

/* run_post takes the addend from this object, in the order of the values: with the first value all are asked for. */
template <int VALUES, int AT_ONCE, class Vectors> struct addend_of_vectors {
    struct elements {
        const Vectors &vectors;
        mutable element_vector<float, VALUES> loaded[AT_ONCE];
        __device__ __forceinline__ float operator[](int i) const
        {
            if (i == 0)
#pragma unroll
                for (int v = 0; v < AT_ONCE; v++)
                    loaded[v] = vectors.part_of().addend(vectors.layer, vectors.column[v], vectors.row[v]);
            return loaded[i / VALUES].at[i % VALUES];
        }
    } at;
};

/* Runs the post-ops on a lane's vectors. Then it leaves f32 where it was staged, and stores 16 bits. */
template <class Functions, int VALUES, int AT_ONCE, class Element, class Vectors>
__device__ __forceinline__ void run_posts_of_vectors(const parameters &layer, Vectors &vectors)
{
#pragma unroll 1
    for (int i = 0; i < layer.posts.of_staged.count; i++) {
        vectors.tail = &layer.posts.tails[i];
        run_post<float, Functions>(
            layer.posts.of_staged.of[i], vectors,
            [&](const void *array) -> numbers_of_vectors<VALUES, Vectors> {
                return {{vectors, static_cast<const float *>(array)}};
            },
            [&]() -> addend_of_vectors<VALUES, AT_ONCE, Vectors> {
                return {{vectors, {}}};
            });
    }
    if constexpr (sizeof(Element) < sizeof(float)) {
#pragma unroll 1
        for (int vector = vectors.first; vector < vectors.count; vector += AT_ONCE * vectors.step) {
            vectors.go_to(vector);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                vectors.part_of().store(layer, vectors.column[i], vectors.row[i], vectors.load(i).at);
        }
    }
    __syncwarp();
}

/* Runs the post-ops on what a warp has staged of 16 rows of an M tile, from `first_row` on. */
template <class Functions, class Element, int N, bool may_be_pixels, int VALUES, int AT_ONCE>
__device__ __forceinline__ void run_posts_of_rows(const parameters &layer, const tile_record &tile, int m_tile,
                                                  int first_row, const int64_t *offset_table, uint32_t staged, int lane)
{
    constexpr int COLUMNS = POSTS_COLUMNS<Element, N>, PIXEL_VECTORS = WARP_M / VALUES;
    constexpr int VECTORS = COLUMNS * PIXEL_VECTORS;
    static_assert(VECTORS % (AT_ONCE * WARP) == 0, "whole rounds");
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
    staged_vectors<Element, VALUES, AT_ONCE, PIXEL_VECTORS, COLUMNS, decltype(part_of), decltype(places)> vectors = {
        layer, by_pixels, part_of, places, lane, WARP, VECTORS, NULL, {}, {}};
    run_posts_of_vectors<Functions, VALUES, AT_ONCE, Element>(layer, vectors);
}

/* Runs the post-ops on the pixels of a part that an epilogue warp stores (store_pixels). */
template <class Functions, class Element, int pixels, int warps, int swizzle_mask, int VALUES, int AT_ONCE>
__device__ __forceinline__ void run_posts_of_pixels(const parameters &layer, const tile_record &tile, int m_tile,
                                                    const int64_t *offset_table, uint32_t staged, int warp, int lane)
{
    constexpr int VECTORS = MMA_M / VALUES, PIXELS = WARP / VECTORS, STEP = PIXELS * warps; /* pixels at once */
    static_assert(VECTORS <= WARP && pixels % (AT_ONCE * STEP) == 0, "whole rounds");
    const auto part_of = [&]() -> staged_part<Element, VALUES> {
        return {true, false, tile.first[m_tile],  min(MMA_M, tile.channels[m_tile]),
                0,    0,     tile.offset[m_tile], offset_table};
    };
    const staged_places<MMA_M *(int)sizeof(float), 0, swizzle_mask> places = {staged};
    /* By vectors a warp stores two pixels at once, else one. */
    const int pixel = layer.store_vectors ? warp * PIXELS + lane / VECTORS : warp + lane / VECTORS * warps;
    staged_vectors<Element, VALUES, AT_ONCE, VECTORS, 1, decltype(part_of), decltype(places)> vectors = {
        layer, true, part_of, places, pixel * VECTORS + lane % VECTORS, STEP * VECTORS, pixels * VECTORS, NULL, {}, {}};
    run_posts_of_vectors<Functions, VALUES, AT_ONCE, Element>(layer, vectors);
}

} // namespace tconv::igemm

#endif
