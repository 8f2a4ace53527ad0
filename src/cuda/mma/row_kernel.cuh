/*
 * The kernel: a block walks down the rows of one image for 16 output channels of a group, and stores whole rows of dst,
 * because these layers take the time of writing dst. All column phases of a position are in one thread's accumulators,
 * so that each vector of src is loaded from shared memory once for all of them. Each row of src is a pipeline stage;
 * the next one is loaded while this one is multiplied.
 *
 * A row of dst is staged in shared memory and goes out by bulk stores while the next is multiplied: no thread waits for
 * its own stores. Rows without taps, which are what the post-ops make of the bias, go out with the row before them or
 * are stored directly. Devices before Hopper store from shared memory.
 *
 * Numeric order of an output: columns from the first back, row taps, steps of channels (row_mode.cuh), the bias, the
 * post-ops. Taps cut off by the left and right border are multiplied as zeros, those of rows are skipped.
 */
#ifndef TCONV_CUDA_MMA_ROW_KERNEL_CUH
#define TCONV_CUDA_MMA_ROW_KERNEL_CUH

#include "../epilogue/finish.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "row_epilogue.cuh"
#include "row_mode.cuh"

namespace tconv::mma
{

template <mode MODE, row_sums SUMS, int STRIDE_W> struct strip {
    using Mode = row_mode<MODE, SUMS>;
    using Element = element_of<MODE>;
    static constexpr int MMAS_N = row_mmas_n(STRIDE_W), POSITIONS = MMAS_N * MMA_SYNC_N;
    static constexpr int LENGTH = access_length<Element>;
    static constexpr int MMA_K = MMA_K_BYTES / (int)sizeof(Element); /* of a step */

    const row_parameters &params;
    const uint4 *weights;
    Element *stages;
    const Element *src; /* of the image and group, at the first column that is loaded, which may be before src */
    int src_column;     /* that column */
    int stage_column;   /* of the tile's first position, in a stage */
    int first_row, end_row;
    int lane, warp;
    int copy_channel, copy_column; /* of src, that this thread copies first */
    row_writer<Element> writer;

    __device__ __forceinline__ strip(const row_parameters &params, uint4 *shared) : params(params)
    {
        unsigned int rest = blockIdx.x;
        const int m_tile = (int)(rest % params.m_tiles);
        rest /= params.m_tiles;
        const int tile = (int)(rest % params.column_tiles);
        rest /= params.column_tiles;
        const int number = (int)(rest % params.strips);
        rest /= params.strips;
        const int group = (int)(rest % params.groups);
        const int64_t image = rest / params.groups;
        lane = (int)threadIdx.x % 32;
        warp = (int)threadIdx.x / 32;
        copy_channel = warp / params.copy_warps * Mode::COPY_CHANNELS; /* several warps share few channels */
        copy_column = (warp % params.copy_warps * 32 + lane) * LENGTH;
        first_row = params.first_row + number * params.strip_rows;
        end_row = min(first_row + params.strip_rows, params.end_row);

        const int column = params.first_column + tile * params.tile_columns, needed = column - params.max_column_back;
        src_column = needed - (needed & (LENGTH - 1));
        stage_column = column - src_column;
        src = static_cast<const Element *>(params.src) + image * params.src_image +
              (int64_t)group * params.group_in * params.src_channel + src_column;
        weights = shared;
        stages = reinterpret_cast<Element *>(shared + params.weight_vectors);
        copy_weights(static_cast<const uint4 *>(params.weights) +
                         ((int64_t)group * params.m_tiles + m_tile) * params.weight_vectors,
                     shared);

        const int channel = m_tile * BLOCK_M;
        const int64_t channel_of_all = (int64_t)group * params.group_out + channel;
        writer = row_writer<Element>(
            params, stages + params.stages * params.stage_elements,
            static_cast<Element *>(params.dst) + image * params.dst_image + channel_of_all * params.dst_channel,
            (int)channel_of_all, params.group_out - channel, column * STRIDE_W - params.column_pad,
            params.tile_columns * STRIDE_W, min(end_row * params.row_stride - params.row_pad, params.out_rows) - 1);
    }

    /* Begins to copy the block's weights, and clears the channels of the stages that src does not have. */
    __device__ __forceinline__ void copy_weights(const uint4 *from, uint4 *to)
    {
        wait_for_weights();
        for (int i = (int)threadIdx.x; i < params.weight_vectors; i += (int)blockDim.x)
            cp_async(to + i, from + i, true);
        const int channels = (params.group_in + Mode::COPY_CHANNELS - 1) / Mode::COPY_CHANNELS * Mode::COPY_CHANNELS;
        const int present = channels * params.src_pitch, stage = params.stage_elements;
        for (int s = 0; s < params.stages; s++)
            for (int i = present + (int)threadIdx.x * LENGTH; i < stage; i += (int)blockDim.x * LENGTH)
                *reinterpret_cast<uint4 *>(stages + s * stage + i) = uint4{0, 0, 0, 0};
    }

    __device__ __forceinline__ Element *stage_at(int stage) const
    {
        return stages + stage * params.stage_elements;
    }

    /* Begins to copy a row of src, if it exists, into a stage; zeros beyond its ends, and for a second channel that
     * does not exist. */
    __device__ __forceinline__ void load_row(int row, int stage) const
    {
        if ((unsigned int)row >= (unsigned int)params.in_rows)
            return;
        for (int first = copy_channel; first < params.group_in; first += params.copy_channel_step)
#pragma unroll
            for (int c = first; c < first + Mode::COPY_CHANNELS; c++) {
                const Element *from = src + c * params.src_channel + (int64_t)row * params.in_columns;
                Element *to = stage_at(stage) + c * params.src_pitch;
                for (int column = copy_column; column < params.src_loaded; column += params.copy_column_step)
                    load_vector(to + column, from + column, src_column + column, c < params.group_in);
            }
    }

    __device__ __forceinline__ void load_vector(Element *to, const Element *from, int column, bool channel_exists) const
    {
        if (params.src_aligned) {
            const bool exists = channel_exists && (unsigned int)column < (unsigned int)params.in_columns;
            cp_async(to, exists ? from : params.src, exists);
        } else {
#pragma unroll 1
            for (int i = 0; i < LENGTH; i++)
                to[i] = channel_exists && (unsigned int)(column + i) < (unsigned int)params.in_columns ? from[i]
                                                                                                       : Element(0.0f);
        }
    }

    /* Makes what this thread has copied of a row ready for the matrix instructions. */
    __device__ __forceinline__ void prepare_row(int row, int stage) const
    {
        if constexpr (Mode::PREPARES) {
            if ((unsigned int)row >= (unsigned int)params.in_rows)
                return;
            for (int first = copy_channel; first < params.group_in; first += params.copy_channel_step)
                for (int column = copy_column; column < params.src_loaded; column += params.copy_column_step)
                    Mode::prepare(stage_at(stage) + first * params.src_pitch + column, params.src_pitch);
        }
    }

    /* Multiplies the taps of one kernel row that read `back` columns before, one for each column phase of the mask: src
     * lies at `from`, this lane's weights at tap. */
    __device__ __forceinline__ void multiply_column(float (&accumulators)[STRIDE_W][MMAS_N][4], const Element *from,
                                                    const uint4 *tap, int phases) const
    {
        constexpr int STEP_VECTORS = operand_a<MODE>::VECTORS;
        const int steps = SUMS == NARROW ? 1 : params.steps;
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            operand_b b[MMAS_N];
#pragma unroll
            for (int t = 0; t < MMAS_N; t++)
                b[t] = Mode::load(from + t * MMA_SYNC_N, params.src_pitch);
            const uint4 *of_phase = tap;
#pragma unroll
            for (int s = 0; s < STRIDE_W; s++) {
                if ((phases >> s & 1) != 0) {
                    Mode::multiply(accumulators[s], load_weights<MODE>(of_phase), b);
                    of_phase += steps * STEP_VECTORS;
                }
            }
            from += MMA_K * params.src_pitch;
            tap += STEP_VECTORS;
        }
    }

