/*
 * Loads input into a strip: rows of the image, converted to the type of the sums, channel by channel, whatever the
 * layout of src. Zeros stand where a row or column lies outside the image, and after the last row as far as whole
 * vectors are read: their sums there are not stored, but they must not read what the memory held before.
 */
#include "strip.h"

#include "../../core/checked.h"

/* The columns of a row that lie left of, within and right of the image. */
struct columns {
    int64_t left, count, right;
};

/* Cuts [begin, begin + length) at [0, width). */
static struct columns cut(int64_t begin, int64_t length, int64_t width)
{
    struct columns columns;
    int64_t inside = tconv_max(begin, 0), end = tconv_min(begin + length, width);
    columns.count = tconv_max(0, end - inside);
    columns.left = columns.count > 0 ? inside - begin : length;
    columns.right = length - columns.left - columns.count;
    return columns;
}

/* Rows that are loaded together: the loop over channels is outside of them, so that contiguous parts of the strip are
 * written one after another. It is chosen, not measured. */
enum { MAX_ROWS = 64 };

/* The most positions of an image that are loaded by masked vectors: as many as a gathered tile has. */
enum { MASKED_POSITIONS = TCONV_CPU_GATHER_POSITIONS };

struct loader {
    const tconv_cpu_job *job;
    tconv_cpu_load load;
    tconv_cpu_padded_row rows[MAX_ROWS];
};

static void flush(struct loader *loader)
{
    const tconv_problem *problem = &loader->job->layer->problem;
    const tconv_cpu_kernels *kernels = loader->job->plan->kernels;
    loader->load.rows = loader->rows;
    if (problem->layout == TCONV_NCHW)
        kernels->dtype[problem->dtype].load_planes(&loader->load);
    else
        kernels->dtype[problem->dtype].load_pixels(&loader->load);
    loader->load.row_count = 0;
}

/* Begins to load channels [channel, channel + channels) into strip. */
static void begin_load(struct loader *loader, const tconv_cpu_job *job, int64_t channel, int64_t channels, void *strip)
{
    const tconv_problem *problem = &job->layer->problem;
    loader->job = job;
    loader->load = (tconv_cpu_load){
        .src = (const char *)job->src + channel * problem->src.c * (int64_t)problem->element_size,
        .strip = strip,
        .src_channel = problem->src.c,
        .strip_channel = job->plan->channel_pitch,
        .src_pixel = problem->src.w,
        .channels = channels,
    };
}

/* Adds columns [begin, begin + length) of a row of an image, and zeros after them, at a position of the strip. A row
 * outside the image is all zeros. */
static void add_row(struct loader *loader, int64_t image, int64_t row, int64_t begin, int64_t length, int64_t zeros,
                    int64_t position)
{
    const tconv_problem *problem = &loader->job->layer->problem;
    bool inside = row >= 0 && row < problem->h.in;
    struct columns columns = cut(begin, length, inside ? problem->w.in : 0);
    int64_t src = 0;
    if (columns.count > 0)
        src = image * problem->src.n + row * problem->src.h + (begin + columns.left) * problem->src.w;
    loader->rows[loader->load.row_count++] =
        (tconv_cpu_padded_row){src, position, columns.left, columns.count, columns.right + zeros};
    if (loader->load.row_count == MAX_ROWS)
        flush(loader);
}

/* Adds a row of zeros. */
static void add_zeros(struct loader *loader, int64_t count, int64_t position)
{
    if (count > 0)
        add_row(loader, 0, -1, 0, count, 0, position);
}

