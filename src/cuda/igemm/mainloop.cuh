/* The main loop of the implicit GEMM: all wgmmas of a block tile's MMA tiles. */
#ifndef TCONV_CUDA_IGEMM_MAINLOOP_CUH
#define TCONV_CUDA_IGEMM_MAINLOOP_CUH

#include "../gemm/multiply.cuh"
#include "../numeric/compensated.cuh"
#include "../numeric/forgotten.cuh"
#include "tile.cuh"

namespace tconv::igemm
{

constexpr uint32_t B_K_STEP = MMA_K_BYTES / 16; /* from a wgmma to the next along a pixel's channels */
template <class Mode> constexpr uint32_t A_K_STEP = Mode::PLANES *MMA_A_BYTES / 16;

/* The operands of a warpgroup's MMA tiles: the low words of their descriptors, and what all of them share. */
template <class Mode> struct operands {
    uint32_t a[Mode::MMA_TILES], b[Mode::MMA_TILES];
    uint32_t a_high, a_step;   /* high word of A's descriptors, and from a wgmma to the next; not in strict f32 */
    uint32_t b_high;           /* high word of B's descriptors */
    uint32_t a_small, b_small; /* from the plane of big parts to that of small parts */
    __device__ __forceinline__ uint64_t a_descriptor(int mma, int i, int plane) const
    {
        if constexpr (Mode::STRICT)
            return descriptor(a[mma] + i * A_K_STEP<Mode> + plane * a_small);
        else
            return (uint64_t)a_high << 32 | (a[mma] + i * a_step);
    }
    __device__ __forceinline__ uint64_t b_descriptor(int mma, int i, int plane) const
    {
        return (uint64_t)b_high << 32 | (b[mma] + i * B_K_STEP + plane * b_small);
    }
};

/* The high word of the descriptor of an operand whose rows are pixel_bytes of K, swizzled as TMA does. The eight rows
 * of a core matrix follow one another, the next eight begin `pitch` rows on. Layout types: PTX ISA, "Matrix Descriptor
 * Format". The swizzle is by bits of the address, so that an operand and each eight rows of it may begin at any row. */
__device__ __forceinline__ uint32_t swizzled_high(int pixel_bytes, int pitch)
{
    const uint32_t type = pixel_bytes == 128 ? 1 : pixel_bytes == 64 ? 2 : 3;
    return type << 30 | (uint32_t)(pixel_bytes * pitch) / 16;
}

/* Waits for all commit groups but the last `taps`. */
__device__ __forceinline__ void wait_for_all_but(int taps)
{
    static_assert(MAX_A_STAGE_TAPS == 4, "one case for each");
    if (taps == 1)
        wgmma_wait<1>();
    else if (taps == 2)
        wgmma_wait<2>();
    else if (taps == 3)
        wgmma_wait<3>();
    else
        wgmma_wait<4>();
}

/* A thread's accumulators and, in strict f32, what rounding took from them. */
template <class Mode, int N> struct accumulators {
    float of[Mode::MMA_TILES][N / 2];
    lost_parts<float, Mode::COMPENSATED ? N / 2 : 2> lost[Mode::COMPENSATED ? Mode::MMA_TILES : 1];
};

/* Adds a partial sum of strict f32, or begins with it. */
template <class Mode, int N>
__device__ __forceinline__ void add_partial_sum(accumulators<Mode, N> &sums, int mma, const float (&partial)[N / 2],
                                                int accumulate)
{
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
        float &sum = sums.of[mma][i], &next = sums.of[mma][i + 1];
        if constexpr (Mode::COMPENSATED) {
            if (i % 4 == 0 && !accumulate)
                sums.lost[mma].pairs[i / 2] = sums.lost[mma].pairs[i / 2 + 1] = 0;
            sum = accumulate ? sum : 0;
            next = accumulate ? next : 0;
            sums.lost[mma].add(i, sum, next, partial[i], partial[i + 1]);
        } else {
            sum = accumulate ? sum + partial[i] : partial[i];
            next = accumulate ? next + partial[i + 1] : partial[i + 1];
        }
    }
}

template <class Mode, int N, int first_mma, int end_mma, int k_steps>
__device__ __forceinline__ void multiply_mma_tiles(accumulators<Mode, N> &sums, const operands<Mode> &at,
                                                   int accumulate)
{
    const auto a = [&](int mma, int i, int plane) { return at.a_descriptor(mma, i, plane); };
    const auto b = [&](int mma, int i, int plane) { return at.b_descriptor(mma, i, plane); };
    if constexpr (Mode::STRICT) {
#pragma unroll
        for (int mma = first_mma; mma < end_mma; mma++) {
            float partial[N / 2];
            multiply_partial_sum<Mode, N, k_steps>(partial, mma, a, b);
            add_partial_sum<Mode, N>(sums, mma, partial, accumulate);
        }
    } else {
        multiply_commit_group<Mode, N, k_steps, first_mma, end_mma>(sums.of, a, b, accumulate);
    }
}

