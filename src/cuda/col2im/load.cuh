/*
 * How a warp of the products algorithm copies the src of its pixels to shared memory, stage by stage: some channels of them,
 * as [channel][pixel] (NCHW) or [pixel][channel] (NHWC).
 *
 * A Shape says what a stage is: Element, INSIDE (NHWC), PIXELS, CHANNELS, STAGES (how many take turns), LENGTH (elements of an
 * access), PITCH and ELEMENTS (of a stage, in elements).
 */
#ifndef TCONV_CUDA_COL2IM_LOAD_CUH
#define TCONV_CUDA_COL2IM_LOAD_CUH

#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "parameters.h"

namespace tconv::col2im
{

/* A warp's copies of src, a stage (a step's channels of its pixels) at a time. */
template <class Shape_> struct loader {
    using Shape = Shape_;
    using Element = typename Shape::Element;
    static constexpr bool channels_inside = Shape::INSIDE;
    static constexpr int LENGTH = Shape::LENGTH, STAGES = Shape::STAGES;
    static constexpr int ROW = channels_inside ? Shape::CHANNELS / LENGTH /* accesses along memory */
                                               : Shape::PIXELS / LENGTH;
    static constexpr int LINES = 32 / ROW; /* and across it that a warp copies at once */
    static constexpr int ACCESSES = Shape::ELEMENTS / Shape::PITCH / LINES;

    const Element *base; /* of the group; */
    const Element *from; /* of the lane's first access in this stage */
    Element *stages, *to;
    int64_t line, advance; /* elements of src from an access of the lane to the next, and from a stage to the next */
    int channel, column;   /* of the lane's first access in this stage */
    int ends[ACCESSES];    /* of channels, by access; 0 where row or column does not exist */
    int lane_channel, row, row_step, end_row, end_column, end_channel, all_channels, stage;
    bool aligned;

    template <class Layer> __device__ __forceinline__ void start_row(const Layer &layer)
    {
        channel = lane_channel;
#pragma unroll
        for (int i = 0; i < ACCESSES; i++)
            ends[i] = row < end_row && column + (channels_inside ? i * LINES : 0) < end_column ? end_channel : 0;
        from = base + row * layer.src_strides.h + column * layer.src_strides.w + channel * layer.src_strides.c;
    }

    /* Elements one by one, for src that is not aligned. */
    template <class Layer> __device__ __forceinline__ void copy_elements(const Layer &layer)
    {
        const int64_t pitch = channels_inside ? layer.src_strides.c : layer.src_strides.w;
#pragma unroll
        for (int i = 0; i < ACCESSES; i++) {
            element_vector<Element, LENGTH> run;
#pragma unroll
            for (int k = 0; k < LENGTH; k++) {
                const int this_channel = channel + (channels_inside ? k : i * LINES);
                const int this_column = column + (channels_inside ? i * LINES : k);
                const bool exists = this_channel < end_channel && this_column < end_column && row < end_row;
                run.at[k] = exists ? from[i * line + k * pitch] : Element(0.0f);
            }
            *reinterpret_cast<element_vector<Element, LENGTH> *>(to + stage + i * LINES * Shape::PITCH) = run;
        }
    }

    __device__ __forceinline__ void copy_accesses()
    {
#pragma unroll
        for (int i = 0; i < ACCESSES; i++) {
            const bool exists = channel + (channels_inside ? 0 : i * LINES) < ends[i];
            /* The rest of the line is the pixel's next channels, or other warps' pixels. */
            cp_async_line(to + stage + i * LINES * Shape::PITCH, from + i * line, exists);
        }
    }

    /* Starts to copy the next stage, and ends a group of copies in any case. */
    template <class Layer> __device__ __forceinline__ void next(const Layer &layer, bool more)
    {
        if (more) {
            if (aligned)
                copy_accesses();
            else
                copy_elements(layer);
            stage = stage == (STAGES - 1) * Shape::ELEMENTS ? 0 : stage + Shape::ELEMENTS;
            from += advance;
            channel += Shape::CHANNELS;
            if (channel >= all_channels) {
                row += row_step;
                start_row(layer);
            }
        }
        cp_async_commit();
    }
};

/* The loader of a warp whose first pixel is (first_row, first_column) of an image's group, of which `image` is the first
 * element. end_row: of those that exist, 0 for an image that does not. */
template <class Shape, class Layer>
__device__ __forceinline__ loader<Shape> make_loader(const Layer &layer, const typename Shape::Element *image,
                                                     int first_row, int row_step, int end_row, int first_column,
                                                     typename Shape::Element *stages, int lane)
{
    using Loader = loader<Shape>;
    const int along = lane % Loader::ROW * Loader::LENGTH, across = lane / Loader::ROW;
    Loader made;
    made.base = image;
    made.stages = stages;
    made.to = stages + across * Shape::PITCH + along;
    made.line = Loader::LINES * (Shape::INSIDE ? layer.src_strides.w : layer.src_strides.c);
    made.advance = Shape::CHANNELS * layer.src_strides.c;
    made.lane_channel = Shape::INSIDE ? along : across;
    made.column = first_column + (Shape::INSIDE ? across : along);
    made.row = first_row;
    made.row_step = row_step;
    made.end_row = end_row;
    made.end_column = layer.columns.in;
    made.end_channel = layer.group_in;
    made.all_channels = layer.stages * Shape::CHANNELS;
    made.aligned = layer.src_aligned;
    made.stage = 0;
    made.start_row(layer);
    return made;
}

} // namespace tconv::col2im

#endif
