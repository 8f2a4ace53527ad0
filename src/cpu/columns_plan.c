/* Plans cpu_columns: which layers it takes, output channels and taps of a task, sizes of the scratch. */
#include "columns_plan.h"

#include "../core/checked.h"

enum {
    MIN_CHANNELS = 16,     /* input channels of a group: with fewer, gathering takes longer than multiplying */
    MAX_PIXELS = 128,      /* of all images: all are in each task, so that it alone reads its weights */
    COLUMNS_PER_PIXEL = 8, /* at least: with fewer, packed weights are worth it */
    MAX_PRODUCTS = 16,     /* of an output */
    MAX_K_BLOCK = 8 * TCONV_CPU_COLUMNS_SEGMENT,
    WEIGHTS_BYTES = 96 << 10,  /* of a packed K-block. It is chosen, not measured. */
    OUTPUTS_BYTES = 256 << 10, /* that a task gathers: at least one channel's */
    THREAD_BYTES = 2 << 20     /* of a thread's scratch */
};

static const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const double pixels = (double)tconv_max(1, problem->batch) * (double)problem->h.in * (double)problem->w.in;
    const double columns = (double)problem->group_out * (double)problem->h.kernel * (double)problem->w.kernel;
    const double outputs = (double)tconv_max(1, problem->batch) * (double)problem->h.out * (double)problem->w.out;
    if (layer->packed_before)
        return "weights that are packed before";
    if (problem->group_in < MIN_CHANNELS)
        return "fewer than 16 input channels per group";
    if (pixels > MAX_PIXELS || columns < COLUMNS_PER_PIXEL * pixels)
        return "more than 128 pixels, or than an eighth of an input channel's weights";
    if (layer->rows.max_taps * layer->columns.max_taps > MAX_PRODUCTS)
        return "more than 16 taps for an output";
    if ((problem->layout == TCONV_NCHW ? problem->dst.w : problem->dst.c) != 1)
        return "a dst whose innermost elements lie apart";
    return outputs * sizeof(double) > OUTPUTS_BYTES ? "too many outputs of a channel" : NULL;
}

/* Sets the output channels of a task, and the taps that are multiplied at a time. Weights of a row are read in pieces as
 * long as can be: in NCHW those of whole filters, in NHWC of all channels. */
static void cut_blocks(tconv_cpu_columns_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t columns = WEIGHTS_BYTES / plan->real_size / MAX_K_BLOCK;
    const int64_t outputs = tconv_max(1, problem->batch) * plan->outputs * plan->real_size;
    const int64_t least = plan->channels_inside ? plan->width : tconv_ceil_div(plan->width, plan->taps);
    const int64_t most = tconv_min(plan->channels_inside ? columns : columns / plan->taps, OUTPUTS_BYTES / outputs);
    plan->block_channels = tconv_cpu_even_part(problem->group_out, tconv_max(1, most));
    plan->part_taps = tconv_cpu_even_part(plan->taps, columns / plan->block_channels); /* the order of a sum */
    while (!tconv_cpu_enough_tasks(problem->groups * tconv_ceil_div(problem->group_out, plan->block_channels),
                                   plan->threads) &&
           plan->block_channels > least)
        plan->block_channels = tconv_ceil_div(plan->block_channels, 2);
    plan->blocks = tconv_ceil_div(problem->group_out, plan->block_channels);
    plan->tasks = problem->groups * plan->blocks;
    plan->pitch = tconv_round_up(plan->block_channels * plan->part_taps, plan->width);
    plan->k_block = tconv_min(problem->group_in, MAX_K_BLOCK);
}

static int64_t aligned(int64_t bytes)
{
    return (int64_t)tconv_align_up((size_t)bytes, TCONV_ALIGNMENT);
}

/* Sets the sizes of the scratch; false where a thread's would be too large. */
static bool lay_out(tconv_cpu_columns_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t calls = tconv_ceil_div(problem->group_in, plan->k_block), real = plan->real_size;
    const int64_t segments = tconv_ceil_div(plan->k_block, TCONV_CPU_COLUMNS_SEGMENT);
    const int64_t outputs = tconv_max(1, problem->batch) * plan->block_channels * plan->outputs;
    plan->level = plan->pixels * plan->pitch;
    plan->strip_bytes = aligned(plan->pixels * plan->k_block * real);
    plan->weights_bytes = aligned(plan->pitch * plan->k_block * real);
    plan->sums_bytes = aligned(tconv_max(1, tconv_cpu_cascade_levels(calls)) * plan->level * real);
    plan->levels_bytes =
        aligned(tconv_max(1, tconv_cpu_cascade_levels(segments)) * TCONV_CPU_MAX_PIXELS * plan->width * real);
    plan->products_bytes = aligned(plan->level * real);
    plan->outputs_bytes = aligned(outputs * real);
    plan->nothing_bytes = aligned(plan->width * real);
    const int64_t places = plan->pitch + 2 * plan->pixels + tconv_max(problem->h.out, problem->w.out);
    plan->places_bytes = aligned(places * (int64_t)sizeof(int64_t) + plan->pixels * (int64_t)sizeof(int32_t));
    plan->thread_bytes = plan->strip_bytes + plan->weights_bytes + plan->sums_bytes + plan->levels_bytes +
                         plan->products_bytes + plan->outputs_bytes + plan->places_bytes;
    return plan->thread_bytes <= THREAD_BYTES && tconv_cpu_align_size(problem->out_channels, real, &plan->bias_bytes);
}

static const char *make_plan(tconv_cpu_columns_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    int64_t max_taps;
    const char *why = refusal(layer);
    if (why != NULL)
        return why;
    const tconv_cpu_axis rows = tconv_cpu_axis_init(&problem->h, &layer->rows, &max_taps);
    const tconv_cpu_axis columns = tconv_cpu_axis_init(&problem->w, &layer->columns, &max_taps);
    plan->kernels = tconv_cpu_find_pixel_kernels(layer->target.cpu_isa);
    plan->real = problem->dtype == TCONV_F64;
    plan->real_size = plan->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    plan->channels_inside = problem->layout == TCONV_NHWC;
    plan->pixels = tconv_max(1, problem->batch) * problem->h.in * problem->w.in;
    plan->outputs = problem->h.out * problem->w.out;
    plan->taps = problem->h.kernel * problem->w.kernel;
    plan->width = TCONV_CPU_MAX_PIXEL_VECTORS * plan->kernels->real[plan->real].lanes;
    plan->threads = tconv_cpu_useful_threads(layer, &rows, &columns);
    cut_blocks(plan, layer);
    return lay_out(plan, layer) ? NULL : "more than 2 MiB of scratch for a thread";
}

const char *tconv_cpu_columns_plan_init(tconv_cpu_columns_plan *plan, const tconv_layer *layer)
{
    fenv_t caller;
    const bool rounds = tconv_cpu_round_to_nearest(&caller);
    const char *why = make_plan(plan, layer);
    if (rounds)
        fesetenv(&caller);
    return why;
}
