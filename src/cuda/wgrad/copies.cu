#include "copies.h"

#include "../../core/checked.h"
#include "../numeric/divisor.h"
#include "../pack/transpose.cuh"
#include "../ptx/memory.cuh"
#include "../runtime/launch.h"

namespace tconv::wgrad
{

namespace
{

constexpr int VECTOR = TRANSPOSE_RUN<uint16_t>; /* elements of 16 bytes */
constexpr int BYTES = 16;
constexpr int THREADS = 256; /* of channels that are copied as they lie */

/* A tensor of which rows are copied, those of all images, that lie one behind another as they do in memory. */
struct copied {
    const uint16_t *from;
    uint4 *to;
    int64_t image, channel; /* elements from one to the next */
    int64_t first, plane;   /* of an image's plane: the part's first pixel, which may not exist; pixels that do */
    int pixels, channels, images;
    int vectors; /* of a pixel */
    int unit;    /* pixels that are loaded at once: 8, 4, 2 or 1 */
    int channel_tiles, pixel_tiles, tiles;
};

struct parameters {
    copied tensors[2];
};

/* The same, where channels are neighbours already but no vectors; all in bytes. */
struct padded {
    const char *from;
    uint4 *to;
    int64_t image, pixel; /* from one to the next */
    int64_t first, plane, pixels;
    int64_t count; /* of vectors */
    int vectors, channels;
};

/* Loads a run of a channel's pixels, by so many at once; zeros where they do not exist. */
template <int unit>
__device__ __forceinline__ void load_run(uint32_t (&words)[4], const uint16_t *plane, int64_t pixel, int64_t end)
{
#pragma unroll
    for (int i = 0; i < VECTOR; i += unit) {
        const bool exists = pixel + i >= 0 && pixel + i < end;
        const uint16_t *from = plane + pixel + i;
        if constexpr (unit == 8) {
            const uint4 loaded = exists ? __ldg(reinterpret_cast<const uint4 *>(from)) : make_uint4(0, 0, 0, 0);
            words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
        } else if constexpr (unit == 4) {
            const uint2 loaded = exists ? __ldg(reinterpret_cast<const uint2 *>(from)) : make_uint2(0, 0);
            words[i / 2] = loaded.x, words[i / 2 + 1] = loaded.y;
        } else if constexpr (unit == 2) {
            words[i / 2] = exists ? __ldg(reinterpret_cast<const uint32_t *>(from)) : 0;
        } else {
            const uint32_t loaded = exists ? __ldg(from) : 0;
            words[i / 2] = i % 2 == 0 ? loaded : words[i / 2] | loaded << 16;
        }
    }
}

template <int unit>
__device__ __forceinline__ void read_tile(uint32_t *tile, const copied &of, int image, int channel, int pixel)
{
    const uint16_t *first = of.from + image * of.image + channel * of.channel;
    read_transposed<uint16_t>(tile, [&](int run_pixel, int run_channel, transposed_run<uint16_t> &run) {
        const uint16_t *plane = first + run_channel * of.channel;
        const int64_t at = of.first + pixel + run_pixel;
        const int left = of.channels - channel - run_channel;
        load_run<unit>(run.words[0], plane, at, left > 0 ? of.plane : 0);
        load_run<unit>(run.words[1], plane + of.channel, at, left > 1 ? of.plane : 0);
    });
}

__global__ void __launch_bounds__(TRANSPOSE_THREADS) copy_kernel(const __grid_constant__ parameters p)
{
    __shared__ uint4 shared[TRANSPOSE_PIXELS * TRANSPOSE_VECTORS];
    uint32_t *tile = reinterpret_cast<uint32_t *>(shared);
    for (int number = (int)blockIdx.x; number < p.tensors[0].tiles + p.tensors[1].tiles; number += (int)gridDim.x) {
        const bool second = number >= p.tensors[0].tiles;
        const copied &of = p.tensors[second];
        const int in = second ? number - p.tensors[0].tiles : number;
        const int channel_tile = in % of.channel_tiles, rest = in / of.channel_tiles;
        const int pixel = rest % of.pixel_tiles * TRANSPOSE_PIXELS, image = rest / of.pixel_tiles;
        const int channel = channel_tile * TRANSPOSE_CHANNELS<uint16_t>;
        if (of.unit == 8)
            read_tile<8>(tile, of, image, channel, pixel);
        else if (of.unit == 4)
            read_tile<4>(tile, of, image, channel, pixel);
        else if (of.unit == 2)
            read_tile<2>(tile, of, image, channel, pixel);
        else
            read_tile<1>(tile, of, image, channel, pixel);
        __syncthreads();
        const int vector = channel_tile * TRANSPOSE_VECTORS;
        store_transposed_tile<uint16_t>(of.to + ((int64_t)image * of.pixels + pixel) * of.vectors + vector, of.vectors,
                                        of.pixels - pixel, of.vectors - vector, shared);
        __syncthreads();
    }
}

/* Copies a vector of channels with a thread, by words that all begin at multiples of their size, zeros where there are none. */
template <class Word> __global__ void __launch_bounds__(THREADS) pad_kernel(const __grid_constant__ padded of)
{
    constexpr int WORDS = BYTES / (int)sizeof(Word);
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < of.count; i += step) {
        const int64_t of_all = divide(i, of.vectors), image = divide(of_all, of.pixels);
        const int64_t pixel = of.first + of_all - image * of.pixels;
        const int first = (int)(i - of_all * of.vectors) * BYTES;
        const int left = pixel >= 0 && pixel < of.plane ? of.channels - first : 0;
        const char *from = of.from + image * of.image + pixel * of.pixel + first;
        union {
            Word words[WORDS];
            uint4 all;
        } loaded;
#pragma unroll
        for (int word = 0; word < WORDS; word++)
            loaded.words[word] =
                word * (int)sizeof(Word) < left ? __ldg(reinterpret_cast<const Word *>(from) + word) : Word{};
        of.to[i] = loaded.all;
    }
}

/* Elements from a pixel of a copy to the next. */
int64_t pixel_of(const tconv_problem *problem, int64_t channels)
{
    return tconv_round_up(channels, BYTES / (int64_t)problem->element_size);
}

int64_t out_rows_of(const tconv_axis *axis, int64_t rows)
{
    return axis->stride * (rows - 1) + axis->dilation * (axis->kernel - 1) + 1;
}

/* Bytes of the copies of so many rows of an image: of src, of the gradient of dst. */
int64_t src_bytes_of(const tconv_problem *problem, int64_t rows)
{
    return rows * problem->w.in * pixel_of(problem, problem->in_channels) * (int64_t)problem->element_size;
}

int64_t dst_bytes_of(const tconv_problem *problem, int64_t rows)
{
    return out_rows_of(&problem->h, rows) * problem->w.out * pixel_of(problem, problem->out_channels) *
           (int64_t)problem->element_size;
}

/* Describes what of a tensor is copied: `pixels` of each plane, from `first` on, in a part whose first rows are so many
 * pixels apart. */
copied describe(const void *from, void *to, const tconv_strides *strides, int64_t image, int64_t images,
                int64_t channels, int64_t first, int64_t pixels, int64_t plane, int64_t apart)
{
    copied made = {};
    made.from = static_cast<const uint16_t *>(from) + image * strides->n;
    made.to = static_cast<uint4 *>(to);
    made.image = strides->n;
    made.channel = strides->c;
    made.first = first;
    made.plane = plane;
    made.pixels = (int)pixels;
    made.channels = (int)channels;
    made.images = (int)images;
    made.vectors = (int)tconv_ceil_div(channels, VECTOR);
    made.unit = VECTOR;
    const int64_t address = (int64_t)((uintptr_t)from / sizeof(uint16_t));
    while ((address | strides->n | strides->c | first | apart | plane) % made.unit != 0)
        made.unit /= 2;
    made.channel_tiles = (int)tconv_ceil_div(channels, TRANSPOSE_CHANNELS<uint16_t>);
    made.pixel_tiles = (int)tconv_ceil_div(pixels, TRANSPOSE_PIXELS);
    made.tiles = (int)images * made.channel_tiles * made.pixel_tiles;
    return made;
}

/* Launches the kernel for a tensor whose channels are neighbours. */
tconv_status launch_padded(const tconv_problem *problem, const void *from, void *to, const tconv_strides *strides,
                           int64_t image, int64_t images, int64_t channels, int64_t first, int64_t pixels,
                           int64_t plane, void *stream, tconv_issue *issue)
{
    const int64_t size = (int64_t)problem->element_size, vectors = pixel_of(problem, channels) * size / BYTES;
    padded made = {static_cast<const char *>(from) + image * strides->n * size,
                   static_cast<uint4 *>(to),
                   strides->n * size,
                   strides->w * size,
                   first,
                   plane,
                   pixels,
                   images * pixels * vectors,
                   (int)vectors,
                   (int)(channels * size)};
    const int64_t all = (int64_t)(uintptr_t)made.from | made.image | made.pixel | made.channels;
    const void *kernel = all % 16 == 0  ? (const void *)pad_kernel<uint4>
                         : all % 8 == 0 ? (const void *)pad_kernel<uint2>
                         : all % 4 == 0 ? (const void *)pad_kernel<uint32_t>
                                        : (const void *)pad_kernel<uint16_t>;
    void *arguments[] = {&made};
    return tconv_launch_blocks(kernel, tconv_ceil_div(made.count, THREADS), THREADS, arguments, stream, issue, false);
}

} // namespace

