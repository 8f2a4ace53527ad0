/*
 * The stencil kernels share the walk of one thread down the rows of a row phase. The weights of its outputs of a row
 * stay in registers, and so do the values that a row's taps take, which become those of the next row's next tap.
 *
 * A Columns says which outputs of a row a thread has, LENGTH of them, and what they take along a row of src:
 *
 *     load(x, values)                     the VALUES values of all their taps, from a row of src
 *     load_weights(layer, row, weights)   the WEIGHTS weights of all their taps in a kernel row; zero for a missing one
 *     has(tap, output)                    whether an output may have the tap, known to the compiler
 *     value(tap, output)                  which value an output's tap is, likewise; zero for a missing one
 *     weight(tap, output)                 which weight, likewise
 *     CHANNELS                            of a row's outputs: one, or one for each
 *     channel(layer, i)                   channel i of these, where post-ops ask for it
 *     store(layer, dst, sums)
 *     AHEAD                               the rows by which values are loaded before they are used: 1 hides the latency
 *                                         of global memory
 *     ZERO_ROWS                           whether rows outside src are there as zeros, so that no row is asked for
 *
 * Numeric order: from the bias, fused multiply-adds over the kernel rows' taps, then the columns'; then the post-ops.
 */
#ifndef TCONV_CUDA_DEPTHWISE_WALK_CUH
#define TCONV_CUDA_DEPTHWISE_WALK_CUH

#include "../epilogue/affine.cuh"
#include "../epilogue/finish.cuh"
#include "../numeric/divisor.cuh"
#include "../ptx/memory.cuh"
#include "forward_parameters.h"

namespace tconv::depthwise::forward
{

/* Some rows of one row phase; rows are counted in quotients (row / stride). */
struct part {
    int residue, first, end;
};

__device__ __forceinline__ int quotients_of(const parameters &layer, int residue)
{
    return divide(layer.rows.out - residue + layer.rows.stride - 1, layer.row_stride).whole;
}

/* Takes outputs of one channel through the layer's post-ops. f64 never has any. */
template <int COUNT, class Compute, class Channel>
__device__ __forceinline__ void run_posts_of_channel(const parameters &layer, Compute (&sums)[COUNT],
                                                     const Channel &channel)
{
    if constexpr (std::is_same<Compute, float>::value) {
        const auto same = [&](int) { return channel(); };
        run_affine_rounds(layer.posts, sums, read_numbers<1>(layer.posts.rounds[0], same), same);
    }
}

/* What every Columns has. There is a value and a weight for each tap of each output, and outputs are neighbours, unless
 * one says otherwise. numbers: of the first round of post-ops, in kernels for layers that have such. */
template <class Element_, int TAPS_, int LENGTH_, class Value_ = compute_type<Element_>, int CHANNELS_ = 1>
struct row_columns {
    using Element = Element_;
    using Value = Value_;
    static constexpr int TAPS = TAPS_, LENGTH = LENGTH_, VALUES = TAPS * LENGTH, WEIGHTS = VALUES, AHEAD = 0,
                         CHANNELS = CHANNELS_;
    static constexpr bool ZERO_ROWS = false;
    compute_type<Element> bias[LENGTH];
    channel_numbers<CHANNELS> numbers;

    static constexpr __device__ bool has(int, int)
    {
        return true;
    }
    static constexpr __device__ int value(int tap, int output)
    {
        return tap * LENGTH + output;
    }
    static constexpr __device__ int weight(int tap, int output)
    {
        return tap * LENGTH + output;
    }

    /* Stores the outputs, which are neighbours, at once. */
    static __device__ __forceinline__ void store_run(Element *dst, const compute_type<Element> (&sums)[LENGTH])
    {
        element_vector<Element, LENGTH> outputs;
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            outputs.at[i] = finish_total<Element>(sums[i]);
        if (sizeof outputs == ACCESS_BYTES)
            store_streaming(dst, &outputs);
        else
            *reinterpret_cast<element_vector<Element, LENGTH> *>(dst) = outputs;
    }
    __device__ __forceinline__ void store(const parameters &, Element *dst,
                                          const compute_type<Element> (&sums)[LENGTH]) const
    {
        store_run(dst, sums);
    }
};

/* x and dst: the rows of tap 0 and of the output that belong to part.first. all_taps: the row phase has as many taps as
 * the kernel is for. has_posts: the layer has post-ops, for which other kernels have no registers to spare. */
template <bool has_posts, bool all_taps = false, class Columns, class Pitch>
__device__ __forceinline__ void walk(const parameters &layer, const part &part, const Columns &columns,
                                     const typename Columns::Element *x, Pitch pitch, typename Columns::Element *dst)
{
    using Compute = compute_type<typename Columns::Element>;
    if (!Columns::ZERO_ROWS && part.first >= part.end)
        return; /* x may then be outside what there is */
    constexpr int TAPS = Columns::TAPS, LENGTH = Columns::LENGTH, AHEAD = Columns::AHEAD, ROWS = TAPS + AHEAD;
    const int taps = all_taps ? TAPS : layer.rows.taps[part.residue];
    int src_row = part.first + layer.rows.first_shift[part.residue];
    Compute weights[TAPS][Columns::WEIGHTS];
    typename Columns::Value values[ROWS][Columns::VALUES];
    unsigned in[TAPS]; /* rows of src, none for a tap that this phase does not have */
#pragma unroll
    for (int a = 0; a < TAPS; a++)
        in[a] = a < taps ? (unsigned)layer.rows.in : 0;
    const auto has_row = [&](int tap) { return Columns::ZERO_ROWS ? tap < taps : (unsigned)(src_row - tap) < in[tap]; };
#pragma unroll
    for (int a = 0; a < TAPS; a++) {
        if (a < taps)
            columns.load_weights(layer, layer.rows.first_kernel[part.residue] + a * layer.rows.kernel_step, weights[a]);
        if (a + AHEAD > 0 && has_row(a))
            columns.load(x - a * pitch, values[(ROWS - a) % ROWS]);
    }

    const int64_t dst_step = layer.rows.stride * layer.dst_strides.h;
    /* Tap a of the row that is j past a multiple of ROWS is in values[(j - a) mod ROWS]. */
    for (int q = part.first; q < part.end; q += ROWS) {
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            if (q + j >= part.end)
                break;
            if (AHEAD == 0 ? Columns::ZERO_ROWS || has_row(0) : (unsigned)(src_row + 1) < in[0] && q + j + 1 < part.end)
                columns.load(x + AHEAD * pitch, values[(j + AHEAD) % ROWS]);
            Compute sums[LENGTH];
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                sums[i] = columns.bias[i];
#pragma unroll
            for (int a = 0; a < TAPS; a++) {
                if (!has_row(a))
                    continue;
#pragma unroll
                for (int t = 0; t < TAPS; t++)
#pragma unroll
                    for (int i = 0; i < LENGTH; i++)
                        if (Columns::has(t, i))
                            sums[i] = fma(weights[a][Columns::weight(t, i)],
                                          to_compute(values[(j - a + ROWS) % ROWS][Columns::value(t, i)]), sums[i]);
            }
            if constexpr (has_posts)
                run_affine_rounds(layer.posts, sums, columns.numbers, [&](int i) { return columns.channel(layer, i); });
            columns.store(layer, dst, sums);
            if (!Columns::ZERO_ROWS)
                src_row++;
            x += pitch;
            dst += dst_step;
        }
    }
}

} // namespace tconv::depthwise::forward

#endif
