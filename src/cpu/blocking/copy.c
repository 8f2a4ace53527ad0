/* Copies axes of a tensor (core/volume.h). */
#include <string.h>

#include "../../core/checked.h"
#include "../cpu_backend.h"
#include "../cpu_target.h"
#include "../threads/parallel.h"

/* Bytes that are worth a thread. It is chosen, not measured. */
static const int64_t BYTES_PER_SHARE = 64 << 10;

/* Runs are neighbours along the last axis; a row is the runs along one more axis, all of one plane, and the other axes count
 * rows. */
enum { OUTER_AXES = TCONV_COPY_AXES - 1 };

struct job {
    const tconv_plane_copy *copy;
    const char *from;
    char *to;
    int row_axis; /* -1: rows have one run */
    int64_t row_runs, runs;
    int shares;
};

/* A row has a place in both tensors, counted in elements, and a plane. */
struct row {
    int64_t index[OUTER_AXES];
    int64_t from, to, plane;
};

/* Goes so many steps along an axis, forwards or backwards. */
static void step(const tconv_plane_copy *copy, int axis, int64_t steps, struct row *row)
{
    row->index[axis] += steps;
    row->from += steps * copy->from[axis];
    row->to += steps * copy->to[axis];
    row->plane += axis == 1 ? steps * copy->step : axis == 2 ? steps * copy->tap : 0;
}

static struct row find_row(const struct job *job, int64_t number)
{
    struct row row = {.plane = job->copy->plane};
    for (int axis = OUTER_AXES - 1; axis >= 0; axis--) {
        if (axis == job->row_axis)
            continue;
        step(job->copy, axis, number % job->copy->extents[axis], &row);
        number /= job->copy->extents[axis];
    }
    return row;
}

static void next_row(const struct job *job, struct row *row)
{
    for (int axis = OUTER_AXES - 1; axis >= 0; axis--) {
        if (axis == job->row_axis)
            continue;
        if (row->index[axis] + 1 < job->copy->extents[axis]) {
            step(job->copy, axis, 1, row);
            return;
        }
        step(job->copy, axis, -row->index[axis], row);
    }
}

/* Copies, or for no `from` clears, `count` runs; the steps between runs are in bytes. With `bytes` known to the compiler, a
 * run is a few moves. */
static inline void copy_runs(char *to, const char *from, int64_t count, int64_t to_step, int64_t from_step,
                             size_t bytes)
{
    for (int64_t i = 0; i < count; i++)
        if (from != NULL)
            memcpy(to + i * to_step, from + i * from_step, bytes);
        else
            memset(to + i * to_step, 0, bytes);
}

/* Copies runs [begin, begin + count) of a row. */
static void copy_row(const struct job *job, const struct row *row, int64_t begin, int64_t count)
{
    const tconv_plane_copy *copy = job->copy;
    const int64_t size = (int64_t)copy->element_size, bytes = copy->extents[OUTER_AXES] * size;
    const int64_t to_step = job->row_axis < 0 ? 0 : copy->to[job->row_axis] * size;
    const int64_t from_step = job->row_axis < 0 ? 0 : copy->from[job->row_axis] * size;
    const bool there = row->plane >= 0 && row->plane < copy->planes;
    char *const to = job->to + row->to * size + begin * to_step;
    const char *const from =
        there ? job->from + (row->from + row->plane * copy->plane_stride) * size + begin * from_step : NULL;
    switch (bytes) {
    case 2: copy_runs(to, from, count, to_step, from_step, 2); break;
    case 4: copy_runs(to, from, count, to_step, from_step, 4); break;
    case 8: copy_runs(to, from, count, to_step, from_step, 8); break;
    case 16: copy_runs(to, from, count, to_step, from_step, 16); break;
    case 32: copy_runs(to, from, count, to_step, from_step, 32); break;
    case 36: copy_runs(to, from, count, to_step, from_step, 36); break; /* kernels of 3 x 3 */
    case 64: copy_runs(to, from, count, to_step, from_step, 64); break;
    default: copy_runs(to, from, count, to_step, from_step, (size_t)bytes); break;
    }
}

static void copy_share(void *argument, int index)
{
    const struct job *job = argument;
    const int64_t end = job->runs * (index + 1) / job->shares;
    int64_t run = job->runs * index / job->shares, begin = run % job->row_runs;
    struct row row = find_row(job, run / job->row_runs);
    while (run < end) {
        const int64_t count = tconv_min(job->row_runs - begin, end - run);
        copy_row(job, &row, begin, count);
        next_row(job, &row);
        run += count;
        begin = 0;
    }
}

/* Returns the last axis along which runs are of one plane. */
static int find_row_axis(const tconv_plane_copy *copy)
{
    for (int axis = OUTER_AXES - 1; axis >= 0; axis--)
        if (copy->extents[axis] > 1)
            return (axis == 1 && copy->step != 0) || (axis == 2 && copy->tap != 0) ? -1 : axis;
    return -1;
}

void tconv_cpu_copy_planes(const tconv_target *target, const tconv_plane_copy *copy, const void *from, void *to)
{
    struct job job = {.copy = copy, .from = from, .to = to, .row_axis = find_row_axis(copy), .row_runs = 1, .runs = 1};
    for (int axis = 0; axis < OUTER_AXES; axis++)
        job.runs *= copy->extents[axis];
    if (job.row_axis >= 0)
        job.row_runs = copy->extents[job.row_axis];
    const int64_t bytes = job.runs * copy->extents[OUTER_AXES] * (int64_t)copy->element_size;
    const int64_t tasks = tconv_min(job.runs, tconv_ceil_div(bytes, BYTES_PER_SHARE));
    job.shares = tconv_cpu_count_shares(target, tconv_cpu_target_of(target).threads, tasks);
    tconv_cpu_run_shares(target, job.shares, copy_share, &job);
}
