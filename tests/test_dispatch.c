/* The calls themselves: which implementation is chosen and where it runs, implementations by name, options, and every
 * argument checked by name. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/counting_allocator.h"
#include "support/expect.h"
#include "support/small_layer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct small_layer layer;
static tconv_issue issue;

static void set_up(void)
{
    small_layer_init(&layer);
    memset(&issue, 0, sizeof issue);
    /* There is no device on any machine, unless a test says otherwise. The driver reads this when it is first used. */
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
}

TestSuite(dispatch, .init = set_up);

/* --------------------------------------------------------------------------------------------------- what is chosen */

Test(dispatch, one_call_runs_the_layer)
{
    expect_success(
        tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue), issue);
    cr_assert(small_layer_is_right(&layer));

    small_layer_clear(&layer);
    layer.src.location = layer.weights.location = layer.bias.location = layer.dst.location = TCONV_LOCATION_AUTO;
    expect_success(tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, &layer.bias, &layer.dst, NULL),
                   issue);
    cr_assert(small_layer_is_right(&layer), "locations that the library finds out");
}

Test(dispatch, one_call_without_bias)
{
    expect_success(tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, NULL, &layer.dst, &issue),
                   issue);
    for (int i = 0; i < SMALL_DST; i++)
        cr_assert_eq(layer.dst_data[i], layer.expected[i] - layer.bias_data[i / 60 % 6], "element %d", i);
}

/* An implementation that has other operations alone. */
Test(dispatch, implementations_of_other_operations)
{
    tconv_options options;
    tconv_options_init(&options);
    options.implementation = "cpu_phases";
    for (tconv_op op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        tconv_plan *plan = (tconv_plan *)&layer;
        layer.desc.op = op;
        small_layer_clear(&layer);
        expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_UNSUPPORTED,
                       "implementation", op == TCONV_BACKWARD_DATA ? "op backward_data" : "op backward_weights");
        cr_assert_null(plan);
        expect_failure(
            tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, NULL, &layer.dst, &issue), issue,
            TCONV_ERROR_UNSUPPORTED, "implementation", "does not take op");
        cr_assert(small_layer_is_untouched(&layer));
    }
}

/* Makes options that force an implementation; returns false where it does not take the layer. */
static bool takes_layer(const char *name, tconv_options *options)
{
    tconv_plan *plan;
    tconv_options_init(options);
    options->implementation = name;
    tconv_status status = tconv_plan_create(&layer.desc, options, &plan, NULL);
    tconv_plan_destroy(plan);
    return status != TCONV_ERROR_UNSUPPORTED;
}

/* cpu_bf16 apart, which takes so small a layer by its name alone. */
Test(dispatch, auto_takes_the_first_cpu_implementation)
{
    const char *first = NULL, *name;
    tconv_options options;
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL && first == NULL; i++)
        first =
            strncmp(name, "cpu_", 4) == 0 && strcmp(name, "cpu_bf16") != 0 && takes_layer(name, &options) ? name : NULL;
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    cr_assert_str_eq(tconv_plan_implementation(plan), first);
    small_layer_expect_right(&layer, plan);
    tconv_plan_destroy(plan);
    cr_assert_str_eq(tconv_plan_implementation(NULL), "");
}

