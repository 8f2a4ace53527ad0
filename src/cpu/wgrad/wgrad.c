/*
 * cpu_wgrad: the gradients of weights and bias. For each input channel c, output channel o and tap k of a group
 *
 *     diff_weights[c, o, k] = sum over images n and inputs i of src[n, c, i] * diff_dst[n, o, s * i + d * k - p],
 *
 * a matrix product whose terms are pixels. For a tile of inputs, src is transposed so that the vector runs along input
 * channels, and the gradient of dst lies in planes of one residue modulo the stride, where the outputs that a tap reaches
 * from neighbouring inputs are neighbours; each output channel with each tap is a row of the microkernels of the pixels
 * algorithm. So any few output channels fill a micro-tile, and taps share what was loaded.
 *
 * Numeric order, of each sum by itself: over the pixels of a tile in segments (tconv_cpu_pixel_microtile), in float, or
 * double for f64; over the tiles of a part, and over parts, in double (for f64 with what rounding loses); then what the
 * output held, where the layer accumulates; one rounding to the dtype. Tiles and parts depend on the layer and the machine,
 * never on threads. Where src has Inf or NaN, what lies outside the image is multiplied by nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../blocking/pair_range.h"
#include "../cpu_backend.h"
#include "task.h"
#include "view.h"

/* -------------------------------------------------------------------------------------------------------- products */

/* The most floats of a vector. */
enum { MOST_LANES = 16 };

/* A panel of the src strip. */
struct panel {
    int64_t channel, width, terms; /* terms: of the tile */
    const void *src;
};

/* Multiplies a panel by all output channels and taps. */
static void multiply_panel(tconv_cpu_wgrad_task *task, const struct panel *panel)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const int64_t vectors = panel->width / plan->lanes, all = task->outs * plan->taps;
    const int64_t parts = tconv_ceil_div(all, plan->pixels->real[plan->real].max_pixels[vectors]);
    tconv_cpu_pixel_microkernel *const *kernels =
        plan->pairs != NULL ? plan->pairs->pixels[vectors] : plan->pixels->real[plan->real].dense[vectors];
    tconv_cpu_pixel_microtile tile = {.strip = task->dst,
                                      .taps = task->terms,
                                      .tap_count = task->images * task->rows,
                                      .channels = tconv_cpu_wgrad_terms(plan, task->columns),
                                      .segment = tconv_cpu_wgrad_segment(plan, panel->terms),
                                      .weights = panel->src,
                                      .levels = task->levels,
                                      .sums = task->tile};
    for (int64_t part = 0, row = 0, count; part < parts; part++, row += count) {
        count = (all - row) / (parts - part);
        tile.at = task->at + row;
        kernels[count](&tile);
        tconv_cpu_add_wgrad_tile(task, row, count, panel->channel, panel->width);
        tconv_cpu_prefetch_wgrad(task);
    }
}

/* The same as multiply_panel without what lies outside the image, row by row of it: zeros would not silence what is not
 * finite. */
static void multiply_cut(tconv_cpu_wgrad_task *task, const struct panel *panel, int64_t out, int64_t tap_index)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_cpu_wgrad_tap *tap = &task->job->taps[tap_index];
    int64_t first_row, first_column;
    const int64_t rows = tconv_cpu_wgrad_inputs(tap->row, tap->row_shift, task->row, task->rows, &first_row);
    const int64_t columns =
        tconv_cpu_wgrad_inputs(tap->column, tap->column_shift, task->column, task->columns, &first_column);
    const tconv_cpu_pixel_tap none = {0, 0};
    for (int64_t image = 0; image < task->images && columns > 0; image++)
        for (int64_t row = first_row; row < first_row + rows; row++) {
            const int64_t term = image * task->rows + row;
            const int32_t at = task->at[out * plan->taps + tap_index] + task->terms[term].strip + (int32_t)first_column;
            const tconv_cpu_pixel_microtile tile = {
                .strip = task->dst,
                .at = &at,
                .taps = &none,
                .tap_count = 1,
                .channels = columns,
                .segment = tconv_cpu_wgrad_segment(plan, columns),
                .weights = tconv_cpu_real_at(plan->real_size, panel->src,
                                             (term * task->columns + first_column) * panel->width),
                .levels = task->levels,
                .sums = task->tile};
            plan->pixels->real[plan->real].dense[panel->width / plan->lanes][1](&tile);
            tconv_cpu_add_wgrad_tile(task, out * plan->taps + tap_index, 1, panel->channel, panel->width);
        }
}

