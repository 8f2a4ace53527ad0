/*
 * cuda_finish on layers with post-ops: planned without a GPU; on one, against cpu_reference in double, exactly on integers
 * for the kinds that are plain arithmetic, and within the header's accuracy for the others on numbers of all sizes.
 * Suite accumulate has the layers that accumulate and have no post-ops.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli/harness/device.h"
#include "../cli/harness/element.h"
#include "../src/core/alloc.h"
#include "../src/core/operation.h"
#include "../src/core/post.h"
#include "harness.h"
#include "support/expect.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define UNTOUCHED    77 /* what dst holds before, where nothing is added to it */

static tconv_issue issue;

/* ------------------------------------------------------------------------------------------------------------ layers */

struct list {
    int32_t count;
    tconv_post_op of[TCONV_MAX_POST_OPS];
};

/* Every number of these, and of the operands, is an integer or few bits. */
static const struct list exact_lists[] = {
    {3, {{TCONV_POST_MUL_CHANNEL, 0, 0, 0}, {TCONV_POST_ADD_CHANNEL, 0, 0, 0}, {TCONV_POST_LEAKY_RELU, 0, 0, 0}}},
    {3, {{TCONV_POST_ADD_TENSOR, 0, 2, 0}, {TCONV_POST_CLAMP, 0, -20, 30}, {TCONV_POST_LINEAR, 0, -3, 5}}},
    {2, {{TCONV_POST_LEAKY_RELU, 0, 0.5, 0}, {TCONV_POST_CLAMP, 0, -INFINITY, 40}}},
    {8,
     {{TCONV_POST_ADD_CHANNEL, 0, 0, 0},
      {TCONV_POST_MUL_CHANNEL, 0, 0, 0},
      {TCONV_POST_ADD_TENSOR, 0, -1, 0},
      {TCONV_POST_MUL_CHANNEL, 0, 0, 0},
      {TCONV_POST_ADD_CHANNEL, 0, 0, 0},
      {TCONV_POST_LINEAR, 0, 0.25, 1},
      {TCONV_POST_LEAKY_RELU, 0, 2, 0},
      {TCONV_POST_CLAMP, 0, -500, 700}}},
};

static tconv_desc desc_of(const char *problem, const struct list *list, bool *has_bias)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s: %s", problem, message);
    layer.desc.post_count = list->count;
    memcpy(layer.desc.post, list->of, sizeof list->of);
    *has_bias = layer.has_bias;
    return layer.desc;
}

/* Makes dst, or an addend, a slice of a tensor that has so many channels more. */
static void set_slice(const tconv_problem *problem, int64_t channels, int64_t strides[4])
{
    const int64_t all = problem->out_channels + channels, pixels = problem->h.out * problem->w.out;
    const bool planes = problem->layout == TCONV_NCHW;
    strides[0] = all * pixels;
    strides[1] = planes ? pixels : 1;
    strides[2] = planes ? problem->w.out : problem->w.out * all;
    strides[3] = planes ? 1 : all;
}

/* -------------------------------------------------------------------------------------------------------------- runs */

/* The elements of all tensors of a layer, which are those of every dtype. */
struct elements {
    tconv_desc desc; /* in f64 */
    tconv_problem problem;
    double *of[TCONV_ROLES]; /* owned; NULL where the layer has no such tensor */
    int64_t skew;            /* elements that operands of post-ops are off alignment */
};

/* Fills all tensors with integers from -most to most. */
static struct elements make_elements(const tconv_desc *desc, bool has_bias, int most, uint64_t seed)
{
    struct elements made = {.desc = *desc};
    harness_random random;
    made.desc.dtype = TCONV_F64;
    made.desc.math = TCONV_MATH_DEFAULT;
    harness_random_seed(&random, seed);
    expect_success(tconv_problem_init(&made.problem, &made.desc, &issue), issue);
    const tconv_operation operation = tconv_operation_of(&made.problem);
    for (int role = 0; role < TCONV_ROLES; role++) {
        if (!tconv_is_in(operation.reads | operation.writes, (tconv_role)role) ||
            (role == TCONV_ROLE_BIAS && !has_bias))
            continue;
        const int64_t extent = tconv_role_extent(&made.problem, (tconv_role)role);
        const bool is_untouched = role == TCONV_ROLE_DST && !desc->accumulate;
        made.of[role] = malloc((size_t)extent * sizeof(double));
        cr_assert_not_null(made.of[role]);
        for (int64_t i = 0; i < extent; i++)
            made.of[role][i] = is_untouched ? UNTOUCHED : (double)harness_random_integer(&random, -most, most);
    }
    return made;
}