int64_t images_of_part(const tconv_problem *problem, const copies &of, int64_t part)
{
    return tconv_min(of.images, problem->batch - part / of.row_parts * of.images);
}

copies cut_copies(const tconv_problem *problem, int64_t most_bytes)
{
    copies made = {};
    const int64_t image = src_bytes_of(problem, problem->h.in) + dst_bytes_of(problem, problem->h.in);
    const int64_t row = src_bytes_of(problem, 1) + dst_bytes_of(problem, 2) - dst_bytes_of(problem, 1);
    const int64_t halo = dst_bytes_of(problem, 1) - (row - src_bytes_of(problem, 1));
    int64_t images = tconv_min(problem->batch, most_bytes / image), rows = problem->h.in;
    if (images == 0) {
        images = 1;
        rows = (most_bytes - halo) / row;
    }
    if (rows < 1 || problem->batch == 0)
        return made;
    made.image_parts = tconv_ceil_div(problem->batch, images);
    made.row_parts = tconv_ceil_div(problem->h.in, rows);
    made.images = tconv_ceil_div(problem->batch, made.image_parts);
    made.rows = tconv_ceil_div(problem->h.in, made.row_parts);
    made.out_rows = out_rows_of(&problem->h, made.rows);
    made.src_pixel = pixel_of(problem, problem->in_channels);
    made.dst_pixel = pixel_of(problem, problem->out_channels);
    made.src_bytes = tconv_round_up(made.images * src_bytes_of(problem, made.rows), COPY_ALIGNMENT);
    made.dst_bytes = tconv_round_up(made.images * dst_bytes_of(problem, made.rows), COPY_ALIGNMENT);
    return made;
}

