/*
 * The microkernels of cpu_phases (tconv_cpu_tile): every tile of every instruction set, against a plain sum. The strip
 * and the weights end at a page that may not be touched, and so do the sums, with a vector between their rows that may
 * not be written.
 */
#include <math.h>
#include <string.h>

#include "../../src/core/checked.h"
#include "../../src/cpu/blocking.h"
#include "cpu.h"
#include "families.h"
#include "harness.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* These are the terms of a tile, and how they are cut. */
typedef struct tile_terms {
    int64_t terms, round_terms, segment;
    int64_t call_terms; /* of each call but the last: whole rounds, or parts of the only one; 0: one call */
} tile_terms;

static const tile_terms short_terms[] = {
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
static const tile_terms long_terms[] = {
    {4000, 4000, 48, 0},
    {9 * 480, 480, 48, 0},
    {3168, 3168, 48, 3024},
    {700 * 9, 144, 48, 6300 - 108},
};

/* No round and no segment above has more terms. */
enum { MOST_ROUND_TERMS = 4000, MOST_SEGMENT = 70 };

/* The next round of the strip is neither a vector nor a power of two away. */
enum { ROUND_STRIDE = 11 };

typedef struct tile_case {
    const cpu_kernel *kernel;
    tile_terms terms;
    int64_t sums_stride; /* room for a vector behind each row */
    int32_t starts[TCONV_CPU_MAX_VECTORS], offsets[MOST_ROUND_TERMS];
    check_buffer *strip, *weights, *bias, *sums, *levels;
} tile_case;

static tconv_cpu_tile_function *find_tile(const cpu_kernel *kernel, int channels, int vectors)
{
    if (channels > TCONV_CPU_MAX_CHANNELS || vectors > TCONV_CPU_MAX_VECTORS)
        return NULL;
    return kernel->kernels->real[kernel->real == TCONV_F64].tiles[channels][vectors];
}

/* A term reads so far from where a vector of positions begins. */
static int64_t term_offset(const tile_case *tile, int64_t term)
{
    const int64_t round_terms = tile->terms.round_terms;
    return term / round_terms * ROUND_STRIDE + tile->offsets[term % round_terms];
}

static int64_t call_terms(const tile_terms *terms)
{
    return terms->call_terms > 0 ? terms->call_terms : terms->terms;
}

/* The calls need so many levels, of which one is for the result. */
static int64_t sums_levels(const tile_terms *terms)
{
    int64_t calls = terms->terms > 0 ? tconv_ceil_div(terms->terms, call_terms(terms)) : 1;
    return tconv_max(1, tconv_cpu_cascade_levels(calls));
}

static int64_t segment_levels(const tile_terms *terms)
{
    int64_t all = call_terms(terms), rounds = all / terms->round_terms;
    int64_t segments = rounds * tconv_ceil_div(terms->round_terms, terms->segment) +
                       tconv_ceil_div(all % terms->round_terms, terms->segment);
    return tconv_cpu_cascade_levels(segments);
}

/* Every level of the calls' cascade has rows that end with a vector that is nobody's. */
static void make_sums(tile_case *tile)
{
    const cpu_kernel *kernel = tile->kernel;
    const int64_t rows = kernel->rows * sums_levels(&tile->terms), width = kernel->vectors * kernel->lanes;
    tile->sums_stride = width + kernel->lanes;
    tile->sums = check_output("sums", kernel->real, rows * tile->sums_stride - kernel->lanes, GUARD_AFTER);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++)
            check_want_anything(tile->sums, row * tile->sums_stride + i);
    tile->levels =
        check_scratch("levels", kernel->real, segment_levels(&tile->terms) * kernel->rows * width, GUARD_AFTER);
}

