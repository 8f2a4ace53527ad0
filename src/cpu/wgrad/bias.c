/*
 * The gradient of the bias, of each output channel by itself: the outputs of an image in double, those of a few channels
 * by as many sums side by side as SIDE_BY_SIDE has room for (of f64 with what rounding loses), then these sums, and the
 * images, with what rounding loses. A part of the images is summed by itself.
 */
#include <string.h>

#include "../../core/checked.h"
#include "task.h"

/* Outputs that are converted at a time, channels that are summed together, a vector of any level, and sums of a few channels
 * that are added to side by side. They are chosen, not measured; the first two are on the stack. */
enum { PIECE = 512, TOGETHER = 128, VECTOR = 16, SIDE_BY_SIDE = 32 };

/* NCHW: adds the plane of a channel; NHWC: the pixels' channels [channel, channel + channels). */
static void add_image(const tconv_cpu_wgrad_job *job, int64_t image, int64_t channel, int64_t channels,
                      tconv_cpu_reference_sum *sums)
{
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t step = problem->layout == TCONV_NHWC ? problem->dst.w : 1, size = (int64_t)problem->element_size;
    const char *from = job->dst + (image * problem->dst.n + channel * problem->dst.c) * size;
    const int64_t all = problem->h.out * problem->w.out;
    const int64_t outputs = step == channels ? tconv_max(1, SIDE_BY_SIDE / channels) : 1; /* of a row of numbers */
    const int64_t width = outputs * channels, pitch = tconv_round_up(width, VECTOR);
    double real[PIECE], high[TOGETHER], low[TOGETHER];
    memset(high, 0, (size_t)pitch * sizeof *high);
    memset(low, 0, (size_t)pitch * sizeof *low);
    if (pitch > width)
        memset(real, 0, sizeof real);
    for (int64_t done = 0, taken; done < all; done += taken) {
        int64_t rows = tconv_min(PIECE / pitch, (all - done) / outputs);
        tconv_cpu_pixel_load load = {.src = from + done * step * size,
                                     .strip = real,
                                     .rows = rows,
                                     .count = width,
                                     .src_pitch = outputs * step,
                                     .strip_pitch = pitch};
        taken = rows * outputs;
        if (rows == 0) { /* the last outputs are less than a row */
            memset(real, 0, (size_t)pitch * sizeof *real);
            taken = all - done;
            load.rows = rows = 1;
            load.count = taken * channels;
        }
        plan->pixels->dtype[problem->dtype].load(&load);
        plan->pixels->real[plan->real].accumulate(high, low, 0, real, rows, pitch);
    }
    for (int64_t c = 0; c < channels; c++) {
        tconv_cpu_reference_sum sum = {high[c], low[c]};
        for (int64_t i = c + channels; i < width; i += channels) {
            if (!plan->keeps_rest) { /* a double has bits to spare */
                sum.high += high[i];
                continue;
            }
            tconv_cpu_reference_add(&sum, high[i]);
            sum.low += low[i];
        }
        tconv_cpu_reference_add(&sums[c], sum.high);
        sums[c].low += sum.low;
    }
}

/* Channels that are summed together. */
static int64_t together(const tconv_problem *problem)
{
    return problem->layout == TCONV_NHWC ? tconv_min(problem->out_channels, TOGETHER) : 1;
}

/* Task: some channels in a part of the images. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_wgrad_job *job = shared->job;
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

void tconv_cpu_sum_wgrad_bias(const tconv_cpu_wgrad_job *job, char *scratch)
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
