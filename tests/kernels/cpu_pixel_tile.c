/*
 * The microkernels of cpu_pixels (tconv_cpu_pixel_tile), dense and depthwise: every tile of every instruction set,
 * against a plain sum. What is read ends at a page that may not be touched, and so do the sums and dst, whose pixels
 * have gaps between them that may not be written.
 */
#include <math.h>
#include <string.h>

#include "../../src/core/checked.h"
#include "../../src/cpu/blocking.h"
#include "cpu.h"
#include "families.h"
#include "harness.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* So many elements between pixels may not be written. */
enum { GAP = 3 };

/* These are the terms of a tile, and how they are cut: each call has all taps of some channels of its own. Depthwise,
 * there are as many terms as taps, and one call. */
typedef struct pixel_terms {
    int64_t taps, channels, segment;
    int64_t calls; /* the last one of a channel less, where there are several channels */
} pixel_terms;

static const pixel_terms short_terms[] = {
    {0, 1, 48, 1}, /* nothing but the bias */
    {1, 1, 48, 1},  {1, 47, 48, 1}, {1, 48, 48, 2}, {1, 49, 48, 3},
    {9, 5, 12, 1},  {9, 5, 48, 4},  {4, 30, 20, 5}, {6, 7, 1, 2}, /* one term to a segment */
    {13, 10, 2, 8},
};

static const pixel_terms long_terms[] = {
    {1, 4000, 48, 1}, {9, 128, 48, 7}, {1001, 3, 48, 1}, /* depthwise: 21 segments */
};

enum { MOST_TAPS = 1001 };

/* The last call stores there. */
typedef enum pixel_target { TO_SUMS, TO_DST, TO_STREAM, TARGETS } pixel_target;

typedef struct pixel_case {
    const cpu_kernel *kernel;
    bool depthwise;
    pixel_terms terms;
    int64_t width;  /* vectors * lanes */
    int64_t region; /* of the strip, for one call */
    int32_t at[TCONV_CPU_MAX_PIXELS];
    int64_t to[TCONV_CPU_MAX_PIXELS];
    tconv_cpu_pixel_tap taps[MOST_TAPS];
    check_buffer *strip, *weights, *bias, *levels, *sums, *dst;
    pixel_target target;
} pixel_case;

static tconv_cpu_pixel_function *find_pixels(const cpu_kernel *kernel, bool depthwise, int vectors, int pixels)
{
    if (vectors > TCONV_CPU_MAX_PIXEL_VECTORS || pixels > TCONV_CPU_MAX_PIXELS)
        return NULL;
    const int real = kernel->real == TCONV_F64;
    return depthwise ? kernel->pixel_kernels->real[real].depthwise[vectors][pixels]
                     : kernel->pixel_kernels->real[real].dense[vectors][pixels];
}

static int64_t channels_of(const pixel_terms *terms, int64_t call)
{
    return terms->channels > 1 && call == terms->calls - 1 ? terms->channels - 1 : terms->channels;
}

static int64_t sums_level(const pixel_case *tile)
{
    return tile->kernel->rows * tile->width + tile->kernel->lanes;
}

/* Taps lie in the strip and among the weights in orders of their own. Depthwise, vectors are read at multiples of
 * theirs. */
static int64_t place_taps(pixel_case *tile)
{
    const int64_t unit = tile->depthwise ? tile->kernel->lanes : 1, taps = tile->terms.taps;
    int64_t most = 0;
    for (int64_t t = 0; t < taps; t++) {
        tile->taps[t].strip = (int32_t)((t * 7 % 11 + t / 3) * unit);
        tile->taps[t].weights = (int32_t)(taps - 1 - t);
        most = tconv_max(most, tile->taps[t].strip);
    }
    for (int p = 0; p < tile->kernel->rows; p++)
        tile->at[p] = (int32_t)((p % 2 ? 3 * p : 40 - p) * unit);
    most += (tconv_max(3 * tile->kernel->rows, 40)) * unit;
    return most + (tile->depthwise ? tile->width : tile->terms.channels);
}

