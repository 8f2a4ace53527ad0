/*
 * One contract holds on every backend. Each refuses the same descs in the same words, before it looks for a device, so
 * that this can be tested without one. With a device, both give the same bits on integers and are in bounds on reals,
 * and tensors are staged across where a backend is forced.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/expect.h"
#include "support/small_layer.h"
#include "support/ways.h"

static struct small_layer layer;
static tconv_issue issue;

static tconv_options options_for(tconv_backend backend)
{
    tconv_options options;
    tconv_options_init(&options);
    options.backend = backend;
    return options;
}

/* ----------------------------------------------------------------------------------------------------- same contract */

/* Draws a value that breaks a rule now and then, or is too large. */
static int64_t draw_field(harness_random *random)
{
    switch (harness_random_integer(random, 0, 39)) {
    case 0: return harness_random_integer(random, -3, 0);
    case 1:
    case 2: return (int64_t)(harness_random_bits(random) >> harness_random_integer(random, 1, 60));
    default: return harness_random_integer(random, 1, 6);
    }
}

static void expect_same_issue(const tconv_issue *a, const tconv_issue *b, const char *who)
{
    cr_assert(a->status == b->status && strcmp(a->field, b->field) == 0 && strcmp(a->message, b->message) == 0,
              "%s: %s \"%s\", but tconv_validate: %s \"%s\"", who, tconv_status_string(b->status), b->message,
              tconv_status_string(a->status), a->message);
}

/* Every entry point refuses a bad desc with the issue of tconv_validate. */
Test(cross_backend, same_status_and_issue_for_every_bad_desc)
{
    harness_random random;
    int bad = 0, statuses[8] = {0};
    harness_random_seed(&random, 9);
    small_layer_init(&layer);
    for (int i = 0; i < 20000; i++) {
        tconv_desc desc;
        int64_t fields[18];
        tconv_issue expected;
        tconv_plan *plan;
        tconv_desc_init(&desc);
        for (int f = 0; f < 18; f++)
            fields[f] = draw_field(&random) - (f >= 9 && f <= 14); /* paddings may be 0 */
        memcpy(&desc.batch, fields, sizeof fields);
        desc.layout = (tconv_layout)harness_random_integer(&random, 0, 1);
        desc.dtype = (tconv_dtype)harness_random_integer(&random, 0, 3);
        if (harness_random_chance(&random, 20))
            desc.src_strides[harness_random_integer(&random, 0, 3)] = draw_field(&random);
        if (tconv_validate(&desc, &expected) == TCONV_SUCCESS)
            continue;
        bad++;
        statuses[expected.status]++;
        for (int backend = TCONV_BACKEND_AUTO; backend <= TCONV_BACKEND_CUDA; backend++) {
            tconv_options options = options_for((tconv_backend)backend);
            tconv_plan_create(&desc, &options, &plan, &issue);
            expect_same_issue(&expected, &issue, harness_backend_name(options.backend));
            cr_assert_null(plan);
            tconv_conv_transpose2d(&desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue);
            expect_same_issue(&expected, &issue, harness_backend_name(options.backend));
        }
    }
    cr_assert_gt(bad, 1000);
    cr_assert(statuses[TCONV_ERROR_INVALID_ARGUMENT] > 100 && statuses[TCONV_ERROR_OVERFLOW] > 100, "%d and %d",
              statuses[TCONV_ERROR_INVALID_ARGUMENT], statuses[TCONV_ERROR_OVERFLOW]);
    cr_assert(small_layer_is_untouched(&layer));
}

Test(cross_backend, same_issue_for_bad_options)
{
    for (int backend = TCONV_BACKEND_AUTO; backend <= TCONV_BACKEND_CUDA; backend++) {
        tconv_options options = options_for((tconv_backend)backend);
        tconv_plan *plan;
        small_layer_init(&layer);
        options.threads = -5;
        expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                       "threads", "threads = -5: must be");
    }
}

/* -------------------------------------------------------------------------------------------------------- same result */

/* Checks a layer by the best implementation of each backend. */
static void check_both(const harness_layer *given, harness_fill fill, uint64_t seed)
{
    harness_case test;
    harness_output cpu, cuda;
    harness_failure failure;
    tconv_options on_cpu = options_for(TCONV_BACKEND_CPU), on_cuda = options_for(TCONV_BACKEND_CUDA);
    expect_success(harness_case_create(&test, given, fill, seed, &issue), issue);
    expect_success(harness_run(&test, &on_cpu, false, &cpu, &issue), issue);
    expect_success(harness_run(&test, &on_cuda, seed % 2 != 0, &cuda, &issue), issue);
    cr_assert(harness_compare(&test, &cpu, &failure), "%s", failure.text);
    cr_assert(harness_compare(&test, &cuda, &failure), "%s", failure.text);
    if (fill == HARNESS_INTEGERS)
        cr_assert(harness_same_bits(&test, &cpu, &cuda, &failure), "%s", failure.text);
    harness_output_release(&cpu);
    harness_output_release(&cuda);
    harness_case_destroy(&test);
}

