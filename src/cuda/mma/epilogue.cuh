/*
 * The epilogue: a warp tile's accumulators become outputs, with the bias and the post-ops. All column phases of a
 * position are in one thread, which therefore stores runs of neighbouring outputs (NCHW: 2 * stride columns; NHWC:
 * channels). Outputs without a tap get the bias with the others.
 *
 * What is not finite: an output whose sum holds a NaN or Inf comes out of the MMAs as one of them, though padding (0 *
 * Inf) and the split of 3xTF32 (Inf - Inf) may make a NaN of anything. Each such output is summed again by plain
 * multiply-adds over the taps that it has. Post-ops may make something finite of Inf, but not of NaN: before them such
 * sums become NaN.
 */
#ifndef TCONV_CUDA_MMA_EPILOGUE_CUH
#define TCONV_CUDA_MMA_EPILOGUE_CUH

#include "../epilogue/finish.cuh"
#include "../epilogue/posts.cuh"
#include "../ptx/dependent_launch.cuh"
#include "mainloop.cuh"
#include "mode.cuh"
#include "packed.cuh"
#include "schedule.cuh"

namespace tconv::mma
{

/* Outputs are not read again soon: they should not push src and weights out of the cache. */
template <class Element, int COUNT> __device__ __forceinline__ void store_elements(Element *to, const Element *from)
{
    constexpr int BYTES = COUNT * (int)sizeof(Element);
    using Word = std::conditional_t<
        BYTES == 16, uint4,
        std::conditional_t<BYTES == 8, uint2, std::conditional_t<BYTES == 4, uint32_t, unsigned short>>>;
    __stcs(reinterpret_cast<Word *>(to), *reinterpret_cast<const Word *>(from));
}

/* Stores COUNT neighbouring outputs, of which the first `valid` exist; their address is a multiple of `vector`
 * elements. */
template <class Element, int COUNT>
__device__ __forceinline__ void store_run(Element *to, const float (&values)[COUNT], int valid, int vector)
{
    constexpr int WIDEST = 16 / (int)sizeof(Element);
    constexpr int WIDE = COUNT % WIDEST == 0 ? WIDEST : COUNT % 4 == 0 && WIDEST > 4 ? 4 : COUNT % 2 == 0 ? 2 : 1;
    struct alignas(16) {
        Element at[COUNT];
    } run;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        run.at[i] = to_output<Element>(values[i]);
    if (valid >= COUNT && vector >= WIDE) {
#pragma unroll
        for (int i = 0; i < COUNT; i += WIDE)
            store_elements<Element, WIDE>(to + i, &run.at[i]);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i < valid)
                store_elements<Element, 1>(to + i, &run.at[i]);
    }
}

template <mode MODE, int STRIDE_W, int MMAS_M, int MMAS_N>
struct warp_tile : warp_mainloop<MODE, STRIDE_W, MMAS_M, MMAS_N> {
    using Element = element_of<MODE>;
    using Mainloop = warp_mainloop<MODE, STRIDE_W, MMAS_M, MMAS_N>;
    using Mainloop::accumulators, Mainloop::first_channel, Mainloop::group, Mainloop::lane, Mainloop::n_warp;
    using Mainloop::params, Mainloop::phase, Mainloop::row_shift, Mainloop::row_taps, Mainloop::shared, Mainloop::warp;
    using Mainloop::weights_offset;
    static constexpr bool STAGES = is_staged_stride(STRIDE_W);
    static constexpr int STAGING_WORDS = MMA_SYNC_N * (MMA_SYNC_M / 2) * STRIDE_W; /* of a warp */
    static constexpr int RUN = channel_run_of(MMAS_M, sizeof(Element));            /* channels, in NHWC */

    float bias[MMAS_M][2]; /* of the accumulators 2 * half of MMA m of M; NO_BIAS where post-ops come after it */

    /* The channel, of this warp's, of accumulator 2 * half of MMA m of M: channel_of_row in packed.cuh. */
    __device__ __forceinline__ int channel_of(int m, int half) const
    {
        return channel_of_row(m, half, lane / 4, params.channel_run);
    }

    /* The bias of a channel of this warp's; zero where the channel does not exist. */
    __device__ __forceinline__ float bias_of(int channel) const
    {
        return channel_bias<Element>(params.bias, group * params.group_out + first_channel + channel,
                                     first_channel + channel < params.group_out);
    }

    __device__ __forceinline__ void load_bias()
    {
#pragma unroll
        for (int i = 0; i < 2 * MMAS_M; i++)
            bias[i / 2][i % 2] = params.posts.count > 0 ? NO_BIAS : bias_of(channel_of(i / 2, i % 2));
    }

    /* The number of a channel of this warp's, of an array of a number for each channel. */
    __device__ __forceinline__ float number_of_channel(const void *array, int channel) const
    {
        return static_cast<const float *>(
            array)[group * params.group_out + min(first_channel + channel, params.group_out - 1)];
    }

