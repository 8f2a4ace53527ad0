/*
 * The microkernels of cpu_phases (tconv_cpu_microtile): every micro-tile of every instruction set, against a plain sum. The strip
 * and the weights end at a page that may not be touched, and so do the sums, with a vector between their rows that may
 * not be written.
 */
#include <math.h>
#include <string.h>

#include "../../src/core/checked.h"
#include "../../src/cpu/blocking/blocking.h"
#include "cpu.h"
#include "families.h"
#include "harness.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* These are the terms of a micro-tile, and how they are cut. */
typedef struct microtile_terms {
    int64_t terms, period, segment;
    int64_t call_terms; /* of each call but the last: whole periods, or parts of the only one; 0: one call */
} microtile_terms;

static const microtile_terms short_terms[] = {
    {0, 1, 48, 0}, /* nothing but the bias */
    {1, 1, 48, 0},
    {47, 47, 48, 0},
    {48, 48, 48, 0},
    {49, 49, 48, 0},
    {128, 128, 64, 64},
    {129, 129, 64, 128},
    {150, 150, 70, 70},
    /* Rounds that are shorter than a segment, as long, longer, and not all there. */
    {15, 5, 12, 5},
    {72, 9, 9, 27},
    {60, 20, 9, 40},
    {50, 20, 20, 0},
    {5, 20, 64, 0},
    /* One term to a segment: all that are in the cascade, some, and all but the last. */
    {2, 1000, 1, 0},
    {3, 1000, 1, 0},
    {4, 1000, 1, 0},
    {7, 1000, 1, 3},
    {63, 1000, 1, 0},
    {64, 1000, 1, 32},
    {65, 1000, 1, 64},
    {65, 1, 48, 64},
    {127, 1000, 1, 16},
    {384, 3, 3, 192},
    {90, 9, 9, 9},
    {30, 1000, 2, 10},
};

/* Long sums are cut as for f32. */
static const microtile_terms long_terms[] = {
    {4000, 4000, 48, 0},
    {9 * 480, 480, 48, 0},
    {3168, 3168, 48, 3024},
    {700 * 9, 144, 48, 6300 - 108},
};

/* No period and no segment above has more terms. */
enum { MOST_PERIOD = 4000, MOST_SEGMENT = 70 };

/* The next period of the strip is neither a vector nor a power of two away. */
enum { ROUND_STRIDE = 11 };

typedef struct microtile_case {
    const cpu_kernel *kernel;
    microtile_terms terms;
    int64_t sums_stride; /* room for a vector behind each row */
    int32_t starts[TCONV_CPU_MAX_VECTORS], offsets[MOST_PERIOD];
    check_buffer *strip, *weights, *bias, *sums, *levels;
} microtile_case;

static tconv_cpu_microkernel *find_microkernel(const cpu_kernel *kernel, int channels, int vectors)
{
    if (channels > TCONV_CPU_MAX_CHANNELS || vectors > TCONV_CPU_MAX_VECTORS)
        return NULL;
    return kernel->kernels->real[kernel->real == TCONV_F64].microkernels[channels][vectors];
}

/* A term reads so far from where a vector of positions begins. */
static int64_t term_offset(const microtile_case *microtile, int64_t term)
{
    const int64_t period = microtile->terms.period;
    return term / period * ROUND_STRIDE + microtile->offsets[term % period];
}

static int64_t call_terms(const microtile_terms *terms)
{
    return terms->call_terms > 0 ? terms->call_terms : terms->terms;
}

/* The calls need so many levels, of which one is for the result. */
static int64_t sums_levels(const microtile_terms *terms)
{
    int64_t calls = terms->terms > 0 ? tconv_ceil_div(terms->terms, call_terms(terms)) : 1;
    return tconv_max(1, tconv_cpu_cascade_levels(calls));
}

static int64_t segment_levels(const microtile_terms *terms)
{
    int64_t all = call_terms(terms), periods = all / terms->period;
    int64_t segments =
        periods * tconv_ceil_div(terms->period, terms->segment) + tconv_ceil_div(all % terms->period, terms->segment);
    return tconv_cpu_cascade_levels(segments);
}

