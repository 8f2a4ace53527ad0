/* Copies axes of a tensor (core/volume.h). */
#include <string.h>

#include "../../core/checked.h"
#include "../cpu_backend.h"
#include "../cpu_target.h"
#include "../threads/parallel.h"

/* Bytes that are worth a thread. It is chosen, not measured. */
static const int64_t BYTES_PER_SHARE = 64 << 10;

struct job {
    const tconv_plane_copy *copy;
    const char *from;
    char *to;
    int64_t rows; /* products of all extents but the last */
    int shares;
};

/* Copies one row, by its number. */
static void copy_row(const struct job *job, int64_t row)
{
    const tconv_plane_copy *copy = job->copy;
    const int64_t size = (int64_t)copy->element_size, bytes = copy->extents[TCONV_COPY_AXES - 1] * size;
    int64_t from = 0, to = 0, plane = copy->plane;
    for (int axis = TCONV_COPY_AXES - 2; axis >= 0; axis--) {
        const int64_t index = row % copy->extents[axis];
        row /= copy->extents[axis];
        from += index * copy->from[axis];
        to += index * copy->to[axis];
        plane += axis == 1 ? copy->step * index : axis == 2 ? copy->tap * index : 0;
    }
    if (plane >= 0 && plane < copy->planes)
        memcpy(job->to + to * size, job->from + (from + plane * copy->plane_stride) * size, (size_t)bytes);
    else
        memset(job->to + to * size, 0, (size_t)bytes);
}

static void copy_share(void *argument, int index)
{
    const struct job *job = argument;
    const int64_t end = job->rows * (index + 1) / job->shares;
    for (int64_t row = job->rows * index / job->shares; row < end; row++)
        copy_row(job, row);
}

void tconv_cpu_copy_planes(const tconv_target *target, const tconv_plane_copy *copy, const void *from, void *to)
{
    struct job job = {copy, from, to, 1, 1};
    for (int axis = 0; axis < TCONV_COPY_AXES - 1; axis++)
        job.rows *= copy->extents[axis];
    const int64_t bytes = job.rows * copy->extents[TCONV_COPY_AXES - 1] * (int64_t)copy->element_size;
    const int64_t tasks = tconv_min(job.rows, tconv_ceil_div(bytes, BYTES_PER_SHARE));
    job.shares = tconv_cpu_count_shares(target, tconv_cpu_target_of(target).threads, tasks);
    tconv_cpu_run_shares(target, job.shares, copy_share, &job);
}
