/* Converts the bias, and writes or adds it to the bias-only outputs, or takes it there through the post-ops: rows and
 * columns that belong to no phase. */
#include "bias.h"
#include "../cpu_target.h"

#include <string.h>

#include "../../core/checked.h"
#include "../kernels/half.h"
#include "../kernels/kernels.h"
#include "../kernels/pixels_kernels.h"
#include "../reference/reference.h"
#include "blocking.h"

void tconv_cpu_convert_bias(tconv_dtype dtype, const void *bias, int64_t count, void *converted)
{
    float *floats = converted;
    const uint16_t *halves = bias;
    if (bias == NULL) {
        memset(converted, 0, (size_t)count * (dtype == TCONV_F64 ? sizeof(double) : sizeof(float)));
        return;
    }
    switch (dtype) {
    case TCONV_F32: memcpy(converted, bias, (size_t)count * sizeof(float)); break;
    case TCONV_F64: memcpy(converted, bias, (size_t)count * sizeof(double)); break;
    case TCONV_F16:
        for (int64_t i = 0; i < count; i++)
            floats[i] = tconv_float_from_f16(halves[i]);
        break;
    case TCONV_BF16:
        for (int64_t i = 0; i < count; i++)
            floats[i] = tconv_float_from_bf16(halves[i]);
        break;
    }
}

/* ----------------------------------------------------------------------------------------------------- bias-only */

/* Consecutive outputs of one row of one image, in all channels of a region of one group. */
struct run {
    int64_t image, row, column, count;
};

/* NCHW: fills a run channel by channel; from one channel to the next it is `step` elements in bias. */
static void fill_planes(const tconv_cpu_bias_only *region, char *dst, const char *bias, int64_t step, int64_t count)
{
    static const char zero[sizeof(double)] = {0};
    const tconv_problem *problem = &region->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    tconv_cpu_fill_function *fill = tconv_cpu_find_kernels(tconv_cpu_target_of(&region->layer->target).cpu_isa)->fill;
    bool stream = region->stream && count * size >= TCONV_CPU_STREAM_BYTES;
    for (int64_t c = 0; c < region->channels; c++)
        fill(dst + c * problem->dst.c * size, bias != NULL ? bias + c * step * size : zero, (size_t)size, count,
             stream);
}

/* NHWC: fills a run pixel by pixel, or by one memset where it is contiguous and has no bias. */
static void fill_pixels(const tconv_cpu_bias_only *region, char *dst, const char *bias, int64_t count)
{
    const tconv_problem *problem = &region->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    const size_t bytes = (size_t)(region->channels * size);
    if (bias == NULL && region->channels == problem->dst.w) {
        memset(dst, 0, (size_t)count * bytes);
        return;
    }
    for (; count > 0; count--, dst += problem->dst.w * size) {
        if (bias != NULL)
            memcpy(dst, bias, bytes);
        else
            memset(dst, 0, bytes);
    }
}

/* The first channel of a region of one group, counted over all groups. */
static int64_t first_channel(const tconv_cpu_bias_only *region)
{
    return region->group * region->group_out + region->channel;
}

/* Adds the bias to a run, output by output: rare, and little beside what has taps. */
static void add_to_run(const tconv_cpu_bias_only *region, int64_t index, int64_t count)
{
    const tconv_problem *problem = &region->layer->problem;
    const tconv_cpu_reference_access *access = &tconv_cpu_reference_accesses[problem->dtype];
    for (int64_t c = 0; c < region->channels; c++) {
        const double bias = access->get(region->bias, first_channel(region) + c);
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = index + c * problem->dst.c + i * problem->dst.w;
            tconv_cpu_finish_output(problem, region->dst, at,
                                    tconv_cpu_reference_start(problem, region->dst, at) + bias);
        }
    }
}

/* Outputs that are made of the bias at a time: some KiB on the stack. */
enum { MADE_CHANNELS = 128, MADE_PIXELS = 32 };

/* The bias of some channels of a run as sums, in the type of the sums; zeros where there is none. */
union sums {
    float single[MADE_CHANNELS];
    double exact[MADE_CHANNELS];
};

/* Takes the bias of a run through the layer's post-ops, with what the outputs hold. NCHW: a channel is a row, cut into
 * parts; NHWC: channels of a pixel are a row. */
