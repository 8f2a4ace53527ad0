/* The program on layers of three axes. These are tests of the suite cli. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/npy_file.h"
#include "support/program.h"

enum { AXES = 5, MOST_ELEMENTS = 8192 };

/* Logical extents n, c, d, h, w of x and g, and in, out / groups, kd, kh, kw of w, of a layer in which every axis differs. */
static const size_t x_shape[AXES] = {2, 4, 2, 3, 4}, w_shape[AXES] = {4, 3, 2, 3, 2}, g_shape[AXES] = {2, 6, 8, 8, 7};
#define LAYER                                                                                                          \
    "--groups", "2", "--stride", "3,2,2", "--padding", "0,1,0,1,0,2", "--output-padding", "2,0,1", "--dilation", "3,2,1"

/* The orders in which axes are stored, slowest first. */
static const struct order {
    const char *name;
    int axes[AXES];
} layouts[] = {{"nchw", {0, 1, 2, 3, 4}}, {"nhwc", {0, 2, 3, 4, 1}}},
  weight_layouts[] = {{"iohw", {0, 1, 2, 3, 4}}, {"ihwo", {0, 2, 3, 4, 1}}, {"hwoi", {2, 3, 4, 1, 0}}};

static size_t count_of(const size_t shape[AXES])
{
    return shape[0] * shape[1] * shape[2] * shape[3] * shape[4];
}

static size_t offset_in(const int order[AXES], const size_t shape[AXES], const size_t at[AXES])
{
    size_t offset = 0;
    for (int i = 0; i < AXES; i++)
        offset = offset * shape[order[i]] + at[order[i]];
    return offset;
}

static void each_index(const size_t shape[AXES], size_t i, size_t at[AXES])
{
    for (int axis = AXES - 1; axis >= 0; axis--)
        at[axis] = i % shape[axis], i /= shape[axis];
}

/* Numbers of a tensor by their logical indices, small integers of both signs. */
static float number_at(const size_t shape[AXES], const size_t at[AXES])
{
    return (float)((int)(offset_in(layouts[0].axes, shape, at) * 7 % 11) - 5);
}

/* Writes the shape that a file has, as the header has it; without images where there is one alone and they are dropped. */
static void shape_text(const struct order *order, const size_t shape[AXES], bool drops_images, char text[96])
{
    int length = snprintf(text, 96, "(");
    for (int i = drops_images; i < AXES; i++)
        length += snprintf(text + length, 96 - (size_t)length, i == AXES - 1 ? "%zu)" : "%zu, ", shape[order->axes[i]]);
}

static void write_numbers(const char *path, const struct order *order, const size_t shape[AXES], bool drops_images)
{
    static float data[MOST_ELEMENTS];
    char text[96], header[192];
    for (size_t i = 0, at[AXES]; i < count_of(shape); i++) {
        each_index(shape, i, at);
        data[offset_in(order->axes, shape, at)] = number_at(shape, at);
    }
    shape_text(order, shape, drops_images, text);
    snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", text);
    write_npy(path, 1, header, data, count_of(shape) * sizeof data[0]);
}

static void check_numbers(const char *path, const struct order *order, const size_t shape[AXES], bool drops_images,
                          const float *expected)
{
    char text[96];
    size_t bytes;
    shape_text(order, shape, drops_images, text);
    char *data = read_npy(path, text, &bytes);
    const float *got = (const float *)(const void *)data;
    cr_assert_eq(bytes, count_of(shape) * sizeof *got);
    for (size_t i = 0, at[AXES]; i < count_of(shape); i++) {
        each_index(shape, i, at);
        cr_assert_eq(got[offset_in(order->axes, shape, at)], expected[i], "%s: %zu is %g, not %g", path, i,
                     (double)got[offset_in(order->axes, shape, at)], (double)expected[i]);
    }
    free(data);
}

/* What the three operations give, by the formulas of tconv.h. */
struct results {
    float y[2 * 6 * 8 * 8 * 7], x[2 * 4 * 2 * 3 * 4], w[4 * 3 * 2 * 3 * 2], bias[6];
};

