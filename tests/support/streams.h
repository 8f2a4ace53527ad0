/*
 * Streams (tconv.h, A STREAM OF FRAMES) for tests: some streams of one layer with their numbers in double, what one call of
 * the reference makes of them, and a runner that takes any of them on, chunk by chunk, on either backend.
 */
#ifndef TCONV_TESTS_STREAMS_H
#define TCONV_TESTS_STREAMS_H

#include "../../src/core/problem.h"
#include "harness.h"

/* Streams of one layer. Tensors are dense, (stream, channel, row, column), whatever the layer's layout; weights lie as the
 * layer says. */
struct streams {
    tconv_desc desc;                  /* of the plan: its longest chunk, its most images */
    int64_t count, total;             /* streams; inputs of each along the streamed axis */
    tconv_problem whole;              /* the one call of all streams in f64 NCHW, tails included */
    double *src, *weights;            /* owned */
    double *bias;                     /* owned; NULL: there is none */
    double *post[TCONV_MAX_POST_OPS]; /* operands, owned; NULL where a kind has none */
    double *expected;                 /* what the reference makes of them, owned */
    double *magnitude; /* the same of absolute values and no post-ops, owned: what errors are measured in */
};

/* Draws integers from -most to most, or with most = 0 reals, which the dtype has, and computes what is expected. */
struct streams streams_make(const tconv_desc *desc, int64_t count, int64_t total, bool has_bias, int most,
                            uint64_t seed);
void streams_release(struct streams *streams);

/* A plan of the layer with a carry, and how far each stream is. */
struct stream_runner {
    const struct streams *streams;
    tconv_plan *plan;
    bool on_device, packed;
    void *carry, *weights, *bias, *post[TCONV_MAX_POST_OPS], *workspace; /* where the plan runs, owned */
    size_t carry_bytes, workspace_bytes;
    int64_t slot_count, slot_elements; /* of the carry */
    tconv_dtype carry_dtype;
    int64_t *position; /* of each stream: its inputs that were taken; owned */
    double *results;   /* as `expected`, NaN where nothing was given yet; owned */
};

/* Makes a plan by options and a carry of zeros. False where the implementation that options name declines; any other
 * failure fails the test. */
bool stream_runner_begin(struct stream_runner *runner, const struct streams *streams, const tconv_options *options,
                         int64_t slot_count, bool packed);
void stream_runner_end(struct stream_runner *runner);

/* Calls back with the options of a backend, then with those that name each of its implementations that takes the layer and is
 * not chosen without a name. */
void stream_by_each(const tconv_desc *desc, tconv_backend backend,
                    void (*run)(const tconv_options *options, void *data), void *data);

/* One call. Arrays are of the host, [images]; those that may be NULL are as in tconv_step. */
struct stream_call {
    int64_t images, length;
    const int64_t *which; /* the stream of each image; NULL: image n is stream n */
    const int32_t *slots;
    const uint8_t *reset, *active;
};

/* Computes the next chunk of each image's stream. Results of images that are not active are dropped, and their streams do
 * not move. */
void stream_step(struct stream_runner *runner, const struct stream_call *call);

/* Gives the tails. A flushed stream has all of its results. */
void stream_flush(struct stream_runner *runner, const struct stream_call *call);

/* Takes all streams, each an image of one batch, through chunks of these lengths, again and again, to the end and the
 * flush. */
void stream_run_all(struct stream_runner *runner, const int64_t *lengths, size_t length_count);

/* Copies the carry to the host, as double: the caller's to free. */
double *stream_carry(const struct stream_runner *runner);

/* Fails the test unless results are what is expected: rounded once where `exact`, else in bounds. */
void stream_expect_results(const struct stream_runner *runner, bool exact, const char *what);

/* Draws the desc of a small stream, with either axis, any layout, dtype, dilation, groups and strides. */
tconv_desc stream_random_desc(harness_random *random);

/* Draws chunk lengths from 1 to most. */
void stream_random_lengths(harness_random *random, int64_t most, int64_t *lengths, size_t count);

#endif