/* Multiplies a K-block into MMA tiles first_mma to end_mma. In f32 it is always of four wgmmas along K. */
template <class Mode, int N, int first_mma, int end_mma>
__device__ __forceinline__ void multiply_k_block(accumulators<Mode, N> &sums, const operands<Mode> &at, int k_steps,
                                                 int accumulate)
{
    if (sizeof(typename Mode::Element) == 4 || k_steps == 4)
        multiply_mma_tiles<Mode, N, first_mma, end_mma, 4>(sums, at, accumulate);
    else
        multiply_mma_tiles<Mode, N, first_mma, end_mma, 2>(sums, at, accumulate);
}

/* Multiplies only into the MMA tiles that have the tap: those of a pair may differ. */
template <class Mode, int N>
__device__ __forceinline__ void multiply_tap(const parameters &layer, accumulators<Mode, N> &sums,
                                             const operands<Mode> &at, int column_tap, int accumulate)
{
    if (column_tap >= layer.mma_taps[1])
        multiply_k_block<Mode, N, 0, 1>(sums, at, layer.k_steps, accumulate);
    else if (column_tap >= layer.mma_taps[0])
        multiply_k_block<Mode, N, 1, 2>(sums, at, layer.k_steps, accumulate);
    else
        multiply_k_block<Mode, N, 0, 2>(sums, at, layer.k_steps, accumulate);
}

/* The places of a warpgroup's operands in any stage, as low words of descriptors, and the steps from a tap's to
 * another's. */
template <class Mode> struct operand_places {
    uint32_t a[Mode::MMA_TILES], b[Mode::MMA_TILES], a_high, a_step, b_high;
    int vectors, row_step, column_step;
    __device__ __forceinline__ operand_places(const parameters &layer, int warpgroup)
        : a_high(layer.weights_in_place ? swizzled_high(layer.pixel_bytes, CORE_ROWS)
                                        : (uint32_t)(descriptor(0) >> 32)),
          a_step(layer.weights_in_place ? B_K_STEP : A_K_STEP<Mode>),
          b_high(swizzled_high(layer.pixel_bytes, layer.across > 0 ? layer.pitch : CORE_ROWS)),
          vectors(layer.pixel_bytes / CORE_ROW_BYTES), row_step(layer.row_step * layer.pitch * vectors),
          column_step(layer.column_step * vectors)
    {
#pragma unroll
        for (int mma = 0; mma < Mode::MMA_TILES; mma++) {
            a[mma] = descriptor_low(0, layer.weights_in_place ? 16 : MMA_A_CORE_BYTES) +
                     layer.mma_m_tile[warpgroup][mma] * layer.k_steps * A_K_STEP<Mode>;
            b[mma] = descriptor_low(0, 16) + layer.mma_pixel[warpgroup][mma] * vectors;
        }
    }
};

/* Multiplies so many taps, of which each has a stage of A and one of B. What a warp does from one to the next takes longer than the
 * wgmmas of a small tile, so it is little: whether the next stages are full is asked while these multiply. */
template <class Mode, int N>
__device__ __forceinline__ void multiply_stages(const operand_places<Mode> &places, int count, uint32_t shift,
                                                int k_steps, bool signals, consumer_state &b_stage,
                                                consumer_state &a_stage, pending_release &pending, int &accumulate,
                                                operands<Mode> &at, accumulators<Mode, N> &sums)
{
    const auto is_ready = [&]() {
        const bool b = mbarrier_test(b_stage.barrier, b_stage.parity),
                   a = mbarrier_test(a_stage.barrier, a_stage.parity);
        return a && b;
    };
    bool ready = is_ready();
#pragma unroll 1
    for (int left = count; left > 0; left--) {
        wait_for_stages(ready, b_stage, a_stage, pending);
#pragma unroll
        for (int mma = 0; mma < Mode::MMA_TILES; mma++) {
            at.a[mma] = places.a[mma] + a_stage.buffer;
            at.b[mma] = places.b[mma] + b_stage.buffer + shift;
        }
        multiply_k_block<Mode, N, 0, Mode::MMA_TILES>(sums, at, k_steps, accumulate);
        accumulate = 1;
        const pending_release read = {signals ? a_stage.barrier + EMPTY : 0, signals ? b_stage.barrier + EMPTY : 0};
        a_stage.next();
        b_stage.next();
        ready = is_ready();
        wgmma_wait<1>();
        pending.release();
        pending = read;
    }
}

