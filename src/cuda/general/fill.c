/*
 * Writes the outputs without a tap: where stride and dilation share a factor, or the stride exceeds the kernel's reach,
 * some residues of rows or columns have no phase, and their outputs are the bias.
 *
 * A block takes up to FILL_ROWS output rows of one plane (an image and channel in NCHW, an image in NHWC) and a stretch
 * along them. Whether a row or a column belongs to a phase is looked up once for each, not for each output. In NHWC a
 * thread stores 16 bytes of channels at once where they lie so.
 *
 * In NCHW, where columns follow one another and no post-op reads an addend, all outputs of a channel without a tap are
 * the same. Then whole rows are written, by 16 bytes, and whole planes where rows follow one another too: outputs with a
 * tap between the others are of the same sectors, and the kernel that sums, which comes next, writes them again.
 *
 * With post-ops an output is what these make of the bias: the same in all rows, but for the addend, or what dst holds.
 */
#include <string.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../hardware.h"
#include "../model/planned.h"
#include "../numeric/divisor.h"
#include "../runtime/launch.h"
#include "outputs.h"

enum {
    BLOCKS = 4,      /* of a multiprocessor that there should be, by tiles of fewer rows */
    MAX_REPEATS = 16 /* of a thread along a row: as many as keep tiles enough for all multiprocessors */
};

static uint64_t mask_of(const tconv_axis *axis, const tconv_phase_table *table)
{
    uint64_t mask = 0;
    for (int64_t i = 0; axis->stride <= MASK_STRIDE && i < table->count; i++)
        mask |= (uint64_t)1 << table->phases[i].residue;
    return mask;
}

/* Cuts the outputs into tiles of rows. */
static void cut_tiles(const tconv_layer *layer, bool vectors, outputs *tiled)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t least = (int64_t)BLOCKS * tconv_cuda_target_of(&layer->target).multiprocessors;
    tiled->plane_channels /= vectors ? VECTOR_BYTES / (int64_t)problem->element_size : 1;
    tiled->row_length = tiled->nhwc ? problem->w.out * tiled->plane_channels : problem->w.out;
    tiled->lanes_log2 = log2_at_least(tconv_min(tiled->row_length, FILL_THREADS));
    tiled->repeats = (int)tconv_max(1, tconv_min(MAX_REPEATS, FILL_ROWS / problem->h.out));
    tiled->stretches = tconv_ceil_div(tiled->row_length, (int64_t)tiled->repeats << tiled->lanes_log2);
    const int64_t planes = tiled->nhwc ? problem->batch : problem->batch * tiled->plane_channels;
    for (tiled->rows_log2 = log2_at_least(FILL_ROWS);; tiled->rows_log2--) {
        tiled->row_tiles = ((problem->h.out - 1) >> tiled->rows_log2) + 1;
        tiled->tiles = planes * tiled->row_tiles * tiled->stretches;
        if (tiled->tiles >= least || 1 << tiled->rows_log2 <= FILL_THREADS >> tiled->lanes_log2)
            return; /* so many rows are written side by side anyway */
    }
}

/* Cuts the outputs into lines. */
static void cut_lines(const tconv_layer *layer, outputs *tiled)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t least = (int64_t)BLOCKS * tconv_cuda_target_of(&layer->target).multiprocessors;
    tiled->skips_rows = layer->columns.bias_only == 0 && layer->columns.count > 0 && layer->rows.count > 0;
    const bool planes = !tiled->skips_rows && problem->dst.h == problem->w.out;
    tiled->row_tiles = planes ? 1 : problem->h.out;
    tiled->row_length = planes ? problem->h.out * problem->w.out : problem->w.out;
    tiled->lines = problem->batch * tiled->plane_channels * tiled->row_tiles;
    const int64_t vectors = tconv_ceil_div(tiled->row_length + vector - 1, vector); /* wherever a line begins */
    tiled->lanes_log2 = log2_at_least(tconv_min(vectors, FILL_THREADS));
    const int64_t of_block = FILL_THREADS >> tiled->lanes_log2, tiles = tconv_ceil_div(tiled->lines, of_block);
    for (tiled->repeats = MAX_REPEATS;; tiled->repeats /= 2) {
        tiled->stretches = tconv_ceil_div(vectors, (int64_t)tiled->repeats << tiled->lanes_log2);
        tiled->tiles = tiles * tiled->stretches;
        if (tiled->tiles >= least || tiled->repeats == 1)
            return;
    }
}

tconv_status tconv_general_fill_bias_only(const tconv_layer *layer, const tconv_phase *phases,
                                          const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const bool lines = !nhwc && problem->dst.w == 1 && !tconv_cuda_has_addend(problem);
    const bool vectors = nhwc && problem->out_channels % vector == 0 && (uintptr_t)arguments->dst % VECTOR_BYTES == 0 &&
                         tconv_cuda_begins_at_multiples(problem, &problem->dst, vector) &&
                         problem->volumes.written % vector == 0;
    outputs tiled;
    memset(&tiled, 0, sizeof tiled);
    tiled.rows = tconv_general_axis(&problem->h, &layer->rows, phases);
    tiled.columns = tconv_general_axis(&problem->w, &layer->columns, phases + layer->rows.count);
    tiled.row_mask = mask_of(&problem->h, &layer->rows);
    tiled.column_mask = mask_of(&problem->w, &layer->columns);
    tiled.bias = arguments->bias;
    tiled.dst = arguments->dst;
    tiled.strides = problem->dst;
    tiled.by_volume_images = divisor_of((int)tconv_max(problem->volumes.images, 1));
    tiled.volume_gap = problem->volumes.written - problem->volumes.images * problem->dst.n;
    tiled.posts = tconv_cuda_layer_posts(problem, arguments);
    tiled.nhwc = nhwc;
    tiled.plane_channels = problem->out_channels;
    if (lines)
        cut_lines(layer, &tiled);
    else
        cut_tiles(layer, vectors, &tiled);
    void *kernel_arguments[] = {&tiled};
    const void *kernel = tconv_general_fill_kernel(problem->dtype,
                                                   lines     ? FILLS_LINES
                                                   : vectors ? FILLS_VECTORS
                                                             : FILLS_ELEMENTS,
                                                   tconv_cuda_count_steps(problem) > 0);
    return tconv_launch_blocks(kernel, tiled.tiles, FILL_THREADS, kernel_arguments, arguments->stream, issue, false);
}