/* The same where sums are narrow: a row of them is added up in double. */
static void multiply_cut_narrow(tconv_cpu_wgrad_task *task, const struct panel *panel, int64_t out, int64_t tap)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    double row[TCONV_CPU_MAX_PIXEL_VECTORS * MOST_LANES] = {0};
    float *to = task->narrow + (out * plan->taps + tap) * plan->block_in + panel->channel;
    task->wide = row;
    multiply_cut(task, panel, out, tap);
    task->wide = NULL;
    for (int64_t i = 0; i < panel->width; i++)
        to[i] = (float)row[i];
}

/* Clears the sums of a panel. */
static void clear_panel(const tconv_cpu_wgrad_task *task, const struct panel *panel)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    for (int64_t row = 0; row < task->outs * plan->taps * (plan->keeps_rest ? 2 : 1); row++) {
        const int64_t part = row / (task->outs * plan->taps), at = row % (task->outs * plan->taps);
        memset(task->sums + part * plan->sums + at * plan->block_in + panel->channel, 0,
               (size_t)panel->width * sizeof *task->sums);
    }
}

/* Adds the products of the tile to the block's sums. */
static void multiply_tile(tconv_cpu_wgrad_task *task)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const int64_t rows = task->images * task->rows, word = tconv_cpu_wgrad_word(plan);
    struct panel panel = {.terms = rows * tconv_cpu_wgrad_terms(plan, task->columns), .src = task->src};
    for (int64_t image = 0; image < task->images; image++)
        for (int64_t row = 0; row < task->rows; row++)
            task->terms[image * task->rows + row] = (tconv_cpu_pixel_tap){
                (int32_t)((image * plan->image_pitch + row * plan->pitch) / word), (int32_t)(image * task->rows + row)};
    const bool begins = task->begins;
    for (; panel.channel < task->ins; panel.channel += panel.width) {
        panel.width = tconv_round_up(tconv_min(plan->width, task->ins - panel.channel), plan->lanes);
        const bool finite =
            plan->pairs != NULL || plan->pixels->real[plan->real].are_finite(panel.src, panel.terms * panel.width);
        if (begins && !finite && !plan->narrow)
            clear_panel(task, &panel);
        task->begins = begins && finite;
        if (finite)
            multiply_panel(task, &panel);
        else
            for (int64_t out = 0; out < task->outs; out++)
                for (int64_t tap = 0; tap < plan->taps; tap++)
                    (plan->narrow ? multiply_cut_narrow : multiply_cut)(task, &panel, out, tap);
        panel.src = tconv_cpu_real_at(plan->real_size, panel.src, panel.terms * panel.width);
    }
}

/* ----------------------------------------------------------------------------------------------------------- tasks */

static tconv_cpu_wgrad_block find_block(const tconv_cpu_wgrad_job *job, int64_t index)
{
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    tconv_cpu_wgrad_block found = {.outs = 1};
    if (plan->depthwise) {
        found.ins = tconv_cpu_cut_tile(index, plan->block_in, problem->groups, &found.group);
        return found;
    }
    found.outs = tconv_cpu_cut_tile(index % plan->out_blocks, plan->block_out, problem->group_out, &found.out);
    index /= plan->out_blocks;
    found.ins = tconv_cpu_cut_tile(index % plan->in_blocks, plan->block_in, problem->group_in, &found.in);
    found.group = index / plan->in_blocks;
    return found;
}

/* next: the tile that follows; -1: none. */
static void run_tile(tconv_cpu_wgrad_task *task, int64_t index, int64_t next)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t calls =
        tconv_ceil_div(task->ins, plan->width) *
        tconv_ceil_div(task->outs * plan->taps, plan->pixels->real[plan->real].max_pixels[plan->width / plan->lanes]);
    task->columns = tconv_cpu_cut_tile(index % plan->column_tiles, plan->tile_columns, problem->w.in, &task->column);
    index /= plan->column_tiles;
    task->rows = tconv_cpu_cut_tile(index % plan->row_tiles, plan->tile_rows, problem->h.in, &task->row);
    task->images = tconv_cpu_cut_tile(index / plan->row_tiles, plan->images, problem->batch, &task->image);
    if (plan->depthwise) {
        tconv_cpu_multiply_depthwise(task);
        return;
    }
    if (plan->planes) {
        tconv_cpu_multiply_planes(task);
        return;
    }
    tconv_cpu_load_wgrad_src(task);
    tconv_cpu_load_wgrad_dst(task);
    tconv_cpu_look_ahead_wgrad(task, next, calls);
    multiply_tile(task);
}

