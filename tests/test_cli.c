/* The tconv program as a user meets it: what each command prints and the files it writes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/npy_file.h"
#include "support/program.h"
#include "tconv/tconv.h"

TestSuite(cli, .init = enter_scratch, .fini = leave_scratch);

Test(cli, help_and_version)
{
    static const char *const commands[] = {"info", "plan", "run", "verify", "bench"};
    struct program_result result = PROGRAM("--help");
    expect_code(&result, 0, "--help");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        expect_text(result.out, commands[i], "--help");
        struct program_result one = PROGRAM(commands[i], "--help");
        expect_code(&one, 0, commands[i]);
        expect_text(one.out, "Usage: tconv", commands[i]);
        expect_text(one.out, "Exit codes: 0", commands[i]);
        release_result(&one);
    }
    release_result(&result);
    result = PROGRAM("--version");
    expect_code(&result, 0, "--version");
    expect_text(result.out, TCONV_VERSION_STRING, "--version");
    release_result(&result);
}

Test(cli, info_names_version_backends_and_implementations)
{
    struct program_result result = PROGRAM("info");
    expect_code(&result, 0, "info");
    expect_text(result.out, TCONV_VERSION_STRING, "info");
    expect_text(result.out, "cpu_reference", "info");
    release_result(&result);
    result = PROGRAM("info", "--json");
    expect_code(&result, 0, "info --json");
    cr_assert_eq(result.out[0], '{');
    expect_text(result.out, "\"version\": \"" TCONV_VERSION_STRING "\"", "info --json");
    expect_text(result.out, "\"cuda\"", "info --json");
    release_result(&result);
}

Test(cli, plan_says_what_would_run)
{
    struct program_result result = PROGRAM("plan", "--problem", "ci=8 h=16 w=16 co=8 k=3", "--backend", "cpu");
    expect_code(&result, 0, "plan");
    expect_text(result.out, "   1 cpu_phases", "plan");
    expect_text(result.out, "- cpu_pixels       declines: src and dst must be NHWC", "plan");
    release_result(&result);
    /* As many output channels as the longest vector of any processor has. */
    result = PROGRAM("plan", "--problem", "ci=8 h=16 w=16 co=16 k=3", "--backend", "cpu", "--layout", "nhwc", "--json");
    expect_code(&result, 0, "plan --json");
    cr_assert_eq(result.out[0], '{');
    expect_text(result.out, "\"name\": \"cpu_pixels\",\n      \"rank\": 1", "plan --json");
    release_result(&result);
    result = PROGRAM("plan", "--problem", "ci=8 h=16 w=16", "--backend", "cpu");
    expect_code(&result, 2, "plan without co");
    release_result(&result);
}

/* On any machine, by any build: 64 to 64 channels, 3 x 7, TF32, is cuda_wgmma's, and why is the time that is predicted of
 * each. */
Test(cli, plan_for_a_gpu_that_is_not_here)
{
    const char *const problem = "n=16 ci=64 h=128 w=416 co=64 k=3x7 p=1x3";
    struct program_result result = PROGRAM("plan", "--device", "h200", "--math", "tf32", "--problem", problem);
    expect_code(&result, 0, "plan --device h200");
    expect_text(result.out, "   1 cuda_wgmma", "--device h200");
    expect_text(result.out, "rates_measured: true", "--device h200");
    expect_text(result.out, "- cuda_depthwise   declines:", "--device h200");
    release_result(&result);
    result = PROGRAM("plan", "--device", "gtx1", "--problem", problem);
    expect_code(&result, 2, "plan --device gtx1");
    expect_text(result.error, "device = gtx1: must be one of h200, h100", "--device gtx1");
    release_result(&result);
}