static void release_elements(struct elements *elements)
{
    for (int role = 0; role < TCONV_ROLES; role++)
        free(elements->of[role]);
}

/* A tensor in memory of the host and, for CUDA, of the device. */
struct placed_tensor {
    unsigned char *host, *device; /* owned; device NULL for the CPU */
    size_t bytes, offset;
    tconv_tensor tensor;
};

static struct placed_tensor place_tensor(const struct elements *elements, const tconv_problem *problem, int role,
                                         bool on_device)
{
    const tconv_dtype dtype = tconv_role_dtype(problem, (tconv_role)role);
    const int64_t extent = tconv_role_extent(problem, (tconv_role)role);
    const int64_t skew = role >= TCONV_ROLE_POST ? elements->skew : 0;
    struct placed_tensor placed = {.bytes = (size_t)(extent + skew) * harness_element_size(dtype),
                                   .offset = (size_t)skew * harness_element_size(dtype)};
    placed.host = calloc(1, placed.bytes);
    cr_assert_not_null(placed.host);
    for (int64_t i = 0; i < extent; i++)
        harness_element_set(dtype, placed.host + placed.offset, i, elements->of[role][i]);
    if (on_device) {
        placed.device = harness_device_allocate(placed.bytes);
        cr_assert(placed.device != NULL && harness_device_copy(placed.device, placed.host, placed.bytes, NULL), "%s",
                  harness_device_error());
    }
    placed.tensor = (tconv_tensor){(on_device ? placed.device : placed.host) + placed.offset, dtype,
                                   on_device ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST};
    return placed;
}

/* Runs the layer in a dtype by an implementation and returns all elements of dst, gaps included: the caller's to free. */
static double *run(const struct elements *elements, tconv_dtype dtype, const char *implementation)
{
    const bool on_device = strncmp(implementation, "cuda_", strlen("cuda_")) == 0;
    struct placed_tensor placed[TCONV_ROLES];
    const tconv_tensor *tensors[TCONV_ROLES] = {NULL};
    tconv_options options;
    tconv_desc desc = elements->desc;
    tconv_problem problem;
    tconv_plan *plan;
    size_t size = 0;
    desc.dtype = dtype;
    tconv_options_init(&options);
    options.backend = on_device ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;
    options.implementation = implementation;
    expect_success(tconv_problem_init(&problem, &desc, &issue), issue);
    expect_success(tconv_plan_create(&desc, &options, &plan, &issue), issue);
    expect_success(tconv_plan_workspace_size(plan, &size), issue);
    memset(placed, 0, sizeof placed);
    for (int role = 0; role < TCONV_ROLES; role++)
        if (elements->of[role] != NULL) {
            placed[role] = place_tensor(elements, &problem, role, on_device);
            tensors[role] = &placed[role].tensor;
        }
    void *workspace = on_device ? harness_device_allocate(size)
                                : aligned_alloc(TCONV_ALIGNMENT, (size / TCONV_ALIGNMENT + 1) * TCONV_ALIGNMENT);
    tconv_operands operands = {sizeof operands,          tensors[TCONV_ROLE_SRC], tensors[TCONV_ROLE_WEIGHTS],
                               tensors[TCONV_ROLE_BIAS], tensors[TCONV_ROLE_DST], {NULL}};
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        operands.post[i] = tensors[TCONV_ROLE_POST + i];
    const tconv_status status = tconv_plan_execute_with(plan, &operands, workspace, size, NULL);
    tconv_last_issue(&issue);
    cr_assert_eq(status, TCONV_SUCCESS, "%s: %s", implementation, issue.message);

    const struct placed_tensor *dst = &placed[TCONV_ROLE_DST];
    double *results = malloc((size_t)problem.dst_extent * sizeof *results);
    cr_assert_not_null(results);
    if (on_device)
        cr_assert(harness_device_copy(dst->host, dst->device, dst->bytes, NULL) && harness_stream_synchronize(NULL),
                  "%s", harness_device_error());
    for (int64_t i = 0; i < problem.dst_extent; i++)
        results[i] = harness_element_get(dtype, dst->host, i);
    for (int role = 0; role < TCONV_ROLES; role++) {
        harness_device_release(placed[role].device);
        free(placed[role].host);
    }
    if (on_device)
        harness_device_release(workspace);
    else
        free(workspace);
    tconv_plan_destroy(plan);
    return results;
}

