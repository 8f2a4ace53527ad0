/* Plans cpu_col2im: which layers it takes, tiles of pixels, output channels and taps of a task, sizes of the scratch. */
#include "plan.h"
#include "../cpu_target.h"

#include "../../core/checked.h"
#include "../kernels/kernels.h"

enum {
    MIN_CHANNELS = 16, /* input channels of a group: with fewer, gathering takes longer than multiplying */
    MAX_PIXELS = TCONV_CPU_COL2IM_MAX_PIXELS,
    LEAST_PIXELS = 32,     /* of a tile that is cut for more tasks: each packs all weights anew */
    COLUMNS_PER_PIXEL = 8, /* at least: with fewer, packed weights are worth it */
    MAX_PRODUCTS = 16,     /* of an output */
    MAX_CHANNELS = 16,     /* output channels of a group with many phases: with more, cpu_phases is as fast */
    MAX_K_BLOCK = 4 * TCONV_CPU_COL2IM_SEGMENT,
    MAX_SWEPT_PIXELS = 12,     /* with more, packed weights are worth it */
    SWEPT_BYTES = 16 << 10,    /* of the sums of a sweep: half of a first-level cache */
    WEIGHTS_BYTES = 96 << 10,  /* of a packed K-block. It is chosen, not measured. */
    OUTPUTS_BYTES = 256 << 10, /* that a task gathers: at least one channel's */
    SIDE_BY_SIDE = 16,         /* output channels of a task in NHWC, at least: a vector of the widest */
    SIDE_BYTES = 5 << 18,      /* of the outputs of so many */
    THREAD_BYTES = 2 << 20     /* of a thread's scratch */
};

/* ---------------------------------------------------------------------------------------------- which layers */

/* Few pixels, many weights: each weight is used so few times that packing it takes as long. */
static bool has_few_pixels(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const double pixels = (double)tconv_max(1, problem->batch) * (double)problem->h.in * (double)problem->w.in;
    const double columns = (double)problem->group_out * (double)problem->h.kernel * (double)problem->w.kernel;
    return !layer->packed_before && pixels <= MAX_PIXELS && columns >= COLUMNS_PER_PIXEL * pixels;
}

/* Few output channels, and too many phases of a row to be summed at once: cpu_phases reads its strip anew for each, for
 * as many multiply-adds of a vector as there are channels. */
static bool has_many_phases(const tconv_layer *layer)
{
    return layer->columns.count > tconv_cpu_find_kernels(tconv_cpu_target_of(&layer->target).cpu_isa)->max_channels &&
           layer->problem.group_out <= MAX_CHANNELS;
}

static const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    if (problem->group_in < MIN_CHANNELS)
        return "fewer than 16 input channels per group";
    if (!has_few_pixels(layer) && !has_many_phases(layer))
        return layer->packed_before ? "weights that are packed before"
                                    : "more than 128 pixels, or than an eighth of an input channel's weights";
    if (layer->rows.max_taps * layer->columns.max_taps > MAX_PRODUCTS)
        return "more than 16 taps for an output";
    if ((problem->layout == TCONV_NCHW ? problem->dst.w : problem->dst.c) != 1)
        return "a dst whose innermost elements lie apart";
    return NULL;
}

/*
 * Whether a layer with many phases takes less time than with cpu_phases. Both are counted in times of a multiply-add
 * from registers; the figures were fitted to layers of 16 to 2050 input and 1 to 16 output channels on a Zen 3.
 */
