/* Statuses as numbers and text, the issue as a struct, the last issue of each thread, the version. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "support/expect.h"
#include "tconv/tconv.h"

/* Values that programs have compiled in. None may ever change. */
static const struct {
    int pinned, value;
    const char *name;
} statuses[] = {
    {0, TCONV_SUCCESS, "TCONV_SUCCESS"},
    {1, TCONV_ERROR_INVALID_ARGUMENT, "TCONV_ERROR_INVALID_ARGUMENT"},
    {2, TCONV_ERROR_OVERFLOW, "TCONV_ERROR_OVERFLOW"},
    {3, TCONV_ERROR_OUT_OF_MEMORY, "TCONV_ERROR_OUT_OF_MEMORY"},
    {4, TCONV_ERROR_UNAVAILABLE, "TCONV_ERROR_UNAVAILABLE"},
    {5, TCONV_ERROR_UNSUPPORTED, "TCONV_ERROR_UNSUPPORTED"},
    {6, TCONV_ERROR_ENVIRONMENT, "TCONV_ERROR_ENVIRONMENT"},
    {7, TCONV_ERROR_CUDA, "TCONV_ERROR_CUDA"},
};

#define STATUS_COUNT (sizeof statuses / sizeof statuses[0])

Test(status, values_are_pinned)
{
    for (size_t i = 0; i < STATUS_COUNT; i++)
        cr_assert_eq(statuses[i].value, statuses[i].pinned, "%s = %d", statuses[i].name, statuses[i].value);
}

Test(status, every_value_has_its_name)
{
    for (size_t i = 0; i < STATUS_COUNT; i++)
        cr_assert_str_eq(tconv_status_string((tconv_status)statuses[i].pinned), statuses[i].name);
}

Test(status, other_values_are_unknown)
{
    const int others[] = {-1, (int)STATUS_COUNT, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        cr_assert_str_eq(tconv_status_string((tconv_status)others[i]), "unknown status", "%d", others[i]);
}

Test(status, enumerators_are_pinned)
{
    static const int pinned[][2] = {
        {TCONV_F32, 0},
        {TCONV_F64, 1},
        {TCONV_F16, 2},
        {TCONV_BF16, 3},
        {TCONV_NCHW, 0},
        {TCONV_NHWC, 1},
        {TCONV_WEIGHT_IOHW, 0},
        {TCONV_WEIGHT_IHWO, 1},
        {TCONV_WEIGHT_HWOI, 2},
        {TCONV_MATH_DEFAULT, 0},
        {TCONV_MATH_STRICT, 1},
        {TCONV_MATH_TF32, 2},
        {TCONV_BACKEND_AUTO, 0},
        {TCONV_BACKEND_CPU, 1},
        {TCONV_BACKEND_CUDA, 2},
        {TCONV_LOCATION_AUTO, 0},
        {TCONV_LOCATION_HOST, 1},
        {TCONV_LOCATION_CUDA, 2},
        {TCONV_TEXT_PLAIN, 0},
        {TCONV_TEXT_JSON, 1},
        {TCONV_POST_ADD_CHANNEL, 1},
        {TCONV_POST_MUL_CHANNEL, 2},
        {TCONV_POST_ADD_TENSOR, 3},
        {TCONV_POST_LINEAR, 4},
        {TCONV_POST_CLAMP, 5},
        {TCONV_POST_LEAKY_RELU, 6},
        {TCONV_POST_SIGMOID, 7},
        {TCONV_POST_TANH, 8},
        {TCONV_POST_SILU, 9},
        {TCONV_POST_GELU, 10},
        {TCONV_POST_GELU_TANH, 11},
        {TCONV_POST_MISH, 12},
        {TCONV_POST_ELU, 13},
        {TCONV_POST_SOFTPLUS, 14},
        {TCONV_POST_HARDSWISH, 15},
        {TCONV_POST_SNAKE, 16},
    };
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++)
        cr_assert_eq(pinned[i][0], pinned[i][1], "row %zu: %d, pinned %d", i, pinned[i][0], pinned[i][1]);
}

