#include "cases.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

const int thread_counts[THREAD_COUNTS] = {1, 2, 3, 7};

harness_case make_case(const harness_layer *layer, harness_fill fill, uint64_t seed)
{
    harness_case test;
    tconv_issue issue;
    cr_assert_eq(harness_case_create(&test, layer, fill, seed, &issue), TCONV_SUCCESS, "%s", issue.message);
    return test;
}

harness_case make_case_as(harness_case *answered, const harness_layer *layer, harness_fill fill, uint64_t seed)
{
    harness_case test;
    tconv_issue issue;
    if (answered->answers[HARNESS_DST].expected == NULL && answered->answers[HARNESS_SRC].expected == NULL)
        *answered = make_case(layer, fill, seed);
    cr_assert(answered->fill == fill && answered->layer.desc.dtype == layer->desc.dtype);
    cr_assert_eq(harness_case_create_as(&test, layer, seed, answered, &issue), TCONV_SUCCESS, "%s", issue.message);
    return test;
}

harness_case make_sampled_case(const harness_layer *layer, harness_fill fill, uint64_t seed)
{
    harness_case test;
    tconv_issue issue;
    cr_assert_eq(harness_case_create_sampled(&test, layer, fill, seed, &issue), TCONV_SUCCESS, "%s", issue.message);
    return test;
}

static const char *const larger_problems[LARGER_LAYERS] = {
    "n=3 ci=32 h=17 w=33 co=24 k=3 s=2 p=1 op=1 b=1",
    "n=5 ci=48 h=9 w=7 co=40 k=3x4 s=1x3 p=2x0x1x2 d=1x2 g=4 b=1",
    "n=7 ci=64 h=6 w=7 co=48 k=4 s=2 p=1",
    "n=1 ci=96 h=20 w=37 co=64 k=1 b=1",
    "n=2 ci=64 h=24 w=23 co=64 k=5 s=2 p=2 g=64 b=1",
    "n=9 ci=64 h=4 w=5 co=33 k=3 d=2",
    "n=2 ci=24 h=31 w=45 co=3 k=9 s=4 p=4 op=3",
    "n=61 ci=40 h=3 w=5 co=20 k=2 s=2 b=1",
    "n=13 ci=64 h=3 w=5 co=64 k=3 p=1 b=1",
    "n=29 ci=64 h=2 w=7 co=48 k=3x4 s=1x3 p=2x0x1x2 d=1x2",
    "n=9 ci=40 h=10 w=14 co=66 k=2 s=2 b=1",
    "n=3 ci=64 h=9 w=12 co=40 k=4 s=4 g=2 b=1",
};

harness_layer larger_layer(size_t index, int form)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(larger_problems[index], &layer, message, sizeof message), "%s", message);
    layer.desc.dtype = (tconv_dtype)(form / 2);
    layer.desc.layout = (tconv_layout)(form % 2);
    layer.desc.weight_layout = (tconv_weight_layout)((index + (size_t)form) % 3);
    return layer;
}

void make_special(tconv_dtype dtype, void *data, int64_t index, harness_random *random)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    const int64_t count = sizeof values / sizeof values[0], kind = harness_random_integer(random, 0, count);
    const size_t size = harness_element_size(dtype);
    if (kind < count)
        harness_element_set(dtype, data, index, values[kind]);
    else
        memset((char *)data + (size_t)index * size, 0xff, size);
}