    /* Accumulates the outputs of a row phase at one row position, whose row of src is in `stage`, older ones before
     * it. */
    __device__ __forceinline__ void multiply(float (&accumulators)[STRIDE_W][MMAS_N][4], int row_position, int phase,
                                             int stage) const
    {
#pragma unroll
        for (int i = 0; i < STRIDE_W * MMAS_N * 4; i++)
            accumulators[i / 4 / MMAS_N][i / 4 % MMAS_N][i % 4] = 0;
        const int column = stage_column + warp * POSITIONS + lane / 4;
        const int first_back = params.row_back[phase], row_taps = params.row_taps[phase];
        for (int back = 0; back <= params.max_column_back; back++) {
            const int phases = params.column_phases[back];
            const Element *of_column = stages + Mode::place(column - back, lane % 4, params.src_pitch);
            const uint4 *taps =
                weights + params.column_vectors[back] + params.row_kernel[phase] * params.kernel_row_vectors + lane;
            int from = stage - first_back + (stage < first_back ? params.stages : 0), row = row_position - first_back;
            for (int tap = 0; tap < row_taps; tap++) {
                if ((unsigned int)row < (unsigned int)params.in_rows)
                    multiply_column(accumulators, of_column + from * params.stage_elements, taps, phases);
                row -= params.row_back_step;
                from -= params.row_back_step;
                from += from < 0 ? params.stages : 0;
                taps += params.row_kernel_step * params.kernel_row_vectors;
            }
        }
    }

