/* From a warp's sums in registers to rows of dst: staging them in shared memory, which the warps that multiply do, and storing
 * what is staged, by the copy engine or by vectors, which is a role of its own. */
#ifndef TCONV_CUDA_WGMMA_EPILOGUE_CUH
#define TCONV_CUDA_WGMMA_EPILOGUE_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/tma.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

/* How a warp's sums go through its staging memory, in two turns: a unit's 16 rows of M each; where the units are two column
 * phases, 8 rows of both, interleaved; folded, those 8 rows of a unit that are one column of dst and those of the other. */
enum staged_as { SINGLE, PHASES, FOLDED };
template <class Mode, int N, staged_as as> struct staging {
    using Element = typename Mode::Element;
    static constexpr bool HALVES = as == PHASES;                                   /* of each unit, in each turn */
    static constexpr int WARP_ROWS = as == FOLDED ? STAGED_ROWS / 2 : STAGED_ROWS; /* channels of a warp */
    static constexpr int ROWS = HALVES ? WARP_ROWS / 2 : WARP_ROWS;
    static constexpr int ROW_PIXELS = as == SINGLE ? 1 : 2; /* elements for each pixel */
    static constexpr int PITCH = ROW_PIXELS * tconv_wgmma_staged_pitch(N, sizeof(Element));
};
template <class Mode, int N> constexpr int STAGED_BYTES = tconv_wgmma_staged_bytes(N, sizeof(typename Mode::Element));

/* Where a unit goes in dst: elements first to end of rows, staged one after another. In a run they
 * begin in the middle of the first row. */
struct unit_place {
    int64_t offset;      /* elements: of the layer's group's first output channel, where the first row begins */
    fast_divisor by_row; /* elements of a row */
    int first, end;
};

/* row_pixels: elements of dst for each position. stack_row: which of the rows that share M. */
__device__ __forceinline__ unit_place find_unit(const tconv_wgmma_parameters &layer, const tile_place &tile, int group,
                                                int unit, int stack_row, int row_pixels)
{
    const int column = tile.column + layer.unit_column[group][unit];
    int row = tile.row + layer.unit_row[group][unit] + stack_row, first_element = column * row_pixels;
    unit_place place;
    if (layer.run_columns > 0) {
        const int left = min(layer.tile_columns - layer.unit_column[group][unit], layer.in_columns - column);
        const quotient rows = divide(column, layer.by_run_columns);
        row = rows.whole;
        first_element = 0;
        place.by_row = layer.by_row;
        place.first = rows.rest * row_pixels;
        place.end = place.first + min(layer.unit_columns, left) * row_pixels;
    }
    row = row * layer.stride_h + layer.row_residue[group];
    if (layer.run_columns == 0) {
        /* Strides are 1 or 2. */
        const int rows = (layer.out_rows - row + layer.stride_h - 1) >> (layer.stride_h - 1);
        place.by_row = layer.out_columns - first_element < layer.by_row.divisor ? layer.by_last_row : layer.by_row;
        place.first = 0;
        place.end = min(layer.unit_rows, rows) * place.by_row.divisor;
    }
    place.offset = tile.image * layer.dst_image + (int64_t)tile.group * layer.group_out * layer.dst_channel +
                   (int64_t)row * layer.out_columns + first_element;
    return place;
}

/* The first output channel of a warp's turn, in the layer's group. */
template <class Staging>
__device__ __forceinline__ int turn_channel(const tconv_wgmma_parameters &layer, const tile_place &tile, int group,
                                            int warp, int turn)
{
    const int m = warp * Staging::WARP_ROWS + (Staging::HALVES ? turn * Staging::ROWS : 0);
    return tile.channel + group * layer.group_channels + (m & (layer.block_channels - 1)); /* 32 or 64 */
}

/* The bytes by which a lane's rows of dst are past a multiple of 16: bulk copies want the staged rows to be so as well. */
template <class Mode, class Staging>
__device__ __forceinline__ int staged_shift(const tconv_wgmma_parameters &layer, const tile_place &tile, int group,
                                            int warp, int turn, int lane)
{
    using Element = typename Mode::Element;
    if (!layer.staged_shifts)
        return 0;
    const int unit = Staging::HALVES ? 0 : turn,
              stack_row = layer.stack > 1 && warp * STAGED_ROWS >= layer.block_channels;
    const unit_place place = find_unit(layer, tile, group, unit, stack_row, Staging::ROW_PIXELS);
    const int channel = turn_channel<Staging>(layer, tile, group, warp, turn) + lane / 4;
    const uint32_t offset = (uint32_t)place.offset + place.first + channel * (uint32_t)layer.dst_channel;
    return (int)((uint32_t)(uintptr_t)layer.dst + offset * (uint32_t)sizeof(Element)) & 15;
}