/* A 1x1 kernel of one channel and weight 1 copies its input: the file comes back bit for bit. */
Test(cli, npy_round_trip_in_every_dtype_and_version)
{
    static const unsigned char half[] = {0x00, 0x3c, 0x01, 0x00, 0xff, 0x7b, 0x00, 0xc0, 0x55, 0x35, 0x00, 0x00};
    static const double doubles[] = {1, -2.5, 1e300, 0, 3.141592653589793, -1e-300};
    static const unsigned char one_half[] = {0x00, 0x3c};
    static const float one_float = 1;
    static const double one_double = 1;
    static const struct {
        const char *descr;
        const void *data, *one;
        size_t size;
    } rows[] = {{"<f2", half, one_half, 2}, {"<f4", npy_numbers, &one_float, 4}, {"<f8", doubles, &one_double, 8}};
    for (size_t i = 0; i < 3; i++)
        for (int major = 1; major <= 2; major++) {
            char header[128], shape[128];
            size_t bytes;
            snprintf(header, sizeof header, "{\"descr\": \"%s\", \"fortran_order\": False, \"shape\": (1,1,2,3)}",
                     rows[i].descr);
            write_npy("x.npy", major, header, rows[i].data, 6 * rows[i].size);
            snprintf(header, sizeof header, "{'shape': (1, 1, 1, 1,), 'descr': '%s', 'fortran_order': False, }   \n",
                     rows[i].descr);
            write_npy("w.npy", major, header, rows[i].one, rows[i].size);
            struct program_result result = PROGRAM("run", "--input", "x.npy", "--weight", "w.npy", "--output", "y.npy");
            expect_code(&result, 0, rows[i].descr);
            snprintf(shape, sizeof shape, "{'descr': '%s', 'fortran_order': False, 'shape': (1, 1, 2, 3), }",
                     rows[i].descr);
            char *data = read_npy("y.npy", shape, &bytes);
            cr_assert_eq(bytes, 6 * rows[i].size);
            cr_assert_eq(memcmp(data, rows[i].data, bytes), 0, "%s", rows[i].descr);
            free(data);
            release_result(&result);
        }
}

/* Returns the index of element {a, b, c, d} of a dense array whose axes are stored in the order given, slowest
 * first. */
static size_t offset_in(const int order[4], const size_t shape[4], const size_t at[4])
{
    size_t offset = 0;
    for (int i = 0; i < 4; i++)
        offset = offset * shape[order[i]] + at[order[i]];
    return offset;
}

/* Writes a file of this logical shape, with its axes stored in the order given. */
static void write_in_order(const char *path, const int order[4], const size_t shape[4])
{
    char text[64];
    snprintf(text, sizeof text, "(%zu, %zu, %zu, %zu)", shape[order[0]], shape[order[1]], shape[order[2]],
             shape[order[3]]);
    write_f4(path, text, shape[0] * shape[1] * shape[2] * shape[3]);
}

/* Checks two by two outputs for each pixel, worked out by hand: y[c, 2h + kh, 2w + kw] = b[c] + sum x[i, h, w] w[i, c,
 * kh, kw]. */
static void check_upsampling(const float *y, const int image[4], const int weights[4])
{
    static const size_t x_shape[] = {1, 2, 3, 4}, w_shape[] = {2, 3, 2, 2}, y_shape[] = {1, 3, 6, 8};
    for (size_t c = 0; c < 3; c++)
        for (size_t h = 0; h < 6; h++)
            for (size_t w = 0; w < 8; w++) {
                float expected = npy_numbers[c], got = y[offset_in(image, y_shape, (const size_t[]){0, c, h, w})];
                for (size_t i = 0; i < 2; i++)
                    expected += npy_numbers[offset_in(image, x_shape, (const size_t[]){0, i, h / 2, w / 2})] *
                                npy_numbers[offset_in(weights, w_shape, (const size_t[]){i, c, h % 2, w % 2})];
                cr_assert_eq(got, expected, "c=%zu h=%zu w=%zu: %g, not %g", c, h, w, (double)got, (double)expected);
            }
}

