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
 *     pack_place place_of(unsigned strip)
 *     pack_run run_of(const pack_place &place, int planes, int run)
 */
#ifndef TCONV_CUDA_PACK_BOXES_CUH
#define TCONV_CUDA_PACK_BOXES_CUH

#include "../../core/checked.h"
#include "../../core/impl.h"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "../runtime/launch.h"

namespace tconv
{

constexpr int PACK_THREADS = 256;              /* of a thread block */
constexpr int PACK_CORE_BYTES = 16;            /* bytes of K of a core (PTX ISA, core matrix) */
constexpr int PACK_M = 64;                     /* rows from a core of a step to the other: M of wgmma (PTX ISA) */
constexpr int PACK_RUNS = 128;                 /* runs that are found at a time, by as many threads */
constexpr int64_t PACK_MOST_BYTES = 32 * 1024; /* bytes of a box, at most */
constexpr int64_t PACK_BYTES = 16 * 1024;      /* bytes of a box with more than one core, at most */
constexpr int64_t PACK_LEAST_BOXES = 256;      /* boxes are not made larger where there would be fewer */
constexpr int PACK_LEAST_ROWS = 8;             /* of a box in shared memory */

/* Divides numbers below 2^16 by one below 2^16. */
struct pack_divisor {
    unsigned by;
    uint64_t inverse; /* 2^32 / by, rounded up */
    __device__ __forceinline__ unsigned quotient(unsigned number) const
    {
        return (unsigned)(number * inverse >> 32);
    }
};

struct pack_boxes {
    tconv_weight_strides from;
    int group_in;                /* input channels of a channel group */
    int group_out;               /* rows of M of a channel group: output channels, by outputs of each */
    int outputs;                 /* of one channel, each with weights of its own (igemm::layer_view); else 1 */
    int out_columns;             /* columns that these outputs have */
    int64_t output_rows_step;    /* elements from an output's weights to those of the one a row below */
    int64_t output_columns_step; /* elements from an output's weights to those of the one a column beside */
    int diagonal_in;             /* fused groups, whose weights are block-diagonal: input channels of each; else 0 */
    int diagonal_out;            /* output channels of each; else 0 */