/* Where in a B stage the pixels of a tap begin, moved on from tap to tap; strict f32 has no register for it. */
template <class Mode> struct tap_shift {
    uint32_t first, now;
    __device__ __forceinline__ explicit tap_shift(uint32_t first_) : first(first_), now(first_)
    {
    }
    __device__ __forceinline__ uint32_t of(const operand_places<Mode> &places, const tap_walk &tap) const
    {
        return Mode::STRICT ? first - tap.row * places.row_step - tap.column * places.column_step : now;
    }
    __device__ __forceinline__ void next(const operand_places<Mode> &places, tap_walk &tap)
    {
        tap.next();
        if (!Mode::STRICT)
            now = tap.column > 0 ? now - places.column_step : first - tap.row * places.row_step;
    }
};

/* Multiplies a block tile. Uneven: an MMA tile of a pair may lack column taps that the other has. */
template <class Mode, int N, bool uneven>
__device__ __forceinline__ void multiply_block_tile(const parameters &layer, const tile_record &tile, int warpgroup,
                                                    bool has_pixels, bool signals, consumer_state &b_stage,
                                                    consumer_state &a_stage, accumulators<Mode, N> &sums)
{
    const operand_places<Mode> places(layer, warpgroup);
    const k_share<Mode> share(layer);
    const int k_steps = sizeof(typename Mode::Element) == 4 ? 4 : forgotten(layer.k_steps);
    const uint32_t first_shift = tile.first_shift * places.vectors;
    pending_release pending = {0, 0};
    int accumulate = 0;
    operands<Mode> at;
    tile_place of_src; /* where tiles sum over phases, the phase */
    of_src.row_phase = tile.row_phase;
    of_src.column_phase = tile.column_phase;
    share.skip_phases(layer, of_src);
    at.a_high = places.a_high;
    at.a_step = places.a_step;
    at.b_high = places.b_high;
    at.a_small = MMA_A_BYTES / 16;
    at.b_small = layer.plane_bytes / 16;
#pragma unroll 1
    for (int phase = share.first_phase(); phase < share.end_phase(); phase++, of_src.next_phase(layer)) {
        tap_walk tap = layer.src_phases > 1 ? tap_walk(layer, of_src) : tap_walk(tile);
        const int taps = tap.count();
        if constexpr (!Mode::STRICT && !uneven)
            if (has_pixels && (taps == 1 || (layer.per_tap && layer.a_stage_taps == 1))) {
                multiply_stages<Mode, N>(places, share.count(phase) * taps, layer.per_tap ? 0 : first_shift, k_steps,
                                         signals, b_stage, a_stage, pending, accumulate, at, sums);
                continue;
            }
#pragma unroll 1
        for (int left_k_blocks = share.count(phase); left_k_blocks > 0; left_k_blocks--) {
            tap_shift<Mode> shift(first_shift);
#pragma unroll 1
            for (int left = taps; left > 0; left -= layer.a_stage_taps) {
                if (layer.per_tap || left == taps)
                    wait_for_stage<Mode::STRICT>(b_stage.barrier, b_stage.parity, pending);
                wait_for_stage<Mode::STRICT>(a_stage.barrier, a_stage.parity, pending);
                const int a_stage_taps = min(left, layer.a_stage_taps);
                uint32_t a = a_stage.buffer;
#pragma unroll 1
                for (int i = 0; i < a_stage_taps; i++) {
                    const uint32_t of_tap = layer.per_tap ? 0 : shift.of(places, tap);
#pragma unroll
                    for (int mma = 0; mma < Mode::MMA_TILES; mma++) {
                        at.a[mma] = places.a[mma] + a;
                        at.b[mma] = places.b[mma] + b_stage.buffer + of_tap;
                    }
                    if (has_pixels) {
                        if constexpr (uneven)
                            multiply_tap<Mode, N>(layer, sums, at, tap.column, accumulate);
                        else
                            multiply_k_block<Mode, N, 0, Mode::MMA_TILES>(sums, at, k_steps, accumulate);
                    }
                    accumulate = 1;
                    a += layer.a_tile_bytes / 16;
                    shift.next(places, tap);
                }
                if (!has_pixels)
                    warpgroup_sync(warpgroup);
                else if (!Mode::STRICT)
                    wait_for_all_but(a_stage_taps);
                pending.release(); /* comes before anything else, as producers may wait for these stages */
                pending.a = signals ? a_stage.barrier + EMPTY : 0;
                a_stage.next();
                if (layer.per_tap || left <= layer.a_stage_taps) {
                    pending.b = signals ? b_stage.barrier + EMPTY : 0;
                    b_stage.next();
                }
                if (Mode::STRICT) /* its wgmmas have been waited for */
                    pending.release();
            }
        }
    }
    wgmma_wait<0>();
    pending.release();
}

} // namespace tconv::igemm

#endif
