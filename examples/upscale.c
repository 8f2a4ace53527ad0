/*
 * upscale: enlarges a PNG four times with a bicubic kernel, as one grouped transposed convolution.
 *
 *     upscale INPUT.png OUTPUT.png [auto|cpu|cuda]
 *
 * Enlarging by s is a transposed convolution of stride s: each input pixel stamps the kernel, sampled s times as densely,
 * onto the output. With pixel centres at i + 1/2, output pixel o lies (o + 1/2) / s - 1/2 - i input pixels from input
 * pixel i, so that with o = s * i + tap - (3 * s / 2)
 *
 *     weight[tap] = keys((tap + 1/2) / s - 2),    0 <= tap < 4 * s,
 *
 * in each direction; the kernel is their product. Every channel is its own group (depthwise). The picture is continued by
 * two rows and columns of its border pixels on every side, as many as the kernel reaches, and the padding of the layer
 * cuts off what they would add to the output. Pixels are taken as they are stored, without undoing gamma, as most tools do.
 */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tconv/tconv.h>

enum {
    SCALE = 4,
    TAPS = 4 * SCALE,   /* the kernel spans four input pixels */
    REACH = 2,          /* input pixels on either side */
    BORDER = 2 * REACH, /* both sides together */
    CHANNELS = 3
};

/* One picture, interleaved RGB (NHWC with one image), 0 to 255. */
typedef struct image {
    int64_t width, height;
    float *pixels; /* owned */
} image;

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "upscale: error: %s: %s\n", what, why);
    return 2;
}

/* The cubic convolution kernel of R. Keys, 1981, with a = -1/2 (Catmull-Rom). */
static double keys(double t)
{
    t = t < 0 ? -t : t;
    if (t < 1)
        return (1.5 * t - 2.5) * t * t + 1;
    return t < 2 ? ((-0.5 * t + 2.5) * t - 4) * t + 2 : 0;
}

/* weights[CHANNELS][1][TAPS][TAPS]: the same kernel for each channel. */
static void make_weights(float *weights)
{
    for (int c = 0; c < CHANNELS; c++) {
        for (int kh = 0; kh < TAPS; kh++) {
            for (int kw = 0; kw < TAPS; kw++) {
                double value = keys((kh + 0.5) / SCALE - 2) * keys((kw + 0.5) / SCALE - 2);
                *weights++ = (float)value;
            }
        }
    }
}

/* Reads a PNG of any kind as RGB and continues it by REACH border pixels on every side. */
static int read_picture(const char *path, image *picture)
{
    int code = 0;
    unsigned char *bytes = NULL;
    png_image png;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_file(&png, path))
        return fail(path, png.message);
    png.format = PNG_FORMAT_RGB;
    const int64_t width = png.width, height = png.height;
    bytes = malloc(PNG_IMAGE_SIZE(png));
    picture->width = width + BORDER;
    picture->height = height + BORDER;
    picture->pixels = malloc((size_t)(picture->width * picture->height) * CHANNELS * sizeof(float));
    if (bytes == NULL || picture->pixels == NULL) {
        code = fail(path, "out of memory");
        goto cleanup;
    }
    /* A transparent picture is laid on white. */
    const png_color white = {255, 255, 255};
    if (!png_image_finish_read(&png, &white, bytes, 0, NULL)) {
        code = fail(path, png.message);
        goto cleanup;
    }
    float *pixel = picture->pixels;
    for (int64_t y = -REACH; y < height + REACH; y++) {
        const int64_t row = y < 0 ? 0 : y < height ? y : height - 1;
        for (int64_t x = -REACH; x < width + REACH; x++) {
            const int64_t column = x < 0 ? 0 : x < width ? x : width - 1;
            for (int64_t c = 0; c < CHANNELS; c++)
                *pixel++ = bytes[(row * width + column) * CHANNELS + c];
        }
    }
cleanup:
    png_image_free(&png);
    free(bytes);
    return code;
}

/* Writes a picture as 8-bit RGB, rounded and clamped: the kernel has negative lobes, which overshoot at edges. */
static int write_picture(const char *path, const image *picture)
{
    const size_t count = (size_t)(picture->width * picture->height) * CHANNELS;
    unsigned char *bytes = malloc(count);
    if (bytes == NULL)
        return fail(path, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const float value = picture->pixels[i] + 0.5F;
        bytes[i] = (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    png_image png;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    png.width = (png_uint_32)picture->width;
    png.height = (png_uint_32)picture->height;
    png.format = PNG_FORMAT_RGB;
    const int written = png_image_write_to_file(&png, path, 0, bytes, 0, NULL);
    free(bytes);
    return written ? 0 : fail(path, png.message);
}

static double seconds_now(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Enlarges in into out, whose pixels it allocates. The tensors are in host memory whichever backend runs. */
static int enlarge(const image *in, tconv_backend backend, image *out)
{
    static float weights[CHANNELS * TAPS * TAPS];
    make_weights(weights);

    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.in_channels = desc.out_channels = desc.groups = CHANNELS;
    desc.in_h = in->height;
    desc.in_w = in->width;
    desc.kernel_h = desc.kernel_w = TAPS;
    desc.stride_h = desc.stride_w = SCALE;
    desc.pad_top = desc.pad_left = desc.pad_bottom = desc.pad_right = 3 * SCALE / 2 + REACH * SCALE;
    desc.layout = TCONV_NHWC;

    tconv_issue issue;
    int64_t shape[4];
    if (tconv_output_shape(&desc, shape, &issue) != TCONV_SUCCESS)
        return fail("layer", issue.message);
    out->height = shape[2];
    out->width = shape[3];
    out->pixels = malloc((size_t)(out->height * out->width) * CHANNELS * sizeof(float));
    if (out->pixels == NULL)
        return fail("layer", "out of memory");
    tconv_options options;
    tconv_options_init(&options);
    options.backend = backend;
    const tconv_tensor src = {in->pixels, TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor kernel = {weights, TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor dst = {out->pixels, TCONV_F32, TCONV_LOCATION_HOST};
    const double start = seconds_now();
    if (tconv_conv_transpose2d(&desc, &options, &src, &kernel, NULL, &dst, &issue) != TCONV_SUCCESS)
        return fail("layer", issue.message);
    printf("%lld x %lld enlarged to %lld x %lld in %.1f ms\n", (long long)(in->width - BORDER),
           (long long)(in->height - BORDER), (long long)out->width, (long long)out->height,
           (seconds_now() - start) * 1e3);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const backends[] = {"auto", "cpu", "cuda"}; /* in the order of tconv_backend */
    if (argc < 3 || argc > 4)
        return fail("arguments", "expected INPUT.png OUTPUT.png [auto|cpu|cuda]");
    int backend = 0;
    while (argc == 4 && backend < 3 && strcmp(argv[3], backends[backend]) != 0)
        backend++;
    if (backend == 3)
        return fail(argv[3], "must be auto, cpu or cuda");
    image in = {0, 0, NULL}, out = {0, 0, NULL};
    int code = read_picture(argv[1], &in);
    if (code == 0)
        code = enlarge(&in, (tconv_backend)backend, &out);
    if (code == 0)
        code = write_picture(argv[2], &out);
    free(in.pixels);
    free(out.pixels);
    return code;
}
