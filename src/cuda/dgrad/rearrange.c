/* Launches the kernels that rearrange tensors around the inner layer's: chooses their words, and how lines are shared. */
#include "parameters.h"

#include "../../core/checked.h"
#include "../hardware.h"
#include "../runtime/launch.h"

enum {
    NARROW = 64,               /* bytes of a group's channels, below which lanes may share planes */
    MAX_BLOCKS = 1 << 20,      /* more lines are taken by the same blocks */
    DEVICE_LANES = 1 << 18,    /* that a large GPU has at once: fewer lines are cut in pieces */
    COORDINATE_LIMIT = 1 << 29 /* sums of a few coordinates below this fit in 32 bits */
};

/* Returns how many lanes share a line of so many words: a power of two, by its exponent. */
static int lanes_log2_of(int64_t words)
{
    int log2 = 0;
    while (1 << log2 < LINE_LANES && (int64_t)1 << log2 < words)
        log2++;
    return log2;
}

static tconv_status launch_lines(const void *kernel, int64_t lines, int lanes_log2, bool overlaps, void **arguments,
                                 void *stream, tconv_issue *issue)
{
    const int64_t blocks = tconv_ceil_div(lines, THREADS >> lanes_log2);
    const launch_grid grid = {
        .kernel = kernel, .blocks = tconv_min(blocks, MAX_BLOCKS), .threads = THREADS, .overlaps = overlaps};
    return tconv_launch_kernel(&grid, arguments, stream, issue);
}

/* Returns whether coordinates of an axis, and sums of a few, fit in 32 bits, also those of a vector past the last
 * position. */
static bool fits_32_bits(const tconv_cuda_planes *planes)
{
    const int64_t limit = COORDINATE_LIMIT;
    return planes->stride < limit && planes->dilation < limit && planes->out < limit && planes->pad < limit &&
           planes->pad > -limit && planes->stride * (planes->positions + ROW_VECTOR) < limit &&
           planes->dilation * planes->count < limit;
}

static plane_axis32 axis32_of(const tconv_cuda_planes *planes)
{
    return (plane_axis32){(int)planes->stride, (int)planes->dilation, (int)planes->pad,
                          (int)planes->out,    (int)planes->count,    (int)planes->positions};
}

static plane_axis64 axis64_of(const tconv_cuda_planes *planes)
{
    return (plane_axis64){planes->stride, planes->dilation,   planes->pad,
                          planes->out,    (int)planes->count, (int)planes->positions};
}

/* A kernel that splits planes: one of split_rows, split_pixels (element_bytes 0) and its narrow form. */
typedef struct split_kernel {
    int word_bytes, element_bytes;
    bool narrow;
} split_kernel;

static const void *find_kernel(const split_kernel *split, bool wide)
{
    return split->element_bytes > 0 ? tconv_dgrad_split_rows_kernel(split->word_bytes, split->element_bytes, wide)
                                    : tconv_dgrad_split_pixels_kernel(split->word_bytes, split->narrow, wide);
}

/* Launches a kernel in coordinates of 32 bits, or of 64 where those do not fit. line: the kernel's parameter about
 * lines, or NULL. */
static tconv_status launch_split(const split_kernel *split, const depth_shape *depth, int64_t lines, int lanes_log2,
                                 void *line, void *stream, tconv_issue *issue)
{
    depth_shape shape = *depth;
    const bool wide = !(fits_32_bits(&shape.rows) && fits_32_bits(&shape.columns));
    plane_axis32 rows32 = axis32_of(&shape.rows), columns32 = axis32_of(&shape.columns);
    plane_axis64 rows64 = axis64_of(&shape.rows), columns64 = axis64_of(&shape.columns);
    void *const rows = wide ? (void *)&rows64 : (void *)&rows32;
    void *const columns = wide ? (void *)&columns64 : (void *)&columns32;
    void *arguments[] = {&shape, rows, columns, &lines, &lanes_log2, line};
    return launch_lines(find_kernel(split, wide), lines, lanes_log2, false, arguments, stream, issue);
}

/* Cuts lines in pieces where there are few: along a line by whole rounds of its lanes, then by column planes. */
static line_pieces cut_lines(int64_t lines, int64_t words, int64_t planes, int lanes_log2)
{
    const int64_t lanes = (int64_t)1 << lanes_log2, rounds = tconv_ceil_div(words, lanes);
    const int64_t wanted = tconv_ceil_div(DEVICE_LANES, tconv_max(lines, 1) * lanes);
    const int64_t piece_rounds = tconv_ceil_div(rounds, tconv_min(rounds, wanted));
    const int64_t along_words = tconv_ceil_div(rounds, piece_rounds);
    const int64_t most = tconv_ceil_div(planes, AT_ONCE);
    const int64_t piece_planes =
        tconv_ceil_div(planes, tconv_max(1, tconv_min(most, tconv_ceil_div(wanted, along_words))));
    const int64_t along_planes = tconv_ceil_div(planes, piece_planes);
    return (line_pieces){.words = (int)(piece_rounds * lanes),
                         .planes = (int)piece_planes,
                         .count = divisor_of((int)(along_words * along_planes)),
                         .along_planes = divisor_of((int)along_planes)};
}

