/*
 * Post-ops of the implicit GEMM's outputs. A list whose steps are all affine is run by the consumers on a tile's
 * accumulators, in their registers. Any other list is run on what is staged, which must be f32, in place: by the warp
 * that stores it, a vector of four values at a time, before it is stored as if there were no post-ops. What does not
 * exist in dst is computed too, but reads no addend.
 */
#ifndef TCONV_CUDA_IGEMM_POSTS_CUH
#define TCONV_CUDA_IGEMM_POSTS_CUH

#include "../epilogue/posts.cuh"
#include "../ptx/memory.cuh"
#include "offsets.cuh"

#include <type_traits>

namespace tconv::igemm
{

/* Tells whether a kernel's outputs may have post-ops: they are no parts of sums. */
template <class Mode> constexpr bool HAS_POSTS = std::is_same<typename Mode::Element, typename Mode::Output>::value;

/* Tells whether they may have those that are not affine. */
template <class Mode> constexpr bool STAGED_POSTS = HAS_POSTS<Mode> &&std::is_same<typename Mode::Output, float>::value;

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

/* A part of an M tile's rows that a warp, or several, have staged in f32, by lines of vectors of so many values: a line is a
 * pixel, with neighbouring rows of M; or a row of M, with neighbouring columns of dst's rows. */
template <int VALUES> struct staged_part {
    using Values = element_vector<float, VALUES>;
    bool by_pixels;
    int columns; /* by rows: that a pixel has; 2 of a pair, else 1 */
    int first;   /* the first row's output channel, of all channel groups */
    int rows;    /* that exist; may be 0 or less */
    int column;  /* by rows: of its run that the first row is */
    int run;     /* by rows: that are one channel */
    const char *addend;
    const int64_t *offset_table;

    /* The elements of the addend that a vector of a pixel has, from this row on. */
    __device__ __forceinline__ Values pixel_addend(const parameters &layer, int pixel, int row) const
    {
        Values values = {};
        const int64_t offset = offset_table[pixel];
        const float *from = reinterpret_cast<const float *>(addend + offset) + row;
        if (offset < 0 || row >= rows)
            return values;
        if (layer.addend_by_vectors)
            return *reinterpret_cast<const Values *>(from);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            if (row + i < rows)
                values.at[i] = from[i];
        return values;
    }

    /* The same that a vector of a row has, from this column on. */
    __device__ __forceinline__ Values row_addend(const parameters &layer, int row, int first_column) const
    {
        Values values = {};
        const int of_run = column + row % run;
        const char *of_row = addend + row / run * layer.to.c * (int64_t)sizeof(float) + row % run * (int)sizeof(float);
        if (row >= rows)
            return values;
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            const int64_t offset = offset_table[(first_column + i) / columns];
            const bool exists = offset >= 0 && of_run >= (offset & CUT_BEGIN ? layer.runs.begin : 0) &&
                                of_run < (offset & CUT_END ? layer.runs.end : layer.runs.columns) &&
                                (columns == 1 || i % 2 == 0 || !(offset & CUT_END));
            if (exists)
                values.at[i] = reinterpret_cast<const float *>(
                    of_row + (offset & ~(CUT_BEGIN | CUT_END)))[columns == 1 ? 0 : i % 2];
        }
        return values;
    }
};

/* Runs the post-ops on vectors of a part, from `first` on, a step apart: a pixel has pixel_vectors, a row of M has
 * row_vectors, and address(i) is that of vector i. By pixels, a step is of whole pixels. The addend of AT_ONCE vectors is
 * under way at a time. */
template <int AT_ONCE, int pixel_vectors, int row_vectors, int VALUES, class Address>
__device__ __forceinline__ void run_posts_of_part(const parameters &layer, const staged_part<VALUES> &part, int first,
                                                  int step, int count, const Address &address)
{
    using Values = element_vector<float, VALUES>;
    int channels[VALUES] = {};
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        if (part.by_pixels)
            channels[i] = channel_of_dst(layer, part.first + first % pixel_vectors * VALUES + i);
#pragma unroll 1
    for (int begin = first; begin < count; begin += AT_ONCE * step) {
        Values addends[AT_ONCE] = {};
        if (layer.addend != NULL) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int vector = begin + i * step;
                addends[i] = part.by_pixels
                                 ? part.pixel_addend(layer, vector / pixel_vectors, vector % pixel_vectors * VALUES)
                                 : part.row_addend(layer, vector / row_vectors, vector % row_vectors * VALUES);
            }
        }
