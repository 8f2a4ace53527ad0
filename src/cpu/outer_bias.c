/*
 * The gradient of the bias, of each output channel by itself: its outputs in segments, in Real, then in double, with what
 * rounding loses. A part of the images is summed by itself.
 */
#include <string.h>

#include "../core/checked.h"
#include "outer_task.h"

/* Outputs that are converted at a time, and those of a segment. They are chosen, not measured. */
enum { PIECE = 512, SEGMENT = 32 };

/* Adds numbers that lie `step` apart, segment by segment. */
#define DEFINE_ADD_RUN(real_type)                                                                                      \
    static void add_run_##real_type(const void *numbers, int64_t step, int64_t count, tconv_cpu_reference_sum *to)     \
    {                                                                                                                  \
        const real_type *from = numbers;                                                                               \
        for (int64_t begin = 0; begin < count; begin += SEGMENT) {                                                     \
            double sum = 0;                                                                                            \
            for (int64_t i = begin; i < tconv_min(count, begin + SEGMENT); i++)                                        \
                sum += (double)from[i * step];                                                                         \
            tconv_cpu_reference_add(to, sum);                                                                          \
        }                                                                                                              \
    }

DEFINE_ADD_RUN(float)
DEFINE_ADD_RUN(double)

/* Adds rows of outputs, `count` channels each `step` apart where they are pixels, else of one channel. */
static void add_piece(const tconv_cpu_outer_job *job, const char *from, int64_t count, int64_t channels,
                      tconv_cpu_reference_sum *sums)
{
    const tconv_cpu_outer_plan *plan = job->plan;
    const tconv_dtype dtype = job->layer->problem.dtype;
    double real[PIECE];
    const tconv_cpu_pixel_load load = {.src = from, .strip = real, .rows = 1, .count = count * channels};
    plan->pixels->dtype[dtype].load(&load);
    for (int64_t c = 0; c < channels; c++)
        (plan->real ? add_run_double : add_run_float)(tconv_cpu_real_at(plan->real_size, real, c), channels, count,
                                                      &sums[c]);
}

/* NCHW: adds the plane of a channel; NHWC: the pixels' channels [channel, channel + channels). */
static void add_image(const tconv_cpu_outer_job *job, int64_t image, int64_t channel, int64_t channels,
                      tconv_cpu_reference_sum *sums)
{
    const tconv_problem *problem = &job->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    const char *from = job->dst + (image * problem->dst.n + channel * problem->dst.c) * size;
    const bool pixels = problem->layout == TCONV_NHWC;
    const bool dense = pixels && problem->dst.w == channels;
    const int64_t all = problem->h.out * problem->w.out, most = pixels && !dense ? 1 : PIECE / channels;
    for (int64_t done = 0, count; done < all; done += count) {
        count = tconv_min(most, all - done);
        add_piece(job, from + done * (pixels ? problem->dst.w : 1) * size, count, channels, sums);
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
        tconv_cpu_reference_sum *sums = job->bias_parts + part * problem->out_channels + channel;
        memset(sums, 0, (size_t)channels * sizeof *sums);
        for (int64_t image = images.begin; image < images.end; image++)
            add_image(job, image, channel, channels, sums);
    }
}

void tconv_cpu_sum_outer_bias(const tconv_cpu_outer_job *job, char *scratch)
{
    const tconv_problem *problem = &job->layer->problem;
    const int64_t channels = problem->out_channels, parts = job->plan->bias_parts;
    tconv_cpu_reference_sum *sums = job->bias_parts;
    tconv_cpu_run_tasks(&job->layer->target, job->plan->threads, parts * tconv_ceil_div(channels, together(problem)),
                        job, scratch, run_share);
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t part = 1; part < parts; part++) {
            tconv_cpu_reference_add(&sums[c], sums[part * channels + c].high);
            sums[c].low += sums[part * channels + c].low;
        }
        tconv_cpu_reference_add(&sums[c], tconv_cpu_reference_start(problem, job->bias, c));
        tconv_cpu_reference_accesses[problem->dtype].put(job->bias, c, tconv_cpu_reference_total(&sums[c]));
    }
}
