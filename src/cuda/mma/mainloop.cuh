/*
 * The main loop: what a warp multiplies and accumulates of a K-block, by the tap schedule.
 *
 * A tap is an offset into the patch, so nothing is gathered: B fragments are loaded straight from the patch, once for
 * all column phases and channels of the warp. All column phases of a position are in one thread's accumulators. Those
 * of phases without a tap stay zero.
 */
#ifndef TCONV_CUDA_MMA_MAINLOOP_CUH
#define TCONV_CUDA_MMA_MAINLOOP_CUH

#include "../numeric/compensated.cuh"
#include "../ptx/memory.cuh"
#include "mode.cuh"
#include "packed.cuh"
#include "schedule.cuh"

namespace tconv::mma
{

/* What a warp accumulates: MMAS_M x MMAS_N MMAs for each of STRIDE_W column phases. */
template <mode MODE, int STRIDE_W, int MMAS_M, int MMAS_N> struct warp_mainloop {
    static constexpr bool PATCH_16BIT = MODE == F16_NCHW || MODE == BF16_NCHW;
    static constexpr int PATCH_BYTES = PATCH_16BIT ? 2 : 4; /* of a patch element */
    static constexpr bool FLUSHES = MODE != TF32;
    static constexpr int ACCUMULATORS = MMAS_M * STRIDE_W * MMAS_N * 4;
    static constexpr int A_VECTORS = operand_a<MODE>::VECTORS;

    const parameters &params;
    uint32_t *const shared;
    const int lane, warp, n_warp;
    const int group, first_channel /* of the group, of this warp */, phase;
    const int row_taps, row_shift; /* of the row phase; shift of tap 0 from the least */
    const int weights_offset;      /* words from the start of an A tile to this warp's weights */
    using sums = float[MMAS_M][STRIDE_W][MMAS_N][4];
    sums accumulators;
    /* What the tensor cores accumulate into until it is flushed. */
    float partial[FLUSHES ? MMAS_M : 1][FLUSHES ? STRIDE_W : 1][FLUSHES ? MMAS_N : 1][4];
    uint32_t pixel[MMAS_N]; /* byte of the patch that this thread's column of each MMA of N reads at the least shifts */
    lost_parts<float, MODE == COMPENSATED ? ACCUMULATORS : 2> lost; /* by the accumulators */
    int unflushed;                                                  /* steps in partial */

    __device__ __forceinline__ float (&target(int m, int s, int n))[4]
    {
        if constexpr (FLUSHES)
            return partial[m][s][n];
        else
            return accumulators[m][s][n];
    }

    static __device__ __forceinline__ float &element(sums &of, int i)
    {
        return of[i / 4 / MMAS_N / STRIDE_W][i / 4 / MMAS_N % STRIDE_W][i / 4 % MMAS_N][i % 4];
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < ACCUMULATORS; i++) {
            element(accumulators, i) = 0;
            if constexpr (FLUSHES)
                element(partial, i) = 0;
        }
        if constexpr (MODE == COMPENSATED)
            lost = {};
        unflushed = 0;
    }

    __device__ __forceinline__ void flush()
    {
        if constexpr (MODE == COMPENSATED) {
#pragma unroll
            for (int i = 0; i < ACCUMULATORS; i += 2) {
                lost.add(i, element(accumulators, i), element(accumulators, i + 1), element(partial, i),
                         element(partial, i + 1));
                element(partial, i) = element(partial, i + 1) = 0;
            }
        } else if constexpr (FLUSHES) {
#pragma unroll
            for (int i = 0; i < ACCUMULATORS; i++) {
                element(accumulators, i) += element(partial, i);
                element(partial, i) = 0;
            }
        }
        unflushed = 0;
    }