Test(cli, run_computes_the_layer_in_every_layout)
{
    static const size_t x_shape[] = {1, 2, 3, 4}, w_shape[] = {2, 3, 2, 2};
    static const struct {
        const char *name, *shape;
        int order[4];
    } layouts[] = {{"nchw", "(1, 3, 6, 8)", {0, 1, 2, 3}}, {"nhwc", "(1, 6, 8, 3)", {0, 2, 3, 1}}};
    static const struct {
        const char *name;
        int order[4];
    } weights[] = {{"iohw", {0, 1, 2, 3}}, {"ihwo", {0, 2, 3, 1}}, {"hwoi", {2, 3, 1, 0}}};
    write_f4("b.npy", "(3,)", 3);
    for (size_t i = 0; i < 6; i++) {
        const int *image = layouts[i / 3].order, *kernel = weights[i % 3].order;
        size_t bytes;
        write_in_order("x.npy", image, x_shape);
        write_in_order("w.npy", kernel, w_shape);
        struct program_result result =
            PROGRAM("run", "--input", "x.npy", "--weight", "w.npy", "--bias", "b.npy", "--output", "y.npy", "--stride",
                    "2", "--layout", layouts[i / 3].name, "--weight-layout", weights[i % 3].name);
        expect_code(&result, 0, weights[i % 3].name);
        expect_text(result.out, layouts[i / 3].shape, layouts[i / 3].name);
        expect_text(result.out, "GFLOP/s", "run");
        cr_assert(!exists_like("y.npy."), "the temporary file is still there");
        char *data = read_npy("y.npy", layouts[i / 3].shape, &bytes);
        cr_assert_eq(bytes, sizeof(float) * 3 * 6 * 8);
        check_upsampling((const float *)(const void *)data, image, kernel);
        free(data);
        release_result(&result);
    }
}

Test(cli, run_keeps_rank_and_layout)
{
    static const struct {
        const char *x, *w, *layout, *weight_layout, *dtype, *shape;
    } rows[] = {
        {"(2, 3, 4)", "(2, 3, 2, 2)", "nchw", "iohw", "f32", "'<f4', 'fortran_order': False, 'shape': (3, 6, 8)"},
        {"(3, 4, 2)", "(2, 2, 2, 3)", "nhwc", "ihwo", "f32", "'<f4', 'fortran_order': False, 'shape': (6, 8, 3)"},
        {"(1, 3, 4, 2)", "(2, 2, 3, 2)", "nhwc", "hwoi", "f64", "'<f8', 'fortran_order': False, 'shape': (1, 6, 8, 3)"},
        {"(1, 2, 3, 4)", "(2, 3, 2, 2)", "nchw", "iohw", "f16", "'<f2', 'fortran_order': False, 'shape': (1, 3, 6, 8)"},
        {"(1, 2, 3, 4)", "(2, 3, 2, 2)", "nchw", "iohw", "bf16",
         "'<f4', 'fortran_order': False, 'shape': (1, 3, 6, 8)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t bytes;
        write_f4("x.npy", rows[i].x, 24);
        write_f4("w.npy", rows[i].w, 24);
        struct program_result result =
            PROGRAM("run", "--input", "x.npy", "--weight", "w.npy", "--output", "y.npy", "--stride", "2,2", "--layout",
                    rows[i].layout, "--weight-layout", rows[i].weight_layout, "--dtype", rows[i].dtype);
        expect_code(&result, 0, rows[i].shape);
        free(read_npy("y.npy", rows[i].shape, &bytes));
        release_result(&result);
    }
}

/* Numbers of a layer by their logical indices, small integers of both signs. */
static float number_at(const size_t shape[4], const size_t at[4])
{
    static const int plain[4] = {0, 1, 2, 3};
    return (float)((int)(offset_in(plain, shape, at) * 7 % 11) - 5);
}

static void each_index(const size_t shape[4], size_t i, size_t at[4])
{
    for (int axis = 3; axis >= 0; axis--)
        at[axis] = i % shape[axis], i /= shape[axis];
}

/* Writes those numbers with the axes stored in the order given. */
static void write_numbers(const char *path, const int order[4], const size_t shape[4])
{
    float data[1024];
    char header[128];
    const size_t count = shape[0] * shape[1] * shape[2] * shape[3];
    for (size_t i = 0, at[4]; i < count; i++) {
        each_index(shape, i, at);
        data[offset_in(order, shape, at)] = number_at(shape, at);
    }
    snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu, %zu, %zu), }",
             shape[order[0]], shape[order[1]], shape[order[2]], shape[order[3]]);
    write_npy(path, 1, header, data, count * sizeof data[0]);
}

