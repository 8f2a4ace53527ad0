/*
 * Outputs of any number of taps. A strip is some outputs of one thread that share what it reads:
 *
 *   rows     outputs of one column and row phase whose rows of src lie a tap's step apart, so that a value which one
 *            output reads for a tap is what the next one reads for the next tap. For each kernel column a thread goes
 *            up the rows of src and keeps the last values in registers.
 *   columns  outputs of one row and column phase, any distance apart, which take the same weights.
 *
 * Numeric order: from the bias, fused multiply-adds over the columns' taps, then the rows'. Sums in f32 of more terms
 * than a segment may have (compensated.cuh) begin at zero in each segment, and segments are added to the bias in order,
 * with compensation. Post-ops follow.
 */
#ifndef TCONV_CUDA_DEPTHWISE_STRIP_CUH
#define TCONV_CUDA_DEPTHWISE_STRIP_CUH

#include "../epilogue/finish.cuh"
#include "../numeric/compensated.cuh"
#include "forward_parameters.h"
#include "walk.cuh"

namespace tconv::depthwise::forward
{

/* What the outputs of a part in one column read. zeros: src comes with zeros around it, so that what is outside need not
 * be asked for. */
template <class Element_, class Weight_, class Offset_, bool zeros> struct strip_view {
    using Element = Element_;
    using Weight = Weight_;
    using Offset = Offset_;
    static constexpr bool ZEROS = zeros;
    const Element *x;      /* tap 0 of both axes of the part's first output */
    const Weight *weights; /* tap 0 of both axes */
    Offset pitch;          /* of x, from a row to the next */
    Offset column_step;    /* of x, from a column's tap to the next */
    Offset weight_column;  /* from a column's tap to the next */
    Offset weight_row;     /* from a row's tap to the next */
    int src_row, src_column, row_taps, column_taps;
};

/* Kernel rows [row, end_row) of kernel columns [column, end_column), by taps. */
struct tap_range {
    int row, end_row, column, end_column;
};

/* A strip of OUTPUTS rows: those of a part from `first` on by the step of the rows' taps; `count`, of the part, exist.
 * checked: a tap outside src is skipped; else its row is there, or is zeros. */
template <class View, int OUTPUTS_, bool checked> struct row_strip {
    static constexpr int OUTPUTS = OUTPUTS_;
    using Compute = compute_type<typename View::Element>;
    const parameters &layer;
    const View &view;
    int first, count;

    __device__ __forceinline__ bool has_row(int row) const
    {
        return !checked || (unsigned)(view.src_row + row) < (unsigned)layer.rows.in;
    }

    /* Adds taps of a kernel column. At a tap that is j past a multiple of OUTPUTS, output i takes
     * values[(i - j) mod OUTPUTS]. */
    template <bool whole>
    __device__ __forceinline__ void add_taps(int taps, int &row, const typename View::Element *&x,
                                             const typename View::Weight *&weight, Compute (&values)[OUTPUTS],
                                             Compute (&sums)[OUTPUTS]) const
    {
        const int step = layer.rows.shift_step;
#pragma unroll
        for (int j = 0; j < OUTPUTS; j++) {
            if (!whole && j >= taps)
                break;
            values[(OUTPUTS - j) % OUTPUTS] = has_row(row) ? to_compute(*x) : Compute(0);
            const Compute factor = to_compute(*weight);
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++)
                if (has_row(row + i * step))
                    sums[i] = fma(factor, values[(i - j + OUTPUTS) % OUTPUTS], sums[i]);
            x -= step * view.pitch;
            weight += view.weight_row;
            if (checked)
                row -= step;
        }
    }

    __device__ __forceinline__ void sum(const tap_range &range, Compute (&sums)[OUTPUTS]) const
    {
        const int step = layer.rows.shift_step, back = range.row * step;
        for (int column = range.column; column < range.end_column; column++) {
            if ((checked || !View::ZEROS) &&
                (unsigned)(view.src_column - column * layer.columns.shift_step) >= (unsigned)layer.columns.in)
                continue;
            int row = first - back;
            const typename View::Element *x = view.x + row * view.pitch - column * view.column_step;
            const typename View::Weight *weight =
                view.weights + column * view.weight_column + range.row * view.weight_row;
            Compute values[OUTPUTS];
#pragma unroll
            for (int i = 1; i < OUTPUTS; i++) {
                const int ahead = min(i * step, count - 1 - first);
                values[i] = has_row(row + ahead) ? to_compute(x[ahead * view.pitch]) : Compute(0);
            }
            int left = range.end_row - range.row;
            if (OUTPUTS > 1)
                for (; left >= OUTPUTS; left -= OUTPUTS)
                    add_taps<true>(OUTPUTS, row, x, weight, values, sums);
            for (; left > 0; left -= OUTPUTS)
                add_taps<false>(left, row, x, weight, values, sums);
        }
    }
};