/* Stores all sums of a block. */
static void store_block(const tconv_cpu_wgrad_job *job, const tconv_cpu_wgrad_block *block, double *sums)
{
    if (job->plan->planes)
        tconv_cpu_add_wgrad_lanes(job->plan, sums);
    tconv_cpu_store_wgrad(job, block, sums, 0, block->ins);
}

/* Task: a part of a block. */
static void run_task(tconv_cpu_wgrad_task *task, int64_t index)
{
    const tconv_cpu_wgrad_job *job = task->job;
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_cpu_wgrad_block block = find_block(job, index % plan->blocks);
    const tconv_cpu_range tiles = tconv_cpu_share_of(plan->tiles, (int)(index / plan->blocks), (int)plan->parts);
    const int64_t size = plan->sums * (plan->keeps_rest ? 2 : 1);
    task->group = block.group, task->in = block.in, task->ins = block.ins, task->out = block.out,
    task->outs = block.outs;
    if (plan->parts > 1)
        task->sums = job->parts + index * size;
    if (plan->depthwise || tiles.begin == tiles.end)
        memset(task->sums, 0, (size_t)size * sizeof *task->sums);
    for (int64_t tile = tiles.begin; tile < tiles.end; tile++) {
        task->begins = !plan->depthwise && tile == tiles.begin;
        run_tile(task, tile, tile + 1 < tiles.end ? tile + 1 : -1);
    }
    if (plan->parts == 1)
        store_block(job, &block, task->sums);
}

static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_wgrad_job *job = shared->job;
    const tconv_cpu_wgrad_plan *plan = job->plan;
    char *scratch = shared->scratch + index * plan->thread_bytes;
    tconv_cpu_wgrad_task task = {.job = job, .src = scratch};
    task.dst = scratch += plan->src_bytes;
    task.sums = (double *)(void *)(scratch += plan->dst_bytes);
    task.narrow = (float *)(void *)scratch;
    task.levels = scratch += plan->sums_bytes;
    task.tile = scratch += plan->levels_bytes;
    task.at = (int32_t *)(void *)(scratch += plan->tile_bytes);
    task.terms = (tconv_cpu_pixel_tap *)(void *)(scratch += plan->at_bytes);
    task.padded = (tconv_cpu_padded_row *)(void *)(scratch += plan->terms_bytes);
    task.runs = (tconv_cpu_split_run *)(void *)(scratch + plan->padded_bytes);
    for (int64_t o = 0; o < plan->block_out; o++)
        for (int64_t t = 0; t < plan->taps; t++)
            task.at[o * plan->taps + t] = (int32_t)(o * plan->channel_pitch) + job->taps[t].at;
    if (plan->planes)
        tconv_cpu_clear_wgrad_dst(&task);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < shared->tasks.count;)
        run_task(&task, taken);
}

/* Slices of a block's input channels, each of which a task adds up. It is chosen, not measured. */
enum { SLICES = 8 };

/* Lanes are added up by one task. */
static int64_t count_slices(const tconv_cpu_wgrad_plan *plan)
{
    return plan->planes ? 1 : SLICES;
}

/* Task: a slice of a block, whose parts it adds up, in the place of the first one, and stores. */
static void add_parts(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_wgrad_job *job = shared->job;
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const int64_t size = plan->sums * (plan->keeps_rest ? 2 : 1), slices = count_slices(plan);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < shared->tasks.count;) {
        const tconv_cpu_wgrad_block block = find_block(job, taken / slices);
        const int64_t ins = plan->planes ? plan->width : block.ins; /* or lanes */
        const tconv_cpu_range share =
            tconv_cpu_share_of(tconv_ceil_div(ins, TCONV_CPU_WGRAD_STORED), (int)(taken % slices), (int)slices);
        const tconv_cpu_range channels = {share.begin * TCONV_CPU_WGRAD_STORED,
                                          tconv_min(ins, share.end * TCONV_CPU_WGRAD_STORED)};
        const int64_t count = tconv_max(0, channels.end - channels.begin);
        double *sums = job->parts + taken / slices * size;
        for (int64_t part = 1; part < plan->parts; part++)
            for (int64_t row = 0; row < block.outs * plan->taps; row++) {
                double *to = sums + row * plan->block_in + channels.begin;
                const double *from = to + part * plan->blocks * size;
                if (plan->keeps_rest) {
                    plan->pixels->real[1].accumulate(to, to + plan->sums, 0, from, 1, count);
                    to += plan->sums;
                    from += plan->sums;
                }
                for (int64_t i = 0; i < count; i++)
                    to[i] += from[i];
            }
        if (plan->planes)
            store_block(job, &block, sums);
        else
            tconv_cpu_store_wgrad(job, &block, sums, channels.begin, count);
    }
}

