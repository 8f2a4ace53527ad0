/* Parts of a layer with depth. */
#include "volume.h"

#include <inttypes.h>
#include <string.h>

#include "alloc.h"
#include "checked.h"
#include "phases.h"
#include "status.h"

/* Receives parts; counts them where there is no room yet. */
struct list {
    tconv_volume_part *parts; /* NULL: they are counted */
    int64_t count;
};

static void add(struct list *list, tconv_volume_part part)
{
    if (part.images < 1 || list->count > TCONV_MOST_PARTS)
        return;
    if (list->parts != NULL)
        list->parts[list->count] = part;
    list->count++;
}

/* Planes that images sum: tap t of image i takes plane first + step * i + tap * t of `planes`. The taps that are there;
 * both ends rise with the image, or both fall. */
struct reach {
    int64_t first, end; /* of taps; none where end <= first */
};

static int64_t limited(int64_t tap, int64_t taps)
{
    return tconv_min(tconv_max(tap, 0), taps);
}

/* Finds the taps t < taps whose plane first + step * i + tap * t is one of `planes`. */
static struct reach reach_of(const tconv_plane_walk *walk, int64_t taps, int64_t planes, int64_t i)
{
    const int64_t at = walk->first + walk->step * i, step = tconv_max(1, walk->tap > 0 ? walk->tap : -walk->tap);
    struct reach found;
    if (walk->tap > 0) {
        found.first = -tconv_floor_div(at, step);
        found.end = tconv_floor_div(planes - 1 - at, step) + 1;
    } else {
        found.first = tconv_floor_div(at - planes, step) + 1;
        found.end = tconv_floor_div(at, step) + 1;
    }
    found.first = limited(found.first, taps);
    found.end = limited(found.end, taps);
    return found;
}

static bool is_same(const struct reach *a, const struct reach *b)
{
    return a->first == b->first && a->end == b->end;
}

/* Returns the first image behind i, whose taps are given, that has others, or the number of images: by bisection, so that
 * an axis of any length is planned at once. */
static int64_t next_change(const tconv_volume_part *part, const tconv_plane_walk *sums, int64_t planes, int64_t i,
                           const struct reach *reach)
{
    int64_t same = i, other = part->images;
    while (other - same > 1) {
        const int64_t middle = same + (other - same) / 2;
        const struct reach found = reach_of(sums, part->taps, planes, middle);
        *(is_same(&found, reach) ? &same : &other) = middle;
    }
    return other;
}

/* Cuts the part that sums planes of `sums` to images from i on, and to taps. */
static tconv_volume_part cut(const tconv_volume_part *part, int64_t i, int64_t images, const struct reach *reach)
{
    tconv_volume_part made = *part;
    tconv_plane_walk *const walks[] = {&made.src, &made.dst, &made.kernel};
    made.images = images;
    made.taps = tconv_max(reach->end - reach->first, 0);
    for (size_t w = 0; w < sizeof walks / sizeof walks[0]; w++)
        walks[w]->first += walks[w]->step * i + (made.taps > 0 ? walks[w]->tap * reach->first : 0);
    made.whole = true;
    return made;
}

/* Adds a part for each range of images that sum the same taps. */
static void add_exact(struct list *list, const tconv_volume_part *part, const tconv_plane_walk *sums, int64_t planes)
{
    int64_t begin = 0;
    struct reach of_begin = {0, 0};
    for (int64_t i = 0; i < part->images && list->count <= TCONV_MOST_PARTS;) {
        const struct reach reach = reach_of(sums, part->taps, planes, i);
        const bool none = reach.end <= reach.first && of_begin.end <= of_begin.first;
        if (i > begin && !none && !is_same(&reach, &of_begin)) {
            add(list, cut(part, begin, i - begin, &of_begin));
            begin = i;
        }
        if (i == begin)
            of_begin = reach;
        i = next_change(part, sums, planes, i, &reach);
    }
    add(list, cut(part, begin, part->images - begin, &of_begin));
}

/* Adds the part, whose images sum planes of `sums`, in as many as `exact` asks for. Images that take one tap have parts of
 * their own in any case: they are computed where they lie. */
static void add_summing(struct list *list, const tconv_volume_part *part, const tconv_plane_walk *sums, int64_t planes,
                        bool exact)
{
    const struct reach first = reach_of(sums, part->taps, planes, 0);
    const struct reach last = reach_of(sums, part->taps, planes, part->images - 1);
    const struct reach all = {tconv_min(first.first, last.first), tconv_max(first.end, last.end)};
    if (exact || all.end - all.first <= 1) {
        add_exact(list, part, sums, planes);
        return;
    }
    tconv_volume_part made = cut(part, 0, part->images, &all);
    made.whole = first.first == last.first && first.end == last.end;
    add(list, made);
}

