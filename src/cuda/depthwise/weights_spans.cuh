/*
 * The kernel of the gradient of weights by spans (weights_spans.c). A warp has a group of taps: a few kernel rows that read
 * the same rows of dst, and a chunk of the taps of each. A thread walks down a run of rows of dst with a span of neighbouring
 * input columns. At each step it loads the window of outputs that the span's taps reach, and one more row of inputs; the
 * window meets the last few rows of inputs, each by another kernel row. All are in registers.
 *
 * Outputs and inputs that do not exist are zeros, which add nothing to finite factors. A sum that is not a number may be one
 * of zero times infinity: then the round is summed again without them.
 */
#ifndef TCONV_CUDA_DEPTHWISE_WEIGHTS_SPANS_CUH
#define TCONV_CUDA_DEPTHWISE_WEIGHTS_SPANS_CUH

#include "../numeric/divisor.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "kernels.h"
#include "weights_spans_parameters.h"

namespace tconv::depthwise::weight_spans
{

template <int stride> constexpr int span_inputs_of = span_inputs(stride);
template <int taps> constexpr int most_rows_of = most_rows(taps);

/* A group of taps: kernel rows kernel_step apart, and columns. */
struct tap_group {
    int out;         /* output channel */
    int row, rows;   /* the first kernel row, and how many; none where rows is not above 0 */
    int column;      /* the kernel column of tap 0, which may be before the kernel */
    int first, last; /* taps of a row that the group has: from first to before last */
};

__device__ __forceinline__ tap_group find_group(const span_parameters &p, int number)
{
    const int out = number % p.group_out, chunk = number / p.group_out % p.chunks;
    const int of_rows = number / p.group_out / p.chunks;
    const int row = of_rows % p.classes + of_rows / p.classes * p.group_rows * p.kernel_step;
    const int column = chunk * p.chunk;
    const int left = number < p.groups ? (p.rows.kernel - row + p.kernel_step - 1) / p.kernel_step : 0;
    return {out,
            row,
            min(left, p.group_rows),
            column - p.before,
            p.before,
            p.before + min(p.chunk, p.columns.kernel - column)};
}

/* A span of columns in a run of rows. Step q of a walk is its input row number q, and the row of dst that the first kernel
 * row takes there; steps past the last input row are for the other kernel rows. */
template <class Element> struct task {
    const Element *src, *dst; /* the first row of the walk, column 0; row 0, column 0 */
    int column, x;            /* of the first input; of the output that tap 0 takes it to */
    int first, last, rows;    /* steps: from first to before last; input rows of the walk */
    int y;                    /* row of dst of step 0 */
};

template <class Element, int inputs>
__device__ __forceinline__ task<Element> find_task(const span_parameters &p, const tap_group &taps, int channel,
                                                   int number)
{
    const quotient by_span = divide(number, p.spans), by_run = divide(by_span.whole, p.runs);
    const quotient walk = divide(by_run.whole, p.walks);
    task<Element> made;
    made.column = by_span.rest * inputs;
    made.x = p.columns.stride * made.column + taps.column - p.columns.pad;
    made.rows = p.walk_rows + (walk.rest < p.longer ? 1 : 0);
    made.first = by_run.rest * p.run_steps;
    made.last = min(made.first + p.run_steps, made.rows + taps.rows - 1);
    made.y = p.rows.stride * walk.rest + p.rows.dilation * taps.row - p.rows.pad;
    made.src = static_cast<const Element *>(p.src) + walk.whole * p.src_strides.n + channel * p.src_strides.c +
               walk.rest * p.src_row;
    made.dst = static_cast<const Element *>(p.diff_dst) + walk.whole * p.dst_strides.n +
               (channel * p.group_out + taps.out) * p.dst_strides.c;
    return made;
}

/* Loads elements that are so many bytes apart, from the one of column x on; zeros where they are not in the line if the line
 * may end among them. */
template <bool inside, class Element, int count>
__device__ __forceinline__ void load_elements(const char *from, int x, int columns, int64_t apart,
                                              Element (&read)[count])
{
#pragma unroll
    for (int i = 0; i < count; i++) {
        read[i] = inside || (unsigned)(x + i) < (unsigned)columns ? __ldg((const Element *)from) : Element(0.0f);
        from += apart;
        asm volatile("" : "+l"(from)); /* or each address is computed from the first, in more instructions */
    }
}

/* Loads values from column x of a line on: zeros where they are not in it. By vectors x and the line's length are multiples
 * of vectors, and the line begins at one; else neighbours are `stride` elements apart. Threads that have channels have the
 * same x. */
template <int threads, class Element, int count>
__device__ __forceinline__ void load_line(const Element *line, int x, int columns, int stride, float (&values)[count])
{
    if constexpr (threads == VECTOR_TASKS) {
        using vector = element_vector<Element, SPAN_VECTOR>;
        constexpr int VECTORS = (count + SPAN_VECTOR - 1) / SPAN_VECTOR;
        vector read[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int at = x + i * SPAN_VECTOR;
            read[i] = {};
            if ((unsigned)at < (unsigned)columns)
                read[i] = *reinterpret_cast<const vector *>(line + at);
        }
#pragma unroll
        for (int i = 0; i < count; i++)
            values[i] = to_compute(read[i / SPAN_VECTOR].at[i % SPAN_VECTOR]);
    } else {
        Element read[count];
        const int64_t apart = stride * (int64_t)sizeof(Element);
        const char *from = reinterpret_cast<const char *>(line) + x * apart;
        if (threads == LANE_CHANNELS && x >= 0 && x + count <= columns)
            load_elements<true>(from, x, columns, apart, read);
        else
            load_elements<false>(from, x, columns, apart, read);
#pragma unroll
        for (int i = 0; i < count; i++)
            values[i] = to_compute(read[i]);
    }
}

/* Adds the products of a window with the last rows of inputs. */
template <int stride, int rows, int inputs, int count, int most, int taps>
__device__ __forceinline__ void add_products(const float (&span)[most][inputs], const float (&window)[count], int first,
                                             int last, float (&sums)[most][taps])
{
    constexpr int SURE = taps == 20 ? 12 : taps - 4; /* taps that every group of this kernel has, but for the first */
    static_assert(rows <= most, "rows of a thread");
#pragma unroll
    for (int t = 0; t < taps; t++) {
        if ((t < SPAN_VECTOR - 1 && t < first) || (t >= SURE && t >= last))
            continue;
#pragma unroll
        for (int i = 0; i < rows; i++) {
            float sum = span[i][0] * window[t];
#pragma unroll
            for (int c = 1; c < inputs; c++)
                sum = fmaf(span[i][c], window[stride * c + t], sum);
            sums[i][t] += sum;
        }
    }
}

/* Adds the products of a task to a thread's sums. */
template <int threads, int stride, class Element, int inputs, int most, int taps>
__device__ __forceinline__ void add_task(const span_parameters &p, const tap_group &group, const task<Element> &of,
                                         float (&sums)[most][taps])
{
    constexpr int COUNT = stride * (inputs - 1) + taps;
    const auto load_inputs = [&](int step, float(&row)[inputs]) {
        load_line<threads>(of.src + step * p.src_step, of.column, (unsigned)step < (unsigned)of.rows ? p.columns.in : 0,
                           p.src_column, row);
    };
    float span[most][inputs] = {};
#pragma unroll
    for (int i = 0; i < most - 1; i++)
        if (i < group.rows - 1)
            load_inputs(of.first - 1 - i, span[i]);
#pragma unroll 1
    for (int step = of.first; step < of.last; step++) {
#pragma unroll
        for (int i = most - 1; i > 0; i--)
#pragma unroll
            for (int c = 0; c < inputs; c++)
                span[i][c] = span[i - 1][c];
        load_inputs(step, span[0]);
        const int y = of.y + p.rows.stride * p.walk_step * step;
        if ((unsigned)y >= (unsigned)p.rows.out)
            continue;
        float window[COUNT];
        load_line<threads>(of.dst + y * p.dst_row, of.x, p.columns.out, p.dst_column, window);
        if (group.rows == 1)
            add_products<stride, 1>(span, window, group.first, group.last, sums);
        else if (group.rows == 2)
            add_products<stride, 2>(span, window, group.first, group.last, sums);
        else if (group.rows == 3)
            add_products<stride, (most < 3 ? most : 3)>(span, window, group.first, group.last, sums);
        else
            add_products<stride, most>(span, window, group.first, group.last, sums);
    }
}

/* Returns the sum of a tap over a task, of the products of outputs and inputs that exist alone, in the order of add_task. */
template <int stride, class Element, int inputs>
__device__ __forceinline__ float sum_existing(const span_parameters &p, const task<Element> &of, int row, int tap,
                                              float sum)
{
#pragma unroll 1
    for (int step = of.first; step < of.last; step++) {
        const int y = of.y + p.rows.stride * p.walk_step * step, input = step - row;
        if ((unsigned)y >= (unsigned)p.rows.out || (unsigned)input >= (unsigned)of.rows)
            continue;
        float part = 0;
#pragma unroll 1
        for (int c = 0; c < inputs; c++) {
            const int x = of.x + stride * c + tap, column = of.column + c;
            if ((unsigned)x < (unsigned)p.columns.out && column < p.columns.in)
                part = fmaf(to_compute(of.src[input * p.src_step + column * p.src_column]),
                            to_compute(of.dst[y * p.dst_row + x * p.dst_column]), part);
        }
        sum += part;
    }
    return sum;
}

/* Sums that a warp's threads have of the same `count` numbers: each step halves the numbers of a thread, so that at the end
 * a lane has the sum of one of them over all lanes. Returns the sum, and the number in `number`, -1 where another lane has
 * it. */
template <int count, int lanes = WARP / 2>
__device__ __forceinline__ double sum_lanes(const double (&values)[count], int lane, int number, int left, int &own)
{
    constexpr int HALF = (count + 1) / 2;
    const bool upper = (lane & lanes) != 0;
    double kept[HALF];
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const double high = i + HALF < count ? values[i + HALF] : 0;
        kept[i] = count == 1 ? values[0] : upper ? high : values[i];
        kept[i] += __shfl_xor_sync(0xffffffff, count == 1 ? values[0] : upper ? values[i] : high, lanes);
    }
    number += upper ? HALF : 0;
    left = upper ? left - HALF : min(left, HALF);
    if constexpr (lanes > 1)
        return sum_lanes<HALF, lanes / 2>(kept, lane, number, left, own);
    own = left > 0 ? number : -1;
    static_assert(lanes > 1 || HALF == 1, "a lane has one sum at the end");
    return kept[0];
}

