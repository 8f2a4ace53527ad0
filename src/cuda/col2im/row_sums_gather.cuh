/* The col2im of Hopper's kernels: outputs of the rows that are complete are gathered from the column buffer and
 * stored. */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_GATHER_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_GATHER_CUH

#include "../numeric/element.cuh"
#include "row_sums_tile.cuh"

namespace tconv::col2im::row_sums
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A thread's part in gathering, the same for every row. An image has two threads for each of its pixels in the block:
 * each has every other line, that is an output row of a channel, and of columns a run of `stride` from a multiple of it
 * on. */
template <class Element> struct gatherer {
    bool exists; /* the run does */
    bool whole;  /* all columns of the run exist, and are stored at once */
    bool more;   /* the thread has another run */
    int image;   /* of the block */
    int line;    /* the thread's first */
    int run;     /* of the layer */
    int from;    /* floats of the column buffer to the run's first quotient, in the first line */
    Element *to; /* the run in row 0 */

    __device__ __forceinline__ explicit gatherer(const parameters &layer, const block_tile &block)
        : image((int)threadIdx.x >> (layer.row_pixels_log2 + 1)), line((int)threadIdx.x >> layer.row_pixels_log2 & 1)
    {
        static_assert(THREADS == 2 * BLOCK_M, "as said");
        const int number = (int)threadIdx.x & ((1 << layer.row_pixels_log2) - 1);
        begin(layer, block, block.columns.first_output / layer.columns.stride + number);
    }

    __device__ __forceinline__ void begin(const parameters &layer, const block_tile &block, int new_run)
    {
        const int stride = layer.columns.stride, pixels = 1 << layer.row_pixels_log2;
        const int column = new_run * stride, before = block.columns.first_output - column;
        const int end = before + block.columns.outputs;
        run = new_run;
        exists = block.first_image + image < layer.images && end > 0;
        whole = layer.dst_runs && before <= 0 && end >= stride;
        more = exists && end > pixels * stride;
        from = image * (pixels + GUARD) +
               min(run + layer.columns.pad / stride - block.columns.first_column, pixels + GUARD - 2);
        to = static_cast<Element *>(layer.dst) + (block.first_image + image) * layer.dst_strides.n +
             (int64_t)block.group * layer.group_out * layer.dst_strides.c + column * layer.dst_strides.w;
    }

    __device__ __forceinline__ void next(const parameters &layer, const block_tile &block)
    {
        begin(layer, block, run + (1 << layer.row_pixels_log2));
    }
};

/* Gathers COUNT output rows of a channel, every other one from `line` on, of a thread's run. from: the run in the
 * column buffer. Not all columns have the last of TAPS taps. */
template <class Element, int STRIDE, int TAPS, int COUNT>
__device__ __forceinline__ void gather_lines(const parameters &layer, const block_tile &block,
                                             const shared_layout &shared, const gatherer<Element> &mine,
                                             const float *from, Element *to, int line, int first_row)
{
    constexpr bool VECTOR = (STRIDE & (STRIDE - 1)) == 0;
    const int pitch = layer.columns.kernel * PITCH;
    float sums[COUNT][STRIDE];
    output_row outputs[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        outputs[i] = shared.outputs[line + 2 * i];
#pragma unroll
        for (int j = 0; j < STRIDE; j++) {
            const float *partials = from + (line + 2 * i) * pitch + layer.run_taps[j];
            sums[i][j] = partials[0];
#pragma unroll
            for (int t = 1; t < TAPS; t++)
                if (t < TAPS - 1 || (layer.run_ends >> j & 1) != 0)
                    sums[i][j] += partials[t * (STRIDE * PITCH - 1)];
        }
    }
    if (VECTOR && mine.whole) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            element_vector<Element, VECTOR ? STRIDE : 1> run;
#pragma unroll
            for (int j = 0; j < STRIDE; j++)
                run.at[VECTOR ? j : 0] = from_compute<Element>(sums[i][j] + outputs[i].bias);
            if ((unsigned)(first_row + outputs[i].row) < (unsigned)layer.rows.out)
                *reinterpret_cast<decltype(run) *>(to + outputs[i].offset) = run;
        }
        return;
    }
    const int before = block.columns.first_output - mine.run * STRIDE, end = before + block.columns.outputs;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if ((unsigned)(first_row + outputs[i].row) >= (unsigned)layer.rows.out)
            continue;
#pragma unroll
        for (int j = 0; j < STRIDE; j++)
            if (j >= before && j < end)
                to[outputs[i].offset + j * layer.dst_strides.w] = from_compute<Element>(sums[i][j] + outputs[i].bias);
    }
}

/* Adds up and stores the output rows that are complete with a row of src, by runs of STRIDE columns. TAPS: the most
 * that a column has. */
template <class Element, bool few_registers, int STRIDE, int TAPS>
__device__ __forceinline__ void gather_runs(const parameters &layer, const block_tile &block,
                                            const shared_layout &shared, const gatherer<Element> &first,
                                            const float *partials, int row)
{
    static_assert(TAPS < GUARD, "pixels beyond an image that a run may read");
    /* Lines whose loads do not wait for each other. */
    constexpr int TOGETHER = (STRIDE > 2 ? 2 : 3) - (few_registers ? 1 : 0);
    if (!first.exists)
        return;
    const int first_row = row * layer.rows.stride - layer.rows.pad, lines = layer.rows.stride * layer.group_out;
    gatherer<Element> mine = first;
    while (true) {
        const float *from = partials + mine.from;
        Element *to = mine.to + first_row * layer.dst_strides.h;
        int line = mine.line;
#pragma unroll 1
        for (; line + 2 * (TOGETHER - 1) < lines; line += 2 * TOGETHER)
            gather_lines<Element, STRIDE, TAPS, TOGETHER>(layer, block, shared, mine, from, to, line, first_row);
#pragma unroll 1
        for (; line < lines; line += 2)
            gather_lines<Element, STRIDE, TAPS, 1>(layer, block, shared, mine, from, to, line, first_row);
        if (!mine.more)
            break;
        mine.next(layer, block);
    }
}

