/*
 * An image has the bits that it has alone, by every implementation whose plan says so (batch_invariant=yes), forward and
 * in the gradient of src, whatever the other images hold.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../cli/harness/element.h"
#include "support/gradients.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Small images with long sums, whose tiles hold several; images of a tile each; few channels; many phases; few pixels. */
static const char *const problems[] = {
    "ci=1024 h=4 w=4 co=32 k=3 p=1 b=1",    "ci=2048 h=2 w=3 co=24 k=2 s=2 b=1",
    "ci=600 h=7 w=7 co=48 k=4 s=2 p=1",     "ci=768 h=1 w=1 co=32 k=4 b=1",
    "ci=96 h=9 w=11 co=20 k=5 s=2 p=2 b=1", "ci=24 h=40 w=40 co=12 k=3 p=1 b=1",
    "ci=32 h=6 w=8 co=32 k=3 g=32 p=1",     "ci=48 h=5 w=5 co=40 k=2 g=2 s=2 d=3 b=1",
    "ci=256 h=1 w=12 co=2 k=1x40 s=1x10",   "ci=40 h=1 w=5 co=3 k=9x60 s=3x15 b=1",
    "ci=320 h=3 w=3 co=24 k=5 d=2 acc=1",
};

static const int64_t batches[] = {1, 2, 5};

#define RANDOM_LAYERS 120

/* Whether the way's plan promises the bits of an image alone; false where it does not take the layer. */
static bool promises(const harness_layer *layer, const struct way *way)
{
    tconv_options options = way_options(way);
    tconv_desc desc = layer->desc;
    tconv_plan *plan;
    char text[2048];
    if (way->math != TCONV_MATH_DEFAULT)
        desc.math = way->math;
    use_threads(&options, 1);
    if (tconv_plan_create(&desc, &options, &plan, NULL) != TCONV_SUCCESS)
        return false;
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, NULL), TCONV_SUCCESS);
    tconv_plan_destroy(plan);
    const bool yes = strstr(text, " batch_invariant=yes ") != NULL;
    cr_assert(yes || strstr(text, " batch_invariant=no ") != NULL, "%s", text);
    return yes;
}

static bool step(const int64_t shape[4], int64_t at[4])
{
    for (int axis = 3; axis >= 0; axis--) {
        if (++at[axis] < shape[axis])
            return true;
        at[axis] = 0;
    }
    return false;
}

/* Copies what a case of many images reads, or holds before, to that of one of them. */
static void copy_image(const harness_case *many, int64_t image, harness_case *one)
{
    const tconv_desc *desc = &one->layer.desc;
    const int addend = harness_post_addend(desc);
    for (int role = 0; role < HARNESS_ROLES; role++) {
        const tconv_dtype dtype = harness_role_dtype(desc, (harness_role)role);
        const harness_view *from = &many->views[role], *to = &one->views[role];
        int64_t at[4] = {0};
        if (one->tensors[role].memory == NULL)
            continue;
        const bool of_images =
            role == HARNESS_SRC || role == HARNESS_DST || (addend >= 0 && role == HARNESS_POST + addend);
        const int64_t first = of_images ? image : 0;
        do {
            const int64_t index = harness_view_index(from, at[0] + first, at[1], at[2], at[3]);
            harness_element_set(dtype, one->tensors[role].data, harness_view_index(to, at[0], at[1], at[2], at[3]),
                                harness_element_get(dtype, many->tensors[role].data, index));
        } while (step(to->shape, at));
    }
}

static void compare_image(const harness_case *many, const harness_output *of_many, int64_t image,
                          const harness_case *one, const harness_output *of_one, const struct way *way)
{
    const harness_role role = one->layer.desc.op == TCONV_FORWARD ? HARNESS_DST : HARNESS_SRC;
    const tconv_dtype dtype = one->layer.desc.dtype;
    const size_t size = harness_element_size(dtype);
    int64_t at[4] = {0};
    char text[HARNESS_LAYER_TEXT];
    do {
        const int64_t a = harness_view_index(&many->views[role], image, at[1], at[2], at[3]);
        const int64_t b = harness_view_index(&one->views[role], 0, at[1], at[2], at[3]);
        if (memcmp((const char *)of_many->tensors[role].data + (size_t)a * size,
                   (const char *)of_one->tensors[role].data + (size_t)b * size, size) == 0)
            continue;
        harness_layer_format(&many->layer, text, sizeof text);
        cr_assert_fail("%s: image %d, c=%d h=%d w=%d: %.9g, but %.9g alone: %s", way->text, (int)image, (int)at[1],
                       (int)at[2], (int)at[3], harness_element_get(dtype, of_many->tensors[role].data, a),
                       harness_element_get(dtype, of_one->tensors[role].data, b), text);
    } while (step(one->views[role].shape, at));
}

