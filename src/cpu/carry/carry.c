/*
 * cpu_carry: streams (tconv.h, A STREAM OF FRAMES), every layer, by GEMM, then overlap-add. The pixels of some frames are
 * multiplied by all weights of a block of output channels, as cpu_col2im does (col2im/products.c): where a call has few
 * pixels, weights are read where they lie, so that a step of one frame takes as long as the weights take to come from
 * memory; where it has more, they are packed for microkernels, once for up to 128 pixels. Each output of the block then adds
 * its products to what the carry holds of it (outputs.c).
 *
 * Words: a frame is the inputs of an image at one place of the streamed axis, its pixels, one after another along the other
 * axis. A task has a block of output channels, whose outputs it sums, stores and carries, of some images.
 *
 * Numeric order, of each product by itself: over input channels, in the segments and the cascade of cpu_col2im, which are the
 * same in both ways, because a K-block has a power of two of segments. An output
 * begins with its carry, or with zero, and adds its products by rising frames and, of a frame, by rising pixels; then the
 * bias; then post-ops; one rounding to the dtype. Nothing of it depends on chunks, on batch, slots or threads: how a call is
 * cut into tasks and tiles (cut) changes no sum, and a chunk's end stores a sum and reads it back.
 */
#include "carry.h"

#include <inttypes.h>
#include <stdio.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../blocking/bias.h"
#include "../cpu_backend.h"
#include "../cpu_target.h"

enum {
    K_BLOCK = 4 * TCONV_CPU_COL2IM_SEGMENT,
    MAX_SWEPT_PIXELS = 12, /* of a call: with more, packed weights are worth it */
    MAX_PIXELS = 32, /* that are multiplied at a time without microkernels: with more, rows of weights are short */
    PRODUCTS_BYTES = 16 << 10, /* of the sums of a sweep: half of a first-level cache */
    MAX_PACKED_PIXELS = 128,   /* by microkernels; products then stay in the second-level cache */
    PACKED_COLUMNS = 256,      /* that are packed at a time, but at least a channel's taps */
    OUTPUTS_BYTES = 128 << 10, /* of a task's outputs, but at least a channel's */
    LEAST_ROW = 64,            /* weights of a row that a task reads, where there are so many: four lines of a cache */
    APART = 32                 /* numbers beyond the columns of a pixel that its pitch may have */
};

/* ------------------------------------------------------------------------------------------------------------ plan */

static double multiply_adds_of(const tconv_problem *problem)
{
    const double pixels = (double)problem->batch * (double)problem->h.in * (double)problem->w.in;
    return pixels * (double)problem->h.kernel * (double)problem->w.kernel * (double)problem->group_in *
           (double)problem->out_channels;
}

static double outputs_of(const tconv_problem *problem)
{
    return (double)problem->batch * (double)problem->out_channels * (double)problem->h.out * (double)problem->w.out;
}

/* Returns a product of extents, or a bound where the product is larger. */
static int64_t at_most(int64_t bound, size_t count, const int64_t *extents)
{
    int64_t product = 1;
    for (size_t i = 0; i < count; i++)
        if (!tconv_checked_mul(product, extents[i], &product))
            return bound;
    return tconv_min(bound, product);
}

/* Whether products are made without the kernels, of all groups of a task at a time. */
static bool has_few_inputs(const tconv_problem *problem)
{
    return problem->group_in <= TCONV_CPU_CARRY_FEW;
}

/* How products are made: without microkernels, or by them. */
typedef struct way {
    bool packs;
    int64_t pixels;   /* that are multiplied at a time, at most */
    int64_t products; /* numbers of theirs, at most, but at least those of one pixel and channel */
    int64_t row;      /* columns of a pixel at their pitch, at most, but at least those of one channel */
} way;

/* Returns the pitch of columns of a task. */
static int64_t pitch_of(const tconv_cpu_carry_plan *plan, bool packs, int64_t columns)
{
    return packs ? tconv_round_up(columns, plan->products.width) : columns + APART;
}