/* A layer with everything that decides how many inputs or taps make so many outputs. */
static const size_t gradient_x[] = {2, 4, 3, 4}, gradient_w[] = {4, 3, 3, 2}, gradient_g[] = {2, 6, 8, 6};
#define GRADIENT_LAYER                                                                                                 \
    "--groups", "2", "--stride", "2", "--padding", "1,0,1,2", "--output-padding", "1,0", "--dilation", "2,1"

/* Adds each product of the layer to the gradients, straight from the formulas of tconv.h. */
static void add_gradients(float *x, float *w, float *bias)
{
    static const int plain[4] = {0, 1, 2, 3};
    size_t from[4], tap[4];
    for (size_t i = 0; i < 2 * 4 * 3 * 4; i++)
        for (size_t j = 0; j < 3 * 3 * 2; j++) {
            each_index(gradient_x, i, from);
            each_index((const size_t[]){1, 3, 3, 2}, j, tap);
            tap[0] = from[1];
            const size_t h = 2 * from[2] + 2 * tap[2] - 1, v = 2 * from[3] + tap[3];
            if (h >= 8 || v >= 6) /* -1 too */
                continue;
            const size_t at[] = {from[0], from[1] / 2 * 3 + tap[1], h, v};
            x[i] += number_at(gradient_g, at) * number_at(gradient_w, tap);
            w[offset_in(plain, gradient_w, tap)] += number_at(gradient_g, at) * number_at(gradient_x, from);
        }
    for (size_t i = 0, at[4]; i < 2 * 6 * 8 * 6; i++) {
        each_index(gradient_g, i, at);
        bias[at[1]] += number_at(gradient_g, at);
    }
}

static void check_numbers(const char *path, const char *text, const int order[4], const size_t shape[4],
                          const float *expected)
{
    size_t bytes;
    char *data = read_npy(path, text, &bytes);
    const float *got = (const float *)(const void *)data;
    const size_t count = shape[0] * shape[1] * shape[2] * shape[3];
    cr_assert_eq(bytes, count * sizeof *got);
    for (size_t i = 0, at[4]; i < count; i++) {
        each_index(shape, i, at);
        cr_assert_eq(got[offset_in(order, shape, at)], expected[i], "%s: %zu", path, i);
    }
    free(data);
}

