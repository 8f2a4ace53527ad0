/*
 * Packs weights as rows of core matrices (16 bytes of input channels each), where output channels that follow one
 * another are rows that follow one another, through shared memory. A core, for short, is 16 bytes of K of some rows,
 * and a step the two cores that one wgmma takes.
 *
 * In the usual layout the weights of one kernel element are kernel_h * kernel_w apart, so that reading them for one
 * packed row after another reads each sector many times. Here a thread block takes a box: all kernel elements of some
 * output channels and cores. It reads them once, as they lie, and writes every run that they belong to: a run is the
 * rows of a box for one kernel element in one place. Kernels too large for shared memory are read where they lie.
 *
 * An order, which each algorithm has one of, says where boxes and runs are. A strip is the boxes of one K-block of
 * input channels and up to 64 output channels:
 *
 *     static constexpr bool FILLS   whether boxes.filling is more than zeros
 *     pack_boxes boxes
 *     pack_strip strip_of(unsigned strip)
 *     pack_run run_of(const pack_strip &strip, int run)
 *
 * Thread blocks of the launch that are not for packing come first:
 *
 *     unsigned other_blocks()
 *     template <class Word> void do_other(unsigned block)
 */
#ifndef TCONV_CUDA_PACK_BOXES_CUH
#define TCONV_CUDA_PACK_BOXES_CUH

#include "../../core/checked.h"
#include "../hardware.h"
#include "../numeric/divisor.cuh"
#include "boxes.h"
#include "convert.cuh"

