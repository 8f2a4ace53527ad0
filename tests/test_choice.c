/* Choices on the CPU do not depend on threads, whether weights are packed or not, and packed weights need no more
 * workspace.
 *
 * TCONV_VERBOSE=2 explains a plan's choice on a CUDA device: every implementation before the one that is taken is
 * passed over with a reason, and where the reason is that another is predicted to take less time, there is such an
 * implementation. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/dispatch/impl_list.h"
#include "harness.h"
#include "support/capture.h"
#include "support/expect.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Returns the reason why `name` was passed over, from lines; "" where it was not. Fails where it was passed over
 * twice. */
static const char *reason_of(const char *lines, const char *name, char reason[256])
{
    char start[96];
    snprintf(start, sizeof start, "tconv,passed_over,backend=cuda,impl=%s,reason=", name);
    const char *at = strstr(lines, start);
    reason[0] = '\0';
    if (at != NULL) {
        const char *end = strstr(at, ",bench=");
        cr_assert_not_null(end, "%s", lines);
        cr_assert_null(strstr(end, start), "twice: %s", lines);
        at += strlen(start);
        snprintf(reason, 256, "%.*s", (int)(end - at), at);
    }
    return reason;
}

/* Checks the lines of a plan of the operation, which took `taken`. */
static void check_lines(const char *lines, tconv_op op, const char *taken)
{
    const tconv_implementation *candidate;
    char reason[256], faster[64];
    bool is_before = true;
    double percent;
    for (size_t i = 0; (candidate = tconv_implementation_at(op, i)) != NULL; i++) {
        const char *name = candidate->name;
        if (candidate->backend != TCONV_BACKEND_CUDA)
            continue;
        const bool is_taken = strcmp(name, taken) == 0;
        is_before = is_before && !is_taken;
        reason_of(lines, name, reason);
        cr_assert(!is_taken || reason[0] == '\0', "%s was taken: %s", name, lines);
        cr_assert(!is_before || reason[0] != '\0', "no word of %s: %s", name, lines);
        if (sscanf(reason, "%63s is predicted to take %lf %% of its time", faster, &percent) == 2) {
            cr_assert(percent <= 100, "%s: %s", name, reason);
            cr_assert(strcmp(faster, taken) == 0 || reason_of(lines, faster, reason)[0] != '\0', "%s", lines);
        }
    }
}

Test(choice_cuda, every_implementation_that_is_passed_over_has_its_reason)
{
    static const char *const problems[] = {
        "n=8 ci=64 h=128 w=128 co=64 k=3 p=1",        "n=16 ci=256 h=28 w=28 co=128 k=2 s=2 b=1",
        "n=64 ci=256 h=4 w=4 co=256 k=4 s=2 p=1",     "n=2 ci=64 h=31 w=33 co=48 k=4 s=4",
        "n=4 ci=32 h=64 w=64 co=32 k=4 s=2 p=1 g=32", "n=4 ci=64 h=64 w=64 co=3 k=4 s=2 p=1",
        "n=4 ci=32 h=64 w=64 co=64 k=3 s=5 p=1 d=2",  "n=1 ci=1 h=1 w=1 co=1 k=1",
    };
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F64, TCONV_F16, TCONV_BF16};
    tconv_options options;
    tconv_issue issue;
    skip_without_cuda();
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    setenv("TCONV_VERBOSE", "2", 1);
    expect_success(tconv_environment_reload(&issue), issue);
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int way = 0; way < 48; way++) { /* each combination of operation, dtype, layout and math */
            harness_layer layer;
            struct capture capture;
            tconv_plan *plan;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.op = (tconv_op)(way / 16);
            layer.desc.dtype = dtypes[way / 4 % 4];
            layer.desc.layout = way & 1 ? TCONV_NHWC : TCONV_NCHW;
            layer.desc.math = way & 2 && layer.desc.dtype == TCONV_F32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
            capture_start(&capture);
            tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, &issue);
            capture_end(&capture);
            expect_success(status, issue);
            check_lines(capture.text[CAPTURED_STDERR], layer.desc.op, tconv_plan_implementation(plan));
            tconv_plan_destroy(plan);
            capture_release(&capture);
        }
}

/* ----------------------------------------------------------------------------------------------------------- threads */

#define CLASS_LAYERS 2500

static void no_threads(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context, (void)count, (void)task, (void)argument;
}

/* What was chosen for a layer: with weights that each call packs, and packed before where the operation reads any. */
struct choice {
    const char *unpacked, *packed;
};

/* Plans the layer for this many threads, of any machine: they are the caller's. */
static struct choice choose(const harness_layer *layer, const char *named, tconv_cpu_isa isa, int threads,
                            const tconv_tensor *weights, const char *text)
{
    struct choice made = {NULL, NULL};
    size_t size, packed_size;
    tconv_options options;
    tconv_plan *plan, *packed;
    tconv_issue issue;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.implementation = named;
    options.cpu_isa = isa;
    options.threads = threads;
    options.parallel.parallel_for = no_threads;
    const tconv_status status = tconv_plan_create(&layer->desc, &options, &plan, &issue);
    if (status == TCONV_ERROR_UNSUPPORTED && named != NULL)
        return made;
    expect_success(status, issue);
    made.unpacked = tconv_plan_implementation(plan);
    if (layer->desc.op != TCONV_BACKWARD_WEIGHTS) {
        expect_success(tconv_plan_pack_weights(plan, weights, NULL, &packed, &issue), issue);
        made.packed = tconv_plan_implementation(packed);
        tconv_plan_workspace_size(plan, &size);
        tconv_plan_workspace_size(packed, &packed_size);
        cr_assert_leq(packed_size, size, "%s by %s needs %zu bytes, packed by %s %zu, with %d threads: %s",
                      named != NULL ? named : "auto", made.unpacked, size, made.packed, packed_size, threads, text);
        tconv_plan_destroy(packed);
    }
    tconv_plan_destroy(plan);
    return made;
}