/* The strip ends with what the last term may read; the pixels of dst have gaps between them. */
static void make_buffers(pixel_case *tile, check_fill fill)
{
    const cpu_kernel *kernel = tile->kernel;
    const pixel_terms *terms = &tile->terms;
    const int64_t terms_of_call = terms->taps * terms->channels;
    const int64_t segments = tconv_ceil_div(terms_of_call, terms->segment);
    const int64_t levels = tconv_max(1, tconv_cpu_cascade_levels(terms->calls));
    tile->region = tconv_ceil_div(place_taps(tile), kernel->lanes) * kernel->lanes;
    tile->strip = check_input("strip", kernel->real, terms->calls * tile->region, GUARD_AFTER, fill);
    tile->weights = check_input("weights", kernel->real, terms->calls * terms_of_call * tile->width, GUARD_AFTER, fill);
    tile->bias = check_input("bias", kernel->real, tile->width, GUARD_AFTER, fill);
    tile->levels = check_scratch("levels", kernel->real,
                                 tconv_cpu_cascade_levels(segments) * kernel->rows * tile->width, GUARD_AFTER);
    tile->sums = check_output("sums", kernel->real, levels * sums_level(tile) - kernel->lanes, GUARD_AFTER);
    for (int64_t level = 0; level < levels; level++)
        for (int64_t i = 0; i < kernel->rows * tile->width; i++)
            check_want_anything(tile->sums, level * sums_level(tile) + i);
    const int64_t gap = tile->target == TO_STREAM ? kernel->lanes : GAP;
    for (int p = 0; p < kernel->rows; p++) /* the other way round */
        tile->to[p] = tile->target == TO_SUMS ? p * tile->width : (kernel->rows - 1 - p) * (tile->width + gap);
    tile->dst = check_output("dst", kernel->real, kernel->rows * (tile->width + gap) - gap, GUARD_AFTER);
}

static void call_pixels(const void *argument)
{
    const pixel_case *tile = argument;
    const int64_t size = (int64_t)harness_element_size(tile->kernel->real), calls = tile->terms.calls;
    tconv_cpu_pixel_tile call = {.at = tile->at,
                                 .taps = tile->taps,
                                 .tap_count = tile->terms.taps,
                                 .segment = tile->terms.segment,
                                 .levels = tile->levels->data,
                                 .sums = tile->sums->data,
                                 .sums_level = sums_level(tile),
                                 .to = tile->to,
                                 .stream = tile->target == TO_STREAM};
    for (; call.calls_done < calls; call.calls_done++) {
        call.channels = channels_of(&tile->terms, call.calls_done);
        call.strip = (const char *)tile->strip->data + call.calls_done * tile->region * size;
        call.weights = (const char *)tile->weights->data +
                       call.calls_done * tile->terms.taps * tile->terms.channels * tile->width * size;
        if (call.calls_done == calls - 1) {
            call.bias = tile->bias->data;
            call.dst = tile->target == TO_SUMS ? NULL : tile->dst->data;
        }
        find_pixels(tile->kernel, tile->depthwise, tile->kernel->vectors, tile->kernel->rows)(&call);
    }
}

/* Returns the plain sum of a pixel's lane. */
static long double plain_sum(const pixel_case *tile, int pixel, int64_t lane, long double *magnitude)
{
    const pixel_terms *terms = &tile->terms;
    long double sum = check_get(tile->bias, lane);
    *magnitude = fabsl(sum);
    for (int64_t call = 0; call < terms->calls; call++) {
        const int64_t channels = channels_of(terms, call);
        const int64_t strip = call * tile->region + tile->at[pixel] + (tile->depthwise ? lane : 0);
        const int64_t weights = call * terms->taps * terms->channels * tile->width + lane;
        for (int64_t t = 0; t < terms->taps; t++)
            for (int64_t i = 0; i < channels; i++) {
                const int64_t weight = weights + (tile->taps[t].weights * channels + i) * tile->width;
                const long double product = (long double)check_get(tile->weights, weight) *
                                            check_get(tile->strip, strip + tile->taps[t].strip + i);
                sum += product;
                *magnitude += fabsl(product);
            }
    }
    return sum;
}

/* Plain sums are wanted, off by at most so many roundings of the sum of magnitudes. */
static void want_pixels(const pixel_case *tile, double roundings)
{
    check_buffer *target = tile->target == TO_SUMS ? tile->sums : tile->dst;
    for (int p = 0; p < tile->kernel->rows; p++)
        for (int64_t lane = 0; lane < tile->width; lane++) {
            long double magnitude, sum = plain_sum(tile, p, lane, &magnitude);
            check_want(target, tile->to[p] + lane, sum,
                       roundings * check_rounding(tile->kernel->real) * (double)magnitude);
        }
}

/* A pixel's sums are the same in a tile of its own, as where weights are not finite. */
static void check_bits(const pixel_case *tile)
{
    const size_t size = harness_element_size(tile->kernel->real);
    const int last = tile->kernel->rows - 1;
    cpu_kernel small = *tile->kernel;
    pixel_case one = *tile;
    one.kernel = &small;
    small.rows = 1;
    one.at[0] = tile->at[last];
    one.to[0] = 0;
    one.target = TO_DST;
    one.sums = check_scratch("sums of one pixel", small.real, tile->sums->count, GUARD_AFTER);
    one.dst = check_scratch("dst of one pixel", small.real, tile->width, GUARD_AFTER);
    call_pixels(&one);
    const check_buffer *target = tile->target == TO_SUMS ? tile->sums : tile->dst;
    if (memcmp(one.dst->data, (const char *)target->data + (size_t)tile->to[last] * size, (size_t)tile->width * size) !=
        0)
        check_fail("pixel %d has other bits in a tile of its own", last);
}

