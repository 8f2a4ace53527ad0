/*
 * Writes the outputs without a tap: where stride and dilation share a factor, or the stride exceeds the kernel's reach,
 * some residues of rows or columns have no phase, and their outputs are the bias.
 *
 * A block takes up to ROWS output rows of one plane (an image and channel in NCHW, an image in NHWC) and a stretch
 * along them. Whether a row or a column belongs to a phase is looked up once for each, not for each output. In NHWC a
 * thread stores 16 bytes of channels at once where they lie so.
 */
#include <cstdint>

#include "../../core/checked.h"
#include "../numeric/element.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

namespace tconv::general
{

namespace
{

constexpr int THREADS = 256;
constexpr int ROWS = 64; /* rows of a tile: enough that finding a tile is cheap beside writing its outputs */

constexpr int MAX_REPEATS = 16; /* of a thread along a row: as many as keep tiles enough for all multiprocessors */

constexpr int64_t MASK_STRIDE = 64; /* the longest stride whose residues fit in a mask */

struct axis {
    const tconv_phase *phases; /* on the device, sorted by residue */
    int64_t count, stride, out;
    uint64_t mask; /* of the residues that have a phase, where the stride is no longer than MASK_STRIDE */
};

struct outputs {
    axis rows, columns;
    const void *bias; /* or NULL */
    void *dst;
    tconv_strides strides;
    bool nhwc;
};

/* The outputs are cut into tiles whose elements along a row are neighbours: columns in NCHW; in NHWC columns and
 * channels, or vectors of these. */
struct cut {
    int64_t planes, plane_channels, row_length, row_tiles, stretches, tiles;
    int lanes_log2; /* threads along a row */
    int repeats;    /* elements of a row that a thread writes, where there are few rows: lanes apart */
};

/* Divides numbers that are not negative, in 32 bits where they fit: it takes a third of the time. */
__device__ int64_t divide(int64_t number, int64_t by)
{
    return number <= UINT32_MAX && by <= UINT32_MAX ? (int64_t)((uint32_t)number / (uint32_t)by)
                                                    : (int64_t)((uint64_t)number / (uint64_t)by);
}

/* Says whether the outputs of a residue have a phase: by the mask, since each step of a search waits for memory. */
__device__ bool has_phase(const axis &axis, int64_t output)
{
    if (axis.stride <= MASK_STRIDE) {
        const int64_t residue = output - divide(output, axis.stride) * axis.stride;
        return (axis.mask >> residue & 1) != 0;
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
__device__ __forceinline__ void fill_column(const outputs &layer, const cut &cut, int64_t plane, int64_t row_tile,
                                            int64_t element, const bool (&row_has_phase)[ROWS])
{
    const bool nhwc = layer.nhwc;
    const int64_t column = nhwc ? divide(element, cut.plane_channels) : element;
    const int64_t image = nhwc ? plane : divide(plane, cut.plane_channels);
    const int64_t channel = nhwc ? (element - column * cut.plane_channels) * count : plane - image * cut.plane_channels;
    const bool column_has_phase = has_phase(layer.columns, column);
    element_vector<Element, count> value;
    for (int i = 0; i < count; i++)
        value.at[i] =
            layer.bias != NULL ? static_cast<const Element *>(layer.bias)[channel + i] : from_compute<Element>(0);
    Element *dst = static_cast<Element *>(layer.dst) + image * layer.strides.n + channel * layer.strides.c +
                   row_tile * ROWS * layer.strides.h + column * layer.strides.w;
    const int rows = (int)min((int64_t)ROWS, layer.rows.out - row_tile * ROWS);
    for (int row = (int)threadIdx.x >> cut.lanes_log2; row < rows; row += THREADS >> cut.lanes_log2)
        if (!column_has_phase || !row_has_phase[row])
            *reinterpret_cast<element_vector<Element, count> *>(dst + row * layer.strides.h) = value;
}

template <class Element, int count>
__device__ __forceinline__ void fill_tile(const outputs &layer, const cut &cut, int64_t number,
                                          const bool (&row_has_phase)[ROWS])
{
    const int64_t line = divide(number, cut.stretches), stretch = number - line * cut.stretches;
    const int64_t plane = divide(line, cut.row_tiles), row_tile = line - plane * cut.row_tiles;
    const int lane = (int)threadIdx.x & ((1 << cut.lanes_log2) - 1);
    for (int i = 0; i < cut.repeats; i++) {
        const int64_t element = ((stretch * cut.repeats + i) << cut.lanes_log2) + lane;
        if (element < cut.row_length)
            fill_column<Element, count>(layer, cut, plane, row_tile, element, row_has_phase);
    }
}

template <class Element, int count>
__global__ void __launch_bounds__(THREADS)
    fill_bias_only_kernel(const __grid_constant__ outputs layer, const __grid_constant__ cut cut)
{
    __shared__ bool row_has_phase[ROWS];
    for (int64_t number = blockIdx.x; number < cut.tiles; number += gridDim.x) {
        const int64_t line = divide(number, cut.stretches);
        const int64_t row_tile = line - divide(line, cut.row_tiles) * cut.row_tiles;
        if (threadIdx.x < ROWS)
            row_has_phase[threadIdx.x] = has_phase(layer.rows, row_tile * ROWS + threadIdx.x);
        __syncthreads();
        fill_tile<Element, count>(layer, cut, number, row_has_phase);
        __syncthreads();
    }
}

axis axis_of(const tconv_axis *of, const tconv_phase_table *table, const tconv_phase *phases)
{
    axis made = {phases, table->count, of->stride, of->out, 0};
    for (int64_t i = 0; of->stride <= MASK_STRIDE && i < table->count; i++)
        made.mask |= (uint64_t)1 << table->phases[i].residue;
    return made;
}

/* Says whether the channels of every pixel of dst are whole vectors of so many elements. */
bool are_vectors(const tconv_problem *problem, const void *dst, int64_t count)
{
    const tconv_strides *strides = &problem->dst;
    return problem->layout == TCONV_NHWC && problem->out_channels % count == 0 && strides->n % count == 0 &&
           strides->h % count == 0 && strides->w % count == 0 &&
           (uintptr_t)dst % ((size_t)count * problem->element_size) == 0;
}

} // namespace

tconv_status fill_bias_only(const tconv_layer *layer, const tconv_phase *phases, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    static const struct {
        const void *one, *vector;
        int count;
    } kernels[] = {{(const void *)fill_bias_only_kernel<float, 1>, (const void *)fill_bias_only_kernel<float, 4>, 4},
                   {(const void *)fill_bias_only_kernel<double, 1>, (const void *)fill_bias_only_kernel<double, 2>, 2},
                   {(const void *)fill_bias_only_kernel<__half, 1>, (const void *)fill_bias_only_kernel<__half, 8>, 8},
                   {(const void *)fill_bias_only_kernel<__nv_bfloat16, 1>,
                    (const void *)fill_bias_only_kernel<__nv_bfloat16, 8>, 8}};
    const tconv_problem *problem = &layer->problem;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const bool vectors = are_vectors(problem, arguments->dst, kernels[problem->dtype].count);
    outputs outputs = {};
    outputs.rows = axis_of(&problem->h, &layer->rows, phases);
    outputs.columns = axis_of(&problem->w, &layer->columns, phases + layer->rows.count);
    outputs.bias = arguments->bias;
    outputs.dst = arguments->dst;
    outputs.strides = problem->dst;
    outputs.nhwc = nhwc;
    cut cut = {};
    cut.plane_channels = problem->out_channels / (vectors ? kernels[problem->dtype].count : 1);
    cut.planes = nhwc ? problem->batch : problem->batch * cut.plane_channels;
    cut.row_length = nhwc ? problem->w.out * cut.plane_channels : problem->w.out;
    cut.lanes_log2 = 0;
    while (1 << cut.lanes_log2 < THREADS && (int64_t)1 << cut.lanes_log2 < cut.row_length)
        cut.lanes_log2++;
    cut.row_tiles = (problem->h.out - 1) / ROWS + 1;
    cut.repeats = (int)tconv_max(1, tconv_min(MAX_REPEATS, ROWS / problem->h.out));
    cut.stretches = tconv_ceil_div(cut.row_length, (int64_t)cut.repeats << cut.lanes_log2);
    cut.tiles = cut.planes * cut.row_tiles * cut.stretches;
    void *kernel_arguments[] = {&outputs, &cut};
    return launch_blocks(vectors ? kernels[problem->dtype].vector : kernels[problem->dtype].one, cut.tiles, THREADS,
                         kernel_arguments, arguments->stream, issue);
}

} // namespace tconv::general