static void check_both_on_random_layers(harness_fill fill, uint64_t seed)
{
    harness_random random;
    harness_layer drawn;
    skip_without_cuda();
    harness_random_seed(&random, seed);
    for (uint64_t i = 0; i < 300; i++) {
        harness_random_layer(&random, &drawn);
        check_both(&drawn, fill, i);
    }
}

Test(cross_backend_cuda, integers_are_bit_equal)
{
    check_both_on_random_layers(HARNESS_INTEGERS, 10);
}

Test(cross_backend_cuda, reals_are_in_bounds)
{
    check_both_on_random_layers(HARNESS_REALS, 11);
}

Test(cross_backend_cuda, integers_are_bit_equal_on_corners)
{
    skip_without_cuda();
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer corner;
        harness_corner(i, &corner);
        check_both(&corner, HARNESS_INTEGERS, i);
    }
}

/* An output of more than 2^31 bytes, as in benchmarks: the layer kb57 at its full size. */
Test(cross_backend_cuda, kb57_at_full_size)
{
    harness_layer kb57;
    harness_case test;
    harness_output output;
    harness_failure failure;
    char message[128];
    tconv_options options = options_for(TCONV_BACKEND_CUDA);
    skip_without_cuda();
    cr_assert(harness_problem_parse("n=8 ci=64 h=1024 w=1024 co=64 k=3", &kb57, message, sizeof message));
    for (int fill = HARNESS_INTEGERS; fill <= HARNESS_REALS; fill++) {
        expect_success(harness_case_create_unanswered(&test, &kb57, (harness_fill)fill, 57, &issue), issue);
        expect_success(harness_run(&test, &options, false, &output, &issue), issue);
        cr_assert(harness_compare_sampled(&test, &output, 20000, 58, &failure), "%s", failure.text);
        harness_output_release(&output);
        harness_case_destroy(&test);
    }
}

/* ------------------------------------------------------------------------------------------------------------ staging */

enum { SRC, WEIGHTS, BIAS, DST, TENSORS };

/* The small layer's tensors. Those whose bit is set in on_device are copied to the device. */
struct mixed {
    tconv_tensor tensors[TENSORS];
    void *memory[TENSORS];
    size_t sizes[TENSORS];
};

static void place_tensors(struct mixed *mixed, unsigned on_device, bool say_where)
{
    const tconv_tensor *const given[TENSORS] = {&layer.src, &layer.weights, &layer.bias, &layer.dst};
    const size_t sizes[TENSORS] = {sizeof layer.src_data, sizeof layer.weights_data, sizeof layer.bias_data,
                                   sizeof layer.dst_data};
    small_layer_clear(&layer);
    for (int i = 0; i < TENSORS; i++) {
        mixed->tensors[i] = *given[i];
        mixed->sizes[i] = sizes[i];
        mixed->memory[i] = NULL;
        if (on_device >> i & 1) {
            mixed->memory[i] = mixed->tensors[i].data = harness_device_allocate(sizes[i]);
            mixed->tensors[i].location = TCONV_LOCATION_CUDA;
            cr_assert(harness_device_copy(mixed->memory[i], given[i]->data, sizes[i], NULL));
        }
        if (!say_where)
            mixed->tensors[i].location = TCONV_LOCATION_AUTO;
    }
    cr_assert(harness_stream_synchronize(NULL));
}

static void fetch_and_release(struct mixed *mixed)
{
    if (mixed->memory[DST] != NULL)
        cr_assert(harness_device_copy(layer.dst_data, mixed->memory[DST], mixed->sizes[DST], NULL));
    cr_assert(harness_stream_synchronize(NULL));
    for (int i = 0; i < TENSORS; i++)
        harness_device_release(mixed->memory[i]);
}

/* With any mixture of host and device tensors, and each backend forced, the one call copies what it must. */
Test(cross_backend_cuda, one_call_stages_tensors_of_any_mixture)
{
    skip_without_cuda();
    small_layer_init(&layer);
    for (int backend = TCONV_BACKEND_CPU; backend <= TCONV_BACKEND_CUDA; backend++)
        for (unsigned on_device = 0; on_device < 1u << TENSORS; on_device++)
            for (int say = 0; say < 2; say++) {
                struct mixed mixed;
                tconv_options options = options_for((tconv_backend)backend);
                place_tensors(&mixed, on_device, say != 0);
                expect_success(tconv_conv_transpose2d(&layer.desc, &options, &mixed.tensors[SRC],
                                                      &mixed.tensors[WEIGHTS], &mixed.tensors[BIAS],
                                                      &mixed.tensors[DST], &issue),
                               issue);
                fetch_and_release(&mixed);
                cr_assert(small_layer_is_right(&layer), "backend %d, mixture %u", backend, on_device);
            }
}