Test(dispatch, cpu_and_auto_are_always_available)
{
    expect_success(tconv_backend_available(TCONV_BACKEND_AUTO, &issue), issue);
    expect_success(tconv_backend_available(TCONV_BACKEND_CPU, &issue), issue);
    expect_failure(tconv_backend_available((tconv_backend)9, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "backend",
                   "backend = 9");
}

/* Every call that leads to CUDA reports the same: unavailable, and why. */
Test(dispatch, cuda_without_a_device_is_unavailable_with_its_reason)
{
    tconv_options options;
    tconv_plan *plan = (tconv_plan *)(void *)&layer;
    tconv_issue reason;
    expect_failure(tconv_backend_available(TCONV_BACKEND_CUDA, &reason), reason, TCONV_ERROR_UNAVAILABLE, "backend",
                   "backend = cuda");
    cr_assert_gt(strlen(reason.message), strlen("backend = cuda: "), "\"%s\"", reason.message);

    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE, "backend",
                   reason.message);
    cr_assert_null(plan);
    expect_failure(
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
        issue, TCONV_ERROR_UNAVAILABLE, "backend", reason.message);
    cr_assert(small_layer_is_untouched(&layer));

    tconv_options_init(&options);
    options.location = TCONV_LOCATION_CUDA;
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE, "backend",
                   reason.message);
    setenv("TCONV_BACKEND", "cuda", 1);
    expect_success(tconv_environment_reload(&issue), issue);
    expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE, "backend",
                   reason.message);
}

Test(dispatch, cpu_plan_where_the_tensors_are_said_to_be_on_the_device)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    tconv_tensor *const tensors[] = {&layer.src, &layer.weights, &layer.bias, &layer.dst};
    static const char *const fields[] = {"src.location", "weights.location", "bias.location", "dst.location"};
    for (size_t i = 0; i < COUNT(tensors); i++) {
        tensors[i]->location = TCONV_LOCATION_CUDA;
        expect_failure(small_layer_execute(&layer, plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, fields[i],
                       "a plan never copies between host and device");
        cr_assert(small_layer_is_untouched(&layer));
        tensors[i]->location = TCONV_LOCATION_HOST;
    }
    tconv_plan_destroy(plan);
}

/* ---------------------------------------------------------------------------------------- implementations by name */

Test(dispatch, implementations_are_listed_and_can_be_forced)
{
    const char *name;
    size_t count = 0;
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++) {
        tconv_options options;
        tconv_plan *plan;
        bool cpu = strncmp(name, "cpu_", 4) == 0;
        cr_assert(cpu || strncmp(name, "cuda_", 5) == 0, "%s", name);
        if (!takes_layer(name, &options))
            continue;
        if (!cpu) { /* the name implies CUDA, and there is no device */
            expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE,
                           "backend", "backend = cuda");
            continue;
        }
        plan = small_layer_plan(&layer, &options);
        cr_assert_str_eq(tconv_plan_implementation(plan), name);
        small_layer_expect_right(&layer, plan);
        tconv_plan_destroy(plan);
        count++;
    }
    cr_assert_geq(count, 2, "the reference and at least one more");
    cr_assert_null(tconv_implementation_name(SIZE_MAX));
}

Test(dispatch, unknown_implementation)
{
    static const char *const names[] = {"cpu_none", "", "CPU_REFERENCE", "cpu_reference ", "cpu"};
    for (size_t i = 0; i < COUNT(names); i++) {
        tconv_options options;
        tconv_plan *plan;
        tconv_options_init(&options);
        options.implementation = names[i];
        expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                       "implementation", "tconv_implementation_name");
        cr_assert_not_null(strstr(issue.message, names[i]));
        cr_assert_null(plan);
    }
}

Test(dispatch, implementation_of_the_other_backend)
{
    tconv_options options;
    tconv_plan *plan;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.implementation = "cpu_reference";
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "implementation", "implementation = cpu_reference");
    cr_assert_not_null(strstr(issue.message, "cuda"), "\"%s\"", issue.message);
}

/* An implementation that is asked for by name either takes the layer or says UNSUPPORTED, its name and why. The
 * reference, and a plan without a name, take all layers. */
