/*
 * Slots, resets and masks of streams: what a step may touch of a carry and what it may not; and the calls that are refused,
 * by the field that is at fault, with nothing written.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/counting_allocator.h"
#include "support/expect.h"
#include "support/guard.h"
#include "support/streams.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static tconv_issue issue;

static tconv_desc masked_desc(void)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.batch = 3, desc.stream_axis = 2;
    desc.in_channels = 20, desc.in_h = 1, desc.in_w = 4;
    desc.out_channels = 6, desc.kernel_h = 1, desc.kernel_w = 8, desc.stride_w = 3, desc.groups = 2;
    return desc;
}

static tconv_options options_of(tconv_backend backend)
{
    tconv_options options;
    tconv_options_init(&options);
    options.backend = backend;
    return options;
}

/* Runs a check by each implementation of a backend. */
static void check_each(void (*check)(const tconv_options *options, void *data), tconv_backend backend)
{
    const tconv_desc desc = masked_desc();
    stream_by_each(&desc, backend, check, NULL);
}

/* ----------------------------------------------------------------------------------------------------- slots and masks */

/* Streams that begin, rest and move between slots while others go on. */
static void check_masks(const tconv_options *options, void *data)
{
    const tconv_desc desc = masked_desc();
    struct streams streams = streams_make(&desc, 3, 12, true, 3, 1);
    struct stream_runner runner;
    (void)data;
    cr_assert(stream_runner_begin(&runner, &streams, options, 5, false));
    for (int round = 0; round < 3; round++) {
        const int32_t slots[3] = {(int32_t)((0 + round) % 5), (int32_t)((2 + round) % 5), (int32_t)((4 + round) % 5)};
        const uint8_t reset[3] = {1, 1, 1}, only_first[3] = {1, 0, 0}, but_first[3] = {0, 7, 1};
        for (int64_t i = 0; i < 3; i++)
            runner.position[i] = 0;
        struct stream_call call = {3, 4, NULL, slots, reset, NULL};
        stream_step(&runner, &call); /* inputs 0 to 3 of all, whatever the slots held */
        call.reset = NULL;
        call.active = only_first;
        stream_step(&runner, &call); /* 4 to 7 of the first */
        call.active = but_first;
        stream_step(&runner, &call); /* 4 to 7 of the others */
        const int64_t which[3] = {2, 0, 1};
        const int32_t moved[3] = {slots[2], slots[0], slots[1]};
        struct stream_call last = {3, 4, which, moved, NULL, NULL};
        stream_step(&runner, &last);
        stream_flush(&runner, &last);
        stream_expect_results(&runner, true, "masks");
    }
    stream_runner_end(&runner);
    streams_release(&streams);
}

Test(stream_masks, streams_begin_rest_and_change_places)
{
    check_each(check_masks, TCONV_BACKEND_CPU);
}

Test(stream_masks_cuda, streams_begin_rest_and_change_places)
{
    skip_without_cuda();
    check_each(check_masks, TCONV_BACKEND_CUDA);
}

/* Expects that the slots hold what they did, but for one. */
static void expect_untouched(const struct stream_runner *runner, const double *before, int64_t touched)
{
    double *after = stream_carry(runner);
    for (int64_t slot = 0; slot < runner->slot_count; slot++) {
        const size_t bytes = (size_t)runner->slot_elements * sizeof *after;
        const bool same =
            memcmp(before + slot * runner->slot_elements, after + slot * runner->slot_elements, bytes) == 0;
        cr_assert_eq(same, slot != touched, "slot %lld", (long long)slot);
    }
    free(after);
}

/* The state of another slot is neither read nor written, that of images that rest neither; on CUDA nor anything by a slot
 * number that is out of range. */
static void check_others(const tconv_options *options, void *data)
{
    const tconv_desc desc = masked_desc();
    struct streams streams = streams_make(&desc, 3, 12, true, 3, 2);
    struct stream_runner runner;
    (void)data;
    cr_assert(stream_runner_begin(&runner, &streams, options, 4, false));
    const struct stream_call fill = {3, 4, NULL, NULL, NULL, NULL};
    stream_step(&runner, &fill);
    double *before = stream_carry(&runner);
    const int64_t which[1] = {1};
    const int32_t slot[1] = {1};
    const struct stream_call one = {1, 2, which, slot, NULL, NULL};
    stream_step(&runner, &one);
    expect_untouched(&runner, before, 1);
    free(before), before = stream_carry(&runner);
    const int32_t slots[3] = {2, 0, options->backend == TCONV_BACKEND_CUDA ? 4 : 3};
    const uint8_t active[3] = {1, 0, options->backend == TCONV_BACKEND_CUDA};
    const struct stream_call masked = {3, 4, NULL, slots, NULL, active};
    stream_step(&runner, &masked);
    expect_untouched(&runner, before, 2);
    if (options->backend == TCONV_BACKEND_CUDA) {
        const int32_t wild[3] = {-1, INT32_MIN, INT32_MAX};
        const struct stream_call outside = {3, 4, NULL, wild, NULL, NULL};
        for (int64_t i = 0; i < 3; i++)
            runner.position[i] = 0;
        free(before), before = stream_carry(&runner);
        stream_step(&runner, &outside);
        stream_flush(&runner, &outside);
        expect_untouched(&runner, before, -1);
    }
    free(before);
    stream_runner_end(&runner);
    streams_release(&streams);
}

