/*
 * desc.accumulate: every operation adds to what its outputs hold, before the one rounding to the dtype. Every
 * implementation that takes such a layer, at every instruction set of this machine, is exact on integers and in bounds on
 * reals, with the same bits for any number of threads; the reference is compared with the formula. The mistake
 * of rounding first has a test of its name in test_gradient_mistakes.c, checks of a desc are in test_validate.c.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "../src/dispatch/impl_list.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/expect.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define RANDOM_LAYERS 200
#define SAMPLES       64  /* elements that are computed again, straight from the formula */
#define LARGEST       1e7 /* FLOP of a corner: larger ones take longer than all others */

static const tconv_op ops[] = {TCONV_FORWARD, TCONV_BACKWARD_DATA, TCONV_BACKWARD_WEIGHTS};
static struct way ways[MAX_WAYS];
static size_t way_count;
static size_t taken[MAX_WAYS]; /* layers that each way took */
static tconv_issue issue;

/* --------------------------------------------------------------------------------------------------------- every way */

/* Something takes every layer. */
static void check_case(const harness_case *test, uint64_t seed)
{
    size_t takers = 0;
    for (size_t w = 0; w < way_count; w++) {
        const int threads = thread_counts[(seed + w) % THREAD_COUNTS];
        const bool pack_once = (seed / 2 + w) % 2 != 0;
        harness_output output;
        harness_failure failure;
        if (!run_way(test, &ways[w], threads, pack_once, &output))
            continue;
        judge_way(test, &ways[w], threads, pack_once, &output);
        if (way_is_reference(&ways[w]))
            cr_assert(harness_compare_sampled(test, &output, SAMPLES, seed, &failure), "%s", failure.text);
        harness_output_release(&output);
        taken[w]++;
        takers++;
    }
    cr_assert_gt(takers, 0, "nothing takes the layer");
}

/* Checks the layer with all operations, on integers and on reals in turn. */
static void check_layer(const harness_layer *layer, uint64_t seed)
{
    for (size_t o = 0; o < COUNT(ops); o++) {
        harness_layer own = *layer;
        own.desc.op = ops[o];
        own.desc.accumulate = 1;
        const bool reals = (seed + o) % 2 != 0 || !harness_has_integers(&own);
        harness_case test = make_case(&own, reals ? HARNESS_REALS : HARNESS_INTEGERS, seed);
        check_case(&test, seed);
        harness_case_destroy(&test);
    }
}

static void check_random_layers(tconv_backend backend)
{
    harness_random random;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, 21);
    for (uint64_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_layer layer;
        harness_random_layer(&random, &layer);
        if (in_part(i))
            check_layer(&layer, i);
    }
}

/* Checks each corner in one of its forms, which goes round. */
static void check_corners(tconv_backend backend)
{
    way_count = list_ways(backend, ways);
    for (size_t i = 0; i < harness_corner_count(); i += HARNESS_CORNER_FORMS) {
        harness_layer layer;
        harness_corner(i + i / HARNESS_CORNER_FORMS * 5 % HARNESS_CORNER_FORMS, &layer);
        if (in_part(i) && harness_layer_flops(&layer.desc) <= LARGEST)
            check_layer(&layer, i);
    }
}

Test(accumulate, random_layers)
{
    check_random_layers(TCONV_BACKEND_CPU);
}

Test(accumulate, corners)
{
    check_corners(TCONV_BACKEND_CPU);
    for (size_t w = 0; w < way_count && is_whole(); w++)
        cr_assert(taken[w] > 0 || way_is_of_streams_alone(&ways[w]), "%s takes no layer", ways[w].text);
}

/* ------------------------------------------------------------------------------------------------------- by class */

/* Groups of a layer; output channels of a group, which fill less than a vector, whole blocks of any instruction set, and
 * leave part of a block over; strides of rows and columns under a kernel of 2 x 2, which leave outputs without taps. */
static const struct {
    int64_t least, most;
} class_groups[] = {{1, 1}, {2, 6}, {9, 16}}, class_channels[] = {{1, 3}, {32, 32}, {17, 31}, {33, 47}, {97, 111}};
static const int64_t class_strides[][2] = {{1, 2}, {5, 1}, {2, 5}, {4, 3}};

