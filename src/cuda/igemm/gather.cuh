/* The loader warps where TMA cannot read src: they gather B stages from it, by elements, or in NCHW by pairs of columns. */
#ifndef TCONV_CUDA_IGEMM_GATHER_CUH
#define TCONV_CUDA_IGEMM_GATHER_CUH

#include "load.cuh"

namespace tconv::igemm
{

/* Gathers a B stage of pixels whose channels lie apart: neighbouring lanes take neighbouring pixels. `src` is at the
 * K-block's first channel of the first pixel, `left` the channels from there on. */
template <class Mode>
__device__ __forceinline__ void gather_pixels(const parameters &layer, const shared_layout &shared,
                                              const stage_origin &origin, const typename Mode::Element *src, int left,
                                              uint32_t buffer, int thread)
{
    constexpr int LEAST = MMA_K_BYTES / CORE_ROW_BYTES, COUNT = VECTORS_AT_ONCE<Mode>;
    const int vectors = layer.pixel_bytes / CORE_ROW_BYTES;
#pragma unroll 1
    for (int pixel = thread; pixel < layer.stage_pixels; pixel += LOADER_WARPS * WARP) {
        const pixel_coordinates at = find_pixel(layer, shared, origin, pixel);
        const int channels = at.exists(layer) ? left : 0;
        const typename Mode::Element *from =
            src + at.image * layer.from.n + at.row * layer.from.h + at.column * layer.from.w;
        const uint32_t swizzle = swizzle_of(layer, pixel), to = buffer + pixel * layer.pixel_bytes;
        int vector = 0, channel = 0;
        const auto load = [&](int) {
            const uint32_t bits = load_element(from, channel++ < channels);
            from += layer.from.c;
            return bits;
        };
#pragma unroll 1
        for (; vector + COUNT <= vectors; vector += COUNT)
            write_vectors<Mode, COUNT>(to, swizzle, vector, layer.plane_bytes, load);
        if (vector < vectors)
            write_vectors<Mode, LEAST>(to, swizzle, vector, layer.plane_bytes, load);
    }
}

/* Gathers a B stage of pixels whose channels are neighbours: neighbouring lanes take neighbouring vectors of a
 * pixel. */
template <class Mode>
__device__ __forceinline__ void gather_vectors(const parameters &layer, const shared_layout &shared,
                                               const stage_origin &origin, const typename Mode::Element *src, int left,
                                               uint32_t buffer, int thread)
{
    using Vector = core_rows<Mode>;
    constexpr int COUNT = VECTORS_AT_ONCE<Mode>, STEP = LOADER_WARPS * WARP;
    const int vectors = layer.pixel_bytes / CORE_ROW_BYTES, vectors_log2 = 31 - __clz(vectors),
              all = layer.stage_pixels * vectors;
#pragma unroll 1
    for (int number = thread; number < all; number += COUNT * STEP) {
        uint32_t words[COUNT][Vector::CHANNELS];
#pragma unroll
        for (int q = 0; q < COUNT; q++) {
            const int pixel = min((number + q * STEP) >> vectors_log2, layer.stage_pixels - 1);
            const int first = ((number + q * STEP) & (vectors - 1)) * Vector::CHANNELS;
            const pixel_coordinates at = find_pixel(layer, shared, origin, pixel);
            const int channels = at.exists(layer) ? left - first : 0;
            const typename Mode::Element *from =
                src + at.image * layer.from.n + at.row * layer.from.h + at.column * layer.from.w + first;
#pragma unroll
            for (int c = 0; c < Vector::CHANNELS; c++)
                words[q][c] = load_element(from + c, c < channels);
        }
#pragma unroll
        for (int q = 0; q < COUNT; q++) {
            const int pixel = (number + q * STEP) >> vectors_log2, vector = (number + q * STEP) & (vectors - 1);
            if (pixel < layer.stage_pixels)
                Vector::store_pixel(words[q],
                                    buffer + pixel * layer.pixel_bytes +
                                        ((vector * CORE_ROW_BYTES) ^ swizzle_of(layer, pixel)),
                                    layer.plane_bytes);
        }
    }
}

/* The pairs of neighbouring pixels of a row of a stage: one more than there may be, since they begin at even columns of
 * src, as the stage may or may not. */
__device__ __forceinline__ int pairs_of_row(const parameters &layer)
{
    return layer.pitch / 2 + 1;
}
__device__ __forceinline__ int pairs_of(const parameters &layer)
{
    return layer.stage_pixels / layer.pitch * pairs_of_row(layer);
}

/* Makes a table of the coordinates, those of a row in pairs. */
__device__ __forceinline__ void fill_pairs(const parameters &layer, const shared_layout &shared, int thread)
{
    const int rows = layer.image_pixels / layer.pitch;
    for (int pair = thread; pair < pairs_of(layer); pair += LOADER_WARPS * WARP) {
        const int row = pair / pairs_of_row(layer), image = row / rows;
        shared.coordinates[pair] = image << (ROW_BITS + COLUMN_BITS) | (row - image * rows) << COLUMN_BITS |
                                   (pair - row * pairs_of_row(layer));
    }
}

/* Stores a vector of channels of one of two neighbouring pixels. */
template <class Mode, int channels>
__device__ __forceinline__ void store_of_pair(const uint2 (&pairs)[channels], bool second, uint32_t to)
{
    uint32_t values[channels];
#pragma unroll
    for (int c = 0; c < channels; c++)
        values[c] = second ? pairs[c].y : pairs[c].x;
    core_rows<Mode>::store_pixel(values, to, 0);
}
template <class Mode, int channels>
__device__ __forceinline__ void store_of_pair(const uint32_t (&pairs)[channels], bool second, uint32_t to)
{
    core_rows<Mode>::store_one(pairs, second ? core_rows<Mode>::HIGH : core_rows<Mode>::LOW, to);
}

/* The vectors of each pixel that a thread writes at once: fewer where each warp takes its part of the same pairs. */
template <class Mode> constexpr int PAIR_VECTORS_AT_ONCE = sizeof(typename Mode::Element) == 4 ? 4 : 2;
constexpr int FEW_VECTORS_AT_ONCE = 2;

/* How the loader threads share the pairs of a stage: warps that would find none take other channels of the same pairs. */
struct pair_sharing {
    int first, step;   /* a thread's first pair, and from one of a thread's pairs to the next */
    int sharer, count; /* which of the threads that share a pair this is, and how many do */
};

__device__ __forceinline__ pair_sharing share_pairs(const parameters &layer, int thread)
{
    int step = LOADER_WARPS * WARP;
    while (step > WARP && pairs_of(layer) <= step / 2)
        step /= 2;
    return {thread & (step - 1), step, thread / step, LOADER_WARPS * WARP / step};
}

/* Gathers likewise, two pixels at once, which both exist or not: as many bytes again are under way. All loads come before
 * the first store. */
template <class Mode, int COUNT>
__device__ __forceinline__ void gather_pairs(const parameters &layer, const shared_layout &shared,
                                             const stage_origin &origin, const typename Mode::Element *src, int left,
                                             uint32_t buffer, const pair_sharing &share)
{
    using Pair = std::conditional_t<sizeof(typename Mode::Element) == 4, uint2, uint32_t>;
    constexpr int CHANNELS = core_rows<Mode>::CHANNELS;
    const int vectors = layer.pixel_bytes / CORE_ROW_BYTES, odd = origin.column & 1;
#pragma unroll 1
    for (int pair = share.first; pair < pairs_of(layer); pair += share.step) {
        const uint32_t place = shared.coordinates[pair];
        const int of_image = (int)(place >> COLUMN_BITS & ROW_MASK), image = (int)(place >> (ROW_BITS + COLUMN_BITS));
        const int of_row = 2 * (int)(place & COLUMN_MASK) - odd;
        const int row = origin.row + of_image, column = origin.column + of_row;
        const int plane = origin.image + image * layer.image_planes;
        const bool exists = (unsigned)plane < (unsigned)layer.src_images && (unsigned)row < (unsigned)layer.in_rows &&
                            (unsigned)column < (unsigned)layer.in_columns;
        const int channels = exists ? left : 0, pixel = image * layer.image_pixels + of_image * layer.pitch + of_row;
        const typename Mode::Element *image_row = src + plane * layer.from.n + row * layer.from.h + column;
#pragma unroll 1
        for (int vector = share.sharer * COUNT; vector < vectors; vector += share.count * COUNT) {
            const typename Mode::Element *from = image_row + vector * CHANNELS * layer.from.c;
            Pair pairs[COUNT][CHANNELS];
#pragma unroll
            for (int q = 0; q < COUNT; q++)
#pragma unroll
                for (int c = 0; c < CHANNELS; c++) {
                    pairs[q][c] =
                        (vector + q) * CHANNELS + c < channels ? *reinterpret_cast<const Pair *>(from) : Pair{};
                    from += layer.from.c;
                }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int second = i ^ (int)(threadIdx.x >> 2 & 1); /* so that no bank is met twice */
                const uint32_t swizzle = swizzle_of(layer, pixel + second);
                const uint32_t to = buffer + (pixel + second) * layer.pixel_bytes;
                if ((unsigned)(of_row + second) >= (unsigned)layer.pitch)
                    continue;
#pragma unroll
                for (int q = 0; q < COUNT; q++)
                    store_of_pair<Mode>(pairs[q], second, to + (((vector + q) * CORE_ROW_BYTES) ^ swizzle));
            }
        }
    }
}