/* Where a warp has its sums of taps in double: [kernel row][tap], of WARP channels each where lanes have channels. */
template <bool by_lanes, int most, int taps>
__device__ __forceinline__ int find_total(int warp, int row, int tap, int channel)
{
    return ((warp * most + row) * taps + tap) * (by_lanes ? CHANNEL_PITCH : 1) + channel;
}

/* The share of a block: groups of taps from one on, channels from one on, and a part of the tasks. */
struct block_share {
    int group, channel, part;
};

template <bool by_lanes> __device__ __forceinline__ block_share find_share(const span_parameters &p)
{
    int block = (int)blockIdx.x;
    asm volatile("" : "+r"(block)); /* or what follows from it is kept in registers from its first use to its last */
    const int rest = block / p.group_blocks;
    return {block % p.group_blocks * p.block_groups, rest % p.channel_blocks * (by_lanes ? WARP : 1),
            rest / p.channel_blocks};
}

/* Adds a thread's sums of a round to the totals of its warp: of a channel each, or over the warp's threads. */
template <bool by_lanes, int most, int taps>
__device__ __forceinline__ void add_round(const float (&sums)[most][taps], int rows, int warp, int lane, double *totals)
{
#pragma unroll
    for (int row = 0; row < most; row++) {
        if (row >= rows)
            break;
        double wide[taps];
#pragma unroll
        for (int t = 0; t < taps; t++)
            wide[t] = (double)sums[row][t];
        if constexpr (by_lanes) {
#pragma unroll
            for (int t = 0; t < taps; t++)
                totals[find_total<by_lanes, most, taps>(warp, row, t, lane)] += wide[t];
        } else {
            int tap = 0;
            const double sum = sum_lanes(wide, lane, 0, taps, tap);
            if (tap >= 0)
                totals[find_total<by_lanes, most, taps>(warp, row, tap, 0)] += sum;
        }
    }
}

