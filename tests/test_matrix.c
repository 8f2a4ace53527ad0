/*
 * cpu_bf16 in every form, forward and as the gradient of src: chunks and blocks with channels left over, tiles and
 * fragments with positions left over, several images of a strip, strides that are stored as one row and one by one, or that
 * phases of dst come apart by, residues without taps, dilation, groups; and numbers that parts of bf16 cannot hold. Where
 * the machine has matrix registers they multiply, else C does.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cpu/bf16/kernels.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/part.h"
#include "support/ways.h"

static const char *const problems[] = {
    "n=1 ci=64 h=6 w=37 co=40 k=3 p=1 b=1",
    "n=2 ci=33 h=5 w=16 co=17 k=4 s=2 p=1 b=1",
    "n=5 ci=70 h=4 w=4 co=50 k=4 s=2 p=1",
    "n=3 ci=2 h=1 w=150 co=16 k=1x16 s=1x8 p=0x4 b=1",
    "n=1 ci=12 h=3 w=9 co=5 k=3x2 s=2x5 op=1x4 b=1",
    "n=2 ci=36 h=7 w=5 co=34 k=5x3 s=3x2 p=4x1 d=2x3 g=2 b=1",
    "n=1 ci=1 h=1 w=1 co=1 k=1 b=1",
    "n=2 ci=3 h=3 w=2 co=5 k=1 s=5 p=1 b=1",
    "n=1 ci=600 h=2 w=3 co=3 k=2 b=1",
    "n=1 ci=20 h=2 w=30 co=20 k=1x40 s=1x20 b=1",
    "n=1 ci=8 h=70 w=3 co=8 k=7 s=1 p=6x3 b=1",
    "n=2 ci=18 h=3 w=150 co=33 k=3x11 s=2x9",
    "n=1 ci=5 h=2 w=3 co=7 k=2x1 s=3x70 op=2x60",
    "n=3 ci=40 h=5 w=7 co=3 k=3 s=2 p=1 op=1 d=2",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LAYOUTS      6             /* layouts by weight layouts */
#define FORMS        (3 * LAYOUTS) /* those by dtypes that it takes */

static const tconv_op ops[] = {TCONV_FORWARD, TCONV_BACKWARD_DATA};
static const tconv_implementation *const implementations[] = {
    [TCONV_FORWARD] = &tconv_cpu_bf16, [TCONV_BACKWARD_DATA] = &tconv_cpu_bf16_data};

static harness_layer layer_of(size_t problem, tconv_op op, int form)
{
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F16, TCONV_BF16};
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(problems[problem], &layer, message, sizeof message), "%s", message);
    layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
    layer.desc.weight_layout = (tconv_weight_layout)(form / 2 % 3);
    layer.desc.dtype = dtypes[form / 6];
    layer.desc.op = op;
    return layer;
}

enum { SAMPLES = 2000 };

/* Checks the case in each way of cpu_bf16, and that threads and packing before change no bit. changed: its tensors are no
 * more those that it has the answer of, and samples are computed anew. */
static void check(const harness_case *test, const char *problem, bool changed)
{
    struct way ways[MAX_WAYS];
    const size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t w = 0; w < count; w++) {
        if (strcmp(ways[w].implementation, "cpu_bf16") != 0)
            continue;
        harness_output first, other;
        harness_failure failure;
        cr_assert(run_way(test, &ways[w], 1, false, &first), "%s", problem);
        if (changed)
            cr_assert(harness_compare_sampled(test, &first, SAMPLES, 1, &failure), "%s: %s", ways[w].text,
                      failure.text);
        else
            judge_way(test, &ways[w], 1, false, &first);
        cr_assert(run_way(test, &ways[w], 5, true, &other));
        cr_assert(harness_same_bits(test, &first, &other, &failure), "%s: %s", ways[w].text, failure.text);
        harness_output_release(&first);
        harness_output_release(&other);
    }
}