#pragma unroll 1 /* the text of all kinds is there once */
        for (int vector = begin; vector < begin + AT_ONCE * step; vector += step) {
            const uint32_t at = address(vector);
            Values values = load_shared<Values>(at);
            if (!part.by_pixels)
                channels[0] = channel_of_dst(layer, part.first + vector / row_vectors);
            run_posts(
                layer.posts, values.at,
                [&](const void *array) {
                    const float *numbers = static_cast<const float *>(array);
                    Values of_rows;
                    of_rows.at[0] = __ldg(numbers + channels[0]);
#pragma unroll
                    for (int i = 1; i < VALUES; i++)
                        of_rows.at[i] = part.by_pixels ? __ldg(numbers + channels[i]) : of_rows.at[0];
                    return of_rows;
                },
                [&]() { return addends[0]; });
            store_shared(at, values);
#pragma unroll
            for (int i = 1; i < AT_ONCE; i++)
                addends[i - 1] = addends[i];
        }
    }
    __syncwarp();
}

/* Runs the post-ops on what a warp's 16 rows of an M tile, from `row` on, have staged of N / 2 columns: of pixels, or of
 * a quarter of a pair. */
template <int N, bool may_be_pixels, int VALUES>
__device__ __forceinline__ void run_posts_of_rows(const parameters &layer, const tile_record &tile, int m_tile, int row,
                                                  const int64_t *offset_table, uint32_t staged, int lane)
{
    constexpr int PIXEL_VECTORS = WARP_M / VALUES, ROW_VECTORS = N / 2 / VALUES, VECTORS = N / 2 * PIXEL_VECTORS;
    constexpr int PIXEL_BYTES = STAGED_PIXEL_BYTES<float>, ROW_BYTES = STAGED_ROW_BYTES<float, N>;
    constexpr int AT_ONCE = VALUES < 4                                 ? 1
                            : may_be_pixels || VECTORS / WARP % 4 != 0 ? 2
                                                                       : 4,
                  BYTES = VALUES * (int)sizeof(float);
    static_assert(VECTORS % (AT_ONCE * WARP) == 0, "whole rounds");
    const bool by_pixels = may_be_pixels && layer.dst_channels_last;
    const staged_part<VALUES> part = {by_pixels,
                                      layer.paired ? 2 : 1,
                                      tile.first[m_tile] + row,
                                      min(WARP_M, tile.channels[m_tile] - row),
                                      row & (layer.runs.rows - 1),
                                      min(layer.runs.rows, WARP_M),
                                      static_cast<const char *>(layer.addend) +
                                          offset_of_row<float>(layer, tile, m_tile, row),
                                      offset_table};
    run_posts_of_part<AT_ONCE, PIXEL_VECTORS, ROW_VECTORS>(layer, part, lane, WARP, VECTORS, [=](int vector) {
        return staged + (by_pixels ? vector / PIXEL_VECTORS * PIXEL_BYTES + vector % PIXEL_VECTORS * BYTES
                                   : vector / ROW_VECTORS * ROW_BYTES + vector % ROW_VECTORS * BYTES);
    });
}

/* Runs the post-ops on the pixels of a part that an epilogue warp stores (store_pixels): the vectors of a pixel are
 * swizzled. */
template <int pixels, int warps, int swizzle_mask>
__device__ __forceinline__ void run_posts_of_pixels(const parameters &layer, const tile_record &tile, int m_tile,
                                                    const int64_t *offset_table, uint32_t staged, int warp, int lane)
{
    constexpr int VECTORS = MMA_M / 4, AT_ONCE = 4;
    static_assert(VECTORS == WARP / 2 && pixels % (2 * warps * AT_ONCE) == 0, "whole rounds of two pixels");
    const staged_part<4> part = {true,
                                 1,
                                 tile.first[m_tile],
                                 min(MMA_M, tile.channels[m_tile]),
                                 0,
                                 1,
                                 static_cast<const char *>(layer.addend) + tile.offset[m_tile],
                                 offset_table};
    /* By vectors a warp stores two pixels at once, else one. */
    const int pixel = layer.store_vectors ? warp * 2 + lane / VECTORS : warp + lane / VECTORS * warps;
    run_posts_of_part<AT_ONCE, VECTORS, 1>(layer, part, pixel * VECTORS + lane % VECTORS, 2 * warps * VECTORS,
                                           pixels * VECTORS, [=](int vector) {
                                               const int of_pixel = vector / VECTORS;
                                               return staged + of_pixel * (MMA_M * (int)sizeof(float)) +
                                                      ((vector % VECTORS) ^ (of_pixel & swizzle_mask)) * 16;
                                           });
}

} // namespace tconv::igemm

#endif
