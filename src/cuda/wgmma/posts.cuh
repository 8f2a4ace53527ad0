/*
 * Post-ops. Consumers take their accumulators through the affine steps with which a layer's list begins. What is left of
 * the list the epilogue warps run in place on the outputs of a subtile, which are staged in f32: one step on all outputs
 * before the next step, so that what a step costs beside its arithmetic, its place in the list and the numbers of its
 * channels, is paid once for many outputs.
 */
#ifndef TCONV_CUDA_WGMMA_POSTS_CUH
#define TCONV_CUDA_WGMMA_POSTS_CUH

#include "../epilogue/posts.cuh"
#include "../ptx/tma.cuh"
#include "epilogue.cuh"

namespace tconv::wgmma
{

/* Takes the accumulators of a warp through their bias and the first steps. */
template <int COUNT>
__device__ __forceinline__ void run_accumulator_posts(const parameters &params, const tile_place &tile, int warpgroup,
                                                      int warp, int lane, const float (&bias)[2],
                                                      float (&accumulators)[MMA_TILES][COUNT])
{
    int channels[2]; /* of all groups; those that do not exist are the last */
#pragma unroll
    for (int i = 0; i < 2; i++)
        channels[i] = tile.group * params.group_out +
                      min(accumulator_channel(params, tile, warpgroup, warp, lane, i), params.group_out - 1);
#pragma unroll
    for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++)
        run_affine_posts(
            params.posts.of_sums, accumulators[mma_tile], [&](int i) { return bias[i / 2 % 2]; },
            [&](const void *array) {
                const float *numbers = static_cast<const float *>(array);
                const float first = numbers[channels[0]], second = numbers[channels[1]];
                return [=](int i) { return i / 2 % 2 == 0 ? first : second; };
            });
}

/* The epilogue of a consumer warp. */
template <class Mode, int N>
__device__ __forceinline__ void finish_tile(const parameters &params, const shared_layout &shared,
                                            const tile_place &tile, float (&accumulators)[MMA_TILES][N / 2],
                                            float (&bias)[2], int warp, int lane, uint32_t &staged_parity)
{
    if (params.posts.of_sums.count > 0) {
        run_accumulator_posts(params, tile, warp / WARPGROUP_WARPS, warp % WARPGROUP_WARPS, lane, bias, accumulators);
        bias[0] = bias[1] = NO_BIAS;
    }
    stage_tile<Mode, N>(params, shared, tile, accumulators, bias, warp, lane, staged_parity);
}

/* Returns a number as one of which nothing is known: what follows from it is computed again, and no register keeps it
 * through the post-ops, which need all registers. */
__device__ __forceinline__ int anew(int number)
{
    asm volatile("" : "+r"(number));
    return number;
}

/* Whether what is staged is not rounded yet. */
template <class Mode> constexpr bool STAGES_F32 = sizeof(typename Mode::Element) == sizeof(float);

/*
 * The outputs of COUNT channels of a subtile, which are staged `pitch` bytes apart: where a position is one column, every
 * second channel. A lane has every WARPth of a channel's outputs, of all channels at once: a warp's accesses are then
 * neighbours, wherever rows begin. Channels that do not exist, after the last, are staged all the same.
 */
template <int COUNT, int pitch> struct staged_outputs {
    const parameters &params;
    const mma_tile_place &place;
    uint32_t from; /* where the first output of the first channel is staged, less place.first */
    int lane;
    const post_tail *tail; /* of the step that is run */
    int row, column;       /* of the outputs that for_each_value is at */
};

/* What run_post takes the addend from. */
template <int COUNT, class Outputs> struct staged_addend {
    struct elements {
        const Outputs &of;
        const float *first; /* of the first row of each channel */
        int64_t channels[COUNT];
        __device__ __forceinline__ float operator[](int i) const
        {
            const int64_t row = (int64_t)of.params.stride_h * of.params.out_columns;
            return __ldg(first + of.row * row + of.column + channels[i]);
        }
    } at;
};

template <int COUNT, int pitch, class Function>
__device__ __forceinline__ void for_each_value(staged_outputs<COUNT, pitch> &outputs, Function function)
{
    const parameters &params = outputs.params;
    const int staged_row = (params.flat_columns > 0 ? params.flat_columns : params.pitch) * params.position_columns;
#pragma unroll 1
    for (int at = outputs.place.first + outputs.lane; at < outputs.place.end; at += WARP) {
        const quotient rows = divide(at, outputs.place.by_row);
        const uint32_t from = outputs.from + (rows.whole * staged_row + rows.rest) * (int)sizeof(float);
        float values[COUNT];
        outputs.row = rows.whole;
        outputs.column = rows.rest;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            values[i] = load_shared<float>(from + i * pitch);
        tconv::for_each_value(values, function);
        if (outputs.tail->exists)
            run_tail(*outputs.tail, values);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            store_shared(from + i * pitch, values[i]);
    }
}