__device__ __forceinline__ void stage_pair(char *to, float first, float second, float)
{
    *reinterpret_cast<float2 *>(to) = make_float2(first, second);
}
template <class Half> __device__ __forceinline__ void stage_pair(char *to, float first, float second, Half)
{
    element_vector<Half, 2> pair;
    pair.at[0] = from_compute<Half>(first);
    pair.at[1] = from_compute<Half>(second);
    *reinterpret_cast<element_vector<Half, 2> *>(to) = pair;
}

/* Unit `turn`. Of the four sums for each 8 pixels, the first two are of row lane / 4 of the warp's 16, the others of 8 rows
 * on; bias is of these two rows. Selected by values, not by index, so that the sums stay in registers. */
template <class Mode, int N>
__device__ __forceinline__ void stage_rows(const float (&sums)[UNITS][N / 2], const float (&bias)[2], char *staged,
                                           int turn, int lane)
{
    using Staging = staging<Mode, N, SINGLE>;
    constexpr int element = sizeof(typename Mode::Element);
    char *to = staged + lane / 4 * Staging::PITCH + lane % 4 * 2 * element;
    const typename Mode::Element type = {};
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = 4 * j + 2 * half;
            const float first = turn == 0 ? sums[0][i] : sums[1][i];
            const float second = turn == 0 ? sums[0][i + 1] : sums[1][i + 1];
            stage_pair(to + half * 8 * Staging::PITCH + j * 8 * element, first + bias[half], second + bias[half], type);
        }
    }
}

/* Two columns of dst side by side for each pixel: columns(i) are those that a lane has for its sum i of 8 rows of M. */
template <class Staging, class Mode, int N, class Columns>
__device__ __forceinline__ void stage_columns(char *staged, int lane, Columns columns)
{
    constexpr int element = sizeof(typename Mode::Element);
    char *to = staged + lane / 4 * Staging::PITCH + lane % 4 * 4 * element;
    const typename Mode::Element type = {};
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float2 pair = columns(4 * j + k);
            stage_pair(to + (j * 16 + k * 2) * element, pair.x, pair.y, type);
        }
    }
}

/* Both columns of dst of unit `turn`. */
template <class Mode, int N>
__device__ __forceinline__ void stage_folded(const float (&sums)[UNITS][N / 2], float bias, char *staged, int turn,
                                             int lane)
{
    stage_columns<staging<Mode, N, FOLDED>, Mode, N>(staged, lane, [&](int i) {
        const float zero = turn == 0 ? sums[0][i] : sums[1][i];
        const float one = turn == 0 ? sums[0][i + 2] : sums[1][i + 2];
        return make_float2(zero + bias, one + bias);
    });
}

/* Both column phases; swapped where unit 0 is the odd one. */
template <class Mode, int N>
__device__ __forceinline__ void stage_phases(const float (&sums)[UNITS][N / 2], const float (&bias)[2], bool swapped,
                                             char *staged, int turn, int lane)
{
    const float add = turn == 0 ? bias[0] : bias[1];
    stage_columns<staging<Mode, N, PHASES>, Mode, N>(staged, lane, [&](int i) {
        const float zero = add + (turn == 0 ? sums[0][i] : sums[0][i + 2]);
        const float one = add + (turn == 0 ? sums[1][i] : sums[1][i + 2]);
        return swapped ? make_float2(one, zero) : make_float2(zero, one);
    });
}

/* The ends of a row of dst that no bulk copy may write, in bytes: it begins at a multiple of 16 less head. */
struct row_ends {
    int head, middle, tail;
    __device__ __forceinline__ row_ends(int shift, int bytes)
    {
        head = min(-shift & 15, bytes);
        middle = (bytes - head) & ~15;
        tail = bytes - head - middle;
    }
};

/* Less than 16 bytes, by words. */
__device__ __forceinline__ void copy_end(char *to, const char *from, int bytes)
{
    uint32_t words[3];
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (4 * i < bytes)
            words[i] = *reinterpret_cast<const uint32_t *>(from + 4 * i);
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (4 * i < bytes)
            *reinterpret_cast<uint32_t *>(to + 4 * i) = words[i];
}

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