static void check_terms(const cpu_kernel *kernel, bool depthwise, const pixel_terms *terms, size_t count,
                        check_fill fill)
{
    static const char *const fills[] = {"integers", "reals", "numbers that are alike"};
    static const char *const targets[] = {"to sums", "to dst", "streamed"};
    pixel_case tile;
    for (size_t i = 0; i < count; i++)
        for (int target = 0; target < TARGETS; target++) {
            tile.kernel = kernel;
            tile.depthwise = depthwise;
            tile.terms = terms[i];
            tile.width = kernel->vectors * kernel->lanes;
            tile.target = (pixel_target)target;
            if (depthwise)
                tile.terms.channels = tile.terms.calls = 1;
            check_case("%d taps of %d channels in segments of %d, %d calls, %s, %s", (int)terms[i].taps,
                       (int)tile.terms.channels, (int)terms[i].segment, (int)tile.terms.calls, fills[fill],
                       targets[target]);
            make_buffers(&tile, fill);
            call_pixels(&tile);
            kernel->kernels->finish();
            want_pixels(&tile, fill == CHECK_INTEGERS ? 0 : CHECK_SUM_ROUNDINGS);
            check_outputs();
            if (fill != CHECK_INTEGERS)
                check_bits(&tile);
        }
}

static int most_pixels(const cpu_kernel *kernel, int vectors)
{
    return kernel->pixel_kernels->real[kernel->real == TCONV_F64].max_pixels[vectors];
}

/* Long sums take long: tiles of the most pixels have them. */
static void check_tiles(const cpu_kernel *kernel, bool depthwise)
{
    check_case("there is a function");
    if (find_pixels(kernel, depthwise, kernel->vectors, kernel->rows) == NULL)
        check_fail("there is none, though tiles of %d vectors go up to %d pixels", kernel->vectors,
                   most_pixels(kernel, kernel->vectors));
    check_terms(kernel, depthwise, short_terms, COUNT_OF(short_terms), CHECK_INTEGERS);
    check_terms(kernel, depthwise, short_terms, COUNT_OF(short_terms), CHECK_REALS);
    if (kernel->rows < most_pixels(kernel, kernel->vectors))
        return;
    check_terms(kernel, depthwise, long_terms, COUNT_OF(long_terms), CHECK_REALS);
    check_terms(kernel, depthwise, long_terms, COUNT_OF(long_terms), CHECK_ALIKE);
}

/* What is timed has 3 x 3 taps, and 32 channels where it is dense. */
static void bench_tiles(const cpu_kernel *kernel, bool depthwise)
{
    pixel_case tile = {.kernel = kernel,
                       .depthwise = depthwise,
                       .terms = {9, depthwise ? 1 : 32, 48, 1},
                       .width = kernel->vectors * kernel->lanes,
                       .target = TO_DST};
    make_buffers(&tile, CHECK_REALS);
    check_rate(call_pixels, &tile, 2.0 * (double)(9 * tile.terms.channels * kernel->rows * tile.width), "GFLOP/s",
               cpu_flops(kernel));
}

static void check_dense(const void *kernel)
{
    check_tiles(kernel, false);
}

static void check_depthwise(const void *kernel)
{
    check_tiles(kernel, true);
}

static void bench_dense(const void *kernel)
{
    bench_tiles(kernel, false);
}

static void bench_depthwise(const void *kernel)
{
    bench_tiles(kernel, true);
}

/* f16 and bf16 are summed by the tiles of f32. */
static void visit_tiles(const cpu_kernel *dtype)
{
    static const check_entry entries[] = {{"dense", check_dense, bench_dense},
                                          {"depthwise", check_depthwise, bench_depthwise}};
    cpu_kernel kernel = *dtype;
    for (size_t i = 0; i < COUNT_OF(entries) && dtype->dtype == dtype->real; i++)
        for (kernel.vectors = 1; kernel.vectors <= TCONV_CPU_MAX_PIXEL_VECTORS; kernel.vectors++) {
            kernel.rows = 1;
            do
                check_kernel(&entries[i], &kernel, "cpu/%s/%s %s %dx%d", kernel.isa_name, entries[i].name,
                             harness_dtype_name(kernel.dtype), kernel.vectors, kernel.rows);
            while (++kernel.rows <= most_pixels(&kernel, kernel.vectors));
        }
}

void check_cpu_pixel_tile(void)
{
    cpu_each_dtype(visit_tiles);
}