/* Planes of dst from one on, whose outputs are the bias. */
static void add_bias_planes(struct list *list, int64_t first, int64_t step, int64_t images)
{
    add(list, (tconv_volume_part){.images = images, .dst = {.first = first, .step = step}, .whole = true});
}

/* Residues begin <= r < end of dst without a tap: planes that lie side by side, or those of a residue, whichever are fewer
 * parts. */
static void add_bias(struct list *list, const tconv_axis *axis, int64_t begin, int64_t end)
{
    const int64_t periods = tconv_ceil_div(axis->out - begin, axis->stride);
    end = tconv_min(end, axis->out);
    if (begin >= end)
        return;
    if (periods <= end - begin)
        for (int64_t q = 0; q < periods && list->count <= TCONV_MOST_PARTS; q++)
            add_bias_planes(list, axis->stride * q + begin, 1, tconv_min(end, axis->out - axis->stride * q) - begin);
    else
        for (int64_t r = begin; r < end && list->count <= TCONV_MOST_PARTS; r++)
            add_bias_planes(list, r, axis->stride, tconv_ceil_div(axis->out - r, axis->stride));
}

static void list_forward(struct list *list, const tconv_axis *axis, const tconv_phase_table *table, bool exact)
{
    int64_t behind = 0; /* the first residue that no part has yet */
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        const tconv_volume_part part = {.images = phase->outputs,
                                        .taps = phase->taps,
                                        .src = {phase->first_shift, 1, -table->shift_step},
                                        .dst = {phase->residue, table->stride, 0},
                                        .kernel = {phase->first_kernel, 0, table->kernel_step}};
        add_bias(list, axis, behind, phase->residue);
        add_summing(list, &part, &part.src, axis->in, exact);
        behind = phase->residue + 1;
    }
    add_bias(list, axis, behind, axis->stride);
}

static void list_data(struct list *list, const tconv_axis *axis, bool exact)
{
    const tconv_volume_part part = {.images = axis->in,
                                    .taps = axis->kernel,
                                    .src = {0, 1, 0},
                                    .dst = {-axis->pad, axis->stride, axis->dilation},
                                    .kernel = {0, 0, 1}};
    add_summing(list, &part, &part.dst, axis->out, exact);
}

static void list_weights(struct list *list, const tconv_axis *axis)
{
    for (int64_t k = 0; k < axis->kernel && list->count <= TCONV_MOST_PARTS; k++) {
        const int64_t first = axis->dilation * k - axis->pad; /* the plane of dst that plane 0 of src reaches */
        const int64_t begin = tconv_max(0, tconv_ceil_div(-first, axis->stride));
        const int64_t end = tconv_min(axis->in, tconv_floor_div(axis->out - 1 - first, axis->stride) + 1);
        const bool any = end > begin;
        add(list, (tconv_volume_part){.images = any ? end - begin : 1,
                                      .taps = any ? 1 : 0,
                                      .src = {any ? begin : 0, 1, 0},
                                      .dst = {any ? first + axis->stride * begin : 0, axis->stride, 0},
                                      .kernel = {k, 0, 0},
                                      .whole = true});
    }
}

static void list_parts(struct list *list, const tconv_problem *problem, const tconv_phase_table *table, bool exact)
{
    switch (problem->desc.op) {
    case TCONV_FORWARD: list_forward(list, &problem->d, table, exact); break;
    case TCONV_BACKWARD_DATA: list_data(list, &problem->d, exact); break;
    case TCONV_BACKWARD_WEIGHTS: list_weights(list, &problem->d); break;
    }
}

tconv_status tconv_volume_parts_create(const tconv_problem *problem, bool exact, const tconv_allocator *allocator,
                                       tconv_volume_parts *parts, tconv_issue *issue)
{
    struct list counted = {NULL, 0};
    tconv_phase_table table = {.phases = NULL}; /* of forward alone */
    void *memory = NULL;
    tconv_status status = TCONV_SUCCESS;
    *parts = (tconv_volume_parts){NULL, 0};
    if (problem->desc.op == TCONV_FORWARD && (status = tconv_phases_create(&problem->d, allocator, &table, issue)))
        return status;
    list_parts(&counted, problem, &table, exact);
    if (counted.count > TCONV_MOST_PARTS)
        status =
            tconv_fail(issue, TCONV_ERROR_OVERFLOW, "out_d",
                       "out_d = %" PRId64 ": its planes are of more than %d kinds", problem->d.out, TCONV_MOST_PARTS);
    else
        status = tconv_allocate_for(allocator, (size_t)counted.count * sizeof *parts->parts, "parts", &memory, issue);
    if (status == TCONV_SUCCESS) {
        struct list list = {memory, 0};
        list_parts(&list, problem, &table, exact);
        *parts = (tconv_volume_parts){list.parts, list.count};
    }
    tconv_phases_release(&table, allocator);
    return status;
}