namespace tconv
{

constexpr int PACK_CORE_BYTES = CORE_ROW_BYTES; /* of K of a core */
constexpr int PACK_M = MMA_M;                   /* rows of a core of a plane */
constexpr int PACK_RUNS = 128;                  /* runs that are found at a time, by as many threads */
constexpr int PACK_BLOCKS = 6;                  /* of a multiprocessor, for which registers are left */

struct pack_strip {
    int group;     /* channel group */
    int out;       /* the group's row of M that the strip begins with */
    int k_block;   /* of input channels */
    int block;     /* for the order's own use */
    int warpgroup; /* likewise */
};

/* The packed rows of a kernel element of a strip. */
struct pack_run {
    int64_t at;  /* the first in the first plane; -1: the run is not of this strip */
    int element; /* kernel element of the box; -1: zeros */
};

/* The place of a weight in shared memory, behind the first of its channel: of weights as they lie. A gap of one bank
 * follows every 32, so that neither elements nor rows that follow one another meet in a bank. */
template <class Word> __device__ __forceinline__ int with_gaps(int i)
{
    constexpr unsigned SPAN = 128 / (int)sizeof(Word), GAP = 4 / (int)sizeof(Word);
    return (int)(i + i / SPAN * GAP);
}

template <class Word> constexpr int CORE_CHANNELS = PACK_CORE_BYTES / (int)sizeof(Word);
/* Core rows that a thread loads before it stores any. */
template <class Word> constexpr int PACK_AT_ONCE = (int)sizeof(Word);

template <class Word> using core_row = element_vector<Word, CORE_CHANNELS<Word>>;

/* A box, and its weights as they lie. A channel past the last, of input or output, is zeros. */
template <class Word> struct pack_box {
    pack_strip strip;
    int core, row;    /* of the strip, where the box begins */
    int in, out;      /* its first input channel and row of M */
    int left;         /* input channels that there are from there on */
    const Word *from; /* that channel's weights; where boxes are plain, those of that row */

    template <class Order> __device__ __forceinline__ pack_box(const Order &order, const Word *weights, unsigned number)
    {
        const pack_boxes &boxes = order.boxes;
        const unsigned first_row = number << boxes.rows_log2,
                       rows = number >> (boxes.strip_rows_log2 - boxes.rows_log2);
        row = (int)(first_row & ((1u << boxes.strip_rows_log2) - 1));
        core = (int)(rows << boxes.cores_log2 & ((1u << boxes.strip_cores_log2) - 1));
        strip = order.strip_of(rows >> (boxes.strip_cores_log2 - boxes.cores_log2));
        in = ((strip.k_block << boxes.strip_cores_log2) + core) * CORE_CHANNELS<Word>;
        out = strip.out + row;
        const quotient plane = divide(strip.group * boxes.planes.group_in + in, boxes.planes.by_channels);
        left = min(boxes.group_in - in, boxes.planes.held - plane.rest);
        from = weights + strip.group * boxes.group_step + plane.whole * boxes.planes.step + plane.rest * boxes.from.in +
               boxes.first_element * boxes.from.w + (boxes.plain ? out * boxes.outer_step : 0);
    }

    /* Reads a core row of the box. */
    template <bool fills>
    __device__ __forceinline__ core_row<Word> read(const pack_boxes &boxes, int of_core, int of_row, int element) const
    {
        const int before = of_core * CORE_CHANNELS<Word>;
        const Word *source = from + before * boxes.from.in + (fills ? 0 : element * boxes.from.w);
        int first = 0, end = out + of_row < boxes.group_out ? left - before : 0; /* those that exist */
        if (boxes.plain) {
            source += of_row * boxes.outer_step;
        } else {
            const quotient fused = divide(out + of_row, boxes.by_diagonal_rows),
                           outer = divide(fused.rest, boxes.by_inner_rows),
                           inner = divide(outer.rest, boxes.by_inner_columns);
            source += fused.whole * boxes.diagonal_step + outer.whole * boxes.outer_step +
                      inner.whole * boxes.inner.row_step + inner.rest * boxes.inner.column_step;
            if constexpr (fills) {
                const quotient at = divide(element, boxes.by_filling_columns);
                source += at.whole * boxes.filling.row_step + at.rest * boxes.from.w;
                if (outer.rest >= boxes.filling.count ||
                    at.rest * boxes.filling.count + outer.rest >= boxes.filling.kernel)
                    end = 0;
            }
            first = fused.whole * boxes.diagonal_in - in - before;
            end = min(end, first + boxes.diagonal_in);
        }
        core_row<Word> values;
#pragma unroll
        for (int i = 0; i < CORE_CHANNELS<Word>; i++) {
            values.at[i] = i >= first && i < end ? *source : 0;
            source += boxes.from.in;
        }
        return values;
    }

    /* Copies the box to shared memory, in the order in which weights lie. What a box has no items for is branched over. */
    template <bool fills> __device__ __forceinline__ void copy(const pack_boxes &boxes, Word *shared) const
    {
        constexpr int AT_ONCE = fills && sizeof(Word) == 2 ? 1 : PACK_AT_ONCE<Word>; /* or registers spill */
        const int items = boxes.by_channel.divisor << boxes.cores_log2;
        for (int before = 0; before < items; before += AT_ONCE * PACK_THREADS) {
            core_row<Word> values[AT_ONCE];
            int to[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                const int first = before + k * PACK_THREADS, item = min(first + (int)threadIdx.x, items - 1);
                if (first >= items)
                    break;
                const quotient of = divide(item, boxes.by_channel), at = divide(of.rest, boxes.by_inner);
                values[k] = read<fills>(boxes, of.whole, boxes.kernel_inside ? at.whole : at.rest,
                                        boxes.kernel_inside ? at.rest : at.whole);
                to[k] = of.whole * CORE_CHANNELS<Word> * boxes.channel_pitch + with_gaps<Word>(of.rest);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                const int first = before + k * PACK_THREADS;
                if (first >= items)
                    break;
                if (first + (int)threadIdx.x < items)
#pragma unroll
                    for (int i = 0; i < CORE_CHANNELS<Word>; i++)
                        shared[to[k] + i * boxes.channel_pitch] = values[k].at[i];
            }
        }
    }
};

/* Reads a core row of a box's copy in shared memory. */
template <class Word>
__device__ __forceinline__ core_row<Word> read_copy(const pack_boxes &boxes, const Word *shared, int core, int row,
                                                    int element)
{
    const int at =
        boxes.kernel_inside ? row * boxes.by_inner.divisor + element : element * boxes.by_inner.divisor + row;
    const Word *own = shared + core * CORE_CHANNELS<Word> * boxes.channel_pitch + with_gaps<Word>(at);
    core_row<Word> values;
#pragma unroll
    for (int i = 0; i < CORE_CHANNELS<Word>; i++)
        values.at[i] = own[i * boxes.channel_pitch];
    return values;
}

template <int planes, class Order, class Word>
__device__ __forceinline__ void write_runs(const Order &order, const pack_box<Word> &box, const Word *shared,
                                           const pack_run *runs, int count, core_row<Word> *packed)
{
    const pack_boxes &boxes = order.boxes;
    const int rows = 1 << boxes.rows_log2, cores = 1 << boxes.cores_log2;
    for (int item = (int)threadIdx.x; item < count * cores * rows; item += PACK_THREADS) {
        const int row = item & (rows - 1), core = item >> boxes.rows_log2 & (cores - 1);
        const pack_run run = runs[item >> boxes.rows_log2 >> boxes.cores_log2];
        if (run.at < 0)
            continue;
        core_row<Word> values = {};
        if (run.element >= 0)
            values = boxes.in_shared ? read_copy(boxes, shared, core, row, run.element)
                                     : box.template read<Order::FILLS>(boxes, core, row, run.element);
        const int of_strip = box.core + core;
        store_planes<planes>(order,
                             packed + run.at + (of_strip >> 1) * (int64_t)boxes.step_rows +
                                 (of_strip & 1) * boxes.core_step + box.row + row,
                             2 * PACK_M, values);
    }
}

template <class Order, class Word, int planes>
__global__ void __launch_bounds__(PACK_THREADS, PACK_BLOCKS)
    pack_by_boxes(const __grid_constant__ Order order, const void *__restrict__ weights, void *__restrict__ packed)
{
    extern __shared__ uint4 shared[];
    __shared__ pack_run runs[PACK_RUNS];
    const unsigned others = order.other_blocks();
    Word *copy = reinterpret_cast<Word *>(shared);
    launch_dependents();
    if (blockIdx.x < others) {
        order.template do_other<Word>(blockIdx.x);
        return;
    }
    for (unsigned number = blockIdx.x - others; number < order.boxes.count; number += gridDim.x - others) {
        const pack_box<Word> box(order, static_cast<const Word *>(weights), number);
        for (int before = 0; before < order.boxes.runs; before += PACK_RUNS) {
            const int count = min(PACK_RUNS, (int)order.boxes.runs - before);
            if ((int)threadIdx.x < count)
                runs[threadIdx.x] = order.run_of(box.strip, before + (int)threadIdx.x);
            if (before == 0 && order.boxes.in_shared)
                box.template copy<Order::FILLS>(order.boxes, copy);
            __syncthreads();
            write_runs<planes>(order, box, copy, runs, count, static_cast<core_row<Word> *>(packed));
            __syncthreads();
        }
    }
}

/* Packs in one launch, whose other thread blocks need so many bytes of shared memory. */
template <class Order>
tconv_status launch_boxes(const Order &order, size_t element_size, int planes, int64_t other_shared_bytes,
                          const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    const packing_kernel<Order> kernel = element_size == 2 ? pack_by_boxes<Order, uint16_t, 1>
                                         : planes == 2     ? pack_by_boxes<Order, uint32_t, 2>
                                                           : pack_by_boxes<Order, uint32_t, 1>;
    const int64_t copy_bytes = ((int64_t)order.boxes.channel_pitch << order.boxes.cores_log2) * PACK_CORE_BYTES;
    return launch_order(kernel, order, (int64_t)order.other_blocks() + order.boxes.count,
                        tconv_max(copy_bytes, other_shared_bytes), weights, packed, stream, issue);
}

} // namespace tconv

#endif
