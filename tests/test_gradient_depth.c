/*
 * The gradient of the weights of layers with depth by cuda_wgrad, in one launch: which layers it is planned for, and that the
 * numbers of a plan lead its K-tiles (src/cuda/wgrad/load.cuh, find_image) through each pair of planes that a kernel plane joins,
 * once. That the kernels' sums are right is what the suites of all layers say.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../src/cuda/wgrad/plan.h"
#include "../src/dispatch/resolve.h"
#include "harness.h"
#include "support/expect.h"

enum { TEXT = 8192, AXES = 300, MOST_VOLUMES = 3, MOST_PLANES = 70 };

static tconv_issue issue;

static tconv_desc desc_of(const char *text, tconv_dtype dtype, tconv_layout layout)
{
    harness_layer layer;
    char error[128];
    cr_assert(harness_problem_parse(text, &layer, error, sizeof error), "%s: %s", text, error);
    layer.desc.op = TCONV_BACKWARD_WEIGHTS;
    layer.desc.dtype = dtype;
    layer.desc.layout = layout;
    layer.desc.math = TCONV_MATH_TF32;
    return layer.desc;
}

/* Explains the plan of a layer on an H200. */
static void explain(const tconv_desc *desc, char text[TEXT])
{
    expect_success(tconv_explain(desc, NULL, "h200", TCONV_TEXT_PLAIN, text, TEXT, NULL, &issue), issue);
}

Test(gradient_depth, layers_are_planned_in_one_launch)
{
    static const struct {
        const char *text;
        int planes, volumes;
    } layers[] = {
        {"n=2 ci=320 co=320 z=4 h=4 w=4 k=2 s=2", 2, 2},
        {"n=2 ci=320 co=256 z=8 h=8 w=8 k=2 s=2", 2, 2},
        {"n=2 ci=128 co=64 z=32 h=32 w=32 k=2 s=2", 2, 2},
        {"n=2 ci=128 co=64 z=16 h=32 w=32 k=3 s=2 p=1 op=1", 3, 2},
        {"n=16 ci=32 co=64 z=16 h=32 w=32 k=3 s=2 p=1 d=2", 3, 16},
        {"n=2 ci=64 co=32 z=16 h=32 w=32 k=3 d=2", 3, 2},
        {"n=3 ci=64 co=32 z=7 h=28 w=28 k=2 s=2", 2, 3},
        {"n=4 ci=32 co=128 z=32 h=32 w=64 k=3 s=2 p=1 g=4", 3, 4},
        {"n=2 ci=64 co=64 z=16 h=16 w=16 k=4 s=2 p=2x1x1", 4, 2},
        {"n=1 ci=64 co=64 z=16 h=16 w=16 k=3 p=1", 3, 1},
    };
    static const struct {
        tconv_dtype dtype;
        tconv_layout layout;
    } forms[] = {{TCONV_F32, TCONV_NCHW}, {TCONV_F32, TCONV_NHWC}, {TCONV_BF16, TCONV_NHWC}};
    char text[TEXT], wanted[64];
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (size_t form = 0; form < sizeof forms / sizeof forms[0]; form++) {
            tconv_desc desc = desc_of(layers[i].text, forms[form].dtype, forms[form].layout);
            snprintf(wanted, sizeof wanted, " planes=%d volumes=%d ", layers[i].planes, layers[i].volumes);
            for (desc.accumulate = 0; desc.accumulate < 2; desc.accumulate++) {
                explain(&desc, text);
                cr_expect(strstr(text, "calls: 1\n") != NULL && strstr(text, wanted) != NULL, "%s:\n%s", layers[i].text,
                          text);
            }
        }
}

/* Draws the depth and the volumes of a layer; false where there is no output or there are too many planes. */
static bool draw(harness_random *random, tconv_desc *desc)
{
    tconv_problem problem;
    desc->batch = harness_random_integer(random, 1, MOST_VOLUMES);
    desc->in_d = harness_random_integer(random, 1, 9);
    desc->kernel_d = harness_random_integer(random, 1, 5);
    desc->stride_d = harness_random_integer(random, 1, 4);
    desc->dilation_d = harness_random_integer(random, 1, 3);
    desc->pad_front = harness_random_integer(random, 0, 5);
    desc->pad_back = harness_random_integer(random, 0, 5);
    desc->in_h = desc->in_w = (int64_t)1 << harness_random_integer(random, 1, 3);
    desc->layout = (tconv_layout)harness_random_integer(random, 0, 1);
    desc->dtype = harness_random_integer(random, 0, 1) == 0 ? TCONV_F32 : TCONV_BF16;
    return tconv_problem_init(&problem, desc, &issue) == TCONV_SUCCESS && problem.d.out <= MOST_PLANES &&
           tconv_has_depth(&problem);
}