/* Adds up the totals of the sets of warps, in order, as sums of a slice. */
template <bool by_lanes, int most, int taps>
__device__ __forceinline__ void store_slice(const span_parameters &p, const double *totals)
{
    const block_share share = find_share<by_lanes>(p);
    const int width = by_lanes ? WARP : 1, pairs = p.rows.kernel * p.columns.kernel * p.group_out;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.block_groups * width * most * taps; i += (int)blockDim.x) {
        const int tap = i % taps, row = i / taps % most, lane = i / taps / most % width;
        const int number = i / taps / most / width, channel = share.channel + lane;
        const tap_group group = find_group(p, share.group + number);
        if (row >= group.rows || tap < group.first || tap >= group.last || channel >= p.channels)
            continue;
        double sum = 0;
        for (int set = 0; set < p.sets; set++)
            sum += totals[find_total<by_lanes, most, taps>(set * p.block_groups + number, row, tap, lane)];
        const int at = (group.row + row * p.kernel_step) * p.columns.kernel + group.column + tap;
        p.slices[((int64_t)share.part * p.channels + channel) * pairs + at * p.group_out + group.out] = sum;
    }
}

template <class Element, int threads, int stride, int taps>
__global__ void __launch_bounds__(MAX_SPAN_THREADS, RESIDENT_THREADS / MAX_SPAN_THREADS)
    sum_spans(const __grid_constant__ span_parameters p)
{
    constexpr int inputs = span_inputs_of<stride>, most = most_rows_of<taps>;
    extern __shared__ double totals[];
    constexpr bool by_lanes = threads == LANE_CHANNELS;
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, set = warp / p.block_groups;
    const block_share share = find_share<by_lanes>(p);
    const tap_group group = find_group(p, share.group + warp % p.block_groups);
    const int channel = share.channel + (by_lanes ? lane : 0), own = by_lanes ? set : set * WARP + lane;
    const int end = min((share.part + 1) * p.part_tasks, p.tasks), round = p.round_tasks * p.task_step;
    const auto find = [&](int number) { return find_task<Element, inputs>(p, group, channel, number); };
    launch_dependents(); /* what adds slices */
    for (int i = by_lanes ? 0 : lane; i < most * taps; i += by_lanes ? 1 : WARP)
        totals[find_total<by_lanes, most, taps>(warp, 0, i, by_lanes ? lane : 0)] = 0;
    __syncwarp();
#pragma unroll 1
    for (int first = share.part * p.part_tasks; first < end && group.rows > 0; first += round) {
        const int round_end = channel < p.channels ? min(end, first + round) : 0;
        float sums[most][taps] = {};
#pragma unroll 1
        for (int number = first + own; number < round_end; number += p.task_step)
            add_task<threads, stride, Element, inputs>(p, group, find(number), sums);
        bool are_numbers = true;
#pragma unroll
        for (int i = 0; i < most * taps; i++)
            are_numbers = are_numbers && sums[i / taps][i % taps] == sums[i / taps][i % taps];
        if (by_lanes ? are_numbers : __all_sync(0xffffffff, are_numbers) != 0) {
            add_round<by_lanes>(sums, group.rows, warp, lane, totals);
        } else {
#pragma unroll 1
            for (int i = group.first; i < group.rows * taps; i++) {
                float sum = 0;
#pragma unroll 1
                for (int number = first + own; number < round_end && i % taps < group.last; number += p.task_step)
                    sum = sum_existing<stride, Element, inputs>(p, find(number), i / taps, i % taps, sum);
                double whole = (double)sum;
                for (int lanes = WARP / 2; lanes > 0 && !by_lanes; lanes /= 2)
                    whole += __shfl_xor_sync(0xffffffff, whole, lanes);
                if (by_lanes || lane == 0)
                    totals[find_total<by_lanes, most, taps>(warp, 0, i, by_lanes ? lane : 0)] += whole;
            }
        }
        __syncwarp();
    }
    __syncthreads();
    store_slice<by_lanes, most, taps>(p, totals);
}

