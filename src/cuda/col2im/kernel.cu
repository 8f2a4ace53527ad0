/*
 * GEMM + col2im for any device: every pixel of src is multiplied with all weights of its group by mma.sync, and the
 * outputs are gathered from the partials.
 *
 * A block takes a strip of output rows and a tile of columns of one image and group, and goes down the rows of src that
 * they read. For a block tile of 128 pixels (a piece of a row, or pieces of several) each warp multiplies its 32 pixels
 * with all weights of the group, which stay in shared memory. Each warp copies its own src ahead, so that warps wait
 * for each other only around the column buffer. From there each thread adds up the partials of the output columns that
 * it keeps; sums of rows that later rows of src add to wait in shared memory. Neighbouring tiles and strips overlap
 * by what outputs reach back.
 *
 * A partial of a pixel or tap that does not exist is never added, so that NaN and Inf go only where they belong.
 *
 * Numeric order: tensor-core sums over SEGMENT K-blocks, segments added in order in f32; then kernel rows from the last
 * to the first, column taps in order, bias last.
 */
#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "load.cuh"
#include "mainloop.cuh"

#include <utility>

namespace tconv::col2im
{

namespace
{

constexpr int THREADS = MMA_WARPS * 32;

/* The arrays in shared memory. */
struct shared_layout {
    fragment_b *weights;
    char *stages;
    float *column_buffer; /* [n][MMA_PITCH] */
    float *sums;          /* [sum_rows][group_out][sum_columns]: rows of outputs that are not complete */
    column_taps *columns; /* [sum_columns] */
    float *bias;          /* [group_out] */
};

extern __shared__ __align__(ACCESS_BYTES) char shared_memory[];

template <int N_TILES> __device__ __forceinline__ shared_layout find_shared(const parameters &layer)
{
    shared_layout found;
    found.weights = reinterpret_cast<fragment_b *>(shared_memory);
    found.stages = shared_memory + layer.k_blocks * N_TILES * 32 * (int)sizeof(fragment_b);
    found.column_buffer = reinterpret_cast<float *>(found.stages + MMA_WARPS * MMA_STAGES * STAGE_BYTES);
    found.columns = reinterpret_cast<column_taps *>(found.column_buffer + N_TILES * TILE_N * MMA_PITCH);
    found.sums = reinterpret_cast<float *>(found.columns + layer.sum_columns);
    found.bias = found.sums + layer.sum_rows * layer.group_out * layer.sum_columns;
    return found;
}

/* Writes a segment's sums to the column buffer of the warp's pixels, or adds them there, and clears them. */
template <bool add, int N_TILES>
__device__ __forceinline__ void end_segment(float *partials, int lane, float (&sums)[M_TILES][N_TILES][4])
{
    float *to = partials + lane % 4 * 2 * MMA_PITCH + lane / 4;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *partial = to + (n * TILE_N + i % 2) * MMA_PITCH + m * 16 + i / 2 * 8;
                *partial = add ? *partial + sums[m][n][i] : sums[m][n][i];
                sums[m][n][i] = 0;
            }
}

__device__ __forceinline__ float sum_partials(const float *partials, int step, int count)
{
    float sum = 0;
    for (int t = 0; t < count; t++)
        sum += partials[t * step];
    return sum;
}

/* Adds the partials of one row of src to an output column, and stores the rows that are complete with it. partials:
 * those of the row, column and channel; sums: the ring buffer of the column and channel; ring_row, dst: the first of
 * those rows. channel, column: of the block. */
template <class Element>
__device__ __forceinline__ void gather_row(const parameters &layer, const block_tile &block, int row,
                                           const float *partials, int count, float *sums, int ring_row, float bias,
                                           Element *dst, int channel, int column)
{
    const small_axis &rows = layer.rows;
    const int ring = layer.sum_rows, pitch = layer.group_out * layer.sum_columns;
    const int kernel_pitch = layer.columns.kernel * MMA_PITCH;
    const bool exists = row < rows.in, complete = row >= block.first_quotient;
    int kernel_row = 0, ahead = 0; /* ahead: output rows from the first one to that of the kernel row */
    for (int i = 0; i < rows.stride; i++) {
        const bool has = i == ahead && kernel_row < rows.kernel;
        if (complete) {
            float sum = sums[ring_row * pitch];
            sums[ring_row * pitch] = 0;
            if (has && exists)
                sum += sum_partials(partials, layer.tap_step, count);
            const int to_row = row * rows.stride + i - rows.pad;
            if ((unsigned)to_row < (unsigned)rows.out) {
                float values[] = {finish_sum(sum, bias)};
                if (layer.posts.steps.count > 0) {
                    run_layer_posts<Element>(
                        layer.posts, values, [&](int) { return block.first_out + channel; },
                        [&](int) {
                            const tconv_strides &strides = layer.posts.addend_strides;
                            const block_tile again = find_block_tile(layer, 1, forgotten(blockIdx.x));
                            return again.first_image * strides.n + (again.first_out + channel) * strides.c +
                                   to_row * strides.h + (again.first_output + column) * strides.w;
                        });
                }
                *dst = to_output<Element>(values[0]);
            }
        }
        if (has) {
            kernel_row++;
            ahead += rows.dilation;
            partials += kernel_pitch;
        }
        dst += layer.dst_strides.h;
        ring_row = ring_row + 1 == ring ? 0 : ring_row + 1;
    }
    if (!exists)
        return;
    ring_row += ahead - rows.stride;
    for (; kernel_row < rows.kernel; kernel_row++) {
        if (ring_row >= ring)
            ring_row %= ring;
        if (row * rows.stride + ahead >= block.first_quotient * rows.stride)
            sums[ring_row * pitch] += sum_partials(partials, layer.tap_step, count);
        ring_row += rows.dilation;
        ahead += rows.dilation;
        partials += kernel_pitch;
    }
}

/* The same for one stride and kernel of both axes and dilation 1, so that the compiler knows where all partials lie.
 * sums: the sums of rows before for the first outputs of this row; they move on by STRIDE rows. */
template <int STRIDE, int KERNEL, class Element>
__device__ __forceinline__ void gather_row_unrolled(const parameters &layer, const block_tile &block, int row,
                                                    const float *partials, int count, float *sums, float bias,
                                                    Element *dst)
{
    constexpr int WAITING = KERNEL - STRIDE, TAPS = (KERNEL - 1) / STRIDE + 1, STEP = STRIDE * MMA_PITCH - 1;
    const int pitch = layer.group_out * layer.sum_columns;
    float totals[KERNEL];
#pragma unroll
    for (int i = 0; i < KERNEL; i++)
        totals[i] = i < WAITING ? sums[i * pitch] : 0.0f;
    if (row < layer.rows.in) {
#pragma unroll
        for (int t = 0; t < TAPS; t++)
            if (t < count) {
#pragma unroll
                for (int i = 0; i < KERNEL; i++)
                    totals[i] += partials[i * KERNEL * MMA_PITCH + t * STEP];
            }
    }
#pragma unroll
    for (int i = 0; i < WAITING; i++)
        sums[i * pitch] = totals[i + STRIDE];
    if (row < block.first_quotient)
        return;
#pragma unroll
    for (int i = 0; i < STRIDE; i++)
        if ((unsigned)(row * STRIDE + i - layer.rows.pad) < (unsigned)layer.rows.out)
            dst[i * layer.dst_strides.h] = finish_output<Element>(totals[i], bias);
}

/* Gathers the outputs of a block tile, from row `first` of src on. STRIDE and KERNEL: 0 for any; then sums are a ring
 * buffer. */
template <int STRIDE, int KERNEL, class Element>
__device__ __forceinline__ void gather(const parameters &layer, const block_tile &block, const shared_layout &shared,
                                       int first)
{
    const int rows = min(BLOCK_M >> layer.row_pixels_log2, block.end_quotient - first);
    const int first_ring_row = (int)((unsigned)(first * layer.rows.stride) % (unsigned)layer.sum_rows);
    const int ring_step = (int)((unsigned)layer.rows.stride % (unsigned)layer.sum_rows);
    const int channel_pitch = layer.rows.kernel * layer.columns.kernel * MMA_PITCH;
    Element *dst = find_dst<Element>(layer, block, block.first_image) +
                   ((int64_t)first * layer.rows.stride - layer.rows.pad) * layer.dst_strides.h;
    for (int column = (int)threadIdx.x; column < block.outputs; column += THREADS) {
        const column_taps found = shared.columns[column];
        Element *to = dst + (block.first_output + column) * layer.dst_strides.w;
        for (int channel = 0; channel < layer.group_out; channel++) {
            const float *partials = shared.column_buffer + found.first + channel * channel_pitch;
            const float bias = shared.bias[channel];
            int ring_row = first_ring_row;
            Element *row_to = to;
            for (int i = 0; i < rows; i++) {
                float *sums = shared.sums + channel * layer.sum_columns + column;
                if constexpr (STRIDE != 0)
                    gather_row_unrolled<STRIDE, KERNEL>(layer, block, first + i, partials, found.count, sums, bias,
                                                        row_to);
                else
                    gather_row(layer, block, first + i, partials, found.count, sums, ring_row, bias, row_to, channel,
                               column);
                partials += 1 << layer.row_pixels_log2;
                row_to += layer.rows.stride * layer.dst_strides.h;
                ring_row += ring_step;
                if (ring_row >= layer.sum_rows)
                    ring_row -= layer.sum_rows;
            }
            to += layer.dst_strides.c;
        }
    }
}

/* Fills the arrays that the block keeps: the group's weights and bias, the taps of its columns, and sums of zero. */
template <class Element, int N_TILES>
__device__ __forceinline__ void fill_shared(const parameters &layer, const block_tile &block,
                                            const shared_layout &shared)
{
    const int bytes = layer.k_blocks * N_TILES * 32 * FRAGMENT_BYTES;
    copy_weights<THREADS>(reinterpret_cast<char *>(shared.weights),
                          static_cast<const char *>(layer.weights) + HEADER_BYTES + (int64_t)block.group * bytes,
                          bytes);
    const int sums = layer.sum_rows * layer.sum_columns * layer.group_out;
    for (int i = (int)threadIdx.x; i < sums; i += THREADS)
        shared.sums[i] = 0;
    for (int i = (int)threadIdx.x; i < block.outputs; i += THREADS)
        shared.columns[i] = find_taps<MMA_PITCH>(layer, block.first_column, block.first_output + i);
    for (int i = (int)threadIdx.x; i < layer.group_out; i += THREADS)
        shared.bias[i] = channel_bias<Element>(layer.bias, block.first_out + i);
}

template <class Element>
__device__ __forceinline__ void gather_any(const parameters &layer, const block_tile &block,
                                           const shared_layout &shared, int first)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    /* Hopper's kernel takes nearly all layers of these sizes; code for them here would be a third of the kernel's
     * code. */
    gather<0, 0, Element>(layer, block, shared, first);
#else
    switch (layer.gather) {
    case GATHER_3_BY_1: gather<1, 3, Element>(layer, block, shared, first); break;
    case GATHER_3_BY_2: gather<2, 3, Element>(layer, block, shared, first); break;
    case GATHER_4_BY_2: gather<2, 4, Element>(layer, block, shared, first); break;
    case GATHER_9_BY_4: gather<4, 9, Element>(layer, block, shared, first); break;
    default: gather<0, 0, Element>(layer, block, shared, first);
    }
#endif
}