/* A strip of OUTPUTS columns, whose values lie `distance` apart, all of them within what there is or is zero. */
template <class View, int OUTPUTS_> struct column_strip {
    static constexpr int OUTPUTS = OUTPUTS_;
    using Compute = compute_type<typename View::Element>;
    const View &view;
    const typename View::Element *x; /* of the row */
    int step, distance;              /* step: of the rows' taps */

    __device__ __forceinline__ void sum(const tap_range &range, Compute (&sums)[OUTPUTS]) const
    {
        for (int column = range.column; column < range.end_column; column++) {
            const typename View::Element *from = x - range.row * step * view.pitch - column * view.column_step;
            const typename View::Weight *weight =
                view.weights + column * view.weight_column + range.row * view.weight_row;
            for (int tap = range.row; tap < range.end_row; tap++) {
                const Compute factor = to_compute(*weight);
#pragma unroll
                for (int i = 0; i < OUTPUTS; i++)
                    sums[i] = fma(factor, to_compute(from[i * distance]), sums[i]);
                from -= step * view.pitch;
                weight += view.weight_row;
            }
        }
    }
};

/* Adds all taps; where compensated, by segments, which have whole kernel columns, or a part of one. */
template <bool compensated, class Strip, class View, class Compute, int OUTPUTS>
__device__ __forceinline__ void sum_strip(const Strip &strip, const View &view, Compute (&sums)[OUTPUTS])
{
    if constexpr (!compensated) {
        strip.sum({0, view.row_taps, 0, view.column_taps}, sums);
    } else {
        const int columns = max(1, SEGMENT_TERMS / max(1, view.row_taps));
        float lost[OUTPUTS] = {};
        for (int column = 0; column < view.column_taps; column += columns) {
            for (int row = 0; row < view.row_taps; row += SEGMENT_TERMS) {
                float segment[OUTPUTS] = {};
                strip.sum(
                    {row, min(row + SEGMENT_TERMS, view.row_taps), column, min(column + columns, view.column_taps)},
                    segment);
#pragma unroll
                for (int i = 0; i < OUTPUTS; i++)
                    add_compensated(sums[i], lost[i], segment[i]);
            }
        }
    }
}

/* Computes a part's rows of one column, the first of which goes to dst, by strips of rows. checked: see row_strip.
 * may_have_posts: whether it is asked for post-ops, which ask for channel(). */
template <int OUTPUTS, bool checked, bool compensated, bool may_have_posts, class View, class Channel, class Element>
__device__ __forceinline__ void walk_row_strips(const parameters &layer, const View &view, int count,
                                                compute_type<Element> bias, const Channel &channel, Element *dst)
{
    const int step = layer.rows.shift_step, back = max(view.row_taps - 1, 0) * step;
    const int64_t dst_step = layer.rows.stride * layer.dst_strides.h;
    for (int block = 0; block < count; block += OUTPUTS * step) {
        for (int first = block; first < min(block + step, count); first++) {
            compute_type<Element> sums[OUTPUTS];
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++)
                sums[i] = bias;
            const int last = min(first + (OUTPUTS - 1) * step, count - 1);
            if (checked || (!View::ZEROS && (view.src_row + first - back < 0 || view.src_row + last >= layer.rows.in)))
                sum_strip<compensated>(row_strip<View, OUTPUTS, true>{layer, view, first, count}, view, sums);
            else
                sum_strip<compensated>(row_strip<View, OUTPUTS, false>{layer, view, first, count}, view, sums);
            if (may_have_posts && layer.posts.count > 0)
                run_posts_of_channel(layer, sums, channel);
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++)
                if (first + i * step < count)
                    dst[(first + i * step) * dst_step] = finish_total<Element>(sums[i]);
        }
    }
}

/* Computes a part's rows of OUTPUTS columns by strips of columns, which lie `distance` apart in src and dst_distance in
 * dst; those do not exist that are `left` or more columns from the first. */
template <int OUTPUTS, bool compensated, class View, class Channel, class Element>
__device__ __forceinline__ void walk_column_strips(const parameters &layer, const View &view, int distance, int count,
                                                   compute_type<Element> bias, const Channel &channel, int left,
                                                   int dst_distance, Element *dst)
{
    for (int row = 0; row < count; row++, dst += layer.rows.stride * layer.dst_strides.h) {
        compute_type<Element> sums[OUTPUTS];
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++)
            sums[i] = bias;
        sum_strip<compensated>(
            column_strip<View, OUTPUTS>{view, view.x + row * view.pitch, layer.rows.shift_step, distance}, view, sums);
        if (layer.posts.count > 0)
            run_posts_of_channel(layer, sums, channel);
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++)
            if (i * dst_distance < left)
                dst[i * dst_distance] = finish_total<Element>(sums[i]);
    }
}

} // namespace tconv::depthwise::forward

#endif