/* Adds up COUNT output rows of a channel, every other one, of an output column that has `count` taps. at: its first
 * TAPS taps, of which missing ones lie at zeros. */
template <class Element, int TAPS, int COUNT>
__device__ __forceinline__ void gather_column(const parameters &layer, const output_row *output,
                                              const float *const (&at)[TAPS], int on, int count, Element *to,
                                              int first_row)
{
    const int pitch = 2 * layer.columns.kernel * PITCH;
    float sums[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        sums[i] = at[0][on + i * pitch];
#pragma unroll
        for (int t = 1; t < TAPS; t++)
            sums[i] += at[t][on + i * pitch];
    }
    for (int t = TAPS; t < count; t++)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sums[i] += at[0][on + i * pitch + t * layer.tap_step];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if ((unsigned)(first_row + output[2 * i].row) < (unsigned)layer.rows.out)
            to[output[2 * i].offset] = from_compute<Element>(sums[i] + output[2 * i].bias);
}

/* The same for any columns: a thread's are as many apart as the image has pixels in the block. */
template <class Element, bool few_registers, int TAPS>
__device__ __forceinline__ void gather_columns(const parameters &layer, const block_tile &block,
                                               const shared_layout &shared, const gatherer<Element> &mine,
                                               const float *partials, int row)
{
    constexpr int TOGETHER = few_registers ? 2 : 3;
    const int pixels = 1 << layer.row_pixels_log2, image = block.first_image + mine.image;
    if (image >= layer.images)
        return;
    const int first_row = row * layer.rows.stride - layer.rows.pad, lines = layer.rows.stride * layer.group_out;
    const int pitch = layer.columns.kernel * PITCH;
    Element *dst = static_cast<Element *>(layer.dst) + image * layer.dst_strides.n +
                   (int64_t)block.group * layer.group_out * layer.dst_strides.c + first_row * layer.dst_strides.h;
    partials += mine.image * (pixels + GUARD);
    for (int column = (int)threadIdx.x & (pixels - 1); column < block.columns.outputs; column += pixels) {
        const kept_taps found = shared.columns[column];
        const float *at[TAPS];
#pragma unroll
        for (int t = 0; t < TAPS; t++)
            at[t] = partials + (t < found.count ? found.first + t * layer.tap_step : pixels);
        Element *to = dst + (block.columns.first_output + column) * layer.dst_strides.w;
        int line = mine.line;
#pragma unroll 1
        for (; line + 2 * (TOGETHER - 1) < lines; line += 2 * TOGETHER)
            gather_column<Element, TAPS, TOGETHER>(layer, shared.outputs + line, at, line * pitch, found.count, to,
                                                   first_row);
#pragma unroll 1
        for (; line < lines; line += 2)
            gather_column<Element, TAPS, 1>(layer, shared.outputs + line, at, line * pitch, found.count, to, first_row);
    }
}

/* Gathers by runs where kernels of the config have code for these. */
template <class Element, bool few_registers, int CONFIG, int STRIDE, int TAPS>
__device__ __forceinline__ void gather_runs_of(const parameters &layer, const block_tile &block,
                                               const shared_layout &shared, const gatherer<Element> &mine,
                                               const float *partials, int row)
{
    if constexpr ((compiled_runs.of_config[CONFIG] >> RUNS<STRIDE, TAPS> & 1) != 0)
        gather_runs<Element, few_registers, STRIDE, TAPS>(layer, block, shared, mine, partials, row);
}

template <class Element, bool few_registers, int CONFIG>
__device__ __forceinline__ void gather(const parameters &layer, const block_tile &block, const shared_layout &shared,
                                       const gatherer<Element> &mine, const float *partials, int row)
{
    static_assert(MAX_RUN == 4 && MAX_TAPS == 3, "as here");
    switch (layer.gather) {
    case RUNS<1, 2>:
        gather_runs_of<Element, few_registers, CONFIG, 1, 2>(layer, block, shared, mine, partials, row);
        break;
    case RUNS<1, 3>:
        gather_runs_of<Element, few_registers, CONFIG, 1, 3>(layer, block, shared, mine, partials, row);
        break;
    case RUNS<2, 2>:
        gather_runs_of<Element, few_registers, CONFIG, 2, 2>(layer, block, shared, mine, partials, row);
        break;
    case RUNS<2, 3>:
        gather_runs_of<Element, few_registers, CONFIG, 2, 3>(layer, block, shared, mine, partials, row);
        break;
    case RUNS<3, 2>:
        gather_runs_of<Element, few_registers, CONFIG, 3, 2>(layer, block, shared, mine, partials, row);
        break;
    case RUNS<3, 3>:
        gather_runs_of<Element, few_registers, CONFIG, 3, 3>(layer, block, shared, mine, partials, row);
        break;
    case RUNS<4, 2>:
        gather_runs_of<Element, few_registers, CONFIG, 4, 2>(layer, block, shared, mine, partials, row);
        break;
    case RUNS<4, 3>:
        gather_runs_of<Element, few_registers, CONFIG, 4, 3>(layer, block, shared, mine, partials, row);
        break;
    case COLUMNS<2>: gather_columns<Element, few_registers, 2>(layer, block, shared, mine, partials, row); break;
    default: gather_columns<Element, few_registers, 3>(layer, block, shared, mine, partials, row);
    }
}

#endif

} // namespace tconv::col2im::row_sums

#endif
