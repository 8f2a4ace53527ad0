/* The epilogue warps: they store what consumers staged to dst, by bulk copies or by vectors. */
#ifndef TCONV_CUDA_WGMMA_STORE_CUH
#define TCONV_CUDA_WGMMA_STORE_CUH

#include "../ptx/tma.cuh"
#include "epilogue.cuh"
#include "posts.cuh"

#include <type_traits>

namespace tconv::wgmma
{

/* The bytes of a row of dst that a bulk copy may write, from a multiple of 16 to another, and its ends before and after
 * them. */
struct row_ends {
    int head, middle, tail;
    __device__ __forceinline__ row_ends(int misalignment, int bytes)
    {
        head = min(-misalignment & 15, bytes);
        middle = (bytes - head) & ~15;
        tail = bytes - head - middle;
    }
};

/* Copies less than 16 bytes, by words. */
__device__ __forceinline__ void copy_end(char *to, uint32_t from, int bytes)
{
    uint32_t words[3];
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (4 * i < bytes)
            words[i] = load_shared<uint32_t>(from + 4 * i);
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (4 * i < bytes)
            *reinterpret_cast<uint32_t *>(to + 4 * i) = words[i];
}

/* Issues the bulk copies of a row of count channels. */
__device__ __forceinline__ void store_channels(char *to, int64_t to_step, uint32_t from, uint32_t from_step, int count,
                                               int bytes)
{
#pragma unroll 1
    for (; count > 0; count--) {
        bulk_store(to, from, bytes);
        to += to_step;
        from += from_step;
    }
}

/* Stores a row of dst of each channel by bulk copies, which one lane issues, and their ends by a lane each. Channel c
 * is staged at from + c * pitch and, from there, as far on as its row of dst is past a multiple of 16: that row begins
 * at c * channel + misalignment, modulo 16. */
template <int pitch>
__device__ __forceinline__ void store_row_bulk(const parameters &params, char *to, int64_t channel, uint32_t from,
                                               int channels, int length, int misalignment, int lane)
{
    const int period = params.bulk_period, period_log2 = __popc(period - 1); /* a power of two */
    if (period == 1) {
        const row_ends ends((int)(uintptr_t)to & 15, length);
        if (ends.middle > 0 && elected())
            store_channels(to + ends.head, channel, from + (misalignment & 15) + ends.head, pitch, channels,
                           ends.middle);
        if ((ends.head | ends.tail) == 0)
            return;
    } else if (elected()) {
        for (int first = 0; first < min(period, channels); first++) {
            char *target = to + first * channel;
            const uint32_t source = from + first * pitch + ((int)(first * channel + misalignment) & 15);
            const row_ends ends((int)(uintptr_t)target & 15, length);
            if (ends.middle > 0)
                store_channels(target + ends.head, period * channel, source + ends.head, period * pitch,
                               (channels - first + period - 1) >> period_log2, ends.middle);
        }
    }
    __syncwarp();
    const int row = lane % WARP_M;
    if (row < channels) {
        to += row * channel;
        from += row * pitch + ((int)(row * channel + misalignment) & 15);
        const row_ends ends((int)(uintptr_t)to & 15, length);
        const int at = lane < WARP_M ? 0 : ends.head + ends.middle;
        copy_end(to + at, from + at, lane < WARP_M ? ends.head : ends.tail);
    }
}

/* Stores the rows of an MMA tile by bulk copies. */
template <class Mode, class Staging>
__device__ __forceinline__ void store_rows_bulk(const parameters &params, const mma_tile_place &place, char *to,
                                                uint32_t from, int channels, int lane)
{
    constexpr int element = sizeof(typename Mode::Element);
    const int staged_row = (params.flat_columns > 0 ? params.flat_columns : params.pitch) * Staging::POSITION_COLUMNS;
    const int misalignment = (int)(uintptr_t)(to + place.first * element);
    int begin = place.first, left = place.end - place.first;
    while (left > 0) {
        const int length = min(place.by_row.divisor - begin, left);
        store_row_bulk<Staging::PITCH>(params, to + begin * element, params.dst_channel * element, from, channels,
                                       length * element, misalignment, lane);
        from += (staged_row - begin) * element;
        to += (int64_t)params.stride_h * params.out_columns * element;
        left -= length;
        begin = 0;
    }
}

/* As many bytes as one number or vector: the compiler might store elements by themselves. */
template <int bytes>
using vector_bits =
    std::conditional_t<bytes == 16, uint4,
                       std::conditional_t<bytes == 8, uint64_t, std::conditional_t<bytes == 4, uint32_t, uint16_t>>>;

/* Stores a vector of each channel from c on, `sharing` apart: several loads are under way at once, of `most` bytes
 * together. */
template <class Mode, int pitch, int vector, int most>
__device__ __forceinline__ void store_vector_of_channels(typename Mode::Element *to, int64_t channel, uint32_t from,
                                                         int c, int sharing, int channels)
{
    using Value = vector_bits<vector *(int)sizeof(typename Mode::Element)>;
    constexpr int AT_ONCE = Mode::STRICT ? 1 : sizeof(Value) >= 8 ? most / sizeof(Value) : most / 8;
    const int from_step = sharing * pitch;
    const int64_t to_step = sharing * channel;
#pragma unroll 1
    for (; c < channels; c += AT_ONCE * sharing) {
        Value values[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            values[i] = load_shared<Value>(from + i * from_step);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (c + i * sharing < channels)
                *reinterpret_cast<Value *>(to) = values[i];
            to += to_step;
        }
        from += AT_ONCE * from_step;
    }
}

/* Stores rows of dst that bulk copies cannot write, or not fast, `vector` elements at a time: the addresses allow it,
 * and lengths are multiples of it. The vectors of all rows are shared out among the lanes. */
template <class Mode, class Staging, int vector>
__device__ __forceinline__ void store_vectors(const parameters &params, const mma_tile_place &place,
                                              typename Mode::Element *to, uint32_t from, int channels, int lane)
{
    using Element = typename Mode::Element;
    const int staged_row = (params.flat_columns > 0 ? params.flat_columns : params.pitch) * Staging::POSITION_COLUMNS;
    const int64_t channel = params.dst_channel, dst_row = (int64_t)params.stride_h * params.out_columns;
    /* Where half of the lanes suffice for all vectors of a channel, the others have the next channel's. */
    const bool shared = place.end - place.first <= WARP / 2 * vector;
    const int own = shared ? lane / (WARP / 2) : 0, sharing = shared ? 2 : 1;
    for (int at = place.first + (shared ? lane % (WARP / 2) : lane) * vector; at < place.end; at += WARP * vector) {
        const quotient rows = divide(at, place.by_row);
        uint32_t from_row =
            from + own * Staging::PITCH + (rows.whole * staged_row + rows.rest - place.first) * (int)sizeof(Element);
        store_vector_of_channels<Mode, Staging::PITCH, vector, 32>(
            to + own * channel + rows.whole * dst_row + rows.rest, channel, from_row, own, sharing, channels);
    }
}

/* Stores both row phases of a flat layer, whose rows follow one another in dst: sectors of which each has a part are
 * written at once. The second phase is staged `other` bytes after the first. */
template <class Mode, int N, int vector>
__device__ __forceinline__ void store_both_phases(const parameters &params, const mma_tile_place &place,
                                                  typename Mode::Element *to, uint32_t from, int other, int channels,
                                                  int lane)
{
    using Staging = staging<Mode, N, PHASES>;
    if (place.end <= place.first)
        return;
    const int row = place.by_row.divisor, end = (divide(place.end - 1, place.by_row).whole + 1) * 2 * row;
    for (int at = lane * vector; at < end; at += WARP * vector) {
        const quotient rows = divide(at, place.by_row);
        const int element = rows.whole / 2 * row + rows.rest;
        if (element >= place.first && element < place.end)
            store_vector_of_channels<Mode, Staging::PITCH, vector, 64>(
                to + at, params.dst_channel,
                from + rows.whole % 2 * other + (element - place.first) * (int)sizeof(typename Mode::Element), 0, 1,
                channels);
    }
}

/* Calls store() with the elements that are stored at once. */
template <class Element, class Store> __device__ __forceinline__ void with_vector(const parameters &params, Store store)
{
    if (sizeof(Element) == 2 && params.store_vector == 8)
        store(std::integral_constant < int, sizeof(Element) == 2 ? 8 : 4 > ());
    else if (params.store_vector >= 4)
        store(std::integral_constant<int, 4>());
    else if (params.store_vector == 2)
        store(std::integral_constant<int, 2>());
    else
        store(std::integral_constant<int, 1>());
}

/* Stores what one consumer warp staged as one subtile. */
template <class Mode, class Staging>
__device__ __forceinline__ void store_subtile(const parameters &params, const tile_place &tile,
                                              const mma_tile_place &place, uint32_t staged, int warpgroup, int warp,
                                              int subtile, int lane)
{
    using Element = typename Mode::Element;
    const int channel = subtile_channel<Staging>(params, tile, warpgroup, warp, subtile);
    const int channels = min(Staging::ROWS, params.group_out - channel);
    Element *to = static_cast<Element *>(params.dst) + place.offset + channel * params.dst_channel;
    if (params.bulk_store)
        store_rows_bulk<Mode, Staging>(params, place, reinterpret_cast<char *>(to), staged, channels, lane);
    else
        with_vector<Element>(params, [&](auto vector) {
            store_vectors<Mode, Staging, vector.value>(params, place, to, staged, channels, lane);
        });
}

/* Does the same for two consumer warps of the same number, one of each warpgroup: see row_phases_together. */
template <class Mode, int N>
__device__ __forceinline__ void store_subtile_of_both(const parameters &params, const tile_place &tile,
                                                      const mma_tile_place &place, uint32_t staged, int other, int warp,
                                                      int subtile, int lane)
{
    using Element = typename Mode::Element;
    const int channel = subtile_channel<staging<Mode, N, PHASES>>(params, tile, 0, warp, subtile);
    const int channels = min(staging<Mode, N, PHASES>::ROWS, params.group_out - channel);
    Element *to = static_cast<Element *>(params.dst) + place.offset + channel * params.dst_channel;
    with_vector<Element>(params, [&](auto vector) {
        store_both_phases<Mode, N, vector.value>(params, place, to, staged, other, channels, lane);
    });
}

/* The role of an epilogue warp with row_phases_together: it stores what one consumer warp, or two, of either warpgroup
 * stages. */
template <class Mode, int N>
__device__ __forceinline__ void store_tiles_of_both(const parameters &params, const shared_layout &shared,
                                                    int epilogue_warp, int lane)
{
    constexpr int SHARE = WARPGROUP_WARPS / (WARPGROUPS * Mode::EPILOGUE_WARPS);
    const int other = WARPGROUP_WARPS * params.staging_buffers * STAGED_BYTES<Mode, N>;
    uint32_t parity = 0;
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const mma_tile_place place = find_mma_tile(params, tile, 0, 0, 0, params.position_columns);
        for (int subtile = 0; subtile < SUBTILES; subtile++) {
            const int buffer = params.staging_buffers == 2 ? subtile : 0;
            for (int warp = epilogue_warp * SHARE; warp < (epilogue_warp + 1) * SHARE; warp++) {
                uint32_t staged = shared.staged + (warp * params.staging_buffers + buffer) * STAGED_BYTES<Mode, N>;
                const uint32_t one = 8 * (warp * SUBTILES + buffer), two = one + 8 * WARPGROUP_WARPS * SUBTILES;
                mbarriers_wait(shared.staged_full + one, parity >> buffer & 1, shared.staged_full + two,
                               parity >> buffer & 1);
                store_subtile_of_both<Mode, N>(params, tile, place, staged, other, warp, subtile, lane);
                __syncwarp();
                signal_for_warp(shared.staged_empty + one, lane);
                signal_for_warp(shared.staged_empty + two, lane);
            }
            parity ^= 1 << buffer;
        }
    }
}