    /* Takes all accumulators through their bias and the post-ops: those of an MMA's rows at a time, which are two
     * channels', and not too many, because the compiler takes more registers then. */
    __device__ __forceinline__ void run_post_steps()
    {
        constexpr int OF_ROWS = Mainloop::ACCUMULATORS / MMAS_M;
        constexpr int BATCH = OF_ROWS % 16 == 0 ? 16 : 8;
        struct channel_numbers {
            float at[2];
            __device__ __forceinline__ float operator()(int i) const
            {
                return at[i % 4 / 2];
            }
        };
#pragma unroll
        for (int first = 0; first < Mainloop::ACCUMULATORS; first += BATCH) {
            const int channel = channel_of(first / OF_ROWS, 0), next = channel_of(first / OF_ROWS, 1);
            float sums[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const float sum = Mainloop::element(accumulators, first + i);
                sums[i] = is_finite(sum) ? sum : __int_as_float(0x7fc00000);
            }
            run_affine_posts(
                params.posts, sums, channel_numbers{bias_of(channel), bias_of(next)}, [&](const void *array) {
                    return channel_numbers{number_of_channel(array, channel), number_of_channel(array, next)};
                });
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                Mainloop::element(accumulators, first + i) = sums[i];
        }
    }

    /* Where the outputs of a position, and of those after it in its row, go. */
    struct dst_target {
        Element *to;                    /* channel 0 of the group at the first column and phase */
        int row, first_column, columns; /* outputs from first_column on that exist */
        int image;
        int position_column;
        int src_row, src_column; /* where shift 0 reads */
    };

    __device__ __forceinline__ dst_target find_target(const tile_origin &tile, int n, int position) const
    {
        const uint32_t packed = shared[params.positions_at + (n_warp * MMAS_N + n) * MMA_SYNC_N + position];
        dst_target found;
        found.image = tile.image + image_of(packed);
        found.src_row = tile.row + row_of(packed);
        found.src_column = tile.column + column_of(packed);
        bool exists = packed != NO_POSITION && found.image < params.batch && phase < params.row_phases;
        int position_row = found.src_row;
        found.position_column = found.src_column;
        if (params.flat_columns != 0) {
            exists = exists && found.src_column < params.src_columns;
            position_row = (int)((unsigned int)found.src_column / (unsigned int)params.flat_columns);
            found.position_column -= position_row * params.flat_columns;
        }
        found.row = position_row * params.stride_rows + phase;
        found.first_column = found.position_column * STRIDE_W;
        exists = exists && found.row < params.dst_rows;
        found.columns = exists ? max(0, params.dst_columns - found.first_column) : 0;
        found.to = static_cast<Element *>(params.dst) + (int64_t)found.image * params.dst_strides.n +
                   (int64_t)group * params.group_out * params.dst_strides.c +
                   (int64_t)found.row * params.dst_strides.h + (int64_t)found.first_column * params.dst_strides.w;
        return found;
    }

    static __device__ __forceinline__ bool is_finite(float value)
    {
        return fabsf(value) < __int_as_float(0x7f800000);
    }

    /* Output `column` of the run of 2 * STRIDE_W that this thread has of a channel. */
    __device__ __forceinline__ float output(int m, int half, int n, int column) const
    {
        return finish_sum(accumulators[m][column % STRIDE_W][n][half * 2 + column / STRIDE_W], bias[m][half]);
    }

    /* Stores NCHW, in runs of 2 * STRIDE_W columns. Returns whether all sums are finite. */
    __device__ __forceinline__ bool store_columns(const tile_origin &tile)
    {
        bool finite = true;
#pragma unroll
        for (int n = 0; n < MMAS_N; n++) {
            const dst_target target = find_target(tile, n, lane % 4 * 2);
#pragma unroll
            for (int m = 0; m < MMAS_M; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int channel = first_channel + channel_of(m, half);
                    float run[2 * STRIDE_W];
#pragma unroll
                    for (int i = 0; i < 2 * STRIDE_W; i++) {
                        run[i] = output(m, half, n, i);
                        finite = finite && is_finite(run[i]);
                    }
                    if (channel < params.group_out)
                        store_run<Element>(target.to + channel * params.dst_strides.c, run, target.columns,
                                           params.store_vector);
                }
        }
        return finite;
    }

    /*
     * Stores NCHW where runs of 2 * STRIDE_W columns are no multiple of a vector: eight positions of eight channels at
     * a time go through shared memory, so that neighbouring lanes store neighbouring columns.
     */
    __device__ __forceinline__ bool store_staged(const tile_origin &tile, float *staging)
    {
        constexpr int LENGTH = MMA_SYNC_N * STRIDE_W; /* of a row of outputs */
        bool finite = true;
#pragma unroll
        for (int n = 0; n < MMAS_N; n++) {
            const dst_target target = find_target(tile, n, 0);
#pragma unroll
            for (int i = 0; i < 2 * MMAS_M; i++) {
                const int m = i / 2, half = i % 2;
                __syncwarp();
#pragma unroll
                for (int j = 0; j < 2 * STRIDE_W; j++) {
                    const float value = output(m, half, n, j);
                    finite = finite && is_finite(value);
                    staging[lane / 4 * LENGTH + lane % 4 * 2 * STRIDE_W + j] = value;
                }
                __syncwarp();
#pragma unroll
                for (int j = 0; j < LENGTH * (MMA_SYNC_M / 2) / WARP; j++) {
                    const int at = j * WARP + lane, row = at / LENGTH, column = at % LENGTH;
                    const int channel = first_channel + channel_of_row(m, half, row, params.channel_run);
                    const Element value = to_output<Element>(staging[at]);
                    if (column < target.columns && channel < params.group_out)
                        store_elements<Element, 1>(target.to + channel * params.dst_strides.c + column, &value);
                }
            }
        }
        return finite;
    }