static way way_of(const tconv_cpu_carry_plan *plan, bool packs)
{
    const int64_t least = pitch_of(plan, packs, plan->products.taps), real = plan->products.real_size;
    way found = {packs, MAX_PIXELS, PRODUCTS_BYTES / real, PRODUCTS_BYTES / real};
    if (packs)
        found = (way){packs, MAX_PACKED_PIXELS, MAX_PACKED_PIXELS * PACKED_COLUMNS, PACKED_COLUMNS};
    found.row = tconv_max(found.row, least);
    found.products = tconv_max(found.products, least);
    return found;
}

static double pixels_of(const tconv_problem *problem)
{
    return (double)problem->batch * (double)problem->h.in * (double)problem->w.in;
}

/* Whether a call packs weights. */
static bool is_packed(const tconv_problem *problem)
{
    return !has_few_inputs(problem) && pixels_of(problem) > MAX_SWEPT_PIXELS;
}

/* Adds what a thread needs for products of one way: no more than the longest chunk does, so that the scratch of a small
 * layer is small. False where that is too large. */
static bool add_needs(tconv_cpu_carry_plan *plan, const tconv_problem *problem, bool packs)
{
    tconv_cpu_carry_sizes *sizes = &plan->sizes;
    const int64_t real = plan->products.real_size, k_block = plan->products.k_block;
    const int64_t calls = tconv_ceil_div(problem->group_in, k_block);
    const int64_t segments = tconv_ceil_div(k_block, TCONV_CPU_COL2IM_SEGMENT);
    const int64_t groups = has_few_inputs(problem) ? problem->groups : 1;
    const int64_t rows = packs ? tconv_min(calls, 2) * k_block : TCONV_CPU_SWEEP_ROWS;
    const int64_t levels = tconv_max(1, tconv_cpu_cascade_levels(packs ? calls : calls * segments));
    const way most = way_of(plan, packs);
    const int64_t columns = at_most(most.row, 3, (const int64_t[]){groups, problem->group_out, plan->products.taps});
    const int64_t pixels = at_most(most.pixels, 3, (const int64_t[]){problem->batch, problem->h.in, problem->w.in});
    const int64_t row = tconv_min(most.row, pitch_of(plan, packs, columns));
    const int64_t products = at_most(most.products, 2, (const int64_t[]){pixels, row});
    int64_t strip = 0, weights = 0, sums = 0, of_products, places;
    if (!has_few_inputs(problem) &&
        (!tconv_cpu_align_size(pixels * k_block, real, &strip) || !tconv_cpu_align_size(row, rows * real, &weights) ||
         !tconv_cpu_align_size(products, levels * real, &sums)))
        return false;
    if (!tconv_cpu_align_size(products, real, &of_products) ||
        !tconv_cpu_align_size(row, (int64_t)sizeof(int64_t), &places))
        return false;
    places += most.pixels * (int64_t)(2 * sizeof(int64_t) + sizeof(int32_t));
    sizes->strip = tconv_max(sizes->strip, strip);
    sizes->weights = tconv_max(sizes->weights, weights);
    sizes->sums = tconv_max(sizes->sums, sums);
    sizes->products = tconv_max(sizes->products, of_products);
    sizes->places = tconv_max(sizes->places, tconv_round_up(places, TCONV_ALIGNMENT));
    if (packs)
        sizes->levels = (int64_t)tconv_align_up((size_t)(tconv_max(1, tconv_cpu_cascade_levels(segments)) *
                                                         TCONV_CPU_MAX_PIXELS * plan->products.width * real),
                                                TCONV_ALIGNMENT);
    return true;
}

/* Finds the numbers of a task's outputs, of which a channel's of one frame have to fit; false where they are too many. */
static bool find_outputs(const tconv_cpu_carry_plan *plan, const tconv_problem *problem, int64_t *outputs)
{
    const tconv_axis *axis = tconv_streamed_axis(problem), *other = tconv_unstreamed_axis(problem);
    int64_t length, most;
    if (!tconv_checked_add(problem->tail, axis->stride, &length) || !tconv_checked_mul(length, other->out, &most))
        return false;
    most = tconv_max(most, OUTPUTS_BYTES / plan->products.real_size);
    *outputs = most;
    if (tconv_checked_add(axis->out, problem->tail, &length))
        *outputs = at_most(most, 4, (const int64_t[]){problem->batch, problem->out_channels, length, other->out});
    return true;
}