/* The same as subtile_channel, however the subtile is staged. */
template <class Mode, int N>
__device__ __forceinline__ int first_channel(const parameters &params, const tile_place &tile, int warpgroup, int warp,
                                             int subtile)
{
    if (params.column_phases == 2)
        return subtile_channel<staging<Mode, N, PHASES>>(params, tile, warpgroup, warp, subtile);
    if (params.position_columns == 2)
        return subtile_channel<staging<Mode, N, SPACE_TO_DEPTH>>(params, tile, warpgroup, warp, subtile);
    return subtile_channel<staging<Mode, N, SINGLE>>(params, tile, warpgroup, warp, subtile);
}

/* Asks for the addend of a subtile, long before the subtile is staged. */
template <class Mode, int N>
__device__ __forceinline__ void prefetch_addend(const parameters &params, const tile_place &tile,
                                                const mma_tile_place &place, int warpgroup, int warp, int subtile,
                                                int lane)
{
    constexpr int LINE = 128 / (int)sizeof(float);
    const int first = first_channel<Mode, N>(params, tile, warpgroup, warp, subtile);
    const int channels = min(WARP_M / params.position_columns, params.group_out - first);
    const float *addend = static_cast<const float *>(params.posts.addend) + place.offset + first * params.dst_channel;
    for (int at = place.first + lane * LINE; at < place.end; at += WARP * LINE) {
        const quotient rows = divide(at, place.by_row);
        const float *from = addend + rows.whole * (int64_t)params.stride_h * params.out_columns + rows.rest;
#pragma unroll 1
        for (int c = 0; c < channels; c++, from += params.dst_channel)
            prefetch(from);
    }
}

/* Runs the steps on a subtile, and makes it visible to bulk copies. */
template <class Mode, int N>
__device__ __forceinline__ void run_staged_posts(const parameters &params, const tile_place &tile,
                                                 const mma_tile_place &place, uint32_t staged, int warpgroup, int warp,
                                                 int subtile, int lane)
{
    constexpr int COUNT = Mode::STAGED_POST_CHANNELS, PITCH = staging<Mode, N, PHASES>::PITCH;
    using Outputs = staged_outputs<COUNT, PITCH>;
    using Functions = std::conditional_t<Mode::STRICT, exact_functions, fast_functions>;
    const int first = first_channel<Mode, N>(params, tile, warpgroup, warp, subtile);
    const int alternate = 2 - params.position_columns; /* log2 of the channels after which one is PITCH bytes on */
    const int channels = min(WARP_M >> (1 - alternate), params.group_out - first);
    const int64_t offset = place.offset + first * params.dst_channel;
    if (params.staged_misaligned) /* all rows alike: see can_store_bulk */
        staged += (int)(uintptr_t)(static_cast<const float *>(params.dst) + offset + place.first) & 15;
    staged -= place.first * (int)sizeof(float);
#pragma unroll 1
    for (int i = 0; i < (8 << alternate) / COUNT; i++) {
        const int c = (i >> alternate) * (COUNT << alternate) + (i & alternate);
        if (c >= channels)
            continue;
        Outputs outputs = {params, place, staged + (uint32_t)(c * staging<Mode, N, SINGLE>::PITCH << (1 - alternate)),
                           lane,   NULL,  0,
                           0};
        /* Returns which channel of the subtile values k are of; those that do not exist are the last. */
        const auto channel_of = [&](int from, int k) { return min(from + (k << alternate), channels - 1); };
        const auto numbers_of_channels = [&](const void *array) {
            const float *numbers = static_cast<const float *>(array) + tile.group * params.group_out + first;
            const int from = anew(c);
            element_vector<float, COUNT> of_channels;
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                of_channels.at[k] = __ldg(numbers + channel_of(from, k));
            return of_channels;
        };
        const auto addend_of_outputs = [&] {
            const int from = anew(c);
            staged_addend<COUNT, Outputs> addend = {
                {outputs, static_cast<const float *>(params.posts.addend) + place.offset, {}}};
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                addend.at.channels[k] = (first + channel_of(from, k)) * params.dst_channel;
            return addend;
        };
#pragma unroll 1
        for (int step = 0; step < params.posts.of_staged.count; step++) {
            outputs.tail = &params.posts.tails[step];
            run_post<float, Functions>(params.posts.of_staged.of[step], outputs, numbers_of_channels,
                                       addend_of_outputs);
        }
    }
    fence_proxy_async();
    __syncwarp();
}

} // namespace tconv::wgmma

#endif