/* Expects the bits of the reference, rounded once. The implementation is one that is exact on such integers. */
static void check_exact(const struct elements *elements, tconv_dtype dtype, const char *implementation,
                        const char *text)
{
    double *expected = run(elements, TCONV_F64, "cpu_reference"), *got = run(elements, dtype, implementation);
    for (int64_t i = 0; i < elements->problem.dst_extent; i++) {
        const double wanted = harness_element_round(dtype, expected[i]);
        cr_assert_eq(got[i], wanted, "%s, %s: element %lld is %g, expected %g", text, harness_dtype_name(dtype),
                     (long long)i, got[i], wanted);
    }
    free(expected);
    free(got);
}

/* ------------------------------------------------------------------------------------------------- exact on integers */

/* Vectors in either layout, and none; groups; outputs without a tap; with accumulate. */
static const char *const problems[] = {
    "n=2 ci=16 h=8 w=8 co=16 k=4 s=2 p=1 b=1",
    "n=3 ci=4 h=5 w=7 co=7 k=3 s=2 p=1 b=1",
    "n=2 ci=24 h=4 w=5 co=12 k=2 s=1 g=3",
    "n=2 ci=3 h=4 w=4 co=5 k=1 s=3 op=2 b=1",
    "n=3 ci=8 h=4 w=4 co=8 k=2x1 s=4x2 op=1 acc=1",
    "n=2 ci=16 h=8 w=8 co=16 k=4 s=2 p=1 b=1 acc=1",
    "n=2 ci=8 h=9 w=9 co=8 k=3 p=1 g=8",
};

/* Runs every problem with every list, in a form: the layout, and how dst and the addend lie. */
static void check_lists(tconv_dtype dtype, int form, const char *implementation)
{
    for (size_t p = 0; p < COUNT(problems); p++)
        for (size_t l = 0; l < COUNT(exact_lists); l++) {
            bool has_bias;
            tconv_desc desc = desc_of(problems[p], &exact_lists[l], &has_bias);
            tconv_problem dense;
            desc.layout = (tconv_layout)(form % 2);
            expect_success(tconv_problem_init(&dense, &desc, &issue), issue);
            if (form / 2 == 1) /* vectors can still be taken */
                set_slice(&dense, 4, desc.dst_strides);
            if (form / 2 != 0 && tconv_post_addend(&desc) >= 0)
                set_slice(&dense, form / 2 == 1 ? 8 : 3, desc.addend_strides);
            struct elements elements = make_elements(&desc, has_bias, 3, 100 * p + l);
            elements.skew = form / 2 == 3;
            check_exact(&elements, dtype, implementation, problems[p]);
            release_elements(&elements);
        }
}

static void check_all_lists(const char *implementation)
{
    for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++)
        for (int form = 0; form < 8; form++)
            check_lists((tconv_dtype)dtype, form, implementation);
}

/* What the test on a GPU does, by the implementation that it compares with: the test itself is in order. */
Test(finish, reference_in_every_dtype_is_reference_in_double)
{
    check_all_lists("cpu_reference");
}

Test(finish_cuda, lists_are_exact_on_integers)
{
    skip_without_cuda();
    check_all_lists("cuda_finish");
}

/* Two chunks, of which the second has an image again: the addend's image goes with dst's. */
#define CHUNKED "n=7 ci=1 h=640 w=640 co=3 k=1 b=1"

Test(finish_cuda, an_addend_goes_with_the_chunks)
{
    skip_without_cuda();
    for (int form = 0; form < 4; form++) {
        bool has_bias;
        tconv_desc desc = desc_of(CHUNKED, &exact_lists[1], &has_bias);
        desc.layout = (tconv_layout)(form % 2);
        desc.accumulate = form / 2;
        struct elements elements = make_elements(&desc, has_bias, 3, (uint64_t)form);
        check_exact(&elements, form % 2 == 0 ? TCONV_F32 : TCONV_BF16, "cuda_finish", CHUNKED);
        release_elements(&elements);
    }
}

/* --------------------------------------------------------------------------------------------------- the other kinds */

#define POINTS   4096
#define SPECIALS 5

static const double specials[SPECIALS] = {NAN, INFINITY, -INFINITY, 0, -0.0};