void tconv_cpu_load_halo(const tconv_cpu_task *task)
{
    const tconv_cpu_plan *plan = task->job->plan;
    int64_t group_in = task->job->layer->problem.group_in;
    int64_t rows = task->rows + plan->rows.max_shift - plan->rows.min_shift;
    int64_t columns = task->columns + plan->columns.max_shift - plan->columns.min_shift - plan->padding;
    /* A task may have fewer images or columns than the strip has room for. After its row come zeros: the row's padding,
     * which the next row does not start with here, and what vectors that run on across rows (tconv_cpu_is_flat) may
     * read. */
    int64_t apart = plan->row_pitch - (task->images - 1) * plan->pitch - columns;
    apart = tconv_min(apart, tconv_max(plan->padding, 2 * task->images * plan->lanes));
    struct loader loader;
    begin_load(&loader, task->job, task->group * group_in, task->groups * group_in, task->strip);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t image = 0; image < task->images; image++) {
            bool ends = image == task->images - 1, last = ends && row == rows - 1;
            add_row(&loader, task->image + image, task->row + plan->rows.min_shift + row,
                    task->column + plan->columns.min_shift, columns,
                    last   ? plan->padding
                    : ends ? apart
                           : 0,
                    row * plan->row_pitch + image * plan->pitch);
        }
    }
    /* The last row is read in whole vectors. */
    add_zeros(&loader, (plan->stencil ? TCONV_CPU_STENCIL_VECTORS : 1) * plan->lanes,
              (rows - 1) * plan->row_pitch + (task->images - 1) * plan->pitch + columns + plan->padding);
    flush(&loader);
}

/* The input that one tap of a pass reads: the rows and columns of the tile, shifted. */
struct shifted {
    int64_t group, channel, channels; /* channels of the group */
    int64_t row, column;              /* the input of the tile's first position */
    int64_t zeros;                    /* after the tile's last position, to the end of a vector */
    void *strip;
};

static void load_rows(const tconv_cpu_task *task, const struct shifted *tap)
{
    struct loader loader;
    int64_t position = 0;
    begin_load(&loader, task->job, tap->group * task->job->layer->problem.group_in + tap->channel, tap->channels,
               tap->strip);
    for (int64_t image = 0; image < task->images; image++)
        for (int64_t row = 0; row < task->rows; row++, position += task->columns)
            add_row(&loader, task->image + image, tap->row + row, tap->column, task->columns, 0, position);
    add_zeros(&loader, tap->zeros, position);
    flush(&loader);
}

/* Loads whole images by masked vectors, where a tile is as wide as the image: a tap's shift is then one shift in
 * memory. False where that is not so. */
static bool load_masked(const tconv_cpu_task *task, const struct shifted *tap)
{
    const tconv_problem *problem = &task->job->layer->problem;
    tconv_cpu_masked_load_function *load = task->job->plan->kernels->dtype[problem->dtype].load_masked;
    uint8_t mask[MASKED_POSITIONS / 8 + 2] = {0};
    int64_t count = task->rows * task->columns;
    if (load == NULL || problem->layout != TCONV_NCHW || task->columns != problem->w.in || count > MASKED_POSITIONS)
        return false;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = tap->row + i / task->columns, column = tap->column + i % task->columns;
        bool inside = row >= 0 && row < problem->h.in && column >= 0 && column < problem->w.in;
        mask[i / 8] = (uint8_t)(mask[i / 8] | (inside ? 1 << i % 8 : 0));
    }
    int64_t first = task->image * problem->src.n + (tap->group * problem->group_in + tap->channel) * problem->src.c +
                    tap->row * problem->src.h + tap->column;
    load(&(tconv_cpu_masked_load){
        .src = (const char *)task->job->src + first * (int64_t)problem->element_size,
        .strip = tap->strip,
        .src_channel = problem->src.c,
        .strip_channel = task->job->plan->channel_pitch,
        .src_image = problem->src.n,
        .strip_image = count,
        .channels = tap->channels,
        .images = task->images,
        .count = count,
        .zeros = tap->zeros,
        .mask = mask,
    });
    return true;
}