static bool are_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* The implementation decides the order of sums, and so the bits. */
static void expect_one_choice(const harness_layer *layer, const char *named, tconv_cpu_isa isa)
{
    static const int threads[] = {1, 2, 3, 5, 16};
    char text[HARNESS_LAYER_TEXT];
    const harness_view view = harness_weights_view(&layer->desc);
    void *data = calloc((size_t)view.extent, harness_element_size(layer->desc.dtype));
    const tconv_tensor weights = {data, layer->desc.dtype, TCONV_LOCATION_HOST};
    struct choice first = {NULL, NULL};
    cr_assert_not_null(data);
    harness_layer_format(layer, text, sizeof text);
    for (size_t t = 0; t < COUNT(threads); t++) {
        const struct choice other = choose(layer, named, isa, threads[t], &weights, text);
        if (t == 0)
            first = other;
        cr_assert(are_same(first.unpacked, other.unpacked) && are_same(first.packed, other.packed),
                  "%s and, packed, %s with one thread, %s and %s with %d: %s", first.unpacked, first.packed,
                  other.unpacked, other.packed, threads[t], text);
    }
    free(data);
}

Test(choice, does_not_depend_on_threads)
{
    harness_random random;
    harness_random_seed(&random, 4);
    for (int i = 0; i < CLASS_LAYERS; i++) {
        harness_layer layer;
        harness_class_layer(&random, &layer);
        if (tconv_validate(&layer.desc, NULL) != TCONV_SUCCESS)
            cr_assert_fail("a layer that is drawn by class is not valid");
        expect_one_choice(&layer, NULL, i % 2 == 0 ? TCONV_CPU_ISA_GENERIC : TCONV_CPU_ISA_DEFAULT);
        if (i % 5 == 0)
            expect_one_choice(&layer, layer.desc.op == TCONV_FORWARD ? "cpu_col2im" : "cpu_dgrad",
                              TCONV_CPU_ISA_DEFAULT);
    }
}

/* Layers of more weights than pixels, which cpu_col2im leaves to others where weights are packed before. */
Test(choice, of_layers_with_more_weights_than_pixels_does_not_depend_on_threads)
{
    static const char *const problems[] = {
        "n=1 ci=20 h=6 w=2 co=14 k=4 d=4 p=4x0x4x0 op=0x2",
        "n=1 ci=512 h=1 w=1 co=256 k=4",
        "n=1 ci=100 h=1 w=1 co=512 k=4",
        "n=2 ci=64 h=2 w=3 co=200 k=3 s=2 b=1",
        "n=1 ci=80 h=1 w=4 co=512 k=1x16 s=1x8 p=0x4x0x4",
        "n=1 ci=30 h=3 w=3 co=33 k=5 g=3",
        "n=1 ci=513 h=1 w=40 co=1 k=1x1024 s=1x256",
        "n=1 ci=18 h=2 w=1 co=24 k=7x3 s=3x1 p=1 b=1 acc=1",
    };
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < 24; form++) { /* four dtypes, two layouts, three of weights */
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.dtype = (tconv_dtype)(form % 4);
            layer.desc.layout = (tconv_layout)(form / 4 % 2);
            layer.desc.weight_layout = (tconv_weight_layout)(form / 8);
            expect_one_choice(&layer, NULL, TCONV_CPU_ISA_DEFAULT);
            expect_one_choice(&layer, NULL, TCONV_CPU_ISA_GENERIC);
        }
}

/* On CUDA another implementation, or other tiles, may be chosen for packed weights where they are predicted to be faster. */
Test(choice_cuda, packed_weights_need_no_more_workspace)
{
    harness_random random;
    skip_without_cuda();
    harness_random_seed(&random, 6);
    for (int i = 0; i < CLASS_LAYERS; i++) {
        harness_layer layer;
        size_t size, packed_size;
        tconv_options options;
        tconv_plan *plan, *packed;
        tconv_issue issue;
        char text[HARNESS_LAYER_TEXT];
        harness_class_layer(&random, &layer);
        layer.desc.op = (tconv_op)(i % 2); /* one that reads weights */
        const size_t bytes = (size_t)harness_weights_view(&layer.desc).extent * harness_element_size(layer.desc.dtype);
        const tconv_tensor weights = {harness_device_allocate(bytes), layer.desc.dtype, TCONV_LOCATION_CUDA};
        cr_assert_not_null(weights.data);
        tconv_options_init(&options);
        options.backend = TCONV_BACKEND_CUDA;
        expect_success(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue);
        expect_success(tconv_plan_pack_weights(plan, &weights, NULL, &packed, &issue), issue);
        cr_assert(harness_stream_synchronize(NULL));
        tconv_plan_workspace_size(plan, &size);
        tconv_plan_workspace_size(packed, &packed_size);
        harness_layer_format(&layer, text, sizeof text);
        cr_assert_leq(packed_size, size, "%s needs %zu bytes, packed %s %zu: %s", tconv_plan_implementation(plan), size,
                      tconv_plan_implementation(packed), packed_size, text);
        tconv_plan_destroy(packed);
        tconv_plan_destroy(plan);
        harness_device_release(weights.data);
    }
}