    /* Stores NHWC, in runs of channels. Returns whether all sums are finite. */
    __device__ __forceinline__ bool store_channels(const tile_origin &tile)
    {
        bool finite = true;
#pragma unroll
        for (int first = 0; first < 2 * MMAS_M; first += RUN) {
            const int channel = first_channel + channel_of(first / 2, first % 2);
#pragma unroll
            for (int n = 0; n < MMAS_N; n++) {
                const dst_target target = find_target(tile, n, lane % 4 * 2);
#pragma unroll
                for (int column = 0; column < 2 * STRIDE_W; column++) {
                    float run[RUN];
#pragma unroll
                    for (int i = 0; i < RUN; i++) {
                        run[i] = output((first + i) / 2, (first + i) % 2, n, column);
                        finite = finite && is_finite(run[i]);
                    }
                    if (column < target.columns)
                        store_run<Element>(target.to + column * params.dst_strides.w + channel, run,
                                           params.group_out - channel, params.store_vector);
                }
            }
        }
        return finite;
    }

    /* Sums one output by multiply-adds over the taps that it has. */
    __device__ float sum_again(const dst_target &target, int column_phase, int column, int channel) const
    {
        const Element *src = static_cast<const Element *>(params.src) + (int64_t)target.image * params.src_strides.n +
                             (int64_t)group * params.group_in * params.src_strides.c;
        float total = 0;
        for (int tap = 0; tap < row_taps; tap++) {
            const int row = target.src_row + params.min_row_shift + row_shift - tap * params.row_shift_step;
            for (int i = 0; i < params.shifts; i++) {
                const int from = column + params.min_column_shift + params.columns[i].shift;
                if ((params.columns[i].phases >> column_phase & 1) == 0 || row < 0 || row >= params.src_rows ||
                    from < 0 || from >= params.src_columns)
                    continue;
                const Element *at = src + row * params.src_strides.h + from * params.src_strides.w;
#pragma unroll 1
                for (int in = 0; in < params.group_in; in++)
                    total = fmaf(
                        to_compute(at[in * params.src_strides.c]),
                        packed_weight<Element>(params, blockIdx.x, weights_offset, tap, i, column_phase, channel, in),
                        total);
            }
        }
        return total;
    }

    /* An output from what sum_again returns. */
    __device__ __forceinline__ Element finish_again(float sum, int channel) const
    {
        float value[1] = {sum};
        run_affine_posts(
            params.posts, value, [&](int) { return bias_of(channel); },
            [&](const void *array) {
                return [this, array, channel](int) { return number_of_channel(array, channel); };
            });
        return to_output<Element>(value[0]);
    }

    /* Sums again what came out not finite; the sums in registers are not needed any more. */
    __device__ __forceinline__ void repair(const tile_origin &tile)
    {
        wait_for_weights(); /* this thread too: it reads them itself */
#pragma unroll 1
        for (int i = 0; i < MMAS_N * 2 * STRIDE_W * MMAS_M * 2; i++) {
            const int channel = channel_of(i / 2 % MMAS_M, i % 2), at = i / 2 / MMAS_M % (2 * STRIDE_W);
            const dst_target target = find_target(tile, i / 2 / MMAS_M / (2 * STRIDE_W), lane % 4 * 2);
            if (at >= target.columns || first_channel + channel >= params.group_out)
                continue;
            Element *to = target.to + at * params.dst_strides.w + (first_channel + channel) * params.dst_strides.c;
            if (!is_finite(to_compute(*to)))
                *to =
                    finish_again(sum_again(target, at % STRIDE_W, target.src_column + at / STRIDE_W, channel), channel);
        }
    }

    __device__ __forceinline__ void finish(const tile_origin &tile)
    {
        Mainloop::flush();
        if (params.posts.count > 0)
            run_post_steps();
        bool finite;
        if (is_nhwc<MODE>(params))
            finite = store_channels(tile);
        else if (STAGES && params.staged)
            finite = store_staged(tile, reinterpret_cast<float *>(shared + params.staging_at) + STAGING_WORDS * warp);
        else
            finite = store_columns(tile);
        if (__any_sync(0xffffffffu, !finite)) {
            __syncwarp(); /* one lane's outputs may have been stored by another */
            repair(tile);
        }
        Mainloop::clear();
    }
};

} // namespace tconv::mma

#endif