/* Outputs of such a layer, about: enough to be worth five threads where they are most. */
#define CLASS_OUTPUTS 60000

static harness_layer layer_of_class(harness_random *random, size_t groups, size_t channels, size_t strides)
{
    harness_layer layer = {.has_bias = harness_random_chance(random, 80)};
    tconv_desc *desc = &layer.desc;
    tconv_desc_init(desc);
    desc->groups = harness_random_integer(random, class_groups[groups].least, class_groups[groups].most);
    desc->out_channels =
        desc->groups * harness_random_integer(random, class_channels[channels].least, class_channels[channels].most);
    desc->in_channels = desc->groups * harness_random_integer(random, 1, 4);
    desc->kernel_h = desc->kernel_w = 2;
    desc->stride_h = class_strides[strides][0];
    desc->stride_w = class_strides[strides][1];
    desc->pad_right = harness_random_integer(random, 0, 2);
    desc->batch = harness_random_integer(random, 1, 3);
    desc->in_h = harness_random_integer(random, 2, 6);
    const int64_t others = desc->batch * desc->out_channels * desc->in_h * desc->stride_h * desc->stride_w;
    desc->in_w = 4 + (CLASS_OUTPUTS / others < 150 ? CLASS_OUTPUTS / others : 150);
    desc->dtype = (tconv_dtype)harness_random_integer(random, TCONV_F32, TCONV_BF16);
    desc->layout = harness_random_chance(random, 70) ? TCONV_NHWC : TCONV_NCHW;
    desc->weight_layout = (tconv_weight_layout)harness_random_integer(random, 0, 2);
    desc->accumulate = 1;
    return layer;
}

/* Checks the layer by every way on each of these numbers of threads. */
static void check_threads_of_class(const harness_layer *layer, uint64_t seed)
{
    static const int threads[] = {1, 2, 3, 5};
    harness_case test = make_case(layer, HARNESS_INTEGERS, seed);
    for (size_t w = 0; w < way_count; w++)
        for (size_t t = 0; t < COUNT(threads) && !way_is_reference(&ways[w]); t++)
            if (!check_way(&test, &ways[w], threads[t], (seed + t) % 2 != 0))
                break;
    harness_case_destroy(&test);
}

/* A task may have a part of the channels of several groups: what it adds to must be no other task's. */
Test(accumulate, groups_by_blocks_by_outputs_without_taps_by_threads)
{
    harness_random random;
    uint64_t seed = 0;
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    harness_random_seed(&random, 47);
    for (size_t groups = 0; groups < COUNT(class_groups); groups++)
        for (size_t channels = 0; channels < COUNT(class_channels); channels++)
            for (size_t strides = 0; strides < COUNT(class_strides); strides++)
                for (size_t o = 0; o < COUNT(ops); o++) {
                    harness_layer layer = layer_of_class(&random, groups, channels, strides);
                    layer.desc.op = ops[o];
                    if (in_part(seed))
                        check_threads_of_class(&layer, seed);
                    seed++;
                }
}

/* Implementations of CUDA that do not accumulate decline. */
Test(accumulate_cuda, random_layers)
{
    skip_without_cuda();
    check_random_layers(TCONV_BACKEND_CUDA);
}

Test(accumulate_cuda, corners)
{
    skip_without_cuda();
    check_corners(TCONV_BACKEND_CUDA);
}

/* Layers that are worth several threads. */
Test(accumulate, same_bits_for_any_threads)
{
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < LARGER_LAYERS; i++) {
        if (!in_part(i))
            continue;
        harness_layer layer = larger_layer(i, (int)(3 * i) % LARGER_FORMS);
        layer.desc.op = ops[i % COUNT(ops)];
        layer.desc.accumulate = 1;
        harness_case test = make_sampled_case(&layer, HARNESS_REALS, i);
        for (size_t w = 0; w < way_count; w++) {
            harness_output first, other;
            harness_failure failure;
            if (way_is_reference(&ways[w]) || !run_way(&test, &ways[w], 1, false, &first))
                continue;
            judge_way(&test, &ways[w], 1, false, &first);
            for (size_t t = 0; t < THREAD_COUNTS; t++) {
                cr_assert(run_way(&test, &ways[w], thread_counts[t], t % 2 != 0, &other));
                cr_assert(harness_same_bits(&test, &first, &other, &failure), "%s, %d threads: %s", ways[w].text,
                          thread_counts[t], failure.text);
                harness_output_release(&other);
            }
            harness_output_release(&first);
        }
        harness_case_destroy(&test);
    }
}