Test(dispatch, implementation_that_does_not_take_the_layer_says_why)
{
    for (size_t c = 0; c < harness_corner_count(); c += 3) {
        harness_layer corner;
        const char *name;
        harness_corner(c, &corner);
        for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++) {
            tconv_options options;
            tconv_plan *plan;
            if (strncmp(name, "cpu_", 4) != 0)
                continue;
            tconv_options_init(&options);
            options.implementation = name;
            if (tconv_plan_create(&corner.desc, &options, &plan, &issue) != TCONV_SUCCESS) {
                cr_assert_eq(issue.status, TCONV_ERROR_UNSUPPORTED, "%s: %s", name, issue.message);
                cr_assert_str_eq(issue.field, "implementation");
                cr_assert_not_null(strstr(issue.message, name), "\"%s\"", issue.message);
                cr_assert_gt(strlen(issue.message), strlen("implementation = : ") + strlen(name));
                cr_assert_str_neq(name, "cpu_reference");
            }
            tconv_plan_destroy(plan);
        }
        tconv_plan *plan;
        expect_success(tconv_plan_create(&corner.desc, NULL, &plan, &issue), issue);
        tconv_plan_destroy(plan);
    }
}

/* ---------------------------------------------------------------------------------------------------------- options */

Test(dispatch, options_defaults_are_the_manuals)
{
    tconv_options options;
    memset(&options, 0x5a, sizeof options);
    cr_assert_eq(tconv_options_init(&options), TCONV_SUCCESS);
    cr_assert_eq(options.struct_size, sizeof options);
    cr_assert_eq(options.backend, TCONV_BACKEND_AUTO);
    cr_assert_eq(options.location, TCONV_LOCATION_AUTO);
    cr_assert_eq(options.device, -1);
    cr_assert_eq(options.threads, 0);
    cr_assert_eq(options.cpu_isa, TCONV_CPU_ISA_DEFAULT);
    cr_assert_null(options.implementation);
    cr_assert(options.allocator.allocate == NULL && options.allocator.release == NULL);
    cr_assert_null(options.stream);
}

Test(dispatch, options_out_of_range)
{
    static const struct {
        const char *field;
        size_t offset;
        int32_t values[3];
    } ranges[] = {
        {"backend", offsetof(tconv_options, backend), {-1, 3, 99}},
        {"location", offsetof(tconv_options, location), {-1, 3, 99}},
        {"device", offsetof(tconv_options, device), {-2, -100, INT32_MIN}},
        {"threads", offsetof(tconv_options, threads), {-1, 65537, INT32_MAX}},
        {"cpu_isa", offsetof(tconv_options, cpu_isa), {-1, 7, 99}},
        {"verbose", offsetof(tconv_options, verbose), {-1, 3, 99}},
    };
    for (size_t i = 0; i < COUNT(ranges); i++)
        for (size_t j = 0; j < COUNT(ranges[i].values); j++) {
            tconv_options options;
            tconv_plan *plan;
            char stated[64];
            tconv_options_init(&options);
            memcpy((char *)&options + ranges[i].offset, &ranges[i].values[j], sizeof(int32_t));
            snprintf(stated, sizeof stated, "%s = %" PRId32 ": must be", ranges[i].field, ranges[i].values[j]);
            expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                           ranges[i].field, stated);
            expect_failure(tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias,
                                                  &layer.dst, &issue),
                           issue, TCONV_ERROR_INVALID_ARGUMENT, ranges[i].field, stated);
            cr_assert(small_layer_is_untouched(&layer));
        }
}

Test(dispatch, allocator_has_both_functions_or_neither)
{
    struct counting_allocator counting;
    tconv_options options;
    tconv_plan *plan;
    counting_init(&counting, 0);
    tconv_options_init(&options);
    options.allocator.allocate = counting.functions.allocate;
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "allocator", "both allocate and release");
    options.allocator.allocate = NULL;
    options.allocator.release = counting.functions.release;
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "allocator", "both allocate and release");
}