Test(cli, run_computes_gradients_in_every_layout)
{
    static const struct {
        const char *name, *x;
        int order[4];
    } layouts[] = {{"nchw", "(2, 4, 3, 4)", {0, 1, 2, 3}}, {"nhwc", "(2, 3, 4, 4)", {0, 2, 3, 1}}};
    static const struct {
        const char *name, *w;
        int order[4];
    } weights[] = {{"iohw", "(4, 3, 3, 2)", {0, 1, 2, 3}},
                   {"ihwo", "(4, 3, 2, 3)", {0, 2, 3, 1}},
                   {"hwoi", "(3, 2, 3, 4)", {2, 3, 1, 0}}};
    float x[2 * 4 * 3 * 4] = {0}, w[4 * 3 * 3 * 2] = {0}, bias[6] = {0};
    add_gradients(x, w, bias);
    for (size_t i = 0; i < 6; i++) {
        const int *image = layouts[i / 3].order, *kernel = weights[i % 3].order;
        write_numbers("x.npy", image, gradient_x);
        write_numbers("w.npy", kernel, gradient_w);
        write_numbers("g.npy", image, gradient_g);
        struct program_result result =
            PROGRAM("run", "--op", "backward_data", "--weight", "w.npy", "--diff-output", "g.npy", "--output", "dx.npy",
                    "--layout", layouts[i / 3].name, "--weight-layout", weights[i % 3].name, GRADIENT_LAYER);
        expect_code(&result, 0, result.error);
        release_result(&result);
        check_numbers("dx.npy", layouts[i / 3].x, image, gradient_x, x);
        result = PROGRAM("run", "--op", "backward_weights", "--input", "x.npy", "--diff-output", "g.npy", "--output",
                         "dw.npy", "--bias-output", "db.npy", "--layout", layouts[i / 3].name, "--weight-layout",
                         weights[i % 3].name, GRADIENT_LAYER);
        expect_code(&result, 0, result.error);
        expect_text(result.out, "db.npy: shape (6,), f32", "run");
        release_result(&result);
        check_numbers("dw.npy", weights[i % 3].w, kernel, gradient_w, w);
        check_numbers("db.npy", "(6,)", (const int[]){0, 1, 2, 3}, (const size_t[]){6, 1, 1, 1}, bias);
    }
}

Test(cli, verify_tries_all_operations)
{
    struct program_result result = PROGRAM("verify", "--layers", "1", "--no-corners", "--seed", "7");
    expect_code(&result, 0, result.error);
    const char *const names[] = {"forward: seed 7", "backward_data: seed 7", "backward_weights: seed 7", "all right"};
    const char *at = result.out;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        at = strstr(at, names[i]);
        cr_assert_not_null(at, "no %s in order in %s", names[i], result.out);
    }
    release_result(&result);
}

Test(cli, verify_says_what_it_did_not_try)
{
    struct program_result result =
        PROGRAM("verify", "--op", "forward", "--layers", "0", "--no-corners", "--backend", "cpu");
    expect_code(&result, 0, "verify");
    expect_text(result.out, "not tried: CUDA, by --backend\n", "verify");
    expect_text(result.out, "not tried: the corners, by --no-corners\n", "verify");
    expect_text(result.out, "not tried: backward_data, by --op\n", "verify");
    expect_text(result.out, "not tried: backward_weights, by --op\n", "verify");
    expect_text(result.out, "not tried: cpu_col2im generic: it takes none of these layers\n", "verify");
    cr_assert_null(strstr(result.out, "not tried: forward"), "%s", result.out);
    release_result(&result);
    result = PROGRAM("verify", "--layers", "1", "--no-corners", "--implementation", "cpu_wgrad", "--isa", "generic");
    expect_code(&result, 0, "verify");
    expect_text(result.out, "forward: not tried: it is no operation of cpu_wgrad\n", "verify");
    expect_text(result.out, "backward_weights: seed", "verify");
    release_result(&result);
}

Test(cli, post_ops_of_verify_and_bench)
{
    struct program_result result = PROGRAM("verify", "--no-corners", "--layers", "12", "--implementation",
                                           "cpu_reference", "--post", "mul_channel,add_channel,leaky_relu:0.2");
    expect_code(&result, 0, "verify --post");
    expect_text(result.out, "12 of 12 layers", "verify --post");
    expect_text(result.out, "not tried: backward_data, by --post\n", "verify --post");
    release_result(&result);

    result = PROGRAM("verify", "--no-corners", "--layers", "30", "--backend", "cpu", "--post", "random");
    expect_code(&result, 0, "verify --post random");
    expect_text(result.out, "0 failures: all right", "verify --post random");
    release_result(&result);

    result = PROGRAM("bench", "--problem", "n=2 ci=3 h=4 w=5 co=6 k=3 post=snake,add_tensor:0.5,tanh as=600x60x7x1",
                     "--problem", "n=2 ci=3 h=4 w=5 co=6 k=3", "--post", "linear:2:1", "--repeat", "1", "--check",
                     "--backend", "cpu");
    expect_code(&result, 0, "bench --post");
    expect_text(result.out, "checked: all outputs right\n", "bench --post");
    release_result(&result);
}