static void make_run(const tconv_cpu_bias_only *region, char *dst, const char *bias, int64_t count)
{
    const tconv_problem *problem = &region->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    const bool planes = problem->layout == TCONV_NCHW;
    const tconv_cpu_isa isa = tconv_cpu_target_of(&region->layer->target).cpu_isa;
    tconv_cpu_pixel_store_function *store = tconv_cpu_find_pixel_kernels(isa)->dtype[problem->dtype].store;
    const int64_t rows_apart = planes ? MADE_CHANNELS : problem->dst.w;
    union sums sums;
    int64_t to[MADE_PIXELS];
    for (int64_t i = 0; i < MADE_PIXELS; i++)
        to[i] = i * rows_apart;
    for (int64_t c = 0, channels; c < region->channels; c += channels) {
        channels = planes ? 1 : tconv_min(MADE_CHANNELS, region->channels - c);
        tconv_cpu_convert_bias(problem->dtype, bias != NULL ? bias + c * size : NULL, channels, &sums);
        for (int64_t i = 1; planes && i < MADE_CHANNELS; i++) {
            if (problem->dtype == TCONV_F64)
                sums.exact[i] = sums.exact[0];
            else
                sums.single[i] = sums.single[0];
        }
        tconv_cpu_pixel_store made = {
            .sums = &sums, .to = to, .finish = tconv_cpu_finish_of(problem, NULL, channels, region->posts)};
        for (int64_t i = 0; i < count; i += planes ? made.rows * made.count : made.rows) {
            const int64_t left = count - i;
            made.dst = dst + (c * problem->dst.c + i * problem->dst.w) * size;
            made.count = planes ? tconv_min(left, MADE_CHANNELS) : channels;
            made.rows = tconv_min(planes ? left / made.count : left, MADE_PIXELS);
            store(&made);
        }
    }
}

/* Copies the first output of each channel to the others of a run: they are all made of the same bias. */
static void repeat_first(const tconv_cpu_bias_only *region, char *first, int64_t count)
{
    const tconv_problem *problem = &region->layer->problem;
    char *others = first + problem->dst.w * (int64_t)problem->element_size;
    if (count > 1 && problem->layout == TCONV_NCHW)
        fill_planes(region, others, first, problem->dst.c, count - 1);
    else if (count > 1)
        fill_pixels(region, others, first, count - 1);
}

static void fill_run(const tconv_cpu_bias_only *region, const struct run *run)
{
    const tconv_problem *problem = &region->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    const int64_t channel = first_channel(region);
    const char *bias = region->bias != NULL ? (const char *)region->bias + channel * size : NULL;
    int64_t index = run->image * problem->dst.n + channel * problem->dst.c + run->row * problem->dst.h +
                    run->column * problem->dst.w;
    char *dst = (char *)region->dst + index * size;
    if (run->count <= 0)
        return;
    if (tconv_has_posts(problem)) {
        const bool alike = tconv_cpu_posts_follow_channels(problem);
        make_run(region, dst, bias, alike ? 1 : run->count);
        if (alike)
            repeat_first(region, dst, run->count);
        return;
    }
    if (problem->desc.accumulate) {
        if (bias != NULL)
            add_to_run(region, index, run->count);
        return;
    }
    if (problem->layout == TCONV_NCHW)
        fill_planes(region, dst, bias, 1, run->count);
    else
        fill_pixels(region, dst, bias, run->count);
}

/* Fills the outputs of a row that lie between those of the column phases. */
static void fill_between(const tconv_cpu_bias_only *region, struct run run, int64_t end)
{
    const tconv_phase_table *columns = &region->layer->columns;
    for (int64_t start = run.column; start < end; start += columns->stride) {
        int64_t stop = tconv_min(end, start + columns->stride);
        run.column = start;
        for (int64_t p = 0; p <= columns->count; p++) {
            int64_t next = p < columns->count ? tconv_min(stop, start + columns->phases[p].residue) : stop;
            run.count = next - run.column;
            fill_run(region, &run);
            run.column = next + 1;
        }
    }
}

static void fill_group(const tconv_cpu_bias_only *region)
{
    const tconv_layer *layer = region->layer;
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    bool no_columns = columns->count == 0, between = columns->bias_only > 0 && !region->whole_rows;
    int64_t begin = columns->stride * region->column;
    int64_t end = tconv_min(layer->problem.w.out, columns->stride * (region->column + region->columns));
    for (int64_t image = region->image; image < region->image + region->images; image++) {
        for (int64_t q = region->row; q < region->row + region->rows; q++) {
            int64_t start = rows->stride * q, stop = tconv_min(layer->problem.h.out, start + rows->stride), phase = 0;
            for (int64_t row = start; row < stop; row++) {
                bool summed = !no_columns && phase < rows->count && start + rows->phases[phase].residue == row;
                const struct run run = {image, row, begin, end - begin};
                phase += summed;
                if (!summed)
                    fill_run(region, &run);
                else if (between)
                    fill_between(region, run, end);
            }
        }
    }
}

void tconv_cpu_fill_bias_only(const tconv_cpu_bias_only *region)
{
    const tconv_phase_table *rows = &region->layer->rows, *columns = &region->layer->columns;
    tconv_cpu_bias_only part = *region;
    if (rows->bias_only == 0 && columns->count > 0 && (columns->bias_only == 0 || region->whole_rows))
        return;
    if (region->channels == region->group_out) { /* whole groups follow each other: one of all their channels */
        part.channels *= region->groups;
        part.groups = 1;
    }
    for (int64_t end = part.group + part.groups; part.group < end; part.group++)
        fill_group(&part);
}