static void add_products(size_t images, struct results *to)
{
    size_t from[AXES], tap[AXES];
    memset(to, 0, sizeof *to);
    for (size_t i = 0; i < count_of(x_shape) / x_shape[0] * images; i++)
        for (size_t j = 0; j < count_of(w_shape) / w_shape[0]; j++) {
            each_index(x_shape, i, from);
            each_index(w_shape, j, tap);
            tap[0] = from[1];
            const size_t d = 3 * from[2] + 3 * tap[2], h = 2 * from[3] + 2 * tap[3] - 1, w = 2 * from[4] + tap[4];
            const size_t at[AXES] = {from[0], from[1] / 2 * 3 + tap[1], d, h, w};
            if (d >= g_shape[2] || h >= g_shape[3] || w >= g_shape[4]) /* -1 too */
                continue;
            const size_t of_w = offset_in(layouts[0].axes, w_shape, tap),
                         of_y = offset_in(layouts[0].axes, g_shape, at);
            to->y[of_y] += number_at(x_shape, from) * number_at(w_shape, tap);
            to->x[i] += number_at(g_shape, at) * number_at(w_shape, tap);
            to->w[of_w] += number_at(g_shape, at) * number_at(x_shape, from);
        }
    for (size_t i = 0, at[AXES]; i < count_of(g_shape) / g_shape[0] * images; i++) {
        each_index(g_shape, i, at);
        to->bias[at[1]] += number_at(g_shape, at);
    }
}

static void run_operations(const struct order *layout, const struct order *weights, bool one_image)
{
    static struct results expected;
    size_t x[AXES], g[AXES], bytes;
    memcpy(x, x_shape, sizeof x), memcpy(g, g_shape, sizeof g);
    x[0] = g[0] = one_image ? 1 : 2;
    add_products(x[0], &expected);
    write_numbers("x.npy", layout, x, one_image);
    write_numbers("w.npy", weights, w_shape, false);
    write_numbers("g.npy", layout, g, one_image);
    struct program_result result = PROGRAM("run", "--input", "x.npy", "--weight", "w.npy", "--output", "y.npy", LAYER,
                                           "--layout", layout->name, "--weight-layout", weights->name);
    expect_code(&result, 0, weights->name);
    check_numbers("y.npy", layout, g, one_image, expected.y);
    release_result(&result);
    result = PROGRAM("run", "--op", "backward_data", "--weight", "w.npy", "--diff-output", "g.npy", "--output", "y.npy",
                     LAYER, "--layout", layout->name, "--weight-layout", weights->name);
    expect_code(&result, 0, weights->name);
    check_numbers("y.npy", layout, x, one_image, expected.x);
    release_result(&result);
    if (one_image) /* four axes without a weight to tell are two axes and images */
        return;
    result =
        PROGRAM("run", "--op", "backward_weights", "--input", "x.npy", "--diff-output", "g.npy", "--output", "y.npy",
                "--bias-output", "b.npy", LAYER, "--layout", layout->name, "--weight-layout", weights->name);
    expect_code(&result, 0, weights->name);
    check_numbers("y.npy", weights, w_shape, false, expected.w);
    char *const bias = read_npy("b.npy", "(6,)", &bytes);
    cr_assert(bytes == sizeof expected.bias && memcmp(bias, expected.bias, bytes) == 0, "the gradient of the bias");
    free(bias);
    release_result(&result);
}

Test(cli, run_computes_volumes_in_every_layout)
{
    for (size_t i = 0; i < 12; i++)
        run_operations(&layouts[i % 2], &weight_layouts[i / 2 % 3], i >= 6);
}

Test(cli, bench_times_volumes)
{
    static const char csv[] = "name,N,Cin,D,H,W,Cout,kd,kh,kw,sd,sh,sw,pd,ph,pw,opd,oph,opw,dd,dh,dw,g,bias\n"
                              "up,2,4,3,4,5,6,2,3,2,2,1,2,1,0,0,1,0,1,1,2,1,2,1\n";
    write_whole("volumes.csv", csv, sizeof csv - 1);
    struct program_result result =
        PROGRAM("bench", "--workloads", "volumes.csv", "--check", "--repeat", "1", "--problem",
                "n=2 ci=4 z=3 h=4 w=5 co=6 k=2x3x2 s=2x1x2 p=1x0x0 op=1x0x1 d=1x2x1 g=2 b=1", "--json", "y.json");
    expect_code(&result, 0, "bench");
    expect_text(result.out, "checked: all outputs right", "bench");
    release_result(&result);
    char *const json = read_whole("y.json", NULL);
    expect_text(json, "\"name\": \"up\"", "bench");
    expect_text(json, "\"name\": \"problem\"", "bench");
    free(json);
}

Test(cli, plan_and_verify_know_volumes)
{
    struct program_result result = PROGRAM("plan", "--problem", "n=2 ci=4 z=3 h=4 w=5 co=6 k=2 s=2");
    expect_code(&result, 0, "plan");
    release_result(&result);
    result = PROGRAM("verify", "--by-class", "--layers", "40", "--seed", "1");
    expect_code(&result, 0, "verify");
    expect_text(result.out, " depth, ", "verify");
    release_result(&result);
}