/* --------------------------------------------------------------------------------------------------------- streaming */

/* Runs a layer below the API, on a machine whose caches keep nothing: all is streamed that can be. */
static void check_streamed(const char *problem, int form, tconv_cpu_isa isa, const tconv_implementation *implementation)
{
    const struct bare_target machine = {.isa = isa, .cache = 16 << 10, .threads = 2};
    harness_output output = {.implementation = implementation->name};
    harness_failure failure;
    harness_layer layer;
    tconv_layer bare;
    char message[128];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s: %s", problem, message);
    layer.desc.dtype = (tconv_dtype)(form / 2);
    layer.desc.layout = (tconv_layout)(form % 2);
    bare_layer_make(&bare, problem, layer.desc.dtype, layer.desc.layout, &machine);
    tconv_cpu_target cpu = tconv_cpu_target_of(&bare.target);
    cpu.l3_bytes = 1;
    tconv_cpu_target_set(&bare.target, cpu);
    if ((implementation->dtypes & TCONV_DTYPE_BIT(layer.desc.dtype)) &&
        bare_layer_is_taken(&bare, implementation, NULL)) {
        const size_t size = harness_element_size(layer.desc.dtype);
        harness_case test = make_case(&layer, HARNESS_INTEGERS, 1);
        output.dst = harness_buffer_create(test.dst_view.extent, size, 0);
        memcpy(output.dst.data, test.dst.data, (size_t)test.dst_view.extent * size);
        bare_layer_run(&bare, implementation,
                       &(struct bare_tensors){test.src.data, test.weights.data, test.bias.data, output.dst.data});
        cr_assert(harness_compare(&test, &output, &failure), "%s: %s", harness_cpu_isa_name(isa), failure.text);
        harness_output_release(&output);
        harness_case_destroy(&test);
    }
    bare_layer_release(&bare);
}

/* Rows, of one phase and of several, with outputs that no tap reaches; pixels. */
static const char *const streamed[] = {
    "n=1 ci=1 h=9 w=700 co=1 k=3 s=2 p=1 b=1 acc=1", "n=1 ci=3 h=7 w=601 co=5 k=3 p=1 acc=1",
    "n=1 ci=4 h=9 w=130 co=3 k=4 s=2 p=1 b=1 acc=1", "n=1 ci=2 h=5 w=300 co=3 k=1 s=3 op=2 b=1 acc=1",
    "n=2 ci=16 h=7 w=20 co=32 k=2 s=2 b=1 acc=1",    "n=2 ci=16 h=7 w=20 co=24 k=3 s=2 p=1 op=1 acc=1",
};

Test(accumulate, what_is_added_to_is_not_streamed)
{
    static const tconv_implementation *const implementations[] = {&tconv_cpu_phases, &tconv_cpu_pixels,
                                                                  &tconv_cpu_col2im, &tconv_cpu_bf16};
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++)
        for (size_t i = 0; tconv_cpu_has_isa((tconv_cpu_isa)isa) && i < COUNT(implementations); i++)
            for (size_t p = 0; p < COUNT(streamed); p++)
                for (int form = 0; form < LARGER_FORMS; form++) /* four dtypes, two layouts */
                    check_streamed(streamed[p], form, (tconv_cpu_isa)isa, implementations[i]);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* A layer of one product of each operation: src, weights and dst have one element each. */
static tconv_desc one_product(tconv_op op, tconv_dtype dtype)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.in_channels = desc.in_h = desc.in_w = desc.out_channels = desc.kernel_h = desc.kernel_w = 1;
    desc.op = op;
    desc.dtype = dtype;
    desc.accumulate = 1;
    return desc;
}

/* Elements of the one product, by their role. */
struct elements {
    double of[HARNESS_ROLES];
};