    /* MMA m of M of column phase s, at all positions: the small products first. */
    __device__ __forceinline__ void multiply_row(int m, int s, const operand_a<MODE> &a, const fragment_b (&b)[MMAS_N],
                                                 const fragment_b (&small_b)[MMAS_N])
    {
        if constexpr (IS_STRICT<MODE>) {
#pragma unroll
            for (int n = 0; n < MMAS_N; n++)
                multiply_add<MODE>(target(m, s, n), a.big(), small_b[n]);
#pragma unroll
            for (int n = 0; n < MMAS_N; n++)
                multiply_add<MODE>(target(m, s, n), a.small(), b[n]);
        }
#pragma unroll
        for (int n = 0; n < MMAS_N; n++)
            multiply_add<MODE>(target(m, s, n), a.big(), b[n]);
    }

    /* The patch element so many bytes behind a shared address. Written out, because the compiler would rather compute 2
     * * MMAS_N addresses than have the distances in the instructions. */
    template <int distance> static __device__ __forceinline__ uint32_t load_element(uint32_t at)
    {
        uint32_t word;
        if constexpr (PATCH_16BIT)
            asm volatile("{ .reg .b16 half; ld.shared.u16 half, [%1+%2]; cvt.u32.u16 %0, half; }"
                         : "=r"(word)
                         : "r"(at), "n"(distance));
        else
            asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(word) : "r"(at), "n"(distance));
        return word;
    }

    /* The elements of a step where a warp's positions are neighbours: of words t and t + 4 of lane t, from two
     * addresses. */
    template <int FIRST = 0>
    __device__ __forceinline__ void load_neighbours(uint32_t at, uint32_t other, fragment_b (&b)[MMAS_N])
    {
        if constexpr (FIRST < MMAS_N) {
            constexpr int DISTANCE = FIRST * MMA_SYNC_N * PATCH_BYTES;
            b[FIRST].at[0] = load_element<DISTANCE>(at);
            b[FIRST].at[1] = load_element<DISTANCE>(other);
            load_neighbours<FIRST + 1>(at, other, b);
        }
    }

    /* The B fragments of a step, whose word 0 lies at a shared address. Two 16-bit channels make a word. */
    __device__ __forceinline__ void load_src(uint32_t at, fragment_b (&b)[MMAS_N])
    {
        const uint32_t channel = PATCH_BYTES * params.word_pitch, other = at + 4 * channel;
        if (!is_nhwc<MODE>(params) && params.linear) {
            load_neighbours(at + pixel[0], other + pixel[0], b);
            if constexpr (PATCH_16BIT) {
                fragment_b odd[MMAS_N];
                load_neighbours(at + pixel[0] + channel / 2, other + pixel[0] + channel / 2, odd);
#pragma unroll
                for (int i = 0; i < 2 * MMAS_N; i++)
                    b[i / 2].at[i % 2] = __byte_perm(b[i / 2].at[i % 2], odd[i / 2].at[i % 2], 0x5410);
            }
            return;
        }
#pragma unroll
        for (int n = 0; n < MMAS_N; n++) {
            b[n].at[0] = load_element<0>(at + pixel[n]);
            b[n].at[1] = load_element<0>(other + pixel[n]);
            if constexpr (PATCH_16BIT) {
                b[n].at[0] = __byte_perm(b[n].at[0], load_element<0>(at + pixel[n] + channel / 2), 0x5410);
                b[n].at[1] = __byte_perm(b[n].at[1], load_element<0>(other + pixel[n] + channel / 2), 0x5410);
            }
        }
    }

    /* All MMAs of a step that the column phases of the mask take. Returns the weights behind. */
    __device__ __forceinline__ const uint4 *multiply_step(const uint4 *weights, uint32_t phases,
                                                          const fragment_b (&b)[MMAS_N],
                                                          const fragment_b (&small_b)[MMAS_N])
    {
        constexpr uint32_t ALL = (1u << STRIDE_W) - 1;
        if (STRIDE_W == 1 || phases == ALL) {
#pragma unroll
            for (int i = 0; i < STRIDE_W * MMAS_M; i++)
                multiply_row(i % MMAS_M, i / MMAS_M, load_weights<MODE>(weights + i * A_VECTORS), b, small_b);
            return weights + STRIDE_W * MMAS_M * A_VECTORS;
        }
        if constexpr (STRIDE_W > 1) {
#pragma unroll
            for (int s = 0; s < STRIDE_W; s++) {
                if ((phases >> s & 1) == 0)
                    continue;
                operand_a<MODE> a[MMAS_M];
#pragma unroll
                for (int m = 0; m < MMAS_M; m++)
                    a[m] = load_weights<MODE>(weights + m * A_VECTORS);
#pragma unroll
                for (int m = 0; m < MMAS_M; m++)
                    multiply_row(m, s, a[m], b, small_b);
                weights += MMAS_M * A_VECTORS;
            }
        }
        return weights;
    }

    /* One step, while the B fragments of the next are loaded; step and ahead are the schedule's entries of this one and
     * the next, and move on. */
    __device__ __forceinline__ void do_step(uint32_t patch, bool more, const uint32_t *&schedule, uint32_t &step,
                                            uint32_t &ahead, const uint4 *&weights, fragment_b (&b)[MMAS_N],
                                            fragment_b (&next_b)[MMAS_N])
    {
        const uint32_t phases = step >> 24;
        fragment_b small_b[MMAS_N];
        if constexpr (IS_STRICT<MODE>) {
#pragma unroll
            for (int i = 0; i < 2 * MMAS_N; i++)
                split_for_mma(b[i / 2].at[i % 2], &small_b[i / 2].at[i % 2]);
        }
        if (more)
            load_src(patch + (ahead & 0xffffffu), next_b);
        step = ahead;
        ahead = *schedule++; /* in the last steps it is whatever lies behind the schedule */
        weights = multiply_step(weights, phases, b, small_b);
        if (FLUSHES && ++unflushed >= params.flush_steps)
            flush();
    }

    /* Multiplies the K-block of a stage; skew: columns between the start of the patch and the first that a position
     * reads. */
    __device__ __forceinline__ void multiply(const uint32_t *stage, int skew)
    {
        const uint4 *weights = reinterpret_cast<const uint4 *>(stage + params.weights_at + weights_offset) + lane;
        const uint32_t *schedule = shared + params.schedule_at;
        const int row =
            row_shift - (params.max_row_taps - 1) * params.row_shift_step; /* where the schedule counts from */
        const uint32_t patch =
            shared_address(stage) + (uint32_t)((row * params.patch_columns + skew) * params.pixel_pitch * PATCH_BYTES);
        int left = row_taps * params.steps;
        if (left == 0)
            return;
        fragment_b b[MMAS_N], next_b[MMAS_N];
        uint32_t step = *schedule++, ahead = *schedule++;
        load_src(patch + (step & 0xffffffu), b);
#pragma unroll 1
        while (true) {
            do_step(patch, left > 1, schedule, step, ahead, weights, b, next_b);
            if (--left == 0)
                break;
            do_step(patch, left > 1, schedule, step, ahead, weights, next_b, b);
            if (--left == 0)
                break;
        }
    }

    __device__ __forceinline__ void find_pixels()
    {
#pragma unroll
        for (int n = 0; n < MMAS_N; n++) {
            const uint32_t position = shared[params.positions_at + (n_warp * MMAS_N + n) * MMA_SYNC_N + lane / 4];
            const int image = position != NO_POSITION ? (int)(position >> 20) : 0;
            const int row = position != NO_POSITION ? (int)(position >> 10 & MAX_TILE_EXTENT) : 0;
            const int column = position != NO_POSITION ? (int)(position & MAX_TILE_EXTENT) : 0;
            pixel[n] = (((image * params.patch_rows + row) * params.patch_columns + column) * params.pixel_pitch +
                        lane % 4 * params.word_pitch) *
                       PATCH_BYTES;
            asm volatile("" : "+r"(pixel[n])); /* else the product is made again at every use */
        }
    }
};

} // namespace tconv::mma

#endif
