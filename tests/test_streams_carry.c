/*
 * Streams against one call of the reference in double: random layers cut at random, in every dtype and layout and along
 * either axis; exactly on integers, in bounds on reals; layers of codecs; and the mistakes of hand-written streams, by name.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expect.h"
#include "support/streams.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static tconv_options options_of(tconv_backend backend)
{
    tconv_options options;
    tconv_options_init(&options);
    options.backend = backend;
    return options;
}

/* Runs the streams of a layer in chunks of these lengths and judges what they give. */
static void check(const struct streams *streams, tconv_backend backend, const int64_t *lengths, size_t count,
                  bool packed, bool exact, const char *what)
{
    const tconv_options options = options_of(backend);
    struct stream_runner runner;
    cr_assert(stream_runner_begin(&runner, streams, &options, streams->count, packed));
    stream_run_all(&runner, lengths, count);
    stream_expect_results(&runner, exact, what);
    stream_runner_end(&runner);
}

/* -------------------------------------------------------------------------------------------------------- random cuts */

enum { LAYERS = 400, LENGTHS = 7 };

static void check_random(tconv_backend backend, int layers, int most, uint64_t seed)
{
    harness_random random;
    for (int i = 0; i < layers; i++) {
        char what[32];
        int64_t lengths[LENGTHS];
        harness_random_seed(&random, seed + (uint64_t)i);
        const tconv_desc desc = stream_random_desc(&random);
        stream_random_lengths(&random, desc.stream_axis == 1 ? desc.in_h : desc.in_w, lengths, LENGTHS);
        struct streams streams = streams_make(&desc, desc.batch, harness_random_integer(&random, 1, 40),
                                              harness_random_chance(&random, 70), most, seed + (uint64_t)i);
        snprintf(what, sizeof what, "layer %d", i);
        check(&streams, backend, lengths, LENGTHS, harness_random_chance(&random, 30), most > 0, what);
        streams_release(&streams);
    }
}

Test(streams_carry, integers_are_exact)
{
    check_random(TCONV_BACKEND_CPU, LAYERS, 3, 100);
}

Test(streams_carry, reals_are_in_bounds)
{
    check_random(TCONV_BACKEND_CPU, LAYERS, 0, 5000);
}

Test(streams_carry_cuda, integers_are_exact)
{
    skip_without_cuda();
    check_random(TCONV_BACKEND_CUDA, LAYERS, 3, 100);
}

Test(streams_carry_cuda, reals_are_in_bounds)
{
    skip_without_cuda();
    check_random(TCONV_BACKEND_CUDA, LAYERS, 0, 5000);
}