/* The seed is printed, and says which layers and ways are drawn: all but times repeats. */
Test(cli, verify_by_class_repeats)
{
    char *tables[2];
    for (int i = 0; i < 2; i++) {
        struct program_result result =
            PROGRAM("verify", "--by-class", "--layers", "40", "--seed", "9", "--backend", "cpu");
        expect_code(&result, 0, "verify --by-class");
        expect_text(result.out, "by class: seed 9\n", "verify --by-class");
        expect_text(result.out, "(chosen on the CPU)              80            0         0\n", "verify --by-class");
        expect_text(result.out, "\n40 layers in ", "verify --by-class");
        expect_text(result.out, " s, 0 failures: all right\n", "verify --by-class");
        *strstr(result.out, "\n40 layers in ") = '\0';
        tables[i] = result.out;
        result.out = NULL;
        release_result(&result);
    }
    cr_assert_str_eq(tables[0], tables[1]);
    free(tables[0]);
    free(tables[1]);
    struct program_result result = PROGRAM("verify", "--by-class", "--layers", "0", "--backend", "cpu");
    expect_code(&result, 0, "verify --by-class");
    expect_text(result.out, "\n0 layers in ", "verify --by-class");
    release_result(&result);
}

Test(cli, verify_prints_its_seed_and_repeats)
{
    struct program_result result =
        PROGRAM("verify", "--layers", "5", "--no-corners", "--seed", "42", "--backend", "cpu");
    expect_code(&result, 0, "verify");
    expect_text(result.out, "seed 42", "verify");
    expect_text(result.out, "cpu_reference", "verify");
    expect_text(result.out, "0 failures: all right", "verify");
    release_result(&result);
}

Test(cli, a_backend_that_is_not_here_is_code_1)
{
    tconv_issue issue;
    if (tconv_backend_available(TCONV_BACKEND_CUDA, &issue) == TCONV_SUCCESS)
        cr_skip_test("this machine has a CUDA device");
    write_layer();
    struct program_result result =
        PROGRAM("run", "--input", "x.npy", "--weight", "w.npy", "--output", "y.npy", "--backend", "cuda");
    expect_code(&result, 1, "run");
    expect_text(result.error, "--backend cuda", "run");
    cr_assert(!exists_like("y.npy"));
    release_result(&result);
    result = PROGRAM("verify", "--layers", "1", "--no-corners", "--backend", "cuda");
    expect_code(&result, 1, "verify");
    expect_text(result.error, "--backend cuda", "verify");
    release_result(&result);
    result = PROGRAM("bench", "--problem", "ci=1 h=1 w=1 co=1 k=1", "--backend", "cuda");
    expect_code(&result, 1, "bench");
    expect_text(result.error, "--backend cuda", "bench");
    release_result(&result);
    result = PROGRAM("verify", "--layers", "1", "--no-corners");
    expect_code(&result, 0, "verify without a choice");
    expect_text(result.out, "not tried: CUDA: ", "verify without a choice");
    release_result(&result);
}