/* Callers in other languages declare these structs by hand. */
Test(status, structs_keep_their_layout)
{
    cr_assert_eq(sizeof(tconv_issue), 256, "tconv_issue has %zu bytes", sizeof(tconv_issue));
    cr_assert_eq(offsetof(tconv_issue, field), 4);
    cr_assert_eq(offsetof(tconv_issue, message), 48);
    cr_assert_eq(sizeof(tconv_tensor), 16, "tconv_tensor has %zu bytes", sizeof(tconv_tensor));
    cr_assert_eq(offsetof(tconv_tensor, dtype), 8);
    cr_assert_eq(offsetof(tconv_tensor, location), 12);
    cr_assert_eq(sizeof(tconv_desc), 560, "tconv_desc has %zu bytes", sizeof(tconv_desc));
    cr_assert_eq(offsetof(tconv_desc, dtype), 152, "dtype at %zu", offsetof(tconv_desc, dtype));
    cr_assert_eq(offsetof(tconv_desc, src_strides), 168, "src_strides at %zu", offsetof(tconv_desc, src_strides));
    cr_assert_eq(offsetof(tconv_desc, op), 232, "op at %zu", offsetof(tconv_desc, op));
    cr_assert_eq(offsetof(tconv_desc, accumulate), 236, "accumulate at %zu", offsetof(tconv_desc, accumulate));
    cr_assert_eq(offsetof(tconv_desc, post_count), 240, "post_count at %zu", offsetof(tconv_desc, post_count));
    cr_assert_eq(offsetof(tconv_desc, post), 248, "post at %zu", offsetof(tconv_desc, post));
    cr_assert_eq(offsetof(tconv_desc, addend_strides), 440, "addend_strides at %zu",
                 offsetof(tconv_desc, addend_strides));
    cr_assert_eq(offsetof(tconv_desc, stream_axis), 472, "stream_axis at %zu", offsetof(tconv_desc, stream_axis));
    cr_assert_eq(offsetof(tconv_desc, carry_dtype), 476, "carry_dtype at %zu", offsetof(tconv_desc, carry_dtype));
    cr_assert_eq(offsetof(tconv_desc, in_d), 480, "in_d at %zu", offsetof(tconv_desc, in_d));
    cr_assert_eq(offsetof(tconv_desc, pad_front), 512, "pad_front at %zu", offsetof(tconv_desc, pad_front));
    cr_assert_eq(offsetof(tconv_desc, src_stride_d), 536, "src_stride_d at %zu", offsetof(tconv_desc, src_stride_d));
    cr_assert_eq(sizeof(tconv_step), 184, "tconv_step has %zu bytes", sizeof(tconv_step));
    cr_assert_eq(sizeof(tconv_post_op), 24, "tconv_post_op has %zu bytes", sizeof(tconv_post_op));
    cr_assert_eq(offsetof(tconv_post_op, alpha), 8, "alpha at %zu", offsetof(tconv_post_op, alpha));
    cr_assert_eq(sizeof(tconv_operands), 104, "tconv_operands has %zu bytes", sizeof(tconv_operands));
    cr_assert_eq(offsetof(tconv_operands, dst), 32, "dst at %zu", offsetof(tconv_operands, dst));
    cr_assert_eq(offsetof(tconv_operands, post), 40, "post at %zu", offsetof(tconv_operands, post));
    cr_assert_eq(sizeof(tconv_options), 112, "tconv_options has %zu bytes", sizeof(tconv_options));
    cr_assert_eq(offsetof(tconv_options, allocator), 40, "allocator at %zu", offsetof(tconv_options, allocator));
}

Test(status, version_is_the_headers)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", TCONV_VERSION_MAJOR, TCONV_VERSION_MINOR, TCONV_VERSION_PATCH);
    cr_assert_str_eq(tconv_version(), version);
    cr_assert_str_eq(TCONV_VERSION_STRING, version);
}

/* Makes a failing call whose field is name, by a layer that lacks everything from that extent on. */
static void fail_at(const char *name, tconv_issue *issue)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.in_channels = 1;
    if (strcmp(name, "in_h") != 0)
        desc.in_h = 1;
    expect_failure(tconv_validate(&desc, issue), *issue, TCONV_ERROR_INVALID_ARGUMENT, name, name);
}

Test(status, last_issue_is_a_success_before_any_failure)
{
    tconv_issue issue, empty = {.status = TCONV_SUCCESS};
    memset(&issue, 0x5a, sizeof issue);
    tconv_last_issue(&issue);
    cr_assert_arr_eq(&issue, &empty, sizeof issue, "status %d, field \"%s\"", (int)issue.status, issue.field);
    tconv_last_issue(NULL);
}

