/*
 * A warp copies the src of its pixels to shared memory by cp.async, a pipeline stage at a time: the channels of a
 * K-block, as [channel][pixel] (NCHW) or [pixel][channel] (NHWC).
 *
 * A Stage describes a stage: Element, NHWC, PIXELS, CHANNELS, STAGES (of the pipeline), LENGTH (elements of an access),
 * PITCH (elements from a channel or pixel to the next) and ELEMENTS.
 */
#ifndef TCONV_CUDA_COL2IM_LOAD_CUH
#define TCONV_CUDA_COL2IM_LOAD_CUH

#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "parameters.h"

namespace tconv::col2im
{

template <class Stage_> struct loader {
    using Stage = Stage_;
    using Element = typename Stage::Element;
    static constexpr bool NHWC = Stage::NHWC;
    static constexpr int LENGTH = Stage::LENGTH, STAGES = Stage::STAGES;
    static constexpr int ROW = NHWC ? Stage::CHANNELS / LENGTH /* accesses along memory */
                                    : Stage::PIXELS / LENGTH;
    static constexpr int LINES = 32 / ROW; /* and across it that a warp copies at once */
    static constexpr int ACCESSES = Stage::ELEMENTS / Stage::PITCH / LINES;

    const Element *base; /* the group's first element */
    const Element *from; /* the lane's first access in this stage */
    Element *stages, *to;
    int64_t line;        /* elements of src from an access of the lane to the next */
    int64_t advance;     /* elements of src from a stage to the next */
    int channel, column; /* of the lane's first access in this stage */
    int ends[ACCESSES];  /* the end of channels, by access; 0 where row or column does not exist */
    int lane_channel, row, row_step, end_row, end_column, end_channel, all_channels, stage;
    bool aligned;

    template <class Layer> __device__ __forceinline__ void start_row(const Layer &layer)
    {
        channel = lane_channel;
#pragma unroll
        for (int i = 0; i < ACCESSES; i++)
            ends[i] = row < end_row && column + (NHWC ? i * LINES : 0) < end_column ? end_channel : 0;
        from = base + row * layer.src_strides.h + column * layer.src_strides.w + channel * layer.src_strides.c;
    }

    /* Copies elements one by one, for src that is not aligned. */
    template <class Layer> __device__ __forceinline__ void copy_elements(const Layer &layer)
    {
        const int64_t pitch = NHWC ? layer.src_strides.c : layer.src_strides.w;
#pragma unroll
        for (int i = 0; i < ACCESSES; i++) {
            element_vector<Element, LENGTH> run;
#pragma unroll
            for (int k = 0; k < LENGTH; k++) {
                const int this_channel = channel + (NHWC ? k : i * LINES);
                const int this_column = column + (NHWC ? i * LINES : k);
                const bool exists = this_channel < end_channel && this_column < end_column && row < end_row;
                run.at[k] = exists ? from[i * line + k * pitch] : Element(0.0f);
            }
            *reinterpret_cast<element_vector<Element, LENGTH> *>(to + stage + i * LINES * Stage::PITCH) = run;
        }
    }

    __device__ __forceinline__ void copy_accesses()
    {
#pragma unroll
        for (int i = 0; i < ACCESSES; i++) {
            const bool exists = channel + (NHWC ? 0 : i * LINES) < ends[i];
            /* The rest of the line has the pixel's next channels, or other warps' pixels. */
            cp_async_line(to + stage + i * LINES * Stage::PITCH, from + i * line, exists);
        }
    }

    /* Starts to copy the next stage, and ends a commit group in any case. */
    template <class Layer> __device__ __forceinline__ void next(const Layer &layer, bool more)
    {
        if (more) {
            if (aligned)
                copy_accesses();
            else
                copy_elements(layer);
            stage = stage == (STAGES - 1) * Stage::ELEMENTS ? 0 : stage + Stage::ELEMENTS;
            from += advance;
            channel += Stage::CHANNELS;
            if (channel >= all_channels) {
                row += row_step;
                start_row(layer);
            }
        }
        cp_async_commit();
    }
};

/* The loader of a warp whose first pixel is (first_row, first_column) of an image's group, of which `image` is the
 * first element. end_row: the end of the rows that exist, 0 for an image that does not. */
template <class Stage, class Layer>
__device__ __forceinline__ loader<Stage> make_loader(const Layer &layer, const typename Stage::Element *image,
                                                     int first_row, int row_step, int end_row, int first_column,
                                                     typename Stage::Element *stages, int lane)
{
    using Loader = loader<Stage>;
    const int along = lane % Loader::ROW * Loader::LENGTH, across = lane / Loader::ROW;
    Loader made;
    made.base = image;
    made.stages = stages;
    made.to = stages + across * Stage::PITCH + along;
    made.line = Loader::LINES * (Stage::NHWC ? layer.src_strides.w : layer.src_strides.c);
    made.advance = Stage::CHANNELS * layer.src_strides.c;
    made.lane_channel = Stage::NHWC ? along : across;
    made.column = first_column + (Stage::NHWC ? across : along);
    made.row = first_row;
    made.row_step = row_step;
    made.end_row = end_row;
    made.end_column = layer.columns.in;
    made.end_channel = layer.group_in;
    made.all_channels = layer.k_blocks * Stage::CHANNELS;
    made.aligned = layer.src_aligned;
    made.stage = 0;
    made.start_row(layer);
    return made;
}

} // namespace tconv::col2im

#endif