static struct elements call(const tconv_desc *desc, struct elements given)
{
    double data[HARNESS_ROLES];
    tconv_tensor tensors[HARNESS_ROLES];
    for (int role = 0; role < HARNESS_ROLES; role++) {
        harness_element_set(desc->dtype, &data[role], 0, given.of[role]);
        tensors[role] = (tconv_tensor){&data[role], desc->dtype, TCONV_LOCATION_HOST};
    }
    expect_success(tconv_conv_transpose2d(desc, NULL, &tensors[HARNESS_SRC], &tensors[HARNESS_WEIGHTS],
                                          &tensors[HARNESS_BIAS], &tensors[HARNESS_DST], &issue),
                   issue);
    for (int role = 0; role < HARNESS_ROLES; role++)
        given.of[role] = harness_element_get(desc->dtype, &data[role], 0);
    return given;
}

/* f16 and bf16 do not have a * b, and 1 is added: to the product rounded, it would get lost. */
Test(accumulate, is_rounded_once)
{
    static const struct {
        tconv_dtype dtype;
        double a, b, sum;
    } cases[] = {
        {TCONV_F16, 3, 683, 2050}, {TCONV_BF16, 9, 29, 262}, {TCONV_F32, 3, 683, 2050}, {TCONV_F64, 3, 683, 2050}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const double a = cases[i].a, b = cases[i].b, sum = cases[i].sum;
        tconv_desc desc = one_product(TCONV_FORWARD, cases[i].dtype);
        cr_assert_eq(call(&desc, (struct elements){{a, b, 0, 1}}).of[HARNESS_DST], sum);
        cr_assert_eq(call(&desc, (struct elements){{a, b, 2, -1}}).of[HARNESS_DST], sum); /* with a bias */
        desc.op = TCONV_BACKWARD_DATA;
        cr_assert_eq(call(&desc, (struct elements){{1, a, 0, b}}).of[HARNESS_SRC], sum);
        desc.op = TCONV_BACKWARD_WEIGHTS;
        const struct elements gradients = call(&desc, (struct elements){{a, 1, 5, b}});
        cr_assert_eq(gradients.of[HARNESS_WEIGHTS], sum);
        cr_assert_eq(gradients.of[HARNESS_BIAS], b + 5);
    }
}

/* A caller that does not know the field adds to nothing, whatever lies behind its struct. */
Test(accumulate, an_older_desc_does_not)
{
    for (size_t o = 0; o < COUNT(ops); o++) {
        tconv_desc desc = one_product(ops[o], TCONV_F32);
        const harness_role role = ops[o] == TCONV_FORWARD         ? HARNESS_DST
                                  : ops[o] == TCONV_BACKWARD_DATA ? HARNESS_SRC
                                                                  : HARNESS_WEIGHTS;
        const struct elements given = {{2, 3, 0, 5}};
        double product = 1;
        for (int r = 0; r < HARNESS_POST; r++)
            product *= r != HARNESS_BIAS && r != (int)role ? given.of[r] : 1;
        cr_assert_eq(call(&desc, given).of[role], given.of[role] + product);
        desc.struct_size = offsetof(tconv_desc, accumulate);
        cr_assert_eq(call(&desc, given).of[role], product);
    }
}

/* NaN, Inf and a zero's sign, bit for bit. */
Test(accumulate, without_images_the_outputs_keep_what_they_hold)
{
    for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++) {
        const unsigned char odd[8] = {0x01, 0x80, 0xa5, 0xff, 0x01, 0x80, 0xa5, 0xff};
        unsigned char weights[8], bias[8];
        tconv_desc desc = one_product(TCONV_BACKWARD_WEIGHTS, (tconv_dtype)dtype);
        const tconv_tensor diff_weights = {weights, desc.dtype, TCONV_LOCATION_HOST};
        const tconv_tensor diff_bias = {bias, desc.dtype, TCONV_LOCATION_HOST};
        desc.batch = 0;
        memcpy(weights, odd, sizeof odd);
        memcpy(bias, odd, sizeof odd);
        expect_success(tconv_conv_transpose2d(&desc, NULL, NULL, &diff_weights, &diff_bias, NULL, &issue), issue);
        cr_assert_eq(memcmp(weights, odd, sizeof odd), 0);
        cr_assert_eq(memcmp(bias, odd, sizeof odd), 0);
        desc.accumulate = 0;
        expect_success(tconv_conv_transpose2d(&desc, NULL, NULL, &diff_weights, &diff_bias, NULL, &issue), issue);
        cr_assert_eq(harness_element_get(desc.dtype, weights, 0), 0);
        cr_assert_eq(harness_element_get(desc.dtype, bias, 0), 0);
    }
}

