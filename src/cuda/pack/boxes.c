/* Chooses the boxes that weights are cut into to be packed. */
#include "boxes.h"

#include "../../core/checked.h"
#include "../hardware.h"

#include <limits.h>

enum {
    MOST_BYTES = 32 * 1024, /* of a box in shared memory, at most */
    BOX_BYTES = 16 * 1024,  /* of a box with more than one core, at most */
    LEAST_BOXES = 256,      /* boxes are not made larger where there would be fewer */
    LEAST_ROWS = 8,         /* of a box in shared memory */
    BANKS_BYTES = 128       /* of shared memory, after which a gap of one bank follows */
};

void tconv_cuda_describe_pack_planes(pack_boxes *boxes, const tconv_plane_taps *taps)
{
    boxes->planes = (pack_planes){.by_channels = divisor_of(INT_MAX), .held = INT_MAX};
    if (taps->taps == 0)
        return;
    boxes->planes = (pack_planes){.by_channels = divisor_of((int)taps->channels),
                                  .held = (int)taps->held,
                                  .group_in = boxes->group_in,
                                  .step = taps->weights};
    boxes->group_step = 0;
}

void tconv_cuda_choose_boxes(pack_boxes *boxes, int element_size, int64_t strips, int strip_rows, int strip_cores)
{
    const int64_t row_bytes = CORE_ROW_BYTES * tconv_min(boxes->elements, MOST_BYTES); /* that do not overflow */
    int64_t rows = strip_rows, cores = 1;
    while (rows > LEAST_ROWS && rows * row_bytes > MOST_BYTES)
        rows /= 2;
    boxes->in_shared = rows * row_bytes <= MOST_BYTES;
    if (!boxes->in_shared)
        rows = strip_rows;
    int64_t count = strips * (strip_rows / rows) * strip_cores;
    for (; cores < strip_cores && 2 * rows * cores * row_bytes <= BOX_BYTES && count / 2 >= LEAST_BOXES; count /= 2)
        cores *= 2;
    boxes->count = (unsigned)count;
    boxes->rows_log2 = log2_at_least(rows);
    boxes->cores_log2 = log2_at_least(cores);
    boxes->strip_rows_log2 = log2_at_least(strip_rows);
    boxes->strip_cores_log2 = log2_at_least(strip_cores);
    boxes->plain = boxes->inner.count == 1 && boxes->diagonal_in == boxes->group_in;
    boxes->kernel_inside = boxes->from.w < boxes->from.out;
    boxes->by_diagonal_rows = divisor_of(boxes->diagonal_rows);
    boxes->by_inner_rows = divisor_of(boxes->inner.count);
    boxes->by_inner_columns = divisor_of(boxes->inner.columns);
    boxes->by_filling_columns = divisor_of((int)tconv_max(boxes->filling.columns, 1));
    if (boxes->in_shared) {
        const int elements = (int)boxes->elements, channel = (int)rows * elements;
        boxes->by_inner = divisor_of(boxes->kernel_inside ? elements : (int)rows);
        boxes->by_channel = divisor_of(channel);
        boxes->channel_pitch = channel + channel * element_size / BANKS_BYTES * (4 / element_size);
    }
}