/* Staged host tensors are ready when the call returns, without a synchronisation by the caller. */
Test(cross_backend_cuda, one_call_is_done_with_host_tensors_when_it_is_back)
{
    tconv_options options = options_for(TCONV_BACKEND_CUDA);
    skip_without_cuda();
    small_layer_init(&layer);
    for (int i = 0; i < 20; i++) {
        small_layer_clear(&layer);
        expect_success(
            tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
            issue);
        cr_assert(small_layer_is_right(&layer));
    }
}

/* AUTO runs where src lives: the one call computes device tensors right, and a plan for their location takes an
 * implementation of CUDA. */
Test(cross_backend_cuda, auto_follows_src)
{
    struct mixed mixed;
    skip_without_cuda();
    small_layer_init(&layer);
    place_tensors(&mixed, 0xf, false);
    expect_success(tconv_conv_transpose2d(&layer.desc, NULL, &mixed.tensors[SRC], &mixed.tensors[WEIGHTS],
                                          &mixed.tensors[BIAS], &mixed.tensors[DST], &issue),
                   issue);
    fetch_and_release(&mixed);
    cr_assert(small_layer_is_right(&layer));

    tconv_options options;
    tconv_plan *plan;
    tconv_options_init(&options);
    options.location = TCONV_LOCATION_CUDA;
    expect_success(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue);
    cr_assert_eq(strncmp(tconv_plan_implementation(plan), "cuda_", 5), 0);
    tconv_plan_destroy(plan);
}

/* The gaps of a staged slice come back as they were. */
Test(cross_backend_cuda, staged_slices_keep_their_gaps)
{
    enum { CHANNELS = 9, PIXELS = 60 };
    static float all[2 * CHANNELS * PIXELS];
    tconv_options options = options_for(TCONV_BACKEND_CUDA);
    skip_without_cuda();
    small_layer_init(&layer);
    layer.desc.dst_strides[0] = CHANNELS * PIXELS;
    for (int i = 0; i < 2 * CHANNELS * PIXELS; i++)
        all[i] = -1e6f - (float)i;
    layer.dst.data = all;
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
        issue);
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < CHANNELS * PIXELS; i++) {
            float right =
                i < 6 * PIXELS ? layer.expected[n * 6 * PIXELS + i] : -1e6f - (float)(n * CHANNELS * PIXELS + i);
            cr_assert_eq(all[n * CHANNELS * PIXELS + i], right, "image %d, element %d", n, i);
        }
}

/* A plan refuses to copy behind the caller's back. */
Test(cross_backend_cuda, plan_refuses_tensors_on_the_other_side)
{
    skip_without_cuda();
    small_layer_init(&layer);
    for (int backend = TCONV_BACKEND_CPU; backend <= TCONV_BACKEND_CUDA; backend++)
        for (int which = SRC; which < TENSORS; which++)
            for (int say = 0; say < 2; say++) {
                static const char *const fields[] = {"src.location", "weights.location", "bias.location",
                                                     "dst.location"};
                struct mixed mixed;
                tconv_plan *plan;
                tconv_options options = options_for((tconv_backend)backend);
                size_t size;
                unsigned right = backend == TCONV_BACKEND_CUDA ? 0xf : 0;
                expect_success(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue);
                tconv_plan_workspace_size(plan, &size);
                void *workspace = backend == TCONV_BACKEND_CUDA ? harness_device_allocate(size) : layer.workspace;
                place_tensors(&mixed, right ^ 1u << which, say != 0);
                tconv_status status =
                    tconv_plan_execute(plan, &mixed.tensors[SRC], &mixed.tensors[WEIGHTS], &mixed.tensors[BIAS],
                                       &mixed.tensors[DST], workspace, size, NULL);
                tconv_last_issue(&issue);
                expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, fields[which],
                               "a plan never copies between host and device");
                fetch_and_release(&mixed);
                cr_assert(small_layer_is_untouched(&layer));
                if (backend == TCONV_BACKEND_CUDA)
                    harness_device_release(workspace);
                tconv_plan_destroy(plan);
            }
}

Test(cross_backend_cuda, device_that_is_not_there)
{
    tconv_options options = options_for(TCONV_BACKEND_CUDA);
    tconv_plan *plan;
    skip_without_cuda();
    small_layer_init(&layer);
    options.device = 4711;
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "device", "device = 4711");
}