    int elements;         /* of the kernel that a box has, by rows */
    int first_element;    /* the first of them */
    int rows_log2;        /* of a box */
    int cores_log2;       /* of a box */
    int row_parts_log2;   /* boxes of a strip along M */
    int core_parts_log2;  /* boxes of a strip along K */
    int k_block_cores;    /* of a K-block */
    int step_rows;        /* packed rows from a step to the next */
    int runs;             /* of a box */
    int core_step;        /* packed rows from a core of a step to the other: PACK_M if not said otherwise */
    unsigned count;       /* of boxes: the packed weights of so many that this overflows would fit no device */
    bool in_shared;       /* boxes are read through shared memory */
    bool kernel_inside;   /* elements lie closer than rows of M */
    pack_divisor inner;   /* elements or rows of a box, whichever lie closer */
    pack_divisor channel; /* weights of an input channel of a box */
    int row_pitch;        /* elements in shared memory from a row to the next */
    int element_pitch;    /* likewise from a kernel element */
    int channel_pitch;    /* likewise from an input channel, with gaps */
};

/* A box: its strip, which the order names, and its begin in that. */
struct pack_place {
    int group;     /* channel group */
    int out;       /* the group's row of M that the strip begins with */
    int k_block;   /* of input channels */
    int block;     /* for the order's own use */
    int warpgroup; /* likewise */
    int core, row; /* of the strip, where the box begins */
    __device__ __forceinline__ int step() const
    {
        return core / 2;
    }
    /* The packed rows before the box in its step. */
    __device__ __forceinline__ int step_row() const
    {
        return core % 2 * PACK_M + row;
    }
};

struct pack_run {
    int64_t at;  /* packed row in the first plane; -1: the run is not of this box */
    int element; /* kernel element of the box; -1: zeros */
};

inline int pack_log2(int64_t power)
{
    int log2 = 0;
    while ((int64_t)1 << log2 < power)
        log2++;
    return log2;
}

/* Chooses the size of boxes, given the members from `from` to out_columns, elements, first_element, step_rows and runs,
 * and the strips: their rows and cores are powers of two. */
inline void pack_choose_boxes(pack_boxes *boxes, int element_size, int64_t strips, int strip_rows, int strip_cores)
{
    const int64_t row_bytes = (int64_t)boxes->elements * PACK_CORE_BYTES;
    int box_rows = strip_rows, cores = 1;
    while (box_rows > PACK_LEAST_ROWS && box_rows * row_bytes > PACK_MOST_BYTES)
        box_rows /= 2;
    boxes->in_shared = box_rows * row_bytes <= PACK_MOST_BYTES;
    if (!boxes->in_shared)
        box_rows = strip_rows;
    int64_t count = strips * (strip_rows / box_rows) * strip_cores;
    while (cores < strip_cores && 2 * cores * box_rows * row_bytes <= PACK_BYTES && count / 2 >= PACK_LEAST_BOXES) {
        cores *= 2;
        count /= 2;
    }
    boxes->count = (unsigned)count;
    boxes->rows_log2 = pack_log2(box_rows);
    boxes->cores_log2 = pack_log2(cores);
    boxes->row_parts_log2 = pack_log2(strip_rows / box_rows);
    boxes->core_parts_log2 = pack_log2(strip_cores / cores);
    boxes->k_block_cores = strip_cores;
    boxes->core_step = PACK_M;
    boxes->kernel_inside = boxes->from.w < boxes->from.out;
    boxes->row_pitch = boxes->kernel_inside ? boxes->elements : 1;
    boxes->element_pitch = boxes->kernel_inside ? 1 : box_rows;
    boxes->inner.by = (unsigned)(boxes->kernel_inside ? boxes->elements : box_rows);
    boxes->channel.by = (unsigned)(box_rows * boxes->elements);
    boxes->inner.inverse = tconv_ceil_div((int64_t)1 << 32, boxes->inner.by);
    boxes->channel.inverse = tconv_ceil_div((int64_t)1 << 32, boxes->channel.by);
    boxes->channel_pitch = (int)boxes->channel.by + (int)boxes->channel.by * element_size / 128 * (4 / element_size);
}

/* The bytes of dynamic shared memory of a thread block. */
inline int64_t pack_shared_bytes(const pack_boxes *boxes)
{
    return boxes->in_shared ? ((int64_t)boxes->channel_pitch << boxes->cores_log2) * PACK_CORE_BYTES : 0;
}

/* The place of an element of one channel of a box: a gap of one bank follows every 32, so that neither elements nor
 * rows that follow one another meet in a bank. */
template <class Element> __device__ __forceinline__ unsigned with_gaps(unsigned i)
{
    constexpr unsigned SPAN = 128 / (int)sizeof(Element), GAP = 4 / (int)sizeof(Element);
    return i + i / SPAN * GAP;
}

/* The weights of a box as they lie. A channel past the last, of input or output, is zeros. */
template <class Element> struct box_source {
    const Element *from; /* the box's first input channel */
    int in, out;         /* that channel; first row of M */
    int ins, outs;       /* input channels and rows of M that there are */

    __device__ __forceinline__ box_source(const pack_boxes &boxes, const pack_place &place, const Element *weights)
    {
        in = (place.k_block * boxes.k_block_cores + place.core) * (PACK_CORE_BYTES / (int)sizeof(Element));
        out = place.out + place.row;
        ins = boxes.group_in - in;
        outs = boxes.group_out - out;
        from = weights + (place.group * (int64_t)boxes.group_in + in) * boxes.from.in +
               boxes.first_element * boxes.from.w + (is_plain(boxes) ? out * boxes.from.out : 0);
    }

    /* Tells whether rows of M are output channels of a group that is not fused. */
    static __device__ __forceinline__ bool is_plain(const pack_boxes &boxes)
    {
        return boxes.outputs == 1 && boxes.diagonal_out == 0;
    }

    /* The fused group that a row of M belongs to. */
    __device__ __forceinline__ unsigned diagonal_block(const pack_boxes &boxes, unsigned row) const
    {
        return boxes.diagonal_out == 0 ? 0 : (out + row) / (unsigned)(boxes.outputs * boxes.diagonal_out);
    }

    /* The first weight of a row of M. */
    __device__ __forceinline__ const Element *row_at(const pack_boxes &boxes, unsigned row) const
    {
        if (is_plain(boxes))
            return from + row * boxes.from.out;
        const unsigned in_group =
            out + row - diagonal_block(boxes, row) * (unsigned)(boxes.outputs * boxes.diagonal_out);
        const unsigned channel = in_group / boxes.outputs, output = in_group - channel * boxes.outputs;
        const unsigned row_of = output / boxes.out_columns, column = output - row_of * boxes.out_columns;
        return from + channel * boxes.from.out + row_of * boxes.output_rows_step + column * boxes.output_columns_step;
    }

    __device__ __forceinline__ element_vector<Element, PACK_CORE_BYTES / (int)sizeof(Element)>
    core_row_at(const pack_boxes &boxes, unsigned core, unsigned row, unsigned element) const
    {
        constexpr int CHANNELS = PACK_CORE_BYTES / (int)sizeof(Element);
        const unsigned before = core * CHANNELS;
        int first = 0, end = (int)row < outs ? ins - (int)before : 0; /* channels that have a weight */
        if (boxes.diagonal_in > 0) {
            first = (int)diagonal_block(boxes, row) * boxes.diagonal_in - (in + (int)before);
            end = min(end, first + boxes.diagonal_in);
        }
        const Element *source = row_at(boxes, row) + before * boxes.from.in + element * boxes.from.w;
        element_vector<Element, CHANNELS> values;
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
            values.at[i] = i >= first && i < end ? *source : from_compute<Element>(0);
            source += boxes.from.in;
        }
        return values;
    }
};