tconv_problem problem_of_part(const tconv_problem *problem, const copies &of)
{
    tconv_problem made = *problem;
    made.layout = TCONV_NHWC;
    made.batch = of.images;
    made.h.in = of.rows;
    made.h.out = of.out_rows;
    made.h.pad = 0;
    const int64_t src_row = made.w.in * of.src_pixel, dst_row = made.w.out * of.dst_pixel;
    made.src = {of.rows * src_row, 1, src_row, of.src_pixel};
    made.dst = {of.out_rows * dst_row, 1, dst_row, of.dst_pixel};
    if (problem->groups == 1) { /* what pads a pixel are channels of their own */
        made.in_channels = made.group_in = of.src_pixel;
        made.out_channels = made.group_out = of.dst_pixel;
    }
    return made;
}

bool can_copy(const tconv_problem *problem)
{
    const auto can = [&](const tconv_strides &strides, int64_t rows, int64_t columns) {
        return (rows == 1 || strides.h == columns * strides.w) &&
               (strides.c == 1 || (strides.w == 1 && problem->element_size == sizeof(uint16_t)));
    };
    return can(problem->src, problem->h.in, problem->w.in) && can(problem->dst, problem->h.out, problem->w.out);
}

tconv_status make_copies(const tconv_layer *layer, const copies &of, int64_t part, const void *src,
                         const void *diff_dst, void *to, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_axis *h = &problem->h, *w = &problem->w;
    const int64_t image = part / of.row_parts * of.images, images = images_of_part(problem, of, part);
    const int64_t row = part % of.row_parts * of.rows, out_row = row * h->stride - h->pad;
    char *const dst_to = static_cast<char *>(to) + of.src_bytes;
    parameters p = {};
    const auto copy = [&](const void *from, void *made, const tconv_strides *strides, int64_t channels, int64_t first,
                          int64_t pixels, int64_t plane, int64_t apart, copied *transposed) {
        if (strides->c == 1)
            return launch_padded(problem, from, made, strides, image, images, channels, first, pixels, plane, stream,
                                 issue);
        *transposed = describe(from, made, strides, image, images, channels, first, pixels, plane, apart);
        return TCONV_SUCCESS;
    };
    tconv_status status = copy(src, to, &problem->src, problem->in_channels, row * w->in, of.rows * w->in,
                               h->in * w->in, of.rows * w->in, &p.tensors[0]);
    if (status == TCONV_SUCCESS)
        status = copy(diff_dst, dst_to, &problem->dst, problem->out_channels, out_row * w->out, of.out_rows * w->out,
                      h->out * w->out, of.rows * h->stride * w->out, &p.tensors[1]);
    const int64_t tiles = (int64_t)p.tensors[0].tiles + p.tensors[1].tiles;
    if (status != TCONV_SUCCESS || tiles == 0)
        return status;
    void *arguments[] = {&p};
    return tconv_launch_blocks((const void *)copy_kernel, tiles, TRANSPOSE_THREADS, arguments, stream, issue, false);
}

} // namespace tconv::wgrad
