/*
 * Loads what is read into a strip of the matrix algorithm, a chunk of channels and a few rows of a phase at a time: f32 is
 * split from where it lies, f16 from a buffer of f32, bf16 is moved as it is; planes are transposed. Where columns of a
 * phase are not neighbours in planes, several column phases are loaded at once, since they share what is read. Zeros stand
 * where a row or column lies outside the image, or, where a weight is Inf or NaN, TCONV_CPU_BF16_MARK.
 */
#include <string.h>

#include "../../core/checked.h"
#include "task.h"

/* The most rows that are loaded at a time. It is chosen, not measured. */
enum { MAX_ROWS = 64 };

/* Rows of a phase of the strip, number `first` and up, counted over all images of the task. */
struct rows {
    int64_t first, count, of_image;
    int64_t src[MAX_ROWS]; /* where each begins; -1: it lies outside */
};

/* Column phases that are loaded together, number `phase` of the strip and up, and what of each row lies inside. */
struct columns {
    int64_t phase, count, next; /* next: of the view */
    struct inside {
        int64_t src, left, count, right; /* src: where it begins, from the row's beginning */
    } inside[TCONV_CPU_BF16_TOGETHER];
    tconv_cpu_split_run runs[TCONV_CPU_BF16_TOGETHER];
};

/* Lists rows of a row phase. */
static void list_rows(const tconv_cpu_bf16_task *task, const tconv_cpu_bf16_phase *phase, struct rows *rows)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_strides *src = &task->job->layer->problem.src;
    for (int64_t i = 0; i < rows->count; i++) {
        const int64_t image = task->image + (rows->first + i) / rows->of_image;
        const int64_t row = task->row + phase->begin + (rows->first + i) % rows->of_image;
        const bool inside = row >= 0 && row < phase->count;
        rows->src[i] = inside ? image * src->n + (row * plan->row_stride + phase->residue) * src->h : -1;
    }
}

/* Lists the column phases that follow; false where there are none. */
static bool list_columns(const tconv_cpu_bf16_task *task, struct columns *columns)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    tconv_cpu_bf16_phase phase;
    columns->phase += columns->count;
    columns->count = 0;
    while (columns->count < plan->column_phases &&
           tconv_cpu_next_bf16_phase(&plan->view, true, &plan->columns, &columns->next, &phase)) {
        const int64_t begin = task->column + phase.begin, end = begin + plan->row_pitch;
        const int64_t from = tconv_max(begin, 0), to = tconv_min(end, phase.count);
        struct inside *inside = &columns->inside[columns->count];
        columns->runs[columns->count] = (tconv_cpu_split_run){.residue = phase.residue,
                                                              .first = begin,
                                                              .count = plan->row_pitch,
                                                              .strip = columns->count * plan->row_pitch};
        columns->count++;
        *inside = (struct inside){.left = plan->row_pitch};
        if (from < to)
            *inside = (struct inside){
                .src = (from * plan->column_stride + phase.residue) * task->job->layer->problem.src.w,
                .left = from - begin,
                .count = to - from,
                .right = end - to,
            };
    }
    return columns->count > 0;
}

/* Where a channel of the task's group begins in src, in elements. */
static int64_t channel_offset(const tconv_cpu_bf16_task *task, int64_t channel)
{
    const tconv_problem *problem = &task->job->layer->problem;
    return (task->group * problem->group_in + channel) * problem->src.c;
}

/* Numbers of an element of the planes. */
static int64_t word_of(const tconv_cpu_bf16_plan *plan)
{
    return plan->copies ? 2 : 1;
}

/* What is loaded of the channels [channel, channel + count) of the group, of listed rows and column phases, to planes of so
 * many positions. */
struct planes {
    const struct rows *rows;
    const struct columns *columns;
    int64_t channel, count, positions;
    tconv_cpu_padded_row padded[MAX_ROWS];
};