    /* Stages a row's accumulators: those of a thread for an MMA are neighbours, `before` single ones, then `together`
     * at a time. */
    template <int before, int together>
    __device__ __forceinline__ void stage_row(const float (&accumulators)[STRIDE_W][MMAS_N][4], int shift) const
    {
        Element *first = writer.staging + shift + (warp * POSITIONS + lane % 4 * 2) * STRIDE_W;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Element *to = first + (lane / 4 + half * 8) * params.staging_pitch;
#pragma unroll
            for (int t = 0; t < MMAS_N; t++) {
                const auto output = [&](int i) {
                    return to_output<Element>(accumulators[i % STRIDE_W][t][2 * half + i / STRIDE_W]);
                };
                Element *of_tile = to + t * MMA_SYNC_N * STRIDE_W;
                constexpr int END = before + (2 * STRIDE_W - before) / together * together;
#pragma unroll
                for (int i = 0; i < before; i++)
                    of_tile[i] = output(i);
#pragma unroll
                for (int i = before; i < END; i += together) {
                    element_vector<Element, together> elements;
#pragma unroll
                    for (int e = 0; e < together; e++)
                        elements.at[e] = output(i + e);
                    *reinterpret_cast<element_vector<Element, together> *>(of_tile + i) = elements;
                }
#pragma unroll
                for (int i = END; i < 2 * STRIDE_W; i++)
                    of_tile[i] = output(i);
            }
        }
    }

    /* Computes all rows of dst of a row position, in their order; meanwhile the next row of src comes. */
    __device__ __forceinline__ void compute_position(int row_position, int stage, int next)
    {
        bool arrived = false;
        for (int phase = 0; phase < params.row_stride; phase++) {
            const int row = row_position * params.row_stride - params.row_pad + phase;
            if ((unsigned int)row >= (unsigned int)params.out_rows)
                continue;
            if (params.row_taps[phase] == 0) {
                if (row > writer.written)
                    writer.write_bias(row);
                continue;
            }
            float accumulators[STRIDE_W][MMAS_N][4];
            multiply(accumulators, row_position, phase, stage);
            if (!arrived)
                receive_row(row_position + 1,
                            next); /* the barriers of this row of dst are those of the next row of src */
            arrived = true;
            if (params.posts.count > 0)
                run_post_steps(accumulators);
            else if (params.bias != NULL)
                finish_sums(accumulators);
            writer.wait_for_staging();
            const int shift = writer.shift_of_row(row);
            if (!params.staging_pairs)
                stage_row<0, 1>(accumulators, shift);
            else if ((shift & 1) == 0)
                stage_row<0, 2>(accumulators, shift);
            else
                stage_row<1, 2>(accumulators, shift);
            if (params.bias_rows == 0)
                writer.template store_staging<false>(row, shift, 0, 0);
            else
                writer.template store_staging<true>(row, shift,
                                                    min(params.bias_rows_after[phase], writer.last_row - row),
                                                    params.tile_columns * STRIDE_W);
        }
        if (!arrived) {
            receive_row(row_position + 1, next);
            __syncthreads();
        }
    }

    __device__ __forceinline__ void receive_row(int row, int stage) const
    {
        cp_async_wait<0>();
        if (row < end_row)
            prepare_row(row, stage);
    }

    __device__ __forceinline__ void finish_sums(float (&accumulators)[STRIDE_W][MMAS_N][4]) const
    {
        const float bias[2] = {writer.bias_of(lane / 4), writer.bias_of(lane / 4 + 8)}; /* here: registers are few */
#pragma unroll
        for (int i = 0; i < STRIDE_W * MMAS_N * 4; i++) {
            float &sum = accumulators[i / 4 / MMAS_N][i / 4 % MMAS_N][i % 4];
            sum = finish_sum(sum, bias[i % 4 / 2]);
        }
    }

    /* Takes a row's accumulators through the bias and the post-ops, so many at a time. */
    __device__ __forceinline__ void run_post_steps(float (&accumulators)[STRIDE_W][MMAS_N][4]) const
    {
        constexpr int COUNT = STRIDE_W * MMAS_N * 4, BATCH = COUNT % 16 == 0 ? 16 : 8;
        struct channel_numbers {
            float at[2];
            __device__ __forceinline__ float operator()(int i) const
            {
                return at[i % 4 / 2];
            }
        };
        int channel = lane / 4;
        asm volatile("" : "+r"(channel)); /* as in_all: what follows from it would stay in registers */
        const int next = channel + 8;
#pragma unroll
        for (int first = 0; first < COUNT; first += BATCH) {
            float sums[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                sums[i] = accumulators[(first + i) / 4 / MMAS_N][(first + i) / 4 % MMAS_N][i % 4];
            run_affine_posts(
                params.posts, sums, channel_numbers{writer.bias_of(channel), writer.bias_of(next)},
                [&](const void *array) {
                    return channel_numbers{writer.number_of(array, channel), writer.number_of(array, next)};
                });
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                accumulators[(first + i) / 4 / MMAS_N][(first + i) / 4 % MMAS_N][i % 4] = sums[i];
        }
    }

    __device__ __forceinline__ void run()
    {
        for (int back = params.max_row_back; back >= 0; back--)
            load_row(first_row - back, back == 0 ? 0 : params.stages - back);
        cp_async_commit();
        cp_async_wait<0>();
        for (int back = params.max_row_back; back >= 0; back--)
            prepare_row(first_row - back, back == 0 ? 0 : params.stages - back);
        writer.begin_block(params.bias_rows);
        __syncthreads();
        int stage = 0;
        for (int row_position = first_row; row_position < end_row; row_position++) {
            const int next = stage + 1 == params.stages ? 0 : stage + 1;
            if (row_position + 1 < end_row)
                load_row(row_position + 1, next);
            cp_async_commit();
            compute_position(row_position, stage, next);
            stage = next;
        }
        writer.finish();
    }
};