static bool is_faster(const tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    /* cpu_phases: an input is loaded for as many multiply-adds as there are output channels, or gathered again for each
     * phase where its sums are long. */
    const double load = .6, gather = 9, pack = .2, long_sum = 3000;
    /* Here: a multiply-add with its share of the packing, a product that its output adds, an input that its columns
     * share. */
    const double multiply = 1.3, add = 20, share = 8;
    const tconv_problem *problem = &layer->problem;
    const double channels = (double)problem->group_out, group_in = (double)problem->group_in;
    const double terms = (double)layer->rows.max_taps * (double)layer->columns.max_taps * group_in;
    const double pixels = (double)tconv_max(1, problem->batch) * (double)problem->h.in * (double)problem->w.in;
    const double multiplied = (double)plan->tiles * (double)plan->pixels; /* neighbouring tiles share pixels */
    const double phases = 1 + (terms > long_sum ? gather : load) / channels + (layer->packed_before ? 0 : pack);
    return multiply * multiplied / pixels + add / group_in + share / (channels * (double)plan->taps) < phases;
}

/* --------------------------------------------------------------------------------------------------------- tiles */

/* The most inputs that so many positions of an axis read. */
static int64_t inputs_of(const tconv_axis *axis, const tconv_cpu_axis *live, int64_t positions)
{
    return tconv_min(axis->in, positions + tconv_cpu_halo(live));
}

static int64_t outputs_of(const tconv_axis *axis, const tconv_cpu_axis *live, int64_t positions)
{
    return positions >= live->positions ? axis->out : positions * axis->stride;
}

/* The most outputs of a tile and an image, of a channel. In NHWC a task has some channels at least, whose weights and
 * outputs lie side by side. */
static int64_t most_outputs(const tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    const int64_t channels = tconv_min(layer->problem.group_out, SIDE_BY_SIDE);
    return (plan->channels_inside ? tconv_min(OUTPUTS_BYTES, SIDE_BYTES / channels) : OUTPUTS_BYTES) / plan->real_size;
}

/* Returns the most positions of a row, cut evenly, that go with so many input and output rows; 0 where none do. */
static int64_t most_columns(const tconv_cpu_col2im_plan *plan, const tconv_layer *layer, int64_t inputs,
                            int64_t outputs, int64_t most_pixels)
{
    const tconv_axis *w = &layer->problem.w;
    const int64_t most_inputs = most_pixels / inputs, most_width = most_outputs(plan, layer) / outputs;
    int64_t columns = plan->column_axis.positions;
    if (inputs_of(w, &plan->column_axis, columns) > most_inputs)
        columns = tconv_min(columns, most_inputs - tconv_cpu_halo(&plan->column_axis));
    if (w->out > most_width)
        columns = tconv_min(columns, most_width / w->stride);
    return columns < 1 ? 0 : tconv_cpu_even_part(plan->column_axis.positions, columns);
}

/* Cuts positions into tiles with so many pixels at most: with the fewest pixels in all, as neighbouring tiles read the
 * same ones. Several images share a tile where they fit. False where a position has too many outputs. */
static bool cut_tiles(tconv_cpu_col2im_plan *plan, const tconv_layer *layer, int64_t most_pixels)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t positions = plan->row_axis.positions, images = tconv_max(1, problem->batch);
    double least = 0;
    for (int64_t rows = positions; rows > 0; rows = tconv_min(rows - 1, most_pixels)) {
        const int64_t inputs = inputs_of(&problem->h, &plan->row_axis, rows);
        const int64_t outputs = outputs_of(&problem->h, &plan->row_axis, rows);
        const int64_t columns = most_columns(plan, layer, inputs, outputs, most_pixels);
        if (columns == 0)
            continue;
        const int64_t pixels = inputs * inputs_of(&problem->w, &plan->column_axis, columns);
        const int64_t tiles = tconv_ceil_div(positions, rows) * tconv_ceil_div(plan->column_axis.positions, columns);
        if (least > 0 && (double)pixels * (double)tiles >= least)
            continue;
        least = (double)pixels * (double)tiles;
        plan->tile_rows = rows;
        plan->tile_columns = columns;
        plan->pixels = pixels;
        plan->outputs = outputs * outputs_of(&problem->w, &plan->column_axis, columns);
    }
    if (least <= 0)
        return false;
    plan->row_tiles = tconv_ceil_div(positions, plan->tile_rows);
    plan->column_tiles = tconv_ceil_div(plan->column_axis.positions, plan->tile_columns);
    plan->tile_images =
        tconv_cpu_even_part(images, tconv_min(most_pixels / plan->pixels, most_outputs(plan, layer) / plan->outputs));
    plan->image_tiles = tconv_ceil_div(images, plan->tile_images);
    plan->tiles = plan->image_tiles * plan->row_tiles * plan->column_tiles;
    plan->pixels *= plan->tile_images;
    plan->store_rows = plan->channels_inside ? outputs_of(&problem->w, &plan->column_axis, plan->tile_columns)
                                             : outputs_of(&problem->h, &plan->row_axis, plan->tile_rows);
    return true;
}

