/*
 * Packs what the general kernels read beside the tensors: the two phase tables, and the weights as
 * [kernel row][kernel column][input channel of the group][group][output channel of the group, padded with zeros].
 *
 * Nothing is copied from host memory: a copy could not be captured into a graph that outlives that memory. The tables
 * go by value with kernel launches, the columns behind the rows, as many phases as fit in one launch's parameters; for
 * most layers that is all of them. The weights are transposed in squares through shared memory, so that both reads and
 * writes are in runs.
 */
#include "../../core/checked.h"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

namespace tconv::general
{

namespace
{

constexpr int PIECE = 96;      /* phases of 40 bytes in a launch: parameters may have 4 KB */
constexpr int SIDE = 32;       /* weights along a side of a square: a warp reads and writes a row at once */
constexpr int SQUARE_ROWS = 8; /* rows of a square that a block copies at once */

struct piece {
    tconv_phase phases[PIECE];
};

__global__ void pack_phases_kernel(const __grid_constant__ piece piece, tconv_phase *phases, int count)
{
    if ((int)threadIdx.x < count)
        phases[threadIdx.x] = piece.phases[threadIdx.x];
}

/* One axis of the weights: extent, and from one index to the next in the caller's and the packed weights. */
struct axis {
    int64_t extent, from, to;
};

struct weights_cut {
    axis out, inner, middle, outer; /* of a square: out and inner */
    int64_t packed_out;             /* padded extent of out */
    int64_t out_squares, inner_squares, squares;
    bool transposed; /* whether inner, not out, runs along the caller's memory */
};

template <class Word>
__global__ void __launch_bounds__(SIDE *SQUARE_ROWS)
    pack_weights_kernel(const __grid_constant__ weights_cut cut, const Word *from, Word *to)
{
    __shared__ Word square[SIDE][SIDE + 1];
    const int x = (int)threadIdx.x % SIDE;
    launch_dependents();
    for (uint64_t number = blockIdx.x; number < (uint64_t)cut.squares; number += gridDim.x) {
        uint64_t rest = number;
        const int64_t first_out = (int64_t)(rest % (uint64_t)cut.out_squares) * SIDE;
        rest /= (uint64_t)cut.out_squares;
        const int64_t first_inner = (int64_t)(rest % (uint64_t)cut.inner_squares) * SIDE;
        rest /= (uint64_t)cut.inner_squares;
        const int64_t middle = (int64_t)(rest % (uint64_t)cut.middle.extent);
        const int64_t outer = (int64_t)(rest / (uint64_t)cut.middle.extent);
        const Word *source = from + middle * cut.middle.from + outer * cut.outer.from;
        Word *target = to + middle * cut.middle.to + outer * cut.outer.to;

        for (int y = (int)threadIdx.x / SIDE; y < SIDE; y += SQUARE_ROWS) {
            const int out = cut.transposed ? y : x, inner = cut.transposed ? x : y;
            square[inner][out] = first_out + out < cut.out.extent && first_inner + inner < cut.inner.extent
                                     ? source[(first_out + out) * cut.out.from + (first_inner + inner) * cut.inner.from]
                                     : Word(0);
        }
        __syncthreads();
        for (int y = (int)threadIdx.x / SIDE; y < SIDE; y += SQUARE_ROWS)
            if (first_out + x < cut.packed_out && first_inner + y < cut.inner.extent)
                target[first_out + x + (first_inner + y) * cut.inner.to] = square[y][x];
        __syncthreads();
    }
}

} // namespace

tconv_status tconv_general_pack_phases(const tconv_layer *layer, tconv_phase *phases, void *stream, tconv_issue *issue)
{
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const int64_t total = rows->count + columns->count;
    for (int64_t first = 0; first < total; first += PIECE) {
        int count = (int)tconv_min(PIECE, total - first);
        tconv_phase *to = phases + first;
        piece piece = {};
        for (int64_t i = first; i < first + count; i++)
            piece.phases[i - first] = i < rows->count ? rows->phases[i] : columns->phases[i - rows->count];
        void *arguments[] = {&piece, &to, &count};
        tconv_status status =
            tconv_launch_blocks((const void *)pack_phases_kernel, 1, PIECE, arguments, stream, issue, false);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

extern "C" tconv_status tconv_general_pack_weights(const tconv_problem *problem, int64_t packed_out,
                                                   const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    const tconv_weight_strides *from = &problem->weight;
    const int64_t channel = problem->groups * packed_out;
    const axis taps = {problem->h.kernel * problem->w.kernel, from->w, problem->group_in * channel};
    const axis in = {problem->group_in, from->in, channel};
    const bool taps_inside = from->w == 1;
    weights_cut cut = {};
    cut.out = {problem->group_out, from->out, 1};
    cut.inner = taps_inside ? taps : in;
    cut.middle = taps_inside ? in : taps;
    cut.outer = {problem->groups, problem->group_in * from->in, packed_out};
    cut.packed_out = packed_out;
    cut.out_squares = (packed_out - 1) / SIDE + 1;
    cut.inner_squares = (cut.inner.extent - 1) / SIDE + 1;
    cut.squares = cut.out_squares * cut.inner_squares * cut.middle.extent * cut.outer.extent;
    cut.transposed = from->out != 1;

    const void *kernel = problem->element_size == 8   ? (const void *)pack_weights_kernel<uint64_t>
                         : problem->element_size == 4 ? (const void *)pack_weights_kernel<uint32_t>
                                                      : (const void *)pack_weights_kernel<uint16_t>;
    void *arguments[] = {&cut, &weights, &packed};
    return tconv_launch_blocks(kernel, cut.squares, SIDE * SQUARE_ROWS, arguments, stream, issue, false);
}

} // namespace tconv::general