Test(status, last_issue_is_the_last_failure)
{
    tconv_issue given, last;
    tconv_desc good;
    fail_at("in_h", &given);
    tconv_last_issue(&last);
    cr_assert_arr_eq(&last, &given, sizeof last, "last issue: \"%s\", given: \"%s\"", last.message, given.message);

    fail_at("in_w", &given);
    tconv_last_issue(&last);
    cr_assert_arr_eq(&last, &given, sizeof last, "last issue: \"%s\", given: \"%s\"", last.message, given.message);

    tconv_desc_init(&good);
    good.in_channels = good.in_h = good.in_w = good.out_channels = good.kernel_h = good.kernel_w = 1;
    expect_success(tconv_validate(&good, &given), given);
    cr_assert_eq(given.status, TCONV_SUCCESS, "a success leaves a success in the caller's issue");
    cr_assert_str_empty(given.field);
    cr_assert_str_empty(given.message);
    tconv_last_issue(&last);
    cr_assert_str_eq(last.field, "in_w", "a success does not clear the last failure");
}

Test(status, last_issue_is_kept_without_a_callers_issue)
{
    tconv_desc desc;
    tconv_issue last;
    tconv_desc_init(&desc);
    cr_assert_eq(tconv_validate(&desc, NULL), TCONV_ERROR_INVALID_ARGUMENT);
    tconv_last_issue(&last);
    cr_assert_eq(last.status, TCONV_ERROR_INVALID_ARGUMENT);
    cr_assert_str_eq(last.field, "in_channels");
}

struct other_thread {
    tconv_issue before, after;
};

static void *fail_in_other_thread(void *argument)
{
    struct other_thread *other = argument;
    tconv_desc desc;
    tconv_last_issue(&other->before);
    tconv_desc_init(&desc);
    desc.groups = 0;
    desc.in_channels = desc.in_h = desc.in_w = desc.out_channels = desc.kernel_h = desc.kernel_w = 1;
    tconv_validate(&desc, NULL);
    tconv_last_issue(&other->after);
    return NULL;
}

Test(status, last_issue_belongs_to_its_thread)
{
    struct other_thread other;
    tconv_issue mine;
    pthread_t thread;
    fail_at("in_w", &mine);
    cr_assert_eq(pthread_create(&thread, NULL, fail_in_other_thread, &other), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(other.before.status, TCONV_SUCCESS, "another thread saw \"%s\"", other.before.message);
    cr_assert_str_eq(other.after.field, "groups");
    tconv_last_issue(&mine);
    cr_assert_str_eq(mine.field, "in_w", "another thread's failure came here: \"%s\"", mine.message);
}

enum { MANY_THREADS = 150 };

static pthread_barrier_t all_have_failed;

/* Fails with a value of its own, and checks that it finds this value when all have failed. */
static void *fail_beside_others(void *argument)
{
    char value[32];
    tconv_desc desc;
    tconv_issue issue;
    tconv_desc_init(&desc);
    desc.batch = -1 - *(const int *)argument;
    tconv_validate(&desc, NULL);
    pthread_barrier_wait(&all_have_failed);
    tconv_last_issue(&issue);
    snprintf(value, sizeof value, "batch = %d:", (int)desc.batch);
    return strncmp(issue.message, value, strlen(value)) == 0 ? argument : NULL;
}

/* More threads fail than there are places without memory of their own, and later threads take the places again. */
Test(status, last_issues_of_many_threads_are_kept)
{
    pthread_t threads[MANY_THREADS];
    int numbers[MANY_THREADS];
    for (int round = 0; round < 2; round++) {
        pthread_barrier_init(&all_have_failed, NULL, MANY_THREADS);
        for (int i = 0; i < MANY_THREADS; i++) {
            numbers[i] = i;
            cr_assert_eq(pthread_create(&threads[i], NULL, fail_beside_others, &numbers[i]), 0);
        }
        for (int i = 0; i < MANY_THREADS; i++) {
            void *found;
            cr_assert_eq(pthread_join(threads[i], &found), 0);
            cr_assert_eq(found, &numbers[i], "round %d: thread %d finds another issue than its own", round, i);
        }
        pthread_barrier_destroy(&all_have_failed);
    }
}
