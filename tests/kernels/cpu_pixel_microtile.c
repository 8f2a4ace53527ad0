/*
 * The microkernels of cpu_pixels (tconv_cpu_pixel_microtile), dense and depthwise: every micro-tile of every instruction set,
 * against a plain sum. What is read ends at a page that may not be touched, and so do the sums and dst, whose pixels
 * have gaps between them that may not be written.
 */
#include <math.h>
#include <string.h>

#include "../../src/core/checked.h"
#include "../../src/cpu/blocking/blocking.h"
#include "cpu.h"
#include "families.h"
#include "harness.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* So many elements between pixels may not be written. */
enum { GAP = 3 };

/* These are the terms of a micro-tile, and how they are cut: each call has all taps of some channels of its own. Depthwise,
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

static tconv_cpu_pixel_microkernel *find_pixels(const cpu_kernel *kernel, bool depthwise, int vectors, int pixels)
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

static int64_t sums_level(const pixel_case *microtile)
{
    return microtile->kernel->rows * microtile->width + microtile->kernel->lanes;
}

/* Taps lie in the strip and among the weights in orders of their own. Depthwise, vectors are read at multiples of
 * theirs. */
static int64_t place_taps(pixel_case *microtile)
{
    const int64_t unit = microtile->depthwise ? microtile->kernel->lanes : 1, taps = microtile->terms.taps;
    int64_t most = 0;
    for (int64_t t = 0; t < taps; t++) {
        microtile->taps[t].strip = (int32_t)((t * 7 % 11 + t / 3) * unit);
        microtile->taps[t].weights = (int32_t)(taps - 1 - t);
        most = tconv_max(most, microtile->taps[t].strip);
    }
    for (int p = 0; p < microtile->kernel->rows; p++)
        microtile->at[p] = (int32_t)((p % 2 ? 3 * p : 40 - p) * unit);
    most += (tconv_max(3 * microtile->kernel->rows, 40)) * unit;
    return most + (microtile->depthwise ? microtile->width : microtile->terms.channels);
}

/* The strip ends with what the last term may read; the pixels of dst have gaps between them. */
static void make_buffers(pixel_case *microtile, check_fill fill)
{
    const cpu_kernel *kernel = microtile->kernel;
    const pixel_terms *terms = &microtile->terms;
    const int64_t terms_of_call = terms->taps * terms->channels;
    const int64_t segments = tconv_ceil_div(terms_of_call, terms->segment);
    const int64_t levels = tconv_max(1, tconv_cpu_cascade_levels(terms->calls));
    microtile->region = tconv_ceil_div(place_taps(microtile), kernel->lanes) * kernel->lanes;
    microtile->strip = check_input("strip", kernel->real, terms->calls * microtile->region, GUARD_AFTER, fill);
    microtile->weights =
        check_input("weights", kernel->real, terms->calls * terms_of_call * microtile->width, GUARD_AFTER, fill);
    microtile->bias = check_input("bias", kernel->real, microtile->width, GUARD_AFTER, fill);
    microtile->levels = check_scratch(
        "levels", kernel->real, tconv_cpu_cascade_levels(segments) * kernel->rows * microtile->width, GUARD_AFTER);
    microtile->sums = check_output("sums", kernel->real, levels * sums_level(microtile) - kernel->lanes, GUARD_AFTER);
    for (int64_t level = 0; level < levels; level++)
        for (int64_t i = 0; i < kernel->rows * microtile->width; i++)
            check_want_anything(microtile->sums, level * sums_level(microtile) + i);
    const int64_t gap = microtile->target == TO_STREAM ? kernel->lanes : GAP;
    for (int p = 0; p < kernel->rows; p++) /* the other way round */
        microtile->to[p] =
            microtile->target == TO_SUMS ? p * microtile->width : (kernel->rows - 1 - p) * (microtile->width + gap);
    microtile->dst = check_output("dst", kernel->real, kernel->rows * (microtile->width + gap) - gap, GUARD_AFTER);
}

static void call_pixels(const void *argument)
{
    const pixel_case *microtile = argument;
    const int64_t size = (int64_t)harness_element_size(microtile->kernel->real), calls = microtile->terms.calls;
    tconv_cpu_pixel_microtile call = {.at = microtile->at,
                                      .taps = microtile->taps,
                                      .tap_count = microtile->terms.taps,
                                      .segment = microtile->terms.segment,
                                      .levels = microtile->levels->data,
                                      .sums = microtile->sums->data,
                                      .sums_level = sums_level(microtile),
                                      .to = microtile->to,
                                      .stream = microtile->target == TO_STREAM};
    for (; call.calls_done < calls; call.calls_done++) {
        call.channels = channels_of(&microtile->terms, call.calls_done);
        call.strip = (const char *)microtile->strip->data + call.calls_done * microtile->region * size;
        call.weights = (const char *)microtile->weights->data +
                       call.calls_done * microtile->terms.taps * microtile->terms.channels * microtile->width * size;
        if (call.calls_done == calls - 1) {
            call.bias = microtile->bias->data;
            call.dst = microtile->target == TO_SUMS ? NULL : microtile->dst->data;
        }
        find_pixels(microtile->kernel, microtile->depthwise, microtile->kernel->vectors,
                    microtile->kernel->rows)(&call);
    }
}