/* NCHW. Words have two elements of 16 bits, for a lane's stores to have four bytes. */
static tconv_status split_rows(int element_bytes, const depth_shape *shape, void *stream, tconv_issue *issue)
{
    const int elements = element_bytes == 2 && shape->row_elements % 2 == 0 ? 2 : 1;
    const split_kernel split = {.word_bytes = elements * element_bytes, .element_bytes = element_bytes};
    const int64_t lines = (int64_t)shape->images * shape->channels.divisor * shape->rows.positions * shape->rows.count;
    const int64_t words = shape->row_elements / elements;
    const int lanes_log2 = lanes_log2_of(words);
    line_pieces pieces = cut_lines(lines, words, shape->columns.count, lanes_log2);
    return launch_split(&split, shape, lines * pieces.count.divisor, lanes_log2, &pieces, stream, issue);
}

/* Returns whether the channels of every group and pixel begin and end at multiples of so many bytes. */
static bool begins_at_multiples(const depth_shape *shape, int64_t element_bytes, int64_t bytes)
{
    const tconv_strides *from = &shape->from_strides;
    const int64_t steps[] = {from->n, from->h, from->w, shape->group_out, shape->to_pixel};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i] * element_bytes % bytes != 0)
            return false;
    return (uintptr_t)shape->from % (uintptr_t)bytes == 0;
}

/* NHWC. Words have the most bytes, of 16, 8, 4 and an element's, at whose multiples channels begin and end; the planes
 * that they are written to begin at multiples of 16. */
static tconv_status split_pixels(int element_bytes, const depth_shape *shape, void *stream, tconv_issue *issue)
{
    int word_bytes = VECTOR_BYTES;
    while (word_bytes > element_bytes && !begins_at_multiples(shape, element_bytes, word_bytes))
        word_bytes /= 2;
    const int64_t elements = word_bytes / element_bytes;
    depth_shape in_words = *shape;
    const tconv_strides strides = {.n = shape->from_strides.n / elements,
                                   .h = shape->from_strides.h / elements,
                                   .w = shape->from_strides.w / elements};
    in_words.from_strides = strides;
    in_words.to_image /= elements;
    in_words.to_row /= elements;
    in_words.to_pixel /= elements;
    in_words.group_out /= (int)elements;
    const int64_t lines =
        (int64_t)in_words.images * in_words.rows.positions * in_words.columns.positions * in_words.groups.divisor;
    const int64_t items = in_words.rows.count * in_words.columns.count * in_words.group_out;
    split_kernel split = {.word_bytes = word_bytes};
    split.narrow = (int64_t)in_words.group_out * word_bytes < NARROW && items >= AT_ONCE * LINE_LANES;
    narrow_line line = {divisor_of(in_words.group_out), divisor_of((int)in_words.columns.count)};
    return launch_split(&split, &in_words, lines, lanes_log2_of(split.narrow ? items : in_words.group_out),
                        split.narrow ? &line : NULL, stream, issue);
}

tconv_status tconv_dgrad_split_planes(const tconv_problem *problem, const depth_shape *shape, void *stream,
                                      tconv_issue *issue)
{
    const int element_bytes = (int)problem->element_size;
    return problem->layout == TCONV_NCHW ? split_rows(element_bytes, shape, stream, issue)
                                         : split_pixels(element_bytes, shape, stream, issue);
}

tconv_status tconv_dgrad_derive_weights(const tconv_problem *problem, const weight_shape *shape, bool overlaps,
                                        void *stream, tconv_issue *issue)
{
    const void *const kernel = tconv_dgrad_derive_kernel((int)problem->element_size);
    weight_shape weights = *shape;
    int lanes_log2 = lanes_log2_of(weights.inputs_inside ? weights.group_in : weights.group_out);
    void *arguments[] = {&weights, &lanes_log2};
    return launch_lines(kernel, weights.lines, lanes_log2, overlaps, arguments, stream, issue);
}

tconv_status tconv_dgrad_add_parts(const tconv_problem *problem, const sum_shape *shape, bool overlaps, void *stream,
                                   tconv_issue *issue)
{
    sum_shape sums = *shape;
    void *arguments[] = {&sums};
    const void *const kernel = tconv_dgrad_add_kernel(problem->dtype, problem->layout == TCONV_NHWC);
    return launch_lines(kernel, sums.count, 0, overlaps, arguments, stream, issue);
}