/* Every level of the calls' cascade has rows that end with a vector that is nobody's. */
static void make_sums(microtile_case *microtile)
{
    const cpu_kernel *kernel = microtile->kernel;
    const int64_t rows = kernel->rows * sums_levels(&microtile->terms), width = kernel->vectors * kernel->lanes;
    microtile->sums_stride = width + kernel->lanes;
    microtile->sums = check_output("sums", kernel->real, rows * microtile->sums_stride - kernel->lanes, GUARD_AFTER);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++)
            check_want_anything(microtile->sums, row * microtile->sums_stride + i);
    microtile->levels =
        check_scratch("levels", kernel->real, segment_levels(&microtile->terms) * kernel->rows * width, GUARD_AFTER);
}

/* The strip and the weights end with what the last term reads, the sums with the last row's last vector. */
static void make_case(microtile_case *microtile, check_fill fill)
{
    const cpu_kernel *kernel = microtile->kernel;
    const microtile_terms *terms = &microtile->terms;
    int64_t last = 0;
    for (int64_t t = 0; t < terms->period; t++)
        microtile->offsets[t] = (int32_t)(5 * (t % 7) + t / 2);
    for (int64_t t = 0; t < terms->terms; t++)
        last = tconv_max(last, term_offset(microtile, t));
    for (int v = 0; v < kernel->vectors; v++)
        microtile->starts[v] = v * kernel->lanes + v % 2;
    const int64_t length = microtile->starts[kernel->vectors - 1] + last + kernel->lanes;
    microtile->strip = check_input("strip", kernel->real, length, GUARD_AFTER, fill);
    microtile->weights = check_input("weights", kernel->real, terms->terms * kernel->rows, GUARD_AFTER, fill);
    microtile->bias = check_input("bias", kernel->real, kernel->rows, GUARD_AFTER, fill);
    make_sums(microtile);
}

/* Sums all terms, in one call or several. */
static void call_microtile(const microtile_case *microtile)
{
    static const char nothing[64];
    static const int32_t ahead[MOST_SEGMENT];
    static const tconv_cpu_prefetch_piece runs[] = {{nothing, 1}, {nothing, 0}};
    const microtile_terms *terms = &microtile->terms;
    const int64_t size = (int64_t)harness_element_size(microtile->kernel->real), most = call_terms(terms);
    const int64_t rows = microtile->kernel->rows;
    tconv_cpu_microtile call = {.vectors = microtile->starts,
                                .period_stride = ROUND_STRIDE,
                                .segment = terms->segment,
                                .sums = microtile->sums->data,
                                .levels = microtile->levels->data,
                                .sums_stride = microtile->sums_stride,
                                .sums_level = rows * microtile->sums_stride,
                                .bias = microtile->bias->data,
                                .pieces = runs,
                                .line_offsets = ahead};
    for (int64_t begin = 0; !call.last; begin += most, call.calls_done++) {
        int64_t of_period = begin % terms->period;
        call.last = begin + most >= terms->terms;
        call.terms = call.last ? terms->terms - begin : most;
        call.strip = (const char *)microtile->strip->data + begin / terms->period * ROUND_STRIDE * size;
        call.offsets = microtile->offsets + of_period;
        call.period = terms->period - of_period;
        call.weights = (const char *)microtile->weights->data + begin * rows * size;
        find_microkernel(microtile->kernel, microtile->kernel->rows, microtile->kernel->vectors)(&call);
    }
}

/* Plain sums are wanted, off by at most so many roundings of the sum of magnitudes. */
static void want_sums(const microtile_case *microtile, double roundings)
{
    const cpu_kernel *kernel = microtile->kernel;
    for (int m = 0; m < kernel->rows; m++)
        for (int i = 0; i < kernel->vectors * kernel->lanes; i++) {
            const int64_t start = microtile->starts[i / kernel->lanes] + i % kernel->lanes;
            long double sum = check_get(microtile->bias, m), magnitude = fabsl(sum);
            for (int64_t t = 0; t < microtile->terms.terms; t++) {
                long double product = (long double)check_get(microtile->weights, t * kernel->rows + m) *
                                      check_get(microtile->strip, start + term_offset(microtile, t));
                sum += product;
                magnitude += fabsl(product);
            }
            check_want(microtile->sums, m * microtile->sums_stride + i, sum,
                       roundings * check_rounding(kernel->real) * (double)magnitude);
        }
}

/* Channels of a micro-tile share what they load, not what they sum: each position has the bits of a micro-tile of one channel and
 * one vector. */
