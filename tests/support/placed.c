#include "placed.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { SRC, WEIGHTS, BIAS, DST, WORKSPACE, SRC_AGAIN, MEMORIES };

#define SAMPLES 300

static const char *const problems[PLACED_LAYERS] = {
    "n=2 ci=64 h=40 w=97 co=64 k=3 b=1",
    "n=1 ci=32 h=33 w=130 co=32 k=3x7 p=1x3",
    "n=2 ci=64 h=16 w=24 co=64 k=4 s=2 p=1 b=1",
    "n=3 ci=32 h=9 w=31 co=64 k=3x5 s=2x3 p=1x2 d=2x1 g=4 b=1",
    "n=2 ci=48 h=17 w=19 co=48 k=4 s=2 p=1 g=48 b=1",
    "n=2 ci=64 h=16 w=20 co=3 k=4 s=2 p=1 b=1",
    "n=64 ci=128 h=4 w=4 co=64 k=2 s=2",
    "n=64 ci=256 h=8 w=8 co=128 k=4 s=2 p=1 b=1", /* NCHW is transposed to NHWC in the workspace */
};

harness_case make_placed_case(size_t index, int form)
{
    harness_layer layer;
    harness_case test;
    tconv_issue issue;
    char message[128];
    cr_assert(harness_problem_parse(problems[index], &layer, message, sizeof message), "%s", message);
    layer.desc.dtype = (tconv_dtype)(form / 2);
    layer.desc.layout = (tconv_layout)(form % 2);
    cr_assert_eq(harness_case_create_unanswered(&test, &layer, HARNESS_REALS, index, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    return test;
}

static unsigned char *upload(const harness_buffer *host)
{
    if (host->memory == NULL)
        return NULL;
    unsigned char *memory = harness_device_allocate(host->bytes);
    cr_assert_not_null(memory, "no device memory");
    cr_assert(harness_device_copy(memory, host->memory, host->bytes, NULL), "%s", harness_device_error());
    return memory;
}

/* Copies the tensors to the device, which is made the current one for that. */
static void upload_all(struct placed *placed, size_t workspace_bytes, int device, int current)
{
    const harness_case *test = &placed->test;
    cr_assert(harness_device_select(device), "%s", harness_device_error());
    placed->memory[SRC] = upload(&test->src);
    placed->memory[WEIGHTS] = upload(&test->weights);
    placed->memory[BIAS] = upload(&test->bias);
    placed->memory[DST] = upload(&placed->first.dst);
    placed->memory[WORKSPACE] = harness_device_allocate(workspace_bytes);
    placed->memory[SRC_AGAIN] = upload(&test->src);
    cr_assert(harness_stream_synchronize(NULL), "%s", harness_device_error());
    cr_assert(harness_device_select(current), "%s", harness_device_error());
}

static tconv_tensor tensor(const struct placed *placed, int which, const harness_buffer *host)
{
    unsigned char *memory = placed->memory[which];
    return (tconv_tensor){memory != NULL ? memory + host->offset : NULL, placed->test.layer.desc.dtype,
                          TCONV_LOCATION_CUDA};
}

bool place_way(struct placed *placed, const harness_case *test, const struct way *way, int device)
{
    const size_t size = harness_element_size(test->layer.desc.dtype);
    tconv_options options = way_options(way);
    harness_failure failure;
    tconv_issue issue;
    size_t workspace_bytes;
    *placed = (struct placed){.test = case_of_way(test, way), .way = way};
    if (way->math == TCONV_MATH_TF32 && test->layer.desc.dtype != TCONV_F32)
        return false;
    options.device = device;
    tconv_status status = tconv_plan_create(&placed->test.layer.desc, &options, &placed->plan, &issue);
    if (status == TCONV_ERROR_UNSUPPORTED)
        return false;
    cr_assert_eq(status, TCONV_SUCCESS, "%s: %s", way->text, issue.message);
    placed->first.implementation = way->implementation;
    placed->first.dst = harness_buffer_create(test->dst_view.extent, size, 1);
    cr_assert_not_null(placed->first.dst.memory);
    cr_assert_eq(tconv_plan_workspace_size(placed->plan, &workspace_bytes), TCONV_SUCCESS);
    upload_all(placed, workspace_bytes, device, 0);

    const tconv_tensor weights = tensor(placed, WEIGHTS, &test->weights);
    cr_assert_eq(tconv_plan_pack_weights(placed->plan, &weights, NULL, &placed->packed, &issue), TCONV_SUCCESS,
                 "%s: %s", way->text, issue.message);
    /* Packed as well, whose weights are aligned where the others are not: the driver loads a kernel at its first launch,
     * and waits for the device then (CUDA_MODULE_LOADING=LAZY). */
    placed_execute(placed, true, NULL);
    placed_execute(placed, false, NULL);
    cr_assert(harness_device_select(device) && harness_stream_synchronize(NULL) && harness_device_select(0), "%s: %s",
              way->text, harness_device_error());
    cr_assert(harness_device_copy(placed->first.dst.memory, placed->memory[DST], placed->first.dst.bytes, NULL));
    cr_assert(harness_stream_synchronize(NULL), "%s: %s", way->text, harness_device_error());
    cr_assert(harness_compare_sampled(&placed->test, &placed->first, SAMPLES, 1, &failure), "%s: %s", way->text,
              failure.text);
    return true;
}

void placed_release(struct placed *placed)
{
    for (int i = 0; i < MEMORIES; i++)
        harness_device_release(placed->memory[i]);
    harness_output_release(&placed->first);
    tconv_plan_destroy(placed->packed);
    tconv_plan_destroy(placed->plan);
}

void placed_execute(const struct placed *placed, bool packed, void *stream)
{
    const tconv_plan *plan = packed ? placed->packed : placed->plan;
    const tconv_tensor src = tensor(placed, SRC, &placed->test.src);
    const tconv_tensor weights = tensor(placed, WEIGHTS, &placed->test.weights);
    const tconv_tensor bias = tensor(placed, BIAS, &placed->test.bias);
    const tconv_tensor dst = tensor(placed, DST, &placed->first.dst);
    tconv_issue issue;
    size_t size;
    tconv_plan_workspace_size(plan, &size);
    tconv_status status =
        tconv_plan_execute(plan, &src, packed ? NULL : &weights, placed->test.layer.has_bias ? &bias : NULL, &dst,
                           placed->memory[WORKSPACE], size, stream);
    tconv_last_issue(&issue);
    cr_assert_eq(status, TCONV_SUCCESS, "%s: %s", placed->way->text, issue.message);
}

void placed_clear(const struct placed *placed, void *stream)
{
    size_t workspace_bytes;
    tconv_plan_workspace_size(placed->plan, &workspace_bytes);
    cr_assert(harness_device_fill(placed->memory[DST], 0xff, placed->first.dst.bytes, stream));
    cr_assert(harness_device_fill(placed->memory[WORKSPACE], 0xff, workspace_bytes, stream));
}

void placed_spoil_src(const struct placed *placed, void *stream)
{
    cr_assert(harness_device_fill(placed->memory[SRC], 0xff, placed->test.src.bytes, stream));
}

void placed_mend_src(const struct placed *placed, void *stream)
{
    cr_assert(harness_device_copy(placed->memory[SRC], placed->memory[SRC_AGAIN], placed->test.src.bytes, stream));
}

void placed_expect_same_bits(const struct placed *placed, void *stream, const char *what)
{
    const harness_buffer *first = &placed->first.dst;
    const size_t size = harness_element_size(placed->test.layer.desc.dtype);
    harness_output again = {.implementation = what};
    harness_failure failure;
    again.dst = harness_buffer_create(placed->test.dst_view.extent, size, 1);
    cr_assert(again.dst.memory != NULL && again.dst.bytes == first->bytes);
    cr_assert(harness_device_copy(again.dst.memory, placed->memory[DST], first->bytes, stream));
    cr_assert(harness_stream_synchronize(stream), "%s: %s", placed->way->text, harness_device_error());
    cr_assert(harness_same_bits(&placed->test, &placed->first, &again, &failure), "%s: %s", placed->way->text,
              failure.text);
    cr_assert_eq(memcmp(first->memory, again.dst.memory, first->bytes), 0, "%s, %s: bytes outside dst",
                 placed->way->text, what);
    harness_output_release(&again);
}

void say_taken(const struct way *ways, const size_t *taken, size_t way_count)
{
    for (size_t w = 0; w < way_count; w++)
        fprintf(stderr, "%s: %zu layers%s\n", ways[w].text, taken[w], taken[w] == 0 ? ", NOT TESTED" : "");
}