/* The first published tconv_options ended before stream. */
Test(dispatch, options_of_other_versions)
{
    struct {
        tconv_options known;
        unsigned char news[16];
    } newer;
    tconv_plan *plan;
    tconv_options_init(&newer.known);
    newer.known.struct_size = offsetof(tconv_options, stream);
    memset(&newer.known.stream, 0xa5, sizeof newer.known.stream);
    newer.known.threads = 2;
    plan = small_layer_plan(&layer, &newer.known);
    small_layer_expect_right(&layer, plan);
    tconv_plan_destroy(plan);

    const size_t small[] = {0, sizeof(size_t), offsetof(tconv_options, stream) - 1};
    for (size_t i = 0; i < COUNT(small); i++) {
        newer.known.struct_size = small[i];
        expect_failure(tconv_plan_create(&layer.desc, &newer.known, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                       "struct_size", "tconv_options_init");
    }
    memset(&newer, 0x5a, sizeof newer);
    cr_assert_eq(tconv_options_init_sized(&newer.known, sizeof newer), TCONV_SUCCESS);
    plan = small_layer_plan(&layer, &newer.known);
    tconv_plan_destroy(plan);
    newer.news[15] = 1;
    expect_failure(tconv_plan_create(&layer.desc, &newer.known, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                   "struct_size", "must be 0");
}

/* -------------------------------------------------------------------------------------------------------- arguments */

Test(dispatch, workspace_is_checked)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    size_t size;
    cr_assert_eq(tconv_plan_workspace_size(plan, &size), TCONV_SUCCESS);
    cr_assert(size > 0 && size <= sizeof layer.workspace, "%zu", size);
    for (size_t given = 0; given < size; given += given + 1 < size && given + 17 > size ? 1 : 17) {
        tconv_status status =
            tconv_plan_execute(plan, &layer.src, &layer.weights, &layer.bias, &layer.dst, layer.workspace, given, NULL);
        tconv_last_issue(&issue);
        expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, "workspace_size", "must be at least");
        char stated[64];
        snprintf(stated, sizeof stated, "workspace_size = %zu: must be at least %zu", given, size);
        cr_assert_str_eq(issue.message, stated);
    }
    tconv_status status =
        tconv_plan_execute(plan, &layer.src, &layer.weights, &layer.bias, &layer.dst, NULL, size, NULL);
    tconv_last_issue(&issue);
    expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, "workspace", "workspace = NULL");
    cr_assert(small_layer_is_untouched(&layer));
    cr_assert_eq(
        tconv_plan_execute(plan, &layer.src, &layer.weights, &layer.bias, &layer.dst, layer.workspace, size, NULL),
        TCONV_SUCCESS);
    cr_assert(small_layer_is_right(&layer));
    tconv_plan_destroy(plan);
}

enum { SRC, WEIGHTS, BIAS, DST, TENSORS };

static const char *const tensor_names[] = {"src", "weights", "bias", "dst"};

/* Executes the plan and makes the one call with one argument replaced; both fail alike. */
static void expect_bad_tensor(const tconv_plan *plan, int which, const tconv_tensor *tensor, const char *member,
                              const char *text)
{
    const tconv_tensor *given[TENSORS] = {&layer.src, &layer.weights, &layer.bias, &layer.dst};
    char field[32];
    snprintf(field, sizeof field, "%s%s", tensor_names[which], member);
    given[which] = tensor;
    tconv_status status = tconv_plan_execute(plan, given[SRC], given[WEIGHTS], given[BIAS], given[DST], layer.workspace,
                                             sizeof layer.workspace, NULL);
    tconv_last_issue(&issue);
    expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, field, text);
    expect_failure(
        tconv_conv_transpose2d(&layer.desc, NULL, given[SRC], given[WEIGHTS], given[BIAS], given[DST], &issue), issue,
        TCONV_ERROR_INVALID_ARGUMENT, field, text);
    cr_assert(small_layer_is_untouched(&layer), "%s: dst was written", field);
    if (which == WEIGHTS) {
        tconv_plan *packed;
        expect_failure(tconv_plan_pack_weights(plan, tensor, NULL, &packed, &issue), issue,
                       TCONV_ERROR_INVALID_ARGUMENT, field, text);
        cr_assert_null(packed);
    }
}