static void check_bits(const microtile_case *microtile)
{
    const cpu_kernel *kernel = microtile->kernel;
    const size_t size = harness_element_size(kernel->real);
    const int m = kernel->rows - 1, v = kernel->vectors - 1;
    cpu_kernel small = *kernel;
    microtile_case one = *microtile;
    one.kernel = &small;
    small.rows = small.vectors = 1;
    one.starts[0] = microtile->starts[v];
    one.weights = check_scratch("weights of one channel", kernel->real, microtile->terms.terms, GUARD_AFTER);
    one.bias = check_scratch("bias of one channel", kernel->real, 1, GUARD_AFTER);
    for (int64_t t = 0; t < microtile->terms.terms; t++)
        harness_element_set(kernel->real, one.weights->data, t, check_get(microtile->weights, t * kernel->rows + m));
    harness_element_set(kernel->real, one.bias->data, 0, check_get(microtile->bias, m));
    make_sums(&one);
    call_microtile(&one);
    const char *sums =
        (const char *)microtile->sums->data + (size_t)(m * microtile->sums_stride + v * kernel->lanes) * size;
    if (memcmp(one.sums->data, sums, (size_t)kernel->lanes * size) != 0)
        check_fail("channel %d of vector %d has other bits in a microtile of its own", m, v);
}

static void check_terms(const cpu_kernel *kernel, const microtile_terms *terms, size_t count, check_fill fill)
{
    static const char *const fills[] = {"integers", "reals", "numbers that are alike"};
    for (size_t i = 0; i < count; i++) {
        microtile_case microtile = {.kernel = kernel, .terms = terms[i]};
        check_case("%d terms in periods of %d and segments of %d, %d a call, %s", (int)terms[i].terms,
                   (int)terms[i].period, (int)terms[i].segment, (int)call_terms(&terms[i]), fills[fill]);
        make_case(&microtile, fill);
        call_microtile(&microtile);
        want_sums(&microtile, fill == CHECK_INTEGERS ? 0 : CHECK_SUM_ROUNDINGS);
        check_outputs();
        if (fill != CHECK_INTEGERS)
            check_bits(&microtile);
    }
}

static int most_vectors(const cpu_kernel *kernel, int channels)
{
    return kernel->kernels->real[kernel->real == TCONV_F64].max_vectors[channels];
}

/* Long sums take long: micro-tiles of the most vectors have them. */
static void check_microtile(const void *argument)
{
    const cpu_kernel *kernel = argument;
    check_case("there is a function");
    if (find_microkernel(kernel, kernel->rows, kernel->vectors) == NULL)
        check_fail("there is none, though microtiles go up to %d channels, and vectors to %d",
                   kernel->kernels->max_channels, most_vectors(kernel, kernel->rows));
    check_terms(kernel, short_terms, COUNT_OF(short_terms), CHECK_INTEGERS);
    check_terms(kernel, short_terms, COUNT_OF(short_terms), CHECK_REALS);
    if (kernel->vectors < most_vectors(kernel, kernel->rows))
        return;
    check_terms(kernel, long_terms, COUNT_OF(long_terms), CHECK_REALS);
    check_terms(kernel, long_terms, COUNT_OF(long_terms), CHECK_ALIKE);
}

static void call_case(const void *argument)
{
    call_microtile(argument);
}

/* What is timed has 3 x 3 taps of 32 channels, cut as for f32. */
static void bench_microtile(const void *argument)
{
    const cpu_kernel *kernel = argument;
    microtile_case microtile = {.kernel = kernel, .terms = {288, 288, 48, 0}};
    make_case(&microtile, CHECK_REALS);
    check_rate(call_case, &microtile, 2.0 * 288 * kernel->rows * kernel->vectors * kernel->lanes, "GFLOP/s",
               cpu_flops(kernel));
}

/* f16 and bf16 are summed by the micro-tiles of f32. */
static void visit(const cpu_kernel *dtype)
{
    static const check_entry entry = {"microtile", check_microtile, bench_microtile};
    cpu_kernel kernel = *dtype;
    for (kernel.rows = 1; dtype->dtype == dtype->real && kernel.rows <= kernel.kernels->max_channels; kernel.rows++) {
        kernel.vectors = 1;
        do
            check_kernel(&entry, &kernel, "cpu/%s/%s %s %dx%d", kernel.isa_name, entry.name,
                         harness_dtype_name(kernel.dtype), kernel.rows, kernel.vectors);
        while (++kernel.vectors <= most_vectors(&kernel, kernel.rows));
    }
}

void check_cpu_microtile(void)
{
    cpu_each_dtype(visit);
}
