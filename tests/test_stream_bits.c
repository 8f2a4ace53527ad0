/*
 * The bits of a stream where a plan says chunk_invariant=yes: whatever the chunks, the images of a step, their slots, the
 * threads and the instruction set's kernels for few and many pixels, they are those of one step of everything. NaN and Inf
 * stay in the outputs that they reach.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expect.h"
#include "support/streams.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { MOST_STREAMS = 6, LAYERS = 12, CHUNKINGS = 5 };

static tconv_issue issue;

/* Runs the streams apart, in an order drawn at random: each step has some of them, in any slots, each as far as it is. */
static void run_mixed(struct stream_runner *runner, harness_random *random, int64_t most)
{
    const struct streams *streams = runner->streams;
    int64_t ended = 0;
    int32_t slot_of[MOST_STREAMS];
    uint8_t begun[MOST_STREAMS] = {0}, flushed[MOST_STREAMS] = {0};
    for (int64_t i = 0; i < streams->count; i++)
        slot_of[i] = (int32_t)(runner->slot_count - 1 - i);
    while (ended < streams->count) {
        int64_t which[MOST_STREAMS], images = 0, length = harness_random_integer(random, 1, most);
        int32_t slots[MOST_STREAMS];
        uint8_t reset[MOST_STREAMS];
        bool flushes = false;
        for (int64_t i = 0; i < streams->count && images < streams->desc.batch; i++) {
            const int64_t left = streams->total - runner->position[i];
            if (flushed[i] || (images > 0 && (flushes != (left == 0) || harness_random_chance(random, 40))))
                continue;
            flushes = left == 0;
            length = left > 0 && left < length ? left : length;
            which[images] = i, slots[images] = slot_of[i], reset[images] = !begun[i];
            begun[i] = 1;
            images++;
        }
        const struct stream_call call = {images, length, which, slots, reset, NULL};
        for (int64_t image = 0; image < images && flushes; image++, ended++)
            flushed[which[image]] = 1;
        if (flushes)
            stream_flush(runner, &call);
        else
            stream_step(runner, &call);
    }
}

/* Fails the test unless both have the same outputs. */
static void expect_same(const struct stream_runner *a, const struct stream_runner *b, const char *what)
{
    const int64_t count = a->streams->whole.dst_extent;
    for (int64_t i = 0; i < count; i++)
        cr_assert(a->results[i] == b->results[i] || (isnan(a->results[i]) && isnan(b->results[i])),
                  "%s: output %lld is %.17g, and %.17g in one step", what, (long long)i, b->results[i], a->results[i]);
}

static bool is_chunk_invariant(const tconv_plan *plan)
{
    char text[4096];
    expect_success(tconv_plan_describe(plan, text, sizeof text, NULL), issue);
    return strstr(text, "chunk_invariant=yes") != NULL;
}

/* Compares runs of the streams cut at random with one step of everything. Returns whether the plan promises the bits. */
static bool check_bits(const struct streams *streams, const tconv_options *options, harness_random *random)
{
    const int64_t most = streams->desc.stream_axis == 1 ? streams->desc.in_h : streams->desc.in_w;
    struct stream_runner whole, cut;
    if (!stream_runner_begin(&whole, streams, options, streams->count, false))
        return false;
    const bool promised = is_chunk_invariant(whole.plan);
    if (promised)
        stream_run_all(&whole, &streams->total, 1);
    for (int i = 0; i < CHUNKINGS && promised; i++) {
        tconv_options other = *options;
        char what[64];
        snprintf(what, sizeof what, "chunking %d", i);
        if (options->backend == TCONV_BACKEND_CPU)
            use_threads(&other, 1 + i % 4);
        cr_assert(stream_runner_begin(&cut, streams, &other, streams->count + i, false));
        run_mixed(&cut, random, i == 0 ? 1 : most);
        expect_same(&whole, &cut, what);
        stream_runner_end(&cut);
    }
    stream_runner_end(&whole);
    return promised;
}

/* Layers that are long enough to be cut into tiles of pixels in several ways. */
static tconv_desc long_stream(harness_random *random)
{
    tconv_desc desc = stream_random_desc(random);
    memset(desc.src_strides, 0, sizeof desc.src_strides);
    memset(desc.dst_strides, 0, sizeof desc.dst_strides);
    *(desc.stream_axis == 1 ? &desc.in_h : &desc.in_w) = 40;
    desc.batch = harness_random_integer(random, 1, MOST_STREAMS);
    return desc;
}