template <class Element>
__device__ __forceinline__ void read_box(const pack_boxes &boxes, const box_source<Element> &source, Element *box)
{
    constexpr int CHANNELS = PACK_CORE_BYTES / (int)sizeof(Element);
    const unsigned items = boxes.channel.by << boxes.cores_log2;
    for (unsigned item = threadIdx.x; item < items; item += PACK_THREADS) {
        const unsigned core = boxes.channel.quotient(item), at = item - core * boxes.channel.by;
        const unsigned outer = boxes.inner.quotient(at), inner = at - outer * boxes.inner.by;
        const unsigned row = boxes.kernel_inside ? outer : inner, element = boxes.kernel_inside ? inner : outer;
        const auto values = source.core_row_at(boxes, core, row, element);
        Element *to = box + core * CHANNELS * boxes.channel_pitch + with_gaps<Element>(at);
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
            to[i * boxes.channel_pitch] = values.at[i];
    }
}

template <int planes>
__device__ __forceinline__ void store_shared_16(element_vector<float, 4> *to, element_vector<float, 4> values)
{
    element_vector<float, 4> small;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t bits = __float_as_uint(values.at[i]);
        uint32_t parts[2];
        if (planes == 2)
            split_to_tf32(bits, &parts[0], &parts[1]);
        else
            parts[0] = parts[1] = round_to_tf32(bits);
        values.at[i] = __uint_as_float(parts[0]);
        small.at[i] = __uint_as_float(parts[1]);
    }
    *to = values;
    if (planes == 2)
        to[2 * PACK_M] = small;
}
template <int planes, class Half>
__device__ __forceinline__ void store_shared_16(element_vector<Half, 8> *to, const element_vector<Half, 8> &values)
{
    *to = values;
}