/* The strip and the weights end with what the last term reads, the sums with the last row's last vector. */
static void make_case(tile_case *tile, check_fill fill)
{
    const cpu_kernel *kernel = tile->kernel;
    const tile_terms *terms = &tile->terms;
    int64_t last = 0;
    for (int64_t t = 0; t < terms->round_terms; t++)
        tile->offsets[t] = (int32_t)(5 * (t % 7) + t / 2);
    for (int64_t t = 0; t < terms->terms; t++)
        last = tconv_max(last, term_offset(tile, t));
    for (int v = 0; v < kernel->vectors; v++)
        tile->starts[v] = v * kernel->lanes + v % 2;
    const int64_t length = tile->starts[kernel->vectors - 1] + last + kernel->lanes;
    tile->strip = check_input("strip", kernel->real, length, GUARD_AFTER, fill);
    tile->weights = check_input("weights", kernel->real, terms->terms * kernel->rows, GUARD_AFTER, fill);
    tile->bias = check_input("bias", kernel->real, kernel->rows, GUARD_AFTER, fill);
    make_sums(tile);
}

/* Sums all terms, in one call or several. */
static void call_tile(const tile_case *tile)
{
    static const char nothing[64];
    static const int32_t ahead[MOST_SEGMENT];
    static const tconv_cpu_run runs[] = {{nothing, 1}, {nothing, 0}};
    const tile_terms *terms = &tile->terms;
    const int64_t size = (int64_t)harness_element_size(tile->kernel->real), most = call_terms(terms);
    const int64_t rows = tile->kernel->rows;
    tconv_cpu_tile call = {.vectors = tile->starts,
                           .round_stride = ROUND_STRIDE,
                           .segment = terms->segment,
                           .sums = tile->sums->data,
                           .levels = tile->levels->data,
                           .sums_stride = tile->sums_stride,
                           .sums_level = rows * tile->sums_stride,
                           .bias = tile->bias->data,
                           .runs = runs,
                           .ahead = ahead};
    for (int64_t begin = 0; !call.last; begin += most, call.calls_done++) {
        int64_t of_round = begin % terms->round_terms;
        call.last = begin + most >= terms->terms;
        call.terms = call.last ? terms->terms - begin : most;
        call.strip = (const char *)tile->strip->data + begin / terms->round_terms * ROUND_STRIDE * size;
        call.offsets = tile->offsets + of_round;
        call.round_terms = terms->round_terms - of_round;
        call.weights = (const char *)tile->weights->data + begin * rows * size;
        find_tile(tile->kernel, tile->kernel->rows, tile->kernel->vectors)(&call);
    }
}

/* Plain sums are wanted, off by at most so many roundings of the sum of magnitudes. */
static void want_sums(const tile_case *tile, double roundings)
{
    const cpu_kernel *kernel = tile->kernel;
    for (int m = 0; m < kernel->rows; m++)
        for (int i = 0; i < kernel->vectors * kernel->lanes; i++) {
            const int64_t start = tile->starts[i / kernel->lanes] + i % kernel->lanes;
            long double sum = check_get(tile->bias, m), magnitude = fabsl(sum);
            for (int64_t t = 0; t < tile->terms.terms; t++) {
                long double product = (long double)check_get(tile->weights, t * kernel->rows + m) *
                                      check_get(tile->strip, start + term_offset(tile, t));
                sum += product;
                magnitude += fabsl(product);
            }
            check_want(tile->sums, m * tile->sums_stride + i, sum,
                       roundings * check_rounding(kernel->real) * (double)magnitude);
        }
}

/* Channels of a tile share what they load, not what they sum: each position has the bits of a tile of one channel and
 * one vector. */
