/* How a layer is cut into chunks whose src and gradient of dst are copied (copies.h). */
#include "copies.h"

#include "../../core/checked.h"
#include "../hardware.h"
#include "../runtime/launch.h"
#include "copy_kernels.h"

/* Returns the elements from a pixel of a copy to the next. */
static int64_t copied_channels(const tconv_problem *problem, int64_t channels)
{
    return tconv_round_up(channels, VECTOR_BYTES / (int64_t)problem->element_size);
}

/* Returns the rows of outputs that the taps of so many rows of inputs reach. */
static int64_t out_rows_of(const tconv_axis *axis, int64_t rows)
{
    return axis->stride * (rows - 1) + axis->dilation * (axis->kernel - 1) + 1;
}

/* Return the bytes of the copies of so many rows of an image: of src, of the gradient of dst. */
static int64_t src_bytes_of(const tconv_problem *problem, int64_t rows)
{
    return rows * problem->w.in * copied_channels(problem, problem->in_channels) * (int64_t)problem->element_size;
}

static int64_t dst_bytes_of(const tconv_problem *problem, int64_t rows)
{
    return out_rows_of(&problem->h, rows) * problem->w.out * copied_channels(problem, problem->out_channels) *
           (int64_t)problem->element_size;
}

/* Return the first image of a chunk, and the first of its rows of inputs. */
static int64_t first_image_of(const copy_cut *cut, int64_t chunk)
{
    return chunk / cut->row_parts * cut->images;
}
static int64_t first_row_of(const copy_cut *cut, int64_t chunk)
{
    return chunk % cut->row_parts * cut->rows;
}

int64_t tconv_wgrad_images_of_chunk(const tconv_problem *problem, const copy_cut *cut, int64_t chunk)
{
    return tconv_min(cut->images, problem->batch - first_image_of(cut, chunk));
}

int64_t tconv_wgrad_first_of_chunk(const tconv_problem *problem, const copy_cut *cut, int64_t chunk)
{
    return first_image_of(cut, chunk) * problem->src.n + first_row_of(cut, chunk) * problem->src.h;
}

/* Cuts a layer whose src is copied, or whose src is not. */
static copy_cut cut_copies(const tconv_problem *problem, bool with_src, int64_t most_bytes)
{
    copy_cut cut = {0};
    const int64_t src_row = with_src ? src_bytes_of(problem, 1) : 0;
    const int64_t image = src_row * problem->h.in + dst_bytes_of(problem, problem->h.in);
    const int64_t row = src_row + dst_bytes_of(problem, 2) - dst_bytes_of(problem, 1);
    const int64_t halo = dst_bytes_of(problem, 1) - (row - src_row);
    int64_t images = tconv_min(problem->batch, most_bytes / image), rows = problem->h.in;
    if (images == 0) {
        images = 1;
        rows = (most_bytes - halo) / row;
    }
    if (rows < 1 || problem->batch == 0)
        return cut;
    cut.image_parts = tconv_ceil_div(problem->batch, images);
    cut.row_parts = tconv_ceil_div(problem->h.in, rows);
    cut.images = tconv_ceil_div(problem->batch, cut.image_parts);
    cut.rows = tconv_ceil_div(problem->h.in, cut.row_parts);
    cut.out_rows = out_rows_of(&problem->h, cut.rows);
    cut.src_pixel = copied_channels(problem, problem->in_channels);
    cut.dst_pixel = copied_channels(problem, problem->out_channels);
    cut.src_bytes = tconv_round_up(cut.images * src_row * cut.rows, COPY_ALIGNMENT);
    cut.dst_bytes = tconv_round_up(cut.images * dst_bytes_of(problem, cut.rows), COPY_ALIGNMENT);
    return cut;
}

copy_cut tconv_wgrad_cut_copies(const tconv_problem *problem, bool has_src, int64_t most_bytes)
{
    if (has_src) {
        const copy_cut cut = cut_copies(problem, false, most_bytes);
        if (cut.images > 0 && problem->h.in % cut.rows == 0)
            return cut;
    }
    return cut_copies(problem, true, most_bytes);
}

void tconv_wgrad_take_chunk(tconv_problem *problem, const copy_cut *cut)
{
    problem->layout = TCONV_NHWC;
    problem->batch = cut->images;
    problem->h.in = cut->rows;
    problem->h.out = cut->out_rows;
    problem->h.pad = 0;
    const int64_t src_row = problem->w.in * cut->src_pixel, dst_row = problem->w.out * cut->dst_pixel;
    if (copies_src(cut))
        problem->src = (tconv_strides){.n = cut->rows * src_row, .c = 1, .h = src_row, .w = cut->src_pixel};
    problem->dst = (tconv_strides){.n = cut->out_rows * dst_row, .c = 1, .h = dst_row, .w = cut->dst_pixel};
    if (problem->groups == 1) { /* the padding of a pixel counts as channels */
        problem->in_channels = problem->group_in = cut->src_pixel;
        problem->out_channels = problem->group_out = cut->dst_pixel;
    }
}

/* Returns whether a tensor's rows follow one another, and its channels are neighbours or can be transposed. */
static bool can_copy(const tconv_problem *problem, const tconv_strides *strides, int64_t rows, int64_t columns)
{
    return (rows == 1 || strides->h == columns * strides->w) &&
           (strides->c == 1 || (strides->w == 1 && problem->element_size <= sizeof(float)));
}

bool tconv_wgrad_can_copy(const tconv_problem *problem)
{
    return can_copy(problem, &problem->src, problem->h.in, problem->w.in) &&
           can_copy(problem, &problem->dst, problem->h.out, problem->w.out);
}