Test(matrix, every_form_is_right_and_has_the_same_bits_by_any_threads)
{
    for (size_t p = 0; p < COUNT(problems) * COUNT(ops); p++)
        for (int dtype = 0; dtype < FORMS / LAYOUTS; dtype++) {
            const harness_layer some = layer_of(p / COUNT(ops), ops[p % COUNT(ops)], dtype * LAYOUTS);
            for (int fill = harness_has_integers(&some) ? 0 : 1; fill < 2; fill++) {
                harness_case answered = {0};
                for (int form = dtype * LAYOUTS; form < (dtype + 1) * LAYOUTS; form++) {
                    if (!in_part(p * FORMS + (size_t)form))
                        continue;
                    const harness_layer layer = layer_of(p / COUNT(ops), ops[p % COUNT(ops)], form);
                    harness_case test =
                        make_case_as(&answered, &layer, fill == 0 ? HARNESS_INTEGERS : HARNESS_REALS, p);
                    check(&test, problems[p / COUNT(ops)], false);
                    harness_case_destroy(&test);
                }
                harness_case_destroy(&answered);
            }
        }
}

/* Multiplies the elements of index `which` on an axis of a tensor by a power of two. */
static void scale(const harness_view *view, tconv_dtype dtype, void *data, int axis, int64_t which, int exponent)
{
    int64_t at[4];
    for (at[0] = 0; at[0] < view->shape[0]; at[0]++)
        for (at[1] = 0; at[1] < view->shape[1]; at[1]++)
            for (at[2] = 0; at[2] < view->shape[2]; at[2]++)
                for (at[3] = 0; at[3] < view->shape[3]; at[3]++)
                    if (at[axis] == which) {
                        const int64_t index = harness_view_index(view, at[0], at[1], at[2], at[3]);
                        harness_element_set(dtype, data, index,
                                            ldexp(harness_element_get(dtype, data, index), exponent));
                    }
}

/* Rows of what is read, and its channels of the weights, of so different magnitudes that their parts, or parts of their
 * products, are subnormal or too large for bf16, beside others that are not. A row of results reads one row, or two. */
Test(matrix, numbers_that_have_no_parts_are_multiplied_whole)
{
    static const char problem[] = "n=3 ci=6 h=9 w=20 co=36 k=2 s=2";
    static const struct {
        int row, channel,
            weights; /* exponents, of row 4 that is read, of channel 2 of the weights and of all of them */
    } scales[] = {{-110, 0, 0},  {-126, 0, 20},  {-70, 0, -40}, {-60, -50, 0}, {100, 0, -20},
                  {-20, 100, 0}, {90, -110, 10}, {127, 0, -40}, {0, -130, 0},  {-40, 0, 118}};
    for (size_t i = 0; i < COUNT(scales); i++)
        for (int form = 0; form < 8; form++) {
            const bool data = form / 4 == 1;
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s", message);
            layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.dtype = form / 2 % 2 == 0 ? TCONV_F32 : TCONV_BF16;
            layer.desc.op = data ? TCONV_BACKWARD_DATA : TCONV_FORWARD;
            harness_case test = make_case(&layer, HARNESS_REALS, i);
            scale(data ? &test.dst_view : &test.src_view, layer.desc.dtype, data ? test.dst.data : test.src.data, 2, 4,
                  scales[i].row);
            scale(&test.weights_view, layer.desc.dtype, test.weights.data, data ? 1 : 0, 2, scales[i].channel);
            for (int64_t channel = 0; channel < test.weights_view.shape[0]; channel++)
                scale(&test.weights_view, layer.desc.dtype, test.weights.data, 0, channel, scales[i].weights);
            check(&test, problem, true);
            harness_case_destroy(&test);
        }
}

/* Tells whether a layer that suits the algorithm is taken, not by name, by one thread of such a machine, with the
 * second-level cache of the processors that have AMX. */