/* Loads words from number `first` on, each from channels one after another; second: from the first to the second. */
static void load_words(const tconv_cpu_bf16_task *task, const struct planes *planes, int64_t first, int64_t words,
                       int64_t second)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t word = word_of(plan), offset = channel_offset(task, planes->channel + first * word);
    const char *src = (const char *)task->job->src + offset * (int64_t)problem->element_size;
    float *const strip = task->planes + first * planes->positions;
    if (plan->splits) {
        const tconv_cpu_split_load load = {.src = src,
                                           .strip = strip,
                                           .src_channel = problem->src.c * word,
                                           .strip_channel = planes->positions,
                                           .channels = words,
                                           .row_count = planes->rows->count,
                                           .run_count = planes->columns->count,
                                           .stride = plan->column_stride,
                                           .length = problem->w.in,
                                           .second = second,
                                           .rows = planes->padded,
                                           .runs = planes->columns->runs};
        (plan->copies ? plan->kernels->split_pairs : plan->kernels->dtype[problem->dtype].load_split)(&load);
        return;
    }
    const tconv_cpu_load load = {.src = src,
                                 .strip = strip,
                                 .src_channel = problem->src.c * word,
                                 .strip_channel = planes->positions,
                                 .src_pixel = problem->src.w,
                                 .second = second,
                                 .channels = words,
                                 .row_count = planes->rows->count,
                                 .rows = planes->padded};
    (plan->copies ? plan->kernels->load_pairs : plan->kernels->dtype[problem->dtype].load_planes)(&load);
}

/* Loads planes: [channel, or pair][row][column phase][column]. */
static void load_planes(const tconv_cpu_bf16_task *task, const struct rows *rows, const struct columns *columns,
                        int64_t channel, int64_t count)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const struct inside *inside = &columns->inside[0];
    struct planes planes = {rows, columns, channel, count, rows->count * columns->count * plan->row_pitch, {{0}}};
    for (int64_t i = 0; i < rows->count; i++) {
        tconv_cpu_padded_row *padded = &planes.padded[i];
        *padded = (tconv_cpu_padded_row){.strip = i * columns->count * plan->row_pitch, .left = plan->row_pitch};
        if (rows->src[i] < 0)
            continue;
        padded->src = rows->src[i] + (plan->splits ? 0 : inside->src);
        padded->left = inside->left;
        padded->count = plan->splits ? problem->w.in : inside->count;
        padded->right = inside->right;
    }
    const int64_t word = word_of(plan);
    load_words(task, &planes, 0, count / word, problem->src.c);
    if (count % word != 0)
        load_words(task, &planes, count / word, 1, 0);
}

/* Converts pixels of channels [channel, channel + count) of the group. */
static void convert_pixels(const tconv_cpu_bf16_task *task, const struct rows *rows, const struct inside *inside,
                           int64_t channel, int64_t count)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    for (int64_t i = 0; i < rows->count; i++) {
        if (rows->src[i] < 0)
            continue;
        const tconv_cpu_pixel_load load = {
            .src = (const char *)task->job->src +
                   (rows->src[i] + inside->src + channel_offset(task, channel)) * (int64_t)problem->element_size,
            .strip = task->planes + (i * plan->row_pitch + inside->left) * count,
            .rows = inside->count,
            .count = count,
            .src_pitch = problem->src.w * plan->column_stride,
            .strip_pitch = count,
        };
        plan->pixels->dtype[problem->dtype].load(&load);
    }
}

/* Writes zeros to all parts of positions outside the image, or the mark to the first. */
static void fill_outside(const tconv_cpu_bf16_task *task, uint16_t *to, int64_t positions)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t count = positions * plan->depth;
    for (int part = 0; part < plan->parts; part++)
        memset(to + part * tconv_cpu_bf16_part(plan), 0, (size_t)count * sizeof *to);
    for (int64_t i = 0; task->job->header->has_nonfinite && i < count; i++)
        to[i] = TCONV_CPU_BF16_MARK;
}