/* A tensor, and which of its pixels a chunk has. */
typedef struct chunk_tensor {
    const void *data;
    void *copy;
    const tconv_strides *strides;
    int64_t first_image, images; /* of the chunk */
    int64_t channels;
    int64_t first, pixels; /* of the plane of an image: the chunk's first pixel, and pixels from there */
    int64_t plane;         /* pixels of a plane */
    int64_t apart;         /* pixels from a chunk's first to that of the next rows */
} chunk_tensor;

static transposed_copy transpose_of(const chunk_tensor *tensor, int64_t size)
{
    const tconv_strides *strides = tensor->strides;
    transposed_copy copy = {.from = (const char *)tensor->data + tensor->first_image * strides->n * size,
                            .copy = tensor->copy,
                            .image = strides->n,
                            .channel = strides->c,
                            .first = tensor->first,
                            .plane = tensor->plane,
                            .pixels = (int)tensor->pixels,
                            .channels = (int)tensor->channels,
                            .images = (int)tensor->images,
                            .vectors = (int)tconv_ceil_div(tensor->channels * size, VECTOR_BYTES),
                            .load_bytes = VECTOR_BYTES};
    const int64_t distances = strides->n | strides->c | tensor->first | tensor->apart | tensor->plane;
    const int64_t all = (int64_t)(uintptr_t)tensor->data | distances * size;
    while (all % copy.load_bytes != 0)
        copy.load_bytes /= 2;
    copy.channel_tiles = (int)tconv_ceil_div(tensor->channels * size, COPY_TILE_BYTES);
    copy.pixel_tiles = (int)tconv_ceil_div(tensor->pixels, TRANSPOSE_PIXELS);
    copy.tiles = (int)tensor->images * copy.channel_tiles * copy.pixel_tiles;
    return copy;
}

/* Launches the kernel for a tensor whose channels are neighbours. */
static tconv_status launch_padded(const tconv_problem *problem, const chunk_tensor *tensor, void *stream,
                                  tconv_issue *issue)
{
    const int64_t size = (int64_t)problem->element_size;
    const int64_t vectors = copied_channels(problem, tensor->channels) * size / VECTOR_BYTES;
    padded_copy copy = {.from = (const char *)tensor->data + tensor->first_image * tensor->strides->n * size,
                        .copy = tensor->copy,
                        .image = tensor->strides->n * size,
                        .pixel = tensor->strides->w * size,
                        .first = tensor->first,
                        .plane = tensor->plane,
                        .pixels = tensor->pixels,
                        .count = tensor->images * tensor->pixels * vectors,
                        .vectors = (int)vectors,
                        .channels = (int)(tensor->channels * size)};
    const int64_t all = (int64_t)(uintptr_t)copy.from | copy.image | copy.pixel | copy.channels;
    int word_bytes = VECTOR_BYTES;
    while (word_bytes > 2 && all % word_bytes != 0)
        word_bytes /= 2;
    void *arguments[] = {&copy};
    return tconv_launch_blocks(tconv_wgrad_pad_kernel(word_bytes), tconv_ceil_div(copy.count, PAD_THREADS), PAD_THREADS,
                               arguments, stream, issue, false);
}

/* Copies a tensor, or describes in *transposed how the kernel that transposes both tensors copies it. */
static tconv_status copy_tensor(const tconv_problem *problem, const chunk_tensor *tensor, transposed_copy *transposed,
                                void *stream, tconv_issue *issue)
{
    if (tensor->strides->c == 1)
        return launch_padded(problem, tensor, stream, issue);
    *transposed = transpose_of(tensor, (int64_t)problem->element_size);
    return TCONV_SUCCESS;
}

tconv_status tconv_wgrad_make_copies(const tconv_layer *layer, const copy_cut *cut, int64_t chunk, const void *src,
                                     const void *diff_dst, void *copy, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_axis *h = &problem->h, *w = &problem->w;
    const int64_t row = first_row_of(cut, chunk), out_row = row * h->stride - h->pad;
    chunk_tensor tensor = {.data = src,
                           .copy = copy,
                           .strides = &problem->src,
                           .first_image = first_image_of(cut, chunk),
                           .images = tconv_wgrad_images_of_chunk(problem, cut, chunk),
                           .channels = problem->in_channels,
                           .first = row * w->in,
                           .pixels = cut->rows * w->in,
                           .plane = h->in * w->in,
                           .apart = cut->rows * w->in};
    transposed_copies transposed = {0};
    tconv_status status = TCONV_SUCCESS;
    if (copies_src(cut))
        status = copy_tensor(problem, &tensor, &transposed.tensors[0], stream, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tensor.data = diff_dst;
    tensor.copy = (char *)copy + cut->src_bytes;
    tensor.strides = &problem->dst;
    tensor.channels = problem->out_channels;
    tensor.first = out_row * w->out;
    tensor.pixels = cut->out_rows * w->out;
    tensor.plane = h->out * w->out;
    tensor.apart = cut->rows * h->stride * w->out;
    status = copy_tensor(problem, &tensor, &transposed.tensors[1], stream, issue);
    const int64_t tiles = (int64_t)transposed.tensors[0].tiles + transposed.tensors[1].tiles;
    if (status != TCONV_SUCCESS || tiles == 0)
        return status;
    void *arguments[] = {&transposed};
    return tconv_launch_blocks(tconv_wgrad_transpose_kernel(problem->element_size), tiles, TRANSPOSE_THREADS, arguments,
                               stream, issue, false);
}