static const struct list curves[] = {
    {1, {{TCONV_POST_SIGMOID, 0, 0, 0}}},       {1, {{TCONV_POST_TANH, 0, 0, 0}}},
    {1, {{TCONV_POST_SILU, 0, 0, 0}}},          {1, {{TCONV_POST_GELU, 0, 0, 0}}},
    {1, {{TCONV_POST_GELU_TANH, 0, 0, 0}}},     {1, {{TCONV_POST_MISH, 0, 0, 0}}},
    {1, {{TCONV_POST_ELU, 0, 1.5, 0}}},         {1, {{TCONV_POST_SOFTPLUS, 0, 0, 0}}},
    {1, {{TCONV_POST_HARDSWISH, 0, 0, 0}}},     {1, {{TCONV_POST_SNAKE, 0, 0, 0}}},
    {1, {{TCONV_POST_CLAMP, 0, -1, 2}}},        {1, {{TCONV_POST_LEAKY_RELU, 0, 0, 0}}},
    {1, {{TCONV_POST_LEAKY_RELU, 0, 0.25, 0}}},
};

/* The header's accuracy: 4 units in the last place, of f64 twice, as both sides may be off by so much; in 16 bits 16 of f32,
 * and the rounding to 16 bits. */
static double bound_of(tconv_dtype dtype, double expected, double magnitude)
{
    if (dtype == TCONV_F64)
        return 16 * harness_element_half_ulp(TCONV_F64, magnitude);
    if (dtype == TCONV_F32)
        return 8 * harness_element_half_ulp(TCONV_F32, magnitude) + ldexp(1, -126);
    return 32 * harness_element_half_ulp(TCONV_F32, magnitude) + ldexp(1, -118) +
           harness_element_half_ulp(dtype, expected);
}

/* A layer whose sums are 0 and that accumulates: what dst holds is the argument of the list, exactly. */
static struct elements make_points(const struct list *list, tconv_dtype dtype, tconv_layout layout)
{
    bool has_bias;
    tconv_desc desc = desc_of("n=1 ci=1 h=1 w=512 co=8 k=1 acc=1", list, &has_bias);
    harness_random random;
    desc.layout = layout;
    struct elements made = make_elements(&desc, false, 3, 5);
    const double widest = dtype == TCONV_F32 || dtype == TCONV_BF16 ? 100 : 10;
    cr_assert_eq(made.problem.dst_extent, POINTS);
    harness_random_seed(&random, 7);
    memset(made.of[TCONV_ROLE_SRC], 0, (size_t)made.problem.src_extent * sizeof(double));
    for (int64_t i = 0; i < POINTS; i++) {
        const double part = (double)harness_random_integer(&random, 1 << 23, 1 << 24) / (1 << 24);
        const int64_t kind = i % 3;
        /* All sizes; where curves bend; where they nearly have their limits. */
        const double size = kind == 0   ? ldexp(part, (int)harness_random_integer(&random, -20, (int64_t)widest))
                            : kind == 1 ? 4 * (2 * part - 1)
                                        : 100 * (2 * part - 1);
        const double y = (dtype == TCONV_F64 && kind != 1 ? 2 * part - 1 : size) * (i % 2 == 0 ? 1 : -1);
        made.of[TCONV_ROLE_DST][i] = i < SPECIALS ? specials[i] : harness_element_round(dtype, y);
    }
    return made;
}

/* Returns the second number that SNAKE has for an element of dst. */
static double height_of(const struct elements *elements, int64_t index)
{
    const int64_t channels = elements->problem.out_channels, pixels = POINTS / channels;
    const int64_t channel = elements->problem.layout == TCONV_NCHW ? index / pixels : index % channels;
    return elements->of[TCONV_ROLE_POST][channels + channel];
}

static double frequency_of(const struct elements *elements, int64_t index)
{
    const int64_t channels = elements->problem.out_channels, pixels = POINTS / channels;
    return elements->of[TCONV_ROLE_POST][elements->problem.layout == TCONV_NCHW ? index / pixels : index % channels];
}