/* Goes down all rows. special: some weight is one that split cannot take. */
template <class Arithmetic, int N_TILES, bool nhwc, bool special>
__device__ __forceinline__ void main_loop(const parameters &layer, const block_tile &block, const shared_layout &shared)
{
    using Element = typename Arithmetic::Element;
    using Stage = stage_layout<Element, nhwc, false, MMA_STAGES>;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    loader<Stage> loader;
    loader.start(layer, block, shared.stages, warp, lane);
    loader.begin(layer);
    cp_async_wait<MMA_STAGES - 2>(); /* the weights came with the first stage */
    __syncthreads();

    float sums[M_TILES][N_TILES][4] = {};
    int stage = 0;
    for (int row = block.first_row; row < block.end_quotient; row += loader.row_step) {
        bool first = true;
        for (int step = 0; step < layer.k_blocks; step++) {
            cp_async_wait<MMA_STAGES - 2>();
            __syncwarp();
            loader.next(layer);
            multiply<Arithmetic, Stage, special>(loader.stages + stage, shared.weights + step * N_TILES * 32, lane,
                                                 sums);
            stage = stage == (MMA_STAGES - 1) * Stage::ELEMENTS ? 0 : stage + Stage::ELEMENTS;
            if (step == layer.k_blocks - 1 || step % SEGMENT == SEGMENT - 1) {
                float *partials = shared.column_buffer + warp * MMA_WARP_M;
                if (first) {
                    __syncthreads(); /* the last block tile has been gathered */
                    end_segment<false>(partials, lane, sums);
                } else {
                    end_segment<true>(partials, lane, sums);
                }
                first = false;
            }
        }
        __syncthreads();
        gather_any<Element>(layer, block, shared, row);
    }
}