Test(stream_masks, other_slots_are_untouched)
{
    check_each(check_others, TCONV_BACKEND_CPU);
}

Test(stream_masks_cuda, other_slots_are_untouched)
{
    skip_without_cuda();
    check_each(check_others, TCONV_BACKEND_CUDA);
}

/* A flush leaves zeros, and those alone, in its slot. */
static void check_flush(const tconv_options *options, void *data)
{
    const tconv_desc desc = masked_desc();
    struct streams streams = streams_make(&desc, 3, 4, true, 3, 3);
    struct stream_runner runner;
    (void)data;
    cr_assert(stream_runner_begin(&runner, &streams, options, 3, false));
    const struct stream_call all = {3, 4, NULL, NULL, NULL, NULL};
    stream_step(&runner, &all);
    double *before = stream_carry(&runner);
    const int64_t which[1] = {2};
    const int32_t slot[1] = {2};
    const struct stream_call one = {1, 0, which, slot, NULL, NULL};
    stream_flush(&runner, &one);
    expect_untouched(&runner, before, 2);
    double *after = stream_carry(&runner);
    for (int64_t i = 2 * runner.slot_elements; i < 3 * runner.slot_elements; i++)
        cr_assert_eq(after[i], 0);
    free(before), free(after);
    stream_runner_end(&runner);
    streams_release(&streams);
}

Test(stream_masks, a_flush_leaves_zeros)
{
    check_each(check_flush, TCONV_BACKEND_CPU);
}

Test(stream_masks_cuda, a_flush_leaves_zeros)
{
    skip_without_cuda();
    check_each(check_flush, TCONV_BACKEND_CUDA);
}

/* ------------------------------------------------------------------------------------------------------ calls by hand */

/* A step of f32 by hand, whose memory a test chooses. */
struct by_hand {
    tconv_desc desc;
    tconv_plan *plan;
    size_t bytes[6]; /* src, weights, bias, dst, carry, workspace */
    tconv_tensor src, weights, bias, dst, carry;
    tconv_step step;
};

static struct by_hand prepare(void)
{
    struct by_hand made = {.desc = masked_desc()};
    const tconv_options options = options_of(TCONV_BACKEND_CPU);
    const tconv_desc *desc = &made.desc;
    expect_success(tconv_plan_create(desc, &options, &made.plan, &issue), issue);
    made.bytes[0] = (size_t)(desc->batch * desc->in_channels * desc->in_w) * sizeof(float);
    made.bytes[1] = (size_t)(desc->in_channels * desc->out_channels / desc->groups * desc->kernel_w) * sizeof(float);
    made.bytes[2] = (size_t)desc->out_channels * sizeof(float);
    made.bytes[3] = (size_t)(desc->batch * desc->out_channels * desc->in_w * desc->stride_w) * sizeof(float);
    made.bytes[4] = (size_t)(desc->batch * desc->out_channels * (desc->kernel_w - desc->stride_w)) * sizeof(float);
    expect_success(tconv_plan_workspace_size(made.plan, &made.bytes[5]), issue);
    return made;
}

static void set_memory(struct by_hand *hand, void *const memory[6])
{
    tconv_tensor *const tensors[5] = {&hand->src, &hand->weights, &hand->bias, &hand->dst, &hand->carry};
    for (int i = 0; i < 5; i++)
        *tensors[i] = (tconv_tensor){memory[i], TCONV_F32, TCONV_LOCATION_HOST};
    tconv_step_init(&hand->step);
    hand->step.src = &hand->src, hand->step.weights = &hand->weights, hand->step.bias = &hand->bias;
    hand->step.dst = &hand->dst, hand->step.carry = &hand->carry;
    hand->step.workspace = memory[5], hand->step.workspace_size = hand->bytes[5];
}

static tconv_status run(const struct by_hand *hand, bool flushes)
{
    const tconv_status status =
        flushes ? tconv_plan_flush(hand->plan, &hand->step) : tconv_plan_step(hand->plan, &hand->step);
    if (status != TCONV_SUCCESS)
        tconv_last_issue(&issue);
    return status;
}