Test(cli, bench_writes_its_figures)
{
    static const char *const keys[] = {"name",   "backend",  "impl",      "dtype",          "math",
                                       "layout", "n",        "median_ms", "min_ms",         "gflops",
                                       "gbps",   "floor_ms", "x_floor",   "workspace_bytes"};
    struct program_result result =
        PROGRAM("bench", "--case", "dcgan_4", "--case", "hifigan_u1", "--batch-budget", "0.002", "--repeat", "2",
                "--check", "--backend", "cpu", "--json", "figures.json");
    expect_code(&result, 0, "bench");
    expect_text(result.out, "checked: all outputs right", "bench");
    expect_text(result.out, "floor: copy ", "bench");
    char *json = read_whole("figures.json", NULL), *at = json;
    expect_text(json, "{\"name\": \"dcgan_4\", \"backend\": \"cpu\", \"impl\": \"cpu_", "figures.json");
    expect_text(json, "\"dtype\": \"f32\", \"math\": \"strict\", \"layout\": \"nchw\", \"n\": 1, ", "figures.json");
    for (int layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            char key[32];
            snprintf(key, sizeof key, "\"%s\": ", keys[i]);
            at = strstr(at, key);
            cr_assert_not_null(at, "%s lacks %s in its place", json, key);
            at += strlen(key);
        }
    cr_assert_null(strstr(at, "\": "), "figures.json has more keys");
    free(json);
    release_result(&result);
}

Test(cli, bench_cuts_the_batch_to_the_budget)
{
    const char *problem = "n=100 ci=10 h=10 w=10 co=5 k=10"; /* 1 MFLOP an image */
    struct program_result result = PROGRAM("bench", "--problem", problem, "--batch-budget", "0.0075", "--repeat", "1",
                                           "--json", "figures.json", "--dtype", "f64", "--layout", "nhwc");
    expect_code(&result, 0, "bench");
    char *json = read_whole("figures.json", NULL);
    expect_text(json, "\"dtype\": \"f64\", \"math\": \"strict\", \"layout\": \"nhwc\", \"n\": 7, ", "figures.json");
    free(json);
    release_result(&result);
}

/* ------------------------------------------------------------------------------------------------------------- replay */

/* Splits text at its spaces, but not inside double quotes, and drops the quotes. Returns the number of words. */
static size_t split_words(char *text, const char **words, size_t most)
{
    size_t count = 0;
    while (count < most) {
        text += strspn(text, " \n");
        if (*text == '\0')
            break;
        const char end = *text == '"' ? '"' : ' ';
        text += end == '"';
        words[count++] = text;
        text += strcspn(text, end == '"' ? "\"" : " \n");
        if (*text != '\0')
            *text++ = '\0';
    }
    return count;
}

Test(cli, a_verbose_line_replays_through_bench)
{
    const char *const run[] = {"run",     "--input",  "x.npy", "--weight",         "w.npy", "--bias",
                               "b.npy",   "--output", "y.npy", "--stride",         "2,3",   "--padding",
                               "0,1,1,0", "--dtype",  "f16",   "--output-padding", "1,2",   NULL};
    write_layer();
    struct program_result result = run_program(run, (const char *const[]){"TCONV_VERBOSE=1", NULL});
    expect_code(&result, 0, "run");
    char *line = strstr(result.error, "bench=");
    cr_assert_not_null(line, "no replay in \"%s\"", result.error);
    line += strlen("bench=");
    expect_text(line, "n=1 ci=2 h=3 w=4 co=3 k=2x2 s=2x3 p=0x1x1x0 op=1x2 d=1x1 g=1 b=1", "the verbose line");

    const char *words[32] = {"bench", "--repeat", "1", "--check"};
    size_t count = 4 + split_words(line, words + 4, 24);
    words[count] = NULL;
    struct program_result again = run_program(words, (const char *const[]){"TCONV_VERBOSE=1", NULL});
    expect_code(&again, 0, "bench");
    expect_text(again.error, "n=1 ci=2 h=3 w=4 co=3 k=2x2 s=2x3 p=0x1x1x0 op=1x2 d=1x1 g=1 b=1\" --dtype f16", "bench");
    release_result(&again);
    release_result(&result);
}
