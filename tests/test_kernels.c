/*
 * Every microkernel of every instruction set that this machine has is called by itself and compared with a plain loop.
 * The strip and the weights end at a page that may not be touched, and so do the sums, with marks between their rows.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/cpu/blocking.h"
#include "harness.h"
#include "support/levels.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* The terms of a micro-tile, and how they are cut. */
typedef struct microtile_terms {
    int64_t terms, period, segment;
    int64_t call_terms; /* of each call but the last: whole periods, or parts of the only one; 0: one call */
} microtile_terms;

static const microtile_terms exact_terms[] = {
    {0, 1, 48, 0}, /* nothing but the bias */
    {1, 1, 48, 0},
    {47, 47, 48, 0},
    {48, 48, 48, 0},
    {49, 49, 48, 0},
    {128, 128, 64, 64},
    {129, 129, 64, 128},
    {150, 150, 70, 70},
    /* Periods that are shorter than a segment, as long, longer, and not all there. */
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

/* Long sums, cut as for f32. */
static const microtile_terms long_terms[] = {
    {4000, 4000, 48, 0},
    {9 * 480, 480, 48, 0},
    {3168, 3168, 48, 3024},
    {700 * 9, 144, 48, 6300 - 108},
};

/* The most terms of a period, and of a segment, above. */
enum { MAX_PERIOD = 4000, MAX_SEGMENT = 70 };

typedef enum value_fill { FILL_INTEGERS, FILL_REALS, FILL_ALIKE } value_fill;

typedef struct microtile_test {
    char where[128];
    tconv_dtype real;
    int lanes, channels, vectors;
    tconv_cpu_microkernel *function;
    microtile_terms terms;
    int64_t sums_stride; /* room for a vector of marks after each row */
    int32_t starts[TCONV_CPU_MAX_VECTORS], offsets[MAX_PERIOD];
    struct guarded strip, weights, sums, levels;
    char bias[TCONV_CPU_MAX_CHANNELS * sizeof(double)];
} microtile_test;

/* The distance from one period to the next in the strip: neither a vector nor a power of two. */
#define PERIOD_STRIDE 11

/* What a term reads, from where a vector of positions begins. */
static int64_t term_offset(const microtile_test *test, int64_t term)
{
    const int64_t period = test->terms.period;
    return term / period * PERIOD_STRIDE + test->offsets[term % period];
}

static double fill_value(value_fill fill, harness_random *random)
{
    return fill == FILL_INTEGERS ? (double)harness_random_integer(random, -4, 4)
           : fill == FILL_REALS  ? harness_random_real(random)
                                 : 0.1;
}

static struct guarded make_values(tconv_dtype real, int64_t count, value_fill fill, harness_random *random)
{
    struct guarded made = guard_allocate((size_t)count * harness_element_size(real), GUARD_AFTER);
    for (int64_t i = 0; i < count; i++)
        harness_element_set(real, made.data, i, fill_value(fill, random));
    return made;
}

static int64_t call_terms(const microtile_terms *terms)
{
    return terms->call_terms > 0 ? terms->call_terms : terms->terms;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* What tconv_cpu_cascade_levels says of the calls, and of the segments of one. */
static int64_t sums_levels(const microtile_terms *terms)
{
    int64_t calls = terms->terms > 0 ? ceil_div(terms->terms, call_terms(terms)) : 1;
    return calls > 1 ? tconv_cpu_cascade_levels(calls) : 1;
}

static int64_t segment_levels(const microtile_terms *terms)
{
    int64_t all = call_terms(terms), periods = all / terms->period;
    return tconv_cpu_cascade_levels(periods * ceil_div(terms->period, terms->segment) +
                                    ceil_div(all % terms->period, terms->segment));
}

/* Sums and levels, marks beside the rows of sums, and NaN where nothing was written yet; each ends where it must. */
static void make_sums(microtile_test *test)
{
    const int64_t rows = test->channels * sums_levels(&test->terms), width = test->vectors * test->lanes;
    test->sums_stride = width + test->lanes;
    test->sums = level_make_elements(test->real, rows * test->sums_stride - test->lanes, LEVEL_MARK, GUARD_AFTER);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++)
            harness_element_set(test->real, test->sums.data, row * test->sums_stride + i, NAN);
    test->levels =
        level_make_elements(test->real, segment_levels(&test->terms) * test->channels * width, NAN, GUARD_AFTER);
}

/* The strip and the weights end with what the last term reads, the sums with the last row's last vector. */
static void make_microtile(microtile_test *test, value_fill fill)
{
    const microtile_terms *terms = &test->terms;
    int64_t last = 0;
    harness_random random;
    harness_random_seed(&random, (uint64_t)(terms->terms * 1000 + terms->segment));
    for (int64_t t = 0; t < terms->period; t++)
        test->offsets[t] = (int32_t)(5 * (t % 7) + t / 2);
    for (int64_t t = 0; t < terms->terms; t++)
        last = term_offset(test, t) > last ? term_offset(test, t) : last;
    for (int v = 0; v < test->vectors; v++)
        test->starts[v] = v * test->lanes + v % 2;
    test->strip = make_values(test->real, test->starts[test->vectors - 1] + last + test->lanes, fill, &random);
    test->weights = make_values(test->real, terms->terms * test->channels, fill, &random);
    for (int m = 0; m < test->channels; m++)
        harness_element_set(test->real, test->bias, m, fill_value(fill, &random));
    make_sums(test);
}

static void release_microtile(microtile_test *test)
{
    guard_release(&test->strip);
    guard_release(&test->weights);
    guard_release(&test->sums);
    guard_release(&test->levels);
}

/* All terms, in one call or several. */
static void call_microkernel(const microtile_test *test)
{
    static const char nothing[64];
    static const int32_t line_offsets[MAX_SEGMENT];
    const tconv_cpu_prefetch_piece pieces[] = {{nothing, 1}, {nothing, 0}};
    const microtile_terms *terms = &test->terms;
    const int64_t size = (int64_t)harness_element_size(test->real), most = call_terms(terms);
    tconv_cpu_microtile microtile = {.vectors = test->starts,
                                     .period_stride = PERIOD_STRIDE,
                                     .segment = terms->segment,
                                     .sums = test->sums.data,
                                     .levels = test->levels.data,
                                     .sums_stride = test->sums_stride,
                                     .sums_level = test->channels * test->sums_stride,
                                     .bias = test->bias,
                                     .pieces = pieces,
                                     .line_offsets = line_offsets};
    for (int64_t begin = 0; !microtile.last; begin += most, microtile.calls_done++) {
        int64_t in_period = begin % terms->period;
        microtile.last = begin + most >= terms->terms;
        microtile.terms = microtile.last ? terms->terms - begin : most;
        microtile.strip = (const char *)test->strip.data + begin / terms->period * PERIOD_STRIDE * size;
        microtile.offsets = test->offsets + in_period;
        microtile.period = terms->period - in_period;
        microtile.weights = (const char *)test->weights.data + begin * test->channels * size;
        test->function(&microtile);
    }
}

/* The sum of a channel at a lane of a vector, and the sum of magnitudes. */
static long double plain_sum(const microtile_test *test, int m, int v, int lane, long double *magnitude)
{
    long double sum = harness_element_get(test->real, test->bias, m);
    *magnitude = fabsl(sum);
    for (int64_t t = 0; t < test->terms.terms; t++) {
        int64_t at = test->starts[v] + term_offset(test, t) + lane;
        long double product = (long double)harness_element_get(test->real, test->weights.data, t * test->channels + m) *
                              harness_element_get(test->real, test->strip.data, at);
        sum += product;
        *magnitude += fabsl(product);
    }
    return sum;
}

/* units: of roundings of the sum of magnitudes that a sum may be off by. */
static void check_microtile(const microtile_test *test, double units)
{
    const double rounding = test->real == TCONV_F64 ? 0x1p-53 : 0x1p-24;
    for (int m = 0; m < test->channels; m++)
        for (int i = 0; i < test->vectors * test->lanes; i++) {
            long double magnitude, expected = plain_sum(test, m, i / test->lanes, i % test->lanes, &magnitude);
            double got = harness_element_get(test->real, test->sums.data, m * test->sums_stride + i);
            if (!(fabsl(got - expected) <= units * rounding * magnitude))
                cr_assert_fail("%s: channel %d position %d is %.17g, not %.17Lg", test->where, m, i, got, expected);
        }
    for (int64_t row = 0; row < test->channels * sums_levels(&test->terms) - 1; row++)
        for (int64_t i = test->vectors * test->lanes; i < test->sums_stride; i++)
            if (harness_element_get(test->real, test->sums.data, row * test->sums_stride + i) != LEVEL_MARK)
                cr_assert_fail("%s: something was written beside row %d of the sums", test->where, (int)row);
}

/* The channels of a micro-tile share what they load, not what they sum: each position has the bits of a micro-tile of
 * one channel and one vector. */
static void check_bits(microtile_test *test, const struct level *level)
{
    const size_t size = harness_element_size(test->real);
    microtile_test one = *test;
    one.channels = one.vectors = 1;
    one.function = level->kernels->real[test->real == TCONV_F64].microkernels[1][1];
    const int m = test->channels - 1, v = test->vectors - 1;
    const int64_t terms = test->terms.terms;
    one.starts[0] = test->starts[v];
    one.weights = guard_allocate((size_t)terms * size, GUARD_AFTER);
    for (int64_t i = 0; i < terms; i++)
        memcpy((char *)one.weights.data + (size_t)i * size,
               (const char *)test->weights.data + (size_t)(i * test->channels + m) * size, size);
    memmove(one.bias, one.bias + (size_t)m * size, size);
    make_sums(&one);
    call_microkernel(&one);
    cr_assert(memcmp(one.sums.data,
                     (const char *)test->sums.data + (size_t)(m * test->sums_stride + v * test->lanes) * size,
                     (size_t)test->lanes * size) == 0,
              "%s: channel %d of vector %d has other bits in a micro-tile of its own", test->where, m, v);
    guard_release(&one.weights);
    guard_release(&one.sums);
    guard_release(&one.levels);
}

static void test_microkernel(const struct level *level, tconv_dtype real, int channels, int vectors,
                             const microtile_terms *terms, value_fill fill)
{
    microtile_test test = {.real = real,
                           .lanes = level_lanes(level, real),
                           .channels = channels,
                           .vectors = vectors,
                           .function = level->kernels->real[real == TCONV_F64].microkernels[channels][vectors],
                           .terms = *terms};
    snprintf(test.where, sizeof test.where,
             "%s %s micro-tile %d x %d, %d terms in periods of %d and segments of %d, %d a call", level->name,
             harness_dtype_name(real), channels, vectors, (int)terms->terms, (int)terms->period, (int)terms->segment,
             (int)call_terms(terms));
    make_microtile(&test, fill);
    call_microkernel(&test);
    check_microtile(&test, fill == FILL_INTEGERS ? 0 : 16);
    if (fill != FILL_INTEGERS)
        check_bits(&test, level);
    release_microtile(&test);
}

/* Calls test_microkernel for each micro-tile that a level of this machine has. few: only those of the most vectors. */
static void test_microkernels(const microtile_terms *terms, int count, value_fill fill, bool few)
{
    struct level levels[MAX_LEVELS];
    int level_count = list_levels(levels), tested = 0;
    for (int l = 0; l < level_count; l++)
        for (int real = 0; real < 2; real++)
            for (int channels = 1; channels <= levels[l].kernels->max_channels; channels++) {
                int most = levels[l].kernels->real[real].max_vectors[channels];
                for (int vectors = few ? most : 1; vectors <= most; vectors++, tested++)
                    for (int t = 0; t < count; t++)
                        test_microkernel(&levels[l], real ? TCONV_F64 : TCONV_F32, channels, vectors, &terms[t], fill);
            }
    cr_assert_gt(tested, 0);
}

Test(kernels, microkernels_are_exact_on_integers)
{
    test_microkernels(exact_terms, COUNT_OF(exact_terms), FILL_INTEGERS, false);
}

Test(kernels, microkernels_are_in_bounds_on_reals)
{
    test_microkernels(exact_terms, COUNT_OF(exact_terms), FILL_REALS, false);
    test_microkernels(long_terms, COUNT_OF(long_terms), FILL_REALS, true);
}

/* Terms that are alike round alike: the errors of a sum that only grows add up. */
Test(kernels, microkernels_are_in_bounds_on_sums_that_only_grow)
{
    test_microkernels(long_terms, COUNT_OF(long_terms), FILL_ALIKE, true);
}

Test(kernels, microkernels_are_there_for_each_count_of_channels)
{
    struct level levels[MAX_LEVELS];
    for (int l = list_levels(levels) - 1; l >= 0; l--) {
        const tconv_cpu_kernels *kernels = levels[l].kernels;
        cr_assert_leq(kernels->max_channels, TCONV_CPU_MAX_CHANNELS);
        for (int real = 0; real < 2; real++)
            for (int channels = 1; channels <= kernels->max_channels; channels++) {
                int most = kernels->real[real].max_vectors[channels];
                cr_assert(most >= 1 && most <= TCONV_CPU_MAX_VECTORS, "%s: %d vectors", levels[l].name, most);
                for (int vectors = 1; vectors <= most; vectors++)
                    cr_assert(kernels->real[real].microkernels[channels][vectors] != NULL, "%s: no micro-tile %d x %d",
                              levels[l].name, channels, vectors);
            }
    }
}