/* Nothing is touched beyond either end of any tensor, or of the workspace; and what is only read is not written. */
Test(stream_masks, nothing_outside_is_touched)
{
    for (int side = GUARD_BEFORE; side <= GUARD_AFTER; side++) {
        struct by_hand hand = prepare();
        struct guarded guarded[6];
        void *memory[6];
        for (int i = 0; i < 6; i++) {
            guarded[i] = guard_allocate(hand.bytes[i], (enum guard_side)side);
            memory[i] = guarded[i].data;
            memset(memory[i], 0, hand.bytes[i]);
        }
        for (int i = 0; i < 3; i++)
            guard_protect(&guarded[i]);
        set_memory(&hand, memory);
        expect_success(run(&hand, false), issue);
        hand.step.length = 1, hand.step.batch = 2;
        expect_success(run(&hand, false), issue);
        expect_success(run(&hand, true), issue);
        for (int i = 0; i < 6; i++)
            guard_release(&guarded[i]);
        tconv_plan_destroy(hand.plan);
    }
}

/* A call that is refused, by what is changed of a good one. */
struct wrong {
    const char *field, *message;
    void (*change)(struct by_hand *hand);
    bool flushes;
};

static const int32_t slots_high[3] = {0, 3, 1}, slots_negative[3] = {0, 1, -1}, slots_twice[3] = {2, 1, 2};
static const uint8_t no_one[3] = {0, 0, 0};
static tconv_step small_step;

#define CHANGE(name, ...)                                                                                              \
    static void name(struct by_hand *hand)                                                                             \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }
CHANGE(length_long, hand->step.length = 5)
CHANGE(length_negative, hand->step.length = -1)
CHANGE(batch_large, hand->step.batch = 4)
CHANGE(slots_few, hand->step.slot_count = 2)
CHANGE(slots_none, hand->step.slot_count = -1)
CHANGE(slot_high, hand->step.slots = slots_high)
CHANGE(slot_negative, hand->step.slots = slots_negative)
CHANGE(slot_twice, hand->step.slots = slots_twice)
CHANGE(slots_odd, hand->step.slots = (const int32_t *)(const void *)((const char *)slots_high + 1))
CHANGE(no_carry, hand->step.carry = NULL)
CHANGE(no_src, hand->step.src = NULL)
CHANGE(no_weights, hand->step.weights = NULL)
CHANGE(no_dst, hand->step.dst = NULL)
CHANGE(carry_dtype, hand->carry.dtype = TCONV_F64)
CHANGE(carry_odd, hand->carry.data = (char *)hand->carry.data + 2)
CHANGE(carry_device, hand->carry.location = TCONV_LOCATION_CUDA)
CHANGE(carry_is_dst, hand->carry.data = hand->dst.data)
CHANGE(carry_is_src, hand->carry.data = hand->src.data)
CHANGE(carry_is_bias, hand->carry.data = hand->bias.data)
CHANGE(dst_is_src, hand->dst.data = hand->src.data)
CHANGE(carry_in_workspace, hand->carry.data = hand->step.workspace)
CHANGE(workspace_small, hand->step.workspace_size--)
CHANGE(workspace_none, hand->step.workspace = NULL)
CHANGE(struct_small, hand->step.struct_size = 16)

static const struct wrong wrongs[] = {
    {"length", "length = 5: must be from 1 to 4, in_w of the desc", length_long, false},
    {"length", "length = -1: must be from 1 to 4", length_negative, false},
    {"batch", "batch = 4: must be from 1 to 3", batch_large, false},
    {"batch", "batch = 4: must be from 1 to 3", batch_large, true},
    {"slot_count", "slot_count = 2: must be at least 3", slots_few, false},
    {"slot_count", "slot_count = -1: must be at least 3", slots_none, true},
    {"slots[1]", "slots[1] = 3: must be from 0 to 2", slot_high, false},
    {"slots[2]", "slots[2] = -1: must be from 0 to 2", slot_negative, false},
    {"slots[2]", "slots[2] = 2: must be no other image's, slots[0] is", slot_twice, false},
    {"slots[2]", "must be no other image's", slot_twice, true},
    {"slots", "must be a multiple of 4", slots_odd, false},
    {"carry", "carry = NULL", no_carry, false},
    {"carry", "carry = NULL", no_carry, true},
    {"src", "src = NULL", no_src, false},
    {"weights", "weights = NULL", no_weights, false},
    {"dst", "dst = NULL", no_dst, true},
    {"carry.dtype", "carry.dtype = f64 (1): must be f32", carry_dtype, false},
    {"carry.data", "must be a multiple of 4", carry_odd, false},
    {"carry.location", "must be host", carry_device, false},
    {"dst", "must not overlap carry", carry_is_dst, false},
    {"carry", "must not overlap src", carry_is_src, false},
    {"carry", "must not overlap bias", carry_is_bias, true},
    {"dst", "must not overlap src", dst_is_src, false},
    {"workspace", "must not overlap carry", carry_in_workspace, false},
    {"workspace_size", "must be at least", workspace_small, false},
    {"workspace", "workspace = NULL", workspace_none, true},
    {"struct_size", "was the step filled by tconv_step_init?", struct_small, false},
};