static bool is_taken(tconv_op op, tconv_dtype dtype, tconv_cpu_isa isa, tconv_cpu_tuning tuning, tconv_issue *issue)
{
    const struct bare_target target = {.cache = 2 << 20, .threads = 1};
    tconv_layer layer;
    bare_layer_make(&layer, "n=4 ci=256 h=64 w=64 co=256 k=4 s=2 p=1", dtype, TCONV_NHWC, &target);
    layer.problem.desc.op = op;
    tconv_cpu_target cpu = tconv_cpu_target_of(&layer.target);
    cpu.cpu_isa = isa;
    cpu.tuning = tuning;
    tconv_cpu_target_set(&layer.target, cpu);
    tconv_planned planned = {.named = false};
    void *made = calloc(1, implementations[op]->plan_bytes);
    const tconv_status status = implementations[op]->plan(&layer, made, &planned, issue);
    cr_expect(status == TCONV_SUCCESS || status == TCONV_ERROR_UNSUPPORTED);
    free(made);
    bare_layer_release(&layer);
    return status == TCONV_SUCCESS;
}

/* The gradient of src is for matrix registers, whatever the pairs: cpu_dgrad has those. */
Test(matrix, the_gradient_of_src_is_taken_by_matrix_registers)
{
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F16, TCONV_BF16};
    tconv_issue issue;
    if (tconv_cpu_find_bf16_kernels(TCONV_CPU_ISA_AMX)->multiplies != TCONV_CPU_MATRICES)
        cr_skip_test("this build has no AMX");
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        cr_expect(is_taken(TCONV_BACKWARD_DATA, dtypes[i], TCONV_CPU_ISA_AMX, TCONV_CPU_TUNING_XEON, &issue), "%s",
                  issue.message);
        cr_expect(
            !is_taken(TCONV_BACKWARD_DATA, dtypes[i], TCONV_CPU_ISA_AVX512_BF16, TCONV_CPU_TUNING_COMMON, &issue));
        cr_expect(!is_taken(TCONV_BACKWARD_DATA, dtypes[i], TCONV_CPU_ISA_AVX512, TCONV_CPU_TUNING_XEON, &issue));
    }
}

/* Pairs of bf16 in a vector are for bf16, which has one part, where the machine multiplies more of them than of f32. */
Test(matrix, pairs_are_taken_where_they_are_faster)
{
    tconv_issue issue;
    if (tconv_cpu_find_bf16_kernels(TCONV_CPU_ISA_AVX512_BF16)->multiplies != TCONV_CPU_PAIRS)
        cr_skip_test("this build has no AVX512_BF16");
    cr_expect(is_taken(TCONV_FORWARD, TCONV_BF16, TCONV_CPU_ISA_AVX512_BF16, TCONV_CPU_TUNING_COMMON, &issue), "%s",
              issue.message);
    cr_expect(!is_taken(TCONV_FORWARD, TCONV_BF16, TCONV_CPU_ISA_AVX512_BF16, TCONV_CPU_TUNING_XEON, &issue));
    cr_expect(strstr(issue.message, "predicted to be faster") != NULL, "%s", issue.message);
    cr_expect(!is_taken(TCONV_FORWARD, TCONV_F16, TCONV_CPU_ISA_AVX512_BF16, TCONV_CPU_TUNING_COMMON, &issue));
    cr_expect(!is_taken(TCONV_FORWARD, TCONV_F32, TCONV_CPU_ISA_AVX512_BF16, TCONV_CPU_TUNING_COMMON, &issue));
}