/* Where numbers of a chunk of a row lie: in src itself, or where they were loaded. */
struct source {
    const void *from;
    int64_t size;              /* of an element: a number, or a pair */
    int64_t position, channel; /* elements from one position, or one element of a position, to the next */
};

/* Returns the source of row i and column phase p of what is listed. */
static struct source source_of(const tconv_cpu_bf16_task *task, const struct rows *rows, const struct columns *columns,
                               int64_t i, int64_t p, int64_t channel, int64_t count)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const struct inside *inside = &columns->inside[p];
    const int64_t size = plan->direct ? (int64_t)problem->element_size : (int64_t)sizeof(float);
    if (plan->direct) {
        const int64_t at = rows->src[i] + inside->src + channel_offset(task, channel);
        return (struct source){(const char *)task->job->src + at * size, size, problem->src.w * plan->column_stride,
                               problem->src.c};
    }
    const bool planes = problem->layout == TCONV_NCHW;
    const int64_t first = (i * columns->count + p) * plan->row_pitch + inside->left;
    return (struct source){task->planes + first * (planes ? 1 : count), size, planes ? 1 : count,
                           planes ? rows->count * columns->count * plan->row_pitch : 1};
}

/* Splits, or copies, channels [first, first + count) of a chunk of a row. */
static void split_channels(tconv_cpu_bf16_task *task, const struct source *source, int64_t positions, int64_t first,
                           int64_t count, uint16_t *to, tconv_cpu_bf16_range *range)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t word = plan->direct ? 1 : word_of(plan);
    const void *from = (const char *)source->from + first / word * source->channel * source->size;
    if (plan->copies) {
        plan->matrix->copy(&(tconv_cpu_bf16_copy){.from = from,
                                                  .pairs = word > 1,
                                                  .rows = positions,
                                                  .count = tconv_ceil_div(count, word),
                                                  .row = source->position,
                                                  .step = source->channel,
                                                  .to = to + first,
                                                  .to_row = plan->depth,
                                                  .range = range});
        return;
    }
    plan->matrix->split(&(tconv_cpu_bf16_split){.from = from,
                                                .rows = positions,
                                                .count = count,
                                                .row = source->position,
                                                .step = source->channel,
                                                .parts = plan->parts,
                                                .to = to + first,
                                                .to_row = plan->depth,
                                                .part_pitch = tconv_cpu_bf16_part(plan),
                                                .range = range});
}

/* Splits a chunk of channels of row i and column phase p of what is listed. to: the row's place in the strip. */
static void split_chunk(tconv_cpu_bf16_task *task, const struct rows *rows, const struct columns *columns, int64_t i,
                        int64_t p, int64_t channel, int64_t count, uint16_t *to)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const struct inside *inside = &columns->inside[p];
    const bool planes = task->job->layer->problem.layout == TCONV_NCHW;
    const int64_t together = planes ? word_of(plan) * TCONV_CPU_FRAGMENT : count;
    if (rows->src[i] < 0) {
        fill_outside(task, to, plan->row_pitch);
        return;
    }
    const struct source source = source_of(task, rows, columns, i, p, channel, count);
    fill_outside(task, to, inside->left);
    for (int64_t first = 0; inside->count > 0 && first < count; first += together)
        split_channels(task, &source, inside->count, first, tconv_min(together, count - first),
                       to + inside->left * plan->depth, &task->ranges[rows->first + i]);
    fill_outside(task, to + (inside->left + inside->count) * plan->depth, inside->right);
}

/* Loads and splits a chunk of channels of listed rows and column phases, of which the first is number `phase` of the
 * strip. */
