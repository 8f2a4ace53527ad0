/* How much of memory a block touches where it reads a K-tile. */
#include "touched.h"

#include <math.h>

#include "../../core/checked.h"

/* The part of a tensor that a K-tile has: of each of so many rows, `runs` times `columns` neighbouring columns, `step` columns
 * apart. The tensor's planes have height rows of width columns. */
typedef struct tile_part {
    const tconv_strides *strides;
    int64_t channels, images, height, width;
    int64_t rows, runs, columns, step;
} tile_part;

static memory_runs runs_of(const tile_part *part, int64_t size)
{
    const tconv_strides *strides = part->strides;
    const bool planes = strides->w == 1;
    const int64_t pixel = planes ? 1 : strides->w; /* elements from a column to the next */
    const int64_t row = part->width * pixel;
    memory_runs of = {.rows = (double)(part->images * part->rows * (planes ? part->channels : 1)),
                      .runs = (double)part->runs,
                      .run = (double)(part->columns * pixel * size),
                      .span = (double)(((part->runs - 1) * part->step + part->columns) * pixel * size),
                      .apart = (planes ? strides->h : pixel) * size};
    if (!planes && part->channels < pixel) {
        of.runs *= (double)part->columns;
        of.run = (double)(part->channels * size);
    } else if (part->runs == 1 && part->columns >= part->width && strides->h == row) {
        /* Rows follow one another; where they are a plane, so do the planes of channels. */
        const bool whole = part->rows >= part->height && strides->c == row * part->height;
        of.rows /= (double)(part->rows * (planes && whole ? part->channels : 1));
        of.run = of.span = (double)(part->rows * row * size * (planes && whole ? part->channels : 1));
    }
    return of;
}

memory_runs tconv_wgrad_src_runs(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const tile_axis *rows = &params->rows, *columns = &params->columns;
    const tile_part part = {.strides = &params->src_strides,
                            .channels = tconv_min(params->tiles.block_m, params->tiles.group_in),
                            .images =
                                tconv_min((int64_t)1 << params->images.tile_log2, tconv_max(1, params->images.in)),
                            .height = rows->in,
                            .width = columns->in,
                            .rows = tconv_min((int64_t)1 << rows->tile_log2, rows->in),
                            .runs = 1,
                            .columns = tconv_min((int64_t)1 << columns->tile_log2, columns->in)};
    return runs_of(&part, numerics_bytes(plan->math));
}

memory_runs tconv_wgrad_dst_runs(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const tile_axis *rows = &params->rows, *columns = &params->columns;
    const int64_t width = plan->slots.columns.width;
    const bool joined = width >= columns->stride; /* the taps of an input reach the next input's outputs */
    const int64_t span = (columns->extent - 1) * (int64_t)columns->stride + width;
    const tile_part part = {.strides = &params->dst_strides,
                            .channels = tconv_min(params->tiles.chunk, params->tiles.group_out),
                            .images =
                                tconv_min((int64_t)1 << params->images.tile_log2, tconv_max(1, params->images.in)),
                            .height = rows->out,
                            .width = columns->out,
                            .rows = tconv_min((int64_t)plan->slots.rows.residues * rows->extent, rows->out),
                            .runs = joined ? 1 : columns->extent,
                            .columns = tconv_min(joined ? span : width, columns->out),
                            .step = columns->stride};
    return runs_of(&part, numerics_bytes(plan->math));
}

/* Returns how many units a run of bytes touches on average. */
static double touched(double run, int64_t apart, int64_t unit)
{
    const int64_t bits = (int64_t)run | apart | unit, alike = bits & -bits; /* all begin and end at multiples of this */
    return (run - (double)alike) / (double)unit + 1;
}

double tconv_wgrad_touched(const memory_runs *runs, int64_t unit)
{
    return runs->rows *
           fmin(runs->runs * touched(runs->run, runs->apart, unit), touched(runs->span, runs->apart, unit));
}