static void plan_layer(const tconv_desc *desc, tconv_layer *layer, planned_layer *plan)
{
    tconv_options options;
    tconv_config config;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    memset(layer, 0, sizeof *layer);
    memset(plan, 0, sizeof *plan);
    expect_success(tconv_problem_init(&layer->problem, desc, &issue), issue);
    expect_success(tconv_target_resolve(&options, "h200", layer, &config, &issue), issue);
    expect_success(tconv_layer_create_phases(layer, &options.allocator, &issue), issue);
    cr_assert(tconv_wgrad_choose(layer, plan));
    tconv_layer_release_phases(layer, &options.allocator);
}

static int quotient_of(int number, const fast_divisor *by)
{
    return (int)((uint64_t)(uint32_t)number * by->factor >> by->shift);
}

/* Walks through the images of all K-tiles of a block, as kernels do, and counts the images of src. */
static void walk(const tconv_problem *problem, const parameters *params, int block, int64_t kernel_plane,
                 int counts[MOST_VOLUMES][MOST_PLANES])
{
    const image_axis *images = &params->images;
    const int number = quotient_of(block, &images->by_plane_tiles);
    const int plane = number - quotient_of(number, &images->by_planes) * images->by_planes.divisor;
    cr_assert_eq(plane, kernel_plane, "block %d", block);
    const int of_plane = params->rows.tiles * params->columns.tiles;
    for (int k_tile = 0; k_tile < params->k_tiles; k_tile += of_plane) {
        const int image = k_tile / of_plane << images->tile_log2;
        const int volume = quotient_of(image >> images->tile_log2, &images->by_tiles);
        const int begin = (image >> images->tile_log2) - volume * images->tiles;
        const int first = images->first + images->tap * plane;
        for (int i = 0; i < 1 << images->tile_log2; i++) {
            const int q = (begin << images->tile_log2) + i, met = images->step * q + first;
            if (q >= images->in)
                continue;
            cr_assert_eq(met, problem->d.stride * q + problem->d.dilation * kernel_plane - problem->d.pad);
            cr_assert_eq((image + i) * params->src_strides.n + volume * images->src_beyond,
                         volume * problem->src.n + q * problem->src.d);
            cr_assert_eq((image + i) * params->dst_strides.n + volume * images->dst_beyond + first * images->dst_image,
                         volume * problem->dst.n + met * problem->dst.d);
            counts[volume][q]++;
        }
    }
}

Test(gradient_depth, k_tiles_have_each_plane_once)
{
    harness_random random;
    harness_random_seed(&random, 11);
    int several = 0; /* plans whose K-tiles have several planes, some of them beyond the last */
    for (int i = 0; i < AXES; i++) {
        tconv_desc desc = desc_of("ci=64 co=64 k=2 s=2 z=2 h=4 w=4", TCONV_F32, TCONV_NHWC);
        tconv_layer layer;
        planned_layer plan;
        if (!draw(&random, &desc))
            continue;
        plan_layer(&desc, &layer, &plan);
        const tconv_problem *problem = &layer.problem;
        const parameters *params = &plan.params;
        const int blocks = (int)(params->tiles.count / params->tiles.planes);
        several += params->images.tile_log2 > 0 && problem->d.in % (1 << params->images.tile_log2) != 0;
        cr_assert(params->images.are_planes && plan.bias_parts == 0 && plan.copies.images == 0);
        cr_assert_eq(params->images.out, problem->d.out);
        for (int64_t plane = 0; plane < problem->d.kernel; plane++)
            for (int last = 0; last < 2; last++) { /* the first and the last block of a kernel plane and a slice */
                int counts[MOST_VOLUMES][MOST_PLANES] = {0};
                const int slice = last ? params->splits - 1 : 0;
                const int block = slice * (int)params->tiles.count + (int)plane * blocks + (last ? blocks - 1 : 0);
                walk(problem, params, block, plane, counts);
                for (int64_t volume = 0; volume < problem->batch; volume++)
                    for (int64_t q = 0; q < problem->d.in; q++)
                        cr_assert_eq(counts[volume][q], 1, "volume %" PRId64 " plane %" PRId64, volume, q);
            }
    }
    cr_expect_gt(several, 5);
}