/* -------------------------------------------------------------------------------------------------------- blocks */

/* Sets what follows from the tiles and the channels of a block. */
static void cut_tasks(tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    plan->blocks = tconv_ceil_div(layer->problem.group_out, plan->block_channels);
    plan->tasks = plan->tiles * layer->problem.groups * plan->blocks;
    plan->pitch = tconv_round_up(plan->block_channels * plan->part_taps, plan->width);
    if (plan->sweeps && plan->pitch * plan->real_size % (2 * TCONV_ALIGNMENT) == 0)
        plan->pitch += TCONV_ALIGNMENT / plan->real_size; /* pixels' sums lie in different sets of the cache */
}

/* Cuts output channels evenly to at most so many for a task. In NHWC they are whole panels, which are packed row by row. */
static int64_t cut_channels(const tconv_cpu_col2im_plan *plan, int64_t channels, int64_t most)
{
    const int64_t even = tconv_cpu_even_part(channels, most);
    return plan->channels_inside ? tconv_min(channels, tconv_round_up(even, plan->width)) : even;
}

/* Sets the output channels of a task, and the taps that are multiplied at a time. Weights of a row are read in pieces as
 * long as can be: in NCHW those of whole filters, in NHWC of all channels. The parts of the taps and the
 * K-blocks are the order of a sum, and follow from no number of threads. */
static void cut_blocks(tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    int64_t columns = WEIGHTS_BYTES / plan->real_size / MAX_K_BLOCK;
    plan->sweeps = plan->pixels <= MAX_SWEPT_PIXELS;
    if (plan->sweeps)
        columns = SWEPT_BYTES / plan->pixels / plan->real_size;
    const int64_t outputs = plan->tile_images * plan->outputs * plan->real_size;
    const int64_t most = plan->channels_inside ? tconv_min(columns, tconv_max(SIDE_BY_SIDE, OUTPUTS_BYTES / outputs))
                                               : tconv_min(columns / plan->taps, OUTPUTS_BYTES / outputs);
    plan->block_channels = cut_channels(plan, problem->group_out, tconv_max(1, most));
    plan->part_taps = tconv_cpu_even_part(plan->taps, columns / plan->block_channels);
    plan->k_block = tconv_cpu_even_part(problem->group_in, MAX_K_BLOCK);
    cut_tasks(plan, layer);
}

/* Cuts blocks of channels, then tiles, for threads. */
static void cut_further(tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    const int64_t tiles = plan->tiles * layer->problem.groups;
    const int64_t least = plan->channels_inside ? plan->width : tconv_ceil_div(plan->width, plan->taps);
    while (plan->block_channels > least && !tconv_cpu_enough_tasks(tiles * plan->blocks, plan->threads)) {
        plan->block_channels = cut_channels(plan, plan->block_channels, tconv_ceil_div(plan->block_channels, 2));
        cut_tasks(plan, layer);
    }
    for (int64_t pixels = MAX_PIXELS / 2; pixels >= LEAST_PIXELS && plan->tiles > 1; pixels /= 2)
        if (plan->tasks < 2 * plan->threads && cut_tiles(plan, layer, pixels))
            cut_tasks(plan, layer);
}

static int64_t aligned(int64_t bytes)
{
    return (int64_t)tconv_align_up((size_t)bytes, TCONV_ALIGNMENT);
}