/* What training does with a batch that is too large: the gradients of its halves, one after the other, are those of the
 * whole. */
Test(accumulate, gradients_of_two_halves_of_a_batch_add_up)
{
    enum {
        IN = 3,
        OUT = 5,
        H = 4,
        W = 6,
        TAPS = 9,
        SRC = 2 * IN * H * W,
        DST = 2 * OUT * H * W,
        WEIGHTS = IN * OUT * TAPS
    };
    static float src[SRC], dst[DST], whole[WEIGHTS + OUT], halves[WEIGHTS + OUT];
    const tconv_dtype dtype = TCONV_F32;
    harness_random random;
    harness_random_seed(&random, 3);
    for (int i = 0; i < SRC; i++)
        src[i] = (float)harness_random_integer(&random, -9, 9);
    for (int i = 0; i < DST; i++)
        dst[i] = (float)harness_random_integer(&random, -9, 9);
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.batch = 2, desc.in_channels = IN, desc.in_h = H, desc.in_w = W, desc.out_channels = OUT;
    desc.kernel_h = desc.kernel_w = 3;
    desc.pad_top = desc.pad_bottom = desc.pad_left = desc.pad_right = 1;
    desc.op = TCONV_BACKWARD_WEIGHTS;
    for (int part = 0; part < 3; part++) { /* the whole, then the halves */
        float *to = part == 0 ? whole : halves;
        const int image = part == 2;
        const tconv_tensor of_src = {src + image * SRC / 2, dtype, TCONV_LOCATION_HOST};
        const tconv_tensor of_dst = {dst + image * DST / 2, dtype, TCONV_LOCATION_HOST};
        const tconv_tensor weights = {to, dtype, TCONV_LOCATION_HOST},
                           bias = {to + WEIGHTS, dtype, TCONV_LOCATION_HOST};
        desc.batch = part == 0 ? 2 : 1;
        desc.accumulate = part == 2;
        expect_success(tconv_conv_transpose2d(&desc, NULL, &of_src, &weights, &bias, &of_dst, &issue), issue);
    }
    cr_assert_eq(memcmp(whole, halves, sizeof whole), 0);
}

/* An implementation without the flag declines, and is not asked any further. */
static tconv_status never_asked(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *why)
{
    (void)layer, (void)made, (void)planned, (void)why;
    cr_assert_fail("it was asked to plan");
    return TCONV_SUCCESS;
}

Test(accumulate, an_implementation_that_does_not_declines)
{
    const tconv_implementation other = {.name = "cpu_other",
                                        .backend = TCONV_BACKEND_CPU,
                                        .dtypes = TCONV_DTYPES_TO_F64,
                                        .plan_bytes = 1,
                                        .plan = never_asked};
    const tconv_desc desc = one_product(TCONV_FORWARD, TCONV_F32);
    tconv_layer layer = {.packed_before = false};
    tconv_planned planned = {.named = true};
    char made[1];
    expect_success(tconv_problem_init(&layer.problem, &desc, &issue), issue);
    expect_failure(tconv_implementation_plan(&other, &layer, made, &planned, &issue), issue, TCONV_ERROR_UNSUPPORTED,
                   "implementation", "does not accumulate");
}

/* A log line replays the layer. */
Test(accumulate, text_of_a_plan_says_so)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        tconv_desc desc = one_product(TCONV_FORWARD, TCONV_F32);
        tconv_plan *plan;
        char text[2048];
        desc.accumulate = accumulate;
        expect_success(tconv_plan_create(&desc, NULL, &plan, &issue), issue);
        tconv_plan_describe(plan, text, sizeof text, NULL);
        cr_assert_eq(strstr(text, " acc=1\"") != NULL, accumulate == 1, "%s", text);
        tconv_plan_destroy(plan);
    }
}
