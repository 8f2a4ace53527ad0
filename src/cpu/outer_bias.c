/*
 * The gradient of the bias, of each output channel by itself: its outputs in segments, in Real, then in double, with what
 * rounding loses. A part of the images is summed by itself.
 */
#include <string.h>

#include "../core/checked.h"
#include "outer_task.h"

/* Outputs that are converted at a time, and those of a segment. They are chosen, not measured. */
enum { PIECE = 512, SEGMENT = 32 };

/* Adds a number to a sum in double, and what that rounds off to low. */
static void add(double *high, double *low, double value)
{
    const double sum = *high + value, added = sum - *high;
    *low += (*high - (sum - added)) + (value - added);
    *high = sum;
}

/* Adds numbers that lie `step` apart, segment by segment. */
#define DEFINE_ADD_RUN(real_type)                                                                                      \
    static void add_run_##real_type(const void *numbers, int64_t step, int64_t count, double *high, double *low)       \
    {                                                                                                                  \
        const real_type *from = numbers;                                                                               \
        for (int64_t begin = 0; begin < count; begin += SEGMENT) {                                                     \
            double sum = 0;                                                                                            \
            for (int64_t i = begin; i < tconv_min(count, begin + SEGMENT); i++)                                        \
                sum += (double)from[i * step];                                                                         \
            add(high, low, sum);                                                                                       \
        }                                                                                                              \
    }

DEFINE_ADD_RUN(float)
DEFINE_ADD_RUN(double)

/* Adds rows of outputs, `count` channels each `step` apart where they are pixels, else of one channel. */
static void add_piece(const tconv_cpu_outer_job *job, const char *from, int64_t count, int64_t channels, double *high,
                      double *low)
{
    const tconv_cpu_outer_plan *plan = job->plan;
    const tconv_dtype dtype = job->layer->problem.dtype;
    double real[PIECE];
    const tconv_cpu_pixel_load load = {.src = from, .strip = real, .rows = 1, .count = count * channels};
    plan->pixels->dtype[dtype].load(&load);
    for (int64_t c = 0; c < channels; c++)
        (plan->real ? add_run_double : add_run_float)(tconv_cpu_real_at(plan->real_size, real, c), channels, count,
                                                      &high[c], &low[c]);
}

/* NCHW: adds the plane of a channel; NHWC: the pixels' channels [channel, channel + channels). */
static void add_image(const tconv_cpu_outer_job *job, int64_t image, int64_t channel, int64_t channels, double *high,
                      double *low)
{
    const tconv_problem *problem = &job->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    const char *from = job->dst + (image * problem->dst.n + channel * problem->dst.c) * size;
    const bool pixels = problem->layout == TCONV_NHWC;
    const bool dense = pixels && problem->dst.w == channels;
    const int64_t all = problem->h.out * problem->w.out, most = pixels && !dense ? 1 : PIECE / channels;
    for (int64_t done = 0, count; done < all; done += count) {
        count = tconv_min(most, all - done);
        add_piece(job, from + done * (pixels ? problem->dst.w : 1) * size, count, channels, high, low);
    }
}

/* Channels that are summed together. */
static int64_t together(const tconv_problem *problem)
{
    return problem->layout == TCONV_NHWC ? tconv_min(problem->out_channels, PIECE) : 1;
}

/* Task: some channels in a part of the images. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_outer_job *job = shared->job;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t most = together(problem), blocks = tconv_ceil_div(problem->out_channels, most);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < shared->tasks.count;) {
        const int64_t part = taken / blocks;
        const tconv_cpu_range images = tconv_cpu_share_of(problem->batch, (int)part, (int)job->plan->bias_parts);
        int64_t channel;
        const int64_t channels = tconv_cpu_cut_tile(taken % blocks, most, problem->out_channels, &channel);
        double *high = job->bias_parts + part * 2 * problem->out_channels + channel;
        double *low = high + problem->out_channels;
        memset(high, 0, (size_t)channels * sizeof *high);
        memset(low, 0, (size_t)channels * sizeof *low);
        for (int64_t image = images.begin; image < images.end; image++)
            add_image(job, image, channel, channels, high, low);
    }
}

void tconv_cpu_sum_outer_bias(const tconv_cpu_outer_job *job, char *scratch)
{
    const tconv_problem *problem = &job->layer->problem;
    const int64_t channels = problem->out_channels, parts = job->plan->bias_parts;
    double *high = job->bias_parts, *low = high + channels;
    tconv_cpu_run_tasks(&job->layer->target, job->plan->threads, parts * tconv_ceil_div(channels, together(problem)),
                        job, scratch, run_share);
    for (int64_t part = 1; part < parts; part++)
        for (int64_t c = 0; c < channels; c++) {
            add(&high[c], &low[c], high[part * 2 * channels + c]);
            low[c] += low[part * 2 * channels + c];
        }
    for (int64_t c = 0; c < channels; c++) {
        high[c] = low[c] - low[c] == 0 ? high[c] + low[c] : high[c]; /* NaN beside Inf */
        low[c] = 0;
    }
    tconv_cpu_store_outer(problem->dtype, job->bias, 1, high, low, channels);
}