void tconv_cpu_load_gathered(const tconv_cpu_task *task, int64_t group, const tconv_cpu_pass *pass, int64_t begin,
                             int64_t end)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    const tconv_phase *column = tconv_cpu_column_phase(plan, layer, pass->first);
    int64_t group_in = layer->problem.group_in, positions = task->images * task->rows * task->columns;
    for (int64_t term = begin, next; term < end; term = next) { /* one tap at a time */
        int64_t tap = term / group_in;
        next = tconv_min(end, (tap + 1) * group_in);
        struct shifted shifted = {
            .group = group,
            .channel = term % group_in,
            .channels = next - term,
            .row = task->row +
                   tconv_cpu_shift(&layer->rows, pass->row, pass->row_taps.first + tap / pass->column_taps.count),
            .column = task->column +
                      tconv_cpu_shift(&layer->columns, column, pass->column_taps.first + tap % pass->column_taps.count),
            .zeros = tconv_ceil_div(positions, plan->lanes) * plan->lanes - positions,
            .strip = tconv_cpu_real_at(plan->real_size, task->strip, (term - begin) * plan->channel_pitch)};
        if (!load_masked(task, &shifted))
            load_rows(task, &shifted);
    }
}

/* ------------------------------------------------------------------------------------------------------ prefetching */

/* Bytes of a cache line. */
enum { LINE = 64 };

/* Cuts `count` rows of so many bytes, `step` apart, into pieces of at most so many cache lines. */
static void cut_pieces(tconv_cpu_prefetch *prefetch, int64_t bytes, int64_t count, int64_t step, int64_t most)
{
    int64_t lines = tconv_min(bytes / LINE + 1, most), rows = tconv_min(count, most / lines);
    if (count == 1 && bytes > lines * LINE) { /* one long row */
        count = tconv_ceil_div(bytes, lines * LINE);
        step = lines * LINE;
    }
    if (step > INT32_MAX / TCONV_CPU_SEGMENT)
        rows = 1;
    prefetch->lines = rows * lines;
    prefetch->inner_count = tconv_ceil_div(count, rows);
    prefetch->inner_step = rows * step;
    for (int64_t i = 0; i < TCONV_CPU_SEGMENT; i++) {
        int64_t line = tconv_min(i, prefetch->lines - 1);
        prefetch->line_offsets[i] = (int32_t)(line / lines * step + line % lines * LINE);
    }
}

/* Lists the rows of src that a task's strip is made of: those of each channel in NCHW, of all channels in NHWC, or
 * whole images. */
static void list_pieces(const tconv_cpu_task *task, tconv_cpu_prefetch *prefetch)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    int64_t row = tconv_max(0, task->row + plan->rows.min_shift);
    int64_t row_end = tconv_min(problem->h.in, task->row + task->rows + plan->rows.max_shift);
    int64_t column = tconv_max(0, task->column + plan->columns.min_shift);
    int64_t column_end = tconv_min(problem->w.in, task->column + task->columns + plan->columns.max_shift);
    int64_t channels = task->groups * problem->group_in, channel = task->group * problem->group_in;
    bool planes = problem->layout == TCONV_NCHW, whole = column_end - column == problem->w.in && planes;
    int64_t row_bytes = size * (column_end - column) * problem->src.w;
    int64_t most = TCONV_CPU_SEGMENT / TCONV_CPU_UNROLL;
    if (row >= row_end || column >= column_end)
        return;
    prefetch->piece = (const char *)task->job->src + size * (task->image * problem->src.n + channel * problem->src.c +
                                                             row * problem->src.h + column * problem->src.w);
    prefetch->outer = planes ? channels : 1;
    prefetch->outer_step = size * problem->src.c;
    if (task->images > 1) {
        cut_pieces(prefetch, size * (planes ? channels * problem->src.c : problem->h.in * problem->src.h), 1, 0, most);
        prefetch->outer = task->images;
        prefetch->outer_step = size * problem->src.n;
    } else if (whole) {
        cut_pieces(prefetch, row_bytes * (row_end - row), 1, 0, most);
    } else {
        cut_pieces(prefetch, row_bytes, row_end - row, size * problem->src.h, most);
    }
}

