/* The epilogue: stores rows of dst, 16 output channels of one row at a time, from shared memory by bulk stores, or what
 * the post-ops make of the bias alone. */
#ifndef TCONV_CUDA_MMA_ROW_EPILOGUE_CUH
#define TCONV_CUDA_MMA_ROW_EPILOGUE_CUH

#include "../epilogue/finish.cuh"
#include "../epilogue/posts.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "row_parameters.h"

namespace tconv::mma
{

/* The part of a row that is stored in whole sectors, in elements: [first, last), empty where first >= last. The row's
 * outputs are [begin, end). */
struct sector_run {
    int begin, end, first, last;
};

/* Rows of dst follow one another in memory: where a tile has whole rows, the end of a row that fills no sector is kept
 * in shared memory, and goes out with the beginning of the next one. Rows without taps that come after a staged row go
 * out with it, where they lie behind it in shared memory (bias_rows). */
template <class Element> struct row_writer {
    static constexpr int LENGTH = access_length<Element>, SECTOR = SECTOR_BYTES / (int)sizeof(Element);
    static constexpr int HALF_WARP = 16;
    static_assert(SECTOR <= HALF_WARP, "a lane has an element of a sector");

    const row_parameters *params;
    Element *staging, *kept, *zeros,
        *dst; /* dst: of the first channel, where the tile's first output would be in row 0 */
    int64_t channel_stride;
    int row_stride, pitch, zero_count;
    int first_of_all; /* the block's first channel, counted in all groups */
    int channels;     /* that exist, of the block's */
    int begin, end;   /* outputs of the tile that exist: the first may be in the padding */
    int last_row;     /* that the block writes; -1 where ends are not kept */
    int written;      /* the last row that was written, or -1; its end was kept, if ends are */

    row_writer() = default;

    /* dst: row 0 of the block's first channel. */
    __device__ __forceinline__ row_writer(const row_parameters &params, Element *staging, Element *dst,
                                          int first_of_all, int channels, int first_output, int outputs, int last_row)
        : params(&params), staging(staging), kept(staging + BLOCK_M * params.staging_pitch),
          zeros(kept + BLOCK_M * SECTOR), dst(dst + first_output), channel_stride(params.dst_channel),
          row_stride(params.out_columns), pitch(params.staging_pitch), zero_count(params.zeros),
          first_of_all(first_of_all), channels(min(channels, BLOCK_M)), begin(max(-first_output, 0)),
          end(min(outputs, params.out_columns - first_output)), last_row(params.joins_rows ? last_row : -1), written(-1)
    {
    }

    /* The number of a channel in all groups, hidden from the compiler: it would keep addresses that follow from the
     * number in registers, which the main loop needs. */
    __device__ __forceinline__ int in_all(int channel) const
    {
        int number = first_of_all + channel;
        asm volatile("" : "+r"(number));
        return number;
    }

    __device__ __forceinline__ float bias_of(int channel) const
    {
        return channel_bias<Element>(params->bias, in_all(channel), channel < channels);
    }

    /* The number of a channel, of an array of a number for each channel of all groups. */
    __device__ __forceinline__ float number_of(const void *array, int channel) const
    {
        return static_cast<const float *>(array)[in_all(min(channel, channels - 1))];
    }

    /* An output without a tap. */
    __device__ __forceinline__ Element untapped(int channel) const
    {
        float value[1] = {NO_BIAS};
        run_affine_posts(
            params->posts, value, [&](int) { return bias_of(channel); },
            [&](const void *array) { return [this, array, channel](int) { return number_of(array, channel); }; });
        return to_output<Element>(value[0]);
    }

    __device__ __forceinline__ Element *target(int channel, int row) const
    {
        return dst + channel * channel_stride + (int64_t)row * row_stride;
    }

    __device__ __forceinline__ bool joined() const
    {
        return written >= 0 && last_row >= 0;
    }

    /* Clears the zeros and fills the rows without taps; a barrier follows. */
    __device__ __forceinline__ void begin_block(int bias_rows) const
    {
        if (bias_rows > 0)
            for (int channel = first_channel(); channel < channels; channel += channel_step()) {
                const Element value = untapped(channel);
                for (int i = lane_of_half(); i < pitch; i += HALF_WARP)
                    staging[channel * pitch + i] = value;
            }
        for (int i = (int)threadIdx.x * LENGTH; i < zero_count; i += (int)blockDim.x * LENGTH)
            *reinterpret_cast<uint4 *>(zeros + i) = uint4{0, 0, 0, 0};
        make_visible();
    }

    /* Elements by which the first channel's row begins past a sector, where the tile's first output is or would be. It
     * is staged so as well; and so are the other channels' rows, for the staged pitch goes with the stride of
     * channels. */
    __device__ __forceinline__ int shift_of_row(int row) const
    {
        return (int)((uint32_t)(uintptr_t)dst / (uint32_t)sizeof(Element) + (uint32_t)row * (uint32_t)row_stride) &
               (SECTOR - 1);
    }

    /* Half a warp writes whole rows of some channels, always the same: its lane, and its first channel. */
    static __device__ __forceinline__ int lane_of_half()
    {
        return (int)threadIdx.x % HALF_WARP;
    }
    static __device__ __forceinline__ int first_channel()
    {
        return (int)threadIdx.x / HALF_WARP;
    }
    static __device__ __forceinline__ int channel_step()
    {
        return (int)blockDim.x / HALF_WARP;
    }

    /* The run of a row that is staged from `at` on, with those without taps: it begins with what was kept, if anything
     * was. */
    __device__ __forceinline__ sector_run run_of(int at, int bias_rows) const
    {
        const int first = at + begin + (joined() ? 0 : SECTOR - 1), last = at + end + bias_rows * row_stride;
        return {at + begin, last, first & ~(SECTOR - 1), last & ~(SECTOR - 1)};
    }

    /* What precedes the run, if nothing was kept, and follows it: less than a sector each, a lane an element. The
     * latter is kept for the next row, if there is one. to: of element 0. */
    template <class Value>
    __device__ __forceinline__ void write_ends(Element *to, const sector_run &run, int row, int lane,
                                               Element *kept_of_channel, const Value &value) const
    {
        const int head = run.begin + lane, tail = max(run.first, run.last) + lane;
        if (head < min(run.first, run.end))
            to[head] = value(head);
        if (tail < run.end && lane < SECTOR) {
            if (row < last_row)
                kept_of_channel[lane] = value(tail);
            else
                to[tail] = value(tail);
        }
    }

    /* Stores a row without taps. */
    __device__ __forceinline__ void write_bias(int row)
    {
        const int lane = lane_of_half(), shift = shift_of_row(row);
        __syncwarp();
        for (int channel = first_channel(); channel < channels; channel += channel_step()) {
            const Element value = untapped(channel);
            const int at = shift + channel * pitch;
            Element *to = target(channel, row) - at, *kept_of_channel = kept + channel * SECTOR;
            const sector_run run = run_of(at, 0);
            int first = run.first;
            if (first < run.begin) {
                if (lane < SECTOR)
                    to[first + lane] = first + lane < run.begin ? kept_of_channel[lane] : value;
                first += SECTOR;
            }
            write_constant(to, first, run.last, value, lane);
            write_ends(to, run, row, lane, kept_of_channel, [&](int) { return value; });
        }
        commit(lane);
        written = row;
    }

    /* Stores one value to the elements from first to last, of whole sectors: zeros by bulk stores. */
    __device__ __forceinline__ void write_constant(Element *to, int first, int last, Element value, int lane) const
    {
#if __CUDA_ARCH__ >= 900
        if (params->bias == NULL && __float_as_uint(to_compute(value)) == 0) {
            if (lane == 0)
#pragma unroll 1
                for (int column = first; column < last; column += zero_count)
                    bulk_store(to + column, shared_address(zeros),
                               min(last - column, zero_count) * (int)sizeof(Element));
            return;
        }
#endif
        element_vector<Element, LENGTH> values;
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            values.at[i] = value;
#pragma unroll 2
        for (int column = first + lane * LENGTH; column < last; column += HALF_WARP * LENGTH)
            store_streaming(to + column, &values);
    }

    static __device__ __forceinline__ void commit(int lane)
    {
#if __CUDA_ARCH__ >= 900
        if (lane == 0)
            bulk_store_commit();
#endif
    }

    /* Waits until the row staged before has been read, for all threads. */
    __device__ __forceinline__ void wait_for_staging() const
    {
        finish();
        __syncthreads();
    }

    /* Writes what all threads have staged, up to element `reach` from where a row with a shift of 0 begins, and so many
     * rows without taps behind it, none where there is no room for them (has_bias_rows). shift: shift_of_row. */
    template <bool has_bias_rows>
    __device__ __forceinline__ void store_staging(int row, int shift, int bias_rows, int reach)
    {
        const int lane = lane_of_half();
        make_visible();
        __syncthreads();
        for (int channel = first_channel(); channel < round_to_warps(channels); channel += channel_step()) {
            const int at = shift + channel * pitch;
            Element *to = target(channel, row) - at, *kept_of_channel = kept + channel * SECTOR;
            const sector_run run = run_of(at, has_bias_rows ? bias_rows : 0);
            const bool exists = channel < channels, begins_with_kept = lane < run.begin - run.first;
            if (exists && begins_with_kept)
                staging[run.first + lane] = kept_of_channel[lane];
            if (has_bias_rows && exists && bias_rows > 0)
                restore_bias_rows(channel * pitch, at + end, reach);
            if (exists && (begins_with_kept || (has_bias_rows && bias_rows > 0)))
                make_visible();
            __syncwarp();
            if (exists) {
                write_run(to, run, lane);
                write_ends(to, run, has_bias_rows ? row + bias_rows : row, lane, kept_of_channel,
                           [&](int column) { return staging[column]; });
            }
        }
        commit(lane);
        written = has_bias_rows ? row + bias_rows : row;
    }

    /* Both halves of a warp go through as many channels. */
    static __device__ __forceinline__ int round_to_warps(int channels)
    {
        return (channels + 1) & ~1;
    }

    /* Clears what a row that ends at `end` and earlier ones left of the rows without taps of a channel, which lies at
     * `first`. */
    __device__ __forceinline__ void restore_bias_rows(int first, int end, int reach) const
    {
        const Element bias_value = staging[first + pitch - SECTOR - 1];
#pragma unroll 1
        for (int i = end + lane_of_half(); i < first + reach + SECTOR; i += HALF_WARP)
            staging[i] = bias_value;
    }

    __device__ __forceinline__ void write_run(Element *to, const sector_run &run, int lane) const
    {
#if __CUDA_ARCH__ >= 900
        if (lane == 0 && run.first < run.last)
            bulk_store(to + run.first, shared_address(staging + run.first),
                       (run.last - run.first) * (int)sizeof(Element));
#else
        for (int column = run.first + lane * LENGTH; column < run.last; column += HALF_WARP * LENGTH)
            store_streaming(to + column, staging + column);
#endif
    }

    /* Makes what this thread has staged visible to bulk stores. */
    static __device__ __forceinline__ void make_visible()
    {
#if __CUDA_ARCH__ >= 900
        fence_proxy_async();
#endif
    }

    /* Waits until this thread's stores have read shared memory: before the block ends too. */
    __device__ __forceinline__ void finish() const
    {
#if __CUDA_ARCH__ >= 900
        if (lane_of_half() == 0)
            bulk_store_wait_read<0>();
#endif
    }
};

} // namespace tconv::mma

#endif