template <int planes, class Element>
__device__ __forceinline__ void write_runs(const pack_boxes &boxes, const box_source<Element> &whole,
                                           const Element *box, const pack_run *runs, int count, void *packed)
{
    constexpr int CHANNELS = PACK_CORE_BYTES / (int)sizeof(Element);
    using CoreRow = element_vector<Element, CHANNELS>;
    const int rows = 1 << boxes.rows_log2, cores = 1 << boxes.cores_log2;
    for (int item = (int)threadIdx.x; item < count * cores * rows; item += PACK_THREADS) {
        const int row = item & (rows - 1), core = item >> boxes.rows_log2 & (cores - 1);
        const pack_run run = runs[item >> boxes.rows_log2 >> boxes.cores_log2];
        if (run.at < 0)
            continue;
        CoreRow values;
        if (run.element >= 0 && !boxes.in_shared) {
            values = whole.core_row_at(boxes, core, row, run.element);
        } else {
            const Element *own = box + core * CHANNELS * boxes.channel_pitch +
                                 with_gaps<Element>(row * boxes.row_pitch + max(run.element, 0) * boxes.element_pitch);
#pragma unroll
            for (int i = 0; i < CHANNELS; i++)
                values.at[i] = run.element >= 0 ? own[i * boxes.channel_pitch] : from_compute<Element>(0);
        }
        store_shared_16<planes>(static_cast<CoreRow *>(packed) + run.at + (core >> 1) * (int64_t)boxes.step_rows +
                                    (core & 1) * boxes.core_step + row,
                                values);
    }
}

/* Packs every `step`th box from `first` on. */
template <int planes, class Order, class Element>
__device__ __forceinline__ void pack_every(const Order &order, const pack_boxes &boxes,
                                           const Element *__restrict__ from, void *__restrict__ packed, unsigned first,
                                           unsigned step)
{
    extern __shared__ uint4 shared[];
    __shared__ pack_run runs[PACK_RUNS];
    Element *box = reinterpret_cast<Element *>(shared);
    for (unsigned number = first; number < boxes.count; number += step) {
        unsigned strip = number >> boxes.row_parts_log2;
        pack_place place = order.place_of(strip >> boxes.core_parts_log2);
        place.row = (int)((number & ((1u << boxes.row_parts_log2) - 1)) << boxes.rows_log2);
        place.core = (int)((strip & ((1u << boxes.core_parts_log2) - 1)) << boxes.cores_log2);
        const box_source<Element> source(boxes, place, from);
        if (boxes.in_shared)
            read_box(boxes, source, box);
        for (int before = 0; before < boxes.runs; before += PACK_RUNS) {
            const int count = min(PACK_RUNS, boxes.runs - before);
            for (int run = threadIdx.x; run < count; run += PACK_THREADS)
                runs[run] = order.run_of(place, planes, before + run);
            __syncthreads();
            write_runs<planes>(boxes, source, box, runs, count, packed);
            __syncthreads();
        }
    }
}

template <class Order, class Element, int planes>
__global__ void __launch_bounds__(PACK_THREADS)
    pack_by_boxes(const __grid_constant__ Order order, const __grid_constant__ pack_boxes boxes,
                  const Element *__restrict__ from, void *__restrict__ packed)
{
    launch_dependents();
    pack_every<planes>(order, boxes, from, packed, blockIdx.x, gridDim.x);
}

/* Packs in a launch of its own. The modes are f32 in one plane and in two, f16, bf16. */
template <class Order>
tconv_status pack_launch(const Order *order, const pack_boxes *boxes, int mode, const void *weights, void *packed,
                         void *stream, tconv_issue *issue)
{
    const void *const kernels[] = {
        (const void *)pack_by_boxes<Order, float, 1>, (const void *)pack_by_boxes<Order, float, 2>,
        (const void *)pack_by_boxes<Order, __half, 1>, (const void *)pack_by_boxes<Order, __nv_bfloat16, 1>};
    Order order_copy = *order;
    pack_boxes boxes_copy = *boxes;
    void *arguments[] = {&order_copy, &boxes_copy, &weights, &packed};
    return launch_blocks_shared(kernels[mode], boxes->count, PACK_THREADS, pack_shared_bytes(boxes), arguments, stream,
                                issue);
}

} // namespace tconv

#endif