/* Checks the first and the last image of a layer. Returns whether the plan of several promises it. */
static bool check_layer(harness_layer layer, int64_t batch, const struct way *way)
{
    harness_case many, one;
    harness_output of_many, of_one;
    tconv_issue issue;
    layer.desc.batch = batch;
    if (!promises(&layer, way))
        return false;
    harness_layer alone = layer;
    alone.desc.batch = 1;
    cr_assert_eq(harness_case_create_unanswered(&many, &layer, HARNESS_REALS, 7, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    cr_assert_eq(harness_case_create_unanswered(&one, &alone, HARNESS_REALS, 8, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    const bool is_taken = run_way(&many, way, 1, false, &of_many); /* not where TF32 is not for the layer's dtype */
    for (int64_t image = 0; is_taken && image<batch; image += batch> 1 ? batch - 1 : 1) {
        copy_image(&many, image, &one);
        cr_assert(run_way(&one, way, 2, false, &of_one), "%s takes several images, and not one", way->text);
        compare_image(&many, &of_many, image, &one, &of_one, way);
        harness_output_release(&of_one);
    }
    if (is_taken)
        harness_output_release(&of_many);
    harness_case_destroy(&many);
    harness_case_destroy(&one);
    return is_taken && batch > 1;
}

static bool check_all(const harness_layer *layer, const struct way *way)
{
    bool promised = false;
    for (size_t b = 0; b < COUNT(batches); b++)
        promised |= check_layer(*layer, batches[b], way);
    return promised;
}

/* Checks all layers by all ways. Fails where a way that is said to promise it always never did. */
static void check_ways(tconv_backend backend, const char *const *promising, size_t promising_count)
{
    struct way ways[MAX_WAYS];
    bool promised[MAX_WAYS] = {false};
    harness_random random;
    const size_t count = list_ways(backend, ways);
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_DATA; op++) {
        harness_random_seed(&random, 47 + (uint64_t)op);
        for (size_t i = 0; i < 2 * COUNT(problems) + RANDOM_LAYERS; i++) {
            harness_layer layer;
            if (i < 2 * COUNT(problems)) {
                layer = gradient_layer(problems[i / 2], (tconv_op)op);
                layer.desc.layout = i % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
                if (op == TCONV_BACKWARD_DATA) { /* which sums over output channels */
                    const int64_t summed = layer.desc.in_channels;
                    layer.desc.in_channels = layer.desc.out_channels, layer.desc.out_channels = summed;
                }
            } else {
                harness_random_layer(&random, &layer);
                layer.desc.op = (tconv_op)op;
            }
            layer.has_bias = layer.has_bias && op == TCONV_FORWARD;
            for (size_t w = 0; w < count && in_part((uint64_t)op * 10000 + i); w++)
                promised[w] |= check_all(&layer, &ways[w]);
        }
    }
    for (size_t w = 0; w < count && is_whole(); w++)
        for (size_t p = 0; p < promising_count; p++)
            cr_expect(promised[w] || strcmp(ways[w].implementation, promising[p]) != 0 ||
                          ways[w].math == TCONV_MATH_TF32,
                      "%s never says batch_invariant=yes for several images", ways[w].text);
}

Test(batch_invariance, images_have_the_bits_that_they_have_alone)
{
    static const char *const promising[] = {"cpu_reference", "cpu_phases", "cpu_pixels",
                                            "cpu_bf16",      "cpu_col2im", "cpu_dgrad"};
    check_ways(TCONV_BACKEND_CPU, promising, COUNT(promising));
}

Test(batch_invariance_cuda, images_have_the_bits_that_they_have_alone)
{
    static const char *const promising[] = {"cuda_general"};
    skip_without_cuda();
    check_ways(TCONV_BACKEND_CUDA, promising, COUNT(promising));
}

/* cuda_frames has other kernels for a batch of many pixels than for one image. */
Test(batch_invariance_cuda, images_have_their_bits_by_the_kernel_for_many_columns)
{
    static const char *const many_pixels[] = {
        "ci=72 h=1 w=120 co=20 k=1x8 s=1x4 b=1", "ci=300 h=1 w=480 co=9 k=1x10 s=1x5",
        "ci=40 h=1 w=97 co=9 k=1x5 s=1x2 b=1",   "ci=64 h=1 w=2 co=24 g=2 k=1x16 s=1x8",
        "ci=48 h=7 w=9 co=20 k=3 s=2 p=1 b=1",   "ci=64 h=10 w=12 co=8 k=4x5 s=2x3 p=1 d=1x2",
    };
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F16, TCONV_BF16};
    struct way ways[MAX_WAYS];
    int promised = 0;
    skip_without_cuda();
    const size_t count = list_ways(TCONV_BACKEND_CUDA, ways);
    for (size_t i = 0; i < COUNT(many_pixels) * COUNT(dtypes); i++) {
        harness_layer layer = gradient_layer(many_pixels[i / COUNT(dtypes)], TCONV_FORWARD);
        layer.desc.dtype = dtypes[i % COUNT(dtypes)];
        for (size_t w = 0; w < count; w++)
            if (strcmp(ways[w].implementation, "cuda_frames") == 0)
                promised += check_layer(layer, 144, &ways[w]);
    }
    cr_expect_geq(promised, (int)COUNT(many_pixels), "of %d layers", (int)(COUNT(many_pixels) * COUNT(dtypes)));
}