/* Blocks of a multiprocessor: of few N tiles one more than is planned for. */
template <class Arithmetic, int N_TILES>
constexpr int BLOCKS = mma_blocks(N_TILES) + (Arithmetic::PARTS == 1 && N_TILES <= 4 ? 1 : 0);

template <class Arithmetic, int N_TILES, bool nhwc>
__global__ void __launch_bounds__(THREADS, (BLOCKS<Arithmetic, N_TILES>))
    multiply_and_gather(const __grid_constant__ parameters layer)
{
    constexpr bool SPLITS = Arithmetic::PARTS > 1;
    const block_tile block = find_block_tile(layer, 1);
    const shared_layout shared = find_shared<N_TILES>(layer);
    fill_shared<typename Arithmetic::Element, N_TILES>(layer, block, shared);
    if (SPLITS && *static_cast<const int *>(layer.weights) != 0)
        main_loop<Arithmetic, N_TILES, nhwc, SPLITS>(layer, block, shared);
    else
        main_loop<Arithmetic, N_TILES, nhwc, false>(layer, block, shared);
}

template <class Arithmetic, bool nhwc, int... numbers>
const void *find_kernel(int n_tiles, std::integer_sequence<int, numbers...>)
{
    const void *const kernels[] = {(const void *)multiply_and_gather<Arithmetic, mma_n_tiles(numbers), nhwc>...};
    int number = 0;
    while (mma_n_tiles(number) != n_tiles)
        number++;
    return kernels[number];
}

} // namespace

const void *tconv_col2im_mma_kernel(numerics kind, bool nhwc, int n_tiles)
{
    return find_by_numerics<strict_arithmetic, tf32_arithmetic, half_arithmetic<__half>,
                            half_arithmetic<__nv_bfloat16>>(kind, [=](auto arithmetic) {
        using Arithmetic = decltype(arithmetic);
        constexpr std::make_integer_sequence<int, MMA_KERNELS> numbers = {};
        return nhwc ? find_kernel<Arithmetic, true>(n_tiles, numbers)
                    : find_kernel<Arithmetic, false>(n_tiles, numbers);
    });
}

} // namespace tconv::col2im