static void check_bits(const tile_case *tile)
{
    const cpu_kernel *kernel = tile->kernel;
    const size_t size = harness_element_size(kernel->real);
    const int m = kernel->rows - 1, v = kernel->vectors - 1;
    cpu_kernel small = *kernel;
    tile_case one = *tile;
    one.kernel = &small;
    small.rows = small.vectors = 1;
    one.starts[0] = tile->starts[v];
    one.weights = check_scratch("weights of one channel", kernel->real, tile->terms.terms, GUARD_AFTER);
    one.bias = check_scratch("bias of one channel", kernel->real, 1, GUARD_AFTER);
    for (int64_t t = 0; t < tile->terms.terms; t++)
        harness_element_set(kernel->real, one.weights->data, t, check_get(tile->weights, t * kernel->rows + m));
    harness_element_set(kernel->real, one.bias->data, 0, check_get(tile->bias, m));
    make_sums(&one);
    call_tile(&one);
    const char *sums = (const char *)tile->sums->data + (size_t)(m * tile->sums_stride + v * kernel->lanes) * size;
    if (memcmp(one.sums->data, sums, (size_t)kernel->lanes * size) != 0)
        check_fail("channel %d of vector %d has other bits in a tile of its own", m, v);
}

static void check_terms(const cpu_kernel *kernel, const tile_terms *terms, size_t count, check_fill fill)
{
    static const char *const fills[] = {"integers", "reals", "numbers that are alike"};
    for (size_t i = 0; i < count; i++) {
        tile_case tile = {.kernel = kernel, .terms = terms[i]};
        check_case("%d terms in rounds of %d and segments of %d, %d a call, %s", (int)terms[i].terms,
                   (int)terms[i].round_terms, (int)terms[i].segment, (int)call_terms(&terms[i]), fills[fill]);
        make_case(&tile, fill);
        call_tile(&tile);
        want_sums(&tile, fill == CHECK_INTEGERS ? 0 : CHECK_SUM_ROUNDINGS);
        check_outputs();
        if (fill != CHECK_INTEGERS)
            check_bits(&tile);
    }
}

static int most_vectors(const cpu_kernel *kernel, int channels)
{
    return kernel->kernels->real[kernel->real == TCONV_F64].max_vectors[channels];
}

/* Long sums take long: tiles of the most vectors have them. */
static void check_tile(const void *argument)
{
    const cpu_kernel *kernel = argument;
    check_case("there is a function");
    if (find_tile(kernel, kernel->rows, kernel->vectors) == NULL)
        check_fail("there is none, though tiles go up to %d channels, and vectors to %d", kernel->kernels->max_channels,
                   most_vectors(kernel, kernel->rows));
    check_terms(kernel, short_terms, COUNT_OF(short_terms), CHECK_INTEGERS);
    check_terms(kernel, short_terms, COUNT_OF(short_terms), CHECK_REALS);
    if (kernel->vectors < most_vectors(kernel, kernel->rows))
        return;
    check_terms(kernel, long_terms, COUNT_OF(long_terms), CHECK_REALS);
    check_terms(kernel, long_terms, COUNT_OF(long_terms), CHECK_ALIKE);
}

static void call_case(const void *argument)
{
    call_tile(argument);
}

/* What is timed has 3 x 3 taps of 32 channels, cut as for f32. */
static void bench_tile(const void *argument)
{
    const cpu_kernel *kernel = argument;
    tile_case tile = {.kernel = kernel, .terms = {288, 288, 48, 0}};
    make_case(&tile, CHECK_REALS);
    check_rate(call_case, &tile, 2.0 * 288 * kernel->rows * kernel->vectors * kernel->lanes, "GFLOP/s",
               cpu_flops(kernel));
}

/* f16 and bf16 are summed by the tiles of f32. */
static void visit(const cpu_kernel *dtype)
{
    static const check_entry entry = {"tile", check_tile, bench_tile};
    cpu_kernel kernel = *dtype;
    for (kernel.rows = 1; dtype->dtype == dtype->real && kernel.rows <= kernel.kernels->max_channels; kernel.rows++) {
        kernel.vectors = 1;
        do
            check_kernel(&entry, &kernel, "cpu/%s/%s %s %dx%d", kernel.isa_name, entry.name,
                         harness_dtype_name(kernel.dtype), kernel.rows, kernel.vectors);
        while (++kernel.vectors <= most_vectors(&kernel, kernel.rows));
    }
}

void check_cpu_tile(void)
{
    cpu_each_dtype(visit);
}