void tconv_volume_parts_release(tconv_volume_parts *parts, const tconv_allocator *allocator)
{
    tconv_release(allocator, parts->parts);
    *parts = (tconv_volume_parts){NULL, 0};
}

/* ------------------------------------------------------------------------------------------------- the same in memory */

void tconv_drop_depth(tconv_desc *desc)
{
    desc->in_d = desc->kernel_d = desc->stride_d = desc->dilation_d = 1;
    desc->pad_front = desc->pad_back = desc->output_padding_d = 0;
    desc->src_stride_d = desc->dst_stride_d = desc->addend_stride_d = 0;
}

/* Whether an axis has an output for each input, by one tap. */
static bool is_trivial(const tconv_axis *axis)
{
    return axis->kernel == 1 && axis->stride == 1 && axis->pad == 0 && axis->out == axis->in;
}

/* Whether each input has outputs of its own, as many as the stride. */
static bool is_of_cells(const tconv_axis *axis)
{
    return axis->pad == 0 && axis->out == axis->stride * axis->in && axis->dilation * (axis->kernel - 1) < axis->stride;
}

/* Sets the strides of a tensor whose planes are rows of one image, or, with `columns`, whose planes are rows of columns. */
static void flatten_strides(int64_t strides[4], const tconv_strides *from, tconv_layout layout, bool columns)
{
    strides[0] = from->n;
    strides[1] = layout == TCONV_NCHW ? from->c : 0;
    strides[2] = columns ? from->d : from->h;
    strides[3] = from->w;
}

bool tconv_volume_flatten(const tconv_problem *problem, tconv_desc *flat)
{
    const tconv_desc *desc = &problem->desc;
    const bool planes_are_rows = is_trivial(&problem->d) && is_of_cells(&problem->h);
    const bool depth_is_rows = is_trivial(&problem->h) && is_trivial(&problem->w);
    if (!planes_are_rows && !depth_is_rows)
        return false;
    *flat = *desc;
    if (planes_are_rows) {
        flat->in_h = problem->d.in * problem->h.in;
        flat->stride_h = problem->h.stride;
        flat->dilation_h = problem->h.dilation;
        flat->pad_top = flat->pad_bottom = 0;
        flat->output_padding_h = problem->h.stride - problem->h.dilation * (problem->h.kernel - 1) - 1;
    } else {
        flat->in_h = desc->in_d;
        flat->kernel_h = desc->kernel_d;
        flat->stride_h = desc->stride_d;
        flat->dilation_h = desc->dilation_d;
        flat->pad_top = desc->pad_front;
        flat->pad_bottom = desc->pad_back;
        flat->output_padding_h = desc->output_padding_d;
        flat->in_w = problem->h.in * problem->w.in;
        flat->kernel_w = flat->stride_w = flat->dilation_w = 1;
        flat->pad_left = flat->pad_right = flat->output_padding_w = 0;
    }
    tconv_drop_depth(flat);
    flatten_strides(flat->src_strides, &problem->src, problem->layout, !planes_are_rows);
    flatten_strides(flat->dst_strides, &problem->dst, problem->layout, !planes_are_rows);
    if (problem->addend_extent > 0)
        flatten_strides(flat->addend_strides, &problem->addend, problem->layout, !planes_are_rows);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ copies */

void tconv_plane_copy_simplify(tconv_plane_copy *copy)
{
    const int last = TCONV_COPY_AXES - 1;
    for (int axis = last - 1; axis >= 3; axis--) {
        const int64_t extent = copy->extents[axis], inner = copy->extents[last];
        if (extent != 1 && (copy->from[axis] != inner || copy->to[axis] != inner))
            return;
        copy->extents[last] *= extent;
        copy->extents[axis] = 1;
    }
}

tconv_transposition tconv_transpose_to_nhwc(const tconv_problem *problem, bool src)
{
    const tconv_strides *strides = src ? &problem->src : &problem->dst;
    const int64_t channels = src ? problem->in_channels : problem->out_channels;
    const int64_t pixels =
        src ? problem->d.in * problem->h.in * problem->w.in : problem->d.out * problem->h.out * problem->w.out;
    return (tconv_transposition){.matrices = problem->batch,
                                 .rows = channels,
                                 .columns = pixels,
                                 .from_matrix = strides->n,
                                 .from_row = strides->c,
                                 .to_matrix = channels * pixels,
                                 .to_row = channels,
                                 .element_size = problem->element_size};
}

tconv_transposition tconv_transpose_back(const tconv_transposition *of)
{
    return (tconv_transposition){.matrices = of->matrices,
                                 .rows = of->columns,
                                 .columns = of->rows,
                                 .from_matrix = of->to_matrix,
                                 .from_row = of->to_row,
                                 .to_matrix = of->from_matrix,
                                 .to_row = of->from_row,
                                 .element_size = of->element_size};
}