/* Sets the sizes of a thread's scratch. */
static bool lay_out(tconv_cpu_carry_plan *plan, const tconv_problem *problem)
{
    tconv_cpu_carry_sizes *sizes = &plan->sizes;
    const int64_t real = plan->products.real_size;
    int64_t outputs, all, taps;
    *sizes = (tconv_cpu_carry_sizes){.thread = 0};
    if (!tconv_checked_add(plan->products.taps, APART + plan->products.width, &taps) ||
        !find_outputs(plan, problem, &outputs) || !tconv_cpu_align_size(outputs, real, &sizes->outputs) ||
        !add_needs(plan, problem, false) || (is_packed(problem) && !add_needs(plan, problem, true)))
        return false;
    const int64_t each[] = {sizes->strip,    sizes->weights, sizes->sums,  sizes->levels,
                            sizes->products, sizes->outputs, sizes->places};
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
        if (!tconv_checked_add(sizes->thread, each[i], &sizes->thread))
            return false;
    plan->nothing_bytes = (int64_t)tconv_align_up((size_t)(plan->products.width * real), TCONV_ALIGNMENT);
    return tconv_checked_mul(sizes->thread, plan->threads, &all) &&
           tconv_cpu_align_size(problem->out_channels, real, &plan->bias_bytes) &&
           tconv_checked_add(all, plan->bias_bytes + plan->nothing_bytes + tconv_cpu_shared_bytes(), &all);
}