/* A row of dst of each channel by bulk copies, which one lane asks for; their ends by a lane each. Channel c is staged
 * c * pitch on from `from`, and as far again as its first row of dst is past a multiple of 16, which c * channel + shift is. */
template <int pitch>
__device__ __forceinline__ void store_row_bulk(const tconv_wgmma_parameters &layer, char *to, int64_t channel,
                                               const char *from, int channels, int length, int shift, int lane)
{
    const int period = layer.bulk_period, period_log2 = __popc(period - 1); /* a power of two */
    if (period == 1) {
        const row_ends ends((int)(uintptr_t)to & 15, length);
        if (lane == 0 && ends.middle > 0)
            store_channels(to + ends.head, channel, shared_address(from) + (shift & 15) + ends.head, pitch, channels,
                           ends.middle);
        if ((ends.head | ends.tail) == 0)
            return;
    } else if (lane == 0) {
        for (int first = 0; first < min(period, channels); first++) {
            char *target = to + first * channel;
            const uint32_t source = shared_address(from + first * pitch) + ((int)(first * channel + shift) & 15);
            const row_ends ends((int)(uintptr_t)target & 15, length);
            if (ends.middle > 0)
                store_channels(target + ends.head, period * channel, source + ends.head, period * pitch,
                               (channels - first + period - 1) >> period_log2, ends.middle);
        }
    }
    __syncwarp();
    const int row = lane % STAGED_ROWS;
    if (row < channels) {
        to += row * channel;
        from += row * pitch + ((int)(row * channel + shift) & 15);
        const row_ends ends((int)(uintptr_t)to & 15, length);
        const int at = lane < STAGED_ROWS ? 0 : ends.head + ends.middle;
        copy_end(to + at, from + at, lane < STAGED_ROWS ? ends.head : ends.tail);
    }
}

template <class Mode, class Staging>
__device__ __forceinline__ void store_rows_bulk(const tconv_wgmma_parameters &layer, const unit_place &place, char *to,
                                                const char *from, int channels, int lane)
{
    constexpr int element = sizeof(typename Mode::Element);
    const int staged_row = (layer.run_columns > 0 ? layer.run_columns : layer.pitch) * Staging::ROW_PIXELS;
    const int shift = (int)(uintptr_t)(to + place.first * element);
    int begin = place.first, left = place.end - place.first;
    while (left > 0) {
        const int length = min(place.by_row.divisor - begin, left);
        store_row_bulk<Staging::PITCH>(layer, to + begin * element, layer.dst_channel * element, from, channels,
                                       length * element, shift, lane);
        from += (staged_row - begin) * element;
        to += (int64_t)layer.stride_h * layer.out_columns * element;
        left -= length;
        begin = 0;
    }
}

/* So many bytes of shared memory as one number or vector: of elements, the compiler may store each by itself. Loads stay
 * before what follows them. */
template <int bytes> struct staged_bits {
    uint4 value;
    __device__ __forceinline__ void load(uint32_t from)
    {
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                     : "r"(from)
                     : "memory");
    }
};
template <> struct staged_bits<8> {
    uint64_t value;
    __device__ __forceinline__ void load(uint32_t from)
    {
        asm volatile("ld.shared.b64 %0, [%1];" : "=l"(value) : "r"(from) : "memory");
    }
};
template <> struct staged_bits<4> {
    uint32_t value;
    __device__ __forceinline__ void load(uint32_t from)
    {
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
    }
};
template <> struct staged_bits<2> {
    uint16_t value;
    __device__ __forceinline__ void load(uint32_t from)
    {
        asm volatile("ld.shared.b16 %0, [%1];" : "=h"(value) : "r"(from) : "memory");
    }
};

/* A vector of each channel from c on, `sharing` apart: several are on their way at once, as many as most bytes are. */
template <class Mode, int pitch, int vector, int most>
__device__ __forceinline__ void store_vector_of_channels(typename Mode::Element *to, int64_t channel, const char *from,
                                                         int c, int sharing, int channels)
{
    using Elements = staged_bits<vector *(int)sizeof(typename Mode::Element)>;
    using Value = decltype(Elements::value);
    constexpr int AT_ONCE = Mode::STRICT ? 1 : sizeof(Value) >= 8 ? most / sizeof(Value) : most / 8;
    const int from_step = sharing * pitch;
    const int64_t to_step = sharing * channel;
#pragma unroll 1
    for (; c < channels; c += AT_ONCE * sharing) {
        Elements elements[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (Mode::STRICT) /* for the registers */
                elements[i].value = *reinterpret_cast<const Value *>(from + i * from_step);
            else
                elements[i].load(shared_address(from) + i * from_step);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (c + i * sharing < channels)
                *reinterpret_cast<Value *>(to) = elements[i].value;
            to += to_step;
        }
        from += AT_ONCE * from_step;
    }
}

