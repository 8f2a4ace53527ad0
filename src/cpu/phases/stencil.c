/*
 * Runs a task of a layer with one input channel and few output channels a group, above all depthwise layers: there is
 * nothing for channels to share, and memory is the limit. Each row of outputs is summed, interleaved and stored in one
 * go, from the halo strip and without sums in memory.
 *
 * Numeric order: over the live taps of each phase, then the bias.
 */
#include "stencil.h"

#include "../../core/checked.h"
#include "strip.h"

/* The rows of one row phase have this in common. */
struct rows {
    const tconv_phase *phase;
    int64_t weights;                             /* taps of the row phases before it */
    int32_t terms[TCONV_CPU_MAX_INTERLEAVE + 1]; /* see tconv_cpu_stencil */
    int32_t *offsets; /* in the thread's scratch, where plans without stencil keep their calls */
};

_Static_assert(sizeof(tconv_cpu_pass_call) >= TCONV_CPU_SEGMENT * sizeof(int32_t),
               "a call has room for a phase's terms");

/* Lists the terms of the row phase whose first pass is *pass, and steps to the next row phase; false if there is
 * none. */
static bool list_terms(const tconv_cpu_job *job, tconv_cpu_pass *pass, struct rows *rows)
{
    const tconv_layer *layer = job->layer;
    int32_t count = 0;
    int64_t residue = 0;
    bool more = true;
    rows->phase = pass->row;
    rows->weights = pass->weights;
    while (more && pass->row == rows->phase) {
        for (; residue <= layer->columns.phases[pass->first].residue; residue++)
            rows->terms[residue] = count;
        for (int64_t tap = 0; tap < tconv_cpu_pass_taps(pass); tap++)
            rows->offsets[count++] = job->taps[pass->taps + tap];
        more = tconv_cpu_next_pass(job->plan, layer, pass);
    }
    for (; residue <= layer->problem.w.stride; residue++)
        rows->terms[residue] = count;
    return more;
}

/* Sums and stores all rows of a row phase in a tile, of one output channel. */
static void run_rows(tconv_cpu_task *task, const struct rows *rows, int64_t group, int64_t block, int64_t lines)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t stride = problem->w.stride, size = (int64_t)problem->element_size;
    int64_t channel = group * problem->group_out + block, all_taps = plan->rows.taps * plan->columns.taps;
    int64_t row_count = tconv_min(task->rows, rows->phase->outputs - task->row);
    tconv_cpu_stencil stencil = {
        .residues = stride,
        .terms = rows->terms,
        .offsets = rows->offsets,
        .weights = tconv_cpu_real_at(plan->real_size, job->weights, channel * all_taps + rows->weights),
        .bias = tconv_cpu_real_at(plan->real_size, job->bias, channel),
        .count = tconv_min(task->columns * stride, problem->w.out - task->column * stride),
        .posts = tconv_has_posts(problem) ? &job->posts : NULL,
        .channel = channel,
    };
    stencil.stage = plan->stream && stencil.count * size >= TCONV_CPU_STREAM_BYTES ? task->stage : NULL;
    for (int64_t row = 0; row < row_count; row++) {
        for (int64_t image = 0; image < task->images; image++) {
            int64_t index = (task->image + image) * problem->dst.n + channel * problem->dst.c +
                            (problem->h.stride * (task->row + row) + rows->phase->residue) * problem->dst.h +
                            stride * task->column * problem->dst.w;
            stencil.strip = tconv_cpu_real_at(plan->real_size, task->strip,
                                              (group - task->group) * plan->channel_pitch + row * plan->row_pitch +
                                                  image * plan->pitch);
            stencil.dst = (char *)job->dst + index * size;
            tconv_cpu_prefetch_lines(&task->prefetch, lines);
            plan->kernels->dtype[problem->dtype].stencil(&stencil);
        }
    }
}

void tconv_cpu_run_stencil(tconv_cpu_task *task, const tconv_cpu_task *next)
{
    const tconv_layer *layer = task->job->layer;
    tconv_cpu_pass pass = {0};
    tconv_cpu_load_halo(task);
    tconv_cpu_begin_prefetch(task, next);
    int64_t calls = task->groups * task->blocks * layer->rows.count * task->rows * task->images;
    int64_t lines = tconv_ceil_div(tconv_cpu_count_lines(&task->prefetch), tconv_max(1, calls));
    if (!tconv_cpu_next_pass(task->job->plan, layer, &pass))
        return;
    for (bool more = true; more;) {
        struct rows rows = {.offsets = (int32_t *)(void *)task->calls};
        more = list_terms(task->job, &pass, &rows);
        for (int64_t group = task->group; group < task->group + task->groups; group++)
            for (int64_t block = task->block; block < task->block + task->blocks; block++)
                run_rows(task, &rows, group, block, lines);
    }
}
