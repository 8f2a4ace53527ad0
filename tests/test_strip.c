/* The halo strip of cpu_phases: every element that a tap may read is the input's, or zero beside the image, also in a
 * task of fewer images or columns than the strip has room for, whatever the scratch held before. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/problem.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/phases/strip.h"
#include "harness.h"

static const tconv_allocator from_malloc;

/* Small images, so that a strip holds several. */
static const char *const problems[] = {
    "n=3 ci=12 h=2 w=7 co=16 k=4x3 s=3x2 d=2x1 g=4",
    "n=5 ci=3 h=4 w=5 co=2 k=3 p=1",
    "n=4 ci=5 h=3 w=3 co=7 k=5 s=2 p=2",
};

static void make_layer(const char *problem, tconv_layer *layer)
{
    harness_layer parsed;
    char message[128];
    tconv_issue issue;
    cr_assert(harness_problem_parse(problem, &parsed, message, sizeof message), "%s", message);
    memset(layer, 0, sizeof *layer);
    cr_assert_eq(tconv_problem_init(&layer->problem, &parsed.desc, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert_eq(tconv_phases_create(&layer->problem.h, &from_malloc, &layer->rows, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_phases_create(&layer->problem.w, &from_malloc, &layer->columns, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_cpu_resolve(1, TCONV_CPU_ISA_DEFAULT, TCONV_CPU_TUNING_DETECTED, &layer->target, &issue),
                 TCONV_SUCCESS);
    layer->target.backend = TCONV_BACKEND_CPU;
}

static void expect_strip(const tconv_cpu_task *task, const float *src)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const tconv_cpu_plan *plan = task->job->plan;
    const float *strip = task->strip;
    int64_t rows = task->rows + plan->rows.max_shift - plan->rows.min_shift;
    int64_t columns = task->columns + plan->columns.max_shift - plan->columns.min_shift;
    for (int64_t c = 0; c < task->groups * problem->group_in; c++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t n = 0; n < task->images; n++)
                for (int64_t q = 0; q < columns; q++) {
                    int64_t ih = task->row + plan->rows.min_shift + r, iw = task->column + plan->columns.min_shift + q;
                    bool inside = ih >= 0 && ih < problem->h.in && iw >= 0 && iw < problem->w.in;
                    float expected =
                        inside ? src[n * problem->src.n + c * problem->src.c + ih * problem->src.h + iw] : 0;
                    float got = strip[c * plan->channel_pitch + r * plan->row_pitch + n * plan->pitch + q];
                    cr_assert(got == expected, "images %d of %d: channel %d row %d image %d column %d is %g, not %g",
                              (int)task->images, (int)plan->images, (int)c, (int)r, (int)n, (int)q, (double)got,
                              (double)expected);
                }
}

/* Checks vectors of positions that a tap reads whole, beyond the tile's positions too: from the first position of some
 * rows, or of each row, on. None may hold a number that the memory held before. */
static void expect_vectors(const tconv_cpu_task *task, int64_t first_row, int64_t rows)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const float *strip = task->strip;
    int64_t columns = task->columns + plan->max_lag, lines = 1, step = 0;
    int64_t length = (rows - 1) * plan->row_pitch + (task->images - 1) * plan->pitch + columns;
    int64_t row_halo = plan->rows.max_shift - plan->rows.min_shift;
    int64_t column_halo = plan->columns.max_shift - plan->columns.min_shift - plan->max_lag;
    if (!tconv_cpu_is_flat(plan, task->images, rows, columns)) {
        lines = rows * task->images;
        length = columns;
    }
    length = (length + plan->lanes - 1) / plan->lanes * plan->lanes;
    for (int64_t line = 0; line < lines; line++) {
        step = (first_row + line / task->images) * plan->row_pitch + line % task->images * plan->pitch;
        for (int64_t r = 0; r <= row_halo; r++)
            for (int64_t c = 0; c <= column_halo; c++)
                for (int64_t i = 0; i < length; i++)
                    cr_assert(!isnan(strip[step + r * plan->row_pitch + c + i]),
                              "%d images, %d columns, %d rows from %d on: element %d of line %d, tap %d x %d",
                              (int)task->images, (int)task->columns, (int)rows, (int)first_row, (int)i, (int)line,
                              (int)r, (int)c);
    }
}

Test(strip, all_that_vectors_read_is_written)
{
    static const char *const wide[] = {"n=1 ci=2 h=4 w=1003 co=3 k=3 p=1", "n=1 ci=1 h=5 w=40 co=2 k=3x4 s=2 p=1",
                                       "n=5 ci=3 h=4 w=5 co=2 k=3 p=1",
                                       "n=3 ci=12 h=2 w=7 co=16 k=4x3 s=3x2 d=2x1 g=4"};
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        tconv_layer layer;
        tconv_cpu_plan plan;
        tconv_issue issue;
        make_layer(wide[i], &layer);
        cr_assert_eq(tconv_cpu_plan_init(&plan, &layer, &issue), TCONV_SUCCESS);
        cr_assert(!plan.gather, "%s has no halo strip", wide[i]);
        float *src = calloc((size_t)layer.problem.src_extent, sizeof *src), *strip = malloc((size_t)plan.strip_bytes);
        cr_assert(src != NULL && strip != NULL);
        int64_t most_columns = plan.tile_columns,
                least_columns = plan.column_tiles > 1 ? most_columns - 50 : most_columns;
        for (int64_t images = 1; images <= plan.images; images++)
            for (int64_t columns = least_columns; columns <= most_columns; columns++) {
                tconv_cpu_job job = {.layer = &layer, .plan = &plan, .src = src};
                tconv_cpu_task task = {.job = &job,
                                       .images = images,
                                       .rows = plan.tile_rows,
                                       .columns = columns,
                                       .groups = plan.groups,
                                       .blocks = plan.task_blocks,
                                       .strip = strip};
                memset(strip, 0xff, (size_t)plan.strip_bytes);
                tconv_cpu_load_halo(&task);
                for (int64_t row = 0; row < task.rows; row++)
                    for (int64_t rows = 1; rows <= plan.row_block && row + rows <= task.rows; rows++)
                        expect_vectors(&task, row, rows);
            }
        free(strip);
        free(src);
        tconv_phases_release(&layer.rows, &from_malloc);
        tconv_phases_release(&layer.columns, &from_malloc);
    }
}

Test(strip, all_that_taps_read_is_loaded_for_any_number_of_images)
{
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        tconv_layer layer;
        tconv_cpu_plan plan;
        tconv_issue issue;
        make_layer(problems[i], &layer);
        cr_assert_eq(tconv_cpu_plan_init(&plan, &layer, &issue), TCONV_SUCCESS);
        cr_assert(!plan.gather && plan.images > 1, "%s does not put several images into a halo strip", problems[i]);

        float *src = malloc((size_t)layer.problem.src_extent * sizeof *src);
        void *strip = malloc((size_t)plan.strip_bytes);
        cr_assert(src != NULL && strip != NULL);
        for (int64_t e = 0; e < layer.problem.src_extent; e++)
            src[e] = (float)(e + 1);
        for (int64_t images = 1; images <= plan.images; images++) {
            tconv_cpu_job job = {.layer = &layer, .plan = &plan, .src = src};
            tconv_cpu_task task = {.job = &job,
                                   .images = images,
                                   .rows = plan.tile_rows,
                                   .columns = plan.tile_columns,
                                   .groups = plan.groups,
                                   .blocks = plan.task_blocks,
                                   .strip = strip};
            memset(strip, 0xff, (size_t)plan.strip_bytes); /* NaN */
            tconv_cpu_load_halo(&task);
            expect_strip(&task, src);
        }
        free(strip);
        free(src);
        tconv_phases_release(&layer.rows, &from_malloc);
        tconv_phases_release(&layer.columns, &from_malloc);
    }
}