Test(dispatch, tensors_are_checked_by_name)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL);
    const tconv_tensor good[TENSORS] = {layer.src, layer.weights, layer.bias, layer.dst};
    for (int which = SRC; which < TENSORS; which++) {
        tconv_tensor bad = good[which];
        if (which != BIAS) /* bias may be NULL */
            expect_bad_tensor(plan, which, NULL, "", "NULL");
        bad.data = NULL;
        expect_bad_tensor(plan, which, &bad, ".data", "NULL");
        for (int off = 1; off < 4; off++) {
            bad.data = (char *)good[which].data + off;
            expect_bad_tensor(plan, which, &bad, ".data", "must be a multiple of 4");
        }
        bad = good[which];
        bad.dtype = TCONV_F64;
        expect_bad_tensor(plan, which, &bad, ".dtype", "must be f32");
        bad.dtype = (tconv_dtype)-1;
        expect_bad_tensor(plan, which, &bad, ".dtype", "must be f32");
        bad = good[which];
        bad.location = (tconv_location)3;
        expect_bad_tensor(plan, which, &bad, ".location", "3: must be");
    }
    tconv_plan_destroy(plan);
}

Test(dispatch, null_plans_and_null_answers)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL), *packed = plan;
    size_t size;
    char text[8];
    expect_failure(tconv_plan_create(&layer.desc, NULL, NULL, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "plan",
                   "plan = NULL");
    expect_failure(tconv_plan_create(NULL, NULL, &packed, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "desc",
                   "desc = NULL");
    cr_assert_null(packed);
    expect_failure(tconv_plan_pack_weights(plan, &layer.weights, NULL, NULL, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "packed", "packed = NULL");
    packed = plan;
    expect_failure(tconv_plan_pack_weights(NULL, &layer.weights, NULL, &packed, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "plan", "plan = NULL");
    cr_assert_null(packed);
    expect_failure(tconv_conv_transpose2d(NULL, NULL, &layer.src, &layer.weights, NULL, &layer.dst, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "desc", "desc = NULL");

    const struct {
        tconv_status status;
        const char *field;
    } questions[] = {
        {tconv_plan_workspace_size(NULL, &size), "plan"},
        {tconv_plan_workspace_size(plan, NULL), "size"},
        {tconv_plan_describe(NULL, text, sizeof text, &size), "plan"},
        {tconv_plan_describe(plan, NULL, 1, &size), "text"},
        {tconv_system_info(TCONV_TEXT_PLAIN, NULL, 1, &size), "text"},
        {tconv_system_info((tconv_text_format)7, text, sizeof text, &size), "format"},
        {tconv_plan_execute(NULL, &layer.src, &layer.weights, NULL, &layer.dst, NULL, 0, NULL), "plan"},
    };
    for (size_t i = 0; i < COUNT(questions); i++)
        cr_assert_eq(questions[i].status, TCONV_ERROR_INVALID_ARGUMENT, "question %zu", i);
    tconv_last_issue(&issue);
    cr_assert_str_eq(issue.field, questions[COUNT(questions) - 1].field);
    tconv_plan_destroy(plan);
}

Test(dispatch, no_images_need_no_tensors)
{
    tconv_plan *plan, *packed;
    layer.desc.batch = 0;
    plan = small_layer_plan(&layer, NULL);
    cr_assert_eq(tconv_plan_execute(plan, NULL, NULL, NULL, NULL, NULL, 0, NULL), TCONV_SUCCESS);
    expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
    cr_assert_eq(tconv_plan_execute(packed, NULL, NULL, NULL, NULL, NULL, 0, NULL), TCONV_SUCCESS);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
    expect_success(tconv_conv_transpose2d(&layer.desc, NULL, NULL, NULL, NULL, NULL, &issue), issue);
    layer.src.data = layer.dst.data = NULL;
    expect_success(
        tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue), issue);
    layer.desc.stride_w = 0; /* the desc stays wrong */
    expect_failure(tconv_conv_transpose2d(&layer.desc, NULL, NULL, NULL, NULL, NULL, &issue), issue,
                   TCONV_ERROR_INVALID_ARGUMENT, "stride_w", "must be at least 1");
}
