/* The addition of slices row after row of a tile, on the host. */
#include "row_sums.h"

#include "../../core/checked.h"
#include "../runtime/launch.h"
#include "sums.h"

enum {
    LEAST_WEIGHTS = 1 << 17, /* fewer weights do not keep all multiprocessors busy this way */
    LEAST_RUNS = 4           /* of a multiprocessor: runs are not made longer where there would be fewer */
};

static int64_t taps_of_tile(const sum_tiles *tiles)
{
    return (int64_t)tiles->rows.group_taps * tiles->columns.group_taps;
}

bool tconv_wgrad_adds_rows(const tconv_layer *layer, const wgrad_slices *slices)
{
    const tconv_problem *problem = &layer->problem;
    const sum_tiles *tiles = &slices->tiles;
    const int64_t taps = taps_of_tile(tiles);
    return slices->count > 0 && problem->weight.in != 1 && tiles->count * tiles->block_m <= INT32_MAX &&
           taps <= ROW_SUMS_TAPS && tiles->chunk * taps <= ROW_SUMS_COLUMNS &&
           problem->in_channels * problem->group_out * problem->d.kernel * problem->h.kernel * problem->w.kernel >=
               LEAST_WEIGHTS;
}

tconv_status tconv_wgrad_add_rows(const tconv_layer *layer, const wgrad_slices *slices, const void *memory,
                                  void *weights, void *stream, tconv_issue *issue)
{
    const sum_tiles *tiles = &slices->tiles;
    const int64_t taps = taps_of_tile(tiles), columns = tiles->chunk * taps;
    int parts = tconv_wgrad_parts_of_slices(slices->count), rows = 1;
    while (parts > 1 && parts * columns > ROW_SUMS_COLUMNS)
        parts /= 2;
    const int64_t all_rows = tiles->count * tiles->block_m;
    const int64_t least = LEAST_RUNS * (int64_t)tconv_cuda_target_of(&layer->target).multiprocessors;
    while (2 * rows * parts * columns <= ROW_SUMS_COLUMNS && tiles->block_m % (2 * rows) == 0 &&
           (rows * parts * columns < ROW_SUMS_THREADS || all_rows / (2 * rows) >= least))
        rows *= 2;
    row_sums_parameters params = {.tiles = *tiles,
                                  .strides = layer->problem.weight,
                                  .slices = slices->count,
                                  .slice_sums = tconv_wgrad_slice_sums(tiles),
                                  .runs = all_rows / rows,
                                  .rows = rows,
                                  .parts = parts,
                                  .part_slices = (int)tconv_ceil_div(slices->count, parts),
                                  .by_sums = divisor_of(rows * (int)columns),
                                  .by_pairs = divisor_of((int)columns),
                                  .by_chunk = divisor_of((int)tiles->chunk),
                                  .by_taps = divisor_of((int)taps),
                                  .outputs_inner = layer->problem.weight.out == 1,
                                  .accumulates = layer->problem.desc.accumulate != 0,
                                  .bias = slices->with};
    void *arguments[] = {&params, &memory, &weights};
    return tconv_launch_blocks(tconv_wgrad_row_sums_kernel(layer->problem.dtype, slices->are_double),
                               params.runs + params.bias.blocks, ROW_SUMS_THREADS, arguments, stream, issue,
                               tconv_wgrad_may_overlap(layer));
}