static void check_curve(const struct list *list, tconv_dtype dtype, tconv_layout layout, const char *implementation)
{
    struct elements elements = make_points(list, dtype, layout);
    const bool is_snake = list->of[0].kind == TCONV_POST_SNAKE;
    double *expected = run(&elements, TCONV_F64, "cpu_reference"), *got = run(&elements, dtype, implementation);
    for (int64_t i = 0; i < POINTS; i++) {
        const double y = elements.of[TCONV_ROLE_DST][i], wanted = expected[i];
        if (is_snake && fabs(frequency_of(&elements, i) * y) > 1e5)
            continue;
        const double magnitude = is_snake ? fabs(y) + fabs(height_of(&elements, i)) : wanted;
        if (isnan(wanted) || isinf(wanted))
            cr_assert(isnan(wanted) ? isnan(got[i]) : got[i] == wanted, "%s of %g in %s is %g, expected %g",
                      tconv_post_name(list->of[0].kind), y, harness_dtype_name(dtype), got[i], wanted);
        else
            cr_assert_leq(fabs(got[i] - wanted), bound_of(dtype, wanted, magnitude),
                          "%s of %.9g in %s is %.17g, expected %.17g", tconv_post_name(list->of[0].kind), y,
                          harness_dtype_name(dtype), got[i], wanted);
        cr_assert(!isinf(y) || wanted != 0 || !signbit(got[i]) == !signbit(wanted), "%s of %g is %g",
                  tconv_post_name(list->of[0].kind), y, got[i]);
    }
    free(expected);
    free(got);
    release_elements(&elements);
}

static void check_curves(const char *implementation)
{
    for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++)
        for (size_t i = 0; i < COUNT(curves); i++)
            check_curve(&curves[i], (tconv_dtype)dtype, (tconv_layout)((i + (size_t)dtype) % 2), implementation);
}

Test(finish, curves_of_the_reference)
{
    check_curves("cpu_reference");
}

Test(finish_cuda, curves_are_as_exact_as_promised)
{
    skip_without_cuda();
    check_curves("cuda_finish");
}

/* ---------------------------------------------------------------------------------------------------------- planning */

Test(finish, every_layer_with_post_ops_is_planned)
{
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < 8; form++) {
            bool has_bias;
            tconv_desc desc = desc_of(problems[p], &exact_lists[(size_t)form % COUNT(exact_lists)], &has_bias);
            desc.dtype = (tconv_dtype)(form / 2);
            desc.layout = (tconv_layout)(form % 2);
            cr_expect(!is_planned(&desc, " - cuda_finish      declines: "), "%s", problems[p]);
            const bool is_too_much = tconv_post_addend(&desc) >= 0 || desc.post_count == TCONV_MAX_POST_OPS;
            cr_expect_eq(is_planned(&desc, " - cuda_general     declines: "), desc.accumulate != 0 && is_too_much, "%s",
                         problems[p]);
        }
}

Test(finish, a_layer_with_post_ops_comes_in_chunks_or_in_place)
{
    bool has_bias;
    tconv_desc desc = desc_of(CHUNKED, &exact_lists[1], &has_bias);
    cr_expect(is_planned(&desc, " chunks=1 widens=0 in_place=1 by="));
    desc.accumulate = 1; /* dst holds what the sums are added to */
    cr_expect(is_planned(&desc, " chunks=2 widens=0 by="));
    desc.accumulate = 0;
    desc.dtype = TCONV_BF16;
    cr_expect(is_planned(&desc, " chunks=2 widens=1 by="));
    desc.post_count = 0;
    memset(desc.post, 0, sizeof desc.post);
    cr_expect(is_planned(&desc, "cuda_finish      declines: for layers that accumulate or have post-ops"));
}

/* Returns the nanoseconds that cuda_finish is predicted to take. */
static long long predicted(const tconv_desc *desc)
{
    static char text[16384];
    expect_success(tconv_explain(desc, NULL, "h200", TCONV_TEXT_JSON, text, sizeof text, NULL, &issue), issue);
    const char *finish = strstr(text, "\"name\": \"cuda_finish\"");
    const char *total = finish != NULL ? strstr(finish, "\"total\":") : NULL;
    cr_assert_not_null(total, "%s", text);
    return strtoll(total + strlen("\"total\":"), NULL, 10);
}

/* The pass reads an addend, as it reads what is held. */
Test(finish, an_addend_takes_its_time)
{
    bool has_bias;
    const struct list without = {1, {{TCONV_POST_TANH, 0, 0, 0}}};
    tconv_desc desc = desc_of("n=16 ci=64 h=64 w=64 co=64 k=4 s=2 p=1", &without, &has_bias);
    const long long alone = predicted(&desc);
    desc.accumulate = 1;
    const long long held = predicted(&desc);
    desc.accumulate = 0;
    desc.post[0] = (tconv_post_op){TCONV_POST_ADD_TENSOR, 0, 1, 0};
    cr_expect_gt(held, alone);
    cr_expect_gt(predicted(&desc), alone);
}