/* Rows of dst that bulk copies cannot write, or not fast, vector elements at a time: the addresses allow it, and lengths are
 * multiples of it. The vectors of all rows are shared out among the lanes. */
template <class Mode, class Staging, int vector>
__device__ __forceinline__ void store_vectors(const tconv_wgmma_parameters &layer, const unit_place &place,
                                              typename Mode::Element *to, const char *from, int channels, int lane)
{
    using Element = typename Mode::Element;
    const int staged_row = (layer.run_columns > 0 ? layer.run_columns : layer.pitch) * Staging::ROW_PIXELS;
    const int64_t channel = layer.dst_channel, dst_row = (int64_t)layer.stride_h * layer.out_columns;
    /* Where half of the lanes have all vectors of a channel, the others have the next channel's. */
    const bool shared = place.end - place.first <= WARP / 2 * vector;
    const int own = shared ? lane / (WARP / 2) : 0, sharing = shared ? 2 : 1;
    for (int at = place.first + (shared ? lane % (WARP / 2) : lane) * vector; at < place.end; at += WARP * vector) {
        const quotient rows = divide(at, place.by_row);
        const char *from_row =
            from + own * Staging::PITCH + (rows.whole * staged_row + rows.rest - place.first) * (int)sizeof(Element);
        store_vector_of_channels<Mode, Staging::PITCH, vector, 32>(
            to + own * channel + rows.whole * dst_row + rows.rest, channel, from_row, own, sharing, channels);
    }
}

/* Both row phases of a run, whose rows follow one another in dst: sectors of which each has a part are written at once. `other`:
 * bytes from what the first phase staged to what the second did. */
template <class Mode, int N, int vector>
__device__ __forceinline__ void store_both_phases(const tconv_wgmma_parameters &layer, const unit_place &place,
                                                  typename Mode::Element *to, const char *from, int other, int channels,
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
                to + at, layer.dst_channel,
                from + rows.whole % 2 * other + (element - place.first) * (int)sizeof(typename Mode::Element), 0, 1,
                channels);
    }
}

/* What one warp of a warpgroup staged in one turn. */
template <class Mode, class Staging>
__device__ __forceinline__ void store_turn(const tconv_wgmma_parameters &layer, const tile_place &tile,
                                           const unit_place &place, const char *staged, int group, int warp, int turn,
                                           int lane)
{
    using Element = typename Mode::Element;
    const int channel = turn_channel<Staging>(layer, tile, group, warp, turn);
    const int channels = min(Staging::ROWS, layer.group_out - channel);
    Element *to = static_cast<Element *>(layer.dst) + place.offset + channel * layer.dst_channel;
    if (layer.bulk_store)
        store_rows_bulk<Mode, Staging>(layer, place, reinterpret_cast<char *>(to), staged, channels, lane);
    else if (sizeof(Element) == 2 && layer.store_vector == 8)
        store_vectors<Mode, Staging, sizeof(Element) == 2 ? 8 : 4>(layer, place, to, staged, channels, lane);
    else if (layer.store_vector >= 4)
        store_vectors<Mode, Staging, 4>(layer, place, to, staged, channels, lane);
    else if (layer.store_vector == 2)
        store_vectors<Mode, Staging, 2>(layer, place, to, staged, channels, lane);
    else
        store_vectors<Mode, Staging, 1>(layer, place, to, staged, channels, lane);
}

/* The same of two warps of the same number, one of each warpgroup, that rows_together. */
template <class Mode, int N>
__device__ __forceinline__ void store_turn_of_both(const tconv_wgmma_parameters &layer, const tile_place &tile,
                                                   const unit_place &place, const char *staged, int other, int warp,
                                                   int turn, int lane)
{
    using Element = typename Mode::Element;
    const int channel = turn_channel<staging<Mode, N, PHASES>>(layer, tile, 0, warp, turn);
    const int channels = min(staging<Mode, N, PHASES>::ROWS, layer.group_out - channel);
    Element *to = static_cast<Element *>(layer.dst) + place.offset + channel * layer.dst_channel;
    if (sizeof(Element) == 2 && layer.store_vector == 8)
        store_both_phases<Mode, N, sizeof(Element) == 2 ? 8 : 4>(layer, place, to, staged, other, channels, lane);
    else if (layer.store_vector >= 4)
        store_both_phases<Mode, N, 4>(layer, place, to, staged, other, channels, lane);
    else if (layer.store_vector == 2)
        store_both_phases<Mode, N, 2>(layer, place, to, staged, other, channels, lane);
    else
        store_both_phases<Mode, N, 1>(layer, place, to, staged, other, channels, lane);
}

