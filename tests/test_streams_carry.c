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

struct check {
    const struct streams *streams;
    const int64_t *lengths;
    size_t count;
    bool packed, exact;
    const char *what;
};

static void run_check(const tconv_options *options, void *data)
{
    const struct check *check = data;
    struct stream_runner runner;
    cr_assert(stream_runner_begin(&runner, check->streams, options, check->streams->count, check->packed));
    stream_run_all(&runner, check->lengths, check->count);
    stream_expect_results(&runner, check->exact, check->what);
    stream_runner_end(&runner);
}

/* Runs the streams of a layer in chunks of these lengths, by each implementation, and judges what they give. */
static void check(const struct streams *streams, tconv_backend backend, const int64_t *lengths, size_t count,
                  bool packed, bool exact, const char *what)
{
    struct check check = {streams, lengths, count, packed, exact, what};
    stream_by_each(&streams->desc, backend, run_check, &check);
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

/* ------------------------------------------------------------------------------------------------------ chosen layers */

/* Layers of codecs and vocoders, with fewer channels where that changes nothing; and shapes at the edges of the rules. */
static const struct {
    const char *name;
    int64_t in, out, kernel, stride, dilation, groups, longest, total;
} layers[] = {
    {"Mimi, DAC 512-256", 512, 256, 12, 6, 1, 1, 3, 5},
    {"Mimi 256-128", 256, 128, 10, 5, 1, 1, 8, 9},
    {"EnCodec 128-64", 128, 64, 8, 4, 1, 1, 5, 11},
    {"upsampling, depthwise", 96, 96, 4, 2, 1, 96, 16, 33},
    {"BigVGAN, depthwise", 24, 24, 12, 2, 1, 24, 7, 20},
    {"HiFi-GAN 64-32", 64, 32, 16, 8, 1, 1, 4, 9},
    {"overlap-add of an inverse transform", 66, 1, 1024, 256, 1, 1, 2, 5},
    {"Kokoro, 22-1", 22, 1, 20, 5, 1, 1, 9, 30},
    {"kernel shorter than the stride", 17, 6, 2, 5, 1, 1, 4, 9},
    {"kernel as long as the stride", 33, 20, 4, 4, 1, 1, 4, 9},
    {"tail longer than a step", 20, 5, 9, 1, 1, 1, 2, 7},
    {"tail longer than a step, dilated", 9, 6, 3, 2, 7, 3, 3, 10},
    {"one input, one output", 1, 1, 1, 1, 1, 1, 1, 3},
    {"more columns than a block", 24, 12, 10, 5, 1, 1, 150, 170},
    {"more columns than a block, outputs of 32 frames", 16, 2, 32, 1, 1, 1, 129, 140},
    {"more columns than a block, dilated", 20, 6, 3, 2, 9, 2, 100, 130},
    {"more columns than a block, no tail", 9, 3, 2, 3, 1, 1, 70, 141},
    {"many columns, depthwise and dilated", 12, 12, 5, 2, 3, 12, 90, 100},
    {"many columns, three inputs to a group", 12, 8, 6, 4, 1, 4, 70, 75},
};

/* Steps of one input, short ones and long ones in turn, and the longest. */
static void check_layers(tconv_backend backend)
{
    static const int64_t one[] = {1}, mixed[] = {2, 1, 3}, far_apart[] = {65, 2, 128}, longest[] = {INT64_MAX};
    static const struct {
        const int64_t *lengths;
        size_t count;
    } cuts[] = {{one, COUNT(one)}, {mixed, COUNT(mixed)}, {far_apart, COUNT(far_apart)}, {longest, COUNT(longest)}};
    for (size_t i = 0; i < COUNT(layers); i++)
        for (int form = 0; form < 8; form++) {
            tconv_desc desc;
            tconv_desc_init(&desc);
            desc.batch = 2, desc.stream_axis = 2, desc.dtype = (tconv_dtype)(form / 2),
            desc.layout = (tconv_layout)(form % 2);
            desc.in_channels = layers[i].in, desc.in_h = 1, desc.in_w = layers[i].longest,
            desc.groups = layers[i].groups;
            desc.out_channels = layers[i].out, desc.kernel_h = 1, desc.kernel_w = layers[i].kernel;
            desc.stride_w = layers[i].stride, desc.dilation_w = layers[i].dilation;
            for (int most = 0; most <= 2; most += 2) {
                struct streams streams = streams_make(&desc, 2, layers[i].total, true, most, i);
                for (size_t c = 0; c < COUNT(cuts); c++) {
                    int64_t lengths[3];
                    for (size_t l = 0; l < cuts[c].count; l++)
                        lengths[l] = cuts[c].lengths[l] < desc.in_w ? cuts[c].lengths[l] : desc.in_w;
                    check(&streams, backend, lengths, cuts[c].count, false, most > 0, layers[i].name);
                }
                streams_release(&streams);
            }
        }
}

Test(streams_carry, layers_of_codecs_and_edges)
{
    check_layers(TCONV_BACKEND_CPU);
}

Test(streams_carry_cuda, layers_of_codecs_and_edges)
{
    skip_without_cuda();
    check_layers(TCONV_BACKEND_CUDA);
}

/* Post-ops run when an output leaves, of a step or of a flush; an addend has the shape of what leaves. */
static void check_posts(tconv_backend backend)
{
    static const tconv_post_op lists[][3] = {
        {{TCONV_POST_MUL_CHANNEL, 0, 0, 0}, {TCONV_POST_ADD_CHANNEL, 0, 0, 0}, {TCONV_POST_LEAKY_RELU, 0, 0.5, 0}},
        {{TCONV_POST_ADD_TENSOR, 0, 2, 0}, {TCONV_POST_CLAMP, 0, -20, 30}, {TCONV_POST_LINEAR, 0, -3, 5}},
        {{TCONV_POST_ADD_CHANNEL, 0, 0, 0}, {TCONV_POST_ADD_TENSOR, 0, -1, 0}, {TCONV_POST_MUL_CHANNEL, 0, 0, 0}},
    };
    for (size_t i = 0; i < 60; i++) {
        harness_random random;
        int64_t lengths[LENGTHS];
        harness_random_seed(&random, 900 + i);
        tconv_desc desc = stream_random_desc(&random);
        desc.post_count = 3;
        memcpy(desc.post, lists[i % COUNT(lists)], sizeof lists[0]);
        stream_random_lengths(&random, desc.stream_axis == 1 ? desc.in_h : desc.in_w, lengths, LENGTHS);
        struct streams streams = streams_make(&desc, desc.batch, 13, harness_random_chance(&random, 70), 2, i);
        check(&streams, backend, lengths, LENGTHS, false, true, "post-ops");
        streams_release(&streams);
    }
}

Test(streams_carry, post_ops_run_when_outputs_leave)
{
    check_posts(TCONV_BACKEND_CPU);
}

Test(streams_carry_cuda, post_ops_run_when_outputs_leave)
{
    skip_without_cuda();
    check_posts(TCONV_BACKEND_CUDA);
}

/* A carry of the layer's own 16 bits has the sums of each step, rounded. */
static void check_narrow_carry(tconv_backend backend)
{
    for (size_t i = 0; i < 40; i++) {
        harness_random random;
        int64_t lengths[LENGTHS];
        harness_random_seed(&random, 700 + i);
        tconv_desc desc = stream_random_desc(&random);
        desc.dtype = desc.carry_dtype = i % 2 == 0 ? TCONV_F16 : TCONV_BF16;
        stream_random_lengths(&random, desc.stream_axis == 1 ? desc.in_h : desc.in_w, lengths, LENGTHS);
        struct streams integers = streams_make(&desc, desc.batch, 9, true, 1, i);
        struct streams reals = streams_make(&desc, desc.batch, 9, true, 0, i);
        check(&integers, backend, lengths, LENGTHS, false, true, "small integers");
        check(&reals, backend, lengths, LENGTHS, false, false, "reals");
        streams_release(&integers);
        streams_release(&reals);
    }
}

Test(streams_carry, a_carry_may_have_the_layers_dtype)
{
    check_narrow_carry(TCONV_BACKEND_CPU);
}

Test(streams_carry_cuda, a_carry_may_have_the_layers_dtype)
{
    skip_without_cuda();
    check_narrow_carry(TCONV_BACKEND_CUDA);
}