/* Where C would multiply it is taken by its name alone; f64 and halos that fit no strip never. */
Test(matrix, other_layers_are_declined)
{
    static const struct {
        tconv_op op;
        const char *problem;
        tconv_dtype dtype;
        const char *why;
    } declined[] = {
        {TCONV_FORWARD, "n=1 ci=64 h=3000 w=4 co=32 k=2001x1 p=1000x0", TCONV_F32, "no strip of input fits the cache"},
        {TCONV_FORWARD, "n=1 ci=400000 h=3 w=4 co=32 k=3", TCONV_BF16, "no strip of input fits the cache"},
        {TCONV_FORWARD, "n=1 ci=5000 h=100 w=100 co=32 k=65 p=32", TCONV_F32, "no strip of input fits the cache"},
        {TCONV_BACKWARD_DATA, "n=1 ci=64 h=3000 w=4 co=32 k=2001x1", TCONV_F32, "no strip of input fits the cache"},
        {TCONV_BACKWARD_DATA, "n=1 ci=32 h=3 w=4 co=400000 k=3", TCONV_BF16, "no strip of input fits the cache"},
        {TCONV_BACKWARD_DATA, "n=1 ci=32 h=30 w=40 co=2048 k=16 s=16", TCONV_F32, "no strip of input fits the cache"},
    };
    const struct bare_target target = {.threads = 1};
    tconv_layer layer;
    tconv_issue issue;
    for (size_t i = 0; i < COUNT(declined); i++) {
        bare_layer_make(&layer, declined[i].problem, declined[i].dtype, TCONV_NCHW, &target);
        layer.problem.desc.op = declined[i].op;
        cr_expect(!bare_layer_is_taken(&layer, implementations[declined[i].op], &issue), "%s", declined[i].problem);
        cr_expect(strstr(issue.message, declined[i].why) != NULL, "%s: %s", declined[i].problem, issue.message);
        bare_layer_release(&layer);
    }
    cr_expect_eq((tconv_cpu_bf16.dtypes | tconv_cpu_bf16_data.dtypes) & TCONV_DTYPE_BIT(TCONV_F64), 0);
    cr_expect(!is_taken(TCONV_FORWARD, TCONV_BF16, TCONV_CPU_ISA_GENERIC, TCONV_CPU_TUNING_COMMON, &issue));
    cr_expect(strstr(issue.message, "multiplies no bf16") != NULL, "%s", issue.message);
}

/* Whatever the threads, the scratch of each is 2 MiB at most. */
Test(matrix, scratch_is_2_mib_for_each_thread)
{
    static const struct {
        tconv_op op;
        const char *problem;
    } large[] = {
        {TCONV_FORWARD, "n=64 ci=1024 h=28 w=28 co=512 k=2 s=2"},
        {TCONV_FORWARD, "n=8 ci=64 h=512 w=512 co=64 k=3x7"},
        {TCONV_FORWARD, "n=64 ci=512 h=4 w=4 co=256 k=4 s=2 p=1"},
        {TCONV_FORWARD, "n=1 ci=32 h=400 w=800 co=32 k=16 s=16"},
        {TCONV_FORWARD, "n=1 ci=48 h=1 w=90000 co=1 k=1x128 s=1x64"},
        {TCONV_BACKWARD_DATA, "n=64 ci=1024 h=28 w=28 co=512 k=2 s=2"},
        {TCONV_BACKWARD_DATA, "n=8 ci=64 h=512 w=512 co=64 k=3x7"},
        {TCONV_BACKWARD_DATA, "n=64 ci=512 h=4 w=4 co=256 k=4 s=2 p=1"},
        {TCONV_BACKWARD_DATA, "n=1 ci=32 h=400 w=800 co=16 k=8 s=8"},
        {TCONV_BACKWARD_DATA, "n=1 ci=48 h=1 w=9000 co=2 k=1x128 s=1x64"},
        {TCONV_BACKWARD_DATA, "n=1 ci=48 h=1 w=9000 co=2 k=1x999 s=1x2"},
    };
    static const int threads[] = {1, 2, 7, 64};
    for (size_t i = 0; i < COUNT(large) * COUNT(threads) * 4; i++) {
        const struct bare_target target = {.threads = threads[i / 4 % COUNT(threads)],
                                           .cache = i % 2 == 0 ? 2 << 20 : 8 << 20};
        tconv_layer layer;
        tconv_memory_sizes sizes;
        tconv_issue issue;
        void *made;
        const tconv_op op = large[i / 4 / COUNT(threads)].op;
        bare_layer_make(&layer, large[i / 4 / COUNT(threads)].problem, TCONV_F32,
                        i / 2 % 2 == 0 ? TCONV_NCHW : TCONV_NHWC, &target);
        layer.problem.desc.op = op;
        cr_assert_eq(bare_layer_plan(&layer, implementations[op], &made, &sizes, &issue), TCONV_SUCCESS, "%s",
                     issue.message);
        cr_expect_leq(sizes.scratch, (size_t)target.threads * (2 << 20) + (1 << 16), "%zu bytes", sizes.scratch);
        free(made);
        bare_layer_release(&layer);
    }
}