/* ------------------------------------------------------------------------------------------------------- executing */

/* Lists the live phases of an axis. */
static int64_t list_phases(const tconv_axis *axis, const tconv_phase_table *table, tconv_cpu_wgrad_phase *to)
{
    int64_t count = 0;
    for (int64_t p = 0; p < table->count; p++) {
        const tconv_phase *phase = &table->phases[p];
        const tconv_cpu_taps taps = tconv_cpu_live_taps(axis, table, phase);
        if (taps.count > 0)
            to[count++] = (tconv_cpu_wgrad_phase){phase->residue, phase->outputs,
                                                  taps.first * table->shift_step - phase->first_shift};
    }
    return count;
}

/* Where a tap begins in the depthwise dst strip. */
static int32_t place_depthwise(const tconv_layer *layer, const tconv_cpu_wgrad_plan *plan, const tconv_cpu_phase *phase,
                               int64_t tap)
{
    const int64_t row = phase->row_taps.first + tap / phase->column_taps.count;
    const int64_t column = phase->column_taps.first + tap % phase->column_taps.count;
    const int64_t kh = phase->row->first_kernel + row * layer->rows.kernel_step;
    const int64_t kw = phase->column->first_kernel + column * layer->columns.kernel_step;
    return (int32_t)(kh * layer->problem.h.dilation * plan->pitch + kw * layer->problem.w.dilation * plan->width);
}

/* Lists the live taps. */
static void list_taps(const tconv_cpu_wgrad_job *job, tconv_cpu_wgrad_tap *to)
{
    tconv_cpu_wgrad_tap *const taps = to;
    const tconv_layer *layer = job->layer;
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_cpu_wgrad_phase *row = job->rows, *column = job->columns;
    tconv_cpu_phase phase = {0};
    while (tconv_cpu_next_phase(layer, &phase)) {
        const int64_t count = tconv_cpu_phase_taps(&phase);
        if (phase.column == layer->columns.phases)
            column = job->columns;
        const int64_t place = (row - job->rows) * plan->columns.phases + (column - job->columns);
        for (int64_t tap = 0; tap < count; tap++) {
            const int64_t row_shift = tap / phase.column_taps.count * layer->rows.shift_step;
            const int64_t column_shift = tap % phase.column_taps.count * layer->columns.shift_step;
            *to++ = (tconv_cpu_wgrad_tap){
                .row = row,
                .column = column,
                .row_shift = row_shift,
                .column_shift = column_shift,
                .weight = tconv_cpu_tap_weight(layer, &phase, tap),
                .at = plan->depthwise ? place_depthwise(layer, plan, &phase, tap)
                                      : (int32_t)(place * plan->plane + row_shift * plan->pitch + column_shift)};
        }
        column += phase.column_taps.count > 0;
        row += phase.row_taps.count > 0 && phase.column == layer->columns.phases + layer->columns.count - 1;
    }
    for (int64_t i = 0; plan->taps_inside && i < plan->taps; i++)
        taps[taps[i].weight].at_place = (int32_t)i;
}

typedef struct wgrad {
    tconv_cpu_wgrad_plan plan;  /* of the view */
    tconv_cpu_wgrad_plan pairs; /* by pairs, where these have all products; no threads: there is none */
    tconv_cpu_wgrad_view view;
} wgrad;

