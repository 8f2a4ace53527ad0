/*
 * Writes the outputs without a tap: where stride and dilation share a factor, or the stride exceeds the kernel's reach,
 * some residues of rows or columns have no phase, and their outputs are the bias.
 *
 * A block takes up to MAX_ROWS output rows of one plane (an image and channel in NCHW, an image in NHWC) and a stretch
 * along them. Whether a row or a column belongs to a phase is looked up once for each, not for each output. In NHWC a
 * thread stores 16 bytes of channels at once where they lie so.
 */
#include <cstdint>

#include "../../core/checked.h"
#include "../model/planned.h"
#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

namespace tconv::general
{

namespace
{

using VECTOR_BYTES;

constexpr int THREADS = 256;
constexpr int MAX_ROWS = 64; /* rows of a tile: enough that finding a tile is cheap beside writing its outputs */
constexpr int BLOCKS = 4;    /* of a multiprocessor that there should be, by tiles of fewer rows */

constexpr int MAX_REPEATS = 16; /* of a thread along a row: as many as keep tiles enough for all multiprocessors */

constexpr int64_t MASK_STRIDE = 64; /* the longest stride whose residues fit in a mask */

/* The outputs, cut into tiles whose elements along a row are neighbours: columns in NCHW; in NHWC columns and channels,
 * or vectors of these. */
struct outputs {
    device_axis rows, columns;      /* phases are sorted by residue */
    uint64_t row_mask, column_mask; /* of the residues that have a phase, where the stride is at most MASK_STRIDE */
    const void *bias;               /* or NULL */
    void *dst;
    tconv_strides strides;
    bool nhwc;
    int lanes_log2;         /* threads along a row */
    int rows_log2;          /* output rows of a tile */
    int repeats;            /* elements of a row that a thread writes, where there are few rows: lanes apart */
    int64_t plane_channels; /* single channels, or vectors of them */
    int64_t row_length, row_tiles, stretches, tiles;
};

/* Says whether the outputs of a residue have a phase: by the mask, since each step of a search waits for memory. */
__device__ bool has_phase(const device_axis &axis, uint64_t mask, int64_t output)
{
    if (axis.stride <= MASK_STRIDE) {
        const int64_t residue = output - divide(output, axis.stride) * axis.stride;
        return (mask >> residue & 1) != 0;
    }
    const int64_t residue = (int64_t)((uint64_t)output % (uint64_t)axis.stride);
    int64_t low = 0, high = axis.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (axis.phases[middle].residue < residue)
            low = middle + 1;
        else
            high = middle;
    }
    return low < axis.count && axis.phases[low].residue == residue;
}

/* Writes an element of a row, in all rows of the tile. */
template <class Element, int count>
__device__ __forceinline__ void fill_column(const outputs &layer, int64_t plane, int64_t row_tile, int64_t element,
                                            const bool (&row_has_phase)[MAX_ROWS])
{
    const bool nhwc = layer.nhwc;
    const int64_t column = nhwc ? divide(element, layer.plane_channels) : element;
    const int64_t image = nhwc ? plane : divide(plane, layer.plane_channels);
    const int64_t channel =
        nhwc ? (element - column * layer.plane_channels) * count : plane - image * layer.plane_channels;
    const bool column_has_phase = has_phase(layer.columns, layer.column_mask, column);
    element_vector<Element, count> value;
    for (int i = 0; i < count; i++)
        value.at[i] =
            layer.bias != NULL ? static_cast<const Element *>(layer.bias)[channel + i] : from_compute<Element>(0);
    Element *dst = static_cast<Element *>(layer.dst) + image * layer.strides.n + channel * layer.strides.c +
                   (row_tile << layer.rows_log2) * layer.strides.h + column * layer.strides.w;
    const int rows = (int)min((int64_t)1 << layer.rows_log2, layer.rows.out - (row_tile << layer.rows_log2));
    for (int row = (int)threadIdx.x >> layer.lanes_log2; row < rows; row += THREADS >> layer.lanes_log2)
        if (!column_has_phase || !row_has_phase[row])
            *reinterpret_cast<element_vector<Element, count> *>(dst + row * layer.strides.h) = value;
}

template <class Element, int count>
__global__ void __launch_bounds__(THREADS) fill_bias_only_kernel(const __grid_constant__ outputs layer)
{
    __shared__ bool row_has_phase[MAX_ROWS];
    const int lane = (int)threadIdx.x & ((1 << layer.lanes_log2) - 1);
    for (int64_t number = blockIdx.x; number < layer.tiles; number += gridDim.x) {
        const int64_t line = divide(number, layer.stretches), stretch = number - line * layer.stretches;
        const int64_t plane = divide(line, layer.row_tiles), row_tile = line - plane * layer.row_tiles;
        if (threadIdx.x < 1 << layer.rows_log2)
            row_has_phase[threadIdx.x] =
                has_phase(layer.rows, layer.row_mask, (row_tile << layer.rows_log2) + threadIdx.x);
        __syncthreads();
        for (int i = 0; i < layer.repeats; i++) {
            const int64_t element = ((stretch * layer.repeats + i) << layer.lanes_log2) + lane;
            if (element < layer.row_length)
                fill_column<Element, count>(layer, plane, row_tile, element, row_has_phase);
        }
        __syncthreads();
    }
}

uint64_t mask_of(const tconv_axis *axis, const tconv_phase_table *table)
{
    uint64_t mask = 0;
    for (int64_t i = 0; axis->stride <= MASK_STRIDE && i < table->count; i++)
        mask |= (uint64_t)1 << table->phases[i].residue;
    return mask;
}

template <class Element> const void *kernel_of(bool vectors)
{
    return vectors ? (const void *)fill_bias_only_kernel<Element, VECTOR_BYTES / (int)sizeof(Element)>
                   : (const void *)fill_bias_only_kernel<Element, 1>;
}

} // namespace