/* Sets the sizes of the scratch; false where a thread's would be too large. */
static bool lay_out(tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t calls = tconv_ceil_div(problem->group_in, plan->k_block), real = plan->real_size;
    const int64_t segments = tconv_ceil_div(plan->k_block, TCONV_CPU_COL2IM_SEGMENT);
    const int64_t sums = plan->sweeps ? calls * segments : calls;
    const int64_t weight_rows = plan->sweeps ? TCONV_CPU_SWEEP_ROWS : tconv_min(calls, 2) * plan->k_block;
    const int64_t outputs = plan->tile_images * plan->block_channels * plan->outputs;
    plan->level = plan->pixels * plan->pitch;
    plan->weights_bytes = aligned(plan->pitch * weight_rows * real);
    plan->sums_bytes = aligned(tconv_max(1, tconv_cpu_cascade_levels(sums)) * plan->level * real);
    plan->levels_bytes =
        aligned(tconv_max(1, tconv_cpu_cascade_levels(segments)) * TCONV_CPU_MAX_PIXELS * plan->width * real);
    plan->products_bytes = aligned(plan->level * real);
    plan->outputs_bytes = aligned(outputs * real);
    plan->nothing_bytes = aligned(plan->width * real);
    const int64_t places = plan->pitch + 2 * plan->pixels + plan->store_rows;
    plan->places_bytes = aligned(places * (int64_t)sizeof(int64_t) + plan->pixels * (int64_t)sizeof(int32_t));
    const int64_t strip = plan->pixels * plan->k_block * real; /* of a K-block */
    plan->thread_bytes = plan->weights_bytes + plan->sums_bytes + plan->levels_bytes + plan->products_bytes +
                         plan->outputs_bytes + plan->places_bytes;
    plan->keeps_strip = calls <= (THREAD_BYTES - TCONV_ALIGNMENT - plan->thread_bytes) / strip;
    plan->strip_bytes = aligned(plan->keeps_strip ? calls * strip : strip);
    plan->thread_bytes += plan->strip_bytes;
    return plan->thread_bytes <= THREAD_BYTES && tconv_cpu_align_size(problem->out_channels, real, &plan->bias_bytes);
}

static const char *make_plan(tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    int64_t max_taps;
    const char *why = refusal(layer);
    if (why != NULL)
        return why;
    plan->row_axis = tconv_cpu_axis_init(&problem->h, &layer->rows, &max_taps);
    plan->column_axis = tconv_cpu_axis_init(&problem->w, &layer->columns, &max_taps);
    plan->kernels = tconv_cpu_find_pixel_kernels(tconv_cpu_target_of(&layer->target).cpu_isa);
    plan->real = problem->dtype == TCONV_F64;
    plan->real_size = plan->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    plan->channels_inside = problem->layout == TCONV_NHWC;
    plan->taps = problem->h.kernel * problem->w.kernel;
    plan->width = TCONV_CPU_MAX_PIXEL_VECTORS * plan->kernels->real[plan->real].lanes;
    plan->threads = tconv_cpu_useful_threads(layer, &plan->row_axis, &plan->column_axis);
    if (!cut_tiles(plan, layer, MAX_PIXELS))
        return "too many outputs of a channel";
    if (!(has_few_pixels(layer) && plan->tiles == 1) && !(has_many_phases(layer) && is_faster(plan, layer)))
        return has_few_pixels(layer) ? "too many outputs of a channel" : "phases that cpu_phases is as fast for";
    cut_blocks(plan, layer);
    if (!lay_out(plan, layer))
        return "more than 2 MiB of scratch for a thread";
    cut_further(plan, layer);
    lay_out(plan, layer); /* in less than before */
    return NULL;
}

const char *tconv_cpu_col2im_plan_init(tconv_cpu_col2im_plan *plan, const tconv_layer *layer)
{
    fenv_t caller;
    const bool rounds = tconv_cpu_round_to_nearest(&caller);
    const char *why = make_plan(plan, layer);
    if (rounds)
        fesetenv(&caller);
    return why;
}