/* Whether all products are those of pairs. */
static bool by_pairs(const wgrad *planned, const tconv_arguments *arguments)
{
    const tconv_target *target = &planned->view.layer.target;
    const tconv_problem *problem = &planned->view.layer.problem;
    const tconv_cpu_pair_tensor src = tconv_cpu_pairs_of_src(problem, arguments->src);
    const tconv_cpu_pair_tensor dst = tconv_cpu_pairs_of_dst(problem, arguments->dst);
    const tconv_cpu_pair_range none = TCONV_CPU_NO_PAIR_RANGE;
    const int threads = planned->pairs.threads;
    tconv_cpu_pair_range of_src, of_dst;
    return arguments->weights != NULL && threads > 0 &&
           tconv_cpu_find_pair_range(target, threads, &src, &none, &of_src, arguments->scratch) &&
           tconv_cpu_find_pair_range(target, threads, &dst, &of_src, &of_dst, arguments->scratch);
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const wgrad *planned = made;
    const tconv_cpu_wgrad_plan *plan = by_pairs(planned, arguments) ? &planned->pairs : &planned->plan;
    const tconv_layer *seen = &planned->view.layer;
    char *const phases_at = arguments->scratch, *const taps_at = phases_at + plan->phases_bytes;
    char *const parts = taps_at + plan->taps_bytes, *const bias_parts = parts + plan->parts_bytes;
    char *const scratch = bias_parts + plan->bias_bytes;
    tconv_cpu_wgrad_phase *phases = (tconv_cpu_wgrad_phase *)(void *)phases_at;
    tconv_cpu_wgrad_tap *taps = (tconv_cpu_wgrad_tap *)(void *)taps_at;
    tconv_cpu_wgrad_job job = {.layer = seen,
                               .plan = plan,
                               .src = arguments->src,
                               .dst = arguments->dst,
                               .weights = arguments->weights,
                               .bias = arguments->bias,
                               .rows = phases,
                               .columns = phases + plan->rows.phases,
                               .taps = taps,
                               .parts = (double *)(void *)parts,
                               .bias_parts = (tconv_cpu_reference_sum *)(void *)bias_parts};
    (void)issue;
    if (job.weights != NULL) {
        list_phases(&seen->problem.h, &seen->rows, phases);
        list_phases(&seen->problem.w, &seen->columns, phases + plan->rows.phases);
        list_taps(&job, taps);
        if (plan->has_dead_taps && !seen->problem.desc.accumulate)
            memset(job.weights, 0, (size_t)seen->problem.weight_extent * seen->problem.element_size);
        tconv_cpu_run_tasks(&layer->target, plan->threads, plan->parts * plan->blocks, &job, scratch, run_share);
        if (plan->parts > 1)
            tconv_cpu_run_tasks(&layer->target, plan->threads, plan->blocks * count_slices(plan), &job, scratch,
                                add_parts);
    }
    job.layer = layer; /* an output channel of the view is one output of the caller's */
    if (job.bias != NULL)
        tconv_cpu_sum_wgrad_bias(&job, scratch);
    return TCONV_SUCCESS;
}

/* -------------------------------------------------------------------------------------------------- implementation */

/* At most TCONV_CPU_MAX_THREADS threads of 2 MiB each, and the parts' 32 MiB: no sum overflows. */
static int64_t scratch_bytes(const tconv_cpu_wgrad_plan *plan)
{
    return plan->phases_bytes + plan->taps_bytes + plan->parts_bytes + plan->bias_bytes + tconv_cpu_shared_bytes() +
           plan->threads * plan->thread_bytes;
}

static tconv_status plan_layer(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    wgrad *to = made;
    tconv_cpu_wgrad_view_init(&to->view, layer);
    const char *why = tconv_cpu_wgrad_plan_init(&to->plan, &to->view.layer, false);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    if (tconv_cpu_has_wgrad_pairs(&to->plan, &to->view.layer) &&
        tconv_cpu_wgrad_plan_init(&to->pairs, &to->view.layer, true) != NULL)
        to->pairs.threads = 0;
    planned->sizes.scratch = (size_t)tconv_max(scratch_bytes(&to->plan), scratch_bytes(&to->pairs));
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const wgrad *planned = made;
    const bool pairs = planned->pairs.threads > 0;
    const tconv_cpu_wgrad_plan *plan = pairs ? &planned->pairs : &planned->plan;
    (void)layer;
    snprintf(text, capacity,
             "pairs=%d tile=%" PRId64 "x%" PRId64 "x%" PRId64 " block=%" PRId64 "x%" PRId64 " blocks=%" PRId64
             " parts=%" PRId64 " threads=%d",
             pairs, plan->images, plan->tile_rows, plan->tile_columns, plan->block_in, plan->block_out, plan->blocks,
             plan->parts, plan->threads);
}

const tconv_implementation tconv_cpu_wgrad = {
    .name = "cpu_wgrad",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .plan_bytes = sizeof(wgrad),
    .plan = plan_layer,
    .execute = execute,
    .describe = describe,
};
