/*
 * The gradient of the bias, summed from the slots of K-tiles. This is right where each output has exactly one tap, so
 * that it lies in the slots of one K-tile (plan_bias.c, producers_sum). Producer warps sum: they wait for a
 * filled stage and release it, as consumers do. Blocks whose tiles differ in input channels alone have the same slots,
 * and take turns.
 *
 * Numeric order: two, four or eight outputs are added in f32; these sums are added in f32 with what rounding loses; the
 * sums of a block are added in double. The results are partial sums, which bias.cu adds. Where the blocks of a plan
 * cannot sum the bias, slot_pass.cu does so in this order.
 */
#ifndef TCONV_CUDA_WGRAD_SLOT_BIAS_CUH
#define TCONV_CUDA_WGRAD_SLOT_BIAS_CUH

#include "../numeric/compensated.cuh"
#include "../numeric/element.cuh"
#include "../ptx/sync.cuh"
#include "load.cuh"

namespace tconv::wgrad
{

constexpr int SLOT_CHANNELS = 4;    /* channels of a thread, where channels are neighbours in a slot */
constexpr int MAX_LINE_THREADS = 8; /* threads that sum the lines of a channel, at most */

/* A thread adds the outputs of so many slots before they join its sums: they take 8 registers. */
constexpr int SLOTS_AT_ONCE = 2;

/* Loads `count` neighbouring elements from shared memory. */
template <class Element, int count>
__device__ __forceinline__ element_vector<Element, count> load_outputs(uint32_t from)
{
    return load_shared<element_vector<Element, count>>(from);
}

/* Adds the outputs of SLOTS_AT_ONCE slots to a thread's sums. */
template <class Element>
__device__ __forceinline__ void add_slots(lossless_sum<float> (&sums)[SLOT_CHANNELS],
                                          const element_vector<Element, SLOT_CHANNELS> (&slots)[SLOTS_AT_ONCE])
{
#pragma unroll
    for (int j = 0; j < SLOT_CHANNELS; j++)
        sums[j].add(static_cast<float>(slots[0].at[j]) + static_cast<float>(slots[1].at[j]));
}

/* The place of a block's partial sum of its first channel, the channels of its chunk that exist, and its number among the parts of
 * each channel. */
struct bias_part {
    double2 *to;
    int channels;
    int64_t number;
};

static __device__ __forceinline__ bias_part find_bias_part(const parameters &p, const block_work &work)
{
    const tile_at tile = find_tile(p.by, (int)work.number);
    const int64_t part =
        ((work.split * p.tiles.m_tiles + tile.m_tile) * p.tiles.rows.groups + tile.row_group) * p.tiles.columns.groups +
        tile.column_group;
    const int64_t first = tile.chunk * p.tiles.chunk;
    return {static_cast<double2 *>(p.bias_parts) + (part * p.tiles.groups + tile.group) * p.tiles.group_out + first,
            (int)min(p.tiles.group_out - first, p.tiles.chunk), part};
}

static __device__ __forceinline__ lossless_sum<double> widened(const lossless_sum<float> &sum)
{
    return {(double)sum.sum, (double)sum.lost};
}

/* A thread's sums where channels are neighbours in a slot. The thread has some of the slots, and SLOT_CHANNELS
 * channels. */
template <class Element> struct slot_sums {
    static constexpr int AT_ONCE = SLOTS_AT_ONCE;
    lossless_sum<float> at[SLOT_CHANNELS] = {};

    /* The thread's first slot, the slots that all threads read at once, and the first of the thread's channels. */
    struct share {
        int first, rows, channel;
    };
    static __device__ __forceinline__ share share_of(const parameters &p, crew by)
    {
        asm volatile("" : "+r"(by.thread)); /* or it is kept in registers all the time */
        const int threads = (int)p.tiles.chunk / SLOT_CHANNELS, first = by.thread / threads;
        return {first, by.threads / threads, (by.thread - first * threads) * SLOT_CHANNELS};
    }

    __device__ __forceinline__ void add(const parameters &p, const block_tile &block, crew by, uint32_t slots)
    {
        const auto [first, rows, channel] = share_of(p, by);
        using Vector = element_vector<Element, SLOT_CHANNELS>;
        if (first >= rows)
            return;
        slots += channel * (int)sizeof(Element);
#pragma unroll 1
        for (int i = first; i < block.slots; i += AT_ONCE * rows) {
            Vector loaded[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                loaded[j] = {};
                if (i + j * rows < block.slots)
                    loaded[j] = load_outputs<Element, SLOT_CHANNELS>(slots + (i + j * rows) * p.dst_pitch);
            }
            add_slots(at, loaded);
        }
    }

    /* Adds the sums of all threads, in shared memory that is no longer in use otherwise. */
    template <int threads>
    __device__ __forceinline__ void finish(const parameters &p, const block_work &work, crew by, uint32_t memory) const
    {
        constexpr int SIZE = sizeof(lossless_sum<float>);
        const int chunk = (int)p.tiles.chunk;
        const auto [first, rows, channel] = share_of(p, by);
        if (first < rows)
#pragma unroll
            for (int j = 0; j < SLOT_CHANNELS; j++)
                store_shared(memory + (first * chunk + channel + j) * SIZE, at[j]);
        named_barrier_sync<threads>();
        const bias_part part = find_bias_part(p, work);
#pragma unroll 1
        for (int c = by.thread; c < part.channels; c += threads) {
            lossless_sum<double> sum = {0, 0};
#pragma unroll 1
            for (int row = 0; row < rows; row++)
                sum.add(widened(load_shared<lossless_sum<float>>(memory + (row * chunk + c) * SIZE)));
            part.to[c] = make_double2(sum.sum, sum.lost);
        }
    }
};

/* A thread's sums in load mode LINES: of one channel. */
template <class Element> struct line_sums {
    lossless_sum<float> sum = {};

    struct share {
        int threads, channel, first; /* threads of a channel; the thread's channel; its first vector of a line */
    };
    static __device__ __forceinline__ share share_of(const parameters &p, crew by)
    {
        int threads = MAX_LINE_THREADS;
        while (threads > 1 && threads * (int)p.tiles.chunk > by.threads)
            threads /= 2;
        return {threads, by.thread / threads, by.thread % threads};
    }

    __device__ __forceinline__ void add_vector(const element_vector<Element, access_length<Element>> &loaded)
    {
        constexpr int LENGTH = access_length<Element>;
        float few[LENGTH];
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            few[i] = static_cast<float>(loaded.at[i]);
#pragma unroll
        for (int half = LENGTH / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; i++)
                few[i] += few[i + half];
        sum.add(few[0]);
    }

    __device__ __forceinline__ void add(const parameters &p, const block_tile &block, crew by, uint32_t slots)
    {
        const auto [threads, channel, first] = share_of(p, by);
        constexpr int LENGTH = access_length<Element>;
        const int vectors = (p.columns.stride << p.columns.tile_log2) / LENGTH,
                  rows = p.rows.extent << p.images.tile_log2;
        if (channel >= (int)p.tiles.chunk)
            return;
        slots += channel * p.dst_pitch;
#pragma unroll 1
        for (int residue = 0; residue < block.row_residues; residue++, slots += p.lines.residue_bytes) {
            uint32_t line = slots;
#pragma unroll 1
            for (int row = 0; row < rows; row++, line += p.row_pitch)
#pragma unroll 2
                for (int j = first; j < vectors; j += threads)
                    add_vector(load_outputs<Element, LENGTH>(line + j * ACCESS_BYTES));
        }
    }

    template <int>
    __device__ __forceinline__ void finish(const parameters &p, const block_work &work, crew by, uint32_t) const
    {
        const auto [threads, channel, first] = share_of(p, by);
        lossless_sum<double> all = widened(sum);
#pragma unroll 1
        for (int lanes = threads / 2; lanes > 0; lanes /= 2)
            all.add({__shfl_down_sync(~0u, all.sum, lanes), __shfl_down_sync(~0u, all.lost, lanes)});
        const bias_part part = find_bias_part(p, work);
        if (first == 0 && channel < part.channels)
            part.to[channel] = make_double2(all.sum, all.lost);
    }
};

/* The turns of a block: it sums every m_tiles-th K-tile. */
struct bias_turns {
    int until;
    __device__ __forceinline__ bool next(const parameters &p)
    {
        const bool now = until == 0;
        until = (now ? (int)p.tiles.m_tiles : until) - 1;
        return now;
    }
};

} // namespace tconv::wgrad

#endif