/* Returns the plain sum of a pixel's lane. */
static long double plain_sum(const pixel_case *microtile, int pixel, int64_t lane, long double *magnitude)
{
    const pixel_terms *terms = &microtile->terms;
    long double sum = check_get(microtile->bias, lane);
    *magnitude = fabsl(sum);
    for (int64_t call = 0; call < terms->calls; call++) {
        const int64_t channels = channels_of(terms, call);
        const int64_t strip = call * microtile->region + microtile->at[pixel] + (microtile->depthwise ? lane : 0);
        const int64_t weights = call * terms->taps * terms->channels * microtile->width + lane;
        for (int64_t t = 0; t < terms->taps; t++)
            for (int64_t i = 0; i < channels; i++) {
                const int64_t weight = weights + (microtile->taps[t].weights * channels + i) * microtile->width;
                const long double product = (long double)check_get(microtile->weights, weight) *
                                            check_get(microtile->strip, strip + microtile->taps[t].strip + i);
                sum += product;
                *magnitude += fabsl(product);
            }
    }
    return sum;
}

/* Plain sums are wanted, off by at most so many roundings of the sum of magnitudes. */
static void want_pixels(const pixel_case *microtile, double roundings)
{
    check_buffer *target = microtile->target == TO_SUMS ? microtile->sums : microtile->dst;
    for (int p = 0; p < microtile->kernel->rows; p++)
        for (int64_t lane = 0; lane < microtile->width; lane++) {
            long double magnitude, sum = plain_sum(microtile, p, lane, &magnitude);
            check_want(target, microtile->to[p] + lane, sum,
                       roundings * check_rounding(microtile->kernel->real) * (double)magnitude);
        }
}

/* A pixel's sums are the same in a micro-tile of its own, as where weights are not finite. */
static void check_bits(const pixel_case *microtile)
{
    const size_t size = harness_element_size(microtile->kernel->real);
    const int last = microtile->kernel->rows - 1;
    cpu_kernel small = *microtile->kernel;
    pixel_case one = *microtile;
    one.kernel = &small;
    small.rows = 1;
    one.at[0] = microtile->at[last];
    one.to[0] = 0;
    one.target = TO_DST;
    one.sums = check_scratch("sums of one pixel", small.real, microtile->sums->count, GUARD_AFTER);
    one.dst = check_scratch("dst of one pixel", small.real, microtile->width, GUARD_AFTER);
    call_pixels(&one);
    const check_buffer *target = microtile->target == TO_SUMS ? microtile->sums : microtile->dst;
    if (memcmp(one.dst->data, (const char *)target->data + (size_t)microtile->to[last] * size,
               (size_t)microtile->width * size) != 0)
        check_fail("pixel %d has other bits in a microtile of its own", last);
}

static void check_terms(const cpu_kernel *kernel, bool depthwise, const pixel_terms *terms, size_t count,
                        check_fill fill)
{
    static const char *const fills[] = {"integers", "reals", "numbers that are alike"};
    static const char *const targets[] = {"to sums", "to dst", "streamed"};
    pixel_case microtile;
    for (size_t i = 0; i < count; i++)
        for (int target = 0; target < TARGETS; target++) {
            microtile.kernel = kernel;
            microtile.depthwise = depthwise;
            microtile.terms = terms[i];
            microtile.width = kernel->vectors * kernel->lanes;
            microtile.target = (pixel_target)target;
            if (depthwise)
                microtile.terms.channels = microtile.terms.calls = 1;
            check_case("%d taps of %d channels in segments of %d, %d calls, %s, %s", (int)terms[i].taps,
                       (int)microtile.terms.channels, (int)terms[i].segment, (int)microtile.terms.calls, fills[fill],
                       targets[target]);
            make_buffers(&microtile, fill);
            call_pixels(&microtile);
            kernel->kernels->order_stores();
            want_pixels(&microtile, fill == CHECK_INTEGERS ? 0 : CHECK_SUM_ROUNDINGS);
            check_outputs();
            if (fill != CHECK_INTEGERS)
                check_bits(&microtile);
        }
}

static int most_pixels(const cpu_kernel *kernel, int vectors)
{
    return kernel->pixel_kernels->real[kernel->real == TCONV_F64].max_pixels[vectors];
}

/* Long sums take long: micro-tiles of the most pixels have them. */
static void check_tiles(const cpu_kernel *kernel, bool depthwise)
{
    check_case("there is a function");
    if (find_pixels(kernel, depthwise, kernel->vectors, kernel->rows) == NULL)
        check_fail("there is none, though microtiles of %d vectors go up to %d pixels", kernel->vectors,
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
    pixel_case microtile = {.kernel = kernel,
                            .depthwise = depthwise,
                            .terms = {9, depthwise ? 1 : 32, 48, 1},
                            .width = kernel->vectors * kernel->lanes,
                            .target = TO_DST};
    make_buffers(&microtile, CHECK_REALS);
    check_rate(call_pixels, &microtile, 2.0 * (double)(9 * microtile.terms.channels * kernel->rows * microtile.width),
               "GFLOP/s", cpu_flops(kernel));
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

/* f16 and bf16 are summed by the micro-tiles of f32. */
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

void check_cpu_pixel_microtile(void)
{
    cpu_each_dtype(visit_tiles);
}