static void load_chunk(tconv_cpu_bf16_task *task, const struct rows *rows, const struct columns *columns, int64_t phase,
                       int64_t chunk)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t channel = chunk * plan->depth, count = tconv_min(plan->depth, problem->group_in - channel);
    if (!plan->direct && problem->layout == TCONV_NHWC)
        convert_pixels(task, rows, &columns->inside[0], channel, count);
    else if (!plan->direct)
        load_planes(task, rows, columns, channel, count);
    for (int64_t p = 0; p < columns->count; p++) {
        const int64_t place = ((phase + p) * plan->chunks + chunk) * plan->pitch;
        for (int64_t i = 0; i < rows->count; i++)
            split_chunk(task, rows, columns, i, p, channel, count,
                        task->strip + (place + (rows->first + i) * plan->row_pitch) * plan->depth);
    }
}

/* Loads a row phase, whose column phases are number `phase` of the strip and up; returns the first that follows. */
static int64_t load_row_phase(tconv_cpu_bf16_task *task, const tconv_cpu_bf16_phase *of, int64_t phase)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    struct rows rows = {.of_image = task->rows + tconv_cpu_halo(&plan->rows)};
    const int64_t all = task->images * rows.of_image;
    const int64_t together =
        tconv_max(1, tconv_min(MAX_ROWS, plan->plane_positions / (plan->column_phases * plan->row_pitch)));
    int64_t end = phase;
    for (; rows.first < all; rows.first += rows.count) {
        struct columns columns = {0};
        rows.count = tconv_min(together, all - rows.first);
        list_rows(task, of, &rows);
        while (list_columns(task, &columns))
            for (int64_t chunk = 0; chunk < plan->chunks; chunk++)
                load_chunk(task, &rows, &columns, phase + columns.phase, chunk);
        end = phase + columns.phase;
    }
    return end;
}

/* Writes zeros for channels that pad the last chunk, and after the last row, where the last fragments read. */
static void clear_padding(const tconv_cpu_bf16_task *task, int64_t positions)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t depth = plan->depth, given = task->job->layer->problem.group_in - (plan->chunks - 1) * depth;
    const int64_t all = plan->strip_phases * plan->chunks;
    for (int part = 0; part < plan->parts; part++) {
        uint16_t *const first = task->strip + part * tconv_cpu_bf16_part(plan);
        for (int64_t i = 0; i < all; i++) {
            uint16_t *to = first + i * plan->pitch * depth;
            memset(to + positions * depth, 0, (size_t)((plan->pitch - positions) * depth) * sizeof *to);
            if (i % plan->chunks < plan->chunks - 1 || given == depth)
                continue;
            for (int64_t position = 0; position < positions; position++)
                memset(to + position * depth + given, 0, (size_t)(depth - given) * sizeof *to);
        }
        memset(first + all * plan->pitch * depth, 0, (size_t)(TCONV_CPU_BF16_SLACK * depth) * sizeof *first);
    }
}

static void join_ranges(tconv_cpu_bf16_range *range, const tconv_cpu_bf16_range *other)
{
    range->least = other->least < range->least ? other->least : range->least;
    range->most = other->most > range->most ? other->most : range->most;
}

void tconv_cpu_load_bf16(tconv_cpu_bf16_task *task)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t all = task->images * (task->rows + tconv_cpu_halo(&plan->rows));
    for (int64_t row = 0; row < all; row++)
        task->ranges[row] = (tconv_cpu_bf16_range)TCONV_CPU_BF16_NO_RANGE;
    tconv_cpu_bf16_phase rows;
    for (int64_t next = 0, phase = 0; tconv_cpu_next_bf16_phase(&plan->view, false, &plan->rows, &next, &rows);)
        phase = load_row_phase(task, &rows, phase);
    clear_padding(task, all * plan->row_pitch);
    /* From the first on, so that none is extended before it is read. */
    for (int64_t row = 0; row < all; row++)
        for (int64_t read = row + 1; read <= tconv_min(row + tconv_cpu_halo(&plan->rows), all - 1); read++)
            join_ranges(&task->ranges[row], &task->ranges[read]);
}