/* Every call that is refused names the field, and leaves dst and the carry as they were. */
Test(stream_masks, refused_calls_name_their_field)
{
    for (size_t w = 0; w < COUNT(wrongs); w++) {
        struct by_hand hand = prepare();
        void *memory[6], *before[6];
        for (int i = 0; i < 6; i++) {
            memory[i] = malloc(hand.bytes[i]), before[i] = malloc(hand.bytes[i]);
            cr_assert(memory[i] != NULL && before[i] != NULL);
            memset(memory[i], 17 + i, hand.bytes[i]);
            memcpy(before[i], memory[i], hand.bytes[i]);
        }
        set_memory(&hand, memory);
        wrongs[w].change(&hand);
        expect_failure(run(&hand, wrongs[w].flushes), issue, TCONV_ERROR_INVALID_ARGUMENT, wrongs[w].field,
                       wrongs[w].message);
        for (int i = 0; i < 6; i++) {
            cr_assert_eq(memcmp(memory[i], before[i], hand.bytes[i]), 0, "%s wrote", wrongs[w].field);
            free(memory[i]), free(before[i]);
        }
        tconv_plan_destroy(hand.plan);
    }
}

/* Slots of images that rest may be anything. */
Test(stream_masks, slots_of_images_that_rest_are_not_looked_at)
{
    struct by_hand hand = prepare();
    void *memory[6];
    for (int i = 0; i < 6; i++)
        memory[i] = calloc(1, hand.bytes[i]);
    set_memory(&hand, memory);
    hand.step.slots = slots_twice, hand.step.active = no_one;
    expect_success(run(&hand, false), issue);
    hand.step.slots = slots_negative;
    expect_success(run(&hand, true), issue);
    for (int i = 0; i < 6; i++)
        free(memory[i]);
    tconv_plan_destroy(hand.plan);
}

/* Plans of streams are for steps, plans of other layers are not. */
Test(stream_masks, plans_of_streams_are_for_steps)
{
    const tconv_options options = options_of(TCONV_BACKEND_CPU);
    struct by_hand hand = prepare();
    void *memory[6];
    tconv_plan *plan;
    for (int i = 0; i < 6; i++)
        memory[i] = calloc(1, hand.bytes[i]);
    set_memory(&hand, memory);
    expect_failure(tconv_plan_execute(hand.plan, &hand.src, &hand.weights, NULL, &hand.dst, memory[5], hand.bytes[5],
                                      NULL) == TCONV_SUCCESS
                       ? TCONV_SUCCESS
                       : (tconv_last_issue(&issue), issue.status),
                   issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis", "tconv_plan_step computes streams");
    expect_failure(tconv_conv_transpose2d(&hand.desc, &options, &hand.src, &hand.weights, NULL, &hand.dst, &issue),
                   issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis", "tconv_plan_step computes streams");
    tconv_plan_destroy(hand.plan);
    hand.desc.stream_axis = 0;
    expect_success(tconv_plan_create(&hand.desc, &options, &plan, &issue), issue);
    hand.plan = plan;
    expect_failure(run(&hand, false), issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis", "tconv_plan_execute");
    expect_failure(run(&hand, true), issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis", "tconv_plan_execute");
    expect_failure(tconv_plan_step(NULL, &small_step) == TCONV_SUCCESS ? TCONV_SUCCESS
                                                                       : (tconv_last_issue(&issue), issue.status),
                   issue, TCONV_ERROR_INVALID_ARGUMENT, "plan", "plan = NULL");
    for (int i = 0; i < 6; i++)
        free(memory[i]);
    tconv_plan_destroy(plan);
}

/* Where any allocation of a plan fails, planning says so and nothing is left; steps allocate nothing. */
Test(stream_masks, failing_allocations_leave_nothing)
{
    const tconv_desc desc = masked_desc();
    for (size_t fail_at = 1;; fail_at++) {
        struct counting_allocator counting;
        tconv_options options = options_of(TCONV_BACKEND_CPU);
        tconv_plan *plan;
        counting_init(&counting, fail_at);
        options.allocator = counting.functions;
        const tconv_status status = tconv_plan_create(&desc, &options, &plan, &issue);
        if (status == TCONV_SUCCESS) {
            cr_assert_gt(fail_at, 1);
            tconv_plan_destroy(plan);
            cr_assert_eq(counting.live, 0);
            return;
        }
        cr_assert_eq(status, TCONV_ERROR_OUT_OF_MEMORY, "%s", issue.message);
        cr_assert_null(plan);
        cr_assert_eq(counting.live, 0);
    }
}
