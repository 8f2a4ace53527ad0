/* Affine lists of post-ops as rounds (affine.h), on values in registers: many accumulators, or a few outputs that are about
 * to be stored. Values are in f32 and rounded after each step of the list. */
#ifndef TCONV_CUDA_EPILOGUE_AFFINE_CUH
#define TCONV_CUDA_EPILOGUE_AFFINE_CUH

#include "affine.h"
#include "layer_posts.cuh"

namespace tconv
{

/* A round multiplies with the factor and adds the term; both are of one channel. */
struct round_numbers {
    float factor, term;

    __device__ __forceinline__ float operator()(float y) const
    {
        return multiply_add_rounded(y, factor, term);
    }
};

/* Reads a round's numbers of output channels of all groups. The round has at least one array:
 * without the other the same array is read twice, so that nothing branches. */
struct numbers_reader {
    const float *factors, *terms;
    bool multiplies, adds;

    __device__ __forceinline__ numbers_reader(const affine_round &round)
        : factors(round.factors != NULL ? round.factors : round.terms),
          terms(round.terms != NULL ? round.terms : round.factors), multiplies(round.factors != NULL),
          adds(round.terms != NULL)
    {
    }

    __device__ __forceinline__ round_numbers operator()(unsigned channel) const
    {
        const float factor = __ldg(factors + channel), term = __ldg(terms + channel);
        return {multiplies ? factor : 1.0f, adds ? term : NO_BIAS};
    }
};

/* y > 0 ? y : slope * y in two instructions, of which one is predicated; NaN stays NaN. A slope of 0 is a bound. */
__device__ __forceinline__ float slope_below_zero(float y, float slope)
{
    asm("{\n.reg .pred above;\nsetp.gt.f32 above, %0, 0f00000000;\n@!above mul.rn.f32 %0, %0, %1;\n}"
        : "+f"(y)
        : "f"(slope));
    return y;
}

/* NaN stays NaN. */
__device__ __forceinline__ float bound_below(float y, float least)
{
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(y) : "f"(least));
    return y;
}
__device__ __forceinline__ float bound_above(float y, float most)
{
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(y) : "f"(most));
    return y;
}

/* Takes many values, which have their bias, through all rounds, in place. The parts that a round has not are passed over.
 * scale(round) multiplies and adds where the round has numbers of channels. */
template <int COUNT, class Scale>
__device__ __forceinline__ void run_affine_rounds(const affine_posts &posts, float (&values)[COUNT], const Scale &scale)
{
#pragma unroll 1
    for (int i = 0; i < posts.count; i++) {
        const affine_round &round = posts.rounds[i];
        const int parts = round.parts;
        if (round.factors != NULL || round.terms != NULL) {
            scale(round);
        } else if (parts & ROUND_SCALES) {
            const round_numbers numbers = {round.factor, round.term};
            for_each_value(values, [=](float y, int) { return numbers(y); });
        }
        if (parts & ROUND_SLOPES) {
            const float slope = round.slope;
            for_each_value(values, [=](float y, int) { return slope_below_zero(y, slope); });
        }
        if (parts & ROUND_BOUNDS_BELOW) {
            const float least = round.least;
            for_each_value(values, [=](float y, int) { return bound_below(y, least); });
        }
        if (parts & ROUND_BOUNDS_ABOVE) {
            const float most = round.most;
            for_each_value(values, [=](float y, int) { return bound_above(y, most); });
        }
    }
}

/* Reads a round's numbers of an output channel of all groups, if it has such. */
__device__ __forceinline__ round_numbers read_numbers(const affine_round &round, int channel)
{
    if (round.factors == NULL && round.terms == NULL)
        return {round.factor, round.term};
    return numbers_reader(round)((unsigned)channel);
}

/* A round's numbers of so many channels. */
template <int CHANNELS> struct channel_numbers {
    round_numbers of[CHANNELS];
};

/* Reads them. channel(i): of all groups. */
template <int CHANNELS, class Channel>
__device__ __forceinline__ channel_numbers<CHANNELS> read_numbers(const affine_round &round, const Channel &channel)
{
    channel_numbers<CHANNELS> numbers;
#pragma unroll
    for (int i = 0; i < CHANNELS; i++)
        numbers.of[i] = read_numbers(round, channel(i));
    return numbers;
}

/* Takes a value through all parts of a round: without a part, its number changes no bit. */
__device__ __forceinline__ float run_affine_round(const affine_round &round, const round_numbers &numbers, float y)
{
    return bound_above(bound_below(slope_below_zero(numbers(y), round.slope), round.least), round.most);
}

/* Takes a few values, which have their bias, through all rounds, at least one. Values of a channel follow one another.
 * first: the numbers of the first round, which a kernel reads once for many values, so that nothing branches; lists of
 * more rounds are rare. channel(i): of all groups. */
template <int COUNT, int CHANNELS, class Channel>
__device__ __forceinline__ void run_affine_rounds(const affine_posts &posts, float (&values)[COUNT],
                                                  const channel_numbers<CHANNELS> &first, const Channel &channel)
{
    constexpr int OF_CHANNEL = COUNT / CHANNELS;
    static_assert(COUNT % CHANNELS == 0, "as said");
    for_each_value(values,
                   [&](float y, int i) { return run_affine_round(posts.rounds[0], first.of[i / OF_CHANNEL], y); });
#pragma unroll 1
    for (int i = 1; i < posts.count; i++)
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            const round_numbers numbers = read_numbers(posts.rounds[i], channel(c));
#pragma unroll
            for (int j = c * OF_CHANNEL; j < (c + 1) * OF_CHANNEL; j++)
                values[j] = run_affine_round(posts.rounds[i], numbers, values[j]);
        }
}

} // namespace tconv

#endif