/* Fills B stages from src itself. */
template <class Mode>
__device__ __forceinline__ void gather(const parameters &layer, const shared_layout &shared, int thread)
{
    const bool in_pairs = !Mode::STRICT && layer.gathers_pairs;
    if (in_pairs)
        fill_pairs(layer, shared, thread);
    else
        fill_coordinates(layer, shared, thread);
    const pair_sharing share = share_pairs(layer, thread);
    const bool few_pairs = PAIR_VECTORS_AT_ONCE<Mode> > FEW_VECTORS_AT_ONCE && share.step == WARP;
    named_barrier_sync<LOADER_WARPS * WARP>(); /* threads read others' coordinates */
    fill_b_stages<Mode>(layer, shared, [&](const stage_walk &stage, const stage_origin &origin) {
        const auto *src = static_cast<const typename Mode::Element *>(layer.src) +
                          (origin.volume * layer.from_volume + origin.channel * layer.from.c);
        const int left = origin.left(layer);
        if (in_pairs && few_pairs)
            gather_pairs<Mode, FEW_VECTORS_AT_ONCE>(layer, shared, origin, src, left, stage.buffer(), share);
        else if (in_pairs)
            gather_pairs<Mode, PAIR_VECTORS_AT_ONCE<Mode>>(layer, shared, origin, src, left, stage.buffer(), share);
        else if (layer.from.c == 1)
            gather_vectors<Mode>(layer, shared, origin, src, left, stage.buffer(), thread);
        else
            gather_pixels<Mode>(layer, shared, origin, src, left, stage.buffer(), thread);
        stage.signal_written(thread % WARP);
    });
}

} // namespace tconv::igemm

#endif