tconv_status tconv_general_fill_bias_only(const tconv_layer *layer, const tconv_phase *phases,
                                          const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const bool vectors = nhwc && problem->out_channels % vector == 0 && (uintptr_t)arguments->dst % VECTOR_BYTES == 0 &&
                         tconv_cuda_begins_at_multiples(problem, &problem->dst, vector);
    outputs made = {};
    made.rows = axis_of(&problem->h, &layer->rows, phases);
    made.columns = axis_of(&problem->w, &layer->columns, phases + layer->rows.count);
    made.row_mask = mask_of(&problem->h, &layer->rows);
    made.column_mask = mask_of(&problem->w, &layer->columns);
    made.bias = arguments->bias;
    made.dst = arguments->dst;
    made.strides = problem->dst;
    made.nhwc = nhwc;
    made.plane_channels = problem->out_channels / (vectors ? vector : 1);
    made.row_length = nhwc ? problem->w.out * made.plane_channels : problem->w.out;
    made.lanes_log2 = log2_at_least(tconv_min(made.row_length, THREADS));
    made.repeats = (int)tconv_max(1, tconv_min(MAX_REPEATS, MAX_ROWS / problem->h.out));
    made.stretches = tconv_ceil_div(made.row_length, (int64_t)made.repeats << made.lanes_log2);
    const int64_t planes = nhwc ? problem->batch : problem->batch * made.plane_channels;
    const int64_t least = (int64_t)BLOCKS * layer->target.multiprocessors;
    for (made.rows_log2 = log2_at_least(MAX_ROWS);; made.rows_log2--) {
        made.row_tiles = ((problem->h.out - 1) >> made.rows_log2) + 1;
        made.tiles = planes * made.row_tiles * made.stretches;
        if (made.tiles >= least || 1 << made.rows_log2 <= THREADS >> made.lanes_log2)
            break; /* so many rows are written side by side anyway */
    }
    void *kernel_arguments[] = {&made};
    const void *kernel =
        with_element(problem->dtype, [=](auto element) { return kernel_of<decltype(element)>(vectors); });
    return tconv_launch_blocks(kernel, made.tiles, THREADS, kernel_arguments, arguments->stream, issue, false);
}

} // namespace tconv::general