template <class Element, int threads, int stride> const void *find_kernel(int taps)
{
    return taps <= 4    ? (const void *)sum_spans<Element, threads, stride, 4>
           : taps <= 8  ? (const void *)sum_spans<Element, threads, stride, 8>
           : taps <= 12 ? (const void *)sum_spans<Element, threads, stride, 12>
                        : (const void *)sum_spans<Element, threads, stride, 20>;
}

template <class Element, int threads> const void *find_kernel(int stride, int taps)
{
    return stride == 1   ? find_kernel<Element, threads, 1>(taps)
           : stride == 2 ? find_kernel<Element, threads, 2>(taps)
                         : find_kernel<Element, threads, 4>(taps);
}

template <class Element> const void *find_kernel(int threads, int stride, int taps)
{
    return threads == VECTOR_TASKS    ? find_kernel<Element, VECTOR_TASKS>(stride, taps)
           : threads == ELEMENT_TASKS ? find_kernel<Element, ELEMENT_TASKS>(stride, taps)
                                      : find_kernel<Element, LANE_CHANNELS>(stride, taps);
}

/* Those of 16 bits are compiled in files of their own. */
extern template const void *find_kernel<__half>(int threads, int stride, int taps);
extern template const void *find_kernel<__nv_bfloat16>(int threads, int stride, int taps);

} // namespace tconv::depthwise::weight_spans

#endif