/* Stores what warps of both warpgroups stage, where rows_together: a warp, or two, of each to a storing warp. */
template <class Mode, int N>
__device__ __forceinline__ void store_tiles_of_both(const tconv_wgmma_parameters &layer, const shared_layout &shared,
                                                    int store_warp, int lane)
{
    constexpr int SHARE = GROUP_WARPS / (TCONV_WGMMA_GROUPS * Mode::STORE_WARPS);
    const int other = GROUP_WARPS * layer.staged_turns * STAGED_BYTES<Mode, N>;
    uint32_t parity = 0;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const unit_place place = find_unit(layer, tile, 0, 0, 0, layer.row_pixels);
        for (int turn = 0; turn < TURNS; turn++) {
            const int buffer = layer.staged_turns == 2 ? turn : 0;
            for (int warp = store_warp * SHARE; warp < (store_warp + 1) * SHARE; warp++) {
                const char *staged = shared.staged + (warp * layer.staged_turns + buffer) * STAGED_BYTES<Mode, N>;
                const uint32_t one = 8 * (warp * TURNS + buffer), two = one + 8 * GROUP_WARPS * TURNS;
                mbarriers_wait(shared.staged_full + one, parity >> buffer & 1, shared.staged_full + two,
                               parity >> buffer & 1);
                store_turn_of_both<Mode, N>(layer, tile, place, staged, other, warp, turn, lane);
                __syncwarp();
                if (arrives_for_warp(lane)) {
                    mbarrier_arrive(shared.staged_empty + one);
                    mbarrier_arrive(shared.staged_empty + two);
                }
            }
            parity ^= 1 << buffer;
        }
    }
}

/*
 * Stores what some warps of a warpgroup stage, one after another. A buffer is told to be empty when the bulk copies of the next
 * one have been asked for, so that the copy engine always has some to do; where that one is not yet full, and may wait for this
 * one, as soon as it has been read.
 */
template <class Mode, int N>
__device__ __forceinline__ void store_tiles(const tconv_wgmma_parameters &layer, const shared_layout &shared,
                                            int store_warp, int lane)
{
    constexpr int SHARE = GROUP_WARPS / Mode::STORE_WARPS;
    const int group = store_warp / Mode::STORE_WARPS, first_warp = store_warp % Mode::STORE_WARPS * SHARE;
    uint32_t parity = 0, pending = 0;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        unit_place place;
        for (int turn = 0; turn < TURNS; turn++) {
            const int buffer = layer.staged_turns == 2 ? turn : 0;
            for (int warp = first_warp; warp < first_warp + SHARE; warp++) {
                const int consumer = group * GROUP_WARPS + warp, place_of_warp = consumer * TURNS + buffer;
                const char *staged = shared.staged + (consumer * layer.staged_turns + buffer) * STAGED_BYTES<Mode, N>;
                /* Differs only between units and rows of a stack. */
                if (warp == first_warp || (layer.stack > 1 && warp == GROUP_WARPS / 2))
                    place = find_unit(layer, tile, group, layer.column_phases == 2 ? 0 : turn,
                                      layer.stack > 1 && warp * STAGED_ROWS >= layer.block_channels, layer.row_pixels);
                const uint32_t full = shared.staged_full + 8 * place_of_warp, full_parity = parity >> buffer & 1;
                if (!Mode::STRICT && layer.release_early && pending != 0 && !mbarrier_test(full, full_parity)) {
                    bulk_store_wait_read<0>();
                    if (arrives_for_warp(lane))
                        mbarrier_arrive(pending);
                    pending = 0;
                }
                mbarrier_wait(full, full_parity);
                if (layer.column_phases == 2)
                    store_turn<Mode, staging<Mode, N, PHASES>>(layer, tile, place, staged, group, warp, turn, lane);
                else if (!Mode::STRICT && !Mode::TRANSPOSED && layer.fold_log2 == 1)
                    store_turn<Mode, staging<Mode, N, FOLDED>>(layer, tile, place, staged, group, warp, turn, lane);
                else
                    store_turn<Mode, staging<Mode, N, SINGLE>>(layer, tile, place, staged, group, warp, turn, lane);
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