static tconv_status plan_layer(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cpu_carry_plan *plan = made;
    tconv_cpu_col2im_plan *products = &plan->products;
    fenv_t caller;
    if (!tconv_is_stream(problem))
        return tconv_decline(issue, "for streams");
    if ((problem->layout == TCONV_NCHW ? problem->dst.w : problem->dst.c) != 1)
        return tconv_decline(issue, "a dst whose innermost elements lie apart");
    products->kernels = tconv_cpu_find_pixel_kernels(tconv_cpu_target_of(&layer->target).cpu_isa);
    products->real = problem->dtype == TCONV_F64;
    products->real_size = products->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    products->channels_inside = problem->layout == TCONV_NHWC;
    products->taps = problem->h.kernel * problem->w.kernel;
    products->k_block = tconv_min(problem->group_in, K_BLOCK);
    products->width = TCONV_CPU_MAX_PIXEL_VECTORS * products->kernels->real[products->real].lanes;
    const bool rounds = tconv_cpu_round_to_nearest(&caller);
    plan->threads = tconv_cpu_threads_for(&layer->target, multiply_adds_of(problem), outputs_of(problem));
    if (rounds)
        fesetenv(&caller);
    if (!lay_out(plan, problem))
        return tconv_cpu_too_large("workspace", issue);
    planned->sizes.packed = (size_t)problem->weight_extent * problem->element_size;
    planned->sizes.scratch = (size_t)(plan->bias_bytes + plan->nothing_bytes + tconv_cpu_shared_bytes() +
                                      plan->threads * plan->sizes.thread);
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = true;
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------------- cut */

/* Returns the channels of a block whose products, of so many pixels, and whose outputs, of so many numbers, fit the
 * scratch. */
static int64_t channels_that_fit(const tconv_cpu_carry_plan *plan, const tconv_problem *problem, bool packs,
                                 int64_t pixels, int64_t outputs)
{
    const way most = way_of(plan, packs);
    const int64_t real = plan->products.real_size, row = tconv_min(most.row, most.products / pixels);
    const int64_t columns = packs ? row / plan->products.width * plan->products.width : row - APART;
    return tconv_max(1, tconv_min(problem->group_out, tconv_min(columns / plan->products.taps,
                                                                OUTPUTS_BYTES / real / tconv_max(1, outputs))));
}

/* Returns the groups of a task that has all of their channels. */
static int64_t groups_that_fit(const tconv_cpu_carry_plan *plan, const tconv_problem *problem, int64_t pixels,
                               int64_t outputs)
{
    const int64_t real = plan->products.real_size;
    int64_t channels = OUTPUTS_BYTES / real / tconv_max(1, outputs);
    if (has_few_inputs(problem))
        channels = tconv_min(channels, (PRODUCTS_BYTES / real / pixels - APART) / plan->products.taps);
    return tconv_max(1, channels / problem->group_out);
}

/* Cuts pixels: as many as are multiplied at a time, frames after the pixels of a frame, then images. */
static void cut_pixels(const tconv_cpu_carry_plan *plan, const tconv_problem *problem, tconv_cpu_carry_cut *cut)
{
    const way ways = way_of(plan, cut->packs);
    const tconv_axis *axis = tconv_streamed_axis(problem), *other = tconv_unstreamed_axis(problem);
    const int64_t line = OUTPUTS_BYTES / plan->products.real_size / other->out; /* of one channel and image, at most */
    const int64_t room = ways.products / pitch_of(plan, cut->packs, plan->products.taps); /* 1 at least */
    const int64_t most = tconv_min(ways.pixels, room);
    cut->others = tconv_min(other->in, most);
    cut->frames = cut->others < other->in ? 1 : most / other->in;
    cut->frames = tconv_max(1, tconv_min(cut->frames, tconv_min(axis->in, (line - problem->tail) / axis->stride)));
    if (cut->frames < axis->in)
        cut->frames = tconv_cpu_even_part(axis->in, cut->frames);
    cut->length = cut->frames * axis->stride + problem->tail;
    if (problem->flushes)
        cut->length = problem->tail;
    const int64_t frames = tconv_max(1, tconv_min(cut->frames, axis->in)) * cut->others;
    cut->images = tconv_max(1, tconv_min(problem->batch, tconv_min(most / frames, line / cut->length)));
    cut->images = tconv_cpu_even_part(problem->batch, cut->images);
}

/* Sets what follows from the channels, the groups and the images of a task. */
static void count_tasks(const tconv_problem *problem, tconv_cpu_carry_cut *cut)
{
    cut->blocks = tconv_ceil_div(problem->group_out, cut->channels);
    cut->group_parts = tconv_ceil_div(problem->groups, cut->groups);
    cut->parts = tconv_ceil_div(problem->batch, cut->part_images);
    cut->tasks = cut->group_parts * cut->blocks * cut->parts;
}

/* Cuts a call: groups and blocks of channels as large as the scratch has room for, smaller ones and images apart for
 * threads. */
static void cut_call(const tconv_cpu_carry_plan *plan, const tconv_layer *layer, const tconv_problem *problem,
                     tconv_cpu_carry_cut *cut)
{
    const int64_t least = tconv_min(problem->group_out, tconv_ceil_div(LEAST_ROW, plan->products.taps));
    const int64_t least_groups = tconv_ceil_div(least, problem->group_out);
    cut->packs = is_packed(problem);
    cut_pixels(plan, problem, cut);
    const int64_t outputs = cut->images * cut->length * tconv_unstreamed_axis(problem)->out;
    const int64_t pixels = cut->images * cut->frames * cut->others;
    cut->channels =
        tconv_cpu_even_part(problem->group_out, channels_that_fit(plan, problem, cut->packs, pixels, outputs));
    cut->groups = 1;
    if (cut->channels == problem->group_out)
        cut->groups = tconv_cpu_even_part(problem->groups, groups_that_fit(plan, problem, pixels, outputs));
    cut->threads = (int)tconv_min(
        plan->threads, tconv_cpu_threads_for(&layer->target, multiply_adds_of(problem), outputs_of(problem)));
    cut->part_images = problem->batch;
    for (count_tasks(problem, cut); cut->tasks < 2 * cut->threads && cut->threads > 1; count_tasks(problem, cut)) {
        if (cut->groups > least_groups)
            cut->groups = tconv_max(least_groups, tconv_ceil_div(cut->groups, 2));
        else if (cut->groups == 1 && cut->channels > least)
            cut->channels = tconv_max(least, tconv_ceil_div(cut->channels, 2));
        else if (cut->part_images > cut->images)
            cut->part_images = tconv_max(cut->images, tconv_ceil_div(cut->part_images, 2));
        else
            return;
    }
}

/* ----------------------------------------------------------------------------------------------------------- tasks */

/* Lists where each pixel that is multiplied begins in src, in the strip and in the products. */
static void list_pixels(tconv_cpu_carry_task *task)
{
    const tconv_cpu_col2im_plan *plan = task->job->products.plan;
    const tconv_problem *problem = &task->job->products.layer->problem;
    const bool of_rows = problem->desc.stream_axis == TCONV_STREAM_OF_ROWS;
    const int64_t frame_step = of_rows ? problem->src.h : problem->src.w;
    const int64_t other_step = of_rows ? problem->src.w : problem->src.h;
    int64_t pixel = 0;
    for (int64_t image = 0; image < task->images; image++)
        for (int64_t frame = 0; frame < task->frames; frame++)
            for (int64_t other = 0; other < task->others; other++, pixel++) {
                task->products.pixel_src[pixel] = (task->image + image) * problem->src.n +
                                                  (task->frame + frame) * frame_step +
                                                  (task->other + other) * other_step;
                task->products.pixel_strip[pixel] = (int32_t)(pixel * plan->k_block);
                task->products.pixel_products[pixel] = pixel * plan->pitch;
            }
    task->products.pixels = pixel;
}

/* Adds the frames from task->frame on, as many as task->frames: of all groups. */
static void add_frames(tconv_cpu_carry_task *task)
{
    const tconv_problem *problem = &task->job->products.layer->problem;
    const int64_t others = tconv_unstreamed_axis(problem)->in;
    for (task->other = 0; task->other < others; task->other += task->others) {
        task->others = tconv_min(task->job->cut->others, others - task->other);
        list_pixels(task);
        if (has_few_inputs(problem)) {
            tconv_cpu_carry_multiply_few(task);
            tconv_cpu_carry_add(task, 0, task->groups);
            continue;
        }
        for (int64_t group = 0; group < task->groups; group++) {
            task->products.group = task->group + group;
            tconv_cpu_col2im_multiply(&task->products);
            tconv_cpu_carry_add(task, group, 1);
        }
    }
}

/* Takes the images of the task through the chunk. */
static void run_images(tconv_cpu_carry_task *task)
{
    const tconv_problem *problem = &task->job->products.layer->problem;
    const tconv_axis *axis = tconv_streamed_axis(problem);
    tconv_cpu_carry_begin(task);
    if (problem->flushes)
        tconv_cpu_carry_store(task, 0, problem->tail);
    int64_t done = 0; /* places of the lines that are stored */
    for (task->frame = 0; task->frame < axis->in; task->frame += task->frames) {
        if (done > 0)
            tconv_cpu_carry_move(task, done);
        task->frames = tconv_min(task->job->cut->frames, axis->in - task->frame);
        add_frames(task);
        done = task->frames * axis->stride;
        tconv_cpu_carry_store(task, task->frame * axis->stride, done);
    }
    tconv_cpu_carry_end(task, done);
}

static void run_task(tconv_cpu_carry_task *task, int64_t index)
{
    const tconv_cpu_carry_cut *cut = task->job->cut;
    const tconv_problem *problem = &task->job->products.layer->problem;
    const int64_t part = index % cut->parts, block = index / cut->parts % cut->blocks;
    const int64_t end = tconv_min(problem->batch, (part + 1) * cut->part_images);
    task->groups = tconv_cpu_cut_tile(index / cut->parts / cut->blocks, cut->groups, problem->groups, &task->group);
    task->products.channels = tconv_cpu_cut_tile(block, cut->channels, problem->group_out, &task->products.channel);
    task->channels = task->groups * task->products.channels;
    task->products.part_taps = task->job->products.plan->taps;
    task->products.columns = task->products.channels * task->products.part_taps;
    for (task->image = part * cut->part_images; task->image < end; task->image += task->images) {
        task->images = tconv_min(cut->images, end - task->image);
        run_images(task);
    }
}

/* Takes tasks until none is left. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_carry_job *job = shared->job;
    const tconv_cpu_carry_sizes *sizes = job->sizes;
    char *scratch = shared->scratch + index * sizes->thread;
    tconv_cpu_carry_task task = {.job = job, .products = {.job = &job->products}};
    tconv_cpu_col2im_task *products = &task.products;
    products->strip = scratch;
    products->weights = (char *)products->strip + sizes->strip;
    products->sums = (char *)products->weights + sizes->weights;
    products->levels = (char *)products->sums + sizes->sums;
    products->products = (char *)products->levels + sizes->levels;
    products->outputs = (char *)products->products + sizes->products;
    products->pixel_src = (int64_t *)(void *)((char *)products->outputs + sizes->outputs);
    const int64_t pixels = job->cut->packs ? MAX_PACKED_PIXELS : MAX_PIXELS;
    products->pixel_products = products->pixel_src + pixels;
    products->pixel_strip = (int32_t *)(void *)(products->pixel_products + pixels);
    products->column_weights = (int64_t *)(void *)(products->pixel_strip + pixels);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < shared->tasks.count;)
        run_task(&task, taken);
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_cpu_carry_plan *plan = made;
    const tconv_problem *problem = arguments->step->problem;
    tconv_cpu_col2im_plan products = plan->products;
    tconv_cpu_carry_cut cut;
    tconv_layer chunk = *layer;
    (void)issue;
    chunk.problem = *problem;
    cut_call(plan, layer, problem, &cut);
    products.sweeps = !cut.packs;
    products.pitch = tconv_round_up((has_few_inputs(problem) ? cut.groups : 1) * cut.channels * products.taps,
                                    cut.packs ? products.width : APART / 2);
    if (!cut.packs && products.pitch * products.real_size % (2 * TCONV_ALIGNMENT) == 0)
        products.pitch += APART / 2; /* pixels' sums lie in different sets of the cache */
    products.pixels = cut.images * cut.frames * cut.others;
    products.level = products.pixels * products.pitch;
    tconv_cpu_convert_bias(problem->dtype, arguments->bias, problem->out_channels, arguments->scratch);
    char *nothing = (char *)arguments->scratch + plan->bias_bytes;
    for (int64_t i = 0; cut.packs && i < products.width; i++)
        if (products.real)
            ((double *)(void *)nothing)[i] = -0.0;
        else
            ((float *)(void *)nothing)[i] = -0.0F;
    const tconv_cpu_carry_job job = {
        .products = {.layer = &chunk,
                     .plan = &products,
                     .src = arguments->src,
                     .weights = arguments->weights != NULL ? arguments->weights : arguments->packed,
                     .dst = arguments->dst,
                     .bias = arguments->scratch,
                     .nothing = nothing,
                     .posts = {problem, arguments->post, arguments->dst}},
        .sizes = &plan->sizes,
        .cut = &cut,
        .step = arguments->step,
    };
    tconv_cpu_run_tasks(&layer->target, cut.threads, cut.tasks, &job, nothing + plan->nothing_bytes, run_share);
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const tconv_cpu_carry_plan *plan = made;
    tconv_cpu_carry_cut cut;
    cut_call(plan, layer, &layer->problem, &cut);
    snprintf(text, capacity,
             "tail=%" PRId64 " pixels=%" PRId64 " channels=%" PRId64 " k_block=%" PRId64 " tasks=%" PRId64
             " threads=%d",
             layer->problem.tail, cut.images * cut.frames * cut.others, cut.channels, plan->products.k_block, cut.tasks,
             cut.threads);
}

/* A carry of fewer digits is rounded wherever a chunk ends. */
static bool is_chunk_invariant(const tconv_layer *layer, const void *made)
{
    (void)made;
    return layer->problem.carry_dtype == TCONV_F32 || layer->problem.carry_dtype == TCONV_F64;
}

const tconv_implementation tconv_cpu_carry = {
    .name = "cpu_carry",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .applies_posts = true,
    .streams = true,
    .plan_bytes = sizeof(tconv_cpu_carry_plan),
    .plan = plan_layer,
    .pack = tconv_cpu_copy_weights,
    .execute = execute,
    .describe = describe,
    .batch_invariant = tconv_always_batch_invariant,
    .chunk_invariant = is_chunk_invariant,
};
