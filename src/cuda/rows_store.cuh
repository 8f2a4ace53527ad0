/* Writes rows of dst for the rows kernel: what 16 output channels have of one row, from shared memory by bulk copies, or the
 * bias alone. */
#ifndef TCONV_CUDA_ROWS_STORE_CUH
#define TCONV_CUDA_ROWS_STORE_CUH

#include "access.cuh"
#include "hopper_device.cuh"
#include "rows_kernels.h"

namespace tconv_rows
{

/* The run of a row that 16-byte accesses can write, in elements from the tile's first output: [first, last) of [begin, end),
 * empty where first >= last. */
struct aligned_run {
    int first, last;
};

template <class Element> struct row_writer {
    static constexpr int LENGTH = access_length<Element>;

    Element *staged, *dst; /* dst: of the first channel, where the tile's first output would be in row 0 */
    const Element *bias;
    int64_t channel_stride;
    int row_stride, pitch;
    int channels;   /* that exist, of the block's */
    int begin, end; /* outputs of the tile that exist: the first may be in the padding */

    row_writer() = default;

    __device__ __forceinline__ row_writer(const tconv_cuda_rows_parameters &layer, Element *staged, Element *dst,
                                          const Element *bias, int channels, int first_output, int outputs)
        : staged(staged), dst(dst + first_output), bias(bias), channel_stride(layer.dst_channel),
          row_stride(layer.out_columns), pitch(layer.staged_pitch), channels(min(channels, TCONV_CUDA_ROWS_CHANNELS)),
          begin(max(-first_output, 0)), end(min(outputs, layer.out_columns - first_output))
    {
    }

    __device__ __forceinline__ float bias_of(int channel) const
    {
        return bias != NULL && channel < channels ? to_compute(bias[channel]) : 0.0f;
    }

    __device__ __forceinline__ Element *target(int channel, int row) const
    {
        return dst + channel * channel_stride + (int64_t)row * row_stride;
    }

    /* Elements by which an address is past a multiple of 16 bytes. */
    static __device__ __forceinline__ int shift_of(const Element *address)
    {
        return (int)((uintptr_t)address / sizeof(Element)) & (LENGTH - 1);
    }

    /* Where a channel's row is staged: as much past a multiple of 16 bytes as in dst. */
    __device__ __forceinline__ Element *staged_at(int channel, int row) const
    {
        return staged + channel * pitch + shift_of(target(channel, row));
    }

    __device__ __forceinline__ aligned_run run_of(int shift) const
    {
        return {((begin + shift + LENGTH - 1) & ~(LENGTH - 1)) - shift, ((end + shift) & ~(LENGTH - 1)) - shift};
    }

    /* What precedes and follows the run, at most LENGTH - 1 elements each, a lane an element. */
    template <class Value>
    __device__ __forceinline__ void write_ends(Element *to, const aligned_run &run, int lane, const Value &value) const
    {
        const int head = begin + lane, tail = max(run.first, run.last) + lane;
        if (head < min(run.first, end))
            to[head] = value(head);
        if (tail < end && lane < LENGTH)
            to[tail] = value(tail);
    }

    /* A row without taps. */
    __device__ __forceinline__ void write_bias(int row) const
    {
        const int lane = (int)threadIdx.x % 32;
        for (int channel = (int)threadIdx.x / 32; channel < channels; channel += (int)blockDim.x / 32) {
            const Element value = from_compute<Element>(bias_of(channel));
            Element *to = target(channel, row);
            const aligned_run run = run_of(shift_of(to));
            element_vector<Element, LENGTH> values;
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                values.at[i] = value;
            write_ends(to, run, lane, [&](int) { return value; });
            for (int column = run.first + lane * LENGTH; column < run.last; column += 32 * LENGTH)
                store_streaming(to + column, &values);
        }
    }

    /* Waits until the row staged before has been read, for all threads. */
    __device__ __forceinline__ void wait_for_stage() const
    {
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x % 32 == 0)
            hopper::stores_wait_read<0>();
#endif
        __syncthreads();
    }

    /* Writes what all threads have staged: a warp has whole rows of some channels. */
    __device__ __forceinline__ void write_staged(int row) const
    {
        const int lane = (int)threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
        hopper::fence_for_async_proxy();
#endif
        __syncthreads();
        for (int channel = (int)threadIdx.x / 32; channel < channels; channel += (int)blockDim.x / 32) {
            Element *to = target(channel, row);
            const int shift = shift_of(to);
            const Element *from = staged + channel * pitch + shift;
            const aligned_run run = run_of(shift);
#if __CUDA_ARCH__ >= 900
            if (lane == 0 && run.first < run.last)
                hopper::store_bulk(to + run.first, hopper::shared_address(from + run.first),
                                   (run.last - run.first) * (int)sizeof(Element));
#else
            for (int column = run.first + lane * LENGTH; column < run.last; column += 32 * LENGTH)
                store_streaming(to + column, from + column);
#endif
            write_ends(to, run, lane, [&](int column) { return from[column]; });
        }
#if __CUDA_ARCH__ >= 900
        if (lane == 0)
            hopper::stores_commit();
#endif
    }

    /* Before the block ends: shared memory is read until then. */
    __device__ __forceinline__ void finish() const
    {
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x % 32 == 0)
            hopper::stores_wait_read<0>();
#endif
    }
};

} // namespace tconv_rows

#endif