/* Counts the segments of all microkernel calls of a task. */
static double count_segments(const tconv_cpu_task *task)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    int64_t vectors = tconv_cpu_count_vectors(plan, task->images, task->rows, task->columns), segments = 0;
    int64_t block = tconv_ceil_div(layer->problem.group_out, plan->blocks);
    tconv_cpu_pass pass = {0};
    while (tconv_cpu_next_pass(plan, layer, &pass)) {
        int64_t calls = tconv_ceil_div(vectors, plan->kernels->real[plan->real].max_vectors[block * pass.phases]);
        segments += calls * tconv_ceil_div(tconv_cpu_pass_taps(&pass) * layer->problem.group_in, TCONV_CPU_SEGMENT);
    }
    return (double)(segments * task->groups * task->blocks);
}

/* Has the pieces go evenly over so many segments: a miss occupies a buffer that the microkernel's own loads need. */
static void spread(tconv_cpu_prefetch *prefetch, double segments)
{
    prefetch->rate = segments > 0 ? (double)(prefetch->outer * prefetch->inner_count) / segments : 0;
    prefetch->due = 0;
}

void tconv_cpu_begin_prefetch(tconv_cpu_task *task, const tconv_cpu_task *next)
{
    tconv_cpu_prefetch *prefetch = &task->prefetch;
    prefetch->outer = prefetch->inner = prefetch->line = 0;
    if (next == NULL || (next->image == task->image && next->row == task->row && next->column == task->column &&
                         next->group == task->group)) /* it has the same strip, for other channels */
        return;
    list_pieces(next, prefetch);
    spread(prefetch, count_segments(task));
}

void tconv_cpu_prefetch_run(tconv_cpu_prefetch *prefetch, const void *first, int64_t bytes, int64_t segments)
{
    prefetch->inner = prefetch->outer_step = prefetch->line = 0;
    prefetch->outer = 1;
    prefetch->piece = first;
    cut_pieces(prefetch, bytes, 1, 0, TCONV_CPU_SEGMENT / TCONV_CPU_UNROLL);
    spread(prefetch, (double)segments);
}

/* Returns the next piece. */
static const char *take_piece(tconv_cpu_prefetch *prefetch)
{
    const char *piece = prefetch->piece;
    prefetch->piece += prefetch->inner_step;
    if (++prefetch->inner == prefetch->inner_count) {
        prefetch->piece += prefetch->outer_step - prefetch->inner_count * prefetch->inner_step;
        prefetch->inner = 0;
        prefetch->outer--;
    }
    return piece;
}

void tconv_cpu_attach_prefetch(tconv_cpu_prefetch *prefetch, int64_t segments, tconv_cpu_microtile *microtile)
{
    static const char nothing[LINE] = {0};
    static const int32_t nowhere[TCONV_CPU_SEGMENT] = {0};
    static const tconv_cpu_prefetch_piece none = {nothing, 0};
    int64_t count = 0;
    microtile->pieces = &none;
    microtile->line_offsets = nowhere;
    if (prefetch->outer == 0)
        return;
    for (prefetch->due += prefetch->rate * (double)segments; prefetch->due >= 1; prefetch->due -= 1)
        if (prefetch->outer > 0 && count < TCONV_CPU_MAX_PIECES && count < segments)
            prefetch->pieces[count++] = (tconv_cpu_prefetch_piece){take_piece(prefetch), 1};
    if (count == 0)
        return;
    prefetch->pieces[count] = prefetch->pieces[count - 1]; /* the rest repeats it and brings nothing new */
    prefetch->pieces[count].more = 0;
    microtile->pieces = prefetch->pieces;
    microtile->line_offsets = prefetch->line_offsets;
}

int64_t tconv_cpu_count_lines(const tconv_cpu_prefetch *prefetch)
{
    return prefetch->outer * prefetch->inner_count * prefetch->lines;
}

void tconv_cpu_prefetch_lines(tconv_cpu_prefetch *prefetch, int64_t lines)
{
    for (int64_t i = 0; i < lines && prefetch->outer > 0; i++) {
        __builtin_prefetch(prefetch->piece + prefetch->line_offsets[prefetch->line], 0, 2);
        if (++prefetch->line == prefetch->lines) {
            prefetch->line = 0;
            take_piece(prefetch);
        }
    }
}