/* Releases the staging buffer that waits for its bulk copies to have read it, if there is one. */
__device__ __forceinline__ void release_read(uint32_t &pending, int lane)
{
    if (pending == 0)
        return;
    bulk_store_wait_read<0>();
    signal_for_warp(pending, lane);
    pending = 0;
}

/*
 * The role of an epilogue warp: it stores what some consumer warps of a warpgroup stage, one after another. A staging
 * buffer is released when the bulk copies of the next one have been issued, so that some are always under way; where
 * that one is not yet full, and may wait for this one, as soon as it has been read.
 */
template <class Mode, int N>
__device__ __forceinline__ void store_tiles(const parameters &params, const shared_layout &shared, int epilogue_warp,
                                            int lane)
{
    constexpr int SHARE = WARPGROUP_WARPS / Mode::EPILOGUE_WARPS;
    const int warpgroup = epilogue_warp / Mode::EPILOGUE_WARPS,
              first_warp = epilogue_warp % Mode::EPILOGUE_WARPS * SHARE;
    uint32_t parity = 0, pending = 0;
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        tile_place tile = find_tile(params, number);
        mma_tile_place place;
        const auto find_place = [&](int warp, int subtile) {
            return find_mma_tile(params, tile, warpgroup, params.column_phases == 2 ? 0 : subtile,
                                 params.stack > 1 && warp * WARP_M >= params.mma_tile_channels,
                                 params.position_columns);
        };
        if constexpr (STAGES_F32<Mode>)
            if (params.posts.addend != NULL)
#pragma unroll 1
                for (int i = 0; i < SHARE * SUBTILES; i++)
                    prefetch_addend<Mode, N>(params, tile, find_place(first_warp + i / SUBTILES, i % SUBTILES),
                                             warpgroup, first_warp + i / SUBTILES, i % SUBTILES, lane);
        for (int subtile = 0; subtile < SUBTILES; subtile++) {
            const int buffer = params.staging_buffers == 2 ? subtile : 0;
            for (int warp = first_warp; warp < first_warp + SHARE; warp++) {
                const int consumer = warpgroup * WARPGROUP_WARPS + warp, place_of_warp = consumer * SUBTILES + buffer;
                uint32_t staged = shared.staged + (consumer * params.staging_buffers + buffer) * STAGED_BYTES<Mode, N>;
                /* Differs only between MMA tiles and rows of a stack. */
                if (warp == first_warp || (params.stack > 1 && warp == WARPGROUP_WARPS / 2))
                    place = find_place(warp, subtile);
                const uint32_t full = shared.staged_full + 8 * place_of_warp, full_parity = parity >> buffer & 1;
                if (!Mode::STRICT && params.release_early && pending != 0 && !mbarrier_test(full, full_parity))
                    release_read(pending, lane);
                mbarrier_wait(full, full_parity);
                if constexpr (STAGES_F32<Mode>)
                    if (params.posts.of_staged.count > 0) {
                        release_read(pending, lane); /* the post-ops take long */
                        run_staged_posts<Mode, N>(params, tile, place, staged, warpgroup, warp, subtile, lane);
                        tile = find_tile(params, anew(number));
                        place = find_place(warp, subtile);
                    }
                if (params.column_phases == 2)
                    store_subtile<Mode, staging<Mode, N, PHASES>>(params, tile, place, staged, warpgroup, warp, subtile,
                                                                  lane);
                else if (!Mode::STRICT && !Mode::MN_MAJOR && params.space_to_depth_log2 == 1)
                    store_subtile<Mode, staging<Mode, N, SPACE_TO_DEPTH>>(params, tile, place, staged, warpgroup, warp,
                                                                          subtile, lane);
                else
                    store_subtile<Mode, staging<Mode, N, SINGLE>>(params, tile, place, staged, warpgroup, warp, subtile,
                                                                  lane);
                bulk_store_commit();
                bulk_store_wait_read<1>();
                __syncwarp();
                if (arrives_for_warp(lane))
                    mbarrier_arrive_unless_0(pending);
                pending = shared.staged_empty + 8 * place_of_warp;
            }
            parity ^= 1 << buffer;
        }
    }
    bulk_store_wait();
}

} // namespace tconv::wgmma

#endif