/* Layers of one row that kernels for few columns cut into strips: a step may have one strip, or several. */
static tconv_desc wide_stream(harness_random *random)
{
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F16, TCONV_BF16};
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.stream_axis = 2, desc.in_h = desc.kernel_h = 1, desc.in_w = 150;
    desc.dtype = dtypes[harness_random_integer(random, 0, 2)];
    desc.layout = (tconv_layout)harness_random_integer(random, 0, 1);
    desc.groups = harness_random_integer(random, 1, 2);
    desc.in_channels = desc.groups * harness_random_integer(random, 8, 40);
    desc.out_channels = desc.groups * harness_random_integer(random, 1, 9);
    desc.kernel_w = harness_random_integer(random, 1, 16);
    desc.stride_w = harness_random_integer(random, 1, 6);
    desc.dilation_w = harness_random_integer(random, 1, 2);
    desc.batch = harness_random_integer(random, 1, 3);
    return desc;
}

static void check_promises(const struct way *way, size_t *promised)
{
    const tconv_options options = way_options(way);
    harness_random random;
    for (uint64_t i = 0; i < LAYERS; i++) {
        harness_random_seed(&random, 40 + i);
        const bool wide = i % 3 == 0;
        tconv_desc desc = wide ? wide_stream(&random) : long_stream(&random);
        desc.math = way->math;
        struct streams streams = streams_make(&desc, desc.batch, wide ? desc.in_w : 40, true, 0, i);
        *promised += check_bits(&streams, &options, &random);
        streams_release(&streams);
    }
}

static void check_backend(tconv_backend backend)
{
    struct way ways[MAX_WAYS];
    const size_t count = list_ways(backend, ways);
    size_t promised = 0, all = 0;
    for (size_t i = 0; i < count; i++, all += promised, promised = 0) {
        check_promises(&ways[i], &promised);
        if (promised > 0)
            fprintf(stderr, "%s: %zu of %d streams promise their bits\n", ways[i].text, promised, LAYERS);
    }
    cr_assert_gt(all, 0, "no implementation promises anything");
}

Test(stream_bits, no_cut_changes_a_bit)
{
    check_backend(TCONV_BACKEND_CPU);
}

Test(stream_bits_cuda, no_cut_changes_a_bit)
{
    skip_without_cuda();
    check_backend(TCONV_BACKEND_CUDA);
}

/* The carry of a layer that is not rounded in it has the sums of the one call, so that bits are those of f32. */
Test(stream_bits, a_carry_of_16_bits_promises_nothing)
{
    harness_random random;
    harness_random_seed(&random, 1);
    tconv_desc desc = long_stream(&random);
    desc.dtype = desc.carry_dtype = TCONV_BF16;
    struct streams streams = streams_make(&desc, desc.batch, 40, true, 0, 1);
    tconv_options options;
    struct stream_runner runner;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    cr_assert(stream_runner_begin(&runner, &streams, &options, desc.batch, false));
    cr_assert(!is_chunk_invariant(runner.plan));
    stream_runner_end(&runner);
    streams_release(&streams);
}

/* On the CPU a NaN or Inf of an input reaches the outputs of its frame that its taps reach, and no other. */
Test(stream_bits, specials_stay_in_their_columns)
{
    static const double specials[] = {NAN, INFINITY};
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    for (size_t s = 0; s < COUNT(specials); s++) {
        tconv_desc desc;
        int64_t length = 3;
        struct stream_runner runner;
        tconv_desc_init(&desc);
        desc.stream_axis = 2, desc.in_channels = 17, desc.in_h = 1, desc.in_w = 3;
        desc.out_channels = 3, desc.kernel_h = 1, desc.kernel_w = 7, desc.stride_w = 3;
        struct streams streams = streams_make(&desc, 1, 11, false, 3, s);
        streams.src[4 * 11 + 5] = specials[s]; /* channel 4, input 5: columns 15 to 21 */
        cr_assert(stream_runner_begin(&runner, &streams, &options, 1, false));
        stream_run_all(&runner, &length, 1);
        for (int64_t i = 0; i < streams.whole.dst_extent; i++) {
            const int64_t column = i % streams.whole.w.out;
            if (column < 15 || column > 21)
                cr_assert_eq(runner.results[i], streams.expected[i], "column %lld", (long long)column);
            else if (streams.weights[(4 * 3 + i / streams.whole.w.out) * 7 + column - 15] != 0 || isnan(specials[s]))
                cr_assert(!isfinite(runner.results[i]), "column %lld", (long long)column);
        }
        stream_runner_end(&runner);
        streams_release(&streams);
    }
}
