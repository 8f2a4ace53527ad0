/* Writes rows of dst for the rows kernel: what 16 output channels have of one row, from shared memory by bulk copies, or the
 * bias alone. */
#ifndef TCONV_CUDA_ROWS_STORE_CUH
#define TCONV_CUDA_ROWS_STORE_CUH

#include "access.cuh"
#include "hopper_device.cuh"
#include "rows_kernels.h"

namespace tconv_rows
{

/* Sectors of the second-level cache. One that is written in parts, at different times, costs a third of the time of whole
 * rows. */
constexpr int SECTOR_BYTES = TCONV_CUDA_ROWS_SECTOR_BYTES;

/* What is written of a row in whole sectors, in elements from the tile's first output: [first, last), empty where first >=
 * last. */
struct sector_run {
    int first, last;
};

/* Rows of dst follow one another in memory: where a tile has whole rows, the end of a row that fills no sector is kept in
 * shared memory, and goes out with the beginning of the next one. */
template <class Element> struct row_writer {
    static constexpr int LENGTH = access_length<Element>, SECTOR = SECTOR_BYTES / (int)sizeof(Element);

    Element *staged, *kept, *dst; /* dst: of the first channel, where the tile's first output would be in row 0 */
    const Element *bias;
    int64_t channel_stride;
    int row_stride, pitch;
    int channels;   /* that exist, of the block's */
    int begin, end; /* outputs of the tile that exist: the first may be in the padding */
    int last_row;   /* that the block writes; -1 where ends are not kept */
    bool joined;    /* whether the end of the row before was kept */

    row_writer() = default;

    __device__ __forceinline__ row_writer(const tconv_cuda_rows_parameters &layer, Element *staged, Element *dst,
                                          const Element *bias, int channels, int first_output, int outputs,
                                          int last_row)
        : staged(staged), kept(staged + TCONV_CUDA_ROWS_CHANNELS * layer.staged_pitch), dst(dst + first_output),
          bias(bias), channel_stride(layer.dst_channel), row_stride(layer.out_columns), pitch(layer.staged_pitch),
          channels(min(channels, TCONV_CUDA_ROWS_CHANNELS)), begin(max(-first_output, 0)),
          end(min(outputs, layer.out_columns - first_output)), last_row(layer.joins_rows ? last_row : -1), joined(false)
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

    /* Elements by which an address is past a sector's beginning. */
    static __device__ __forceinline__ int shift_of(const Element *address)
    {
        return (int)((uintptr_t)address / sizeof(Element)) & (SECTOR - 1);
    }

    /* Where a channel's row is staged: as much past a multiple of 32 bytes as in dst. */
    __device__ __forceinline__ Element *staged_at(int channel, int row) const
    {
        return staged + channel * pitch + shift_of(target(channel, row));
    }

    /* Begins with what was kept, if anything was, before the row's first output. */
    __device__ __forceinline__ sector_run run_of(int shift) const
    {
        const int first = begin + shift + (joined ? 0 : SECTOR - 1);
        return {(first & ~(SECTOR - 1)) - shift, ((end + shift) & ~(SECTOR - 1)) - shift};
    }

    /* What precedes the run, if nothing was kept, and follows it: less than a sector each, a lane an element. The latter is
     * kept for the next row, if there is one. */
    template <class Value>
    __device__ __forceinline__ void write_ends(Element *to, const sector_run &run, int row, int lane,
                                               Element *kept_of_channel, const Value &value) const
    {
        const int head = begin + lane, tail = max(run.first, run.last) + lane;
        if (head < min(run.first, end))
            to[head] = value(head);
        if (tail < end && lane < SECTOR) {
            if (row < last_row)
                kept_of_channel[lane] = value(tail);
            else
                to[tail] = value(tail);
        }
    }

    /* A row without taps. A warp has whole rows of some channels, always the same. */
    __device__ __forceinline__ void write_bias(int row)
    {
        const int lane = (int)threadIdx.x % 32;
        for (int channel = (int)threadIdx.x / 32; channel < channels; channel += (int)blockDim.x / 32) {
            const Element value = from_compute<Element>(bias_of(channel));
            Element *to = target(channel, row), *kept_of_channel = kept + channel * SECTOR;
            const sector_run run = run_of(shift_of(to));
            element_vector<Element, LENGTH> values;
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                values.at[i] = value;
            int first = run.first;
            if (joined && first < begin) {
                if (lane < SECTOR)
                    to[first + lane] = first + lane < begin ? kept_of_channel[lane] : value;
                first += SECTOR;
            }
#pragma unroll 2
            for (int column = first + lane * LENGTH; column < run.last; column += 32 * LENGTH)
                store_streaming(to + column, &values);
            write_ends(to, run, row, lane, kept_of_channel, [&](int) { return value; });
        }
        joined = row < last_row;
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

    /* Writes what all threads have staged. */
    __device__ __forceinline__ void write_staged(int row)
    {
        const int lane = (int)threadIdx.x % 32;
        make_visible();
        __syncthreads();
        for (int channel = (int)threadIdx.x / 32; channel < channels; channel += (int)blockDim.x / 32) {
            Element *to = target(channel, row), *kept_of_channel = kept + channel * SECTOR;
            const int shift = shift_of(to);
            Element *from = staged + channel * pitch + shift;
            const sector_run run = run_of(shift);
            if (joined && lane < begin - run.first) {
                from[run.first + lane] = kept_of_channel[lane];
                make_visible();
            }
            __syncwarp();
            write_run(to, from, run, lane);
            write_ends(to, run, row, lane, kept_of_channel, [&](int column) { return from[column]; });
        }
#if __CUDA_ARCH__ >= 900
        if (lane == 0)
            hopper::stores_commit();
#endif
        joined = row < last_row;
    }

    static __device__ __forceinline__ void write_run(Element *to, const Element *from, const sector_run &run, int lane)
    {
#if __CUDA_ARCH__ >= 900
        if (lane == 0 && run.first < run.last)
            hopper::store_bulk(to + run.first, hopper::shared_address(from + run.first),
                               (run.last - run.first) * (int)sizeof(Element));
#else
        for (int column = run.first + lane * LENGTH; column < run.last; column += 32 * LENGTH)
            store_streaming(to + column, from + column);
#endif
    }

    /* Makes what this thread has staged visible to bulk copies. */
    static __device__ __forceinline__ void make_visible()
    {
#if __CUDA_ARCH__ >= 900
        hopper::fence_for_async_proxy();
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