template <mode MODE, row_sums SUMS, int STRIDE_W>
__global__ void __launch_bounds__(MAX_WARPS *WARP, row_max_blocks(sizeof(element_of<MODE>), SUMS, STRIDE_W))
    compute_strip(const __grid_constant__ row_parameters params)
{
    extern __shared__ uint4 row_shared[];
    strip<MODE, SUMS, STRIDE_W>(params, row_shared).run();
}

/* Returns the kernel of a column stride. */
template <mode MODE, row_sums SUMS> const void *find_row_kernel(int64_t column_stride)
{
    static constexpr void (*kernels[])(row_parameters) = {compute_strip<MODE, SUMS, 1>,
                                                          compute_strip<MODE, SUMS, 2>,
                                                          compute_strip<MODE, SUMS, 3>,
                                                          compute_strip<MODE, SUMS, 4>,
                                                          compute_strip<MODE, SUMS, 5>,
                                                          compute_strip<MODE, SUMS, 6>,
                                                          NULL,
                                                          compute_strip<MODE, SUMS, 8>};
    return (const void *)kernels[column_stride - 1];
}

template <mode MODE> const void *find_half_row_kernel(row_sums sums, int64_t column_stride)
{
    return sums == ADDED    ? find_row_kernel<MODE, ADDED>(column_stride)
           : sums == DIRECT ? find_row_kernel<MODE, DIRECT>(column_stride)
                            : find_row_kernel<MODE, NARROW>(column_stride);
}

} // namespace tconv::mma

#endif
